"""The service's protocol: requests, answers and faults as bytes.  It knows no socket and no storage.

A request is: version u8, operation u8, target id (u16 length), number u64, Ed25519 key (32), body, signature (64).  The
signature is over the service's id and all of that, so a request means something at one service only.  The
number is the caller's clock in microseconds, and greater than that of every request before from this key: the
service takes each number once, and none that is far from its own clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeAlias, assert_never

from qsratchet import DecodeError, RejectedError
from qsratchet.codec import Reader, lv, u8, u16, u32, u64
from qsratchet.crypto import SIGNATURE_SIZE, SIGNING_PUBLIC_SIZE, SigningKey, verify
from qsratchet.records import Usage

VERSION: Final = 1
MESSAGE_ID_SIZE: Final = 16
_LABEL: Final = b"qsratchet example service v1 request"
_U32_MAX: Final = 0xFFFFFFFF


class Fault(IntEnum):
    """Why a request was refused, as it stands on the wire.  `detail` is a number that helps to go on."""

    #: The bytes are no request.  Nothing helps but another program.
    MALFORMED = 1
    #: The signature is missing or wrong.
    UNSIGNED = 2
    #: The number was used before: `detail` is the last one.  To try again, sign anew.
    REPLAYED = 3
    #: The number is too far from the service's clock: `detail` is that clock.
    CLOCK = 4
    #: There is no such queue, or it is not yours: which of the two is not told.
    AUTH = 5
    #: The queue takes no more messages.
    SUSPENDED = 6
    #: The queue is full until its owner reads: `detail` is how many it holds.
    QUOTA = 7
    #: The request or the message is too long: `detail` is the limit.
    TOO_LARGE = 8
    #: Too much at once, or the database is locked.  Nothing happened; try again later.
    BUSY = 9
    #: There is no room.  Nothing happened.  At a limit of pages fetching makes room; on a full disk its operator must.
    FULL = 10
    #: There is no such number yet: `detail` is the next one.  Ask for the head: the service may have gone back in time.
    AHEAD = 11
    #: The service's machines refuse what is in the request; the text says why.
    REJECTED = 12
    #: The service cannot say what happened.  Try again: every request may be repeated.
    FAILED = 13


class Refusal(Exception):
    """A request was refused: raised in the service, sent as an answer, raised again in the client."""

    def __init__(self, fault: Fault, text: str, detail: int = 0) -> None:
        super().__init__(text)
        self.fault = fault
        self.text = text
        self.detail = detail


# --- operations ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """From the owner, whose key this request makes the queue's: the target is the queue's id."""

    request: bytes = field(repr=False)
    sender_id: bytes
    usage: Usage
    blobs: Mapping[int, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueue:
    """From a sender: the target is the sender id.  The same `message_id` again is only answered again."""

    message_id: bytes
    message: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """From the owner: the frames from this number on.  It acknowledges all that is before it."""

    first: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskHead:
    """From the owner: prove what the next number is."""

    nonce: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferKey:
    """From the owner: a new queue encryption key."""

    offer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    """From the owner: take no more messages, and say how many are left.  May be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secure:
    """From a sender for its own key, or from the owner for a sender's: only this key may send from now on."""

    sender_key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """From the owner: remove the queue and all that is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreBlobs:
    """From the owner: these blobs in the place of those with the same priority."""

    blobs: Mapping[int, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskBlobs:
    """From anybody, for a contact address; from its sender, for a secured queue.  The target is the sender id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """From the owner, whose chain is lost: the queue begins anew, and what is in it goes."""

    request: bytes = field(repr=False)


Operation: TypeAlias = (
    Create | Enqueue | Fetch | AskHead | OfferKey | Suspend | Secure | Delete | StoreBlobs | AskBlobs | Reset
)

