"""Guarantee 4: gap, replay, fork, reordering, rollback and truncation are told apart and named."""

from __future__ import annotations

import pytest

from qsratchet import (
    SUITES,
    UNPADDED,
    Dequeuer,
    Duplicate,
    Enqueuer,
    EpochGap,
    Fork,
    FrameRejected,
    Gap,
    GapTooWide,
    HeadAhead,
    MalformedFrame,
    Message,
    Passed,
    ReadPolicy,
    RolledBack,
    Tampered,
    UnexpectedInit,
    UnknownSuite,
    UnknownType,
    UnknownVersion,
    Updated,
    WrongEpoch,
    WrongSuite,
)

from .runs import MANUAL

NONCE = bytes(16)


class Pair:
    """A service and an owner who has read the INIT."""

    def __init__(self, suite: int = 0x0001, *, policy: ReadPolicy | None = None) -> None:
        self.owner, request = Dequeuer.create(b"service", b"queue", suites=(suite,), policy=policy or ReadPolicy())
        self.service, self.init = Enqueuer.create(request, now=0, policy=MANUAL, padding=UNPADDED)
        self.owner.open(self.init.data)

    def send(self, count: int = 1) -> list[bytes]:
        return [frame.data for frame in self.service.enqueue_many([b"m"] * count, now=0)]

    def verdict(self, frame: bytes) -> FrameRejected:
        """What the owner says of the frame; alone and in a batch the same, and its state does not move."""
        before = self.owner.dump()
        with pytest.raises(FrameRejected) as caught:
            self.owner.open(frame)
        (batched,) = self.owner.open_many([frame])
        assert isinstance(batched, FrameRejected)
        assert (type(batched), batched.args) == (type(caught.value), caught.value.args)
        assert self.owner.dump() == before
        return caught.value


suites = pytest.mark.parametrize("suite", SUITES, ids=lambda suite: f"0x{suite:04x}")


@suites
def test_a_gap_is_named_with_the_numbers_that_are_missing(suite: int) -> None:
    pair = Pair(suite)
    frames = pair.send(5)
    verdict = pair.verdict(frames[3])
    assert type(verdict) is Gap
    assert (verdict.first, verdict.last, verdict.kind) == (1, 3, "gap")


@suites
def test_a_replay_is_a_duplicate(suite: int) -> None:
    pair = Pair(suite)
    frames = [pair.init.data, *pair.send(3), pair.service.update(now=0).data, *pair.send(2)]
    pair.owner.open_many(frames)
    for seq, frame in enumerate(frames):
        verdict = pair.verdict(frame)
        assert type(verdict) is Duplicate
        assert (verdict.seq, verdict.kind) == (seq, "duplicate")


@suites
def test_another_frame_under_a_number_that_was_read_is_a_fork(suite: int) -> None:
    pair = Pair(suite)
    backup = pair.service.dump()
    pair.owner.open_many(pair.send(3))
    pair.service = Enqueuer.load(backup)
    for seq, frame in enumerate([*pair.send(1), pair.service.update(now=0).data], start=1):
        verdict = pair.verdict(frame)
        assert type(verdict) is Fork
        assert (verdict.seq, verdict.kind) == (seq, "fork")


@suites
def test_reordering_is_a_gap_and_then_for_a_tolerant_reader_a_number_that_was_passed(suite: int) -> None:
    strict = Pair(suite)
    first, second = strict.send(2)
    assert type(strict.verdict(second)) is Gap
    assert strict.owner.open_many([first, second, first])[:2] == [Message(1, 0, b"m"), Message(2, 0, b"m")]

    tolerant = Pair(suite, policy=ReadPolicy(tolerant=True))
    first, second = tolerant.send(2)
    assert tolerant.owner.open(second) == Message(2, 0, b"m", range(1, 2))
    verdict = tolerant.verdict(first)
    assert type(verdict) is Passed
    assert (verdict.seq, verdict.next_seq, verdict.kind) == (1, 3, "passed")


@suites
def test_a_service_that_went_back_in_time_shows_it_in_its_head(suite: int) -> None:
    pair = Pair(suite)
    backup = pair.service.dump()
    pair.owner.open_many(pair.send(3))
    before = pair.owner.dump()
    with pytest.raises(RolledBack) as caught:
        pair.owner.verify_head(Enqueuer.load(backup).head(NONCE), NONCE)
    assert (caught.value.next_seq, caught.value.reader_next) == (1, 4)
    assert pair.owner.dump() == before


