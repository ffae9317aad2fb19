"""The report of an audit: one HTML file that needs no network, for a person who has to act on it.

Verdict first, then what was found, queue by queue, and plots.  It holds ids, numbers and sentences: no key and no
plaintext.  Everything that comes from an export is escaped, because whoever wrote the export may be the attacker.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final, NamedTuple

from .atomic import replaced_at_end
from .report_page import SCRIPT, STYLE
from .report_plots import Bar, bar_plot, number, size

__all__ = ["FINDINGS_SHOWN", "QUEUES_SHOWN", "Finding", "QueueLine", "Report", "render", "write_report"]

#: A page with so many findings stays quick and below 10 MB; the table of findings has all of them.
FINDINGS_SHOWN: Final = 20_000
#: Queues with findings come first.
QUEUES_SHOWN: Final = 5_000


class Finding(NamedTuple):
    """A row of the findings table."""

    service_id: bytes
    queue_id: bytes
    seq: int | None
    last_seq: int | None
    epoch: int | None
    kind: str
    sentence: str


class QueueLine(NamedTuple):
    """A row of the summary, as the report shows it."""

    service_id: bytes
    queue_id: bytes
    frames: int
    messages: int
    bytes: int
    epochs: int
    first_seq: int | None
    last_seq: int | None
    findings: int
    #: Whether an authentic head confirmed the end; None without one.
    head: bool | None
    verified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a report says.  Totals are of the whole audit; the lists may be cut to what a page can show."""

    title: str = "Queue audit"
    #: What was audited and when, in words.
    about: Sequence[str] = ()
    queues: int
    verified_queues: int
    frames: int
    messages: int
    bytes: int
    epochs: int
    #: Queues whose end an authentic head confirmed.
    confirmed_ends: int
    kinds: dict[str, int]
    #: So many of the findings are of audits before this one: they count, and are listed where they were found.
    earlier: int = 0
    findings: Sequence[Finding] = ()
    lines: Sequence[QueueLine] = ()
    volume: Sequence[Bar] = ()
    sizes: Sequence[Bar] = ()
    intervals: Sequence[Bar] = ()
    notes: Sequence[str] = field(default=())

    @property
    def total_findings(self) -> int:
        return sum(self.kinds.values())


def write_report(path: str | os.PathLike[str], report: Report) -> None:
    """Write the page, whole or not at all."""
    with replaced_at_end(path) as file:
        file.write(render(report).encode())


def render(report: Report) -> str:
    """The page as text."""
    body = "".join(
        [
            _verdict(report),
            _numbers(report),
            _findings(report),
            _queues(report),
            '<section aria-labelledby=plots><h2 id=plots>Plots</h2><div class="plots">',
            bar_plot(report.volume, title="Volume over sequence numbers", x="sequence number", y="frames"),
            bar_plot(report.sizes, title="Sizes of frames", x="bytes, as stored", y="frames"),
            bar_plot(
                report.intervals, title="Update intervals", x="frames from one key update to the next", y="epochs"
            ),
            "</div><p class=quiet>A dot below a bar marks findings in it.</p></section>",
            _words(),
        ]
    )
    # The export may be hostile: no text of it can end the script element or reach a network.
    data = json.dumps(_data(report), separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028")
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    state = "bad" if report.total_findings else "good"
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><title>{escape(_headline(report))}</title><link rel="icon" href="data:,">'
        f'<style>{STYLE}</style></head><body data-state="{state}">'
        f'<a class="skip" href="#findings">Skip to the findings</a><main>{body}</main>'
        f'<script id="data" type="application/json">{data}</script><script>{SCRIPT}</script></body></html>\n'
    )


def _headline(report: Report) -> str:
    total = report.total_findings
    if not total:
        return "Nothing wrong was found" if report.queues else "There was nothing to audit"
    affected = report.queues - report.verified_queues
    return f"{_count(total, 'finding')} in {affected:,} of {_count(report.queues, 'queue')}"


def _count(value: int, thing: str) -> str:
    return f"{value:,} {thing}{'' if value == 1 else 's'}"


def _full(value: int) -> str:
    return f"{value:,}" if value < 10_000_000 else number(value)


def _verdict(report: Report) -> str:
    total = report.total_findings
    open_ends = report.queues - report.confirmed_ends
    said = []
    if total:
        clean = report.verified_queues
        said.append(f"{_count(clean, 'queue')} verified without any finding." if clean else "No queue is verified.")
    elif not report.queues:
        said.append("The export has no rows, so nothing is shown.")
    else:
        said.append(f"All {_count(report.frames, 'frame')} opened and follow each other without a hole.")
    if open_ends:
        said.append(
            f"The end of {_count(open_ends, 'queue')} is not confirmed by the service's head: frames missing at the "
            "very end would not show there."
        )
    elif report.queues:
        said.append("The service's heads confirm the end of every queue.")
    if report.earlier:
        said.append(f"{_count(report.earlier, 'finding')} of these are of earlier audits, whose reports list them.")
    said += report.notes
    about = "".join(f"<li>{escape(line)}</li>" for line in report.about)
    return (
        f'<header class="verdict"><p class="kicker">{escape(report.title)}</p>'
        f'<h1><span class="sign" aria-hidden="true">{"!" if total else "✓"}</span>'
        f"<span>{escape(_headline(report))}</span></h1>"
        f"<p>{escape(' '.join(said))}</p><ul class=about>{about}</ul></header>"
    )


