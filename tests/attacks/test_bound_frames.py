"""Guarantee 3: no bit of a frame can be flipped, no frame moved to another queue, position, epoch or suite.

Exhaustive over small frames: every bit, every truncation, every pair of places.  Whatever is refused leaves the
reader's stored state as it was, byte for byte.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest

from qsratchet import (
    SUITES,
    CreationRequest,
    Dequeuer,
    Enqueuer,
    FrameRejected,
    FrameType,
    Grant,
    GrantWalk,
    HeadRejected,
    KeyOffer,
    MisuseError,
    OwnerKeys,
    QSRatchetError,
    ReadPolicy,
    RejectedError,
    StateError,
)
from qsratchet.queue.frames import pack_header

from .runs import Run, record

SCRIPT = "..U..K.."
POLICIES = (ReadPolicy(), ReadPolicy(tolerant=True))
NONCE = bytes(range(32))
all_suites = pytest.mark.parametrize("suite", SUITES, ids=lambda suite: f"0x{suite:04x}")


@functools.cache
def recorded(suite: int, queue_id: bytes = b"queue") -> Run:
    return record(SCRIPT, suite, queue_id=queue_id)


def flips(data: bytes) -> Iterator[bytes]:
    """The data with each of its bits flipped in turn."""
    number, size = int.from_bytes(data), len(data)
    for bit in range(size * 8):
        yield (number ^ (1 << bit)).to_bytes(size)


def cuts(data: bytes) -> Iterator[bytes]:
    """The data cut short at every byte, and made longer."""
    yield from (data[:end] for end in range(len(data)))
    yield data + b"\0"
    yield data + data


def blob_before(run: Run, seq: int) -> bytes:
    """The owner's state when this frame is due: with both keys, if an offer is under way."""
    return run.offering.get(seq, run.owner[seq])


@all_suites
def test_no_bit_of_a_frame_can_be_flipped_and_no_byte_cut_off_or_added(suite: int) -> None:
    run = recorded(suite)
    # INIT, DATA, an UPDATE to the old key, an UPDATE to a new one.  Frames of X-Wing are long, and what comes after
    # their AEAD is the same code, so there one kind of UPDATE and one policy are enough.
    short = suite == 0x0001
    for seq in (0, 1, 3, 6) if short else (0, 1, 3):
        frame, blob = run.frames[seq], blob_before(run, seq)
        for policy in POLICIES if short or seq == 1 else POLICIES[:1]:
            reader = Dequeuer.load(blob, policy=policy)
            altered = [*flips(frame), *cuts(frame)]
            # Alone and as a batch: two paths through the code, but for INIT, where both take the same.
            if seq > 0 or short:
                for damaged in altered:
                    with pytest.raises(FrameRejected):
                        reader.open(damaged)
                    # Cheaper than dumping each time, and the dump below would show any change that was made.
                    assert reader.next_seq == seq
            assert all(isinstance(result, FrameRejected) for result in reader.open_many(altered))
            assert reader.dump() == blob
            reader.open(frame)


@all_suites
def test_no_bit_of_a_head_or_of_its_nonce_can_be_flipped(suite: int) -> None:
    run = recorded(suite)
    service, reader = Enqueuer.load(run.service[4]), Dequeuer.load(run.owner[4])
    head = service.head(NONCE)
    for damaged in [*flips(head), *cuts(head)]:
        with pytest.raises(HeadRejected):
            reader.verify_head(damaged, NONCE)
    for other in flips(NONCE):
        with pytest.raises(HeadRejected):
            reader.verify_head(head, other)
    assert reader.dump() == run.owner[4]
    assert reader.verify_head(head, NONCE).missing == range(4, 4)


@all_suites
def test_no_bit_can_be_flipped_unnoticed_by_a_grant_or_a_walk(suite: int) -> None:
    run = recorded(suite)
    keys = Dequeuer.load(run.owner[0]).owner_keys()
    whole = GrantWalk(keys).open(run.frames[0])
    for seq in (1, 3) if suite != 0x0001 else (0, 1, 3):
        encoded = whole.encode()
        for damaged in flips(run.frames[seq]):
            with pytest.raises(FrameRejected):
                whole.open(damaged)
            if seq == 3:
                walk = GrantWalk(keys)
                walk._grant = whole
                with pytest.raises((FrameRejected, MisuseError)):
                    walk.open(damaged)
        assert whole.encode() == encoded
        whole.open(run.frames[seq])


