"""The audit: DataFrames in, DataFrames out.

`open_frames` gives the messages; `audit` gives findings, summary and checkpoints, and touches no plaintext outside
the workers. Grants are looked up on the executors through a `GrantSource`; no key is in a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from .conclude import CONCLUSIONS, conclude_batches
from .layout import Layout, arranged, checked, layout_of
from .messages import open_batches
from .schemas import CHECKPOINTS, EXPORT, FINDINGS, HEADS, MESSAGES, SUMMARY
from .sources import GrantSource
from .spans import OBSERVATIONS, ORDER, RANK_CHECKPOINT, RANK_HEAD, observe_batches

__all__ = ["AuditResult", "audit", "open_frames", "total"]

Batches = Iterator[pa.RecordBatch]

_SQL_TYPES: Final = {
    pa.binary(): "binary",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.map_(pa.string(), pa.int64()): "map<string, bigint>",
    pa.list_(pa.binary()): "array<binary>",
}


def _sql(schema: pa.Schema) -> str:
    return ", ".join(f"`{field.name}` {_SQL_TYPES[field.type]}" for field in schema)


def _named(
    name: str, work: Callable[[Batches, GrantSource], Batches], source: GrantSource
) -> Callable[[Batches], Batches]:
    """The worker's function, under a name that `explain` shows."""

    def run(batches: Batches) -> Batches:
        return work(batches, source)

    run.__name__ = run.__qualname__ = name
    return run


def open_frames(export: DataFrame, source: GrantSource, *, layout: Layout | None = None) -> DataFrame:
    """Open every frame with its grant: `MESSAGES`, one row for each row of the export.  **This is plaintext.**

    The verdict is what the grants say of the row alone.  What rows say of each other (gaps, duplicates, forks) is in
    the findings of `audit`.  Without a `layout`, a pass over the small columns finds it out.
    """
    export = checked(export, EXPORT, "export")
    layout = layout_of(export) if layout is None else layout
    return arranged(export, layout).mapInArrow(_named(f"open_{layout}", open_batches, source), MESSAGES)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What an audit gives.  Each is computed when it is used; the work behind them is done once and kept until `close`.

    `messages` is the plaintext, opened again from the export when it is used: nothing writes it unless you do.
    """

    findings: DataFrame
    summary: DataFrame
    checkpoints: DataFrame
    messages: DataFrame
    layout: Layout
    conclusions: DataFrame

    def explain(self) -> None:
        """Print the plan.  `open_clustered` or `open_scattered` in it is the way that was chosen."""
        self.conclusions.explain()

    def close(self) -> None:
        """Release what Spark keeps of the audit."""
        self.conclusions.unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def audit(
    export: DataFrame,
    source: GrantSource,
    *,
    heads: DataFrame | None = None,
    checkpoints: DataFrame | None = None,
    layout: Layout | None = None,
) -> AuditResult:
    """Verify an export.

    `heads` are the services' proofs of where queues end; without them nobody can tell a queue from one whose end was
    cut off. `checkpoints` are those of the audit before this one, whose export ended where this one begins: findings
    are then only the new ones, and the summary counts everything so far.
    """
    export = checked(export, EXPORT, "export")
    if heads is not None:
        heads = checked(heads, HEADS, "table of heads")
    if checkpoints is not None:
        checkpoints = checked(checkpoints, CHECKPOINTS, "table of checkpoints")
    layout = layout_of(export) if layout is None else layout
    seen = arranged(export, layout).mapInArrow(_named(f"audit_{layout}", observe_batches, source), _sql(OBSERVATIONS))
    if heads is not None:
        seen = seen.unionByName(_observed_heads(heads), allowMissingColumns=True)
    if checkpoints is not None:
        seen = seen.unionByName(_observed_checkpoints(checkpoints), allowMissingColumns=True)
    conclusions = (
        seen.repartition("service_id", "queue_id")
        .sortWithinPartitions(*ORDER)
        .mapInArrow(_named("conclude", conclude_batches, source), _sql(CONCLUSIONS))
        .persist()
    )
    queues = conclusions.filter("kind is null")
    return AuditResult(
        findings=conclusions.filter("kind is not null").select(*FINDINGS.names),
        summary=queues.select(*SUMMARY.names),
        checkpoints=queues.select(*CHECKPOINTS.names),
        messages=open_frames(export, source, layout=layout),
        layout=layout,
        conclusions=conclusions,
    )


def total(summary: DataFrame) -> DataFrame:
    """The summary of all queues in one row: `TOTAL`."""
    counts = (
        summary.select(fn.explode("findings").alias("kind", "count"))
        .groupBy("kind")
        .agg(fn.sum("count").alias("count"))
    )
    kinds = counts.agg(
        fn.map_from_entries(fn.sort_array(fn.collect_list(fn.struct("kind", "count")))).alias("findings")
    )
    numbers = summary.agg(
        fn.count(fn.lit(1)).alias("queues"),
        fn.count_if("verified").alias("verified_queues"),
        *(fn.coalesce(fn.sum(name), fn.lit(0)).alias(name) for name in ("frames", "messages", "bytes", "epochs")),
    )
    return numbers.crossJoin(kinds).select(
        "queues", "verified_queues", "frames", "messages", "bytes", "epochs", "findings",
        fn.expr("queues = verified_queues").alias("verified"),
    )  # fmt: skip


def _observed_heads(heads: DataFrame) -> DataFrame:
    return heads.select(
        "service_id", "queue_id", fn.lit(RANK_HEAD).alias("rank"), "nonce", fn.col("head").alias("payload")
    )


def _observed_checkpoints(checkpoints: DataFrame) -> DataFrame:
    return checkpoints.select(
        "service_id",
        "queue_id",
        fn.lit(RANK_CHECKPOINT).alias("rank"),
        fn.encode(fn.to_json(fn.struct(*CHECKPOINTS.names[2:])), "UTF-8").alias("payload"),
    )
