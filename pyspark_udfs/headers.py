"""Header fields from frame bytes, in built-in SQL: they run on the JVM and need no Python (docs/protocol.md, 5.1).

What a header says is a claim until the frame has been opened.  A field is null where the frame is too short to have it,
and a number is null where it does not fit SQL's bigint.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

__all__ = ["HEADER_SQL", "header", "with_header"]


def _number(first: int, length: int) -> str:
    # `conv` takes 64 bits as unsigned and gives digits; `try_cast` turns what bigint cannot hold into null.  Bytes
    # that are cut off would read as a smaller number, hence the length.
    piece = f"substring(frame, {first + 1}, {length})"
    return f"if(length(frame) >= {first + length}, try_cast(conv(hex({piece}), 16, 10) as bigint), null)"


_TYPE: Final = "element_at(map('01', 'INIT', '02', 'DATA', '03', 'UPDATE', '04', 'HEAD'), hex(substring(frame, 2, 1)))"

#: Each field as a SQL expression over a column named `frame`.
HEADER_SQL: Final = {
    "version": _number(0, 1),
    "type": _TYPE,
    "suite": _number(2, 2),
    "epoch": _number(4, 4),
    "seq": _number(8, 8),
}


def header(field: str) -> Column:
    """One field of the header of the column `frame`: version, type, suite, epoch or seq."""
    return fn.expr(HEADER_SQL[field])


def with_header(export: DataFrame) -> DataFrame:
    """The export with a column `header`: a struct of version, type, suite, epoch and seq."""
    return export.withColumn("header", fn.struct(*(header(field).alias(field) for field in HEADER_SQL)))
