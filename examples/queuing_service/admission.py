"""Who may ask for what: it reads the file and changes nothing, so it is asked with and without the lock.

What it says without the lock is a guess that saves work; what it says under the lock counts.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Final, assert_never

from qsratchet.records import QueueRecord, RetentionPolicy, Usage

from .protocol import (
    Accepted,
    AskBlobs,
    AskHead,
    Create,
    Delete,
    Enqueue,
    Fault,
    Fetch,
    OfferKey,
    Refusal,
    Request,
    Reset,
    Secure,
    StoreBlobs,
    Suspend,
)

#: A request's number may be so far from the service's clock, in microseconds.
CLOCK_WINDOW: Final = 300 * 1_000_000
REFUSED: Final = Refusal(Fault.AUTH, "there is no such queue, or it is not yours")

_COLUMNS: Final = "id, queue_id, sender_id, owner_key, sender_key, request_digest, generation, state, held, record"


@dataclass(slots=True, kw_only=True)
class Queue:
    """A row of `queues`."""

    id: int
    queue_id: bytes
    sender_id: bytes
    owner_key: bytes
    sender_key: bytes | None
    request_digest: bytes
    generation: int
    state: bytes = field(repr=False)
    held: int
    record: bytes


def admit(database: sqlite3.Connection, request: Request, now: float) -> Queue | None:
    """The queue that the key may use in this way; None if the operation is about one that is not there (any more)."""
    clock = int(now * 1_000_000)
    if abs(request.number - clock) > CLOCK_WINDOW:
        raise Refusal(Fault.CLOCK, "the number is far from the service's clock: set yours, sign anew", clock)
    queue = _authorised(database, request)
    row = database.execute(
        "SELECT number FROM callers WHERE target = ? AND key = ?", (request.target, request.key)
    ).fetchone()
    if row is not None and request.number <= row[0]:
        raise Refusal(Fault.REPLAYED, "this number or a later one was used: sign anew with a greater one", row[0])
    return queue


def accepted_before(database: sqlite3.Connection, request: Request, enqueue: Enqueue) -> Accepted | None:
    """The answer to a message that its sender repeats, because the answer was lost."""
    last = "SELECT message_id, seq FROM callers WHERE target = ? AND key = ?"
    row = database.execute(last, (request.target, request.key)).fetchone()
    return Accepted(seq=row[1]) if row is not None and row[0] == enqueue.message_id else None


def check_room(queue: Queue, retention: RetentionPolicy) -> None:
    """Whether the queue takes one more message."""
    record = QueueRecord.decode(queue.record)
    if record.suspended:
        raise Refusal(Fault.SUSPENDED, "the queue takes no more messages")
    if not retention.messages(record.usage).accepts(queue.held):
        raise Refusal(Fault.QUOTA, "the queue is full until its owner reads", queue.held)


def find(database: sqlite3.Connection, column: str, id: bytes) -> Queue | None:
    """The queue with this `queue_id` or `sender_id`."""
    row = database.execute(f"SELECT {_COLUMNS} FROM queues WHERE {column} = ?", (id,)).fetchone()
    return None if row is None else Queue(**dict(zip(_COLUMNS.split(", "), row, strict=True)))


def _authorised(database: sqlite3.Connection, request: Request) -> Queue | None:
    operation, key = request.operation, request.key
    match operation:
        case Create():
            queue = find(database, "queue_id", request.target)
            allowed = queue is None or queue.owner_key == key
        case Enqueue():
            queue = find(database, "sender_id", request.target)
            allowed = queue is not None and queue.sender_key in (None, key)
        case AskBlobs():
            queue = find(database, "sender_id", request.target)
            allowed = queue is not None and (_usage(queue) is Usage.CONTACT or queue.sender_key == key)
        case Secure():
            queue = find(database, "sender_id", request.target)
            allowed = queue is not None and queue.sender_key in (None, key) and operation.sender_key == key
            if queue is None:
                queue = find(database, "queue_id", request.target)
                allowed = queue is not None and queue.owner_key == key
        case Delete():
            queue = find(database, "queue_id", request.target)
            # Its owner may repeat a deletion: the number of the first one is still here.
            known = "SELECT 1 FROM callers WHERE target = ? AND key = ?"
            allowed = (
                queue.owner_key == key
                if queue is not None
                else database.execute(known, (request.target, key)).fetchone() is not None
            )
        case Fetch() | AskHead() | OfferKey() | Suspend() | StoreBlobs() | Reset():
            queue = find(database, "queue_id", request.target)
            allowed = queue is not None and queue.owner_key == key
        case _:
            assert_never(operation)
    if not allowed:
        raise REFUSED
    return queue


def _usage(queue: Queue) -> Usage:
    return QueueRecord.decode(queue.record).usage
