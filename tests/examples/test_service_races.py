"""Two workers, two processes, one file: the generation decides whose message comes first, and nothing is lost."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from examples.queuing_service.protocol import (
    Accepted,
    Create,
    Done,
    Enqueue,
    Fault,
    Fetch,
    Fetched,
    OfferKey,
    Operation,
    Refusal,
    Request,
    Reset,
)
from examples.queuing_service.sealing import Sealed
from examples.queuing_service.storage import PATIENCE, Storage
from qsratchet import Dequeuer, Enqueuer, Message, UpdatePolicy
from qsratchet.crypto import SigningKey
from qsratchet.records import MessageLimits, RetentionPolicy, Usage

from .processes import SERVICE_ID, TIMEOUT, Pair, Running, running

HELD = "tests.examples.held_worker"


def wait_until_sealed(worker: Running) -> None:
    assert worker.process.stdout is not None
    ready, _, _ = select.select([worker.process.stdout], [], [], TIMEOUT)
    assert ready, "the worker did not seal (again)"
    assert worker.process.stdout.readline() == "sealed\n"


def let_go(worker: Running) -> None:
    assert worker.process.stdin is not None
    worker.process.stdin.write("\n")
    worker.process.stdin.flush()


class Sending(threading.Thread):
    """A message on its way through a worker."""

    def __init__(self, pair: Pair, worker: Running, body: bytes) -> None:
        super().__init__(daemon=True)
        self._client, self._sender_id, self._body = worker.client(), pair.sender_id, body
        self.seq: int | None = None
        self.start()

    def run(self) -> None:
        self.seq = self._client.enqueue(self._sender_id, os.urandom(16), self._body)

    def number(self) -> int:
        self.join(30)
        assert self.seq is not None
        return self.seq


# Each message begins an epoch of its own: what two workers seal from one state then differs in all that follows.
@pytest.mark.parametrize("every", ["500", "1"], ids=["within an epoch", "with an update"])
def test_of_two_workers_that_sealed_from_one_state_the_second_seals_anew(tmp_path: Path, every: str) -> None:
    file = tmp_path / "service.db"
    with (
        running(file, "--update-every", every, module=HELD) as one,
        running(file, "--update-every", every, module=HELD) as two,
    ):
        pair = Pair(one)
        first, second = Sending(pair, one, b"first"), Sending(pair, two, b"second")
        wait_until_sealed(one)
        wait_until_sealed(two)
        # Both have loaded the same generation and sealed their message under the same number.
        let_go(one)
        number = first.number()
        let_go(two)
        wait_until_sealed(two)
        assert "conflict: Enqueue" in two.log()
        let_go(two)
        assert second.number() > number
        assert "conflict" not in one.log()
        assert pair.read() == [b"first", b"second"]


def test_two_workers_under_load_lose_nothing_and_keep_each_senders_order(tmp_path: Path) -> None:
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


# --- one batch, and another writer at the worst moment -------------------------------------------


class Interrupted(Storage):
    """A storage into whose file others write whenever it has sealed something and not stored it."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)
    sealings = 0

    def seal_all(self, requests: Sequence[Request], now: float) -> list[Sealed | Refusal | None]:
        sealed = super().seal_all(requests, now)
        self.sealings += 1
        if not self.database.in_transaction:
            self.meanwhile()
        return sealed


class Two:
    """A storage, another one on its file, and a queue."""

    NOW = 1_800_000_000.0

    def __init__(self, directory: Path, messages: int = 3) -> None:
        # So many messages fit, and an update goes with each of them.
        limits = MessageLimits(days=21, messages=messages)
        retention = RetentionPolicy(messaging=limits, contact=limits)
        updates = UpdatePolicy(frames=1, seconds=None)
        path = directory / "service.db"
        self.storage = Interrupted(path, SERVICE_ID, updates=updates, retention=retention)
        self.other = Storage(path, SERVICE_ID, updates=updates, retention=retention)
        self.queue_id, self.sender_id = os.urandom(24), os.urandom(24)
        self.owner, self.sender = (SigningKey.generate().public() for _ in range(2))
        self.machine, self.creation = Dequeuer.create(SERVICE_ID, self.queue_id)
        self._number = int(self.NOW * 1e6)

    @property
    def create(self) -> Request:
        create = Create(request=self.creation.encode(), sender_id=self.sender_id, usage=Usage.MESSAGING)
        return self.by_owner(create)

    def message(self, body: bytes, sender: bytes | None = None) -> Request:
        return self._request(self.sender_id, sender or self.sender, Enqueue(message_id=os.urandom(16), message=body))

    def by_owner(self, operation: Operation) -> Request:
        return self._request(self.queue_id, self.owner, operation)

    def _request(self, target: bytes, key: bytes, operation: Operation) -> Request:
        self._number += 1
        return Request(target=target, number=self._number, key=key, operation=operation)

    def ask(self, *requests: Request) -> list[object]:
        return [
            answer.fault if isinstance(answer, Refusal) else type(answer)
            for answer in self.storage.answer_all(requests, self.NOW)
        ]

    def interrupt(self, *bodies: bytes) -> None:
        """The other storage writes one of these messages whenever this one has sealed and not stored."""
        left = iter(bodies)
        stranger = SigningKey.generate().public()

        def write() -> None:
            for body in left:
                (answer,) = self.other.answer_all([self.message(body, stranger)], self.NOW)
                assert isinstance(answer, Accepted)
                return

        self.storage.meanwhile = write

    def frames(self) -> list[bytes]:
        (fetched,) = self.other.answer_all([self.by_owner(Fetch(first=0, limit=100))], self.NOW)
        assert isinstance(fetched, Fetched)
        return list(fetched.frames)

    def read(self) -> list[bytes]:
        """What the owner has not read yet."""
        new = self.frames()[self.machine.next_seq :]
        return [item.body for item in map(self.machine.open, new) if isinstance(item, Message)]

    def close(self) -> None:
        self.other.close()
        self.storage.close()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    made = Two(tmp_path)
    yield made
    made.close()


