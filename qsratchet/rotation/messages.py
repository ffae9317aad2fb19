"""What two agents say to each other: application messages and QNEW, QKEYS, QREADY, QHELLO, QSWITCH as bytes.

A *frame* is one message with its number in the stream of its direction; number 0 stands outside the stream
and belongs to QHELLO alone (docs/protocol.md, "Rotation").  Decoding is strict.  This module knows layouts;
it knows nothing of states, keys or who may say what when.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias, assert_never

from ..codec import U64_MAX, Buffer, Reader, as_bytes, lv, u8, u64
from ..errors import LimitExceeded, MisuseError

__all__ = [
    "ID_SIZE",
    "MAX_BODY",
    "Application",
    "Control",
    "Frame",
    "Message",
    "QHello",
    "QKeys",
    "QNew",
    "QReady",
    "QSwitch",
    "QueueAddress",
    "QueueName",
    "SenderKeys",
    "Tag",
    "decode_frame",
    "encode_frame",
    "names",
]

FRAME_VERSION: Final = 1
ID_SIZE: Final = 24
KEY_SIZE: Final = 32
MAC_SIZE: Final = 32
MAX_SERVER: Final = 255
#: The longest application message.  A server's own limit is usually lower.
MAX_BODY: Final = 0xFFFF

_FAST: Final = 0x01
_KEYS: Final = 0x01
_LAST: Final = 0x02


class Tag(Enum):
    """The first two bytes of a message."""

    APPLICATION = b"AM"
    QNEW = b"QN"
    QKEYS = b"QK"
    QREADY = b"QR"
    QHELLO = b"QH"
    QSWITCH = b"QS"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAddress:
    """Where a sender finds a queue: the server's name and the sender ID."""

    server: str
    sender_id: bytes

    def __post_init__(self) -> None:
        if not (0 < len(self.server) <= MAX_SERVER and self.server.isascii() and self.server.isprintable()):
            raise MisuseError(f"a server's name has 1 to {MAX_SERVER} printable ASCII characters")
        if len(self.sender_id) != ID_SIZE:
            raise MisuseError(f"a sender ID has {ID_SIZE} bytes, not {len(self.sender_id)}")

    def encode(self) -> bytes:
        return lv(self.server.encode("ascii")) + self.sender_id


#: QREADY and QSWITCH name the new queue by its address or by its sender ID alone; the seed has one of each.
QueueName: TypeAlias = QueueAddress | bytes


