"""The owner of a queue, with its own SQLite file: it creates, reads, acknowledges, renews its key, and recovers.

    python -m examples.owner

With no arguments it starts a service of its own, sends itself messages and shows all of that, the service's
return from a backup included.  With `--service host:port --database owner.db` it reads a queue of a running service
until it is stopped; it may be killed at any moment and started again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.queuing_service.client import Client, Exchange, TcpExchange, exchange_with
from examples.queuing_service.database import checkpoint
from examples.queuing_service.protocol import Fault, Refusal
from qsratchet import (
    CreationRequest,
    Dequeuer,
    Duplicate,
    Fork,
    Gap,
    Grant,
    HeadAhead,
    HeadRejected,
    Initialised,
    Message,
    MissingKey,
    Opened,
    Passed,
    ReadPolicy,
    RejectedError,
    Tampered,
    Updated,
    header_of,
)
from qsratchet.crypto import SigningKey
from qsratchet.records import Usage

_TABLES: Final = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;
CREATE TABLE IF NOT EXISTS owner (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    queue_id BLOB NOT NULL, sender_id BLOB NOT NULL, signing_seed BLOB NOT NULL,
    generation INTEGER NOT NULL, state BLOB NOT NULL,
    -- Sent again until the service has confirmed it.  It holds the join secret, so it goes then.
    pending BLOB, pending_reset INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS inbox (id INTEGER PRIMARY KEY AUTOINCREMENT, seq INTEGER NOT NULL, body BLOB NOT NULL);
-- Only if grants are recorded, for an audit: whoever has them and the frames reads those epochs.  They go when the
-- service holds no frame of the epoch any more.
CREATE TABLE IF NOT EXISTS grants (epoch INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""


class ChainLost(Exception):
    """One side forgot what the other one knows: a file was restored from a backup, or the service was forked.

    `verdict` says how that was seen.  What is in the queue cannot be read; `Owner.reset` begins it anew.
    """

    def __init__(self, verdict: RejectedError) -> None:
        super().__init__(f"{type(verdict).__name__}: {verdict}")
        self.verdict = verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOn:
    """What one turn of reading gave."""

    opened: tuple[Opened, ...]
    more: bool
    suspended: bool

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(item for item in self.opened if isinstance(item, Message))


class Owner:
    """One queue and its file.  Every change is persisted before anything leaves that depends on it."""

    def __init__(self, database: Path, exchange: Exchange, service_id: bytes, *, record_grants: bool = False) -> None:
        self._database = sqlite3.connect(database, isolation_level=None)
        self._database.executescript(_TABLES)
        if self._database.execute("SELECT 1 FROM owner").fetchone() is None:
            queue_id, sender_id, key = os.urandom(24), os.urandom(24), SigningKey.generate()
            machine, request = Dequeuer.create(service_id, queue_id)
            self._database.execute(
                "INSERT INTO owner VALUES (1, ?, ?, ?, ?, ?, ?, 0)",
                (queue_id, sender_id, key.seed, machine.generation, machine.dump(), request.encode()),
            )
        self.queue_id, self.sender_id, seed, state = self._database.execute(
            "SELECT queue_id, sender_id, signing_seed, state FROM owner"
        ).fetchone()
        # A message may have expired at the service before it was read: the reader goes on, and says what is missing.
        self._policy = ReadPolicy(tolerant=True)
        self._machine = Dequeuer.load(state, policy=self._policy)
        self._stored = self._machine.generation
        self._client = Client(exchange, service_id, SigningKey(seed))
        self._record_grants = record_grants

    def close(self) -> None:
        self._database.close()

    @property
    def inbox(self) -> list[bytes]:
        return [body for (body,) in self._database.execute("SELECT body FROM inbox ORDER BY id")]

    def connect(self) -> None:
        """Send what the service has not confirmed yet: the creation of the queue, or its reset."""
        pending, reset = self._database.execute("SELECT pending, pending_reset FROM owner").fetchone()
        if pending is None:
            return
        request = CreationRequest.decode(pending)
        if reset:
            self._client.reset(self.queue_id, request)
        else:
            self._client.create(self.queue_id, request, self.sender_id, Usage.MESSAGING, {})
        self._database.execute("UPDATE owner SET pending = NULL")
        checkpoint(self._database)

    def read(self, limit: int = 100) -> ReadOn:
        """Fetch what comes next, open it, and persist it.  The next fetch acknowledges it, but for its last frame.

        That one is left at the service and comes again each time, which shows a service that was restored from a
        backup and has overtaken this reader (see `Dequeuer.fetch_from`).
        """
        first = self._machine.fetch_from
        due = self._machine.next_seq
        try:
            fetched = self._client.fetch(self.queue_id, first, limit + 1)
        except Refusal as refusal:
            if refusal.fault is Fault.AHEAD:
                self.check_head()  # Raises what the service can prove about itself.
            raise
        frames = fetched.frames
        self._forget_grants()
        left = bool(frames) and header_of(frames[0]).seq == first
        if due and (not left or first in self._machine.discarded):
            # The frame that was left there is gone (it expired, or the service went back), or it was given up unread.
            # So there is nothing to compare, and the head is all that can tell.
            self.check_head()
        opened: list[Opened] = []
        # If they are recorded: one for each epoch, from its first frame on.
        grants: list[Grant] = []
        try:
            for frame in frames:
                try:
                    opened.append(self._machine.open(frame))
                    if self._record_grants and isinstance(opened[-1], Initialised | Updated):
                        grants.append(self._machine.grant())
                except (Duplicate, Passed):
                    continue
                except Tampered as verdict:
                    self.check_head()  # A service that went back cannot prove its head: then that is the verdict.
                    raise ChainLost(verdict) from None
                except (Fork, Gap, MissingKey) as verdict:
                    raise ChainLost(verdict) from None
        finally:
            self._persist(opened, grants)
        return ReadOn(opened=tuple(opened), more=fetched.more, suspended=fetched.suspended)

    def check_head(self) -> range:
        """Ask the service to prove where it is; the numbers that were not read yet."""
        nonce = os.urandom(16)
        head = self._client.head(self.queue_id, nonce)
        try:
            return self._machine.verify_head(head, nonce).missing
        except HeadAhead as verdict:
            return range(verdict.reader_next, verdict.next_seq)  # Too far to be proved from here: read first.
        except HeadRejected as verdict:
            raise ChainLost(verdict) from None

    def grants(self) -> list[Grant]:
        """The recorded grants of what the service still holds, for an audit of it.  This acknowledges nothing."""
        # An audit takes the first grant's word for where the queue begins.  The service may hold more than was left to
        # it, since it learns late what was acknowledged, but it cannot talk the audit out of a frame that it lost.
        first = self._machine.fetch_from
        held = self._client.fetch(self.queue_id, 0, 1).frames
        if held:
            first = min(first, header_of(held[0]).seq)
        rows = self._database.execute("SELECT data FROM grants ORDER BY epoch")
        recorded = [Grant.decode(data) for (data,) in rows]
        while len(recorded) > 1 and recorded[1].first_seq <= first:
            del recorded[0]
        return [grant.narrow(first) if grant.first_seq < first else grant for grant in recorded]

    def offer_key(self) -> None:
        """Renew the key.  Until its update was read the same offer is made again, so it may be repeated."""
        offer = self._machine.offer_key()
        self._persist([], [])
        self._client.offer(self.queue_id, offer)

    def reset(self) -> None:
        """Begin the queue anew: the way on when the service went back in time."""
        request = self._machine.reset()
        self._swap((), (), reset=request.encode())
        self.connect()

    def suspend(self) -> int:
        return self._client.suspend(self.queue_id)

    def delete(self) -> None:
        self._client.delete(self.queue_id)

    def _forget_grants(self) -> None:
        """After a fetch, which acknowledged all but the last frame: delete the grants that open nothing else.

        That frame is of the present epoch or, if it is the UPDATE, of the one before; and the reader itself knows
        that, so that a service cannot talk it out of a grant.
        """
        acknowledged = self._database.execute("DELETE FROM grants WHERE epoch < ?", (self._machine.epoch - 1,))
        if acknowledged.rowcount:
            checkpoint(self._database)

    def _persist(self, opened: list[Opened], grants: list[Grant]) -> None:
        """State and plaintext in one transaction, over the generation that was loaded."""
        if self._machine.generation != self._stored:
            messages = [item for item in opened if isinstance(item, Message)]
            self._swap(messages, grants)

    def _swap(self, messages: Sequence[Message], grants: Sequence[Grant], reset: bytes | None = None) -> None:
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            swapped = database.execute(
                "UPDATE owner SET generation = ?, state = ? WHERE generation = ?",
                (self._machine.generation, self._machine.dump(), self._stored),
            )
            if swapped.rowcount != 1:
                raise RuntimeError("another process reads this queue: only one may, so this one stops")
            if reset is not None:
                database.execute("UPDATE owner SET pending = ?, pending_reset = 1", (reset,))
                database.execute("DELETE FROM grants")
            database.executemany("INSERT INTO inbox (seq, body) VALUES (?, ?)", [(m.seq, m.body) for m in messages])
            database.executemany("INSERT INTO grants VALUES (?, ?)", [(g.epoch, g.encode()) for g in grants])
        self._stored = self._machine.generation


# --- the program ---------------------------------------------------------------------------------


def follow(owner: Owner, *, offer_every: int, reset: bool, stopping: threading.Event) -> None:
    """Read until told to stop.  A service that is away is waited for; a lost queue begins anew if `reset` says so."""
    turns, connected = 0, False
    while not stopping.is_set():
        try:
            if not connected:
                owner.connect()
                print(f"sender {owner.sender_id.hex()}", flush=True)
                connected = True
            read = owner.read()
            for message in read.messages:
                print(f"message {message.seq} {len(message.body)}", flush=True)
            turns += bool(read.messages)
            if offer_every and turns >= offer_every:
                turns = 0
                owner.offer_key()
            if not read.opened:
                stopping.wait(0.01)
        except ChainLost as verdict:
            print(f"lost: {verdict}", flush=True)
            if not reset:
                raise
            connected = False  # The reset is persisted first, and sent again until it is confirmed.
            with contextlib.suppress(OSError, Refusal):
                owner.reset()
        except Refusal as refusal:
            if refusal.fault not in (Fault.BUSY, Fault.FULL, Fault.FAILED):
                raise
            stopping.wait(0.1)
        except OSError:
            stopping.wait(0.05)


def demonstrate(directory: Path) -> None:
    """Show it all with a service of our own."""
    path, backup = directory / "service.db", directory / "backup.db"
    service, port = start_service(path)
    exchange = TcpExchange("127.0.0.1", port)
    owner = Owner(directory / "owner.db", exchange, b"service.example")
    sender = Client(exchange, b"service.example", SigningKey.generate())
    owner.connect()

    def restart(source: Path, target: Path) -> None:
        nonlocal service
        exchange.close()
        stop_service(service)
        shutil.copy(source, target)
        service, _ = start_service(path, port)

    def send(*texts: bytes) -> None:
        for text in texts:
            sender.enqueue(owner.sender_id, os.urandom(16), text)

    send(b"first", b"second")
    print("read:", [message.body for message in owner.read().messages])
    owner.offer_key()
    print("a new key:", *owner.read().opened)
    print("missing at the service:", len(owner.check_head()))
    restart(path, backup)
    send(b"third")
    print("read:", [message.body for message in owner.read().messages])
    restart(backup, path)
    print("the service is back from its backup")
    try:
        owner.read()
    except ChainLost as verdict:
        print(verdict)
    owner.reset()
    send(b"after the reset")
    print("read:", [message.body for message in owner.read().messages])
    print("inbox:", owner.inbox)
    owner.delete()
    owner.close()
    exchange.close()
    stop_service(service)


def write_grants_of(owner: Owner, path: str, passphrase_file: str) -> None:
    """A grant file for `python -m pyspark_udfs audit`; it needs the extra `spark`."""
    from pyspark_udfs.file_key import PassphraseFile
    from pyspark_udfs.grant_file import write_grants

    count = write_grants(path, owner.grants(), PassphraseFile(passphrase_file))
    print(f"{count} grants in {path}")
    owner.close()


def start_service(path: Path, port: int = 0, *options: str) -> tuple[subprocess.Popen[str], int]:
    """A service in a process of its own, when it is ready."""
    command = [sys.executable, "-m", "examples.queuing_service", "--database", str(path), "--port", str(port), *options]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    line = service.stdout.readline()
    if not line.startswith("listening on "):
        raise RuntimeError(f"the service did not start: {line!r}")
    return service, int(line.rpartition(":")[2])


def stop_service(service: subprocess.Popen[str]) -> None:
    service.terminate()
    service.communicate(timeout=30)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--service", help="a running service: host:port, or http://host:port")
    parser.add_argument("--name", default="service.example", help="the service's id")
    parser.add_argument("--database", type=Path, help="the owner's SQLite file; made if it is not there")
    parser.add_argument("--offer-every", type=int, default=20, help="renew the key after so many reads; 0: never")
    parser.add_argument("--reset", action="store_true", help="begin the queue anew when its chain is lost")
    parser.add_argument("--record-grants", action="store_true", help="keep a grant of each epoch, for an audit")
    parser.add_argument("--grants", metavar="FILE", help="write the recorded grants of what the service holds, and end")
    parser.add_argument("--passphrase-file", help="the passphrase for that file")
    options = parser.parse_args()
    if options.grants is not None and options.passphrase_file is None:
        parser.error("--grants needs --passphrase-file, because grants are stored encrypted")
    if (options.service is None) != (options.database is None) or (options.grants and options.service is None):
        parser.error("--service and --database belong together; without both it is a demonstration")
    if options.service is None:
        with tempfile.TemporaryDirectory() as directory:
            demonstrate(Path(directory))
        return
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    exchange, name = exchange_with(options.service), options.name.encode()
    owner = Owner(options.database, exchange, name, record_grants=options.record_grants)
    if options.grants is not None:
        write_grants_of(owner, options.grants, options.passphrase_file)
        return
    try:
        follow(owner, offer_every=options.offer_every, reset=options.reset, stopping=stopping)
    except ChainLost:
        sys.exit("what is in the queue cannot be read; start again with --reset to give it up and begin anew")
    finally:
        owner.close()


if __name__ == "__main__":
    main()
