"""The life of a link: create, open, retry, update, revoke; and what is stored in between."""

from __future__ import annotations

import copy
import pickle

import pytest

from qsratchet.crypto.secret import Sensitive
from qsratchet.errors import LimitExceeded, MisuseError
from qsratchet.links import (
    CreateQueue,
    DeleteQueue,
    FetchBlobs,
    LinkKind,
    LinkMode,
    Opening,
    OwnerLink,
    ReplaceBlobs,
    SecureQueue,
    SeenVersions,
    create_link,
    format_link,
    parse_link,
)
from qsratchet.links.blobs import Blob, FixedData

from .shelf import BOTH_KINDS, BOTH_MODES, CONTENTS, PQ, PROFILE, RATCHET, SERVER, Refused, Shelf, make, stream

EVERY_LINK = [(kind, mode) for kind in BOTH_KINDS for mode in BOTH_MODES]


@pytest.mark.parametrize(("kind", "mode"), EVERY_LINK)
def test_a_link_is_created_shared_opened_updated_and_revoked(kind: LinkKind, mode: LinkMode) -> None:
    server = Shelf()
    owner, creation = create_link(server=SERVER, kind=kind, mode=mode, contents=CONTENTS)
    server.answer(creation)
    owner = OwnerLink.load(owner.dump())
    opening = Opening.start(parse_link(format_link(owner.link)))
    opened = opening.open(server.answer(opening.request))
    assert opened.contents == CONTENTS
    owner, update = owner.replace({PROFILE: b"name: Alice B."})
    server.answer(update)
    again = opening.open(server.answer(opening.request), seen=SeenVersions.load(opened.seen.dump()))
    assert again.contents == {**CONTENTS, PROFILE: b"name: Alice B."}
    server.answer(owner.revoke())
    assert server.queues == {}
    with pytest.raises(Refused):
        server.answer(opening.request)


@pytest.mark.parametrize(("kind", "mode"), EVERY_LINK)
def test_creation_hands_out_the_public_halves_and_keeps_the_private_ones(kind: LinkKind, mode: LinkMode) -> None:
    owner, creation = create_link(server=SERVER, kind=kind, mode=mode, contents=CONTENTS)
    assert creation == CreateQueue(
        server=SERVER,
        recipient_id=owner.recipient_id,
        sender_id=owner.link.keys().sender_id,
        kind=kind,
        signing_key=owner.server_signing_key.public(),
        dh_key=owner.server_dh_key.public(),
        blobs=creation.blobs,
    )
    assert len(creation.recipient_id) == len(creation.sender_id) == 24
    assert (owner.signing_key is not None) is (mode is LinkMode.BOUND)
    if mode is LinkMode.DIRECT:
        assert owner.link.key == owner.link_dh_key.public()
    seeds = [key.seed for key in (owner.server_signing_key, owner.server_dh_key, owner.link_dh_key)]
    seeds += [owner.signing_key.seed] if owner.signing_key else []
    assert len(set(seeds)) == len(seeds)


def test_a_link_is_bound_unless_asked_otherwise() -> None:
    owner, _ = create_link(server=SERVER, kind=LinkKind.CONTACT, contents=CONTENTS)
    assert owner.link.mode is LinkMode.BOUND


def test_owner_and_sender_agree_through_k() -> None:
    owner, blobs = make()
    sender, _ = make()
    opened = Opening.start(owner.link).open(blobs)
    assert sender.link_dh_key.exchange(opened.k) == owner.link_dh_key.exchange(sender.link_dh_key.public())


def test_creation_needs_the_ratchet_keys_and_known_priorities() -> None:
    with pytest.raises(MisuseError, match="RATCHET_KEYS"):
        create_link(server=SERVER, kind=LinkKind.CONTACT, contents={PROFILE: b""})
    with pytest.raises(MisuseError, match="3 is not a priority"):
        create_link(server=SERVER, kind=LinkKind.CONTACT, contents={RATCHET: b"", 3: b""})  # type: ignore[dict-item]


# --- one-time links ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", BOTH_MODES)
def test_opening_a_one_time_link_survives_a_lost_reply_and_a_restart(mode: LinkMode) -> None:
    server = Shelf()
    owner, creation = create_link(server=SERVER, kind=LinkKind.ONE_TIME, mode=mode, contents=CONTENTS)
    server.answer(creation)
    stored = Opening.start(owner.link).dump()
    first = Opening.load(stored)
    server.answer(first.request)  # The queue is secured now, and the reply is lost.
    second = Opening.load(stored)
    assert second.request == first.request
    assert second.open(server.answer(second.request)).contents == CONTENTS
    assert second.sender_key is not None
    assert server.queues[owner.recipient_id].sender_key == second.sender_key.public()


def test_a_second_person_with_a_one_time_link_is_refused_by_the_server() -> None:
    server = Shelf()
    owner, creation = create_link(server=SERVER, kind=LinkKind.ONE_TIME, contents=CONTENTS)
    server.answer(creation)
    server.answer(Opening.start(owner.link).request)
    # So is the first person, had the opening not been stored: that is why it must be.
    with pytest.raises(Refused):
        server.answer(Opening.start(owner.link).request)


