from pathlib import Path
from pyspark.sql import SparkSession
from pyspark_udfs import Layout, audit, open_frames, total
from .exports import Queue, Row, export_of, source_of


def test_clean(spark: SparkSession, tmp_path: Path) -> None:
    queues = [Queue.make(b"q%d" % n, 30) for n in range(3)]
    source = source_of(tmp_path / "g", queues)
    rows = [row for q in queues for row in q.rows]
    cut = len(queues[0].rows) + 11
    for parts in ([rows], [rows[:cut], rows[cut:]], [rows[::2], rows[1::2]], [rows[::-1]]):
        export = export_of(spark, tmp_path / f"e{len(parts)}{parts[0][1].seq}", parts)
        with audit(export, source) as result:
            print(result.layout)
            assert result.findings.collect() == []
            print(result.summary.collect())
            print(total(result.summary).collect())
            ms = result.messages.collect()
            assert {(m.queue_id, m.seq): m.body for m in ms if m.type == "DATA"} == {
                (q.id, s): b for q in queues for s, b in q.bodies.items()
            }
            assert {m.verdict for m in ms} == {"ok"}
            result.explain()


def test_bad(spark: SparkSession, tmp_path: Path) -> None:
    queues = [Queue.make(b"q%d" % n, 30) for n in range(3)]
    source = source_of(tmp_path / "g", queues)
    a = list(queues[0].rows)
    a[5] = a[5]._replace(frame=a[5].frame[:-1] + b"?")
    a[6] = a[6]._replace(frame=queues[1].rows[6].frame)
    a.insert(9, a[9])
    del a[20:22]
    a[2] = a[2]._replace(frame=None)
    a[3] = a[3]._replace(frame=b"")
    b = list(queues[1].rows)
    b[4], b[10] = b[4]._replace(frame=b[10].frame), b[10]._replace(frame=b[4].frame)
    del b[8]  # update
    rows = a + b + list(queues[2].rows)[:-3]
    export = export_of(spark, tmp_path / "e", [rows])
    with audit(export, source) as result:
        print(result.layout)
        for f in result.findings.collect():
            print(f)
        print(result.summary.collect())
