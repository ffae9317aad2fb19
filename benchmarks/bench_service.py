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
from collections.abc import Callable
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
#: Messages of each queue, and in how many shares the queues are created and fetched; a share fits the connections.
ROUNDS: Final = 10
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
    """One service process and the load on it.  Each call is one round of one kind, and returns its seconds."""

    def __init__(self, machine: str, directory: Path, queues: int) -> None:
        self.database = directory / f"{machine}.db"
        command = [sys.executable, "-m", "benchmarks.bench_service", "--serve", machine]
        self._process = subprocess.Popen([*command, str(self.database)], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline().rpartition(":")[2])
        self._single = TcpExchange("127.0.0.1", self._port)
        self._ids = [os.urandom(24) for _ in range(queues)]

    def stop(self) -> None:
        self._single.close()
        self._process.terminate()
        self._process.communicate(timeout=60)

    def share(self, round: int) -> list[bytes]:
        size = len(self._ids) // ROUNDS
        return self._ids[round * size : (round + 1) * size]

    def create(self, round: int) -> float:
        """A share of the queues."""
        signed = []
        for id in self.share(round):
            request = Dequeuer.create(SERVICE_ID, id)[1].encode()
            create = Create(request=request, sender_id=id[::-1], usage=Usage.MESSAGING)
            signed.append(self._sign(OWNER, id, create))
        return self._seconds(signed, Done)

    def enqueue(self, round: int) -> float:
        """One message for every queue."""
        message = os.urandom(SIZE)
        signed = [self._sign(SENDER, id[::-1], Enqueue(message_id=os.urandom(16), message=message)) for id in self._ids]
        return self._seconds(signed, Accepted)

    def held(self) -> tuple[int, int]:
        """How many queues and how many messages the service's file holds."""
        connection = sqlite3.connect(self.database)
        queues, messages = connection.execute("SELECT count(*), sum(held) FROM queues").fetchone()
        connection.close()
        return queues, messages

    def single(self, round: int) -> float:
        """One enqueue, and nothing else at the same time."""
        id = self._ids[round % len(self._ids)]
        request = self._sign(SENDER, id[::-1], Enqueue(message_id=os.urandom(16), message=bytes(SIZE)))
        start = time.perf_counter()
        answer = self._single(request[4:])  # It adds the length itself.
        seconds = time.perf_counter() - start
        assert isinstance(decode_answer(answer), Accepted)
        return seconds

    def fetch(self, round: int) -> float:
        """All that a share of the queues holds."""
        return self._seconds([self._sign(OWNER, id, Fetch(first=0, limit=100)) for id in self.share(round)], Fetched)

    def _sign(self, key: SigningKey, target: bytes, operation: Create | Enqueue | Fetch) -> bytes:
        request = sign_request(SERVICE_ID, key, target, time.time_ns() // 1_000, operation)
        return u32(len(request)) + request

    def _seconds(self, requests: list[bytes], expected: type[Done | Accepted | Fetched]) -> float:
        # A queue's requests stay on one connection, so that their numbers arrive in order.
        shares = [requests[start::CONNECTIONS] for start in range(CONNECTIONS)]
        start = time.perf_counter()
        asyncio.run(self._send_all(shares, expected))
        return time.perf_counter() - start

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
    parser.add_argument("--quick", action="store_true", help="a hundred times less: shows that it runs")
    parser.add_argument("--serve", nargs=2, metavar=("MACHINE", "DATABASE"), help="used by the benchmark itself")
    options = parser.parse_args()
    if options.serve:
        run_service(options.serve[0], Path(options.serve[1]))
        return 0
    queues, singles = (80, 50) if options.quick else (10_000, 2_000)
    messages = queues * ROUNDS
    with tempfile.TemporaryDirectory(prefix="qsratchet-service-") as directory:
        loads = {machine: Load(machine, Path(directory), queues) for machine in MACHINES}
        try:
            # The two take turns, round by round, so that both have the same weather.
            created = in_turn({machine: load.create for machine, load in loads.items()}, ROUNDS)
            enqueued = in_turn({machine: load.enqueue for machine, load in loads.items()}, ROUNDS)
            assert all(load.held() == (queues, messages) for load in loads.values())
            alone = in_turn({machine: load.single for machine, load in loads.items()}, singles)
            fetched = in_turn({machine: load.fetch for machine, load in loads.items()}, ROUNDS)
        finally:
            for load in loads.values():
                load.stop()
    rows = [
        row("creations/s", {machine: queues / sum(times) for machine, times in created.items()}),
        row(f"messages of {SIZE} bytes enqueued/s", {m: messages / sum(times) for m, times in enqueued.items()}),
        row(
            f"one enqueue, median µs, {messages:,} held",
            {machine: statistics.median(times) * 1e6 for machine, times in alone.items()},
        ),
        row(
            "one enqueue, 99th percentile µs",
            {machine: statistics.quantiles(times, n=100)[98] * 1e6 for machine, times in alone.items()},
        ),
        row(f"fetches/s, {ROUNDS} messages each", {m: queues / sum(times) for m, times in fetched.items()}),
    ]
    title = f"A service with {queues:,} queues and {messages:,} messages"
    print(table(title, ("", "without encryption", "sealed", "sealed ÷ without"), rows))
    return 0


def in_turn(contestants: dict[str, Callable[[int], float]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for round in range(rounds):
        for name, run in contestants.items():
            times[name].append(run(round))
    return times


def row(name: str, figures: dict[str, float]) -> tuple[str, ...]:
    plain, sealed = figures["plain"], figures["sealed"]
    return name, f"{plain:,.0f}", f"{sealed:,.0f}", f"{sealed / plain:.2f}"


if __name__ == "__main__":
    sys.exit(main())
