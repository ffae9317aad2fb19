"""Real service processes for the tests, and raw access to their sockets."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from examples.queuing_service.client import Client, Exchange, exchange_with
from examples.queuing_service.protocol import Answer, Operation, decode_answer, sign_request
from qsratchet import CreationRequest, Dequeuer, Message
from qsratchet.crypto import SigningKey
from qsratchet.records import Usage

ROOT = Path(__file__).parents[2]
SERVICE_ID = b"service.example"
TIMEOUT = 30.0


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(TIMEOUT)


@dataclass(slots=True, kw_only=True)
class Running:
    """A service process that is ready."""

    process: subprocess.Popen[str]
    port: int
    database: Path
    log_path: Path
    http: bool

    @property
    def address(self) -> str:
        return f"{'http://' if self.http else ''}127.0.0.1:{self.port}"

    def exchange(self) -> Exchange:
        return exchange_with(self.address)

    def client(self, key: SigningKey | None = None) -> Client:
        return Client(self.exchange(), SERVICE_ID, key or SigningKey.generate())

    def log(self) -> str:
        return self.log_path.read_text()

    def stop(self) -> str:
        """SIGTERM; what it still wrote to its output."""
        self.process.terminate()
        return self.process.communicate(timeout=TIMEOUT)[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=TIMEOUT)


def start(
    database: Path,
    *options: str,
    port: int = 0,
    module: str = "examples.queuing_service",
    prefix: Sequence[str] = (),
    log_path: Path | None = None,
) -> Running:
    """Start a service, or a module that is one, and wait until it is ready; `prefix` is a command that runs it."""
    log_path = log_path or database.with_suffix(f".{time.monotonic_ns()}.log")
    command = [sys.executable, "-m", module, "--database", str(database), "--port", str(port), "--verbose", *options]
    with log_path.open("w") as log:
        process = subprocess.Popen(
            [*prefix, *command], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("listening on "), log_path.read_text()
    return Running(
        process=process,
        port=int(line.rpartition(":")[2]),
        database=database,
        log_path=log_path,
        http="--http" in options,
    )


@contextmanager
def running(
    database: Path,
    *options: str,
    module: str = "examples.queuing_service",
    prefix: Sequence[str] = (),
    log_path: Path | None = None,
) -> Iterator[Running]:
    service = start(database, *options, module=module, prefix=prefix, log_path=log_path)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.kill()


class Pair:
    """A queue at a running service: its owner, reading in memory, and one sender."""

    def __init__(self, service: Running, usage: Usage = Usage.MESSAGING, blobs: dict[int, bytes] | None = None) -> None:
        self.queue_id, self.sender_id = os.urandom(24), os.urandom(24)
        self.owner_key, self.sender_key = SigningKey.generate(), SigningKey.generate()
        self.owner, self.sender = service.client(self.owner_key), service.client(self.sender_key)
        self.machine, self.request = Dequeuer.create(SERVICE_ID, self.queue_id)
        self.owner.create(self.queue_id, self.request, self.sender_id, usage, blobs or {})

    def send(self, *bodies: bytes) -> list[int]:
        return [self.sender.enqueue(self.sender_id, os.urandom(16), body) for body in bodies]

    def read(self) -> list[bytes]:
        """All that is there: opened, and acknowledged."""
        bodies: list[bytes] = []
        while True:
            fetched = self.owner.fetch(self.queue_id, self.machine.acknowledge)
            opened = [self.machine.open(frame) for frame in fetched.frames]
            bodies += [item.body for item in opened if isinstance(item, Message)]
            self.machine.dump()
            if not fetched.frames:
                return bodies


def signed(
    key: SigningKey, target: bytes, operation: Operation, *, number: int | None = None, service_id: bytes = SERVICE_ID
) -> bytes:
    """The bytes of a request, for tests that do something to them."""
    return sign_request(service_id, key, target, now() if number is None else number, operation)


def ask(service: Running, data: bytes) -> Answer:
    return decode_answer(service.exchange()(data))


def now() -> int:
    return time.time_ns() // 1_000


def raw_socket(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), TIMEOUT)


def creation(queue_id: bytes) -> CreationRequest:
    return Dequeuer.create(SERVICE_ID, queue_id)[1]


def integrity(database: Path) -> str:
    connection = sqlite3.connect(database)
    try:
        (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
        return str(verdict)
    finally:
        connection.close()


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that another process does, without a guess at how long it takes."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        os.sched_yield()
