"""What the fuzzer found, each as the smallest input that shows it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qsratchet import MESSAGE_LIMIT, UNPADDED, Dequeuer, Enqueuer, MalformedFrame, StateError
from qsratchet.codec import Kind, document
from qsratchet.queue.frames import FRAME_LIMIT
from qsratchet.queue.schedule import seal_run

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


def test_a_frame_over_the_limit_is_refused_before_it_is_decrypted_even_when_it_is_due_and_authentic() -> None:
    """The fast path looked at the header alone, so a frame of any length went to the AEAD."""
    owner, request = Dequeuer.create(b"s", b"q", suites=(0x0001,))
    service, init = Enqueuer.create(request, now=0, padding=UNPADDED)
    owner.open(init.data)
    message = bytes(FRAME_LIMIT - 16 - 12 - 16 - 4 + 1)
    assert len(message) > MESSAGE_LIMIT
    (frame,), _ = seal_run(service._suite, service._qctx, service._chain_key, 0, 1, [message], b"", lambda size: size)
    assert len(frame.data) == FRAME_LIMIT + 1
    before = owner.dump()
    with pytest.raises(MalformedFrame, match="at most"):
        owner.open(frame.data)
    (verdict,) = owner.open_many([frame.data])
    assert isinstance(verdict, MalformedFrame)
    assert owner.dump() == before