@pytest.mark.parametrize("mode", BOTH_MODES)
def test_the_request_follows_the_kind_of_the_link(mode: LinkMode) -> None:
    contact, one_time = make(LinkKind.CONTACT, mode)[0].link, make(LinkKind.ONE_TIME, mode)[0].link
    opening = Opening.start(contact)
    assert opening.sender_key is None
    assert opening.request == FetchBlobs(server=SERVER, sender_id=contact.keys().sender_id)
    opening = Opening.start(one_time)
    assert opening.sender_key is not None
    assert opening.request == SecureQueue(
        server=SERVER, sender_id=one_time.keys().sender_id, sender_key=opening.sender_key.public()
    )


def test_every_opening_has_its_own_sender_key() -> None:
    link = make(LinkKind.ONE_TIME)[0].link
    assert Opening.start(link).request != Opening.start(link).request


# --- updates -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", BOTH_MODES)
def test_an_update_changes_what_it_names_and_never_the_link(mode: LinkMode) -> None:
    owner, _ = make(LinkKind.CONTACT, mode)
    updated, request = owner.replace({PQ: b"new keys", RATCHET: bytearray(b"new ratchet keys")})
    assert isinstance(request, ReplaceBlobs)
    assert set(request.blobs) == {RATCHET, PQ}
    assert request.recipient_id == owner.recipient_id
    assert updated.link == owner.link
    assert (owner.versions, updated.versions) == ((1, 1, 1), (2, 2, 1))


def test_a_blob_that_was_never_made_starts_at_version_1() -> None:
    owner, _ = make(contents={RATCHET: b"keys"})
    assert owner.versions == (1, 0, 0)
    assert owner.replace({PROFILE: b""})[0].versions == (1, 0, 1)


def test_an_update_that_is_refused_changes_nothing() -> None:
    owner, _ = make()
    before = owner.dump()
    with pytest.raises(MisuseError, match="at least one"):
        owner.replace({})
    with pytest.raises(MisuseError, match="7 is not a priority"):
        owner.replace({PROFILE: b"", 7: b""})  # type: ignore[dict-item]
    with pytest.raises(LimitExceeded):
        owner.replace({RATCHET: b"", PROFILE: bytes(20_000)})
    with pytest.raises(LimitExceeded, match="version of a blob"):
        owner.replace({PROFILE: b""}, after=2**64 - 1)
    assert owner.dump() == before
    assert owner.replace({PROFILE: b""}, after=2**64 - 2)[0].versions == (1, 1, 2**64 - 1)


def test_revoking_asks_the_server_to_delete_the_queue() -> None:
    owner, _ = make()
    assert owner.revoke() == DeleteQueue(server=SERVER, recipient_id=owner.recipient_id)


# --- what a reader remembers ---------------------------------------------------------------------


def test_a_dropped_blob_stays_remembered() -> None:
    owner, blobs = make()
    owner, request = owner.replace({PROFILE: b"newer"})
    opening = Opening.start(owner.link)
    seen = opening.open({**blobs, **request.blobs}).seen
    without = {RATCHET: blobs[RATCHET]}
    assert opening.open(without, seen=seen).seen == seen


def test_versions_of_another_link_are_not_taken() -> None:
    owner, blobs = make()
    other, others = make()
    seen = Opening.start(other.link).open(others).seen
    with pytest.raises(MisuseError, match="another link"):
        Opening.start(owner.link).open(blobs, seen=seen)


# --- stored documents ----------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "mode"), EVERY_LINK)
def test_loading_undoes_dumping(kind: LinkKind, mode: LinkMode) -> None:
    owner, blobs = make(kind, mode)
    loaded = OwnerLink.load(bytearray(owner.dump()))
    assert loaded.dump() == owner.dump()
    assert (loaded.link, loaded.versions) == (owner.link, owner.versions)
    assert loaded.revoke() == owner.revoke()
    opening = Opening.start(owner.link)
    assert Opening.load(opening.dump()).dump() == opening.dump()
    seen = opening.open(blobs).seen
    assert SeenVersions.load(seen.dump()) == seen


@pytest.mark.parametrize(("kind", "mode"), EVERY_LINK)
def test_nothing_that_holds_a_secret_prints_pickles_or_copies_it(kind: LinkKind, mode: LinkMode) -> None:
    owner, blobs = make(kind, mode)
    opening = Opening.start(owner.link)
    opened = opening.open(blobs)
    fixed_data = FixedData(context=owner.link.context(), k=opened.k, owner_key=bytes(32))
    blob = Blob(priority=RATCHET, version=1, content=CONTENTS[RATCHET])
    holders: list[Sensitive] = [owner, owner.link, owner.link.keys(), opening, opened, fixed_data, blob]
    secrets = [owner.link.key, opened.k, *owner.link.keys().blob_keys, *CONTENTS.values()]
    secrets += [key.seed for key in (owner.server_signing_key, owner.server_dh_key, owner.link_dh_key)]
    for holder in holders:
        text = repr(holder)
        assert text.startswith(f"<{type(holder).__name__}")
        for secret in secrets:
            for spelling in (secret.hex(), repr(secret)[2:-1], format_link(owner.link).split("/")[1]):
                assert spelling not in text
        with pytest.raises(TypeError, match="holds secrets"):
            pickle.dumps(holder)
        with pytest.raises(TypeError, match="holds secrets"):
            copy.copy(holder)
        with pytest.raises(TypeError):
            hash(holder)


def test_the_same_entropy_gives_the_same_link() -> None:
    made = [
        create_link(server=SERVER, kind=LinkKind.CONTACT, contents=CONTENTS, entropy=stream("same")) for _ in range(2)
    ]
    assert made[0][0].dump() == made[1][0].dump()
    assert made[0][1] == made[1][1]
