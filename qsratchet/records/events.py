"""What happens to a queue, and how it changes the record: one pure fold.

`apply` takes a record and an event and says what the record is now and whether a write is due.  Dates
move forward only.  A date is written when the rules of the queue's usage read it, so date writes come to one
a day and record at most; a change of anything else is always written.  This module knows no limit in days:
that is policy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from typing import TypeAlias, assert_never

from ..errors import MisuseError
from .record import LAST_PRIORITY, Blob, QueueRecord, Usage, require_date, require_queue_id

__all__ = [
    "BlobReplaced",
    "BlobsDropped",
    "Created",
    "Deleted",
    "Event",
    "Kept",
    "MessageSent",
    "OwnerSeen",
    "Secured",
    "Step",
    "Suspended",
    "apply",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Happened:
    queue_id: bytes
    day: date

    def __post_init__(self) -> None:
        require_queue_id(self.queue_id)
        require_date(self.day)


@dataclass(frozen=True, slots=True, kw_only=True)
class Created(_Happened):
    """The owner created the queue, with the sizes of its blobs by priority."""

    usage: Usage
    blobs: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        # An event that could not become a record must not reach the log, so it is made into one here.
        _created(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured(_Happened):
    """The queue got its sender's key.  Securing again is a retry; whether the key is the same is the host's check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSent(_Happened):
    """A message was accepted into the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerSeen(_Happened):
    """The owner subscribed to the queue, fetched from it or updated it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended(_Happened):
    """The owner stopped the queue: no more messages, what is in it can still be fetched.  May be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted(_Happened):
    """The queue is gone: its owner deleted it, or the host carried out an `Expire`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobReplaced(_Happened):
    """The owner stored a blob in place of the one with this priority, or again after it was evicted."""

    priority: int
    size: int

    def __post_init__(self) -> None:
        _Happened.__post_init__(self)
        Blob(priority=self.priority, size=self.size, added_on=self.day)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobsDropped(_Happened):
    """The host deleted these blobs, as a `DropBlobs` told it to."""

    priorities: tuple[int, ...]

    def __post_init__(self) -> None:
        _Happened.__post_init__(self)
        if not self.priorities or list(self.priorities) != sorted(set(self.priorities)):
            raise MisuseError("dropped priorities are in order, one of each, and not none")
        if self.priorities[0] < 0 or self.priorities[-1] > LAST_PRIORITY:
            raise MisuseError(f"a blob's priority is 0 to {LAST_PRIORITY}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a compacted log has in place of a queue's history: the record that came of it."""

    record: QueueRecord

    @property
    def queue_id(self) -> bytes:
        return self.record.queue_id


Event: TypeAlias = (
    Created | Secured | MessageSent | OwnerSeen | Suspended | Deleted | BlobReplaced | BlobsDropped | Kept
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The record after an event, `None` once it is deleted, and whether the event must be written now."""

    record: QueueRecord | None
    write_due: bool


def apply(record: QueueRecord | None, event: Event) -> Step:
    """Fold one event into the record of its queue, which is `None` before the queue is created.

    Raises `MisuseError` for an event that cannot happen to this queue; the host then refuses whoever
    asked for it.
    """
    if record is None:
        return Step(record=_first(event), write_due=True)
    if record.queue_id != event.queue_id:
        raise MisuseError("the event belongs to another queue than the record")
    match event:
        case MessageSent():
            _refuse_suspended(record, "takes no messages")
            return _moved(record, event.day, link_used=record.secured)
        case OwnerSeen():
            return _moved(record, event.day, owner=True)
        case Secured():
            _refuse_suspended(record, "is not secured any more")
            if record.usage is Usage.CONTACT:
                raise MisuseError("a contact address is never secured")
            return _moved(record, event.day, secured=True)
        case Suspended():
            return _moved(record, event.day, owner=True, suspended=True)
        case Deleted():
            return Step(record=None, write_due=True)
        case BlobReplaced():
            return _blob_replaced(record, event)
        case BlobsDropped():
            return _blobs_dropped(record, event)
        case Created() | Kept():
            raise MisuseError("the queue exists already; choose another id for a new one")
        case _:
            assert_never(event)


def _first(event: Event) -> QueueRecord:
    match event:
        case Created():
            return _created(event)
        case Kept():
            return event.record
        case _:
            raise MisuseError("there is no record of this queue: it was never created, or it is deleted")


def _created(event: Created) -> QueueRecord:
    blobs = tuple(Blob(priority=priority, size=size, added_on=event.day) for priority, size in event.blobs)
    return QueueRecord(
        queue_id=event.queue_id, usage=event.usage, updated_on=event.day, owner_seen_on=event.day, blobs=blobs
    )


def _moved(
    record: QueueRecord,
    day: date,
    *,
    owner: bool = False,
    secured: bool = False,
    link_used: bool = False,
    suspended: bool = False,
    blobs: tuple[Blob, ...] | None = None,
) -> Step:
    """Move the dates forward to `day` and set the flags that are given; nothing here ever clears a flag."""
    state_changed = (
        (secured and not record.secured)
        or (link_used and not record.link_used)
        or (suspended and not record.suspended)
        or (blobs is not None and blobs != record.blobs)
    )
    if not state_changed and day <= (record.owner_seen_on if owner else record.updated_on):
        # The path of nearly every message: somebody was here before on the same day.
        return Step(record=record, write_due=False)
    after = replace(
        record,
        updated_on=max(record.updated_on, day),
        owner_seen_on=max(record.owner_seen_on, day) if owner else record.owner_seen_on,
        secured=record.secured or secured,
        link_used=record.link_used or link_used,
        suspended=record.suspended or suspended,
        blobs=record.blobs if blobs is None else blobs,
    )
    return Step(record=after, write_due=state_changed or after.active_on > record.active_on)


def _blob_replaced(record: QueueRecord, event: BlobReplaced) -> Step:
    _refuse_suspended(record, "has no use for blobs")
    if record.secured:
        raise MisuseError("the queue is secured, so its link has done its work; its blobs are not replaced any more")
    blobs = {blob.priority: blob for blob in record.blobs}
    old = blobs.get(event.priority)
    added_on = event.day if old is None else max(event.day, old.added_on)
    blobs[event.priority] = Blob(priority=event.priority, size=event.size, added_on=added_on)
    if 0 not in blobs:
        raise MisuseError("the queue has no blob of priority 0; store that one first")
    return _moved(record, event.day, owner=True, blobs=tuple(blobs[priority] for priority in sorted(blobs)))


def _blobs_dropped(record: QueueRecord, event: BlobsDropped) -> Step:
    # Deleting is the service's own act, so it moves no date.
    dropped = set(event.priorities)
    if not dropped <= {blob.priority for blob in record.blobs}:
        raise MisuseError("a blob that is to be dropped is not in the record; drop what the decision lists, once")
    blobs = tuple(blob for blob in record.blobs if blob.priority not in dropped)
    return Step(record=replace(record, blobs=blobs), write_due=True)


def _refuse_suspended(record: QueueRecord, why: str) -> None:
    if record.suspended:
        raise MisuseError(f"a suspended queue {why}; refuse the request")
