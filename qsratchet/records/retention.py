"""What a service may delete: pure decisions over records, each with the rule that made it.

`sweep` looks at every record once and remembers none; `evict` frees bytes under pressure and remembers only
what it will evict.  Neither changes anything: the host deletes, then applies and writes the event that
`done` gives.  This module knows no log and no storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from enum import Enum
from heapq import heappop, heappush
from typing import TypeAlias

from ..errors import MisuseError
from .events import BlobsDropped, Deleted
from .policy import DEFAULT_POLICY, BlobsGo, RetentionPolicy, keep_from
from .record import LAST_PRIORITY, Blob, QueueRecord, Usage, require_date

__all__ = ["Decision", "DropBlobs", "Eviction", "Expire", "Rule", "decide", "evict", "sweep"]


class Rule(Enum):
    """Why something goes."""

    #: A messaging queue was not secured within `unsecured_days` of its last use.
    UNSECURED = 1
    #: The owner of a contact address was not seen for `owner_days`.
    OWNER_ABSENT = 2
    #: The owner of a suspended queue was not seen for `suspended_days`.
    SUSPENDED = 3
    #: A messaging queue is secured, and the policy drops blobs then.
    SECURED = 4
    #: A message was sent to a secured messaging queue.
    LINK_USED = 5
    #: The host needs the place.
    PRESSURE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire:
    """Delete the queue with its messages and blobs: the rule's limit has passed since `idle_since`."""

    queue_id: bytes
    rule: Rule
    idle_since: date

    def done(self, day: date) -> Deleted:
        """Return the event to apply and write once the host has deleted."""
        return Deleted(queue_id=self.queue_id, day=day)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropBlobs:
    """Delete these blobs and keep the queue."""

    queue_id: bytes
    rule: Rule
    blobs: tuple[Blob, ...]

    def done(self, day: date) -> BlobsDropped:
        """Return the event to apply and write once the host has deleted."""
        return BlobsDropped(queue_id=self.queue_id, day=day, priorities=tuple(blob.priority for blob in self.blobs))


Decision: TypeAlias = Expire | DropBlobs


def sweep(records: Iterable[QueueRecord], today: date, policy: RetentionPolicy = DEFAULT_POLICY) -> Iterator[Decision]:
    """Decide over every record, in the order given, at most one decision each, lazily."""
    require_date(today)
    return _sweep(records, today, policy)


def decide(record: QueueRecord, today: date, policy: RetentionPolicy = DEFAULT_POLICY) -> Decision | None:
    """Decide over one record: what a host asks after a step, so that blobs go at once and not with the next sweep."""
    return next(sweep((record,), today, policy), None)


def _sweep(records: Iterable[QueueRecord], today: date, policy: RetentionPolicy) -> Iterator[Decision]:
    # The limits become dates once, so that a record costs a few attribute reads and one comparison.
    unsecured = keep_from(today, policy.unsecured_days)
    owner = keep_from(today, policy.owner_days)
    suspended = date.min if policy.suspended_days is None else keep_from(today, policy.suspended_days)
    at_securing = policy.blobs_go is BlobsGo.AT_SECURING
    blobs_rule = Rule.SECURED if at_securing else Rule.LINK_USED
    messaging = Usage.MESSAGING
    for record in records:
        if record.suspended and record.active_on < suspended:
            # Nobody can send to a suspended queue, so that its last use was the owner's.
            yield Expire(queue_id=record.queue_id, rule=Rule.SUSPENDED, idle_since=record.active_on)
        elif record.usage is messaging:
            if not record.secured:
                if record.updated_on < unsecured:
                    yield Expire(queue_id=record.queue_id, rule=Rule.UNSECURED, idle_since=record.updated_on)
            elif record.blobs and (at_securing or record.link_used):
                yield DropBlobs(queue_id=record.queue_id, rule=blobs_rule, blobs=record.blobs)
        elif record.owner_seen_on < owner:
            yield Expire(queue_id=record.queue_id, rule=Rule.OWNER_ABSENT, idle_since=record.owner_seen_on)


# --- Pressure --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """What to evict, in order, what that frees, and whether it is as much as was asked for."""

    decisions: tuple[DropBlobs, ...]
    bytes_freed: int
    enough: bool


def evict(records: Iterable[QueueRecord], bytes_to_free: int) -> Eviction:
    """Choose blobs to evict: the highest priority number first, in it the newest first, never priority 0.

    New blobs go first because an attack is new: what was stored before it belongs to real users.  Blobs of the
    same day go in the order of their queue ids, so that the choice does not depend on the order of the
    records.  One pass; memory grows with what is evicted and not with the records.
    """
    if bytes_to_free < 0:
        raise MisuseError(f"bytes_to_free is not negative, and this is {bytes_to_free}")
    shelves = [_Shelf() for _ in range(LAST_PRIORITY)]
    for record in records:
        # A record has its blobs in the order of priority, and priority 0 first: that one is never looked at.
        evictable = record.blobs[1:]
        if not evictable:
            continue
        for blob in evictable:
            shelves[LAST_PRIORITY - blob.priority].add(record.queue_id, blob)
        # What the shelves before it hold, a shelf need not provide; that sum grows up to the need and stays there.
        needed = bytes_to_free
        for shelf in shelves:
            shelf.trim(needed)
            needed -= shelf.held
    freed = sum(shelf.held for shelf in shelves)
    decisions = [decision for shelf in shelves for decision in shelf.decisions()]
    return Eviction(decisions=tuple(decisions), bytes_freed=freed, enough=freed >= bytes_to_free)


class _Shelf:
    """The blobs of one priority that are to go: the newest ones whose sizes are just enough together."""

    __slots__ = ("_heap", "held")

    def __init__(self) -> None:
        # The one to keep first is on top: the oldest, and of a day the one with the greatest queue id.
        self._heap: list[tuple[int, _Descending, Blob]] = []
        self.held = 0

    def add(self, queue_id: bytes, blob: Blob) -> None:
        heappush(self._heap, (blob.added_on.toordinal(), _Descending(queue_id), blob))
        self.held += blob.size

    def trim(self, needed: int) -> None:
        """Let go of what is not needed, given that `needed` bytes are to be freed from this shelf."""
        heap = self._heap
        while heap and self.held - heap[0][2].size >= needed:
            self.held -= heappop(heap)[2].size

    def decisions(self) -> Iterator[DropBlobs]:
        for _, queue_id, blob in sorted(self._heap, reverse=True):
            yield DropBlobs(queue_id=queue_id.value, rule=Rule.PRESSURE, blobs=(blob,))


class _Descending:
    """A queue id that sorts backwards, as a heap has no other way to say so."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        self.value = value

    def __lt__(self, other: _Descending) -> bool:
        return self.value > other.value
