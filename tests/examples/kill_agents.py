"""Kill two services and two agents at random moments while the agents chat and move their queues to and fro.

What each agent submitted is in its file, together with its connection; what it got is there too.  At the end both run
undisturbed until everything has arrived, and the two are compared.
"""

from __future__ import annotations

import queue
import random
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .kill import Record, Recorder, killed
from .processes import ROOT, TIMEOUT, Running, integrity, kill, start, until

SERVICES = ("oak", "elm")
AGENTS = ("alice", "bob")
PEERS = {"alice": "bob", "bob": "alice"}
HOMES = {"alice": "oak", "bob": "elm"}
NEVER = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a campaign found."""

    kills: dict[str, int]
    submitted: dict[str, int]
    inboxes: dict[str, list[bytes]]
    reports: dict[str, list[str]]
    frames: int
    repeated_keys: int
    repeated_pairs: int
    integrity: dict[str, str]
    seconds: float

    @property
    def rotations(self) -> int:
        return sum("COMPLETED, our queue" in line for lines in self.reports.values() for line in lines)

    @property
    def faults(self) -> list[str]:
        found = []
        for name, inbox in self.inboxes.items():
            peer = PEERS[name]
            expected = [b"%s %d" % (peer.encode(), n) for n in range(1, self.submitted[peer] + 1)]
            if inbox != expected:
                found.append(f"{name} got {len(inbox)} messages of {len(expected)}, or not in order")
        for name, lines in self.reports.items():
            # Phases and completed rotations are all that may happen: a gap, a replay or a forced end is a fault here.
            odd = [
                line for line in lines if not line.startswith(("receiving: ", "sending: ", "rotation ended: COMPLETED"))
            ]
            found += [f"{name}: {line}" for line in odd]
        if self.repeated_keys or self.repeated_pairs:
            found.append(f"{self.repeated_keys} keys and {self.repeated_pairs} (key, nonce) pairs were used twice")
        return found + [f"{name}: {verdict}" for name, verdict in self.integrity.items() if verdict != "ok"]


class Campaign:
    """Two services, each behind a recorder, and two agents."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.files = {name: directory / f"{name}.db" for name in (*SERVICES, *AGENTS)}
        self.record = Record()
        self.kills = dict.fromkeys((*SERVICES, *AGENTS), 0)
        self._link = directory / "link"
        self._lines: queue.Queue[str] = queue.Queue()
        self._services: dict[str, Running] = {name: self._start_service(name, 0) for name in SERVICES}
        self._recorders = {name: Recorder(self._services[name].address, self.record) for name in SERVICES}
        self._agents = {name: self._start_agent(name) for name in AGENTS}

    def round(self) -> str:
        victim = self.random.choice((*SERVICES, *AGENTS))
        # Lines of before the last kill do not count: a rotation has to get somewhere between two of them.
        while not self._lines.empty():
            self._lines.get()
        for _ in range(self.random.randint(1, 40)):
            self._lines.get(timeout=TIMEOUT)
        end = time.perf_counter() + self.random.uniform(0, 0.02)
        while time.perf_counter() < end:
            pass
        self.kills[victim] += 1
        if victim in SERVICES:
            self._services[victim].kill()
            self.record.add_stored(self.files[victim])
        else:
            kill(self._agents[victim])
        verdict = integrity(self.files[victim])
        if verdict != "ok":
            raise AssertionError(f"{victim} after a kill: {verdict}")
        if victim in SERVICES:
            self._services[victim] = self._start_service(victim, self._services[victim].port)
        else:
            self._agents[victim] = self._start_agent(victim)
        return victim

    def finish(self, seconds: float) -> Report:
        # From here on nothing new is submitted and nothing is killed: what is under way comes to its end.
        for process in self._agents.values():
            kill(process)
        submitted = {name: self._number(name, "SELECT submitted FROM agent") for name in AGENTS}
        self._agents = {name: self._start_agent(name, messages=0, rotate_every=0) for name in AGENTS}
        until(lambda: all(self._count(name) >= submitted[PEERS[name]] for name in AGENTS), "everything arrives")
        until(lambda: all(self._is_idle(name) for name in AGENTS), "the rotations end")
        self.close()
        for name in SERVICES:
            self.record.add_stored(self.files[name])
            self._recorders[name].close()
        return Report(
            kills=self.kills,
            submitted=submitted,
            inboxes={name: self._rows(name, "SELECT body FROM inbox ORDER BY number") for name in AGENTS},
            reports={name: self._rows(name, "SELECT text FROM reports ORDER BY id") for name in AGENTS},
            frames=self.record.count,
            repeated_keys=self.record.repeated_keys,
            repeated_pairs=self.record.repeated_pairs,
            integrity={name: integrity(path) for name, path in self.files.items()},
            seconds=seconds,
        )

    def close(self) -> None:
        for process in (*self._agents.values(), *[service.process for service in self._services.values()]):
            if process.poll() is None:
                kill(process)

    def _start_service(self, name: str, port: int) -> Running:
        return start(self.files[name], "--name", name, "--update-every", "7", port=port)

    def _start_agent(self, name: str, messages: int = NEVER, rotate_every: int = 12) -> subprocess.Popen[str]:
        servers = [f"--server={server}={recorder.port}" for server, recorder in self._recorders.items()]
        command = [sys.executable, "-m", "examples.agents", "--agent", name, "--database", str(self.files[name])]
        command += ["--link", str(self._link), "--home", HOMES[name], *servers]
        command += ["--messages", str(messages), "--rotate-every", str(rotate_every)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                self._lines.put(line)
            process.stdout.close()

        threading.Thread(target=listen, daemon=True).start()
        return process

    def _rows(self, name: str, query: str) -> list[Any]:
        connection = sqlite3.connect(self.files[name], timeout=TIMEOUT)
        try:
            return [value for (value,) in connection.execute(query)]
        finally:
            connection.close()

    def _number(self, name: str, query: str) -> int:
        return int(self._rows(name, query)[0])

    def _count(self, name: str) -> int:
        return self._number(name, "SELECT count(*) FROM inbox")

    def _is_idle(self, name: str) -> bool:
        phases: list[str] = [line for line in self._rows(name, "SELECT text FROM reports ORDER BY id") if ": " in line]
        last = {line.split(": ")[0]: line.split(": ")[1] for line in phases}
        return {last.get("receiving", "IDLE"), last.get("sending", "IDLE")} == {"IDLE"}


def campaign(directory: Path, rounds: int, seed: int, *, progress: bool = False) -> Report:
    return killed(Campaign(directory, seed), rounds, progress=progress)


def main(directory: Path, rounds: int, seed: int) -> int:
    report = campaign(directory, rounds, seed, progress=True)
    print(f"\nseed {seed}, {report.seconds:.0f} s, kills: {report.kills}", file=sys.stderr)
    print(f"{report.submitted} submitted, {report.rotations} rotations completed, {report.frames} frames recorded")
    for fault in report.faults:
        print("FAULT:", fault)
    print("no faults" if not report.faults else f"{len(report.faults)} faults")
    return 1 if report.faults else 0