def _numbers(report: Report) -> str:
    cells = (
        ("queues", _full(report.queues)),
        ("verified", _full(report.verified_queues)),
        ("frames", _full(report.frames)),
        ("messages opened", _full(report.messages)),
        ("epochs", _full(report.epochs)),
        ("stored", size(report.bytes)),
    )
    items = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in cells)
    return f'<dl class="numbers">{items}</dl>'


def _findings(report: Report) -> str:
    if not report.total_findings:
        return '<section aria-labelledby="findings"><h2 id="findings">Findings</h2><p>None.</p></section>'
    chips = "".join(
        f'<button type="button" class="chip" data-kind="{escape(kind)}" aria-pressed="false">{escape(kind)} '
        f"<b>{count:,}</b></button>"
        for kind, count in sorted(report.kinds.items(), key=lambda item: (-item[1], item[0]))
    )
    cut = report.total_findings - report.earlier - len(report.findings)
    note = (
        f"<p class=quiet>The page has the first {len(report.findings):,}; the findings table has all.</p>"
        if cut > 0
        else ""
    )
    first = "".join(f"<li>{escape(one.kind)}: {escape(one.sentence)}</li>" for one in report.findings[:50])
    return (
        '<section aria-labelledby="findings"><h2 id="findings">Findings</h2>'
        f'<div class="tools"><div class="chips" role="group" aria-label="Kinds of findings">{chips}</div>'
        '<label class="search">Search <input id="f-text" type="search" placeholder="queue, number or words" '
        'autocomplete="off" spellcheck="false"></label></div>'
        f'<p id="f-count" class="quiet" role="status"></p>{note}<ol id="f-list" class="list"></ol>'
        '<nav class="pages" id="f-pages" aria-label="Pages of findings"></nav>'
        f"<noscript><p>Filters need scripts; the first findings are:</p><ol>{first}</ol></noscript></section>"
    )


def _queues(report: Report) -> str:
    cut = report.queues - len(report.lines)
    note = (
        f"<p class=quiet>The page has {len(report.lines):,} queues, those with findings first.</p>" if cut > 0 else ""
    )
    return (
        '<section aria-labelledby="queues"><h2 id="queues">Coverage by queue</h2>'
        '<p class="quiet legend"><span><span class="key read"></span> frames from the first to the last number</span>'
        '<span><span class="key hole"></span> numbers with a finding</span>'
        '<span><span class="key tip"></span> end confirmed by the head</span></p>'
        '<div class="tools"><label class="switch"><input id="q-bad" type="checkbox"> only queues with findings</label>'
        '<label class="search">Search <input id="q-text" type="search" placeholder="queue id" autocomplete="off" '
        'spellcheck="false"></label></div>'
        f'<p id="q-count" class="quiet" role="status"></p>{note}<ol id="q-list" class="list"></ol>'
        '<nav class="pages" id="q-pages" aria-label="Pages of queues"></nav></section>'
    )


_WORDS: Final = (
    ("Queue", "a list of encrypted messages that a service stores for one owner."),
    ("Frame", "one stored entry of a queue. Frames are numbered from 0 without holes; most carry a message."),
    ("Epoch", "a run of frames under keys that follow from one another. A key update ends it and begins the next."),
    ("Grant", "what the auditor holds: the right to open one epoch of one queue, and nothing else."),
    ("Head", "the service's authenticated word on what its next number is. It shows whether the end was cut off."),
    ("Verified", "every frame opened under its own number, none is missing or there twice, and nothing was altered."),
)


def _words() -> str:
    items = "".join(f"<div><dt>{word}</dt><dd>{meaning}</dd></div>" for word, meaning in _WORDS)
    return f"<section><details class=words><summary>What the words mean</summary><dl>{items}</dl></details></section>"


def _data(report: Report) -> dict[str, object]:
    """What the page's script shows: rows as lists, and ids once each."""
    marks: dict[tuple[bytes, bytes], list[tuple[int, int]]] = {}
    for one in report.findings:
        if one.seq is not None:
            marks.setdefault(one[:2], []).append((one.seq, one.last_seq if one.last_seq is not None else one.seq))
    services = list(
        dict.fromkeys([*(line.service_id for line in report.lines), *(f.service_id for f in report.findings)])
    )
    place = {service: index for index, service in enumerate(services)}
    kinds = list(Counter(one.kind for one in report.findings))
    kind_place = {kind: index for index, kind in enumerate(kinds)}
    return {
        "services": [_name(service) for service in services],
        "kinds": kinds,
        "findings": [
            [place[f.service_id], f.queue_id.hex(), f.seq, f.last_seq, f.epoch, kind_place[f.kind], f.sentence]
            for f in report.findings
        ],
        "queues": [
            [
                place[q.service_id],
                q.queue_id.hex(),
                q.frames,
                q.messages,
                q.bytes,
                q.epochs,
                q.first_seq,
                q.last_seq,
                q.findings,
                q.head,
                q.verified,
                marks.get(q[:2], [])[:200],
            ]
            for q in report.lines
        ],
    }


def _name(service: bytes) -> str:
    """A service's id as text if it is plain text, else in hexadecimal."""
    return service.decode() if service.isascii() and service.decode().isprintable() else service.hex()
