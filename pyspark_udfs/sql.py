"""The audit's functions under names, for an analyst who works in SQL alone.

    SELECT qsr_header(frame).epoch, count(*) FROM export GROUP BY 1
    SELECT e.seq, qsr_open(e.seq, e.frame, g.grant).* FROM export e LEFT JOIN grants g
        ON e.service_id = g.service_id AND e.queue_id = g.queue_id AND qsr_epoch(e.frame) = g.epoch

The header functions are SQL themselves and run on the JVM.  `qsr_open` is Python, in Arrow batches.  Grants come as a
column, so the table of grants must be kept like the secret it is.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # The stubs of PySpark lack it.

from qsratchet import Grant, StateError

from .headers import HEADER_SQL
from .judge import Judged, QueueGrants
from .kinds import Kind

__all__ = ["OPENED_SQL", "register"]

#: What `qsr_open` returns.
OPENED_SQL: Final = "struct<verdict: string, sentence: string, epoch: bigint, type: string, body: binary>"
_OPENED: Final = pa.struct(
    [
        ("verdict", pa.string()),
        ("sentence", pa.string()),
        ("epoch", pa.int64()),
        ("type", pa.string()),
        ("body", pa.binary()),
    ]
)
#: So many grants are kept ready while a batch is opened.
_KEPT: Final = 1_000


def register(spark: SparkSession) -> None:
    """Register `qsr_header`, `qsr_type`, `qsr_epoch`, `qsr_seq` and `qsr_open` in this session."""
    fields = ", ".join(f"{name} {'STRING' if name == 'type' else 'BIGINT'}" for name in HEADER_SQL)
    values = ", ".join(f"'{name}', {expression}" for name, expression in HEADER_SQL.items())
    _define(spark, "qsr_header", f"STRUCT<{fields}>", f"named_struct({values})")
    for name in ("type", "epoch", "seq"):
        _define(spark, f"qsr_{name}", "STRING" if name == "type" else "BIGINT", HEADER_SQL[name])
    spark.udf.register("qsr_open", arrow_udf(open_with_grants, OPENED_SQL))


def _define(spark: SparkSession, name: str, type: str, expression: str) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {name}(frame BINARY) RETURNS {type} RETURN {expression}")


def open_with_grants(seq: pa.Array, frame: pa.Array, grant: pa.Array) -> pa.Array:
    """Open each frame with the grant beside it."""
    ready: dict[bytes, QueueGrants | None] = {}
    columns: tuple[list[Any], ...] = ([], [], [], [], [])
    for number, data, raw in zip(seq.to_pylist(), frame.to_pylist(), grant.to_pylist(), strict=True):
        judged = _judge(ready, number, data, raw)
        for column, value in zip(columns, (*judged[:4], judged.body), strict=True):
            column.append(value)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _OPENED, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(_OPENED))


_UNGRANTED: Final = QueueGrants(b"", b"", ())


def _judge(ready: dict[bytes, QueueGrants | None], seq: int | None, frame: bytes | None, raw: bytes | None) -> Judged:
    if raw is None:
        return _UNGRANTED.judge(seq, frame)
    if raw not in ready:
        if len(ready) >= _KEPT:
            ready.clear()
        try:
            grant = Grant.decode(raw)
            ready[raw] = QueueGrants(grant.service_id, grant.queue_id, (grant,))
        except StateError:
            ready[raw] = None
    grants = ready[raw]
    if grants is None:
        return Judged(Kind.WRONG_GRANT, "The grant beside this row cannot be read: it is damaged, or is not a grant.")
    return grants.judge(seq, frame)
