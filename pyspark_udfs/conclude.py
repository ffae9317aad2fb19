"""The conclusions of an audit: joins the spans of each queue and says what is missing, repeated or cut off.

It reads observations queue by queue, in the order of their numbers: first the checkpoint, if there is one, then spans
and wrong rows, then heads.  It keeps a handful of numbers for each queue and never sees a message.  The result does
not depend on how the export was cut into partitions.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from qsratchet import FrameRejected, HeadRejected, MisuseError, header_of

from .judge import QueueGrants
from .kinds import Kind
from .sources import GrantSource
from .spans import DIGEST_SIZE, OBSERVATIONS, RANK_CHECKPOINT, RANK_HEAD, repeats
from .strangers import FRAMES_TRIED, Strangers

__all__ = ["CONCLUSIONS", "conclude_batches"]

#: Findings, and one row for each queue (whose `kind` is null): what `FINDINGS` and `CHECKPOINTS` have.
CONCLUSIONS: Final = pa.schema(
    [
        ("service_id", pa.binary()),
        ("queue_id", pa.binary()),
        ("seq", pa.int64()),
        ("last_seq", pa.int64()),
        ("epoch", pa.int64()),
        ("kind", pa.string()),
        ("sentence", pa.string()),
        ("frames", pa.int64()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("epochs", pa.int64()),
        ("first_seq", pa.int64()),
        ("findings", pa.map_(pa.string(), pa.int64())),
        ("head", pa.bool_()),
        ("verified", pa.bool_()),
        ("next_seq", pa.int64()),
        ("granted", pa.bool_()),
        ("update", pa.bool_()),
        ("followed_seq", pa.int64()),
        ("opened_seq", pa.int64()),
        ("opened_epoch", pa.int64()),
        ("digests", pa.list_(pa.binary())),
    ]
)
_WIDTH: Final = len(CONCLUSIONS.names)
#: So many rows are handed back at once.
_ROWS: Final = 10_000


class Observation(NamedTuple):
    """A row of `OBSERVATIONS`, in the order of its columns."""

    service_id: bytes | None
    queue_id: bytes | None
    rank: int
    first: int | None
    last: int | None
    epoch: int | None
    granted: bool | None
    seq: int | None
    kind: str | None
    sentence: str | None
    frames: int | None
    messages: int | None
    size: int | None
    update: bool | None
    start: int | None
    first_digests: bytes | None
    last_digests: bytes | None
    nonce: bytes | None
    payload: bytes | None


def conclude_batches(batches: Iterator[pa.RecordBatch], source: GrantSource) -> Iterator[pa.RecordBatch]:
    """Conclude over observations that come sorted by queue, rank and numbers."""
    strangers = Strangers(source)
    rows: list[tuple[Any, ...]] = []
    queue: _Queue | None = None
    new = tuple.__new__
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in OBSERVATIONS.names]
        for values in zip(*columns, strict=True):
            seen = new(Observation, values)
            if queue is None or queue.queue_id != seen.queue_id or queue.service_id != seen.service_id:
                if queue is not None:
                    queue.finish()
                queue = _Queue(seen.service_id, seen.queue_id, source, strangers, rows)
            queue.take(seen)
        if len(rows) >= _ROWS:
            yield _table(rows)
            rows.clear()
    if queue is not None:
        queue.finish()
    if rows:
        yield _table(rows)


def _table(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, CONCLUSIONS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=CONCLUSIONS)


class _Edge:
    """The last number of a track (an epoch, opened or not), and the frames there."""

    __slots__ = ("digests", "known", "number")

    def __init__(self, number: int, digests: list[bytes], known: int = 0) -> None:
        self.number = number
        self.digests = digests
        # So many of the digests are from an earlier audit, which has reported what is to be said of them.
        self.known = known


class _Queue:
    """One queue, from its checkpoint to its head."""

    def __init__(
        self,
        service_id: bytes | None,
        queue_id: bytes | None,
        source: GrantSource,
        strangers: Strangers,
        rows: list[tuple[Any, ...]],
    ) -> None:
        self.service_id = service_id
        self.queue_id = queue_id
        self._source = source
        self._strangers = strangers
        self._rows = rows
        self._frames = self._messages = self._bytes = self._epochs = 0
        self._first: int | None = None
        self._kinds: Counter[str] = Counter()
        self._head: bool | None = None
        # The next number that should be there, and where an earlier audit ended.
        self._expected: int | None = None
        self._floor = 0
        self._tracks: dict[tuple[int, bool], _Edge] = {}
        # The sequence of epochs: where it stands, and whether the UPDATE that ends that epoch was seen.
        self._tip: tuple[int, bool] | None = None
        self._tip_last = -1
        self._tip_update = False
        self._missing_updates: list[tuple[int, int, int]] = []
        # The highest number that opened, with its epoch, and the highest of those that stay closed.
        self._opened_seq = self._opened_epoch = self._top_epoch = -1
        self._closed_to = -2
        self._passed: tuple[int, int] | None = None
        self._tried = 0
        self._unsorted = False

    # --- what comes in ---------------------------------------------------------------------------

    def take(self, seen: Observation) -> None:
        if seen.rank == RANK_CHECKPOINT:
            self._resume(json.loads(seen.payload or b"{}"))
            return
        if seen.rank == RANK_HEAD:
            self._settle()
            self._check_head(seen.payload or b"", seen.nonce or b"")
            return
        self._frames += seen.frames or 0
        self._messages += seen.messages or 0
        self._bytes += seen.size or 0
        if seen.first_digests is not None:
            self._span(seen, seen.first or 0, seen.last or 0, seen.epoch or 0, bool(seen.granted))
            return
        if seen.kind == Kind.DUPLICATE or seen.kind == Kind.FORK:
            self._again(seen.kind, seen.seq or 0, seen.epoch)
        else:
            self._wrong(seen)
        if seen.first is not None and seen.last is not None:
            self._cover(seen.start, seen.first, seen.last)

    def _resume(self, state: dict[str, Any]) -> None:
        self._frames, self._messages = state["frames"], state["messages"]
        self._bytes, self._epochs = state["bytes"], state["epochs"]
        self._first = state.get("first_seq")
        self._kinds.update(state["findings"])
        self._head = state.get("head")
        self._opened_seq, self._opened_epoch = state["opened_seq"], state["opened_epoch"]
        self._top_epoch = self._opened_epoch
        if state.get("next_seq") is None:
            return
        self._expected = self._floor = state["next_seq"]
        if state["granted"] is False:
            self._closed_to = self._floor - 1
        if state.get("epoch") is not None:
            granted = state["granted"] is not False
            self._tip, self._tip_update, self._tip_last = (
                (state["epoch"], granted),
                state["update"],
                state["followed_seq"],
            )
            digests = [b64decode(text) for text in state["digests"]]
            if digests:
                self._tracks[self._tip] = _Edge(self._tip_last, digests, len(digests))

    def _span(self, seen: Observation, first: int, last: int, epoch: int, granted: bool) -> None:
        self._leave_behind(first)
        if first < self._floor - 1:
            self._pass(first, min(last, self._floor - 1))
        if not granted:
            if first > self._closed_to + 1:
                self._find(seen.kind or Kind.NO_GRANT, first, None, epoch, seen.sentence or "")
            self._closed_to = max(self._closed_to, last)
        self._cover(seen.start, first, last)
        self._join(seen, first, last, (epoch, granted))
        self._follow(first, last, epoch, granted, bool(seen.update))
        if granted:
            self._overlap(first, last, epoch)
            if epoch > self._top_epoch:
                self._epochs += 1
                self._top_epoch = epoch

    def _join(self, seen: Observation, first: int, last: int, track: tuple[int, bool]) -> None:
        """Put the span after the ones of its epoch; rows under one number meet at the edges."""
        digests = _split(seen.first_digests)
        edge = self._tracks.pop(track, None)
        if edge is not None and first == edge.number:
            edge.digests += digests
        else:
            if edge is not None and first < edge.number and first >= self._floor and not self._unsorted:
                self._unsorted = True
                sentence = "The rows of this queue are not in order: repeat the audit with the layout 'scattered'."
                self._find(Kind.UNSORTED, first, last, track[0], sentence)
            if edge is not None:
                self._close(track, edge)
            edge = _Edge(first, digests)
        if last > first:
            self._close(track, edge)
            edge = _Edge(last, _split(seen.last_digests))
        self._tracks[track] = edge

    def _follow(self, first: int, last: int, epoch: int, granted: bool, update: bool) -> None:
        """Follow the epochs: one leads to the next by its UPDATE only."""
        tip = self._tip
        if tip is not None and epoch < tip[0]:
            if tip[1]:
                return
            # What could not be opened claimed a later epoch, and here the earlier one goes on: the claim was false.
            self._missing_updates.clear()
        elif tip is not None and epoch > tip[0]:
            if not granted and first <= self._tip_last:
                return
            if not (self._tip_update and epoch == tip[0] + 1):
                self._missing_updates.append((self._tip_last + 1, first, tip[0]))
        same = tip is not None and tip[0] == epoch
        if granted:
            self._report_updates()
        self._tip = (epoch, granted)
        self._tip_update = update or (same and self._tip_update)
        self._tip_last = max(last, self._tip_last) if same else last

    def _overlap(self, first: int, last: int, epoch: int) -> None:
        """Numbers that opened in two epochs: the service has two histories."""
        if first <= self._opened_seq and epoch != self._opened_epoch:
            for seq in range(max(first, self._floor - 1), min(last, self._opened_seq) + 1):
                self._again(Kind.FORK, seq, max(epoch, self._opened_epoch))
        if last > self._opened_seq:
            self._opened_seq, self._opened_epoch = last, epoch

    def _cover(self, start: int | None, first: int, last: int) -> None:
        """Account for numbers; those before them that are accounted for by nothing are a gap."""
        if self._expected is None:
            self._expected = first if start is None else min(start, first)
        if first > self._expected:
            one = first - 1 == self._expected
            sentence = (
                f"Frame {first - 1} is missing." if one else f"Frames {self._expected} to {first - 1} are missing."
            )
            self._find(Kind.GAP, self._expected, first - 1, None, sentence)
        self._expected = max(self._expected, last + 1)
        self._first = first if self._first is None else min(first, self._first)

    def _wrong(self, seen: Observation) -> None:
        kind, sentence = seen.kind or Kind.MALFORMED, seen.sentence or ""
        service_id, queue_id = self.service_id, self.queue_id
        if seen.payload is not None and service_id and queue_id and self._tried < FRAMES_TRIED:
            self._tried += 1
            home = self._strangers.home(service_id, queue_id, seen.payload)
            if home is not None:
                kind = Kind.WRONG_QUEUE
                sentence = f"The frame stored under number {seen.seq} is frame {home[1]} of the queue {home[0].hex()}."
        self._find(kind, seen.seq, None, seen.epoch, sentence)

    def _check_head(self, head: bytes, nonce: bytes) -> None:
        """Compare the end of the queue with what the service proved to be its end."""
        expected = self._expected
        grants = None
        if self.service_id and self.queue_id:
            grants = QueueGrants(self.service_id, self.queue_id, self._source.grants(self.service_id, self.queue_id))
        if expected is None:
            expected = (grants.start if grants is not None else None) or 0
        self._head = False
        try:
            header = header_of(head)
            grant = grants.by_epoch.get(header.epoch) if grants is not None else None
            if grant is None:
                sentence = f"The head cannot be checked: there is no grant for its epoch, {header.epoch}."
                self._find(Kind.NO_GRANT, header.seq, None, header.epoch, sentence)
                return
            # From 0 on, so that a head behind the last frame is authenticated too before it is believed.
            proved = grant.verify_head(head, nonce, next_seq=0)
        except (FrameRejected, HeadRejected, MisuseError) as error:
            self._find(Kind.HEAD_REJECTED, None, None, None, f"The head was refused: {error}.")
            return
        if proved.next_seq > expected:
            last = proved.next_seq - 1
            sentence = f"The end was cut off: the service proved that frames {expected} to {last} exist."
            self._find(Kind.TAIL_CUT_OFF, expected, last, proved.epoch, sentence)
        elif proved.next_seq < expected:
            sentence = (
                f"The service proved {proved.next_seq} frames, but the export has {expected}: it went back in time."
            )
            self._find(Kind.ROLLED_BACK, proved.next_seq, expected - 1, proved.epoch, sentence)
        else:
            self._head = True

    # --- what goes out ---------------------------------------------------------------------------

    def finish(self) -> None:
        """All of this queue was seen."""
        self._settle()
        expected = self._expected
        tip = self._tip
        edge = self._tracks.get(tip) if tip is not None else None
        at_end = edge is not None and edge.number == self._tip_last
        row = (
            self.service_id,
            self.queue_id,
            None,
            None if expected is None else expected - 1,
            None if tip is None else tip[0],
            None,
            None,
            self._frames,
            self._messages,
            self._bytes,
            self._epochs,
            self._first,
            sorted(self._kinds.items()),
            self._head,
            not self._kinds,
            expected,
            expected is None or self._closed_to != expected - 1,
            self._tip_update,
            self._tip_last,
            self._opened_seq,
            self._opened_epoch,
            edge.digests if edge is not None and at_end else [],
        )
        self._rows.append(row)

    def _settle(self) -> None:
        """Say what waited for a neighbour; there is none any more."""
        for track, edge in self._tracks.items():
            self._close(track, edge)
        self._report_updates()
        if self._passed is not None:
            first, last = self._passed
            self._passed = None
            sentence = f"Numbers {first} to {last} come after an audit that had passed them: they cannot be compared."
            self._find(Kind.PASSED, first, last, None, sentence)

    def _leave_behind(self, first: int) -> None:
        """Forget the tracks that ended before this number."""
        if len(self._tracks) > 1:
            for track in [track for track, edge in self._tracks.items() if edge.number < first - 1]:
                self._close(track, self._tracks.pop(track))

    def _close(self, track: tuple[int, bool], edge: _Edge) -> None:
        """Report the surplus rows under a number, once."""
        duplicates, forks = repeats(edge.digests) if edge.digests else (0, 0)
        if edge.known:
            before = repeats(edge.digests[: edge.known])
            duplicates, forks = duplicates - before[0], forks - before[1]
        for _ in range(duplicates):
            self._again(Kind.DUPLICATE, edge.number, track[0])
        for _ in range(forks):
            self._again(Kind.FORK, edge.number, track[0])
        edge.known = len(edge.digests)

    def _report_updates(self) -> None:
        for first, follower, epoch in self._missing_updates:
            sentence = f"No authentic UPDATE ends epoch {epoch}: it should be before frame {follower}."
            self._find(Kind.UPDATE_MISSING, first, max(follower - 1, first), epoch, sentence)
        self._missing_updates.clear()

    def _pass(self, first: int, last: int) -> None:
        if self._passed is not None:
            first, last = min(first, self._passed[0]), max(last, self._passed[1])
        self._passed = (first, last)

    def _again(self, kind: str, seq: int, epoch: int | None) -> None:
        if kind == Kind.DUPLICATE:
            sentence = f"Frame {seq} is in the export more than once, with the same bytes."
        else:
            sentence = f"There are two different frames {seq}: the service went back in time, or has two writers."
        self._find(kind, seq, None, epoch, sentence)

    def _find(self, kind: str, seq: int | None, last_seq: int | None, epoch: int | None, sentence: str) -> None:
        self._kinds[str(kind)] += 1
        finding = (self.service_id, self.queue_id, seq, last_seq, epoch, str(kind), sentence)
        self._rows.append(finding + (None,) * (_WIDTH - len(finding)))


def _split(digests: bytes | None) -> list[bytes]:
    raw = digests or b""
    return [raw[at : at + DIGEST_SIZE] for at in range(0, len(raw), DIGEST_SIZE)]
