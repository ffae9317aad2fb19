"""The live audit: the batch audit, once for each micro-batch of a stream, with checkpoints carried from one to the
next.

Everything that is kept between batches is a table of `CHECKPOINTS`, which holds no secret.  Spark numbers the batches
and, after a restart, gives the one that was not finished again with the same number and the same rows; each batch
writes under its number and overwrites what an unfinished attempt left.  So each finding is in the sink exactly once.

Rows of a queue must arrive in the order of their numbers; within a batch the order does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from qsratchet import StateError

from .audit import audit
from .layout import Layout, checked
from .schemas import CHECKPOINTS, EXPORT, SUMMARY
from .sources import GrantSource

__all__ = ["live_findings", "live_summary", "watch"]

#: Checkpoints are written in turn to so many folders, so that the last one is whole while the next is written.
_SLOTS: Final = 2


def watch(
    stream: DataFrame,
    source: GrantSource,
    *,
    sink: str,
    checkpoint: str,
    once: bool = False,
    interval: str = "10 seconds",
    after: Callable[[int], None] | None = None,
) -> StreamingQuery:
    """Audit a stream with the columns of `EXPORT`; findings go to `sink`, Spark's own progress to `checkpoint`.

    `once` takes what is there and stops; otherwise a batch is taken every `interval`.  `after` is called on the
    driver when a batch was written, with its number.  Both folders belong together: keep or delete both.
    """
    stream = checked(stream, EXPORT, "stream")

    def step(batch: DataFrame, number: int) -> None:
        spark = batch.sparkSession
        known = _checkpoints(spark, sink, number - 1) if number else None
        with audit(batch, source, checkpoints=known, layout=Layout.SCATTERED) as result:
            result.findings.write.mode("overwrite").parquet(f"{sink}/findings/batch={number}")
            state = result.checkpoints.withColumn("batch", fn.lit(number))
            state.write.mode("overwrite").parquet(f"{sink}/checkpoints/slot={number % _SLOTS}")
        if after is not None:
            after(number)

    writer = stream.writeStream.foreachBatch(step).option("checkpointLocation", checkpoint)
    trigger = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=interval)
    return trigger.start()


def live_findings(spark: SparkSession, sink: str) -> DataFrame:
    """The findings of the batches that were finished, with the number of their `batch`."""
    last = _last(spark, sink)
    return spark.read.parquet(f"{sink}/findings").filter(fn.col("batch") <= last)


def live_summary(spark: SparkSession, sink: str) -> DataFrame:
    """The summary after the last batch that was finished."""
    return _checkpoints(spark, sink, _last(spark, sink)).select(*SUMMARY.names)


def _slots(spark: SparkSession, sink: str) -> DataFrame:
    try:
        return spark.read.parquet(f"{sink}/checkpoints")
    except AnalysisException as error:
        raise StateError(f"there are no checkpoints of a live audit in {sink}") from error


def _last(spark: SparkSession, sink: str) -> int:
    row = _slots(spark, sink).agg(fn.max("batch").alias("batch")).first()
    return -1 if row is None or row["batch"] is None else int(row["batch"])


def _checkpoints(spark: SparkSession, sink: str, number: int) -> DataFrame:
    try:
        table = spark.read.parquet(f"{sink}/checkpoints/slot={number % _SLOTS}")
    except AnalysisException as error:
        raise StateError(
            f"the checkpoints of batch {number} are not in {sink}: it is not of this stream, or was "
            "deleted; begin again with both folders empty"
        ) from error
    found = table.agg(fn.min("batch"), fn.max("batch")).first()
    if found is not None and tuple(found) not in ((number, number), (None, None)):
        raise StateError(
            f"{sink} has the checkpoints of batch {found[1]}, not of {number}: it does not belong to this stream's "
            "checkpoint folder; begin again with both folders empty"
        )
    return table.select(*CHECKPOINTS.names)
