"""The example service under load from a second process, against the same service without encryption.

    python -m benchmarks.bench_service

10,000 queues are created and 100,000 messages enqueued and held; then single requests are timed while all that is
held, and everything is fetched.  The other contestant differs in one class: its machine seals nothing.  Signatures,
SQLite, durable commits and sockets are the same, so the ratio is what queue encryption costs a service.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.measure import table
from examples.queuing_service.__main__ import serve
from examples.queuing_service.client import TcpExchange
from examples.queuing_service.protocol import (
    Accepted,
    Create,
    Done,
    Enqueue,
    Fetch,
    Fetched,
    decode_answer,
    sign_request,
)
from examples.queuing_service.service import Limits
from examples.queuing_service.storage import Storage
from qsratchet import (
    PADME,
    Buffer,
    CreationRequest,
    Dequeuer,
    Enqueuer,
    Frame,
    FrameType,
    Padding,
    UpdatePolicy,
)
from qsratchet.codec import as_bytes, u32
from qsratchet.crypto.signing import SigningKey
from qsratchet.records import Usage

SERVICE_ID: Final = b"bench.example"
CONNECTIONS: Final = 8
SIZE: Final = 256
_STATE: Final = struct.Struct(">QQ")
#: Client-side keys are no part of what is measured, so all queues share them.
OWNER, SENDER = SigningKey.generate(), SigningKey.generate()


class PlainMachine(Enqueuer):
    """A machine that numbers messages and stores them as they are."""

    __slots__ = ()

    @classmethod
    def create(
        cls,
        request: CreationRequest | Buffer,
        *,
        now: int,
        policy: UpdatePolicy = UpdatePolicy(),  # noqa: B008
        padding: Padding = PADME,
        suites: tuple[int, ...] = (),
    ) -> tuple[Enqueuer, Frame]:
        self = cls.__new__(cls)
        self._generation = self._next = 1
        return self, Frame(0, FrameType.INIT, b"")

    def enqueue(self, message: Buffer, *, now: int, aad: Buffer = b"") -> list[Frame]:
        frame = Frame(self._next, FrameType.DATA, as_bytes(message))
        self._next += 1
        self._generation += 1
        return [frame]

    def dump(self) -> bytes:
        return _STATE.pack(self._generation, self._next)

    @classmethod
    def load(
        cls,
        state: Buffer,
        *,
        policy: UpdatePolicy = UpdatePolicy(),  # noqa: B008
        padding: Padding = PADME,
    ) -> Enqueuer:
        self = cls.__new__(cls)
        self._generation, self._next = _STATE.unpack(state)
        return self


MACHINES: Final[dict[str, type[Enqueuer]]] = {"plain": PlainMachine, "sealed": Enqueuer}


class Load:
    """One service process and the load on it."""

    def __init__(self, machine: str, directory: Path, queues: int, messages: int) -> None:
        self.database = directory / f"{machine}.db"
        command = [sys.executable, "-m", "benchmarks.bench_service", "--serve", machine]
        self._process = subprocess.Popen([*command, str(self.database)], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline().rpartition(":")[2])
        self._ids = [os.urandom(24) for _ in range(queues)]
        self._each = messages // queues

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=60)

    def create(self) -> float:
        """Requests per second."""
        requests = [
            Create(request=Dequeuer.create(SERVICE_ID, id)[1].encode(), sender_id=id[::-1], usage=Usage.MESSAGING)
            for id in self._ids
        ]
        signed = [self._sign(OWNER, id, request) for id, request in zip(self._ids, requests, strict=True)]
        return self._rate(signed, Done)

    def enqueue(self) -> float:
        message = os.urandom(SIZE)
        signed = [
            self._sign(SENDER, id[::-1], Enqueue(message_id=os.urandom(16), message=message))
            for _ in range(self._each)
            for id in self._ids
        ]
        rate = self._rate(signed, Accepted)
        connection = sqlite3.connect(self.database)
        held = connection.execute("SELECT count(*), sum(held) FROM queues").fetchone()
        connection.close()
        assert held == (len(self._ids), len(signed)), held
        return rate

    def latencies(self, count: int) -> tuple[float, float]:
        """The median and the 99th percentile of single enqueues, one after the other, in microseconds."""
        exchange = TcpExchange("127.0.0.1", self._port)
        times = []
        for id in self._ids[:count]:
            operation = Enqueue(message_id=os.urandom(16), message=bytes(SIZE))
            request = self._sign(SENDER, id[::-1], operation)
            start = time.perf_counter()
            answer = exchange(request[4:])  # It adds the length itself.
            times.append((time.perf_counter() - start) * 1e6)
            assert isinstance(decode_answer(answer), Accepted)
        exchange.close()
        return statistics.median(times), statistics.quantiles(times, n=100)[98]

    def fetch(self) -> float:
        """Fetches per second, each of all that a queue holds."""
        return self._rate([self._sign(OWNER, id, Fetch(first=0, limit=100)) for id in self._ids], Fetched)

    def _sign(self, key: SigningKey, target: bytes, operation: Create | Enqueue | Fetch) -> bytes:
        request = sign_request(SERVICE_ID, key, target, time.time_ns() // 1_000, operation)
        return u32(len(request)) + request

    def _rate(self, requests: list[bytes], expected: type[Done | Accepted | Fetched]) -> float:
        # A queue's requests stay on one connection, so that their numbers arrive in order.
        shares = [requests[start::CONNECTIONS] for start in range(CONNECTIONS)]
        if len(self._ids) % CONNECTIONS:
            raise ValueError(f"the number of queues must be a multiple of {CONNECTIONS}")
        start = time.perf_counter()
        asyncio.run(self._send_all(shares, expected))
        return len(requests) / (time.perf_counter() - start)

    async def _send_all(self, shares: list[list[bytes]], expected: type[Done | Accepted | Fetched]) -> None:
        await asyncio.gather(*[self._send(share, expected) for share in shares])

    async def _send(self, requests: list[bytes], expected: type[Done | Accepted | Fetched]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 22)

        async def write() -> None:
            for start in range(0, len(requests), 32):
                writer.write(b"".join(requests[start : start + 32]))
                await writer.drain()

        writing = asyncio.create_task(write())
        for _ in requests:
            size = int.from_bytes(await reader.readexactly(4), "big")
            answer = decode_answer(await reader.readexactly(size))
            assert isinstance(answer, expected)
        await writing
        writer.close()


def run_service(machine: str, database: Path) -> None:
    logging.basicConfig(level=logging.WARNING)
    storage = Storage(database, SERVICE_ID, machine=MACHINES[machine])
    try:
        asyncio.run(serve(storage, Limits(), "127.0.0.1", 0))
    finally:
        storage.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="100 times less: shows that it runs")
    parser.add_argument("--serve", nargs=2, metavar=("MACHINE", "DATABASE"), help="used by the benchmark itself")
    options = parser.parse_args()
    if options.serve:
        run_service(options.serve[0], Path(options.serve[1]))
        return 0
    queues, messages, singles = (104, 1_040, 50) if options.quick else (10_000, 100_000, 2_000)
    results: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="qsratchet-service-") as directory:
        for machine in MACHINES:
            load = Load(machine, Path(directory), queues, messages)
            try:
                created, enqueued = load.create(), load.enqueue()
                middle, late = load.latencies(singles)
                results[machine] = [created, enqueued, middle, late, load.fetch()]
            finally:
                load.stop()
    names = (
        "creations/s",
        f"messages of {SIZE} bytes enqueued/s",
        f"one enqueue, median µs, {messages:,} held",
        "one enqueue, 99th percentile µs",
        f"fetches/s, {messages // queues} messages each",
    )
    rows: list[tuple[str, ...]] = [
        (name, f"{plain:,.0f}", f"{sealed:,.0f}", f"{sealed / plain:.2f}")
        for name, plain, sealed in zip(names, results["plain"], results["sealed"], strict=True)
    ]
    title = f"A service with {queues:,} queues and {messages:,} messages"
    print(table(title, ("", "without encryption", "sealed", "sealed ÷ without"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
