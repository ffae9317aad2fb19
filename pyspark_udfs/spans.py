"""What a partition has to say of its queues, in few rows: *spans* of consecutive numbers, and the rows that are wrong.

A partition may begin or end in the middle of a queue, so no conclusion about neighbours is drawn here: a span carries
its edges (first and last number, digests of the frames there), and `conclude` joins them.  What lies strictly inside
a span is decided here and now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa

from qsratchet import Buffer, FrameType

from .judge import Judged, QueueGrants
from .kinds import OK, Kind
from .opening import Opener, Run, Single, Stretch
from .sources import GrantSource

__all__ = [
    "DIGEST_SIZE",
    "OBSERVATIONS",
    "ORDER",
    "RANK_CHECKPOINT",
    "RANK_HEAD",
    "RANK_ROW",
    "observe_batches",
    "repeats",
]

DIGEST_SIZE: Final = 32
RANK_CHECKPOINT, RANK_ROW, RANK_HEAD = 0, 1, 2

#: One row for each span, for each row that is wrong, and (added later) for each head and checkpoint.
#: `first` and `last` are the numbers that the row accounts for; `seq` is the number that a finding is about;
#: `payload` is a frame that failed, a head, or a checkpoint.
OBSERVATIONS: Final = pa.schema(
    [
        ("service_id", pa.binary()),
        ("queue_id", pa.binary()),
        ("rank", pa.int32()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("epoch", pa.int64()),
        ("granted", pa.bool_()),
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("sentence", pa.string()),
        ("frames", pa.int64()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("update", pa.bool_()),
        ("start", pa.int64()),
        ("first_digests", pa.binary()),
        ("last_digests", pa.binary()),
        ("nonce", pa.binary()),
        ("payload", pa.binary()),
    ]
)
#: How `conclude` wants them, within a partition that has all rows of its queues.
#: Of spans that begin together the one of the lower epoch comes first, wherever a partition has cut them.
ORDER: Final = ("service_id", "queue_id", "rank", "first", "epoch", "granted", "last", "seq", "kind", "payload")
_FIELDS: Final = {name: place for place, name in enumerate(OBSERVATIONS.names)}

#: A frame that fails is handed on, up to this size, so that it can be tried with other queues' grants.
_HANDED_ON: Final = 1 << 20
_MOVED: Final = frozenset({Kind.TAMPERED, Kind.WRONG_EPOCH, Kind.WRONG_SUITE})
_CLOSED: Final = frozenset({Kind.NO_GRANT, Kind.WRONG_GRANT})
_DATA: Final = FrameType.DATA.name
_UPDATE: Final = FrameType.UPDATE.name


def digest(frame: Buffer) -> bytes:
    return blake2b(frame, digest_size=DIGEST_SIZE).digest()


def repeats(digests: Sequence[bytes]) -> tuple[int, int]:
    """How many surplus rows under one number repeat a frame, and how many bring another frame."""
    distinct = len(set(digests))
    return len(digests) - distinct, distinct - 1


def observe_batches(batches: Iterator[pa.RecordBatch], source: GrantSource) -> Iterator[pa.RecordBatch]:
    """Open every row of every batch and say what was seen."""
    opener = Opener(source)
    spans = _Spans()
    for batch in batches:
        for stretch in opener.stretches(batch):
            spans.queue(stretch.grants)
            for event in opener.events(stretch):
                if isinstance(event, Run):
                    spans.run(stretch, event)
                else:
                    spans.single(stretch, event)
            # The views into this batch end with it.
            spans.settle()
        if spans.rows:
            yield spans.take()
    spans.close()
    if spans.rows:
        yield spans.take()


class _Span:
    __slots__ = (
        "bytes", "epoch", "first", "first_digests", "frames", "granted", "kind", "last", "last_digests",
        "last_frame", "messages", "sentence", "update",
    )  # fmt: skip

    def __init__(self, epoch: int, first: int, frame: Buffer, kind: str | None, sentence: str | None) -> None:
        self.epoch = epoch
        self.granted = kind is None
        self.kind = kind
        self.sentence = sentence
        self.first = self.last = first
        self.frames = self.messages = self.bytes = 0
        self.update = False
        self.first_digests: list[bytes] = []
        # The frames under the last number: digests, or the only one as it is until somebody asks.
        self.last_digests: list[bytes] = []
        self.last_frame: Buffer | None = frame

    def digests(self) -> list[bytes]:
        if self.last_frame is not None:
            self.last_digests.append(digest(self.last_frame))
            self.last_frame = None
        return self.last_digests


class _Spans:
    """Collects the observations of one partition."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self._grants: QueueGrants | None = None
        self._span: _Span | None = None

    def queue(self, grants: QueueGrants) -> None:
        if grants is not self._grants:
            self.close()
            self._grants = grants

    def run(self, stretch: Stretch, run: Run) -> None:
        at, messages = run.at, run.messages
        count = len(messages)
        first = messages[0].seq
        end = at + count
        frame, final = stretch.frames[at], stretch.frames[end - 1]
        assert frame is not None  # Both opened.
        assert final is not None
        span = self._extend(run.epoch, first, frame, None, None)
        if count > 1:
            self._leave(span)
            span.last, span.last_frame = first + count - 1, final
        span.frames += count
        span.messages += count
        span.bytes += stretch.bounds[end] - stretch.bounds[at]

    def single(self, stretch: Stretch, single: Single) -> None:
        at, judged = single
        seq, frame = stretch.seqs[at], stretch.frames[at]
        size = stretch.bounds[at + 1] - stretch.bounds[at]
        kind = judged.kind
        if kind != OK and kind not in _CLOSED:
            self._wrong(seq, frame, size, judged)
            return
        assert seq is not None  # A row without a number is malformed.
        assert frame is not None
        assert judged.epoch is not None
        closed = kind != OK
        span = self._extend(judged.epoch, seq, frame, kind if closed else None, judged.sentence)
        span.frames += 1
        span.bytes += size
        span.messages += not closed and judged.type == _DATA
        span.update |= judged.type == _UPDATE

    def settle(self) -> None:
        if self._span is not None:
            self._span.digests()

    def close(self) -> None:
        """End the span under way."""
        span, self._span = self._span, None
        if span is None:
            return
        last = span.digests()
        self._row(
            first=span.first,
            last=span.last,
            epoch=span.epoch,
            granted=span.granted,
            kind=span.kind,
            sentence=span.sentence,
            frames=span.frames,
            messages=span.messages,
            bytes=span.bytes,
            update=span.update,
            first_digests=b"".join(span.first_digests if span.last > span.first else last),
            last_digests=b"".join(last),
        )

    def take(self) -> pa.RecordBatch:
        columns = list(zip(*self.rows, strict=True))
        self.rows = []
        arrays = [pa.array(column, field.type) for column, field in zip(columns, OBSERVATIONS, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=OBSERVATIONS)

    def _extend(self, epoch: int, seq: int, frame: Buffer, kind: str | None, sentence: str | None) -> _Span:
        """The span that this number belongs to, after it: the one under way, or a new one."""
        span = self._span
        if span is not None and span.epoch == epoch and span.kind == kind and span.last <= seq <= span.last + 1:
            if seq == span.last:
                span.digests().append(digest(frame))
            else:
                self._leave(span)
                span.last, span.last_frame = seq, frame
            return span
        self.close()
        span = self._span = _Span(epoch, seq, frame, kind, sentence)
        return span

    def _leave(self, span: _Span) -> None:
        """The last number of a span becomes an inner one, or its first edge."""
        if span.last == span.first:
            span.first_digests = span.digests()
        elif len(span.last_digests) > 1:
            duplicates, forks = repeats(span.last_digests)
            for kind, count in ((Kind.DUPLICATE, duplicates), (Kind.FORK, forks)):
                for _ in range(count):
                    self._row(seq=span.last, epoch=span.epoch, granted=span.granted, kind=kind)
        span.last_digests = []

    def _wrong(self, seq: int | None, frame: Buffer | None, size: int, judged: Judged) -> None:
        # Every row accounts for the number that it is stored under, whatever is in it: so no row is needed to
        # judge a number but those under it, and an export may be cut between any two numbers.
        number = None if seq is None or seq < 0 else seq
        handed_on = judged.kind in _MOVED and frame is not None and size <= _HANDED_ON
        self._row(
            first=number,
            last=number,
            epoch=judged.epoch,
            seq=seq,
            kind=judged.kind,
            sentence=judged.sentence,
            frames=1,
            messages=int(judged.body is not None),
            bytes=size,
            payload=bytes(frame) if handed_on and frame is not None else None,
        )

    def _row(self, **values: Any) -> None:
        row: list[Any] = [None] * len(_FIELDS)
        grants = self._grants
        if grants is not None:
            values["start"] = grants.start
            values["service_id"], values["queue_id"] = grants.service_id or None, grants.queue_id or None
        values["rank"] = RANK_ROW
        for name, value in values.items():
            row[_FIELDS[name]] = value
        self.rows.append(tuple(row))
