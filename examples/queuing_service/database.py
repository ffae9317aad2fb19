"""The service's SQLite file: its tables, and how it is opened.  It knows no operation.

WAL, so that an export reads while the service writes.  `synchronous = FULL`: a commit is on the disk before its
answer leaves, which is the contract.  `secure_delete`: an old chain key is overwritten and not only
unlinked; the log beside the file still holds it until a checkpoint, so `checkpoint` truncates that.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

SCHEMA: Final = 1
#: How long a writer waits for another process that writes, in milliseconds.
BUSY_TIMEOUT: Final = 5_000

_TABLES: Final = """
CREATE TABLE service (id INTEGER PRIMARY KEY CHECK (id = 1), service_id BLOB NOT NULL);
CREATE TABLE queues (
    -- AUTOINCREMENT: no row of a queue that was reset is mistaken for the one before it.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id BLOB NOT NULL UNIQUE,
    sender_id BLOB NOT NULL UNIQUE,
    owner_key BLOB NOT NULL,
    sender_key BLOB,
    -- Tells a repeated creation request from another one.
    request_digest BLOB NOT NULL,
    generation INTEGER NOT NULL,
    state BLOB NOT NULL,
    -- How many DATA frames are stored.
    held INTEGER NOT NULL,
    record BLOB NOT NULL
);
CREATE TABLE frames (
    queue INTEGER NOT NULL, seq INTEGER NOT NULL, type INTEGER NOT NULL, day INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (queue, seq)
);
CREATE TABLE blobs (
    queue INTEGER NOT NULL, priority INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (queue, priority)
) WITHOUT ROWID;
-- The last number of each key at each target, and its last message: no request and no message counts twice.
CREATE TABLE callers (
    target BLOB NOT NULL, key BLOB NOT NULL, number INTEGER NOT NULL, message_id BLOB, seq INTEGER,
    PRIMARY KEY (target, key)
) WITHOUT ROWID;
CREATE INDEX callers_by_number ON callers (number);
"""


class WrongDatabase(Exception):
    """The file belongs to another service, or to another version of this program."""


def open_database(
    path: Path, service_id: bytes, *, max_pages: int | None = None, busy_timeout: int = BUSY_TIMEOUT
) -> sqlite3.Connection:
    """Open the file, or make it.  `max_pages` limits its size (pages of 4 KiB)."""
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.execute(f"PRAGMA busy_timeout = {busy_timeout:d}")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("PRAGMA secure_delete = ON")
    if max_pages is not None:
        database.execute(f"PRAGMA max_page_count = {max_pages:d}")
    database.execute("BEGIN IMMEDIATE")
    try:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in _TABLES.split(";\n"):
                database.execute(statement)
            database.execute("INSERT INTO service VALUES (1, ?)", (service_id,))
            database.execute(f"PRAGMA user_version = {SCHEMA}")
        elif version != SCHEMA:
            raise WrongDatabase(f"{path} has schema {version}, and this program reads schema {SCHEMA}")
        (stored,) = database.execute("SELECT service_id FROM service").fetchone()
        if stored != service_id:
            raise WrongDatabase(
                f"{path} belongs to the service {stored!r}, not to {service_id!r}: start it with --name"
            )
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        database.close()
        raise
    return database


def checkpoint(database: sqlite3.Connection) -> None:
    """Move the log into the file and empty it: after this, deleted keys are on neither."""
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
