"""One agent: the contract of its three machines in one SQLite file, and the servers it asks.

It knows no peer but through servers, and it decides nothing: what is to be done next is what the connection's
`resume` says.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, assert_never

from examples.queuing_service.client import Client, TcpExchange
from examples.queuing_service.database import checkpoint
from examples.queuing_service.protocol import Fault, Refusal
from qsratchet import CreationRequest, Dequeuer, Duplicate, HeadAhead, Message, Passed, header_of
from qsratchet.codec import Reader
from qsratchet.crypto import DH_PUBLIC_SIZE, HKDF_SHA256, DhKey, SealRejected, SigningKey, seal, unseal
from qsratchet.links import LinkKind, Opening, OwnerLink, Priority, ServerAddress, create_link, format_link, parse_link
from qsratchet.links import SecureQueue as SecureLink
from qsratchet.records import Usage
from qsratchet.rotation import (
    Accepted,
    Acknowledge,
    Connection,
    CreateQueue,
    Deleted,
    DeleteQueue,
    Deliver,
    Effect,
    Ended,
    Event,
    Failed,
    Failure,
    PhaseChanged,
    QueueAddress,
    QueueCreated,
    QueueEmpty,
    Received,
    ReceiveQueue,
    Receiving,
    Secured,
    SecureQueue,
    Send,
    SendQueue,
    Submit,
    Subscribe,
    Suspended,
    SuspendQueue,
    Tick,
)

_TABLES: Final = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;
CREATE TABLE IF NOT EXISTS agent (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    -- The meeting: Alice's link, or Bob's opening of it with his half of the key agreement, and then the keys of the
    -- first two queues that he got from it.  Whoever has one of the halves has those keys, so all of this goes when
    -- the connection begins.
    link BLOB, opening BLOB, dh_seed BLOB, send_key BLOB, receive_key BLOB,
    connection BLOB, submitted INTEGER NOT NULL DEFAULT 0
);
INSERT OR IGNORE INTO agent (id) VALUES (1);
-- The queues that this agent owns, until they are deleted.  `made_for` is the effect that asked for it, so that asking
-- again makes no other.  `request` holds the join secret, so it is empty once the server has confirmed the queue.
CREATE TABLE IF NOT EXISTS queues (
    sender_id BLOB PRIMARY KEY, server TEXT NOT NULL, queue_id BLOB NOT NULL, signing_seed BLOB NOT NULL,
    made_for TEXT NOT NULL UNIQUE, request BLOB NOT NULL, state BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS inbox (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS reports (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
"""
#: Between QSWITCH and the end of the old queue a message of the new queue is held.
_HOLDING: Final = (Receiving.SWITCHING, Receiving.SUSPENDING, Receiving.DRAINING)
Question = CreateQueue | SecureQueue | SuspendQueue | DeleteQueue | Send
#: What a server's refusal means to a rotation.
_FAILURES: Final = {
    Fault.AUTH: Failure.AUTH,
    Fault.SUSPENDED: Failure.AUTH,
    Fault.QUOTA: Failure.QUOTA,
    Fault.FAILED: Failure.UNKNOWN,
}


