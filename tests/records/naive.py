"""The rules of retention in the plainest words: a queue is the list of all that happened to it.

Nothing here is folded, cached or bounded, and nothing is taken from the code under test but its value
types.  The tests hold the real thing against this.
"""

from __future__ import annotations

from datetime import date

from qsratchet.records import (
    Blob,
    BlobReplaced,
    BlobsDropped,
    BlobsGo,
    Created,
    Decision,
    DropBlobs,
    Event,
    Expire,
    Kept,
    MessageSent,
    OwnerSeen,
    QueueRecord,
    RetentionPolicy,
    Rule,
    Secured,
    Suspended,
    Usage,
)


class NaiveQueue:
    """A queue that was not deleted, as the list of its accepted events."""

    def __init__(self, created: Created) -> None:
        self.queue_id = created.queue_id
        self.usage = created.usage
        self.events: list[Event] = [created]

    def accepts(self, event: Event) -> bool:
        """Say whether the event can happen, by the table of docs/retention.md."""
        has = {blob.priority for blob in self.blobs()}
        match event:
            case MessageSent():
                return not self.suspended()
            case Secured():
                return not self.suspended() and self.usage is Usage.MESSAGING
            case BlobReplaced():
                return not self.suspended() and not self.secured() and (0 in has or event.priority == 0)
            case BlobsDropped():
                left = has - set(event.priorities)
                return set(event.priorities) <= has and (0 in left or not left)
            case Created() | Kept():
                return False
            case _:
                return True

    def secured(self) -> bool:
        return any(isinstance(event, Secured) for event in self.events)

    def suspended(self) -> bool:
        return any(isinstance(event, Suspended) for event in self.events)

    def link_used(self) -> bool:
        kinds = [type(event) for event in self.events]
        return Secured in kinds and MessageSent in kinds[kinds.index(Secured) :]

    def updated_on(self) -> date:
        return max(event.day for event in self.events if not isinstance(event, BlobsDropped | Kept))

    def owner_seen_on(self) -> date:
        owners = (Created, OwnerSeen, Suspended, BlobReplaced)
        return max(event.day for event in self.events if isinstance(event, owners))

    def active_on(self) -> date:
        return self.updated_on() if self.usage is Usage.MESSAGING else self.owner_seen_on()

    def blobs(self) -> tuple[Blob, ...]:
        blobs: dict[int, Blob] = {}
        for event in self.events:
            match event:
                case Created():
                    for priority, size in event.blobs:
                        blobs[priority] = Blob(priority=priority, size=size, added_on=event.day)
                case BlobReplaced():
                    before = blobs[event.priority].added_on if event.priority in blobs else event.day
                    added_on = max(before, event.day)
                    blobs[event.priority] = Blob(priority=event.priority, size=event.size, added_on=added_on)
                case BlobsDropped():
                    for priority in event.priorities:
                        del blobs[priority]
                case _:
                    pass
        return tuple(blobs[priority] for priority in sorted(blobs))

    def record(self) -> QueueRecord:
        return QueueRecord(
            queue_id=self.queue_id,
            usage=self.usage,
            updated_on=self.updated_on(),
            owner_seen_on=self.owner_seen_on(),
            secured=self.secured(),
            link_used=self.link_used(),
            suspended=self.suspended(),
            blobs=self.blobs(),
        )

    def decide(self, today: date, policy: RetentionPolicy) -> Decision | None:
        idle_since = self.active_on()
        # The last use may have been in the last second of its day, and the sweep runs in the first one of today.
        full_days = (today - idle_since).days - 1
        if self.suspended() and policy.suspended_days is not None and full_days >= policy.suspended_days:
            return Expire(queue_id=self.queue_id, rule=Rule.SUSPENDED, idle_since=idle_since)
        if self.usage is Usage.CONTACT:
            if full_days >= policy.owner_days:
                return Expire(queue_id=self.queue_id, rule=Rule.OWNER_ABSENT, idle_since=idle_since)
            return None
        if not self.secured():
            if full_days >= policy.unsecured_days:
                return Expire(queue_id=self.queue_id, rule=Rule.UNSECURED, idle_since=idle_since)
            return None
        if self.blobs() and policy.blobs_go is BlobsGo.AT_SECURING:
            return DropBlobs(queue_id=self.queue_id, rule=Rule.SECURED, blobs=self.blobs())
        if self.blobs() and self.link_used():
            return DropBlobs(queue_id=self.queue_id, rule=Rule.LINK_USED, blobs=self.blobs())
        return None


def evict(records: list[QueueRecord], bytes_to_free: int) -> tuple[list[DropBlobs], int]:
    """Sort everything, then take from the front until it is enough."""
    candidates = [
        (-blob.priority, -blob.added_on.toordinal(), record.queue_id, blob)
        for record in records
        for blob in record.blobs
        if blob.priority > 0
    ]
    taken: list[DropBlobs] = []
    freed = 0
    for _, _, queue_id, blob in sorted(candidates, key=lambda candidate: candidate[:3]):
        if freed >= bytes_to_free:
            break
        taken.append(DropBlobs(queue_id=queue_id, rule=Rule.PRESSURE, blobs=(blob,)))
        freed += blob.size
    return taken, freed
