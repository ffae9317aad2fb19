"""An analyst's view: headers and opening in SQL alone."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_udfs import GRANTS, register, with_header
from qsratchet import FrameRejected, header_of

from .exports import SERVICE, Queue, Row, export_of


def test_headers_in_sql_are_the_library_s_headers(spark: SparkSession, tmp_path: Path) -> None:
    queue = Queue.make(b"sql", 20)
    rows = list(queue.rows)
    rows.append(Row(SERVICE, b"sql", 90, b"\x01\x02\x00\x01" + b"\xff" * 12 + b"x"))
    rows.append(Row(SERVICE, b"sql", 91, b"\x01\x09\x00\x01"))
    rows.append(Row(SERVICE, b"sql", 92, b""))
    rows.append(Row(SERVICE, b"sql", 93, None))
    export = export_of(spark, tmp_path / "rows", [rows])
    register(spark)
    export.createOrReplaceTempView("export")
    query = "SELECT seq, qsr_header(frame) AS header, qsr_type(frame), qsr_epoch(frame), qsr_seq(frame) FROM export"
    for row in spark.sql(query).collect():
        frame = next(other.frame for other in rows if other.seq == row["seq"]) or b""
        claimed = row["header"]
        assert tuple(row)[2:] == (claimed["type"], claimed["epoch"], claimed["seq"])
        try:
            header = header_of(frame)
        except FrameRejected:
            assert row["seq"] >= 90
            continue
        assert (claimed["type"], claimed["suite"], claimed["epoch"], claimed["seq"]) == (header.type.name, *header[1:])
    odd = {row["seq"]: row["header"] for row in with_header(export).filter("seq >= 90").collect()}
    assert (odd[90]["epoch"], odd[90]["seq"]) == (0xFFFFFFFF, None)
    assert (odd[91]["version"], odd[91]["suite"], odd[91]["type"], odd[91]["epoch"]) == (1, 1, None, None)
    assert set(odd[92]) == set(odd[93]) == {None}
    plan = spark.sql(query)._jdf.queryExecution().executedPlan().toString()
    assert "Python" not in plan
    assert "Arrow" not in plan


def test_frames_open_in_sql_with_a_column_of_grants(spark: SparkSession, tmp_path: Path) -> None:
    queue = Queue.make(b"sql", 40)
    other = Queue.make(b"other", 20)
    rows = list(queue.rows)
    rows[3] = rows[3]._replace(frame=(rows[3].frame or b"")[:-1] + b"?")
    rows[4] = rows[4]._replace(seq=104)
    rows[5] = rows[5]._replace(frame=None)
    export_of(spark, tmp_path / "rows", [rows]).createOrReplaceTempView("export")
    grants = [(SERVICE, queue.id, grant.epoch, grant.first_seq, grant.encode()) for grant in queue.grants]
    grants[1] = (*grants[1][:4], other.grants[1].encode())
    grants[2] = (*grants[2][:4], b"not a grant")
    del grants[-1]
    spark.createDataFrame(grants, GRANTS).createOrReplaceTempView("grants")
    register(spark)
    query = """
        SELECT e.seq, qsr_open(e.seq, e.frame, g.grant) AS opened FROM export e LEFT JOIN grants g
        ON e.queue_id = g.queue_id AND qsr_epoch(e.frame) = g.epoch
    """
    opened = {row["seq"]: row["opened"] for row in spark.sql(query).collect()}
    last = max(grant.epoch for grant in queue.grants)
    for row in rows:
        verdict, epoch, type = opened[row.seq]["verdict"], opened[row.seq]["epoch"], opened[row.seq]["type"]
        if row.seq == 3 or epoch == 1:
            assert verdict == "tampered"
        elif row.seq == 104:
            assert (verdict, opened[104]["body"]) == ("reordered", queue.bodies[4])
        elif row.frame is None:
            assert verdict == "malformed"
        elif int.from_bytes(row.frame[4:8], "big") == 2:
            assert verdict == "wrong grant"
        elif epoch == last:
            assert verdict == "no grant"
        else:
            assert verdict == "ok"
            assert opened[row.seq]["body"] == (queue.bodies[row.seq or 0] if type == "DATA" else None)
