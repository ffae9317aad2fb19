"""Kill the service, the owner and the sender at random moments, again and again, and compare what came of it.

    python -m tests.examples.kill --rounds 200            (a service, an owner, a sender)
    python -m tests.examples.kill --rounds 200 --http     (the same, with the service behind HTTP)
    python -m tests.examples.kill --rounds 200 --agents   (two services, two agents who move their queues)

A sender sends as fast as it can, an owner reads and renews its key; both and the service have a file each.  A
recorder stands between owner and service and keeps every frame that ever left the service.
"""

from __future__ import annotations

import argparse
import queue
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from examples.queuing_service.client import exchange_with
from examples.queuing_service.protocol import Fetched, Refusal, decode_answer
from qsratchet import header_of
from qsratchet.codec import Reader, u32

from .processes import ROOT, SERVICE_ID, TIMEOUT, Running, integrity, kill, start, until

VICTIMS = ("service", "owner", "sender")


@dataclass(slots=True)
class Record:
    """Every frame that left a service or was in its file, by the key it is sealed under: queue, epoch and number."""

    frames: dict[tuple[bytes, int, int], set[bytes]] = field(default_factory=dict)

    def add(self, queue_id: bytes, frame: bytes) -> None:
        header = header_of(frame)
        self.frames.setdefault((queue_id, header.epoch, header.seq), set()).add(frame)

    def add_stored(self, database: Path) -> None:
        """What is in a service's file now."""
        connection = sqlite3.connect(database, timeout=TIMEOUT)
        for queue_id, frame in connection.execute("SELECT queue_id, data FROM frames JOIN queues ON id = queue"):
            self.add(queue_id, frame)
        connection.close()

    @property
    def count(self) -> int:
        return sum(map(len, self.frames.values()))

    @property
    def repeated_keys(self) -> int:
        """How many keys sealed two different frames.  None may: a frame leaves only when its state is on the disk."""
        return sum(len(frames) > 1 for frames in self.frames.values())

    @property
    def repeated_pairs(self) -> int:
        """How many (key, nonce) pairs sealed two different frames."""
        pairs = [(place, frame[16:28]) for place, frames in self.frames.items() for frame in frames]
        return len(pairs) - len(set(pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a campaign found."""

    kills: dict[str, int]
    sent: list[bytes]
    read: list[bytes]
    frames: int
    repeated_keys: int
    repeated_pairs: int
    integrity: dict[str, str]
    seconds: float

    @property
    def faults(self) -> list[str]:
        """What is wrong, in words."""
        found = []
        lost = [number for number, body in enumerate(self.sent, 1) if body not in set(self.read)]
        if lost:
            found.append(f"{len(lost)} accepted messages were lost, the first is {lost[0]}")
        if len(set(self.read)) != len(self.read):
            found.append(f"{len(self.read) - len(set(self.read))} messages were delivered twice")
        unknown = len(set(self.read) - set(self.sent))
        if unknown:
            found.append(f"{unknown} messages were read that nobody is known to have sent")
        if not found and self.read != self.sent:
            found.append("the order was not kept")
        if self.repeated_keys or self.repeated_pairs:
            found.append(f"{self.repeated_keys} keys and {self.repeated_pairs} (key, nonce) pairs were used twice")
        found += [
            f"{name}: integrity_check says {verdict}" for name, verdict in self.integrity.items() if verdict != "ok"
        ]
        return found


class Recorder:
    """Passes bytes between the owner of queues and a service, and keeps the frames of every whole answer."""

    def __init__(self, service: str, record: Record) -> None:
        self._upstream = service
        self._record = record
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        upstream = exchange_with(self._upstream)
        with client:
            try:
                while size := client.recv(4, socket.MSG_WAITALL):
                    if len(size) < 4:
                        return
                    request = client.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
                    if len(request) < int.from_bytes(size, "big"):
                        return  # The owner was killed while it wrote.
                    answer = upstream(request)
                    self._keep(request, answer)
                    client.sendall(u32(len(answer)) + answer)
            except OSError:
                pass  # One of the two was killed: the other one notices.
            finally:
                upstream.close()

    def _keep(self, request: bytes, answer: bytes) -> None:
        try:
            decoded = decode_answer(answer)
        except Refusal:
            return
        if isinstance(decoded, Fetched):
            target = Reader(request[2:], "request").lv()
            for frame in decoded.frames:
                self._record.add(target, frame)


class Campaign:
    """The three processes, and what they print."""

    def __init__(self, directory: Path, seed: int, *, http: bool) -> None:
        self.random = random.Random(seed)
        self._options = ("--update-every", "7", "--queue-length", "60", *(["--http"] if http else []))
        self.files = {name: directory / f"{name}.db" for name in VICTIMS}
        self.record = Record()
        self.kills = dict.fromkeys(VICTIMS, 0)
        self._lines: queue.Queue[str] = queue.Queue()
        # Set by the sender that runs now, once it handles signals.
        self._ready = threading.Event()
        self._service: Running = start(self.files["service"], *self._options)
        self._recorder = Recorder(self._service.address, self.record)
        self._owner = self._start_owner()
        self._sender_id = self._wait_for("sender ").split()[1]
        self._sender = self._start_sender()

    def round(self) -> str:
        """Wait until a few messages went through, then kill somebody in the midst of it."""
        victim = self.random.choice(VICTIMS)
        # Lines of before the last kill do not count: all three are to be at work when one of them dies.
        while not self._lines.empty():
            self._lines.get()
        for _ in range(self.random.randint(1, 20)):
            self._wait_for("")
        # The processes go on meanwhile; a random part of a message's way later one of them is dead.
        end = time.perf_counter() + self.random.uniform(0, 0.02)
        while time.perf_counter() < end:
            pass
        self.kills[victim] += 1
        match victim:
            case "service":
                self._service.kill()
                self._check(victim)
                self.record.add_stored(self.files["service"])
                self._service = start(self.files["service"], *self._options, port=self._service.port)
            case "owner":
                kill(self._owner)
                self._check(victim)
                self._owner = self._start_owner()
            case _:
                kill(self._sender)
                self._check(victim)
                self._sender = self._start_sender()
        return victim

    def finish(self, seconds: float) -> Report:
        # From here on the sender takes SIGTERM as a request to finish what it has begun.
        assert self._ready.wait(TIMEOUT)
        self._sender.send_signal(signal.SIGTERM)
        assert self._sender.wait(TIMEOUT) == 0
        sent = _column(self.files["sender"], "SELECT body FROM sent WHERE accepted ORDER BY number")
        until(lambda: len(self._inbox()) >= len(sent), "the owner reads everything")
        self._owner.send_signal(signal.SIGTERM)
        self._owner.wait(TIMEOUT)
        self.record.add_stored(self.files["service"])
        self._service.stop()
        self._recorder.close()
        return Report(
            kills=self.kills,
            sent=sent,
            read=self._inbox(),
            frames=self.record.count,
            repeated_keys=self.record.repeated_keys,
            repeated_pairs=self.record.repeated_pairs,
            integrity={name: integrity(path) for name, path in self.files.items()},
            seconds=seconds,
        )

    def close(self) -> None:
        """End what still runs."""
        for process in (self._service.process, self._owner, self._sender):
            if process.poll() is None:
                kill(process)

    def _inbox(self) -> list[bytes]:
        return _column(self.files["owner"], "SELECT body FROM inbox ORDER BY id")

    def _check(self, name: str) -> None:
        verdict = integrity(self.files[name])
        if verdict != "ok":
            raise AssertionError(f"{name} after a kill: {verdict}")

    def _start_owner(self) -> subprocess.Popen[str]:
        service = f"127.0.0.1:{self._recorder.port}"
        return self._start(
            "examples.owner", "--service", service, "--database", str(self.files["owner"]), "--offer-every", "3"
        )

    def _start_sender(self) -> subprocess.Popen[str]:
        options = ["--service", self._service.address, "--name", SERVICE_ID.decode(), "--sender-id", self._sender_id]
        self._ready = threading.Event()
        return self._start("tests.examples.kill_sender", *options, "--database", str(self.files["sender"]))

    def _start(self, module: str, *options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *options], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )

        ready = self._ready

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                if line == "ready\n":
                    ready.set()
                else:
                    self._lines.put(line)
            process.stdout.close()

        threading.Thread(target=listen, daemon=True).start()
        return process

    def _wait_for(self, beginning: str) -> str:
        while True:
            line = self._lines.get(timeout=TIMEOUT)
            if line.startswith(beginning):
                return line


Found = TypeVar("Found", covariant=True)


class Killing(Protocol[Found]):
    """A campaign under way: each round kills something, and the end says what came of it."""

    def round(self) -> str: ...

    def finish(self, seconds: float) -> Found: ...

    def close(self) -> None: ...


def killed(run: Killing[Found], rounds: int, *, progress: bool) -> Found:
    """Carry out so many rounds."""
    started = time.monotonic()
    try:
        for number in range(1, rounds + 1):
            victim = run.round()
            if progress:
                print(f"\r{number}/{rounds} killed: {victim:8}", end="", file=sys.stderr, flush=True)
        return run.finish(time.monotonic() - started)
    finally:
        run.close()


def campaign(directory: Path, rounds: int, seed: int, *, http: bool = False, progress: bool = False) -> Report:
    return killed(Campaign(directory, seed, http=http), rounds, progress=progress)


def _column(path: Path, query: str) -> list[bytes]:
    connection = sqlite3.connect(path, timeout=TIMEOUT)
    try:
        return [value for (value,) in connection.execute(query)]
    finally:
        connection.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--agents", action="store_true", help="two services and two agents")
    parser.add_argument("--http", action="store_true", help="the service behind HTTP")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        if options.agents:
            from .kill_agents import main as agents_main

            return agents_main(Path(directory), options.rounds, options.seed)
        report = campaign(Path(directory), options.rounds, options.seed, http=options.http, progress=True)
    print(f"\nseed {options.seed}, {report.seconds:.0f} s, kills: {report.kills}", file=sys.stderr)
    print(f"{len(report.sent)} messages accepted, {len(report.read)} read, {report.frames} frames recorded")
    for fault in report.faults:
        print("FAULT:", fault)
    print("no faults" if not report.faults else f"{len(report.faults)} faults")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
