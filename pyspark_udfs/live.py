"""The live audit: the batch audit, once for each micro-batch of a stream, with checkpoints carried from one to the
next.

Everything that is kept between batches is a table of `CHECKPOINTS`, which holds no secret.  Spark numbers the batches
and, after a restart, gives the one that was not finished again with the same number and the same rows; each batch
reads only what earlier ones wrote, writes under its own number, and overwrites what an unfinished attempt left.  So
each finding is in the sink exactly once.

A batch writes the checkpoints of its own queues; every so many batches one writes all of them, and names are used in
turn, so that nothing has to be deleted.  Rows of a queue must arrive in the order of their numbers; within a batch
the order does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from qsratchet import StateError

from .auditing import audit
from .kinds import Kind
from .layout import Layout, checked
from .schemas import CHECKPOINTS, EXPORT, HEADS, SUMMARY
from .sources import GrantSource

__all__ = ["last_batch", "live_findings", "live_heads", "live_summary", "watch"]

#: Each batch of so many writes the checkpoints of all queues, the others those of their own queues only.
FULL_EVERY: Final = 32
_QUEUE: Final = ("service_id", "queue_id")


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
        _check_turn(spark, sink, number)
        known = None
        if number:
            # A batch that writes the checkpoints of all queues has to read them all.
            only = None if number % FULL_EVERY == 0 else batch
            known = _states(spark, sink, number - 1, only)
        with audit(batch, source, checkpoints=known, layout=Layout.SCATTERED) as result:
            result.findings.write.mode("overwrite").parquet(f"{sink}/findings/batch={number}")
            state = result.checkpoints.withColumn("batch", fn.lit(number))
            state.write.mode("overwrite").parquet(_slot(sink, number))
        # One row in one file: it is there or it is not.
        done = spark.range(1, numPartitions=1).select(fn.lit(number).alias("batch"))
        done.write.mode("overwrite").parquet(f"{sink}/done/slot={number % 2}")
        if after is not None:
            after(number)

    writer = stream.writeStream.foreachBatch(step).option("checkpointLocation", checkpoint)
    trigger = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=interval)
    return trigger.start()


def live_findings(spark: SparkSession, sink: str) -> DataFrame:
    """The findings of the batches that were finished, with the number of their `batch`."""
    last = _finished(spark, sink)
    return spark.read.parquet(f"{sink}/findings").filter(fn.col("batch") <= last)


def live_summary(spark: SparkSession, sink: str) -> DataFrame:
    """The summary after the last batch that was finished."""
    return _states(spark, sink, _finished(spark, sink)).select(*SUMMARY.names)


def live_heads(heads: DataFrame, source: GrantSource, *, sink: str) -> DataFrame:
    """What heads say of the queues after the last finished batch, if any: `FINDINGS`, above all *tail cut off*.

    It holds for this moment and is written nowhere: frames that a head proves may still be on their way, so ask again
    after the next batch.  A head from before the last frames is in order, since a stream goes on after it.
    """
    spark = heads.sparkSession
    heads = checked(heads, HEADS, "table of heads")
    last = last_batch(spark, sink)
    known = None if last < 0 else _states(spark, sink, last, heads)
    nothing = spark.createDataFrame([], EXPORT)
    with audit(nothing, source, heads=heads, checkpoints=known, layout=Layout.SCATTERED) as result:
        return result.findings.filter(fn.col("kind") != str(Kind.ROLLED_BACK))


def last_batch(spark: SparkSession, sink: str) -> int:
    """The number of the last finished batch, or -1."""
    try:
        row = spark.read.parquet(f"{sink}/done").agg(fn.max("batch")).first()
    except AnalysisException:
        return -1
    return -1 if row is None or row[0] is None else int(row[0])


def _finished(spark: SparkSession, sink: str) -> int:
    last = last_batch(spark, sink)
    if last < 0:
        raise StateError(f"there are no checkpoints of a live audit in {sink}: no batch was finished yet")
    return last


def _check_turn(spark: SparkSession, sink: str, number: int) -> None:
    """Refuse a sink whose last batch is neither the one before nor this one, which is then repeated."""
    last = last_batch(spark, sink)
    if last not in (number - 1, number):
        raise StateError(
            f"{sink} ends with batch {last}, and this stream goes on with {number}: the two do not belong together; "
            "begin again with both folders empty"
        )


def _slot(sink: str, number: int) -> str:
    """Where a batch writes checkpoints: what it overwrites is no longer read when it is finished, nor needed before."""
    turn, place = divmod(number, FULL_EVERY)
    return f"{sink}/checkpoints/slot={turn % 2}-{place}"


def _states(spark: SparkSession, sink: str, number: int, only: DataFrame | None = None) -> DataFrame:
    """The checkpoints after a batch, of all queues or only of those in a table."""
    full = number - number % FULL_EVERY
    try:
        table = spark.read.parquet(*(_slot(sink, batch) for batch in range(full, number + 1)))
    except AnalysisException as error:
        raise StateError(
            f"the checkpoints of batch {number} are not all in {sink}: begin again with both folders empty"
        ) from error
    if only is not None:
        queues = only.select(*(fn.col(name).alias(f"only_{name}") for name in _QUEUE)).distinct()
        # Rows without ids are a queue too.
        same = [fn.col(name).eqNullSafe(fn.col(f"only_{name}")) for name in _QUEUE]
        table = table.join(queues, same[0] & same[1], "left_semi")
    newest = table.groupBy(*_QUEUE).agg(fn.max_by(fn.struct(*CHECKPOINTS.names), "batch").alias("newest"))
    return newest.select("newest.*")