@suites
def test_an_owner_that_went_back_in_time_reads_again_what_is_still_stored(suite: int) -> None:
    pair = Pair(suite)
    backup = pair.owner.dump()
    frames = pair.send(3)
    once = pair.owner.open_many(frames)
    pair.owner = Dequeuer.load(backup)
    assert pair.owner.open_many(frames) == once


@suites
def test_truncation_is_named_by_the_head_within_an_epoch_and_beyond_it(suite: int) -> None:
    pair = Pair(suite)
    pair.send(4)
    assert pair.owner.verify_head(pair.service.head(NONCE), NONCE).missing == range(1, 5)
    pair.service.update(now=0)
    with pytest.raises(HeadAhead):
        pair.owner.verify_head(pair.service.head(NONCE), NONCE)


@suites
def test_a_lost_update_is_an_epoch_gap_and_no_tolerance_reads_over_it(suite: int) -> None:
    pair = Pair(suite, policy=ReadPolicy(tolerant=True))
    pair.send(1)
    pair.service.update(now=0)
    (after,) = pair.send(1)
    verdict = pair.verdict(after)
    assert type(verdict) is EpochGap
    assert (verdict.first, verdict.last, verdict.epoch, verdict.current) == (1, 2, 1, 0)


def test_a_gap_beyond_the_forward_limit_is_named_apart() -> None:
    pair = Pair(policy=ReadPolicy(tolerant=True, forward_limit=3))
    frames = pair.send(6)
    verdict = pair.verdict(frames[4])
    assert type(verdict) is GapTooWide
    assert (verdict.first, verdict.last, verdict.limit) == (1, 4, 3)
    assert pair.owner.open(frames[3]) == Message(4, 0, b"m", range(1, 4))


def test_a_second_init_is_named_apart_from_every_other_verdict() -> None:
    pair, other = Pair(), Pair()
    assert type(pair.verdict(pair.init.data)) is Duplicate
    assert type(pair.verdict(other.init.data)) is Fork
    beyond = other.init.data[:8] + (7).to_bytes(8) + other.init.data[16:]
    assert type(pair.verdict(beyond)) is UnexpectedInit


def test_an_altered_frame_is_tampered_and_the_true_one_opens_afterwards() -> None:
    pair = Pair()
    (frame,) = pair.send()
    assert type(pair.verdict(frame[:-1] + bytes([frame[-1] ^ 1]))) is Tampered
    assert isinstance(pair.owner.open(frame), Message)


def test_every_kind_of_trouble_has_a_name_of_its_own() -> None:
    kinds = [verdict.kind for verdict in (Gap, GapTooWide, EpochGap, Duplicate, Fork, Passed, Tampered, UnexpectedInit)]
    assert len(set(kinds)) == len(kinds)


def test_a_restored_service_that_catches_up_is_heard_again_and_its_lost_numbers_are_forks() -> None:
    """After a restore the owner is told which frames it did not take; nothing is dropped in silence."""
    pair = Pair()
    backup = pair.service.dump()
    pair.owner.open_many(pair.send(2))
    pair.service = Enqueuer.load(backup)
    results = pair.owner.open_many(pair.send(4))
    assert [type(result) for result in results] == [Fork, Fork, Message, Message]
    assert isinstance(pair.owner.open(pair.service.update(now=0).data), Updated)


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (0, b"\2", UnknownVersion),
        (1, b"\0", UnknownType),
        (1, b"\5", UnknownType),
        (1, b"\4", MalformedFrame),
        (2, b"\0\0", UnknownSuite),
        (2, b"\0\5", UnknownSuite),
        (2, b"\0\2", WrongSuite),
        (4, b"\0\0\0\0", WrongEpoch),
        (4, b"\0\0\0\2", WrongEpoch),
        (16, b"\0" * 12, Tampered),
    ],
)
def test_each_altered_field_of_a_frame_that_is_due_is_named(at: int, value: bytes, expected: type[Exception]) -> None:
    pair = Pair()
    pair.owner.open(pair.service.update(now=0).data)
    (frame,) = pair.send()
    assert type(pair.verdict(frame[:at] + value + frame[at + len(value) :])) is expected
    assert type(pair.verdict(frame[:10])) is MalformedFrame
    assert isinstance(pair.owner.open(frame), Message)
