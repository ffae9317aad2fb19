"""What follows from a link is different for all that is different, and only that."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from qsratchet.links import Link, LinkKind, LinkMode, ServerAddress
from qsratchet.links.derive import context, derive

from .shelf import BOTH_KINDS, BOTH_MODES, LINKS, OTHER_SERVER, SERVER


def outputs(link: Link) -> list[bytes]:
    keys = link.keys()
    return [keys.sender_id, *keys.blob_keys]


def test_every_output_has_its_size() -> None:
    link = Link(kind=LinkKind.CONTACT, mode=LinkMode.DIRECT, key=bytes(32), server=SERVER)
    assert [len(output) for output in outputs(link)] == [24, 32, 32, 32]


def test_outputs_differ_between_all_labels_kinds_modes_and_servers() -> None:
    # No output begins with what another begins with, so that not even a cut one could be taken for it.
    starts = [
        output[:16]
        for server in (SERVER, OTHER_SERVER)
        for kind in BOTH_KINDS
        for mode in BOTH_MODES
        for output in outputs(Link(kind=kind, mode=mode, key=bytes(range(32)), server=server))
    ]
    assert len(set(starts)) == len(starts) == 2 * 2 * 2 * 4


@given(st.lists(LINKS, min_size=2, max_size=8))
def test_derivations_are_injective(links: list[Link]) -> None:
    for left, right in combinations(links, 2):
        same_input = (left.key, left.kind, left.mode, left.server.fingerprint) == (
            right.key,
            right.kind,
            right.mode,
            right.server.fingerprint,
        )
        for mine, theirs in zip(outputs(left), outputs(right), strict=True):
            assert (mine == theirs) is same_input


@given(LINKS, st.data())
def test_one_changed_bit_of_key_or_fingerprint_changes_every_output(link: Link, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, 255))
    flip = bytes(byte ^ (1 << bit % 8 if index == bit // 8 else 0) for index, byte in enumerate(link.key))
    fingerprint = link.server.fingerprint
    flipped = bytes(byte ^ (1 << bit % 8 if index == bit // 8 else 0) for index, byte in enumerate(fingerprint))
    other = ServerAddress(hosts=link.server.hosts, port=link.server.port, fingerprint=flipped)
    for changed in (
        Link(kind=link.kind, mode=link.mode, key=flip, server=link.server),
        Link(kind=link.kind, mode=link.mode, key=link.key, server=other),
    ):
        assert not set(outputs(link)) & set(outputs(changed))


@given(LINKS)
def test_names_and_port_of_a_server_are_not_its_identity(link: Link) -> None:
    moved = ServerAddress(hosts=("moved.example.org",), port=1, fingerprint=link.server.fingerprint)
    assert outputs(link) == outputs(Link(kind=link.kind, mode=link.mode, key=link.key, server=moved))


@given(st.binary(min_size=32, max_size=32))
def test_the_keys_print_only_the_sender_id(key: bytes) -> None:
    keys = derive(key, context(LinkMode.DIRECT, LinkKind.CONTACT, bytes(32)))
    assert repr(keys) == f"<LinkKeys sender {keys.sender_id.hex()}>"
