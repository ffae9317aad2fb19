"""A stateful model: service, owner and the store between them, with everything that goes wrong in between.

The rules crash either side before and after each persist, restore old backups, race two writers, drop, repeat, reorder,
corrupt and splice frames, and offer keys at any time.  The invariants are the guarantees of docs/security.md: what the
owner accepts is what the service stored under that number, in order, once; what it refuses leaves its state byte for
byte; and no (key, nonce) pair is ever used twice.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from qsratchet import (
    Dequeuer,
    Duplicate,
    Enqueuer,
    EpochGap,
    Fork,
    Frame,
    FrameRejected,
    FrameType,
    Gap,
    HeadAhead,
    HeadRejected,
    Initialised,
    Message,
    MissingKey,
    OfferRejected,
    Passed,
    ReadPolicy,
    RolledBack,
    Tampered,
    Updated,
    UpdatePolicy,
    header_of,
)
from tests.queue.pair import FAST_SUITE, Pair

UPDATES = UpdatePolicy(frames=4, seconds=50)


class QueueModel(RuleBasedStateMachine):
    """One queue.  `stored` is the service's table, `log` all that ever left it, `unsent` what it sealed in vain."""

    @initialize(tolerant=st.booleans())
    def create(self, tolerant: bool) -> None:
        self.policy = ReadPolicy(tolerant=tolerant, forward_limit=30)
        self.now = 0
        self.owner, request = Dequeuer.create(b"service", b"queue", suites=(FAST_SUITE,), policy=self.policy)
        self.service, init = Enqueuer.create(request, now=0, policy=UPDATES)
        self.stored: dict[int, bytes] = {}
        self.bodies: dict[bytes, bytes] = {}
        self.log: list[bytes] = []
        self.unsent: list[bytes] = []
        # What each side would find on its disk after a crash, and the older backups of it.
        self.service_disk = self.service.dump()
        self.owner_disk = self.owner.dump()
        self.service_backups: list[bytes] = []
        self.owner_backups: list[tuple[bytes, list[tuple[int, bytes]]]] = []
        self.read: list[tuple[int, bytes]] = []
        self.read_on_disk: list[tuple[int, bytes]] = []
        self.lost: set[int] = set()
        self.forked = False
        self.rewound = False
        self.count = 0
        self._store([init])

    # --- the service -----------------------------------------------------------------------------

    def _store(self, frames: list[Frame], bodies: list[bytes] | None = None) -> None:
        """One transaction: the state and the frames; then they are out."""
        self.service_disk = self.service.dump()
        texts = iter(bodies or [])
        for frame in frames:
            self.stored[frame.seq] = frame.data
            self.log.append(frame.data)
            if frame.type is FrameType.DATA:
                self.bodies[frame.data] = next(texts)

    def _text(self) -> bytes:
        self.count += 1
        return b"message %d" % self.count

    @rule(step=st.integers(0, 60))
    def enqueue(self, step: int) -> None:
        self.now += step
        text = self._text()
        self._store(self.service.enqueue(text, now=self.now), [text])

    @rule(count=st.integers(0, 9))
    def enqueue_many(self, count: int) -> None:
        texts = [self._text() for _ in range(count)]
        self._store(self.service.enqueue_many(texts, now=self.now), texts)

    @rule()
    def update(self) -> None:
        self._store([self.service.update(now=self.now)])

    @rule()
    def service_crashes_before_it_persists(self) -> None:
        """The frames never left; their keys are used again, for other bytes."""
        before = self.service.dump()
        frames = self.service.enqueue_many([self._text(), self._text()], now=self.now)
        self.unsent += [frame.data for frame in frames]
        self.service = Enqueuer.load(self.service_disk, policy=UPDATES)
        assert self.service.dump() == before

    @rule()
    def service_crashes_after_it_persisted(self) -> None:
        self.service = Enqueuer.load(self.service_disk, policy=UPDATES)

    @rule()
    def service_takes_a_backup(self) -> None:
        self.service_backups.append(self.service_disk)

    @precondition(lambda self: self.service_backups)
    @rule(data=st.data())
    def service_is_restored_from_a_backup(self, data: st.DataObject) -> None:
        """Numbers are used again for other frames: the owner must notice, and no nonce may repeat."""
        self.service = Enqueuer.load(data.draw(st.sampled_from(self.service_backups)), policy=UPDATES)
        self.service_disk = self.service.dump()
        self.stored = {seq: frame for seq, frame in self.stored.items() if seq < self.service.next_seq}
        self.forked = True

    @rule()
    def two_writers_race_and_the_generation_decides(self) -> None:
        """Both seal the next number; the store takes one, because the generation it started from is gone then."""
        rival = Enqueuer.load(self.service_disk, policy=UPDATES)
        text, other = self._text(), self._text()
        started_from = Enqueuer.load(self.service_disk).generation
        frames = self.service.enqueue(text, now=self.now)
        self._store(frames, [text])
        late = rival.enqueue(other, now=self.now)
        assert late[-1].seq == frames[-1].seq
        assert Enqueuer.load(self.service_disk).generation != started_from
        self.unsent += [frame.data for frame in late]

    # --- the owner -------------------------------------------------------------------------------

    def _take(self, frame: bytes, *, genuine: bool) -> None:
        before = self.owner.dump()
        ready, due = self.owner.ready, self.owner.next_seq
        try:
            opened = self.owner.open(frame)
        except FrameRejected as verdict:
            assert self.owner.dump() == before
            if genuine:
                self._judge(verdict, frame, due, ready)
            return
        assert genuine or frame in self.log
        if isinstance(opened, Message):
            assert opened.seq >= due
            assert self.bodies[frame] == opened.body
            self.read.append((opened.seq, opened.body))
        if isinstance(opened, (Message, Updated)):
            assert self.policy.tolerant or not opened.missing
            assert opened.missing == range(due, opened.seq)
            self.lost |= set(opened.missing)
        else:
            assert isinstance(opened, Initialised)
            assert not ready

    def _judge(self, verdict: FrameRejected, frame: bytes, due: int, ready: bool) -> None:
        """A frame from the store was refused: only for a reason that this history can have."""
        seq = header_of(frame).seq
        if isinstance(verdict, (Duplicate, Fork, Passed)):
            assert ready
            assert seq < due
            if isinstance(verdict, Fork):
                assert self.forked
        elif isinstance(verdict, EpochGap) and seq == due:
            # The frame that was given up last was the UPDATE, as the store has it since the restore.
            assert (verdict.first, verdict.last) == (self.owner.discarded[-1], seq - 1)
            assert self.forked or self.rewound
        elif isinstance(verdict, Gap):
            assert seq > due
            assert (verdict.first, verdict.last) == (due, seq - 1)
            if not isinstance(verdict, EpochGap):
                assert not self.policy.tolerant or seq - due > self.policy.forward_limit or not ready
        else:
            assert isinstance(verdict, (Tampered, MissingKey)) or self.forked
            assert self.forked or self.rewound

    @rule()
    def read_what_is_due(self) -> None:
        frame = self.stored.get(self.owner.next_seq)
        if frame is not None:
            self._take(frame, genuine=True)

    @rule()
    def read_everything(self) -> None:
        due = self.owner.next_seq
        before = self.owner.dump()
        frames = [frame for seq, frame in sorted(self.stored.items()) if seq >= due]
        batch = Dequeuer.load(before, policy=self.policy)
        results = batch.open_many(frames)
        for frame, result in zip(frames, results, strict=True):
            self._take(frame, genuine=True)
            if isinstance(result, Message):
                assert self.read[-1] == (result.seq, result.body)
        assert (batch.next_seq, batch.epoch, batch._chain_key) == (
            self.owner.next_seq,
            self.owner.epoch,
            self.owner._chain_key,
        )

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def any_frame_of_the_past_is_delivered(self, data: st.DataObject) -> None:
        """Dropped, repeated, reordered: whatever the network makes of the frames."""
        self._take(data.draw(st.sampled_from(self.log)), genuine=True)

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def a_corrupted_frame_is_delivered(self, data: st.DataObject) -> None:
        frame = data.draw(st.sampled_from(self.log))
        bit = data.draw(st.integers(0, len(frame) * 8 - 1))
        broken = bytearray(frame)
        broken[bit // 8] ^= 1 << bit % 8
        before = self.owner.dump()
        results = self.owner.open_many([broken, frame[: bit // 8], frame + b"\0"])
        assert all(isinstance(result, FrameRejected) for result in results)
        assert self.owner.dump() == before

    @rule()
    def a_frame_of_another_queue_is_spliced_in(self) -> None:
        other = Pair(queue_id=b"another")
        seq = max(self.owner.next_seq, 1)
        other.service._next = other.service._first = seq
        other.service._epoch = self.owner.epoch
        before = self.owner.dump()
        results = self.owner.open_many([*other.send(b"foreign"), other.frames[0].data, other.update()])
        assert all(isinstance(result, FrameRejected) for result in results)
        assert self.owner.dump() == before

    @rule()
    def owner_persists_and_acknowledges(self) -> None:
        self.owner_disk = self.owner.dump()
        self.read_on_disk = list(self.read)
        assert self.owner.acknowledge == self.owner.next_seq
        for seq in [seq for seq in self.stored if seq < self.owner.acknowledge]:
            del self.stored[seq]

    @rule()
    def owner_crashes_before_it_persists(self) -> None:
        self.owner = Dequeuer.load(self.owner_disk, policy=self.policy)
        self.read = list(self.read_on_disk)
        self.rewound = True

    @rule()
    def owner_takes_a_backup(self) -> None:
        self.owner_persists_and_acknowledges()
        self.owner_backups.append((self.owner_disk, list(self.read)))

    @precondition(lambda self: self.owner_backups)
    @rule(data=st.data())
    def owner_is_restored_from_a_backup(self, data: st.DataObject) -> None:
        self.owner_disk, read = data.draw(st.sampled_from(self.owner_backups))
        self.owner = Dequeuer.load(self.owner_disk, policy=self.policy)
        self.read = list(read)
        self.read_on_disk = list(self.read)
        self.rewound = True

    @precondition(lambda self: self.owner.ready)
    @rule(lost=st.booleans())
    def owner_offers_a_key(self, lost: bool) -> None:
        offer = self.owner.offer_key()
        self.owner_disk = self.owner.dump()
        self.read_on_disk = list(self.read)
        before = self.service.dump()
        try:
            if not lost:
                self._store(self.service.accept_offer(offer.encode(), now=self.now))
        except OfferRejected:
            assert self.forked or self.rewound
            assert self.service.dump() == before

    @precondition(lambda self: self.owner.ready)
    @rule()
    def owner_gives_up_the_next_frame(self) -> None:
        seq = self.owner.next_seq
        frame = self.stored.get(seq)
        if frame is not None and header_of(frame).type is FrameType.DATA and len(self.owner.discarded) < 200:
            self.owner.discard(seq)
            assert self.owner.discarded[-1] == seq
            self.lost.add(seq)

    @precondition(lambda self: self.owner.ready)
    @rule(nonce=st.binary(min_size=16, max_size=64))
    def owner_checks_the_head(self, nonce: bytes) -> None:
        before = self.owner.dump()
        try:
            head = self.owner.verify_head(self.service.head(nonce), nonce)
        except RolledBack:
            assert self.forked
            assert self.service.next_seq < self.owner.next_seq
        except HeadAhead:
            assert self.service.epoch != self.owner.epoch or self.service.next_seq - self.owner.next_seq > 30
        except HeadRejected:
            assert self.forked
        else:
            assert head.missing == range(self.owner.next_seq, self.service.next_seq)
            # What the head says is there is in the store, or was acknowledged by an owner that has since been rewound.
            assert self.rewound or self.forked or all(seq in self.stored for seq in head.missing)
        assert self.owner.dump() == before

    @precondition(lambda self: self.forked or self.rewound)
    @rule()
    def owner_resets(self) -> None:
        """The way on after anything: a new queue under the same name."""
        request = self.owner.reset()
        self.service, init = Enqueuer.create(request.encode(), now=self.now, policy=UPDATES)
        self.stored.clear()
        self.log.clear()
        self.service_backups.clear()
        self.owner_backups.clear()
        self.read.clear()
        self.forked = self.rewound = False
        self._store([init])
        self.owner_disk = self.owner.dump()
        self.read_on_disk = []

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def numbers_are_read_once_and_in_order(self) -> None:
        numbers = [seq for seq, _ in self.read]
        assert numbers == sorted(set(numbers))

    @invariant()
    def no_key_and_nonce_are_used_twice(self) -> None:
        # A random nonce makes the pair unique whatever the key, so it is enough that no nonce repeats.
        nonces = [frame[16:28] for frame in self.log + self.unsent if frame[1] != FrameType.INIT]
        assert len(set(nonces)) == len(nonces)

    @invariant()
    def states_on_disk_load(self) -> None:
        Enqueuer.load(self.service_disk)
        Dequeuer.load(self.owner_disk)


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = settings(stateful_step_count=60)
