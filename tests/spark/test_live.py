"""The live audit: files arrive in a folder, the query stops, dies and starts again, and each finding is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pyspark_udfs import EXPORT, FINDINGS, HEADS, audit, live, live_findings, live_heads, live_summary, watch
from qsratchet import StateError

from .exports import ARROW, NONCE, SERVICE, Queue, Row, export_of, source_of
from .plain_source import PlainSource


def _arrive(folder: Path, number: int, rows: list[Row]) -> None:
    columns = [pa.array([row[place] for row in rows], kind.type) for place, kind in enumerate(ARROW)]
    path = folder / "arriving" / f"{number}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_arrays(columns, schema=ARROW), path)
    # Spark takes files in the order of their times.
    os.utime(path, (1_000_000 + number, 1_000_000 + number))


def _watch(spark: SparkSession, folder: Path, after: Callable[[int], None] | None = None) -> str:
    """Take what has arrived, one file to a batch; the folder of the sink."""
    stream = spark.readStream.schema(EXPORT).option("maxFilesPerTrigger", 1).parquet(str(folder / "arriving"))
    sink = str(folder / "sink")
    source = PlainSource(str(folder / "grants"))
    query = watch(stream, source, sink=sink, checkpoint=str(folder / "checkpoint"), once=True, after=after)
    query.awaitTermination()
    return sink


def _counted(table: DataFrame) -> Counter[Any]:
    return Counter(tuple(row[name] for name in FINDINGS.names) for row in table.collect())


def _defective(queues: list[Queue]) -> list[Row]:
    """The rows of three queues: one with gaps and an altered frame, one with a duplicate, one that is clean."""
    rows = [row for queue in queues for row in queue.rows]
    rows = [row for row in rows if row.seq not in (5, 12, 13) or row.queue_id == queues[2].id]
    rows.append(queues[1].rows[9])
    rows[3] = rows[3]._replace(frame=(rows[3].frame or b"")[:-1] + b"?")
    return rows


def test_state_survives_restarts_and_each_finding_is_in_the_sink_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Batches 0, 2 and 4 write all checkpoints.
    monkeypatch.setattr(live, "FULL_EVERY", 2)
    queues = [Queue.make(b"live-%d" % number, 30) for number in range(3)]
    source = source_of(tmp_path / "grants", queues)
    rows = _defective(queues)
    early, late = ([row for row in rows if ((row.seq or 0) < 10) is first] for first in (True, False))

    def crash(number: int) -> None:
        raise RuntimeError("the driver dies after it has written and before Spark has noted it")

    _arrive(tmp_path, 0, early)
    # One queue alone: the checkpoints of the others are neither written nor lost.
    _arrive(tmp_path, 1, [row for row in late if row.queue_id == b"live-0" and (row.seq or 0) < 20])
    sink = _watch(spark, tmp_path)
    assert {row["queue_id"] for row in spark.read.parquet(f"{sink}/checkpoints/slot=0-1").collect()} == {b"live-0"}
    assert live_summary(spark, sink).count() == 3
    _arrive(tmp_path, 2, [row for row in late if row.queue_id != b"live-0"])
    with pytest.raises(StreamingQueryException):
        _watch(spark, tmp_path, crash)
    _arrive(tmp_path, 3, [row for row in late if row.queue_id == b"live-0" and (row.seq or 0) >= 20])
    _watch(spark, tmp_path)
    heads = [(SERVICE, queue.id, NONCE, queue.service.head(NONCE)) for queue in queues]
    with audit(export_of(spark, tmp_path / "whole", [rows]), source) as result:
        expected = _counted(result.findings)
        summary = sorted(result.summary.collect())
    found = live_findings(spark, sink)
    assert _counted(found) == expected
    assert {row["batch"] for row in found.collect()} == {0, 1, 2}
    assert {finding[5] for finding in expected} == {"gap", "duplicate", "tampered"}
    assert sorted(live_summary(spark, sink).collect()) == summary
    # Heads are looked at whenever somebody asks: of the end, and of an earlier time.
    table = spark.createDataFrame(heads, HEADS)
    assert live_heads(table, source, sink=sink).collect() == []
    end = queues[1].service.next_seq
    queues[1].write(2)
    newer = [(SERVICE, queues[1].id, NONCE, queues[1].service.head(NONCE)), heads[0]]
    (cut,) = live_heads(spark.createDataFrame(newer, HEADS), source, sink=sink).collect()
    assert (cut["queue_id"], cut["kind"], cut["seq"], cut["last_seq"]) == (b"live-1", "tail cut off", end, end + 1)
    _arrive(tmp_path, 4, queues[1].rows[end:])
    _watch(spark, tmp_path)
    assert live_heads(spark.createDataFrame([*newer, heads[1]], HEADS), source, sink=sink).collect() == []
    # A sink belongs to its stream.
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    with pytest.raises(StreamingQueryException, match="do not belong together"):
        _watch(spark, tmp_path)


def test_a_killed_driver_is_replayed_from_the_batch_it_died_in(spark: SparkSession, tmp_path: Path) -> None:
    queues = [Queue.make(b"killed-%d" % number, 30) for number in range(3)]
    source = source_of(tmp_path / "grants", queues)
    rows = _defective(queues)
    for number in range(3):
        _arrive(tmp_path, number, [row for row in rows if number * 12 <= (row.seq or 0) < number * 12 + 12])
    command = [sys.executable, "-m", "tests.spark.live_driver", str(tmp_path)]
    died = subprocess.run(command, start_new_session=True, capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr[-2_000:]
    sink = str(tmp_path / "sink")
    # It had written the findings of its second batch, which nobody is shown yet.
    assert (tmp_path / "sink" / "findings" / "batch=1" / "_SUCCESS").exists()
    assert {row["batch"] for row in live_findings(spark, sink).collect()} == {0}
    written = spark.read.parquet(f"{sink}/findings").filter("batch = 1").count()
    assert written == 2
    _watch(spark, tmp_path)
    with audit(export_of(spark, tmp_path / "whole", [rows]), source) as result:
        assert _counted(live_findings(spark, sink)) == _counted(result.findings)
        assert sorted(live_summary(spark, sink).collect()) == sorted(result.summary.collect())


def test_a_sink_without_a_finished_batch_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no checkpoints"):
        live_findings(spark, str(tmp_path))
