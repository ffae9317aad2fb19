"""A file that is restored from a backup, the service's or the owner's: a typed verdict, and a way on."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples.agents.__main__ import until as take_turns
from examples.agents.agent import Agent
from examples.owner import ChainLost, Owner
from qsratchet import Dequeuer, EpochGap, Fork, RejectedError, RolledBack
from qsratchet.crypto import SigningKey

from .processes import ROOT, SERVICE_ID, Running, start, until


def back_up(database: Path, target: Path) -> None:
    """As an operator does it, while the service runs."""
    source, copy = sqlite3.connect(database), sqlite3.connect(target)
    source.backup(copy)
    source.close()
    copy.close()


def restore(service: Running, source: Path, *options: str) -> Running:
    """Kill a service and start it again on its port, with the backup in the place of its file."""
    service.kill()
    for path in service.database.parent.glob(f"{service.database.name}*"):
        path.unlink()
    shutil.copy(source, service.database)
    return start(service.database, *options, port=service.port)


class Restored:
    """A service with an owner, and a backup of its file from before the owner's last read."""

    def __init__(self, directory: Path) -> None:
        self.database = directory / "service.db"
        self.service = start(self.database)
        self.sender = SigningKey.generate()
        self.owner_file = directory / "owner.db"
        self.owner = self.open_owner()
        self.owner.connect()
        self.send(b"before")
        assert [message.body for message in self.owner.read().messages] == [b"before"]

    def open_owner(self) -> Owner:
        return Owner(self.owner_file, self.service.exchange(), SERVICE_ID)

    def send(self, *bodies: bytes) -> None:
        client = self.service.client(self.sender)
        for body in bodies:
            client.enqueue(self.owner.sender_id, os.urandom(16), body)

    @property
    def resets(self) -> int:
        """How often the service began the queue anew: each time it gets a new row."""
        connection = sqlite3.connect(self.database)
        (last,) = connection.execute("SELECT max(id) FROM queues").fetchone()
        connection.close()
        return int(last) - 1

    def backup(self, target: Path) -> None:
        back_up(self.database, target)

    def restore(self, source: Path) -> None:
        self.service = restore(self.service, source)
        self.owner.close()
        self.owner = self.open_owner()

    def verdict(self) -> RejectedError:
        with pytest.raises(ChainLost) as raised:
            self.owner.read()
        return raised.value.verdict

    def go_on(self) -> None:
        self.owner.reset()
        self.send(b"after the reset")
        assert [message.body for message in self.owner.read().messages] == [b"after the reset"]
        assert len(self.owner.check_head()) == 0

    def close(self) -> None:
        self.owner.close()
        if self.service.process.poll() is None:
            self.service.kill()


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Restored]:
    made = Restored(tmp_path)
    yield made
    made.close()


def test_a_service_restored_from_a_backup_is_found_out_by_its_head(restored: Restored, tmp_path: Path) -> None:
    restored.backup(tmp_path / "backup")
    restored.send(b"forgotten")
    restored.owner.read()
    restored.restore(tmp_path / "backup")
    assert isinstance(restored.verdict(), RolledBack)
    restored.go_on()


def test_a_restored_service_that_went_on_is_found_out_as_a_fork(restored: Restored, tmp_path: Path) -> None:
    restored.backup(tmp_path / "backup")
    restored.send(b"forgotten")
    restored.owner.read()
    restored.restore(tmp_path / "backup")
    restored.send(b"in its place", b"and more")
    assert isinstance(restored.verdict(), Fork)
    assert restored.owner.inbox == [b"before", b"forgotten"]
    restored.go_on()


def test_a_restored_owner_is_told_what_is_missing(restored: Restored, tmp_path: Path) -> None:
    restored.owner.close()
    shutil.copy(restored.owner_file, tmp_path / "backup")
    restored.owner = restored.open_owner()
    restored.owner.offer_key()
    restored.send(b"one")
    restored.owner.read()
    restored.owner.read()
    restored.send(b"two")
    restored.owner.close()
    shutil.copy(tmp_path / "backup", restored.owner_file)
    restored.owner = restored.open_owner()
    assert isinstance(restored.verdict(), EpochGap)
    restored.go_on()


