"""Blobs: fixed sizes, what they carry, and every way in which one is refused."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qsratchet.crypto.sealing import SEAL_OVERHEAD, seal, unseal
from qsratchet.crypto.signing import SigningKey
from qsratchet.errors import DecodeError, LimitExceeded
from qsratchet.links import (
    BLOB_SIZES,
    BlobFault,
    BlobRejected,
    Link,
    LinkKind,
    LinkMode,
    Opening,
    Priority,
    content_limit,
    create_link,
)
from qsratchet.links.blobs import FixedData, _aad, open_blob
from qsratchet.links.derive import LinkKeys

from .shelf import BOTH_KINDS, BOTH_MODES, CONTENTS, OTHER_SERVER, PQ, PROFILE, RATCHET, SERVER, fault_of, make

EVERY_LINK = [(kind, mode) for kind in BOTH_KINDS for mode in BOTH_MODES]
PRIORITIES = tuple(Priority)


@pytest.mark.parametrize(("kind", "mode"), EVERY_LINK)
def test_sizes_depend_on_the_kind_only(kind: LinkKind, mode: LinkMode) -> None:
    for length in (0, 1, 500):
        _, blobs = make(kind, mode, {priority: bytes(length) for priority in Priority})
        assert {priority: len(blob) for priority, blob in blobs.items()} == BLOB_SIZES[kind]


def test_the_sizes_and_limits_of_format_1_stay_as_they_are() -> None:
    assert [list(BLOB_SIZES[kind].values()) for kind in LinkKind] == [[1024, 2048, 4096], [2048, 3072, 10240]]
    limits = [[content_limit(kind, priority) for priority in Priority] for kind in LinkKind]
    assert limits == [[823, 1946, 3994], [1847, 2970, 10138]]


@pytest.mark.parametrize(("kind", "mode"), EVERY_LINK)
@pytest.mark.parametrize("priority", PRIORITIES)
def test_content_up_to_the_limit_fits_and_one_byte_more_is_refused(
    kind: LinkKind, mode: LinkMode, priority: Priority
) -> None:
    limit = content_limit(kind, priority)
    contents = {**CONTENTS, priority: os.urandom(limit)}
    owner, blobs = make(kind, mode, contents)
    assert Opening.start(owner.link).open(blobs).contents == contents
    with pytest.raises(
        LimitExceeded, match=f"priority {int(priority)} in bytes: {limit + 1} is over the limit"
    ) as raised:
        create_link(server=SERVER, kind=kind, mode=mode, contents={**CONTENTS, priority: bytes(limit + 1)})
    assert (raised.value.size, raised.value.limit) == (limit + 1, limit)
    with pytest.raises(LimitExceeded):
        owner.replace({priority: bytes(limit + 1)})


@given(
    st.sampled_from(LinkKind),
    st.sampled_from(LinkMode),
    st.binary(max_size=823),
    st.none() | st.binary(max_size=1946),
    st.none() | st.binary(max_size=3994),
)
@settings(max_examples=50)
def test_opening_gives_back_what_was_sealed(
    kind: LinkKind, mode: LinkMode, ratchet: bytes, pq: bytes | None, profile: bytes | None
) -> None:
    contents = {RATCHET: ratchet}
    if pq is not None:
        contents[PQ] = pq
    if profile is not None:
        contents[PROFILE] = profile
    owner, blobs = make(kind, mode, contents)
    opened = Opening.start(owner.link).open({priority: bytearray(blob) for priority, blob in blobs.items()})
    assert opened.contents == contents
    assert opened.k == owner.link_dh_key.public()
    assert opened.owner_key == (owner.signing_key.public() if owner.signing_key else None)
    assert [opened.seen.version(priority) for priority in Priority] == [int(p in contents) for p in Priority]


@pytest.mark.parametrize(("kind", "mode"), EVERY_LINK)
@pytest.mark.parametrize("dropped", [[PQ], [PROFILE], [PQ, PROFILE]])
def test_a_link_opens_without_what_the_server_dropped(kind: LinkKind, mode: LinkMode, dropped: list[Priority]) -> None:
    owner, blobs = make(kind, mode)
    kept = {priority: blob for priority, blob in blobs.items() if priority not in dropped}
    opened = Opening.start(owner.link).open(kept)
    assert opened.contents == {priority: CONTENTS[priority] for priority in kept}
    assert opened.k == owner.link_dh_key.public()


@pytest.mark.parametrize(("kind", "mode"), EVERY_LINK)
def test_the_ratchet_keys_must_be_there(kind: LinkKind, mode: LinkMode) -> None:
    owner, blobs = make(kind, mode)
    del blobs[RATCHET]
    assert fault_of(owner.link, blobs) == (RATCHET, BlobFault.MISSING)


def test_a_blob_of_unknown_priority_is_an_error_of_the_reply() -> None:
    owner, blobs = make()
    with pytest.raises(DecodeError, match=r"unknown priority \[3\]"):
        Opening.start(owner.link).open({**blobs, 3: b""})  # type: ignore[dict-item]


@pytest.mark.parametrize(("kind", "mode"), EVERY_LINK)
@pytest.mark.parametrize("priority", PRIORITIES)
def test_a_blob_of_another_size_is_refused(kind: LinkKind, mode: LinkMode, priority: Priority) -> None:
    owner, blobs = make(kind, mode)
    for changed in (b"", blobs[priority][:-1], blobs[priority] + b"\0"):
        assert fault_of(owner.link, {**blobs, priority: changed}) == (priority, BlobFault.SIZE)


@given(st.sampled_from(EVERY_LINK), st.sampled_from(Priority), st.data())
def test_no_bit_of_a_blob_can_be_flipped(
    link: tuple[LinkKind, LinkMode], priority: Priority, data: st.DataObject
) -> None:
    owner, blobs = make(*link)
    changed = bytearray(blobs[priority])
    bit = data.draw(st.integers(0, len(changed) * 8 - 1))
    changed[bit // 8] ^= 1 << bit % 8
    assert fault_of(owner.link, {**blobs, priority: bytes(changed)}) == (priority, BlobFault.SEAL)


@pytest.mark.parametrize("mode", BOTH_MODES)
def test_a_blob_of_another_priority_is_refused_whatever_its_size(
    mode: LinkMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All sizes are made equal, so that only the seal can tell the priorities apart.
    monkeypatch.setitem(BLOB_SIZES, LinkKind.CONTACT, dict.fromkeys(Priority, 2048))
    owner, blobs = make(LinkKind.CONTACT, mode)
    for priority in Priority:
        for other in set(Priority) - {priority}:
            assert fault_of(owner.link, {**blobs, priority: blobs[other]}) == (priority, BlobFault.SEAL)


def test_the_seal_names_format_mode_kind_priority_and_sender_id_even_if_all_keys_were_equal() -> None:
    """The associated data is a second lock: here the first one, a key per place, is taken away."""

    def place(
        kind: LinkKind = LinkKind.ONE_TIME, mode: LinkMode = LinkMode.DIRECT, sender_id: bytes = bytes(24)
    ) -> tuple[Link, LinkKeys]:
        link = Link(kind=kind, mode=mode, key=bytes(32), server=SERVER)
        return link, LinkKeys(sender_id=sender_id, blob_keys=(bytes(32),) * 3)

    link, keys = place()
    sealed = reseal(link, PROFILE, b"", keys=keys)
    # It opens in its own place, as far as the seal goes: there is nothing inside.
    with pytest.raises(BlobRejected) as raised:
        open_blob(link, keys, PROFILE, sealed, None)
    assert raised.value.fault is BlobFault.LAYOUT
    for other_link, other_keys, priority in (
        (*place(sender_id=bytes(23) + b"1"), PROFILE),
        (*place(mode=LinkMode.BOUND), PROFILE),
        # The blobs of these two places have another size, and are cut to it by whoever moves them.
        (*place(kind=LinkKind.CONTACT), PROFILE),
        (*place(), PQ),
    ):
        size = BLOB_SIZES[other_link.kind][priority]
        moved = seal(bytes(32), bytes(size - SEAL_OVERHEAD), _aad(link, keys, PROFILE))
        with pytest.raises(BlobRejected) as raised:
            open_blob(other_link, other_keys, priority, moved, None)
        assert raised.value.fault is BlobFault.SEAL


@pytest.mark.parametrize(("kind", "mode"), EVERY_LINK)
@pytest.mark.parametrize("priority", PRIORITIES)
def test_a_blob_of_another_link_is_refused(kind: LinkKind, mode: LinkMode, priority: Priority) -> None:
    owner, blobs = make(kind, mode)
    _, other = make(kind, mode)
    assert fault_of(owner.link, {**blobs, priority: other[priority]}) == (priority, BlobFault.SEAL)


@pytest.mark.parametrize("priority", PRIORITIES)
def test_a_blob_read_through_another_mode_or_server_is_refused(priority: Priority) -> None:
    owner, blobs = make(LinkKind.CONTACT, LinkMode.DIRECT)
    link = owner.link
    for other in (
        Link(kind=link.kind, mode=LinkMode.BOUND, key=link.key, server=link.server),
        Link(kind=link.kind, mode=link.mode, key=link.key, server=OTHER_SERVER),
    ):
        _, own = make(LinkKind.CONTACT, LinkMode.DIRECT)
        assert fault_of(other, {**own, RATCHET: blobs[RATCHET], priority: blobs[priority]})[1] is BlobFault.SEAL


def reseal(link: Link, priority: Priority, padded: bytes, keys: LinkKeys | None = None) -> bytes:
    """What somebody with the link can do: put any bytes under the seal."""
    keys = keys or link.keys()
    room = BLOB_SIZES[link.kind][priority] - SEAL_OVERHEAD
    return seal(keys.blob_keys[priority], padded.ljust(room, b"\0")[:room], _aad(link, keys, priority))


@pytest.mark.parametrize("mode", BOTH_MODES)
@pytest.mark.parametrize("priority", PRIORITIES)
@pytest.mark.parametrize(
    "padded",
    [
        b"\xff\xff",
        b"\x00\x09" + bytes(7) + b"\x01c" + b"not zero",
        b"\x00\x09" + bytes(7) + b"\x01c" + bytes(300) + b"1",
        b"",
        b"\x00\x07" + b"1234567",
        b"\x00\x0a" + bytes(8) + b"\x00\x00",
    ],
    ids=["length beyond the end", "padding", "padding far out", "nothing", "cut version", "version 0"],
)
def test_what_opens_and_is_no_blob_is_refused(mode: LinkMode, priority: Priority, padded: bytes) -> None:
    owner, blobs = make(LinkKind.CONTACT, mode)
    expected = {BlobFault.LAYOUT}
    if mode is LinkMode.BOUND:
        # The fixed data is looked at first, and the signature is there before the content.
        expected.add(BlobFault.FIXED_DATA)
    blob, fault = fault_of(owner.link, {**blobs, priority: reseal(owner.link, priority, padded)})
    assert blob is priority
    assert fault in expected


def test_a_length_beyond_the_end_is_refused_even_when_all_else_is_right() -> None:
    full = os.urandom(content_limit(LinkKind.CONTACT, PROFILE))
    owner, blobs = make(LinkKind.CONTACT, LinkMode.BOUND, {**CONTENTS, PROFILE: full})
    keys = owner.link.keys()
    padded = unseal(keys.blob_keys[PROFILE], blobs[PROFILE], _aad(owner.link, keys, PROFILE))
    assert (
        Opening.start(owner.link).open({**blobs, PROFILE: reseal(owner.link, PROFILE, padded)}).contents[PROFILE]
        == full
    )
    longer = reseal(owner.link, PROFILE, b"\xff\xff" + padded[2:])
    assert fault_of(owner.link, {**blobs, PROFILE: longer}) == (PROFILE, BlobFault.LAYOUT)


def test_a_direct_blob_over_the_limit_is_refused_even_if_it_fits() -> None:
    owner, blobs = make(LinkKind.CONTACT, LinkMode.DIRECT)
    size = content_limit(LinkKind.CONTACT, PROFILE)
    for extra, fits in ((0, True), (1, False)):
        payload = (1).to_bytes(8, "big") + bytes(size + extra)
        forged = reseal(owner.link, PROFILE, len(payload).to_bytes(2, "big") + payload)
        if fits:
            assert Opening.start(owner.link).open({**blobs, PROFILE: forged}).contents[PROFILE] == bytes(size)
        else:
            assert fault_of(owner.link, {**blobs, PROFILE: forged}) == (PROFILE, BlobFault.LAYOUT)


@given(st.sampled_from(LinkMode), st.sampled_from(Priority), st.binary(max_size=400))
def test_any_bytes_under_the_seal_open_or_are_refused_as_a_blob(
    mode: LinkMode, priority: Priority, padded: bytes
) -> None:
    owner, blobs = make(LinkKind.ONE_TIME, mode)
    forged = {**blobs, priority: reseal(owner.link, priority, padded)}
    try:
        opened = Opening.start(owner.link).open(forged)
    except BlobRejected as error:
        assert error.priority is priority  # noqa: PT017
    else:
        assert mode is LinkMode.DIRECT
        assert opened.seen.version(priority) > 0


def test_fixed_data_for_another_place_is_refused_even_when_the_hash_fits() -> None:
    """An owner who breaks the format cannot make one fixed data serve two places."""
    owner, _ = make(LinkKind.CONTACT, LinkMode.BOUND)
    assert owner.signing_key is not None
    foreign = FixedData(context=bytes(35), k=bytes(32), owner_key=owner.signing_key.public())
    link = Link(kind=LinkKind.CONTACT, mode=LinkMode.BOUND, key=foreign.hash(), server=SERVER)
    payload = (1).to_bytes(8, "big") + foreign.encode() + bytes(64)
    blob = reseal(link, RATCHET, len(payload).to_bytes(2, "big") + payload)
    assert fault_of(link, {RATCHET: blob}) == (RATCHET, BlobFault.FIXED_DATA)


def test_an_owner_key_that_is_no_key_is_refused_as_a_signature() -> None:
    owner, _ = make(LinkKind.CONTACT, LinkMode.BOUND)
    bad = FixedData(context=owner.link.context(), k=bytes(32), owner_key=b"\xff" * 32)
    link = Link(kind=LinkKind.CONTACT, mode=LinkMode.BOUND, key=bad.hash(), server=SERVER)
    payload = (1).to_bytes(8, "big") + bad.encode() + SigningKey.generate().sign(b"")
    blob = reseal(link, RATCHET, len(payload).to_bytes(2, "big") + payload)
    assert fault_of(link, {RATCHET: blob}) == (RATCHET, BlobFault.SIGNATURE)


def test_the_same_content_is_never_sealed_to_the_same_bytes() -> None:
    owner, _ = make()
    seals = []
    for _ in range(50):
        owner, request = owner.replace({PROFILE: b"same"})
        seals.append(request.blobs[PROFILE])
    assert len({blob[:12] for blob in seals}) == 50


def test_every_fault_is_explained_without_secrets() -> None:
    for priority in Priority:
        for fault in BlobFault:
            text = str(BlobRejected(priority, fault))
            assert text.startswith(f"blob of priority {int(priority)}: ")
            assert len(text) > 40
