"""What the service does, over TCP and over HTTP, with a real process and a real file."""

from __future__ import annotations

import os

import pytest

from examples.queuing_service.protocol import Fault, Refusal
from qsratchet import Message, Updated
from qsratchet.crypto import SigningKey
from qsratchet.records import Usage

from .processes import Pair, Running, creation, start


def refused(fault: Fault) -> pytest.RaisesExc[Refusal]:
    return pytest.RaisesExc(Refusal, check=lambda refusal: refusal.fault is fault)


def test_what_is_sent_is_read_in_order_across_updates(service: Running) -> None:
    pair = Pair(service)
    sent = [b"message %d" % number for number in range(25)]
    numbers = pair.send(*sent)
    assert numbers == sorted(numbers)
    assert pair.read() == sent
    assert pair.machine.epoch == 2


def test_a_fetch_acknowledges_what_is_before_its_number_and_nothing_else(service: Running) -> None:
    pair = Pair(service)
    pair.send(b"one", b"two", b"three")
    frames = pair.owner.fetch(pair.queue_id, 0).frames
    assert pair.owner.fetch(pair.queue_id, 0).frames == frames
    assert pair.owner.fetch(pair.queue_id, 2).frames == frames[2:]
    assert pair.owner.fetch(pair.queue_id, 0).frames == frames[2:]


def test_a_fetch_gives_no_more_than_its_limit_and_says_that_there_is_more(service: Running) -> None:
    pair = Pair(service)
    pair.send(b"one", b"two")
    fetched = pair.owner.fetch(pair.queue_id, 0, limit=2)
    assert (len(fetched.frames), fetched.more) == (2, True)
    fetched = pair.owner.fetch(pair.queue_id, 2, limit=1)
    assert (len(fetched.frames), fetched.more) == (1, False)


def test_a_message_that_is_sent_again_is_stored_once(service: Running) -> None:
    pair = Pair(service)
    message_id = os.urandom(16)
    first = pair.sender.enqueue(pair.sender_id, message_id, b"once")
    assert pair.sender.enqueue(pair.sender_id, message_id, b"once") == first
    assert pair.read() == [b"once"]


def test_the_head_proves_the_next_number(service: Running) -> None:
    pair = Pair(service)
    pair.send(b"one")
    pair.read()
    pair.send(b"two")
    nonce = os.urandom(16)
    assert pair.machine.verify_head(pair.owner.head(pair.queue_id, nonce), nonce).missing == range(2, 3)


def test_a_key_offer_is_answered_with_an_update_and_may_be_repeated(service: Running) -> None:
    pair = Pair(service)
    pair.read()
    offer = pair.machine.offer_key()
    pair.owner.offer(pair.queue_id, offer)
    pair.owner.offer(pair.queue_id, offer)
    opened = [pair.machine.open(frame) for frame in pair.owner.fetch(pair.queue_id, 1).frames]
    assert [type(item) for item in opened] == [Updated]
    assert pair.machine.key_id == 1


def test_a_suspended_queue_takes_no_messages_and_counts_what_is_left(service: Running) -> None:
    pair = Pair(service)
    pair.send(b"one", b"two")
    assert pair.owner.suspend(pair.queue_id) == 2
    with refused(Fault.SUSPENDED):
        pair.send(b"three")
    fetched = pair.owner.fetch(pair.queue_id, 2)
    assert (len(fetched.frames), fetched.more, fetched.suspended) == (1, False, True)
    assert pair.owner.suspend(pair.queue_id) == 1
    assert pair.owner.fetch(pair.queue_id, 3).frames == ()
    assert pair.owner.suspend(pair.queue_id) == 0


def test_a_full_queue_takes_messages_again_when_its_owner_has_read(service: Running) -> None:
    pair = Pair(service)
    pair.send(*[b"x"] * 30)
    with refused(Fault.QUOTA):
        pair.send(b"one too many")
    assert len(pair.read()) == 30
    pair.send(b"room again")
    assert pair.read() == [b"room again"]


def test_a_secured_queue_takes_messages_of_its_sender_only(service: Running) -> None:
    pair = Pair(service, blobs={0: b"keys", 2: b"profile"})
    blobs = pair.sender.secure(pair.sender_id, pair.sender_key.public())
    assert blobs == {0: b"keys", 2: b"profile"}
    assert pair.sender.secure(pair.sender_id, pair.sender_key.public()) == blobs
    stranger = SigningKey.generate()
    with refused(Fault.AUTH):
        service.client(stranger).secure(pair.sender_id, stranger.public())
    with refused(Fault.AUTH):
        service.client(stranger).enqueue(pair.sender_id, os.urandom(16), b"spam")
    pair.send(b"mine")
    assert pair.read() == [b"mine"]


