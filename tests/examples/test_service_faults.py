"""What goes wrong around a service: the disk, the lock, slow and broken clients, an end in the midst of work."""

from __future__ import annotations

import os
import select
import shutil
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.queuing_service.client import exchange_with
from examples.queuing_service.protocol import (
    Accepted,
    Answer,
    AskHead,
    Enqueue,
    Fault,
    Fetch,
    Refusal,
    encode_answer,
)
from qsratchet import Enqueuer
from qsratchet.codec import u32
from qsratchet.crypto import SigningKey

from .processes import TIMEOUT, Pair, Running, integrity, now, raw_socket, running, signed
from .wires import TcpWire, Wire

# --- the disk and the lock -----------------------------------------------------------------------


def fill_and_read(service: Running, make_room: Callable[[], object] = lambda: None) -> None:
    """Send until the disk is full; what was accepted is read, all of it and nothing else; then there is room again."""
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
    make_room()
    assert pair.read() == accepted
    pair.send(b"room again")
    assert pair.read() == [b"room again"]


def test_a_full_disk_refuses_messages_loses_none_and_ends_when_the_owner_has_read(tmp_path: Path) -> None:
    with running(tmp_path / "service.db", "--max-pages", "120", "--queue-length", "1000") as service:
        fill_and_read(service)
        service.stop()
    assert integrity(tmp_path / "service.db") == "ok"


