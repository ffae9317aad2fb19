"""Gathers from an audit's tables what a report shows: totals, the first findings, queues, and counts for the plots.

The counts are made by Spark on the JVM; what is collected is bounded by the limits of the page, whatever the export
has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as fn

from .auditing import AuditResult, total
from .headers import header
from .parquet_files import ParquetFiles
from .report import FINDINGS_SHOWN, QUEUES_SHOWN, Finding, QueueLine, Report
from .report_plots import Bar, size

__all__ = ["gather"]

_BARS: Final = 48
_INTERVAL_BARS: Final = 24
#: Sizes are counted in steps of a quarter of an octave.
_STEPS: Final = 4
#: No epoch is longer; what is counted above it has an UPDATE missing.
_INTERVAL_LIMIT: Final = 1 << 16


def gather(
    export: DataFrame | ParquetFiles, result: AuditResult, *, about: Sequence[str] = (), plots: bool = True
) -> Report:
    """The report of an audit.  Without plots, the export is not read again."""
    export = export.table if isinstance(export, ParquetFiles) else export
    totals = total(result.summary).collect()[0]
    ends = result.summary.agg(fn.count_if("head"), fn.max("last_seq")).collect()[0]
    rows = result.findings.orderBy("service_id", "queue_id", "seq", "kind").limit(FINDINGS_SHOWN).collect()
    findings = [Finding(*_ids(r), r.seq, r.last_seq, r.epoch, r.kind, r.sentence) for r in rows]
    found = fn.aggregate(fn.map_values("findings"), fn.lit(0).cast("bigint"), lambda left, right: left + right)
    lines = (
        result.summary.withColumn("found", fn.coalesce(found, fn.lit(0)))
        .orderBy(fn.desc("found"), "verified", "service_id", "queue_id")
        .limit(QUEUES_SHOWN)
        .collect()
    )
    volume: list[Bar] = []
    sizes: list[Bar] = []
    intervals: list[Bar] = []
    if plots and totals.frames:
        volume, sizes = _frames(export, (ends[1] or 0) + 1, findings)
        intervals = _intervals(export)
    return Report(
        about=about,
        queues=totals.queues,
        verified_queues=totals.verified_queues,
        frames=totals.frames,
        messages=totals.messages,
        bytes=totals.bytes,
        epochs=totals.epochs,
        confirmed_ends=ends[0],
        kinds=dict(totals.findings or {}),
        earlier=max(0, sum((totals.findings or {}).values()) - result.findings.count()),
        findings=findings,
        lines=[_line(row) for row in lines],
        volume=volume,
        sizes=sizes,
        intervals=intervals,
    )


def _ids(row: Row) -> tuple[bytes, bytes]:
    """The ids of a queue; rows of a damaged export may have none."""
    return bytes(row.service_id or b""), bytes(row.queue_id or b"")


def _line(row: Row) -> QueueLine:
    return QueueLine(
        *_ids(row),
        row.frames,
        row.messages,
        row.bytes,
        row.epochs,
        row.first_seq,
        row.last_seq,
        row.found,
        row.head,
        row.verified,
    )


def _frames(export: DataFrame, numbers: int, findings: Iterable[Finding]) -> tuple[list[Bar], list[Bar]]:
    """How many frames there are by number and by size: one pass over the export."""
    width = max(1, -(-numbers // _BARS))
    octave = fn.floor(fn.log2(fn.greatest(fn.length("frame"), fn.lit(1))) * _STEPS)
    counts = export.groupBy(fn.floor(fn.col("seq") / width).alias("place"), octave.alias("size")).count().collect()
    places: dict[int, int] = {}
    octaves: dict[int, int] = {}
    for row in counts:
        # Rows without a number, or with one that no queue has, are findings and have no place on the axis.
        if row.place is not None and 0 <= row.place < _BARS:
            places[row.place] = places.get(row.place, 0) + row["count"]
        if row["size"] is not None:
            octaves[row["size"]] = octaves.get(row["size"], 0) + row["count"]
    marks: dict[int, int] = {}
    for one in findings:
        if one.seq is not None:
            marks[one.seq // width] = marks.get(one.seq // width, 0) + 1
    volume = [
        Bar(label=_range(at * width, width), value=places.get(at, 0), findings=marks.get(at, 0))
        for at in range(-(-numbers // width))
    ]
    span = range(min(octaves, default=0), max(octaves, default=-1) + 1)
    sizes = [
        Bar(label=f"{size(2 ** (at / _STEPS))} to {size(2 ** ((at + 1) / _STEPS))}", value=octaves.get(at, 0))
        for at in span
    ]
    return volume, sizes


def _intervals(export: DataFrame) -> list[Bar]:
    """How many frames lie between one UPDATE and the next; only the control frames are read."""
    kind = fn.col("type") if "type" in export.columns else header("type")
    updates = export.filter(kind == "UPDATE").select("service_id", "queue_id", "seq")
    before = fn.coalesce(fn.lag("seq").over(Window.partitionBy("service_id", "queue_id").orderBy("seq")), fn.lit(0))
    interval = fn.least(fn.col("seq") - before, fn.lit(_INTERVAL_LIMIT))
    rows = updates.select(interval.alias("interval")).filter("interval > 0").groupBy("interval").count().collect()
    if not rows:
        return []
    lengths = {row.interval: row["count"] for row in rows}
    low, high = min(lengths), max(lengths)
    width = max(1, -(-(high - low + 1) // _INTERVAL_BARS))
    bars = [0] * (-(-(high - low + 1) // width))
    for length, count in lengths.items():
        bars[(length - low) // width] += count
    return [Bar(label=_range(low + at * width, width), value=count) for at, count in enumerate(bars)]


def _range(first: int, width: int) -> str:
    return f"{first:,}" if width == 1 else f"{first:,} to {first + width - 1:,}"
