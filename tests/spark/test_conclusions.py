"""What an audit concludes, over the worker's own functions: many examples, no Spark."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pyspark_udfs import OK
from qsratchet import FrameRejected, Grant, GrantWalk, MisuseError

from .defects import damaged
from .dequeued import compare, number_of
from .exports import Queue, Row
from .local import Held, concluded, messages, numbered

QUEUES = [Queue.make(b"queue-%d" % number, 24, every=5) for number in range(3)]
for _queue in QUEUES:
    _queue.write_and_fork(12)
FULL = Held([grant for queue in QUEUES for grant in queue.grants])


def _later(grant: Grant, steps: int) -> Grant:
    """A grant that the owner gave in the middle of the epoch."""
    seq = grant.first_seq + steps
    return Grant(
        suite=grant.suite,
        service_id=grant.service_id,
        queue_id=grant.queue_id,
        suites=grant.suites,
        key_hash=grant.key_hash,
        epoch=grant.epoch,
        first_seq=seq,
        chain_key=grant.chain_key(seq),
    )


GRANTS = [grant for queue in QUEUES for grant in queue.grants]
#: All grants, or some of them, some of which begin late.
holdings = st.one_of(
    st.just(FULL),
    st.lists(st.sampled_from([None, 0, 0, 0, 2]), min_size=len(GRANTS), max_size=len(GRANTS)).map(
        lambda steps: Held([_later(g, step) for g, step in zip(GRANTS, steps, strict=True) if step is not None])
    ),
)
damaged_rows = st.one_of(*(damaged(QUEUES[n], QUEUES[(n + 1) % 3]) for n in range(3)))
damaged_exports = st.tuples(*(damaged(QUEUES[n], QUEUES[(n + 1) % 3], most=3) for n in range(3))).map(
    lambda parts: [row for part in parts for row in part]
)


@settings(max_examples=150, deadline=None)
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


@settings(max_examples=100, deadline=None)
@given(damaged_exports, holdings)
def test_a_shuffle_by_queue_and_epoch_concludes_the_same(rows: list[Row], held: Held) -> None:
    parts: dict[object, list[Row]] = {}
    for row in rows:
        frame = row.frame or b""
        parts.setdefault((row.queue_id, frame[4:8] if len(frame) >= 8 else None), []).append(row)
    assert concluded(list(parts.values()), held) == concluded([rows], held)


@settings(max_examples=100, deadline=None)
@given(damaged_exports, holdings, st.data())
def test_increments_find_what_one_run_finds(rows: list[Row], held: Held, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=3)))
    whole, last = concluded([rows], held)
    # Increments follow one another in the numbers that rows account for.  Of a frame that no grant opens nobody can
    # tell whether it stands in the wrong place.
    verdicts = [row["verdict"] for row in messages(rows, held)]
    assume(all(number_of(row) == row.seq for row, verdict in zip(rows, verdicts, strict=True) if verdict == "no grant"))
    places = [
        number_of(row) if verdict == "reordered" else row.seq or 0 for row, verdict in zip(rows, verdicts, strict=True)
    ]
    found: Counter[tuple[object, ...]] = Counter()
    state: list[dict[str, object]] = []
    for start, stop in zip([-1, *cuts], [*cuts, 1 << 62], strict=True):
        part = [row for row, place in zip(rows, places, strict=True) if start < place <= stop]
        new, state = concluded([part], held, checkpoints=state)
        found += new
    assert found == whole
    assert state == last


@settings(max_examples=150, deadline=None)
@given(damaged_rows)
def test_the_audit_opens_exactly_what_a_dequeuer_opens(rows: list[Row]) -> None:
    queue = next(queue for queue in QUEUES if not rows or queue.id == rows[0].queue_id)
    # The auditor derives its grants from the damaged export, as the owner would read it.
    grants = []
    walk = GrantWalk(queue.keys)
    for row in sorted(rows, key=number_of):
        try:
            grants.append(walk.open(row.frame or b""))
        except (FrameRejected, MisuseError):
            continue
    compare(queue, rows, messages(rows, Held(grants)), {grant.epoch for grant in grants})


@settings(max_examples=150, deadline=None)
@given(damaged_rows)
def test_gaps_duplicates_and_forks_are_what_the_rows_say_when_counted_by_hand(rows: list[Row]) -> None:
    if not rows:
        return
    findings, (*_, summary) = concluded([rows], FULL)
    opened = messages(rows, FULL)
    covered: set[int] = set()
    frames: dict[int, list[bytes]] = {}
    for row, result in zip(rows, opened, strict=True):
        if result["verdict"] == "reordered":
            covered.add(number_of(row))
        elif row.seq is not None:
            covered.add(row.seq)
            if result["verdict"] in (OK, "no grant"):
                frames.setdefault(row.seq, []).append(row.frame or b"")
    missing = set(range(max(covered) + 1)) - covered
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
