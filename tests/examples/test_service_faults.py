"""What goes wrong around a service: the disk, the lock, slow clients, a second process, a backup that is restored."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from examples.owner import ChainLost, Owner
from examples.queuing_service.protocol import (
    Accepted,
    Answer,
    AskHead,
    Enqueue,
    Fault,
    Fetch,
    Refusal,
    decode_answer,
    encode_answer,
)
from examples.queuing_service.storage import Conflict, Storage
from qsratchet import Enqueuer, EpochGap, Fork, RejectedError, RolledBack
from qsratchet.codec import u32
from qsratchet.crypto.signing import SigningKey

from .processes import ROOT, SERVICE_ID, Pair, Running, integrity, now, raw_socket, running, signed, start, until


def receive(connection: socket.socket) -> Answer | Refusal:
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    try:
        return decode_answer(connection.recv(size, socket.MSG_WAITALL))
    except Refusal as refusal:
        return refusal


# --- the disk and the lock -----------------------------------------------------------------------


def test_a_full_disk_refuses_messages_loses_none_and_ends_when_the_owner_has_read(tmp_path: Path) -> None:
    with running(tmp_path / "service.db", "--max-pages", "120", "--queue-length", "1000") as service:
        pair, accepted = Pair(service), []
        bodies = (number.to_bytes(2, "big") * 4_000 for number in range(1_000))

        def fill() -> None:
            for body in bodies:
                pair.send(body)
                accepted.append(body)

        with pytest.raises(Refusal) as raised:
            fill()
        assert raised.value.fault is Fault.FULL
        assert len(accepted) > 10
        assert pair.read() == accepted
        pair.send(b"room again")
        assert pair.read() == [b"room again"]
        service.stop()
    assert integrity(tmp_path / "service.db") == "ok"


def test_a_locked_database_is_reported_as_busy_and_nothing_happens(tmp_path: Path) -> None:
    with running(tmp_path / "service.db", "--busy-timeout", "50") as service:
        pair = Pair(service)
        other = sqlite3.connect(service.database, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with raw_socket(service.port) as connection:
            for number in range(20):
                operation = Enqueue(message_id=os.urandom(16), message=b"refused")
                request = signed(pair.sender_key, pair.sender_id, operation, number=now() + number)
                connection.sendall(u32(len(request)) + request)
            answers = [receive(connection) for _ in range(20)]
        assert {answer.fault for answer in answers if isinstance(answer, Refusal)} == {Fault.BUSY}
        assert not any(isinstance(answer, Accepted) for answer in answers)
        other.execute("ROLLBACK")
        pair.send(b"taken")
        assert pair.read() == [b"taken"]


def test_a_stopped_service_has_neither_old_keys_nor_acknowledged_frames_on_its_disk(tmp_path: Path) -> None:
    with running(tmp_path / "service.db") as service:
        pair = Pair(service)
        pair.send(*[b"%d" % number * 500 for number in range(20)])
        connection = sqlite3.connect(service.database)
        (state,) = connection.execute("SELECT state FROM queues").fetchone()
        frames = [frame for (frame,) in connection.execute("SELECT data FROM frames ORDER BY seq")]
        connection.close()
        old_key = Enqueuer.load(state)._chain_key
        beside = service.database.with_name("service.db-wal").read_bytes()
        assert old_key in beside
        assert frames[5][-200:] in beside
        pair.send(b"the last")
        assert len(pair.read()) == 21
        service.stop()
    (left,) = [path.read_bytes() for path in tmp_path.iterdir() if path.name.startswith("service.db")]
    assert old_key not in left
    assert not any(frame[-200:] in left for frame in frames)


# --- slow and broken clients ---------------------------------------------------------------------


def test_a_half_written_request_costs_its_sender_the_connection_and_nobody_else(tmp_path: Path) -> None:
    with running(tmp_path / "service.db", "--patience", "0.2") as service:
        pair = Pair(service)
        request = signed(pair.sender_key, pair.sender_id, Enqueue(message_id=bytes(16), message=b"half"))
        with raw_socket(service.port) as slow, raw_socket(service.port) as gone:
            slow.sendall(u32(len(request)) + request[:50])
            gone.sendall(u32(len(request)) + request[:-1])
            gone.close()
            assert slow.recv(1) == b""
        until(lambda: "IncompleteReadError" in service.log(), "the half request is noticed")
        assert "TimeoutError" in service.log()
        pair.send(b"whole")
        assert pair.read() == [b"whole"]


def test_a_half_written_request_over_http_is_refused_and_nobody_else_notices(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="the extra `http` is not installed")
    with running(tmp_path / "service.db", "--http", "--patience", "0.2") as service:
        pair = Pair(service)
        with raw_socket(service.port) as slow, raw_socket(service.port) as gone:
            head = b"POST /requests HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200\r\n\r\n"
            slow.sendall(head + bytes(50))
            gone.sendall(head + bytes(50))
            gone.close()
            assert slow.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 400"
        pair.send(b"whole")
        assert pair.read() == [b"whole"]


def test_a_length_that_nobody_could_store_ends_the_connection(tmp_path: Path) -> None:
    with running(tmp_path / "service.db") as service, raw_socket(service.port) as connection:
        connection.sendall(u32(0xFFFFFFFF))
        answer = receive(connection)
        assert isinstance(answer, Refusal)
        assert answer.fault is Fault.TOO_LARGE
        assert connection.recv(1) == b""


def test_a_client_that_stops_reading_is_cut_off_and_costs_bounded_memory(tmp_path: Path) -> None:
    with running(tmp_path / "service.db", "--patience", "0.3") as service:
        pair, other = Pair(service), Pair(service)
        pair.send(*[bytes(16_000)] * 30)
        before = resident(service)

        def flood(connection: socket.socket) -> None:
            start = now()
            for number in range(start, start + 100_000):
                request = signed(pair.owner_key, pair.queue_id, Fetch(first=0, limit=30), number=number)
                connection.sendall(u32(len(request)) + request)

        with raw_socket(service.port) as connection, pytest.raises(OSError, match=r"Broken pipe|reset"):
            flood(connection)
        assert resident(service) - before < 100 << 20
        other.send(b"unharmed")
        assert other.read() == [b"unharmed"]


def resident(service: Running) -> int:
    pages = int(Path(f"/proc/{service.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_too_many_requests_at_once_are_refused_as_busy_and_the_others_are_carried_out(tmp_path: Path) -> None:
    with running(tmp_path / "service.db", "--in-flight", "4") as service:
        pair, number = Pair(service), now()
        requests = [
            signed(
                pair.sender_key,
                pair.sender_id,
                Enqueue(message_id=os.urandom(16), message=b"%d" % n),
                number=number + n,
            )
            for n in range(40)
        ]
        with raw_socket(service.port) as connection:
            connection.sendall(b"".join(u32(len(request)) + request for request in requests))
            answers = [receive(connection) for _ in requests]
        accepted = [b"%d" % n for n, answer in enumerate(answers) if isinstance(answer, Accepted)]
        refused = [answer for answer in answers if isinstance(answer, Refusal)]
        assert {answer.fault for answer in refused} == {Fault.BUSY}
        assert len(accepted) + len(refused) == 40
        assert pair.read() == accepted
        assert accepted


def test_requests_that_were_read_are_answered_before_the_service_stops(tmp_path: Path) -> None:
    with running(tmp_path / "service.db") as service:
        pair, number = Pair(service), now()
        head = signed(pair.owner_key, pair.queue_id, AskHead(nonce=bytes(16)))
        requests = [
            signed(
                pair.sender_key,
                pair.sender_id,
                Enqueue(message_id=os.urandom(16), message=b"%d" % n),
                number=number + n,
            )
            for n in range(50)
        ]
        with raw_socket(service.port) as connection:
            connection.sendall(u32(len(head)) + head)
            receive(connection)
            connection.sendall(b"".join(u32(len(request)) + request for request in requests))
            service.process.terminate()
            answers = []
            while connection.recv(1, socket.MSG_PEEK):
                answers.append(receive(connection))
        assert service.process.wait(30) == 0
    accepted = [b"%d" % n for n, answer in enumerate(answers) if isinstance(answer, Accepted)]
    assert len(accepted) == len(answers)
    with running(tmp_path / "service.db") as again:
        pair.owner = again.client(pair.owner_key)
        assert pair.read() == accepted


# --- two processes on one file -------------------------------------------------------------------


def test_two_services_on_one_file_lose_nothing_and_keep_each_senders_order(tmp_path: Path) -> None:
    with running(tmp_path / "service.db", "--update-every", "7") as one, running(tmp_path / "service.db") as two:
        pair = Pair(one)
        failed: list[BaseException] = []

        def send(service: Running, name: int) -> None:
            client = service.client()
            try:
                for number in range(25):
                    client.enqueue(pair.sender_id, os.urandom(16), b"%d %d" % (name, number))
            except BaseException as error:
                failed.append(error)
                raise

        threads = [threading.Thread(target=send, args=(service, name)) for name, service in enumerate((one, two) * 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        read = pair.read()
        for name in range(4):
            mine = [body for body in read if body.startswith(b"%d " % name)]
            assert mine == [b"%d %d" % (name, number) for number in range(25)]
        assert len(read) == 100


def test_of_two_writers_with_one_generation_the_second_is_turned_away(tmp_path: Path) -> None:
    with running(tmp_path / "service.db") as service:
        pair = Pair(service)
        storage = Storage(service.database, SERVICE_ID)
        stale = storage._find("sender_id", pair.sender_id)
        assert stale is not None
        pair.send(b"first")
        machine = storage._load(stale)
        with pytest.raises(Conflict):
            storage._write(stale, machine, machine.enqueue(b"second", now=0), date(2026, 1, 1))
        storage.close()
        assert pair.read() == [b"first"]


# --- backups -------------------------------------------------------------------------------------


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
        """As an operator does it, while the service runs."""
        source, copy = sqlite3.connect(self.database), sqlite3.connect(target)
        source.backup(copy)
        source.close()
        copy.close()

    def restore(self, source: Path) -> None:
        self.service.kill()
        for path in self.database.parent.glob("service.db*"):
            path.unlink()
        shutil.copy(source, self.database)
        self.service = start(self.database)
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


def test_an_answer_has_a_bounded_text() -> None:
    assert len(encode_answer(Refusal(Fault.REJECTED, "x" * 100_000))) < 1_100
