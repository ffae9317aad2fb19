"""A host that embeds the machines over a real SQLite store and keeps their contract; a test may break it on purpose.

The service stores a queue's state and its frames in one transaction, over the generation that it loaded.  The owner
stores its state and the plaintext in one transaction and acknowledges afterwards.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from qsratchet import UNPADDED, Dequeuer, Enqueuer, Frame, Initialised, Message, Opened, ReadPolicy, UpdatePolicy

__all__ = ["Crash", "OwnerStore", "ServiceStore", "StaleState", "connected"]


class Crash(Exception):
    """The process ends here."""


class StaleState(Exception):
    """Another worker wrote first."""


def survive() -> None:
    """No crash at this point."""


class ServiceStore:
    """The service's database: the state of one queue, and its frames by number."""

    def __init__(self, path: Path, policy: UpdatePolicy | None = None) -> None:
        self.policy = policy or UpdatePolicy()
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA secure_delete = ON")
        # Crashes here are of the process and not of the machine, so nothing waits for the disk.
        self.db.execute("PRAGMA synchronous = OFF")
        self.db.execute("CREATE TABLE IF NOT EXISTS state (generation INTEGER NOT NULL, blob BLOB NOT NULL)")
        self.db.execute("CREATE TABLE IF NOT EXISTS frames (seq INTEGER PRIMARY KEY, data BLOB NOT NULL)")

    def create(self, request: bytes) -> None:
        machine, init = Enqueuer.create(request, now=0, policy=self.policy, padding=UNPADDED)
        self.db.execute("BEGIN IMMEDIATE")
        self.db.execute("INSERT INTO state VALUES (?, ?)", (machine.generation, machine.dump()))
        self.db.execute("INSERT INTO frames VALUES (?, ?)", (init.seq, init.data))
        self.db.execute("COMMIT")

    def load(self) -> Enqueuer:
        (blob,) = self.db.execute("SELECT blob FROM state").fetchone()
        return Enqueuer.load(blob, policy=self.policy, padding=UNPADDED)

    def store(
        self, loaded: int, machine: Enqueuer, frames: list[Frame], *, crash: Callable[[], None] = survive
    ) -> None:
        """One transaction, over the generation that was loaded and no other."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            cursor = self.db.execute(
                "UPDATE state SET generation = ?, blob = ? WHERE generation = ?",
                (machine.generation, machine.dump(), loaded),
            )
            if cursor.rowcount != 1:
                raise StaleState
            self.db.executemany("INSERT INTO frames VALUES (?, ?)", [(frame.seq, frame.data) for frame in frames])
            crash()
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    def enqueue(self, message: bytes) -> list[Frame]:
        """Load, seal, store; retry if another worker was faster."""
        while True:
            machine = self.load()
            loaded = machine.generation
            frames = machine.enqueue(message, now=0)
            try:
                self.store(loaded, machine, frames)
            except StaleState:
                continue
            return frames

    def fetch(self, start: int) -> list[bytes]:
        return [row[0] for row in self.db.execute("SELECT data FROM frames WHERE seq >= ? ORDER BY seq", (start,))]

    def numbers(self) -> list[int]:
        return [row[0] for row in self.db.execute("SELECT seq FROM frames ORDER BY seq")]

    def acknowledged(self, below: int) -> None:
        self.db.execute("DELETE FROM frames WHERE seq < ?", (below,))


class OwnerStore:
    """The owner's database: its state, and the messages that were read."""

    def __init__(self, path: Path, policy: ReadPolicy | None = None) -> None:
        self.policy = policy or ReadPolicy()
        self.path = path
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA secure_delete = ON")
        # Crashes here are of the process and not of the machine, so nothing waits for the disk.
        self.db.execute("PRAGMA synchronous = OFF")
        self.db.execute("CREATE TABLE IF NOT EXISTS state (generation INTEGER NOT NULL, blob BLOB NOT NULL)")
        self.db.execute("CREATE TABLE IF NOT EXISTS messages (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    def create(self) -> bytes:
        machine, request = Dequeuer.create(b"service", b"queue", suites=(0x0001,))
        self.db.execute("INSERT INTO state VALUES (?, ?)", (machine.generation, machine.dump()))
        return request.encode()

    def load(self) -> Dequeuer:
        (blob,) = self.db.execute("SELECT blob FROM state").fetchone()
        return Dequeuer.load(blob, policy=self.policy)

    def store(
        self, loaded: int, machine: Dequeuer, opened: list[Opened], *, crash: Callable[[], None] = survive
    ) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        try:
            cursor = self.db.execute(
                "UPDATE state SET generation = ?, blob = ? WHERE generation = ?",
                (machine.generation, machine.dump(), loaded),
            )
            if cursor.rowcount != 1:
                raise StaleState
            rows = [(result.seq, result.body) for result in opened if isinstance(result, Message)]
            self.db.executemany("INSERT INTO messages VALUES (?, ?)", rows)
            crash()
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    def read(self, frame: bytes) -> int:
        """Open one frame, store what it gave, return what may be acknowledged."""
        machine = self.load()
        loaded = machine.generation
        opened = machine.open(frame)
        self.store(loaded, machine, [opened])
        return machine.acknowledge

    def messages(self) -> list[tuple[int, bytes]]:
        return list(self.db.execute("SELECT seq, body FROM messages ORDER BY seq"))


def connected(directory: Path, *, policy: ReadPolicy | None = None) -> tuple[ServiceStore, OwnerStore]:
    """A queue between two databases, its INIT read."""
    service, owner = ServiceStore(directory / "service.db"), OwnerStore(directory / "owner.db", policy)
    service.create(owner.create())
    machine = owner.load()
    loaded = machine.generation
    (init,) = service.fetch(0)
    opened = machine.open(init)
    assert isinstance(opened, Initialised)
    owner.store(loaded, machine, [opened])
    return service, owner
