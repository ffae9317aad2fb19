"""Guarantee 6, its second half: hostile bytes cause bounded work.  Steps of the ratchet are counted, not seconds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qsratchet import (
    EPOCH_CAP,
    SUITES,
    UNPADDED,
    Dequeuer,
    Enqueuer,
    FrameRejected,
    FrameType,
    GrantWalk,
    HeadRejected,
    ReadPolicy,
    UpdatePolicy,
)
from qsratchet.queue.frames import pack_header
from qsratchet.queue.grants import MARK_STEP

from .targets import Steps

MANUAL = UpdatePolicy(frames=None, seconds=None)
NONCE = bytes(16)
HOSTILE = [
    *range(14),
    *(2_000 + offset for offset in range(-3, 14)),
    *(EPOCH_CAP + offset for offset in range(-3, 14)),
    *((1 << bits) + offset for bits in (31, 32, 53, 62, 63) for offset in (-2, -1, 0, 1)),
    (1 << 64) - 2,
    (1 << 64) - 1,
]


class Watched:
    """A reader that has passed its tenth frame, in a suite that counts."""

    def __init__(self, suite: int, policy: ReadPolicy) -> None:
        self.steps = Steps()
        self.suite = suite
        owner, request = Dequeuer.create(b"service", b"queue", suites=(suite,), policy=policy)
        keys = owner.owner_keys()
        service, init = Enqueuer.create(request, now=0, policy=MANUAL, padding=UNPADDED)
        owner.open(init.data)
        owner.open_many([frame.data for frame in service.enqueue_many([b"m"] * 10, now=0)])
        self.owner, self.service = owner, service
        self.owner._suite = self.steps.counted(owner._suite)
        self.grant = owner.grant()
        self.walk = GrantWalk(keys)
        self.walk.open(init.data)
        assert self.walk._grant is not None
        self.walk._grant.suite = self.owner._suite

    def work(self, seq: int, type: FrameType) -> int:
        """The steps that the owner takes before it refuses a forged frame."""
        forged = pack_header(type, self.suite, 0, seq) + bytes(64)
        before = self.owner.dump()
        self.steps.count = 0
        with pytest.raises(FrameRejected):
            self.owner.open(forged)
        count = self.steps.count
        self.owner.open_many([forged])
        # The batch tries the frame that is due once more than the single call does.
        assert self.steps.count <= 2 * count + 1
        assert self.owner.dump() == before
        return count


def all_suites() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("suite", SUITES, ids=lambda suite: f"0x{suite:04x}")


@all_suites()
def test_a_strict_reader_takes_one_step_for_the_frame_that_is_due_and_none_for_any_other(suite: int) -> None:
    watched = Watched(suite, ReadPolicy())
    for seq in HOSTILE:
        for type in FrameType:
            due = seq == 11 and type in (FrameType.DATA, FrameType.UPDATE)
            assert watched.work(seq, type) == (1 if due else 0), (seq, type)


@all_suites()
@pytest.mark.parametrize("limit", [1, 2, 2_000])
def test_a_tolerant_reader_takes_no_more_steps_than_its_forward_limit_and_one(suite: int, limit: int) -> None:
    watched = Watched(suite, ReadPolicy(tolerant=True, forward_limit=limit))
    worst = 0
    for seq in HOSTILE:
        for type in FrameType:
            count = watched.work(seq, type)
            assert count <= limit + 1, (seq, type)
            worst = max(worst, count)
    # The limit is used, or the test would pass for a reader that does nothing.
    assert worst == limit + 1


@all_suites()
def test_a_head_costs_no_more_steps_than_the_forward_limit(suite: int) -> None:
    watched = Watched(suite, ReadPolicy(forward_limit=50))
    counts = []
    for seq in [*HOSTILE, 60, 61, 62]:
        watched.steps.count = 0
        head = pack_header(FrameType.HEAD, suite, 0, seq) + bytes(32)
        with pytest.raises(HeadRejected):
            watched.owner.verify_head(head, NONCE)
        counts.append(watched.steps.count)
    assert max(counts) == 50


def test_a_grant_walks_its_epoch_once_and_afterwards_no_further_than_from_one_mark_to_the_next() -> None:
    watched = Watched(0x0003, ReadPolicy())
    grant = watched.grant
    first = True
    for seq in [*HOSTILE, *(11 + EPOCH_CAP - 1 - index * 997 for index in range(60))]:
        for type in (FrameType.DATA, FrameType.UPDATE):
            watched.steps.count = 0
            with pytest.raises(FrameRejected):
                grant.open(pack_header(type, 0x0003, 0, seq) + bytes(64))
            assert watched.steps.count <= EPOCH_CAP + 1
            if seq > EPOCH_CAP and not first:
                assert watched.steps.count <= MARK_STEP
            first = first and watched.steps.count <= MARK_STEP


def test_a_walk_over_control_frames_takes_no_more_steps_than_an_epoch_has() -> None:
    watched = Watched(0x0003, ReadPolicy())
    for seq in HOSTILE:
        watched.steps.count = 0
        with pytest.raises(FrameRejected):
            watched.walk.open(pack_header(FrameType.UPDATE, 0x0003, 0, seq) + bytes(64))
        assert watched.steps.count <= EPOCH_CAP


@settings(max_examples=300, deadline=None, database=None)
@given(seq=st.integers(0, (1 << 64) - 1), epoch=st.integers(0, (1 << 32) - 1), type=st.integers(0, 255))
def test_no_header_at_all_costs_more_than_the_limit(seq: int, epoch: int, type: int) -> None:
    watched = SHARED
    watched.steps.count = 0
    header = bytes([1, type]) + (1).to_bytes(2) + epoch.to_bytes(4) + seq.to_bytes(8)
    with pytest.raises(FrameRejected):
        watched.owner.open(header + bytes(64))
    assert watched.steps.count <= 2_001


SHARED = Watched(0x0001, ReadPolicy(tolerant=True))
