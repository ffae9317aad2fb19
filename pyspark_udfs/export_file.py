"""Writes an export as Parquet, in order and in bounded memory, the way the audit reads it best.

Frames are ciphertext, so they are neither compressed nor put into a dictionary; ids are, because they repeat.  Copies
of epoch and type lie beside them, so that a filter on control frames reaches the Parquet reader.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from .schemas import EXPORT, EXPORT_COPIES, arrow

__all__ = ["ExportWriter", "Row"]

#: Row groups of about this size: large enough to scan fast, small enough for flat memory and several to a core.
GROUP_BYTES: Final = 16 << 20
GROUP_ROWS: Final = 65_536

_SCHEMA: Final = arrow(StructType([*EXPORT.fields, *EXPORT_COPIES.fields]))
_IDS: Final = ["service_id", "queue_id", "epoch", "type"]


class Row(NamedTuple):
    """One row of an export: `EXPORT`, then `EXPORT_COPIES`."""

    service_id: bytes
    queue_id: bytes
    seq: int
    frame: bytes
    epoch: int
    type: str


class ExportWriter:
    """One Parquet file of an export, as a context.  Rows must come in order; it does not sort them."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._rows: list[Row] = []
        self._bytes = 0
        #: How many rows were written.
        self.rows = 0

    def __enter__(self) -> Self:
        order = [("service_id", "ascending"), ("queue_id", "ascending"), ("seq", "ascending")]
        self._writer = pq.ParquetWriter(
            self._path,
            _SCHEMA,
            compression={name: "NONE" if name == "frame" else "SNAPPY" for name in _SCHEMA.names},
            use_dictionary=_IDS,
            # Statistics of ciphertext would only make the footer larger.
            write_statistics=[name for name in _SCHEMA.names if name != "frame"],
            sorting_columns=pq.SortingColumn.from_ordering(_SCHEMA, order),
        )
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            if raised[0] is None:
                self._flush()
        finally:
            self._writer.close()

    def write_all(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._rows.append(row)
            self._bytes += len(row.frame)
            if self._bytes >= GROUP_BYTES or len(self._rows) >= GROUP_ROWS:
                self._flush()

    def _flush(self) -> None:
        if self._rows:
            columns = [
                pa.array(values, type=field.type)
                for values, field in zip(zip(*self._rows, strict=True), _SCHEMA, strict=True)
            ]
            self._writer.write_table(pa.Table.from_arrays(columns, schema=_SCHEMA))
            self.rows += len(self._rows)
            self._rows, self._bytes = [], 0
