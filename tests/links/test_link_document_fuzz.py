"""Stored documents: damage is found, and bytes that pass the checksum are read strictly."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qsratchet.errors import StateError
from qsratchet.links import LinkKind, LinkMode, Opening, OwnerLink, SeenVersions

from .shelf import make

Loader = Callable[[bytes], OwnerLink | Opening | SeenVersions]


def documents() -> list[tuple[Loader, bytes]]:
    result: list[tuple[Loader, bytes]] = []
    for kind in LinkKind:
        for mode in LinkMode:
            owner, blobs = make(kind, mode)
            opening = Opening.start(owner.link)
            result += [
                (OwnerLink.load, owner.dump()),
                (Opening.load, opening.dump()),
                (SeenVersions.load, opening.open(blobs).seen.dump()),
            ]
    return result


DOCUMENTS = documents()


def repaired(data: bytes) -> bytes:
    """Put the right checksum on damaged bytes, so that the reader goes on to look at them."""
    return data[:-4] + crc32(data[:-4]).to_bytes(4, "big")


@pytest.mark.parametrize(("load", "good"), DOCUMENTS)
def test_every_cut_and_every_flipped_bit_of_a_document_is_found(load: Loader, good: bytes) -> None:
    for size in range(len(good)):
        with pytest.raises(StateError):
            load(good[:size])
    for bit in range(len(good) * 8):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StateError):
            load(bytes(damaged))
    with pytest.raises(StateError):
        load(good + b"\0")


@pytest.mark.parametrize(("load", "good"), DOCUMENTS)
def test_a_document_with_more_or_less_than_its_layout_is_refused(load: Loader, good: bytes) -> None:
    with pytest.raises(StateError, match=r"left over|cut short"):
        load(repaired(good[:-4] + b"\0" + good[-4:]))
    for size in range(9, len(good)):
        with pytest.raises(StateError):
            load(repaired(good[:size]))


@pytest.mark.parametrize(("load", "good"), DOCUMENTS[:2])
def test_unknown_modes_and_kinds_are_refused(load: Loader, good: bytes) -> None:
    for mode, kind, message in ((0, 1, "mode"), (3, 1, "mode"), (1, 0, "kind"), (1, 3, "kind")):
        with pytest.raises(StateError, match=f"is not a {message}"):
            load(repaired(good[:5] + bytes([mode, kind]) + good[7:]))


@pytest.mark.parametrize(("load", "good"), DOCUMENTS[:3])
def test_a_document_of_another_kind_or_version_is_named(load: Loader, good: bytes) -> None:
    for other_load, _ in DOCUMENTS[:3]:
        if other_load != load:
            with pytest.raises(StateError, match="another kind"):
                other_load(good)
    with pytest.raises(StateError, match="version is 2"):
        load(repaired(good[:4] + b"\x02" + good[5:]))


@given(st.sampled_from(DOCUMENTS), st.data())
def test_changed_documents_load_to_what_dumps_the_same_or_are_refused(
    document: tuple[Loader, bytes], data: st.DataObject
) -> None:
    load, good = document
    body = bytearray(good[5:-4])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    changed = repaired(good[:5] + bytes(body) + bytes(4))
    try:
        loaded = load(changed)
    except StateError:
        return
    assert loaded.dump() == changed


@given(st.sampled_from(DOCUMENTS), st.binary(max_size=300))
def test_no_bytes_raise_anything_but_a_state_error(document: tuple[Loader, bytes], noise: bytes) -> None:
    load, good = document
    for attempt in (noise, repaired(good[:5] + noise + bytes(4))):
        try:
            loaded = load(attempt)
        except StateError:
            continue
        assert loaded.dump() == attempt
