"""Each kind of finding, from the defect that it names, with a sentence that names the number."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pyspark_udfs import Kind
from pyspark_udfs.strangers import FRAMES_TRIED
from qsratchet import Enqueuer, FrameRejected, Grant, derive_grants

from .exports import SERVICE, Queue, Row
from .local import Held, concluded, messages

NONCE = b"n" * 16


def kinds(rows: Sequence[Row], held: Held, **more: object) -> list[tuple[str, int | None, int | None]]:
    findings, _ = concluded([rows], held, **more)  # type: ignore[arg-type]
    assert all(sentence.endswith(".") for *_, sentence in findings)
    return sorted(((f[5], f[2], f[3]) for f in findings.elements()), key=str)


@pytest.fixture
def queue() -> Queue:
    return Queue.make(b"kinds", 30)


def altered(row: Row, at: int, value: int) -> Row:
    frame = bytearray(row.frame or b"")
    frame[at] = value
    return row._replace(frame=bytes(frame))


def test_a_clean_queue_has_no_findings(queue: Queue) -> None:
    assert kinds(queue.rows, Held(queue.grants)) == []


@pytest.mark.parametrize(
    ("at", "value", "kind"),
    [
        (0, 9, Kind.UNKNOWN_VERSION),
        (1, 9, Kind.UNKNOWN_TYPE),
        (1, 1, Kind.UNEXPECTED_INIT),
        (1, 4, Kind.MALFORMED),
        (2, 9, Kind.UNKNOWN_SUITE),
        (3, 2, Kind.WRONG_SUITE),
        (7, 3, Kind.WRONG_EPOCH),
        (8, 1, Kind.WRONG_EPOCH),
        (8, 0xFF, Kind.MALFORMED),
        (15, 6, Kind.TAMPERED),
        (40, 0, Kind.TAMPERED),
    ],
)
def test_an_altered_byte_is_named_for_what_it_alters(queue: Queue, at: int, value: int, kind: Kind) -> None:
    rows = list(queue.rows)
    rows[5] = altered(rows[5], at, value)
    if rows[5] == queue.rows[5]:
        rows[5] = altered(rows[5], at, value ^ 1)
    assert kinds(rows, Held(queue.grants)) == [(kind, 5, None)]


def test_a_lost_update_is_named_and_with_it_what_stays_closed(queue: Queue) -> None:
    rows = [row for row in queue.rows if row.seq != 8]
    assert kinds(rows, Held(queue.grants)) == [("gap", 8, 8), ("update missing", 8, 8)]
    # Whoever derives the grants from this export has none after the lost frame.
    grants = list(derive_grants([row.frame or b"" for row in rows[:8]], queue.keys))
    assert kinds(rows, Held(grants)) == [("gap", 8, 8), ("no grant", 9, None), ("update missing", 8, 8)]
    # A claim of a later epoch in the middle of an earlier one says nothing of updates.
    forged = list(queue.rows)
    forged[-1:] = [altered(forged[-1], 7, 9)]
    queue.write(1)
    forged.append(queue.rows[-1])
    assert kinds(forged, Held(queue.grants)) == [("no grant", 34, None)]


def test_a_frame_of_another_queue_is_traced_home() -> None:
    queues = [Queue.make(b"home-%d" % number, 30) for number in range(3)]
    rows = list(queues[0].rows)
    rows[5] = rows[5]._replace(frame=queues[2].rows[6].frame)
    held = Held([grant for queue in queues for grant in queue.grants])
    findings, _ = concluded([rows], held)
    (finding,) = findings
    assert finding[2:] == (
        5,
        None,
        0,
        "wrong queue",
        "The frame stored under number 5 is frame 6 of the queue 686f6d652d32.",
    )
    # Of many, only so many are traced; the others are called what they are at least.
    rows = [row._replace(frame=queues[2].rows[row.seq or 0].frame) for row in queues[0].rows]
    counts = [kind for kind, *_ in kinds(rows, held)]
    assert counts.count("wrong queue") == FRAMES_TRIED
    assert counts.count("tampered") == len(rows) - FRAMES_TRIED


def test_two_histories_that_part_at_an_update_are_a_fork(queue: Queue) -> None:
    copy = Enqueuer.load(queue.service.dump(), policy=queue.policy)
    queue.write(2)
    there = [copy.update(now=0), *copy.enqueue_many([b"x"] * 3, now=0)]
    rows = queue.rows + [Row(SERVICE, queue.id, frame.seq, frame.data) for frame in there]
    rows.sort(key=lambda row: row.seq or 0)
    control = [row.frame or b"" for row in queue.rows] + [there[0].data]
    grants = list(derive_grants(control, queue.keys))
    found = kinds(rows, Held(grants))
    assert found == [("fork", there[0].seq, None), ("fork", there[1].seq, None)]
    split: dict[bytes, list[Row]] = {}
    for row in rows:
        split.setdefault((row.frame or b"")[4:8], []).append(row)
    assert concluded(list(split.values()), Held(grants)) == concluded([rows], Held(grants))


def test_rows_after_a_checkpoint_that_are_below_it_are_compared_or_called_passed(queue: Queue) -> None:
    queue.write_and_fork(3)
    held = Held(queue.grants)
    fork = queue.forks[0]
    number = fork.seq or 0
    early = [row for row in queue.rows if (row.seq or 0) <= number]
    _, state = concluded([early], held)
    assert kinds([queue.rows[number]], held, checkpoints=state) == [("duplicate", number, None)]
    assert kinds([fork], held, checkpoints=state) == [("fork", number, None)]
    assert kinds(queue.rows[4:6], held, checkpoints=state) == [("passed", 4, 5)]
    assert kinds([], held, checkpoints=state) == []
    _, unchanged = concluded([[]], held, checkpoints=state)
    assert unchanged == state


def test_rows_out_of_order_in_an_export_that_claims_order_are_said_so(queue: Queue) -> None:
    rows = queue.rows
    assert kinds([*rows[10:], *rows[:10]], Held(queue.grants)) == []
    overlapping = [rows[1:6], [rows[3], rows[0]]]
    findings, _ = concluded(overlapping, Held(queue.grants))
    assert {finding[5] for finding in findings} == {"unsorted"}


def test_an_audit_begins_where_its_grants_begin(queue: Queue) -> None:
    held = Held(queue.grants[2:])
    first = queue.grants[2].first_seq
    assert kinds(queue.rows[first:], held) == []
    assert kinds(queue.rows[first + 1 :], held) == [("gap", first, first)]
    # What lies before is closed, and one finding says so.
    assert kinds(queue.rows, held) == [("no grant", 0, None)]
    assert kinds(queue.rows, Held([])) == [("no grant", 0, None)]


def test_heads_are_checked_with_the_grant_of_their_epoch(queue: Queue) -> None:
    held = Held(queue.grants)
    head = queue.service.head(NONCE)
    end = len(queue.rows)

    def heads(head: bytes, nonce: bytes = NONCE) -> list[tuple[bytes, bytes, bytes, bytes]]:
        return [(SERVICE, queue.id, nonce, head)]

    assert kinds(queue.rows, held, heads=heads(head)) == []
    # What waits for a neighbour is said once, although a head comes after it.
    assert kinds([*queue.rows, queue.rows[-1]], held, heads=heads(head)) == [("duplicate", end - 1, None)]
    assert kinds(queue.rows[:-1], held, heads=heads(head)) == [("tail cut off", end - 1, end - 1)]
    assert kinds(queue.rows, held, heads=heads(head[:-1])) == [("head rejected", None, None)]
    assert kinds(queue.rows, held, heads=heads(head, b"short")) == [("head rejected", None, None)]
    assert kinds(queue.rows, held, heads=heads(b"")) == [("head rejected", None, None)]
    assert ("no grant", end, None) in kinds(queue.rows, Held(queue.grants[:-1]), heads=heads(head))
    assert ("no grant", end, None) in kinds([], Held([]), heads=heads(head))


def test_the_inner_loop_of_a_grant_stops_at_its_end(queue: Queue) -> None:
    grant: Grant = queue.grants[0]
    frames = [row.frame or b"" for row in queue.rows[1:]]
    views = [memoryview(frame) for frame in frames]
    opened = grant.open_run(1, views)
    assert [message.seq for message in opened] == [1, 2, 3, 4, 5, 6, 7]
    assert [message.body for message in opened] == [queue.bodies[seq] for seq in range(1, 8)]
    assert grant.open_run(1, []) == []
    assert grant.open_run(grant.first_seq + 65_535, views) == []
    update = grant.open(frames[7])
    assert not isinstance(update, FrameRejected)
    assert update.seq == 8


def test_an_opened_row_keeps_its_place_among_nulls() -> None:
    queue = Queue.make(b"nulls", 5)
    rows = [Row(None, queue.id, 0, b""), *queue.rows, Row(SERVICE, None, None, None), Row(SERVICE, b"", 1, b"")]
    assert [row["verdict"] for row in messages(rows, Held(queue.grants))] == [
        "malformed",
        *["ok"] * 6,
        *["malformed"] * 2,
    ]
    assert messages([], Held([])) == []
