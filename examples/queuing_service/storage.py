"""What the service does with a request, in the SQLite file.  It knows no socket, no clock and no signature.

**The new state and the frames are one transaction, and an answer leaves after its commit.**  States are loaded and
messages sealed before the lock is taken (`sealing`); the transaction then only writes, and it writes a state only
over the generation that was loaded.  If another process came between, what was sealed is thrown away and sealed
again.  Many requests share a commit, which is what makes durability cheap; each has savepoints of its own, so that a
refused one leaves nothing behind but its number.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, assert_never

from qsratchet import Enqueuer, Frame, FrameType, MisuseError, QSRatchetError, RejectedError, UpdatePolicy
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
    apply,
    decide,
)

from .admission import CLOCK_WINDOW, REFUSED, Queue, accepted_before, admit, check_room, find
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
from .sealing import FAILED, Sealed, Sealer, digest_of

log = logging.getLogger(__name__)

#: A fetch stops after so many bytes, so that an answer is bounded; one frame always fits.
FETCH_BYTES: Final = 1 << 20
#: After so many commits the log is emptied, and with it the old keys in it.
CHECKPOINT_EVERY: Final = 1_000

_FULL: Final = Refusal(Fault.FULL, "there is no room; nothing happened; try again when there is")
_BUSY: Final = Refusal(Fault.BUSY, "the database is locked; nothing happened; try again")
#: After so many attempts at a batch the lock is taken first, so that nobody waits, or seals in vain, for ever.
PATIENCE: Final = 3


class Conflict(Exception):
    """What was sealed does not fit the file: another process wrote the queue after it was loaded here."""


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
        self.database: Final = open_database(path, service_id, max_pages=max_pages, busy_timeout=busy_timeout)
        self._sealer: Final = Sealer(self.database, service_id, updates or UpdatePolicy(), machine)
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
        """Carry out requests in order; when this returns, what was done is on the disk."""
        answers: list[Answer | Refusal] = []
        attempts = 0
        while len(answers) < len(requests):
            answers += self._attempt(requests[len(answers) :], now, lock_first=attempts >= PATIENCE)
            attempts += 1
        return answers

    def seal_all(self, requests: Sequence[Request], now: float) -> list[Sealed | Refusal | None]:
        """Load states and seal.  Between this and the transaction another process may write."""
        return self._sealer.seal_all(requests, now, self.retention)

    def _attempt(self, requests: Sequence[Request], now: float, *, lock_first: bool) -> list[Answer | Refusal]:
        """One transaction: the answers up to the first conflict, so that the order of requests is kept."""
        answers: list[Answer | Refusal] = []
        try:
            sealed: Iterable[Sealed | Refusal | None] = []
            if not lock_first:
                sealed = self.seal_all(requests, now)
            self.database.execute("BEGIN IMMEDIATE")
            if lock_first:
                # One by one, each over what the one before wrote: nothing comes between, nothing is sealed twice.
                sealed = (self.seal_all([request], now)[0] for request in requests)
            for request, made in zip(requests, sealed, strict=True):
                try:
                    answers.append(self._answer(request, made, now))
                except Conflict:
                    log.info("conflict: %s", request.describe())
                    break
            self.database.execute("COMMIT")
        except sqlite3.Error as error:
            if self.database.in_transaction:
                self.database.execute("ROLLBACK")
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code != sqlite3.SQLITE_BUSY and len(requests) > 1:
                # One request may have filled the disk: the others get a transaction each.
                return [answer for request in requests for answer in self.answer_all([request], now)]
            log.warning("%s and %d more: %s", requests[0].describe(), len(requests) - 1, error)
            return [{sqlite3.SQLITE_FULL: _FULL, sqlite3.SQLITE_BUSY: _BUSY}.get(code, FAILED)] * len(requests)
        except BaseException:
            if self.database.in_transaction:
                self.database.execute("ROLLBACK")
            raise
        self._commits += 1
        if self._commits % CHECKPOINT_EVERY == 0:
            checkpoint(self.database)
        return answers

    def _answer(self, request: Request, sealed: Sealed | Refusal | None, now: float) -> Answer | Refusal:
        try:
            queue = admit(self.database, request, now)
        except Refusal as refusal:
            return refusal
        self.database.execute("SAVEPOINT request")
        # From here on the number is used, whatever follows; unless there is a conflict, for then nothing happened.
        self._take_number(request)
        self.database.execute("SAVEPOINT effects")
        answer: Answer | Refusal
        try:
            answer = self._carry_out(request, sealed, queue, now)
        except Refusal as refusal:
            answer = refusal
        except Conflict:
            self.database.execute("ROLLBACK TO request")
            self.database.execute("RELEASE request")
            raise
        except (MisuseError, RejectedError) as error:
            answer = Refusal(Fault.REJECTED, str(error))
        except QSRatchetError as error:
            log.error("%s: %s", request.describe(), error)
            answer = FAILED
        if isinstance(answer, Refusal):
            self.database.execute("ROLLBACK TO effects")
        self.database.execute("RELEASE request")
        return answer

    def _take_number(self, request: Request) -> None:
        if isinstance(request.operation, AskBlobs):
            return  # It changes nothing and anybody may repeat it, so there is nothing to remember.
        self.database.execute(
            "INSERT INTO callers (target, key, number) VALUES (?, ?, ?) "
            "ON CONFLICT (target, key) DO UPDATE SET number = excluded.number",
            (request.target, request.key, request.number),
        )

    # --- what is done ------------------------------------------------------------------------------

    def _carry_out(self, request: Request, sealed: Sealed | Refusal | None, queue: Queue | None, now: float) -> Answer:
        today = _day(now)
        operation = request.operation
        if isinstance(operation, Create):
            return self._create(request, operation, queue, sealed, today)
        if isinstance(operation, Delete):
            if queue is not None:
                apply(QueueRecord.decode(queue.record), Deleted(queue_id=queue.queue_id, day=today))
                remove_queue(self.database, queue.id)
            return Done()
        assert queue is not None
        match operation:
            case Enqueue():
                return self._enqueue(request, operation, queue, sealed, today)
            case Fetch():
                return self._fetch(operation, queue, today)
            case AskHead():
                return HeadGiven(head=self._sealer.load(queue).head(operation.nonce))
            case OfferKey():
                self._happen(queue, OwnerSeen(queue_id=queue.queue_id, day=today))
                # An offer that was in force already has no frames.  It is written all the same, for only that shows
                # whether what it was in force in is in the file.
                self._write(queue, needed(sealed), today)
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
                return self._reset(operation, queue, sealed, today)
            case _:
                assert_never(operation)

    def _create(
        self, request: Request, create: Create, queue: Queue | None, sealed: Sealed | Refusal | None, today: date
    ) -> Answer:
        digest = digest_of(create.request)
        if queue is not None:
            if queue.request_digest != digest or queue.sender_id != create.sender_id:
                raise REFUSED
            return Done()
        if find(self.database, "sender_id", create.sender_id) is not None:
            raise REFUSED
        begun = needed(sealed)
        sizes = tuple((priority, len(blob)) for priority, blob in sorted(create.blobs.items()))
        event = Created(queue_id=request.target, day=today, usage=create.usage, blobs=sizes)
        record = apply(None, event).record
        assert record is not None
        row = (request.target, create.sender_id, request.key, None, digest, record.encode())
        self._put_blobs(self._insert(row, begun, today), create)
        return Done()

    def _insert(self, row: tuple[bytes | None, ...], begun: Sealed, today: date) -> int:
        columns = "queue_id, sender_id, owner_key, sender_key, request_digest, record, generation, state, held"
        cursor = self.database.execute(
            f"INSERT INTO queues ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)", (*row, begun.generation, begun.state)
        )
        assert cursor.lastrowid is not None
        self._insert_frames(cursor.lastrowid, begun.frames, today)
        return cursor.lastrowid

    def _enqueue(
        self, request: Request, enqueue: Enqueue, queue: Queue, sealed: Sealed | Refusal | None, today: date
    ) -> Answer:
        before = accepted_before(self.database, request, enqueue)
        if before is not None:
            return before
        check_room(queue, self.retention)
        self._happen(queue, MessageSent(queue_id=queue.queue_id, day=today))
        made = needed(sealed)
        queue.held += 1
        self._write(queue, made, today)
        seq = made.frames[-1].seq
        self.database.execute(
            "UPDATE callers SET message_id = ?, seq = ? WHERE target = ? AND key = ?",
            (enqueue.message_id, seq, request.target, request.key),
        )
        return Accepted(seq=seq)

    def _fetch(self, fetch: Fetch, queue: Queue, today: date) -> Answer:
        next_seq = self._sealer.load(queue).next_seq
        if fetch.first > next_seq:
            # Nothing is deleted: whoever is ahead of us knows something that we forgot.
            raise Refusal(Fault.AHEAD, "there is no such number yet; ask for the head", next_seq)
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
            raise REFUSED
        self._happen(queue, Secured(queue_id=queue.queue_id, day=today))
        self.database.execute("UPDATE queues SET sender_key = ? WHERE id = ?", (secure.sender_key, queue.id))
        return self._blobs(queue)

    def _reset(self, reset: Reset, queue: Queue, sealed: Sealed | Refusal | None, today: date) -> Answer:
        digest = digest_of(reset.request)
        if queue.request_digest == digest:
            return Done()
        begun = needed(sealed)
        self._happen(queue, OwnerSeen(queue_id=queue.queue_id, day=today))
        blobs = self._blobs(queue)
        remove_queue(self.database, queue.id)
        row = (queue.queue_id, queue.sender_id, queue.owner_key, queue.sender_key, digest, queue.record)
        self._put_blobs(self._insert(row, begun, today), blobs)
        return Done()

    # --- rows --------------------------------------------------------------------------------------

    def _write(self, queue: Queue, sealed: Sealed, today: date) -> None:
        """The new state, over the generation that was loaded, and the frames."""
        if sealed.after is not None and not sealed.after.written:
            # It was sealed after something that was refused, so its generation is one that was never in the file.
            raise Conflict
        written = self.database.execute(
            "UPDATE queues SET generation = ?, state = ?, held = ? WHERE id = ? AND generation = ?",
            (sealed.generation, sealed.state, queue.held, sealed.id, sealed.before),
        )
        if written.rowcount != 1:
            raise Conflict
        self._insert_frames(queue.id, sealed.frames, today)
        sealed.written = True

    def _insert_frames(self, id: int, frames: Sequence[Frame], today: date) -> None:
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


def needed(sealed: Sealed | Refusal | None) -> Sealed:
    """What was sealed for a request that turns out to need it."""
    if sealed is None:
        raise Conflict  # Without the lock it looked as if there were nothing to do: look again.
    if isinstance(sealed, Refusal):
        raise sealed
    return sealed


def _day(now: float) -> date:
    return datetime.fromtimestamp(now, UTC).date()
