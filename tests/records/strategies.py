"""Generated queues for the tests of records: histories that could have happened, and records of any shape."""

from __future__ import annotations

from datetime import date, timedelta

from hypothesis import strategies as st

from qsratchet.errors import MisuseError
from qsratchet.records import (
    Blob,
    BlobReplaced,
    BlobsDropped,
    BlobsGo,
    Created,
    Deleted,
    Event,
    MessageLimits,
    MessageSent,
    OwnerSeen,
    QueueRecord,
    RetentionPolicy,
    Secured,
    Suspended,
    Usage,
    apply,
)

FIRST = date(2026, 1, 1)

#: Days close enough together that limits are met on the day, a day early and a day late.
days = st.integers(0, 40).map(lambda offset: FIRST + timedelta(days=offset))
any_day = st.dates(min_value=date(1970, 1, 1))
queue_ids = st.binary(min_size=1, max_size=255)
usages = st.sampled_from(Usage)
sizes = st.one_of(st.integers(1, 5000), st.just(0xFFFFFFFF))

policies = st.builds(
    RetentionPolicy,
    unsecured_days=st.integers(1, 30),
    owner_days=st.integers(1, 30),
    suspended_days=st.none() | st.integers(1, 30),
    blobs_go=st.sampled_from(BlobsGo),
    messaging=st.just(MessageLimits(days=21, messages=128)),
)


@st.composite
def blob_sizes(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    """What `Created` takes: nothing, or priority 0 and any of the others."""
    priorities = draw(st.sampled_from([(), (0,), (0, 1), (0, 2), (0, 1, 2)]))
    return tuple((priority, draw(sizes)) for priority in priorities)


@st.composite
def records(
    draw: st.DrawFn, ids: st.SearchStrategy[bytes] = queue_ids, on: st.SearchStrategy[date] = any_day
) -> QueueRecord:
    """Any record that is allowed to exist, whether or not a history leads to it."""
    usage = draw(usages)
    secured = usage is Usage.MESSAGING and draw(st.booleans())
    seen, updated = sorted([draw(on), draw(on)])
    return QueueRecord(
        queue_id=draw(ids),
        usage=usage,
        updated_on=updated,
        owner_seen_on=seen,
        secured=secured,
        link_used=secured and draw(st.booleans()),
        suspended=draw(st.booleans()),
        blobs=tuple(Blob(priority=priority, size=size, added_on=draw(on)) for priority, size in draw(blob_sizes())),
    )


def happenings(queue_id: bytes, day: date) -> st.SearchStrategy[Event]:
    """Something that happens to an existing queue on this day; it may be refused."""
    return st.one_of(
        st.sampled_from([MessageSent, OwnerSeen, Secured, Suspended]).map(
            lambda kind: kind(queue_id=queue_id, day=day)
        ),
        st.builds(BlobReplaced, queue_id=st.just(queue_id), day=st.just(day), priority=st.integers(0, 2), size=sizes),
        st.sampled_from([(1,), (2,), (1, 2), (0, 1, 2), (0,)]).map(
            lambda priorities: BlobsDropped(queue_id=queue_id, day=day, priorities=priorities)
        ),
    )


@st.composite
def histories(draw: st.DrawFn, queue_id: bytes = b"queue", most: int = 12) -> list[Event]:
    """Events of one queue that were all accepted, from its creation on, on days that may also go back."""
    history: list[Event] = [Created(queue_id=queue_id, day=draw(days), usage=draw(usages), blobs=draw(blob_sizes()))]
    record = apply(None, history[0]).record
    for _ in range(draw(st.integers(0, most))):
        event = draw(days.flatmap(lambda day: happenings(queue_id, day)))
        try:
            record = apply(record, event).record
        except MisuseError:
            continue
        history.append(event)
    return history


@st.composite
def interleaved(draw: st.DrawFn, queues: int = 4) -> list[Event]:
    """Histories of several queues in one sequence, some of them deleted at the end, none of them reordered."""
    waiting = []
    for number in range(draw(st.integers(1, queues))):
        queue_id = b"queue %d" % number
        history = draw(histories(queue_id, most=8))
        if draw(st.booleans()):
            history.append(Deleted(queue_id=queue_id, day=draw(days)))
        waiting.append(history)
    turns = draw(st.permutations([index for index, history in enumerate(waiting) for _ in history]))
    return [waiting[index].pop(0) for index in turns]
