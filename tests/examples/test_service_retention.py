"""What a service keeps and for how long: the records machine, carried out on a real file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from examples.queuing_service.protocol import (
    Answer,
    AskBlobs,
    BlobsGiven,
    Create,
    Enqueue,
    Fault,
    Fetch,
    Fetched,
    OfferKey,
    Operation,
    Refusal,
    Request,
    Secure,
)
from examples.queuing_service.storage import Storage
from qsratchet import Dequeuer, Message, ReadPolicy, Updated
from qsratchet.crypto import SigningKey
from qsratchet.records import Usage

from .processes import SERVICE_ID, integrity, running, until

DAY = 86_400.0
START = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()


class Queue:
    """A queue in a storage whose clock the test holds."""

    def __init__(
        self, storage: Storage, now: float, usage: Usage = Usage.MESSAGING, blobs: dict[int, bytes] | None = None
    ) -> None:
        self.storage, self.now, self._number = storage, now, 0
        self.queue_id, self.sender_id = os.urandom(24), os.urandom(24)
        self.owner, self.sender = SigningKey.generate().public(), SigningKey.generate().public()
        self.machine, request = Dequeuer.create(SERVICE_ID, self.queue_id, policy=ReadPolicy(tolerant=True))
        create = Create(request=request.encode(), sender_id=self.sender_id, usage=usage, blobs=blobs or {})
        self.ask(self.owner, self.queue_id, create)

    def ask(self, key: bytes, target: bytes, operation: Operation) -> Answer:
        self._number = max(self._number + 1, int(self.now * 1e6))
        request = Request(target=target, number=self._number, key=key, operation=operation)
        (answer,) = self.storage.answer_all([request], self.now)
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def send(self, body: bytes) -> None:
        self.ask(self.sender, self.sender_id, Enqueue(message_id=os.urandom(16), message=body))

    def fetch(self) -> tuple[bytes, ...]:
        fetched = self.ask(self.owner, self.queue_id, Fetch(first=self.machine.acknowledge, limit=100))
        assert isinstance(fetched, Fetched)
        return fetched.frames

    def secure(self) -> None:
        self.ask(self.sender, self.sender_id, Secure(sender_key=self.sender))

    def blobs(self) -> set[int]:
        given = self.ask(self.sender, self.sender_id, AskBlobs())
        assert isinstance(given, BlobsGiven)
        return set(given.blobs)

    @property
    def is_there(self) -> bool:
        """Without using it, which would count as a visit."""
        found = self.storage.database.execute("SELECT 1 FROM queues WHERE queue_id = ?", (self.queue_id,))
        return found.fetchone() is not None


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    opened = Storage(tmp_path / "service.db", SERVICE_ID)
    yield opened
    opened.close()
    assert integrity(tmp_path / "service.db") == "ok"


def test_a_queue_that_nobody_secures_expires_and_a_secured_one_stays(storage: Storage) -> None:
    abandoned, secured = Queue(storage, START), Queue(storage, START)
    abandoned.send(b"unread")
    secured.secure()
    assert storage.sweep(START + 21 * DAY).queues == 0
    assert storage.sweep(START + 22 * DAY).queues == 1
    assert (abandoned.is_there, secured.is_there) == (False, True)
    assert storage.database.execute("SELECT count(DISTINCT queue) FROM frames").fetchone() == (1,)


def test_strangers_do_not_keep_an_abandoned_contact_address_alive(storage: Storage) -> None:
    abandoned, visited = Queue(storage, START, Usage.CONTACT), Queue(storage, START, Usage.CONTACT)
    abandoned.now = visited.now = START + 700 * DAY
    abandoned.send(b"spam")
    visited.fetch()
    assert storage.sweep(START + 731 * DAY).queues == 1
    assert (abandoned.is_there, visited.is_there) == (False, True)


def test_old_messages_go_and_the_frames_that_open_the_rest_stay(storage: Storage) -> None:
    queue = Queue(storage, START)
    queue.secure()
    for frame in queue.fetch():
        queue.machine.open(frame)
    queue.send(b"old")
    queue.ask(queue.owner, queue.queue_id, OfferKey(offer=queue.machine.offer_key().encode()))
    queue.send(b"old too")
    queue.now = START + 20 * DAY
    queue.send(b"new")
    assert storage.sweep(START + 22 * DAY).messages == 2
    queue.now = START + 22 * DAY
    queue.machine.dump()
    # The messages 1 and 3 are gone, the updates 2 and 4 are not: a tolerant reader is told so, and reads 5.
    offered, aged, message = (queue.machine.open(frame) for frame in queue.fetch())
    assert isinstance(offered, Updated)
    assert isinstance(aged, Updated)
    assert isinstance(message, Message)
    assert [item.missing for item in (offered, aged, message)] == [range(1, 2), range(3, 4), range(0)]
    assert (message.seq, message.body) == (5, b"new")


def test_blobs_are_evicted_by_priority_newest_first_and_the_keys_never(storage: Storage) -> None:
    blobs = {0: bytes(100), 1: bytes(100), 2: bytes(100)}
    old = Queue(storage, START, Usage.CONTACT, blobs)
    new = Queue(storage, START + DAY, Usage.CONTACT, blobs)
    assert storage.sweep(START + DAY, blob_bytes=500).blobs == 1
    assert (old.blobs(), new.blobs()) == ({0, 1, 2}, {0, 1})
    assert storage.sweep(START + DAY, blob_bytes=350).blobs == 2
    assert (old.blobs(), new.blobs()) == ({0, 1}, {0})
    assert storage.sweep(START + DAY, blob_bytes=0).blobs == 1
    assert (old.blobs(), new.blobs()) == ({0}, {0})


def test_numbers_of_callers_who_have_nothing_here_are_forgotten_when_the_clock_refuses_them(storage: Storage) -> None:
    contact = Queue(storage, START, Usage.CONTACT)
    contact.send(b"hello")
    count = "SELECT count(*) FROM callers"
    assert storage.database.execute(count).fetchone() == (2,)
    storage.sweep(START + 200)
    assert storage.database.execute(count).fetchone() == (2,)
    storage.sweep(START + 301)
    assert storage.database.execute(count).fetchone() == (1,)


def test_a_sweep_empties_the_log_and_so_the_old_keys_in_it(storage: Storage, tmp_path: Path) -> None:
    Queue(storage, START).send(b"sealed")
    log = tmp_path / "service.db-wal"
    assert log.stat().st_size > 0
    storage.sweep(START)
    assert log.stat().st_size == 0


def test_only_a_day_is_stored_of_when_something_happened(storage: Storage) -> None:
    queue = Queue(storage, START)
    queue.send(b"now")
    days = storage.database.execute("SELECT DISTINCT day FROM frames").fetchall()
    assert [date.fromordinal(day) for (day,) in days] == [date(2026, 1, 1)]


def test_a_service_sweeps_when_it_starts(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "service.db", SERVICE_ID)
    old, fresh = Queue(storage, time.time() - 30 * DAY), Queue(storage, time.time())
    storage.close()
    with running(tmp_path / "service.db") as service:
        for queue in (old, fresh):
            with pytest.raises(Refusal) as raised:
                service.client().fetch(queue.queue_id, 0)
            assert raised.value.fault is Fault.AUTH
        assert "swept: 1 queues" in service.log()
        service.stop()
    again = Storage(tmp_path / "service.db", SERVICE_ID)
    old.storage = fresh.storage = again
    assert (old.is_there, fresh.is_there) == (False, True)
    again.close()


@pytest.mark.parametrize("wire", [(), ("--http",)], ids=["tcp", "http"])
def test_a_service_goes_on_sweeping_while_it_runs(tmp_path: Path, wire: tuple[str, ...]) -> None:
    with running(tmp_path / "service.db", "--sweep-every", "0.05", *wire) as service:
        storage = Storage(tmp_path / "service.db", SERVICE_ID)
        old = Queue(storage, time.time() - 30 * DAY)
        until(lambda: "swept: 1 queues" in service.log(), "the queue is swept")
        assert not old.is_there
        storage.close()
