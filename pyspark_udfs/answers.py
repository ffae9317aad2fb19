"""Answers in words and as JSON.  Ids, numbers and sentences only: no key and no plaintext."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from .report import Finding, Report
from .report_plots import size

__all__ = ["audit_answer", "audit_lines", "json_line"]

_SHORT: Final = 16


def audit_lines(report: Report, *, show: int, written: Mapping[str, str]) -> Iterator[str]:
    """An audit's result, for a person."""
    total = report.total_findings
    if total:
        yield f"FINDINGS: {total:,} in {report.queues - report.verified_queues:,} of {report.queues:,} queues"
    elif not report.queues:
        yield "NOTHING TO AUDIT: the export has no rows"
    else:
        yield f"CLEAN: nothing wrong was found in {report.queues:,} queues"
    yield (
        f"  {report.frames:,} frames, {report.messages:,} messages opened, {report.epochs:,} epochs, "
        f"{size(report.bytes)}; {report.confirmed_ends:,} of {report.queues:,} ends confirmed by a head"
    )
    if total:
        yield ""
        width = max(map(len, report.kinds))
        for kind, count in sorted(report.kinds.items(), key=lambda item: (-item[1], item[0])):
            yield f"  {kind:<{width}}  {count:>7,}"
        yield ""
        yield from _findings(report.findings[:show])
        if total - report.earlier > show:
            yield f"  … and {total - report.earlier - show:,} more"
        if report.earlier:
            yield f"  {report.earlier:,} of the findings are of earlier audits, which listed them"
    if written:
        yield ""
        width = max(map(len, written))
        for name, path in written.items():
            yield f"  {name:<{width}}  {path}"


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    for one in findings:
        queue = one.queue_id.hex() or "(no queue id)"
        short = queue if len(queue) <= _SHORT else queue[:_SHORT] + "…"
        yield f"  {short}  {one.kind}: {one.sentence}"


def audit_answer(report: Report, *, written: Mapping[str, str]) -> dict[str, object]:
    """An audit's result, for a script.  The findings are those of the report; the table has all of them."""
    return {
        "verified": not report.total_findings,
        "queues": report.queues,
        "verified_queues": report.verified_queues,
        "confirmed_ends": report.confirmed_ends,
        "frames": report.frames,
        "messages": report.messages,
        "bytes": report.bytes,
        "epochs": report.epochs,
        "kinds": report.kinds,
        "findings_total": report.total_findings,
        "findings_earlier": report.earlier,
        "findings": [
            {
                "service_id": one.service_id.hex(),
                "queue_id": one.queue_id.hex(),
                "seq": one.seq,
                "last_seq": one.last_seq,
                "epoch": one.epoch,
                "kind": one.kind,
                "sentence": one.sentence,
            }
            for one in report.findings
        ],
        "written": dict(written),
    }


def json_line(value: object) -> str:
    """One line, so that the answers of a long run can be read one by one."""
    return json.dumps(value, ensure_ascii=False)
