"""The conclusions of an audit: joins the spans of each queue and says what is missing, repeated or cut off.

It reads observations queue by queue, in the order of their numbers: first the checkpoint, if there is one, then spans
and wrong rows, then heads.  It keeps a handful of numbers for each queue and never sees a message.  What it says of a
number depends on nothing that comes after it, and the checkpoint has all that it keeps: so the result does not depend
on how the export was cut into partitions, nor on where it was cut into increments.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from qsratchet import StateError

from .chain import Chain
from .heads import check_head
from .judge import QueueGrants
from .kinds import Kind
from .ranges import Pair, Ranges, common, without
from .sources import GrantSource
from .spans import DIGEST_SIZE, OBSERVATIONS, RANK_CHECKPOINT, RANK_HEAD, repeats
from .strangers import FRAMES_TRIED, Strangers

__all__ = ["CONCLUSIONS", "GAPS_KEPT", "conclude_batches"]

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
        ("state", pa.binary()),
    ]
)
_WIDTH: Final = len(CONCLUSIONS.names)
#: The format of `state`: JSON, with this number first.
_STATE_FORMAT: Final = 1
#: A checkpoint keeps so many gaps of a queue, the last ones, to tell when what was missing comes later.
GAPS_KEPT: Final = 64
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


Track = tuple[int, bool]


class _Edge:
    """The last number of a track (an epoch, opened or not), and the frames there."""

    __slots__ = ("digests", "known", "number")

    def __init__(self, number: int, digests: list[bytes], known: int = 0) -> None:
        self.number = number
        self.digests = digests
        # So many of the digests are from an earlier audit, which has reported what is to be said of them.
        self.known = known


class _Late:
    """Rows that come below the number where an earlier audit ended: what they fill, and what they do not."""

    __slots__ = ("closed", "filled", "gaps", "passed", "tracks")

    def __init__(self, gaps: list[Pair]) -> None:
        self.gaps = gaps
        self.tracks: dict[Track, _Edge] = {}
        self.closed = Ranges()
        self.filled = Ranges()
        self.passed = Ranges()

    def compare(self, first: int, last: int) -> None:
        """What of these numbers the earlier audit did not miss."""
        rest = [(first, last)]
        for gap in self.gaps:
            rest = without(rest, *gap)
        for part in rest:
            self.passed.add(*part)


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
        # The next number that should be there.
        self._expected: int | None = None
        self._gaps: list[Pair] = []
        self._tracks: dict[Track, _Edge] = {}
        self._chain = Chain()
        # The highest number that opened, with its epoch, and the highest of those that stay closed.
        self._opened_seq = self._opened_epoch = self._top_epoch = -1
        self._closed_to = -2
        self._tried = 0
        self._unsorted = False
        # Numbers below the floor come after an audit that had passed them.
        self._floor = 0
        self._late: _Late | None = None

    # --- what comes in ---------------------------------------------------------------------------

    def take(self, seen: Observation) -> None:
        if seen.rank == RANK_CHECKPOINT:
            self._resume(seen.payload or b"")
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

    def _span(self, seen: Observation, first: int, last: int, epoch: int, granted: bool) -> None:
        # The last number that an earlier audit saw is not late: its frames can still be compared.
        late = self._late if first < self._floor - 1 else None
        if late is not None:
            late.compare(first, min(last, self._floor - 1))
        else:
            self._leave_behind(first)
        if not granted:
            begun = late.closed.add(first, last) if late is not None else first > self._closed_to + 1
            if begun:
                self._find(seen.kind or Kind.NO_GRANT, first, None, epoch, seen.sentence or "")
            self._closed_to = max(self._closed_to, last)
        self._cover(seen.start, first, last)
        over = last >= self._floor
        self._join(self._tracks if late is None or over else late.tracks, seen, first, last, epoch, granted)
        if late is None or over:
            self._follow(first, last, epoch, granted, bool(seen.update))
            if granted:
                self._overlap(first, last, epoch)
        if granted and epoch > self._top_epoch:
            self._epochs += 1
            self._top_epoch = epoch

    def _join(
        self, tracks: dict[Track, _Edge], seen: Observation, first: int, last: int, epoch: int, granted: bool
    ) -> None:
        """Put the span after the ones of its epoch; rows under one number meet at the edges."""
        track = epoch, granted
        digests = _split(seen.first_digests)
        edge = tracks.pop(track, None)
        if edge is not None and first == edge.number:
            edge.digests += digests
        else:
            if edge is not None and first < edge.number and first >= self._floor and not self._unsorted:
                self._unsorted = True
                sentence = "The rows of this queue are not in order: repeat the audit without naming a layout."
                self._find(Kind.UNSORTED, first, last, epoch, sentence)
            if edge is not None:
                self._close(track, edge)
            edge = _Edge(first, digests)
        if last > first:
            self._close(track, edge)
            edge = _Edge(last, _split(seen.last_digests))
        tracks[track] = edge

    def _follow(self, first: int, last: int, epoch: int, granted: bool, update: bool) -> None:
        missing = self._chain.follow(first, last, epoch, granted, update)
        if missing is None:
            return
        claim = "is" if missing.opened else "claims to be"
        sentence = (
            f"No authentic UPDATE ends epoch {missing.epoch}: it should be before frame {missing.follower}, which "
            f"{claim} of epoch {epoch}."
        )
        end = max(missing.follower - 1, missing.first)
        self._find(Kind.UPDATE_MISSING, missing.first, end, missing.epoch, sentence)

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
            gap = self._expected, first - 1
            self._gaps.append(gap)
            if len(self._gaps) > 2 * GAPS_KEPT:
                del self._gaps[:GAPS_KEPT]
            self._find(Kind.GAP, *gap, None, f"{_frames(*gap)} missing.")
        if self._late is not None and first < self._floor:
            for part in common(self._late.gaps, first, last):
                self._late.filled.add(*part)
                self._gaps = without(self._gaps, *part)
        if last >= self._expected:
            # What a head said of the end before this one is no word on this one.
            self._head = None
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
        grants = None
        if self.service_id and self.queue_id:
            grants = QueueGrants(self.service_id, self.queue_id, self._source.grants(self.service_id, self.queue_id))
        found = check_head(grants, head, nonce, self._expected)
        self._head = found is None
        if found is not None:
            self._find(*found)

    # --- what is kept from one audit to the next ---------------------------------------------------

    def _state(self) -> bytes:
        expected = self._expected
        # Rows under the last number may still come; those of the numbers before it do not.
        edges = [
            [*track, sorted({digest.hex() for digest in edge.digests})]
            for track, edge in self._tracks.items()
            if expected is not None and edge.number == expected - 1
        ]
        state = [
            _STATE_FORMAT,
            [self._frames, self._messages, self._bytes, self._epochs],
            self._first,
            self._kinds,
            self._head,
            expected,
            self._gaps[-GAPS_KEPT:],
            sorted(edges),
            self._chain.state(),
            [self._opened_seq, self._opened_epoch, self._top_epoch, self._closed_to, self._tried],
        ]
        return _encode(state).encode()

    def _resume(self, payload: bytes) -> None:
        if self._late is not None:
            raise StateError("a queue has two checkpoints: give those of one audit, the last")
        try:
            self._restore(*json.loads(payload))
        except (ValueError, TypeError):
            raise StateError(
                "a checkpoint is damaged or not of this release: repeat the audit from the beginning, without it"
            ) from None

    def _restore(self, format: int, *state: Any) -> None:
        if format != _STATE_FORMAT:
            raise ValueError
        counts, self._first, kinds, self._head, self._expected, gaps, edges, chain, numbers = state
        self._frames, self._messages, self._bytes, self._epochs = counts
        self._kinds.update(kinds)
        known = [(first, last) for first, last in gaps]
        self._gaps, self._late = list(known), _Late(known)
        self._chain.resume(chain)
        self._opened_seq, self._opened_epoch, self._top_epoch, self._closed_to, self._tried = numbers
        if self._expected is not None:
            self._floor = self._expected
            for epoch, granted, texts in edges:
                digests = [bytes.fromhex(text) for text in texts]
                self._tracks[epoch, granted] = _Edge(self._floor - 1, digests, len(digests))

    # --- what goes out ---------------------------------------------------------------------------

    def finish(self) -> None:
        """All of this queue was seen."""
        self._settle()
        expected = self._expected
        row = (
            self.service_id,
            self.queue_id,
            None,
            None if expected is None else expected - 1,
            self._chain.epoch,
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
            self._state(),
        )
        self._rows.append(row)

    def _settle(self) -> None:
        """Say what waited for a neighbour; there is none any more."""
        for track, edge in self._tracks.items():
            self._close(track, edge)
        if self._late is not None:
            self._settle_late(self._late)

    def _settle_late(self, late: _Late) -> None:
        for track, edge in late.tracks.items():
            self._close(track, edge)
        for first, last in late.filled:
            sentence = f"{_frames(first, last)} there now: an earlier audit found them missing."
            self._find(Kind.FILLED, first, last, None, sentence)
        for first, last in late.passed:
            sentence = f"Numbers {first} to {last} come after an audit that had passed them: they cannot be compared."
            self._find(Kind.PASSED, first, last, None, sentence)
        late.filled.clear()
        late.passed.clear()

    def _leave_behind(self, first: int) -> None:
        """Forget the tracks that ended before this number."""
        if len(self._tracks) > 1:
            for track in [track for track, edge in self._tracks.items() if edge.number < first]:
                self._close(track, self._tracks.pop(track))

    def _close(self, track: Track, edge: _Edge) -> None:
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


_encode: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


def _frames(first: int, last: int) -> str:
    return f"Frame {first} is" if first == last else f"Frames {first} to {last} are"


def _split(digests: bytes | None) -> list[bytes]:
    raw = digests or b""
    return [raw[at : at + DIGEST_SIZE] for at in range(0, len(raw), DIGEST_SIZE)]
