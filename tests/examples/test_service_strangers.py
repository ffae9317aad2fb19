"""Requests that nobody should send: refused by name, logged without secrets, and the service goes on."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.queuing_service.protocol import (
    Answer,
    AskHead,
    BlobsGiven,
    Create,
    Delete,
    Enqueue,
    Fault,
    Fetch,
    Fetched,
    Operation,
    Refusal,
    Secure,
    StoreBlobs,
    Suspend,
    decode_answer,
    encode_answer,
    open_request,
    sign_request,
)
from qsratchet import DecodeError
from qsratchet.crypto import SigningKey
from qsratchet.records import Usage

from .processes import SERVICE_ID, Pair, Running, ask, creation, now, signed


def fault_of(service: Running, data: bytes) -> Fault:
    with pytest.raises(Refusal) as raised:
        ask(service, data)
    return raised.value.fault


def test_an_unsigned_request_is_refused(service: Running) -> None:
    pair = Pair(service)
    request = signed(pair.owner_key, pair.queue_id, Delete())
    assert fault_of(service, request[:-64] + bytes(64)) is Fault.UNSIGNED
    assert fault_of(service, request[:-64]) in (Fault.UNSIGNED, Fault.MALFORMED)
    pair.send(b"still there")
    assert pair.read() == [b"still there"]


def test_no_bit_of_a_request_can_be_changed(service: Running) -> None:
    pair = Pair(service)
    request = signed(pair.sender_key, pair.sender_id, Enqueue(message_id=bytes(16), message=b"pay 1"))
    for place in range(0, len(request), 7):
        altered = bytearray(request)
        altered[place] ^= 1
        assert fault_of(service, bytes(altered)) in (Fault.UNSIGNED, Fault.MALFORMED)
    assert pair.read() == []


def test_a_request_for_another_service_is_refused(service: Running) -> None:
    pair = Pair(service)
    request = signed(pair.owner_key, pair.queue_id, Delete(), service_id=b"other.example")
    assert fault_of(service, request) is Fault.UNSIGNED


def test_a_replayed_request_is_refused_whatever_it_asks_for(service: Running) -> None:
    pair = Pair(service)
    operations: list[tuple[SigningKey, bytes, Operation]] = [
        (pair.sender_key, pair.sender_id, Enqueue(message_id=os.urandom(16), message=b"once")),
        (pair.owner_key, pair.queue_id, Fetch(first=0, limit=1)),
        (pair.owner_key, pair.queue_id, AskHead(nonce=bytes(16))),
        (pair.owner_key, pair.queue_id, Suspend()),
        (pair.owner_key, pair.queue_id, Delete()),
    ]
    for key, target, operation in operations:
        request = signed(key, target, operation)
        ask(service, request)
        assert fault_of(service, request) is Fault.REPLAYED


def test_a_refused_request_cannot_be_replayed_when_it_would_succeed(service: Running) -> None:
    pair = Pair(service)
    pair.send(*[b"x"] * 30)
    request = signed(pair.sender_key, pair.sender_id, Enqueue(message_id=os.urandom(16), message=b"late"))
    assert fault_of(service, request) is Fault.QUOTA
    pair.read()
    assert fault_of(service, request) is Fault.REPLAYED


def test_the_replay_of_a_deletion_and_of_a_creation_brings_nothing_back(service: Running) -> None:
    key, queue_id, sender_id = SigningKey.generate(), os.urandom(24), os.urandom(24)
    create = Create(request=creation(queue_id).encode(), sender_id=sender_id, usage=Usage.MESSAGING)
    request = signed(key, queue_id, create)
    ask(service, request)
    ask(service, signed(key, queue_id, Delete()))
    assert fault_of(service, request) is Fault.REPLAYED


def test_a_request_from_another_time_is_refused_and_told_the_time(service: Running) -> None:
    pair = Pair(service)
    for number in (now() - 301_000_000, now() + 310_000_000):
        request = signed(pair.owner_key, pair.queue_id, Fetch(first=0, limit=1), number=number)
        with pytest.raises(Refusal) as raised:
            ask(service, request)
        assert raised.value.fault is Fault.CLOCK
        assert abs(raised.value.detail - now()) < 60_000_000


def test_another_ones_queue_looks_like_no_queue(service: Running) -> None:
    pair, stranger = Pair(service), SigningKey.generate()
    operations: list[Operation] = [
        Fetch(first=0, limit=1),
        AskHead(nonce=bytes(16)),
        Suspend(),
        Delete(),
        StoreBlobs(blobs={0: b"x"}),
        Secure(sender_key=stranger.public()),
        Create(request=creation(pair.queue_id).encode(), sender_id=os.urandom(24), usage=Usage.MESSAGING),
    ]
    for operation in operations:
        answers = set()
        for target in (pair.queue_id, os.urandom(24)):
            if isinstance(operation, Create) and target != pair.queue_id:
                continue  # That would be a queue of the stranger's own.
            with pytest.raises(Refusal) as raised:
                ask(service, signed(stranger, target, operation))
            answers.add((raised.value.fault, raised.value.detail, raised.value.text))
        assert {fault for fault, _, _ in answers} == {Fault.AUTH}
        assert len(answers) == 1
    pair.send(b"unharmed")
    assert pair.read() == [b"unharmed"]


def test_the_sender_id_of_another_queue_cannot_be_taken(service: Running) -> None:
    pair, key, queue_id = Pair(service), SigningKey.generate(), os.urandom(24)
    create = Create(request=creation(queue_id).encode(), sender_id=pair.sender_id, usage=Usage.MESSAGING)
    assert fault_of(service, signed(key, queue_id, create)) is Fault.AUTH


def test_a_creation_request_for_another_queue_or_service_is_refused(service: Running) -> None:
    key, queue_id = SigningKey.generate(), os.urandom(24)
    create = Create(request=creation(b"another").encode(), sender_id=os.urandom(24), usage=Usage.MESSAGING)
    assert fault_of(service, signed(key, queue_id, create)) is Fault.REJECTED


def test_a_message_and_a_request_have_a_greatest_length(service: Running) -> None:
    pair = Pair(service)
    pair.send(bytes(16_384))
    with pytest.raises(Refusal) as raised:
        pair.send(bytes(16_385))
    assert (raised.value.fault, raised.value.detail) == (Fault.TOO_LARGE, 16_384)
    assert fault_of(service, bytes(65_537)) is Fault.TOO_LARGE
    assert pair.read() == [bytes(16_384)]


@settings(max_examples=60)
@given(data=st.binary(max_size=300))
def test_random_bytes_are_refused(service: Running, data: bytes) -> None:
    assert fault_of(service, data) in (Fault.MALFORMED, Fault.UNSIGNED)


@given(st.integers(1, 11), st.binary(max_size=120))
def test_a_well_signed_body_of_any_bytes_is_read_or_refused_by_name(operation: int, body: bytes) -> None:
    key = SigningKey.generate()
    head = sign_request(SERVICE_ID, key, b"queue", 1, Suspend())[:-64]
    payload = head[:1] + bytes([operation]) + head[2:] + body
    label = b"qsratchet example service v1 request" + b"\x00\x0f" + SERVICE_ID
    request = payload + key.sign(label + payload)
    try:
        opened = open_request(SERVICE_ID, request)
    except Refusal as refusal:
        if refusal.fault is not Fault.MALFORMED:
            raise
        return
    assert (opened.target, opened.key) == (b"queue", key.public())


@given(st.binary(max_size=200))
def test_a_client_reads_any_answer_or_refuses_it(data: bytes) -> None:
    try:
        answer: Answer | Refusal = decode_answer(data)
    except Refusal as refusal:
        answer = refusal
    except DecodeError:
        return
    if not isinstance(answer, (Refusal, BlobsGiven)):  # Text and order of these have other spellings.
        assert encode_answer(answer) == data


def test_answers_come_back_as_they_were() -> None:
    for answer in (Fetched(frames=(b"a", b""), more=True, suspended=False), BlobsGiven(blobs={0: b"x", 2: b""})):
        assert decode_answer(encode_answer(answer)) == answer


def test_no_secret_is_in_the_log(service: Running) -> None:
    secret = os.urandom(16).hex().encode()
    pair = Pair(service)
    pair.owner.suspend(pair.queue_id)
    requests = [
        signed(pair.sender_key, pair.sender_id, Enqueue(message_id=bytes(16), message=secret)),
        signed(SigningKey.generate(), pair.queue_id, Suspend()),
        signed(pair.owner_key, pair.queue_id, Delete())[:-64] + bytes(64),
    ]
    for request in requests:
        fault_of(service, request)
    log = service.log()
    assert "SUSPENDED Enqueue" in log
    assert "AUTH Suspend" in log
    assert "UNSIGNED" in log
    for value in (secret, pair.request.join_secret, pair.owner_key.seed, pair.queue_id, pair.sender_id):
        assert value.hex() not in log
        assert repr(value)[2:-1] not in log
    assert "Traceback" not in log