_NUMBERS: Final[Mapping[type[Operation], int]] = {
    Create: 1,
    Enqueue: 2,
    Fetch: 3,
    AskHead: 4,
    OfferKey: 5,
    Suspend: 6,
    Secure: 7,
    Delete: 8,
    StoreBlobs: 9,
    AskBlobs: 10,
    Reset: 11,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request whose signature was right: this key asks for this, of the queue that the target names."""

    target: bytes
    number: int
    key: bytes
    operation: Operation

    def describe(self) -> str:
        """For the log: the operation and the beginnings of the ids; no key, no message."""
        return f"{type(self.operation).__name__} target={self.target[:4].hex()} caller={self.key[:4].hex()}"


def sign_request(service_id: bytes, key: SigningKey, target: bytes, number: int, operation: Operation) -> bytes:
    """The bytes of a request."""
    head = u8(VERSION) + u8(_NUMBERS[type(operation)]) + lv(target) + u64(number) + key.public()
    payload = head + _operation_body(operation)
    return payload + key.sign(_LABEL + lv(service_id) + payload)


def open_request(service_id: bytes, data: bytes) -> Request:
    """Read a request and check its signature; `Refusal` if it is none."""
    payload, signature = data[:-SIGNATURE_SIZE], data[-SIGNATURE_SIZE:]
    reader = Reader(payload, "request")
    try:
        version, number_of = reader.u8(), reader.u8()
        if version != VERSION:
            reader.fail(f"its version is {version}, and this service speaks {VERSION}")
        target, number, key = reader.lv(), reader.u64(), reader.take(SIGNING_PUBLIC_SIZE)
        if number >> 63:
            reader.fail("its number is not below 2⁶³")
        operation = _read_operation(number_of, reader)
        reader.end()
    except (DecodeError, ValueError) as error:
        raise Refusal(Fault.MALFORMED, str(error)) from None
    try:
        verify(key, _LABEL + lv(service_id) + payload, signature)
    except (RejectedError, ValueError):
        raise Refusal(Fault.UNSIGNED, "the signature was not made with this key over this request") from None
    return Request(target=target, number=number, key=key, operation=operation)


def _operation_body(operation: Operation) -> bytes:
    match operation:
        case Create():
            return lv(operation.request) + lv(operation.sender_id) + u8(operation.usage.value) + _blobs(operation.blobs)
        case Enqueue():
            return operation.message_id + operation.message
        case Fetch():
            return u64(operation.first) + u16(operation.limit)
        case AskHead():
            return operation.nonce
        case OfferKey():
            return operation.offer
        case Secure():
            return operation.sender_key
        case StoreBlobs():
            return _blobs(operation.blobs)
        case Reset():
            return operation.request
        case Suspend() | Delete() | AskBlobs():
            return b""
        case _:
            assert_never(operation)


def _read_operation(number: int, reader: Reader) -> Operation:
    match number:
        case 1:
            request, sender_id, usage = reader.lv(), reader.lv(), Usage(reader.u8())
            return Create(request=request, sender_id=sender_id, usage=usage, blobs=_read_blobs(reader))
        case 2:
            return Enqueue(message_id=reader.take(MESSAGE_ID_SIZE), message=reader.rest())
        case 3:
            first = reader.u64()
            if first >> 63:
                reader.fail("sequence numbers are below 2⁶³")
            return Fetch(first=first, limit=reader.u16())
        case 4:
            return AskHead(nonce=reader.rest())
        case 5:
            return OfferKey(offer=reader.rest())
        case 6:
            return Suspend()
        case 7:
            return Secure(sender_key=reader.take(SIGNING_PUBLIC_SIZE))
        case 8:
            return Delete()
        case 9:
            return StoreBlobs(blobs=_read_blobs(reader))
        case 10:
            return AskBlobs()
    if number != 11:
        reader.fail(f"there is no operation {number}")
    return Reset(request=reader.rest())


# --- answers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """It is so: done now, or done before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The message is stored, sealed, under this number."""

    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Frames in order.  `more` is whether there are others after them now; `suspended` is whether others can follow."""

    frames: tuple[bytes, ...] = field(repr=False)
    more: bool
    suspended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadGiven:
    """For `Dequeuer.verify_head`."""

    head: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """How many messages of a suspended queue are not acknowledged."""

    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobsGiven:
    """The blobs by priority, as far as they are kept."""

    blobs: Mapping[int, bytes] = field(repr=False)


Answer: TypeAlias = Done | Accepted | Fetched | HeadGiven | Remaining | BlobsGiven


def encode_answer(answer: Answer | Refusal) -> bytes:
    match answer:
        case Refusal():
            return u8(0) + u8(answer.fault) + u64(answer.detail) + lv(answer.text.encode()[:1000])
        case Done():
            return u8(1)
        case Accepted():
            return u8(2) + u64(answer.seq)
        case Fetched():
            frames = b"".join(u32(len(frame)) + frame for frame in answer.frames)
            return u8(3) + u8(answer.more) + u8(answer.suspended) + u16(len(answer.frames)) + frames
        case HeadGiven():
            return u8(4) + lv(answer.head)
        case Remaining():
            return u8(5) + u32(answer.messages)
        case BlobsGiven():
            return u8(6) + _blobs(answer.blobs)
        case _:
            assert_never(answer)


def decode_answer(data: bytes) -> Answer:
    """Read an answer; a refusal is raised, and bytes that are no answer raise `DecodeError`."""
    reader = Reader(data, "answer")
    tag = reader.u8()
    answer: Answer
    match tag:
        case 0:
            fault, detail, text = reader.u8(), reader.u64(), reader.lv()
            if fault not in list(Fault):
                reader.fail(f"there is no fault {fault}")
            raise Refusal(Fault(fault), text.decode(errors="replace"), detail)
        case 1:
            answer = Done()
        case 2:
            answer = Accepted(seq=reader.u64())
        case 3:
            more, suspended = reader.flag(), reader.flag()
            frames = tuple(reader.take(reader.u32()) for _ in range(reader.u16()))
            answer = Fetched(frames=frames, more=more, suspended=suspended)
        case 4:
            answer = HeadGiven(head=reader.lv())
        case 5:
            answer = Remaining(messages=reader.u32())
        case 6:
            answer = BlobsGiven(blobs=_read_blobs(reader))
        case _:
            reader.fail(f"there is no answer {tag}")
    reader.end()
    return answer


def _blobs(blobs: Mapping[int, bytes]) -> bytes:
    return u8(len(blobs)) + b"".join(u8(priority) + lv(blob) for priority, blob in sorted(blobs.items()))


def _read_blobs(reader: Reader) -> dict[int, bytes]:
    count = reader.u8()
    blobs = {reader.u8(): reader.lv() for _ in range(count)}
    if len(blobs) != count:
        reader.fail("two blobs have one priority")
    return blobs
