"""The contract with SQLite in 60 lines: `python -m examples.persistence DIRECTORY`, and then the same again."""

import sqlite3
import sys
import time
from contextlib import suppress
from pathlib import Path

from qsratchet import Dequeuer, Duplicate, Enqueuer, Message, Opened

TABLES = """PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;
CREATE TABLE IF NOT EXISTS state (id INTEGER PRIMARY KEY CHECK (id = 1), generation INTEGER, data BLOB, request BLOB);
CREATE TABLE IF NOT EXISTS rows (seq INTEGER PRIMARY KEY, data BLOB);"""
FIRST = "INSERT OR IGNORE INTO state VALUES (1, ?, ?, ?)"  # A machine that is there already stays.
SWAP = "UPDATE state SET generation = ?, data = ? WHERE generation = ?"


def store(db: sqlite3.Connection, machine: Enqueuer | Dequeuer, before: int, rows: list[tuple[int, bytes]]) -> None:
    with db:  # The new state, over the generation that was loaded, and what came of it: both or neither.
        db.execute("BEGIN IMMEDIATE")
        if db.execute(SWAP, (machine.generation, machine.dump(), before)).rowcount != 1:
            raise RuntimeError("somebody else used this queue meanwhile: load the state and try again")
        db.executemany("INSERT INTO rows VALUES (?, ?)", rows)


def enqueue(service: sqlite3.Connection, message: bytes) -> None:
    machine = Enqueuer.load(service.execute("SELECT data FROM state").fetchone()[0])
    before, frames = machine.generation, machine.enqueue(message, now=int(time.time()))
    store(service, machine, before, [(frame.seq, frame.data) for frame in frames])  # Only now may a frame go out.


def read(owner: sqlite3.Connection, service: sqlite3.Connection) -> None:
    machine = Dequeuer.load(owner.execute("SELECT data FROM state").fetchone()[0])
    before, opened = machine.generation, list[Opened]()
    service.execute("DELETE FROM rows WHERE seq < ?", (machine.fetch_from,))  # Fetching acknowledges what is before.
    for (frame,) in service.execute("SELECT data FROM rows ORDER BY seq"):
        with suppress(Duplicate):  # The last one that was read; a Fork, if the service was restored from a backup.
            opened.append(machine.open(frame))
    store(owner, machine, before, [(item.seq, item.body) for item in opened if isinstance(item, Message)])


def main(directory: Path) -> None:
    owner, service = (sqlite3.connect(directory / name, isolation_level=None) for name in ("owner.db", "service.db"))
    owner.executescript(TABLES), service.executescript(TABLES)
    machine, request = Dequeuer.create(b"service.example", b"queue 1")  # Persisted before its request leaves.
    owner.execute(FIRST, (machine.generation, machine.dump(), request.encode()))
    if (pending := owner.execute("SELECT request FROM state").fetchone()[0]) is not None:
        made, init = Enqueuer.create(pending, now=int(time.time()))
        with service:  # A request that comes again, because its answer was lost, changes nothing.
            service.execute("BEGIN IMMEDIATE")
            service.execute(FIRST, (made.generation, made.dump(), None))
            service.execute("INSERT OR IGNORE INTO rows VALUES (?, ?)", (init.seq, init.data))
        owner.execute("UPDATE state SET request = NULL")  # The service has it; the join secret goes.
    enqueue(service, b"a message of %d" % time.time())
    read(owner, service)
    print(owner.execute("SELECT data FROM rows ORDER BY seq").fetchall())


if __name__ == "__main__":
    main(Path(*sys.argv[1:]))
