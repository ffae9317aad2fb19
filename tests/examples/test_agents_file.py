"""What a thief of an agent's file finds of the meeting, and of queues that were left: nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from examples.agents.__main__ import until
from examples.agents.agent import Agent
from qsratchet import CreationRequest
from qsratchet.links import OwnerLink
from qsratchet.rotation import Receiving, StartRotation

from .processes import start

MEETING = "SELECT link, opening, dh_seed, send_key, receive_key FROM agent"


def row(file: Path, query: str) -> tuple[Any, ...]:
    connection = sqlite3.connect(file)
    found: tuple[Any, ...] = connection.execute(query).fetchone()
    connection.close()
    return found


def stolen(file: Path) -> bytes:
    """The file, and its log if there is one."""
    return b"".join(path.read_bytes() for path in sorted(file.parent.glob(f"{file.name}*")))


def test_no_secret_of_the_meeting_and_of_a_queue_that_was_left_stays_in_an_agents_file(tmp_path: Path) -> None:
    services = {name: start(tmp_path / f"{name}.service", "--name", name) for name in ("oak", "elm")}
    ports = {name: service.port for name, service in services.items()}
    files = {name: tmp_path / f"{name}.db" for name in ("alice", "bob")}
    alice, bob = (Agent(name, files[name], ports, lambda line: None) for name in files)
    try:
        link = alice.invite("oak")
        services["elm"].kill()
        with pytest.raises(ConnectionError):
            bob.accept(link, "elm")  # He has opened the link, and cannot make his queue yet.
        owner = OwnerLink.load(row(files["alice"], "SELECT link FROM agent")[0])
        keys = row(files["bob"], "SELECT send_key, receive_key FROM agent")
        request = CreationRequest.decode(row(files["bob"], "SELECT request FROM queues")[0])
        meeting = {
            "alice": [owner.link_dh_key.seed, owner.server_dh_key.seed],
            "bob": [row(files["bob"], "SELECT dh_seed FROM agent")[0]],
        }
        left = {
            "alice": [*keys, *row(files["alice"], "SELECT signing_seed FROM queues")],
            "bob": [*keys, *row(files["bob"], "SELECT signing_seed FROM queues"), request.join_secret],
        }
        assert all(secret in stolen(files[name]) for name in files for secret in meeting[name])
        assert all(secret in stolen(files["bob"]) for secret in left["bob"])

        services["elm"] = start(tmp_path / "elm.service", "--name", "elm", port=ports["elm"])
        bob.accept(link, "elm")
        until(lambda: alice.connection is not None, alice, bob)
        for name, file in files.items():
            assert row(file, MEETING) == (None,) * 5
            assert row(file, "SELECT request FROM queues") == (b"",)
            assert [secret for secret in meeting[name] if secret in stolen(file)] == []
        with pytest.raises(RuntimeError, match="met its peer already"):
            alice.invite("oak")

        alice.submit(b"to Bob")
        bob.submit(b"to Alice")
        alice.step(StartRotation(server="elm"))
        bob.step(StartRotation(server="oak"))
        until(lambda: is_over(alice) and is_over(bob), alice, bob)
        assert (alice.inbox, bob.inbox) == ([b"to Alice"], [b"to Bob"])
        for name, file in files.items():
            assert row(file, "SELECT count(*), max(request) FROM queues") == (1, b"")
            assert [secret for secret in meeting[name] + left[name] if secret in stolen(file)] == []
        # What is deleted is needed by nobody: both go on from their files.
        alice.close()
        alice = Agent("alice", files["alice"], ports, lambda line: None)
        alice.submit(b"after that")
        until(lambda: len(bob.inbox) == 2, alice, bob)
    finally:
        alice.close()
        bob.close()
        for service in services.values():
            service.kill()


def is_over(agent: Agent) -> bool:
    """Whether its queue has moved, and its peer's as far as it knows."""
    assert agent.connection is not None
    ended = [line for line in agent.reports if line.startswith("rotation ended: COMPLETED")]
    return len(ended) == 2 and agent.connection.status()[0].phase is Receiving.IDLE
