"""The worker's loop: frames in Arrow batches, opened in runs, with state carried from batch to batch and queue to
queue.

A run of DATA frames in order goes through the library's inner loop straight from Arrow's buffers; whatever stops a
run is judged alone.  Memory is bounded by one batch, however long a queue is.  This module does not know what becomes
of what it opens.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from qsratchet import Buffer, FrameType, Grant, Message

from .judge import Judged, QueueGrants
from .kinds import OK, Kind
from .sources import GrantSource

__all__ = ["Event", "Opener", "Run", "Single", "Stretch"]

#: So many frames are handed to the inner loop at once; it bounds what is set up in vain when a run stops early.
_PIECE: Final = 4096


class Stretch(NamedTuple):
    """Consecutive rows of one queue in a batch.  `at` is the first row's place; `bounds` are offsets into the frames'
    bytes.
    """

    at: int
    grants: QueueGrants
    seqs: Sequence[int | None]
    frames: Sequence[memoryview | None]
    bounds: Sequence[int]


class Run(NamedTuple):
    """Rows of a stretch that opened in order, as DATA frames of one epoch."""

    at: int
    epoch: int
    messages: list[Message]


class Single(NamedTuple):
    """A row of a stretch that was judged alone."""

    at: int
    judged: Judged


Event: TypeAlias = Run | Single


class Opener:
    """Opens the rows of one partition, in the order in which they come."""

    def __init__(self, source: GrantSource) -> None:
        self._source = source
        self._grants: QueueGrants | None = None
        # The grant that opens what is due, and the number that is due.
        self._grant: Grant | None = None
        self._next = 0

    def stretches(self, batch: pa.RecordBatch) -> Iterator[Stretch]:
        """Cut a batch with the columns of `EXPORT` into stretches of one queue each."""
        service_ids, queue_ids = _binary(batch, "service_id"), _binary(batch, "queue_id")
        seqs = _numbers(batch.column("seq"))
        bounds, frames = _slices(_binary(batch, "frame"))
        cuts = _cuts(service_ids, queue_ids)
        places = pa.array(cuts[:-1], pa.int64())
        keys = zip(service_ids.take(places).to_pylist(), queue_ids.take(places).to_pylist(), strict=True)
        for (service_id, queue_id), start, stop in zip(keys, cuts, cuts[1:], strict=False):
            grants = self._grants
            if grants is None or grants.queue_id != queue_id or grants.service_id != service_id:
                grants = self._load(service_id, queue_id)
            yield Stretch(start, grants, seqs[start:stop], frames[start:stop], bounds[start : stop + 1])

    def events(self, stretch: Stretch) -> Iterator[Event]:
        """Open a stretch: each of its rows is in one event, in order."""
        grants, seqs, frames = stretch.grants, stretch.seqs, stretch.frames
        size, at, end = len(seqs), 0, 0
        while at < size:
            grant, seq = self._grant, seqs[at]
            if grant is not None and seq is not None and seq == self._next:
                if at >= end:
                    end = _in_order(seqs, at)
                # A null frame is no memoryview and so ends the piece.
                piece = frames[at : min(end, at + _PIECE)]
                messages = grant.open_run(seq, _present(piece))
                if messages:
                    yield Run(at, grant.epoch, messages)
                    at += len(messages)
                    self._next = seq + len(messages)
                    continue
            judged = grants.judge(seq, frames[at])
            if judged.kind == OK:
                self._expect(grants, judged)
            elif seq == self._next:
                self._next += 1
            yield Single(at, judged)
            at += 1

    def _expect(self, grants: QueueGrants, judged: Judged) -> None:
        """After a frame that opened: what is due next, and under which grant."""
        assert judged.epoch is not None  # It opened.
        assert judged.number is not None
        epoch = judged.epoch + 1 if judged.type == FrameType.UPDATE.name else judged.epoch
        self._grant, self._next = grants.by_epoch.get(epoch), judged.number + 1
        if self._grant is not None and self._grant.first_seq > self._next:
            self._grant = None

    def _load(self, service_id: bytes | None, queue_id: bytes | None) -> QueueGrants:
        if not service_id or not queue_id:
            # The protocol has no ids of no bytes, so they are as good as none.
            self._grants = _Nameless(service_id or b"", queue_id or b"", ())
        else:
            self._grants = QueueGrants(service_id, queue_id, self._source.grants(service_id, queue_id))
        self._grant = None
        return self._grants


class _Nameless(QueueGrants):
    """Stands in for the grants of rows that do not say which queue they are of."""

    __slots__ = ()

    def judge(self, seq: int | None, frame: Buffer | None) -> Judged:
        return Judged(Kind.MALFORMED, "A row does not say which service and queue it is of: the export is damaged.")


def _present(frames: Sequence[memoryview | None]) -> Iterator[memoryview]:
    for frame in frames:
        if frame is None:
            return
        yield frame


def _in_order(seqs: Sequence[int | None], at: int) -> int:
    """Where the numbers stop being consecutive, from `at` on."""
    first = seqs[at]
    assert first is not None
    rest = len(seqs) - at
    if at == 0 and seqs == list(range(first, first + rest)):
        return len(seqs)
    end = at
    while end < len(seqs) and seqs[end] == first + (end - at):
        end += 1
    return end


def _cuts(service_ids: pa.Array, queue_ids: pa.Array) -> list[int]:
    """The places where another queue begins, from 0 to the number of rows."""
    size = len(queue_ids)
    if size == 0:
        return [0]
    rest = size - 1
    other = pc.or_(
        pc.fill_null(pc.not_equal(queue_ids.slice(1), queue_ids.slice(0, rest)), True),
        pc.fill_null(pc.not_equal(service_ids.slice(1), service_ids.slice(0, rest)), True),
    )
    return [0, *(place + 1 for place in pc.indices_nonzero(other).to_pylist()), size]


def _binary(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _numbers(column: pa.Array) -> Sequence[int | None]:
    if column.null_count:
        with_nulls: list[int | None] = column.to_pylist()
        return with_nulls
    buffer = column.buffers()[1]
    if buffer is None:
        return []
    return memoryview(buffer).cast("B").cast("q")[column.offset : column.offset + len(column)].tolist()


def _slices(column: pa.Array) -> tuple[list[int], list[memoryview | None]]:
    """The offsets of a binary column, and each value as a view into its bytes."""
    _, offsets, values = column.buffers()
    size = len(column)
    if offsets is None or size == 0:
        return [0] * (size + 1), [None] * size
    bounds = memoryview(offsets).cast("B").cast("i")[column.offset : column.offset + size + 1].tolist()
    data = memoryview(values if values is not None else b"").cast("B")
    frames: list[memoryview | None] = [data[start:stop] for start, stop in itertools.pairwise(bounds)]
    if column.null_count:
        valid = column.is_valid().to_pylist()
        frames = [frame if there else None for frame, there in zip(frames, valid, strict=True)]
    return bounds, frames
