"""The fold: what each event does to a record, what it may not do, and when a write is due."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from qsratchet.errors import MisuseError
from qsratchet.records import (
    BlobReplaced,
    BlobsDropped,
    Created,
    Deleted,
    Event,
    Expire,
    Kept,
    MessageSent,
    OwnerSeen,
    QueueRecord,
    RetentionPolicy,
    Secured,
    Suspended,
    Usage,
    apply,
    decide,
)

from .naive import NaiveQueue
from .strategies import blob_sizes, days, happenings, histories, policies, records, usages

DAY = date(2026, 11, 18)
NEXT = DAY + timedelta(days=1)
Q = b"queue"


def after(*events: Event) -> QueueRecord:
    record = None
    for event in events:
        record = apply(record, event).record
    assert record is not None
    return record


def created(usage: Usage = Usage.MESSAGING, **changes: Any) -> Created:
    return Created(queue_id=Q, day=DAY, usage=usage, blobs=changes.get("blobs", ((0, 2048), (1, 1500), (2, 13000))))


# --- What each event does --------------------------------------------------------------------------


def test_a_created_queue_is_seen_today_by_its_owner_and_has_its_blobs() -> None:
    step = apply(None, created())
    assert step.write_due
    assert step.record is not None
    assert (step.record.updated_on, step.record.owner_seen_on) == (DAY, DAY)
    assert [(blob.priority, blob.size, blob.added_on) for blob in step.record.blobs] == [
        (0, 2048, DAY),
        (1, 1500, DAY),
        (2, 13000, DAY),
    ]
    assert not step.record.secured
    assert not step.record.link_used
    assert not step.record.suspended


def test_a_message_moves_one_date_and_the_owner_moves_both() -> None:
    sent = after(created(), MessageSent(queue_id=Q, day=NEXT))
    assert (sent.updated_on, sent.owner_seen_on) == (NEXT, DAY)
    seen = after(created(), OwnerSeen(queue_id=Q, day=NEXT))
    assert (seen.updated_on, seen.owner_seen_on) == (NEXT, NEXT)


def test_only_a_message_after_securing_uses_up_the_link() -> None:
    sent, secured = MessageSent(queue_id=Q, day=DAY), Secured(queue_id=Q, day=DAY)
    assert not after(created(), sent, secured).link_used
    assert not after(created(), secured, secured).link_used
    assert after(created(), secured, sent).link_used


def test_securing_and_suspending_may_be_repeated_without_another_write() -> None:
    for event in (Secured(queue_id=Q, day=DAY), Suspended(queue_id=Q, day=DAY)):
        record = after(created(), event)
        again = apply(record, event)
        assert again.record == record
        assert not again.write_due


def test_a_replaced_blob_is_new_and_an_evicted_one_comes_back() -> None:
    replaced = after(created(), BlobReplaced(queue_id=Q, day=NEXT, priority=1, size=10))
    assert [(blob.priority, blob.size, blob.added_on) for blob in replaced.blobs] == [
        (0, 2048, DAY),
        (1, 10, NEXT),
        (2, 13000, DAY),
    ]
    assert replaced.owner_seen_on == NEXT
    dropped = after(created(), BlobsDropped(queue_id=Q, day=DAY, priorities=(1, 2)))
    assert [blob.priority for blob in dropped.blobs] == [0]
    back = apply(dropped, BlobReplaced(queue_id=Q, day=NEXT, priority=2, size=10))
    assert back.record is not None
    assert [blob.priority for blob in back.record.blobs] == [0, 2]
    assert back.write_due


def test_dropping_blobs_is_the_services_act_and_moves_no_date() -> None:
    dropped = apply(after(created()), BlobsDropped(queue_id=Q, day=NEXT, priorities=(0, 1, 2)))
    assert dropped.write_due
    assert dropped.record is not None
    assert dropped.record.blobs == ()
    assert (dropped.record.updated_on, dropped.record.owner_seen_on) == (DAY, DAY)


def test_a_deleted_queue_has_no_record() -> None:
    step = apply(after(created()), Deleted(queue_id=Q, day=DAY))
    assert step.record is None
    assert step.write_due


# --- What is refused -------------------------------------------------------------------------------

SUSPENDED = (created(), Suspended(queue_id=Q, day=DAY))


@pytest.mark.parametrize(
    ("history", "event", "says"),
    [
        ((created(),), created(), "exists already"),
        ((created(),), Kept(record=after(created())), "exists already"),
        ((created(),), MessageSent(queue_id=b"other", day=DAY), "another queue"),
        ((created(Usage.CONTACT),), Secured(queue_id=Q, day=DAY), "never secured"),
        (SUSPENDED, MessageSent(queue_id=Q, day=DAY), "takes no messages"),
        (SUSPENDED, Secured(queue_id=Q, day=DAY), "not secured any more"),
        (SUSPENDED, BlobReplaced(queue_id=Q, day=DAY, priority=0, size=1), "no use for blobs"),
        (
            (created(), Secured(queue_id=Q, day=DAY)),
            BlobReplaced(queue_id=Q, day=DAY, priority=0, size=1),
            "not replaced any more",
        ),
        ((created(blobs=()),), BlobReplaced(queue_id=Q, day=DAY, priority=1, size=1), "store that one first"),
        ((created(blobs=()),), BlobsDropped(queue_id=Q, day=DAY, priorities=(0,)), "not in the record"),
        ((created(),), BlobsDropped(queue_id=Q, day=DAY, priorities=(0,)), "one of priority 0"),
    ],
)
def test_an_event_that_cannot_happen_is_refused(history: tuple[Event, ...], event: Event, says: str) -> None:
    record = after(*history)
    with pytest.raises(MisuseError, match=says):
        apply(record, event)


@pytest.mark.parametrize("kind", [MessageSent, OwnerSeen, Secured, Suspended, Deleted])
def test_nothing_happens_to_a_queue_without_a_record(kind: type[MessageSent]) -> None:
    with pytest.raises(MisuseError, match="no record"):
        apply(None, kind(queue_id=Q, day=DAY))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: MessageSent(queue_id=b"", day=DAY), "queue id"),
        (lambda: MessageSent(queue_id=Q, day=datetime(2026, 11, 18, tzinfo=UTC)), "plain date"),
        (lambda: Created(queue_id=Q, day=date(1969, 1, 1), usage=Usage.CONTACT), "before 1970"),
        (lambda: created(blobs=((1, 10),)), "one of priority 0"),
        (lambda: created(blobs=((0, 10), (3, 10))), "priority is 0 to 2"),
        (lambda: BlobReplaced(queue_id=Q, day=DAY, priority=3, size=1), "priority is 0 to 2"),
        (lambda: BlobReplaced(queue_id=Q, day=DAY, priority=0, size=0), "size"),
        (lambda: BlobReplaced(queue_id=b"", day=DAY, priority=0, size=1), "queue id"),
        (lambda: BlobsDropped(queue_id=b"", day=DAY, priorities=(1,)), "queue id"),
        (lambda: BlobsDropped(queue_id=Q, day=DAY, priorities=()), "not none"),
        (lambda: BlobsDropped(queue_id=Q, day=DAY, priorities=(2, 1)), "in order"),
        (lambda: BlobsDropped(queue_id=Q, day=DAY, priorities=(1, 1)), "one of each"),
        (lambda: BlobsDropped(queue_id=Q, day=DAY, priorities=(-1,)), "priority is 0 to 2"),
        (lambda: BlobsDropped(queue_id=Q, day=DAY, priorities=(3,)), "priority is 0 to 2"),
    ],
)
def test_an_event_that_makes_no_sense_cannot_be_made(make: Any, says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        make()


# --- Properties ------------------------------------------------------------------------------------


@given(histories())
def test_the_fold_is_what_the_whole_history_says(history: list[Event]) -> None:
    first = history[0]
    assert isinstance(first, Created)
    naive = NaiveQueue(first)
    record = after(first)
    for event in history[1:]:
        assert naive.accepts(event)
        naive.events.append(event)
        record = after(Kept(record=record), event)
        assert record == naive.record()


@given(records(ids=st.just(Q), on=days), days, st.data())
def test_dates_move_forward_only_and_flags_stay(record: QueueRecord, day: date, data: st.DataObject) -> None:
    event = data.draw(happenings(Q, day))
    try:
        moved = apply(record, event).record
    except MisuseError:
        return
    assert moved is not None
    assert moved.updated_on >= record.updated_on
    assert moved.owner_seen_on >= record.owner_seen_on
    assert (moved.secured, moved.link_used, moved.suspended) >= (record.secured, record.link_used, record.suspended)


@given(
    records(ids=st.just(Q), on=days), days, st.lists(st.sampled_from([MessageSent, OwnerSeen, Secured]), max_size=12)
)
def test_dates_cost_one_write_a_day_and_record_at_most(
    record: QueueRecord, day: date, kinds: list[type[MessageSent | OwnerSeen | Secured]]
) -> None:
    writes = 0
    for kind in kinds:
        try:
            step = apply(record, kind(queue_id=Q, day=day))
        except MisuseError:
            continue
        assert step.record is not None
        state_changed = (step.record.secured, step.record.link_used) != (record.secured, record.link_used)
        assert step.write_due or not state_changed, "a change of state is always written"
        writes += step.write_due and not state_changed
        record = step.record
    assert writes <= 1


@given(usages, blob_sizes(), days, days)
def test_the_second_message_of_a_day_changes_nothing(
    usage: Usage, blobs: tuple[tuple[int, int], ...], born: date, day: date
) -> None:
    record = after(Created(queue_id=Q, day=born, usage=usage, blobs=blobs), MessageSent(queue_id=Q, day=day))
    again = apply(record, MessageSent(queue_id=Q, day=day))
    assert again.record is record
    assert not again.write_due


@given(histories(most=6), days, st.data(), policies)
def test_retention_does_not_depend_on_the_order_of_the_same_days_events(
    history: list[Event], day: date, data: st.DataObject, policy: RetentionPolicy
) -> None:
    before = after(*history)
    today = data.draw(days)
    same_day = data.draw(st.lists(happenings(Q, day), min_size=2, max_size=4))
    outcomes = set()
    for order in permutations(same_day):
        record = before
        try:
            for event in order:
                record = after(Kept(record=record), event)
        except MisuseError:
            # Some orders cannot happen, such as a message after the queue was suspended.
            continue
        decision = decide(record, today, policy)
        expiry = decision if isinstance(decision, Expire) else None
        outcomes.add((record.updated_on, record.owner_seen_on, record.secured, record.suspended, expiry))
    assume(outcomes)
    assert len(outcomes) == 1


@given(histories(), policies, days)
def test_what_is_written_is_enough_for_the_same_decisions(
    history: list[Event], policy: RetentionPolicy, today: date
) -> None:
    everything: QueueRecord | None = None
    written: QueueRecord | None = None
    for event in history:
        step = apply(everything, event)
        if step.write_due:
            written = apply(written, event).record
        everything = step.record
    assert everything is not None
    assert written is not None
    assert decide(written, today, policy) == decide(everything, today, policy)
    assert written.active_on == everything.active_on
    assert written.blobs == everything.blobs