def test_a_file_system_that_is_really_full_loses_nothing_either(tmp_path: Path) -> None:
    # A file system of 4 MiB in memory, which only the service sees; the operator has put something aside in it.
    small = tmp_path / "small"
    small.mkdir()
    mount = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=4m small "$0" && exec "$@"', str(small)]
    if shutil.which("unshare") is None or subprocess.run([*mount, "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system is not permitted here")
    options = ("--queue-length", "1000")
    with running(small / "service.db", *options, prefix=mount, log_path=tmp_path / "log") as service:
        inside = Path(f"/proc/{service.process.pid}/root{small}")
        reserve = inside / "reserve"
        reserve.write_bytes(bytes(2 << 20))
        fill_and_read(service, reserve.unlink)
        assert "database or disk is full" in service.log()
        assert integrity(inside / "service.db") == "ok"


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
            answers = [TcpWire().receive(connection) for _ in range(20)]
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


def test_a_half_written_request_costs_its_sender_the_connection_and_nobody_else(tmp_path: Path, wire: Wire) -> None:
    with running(tmp_path / "service.db", "--patience", "0.2", *wire.options) as service:
        pair = Pair(service)
        request = wire.wrapped(signed(pair.sender_key, pair.sender_id, Enqueue(message_id=bytes(16), message=b"half")))
        # Cut in the length or the headers, and in the body; with a sender that waits, and with one that goes away.
        for cut in (3, len(request) - 1):
            with raw_socket(service.port) as slow, raw_socket(service.port) as gone:
                gone.sendall(request[:cut])
                gone.close()
                slow.sendall(request[:cut])
                # Over HTTP a body that does not come is answered with 400; after that, and otherwise, comes the end.
                assert slow.recv(1 << 16)[:12] in (b"", b"HTTP/1.1 400")
                ended(slow)
        pair.send(b"whole")
        assert pair.read() == [b"whole"]


def test_a_client_that_says_nothing_does_not_keep_an_http_connection(tmp_path: Path) -> None:
    with (
        running(tmp_path / "service.db", "--patience", "0.2", "--http") as service,
        raw_socket(service.port) as silent,
    ):
        ended(silent)
        assert service.process.poll() is None


def ended(connection: socket.socket) -> None:
    """Read to the end of a connection, which the other side has to end."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass


def test_a_length_that_nobody_could_store_is_refused_at_once(tmp_path: Path, wire: Wire) -> None:
    with (
        running(tmp_path / "service.db", *wire.options) as service,
        raw_socket(service.port) as connection,
    ):
        connection.sendall(wire.wrapped(b"", size=0xFFFFFFFF))
        answer = wire.receive(connection)
        assert isinstance(answer, Refusal)
        assert answer.fault is Fault.TOO_LARGE
        ended(connection)


def test_a_client_that_stops_reading_is_cut_off_and_costs_bounded_memory(tmp_path: Path, wire: Wire) -> None:
    with running(tmp_path / "service.db", "--patience", "0.3", *wire.options) as service:
        pair, other = Pair(service), Pair(service)
        pair.send(*[bytes(16_000)] * 30)
        before = resident(service)

        def flood(connection: socket.socket) -> None:
            start = now()
            for number in range(start, start + 100_000):
                request = signed(pair.owner_key, pair.queue_id, Fetch(first=0, limit=30), number=number)
                connection.sendall(wire.wrapped(request))

        with raw_socket(service.port) as connection, pytest.raises(OSError, match=r"Broken pipe|reset"):
            flood(connection)
        assert resident(service) - before < 100 << 20
        other.send(b"unharmed")
        assert other.read() == [b"unharmed"]


def resident(service: Running) -> int:
    pages = int(Path(f"/proc/{service.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_too_many_requests_at_once_are_refused_as_busy_and_the_others_are_carried_out(
    tmp_path: Path, wire: Wire
) -> None:
    with running(tmp_path / "service.db", "--in-flight", "4", *wire.options) as service:
        pair, number = Pair(service), now()
        lock = sqlite3.connect(service.database, isolation_level=None)
        connections = [raw_socket(service.port) for _ in range(12)]
        lock.execute("BEGIN IMMEDIATE")  # While this lasts, four requests wait for it, and there is room for no more.
        for n, connection in enumerate(connections):
            enqueue = Enqueue(message_id=os.urandom(16), message=b"%d" % n)
            connection.sendall(wire.wrapped(signed(SigningKey.generate(), pair.sender_id, enqueue, number=number + n)))
        refused: list[socket.socket] = []
        while len(refused) < 8:
            waiting = [connection for connection in connections if connection not in refused]
            for connection in select.select(waiting, [], [], TIMEOUT)[0]:
                answer = wire.receive(connection)
                assert isinstance(answer, Refusal)
                assert answer.fault is Fault.BUSY
                refused.append(connection)
        lock.execute("ROLLBACK")
        accepted = [n for n, connection in enumerate(connections) if connection not in refused]
        assert all(isinstance(wire.receive(connections[n]), Accepted) for n in accepted)
        assert sorted(pair.read()) == sorted(b"%d" % n for n in accepted)
        for connection in connections:
            connection.close()


def test_a_request_in_flight_is_answered_before_the_service_stops(tmp_path: Path, wire: Wire) -> None:
    with running(tmp_path / "service.db", *wire.options, module="tests.examples.held_worker") as service:
        pair = Pair(service)
        with raw_socket(service.port) as connection, raw_socket(service.port):
            enqueue = Enqueue(message_id=os.urandom(16), message=b"in flight")
            connection.sendall(wire.wrapped(signed(pair.sender_key, pair.sender_id, enqueue)))
            assert service.process.stdout is not None
            assert service.process.stdout.readline() == "sealed\n"
            service.process.terminate()
            assert service.process.stdin is not None
            service.process.stdin.write("\n")
            service.process.stdin.flush()
            assert isinstance(wire.receive(connection), Accepted)
            ended(connection)
        assert service.process.wait(TIMEOUT) == 0
    with running(tmp_path / "service.db", *wire.options) as again:
        pair.owner = again.client(pair.owner_key)
        assert pair.read() == [b"in flight"]


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
            TcpWire().receive(connection)
            connection.sendall(b"".join(u32(len(request)) + request for request in requests))
            service.process.terminate()
            answers = []
            while connection.recv(1, socket.MSG_PEEK):
                answers.append(TcpWire().receive(connection))
        assert service.process.wait(30) == 0
    accepted = [b"%d" % n for n, answer in enumerate(answers) if isinstance(answer, Accepted)]
    assert len(accepted) == len(answers)
    with running(tmp_path / "service.db") as again:
        pair.owner = again.client(pair.owner_key)
        assert pair.read() == accepted


@pytest.mark.parametrize("answer", [Accepted(seq=7), Refusal(Fault.BUSY, "try again")], ids=["answer", "refusal"])
def test_a_client_takes_no_answer_that_was_cut_off(wire: Wire, answer: Answer | Refusal) -> None:
    whole = wire.answered(encode_answer(answer))
    for size in (0, 1, len(whole) - len(encode_answer(answer)), len(whole) - 1, len(whole)):
        with socket.create_server(("127.0.0.1", 0)) as server:

            def serve(server: socket.socket = server, part: bytes = whole[:size]) -> None:
                connection, _ = server.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(part)

            thread = threading.Thread(target=serve)
            thread.start()
            exchange = exchange_with(wire.address.format(server.getsockname()[1]))
            if size == len(whole):
                assert exchange(b"request") == encode_answer(answer)
            else:
                with pytest.raises(OSError, match=r"closed|reset"):
                    exchange(b"request")
            thread.join()
            exchange.close()


def test_an_answer_has_a_bounded_text() -> None:
    assert len(encode_answer(Refusal(Fault.REJECTED, "x" * 100_000))) < 1_100
