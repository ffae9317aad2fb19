"""A sender that may be killed at any moment: its disk knows what it is about to send, and what was accepted.

It sends numbered messages to one queue until SIGTERM, and prints each number when the service has accepted it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import threading
from pathlib import Path

from examples.queuing_service.client import Client, exchange_with
from examples.queuing_service.protocol import Fault, Refusal
from qsratchet.crypto import SigningKey

TABLES = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS key (seed BLOB);
CREATE TABLE IF NOT EXISTS sent (number INTEGER PRIMARY KEY, body BLOB NOT NULL, accepted INTEGER NOT NULL DEFAULT 0);
"""
#: The service is busy or away, or the queue is full: not a reason to stop.
PATIENT = {Fault.BUSY, Fault.QUOTA, Fault.FULL, Fault.FAILED}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--service", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--sender-id", type=bytes.fromhex, required=True)
    parser.add_argument("--database", type=Path, required=True)
    options = parser.parse_args()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    print("ready", flush=True)
    database = sqlite3.connect(options.database, isolation_level=None)
    database.executescript(TABLES)
    database.execute("INSERT INTO key SELECT ? WHERE NOT EXISTS (SELECT 1 FROM key)", (SigningKey.generate().seed,))
    (seed,) = database.execute("SELECT seed FROM key").fetchone()
    client = Client(exchange_with(options.service), options.name.encode(), SigningKey(seed))
    idle = threading.Event()
    while True:
        row = database.execute("SELECT number, body FROM sent WHERE NOT accepted").fetchone()
        if row is None:
            if stopping.is_set():
                return
            database.execute("INSERT INTO sent (body) VALUES (?)", (os.urandom(24),))
            continue
        number, body = row
        try:
            client.enqueue(options.sender_id, number.to_bytes(16, "big"), body)
        except Refusal as refusal:
            if refusal.fault not in PATIENT:
                raise
            idle.wait(0.01)
            continue
        except OSError:
            idle.wait(0.02)
            continue
        database.execute("UPDATE sent SET accepted = 1 WHERE number = ?", (number,))
        print(f"accepted {number}", flush=True)


if __name__ == "__main__":
    main()