class Agent:
    """One side of a conversation, with its file.  Call `turn` again and again; it may be killed anywhere in it."""

    def __init__(self, name: str, database: Path, servers: dict[str, int], say: Callable[[str], None]) -> None:
        self.name = name
        self._say = say
        self._exchanges = {server: TcpExchange("127.0.0.1", port) for server, port in servers.items()}
        self._ports = servers
        self._clients: dict[tuple[str, bytes], Client] = {}
        self._database = sqlite3.connect(database, isolation_level=None)
        self._database.executescript(_TABLES)
        checkpoint(self._database)  # If it was killed before it came to that.
        # Machines that have opened a message which is not acknowledged yet: it may be held for a while.
        self._opened: dict[QueueAddress, Dequeuer] = {}
        (stored,) = self._database.execute("SELECT connection FROM agent").fetchone()
        self.connection: Connection | None = None if stored is None else Connection.load(stored)

    def close(self) -> None:
        for exchange in self._exchanges.values():
            exchange.close()
        self._database.close()

    @property
    def inbox(self) -> list[bytes]:
        return [body for (body,) in self._database.execute("SELECT body FROM inbox ORDER BY number")]

    @property
    def submitted(self) -> int:
        return int(self._database.execute("SELECT submitted FROM agent").fetchone()[0])

    @property
    def reports(self) -> list[str]:
        return [text for (text,) in self._database.execute("SELECT text FROM reports ORDER BY id")]

    # --- meeting -----------------------------------------------------------------------------------

    def invite(self, server: str) -> str:
        """Alice: a link to a new queue of hers.  Repeat it until it succeeds; the link is the same from then on."""
        if self.connection is not None:
            raise RuntimeError("this agent has met its peer already: make another one, with a file of its own")
        (stored,) = self._database.execute("SELECT link FROM agent").fetchone()
        if stored is not None:
            return format_link(OwnerLink.load(stored).link)
        address = ServerAddress(hosts=("127.0.0.1",), port=self._ports[server], fingerprint=_fingerprint(server))
        contents = {Priority.RATCHET_KEYS: b"no keys but the link's own", Priority.PROFILE: self.name.encode()}
        link, creation = create_link(server=address, kind=LinkKind.ONE_TIME, contents=contents)
        machine, request = Dequeuer.create(server.encode(), creation.recipient_id)
        client = Client(self._exchanges[server], server.encode(), link.server_signing_key)
        blobs = {int(priority): blob for priority, blob in creation.blobs.items()}
        # Nobody knows the link yet, so a crash before the next transaction only leaves a queue that expires.
        client.create(creation.recipient_id, request, creation.sender_id, Usage.MESSAGING, blobs)
        seed = link.server_signing_key.seed
        row = (creation.sender_id, server, creation.recipient_id, seed, "link", b"", machine.dump())
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO queues VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            database.execute("UPDATE agent SET link = ?", (link.dump(),))
        return format_link(link.link)

    def accept(self, text: str, server: str) -> None:
        """Bob: open the link, and tell Alice where his own queue is.  Repeat it until it succeeds."""
        if self.connection is not None:
            return
        opening, dh = self._opening(text)
        question = opening.request
        assert isinstance(question, SecureLink)
        assert opening.sender_key is not None
        theirs = QueueAddress(server=self._server_of(question.server), sender_id=question.sender_id)
        client = self._client(theirs.server, opening.sender_key.seed)
        send_key, receive_key = self._database.execute("SELECT send_key, receive_key FROM agent").fetchone()
        if send_key is None:
            blobs = client.secure(question.sender_id, question.sender_key)
            found = opening.open({Priority(priority): blob for priority, blob in blobs.items()})
            send_key, receive_key = _keys(dh.exchange(found.k))
            # Persisted before the first message leaves, because with that the server drops the blobs.
            self._database.execute("UPDATE agent SET send_key = ?, receive_key = ?", (send_key, receive_key))
            self._say(f"opened the link of {found.contents[Priority.PROFILE].decode()}")
        mine = self._make_queue("meeting", server)
        join = dh.public() + seal(send_key, mine.encode(), theirs.sender_id)
        client.enqueue(theirs.sender_id, _message_id("join", theirs), join)
        send = SendQueue(address=theirs, key=send_key, server_seed=opening.sender_key.seed)
        self._begin(Connection(receive=ReceiveQueue(address=mine, key=receive_key), send=send), None)

    def _opening(self, text: str) -> tuple[Opening, DhKey]:
        """The opening that is under way, persisted before its request leaves: the link opens for one key only."""
        stored, seed = self._database.execute("SELECT opening, dh_seed FROM agent").fetchone()
        if stored is None:
            stored, seed = Opening.start(parse_link(text)).dump(), DhKey.generate().seed
            self._database.execute("UPDATE agent SET opening = ?, dh_seed = ?", (stored, seed))
        return Opening.load(stored), DhKey(seed)

    def _await_peer(self) -> bool:
        """Alice: the first message in the link's queue says where Bob's queue is."""
        link, sender_id, server = self._database.execute(
            "SELECT link, sender_id, server FROM agent LEFT JOIN queues ON made_for = 'link'"
        ).fetchone()
        if link is None:
            return False
        mine = QueueAddress(server=server, sender_id=sender_id)
        message, machine = self._next_message(mine)
        if message is None:
            return False
        public, sealed = message.body[:DH_PUBLIC_SIZE], message.body[DH_PUBLIC_SIZE:]
        receive_key, send_key = _keys(OwnerLink.load(link).link_dh_key.exchange(public))
        try:
            opened = unseal(receive_key, sealed, sender_id)
        except SealRejected:
            raise RuntimeError("the first message is not from somebody who opened the link") from None
        reader = Reader(opened, "address")
        theirs = QueueAddress(server=reader.lv().decode("ascii"), sender_id=reader.rest())
        # The seed follows from the agreement, so that a second try secures Bob's queue with the same key.
        seed = HKDF_SHA256.expand(send_key, b"example server key")
        self._client(theirs.server, seed).secure(theirs.sender_id, SigningKey(seed).public())
        send = SendQueue(address=theirs, key=send_key, server_seed=seed)
        connection = Connection(receive=ReceiveQueue(address=mine, key=receive_key), send=send)
        self._begin(connection, (mine, machine))
        self._say("somebody opened the link")
        return True

    def _begin(self, connection: Connection, read: tuple[QueueAddress, Dequeuer] | None) -> None:
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            # From here on the keys are in the connection, which drops each of them with its queue.
            meeting = "link = NULL, opening = NULL, dh_seed = NULL, send_key = NULL, receive_key = NULL"
            database.execute(f"UPDATE agent SET connection = ?, {meeting}", (connection.dump(),))
            if read is not None:
                database.execute("UPDATE queues SET state = ? WHERE sender_id = ?", (read[1].dump(), read[0].sender_id))
        self.connection = connection
        checkpoint(self._database)  # What was deleted just now is still in the file's log.

    # --- talking -----------------------------------------------------------------------------------

    def submit(self, body: bytes) -> None:
        self.step(Submit(body=body), submitted=1)

    def step(self, event: Event, *, submitted: int = 0, deleted: QueueAddress | None = None) -> None:
        """Give an event to the connection, and persist what came of it before anything leaves."""
        assert self.connection is not None
        effects = self.connection.step(event, int(time.time()))
        lines = []
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            dump = self.connection.dump()
            database.execute("UPDATE agent SET connection = ?, submitted = submitted + ?", (dump, submitted))
            if deleted is not None:
                database.execute("DELETE FROM queues WHERE sender_id = ?", (deleted.sender_id,))
            for effect in effects:
                match effect:
                    case Deliver():
                        database.execute("INSERT INTO inbox VALUES (?, ?)", (effect.number, effect.body))
                        lines.append(f"{effect.number:4} {effect.body.decode(errors='replace')}")
                    case Acknowledge():
                        # What was opened counts as read only now: the message is delivered, or was there before.
                        machine = self._opened.pop(effect.queue)
                        state = (machine.dump(), effect.queue.sender_id)
                        database.execute("UPDATE queues SET state = ? WHERE sender_id = ?", state)
                    case Subscribe() | CreateQueue() | SecureQueue() | SuspendQueue() | DeleteQueue() | Send():
                        pass
                    case _:
                        lines.append(_described(effect))
                        database.execute("INSERT INTO reports (text) VALUES (?)", (lines[-1],))
        if any(isinstance(effect, Ended) for effect in effects):
            checkpoint(self._database)  # The keys of the old queue are not in the file any more, but still in its log.
        for line in lines:
            self._say(line)

    def turn(self) -> bool:
        """Carry out what is outstanding, once, and read one message of each queue.  Whether anything moved."""
        if self.connection is None:
            return self._try(self._await_peer)
        moved = False
        # What the connection wants now is asked of it each time: an effect of before may have become pointless.
        for effect in self.connection.resume():
            if effect not in self.connection.resume():
                continue
            if isinstance(effect, Question):
                moved |= self._try(partial(self._carry_out, effect))
            elif isinstance(effect, Subscribe):
                moved |= self._try(partial(self._read, effect.queue))
        if self.connection.next_deadline is not None and time.time() >= self.connection.next_deadline:
            self.step(Tick())
        return moved

    def _try(self, act: Callable[[], bool]) -> bool:
        try:
            return act()
        except OSError:
            return False  # The server is away: it is tried again with the next turn.
        except Refusal as refusal:
            if refusal.fault not in (Fault.BUSY, Fault.FULL, Fault.FAILED):
                raise
            return False

    def _carry_out(self, question: Question) -> bool:
        try:
            event = self._answer(question)
        except Refusal as refusal:
            event = Failed(effect=question.id, failure=_FAILURES.get(refusal.fault, Failure.TEMPORARY))
        deleted = question.queue if isinstance(question, DeleteQueue) and isinstance(event, Deleted) else None
        self.step(event, deleted=deleted)
        return not isinstance(event, Failed)

    def _answer(self, question: Question) -> Event:
        """Ask the server; the event that its answer is."""
        match question:
            case CreateQueue():
                return QueueCreated(effect=question.id, queue=self._make_queue(question.id, question.server))
            case SecureQueue():
                queue_id, owner = self._owned(question.queue)
                owner.secure(queue_id, question.server_key)
                return Secured(effect=question.id)
            case SuspendQueue():
                queue_id, owner = self._owned(question.queue)
                return Suspended(effect=question.id, remaining=owner.suspend(queue_id))
            case DeleteQueue():
                queue_id, owner = self._owned(question.queue)
                owner.delete(queue_id)
                return Deleted(effect=question.id)
            case Send():
                self._send(question)
                return Accepted(effect=question.id)
            case _:
                assert_never(question)

    def _send(self, send: Send) -> None:
        assert self.connection is not None
        (queue,) = [queue for queue in self.connection.send_queues if queue.address == send.queue]
        sealed = seal(queue.key, send.frame, send.queue.sender_id)
        client = self._client(send.queue.server, queue.server_seed)
        client.enqueue(send.queue.sender_id, _message_id(send.id, send.queue), sealed)

    def _read(self, queue: QueueAddress) -> bool:
        """One message, or the news that there is none."""
        if queue in self._opened:
            return False  # The connection holds a message of this queue until the old queue is drained.
        assert self.connection is not None
        keys = [ours.key for ours in self.connection.receive_queues if ours.address == queue]
        if not keys:
            return False  # The peer has no key for the new queue yet, so nothing can be in it (we are not `fast`).
        message, machine = self._next_message(queue)
        phase = self.connection.status()[0].phase
        if message is None:
            if phase is Receiving.DRAINING and queue == self.connection.receive_queue.address:
                self.step(QueueEmpty(queue=queue))  # Only then does anybody want to know.
            return False
        try:
            frame = unseal(keys[0], message.body, queue.sender_id)
        except SealRejected:
            frame = b"forged"  # The connection cannot read it, so it reports it and goes on.
        self._opened[queue] = machine
        self.step(Received(queue=queue, message_id=message.seq.to_bytes(8, "big"), body=frame))
        if self.connection.status()[0].phase not in _HOLDING:
            self._opened.pop(queue, None)  # Neither acknowledged nor held: it is fetched again.
        return True

    # --- queues ------------------------------------------------------------------------------------

    def _next_message(self, queue: QueueAddress) -> tuple[Message | None, Dequeuer]:
        """The next message of a queue of ours, and the machine that has read it and is not persisted yet."""
        row = self._database.execute("SELECT state FROM queues WHERE sender_id = ?", (queue.sender_id,)).fetchone()
        machine = Dequeuer.load(row[0])
        queue_id, owner = self._owned(queue)
        try:
            # The first of them was read before and is a `Duplicate`.  A `Fork` ends this program: its server went back
            # in time, and what it forgot cannot be read any more.
            first = machine.fetch_from
            fetched = owner.fetch(queue_id, first, 5)
            left = bool(fetched.frames) and header_of(fetched.frames[0]).seq == first
            if machine.next_seq and (not left or first in machine.discarded):
                # It is gone, or was never read, so there is nothing to compare: the head still shows a server that is
                # behind.
                nonce = os.urandom(16)
                with contextlib.suppress(HeadAhead):  # Too far to be proved from here: what is read next shows it.
                    machine.verify_head(owner.head(queue_id, nonce), nonce)
            if fetched.suspended and len(fetched.frames) <= 1:
                # Nothing follows any more, so the last one is acknowledged too: the server then counts none.
                owner.fetch(queue_id, machine.acknowledge, 1)
        except Refusal as refusal:
            if refusal.fault is Fault.AUTH:
                return None, machine  # It is deleted.
            raise
        for frame in fetched.frames:
            try:
                opened = machine.open(frame)
            except (Duplicate, Passed):
                continue
            if isinstance(opened, Message):
                return opened, machine
        return None, machine

    def _make_queue(self, made_for: str, server: str) -> QueueAddress:
        """A queue of ours: persisted, then created at the server, as often as needed."""
        find = "SELECT sender_id, queue_id, signing_seed, request FROM queues WHERE made_for = ?"
        row = self._database.execute(find, (made_for,)).fetchone()
        if row is None:
            sender_id, queue_id, seed = os.urandom(24), os.urandom(24), SigningKey.generate().seed
            machine, request = Dequeuer.create(server.encode(), queue_id)
            row = (sender_id, queue_id, seed, request.encode())
            self._database.execute(
                "INSERT INTO queues VALUES (?, ?, ?, ?, ?, ?, ?)",
                (sender_id, server, queue_id, seed, made_for, row[3], machine.dump()),
            )
        sender_id, queue_id, seed, pending = row
        if pending:
            request = CreationRequest.decode(pending)
            self._client(server, seed).create(queue_id, request, sender_id, Usage.MESSAGING, {})
            self._database.execute("UPDATE queues SET request = x'' WHERE sender_id = ?", (sender_id,))
        return QueueAddress(server=server, sender_id=sender_id)

    def _owned(self, queue: QueueAddress) -> tuple[bytes, Client]:
        queue_id, seed = self._database.execute(
            "SELECT queue_id, signing_seed FROM queues WHERE sender_id = ?", (queue.sender_id,)
        ).fetchone()
        return queue_id, self._client(queue.server, seed)

    def _client(self, server: str, seed: bytes) -> Client:
        known = self._clients.get((server, seed))
        if known is None:
            known = Client(self._exchanges[server], server.encode(), SigningKey(seed))
            self._clients[server, seed] = known
        return known

    def _server_of(self, address: ServerAddress) -> str:
        return next(server for server in self._exchanges if _fingerprint(server) == address.fingerprint)


def _fingerprint(server: str) -> bytes:
    """What a link knows a server by; a real one has the hash of its key."""
    return hashlib.sha256(server.encode()).digest()


def _keys(shared: bytes) -> tuple[bytes, bytes]:
    """From the link's key agreement, for the first two queues: the key of who opened it, and that of its owner."""
    secret = HKDF_SHA256.extract(b"qsratchet example agents", shared)
    return HKDF_SHA256.expand(secret, b"example opener"), HKDF_SHA256.expand(secret, b"example owner")


def _message_id(effect: str, queue: QueueAddress) -> bytes:
    """The same for the same effect, so that a server takes it once."""
    return hashlib.sha256(effect.encode() + queue.sender_id).digest()[:16]


def _described(effect: Effect) -> str:
    match effect:
        case PhaseChanged(phase=phase):
            return f"{type(phase).__name__.lower()}: {phase.name}"
        case Ended():
            side = "the peer's queue" if effect.sending else "our queue"
            return f"rotation ended: {effect.outcome.name}, {side} is on {effect.queue.server}"
        case _:
            return repr(effect)
