"""What expires and what is evicted: the decisions are of the records machine, and are carried out here.

Each decision is one transaction.  INIT and UPDATE frames stay until they are acknowledged or their queue goes: without
them nothing after them opens.  This module knows the tables; it decides nothing itself.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Final

from qsratchet import FrameType
from qsratchet.records import DropBlobs, Expire, QueueRecord, RetentionPolicy, apply, decide, evict

log = logging.getLogger(__name__)

_PAGE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep removed."""

    queues: int
    messages: int
    blobs: int


def sweep_database(
    database: sqlite3.Connection, today: date, policy: RetentionPolicy, *, blob_bytes: int | None = None
) -> Swept:
    """Delete what may go today; then, if blobs take more than `blob_bytes`, evict as many as needed."""
    queues = blobs = 0
    for id, record in _records(database):
        decision = decide(record, today, policy)
        if decision is not None:
            expired, dropped = _carry_out(database, id, today, policy)
            queues, blobs = queues + expired, blobs + dropped
    messages = sum(_expire_messages(database, id, record, today, policy) for id, record in _records(database))
    if blob_bytes is not None:
        (held,) = database.execute("SELECT coalesce(sum(length(data)), 0) FROM blobs").fetchone()
        if held > blob_bytes:
            blobs += _evict(database, held - blob_bytes, today)
    log.info("swept: %d queues, %d messages, %d blobs", queues, messages, blobs)
    return Swept(queues=queues, messages=messages, blobs=blobs)


def remove_queue(database: sqlite3.Connection, id: int) -> None:
    """Remove a queue's row and all that belongs to it, within the caller's transaction."""
    for table, column in (("frames", "queue"), ("blobs", "queue"), ("queues", "id")):
        database.execute(f"DELETE FROM {table} WHERE {column} = ?", (id,))


def drop_blobs(
    database: sqlite3.Connection, id: int, record: QueueRecord, decision: DropBlobs, today: date
) -> QueueRecord:
    """Delete the blobs that a decision names, within the caller's transaction; return the record after that."""
    for blob in decision.blobs:
        database.execute("DELETE FROM blobs WHERE queue = ? AND priority = ?", (id, blob.priority))
    after = apply(record, decision.done(today)).record
    assert after is not None
    return after


def forget_callers(database: sqlite3.Connection, before: int) -> None:
    """Forget the numbers before this one of callers without a queue: the clock refuses such numbers anyway."""
    database.execute(
        "DELETE FROM callers WHERE number < ? AND NOT EXISTS (SELECT 1 FROM queues WHERE queue_id = target "
        "OR (sender_id = target AND sender_key = key))",
        (before,),
    )


def _records(database: sqlite3.Connection) -> Iterator[tuple[int, QueueRecord]]:
    """Every record, in pages, so that memory does not grow with the queues and rows may go meanwhile."""
    last = 0
    while True:
        rows = database.execute(
            "SELECT id, record FROM queues WHERE id > ? ORDER BY id LIMIT ?", (last, _PAGE)
        ).fetchall()
        if not rows:
            return
        for id, record in rows:
            yield id, QueueRecord.decode(record)
        last = rows[-1][0]


def _carry_out(database: sqlite3.Connection, id: int, today: date, policy: RetentionPolicy) -> tuple[int, int]:
    """Decide again under the lock, because the queue may have been used since; how many queues and blobs went."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        row = database.execute("SELECT record FROM queues WHERE id = ?", (id,)).fetchone()
        record = None if row is None else QueueRecord.decode(row[0])
        decision = None if record is None else decide(record, today, policy)
        if isinstance(decision, Expire):
            remove_queue(database, id)
            return 1, 0
        if isinstance(decision, DropBlobs) and record is not None:
            after = drop_blobs(database, id, record, decision, today)
            database.execute("UPDATE queues SET record = ? WHERE id = ?", (after.encode(), id))
            return 0, len(decision.blobs)
        return 0, 0


def _expire_messages(
    database: sqlite3.Connection, id: int, record: QueueRecord, today: date, policy: RetentionPolicy
) -> int:
    oldest = policy.messages(record.usage).oldest_kept(today).toordinal()
    old = (id, int(FrameType.DATA), oldest)
    if (
        database.execute("SELECT 1 FROM frames WHERE queue = ? AND type = ? AND day < ? LIMIT 1", old).fetchone()
        is None
    ):
        return 0
    with database:
        database.execute("BEGIN IMMEDIATE")
        gone = database.execute("DELETE FROM frames WHERE queue = ? AND type = ? AND day < ?", old).rowcount
        database.execute("UPDATE queues SET held = held - ? WHERE id = ?", (gone, id))
    return gone


def _evict(database: sqlite3.Connection, bytes_to_free: int, today: date) -> int:
    eviction = evict((record for _, record in _records(database)), bytes_to_free)
    gone = 0
    for decision in eviction.decisions:
        with database:
            database.execute("BEGIN IMMEDIATE")
            row = database.execute("SELECT id, record FROM queues WHERE queue_id = ?", (decision.queue_id,)).fetchone()
            record = None if row is None else QueueRecord.decode(row[1])
            # The owner may have stored another blob in this place since the choice was made: that one stays.
            if record is not None and set(decision.blobs) <= set(record.blobs):
                after = drop_blobs(database, row[0], record, decision, today)
                database.execute("UPDATE queues SET record = ? WHERE id = ?", (after.encode(), row[0]))
                gone += len(decision.blobs)
    if not eviction.enough:
        log.warning("evicting all blobs that may go frees %d bytes, %d are needed", eviction.bytes_freed, bytes_to_free)
    return gone
