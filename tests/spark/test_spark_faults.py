"""Faults: each ends in a finding or in a clear error, and output is complete or absent."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_udfs import EXPORT, HEADS, audit, derive_grants, open_frames
from pyspark_udfs.report_data import gather
from qsratchet import Grant, MisuseError

from .exports import SERVICE, Queue, Row, export_of, source_of
from .plain_source import PlainSource


class DeadlySource(PlainSource):
    """Kills the worker that asks, the first time."""

    def __init__(self, path: str, marker: str) -> None:
        super().__init__(path)
        self.marker = marker

    def grants(self, service_id: bytes, queue_id: bytes) -> Sequence[Grant]:
        if queue_id == b"fault-2":
            try:
                Path(self.marker).touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().grants(service_id, queue_id)


class ForeignSource(PlainSource):
    """Gives every queue the grants of one."""

    def grants(self, service_id: bytes, queue_id: bytes) -> Sequence[Grant]:
        return super().grants(service_id, b"fault-0")


@pytest.fixture(scope="module")
def queues() -> list[Queue]:
    return [Queue.make(b"fault-%d" % number, 20) for number in range(4)]


def test_a_killed_python_worker_costs_a_retry_and_nothing_else(
    spark: SparkSession, tmp_path: Path, queues: list[Queue]
) -> None:
    plain = source_of(tmp_path / "grants", queues)
    source = DeadlySource(plain.path, str(tmp_path / "killed"))
    export = export_of(spark, tmp_path / "rows", [[row for queue in queues for row in queue.rows]])
    with audit(export, source) as result:
        rows = {row["queue_id"]: (row["frames"], row["verified"]) for row in result.summary.collect()}
        assert result.findings.collect() == []
    assert (tmp_path / "killed").exists()
    assert rows == {queue.id: (len(queue.rows), True) for queue in queues}


def test_grants_of_another_queue_open_nothing_and_are_named(
    spark: SparkSession, tmp_path: Path, queues: list[Queue]
) -> None:
    plain = source_of(tmp_path / "grants", queues)
    export = export_of(spark, tmp_path / "rows", [queues[0].rows + queues[1].rows])
    with audit(export, ForeignSource(plain.path)) as result:
        found = [(row["queue_id"], row["kind"], row["seq"]) for row in result.findings.collect()]
        bodies = {row["queue_id"] for row in result.messages.collect() if row["body"] is not None}
    assert found == [(queues[1].id, "wrong grant", 0)]
    assert bodies == {queues[0].id}


def test_damaged_rows_are_findings_and_cost_nothing_else(
    spark: SparkSession, tmp_path: Path, queues: list[Queue]
) -> None:
    queue = queues[0]
    rows: list[Row] = list(queue.rows)
    rows[2] = rows[2]._replace(frame=b"")
    rows[3] = rows[3]._replace(frame=b"\x01" * (100 << 20))
    rows[4] = rows[4]._replace(frame=None)
    rows[5] = rows[5]._replace(seq=None)
    rows[6] = rows[6]._replace(queue_id=None)
    rows[7] = rows[7]._replace(service_id=None)
    rows[9] = rows[9]._replace(seq=-9)
    rows.append(Row(None, None, None, None))
    source = source_of(tmp_path / "grants", queues)
    export = export_of(spark, tmp_path / "rows", [rows])
    with audit(export, source) as result:
        found = sorted((str(row["queue_id"]), str(row["seq"]), row["kind"]) for row in result.findings.collect())
        verdicts = [row["verdict"] for row in result.messages.collect()]
        frames = sum(row["frames"] for row in result.summary.collect())
        report = gather(export, result, plots=False)
    assert report.total_findings == len(found) == len(report.findings)
    mine = str(queue.id)
    malformed = [(mine, "2"), (mine, "3"), (mine, "4"), (mine, "None"), (mine, "-9"), ("None", "6"), ("None", "None")]
    gaps = [(mine, str(number)) for number in (5, 9)]
    expected = [(*key, "malformed") for key in malformed] + [(*key, "gap") for key in gaps]
    # Row 7 has a queue but no service, so it is of no queue; the gap that begins at 5 goes on to 7.
    expected += [(mine, "7", "malformed")]
    assert found == sorted(expected)
    assert frames == len(rows)
    assert verdicts.count("malformed") == 8
    assert verdicts.count("ok") == len(rows) - 8


def test_a_truncated_file_is_an_error_that_names_it_and_leaves_no_output(
    spark: SparkSession, tmp_path: Path, queues: list[Queue]
) -> None:
    source = source_of(tmp_path / "grants", queues)
    export_of(spark, tmp_path / "rows", [queues[0].rows, queues[1].rows])
    broken = tmp_path / "rows" / "0001.parquet"
    broken.write_bytes(broken.read_bytes()[:-200])
    export = spark.read.schema(EXPORT).parquet(str(tmp_path / "rows"))
    with pytest.raises(Exception, match=r"0001\.parquet"):
        audit(export, source)
    target = tmp_path / "messages"
    with pytest.raises(Exception, match=r"0001\.parquet"):
        open_frames(export, source).write.parquet(str(target))
    assert not list(target.glob("*.parquet"))
    assert not (target / "_SUCCESS").exists()


def test_a_table_of_other_columns_or_types_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    source = PlainSource(str(tmp_path / "none"))
    export = spark.createDataFrame([], EXPORT)
    with pytest.raises(MisuseError, match="no column frame"):
        audit(export.drop("frame"), source)
    with pytest.raises(MisuseError, match="column seq of the export is string, and should be bigint"):
        open_frames(export.selectExpr("service_id", "queue_id", "cast(seq as string) as seq", "frame"), source)
    with pytest.raises(MisuseError, match="the table of heads has no column nonce"):
        audit(export, source, heads=spark.createDataFrame([], HEADS).drop("nonce"))
    with pytest.raises(MisuseError, match="no column seq"):
        derive_grants(export.drop("seq"), source)


def test_a_queue_that_is_missing_altogether_is_found_by_its_head(
    spark: SparkSession, tmp_path: Path, queues: list[Queue]
) -> None:
    source = source_of(tmp_path / "grants", queues)
    nonce = b"n" * 16
    heads = spark.createDataFrame([(SERVICE, queues[0].id, nonce, queues[0].service.head(nonce))], HEADS)
    with audit(spark.createDataFrame([], EXPORT), source, heads=heads) as result:
        found = [(row["kind"], row["seq"], row["last_seq"]) for row in result.findings.collect()]
    # Nothing is there, and the head says that there should be: the whole queue was cut off.
    assert found == [("tail cut off", 0, len(queues[0].rows) - 1)]
