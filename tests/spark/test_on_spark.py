"""The audit on real Spark: its result is that of the library's own reader, whatever the plan."""

from __future__ import annotations

import itertools
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import DataFrame, SparkSession

from pyspark_udfs import (
    CHECKPOINTS,
    FINDINGS,
    GRANTS,
    HEADS,
    MESSAGES,
    SUMMARY,
    TOTAL,
    Kind,
    Layout,
    ParquetFiles,
    audit,
    derive_grants,
    layout_of,
    total,
)

from .defects import Damaged, damaged_export
from .dequeued import compare_export, granted
from .exports import NONCE, SERVICE, Queue, Row, export_of, source_of
from .local import Held, concluded
from .plain_source import PlainSource

QUEUES = [Queue.make(b"queue-%d" % number, 24, every=5) for number in range(6)]
for _queue in QUEUES:
    _queue.write_and_fork(12)
    _queue.write(3)

#: Queues for the generated exports; six of them are audited clean too.
MANY = QUEUES + [Queue.make(b"queue-%d" % number, 24, every=5) for number in range(100, 134)]
for _queue in MANY[6:]:
    _queue.write_and_fork(12)
    _queue.write(3)


def found(table: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in FINDINGS.names) for row in table.collect())


def types(table: DataFrame) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in table.schema.fields]


#: These come of increments, or of an export that is not laid out as it was said.
_NOT_OF_ONE_EXPORT = {Kind.PASSED, Kind.FILLED, Kind.UNSORTED}


def test_every_row_and_finding_is_what_the_dequeuer_says_whatever_the_plan(spark: SparkSession, tmp_path: Path) -> None:
    """One Spark job has many generated queues, so a few examples are a few hundred of them."""
    seen: set[str] = set()
    count = itertools.count()

    @settings(
        max_examples=3,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        phases=[Phase.generate],
        database=None,
    )
    @given(damaged_export(MANY, most=6))
    def one_job(export: Damaged) -> None:
        seen.update(_compare_on_spark(spark, tmp_path / f"{next(count)}", export))

    one_job()
    assert seen == set(Kind) - _NOT_OF_ONE_EXPORT


