"""What a server receives: nothing from which `k` or a blob can be had."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import get_args

import pytest

from qsratchet.crypto.kdf import HKDF_SHA256
from qsratchet.crypto.sealing import SealRejected, unseal
from qsratchet.links import (
    BLOB_SIZES,
    CreateQueue,
    DeleteQueue,
    FetchBlobs,
    Link,
    LinkKind,
    LinkMode,
    Opening,
    OwnerLink,
    Priority,
    ReplaceBlobs,
    SecureQueue,
    ServerAddress,
    ServerRequest,
    create_link,
    format_link,
)
from qsratchet.links.blobs import _aad, open_first_blob

from .shelf import BOTH_KINDS, BOTH_MODES, PROFILE, RATCHET, SERVER, Shelf

#: Contents that no other bytes contain by chance.
CONTENTS = {priority: f"content of priority {int(priority)}".encode() * 5 for priority in Priority}
UPDATED = b"updated profile of the owner" * 5
EVERY_LINK = [(kind, mode) for kind in BOTH_KINDS for mode in BOTH_MODES]


def atoms(value: object) -> Iterator[bytes]:
    """Every byte string anywhere in a request; whatever is not understood is an error."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, str):
        yield value.encode()
    elif isinstance(value, Enum):
        yield str(value.value).encode()
    elif isinstance(value, int):
        yield str(value).encode()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from atoms(key)
            yield from atoms(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from atoms(item)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from atoms(getattr(value, field.name))
    else:
        raise AssertionError(f"a request holds a {type(value).__name__}")


def whole_life(kind: LinkKind, mode: LinkMode) -> tuple[OwnerLink, Opening, Shelf]:
    """Every request that the library makes, sent to one server."""
    server = Shelf()
    owner, creation = create_link(server=SERVER, kind=kind, mode=mode, contents=CONTENTS)
    server.answer(creation)
    opening = Opening.start(owner.link)
    opening.open(server.answer(opening.request))
    owner, update = owner.replace({PROFILE: UPDATED})
    server.answer(update)
    opening.open(server.answer(opening.request))
    server.answer(owner.revoke())
    return owner, opening, server


def secrets_of(owner: OwnerLink, opening: Opening, server: Shelf) -> dict[str, bytes]:
    """All that must not be in a request, by name."""
    keys = owner.link.keys()
    secrets = {
        "link key": owner.link.key,
        "link text": format_link(owner.link).encode(),
        "k": owner.link_dh_key.public(),
        "pk": owner.link_dh_key.seed,
        "spk": owner.server_signing_key.seed,
        "dhpk": owner.server_dh_key.seed,
        "extracted secret": HKDF_SHA256.extract(b"qsratchet-v1 link", owner.link.key),
        "updated content": UPDATED,
        "hash of the link key": HKDF_SHA256.hash(owner.link.key),
    }
    for priority in Priority:
        secrets[f"blob key {priority}"] = keys.blob_keys[priority]
        secrets[f"content {priority}"] = CONTENTS[priority]
        secrets[f"hash of content {priority}"] = HKDF_SHA256.hash(CONTENTS[priority])
    if owner.signing_key is not None:
        secrets["owner's signing seed"] = owner.signing_key.seed
        secrets["owner's signing key"] = owner.signing_key.public()
        creation = server.received[0]
        assert isinstance(creation, CreateQueue)
        _, fixed_data = open_first_blob(owner.link, keys, creation.blobs[RATCHET])
        assert fixed_data is not None
        secrets["fixed data"] = fixed_data.encode()
    if opening.sender_key is not None:
        secrets["sender's seed"] = opening.sender_key.seed
    return secrets


def test_the_requests_have_exactly_these_fields() -> None:
    """A new field is a new thing that a server learns: think, then add it here."""
    assert {kind: [field.name for field in dataclasses.fields(kind)] for kind in get_args(ServerRequest)} == {
        CreateQueue: ["server", "recipient_id", "sender_id", "kind", "signing_key", "dh_key", "blobs"],
        ReplaceBlobs: ["server", "recipient_id", "blobs"],
        DeleteQueue: ["server", "recipient_id"],
        FetchBlobs: ["server", "sender_id"],
        SecureQueue: ["server", "sender_id", "sender_key"],
    }
    assert [field.name for field in dataclasses.fields(ServerAddress)] == ["hosts", "port", "fingerprint"]


def test_every_kind_of_request_is_looked_at() -> None:
    sent = {type(request) for kind, mode in EVERY_LINK for request in whole_life(kind, mode)[2].received}
    assert sent == set(get_args(ServerRequest))


@pytest.mark.parametrize(("kind", "mode"), EVERY_LINK)
def test_no_secret_and_no_half_of_one_is_in_any_request(kind: LinkKind, mode: LinkMode) -> None:
    owner, opening, server = whole_life(kind, mode)
    for request in server.received:
        for received in atoms(request):
            for name, secret in secrets_of(owner, opening, server).items():
                for part in (secret[:16], secret[-16:]):
                    for spelling in (part, part[::-1], part.hex().encode()):
                        assert spelling not in received, f"{name} is in {type(request).__name__}"


@pytest.mark.parametrize(("kind", "mode"), EVERY_LINK)
def test_nothing_received_works_as_a_link_or_as_a_key(kind: LinkKind, mode: LinkMode) -> None:
    """The server tries every 32 bytes in a row that it ever received, in every role that 32 bytes can have."""
    owner, _, server = whole_life(kind, mode)
    sender_id = owner.link.keys().sender_id
    creation = server.received[0]
    assert isinstance(creation, CreateQueue)
    received = {atom for request in server.received for atom in atoms(request)}
    # A sealed blob is as good as random: a sample of its places is enough, and all of the rest.
    steps = {atom: 61 if len(atom) in BLOB_SIZES[kind].values() else 1 for atom in received}
    candidates = {atom[at : at + 32] for atom, step in steps.items() for at in range(0, len(atom) - 31, step)}
    candidates |= {HKDF_SHA256.hash(atom) for atom in received}
    blob, aad = creation.blobs[RATCHET], _aad(owner.link, owner.link.keys(), RATCHET)
    # The method is right: with the one candidate that the server must not have, it succeeds.
    assert opens(owner.link.key, owner.link, sender_id, blob, aad)
    assert opens(owner.link.keys().blob_keys[RATCHET], owner.link, sender_id, blob, aad)
    assert len(candidates) > 100
    for candidate in candidates:
        assert not opens(candidate, owner.link, sender_id, blob, aad)


def opens(candidate: bytes, link: Link, sender_id: bytes, blob: bytes, aad: bytes) -> bool:
    """Try 32 bytes as the link's key in every mode, as `k`, and as the key of the blob."""
    guesses = [Link(kind=link.kind, mode=mode, key=candidate, server=link.server).keys() for mode in LinkMode]
    if any(keys.sender_id == sender_id for keys in guesses):
        return True
    for key in (candidate, *[keys.blob_keys[0] for keys in guesses]):
        try:
            unseal(key, blob, aad)
        except SealRejected:
            continue
        return True
    return False


@pytest.mark.parametrize("kind", BOTH_KINDS)
def test_a_server_cannot_tell_a_direct_link_from_a_bound_one(kind: LinkKind) -> None:
    shapes = []
    for mode in BOTH_MODES:
        _, _, server = whole_life(kind, mode)
        shapes.append([(type(request), [len(atom) for atom in atoms(request)]) for request in server.received])
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(("kind", "mode"), EVERY_LINK)
def test_what_a_server_sees_has_the_same_shape_for_all_contents(kind: LinkKind, mode: LinkMode) -> None:
    shapes = []
    for contents in (CONTENTS, dict.fromkeys(Priority, b""), {p: bytes(800) for p in Priority}):
        _, creation = create_link(server=SERVER, kind=kind, mode=mode, contents=contents)
        shapes.append([len(atom) for atom in atoms(creation)])
    assert shapes[0] == shapes[1] == shapes[2]