def names(name: QueueName, address: QueueAddress) -> bool:
    """Whether a QREADY or QSWITCH means this queue."""
    return name == (address if isinstance(name, QueueAddress) else address.sender_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderKeys:
    """The public keys with which the sender uses the new queue: one for its server, one for its owner."""

    server_key: bytes
    dh_key: bytes

    def encode(self) -> bytes:
        return self.server_key + self.dh_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What the application sends; the machines never look inside."""

    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QNew:
    """Alice to Bob: here is a new queue in place of the one you use.  `fast` announces the capability."""

    queue: QueueAddress
    dh_key: bytes
    replaces: QueueAddress
    fast: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QKeys:
    """Bob to Alice, through the old queue: my keys for the new one."""

    queue: QueueAddress
    keys: SenderKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class QReady:
    """Alice to Bob: the new queue is secured with your key; say QHELLO there."""

    queue: QueueName


@dataclass(frozen=True, slots=True, kw_only=True)
class QHello:
    """Bob to Alice, through the new queue and outside the stream: it works.

    On the fast path it carries Bob's keys, and after the switch, once more, the last number that the old
    queue holds.
    """

    queue: QueueAddress
    keys: SenderKeys | None = None
    last: int | None = None
    mac: bytes = field(default=bytes(MAC_SIZE), repr=False)

    def authenticated(self) -> bytes:
        """The bytes under the MAC: all of the message before it."""
        flags = (_KEYS if self.keys is not None else 0) | (_LAST if self.last is not None else 0)
        return (
            Tag.QHELLO.value
            + u8(flags)
            + self.queue.encode()
            + (b"" if self.keys is None else self.keys.encode())
            + (b"" if self.last is None else u64(self.last))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QSwitch:
    """Alice to Bob: use the new queue from now on."""

    queue: QueueName


#: The messages of a rotation that travel in the stream.
Control: TypeAlias = QNew | QKeys | QReady | QSwitch
Message: TypeAlias = Application | Control | QHello


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A message with its number; 0 is outside the stream."""

    number: int
    message: Message


def encode_frame(number: int, message: Message) -> bytes:
    """The bytes that go into a queue."""
    if (number == 0) != isinstance(message, QHello) or not 0 <= number <= U64_MAX:
        raise MisuseError("QHELLO has the number 0, and every other message a number from 1 to 2^64 - 1")
    return u8(FRAME_VERSION) + u64(number) + _encode(message)


def _encode(message: Message) -> bytes:
    match message:
        case Application():
            if len(message.body) > MAX_BODY:
                raise LimitExceeded("application message", len(message.body), MAX_BODY)
            return Tag.APPLICATION.value + message.body
        case QNew():
            flags = _FAST if message.fast else 0
            return Tag.QNEW.value + u8(flags) + message.queue.encode() + message.dh_key + message.replaces.encode()
        case QKeys():
            return Tag.QKEYS.value + message.queue.encode() + message.keys.encode()
        case QReady():
            return Tag.QREADY.value + _encode_name(message.queue)
        case QHello():
            return message.authenticated() + message.mac
        case QSwitch():
            return Tag.QSWITCH.value + _encode_name(message.queue)
        case _:
            assert_never(message)


def _encode_name(name: QueueName) -> bytes:
    return name.encode() if isinstance(name, QueueAddress) else name


def decode_frame(data: Buffer) -> Frame:
    """Read a frame; `DecodeError` for everything that `encode_frame` does not make."""
    reader = Reader(as_bytes(data), "rotation frame")
    version = reader.u8()
    if version != FRAME_VERSION:
        reader.fail(f"its version is {version}, and this release reads version {FRAME_VERSION}")
    number = reader.u64()
    message = _decode(reader)
    reader.end()
    if (number == 0) != isinstance(message, QHello):
        reader.fail("QHELLO alone stands outside the stream, with the number 0")
    return Frame(number=number, message=message)


def _decode(reader: Reader) -> Message:
    raw = reader.take(2)
    tag = _TAGS.get(raw)
    if tag is None:
        reader.fail(f"the tag {raw.hex()} is unknown")
    match tag:
        case Tag.APPLICATION:
            body = reader.rest()
            if len(body) > MAX_BODY:
                reader.fail(f"the application message has {len(body)} bytes, and the limit is {MAX_BODY}")
            return Application(body=body)
        case Tag.QNEW:
            fast = bool(_flags(reader, _FAST))
            return QNew(
                fast=fast, queue=read_address(reader), dh_key=reader.take(KEY_SIZE), replaces=read_address(reader)
            )
        case Tag.QKEYS:
            return QKeys(queue=read_address(reader), keys=_read_keys(reader))
        case Tag.QREADY:
            return QReady(queue=_read_name(reader))
        case Tag.QHELLO:
            flags = _flags(reader, _KEYS | _LAST)
            return QHello(
                queue=read_address(reader),
                keys=_read_keys(reader) if flags & _KEYS else None,
                last=reader.u64() if flags & _LAST else None,
                mac=reader.take(MAC_SIZE),
            )
        case Tag.QSWITCH:
            return QSwitch(queue=_read_name(reader))
        case _:
            assert_never(tag)


_TAGS: Final = {tag.value: tag for tag in Tag}


def _flags(reader: Reader, known: int) -> int:
    flags = reader.u8()
    if flags & ~known:
        reader.fail(f"the flags {flags:#04x} are not all known")
    return flags


def read_address(reader: Reader) -> QueueAddress:
    raw = reader.lv()
    sender_id = reader.take(ID_SIZE)
    try:
        return QueueAddress(server=raw.decode("ascii"), sender_id=sender_id)
    except (MisuseError, UnicodeDecodeError):
        reader.fail(f"a server's name has 1 to {MAX_SERVER} printable ASCII characters")


def _read_name(reader: Reader) -> QueueName:
    """An address is at least 27 bytes long, a bare sender ID has 24, so the length tells them apart."""
    raw = reader.rest()
    if len(raw) == ID_SIZE:
        return raw
    inner = Reader(raw, reader.what)
    address = read_address(inner)
    inner.end()
    return address


def _read_keys(reader: Reader) -> SenderKeys:
    return SenderKeys(server_key=reader.take(KEY_SIZE), dh_key=reader.take(KEY_SIZE))