def test_an_owner_program_that_finds_a_fork_stops_unless_it_may_reset(restored: Restored, tmp_path: Path) -> None:
    restored.backup(tmp_path / "backup")
    restored.send(b"forgotten")
    restored.owner.read()
    restored.restore(tmp_path / "backup")
    restored.owner.close()
    command = [sys.executable, "-m", "examples.owner", "--database", str(restored.owner_file)]
    command += ["--service", f"127.0.0.1:{restored.service.port}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert "lost: RolledBack" in done.stdout
    assert "--reset" in done.stderr
    following = subprocess.Popen([*command, "--reset"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    restored.owner = restored.open_owner()
    assert following.stdout is not None
    lines = iter(following.stdout.readline, "")
    assert next(line for line in lines if line.startswith("lost: RolledBack"))
    # The reset is pending in the owner's file from before that line until the service has confirmed it.
    until(lambda: restored.resets == 1, "the queue begins anew")
    restored.send(b"after the reset")
    assert next(line for line in lines if line.startswith("message "))
    following.terminate()
    assert following.wait(30) == 0
    following.stdout.close()
    assert restored.open_owner().inbox == [b"before", b"forgotten", b"after the reset"]


def forget(database: Path, backup: Path) -> None:
    """The service's states go back, and its frames stay: each is on a disk of its own, say."""
    service = sqlite3.connect(database)
    service.execute("ATTACH ? AS backup", (str(backup),))
    service.execute(
        "UPDATE queues SET (generation, state) = (SELECT generation, state FROM backup.queues b WHERE b.id = queues.id)"
    )
    service.commit()
    service.close()


def test_an_owner_that_gave_up_its_last_frame_asks_for_the_head(restored: Restored, tmp_path: Path) -> None:
    restored.backup(tmp_path / "backup")
    restored.send(b"given up")
    machine = restored.owner._machine
    machine.discard(machine.next_seq)
    restored.owner._persist([], [])
    # It comes again and is dropped; while the head is right, that is all.
    assert restored.owner.read().opened == ()
    forget(restored.database, tmp_path / "backup")
    assert isinstance(restored.verdict(), RolledBack)
    restored.go_on()


@contextmanager
def connected_agents(folder: Path) -> Iterator[tuple[Agent, Agent, dict[str, Running]]]:
    """Alice and Bob, who met on the servers oak and elm; both read and write files in the folder."""
    services = {name: start(folder / f"{name}.db", "--name", name) for name in ("oak", "elm")}
    ports = {name: service.port for name, service in services.items()}
    alice, bob = (Agent(name, folder / f"{name}.db", ports, lambda line: None) for name in ("alice", "bob"))
    try:
        bob.accept(alice.invite("oak"), "elm")
        take_turns(lambda: alice.connection is not None, alice, bob)
        yield alice, bob, services
    finally:
        alice.close()
        bob.close()
        for service in services.values():
            service.kill()


def test_an_agent_that_gave_up_its_last_frame_asks_for_the_head(tmp_path: Path) -> None:
    with connected_agents(tmp_path) as (alice, bob, _):
        back_up(tmp_path / "oak.db", tmp_path / "backup")
        bob.submit(b"given up")
        take_turns(lambda: bob.connection is not None and not bob.connection.waiting, bob)
        file = sqlite3.connect(tmp_path / "alice.db")
        machine = Dequeuer.load(file.execute("SELECT state FROM queues").fetchone()[0])
        machine.discard(machine.next_seq)
        file.execute("UPDATE queues SET state = ?", (machine.dump(),))
        file.commit()
        file.close()
        assert not alice.turn()
        forget(tmp_path / "oak.db", tmp_path / "backup")
        with pytest.raises(RolledBack):
            alice.turn()


def test_an_agent_finds_out_a_server_that_was_restored_and_has_overtaken_it(tmp_path: Path) -> None:
    with connected_agents(tmp_path) as (alice, bob, services):
        bob.submit(b"one")
        take_turns(lambda: alice.inbox == [b"one"], alice, bob)
        back_up(tmp_path / "oak.db", tmp_path / "backup")
        bob.submit(b"two")
        take_turns(lambda: alice.inbox == [b"one", b"two"], alice, bob)
        services["oak"] = restore(services["oak"], tmp_path / "backup", "--name", "oak")
        bob.submit(b"in the place of two")
        bob.submit(b"after that")
        take_turns(lambda: bob.connection is not None and not bob.connection.waiting, bob)
        with pytest.raises(Fork):
            take_turns(lambda: len(alice.inbox) > 2, alice)
