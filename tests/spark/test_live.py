"""The live audit: files arrive in a folder, the query stops and starts again, and each finding is there once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_udfs import EXPORT, FINDINGS, audit, live_findings, live_summary, watch
from qsratchet import StateError

from .exports import ARROW, Queue, Row, export_of, source_of


def _arrive(folder: Path, number: int, rows: list[Row]) -> None:
    columns = [pa.array([row[place] for row in rows], kind.type) for place, kind in enumerate(ARROW)]
    pq.write_table(pa.Table.from_arrays(columns, schema=ARROW), folder / f"{number}.parquet")


def test_state_survives_restarts_and_each_finding_is_in_the_sink_once(spark: SparkSession, tmp_path: Path) -> None:
    queues = [Queue.make(b"live-%d" % number, 30) for number in range(3)]
    source = source_of(tmp_path / "grants", queues)
    rows = [row for queue in queues for row in queue.rows]
    rows = [row for row in rows if row.seq not in (5, 12, 13) or row.queue_id == b"live-2"]
    rows.append(queues[1].rows[9])
    rows[3] = rows[3]._replace(frame=(rows[3].frame or b"")[:-1] + b"?")
    arriving = tmp_path / "arriving"
    arriving.mkdir()
    sink = str(tmp_path / "sink")

    def go(after: Any = None) -> None:
        stream = spark.readStream.schema(EXPORT).parquet(str(arriving))
        watch(
            stream, source, sink=sink, checkpoint=str(tmp_path / "checkpoint"), once=True, after=after
        ).awaitTermination()

    def crash(number: int) -> None:
        raise RuntimeError("the driver dies after it has written and before Spark has noted it")

    _arrive(arriving, 0, [row for row in rows if (row.seq or 0) < 10])
    go()
    _arrive(arriving, 1, [row for row in rows if 10 <= (row.seq or 0) < 20])
    with pytest.raises(StreamingQueryException):
        go(crash)
    go()
    _arrive(arriving, 2, [row for row in rows if (row.seq or 0) >= 20])
    go()
    with audit(export_of(spark, tmp_path / "whole", [rows]), source) as result:
        expected = Counter(result.findings.collect())
        summary = sorted(result.summary.collect())
    found = live_findings(spark, sink)
    assert Counter(found.select(*FINDINGS.names).collect()) == expected
    assert {row["batch"] for row in found.collect()} == {0, 1}
    assert {row["kind"] for row in expected} == {"gap", "duplicate", "tampered"}
    assert sorted(live_summary(spark, sink).collect()) == summary


def test_a_sink_of_another_stream_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no checkpoints"):
        live_findings(spark, str(tmp_path))
