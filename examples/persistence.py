"""The contract with SQLite in 60 lines: state and frames, then out; state and plaintext, then acknowledge.

    python -m examples.persistence [directory]

Run it again with the same directory: both sides go on where they stopped, also if a run was killed half-way.
"""

import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from qsratchet import Dequeuer, Enqueuer, Message

TABLES = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;
CREATE TABLE IF NOT EXISTS state (id INTEGER PRIMARY KEY CHECK (id = 1), generation INTEGER, data BLOB, request BLOB);
CREATE TABLE IF NOT EXISTS rows (seq INTEGER PRIMARY KEY, data BLOB);
"""
SWAP = "UPDATE state SET generation = ?, data = ? WHERE generation = ?"


def opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript(TABLES)
    return database


def store(
    database: sqlite3.Connection, machine: Enqueuer | Dequeuer, before: int, rows: list[tuple[int, bytes]]
) -> None:
    """The new state over the generation that was loaded, and what came of it: both or neither."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        if database.execute(SWAP, (machine.generation, machine.dump(), before)).rowcount != 1:
            raise RuntimeError("somebody else used this queue meanwhile: load the state and try again")
        database.executemany("INSERT INTO rows VALUES (?, ?)", rows)


def enqueue(service: sqlite3.Connection, message: bytes) -> None:
    machine = Enqueuer.load(service.execute("SELECT data FROM state").fetchone()[0])
    before = machine.generation
    frames = machine.enqueue(message, now=int(time.time()))
    store(service, machine, before, [(frame.seq, frame.data) for frame in frames])


def read(owner: sqlite3.Connection, service: sqlite3.Connection) -> list[bytes]:
    machine = Dequeuer.load(owner.execute("SELECT data FROM state").fetchone()[0])
    before, first = machine.generation, machine.acknowledge
    service.execute(
        "DELETE FROM rows WHERE seq < ?", (first,)
    )  # Fetching from a number acknowledges what is before it.
    frames = [row[0] for row in service.execute("SELECT data FROM rows WHERE seq >= ? ORDER BY seq", (first,))]
    messages = [item for item in map(machine.open, frames) if isinstance(item, Message)]
    store(owner, machine, before, [(message.seq, message.body) for message in messages])
    return [message.body for message in messages]


def main(directory: Path) -> None:
    owner, service = opened(directory / "owner.db"), opened(directory / "service.db")
    if owner.execute("SELECT 1 FROM state").fetchone() is None:
        machine, request = Dequeuer.create(b"service.example", b"queue 1")  # Persisted before the request leaves.
        owner.execute("INSERT INTO state VALUES (1, ?, ?, ?)", (machine.generation, machine.dump(), request.encode()))
    if service.execute("SELECT 1 FROM state").fetchone() is None:
        made, init = Enqueuer.create(owner.execute("SELECT request FROM state").fetchone()[0], now=int(time.time()))
        with service:
            service.execute("BEGIN IMMEDIATE")
            service.execute("INSERT INTO state VALUES (1, ?, ?, NULL)", (made.generation, made.dump()))
            service.execute("INSERT INTO rows VALUES (?, ?)", (init.seq, init.data))
    owner.execute("UPDATE state SET request = NULL")  # The service has it; the join secret goes.
    enqueue(service, b"a message of %d" % time.time())
    print(read(owner, service), "of", owner.execute("SELECT count(*) FROM rows").fetchone()[0], "in the inbox")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
