"""How an export lies in its files, and so which plan an audit takes.

*Clustered*: the rows of a queue follow one another, in order, so each partition is opened as it is read, and only
edges meet afterwards.  *Scattered*: anything else; rows are brought together by queue and epoch and sorted first.
Either way one huge queue spreads over all cores: by the splits of its files, or by its epochs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from qsratchet import MisuseError

from .parquet_files import ParquetFiles

__all__ = ["Layout", "arranged", "checked", "layout_of"]

#: A partition with more sorted runs than this is not worth joining at its edges.
RUN_LIMIT: Final = 1_000

_KEYS: Final = ("service_id", "queue_id", "seq")
_RUNS: Final = pa.schema(
    [(f"{edge}_{key}", pa.int64() if key == "seq" else pa.binary()) for edge in ("first", "last") for key in _KEYS]
)
_RUNS_TABLE: Final = from_arrow_schema(_RUNS)


class Layout(StrEnum):
    """How the rows of an export lie."""

    CLUSTERED = "clustered"
    SCATTERED = "scattered"


def checked(table: DataFrame, schema: StructType, what: str) -> DataFrame:
    """The columns of `schema`, if the table has them with these types."""
    types = {field.name: field.dataType for field in table.schema.fields}
    for field in schema.fields:
        found = types.get(field.name)
        if found is None:
            raise MisuseError(f"the {what} has no column {field.name}; it needs {schema.simpleString()}")
        if found != field.dataType:
            raise MisuseError(
                f"the column {field.name} of the {what} is {found.simpleString()}, and should be "
                f"{field.dataType.simpleString()}: cast it before the audit"
            )
    return table.select(*schema.names)


def arranged(export: DataFrame, layout: Layout) -> DataFrame:
    """The export with its rows brought together, if they are not already."""
    if layout is Layout.CLUSTERED:
        return export
    # By queue and epoch, not by queue alone: so a huge queue is the work of many tasks.
    together = export.repartition("service_id", "queue_id", fn.expr("substring(frame, 5, 4)"))
    # One long sorts much faster than ids and numbers do: a hash of the queue above, the number's low bits below.  Where
    # hashes meet or a number wraps, rows come in more pieces than need be, and the pieces are joined like any others.
    return together.sortWithinPartitions(fn.expr("shiftleft(xxhash64(service_id, queue_id), 24) | (seq & 16777215)"))


class _Run(NamedTuple):
    first: tuple[bytes, bytes, int]
    last: tuple[bytes, bytes, int]


def layout_of(export: DataFrame | ParquetFiles) -> Layout:
    """Look how an export lies: one pass over its small columns, without the frames."""
    if isinstance(export, ParquetFiles):
        runs_found = export.mapped(_runs, _RUNS_TABLE, _KEYS)
    else:
        runs_found = export.select(*_KEYS).mapInArrow(_runs, _RUNS_TABLE)
    found = runs_found.limit(100 * RUN_LIMIT + 1).collect()
    if len(found) > 100 * RUN_LIMIT:
        return Layout.SCATTERED
    runs = []
    for row in found:
        values = tuple(row)
        if None in values:
            return Layout.SCATTERED
        runs.append(_Run(values[:3], values[3:]))
    runs.sort()
    clustered = all(before.last <= after.first for before, after in itertools.pairwise(runs))
    return Layout.CLUSTERED if clustered else Layout.SCATTERED


def _runs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first and the last key of each sorted run in a partition; a row of nulls if it is not made of such runs."""
    rows: list[tuple[object, ...]] = []
    first: tuple[object, ...] | None = None
    last: tuple[object, ...] | None = None
    for batch in batches:
        size = batch.num_rows
        if size == 0:
            continue
        if any(column.null_count for column in batch.columns) or len(rows) > RUN_LIMIT:
            rows = [(None,) * 6]
            first = None
            break
        places = [0, *(place + 1 for place in pc.indices_nonzero(_descents(batch)).to_pylist()), size]
        if len(places) > RUN_LIMIT:
            rows = [(None,) * 6]
            first = None
            break
        for start, stop in itertools.pairwise(places):
            head, tail = _key(batch, start), _key(batch, stop - 1)
            if first is None or last is None or head < last:
                if first is not None and last is not None:
                    rows.append(first + last)
                first = head
            last = tail
    if first is not None and last is not None:
        rows.append(first + last)
    columns = list(zip(*rows, strict=True)) if rows else [()] * 6
    yield pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _RUNS, strict=True)], schema=_RUNS
    )


def _key(batch: pa.RecordBatch, at: int) -> tuple[object, ...]:
    return tuple(column[at].as_py() for column in batch.columns)


def _descents(batch: pa.RecordBatch) -> pa.Array:
    """Where a row is smaller than the one before it."""
    rest = batch.num_rows - 1
    smaller = None
    for column in reversed(batch.columns):
        before, after = column.slice(0, rest), column.slice(1)
        less = pc.less(after, before)
        smaller = less if smaller is None else pc.or_(less, pc.and_(pc.equal(after, before), smaller))
    return smaller
