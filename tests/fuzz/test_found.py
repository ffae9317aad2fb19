"""What the fuzzer found, each as the smallest input that shows it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qsratchet import Dequeuer, Enqueuer, StateError
from qsratchet.codec import Kind, document

#: Where the owner's blob has its number of keys: after marker, format, generation, two ids and one suite.
KEYS = 5 + 8 + 3 + 3 + 3


def repacked(kind: Kind, blob: bytes, change: Callable[[bytearray], None]) -> bytes:
    """The blob with its body changed and its checksum right again."""
    data = bytearray(blob)
    change(data)
    return document(kind, 1, bytes(data[5:-4]))


def blobs() -> tuple[bytes, bytes, bytes]:
    owner, request = Dequeuer.create(b"s", b"q", suites=(0x0001,))
    awaiting = owner.dump()
    service, init = Enqueuer.create(request, now=0)
    owner.open(init.data)
    return awaiting, owner.dump(), service.dump()


def test_a_state_that_awaits_init_has_key_0_and_no_other() -> None:
    """Loading took any key id, and opening INIT then failed with a KeyError."""
    awaiting, _, _ = blobs()

    def other_key(data: bytearray) -> None:
        data[KEYS + 1 : KEYS + 5] = (5).to_bytes(4)

    with pytest.raises(StateError, match="INIT was not read"):
        Dequeuer.load(repacked(Kind.DEQUEUER, awaiting, other_key))


def test_a_state_does_not_list_one_key_twice() -> None:
    """Three entries of one key were read as one, so a blob was not the dump of the machine it gave."""
    _, reading, _ = blobs()

    def three_times(data: bytearray) -> None:
        data[KEYS : KEYS + 37] = b"\3" + data[KEYS + 1 : KEYS + 37] * 3

    with pytest.raises(StateError, match="one or two in order"):
        Dequeuer.load(repacked(Kind.DEQUEUER, reading, three_times))


def test_a_generation_at_the_end_of_its_field_is_refused_when_it_is_loaded() -> None:
    """The next change counted past 64 bits, and dumping failed with a struct.error."""
    _, reading, service = blobs()

    def owner_generation(data: bytearray) -> None:
        data[5:13] = b"\xff" * 8

    def service_generation(data: bytearray) -> None:
        data[27:35] = b"\xff" * 8

    with pytest.raises(StateError, match="generation"):
        Dequeuer.load(repacked(Kind.DEQUEUER, reading, owner_generation))
    with pytest.raises(StateError, match="contradict"):
        Enqueuer.load(repacked(Kind.ENQUEUER, service, service_generation))
