"""Rows of `MESSAGES` from what the worker's loop opened: one row out for each row in, in the same order.

What the rows have already (queue and number) is handed through as it is; the rest is collected in runs and in one
buffer for all bodies of a batch.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from qsratchet import FrameType

from .kinds import OK
from .opening import Opener, Run
from .sources import GrantSource

__all__ = ["open_batches"]

_DATA = FrameType.DATA.name


def open_batches(batches: Iterator[pa.RecordBatch], source: GrantSource) -> Iterator[pa.RecordBatch]:
    """Open every row of every batch."""
    opener = Opener(source)
    for batch in batches:
        yield _open(opener, batch)


def _open(opener: Opener, batch: pa.RecordBatch) -> pa.RecordBatch:
    ends: list[int] = []
    epochs: list[int | None] = []
    types: list[str | None] = []
    verdicts: list[str] = []
    present: list[bool] = []
    bodies: list[bytes] = []
    for stretch in opener.stretches(batch):
        for event in opener.events(stretch):
            if isinstance(event, Run):
                bodies += [message.body for message in event.messages]
                epochs.append(event.epoch)
                types.append(_DATA)
                verdicts.append(OK)
                present.append(True)
            else:
                judged = event.judged
                bodies.append(judged.body or b"")
                epochs.append(judged.epoch)
                types.append(judged.type)
                verdicts.append(judged.kind)
                present.append(judged.body is not None)
            ends.append(len(bodies))
    run_ends = pa.array(ends, pa.int32())

    def spread(values: pa.Array) -> pa.Array:
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(run_ends, values))

    # A bitmap is one bit a row; nothing to do where every row has a body.
    validity = None if all(present) else spread(pa.array(present)).buffers()[1]
    offsets = array("i", accumulate(map(len, bodies), initial=0))
    body = pa.BinaryArray.from_buffers(
        pa.binary(), len(bodies), [validity, pa.py_buffer(offsets), pa.py_buffer(b"".join(bodies))]
    )
    columns = [
        batch.column("service_id"),
        batch.column("queue_id"),
        batch.column("seq"),
        spread(pa.array(epochs, pa.int64())),
        spread(pa.array(types, pa.string())),
        spread(pa.array(verdicts, pa.string())),
        body,
    ]
    return pa.RecordBatch.from_arrays(columns, ["service_id", "queue_id", "seq", "epoch", "type", "verdict", "body"])
