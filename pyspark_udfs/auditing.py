"""The audit: DataFrames in, DataFrames out.

`open_frames` gives the messages; `audit` gives findings, summary and checkpoints, and touches no plaintext outside
the workers. Grants are looked up on the executors through a `GrantSource`; no key is in a plan.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from qsratchet import MisuseError

from .conclude import CONCLUSIONS, conclude_batches
from .layout import Layout, arranged, checked, layout_of
from .messages import open_batches
from .parquet_files import ParquetFiles
from .schemas import CHECKPOINTS, EXPORT, FINDINGS, HEADS, MESSAGES, SUMMARY
from .sources import GrantSource
from .spans import OBSERVATIONS, ORDER, RANK_CHECKPOINT, RANK_HEAD, observe_batches

__all__ = ["AuditResult", "audit", "open_frames", "total"]

Batches = Iterator[pa.RecordBatch]


def _named(
    name: str, work: Callable[[Batches, GrantSource], Batches], source: GrantSource
) -> Callable[[Batches], Batches]:
    """The worker's function, under a name that `explain` shows."""

    def run(batches: Batches) -> Batches:
        _settle_worker()
        return work(batches, source)

    run.__name__ = run.__qualname__ = name
    return run


def _settle_worker() -> None:
    """Spark collects garbage after each task; what a worker has imported by now is none, and need not be looked at."""
    if not gc.get_freeze_count():
        gc.freeze()


def _worked(
    export: DataFrame | ParquetFiles, layout: Layout, run: Callable[[Batches], Batches], schema: StructType
) -> DataFrame:
    """What the workers make of an export: it is brought to them as its layout asks, or they read it themselves."""
    if isinstance(export, ParquetFiles):
        if layout is Layout.CLUSTERED:
            return export.mapped(run, schema)
        export = export.table
    return arranged(export.select(*EXPORT.names), layout).mapInArrow(run, schema)


def _layout(export: DataFrame | ParquetFiles, layout: Layout | str | None) -> Layout:
    """The layout of an export whose columns are right."""
    checked(export.table if isinstance(export, ParquetFiles) else export, EXPORT, "export")
    if layout is None:
        return layout_of(export)
    try:
        return Layout(layout)
    except ValueError:
        raise MisuseError(f"a layout is {' or '.join(Layout)}, not {layout!r}; without one it is found out") from None


def open_frames(
    export: DataFrame | ParquetFiles, source: GrantSource, *, layout: Layout | str | None = None
) -> DataFrame:
    """Open every frame with its grant: `MESSAGES`, one row for each row of the export.  **This is plaintext.**

    The verdict is what the grants say of the row alone.  What rows say of each other (gaps, duplicates, forks) is in
    the findings of `audit`.  Without a `layout`, a pass over the small columns finds it out.
    """
    layout = _layout(export, layout)
    return _worked(export, layout, _named(f"open_{layout}", open_batches, source), MESSAGES)


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
        """Print the plan.  `audit_clustered` or `audit_scattered` in it is the way that was chosen."""
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
    export: DataFrame | ParquetFiles,
    source: GrantSource,
    *,
    heads: DataFrame | None = None,
    checkpoints: DataFrame | None = None,
    layout: Layout | str | None = None,
) -> AuditResult:
    """Verify an export: a DataFrame, or faster, files that the workers can open.

    `heads` are the services' proofs of where queues end; without them nobody can tell a queue from one whose end was
    cut off. `checkpoints` are those of the audit before this one, whose export ended where this one begins: findings
    are then only the new ones, and the summary counts everything so far.
    """
    layout = _layout(export, layout)
    if heads is not None:
        heads = checked(heads, HEADS, "table of heads")
    if checkpoints is not None:
        checkpoints = checked(checkpoints, CHECKPOINTS, "table of checkpoints")
    seen = _worked(export, layout, _named(f"audit_{layout}", observe_batches, source), from_arrow_schema(OBSERVATIONS))
    if heads is not None:
        seen = seen.unionByName(_observed_heads(heads), allowMissingColumns=True)
    if checkpoints is not None:
        seen = seen.unionByName(_observed_checkpoints(checkpoints), allowMissingColumns=True)
    conclusions = (
        seen.repartition("service_id", "queue_id")
        .sortWithinPartitions(*ORDER)
        .mapInArrow(_named("conclude", conclude_batches, source), from_arrow_schema(CONCLUSIONS))
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
        "service_id", "queue_id", fn.lit(RANK_CHECKPOINT).alias("rank"), fn.col("state").alias("payload")
    )
