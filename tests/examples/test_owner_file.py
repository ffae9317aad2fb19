"""What the owner example keeps in its file, and how it is written to: grants only if asked and only while they open."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.owner import Owner
from qsratchet import Dequeuer, Grant

from .processes import ROOT, SERVICE_ID, Running, running


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "service.db", "--update-every", "3") as started:
        yield started


def epochs(database: Path) -> list[int]:
    connection = sqlite3.connect(database)
    recorded = [epoch for (epoch,) in connection.execute("SELECT epoch FROM grants ORDER BY epoch")]
    connection.close()
    return recorded


def send(service: Running, owner: Owner, count: int) -> None:
    client = service.client()
    for number in range(count):
        client.enqueue(owner.sender_id, os.urandom(16), b"%d" % number)


def test_an_owner_makes_no_grant_unless_it_is_asked_to(
    service: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Grant] = []
    make = Dequeuer.grant

    def noted(machine: Dequeuer) -> Grant:
        made.append(make(machine))
        return made[-1]

    monkeypatch.setattr(Dequeuer, "grant", noted)
    for record in (False, True):
        path = tmp_path / f"{record}.db"
        owner = Owner(path, service.exchange(), SERVICE_ID, record_grants=record)
        owner.connect()
        send(service, owner, 7)
        assert len(owner.read().messages) == 7
        owner.close()
        assert (len(made) >= 2) is record
        assert epochs(path) == [grant.epoch for grant in made]


def test_a_grant_is_deleted_when_all_frames_of_its_epoch_were_acknowledged(service: Running, tmp_path: Path) -> None:
    path = tmp_path / "owner.db"
    owner = Owner(path, service.exchange(), SERVICE_ID, record_grants=True)
    owner.connect()
    send(service, owner, 12)
    owner.read()
    # All of it is still at the service, so all of it can be audited.
    recorded = owner.grants()
    assert [grant.epoch for grant in recorded] == epochs(path) == list(range(len(recorded)))
    assert len(recorded) > 3
    held = owner.read().opened  # Acknowledges all but the last frame.
    assert held == ()
    assert epochs(path) == [grant.epoch for grant in recorded[-2:]]
    assert [grant.epoch for grant in owner.grants()] in (epochs(path), epochs(path)[1:])
    stolen = b"".join(file.read_bytes() for file in tmp_path.glob("owner.db*"))
    assert recorded[-1].encode() in stolen
    assert not any(grant.encode() in stolen for grant in recorded[:-2])
    owner.close()


def test_the_grants_for_an_audit_begin_where_the_owner_left_off_whatever_the_service_still_holds(
    service: Running, tmp_path: Path
) -> None:
    owner = Owner(tmp_path / "owner.db", service.exchange(), SERVICE_ID, record_grants=True)
    owner.connect()
    send(service, owner, 2)
    owner.read()
    owner.read()  # Acknowledges all but the last frame.
    (left,) = owner.grants()
    send(service, owner, 4)
    stored = sqlite3.connect(service.database, isolation_level=None)
    # Frames are lost that the owner has not read, and the one that it left: an audit must find them missing.
    assert stored.execute("DELETE FROM frames WHERE seq <= ?", (left.first_seq + 2,)).rowcount == 3
    assert owner.grants()[0] == left
    stored.execute("DELETE FROM frames")
    assert owner.grants()[0] == left
    stored.close()
    owner.close()


def test_what_the_send_command_sends_is_what_the_owner_program_reads(service: Running, tmp_path: Path) -> None:
    options = [sys.executable, "-m", "examples.owner", "--service", service.address]
    owner = subprocess.Popen(
        [*options, "--database", str(tmp_path / "owner.db")], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    word, sender_id = owner.stdout.readline().split()
    assert word == "sender"
    command = [sys.executable, "-m", "examples.queuing_service.send", "--service", service.address, "--to"]
    sent = subprocess.run(
        [*command, sender_id, "hello", "world!"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert sent.stdout == "frame 1: hello\nframe 2: world!\n"
    assert [owner.stdout.readline() for _ in range(2)] == ["message 1 5\n", "message 2 6\n"]
    owner.terminate()
    assert owner.wait(30) == 0
    owner.stdout.close()
    refused = subprocess.run([*command, "00" * 24, "hello"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "'hello' was not confirmed: " in refused.stderr
    assert "no such queue" in refused.stderr