@all_suites
def test_the_callers_associated_data_is_bound_to_the_message(suite: int) -> None:
    run = recorded(suite)
    service, reader = Enqueuer.load(run.service[4]), Dequeuer.load(run.owner[4])
    (frame,) = service.enqueue(b"m", now=0, aad=b"from: alice")
    for aad in (b"", b"from: alicf", b"from: alice ", *flips(b"from: alice")):
        with pytest.raises(FrameRejected):
            reader.open(frame.data, aad=aad)
    assert reader.dump() == run.owner[4]
    reader.open(frame.data, aad=b"from: alice")


def places(run: Run) -> Iterator[tuple[int, Dequeuer, bytes]]:
    """Every place of a run: its number, a reader that expects it, and the header that it expects."""
    for seq, frame in enumerate(run.frames):
        yield seq, Dequeuer.load(blob_before(run, seq), policy=POLICIES[1]), frame[:16]


@all_suites
def test_no_frame_can_be_moved_to_another_queue_position_epoch_or_suite(suite: int) -> None:
    """Every frame of three queues is presented at every place of one: as it is, and under every header of it."""
    run = recorded(suite)
    other_suite = 0x0002 if suite != 0x0002 else 0x0003
    foreign = [recorded(suite, b"other queue"), recorded(other_suite)]
    for place, reader, header in places(run):
        before = reader.dump()
        for source in (run, *foreign):
            for seq, frame in enumerate(source.frames):
                for type in FrameType:
                    moved = header[:1] + bytes([type]) + header[2:] + frame[16:]
                    if source is run and seq == place and type == frame[1]:
                        continue
                    with pytest.raises(FrameRejected):
                        reader.open(moved)
                if source is not run:
                    with pytest.raises(FrameRejected):
                        reader.open(frame)
        assert reader.dump() == before, place


@all_suites
def test_no_frame_can_claim_another_epoch_number_or_suite_in_its_own_place(suite: int) -> None:
    run = recorded(suite)
    for place, reader, header in places(run):
        before = reader.dump()
        frame = run.frames[place]
        epoch = int.from_bytes(header[4:8])
        for claim_epoch in range(4):
            for claim_seq in range(len(run.frames) + 1):
                for claim_suite in SUITES:
                    claim = pack_header(FrameType(frame[1]), claim_suite, claim_epoch, claim_seq)
                    if (claim_epoch, claim_seq, claim_suite) == (epoch, place, suite):
                        assert claim == header
                        continue
                    with pytest.raises(FrameRejected):
                        reader.open(claim + frame[16:])
        assert reader.dump() == before, place


@pytest.mark.parametrize("suite", [0x0001, 0x0003])
def test_no_bit_of_anything_stored_or_sent_can_be_flipped_unnoticed(suite: int) -> None:
    """The checksum finds accidents: every flip and every cut of every kind of document."""
    run = recorded(suite)
    owner = Dequeuer.load(run.owner[4])
    _, request = Dequeuer.create(b"service", b"queue", suites=(suite,))
    documents: list[tuple[bytes, Callable[[bytes], object], type[QSRatchetError]]] = [
        (run.service[4], Enqueuer.load, StateError),
        (run.owner[4], Dequeuer.load, StateError),
        (run.owner[0], Dequeuer.load, StateError),
        (owner.grant().encode(), Grant.decode, StateError),
        (owner.owner_keys().encode(), OwnerKeys.decode, StateError),
        (owner.offer_key().encode(), KeyOffer.decode, RejectedError),
        (request.encode(), CreationRequest.decode, RejectedError),
    ]
    for document, decode, error in documents:
        for damaged in [*flips(document), *cuts(document)]:
            with pytest.raises(error):
                decode(damaged)
        decode(document)