def _compare_on_spark(spark: SparkSession, folder: Path, export: Damaged) -> set[str]:
    """Compare both plans with the readers, and say which kinds of findings there were."""
    rows = export.rows
    cuts = [0, _cut(rows, len(rows) // 3), _cut(rows, len(rows) // 2), len(rows)]
    table = export_of(spark, folder / "rows", [rows[a:b] for a, b in pairwise(cuts)], group=100)
    keys = PlainSource.write(folder / "keys", [(SERVICE, queue.id, queue.keys.encode()) for queue in MANY])
    given = granted(MANY, export)
    # The grants derived on Spark are those of the walk, save where a queue was given another's.
    derived = {(row["queue_id"], bytes(row["grant"])) for row in derive_grants(table, keys).collect()}
    foreign = {queue.id for queue, foreign in zip(MANY, export.foreign, strict=True) if foreign}
    assert {pair for pair in derived if pair[0] not in foreign} == {
        (queue.id, grant.encode()) for queue, grant in given if queue.id not in foreign
    }
    grants = PlainSource.write(folder / "grants", [(SERVICE, queue.id, grant.encode()) for queue, grant in given])
    heads = [(SERVICE, queue.id, NONCE, head) for queue, head in zip(MANY, export.heads, strict=True) if head]
    expected, queues = concluded([rows], Held([], given), heads=heads)
    files = ParquetFiles(spark, str(folder / "rows"))
    for read, layout in ((table, Layout.SCATTERED), (table, Layout.CLUSTERED), (files, Layout.CLUSTERED)):
        with audit(read, grants, heads=spark.createDataFrame(heads, HEADS), layout=layout) as result:
            assert found(result.findings) == expected
            state = {row["queue_id"]: row.asDict() for row in result.checkpoints.collect()}
            assert state == {row["queue_id"]: row for row in queues}
            if layout is Layout.CLUSTERED:
                # Without a shuffle rows under one number keep their order.
                opened = sorted((row.asDict() for row in result.messages.collect()), key=_row_order)
                compare_export(MANY, export, opened, expected)
    return {finding[5] for finding in expected}


def _cut(rows: list[Row], at: int) -> int:
    """A place in the middle of a queue, but not between rows of one number: files come in any order."""
    while 0 < at < len(rows) and rows[at].seq == rows[at - 1].seq:
        at += 1
    return at


def _row_order(row: dict[str, Any]) -> tuple[bytes, int]:
    return row["queue_id"], -1 if row["seq"] is None else row["seq"]


@pytest.fixture(scope="module")
def clean(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[DataFrame, PlainSource]:
    folder = tmp_path_factory.mktemp("clean")
    rows = [row for queue in QUEUES for row in queue.rows]
    parts = [rows[:100], rows[100:130], rows[130:]]
    return export_of(spark, folder / "rows", parts), source_of(folder / "grants", QUEUES)


def test_a_clean_export_is_verified_and_its_messages_are_the_ones_sent(clean: tuple[DataFrame, PlainSource]) -> None:
    export, source = clean
    with audit(export, source) as result:
        assert result.findings.collect() == []
        summary = total(result.summary)
        row = summary.collect()[0]
        messages = result.messages.collect()
        for table, schema in (
            (result.findings, FINDINGS),
            (result.summary, SUMMARY),
            (result.checkpoints, CHECKPOINTS),
            (result.messages, MESSAGES),
            (summary, TOTAL),
        ):
            assert types(table) == [(field.name, field.dataType.simpleString()) for field in schema.fields]
    frames = sum(len(queue.rows) for queue in QUEUES)
    sent = {(queue.id, seq): body for queue in QUEUES for seq, body in queue.bodies.items()}
    assert (row["queues"], row["verified_queues"], row["frames"], row["messages"]) == (6, 6, frames, len(sent))
    assert (row["findings"], row["verified"]) == ({}, True)
    assert {(row["queue_id"], row["seq"]): row["body"] for row in messages if row["type"] == "DATA"} == sent
    assert {row["verdict"] for row in messages} == {"ok"}


def test_a_clustered_export_is_not_shuffled_and_the_plan_says_so(
    clean: tuple[DataFrame, PlainSource], spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    export, source = clean
    assert layout_of(export) is Layout.CLUSTERED
    assert layout_of(export.orderBy("seq")) is Layout.SCATTERED
    for layout, exchanges in ((None, 1), (Layout.SCATTERED, 2)):
        with audit(export, source, layout=layout) as result:
            result.explain()
            plan = capsys.readouterr().out
            assert f"MapInArrow audit_{result.layout}" in plan
            assert plan.count("Exchange") == exchanges
            # Grants are looked up by the workers: the plan knows no more than the name of the function.
            assert source.path not in plan


def test_increments_through_checkpoints_find_what_one_run_finds(
    spark: SparkSession, tmp_path: Path, clean: tuple[DataFrame, PlainSource]
) -> None:
    _, source = clean
    rows = [row for queue in QUEUES[:3] for row in queue.rows if row.seq not in (4, 20, 21)]
    rows += [QUEUES[0].rows[19], QUEUES[1].rows[19]]
    rows.sort(key=lambda row: (row.queue_id or b"", row.seq or 0))
    whole = export_of(spark, tmp_path / "whole", [rows])
    with audit(whole, source) as result:
        expected, summary = found(result.findings), sorted(result.summary.collect())
    parts: Counter[tuple[Any, ...]] = Counter()
    known = None
    for number, (start, stop) in enumerate([(0, 10), (10, 20), (20, 99)]):
        part = whole.filter(f"seq >= {start} and seq < {stop}")
        with audit(part, source, checkpoints=known) as result:
            parts += found(result.findings)
            path = str(tmp_path / f"checkpoints-{number}")
            result.checkpoints.write.parquet(path)
            last = sorted(result.summary.collect())
        known = spark.read.parquet(path)
    assert parts == expected
    assert last == summary


def test_a_head_shows_that_the_end_was_cut_off(spark: SparkSession, tmp_path: Path) -> None:
    queues = [Queue.make(b"head-%d" % number, 20) for number in range(5)]
    nonce = b"n" * 16
    heads = [(SERVICE, queue.id, nonce, queue.service.head(nonce)) for queue in queues]
    early = Queue.make(b"head-x", 3)
    heads[2] = (*heads[2][:3], heads[2][3][:-1] + b"?")
    heads[3] = (SERVICE, queues[3].id, nonce, early.service.head(nonce))
    old = queues[4].service.head(nonce)
    queues[4].write(1)
    heads[4] = (SERVICE, queues[4].id, nonce, old)
    rows = [*queues[0].rows, *queues[1].rows[:-2], *queues[2].rows, *queues[3].rows, *queues[4].rows]
    source = source_of(tmp_path / "grants", queues)
    export = export_of(spark, tmp_path / "rows", [rows])
    last = (queues[1].rows[-1].seq or 0) - 1
    end = queues[4].rows[-1].seq or 0
    with audit(export, source, heads=spark.createDataFrame(heads, HEADS)) as result:
        kinds = {(row["queue_id"], row["kind"], row["seq"], row["last_seq"]) for row in result.findings.collect()}
        confirmed = {row["queue_id"]: row["head"] for row in result.summary.collect()}
    assert kinds == {
        (queues[1].id, "tail cut off", last, last + 1),
        (queues[2].id, "head rejected", None, None),
        (queues[3].id, "head rejected", None, None),
        (queues[4].id, "rolled back", end, end),
    }
    assert confirmed == {queue.id: queue is queues[0] for queue in queues}


def test_grants_are_derived_from_control_frames_alone_and_the_filter_reaches_the_reader(
    spark: SparkSession, tmp_path: Path, clean: tuple[DataFrame, PlainSource]
) -> None:
    export, _ = clean
    keys = PlainSource.write(tmp_path / "keys", [(SERVICE, queue.id, queue.keys.encode()) for queue in QUEUES])
    copies = export.selectExpr(
        "*",
        "element_at(array('INIT', 'DATA', 'UPDATE'), cast(conv(hex(substring(frame, 2, 1)), 16, 10) as int)) as type",
    )
    copies.write.parquet(str(tmp_path / "copies"))
    copied = spark.read.parquet(str(tmp_path / "copies"))
    grants = derive_grants(copied, keys)
    plan = grants._jdf.queryExecution().executedPlan().toString()
    assert "PushedFilters: [In(type, [INIT,UPDATE])]" in plan
    assert types(grants) == [(field.name, field.dataType.simpleString()) for field in GRANTS.fields]
    expected = {(queue.id, grant.epoch): grant.encode() for queue in QUEUES for grant in queue.grants}
    for table in (grants, derive_grants(export, keys)):
        assert {(row["queue_id"], row["epoch"]): bytes(row["grant"]) for row in table.collect()} == expected
