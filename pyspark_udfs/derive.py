"""Grants from control frames: walks the chain of each queue over its INIT and UPDATE rows alone.

The filter on the type is Spark's own; where the export has a copy of the type beside the frame, it reaches the Parquet
reader.  The owner's keys are looked up on the executors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from qsratchet import FrameRejected, GrantWalk, MisuseError

from .headers import header
from .layout import checked
from .schemas import EXPORT, EXPORT_COPIES, GRANTS, arrow
from .sources import KeySource

__all__ = ["control_frames", "derive_grants"]

_SCHEMA: Final = arrow(GRANTS)


def control_frames(export: DataFrame) -> DataFrame:
    """The INIT and UPDATE rows of an export."""
    kept = checked(export, EXPORT, "export").columns
    copied = "type" in export.columns and export.schema["type"].dataType == EXPORT_COPIES["type"].dataType
    kind = fn.col("type") if copied else header("type")
    return export.filter(kind.isin("INIT", "UPDATE")).select(*kept)


def derive_grants(export: DataFrame, source: KeySource) -> DataFrame:
    """All grants that the owner's keys give: `GRANTS`, one row for each epoch.  **The result is secret.**

    A queue is walked by one task.  A control frame that is missing or does not authenticate ends the walk of its
    queue: the audit reports it, and the epochs after it as closed.
    """

    def walk_queues(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _walk(batches, source)

    rows = control_frames(export).repartition("service_id", "queue_id")
    # By the frames' own numbers: a frame in the wrong place still leads on.
    return rows.sortWithinPartitions("service_id", "queue_id", header("seq"), "seq").mapInArrow(walk_queues, GRANTS)


def _walk(batches: Iterator[pa.RecordBatch], source: KeySource) -> Iterator[pa.RecordBatch]:
    at: tuple[bytes | None, bytes | None] | None = None
    walk: GrantWalk | None = None
    for batch in batches:
        rows: list[tuple[Any, ...]] = []
        columns = [batch.column(name).to_pylist() for name in ("service_id", "queue_id", "frame")]
        for service_id, queue_id, frame in zip(*columns, strict=True):
            if at != (service_id, queue_id):
                at = (service_id, queue_id)
                walk = _begin(source, service_id, queue_id)
            if walk is None or frame is None:
                continue
            try:
                grant = walk.open(frame)
            except (FrameRejected, MisuseError):
                # Another copy of the frame may follow; if none does, the walk of this queue ends here.
                continue
            rows.append((service_id, queue_id, grant.epoch, grant.first_seq, grant.encode()))
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(_SCHEMA)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _begin(source: KeySource, service_id: bytes | None, queue_id: bytes | None) -> GrantWalk | None:
    if service_id is None or queue_id is None:
        return None
    keys = source.keys(service_id, queue_id)
    try:
        return None if keys is None else GrantWalk(keys)
    except MisuseError:
        # Keys that begin after INIT derive nothing.
        return None
