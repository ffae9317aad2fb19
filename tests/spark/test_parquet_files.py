"""Files that workers read for themselves: all rows, each once, whatever their types, and clear words where it fails."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pyspark_udfs import GrantSource, Layout, ParquetFiles, audit, gather, layout_of, open_frames, render
from pyspark_udfs import parquet_files as module
from pyspark_udfs.answers import audit_lines
from pyspark_udfs.faults import AuditFailed, spark_errors_in_a_sentence
from qsratchet import MisuseError

from .exports import ARROW, Queue, Row, export_of, source_of

QUEUES = [Queue.make(b"files-%d" % number, 40, every=9) for number in range(3)]
ROWS = [row for queue in QUEUES for row in queue.rows]


def bodies(files: ParquetFiles, source: GrantSource) -> list[tuple[bytes, int, bytes]]:
    opened = open_frames(files, source).filter("body is not null")
    return sorted((row["queue_id"], row["seq"], bytes(row["body"])) for row in opened.collect())


EXPECTED = sorted((queue.id, seq, body) for queue in QUEUES for seq, body in queue.bodies.items())


def test_the_workers_read_every_row_group_once_and_the_plan_says_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A path with characters that a URI writes otherwise.
    folder = tmp_path / "an export, 100% of it"
    export_of(spark, folder, [ROWS[:50], [], ROWS[50:]], group=8)
    files = ParquetFiles(spark, str(folder))
    assert files.local
    monkeypatch.setattr(module, "PIECE_BYTES", 2_000)
    pieces = files.pieces
    groups = [(piece.path, group) for piece in pieces for group in piece.groups]
    expected = [
        (str(folder / name), at) for name, count in (("0000.parquet", 7), ("0002.parquet", 11)) for at in range(count)
    ]
    assert groups == expected[: len(groups)]
    assert len(groups) == sum(-(-len(part) // 8) for part in (ROWS[:50], ROWS[50:]))
    assert 2 < len(pieces) < len(groups)
    source = source_of(tmp_path / "grants", QUEUES)
    assert bodies(files, source) == EXPECTED
    with audit(files, source) as result:
        assert result.layout is Layout.CLUSTERED
        assert result.findings.collect() == []
        assert gather(files, result).frames == len(ROWS)
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            result.explain()
    assert "audit_clustered" in text.getvalue()
    assert "Range" in text.getvalue()
    assert "FileScan" not in text.getvalue()


def test_files_whose_rows_are_scattered_are_brought_together_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    mixed = sorted(ROWS, key=lambda row: (row.seq or 0, row.queue_id or b""))
    export_of(spark, tmp_path / "rows", [mixed])
    files = ParquetFiles(spark, str(tmp_path / "rows"))
    assert layout_of(files) is Layout.SCATTERED
    with audit(files, source_of(tmp_path / "grants", QUEUES)) as result:
        assert result.findings.collect() == []
        assert sorted(row["frames"] for row in result.summary.collect()) == sorted(len(queue.rows) for queue in QUEUES)


def test_other_types_of_the_same_meaning_and_other_columns_do_no_harm(spark: SparkSession, tmp_path: Path) -> None:
    columns = [pa.array([row[place] for row in ROWS], field.type) for place, field in enumerate(ARROW)]
    table = pa.table(
        {
            "epoch": pa.array([0] * len(ROWS), pa.int64()),
            "frame": columns[3].cast(pa.large_binary()),
            "seq": columns[2],
            "queue_id": columns[1].dictionary_encode(),
            "service_id": columns[0],
        }
    )
    (tmp_path / "rows").mkdir()
    pq.write_table(table, tmp_path / "rows" / "part.parquet")
    files = ParquetFiles(spark, str(tmp_path / "rows"))
    assert bodies(files, source_of(tmp_path / "grants", QUEUES)) == EXPECTED


def test_a_layout_that_there_is_not_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    export = export_of(spark, tmp_path / "rows", [ROWS])
    with pytest.raises(MisuseError, match="clustered or scattered, not 'sorted'"):
        open_frames(export, source_of(tmp_path / "grants", QUEUES), layout="sorted")


def test_an_export_without_rows_has_no_findings(spark: SparkSession, tmp_path: Path) -> None:
    export_of(spark, tmp_path / "rows", [[]])
    with audit(ParquetFiles(spark, str(tmp_path / "rows")), source_of(tmp_path / "grants", QUEUES)) as result:
        assert (result.findings.count(), result.summary.count(), result.messages.count()) == (0, 0, 0)
        report = gather(ParquetFiles(spark, str(tmp_path / "rows")), result)
    # Nothing was found wrong, and nothing was found right either.
    assert next(audit_lines(report, show=1, written={})) == "NOTHING TO AUDIT: the export has no rows"
    page = render(report)
    assert "There was nothing to audit" in page
    assert "confirm the end" not in page


def test_a_file_that_is_cut_short_or_lacks_a_column_is_named(spark: SparkSession, tmp_path: Path) -> None:
    export_of(spark, tmp_path / "rows", [ROWS[:20], ROWS[20:]])
    files, source = ParquetFiles(spark, str(tmp_path / "rows")), source_of(tmp_path / "grants", QUEUES)
    whole = (tmp_path / "rows" / "0001.parquet").read_bytes()
    (tmp_path / "rows" / "0001.parquet").write_bytes(whole[:-100])
    with pytest.raises(MisuseError, match=r"damaged or cut short: .*0001\.parquet"):
        _ = files.pieces
    without = pa.table({"service_id": pa.array([b"s"]), "queue_id": pa.array([b"q"]), "seq": pa.array([0])})
    pq.write_table(without, tmp_path / "rows" / "0001.parquet")
    with pytest.raises(MisuseError, match=r"0001\.parquet has no column frame"):
        audit(files, source, layout=Layout.CLUSTERED)


def test_damage_behind_an_intact_footer_is_named_too(spark: SparkSession, tmp_path: Path) -> None:
    export_of(spark, tmp_path / "rows", [ROWS])
    path = tmp_path / "rows" / "0000.parquet"
    raw = bytearray(path.read_bytes())
    # The head of the first page: what lies before the footer is not looked at until a worker reads it.
    raw[4:40] = bytes(36)
    path.write_bytes(raw)
    with (
        audit(
            ParquetFiles(spark, str(path.parent)), source_of(tmp_path / "grants", QUEUES), layout="clustered"
        ) as result,
        pytest.raises(AuditFailed, match=r"^a file of the export is damaged or cut short: .*0000\.parquet"),
        spark_errors_in_a_sentence(),
    ):
        result.findings.collect()


def test_files_that_workers_cannot_open_by_a_path_are_refused() -> None:
    with pytest.raises(MisuseError, match=r"use spark\.read\.parquet"):
        module._local("s3a://bucket/export/part.parquet")
    assert module._local("file:///data/100%25/a%20b.parquet") == "/data/100%/a b.parquet"


def test_a_small_file_whose_dictionary_stands_for_gigabytes_is_read_in_small_batches(tmp_path: Path) -> None:
    places = pa.array([0 if number % 7 else None for number in range(2_000)], pa.int32())
    table = pa.table(
        {
            "service_id": [b"s"] * 2_000,
            "queue_id": [b"q"] * 2_000,
            "seq": range(2_000),
            "frame": pa.DictionaryArray.from_arrays(places, pa.array([os.urandom(1 << 20)])),
        }
    )
    path = tmp_path / "part.parquet"
    pq.write_table(table, path, row_group_size=1_000, store_schema=False)
    assert path.stat().st_size < 4 << 20
    pieces = list(module._cut([(str(path), pq.read_metadata(path))], 2))
    assert [(list(piece.groups), piece.batch, piece.dictionary) for piece in pieces] == [([0, 1], 4_000, True)]
    read = module._read(pieces, iter([pa.RecordBatch.from_pydict({"id": [0]})]), ARROW)
    seqs: list[int] = []
    for batch in read:
        assert batch.schema.equals(ARROW)
        assert batch.get_total_buffer_size() < 70 << 20
        assert batch.column("frame").null_count == sum(seq % 7 == 0 for seq in batch.column("seq").to_pylist())
        seqs += batch.column("seq").to_pylist()
    assert seqs == list(range(2_000))


def test_batches_are_bounded_in_bytes(tmp_path: Path) -> None:
    rows = [Row(b"s", b"q", number, os.urandom(1 << 20)) for number in range(8)]
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(ARROW)]
    pq.write_table(pa.Table.from_arrays(columns, schema=ARROW), tmp_path / "part.parquet", compression="none")
    footer = pq.read_metadata(tmp_path / "part.parquet")
    (piece,) = module._cut([("part", footer)], 2)
    assert 32 < piece.batch <= 64
    assert list(piece.groups) == [0]


def test_pieces_grow_smaller_towards_the_end_so_that_the_last_tasks_end_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = pa.array([bytes(1_000)] * 400)
    ids = pa.array([b"i"] * 400)
    table = pa.table({"service_id": ids, "queue_id": ids, "seq": range(400), "frame": frames})
    pq.write_table(table, tmp_path / "part.parquet", compression="none", use_dictionary=False, row_group_size=4)
    files = [(str(tmp_path / name), pq.read_metadata(tmp_path / "part.parquet")) for name in ("a", "b")]
    monkeypatch.setattr(module, "PIECE_BYTES", 16 * files[0][1].row_group(0).total_byte_size)
    pieces = list(module._cut(files, 8))
    sizes = [len(piece.groups) for piece in pieces]
    assert sum(sizes) == 200
    assert [(piece.path, group) for piece in pieces for group in piece.groups] == [
        (path, group) for path, _ in files for group in range(100)
    ]
    # At most 16 groups, at least one; the last are the smallest, and no more than can be had at once.
    assert sizes[0] == max(sizes) == 16
    assert sizes[-1] == min(sizes) == 1
    tail = sizes[-8:]
    assert tail == sorted(tail, reverse=True)
    assert sum(tail) <= 16
