"""Snapshots: a connection as one document, and back (docs/protocol.md, "Rotation").

The held message is not in it: its server keeps it until it is acknowledged.  This module knows the layout
and refuses what no connection writes; it knows nothing of what follows what.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, TypeVar

from ..codec import Kind, Reader, document, lv, open_document, u8, u32, u64
from .events import Outcome
from .messages import QueueAddress, SenderKeys, read_address
from .stream import Entry, Stream
from .tables import Receiving, Sending
from .turn import ReceiveQueue, ReceivingSide, SendingSide, SendQueue

__all__ = ["dump", "load"]

VERSION: Final = 1

E = TypeVar("E", bound=Enum)
T = TypeVar("T")


def dump(receiving: ReceivingSide, sending: SendingSide, stream: Stream, fast: bool) -> bytes:
    body = u8(fast) + _dump_receiving(receiving) + _dump_sending(sending) + _dump_stream(stream)
    return document(Kind.CONNECTION, VERSION, body)


def load(data: bytes) -> tuple[ReceivingSide, SendingSide, Stream, bool]:
    reader = open_document(Kind.CONNECTION, VERSION, data, stored=True)
    fast = reader.flag()
    receiving, sending, stream = _load_receiving(reader), _load_sending(reader), _load_stream(reader)
    reader.end()
    return receiving, sending, stream, fast


def _dump_receiving(side: ReceivingSide) -> bytes:
    return b"".join(
        (
            u8(side.state.value),
            u64(side.since),
            _optional(side.due, u64),
            u32(side.count),
            side.queue.address.encode(),
            lv(side.queue.key),
            lv(side.target.encode("ascii")),
            _optional(side.other, QueueAddress.encode),
            lv(side.dh_seed),
            lv(side.server_key),
            lv(side.new_key),
            lv(side.hello_key),
            u64(side.switch_number),
            _optional(side.last, u64),
            _optional(side.outcome, lambda outcome: u8(outcome.value)),
        )
    )


def _load_receiving(reader: Reader) -> ReceivingSide:
    side = ReceivingSide(
        state=_enum(reader, Receiving),
        since=reader.u64(),
        due=_maybe(reader, Reader.u64),
        count=reader.u32(),
        queue=ReceiveQueue(address=read_address(reader), key=reader.lv()),
        target=_text(reader),
        other=_maybe(reader, read_address),
        dh_seed=_secret(reader),
        server_key=_secret(reader),
        new_key=_secret(reader),
        hello_key=_secret(reader),
        switch_number=reader.u64(),
        last=_maybe(reader, Reader.u64),
        outcome=_maybe(reader, lambda inner: _enum(inner, Outcome)),
    )
    idle = side.state is Receiving.IDLE
    early = side.state in (Receiving.IDLE, Receiving.CREATING)
    late = side.state in (Receiving.DELETING, Receiving.ABORTING)
    if (side.due is None) != idle or (side.other is None) != early or (side.outcome is not None) != late:
        reader.fail(f"its receiving side is not what {side.state.name} looks like")
    if side.state is Receiving.OFFERED and not side.dh_seed:
        reader.fail("its receiving side has lost the key that it offered")
    return side


def _dump_sending(side: SendingSide) -> bytes:
    return b"".join(
        (
            u8(side.state.value),
            u64(side.since),
            _optional(side.due, u64),
            _dump_send_queue(side.queue),
            _optional(side.new, _dump_send_queue),
            _optional(side.keys, SenderKeys.encode),
            u8(side.fast),
            lv(side.hello_key),
            lv(side.hello),
        )
    )


def _load_sending(reader: Reader) -> SendingSide:
    side = SendingSide(
        state=_enum(reader, Sending),
        since=reader.u64(),
        due=_maybe(reader, Reader.u64),
        queue=_load_send_queue(reader),
        new=_maybe(reader, _load_send_queue),
        keys=_maybe(reader, lambda inner: SenderKeys(server_key=inner.take(32), dh_key=inner.take(32))),
        fast=reader.flag(),
        hello_key=_secret(reader),
        hello=reader.lv(),
    )
    alone = side.state in (Sending.IDLE, Sending.ANNOUNCING)
    fits = (side.due is None) == (side.state is Sending.IDLE) and (side.hello == b"") == (side.state is Sending.IDLE)
    if not fits or (side.new is None) != alone or (side.keys is None) != alone or (side.hello_key == b"") != alone:
        reader.fail(f"its sending side is not what {side.state.name} looks like")
    return side


def _dump_send_queue(queue: SendQueue) -> bytes:
    return queue.address.encode() + lv(queue.key) + lv(queue.server_seed)


def _load_send_queue(reader: Reader) -> SendQueue:
    return SendQueue(address=read_address(reader), key=reader.lv(), server_seed=reader.lv())


def _dump_stream(stream: Stream) -> bytes:
    parts = [u64(stream.next_number), u64(stream.delivered), stream.digest, u32(len(stream.outbox))]
    # The numbers of the outbox are the last ones given out, so the frames are enough.
    parts += [u32(len(entry.frame)) + entry.frame for entry in stream.outbox]
    return b"".join(parts)


def _load_stream(reader: Reader) -> Stream:
    next_number, delivered, digest, count = reader.u64(), reader.u64(), reader.take(32), reader.u32()
    if count >= next_number:
        reader.fail("its outbox is longer than its stream")
    frames = [reader.take(reader.u32()) for _ in range(count)]
    first = next_number - count
    outbox = tuple(Entry(number=first + index, frame=frame) for index, frame in enumerate(frames))
    return Stream(next_number=next_number, outbox=outbox, delivered=delivered, digest=digest)


# --- small pieces --------------------------------------------------------------------------------


def _optional(value: T | None, encode: Callable[[T], bytes]) -> bytes:
    return u8(0) if value is None else u8(1) + encode(value)


def _maybe(reader: Reader, read: Callable[[Reader], T]) -> T | None:
    return read(reader) if reader.flag() else None


def _enum(reader: Reader, kind: type[E]) -> E:
    value = reader.u8()
    try:
        return kind(value)
    except ValueError:
        reader.fail(f"{value} is no {kind.__name__.lower()} state")


def _text(reader: Reader) -> str:
    raw = reader.lv()
    if not raw.isascii():
        reader.fail("a server's name is not ASCII")
    return raw.decode("ascii")


def _secret(reader: Reader) -> bytes:
    raw = reader.lv()
    if len(raw) not in (0, 32):
        reader.fail(f"a key has {len(raw)} bytes instead of 32")
    return raw