def test_the_owner_secures_a_queue_for_its_sender(service: Running) -> None:
    pair = Pair(service)
    pair.owner.secure(pair.queue_id, pair.sender_key.public())
    with refused(Fault.AUTH):
        service.client().enqueue(pair.sender_id, os.urandom(16), b"spam")
    pair.send(b"mine")
    assert pair.read() == [b"mine"]


def test_the_blobs_of_a_secured_queue_go_with_its_first_message(service: Running) -> None:
    pair = Pair(service, blobs={0: b"keys"})
    pair.sender.secure(pair.sender_id, pair.sender_key.public())
    assert pair.sender.blobs(pair.sender_id) == {0: b"keys"}
    pair.send(b"hello")
    assert pair.sender.blobs(pair.sender_id) == {}


def test_a_contact_address_gives_its_blobs_to_anybody_and_is_never_secured(service: Running) -> None:
    pair = Pair(service, Usage.CONTACT, {0: b"keys"})
    pair.owner.store_blobs(pair.queue_id, {0: b"new keys", 2: b"profile"})
    assert service.client().blobs(pair.sender_id) == {0: b"new keys", 2: b"profile"}
    with refused(Fault.REJECTED):
        pair.sender.secure(pair.sender_id, pair.sender_key.public())
    service.client().enqueue(pair.sender_id, os.urandom(16), b"from anybody")
    assert pair.read() == [b"from anybody"]


def test_a_deleted_queue_is_gone_and_deleting_may_be_repeated(service: Running) -> None:
    pair = Pair(service)
    pair.send(b"lost")
    pair.owner.delete(pair.queue_id)
    pair.owner.delete(pair.queue_id)
    with refused(Fault.AUTH):
        pair.owner.fetch(pair.queue_id, 0)
    with refused(Fault.AUTH):
        pair.send(b"to nobody")


def test_a_creation_may_be_repeated_and_not_changed(service: Running) -> None:
    pair = Pair(service)
    pair.send(b"kept")
    pair.owner.create(pair.queue_id, pair.request, pair.sender_id, Usage.MESSAGING, {})
    with refused(Fault.AUTH):
        pair.owner.create(pair.queue_id, creation(pair.queue_id), pair.sender_id, Usage.MESSAGING, {})
    assert pair.read() == [b"kept"]


def test_a_reset_queue_begins_anew_under_its_ids(service: Running) -> None:
    pair = Pair(service)
    pair.send(b"given up")
    request = pair.machine.reset()
    pair.machine.dump()
    pair.owner.reset(pair.queue_id, request)
    pair.owner.reset(pair.queue_id, request)
    pair.send(b"new")
    assert pair.read() == [b"new"]


def test_a_number_that_is_not_there_yet_deletes_nothing(service: Running) -> None:
    pair = Pair(service)
    pair.send(b"kept")
    with pytest.raises(Refusal) as raised:
        pair.owner.fetch(pair.queue_id, 3)
    assert (raised.value.fault, raised.value.detail) == (Fault.AHEAD, 2)
    assert pair.read() == [b"kept"]


def test_what_the_file_holds_opens_with_the_owners_key_only(service: Running) -> None:
    pair = Pair(service)
    secret = b"a sentence that must not be on any disk"
    pair.send(secret)
    files = [path for path in service.database.parent.iterdir() if path.name.startswith("service.db")]
    assert len(files) >= 2
    assert not any(secret in path.read_bytes() or pair.request.join_secret in path.read_bytes() for path in files)
    frames = pair.owner.fetch(pair.queue_id, 0).frames
    opened = [pair.machine.open(frame) for frame in frames]
    assert isinstance(opened[-1], Message)
    assert opened[-1].body == secret


def test_a_service_that_is_told_to_stop_ends_in_good_order_and_goes_on_later(service: Running) -> None:
    database = service.database.with_name("stopped.db")
    options = ["--http"] if service.http else []
    first = start(database, *options)
    pair = Pair(first)
    pair.send(b"before")
    assert first.stop() == "stopped\n"
    assert first.process.returncode == 0
    # The log is merged into the file, so that no old key stays beside it.
    assert not database.with_name("stopped.db-wal").exists()
    second = start(database, *options, port=first.port)
    pair.owner = second.client(pair.owner_key)
    assert pair.read() == [b"before"]
    second.stop()