def test_a_batch_whose_queue_is_written_meanwhile_goes_on_after_that_in_order(two: Two) -> None:
    two.ask(two.create)
    two.interrupt(b"between")
    assert two.ask(two.message(b"1"), two.message(b"2")) == [Accepted, Accepted]
    assert two.read() == [b"between", b"1", b"2"]


def test_what_was_sealed_after_a_refused_message_is_not_stored_over_anothers_generation(two: Two) -> None:
    two.ask(two.create, two.message(b"1"), two.message(b"2"))
    two.read()
    offer = two.machine.offer_key()
    two.interrupt(b"3, the last that fits")
    # The message is refused, as the queue is full by now; its sealing has had the generation that is in the file.
    assert two.ask(two.message(b"refused"), two.by_owner(OfferKey(offer=offer.encode()))) == [Fault.QUOTA, Done]
    assert two.read() == [b"3, the last that fits"]
    assert two.machine.key_id == 1


def test_an_offer_that_is_repeated_after_a_refused_one_is_stored_before_it_is_confirmed(two: Two) -> None:
    two.ask(two.create)
    two.read()
    offer = OfferKey(offer=two.machine.offer_key().encode())
    first, between, again = two.by_owner(offer), two.by_owner(Fetch(first=0, limit=9)), two.by_owner(offer)
    # The second is sealed when the first is in force; then the owner asks elsewhere, which refuses the first.
    two.storage.meanwhile = lambda: two.other.answer_all([between], two.NOW)
    assert two.ask(first, again) == [Fault.REPLAYED, Done]
    two.read()
    assert two.machine.key_id == 1


def test_an_offer_that_was_in_force_before_a_reset_is_not_confirmed_after_it(two: Two) -> None:
    two.ask(two.create)
    two.read()
    offer = OfferKey(offer=two.machine.offer_key().encode())
    assert two.ask(two.by_owner(offer)) == [Done]
    reset, again = two.by_owner(Reset(request=two.machine.reset().encode())), two.by_owner(offer)
    two.storage.meanwhile = lambda: two.other.answer_all([reset], two.NOW)
    assert two.ask(again) == [Fault.REJECTED]


def test_a_queue_may_be_created_used_and_offered_a_key_in_one_batch(two: Two) -> None:
    assert two.ask(two.create, two.message(b"1"), two.by_owner(Fetch(first=0, limit=9))) == [Done, Accepted, Fetched]
    two.read()
    offer = OfferKey(offer=two.machine.offer_key().encode())
    assert two.ask(two.by_owner(offer), two.by_owner(offer), two.message(b"2")) == [Done, Done, Accepted]
    assert two.read() == [b"2"]


def test_a_batch_that_runs_into_its_own_queues_seals_each_request_a_few_times_at_most(tmp_path: Path) -> None:
    sealed = 0

    class Counted(Enqueuer):
        @classmethod
        def create(cls, *arguments: Any, **options: Any) -> Any:
            nonlocal sealed
            sealed += 1
            return super().create(*arguments, **options)

    storage = Storage(tmp_path / "service.db", SERVICE_ID, machine=Counted)
    owner, sender = (SigningKey.generate().public() for _ in range(2))
    batch: list[Request] = []

    def add(target: bytes, key: bytes, operation: Operation) -> None:
        batch.append(Request(target=target, number=int(Two.NOW * 1e6) + len(batch), key=key, operation=operation))

    for number in range(20):
        queue_id, sender_id = bytes([1, number]) * 12, bytes([2, number]) * 12
        creation = Dequeuer.create(SERVICE_ID, queue_id)[1].encode()
        add(queue_id, owner, Create(request=creation, sender_id=sender_id, usage=Usage.MESSAGING))
        add(sender_id, sender, Enqueue(message_id=os.urandom(16), message=b"first"))
    answers = storage.answer_all(batch, Two.NOW)
    assert [type(answer) for answer in answers] == [Done, Accepted] * 20
    assert sealed <= 20 * (PATIENCE + 1)
    storage.close()


def test_a_worker_that_loses_again_and_again_takes_the_lock_first(tmp_path: Path) -> None:
    two = Two(tmp_path, messages=50)
    two.ask(two.create)
    two.storage.sealings = 0
    two.interrupt(*[b"%d" % number for number in range(40)])
    assert two.ask(two.message(b"mine")) == [Accepted]
    assert two.storage.sealings == PATIENCE + 1
    assert two.read() == [b"0", b"1", b"2", b"mine"]
    two.close()
