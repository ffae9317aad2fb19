"""What the service does with a request, in the SQLite file.  It knows no socket, no clock and no signature.

**The new state and the frames are one transaction, and an answer leaves after its commit.**  Many requests share
a commit (that is what makes durability cheap); each has a savepoint of its own, so that a refused one leaves
nothing behind but its number.  Writers of several processes take turns by SQLite's lock, and the
generation in each write says that nobody came between.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, assert_never

from qsratchet import (
    CreationRequest,
    Enqueuer,
    Frame,
    FrameType,
    MisuseError,
    QSRatchetError,
    RejectedError,
    UpdatePolicy,
)
from qsratchet.records import (
    DEFAULT_POLICY,
    BlobReplaced,
    Created,
    Deleted,
    DropBlobs,
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

from .database import BUSY_TIMEOUT, checkpoint, open_database
from .protocol import (
    Accepted,
    Answer,
    AskBlobs,
    AskHead,
    BlobsGiven,
    Create,
    Delete,
    Done,
    Enqueue,
    Fault,
    Fetch,
    Fetched,
    HeadGiven,
    OfferKey,
    Refusal,
    Remaining,
    Request,
    Reset,
    Secure,
    StoreBlobs,
    Suspend,
)
from .retention import Swept, drop_blobs, forget_callers, remove_queue, sweep_database

log = logging.getLogger(__name__)

#: A request's number may be so far from the service's clock, in microseconds.
CLOCK_WINDOW: Final = 300 * 1_000_000
#: A fetch stops after so many bytes, so that an answer is bounded; one frame always fits.
FETCH_BYTES: Final = 1 << 20
#: After so many commits the log is emptied, and with it the old keys in it.
CHECKPOINT_EVERY: Final = 1_000

_COLUMNS: Final = "id, queue_id, sender_id, owner_key, sender_key, request_digest, generation, state, held, record"
_REFUSED: Final = Refusal(Fault.AUTH, "there is no such queue, or it is not yours")
_FULL: Final = Refusal(Fault.FULL, "the disk is full; nothing happened; fetching still works and frees room")
_BUSY: Final = Refusal(Fault.BUSY, "the database is locked; nothing happened; try again")
_FAILED: Final = Refusal(Fault.FAILED, "the service failed and does not know how far it came; try again")


class Conflict(Exception):
    """A state was written meanwhile by somebody else: the generation is not the one that was loaded."""


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
    state: bytes
    held: int
    record: bytes


class Storage:
    """One SQLite file.  One thread uses an object at a time; other processes may have their own on the same file."""

    def __init__(
        self,
        path: Path,
        service_id: bytes,
        *,
        updates: UpdatePolicy | None = None,
        retention: RetentionPolicy = DEFAULT_POLICY,
        max_pages: int | None = None,
        busy_timeout: int = BUSY_TIMEOUT,
        machine: type[Enqueuer] = Enqueuer,
    ) -> None:
        self.service_id: Final = service_id
        self.retention: Final = retention
        self._updates = updates or UpdatePolicy()
        self._machine = machine
        self.database: Final = open_database(path, service_id, max_pages=max_pages, busy_timeout=busy_timeout)
        self._commits = 0

    def close(self) -> None:
        try:
            checkpoint(self.database)
        finally:
            self.database.close()

    def sweep(self, now: float, *, blob_bytes: int | None = None) -> Swept:
        """Delete what may go by now, and blobs beyond `blob_bytes`."""
        swept = sweep_database(self.database, _day(now), self.retention, blob_bytes=blob_bytes)
        forget_callers(self.database, int(now * 1_000_000) - CLOCK_WINDOW)
        checkpoint(self.database)
        return swept

    def answer_all(self, requests: Sequence[Request], now: float) -> list[Answer | Refusal]:
        """Carry out requests in one transaction; when this returns, what was done is on the disk."""
        try:
            self.database.execute("BEGIN IMMEDIATE")
            answers = [self._answer(request, now) for request in requests]
            self.database.execute("COMMIT")
        except sqlite3.Error as error:
            if self.database.in_transaction:
                self.database.execute("ROLLBACK")
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code != sqlite3.SQLITE_BUSY and len(requests) > 1:
                # One request may have filled the disk: the others get a transaction each.
                return [answer for request in requests for answer in self.answer_all([request], now)]
            log.warning("%s and %d more: %s", requests[0].describe(), len(requests) - 1, error)
            return [{sqlite3.SQLITE_FULL: _FULL, sqlite3.SQLITE_BUSY: _BUSY}.get(code, _FAILED)] * len(requests)
        except BaseException:
            if self.database.in_transaction:
                self.database.execute("ROLLBACK")
            raise
        self._commits += 1
        if self._commits % CHECKPOINT_EVERY == 0:
            checkpoint(self.database)
        return answers

    def _answer(self, request: Request, now: float) -> Answer | Refusal:
        try:
            queue = self._admit(request, now)
        except Refusal as refusal:
            return refusal
        self.database.execute("SAVEPOINT request")
        answer: Answer | Refusal
        try:
            answer = self._carry_out(request, queue, now)
        except Refusal as refusal:
            answer = refusal
        except Conflict:
            answer = _BUSY
        except (MisuseError, RejectedError) as error:
            answer = Refusal(Fault.REJECTED, str(error))
        except QSRatchetError as error:
            log.error("%s: %s", request.describe(), error)
            answer = _FAILED
        if isinstance(answer, Refusal):
            self.database.execute("ROLLBACK TO request")
        self.database.execute("RELEASE request")
        return answer

    # --- who may ask -------------------------------------------------------------------------------

    def _admit(self, request: Request, now: float) -> Queue | None:
        """Find the queue that the key may use in this way, and take the number, which then is used whatever follows."""
        clock = int(now * 1_000_000)
        if abs(request.number - clock) > CLOCK_WINDOW:
            raise Refusal(Fault.CLOCK, "the number is far from the service's clock: set yours, sign anew", clock)
        queue = self._authorised(request)
        row = self.database.execute(
            "SELECT number FROM callers WHERE target = ? AND key = ?", (request.target, request.key)
        ).fetchone()
        if row is not None and request.number <= row[0]:
            raise Refusal(Fault.REPLAYED, "this number or a later one was used: sign anew with a greater one", row[0])
        if isinstance(request.operation, AskBlobs):
            return queue  # It changes nothing and anybody may repeat it, so there is nothing to remember.
        self.database.execute(
            "INSERT INTO callers (target, key, number) VALUES (?, ?, ?) "
            "ON CONFLICT (target, key) DO UPDATE SET number = excluded.number",
            (request.target, request.key, request.number),
        )
        return queue

    def _authorised(self, request: Request) -> Queue | None:
        """The queue, if this key may do this to it; None for an operation on a queue that is not there (any more)."""
        operation, key = request.operation, request.key
        match operation:
            case Create():
                queue = self._find("queue_id", request.target)
                allowed = queue is None or queue.owner_key == key
            case Enqueue():
                queue = self._find("sender_id", request.target)
                allowed = queue is not None and queue.sender_key in (None, key)
            case AskBlobs():
                queue = self._find("sender_id", request.target)
                allowed = queue is not None and (_usage(queue) is Usage.CONTACT or queue.sender_key == key)
            case Secure():
                queue = self._find("sender_id", request.target)
                allowed = queue is not None and queue.sender_key in (None, key) and operation.sender_key == key
                if queue is None:
                    queue = self._find("queue_id", request.target)
                    allowed = queue is not None and queue.owner_key == key
            case Delete():
                queue = self._find("queue_id", request.target)
                # Its owner may repeat a deletion: the number of the first one is still here.
                known = "SELECT 1 FROM callers WHERE target = ? AND key = ?"
                allowed = (
                    queue.owner_key == key
                    if queue is not None
                    else self.database.execute(known, (request.target, key)).fetchone() is not None
                )
            case Fetch() | AskHead() | OfferKey() | Suspend() | StoreBlobs() | Reset():
                queue = self._find("queue_id", request.target)
                allowed = queue is not None and queue.owner_key == key
            case _:
                assert_never(operation)
        if not allowed:
            raise _REFUSED
        return queue

    def _find(self, column: str, id: bytes) -> Queue | None:
        row = self.database.execute(f"SELECT {_COLUMNS} FROM queues WHERE {column} = ?", (id,)).fetchone()
        return None if row is None else Queue(**dict(zip(_COLUMNS.split(", "), row, strict=True)))

    # --- what is done ------------------------------------------------------------------------------

    def _carry_out(self, request: Request, queue: Queue | None, now: float) -> Answer:
        today = _day(now)
        operation = request.operation
        if isinstance(operation, Create):
            return self._create(request, operation, queue, now, today)
        if isinstance(operation, Delete):
            if queue is not None:
                apply(QueueRecord.decode(queue.record), Deleted(queue_id=queue.queue_id, day=today))
                remove_queue(self.database, queue.id)
            return Done()
        assert queue is not None
        match operation:
            case Enqueue():
                return self._enqueue(request, operation, queue, now, today)
            case Fetch():
                return self._fetch(operation, queue, today)
            case AskHead():
                return HeadGiven(head=self._load(queue).head(operation.nonce))
            case OfferKey():
                machine = self._load(queue)
                frames = machine.accept_offer(operation.offer, now=int(now))
                if frames:
                    self._happen(queue, OwnerSeen(queue_id=queue.queue_id, day=today))
                    self._write(queue, machine, frames, today)
                return Done()
            case Suspend():
                self._happen(queue, Suspended(queue_id=queue.queue_id, day=today))
                return Remaining(messages=queue.held)
            case Secure():
                return self._secure(operation, queue, today)
            case StoreBlobs():
                for priority, blob in sorted(operation.blobs.items()):
                    event = BlobReplaced(queue_id=queue.queue_id, day=today, priority=priority, size=len(blob))
                    self._happen(queue, event)
                self._put_blobs(queue.id, operation)
                return Done()
            case AskBlobs():
                return self._blobs(queue)
            case Reset():
                return self._reset(operation, queue, now, today)
            case _:
                assert_never(operation)

    def _create(self, request: Request, create: Create, queue: Queue | None, now: float, today: date) -> Answer:
        digest = hashlib.sha256(create.request).digest()
        if queue is not None:
            if queue.request_digest != digest or queue.sender_id != create.sender_id:
                raise _REFUSED
            return Done()
        if self._find("sender_id", create.sender_id) is not None:
            raise _REFUSED
        machine, init = self._begin(create.request, request.target, now)
        sizes = tuple((priority, len(blob)) for priority, blob in sorted(create.blobs.items()))
        event = Created(queue_id=request.target, day=today, usage=create.usage, blobs=sizes)
        record = apply(None, event).record
        assert record is not None
        row = (request.target, create.sender_id, request.key, None, digest, record.encode())
        id = self._insert(row, machine, init, today)
        self._put_blobs(id, create)
        return Done()

    def _begin(self, data: bytes, queue_id: bytes, now: float) -> tuple[Enqueuer, Frame]:
        creation = CreationRequest.decode(data)
        if creation.service_id != self.service_id or creation.queue_id != queue_id:
            raise Refusal(Fault.REJECTED, "the creation request names another service or another queue")
        return self._machine.create(creation, now=int(now), policy=self._updates)

    def _insert(self, row: tuple[bytes | None, ...], machine: Enqueuer, init: Frame, today: date) -> int:
        columns = "queue_id, sender_id, owner_key, sender_key, request_digest, record, generation, state, held"
        cursor = self.database.execute(
            f"INSERT INTO queues ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (*row, machine.generation, machine.dump()),
        )
        assert cursor.lastrowid is not None
        self._insert_frames(cursor.lastrowid, [init], today)
        return cursor.lastrowid

    def _enqueue(self, request: Request, enqueue: Enqueue, queue: Queue, now: float, today: date) -> Answer:
        caller = (request.target, request.key)
        row = self.database.execute(
            "SELECT message_id, seq FROM callers WHERE target = ? AND key = ?", caller
        ).fetchone()
        if row[0] == enqueue.message_id:
            return Accepted(seq=row[1])  # The answer was lost, and the sender asks again.
        record = QueueRecord.decode(queue.record)
        if record.suspended:
            raise Refusal(Fault.SUSPENDED, "the queue takes no more messages")
        if not self.retention.messages(record.usage).accepts(queue.held):
            raise Refusal(Fault.QUOTA, "the queue is full until its owner reads", queue.held)
        self._happen(queue, MessageSent(queue_id=queue.queue_id, day=today))
        machine = self._load(queue)
        frames = machine.enqueue(enqueue.message, now=int(now))
        queue.held += 1
        self._write(queue, machine, frames, today)
        seq = frames[-1].seq
        self.database.execute(
            "UPDATE callers SET message_id = ?, seq = ? WHERE target = ? AND key = ?",
            (enqueue.message_id, seq, *caller),
        )
        return Accepted(seq=seq)

    def _fetch(self, fetch: Fetch, queue: Queue, today: date) -> Answer:
        machine = self._load(queue)
        if fetch.first > machine.next_seq:
            # Nothing is deleted: whoever is ahead of us knows something that we forgot.
            raise Refusal(Fault.AHEAD, "there is no such number yet; ask for the head", machine.next_seq)
        done = (queue.id, fetch.first)
        acknowledged = "SELECT count(*) FROM frames WHERE queue = ? AND seq < ? AND type = ?"
        (messages,) = self.database.execute(acknowledged, (*done, FrameType.DATA)).fetchone()
        if self.database.execute("DELETE FROM frames WHERE queue = ? AND seq < ?", done).rowcount:
            queue.held -= messages
            self.database.execute("UPDATE queues SET held = ? WHERE id = ?", (queue.held, queue.id))
        self._happen(queue, OwnerSeen(queue_id=queue.queue_id, day=today))
        frames: list[bytes] = []
        size, more = 0, False
        for (frame,) in self.database.execute(
            "SELECT data FROM frames WHERE queue = ? ORDER BY seq LIMIT ?", (queue.id, max(fetch.limit, 1) + 1)
        ):
            size += len(frame)
            more = len(frames) >= max(fetch.limit, 1) or (bool(frames) and size > FETCH_BYTES)
            if more:
                break
            frames.append(frame)
        return Fetched(frames=tuple(frames), more=more, suspended=QueueRecord.decode(queue.record).suspended)

    def _secure(self, secure: Secure, queue: Queue, today: date) -> Answer:
        if queue.sender_key not in (None, secure.sender_key):
            raise _REFUSED
        self._happen(queue, Secured(queue_id=queue.queue_id, day=today))
        self.database.execute("UPDATE queues SET sender_key = ? WHERE id = ?", (secure.sender_key, queue.id))
        return self._blobs(queue)

    def _reset(self, reset: Reset, queue: Queue, now: float, today: date) -> Answer:
        digest = hashlib.sha256(reset.request).digest()
        if queue.request_digest == digest:
            return Done()
        machine, init = self._begin(reset.request, queue.queue_id, now)
        self._happen(queue, OwnerSeen(queue_id=queue.queue_id, day=today))
        blobs = self._blobs(queue)
        remove_queue(self.database, queue.id)
        row = (queue.queue_id, queue.sender_id, queue.owner_key, queue.sender_key, digest, queue.record)
        self._put_blobs(self._insert(row, machine, init, today), blobs)
        return Done()

    # --- rows --------------------------------------------------------------------------------------

    def _load(self, queue: Queue) -> Enqueuer:
        return self._machine.load(queue.state, policy=self._updates)

    def _write(self, queue: Queue, machine: Enqueuer, frames: list[Frame], today: date) -> None:
        """The new state over the generation that was loaded, and the frames."""
        written = self.database.execute(
            "UPDATE queues SET generation = ?, state = ?, held = ? WHERE id = ? AND generation = ?",
            (machine.generation, machine.dump(), queue.held, queue.id, queue.generation),
        )
        if written.rowcount != 1:
            raise Conflict
        self._insert_frames(queue.id, frames, today)

    def _insert_frames(self, id: int, frames: list[Frame], today: date) -> None:
        self.database.executemany(
            "INSERT INTO frames VALUES (?, ?, ?, ?, ?)",
            [(id, frame.seq, int(frame.type), today.toordinal(), frame.data) for frame in frames],
        )

    def _happen(self, queue: Queue, event: MessageSent | OwnerSeen | Secured | Suspended | BlobReplaced) -> None:
        """Fold an event into the queue's record, and drop the blobs that it makes useless."""
        step = apply(QueueRecord.decode(queue.record), event)
        if not step.write_due:
            return
        assert step.record is not None
        record, decision = step.record, decide(step.record, event.day, self.retention)
        if isinstance(decision, DropBlobs):
            record = drop_blobs(self.database, queue.id, record, decision, event.day)
        queue.record = record.encode()
        self.database.execute("UPDATE queues SET record = ? WHERE id = ?", (queue.record, queue.id))

    def _blobs(self, queue: Queue) -> BlobsGiven:
        rows = self.database.execute("SELECT priority, data FROM blobs WHERE queue = ?", (queue.id,))
        return BlobsGiven(blobs=dict(rows.fetchall()))

    def _put_blobs(self, id: int, holder: Create | StoreBlobs | BlobsGiven) -> None:
        rows = [(id, priority, blob) for priority, blob in holder.blobs.items()]
        self.database.executemany("INSERT OR REPLACE INTO blobs VALUES (?, ?, ?)", rows)


def _day(now: float) -> date:
    return datetime.fromtimestamp(now, UTC).date()


def _usage(queue: Queue) -> Usage:
    return QueueRecord.decode(queue.record).usage
