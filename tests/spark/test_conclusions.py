"""What an audit concludes, over the worker's own functions: many examples, no Spark."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyspark_udfs import OK, Kind

from .defects import Damaged, damaged, damaged_export
from .dequeued import compare_export, granted
from .exports import NONCE, SERVICE, Queue, Row
from .local import Finding, Held, concluded, messages, numbered

QUEUES = [Queue.make(b"queue-%d" % number, 24, every=5) for number in range(3)]
for _queue in QUEUES:
    _queue.write_and_fork(12)
    _queue.write(3)
GRANTS = [grant for queue in QUEUES for grant in queue.grants]
FULL = Held(GRANTS)
#: All grants, or some of them, some of which begin late.
holdings = st.one_of(
    st.just(FULL),
    st.lists(st.sampled_from([None, 0, 0, 0, 2]), min_size=len(GRANTS), max_size=len(GRANTS)).map(
        lambda steps: Held(
            [grant.narrow(grant.first_seq + n) for grant, n in zip(GRANTS, steps, strict=True) if n is not None]
        )
    ),
)
damaged_rows = st.one_of(*(damaged(QUEUES[n], QUEUES[(n + 1) % 3]) for n in range(3)))
damaged_exports = st.tuples(*(damaged(QUEUES[n], QUEUES[(n + 1) % 3], most=3) for n in range(3))).map(
    lambda parts: [row for part in parts for row in part]
)


@given(damaged_exports, holdings, st.data())
def test_it_does_not_matter_where_partitions_and_batches_cut_an_export(
    rows: list[Row], held: Held, data: st.DataObject
) -> None:
    whole = concluded([rows], held)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=6)))
    places = [0, *cuts, len(rows)]
    parts = [rows[start:stop] for start, stop in pairwise(places)]
    size = data.draw(st.sampled_from([1, 2, 7, 1_000]))
    assert concluded(parts, held, size=size) == whole


@given(damaged_exports, holdings)
def test_a_shuffle_by_queue_and_epoch_concludes_the_same(rows: list[Row], held: Held) -> None:
    parts: dict[object, list[Row]] = {}
    for row in rows:
        frame = row.frame or b""
        parts.setdefault((row.queue_id, frame[4:8] if len(frame) >= 8 else None), []).append(row)
    assert concluded(list(parts.values()), held) == concluded([rows], held)


def _in_increments(rows: list[Row], held: Held, places: list[int]) -> tuple[Counter[Finding], list[dict[str, Any]]]:
    """Audit the rows in increments, each going on from the checkpoints before: `places` says which row is in which."""
    found: Counter[Finding] = Counter()
    state: list[dict[str, Any]] = []
    for increment in range(max(places, default=0) + 1):
        part = [row for row, place in zip(rows, places, strict=True) if place == increment]
        new, state = concluded([part], held, checkpoints=state)
        found += new
    return found, state


@given(damaged_exports, holdings, st.data())
def test_increments_cut_between_any_two_numbers_find_what_one_run_finds(
    rows: list[Row], held: Held, data: st.DataObject
) -> None:
    cuts = {queue.id: sorted(data.draw(st.lists(st.integers(0, 44), max_size=4))) for queue in QUEUES}
    places = [bisect_right(cuts[row.queue_id or b""], row.seq or 0) for row in rows]
    assert _in_increments(rows, held, places) == concluded([rows], held)


@given(damaged_exports, holdings, st.data())
def test_increments_cut_among_the_rows_of_one_number_find_the_same_of_each_number(
    rows: list[Row], held: Held, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=6)))
    found, _ = _in_increments(rows, held, [bisect_right(cuts, at) for at in range(len(rows))])
    whole, _ = concluded([rows], held)
    # Of several closed frames with one number, the one that comes first is named in the finding: not the same one.
    assert _by_number(found) == _by_number(whole)


def _by_number(findings: Counter[Finding]) -> Counter[Finding]:
    counts: Counter[Finding] = Counter()
    for (_, queue_id, seq, last_seq, _, kind, _), count in findings.items():
        counts[queue_id, seq, last_seq, kind] += count
    return counts


@given(damaged_exports, st.data())
def test_rows_that_come_late_are_opened_fill_gaps_or_are_called_passed(rows: list[Row], data: st.DataObject) -> None:
    late = data.draw(st.sets(st.integers(0, max(len(rows) - 1, 0)), max_size=12))
    found, _ = _in_increments(rows, FULL, [int(at in late) for at in range(len(rows))])
    whole, _ = concluded([rows], FULL)
    verdicts = [row["verdict"] for row in messages(rows, FULL)]
    for queue in QUEUES:
        mine = [at for at, row in enumerate(rows) if row.queue_id == queue.id and row.seq is not None]
        early = {rows[at].seq or 0 for at in mine if at not in late}
        last = max(early, default=-1)
        # Gaps that are not filled are those of one run.
        filled = _numbers(found, queue, "filled")
        assert _numbers(found, queue, "gap") - filled == _numbers(whole, queue, "gap")
        comes = {rows[at].seq or 0 for at in mine if at in late}
        assert filled == {number for number in comes - early if number < last}
        # What an earlier audit has seen cannot be compared, save under the number where it ended.
        seen = {rows[at].seq or 0 for at in mine if at in late and verdicts[at] in (OK, "no grant")}
        assert _numbers(found, queue, "passed") - {last} == {number for number in seen & early if number < last}
    # Whatever is said of a row for itself is said wherever it comes.
    row_kinds = {kind for kind in Kind if kind not in _OF_SEVERAL_ROWS}
    assert numbered(found, row_kinds.__contains__) == numbered(whole, row_kinds.__contains__)


_OF_SEVERAL_ROWS = {
    Kind.GAP, Kind.FILLED, Kind.PASSED, Kind.DUPLICATE, Kind.FORK, Kind.NO_GRANT, Kind.UPDATE_MISSING,
}  # fmt: skip


def _numbers(findings: Counter[Finding], queue: Queue, kind: str) -> set[int]:
    return {
        number
        for _, queue_id, first, last, _, what, _ in findings
        if queue_id == queue.id and what == kind
        for number in range(first, last + 1)
    }


@given(damaged_export(QUEUES))
def test_every_row_and_every_finding_is_what_the_dequeuer_says(export: Damaged) -> None:
    held = Held([], granted(QUEUES, export))
    heads = [(SERVICE, queue.id, NONCE, head) for queue, head in zip(QUEUES, export.heads, strict=True) if head]
    found, _ = concluded([export.rows], held, heads=heads)
    compare_export(QUEUES, export, messages(export.rows, held), found)


@given(damaged_rows)
def test_gaps_duplicates_and_forks_are_what_the_rows_say_when_counted_by_hand(rows: list[Row]) -> None:
    if not rows:
        return
    findings, (*_, summary) = concluded([rows], FULL)
    opened = messages(rows, FULL)
    covered: set[int] = set()
    frames: dict[int, list[bytes]] = {}
    for row, result in zip(rows, opened, strict=True):
        if row.seq is not None:
            covered.add(row.seq)
            if result["verdict"] in (OK, "no grant"):
                frames.setdefault(row.seq, []).append(row.frame or b"")
    missing = set(range(max(covered, default=-1) + 1)) - covered
    found = {n for finding in findings if finding[5] == "gap" for n in range(finding[2], finding[3] + 1)}
    assert found == missing
    expected: Counter[tuple[int | None, str]] = Counter()
    for number, copies in frames.items():
        expected[number, "duplicate"] += len(copies) - len(set(copies))
        expected[number, "fork"] += len(set(copies)) - 1
    assert numbered(findings, {"duplicate", "fork"}.__contains__) == +expected
    assert summary["frames"] == len(rows)
    assert summary["bytes"] == sum(len(row.frame or b"") for row in rows)
    assert summary["messages"] == sum(result["body"] is not None for result in opened)
    assert summary["verified"] == (not findings)
    # Every row that did not open is a finding, or is in the run of closed rows that one finding names.
    wrong = Counter(result["verdict"] for result in opened if result["verdict"] not in (OK, "no grant"))
    named = Counter[str]()
    for finding, count in findings.items():
        named[finding[5]] += count
    for kind in ("tampered", "wrong epoch", "wrong suite"):
        named[kind] += 0
    strange = named.pop("wrong queue", 0)
    loose = sum(wrong[kind] - named[kind] for kind in ("tampered", "wrong epoch", "wrong suite"))
    assert loose == strange
    assert all(
        named[kind] == count for kind, count in wrong.items() if kind not in ("tampered", "wrong epoch", "wrong suite")
    )
