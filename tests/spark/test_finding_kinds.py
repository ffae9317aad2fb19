"""Each kind of finding, from the defect that it names, with a sentence that names the number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pyspark_udfs import Kind, strangers
from pyspark_udfs.conclude import GAPS_KEPT
from pyspark_udfs.strangers import FRAMES_TRIED
from qsratchet import Enqueuer, FrameRejected, Grant, StateError, derive_grants

from .dequeued import read
from .exports import SERVICE, Queue, Row
from .local import Held, concluded, messages

NONCE = b"n" * 16


def kinds(rows: Sequence[Row], held: Held, **more: Any) -> list[tuple[str, int | None, int | None]]:
    findings, _ = concluded([rows], held, **more)
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


def test_the_first_frame_and_the_suite_are_judged_before_the_keys() -> None:
    # One epoch, of which nobody knows the end: a later one would pass for one that has no grant.
    queue = Queue.make(b"short", 5)
    held = Held(queue.grants)
    for at, changes, kind in (
        (0, {7: 3}, Kind.WRONG_EPOCH),
        (0, {1: 2}, Kind.MALFORMED),
        (2, {3: 2, 7: 3}, Kind.WRONG_SUITE),
        (2, {1: 1, 7: 3}, Kind.UNEXPECTED_INIT),
        (2, {7: 3}, Kind.NO_GRANT),
    ):
        rows = list(queue.rows)
        for place, value in changes.items():
            rows[at] = altered(rows[at], place, value)
        assert kinds(rows, held) == [(kind, at, None)]
        assert [one.verdict for one in read(queue, rows).rows][at] == kind


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


def test_a_stray_frame_is_looked_for_in_the_nearest_queues_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    queues = [Queue.make(b"near-%d" % number, 10) for number in range(6)]
    held = Held([grant for queue in queues for grant in queue.grants])
    monkeypatch.setattr(strangers, "QUEUES_TRIED", 2)
    for home, kind in ((1, "wrong queue"), (3, "wrong queue"), (4, "tampered"), (0, "tampered")):
        rows = list(queues[2].rows)
        rows[5] = rows[5]._replace(frame=queues[home].rows[5].frame)
        assert kinds(rows, held) == [(kind, 5, None)]


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


def test_every_frame_under_the_last_number_is_remembered(queue: Queue) -> None:
    held = Held(queue.grants[:1])
    other = altered(queue.rows[5], 7, 9)
    early, state = concluded([[*queue.rows[:6], other]], held)
    for again in (queue.rows[5], other):
        late, _ = concluded([[again]], held, checkpoints=state)
        assert [(f[5], f[2]) for f in late] == [("duplicate", 5)]
        assert early + late == concluded([[*queue.rows[:6], other, again]], held)[0]


def test_what_was_missing_and_comes_later_takes_the_gap_back(queue: Queue) -> None:
    held = Held(queue.grants)
    missing = {4, 10, 11, 12}
    _, state = concluded([[row for row in queue.rows if row.seq not in missing]], held)
    again = [queue.rows[seq] for seq in (4, 5, 11)]
    found, state = concluded([again], held, checkpoints=state)
    assert sorted((f[5], f[2], f[3]) for f in found) == [("filled", 4, 4), ("filled", 11, 11), ("passed", 5, 5)]
    # The rest is missing still, and what does not authenticate fills a place as well.
    late = [queue.rows[10], altered(queue.rows[12], 40, 0), queue.rows[11]]
    assert kinds(late, held, checkpoints=state) == [
        ("filled", 10, 10),
        ("filled", 12, 12),
        ("passed", 11, 11),
        ("tampered", 12, None),
    ]


def test_late_rows_do_not_disturb_the_end_and_stay_closed_without_a_grant(queue: Queue) -> None:
    held = Held(queue.grants[:1])
    early = [row for row in queue.rows[:16] if row.seq != 10]
    _, state = concluded([early], held)
    late = [queue.rows[10], queue.rows[12], queue.rows[15]]
    assert kinds(late, held, checkpoints=state) == [
        ("duplicate", 15, None),
        ("filled", 10, 10),
        ("no grant", 10, None),
        ("no grant", 12, None),
        ("passed", 12, 12),
    ]


def test_a_run_of_closed_frames_is_named_alike_however_partitions_cut_it(queue: Queue) -> None:
    held = Held(queue.grants[:1])
    copy = altered(queue.rows[9], 7, 9)
    whole, _ = concluded([queue.rows[:9], queue.rows[9:15], [copy]], held)
    assert [(f[5], f[2], f[4]) for f in whole] == [("no grant", 9, 1)]
    assert concluded([queue.rows[:10], queue.rows[10:15], [copy]], held)[0] == whole


def test_a_checkpoint_remembers_the_last_gaps_only() -> None:
    queue = Queue.make(b"holes", 4 * GAPS_KEPT, every=1_000)
    held = Held(queue.grants)
    _, state = concluded([queue.rows[::2]], held)
    last = queue.rows[::2][-1].seq or 0
    assert kinds([queue.rows[last - 1]], held, checkpoints=state) == [("filled", last - 1, last - 1)]
    assert kinds([queue.rows[1]], held, checkpoints=state) == [("passed", 1, 1)]
    assert len(state[0]["state"]) < 20 * GAPS_KEPT


def test_a_checkpoint_of_another_release_or_a_damaged_one_is_refused(queue: Queue) -> None:
    _, state = concluded([queue.rows], Held(queue.grants))
    for strange in (b"[2]", b"[1]", b"[1, 2]", b"5", b"{}", b"{", b"", b"null"):
        with pytest.raises(StateError, match="without it"):
            concluded([[]], Held(queue.grants), checkpoints=[state[0] | {"state": strange}])
    with pytest.raises(StateError, match="two checkpoints"):
        concluded([[]], Held(queue.grants), checkpoints=[*state, *state])


def test_a_head_confirms_the_end_that_it_was_given_for_and_no_later_one() -> None:
    queue = Queue.make(b"monday", 10)
    head = [(SERVICE, queue.id, NONCE, queue.service.head(NONCE))]
    early = list(queue.rows)
    queue.write(10)
    held = Held(queue.grants)
    _, monday = concluded([early], held, heads=head)
    assert monday[0]["head"] is True
    assert concluded([[]], held, checkpoints=monday)[1][0]["head"] is True
    _, tuesday = concluded([queue.rows[len(early) :]], held, checkpoints=monday)
    assert (tuesday[0]["head"], tuesday[0]["verified"]) == (None, True)


def test_a_checkpoint_does_not_grow_with_copies_of_the_last_frame(queue: Queue) -> None:
    held = Held(queue.grants)
    _, state = concluded([queue.rows + [queue.rows[-1]] * 1_000], held)
    assert state[0]["findings"] == {"duplicate": 1_000}
    assert len(state[0]["state"]) < 500
    assert kinds([queue.rows[-1]] * 2, held, checkpoints=state) == [("duplicate", queue.rows[-1].seq, None)] * 2


def test_one_unopened_frame_is_no_witness_of_a_later_epoch_but_two_are(queue: Queue) -> None:
    held = Held(queue.grants[:1])
    # Number 8 is the UPDATE that ends epoch 0, and no grant opens what follows.
    assert kinds(queue.rows, held) == [("no grant", 9, None)]
    lost = [row for row in queue.rows if row.seq != 8]
    assert kinds(lost[:9], held) == [("gap", 8, 8), ("no grant", 9, None)]
    assert kinds(lost[:10], held) == [("gap", 8, 8), ("no grant", 9, None), ("update missing", 8, 8)]
    # The first witness is remembered from one increment to the next.
    early, state = concluded([lost[:9]], held)
    late, _ = concluded([lost[9:]], held, checkpoints=state)
    assert early + late == concluded([lost], held)[0]
    # Nor are two of them with a frame between that opens in the earlier epoch.
    queue.write(3)
    flipped = list(queue.rows)
    flipped[-4], flipped[-2] = altered(flipped[-4], 7, 9), altered(flipped[-2], 7, 9)
    end = len(flipped)
    assert kinds(flipped, Held(queue.grants)) == [("no grant", end - 4, None), ("no grant", end - 2, None)]
    # Nor are copies under numbers that the chain has passed.
    copies = [altered(row, 7, 9) for row in queue.rows[3:6]]
    findings, _ = concluded([queue.rows[:8], copies], held)
    assert [(f[5], f[2]) for f in findings] == [("no grant", 3)]
    # Two epochs on, the UPDATE of the one between is missing, not the one that is there.
    skipped = [row for row in queue.rows if not 9 <= (row.seq or 0) <= 16]
    findings, _ = concluded([skipped], Held(queue.grants))
    assert [(f[5], f[2], f[3], f[4]) for f in findings] == [("gap", 9, 16, None), ("update missing", 9, 16, 1)]


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
