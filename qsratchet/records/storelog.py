"""The store log: an append-only history of events from which the records come back (docs/protocol.md, "Store log").

Bytes in, bytes out: the host owns the file.  Each entry has its length twice, so that damage is not taken for
an entry that was cut short, and a checksum that continues the one before it, so that entries can be neither
left out, repeated nor exchanged unnoticed.  The checksum finds accidents, not attackers.  This module knows
how events are written; what they do to a record is in `events`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, assert_never
from zlib import crc32

from ..codec import Buffer, Kind, Reader, as_bytes, document, lv, open_document, u8
from ..errors import MisuseError, StateError
from .events import (
    BlobReplaced,
    BlobsDropped,
    Created,
    Deleted,
    Event,
    Kept,
    MessageSent,
    OwnerSeen,
    Secured,
    Suspended,
    apply,
)
from .record import QueueRecord, day_number, read_day, read_record, read_usage, record_body

__all__ = ["EMPTY_LOG", "LogDamaged", "LogEnd", "LogReader", "Replay", "append", "compact", "replay"]

_VERSION: Final = 1
_HEADER: Final = document(Kind.STORE_LOG, _VERSION, b"")
_HEADER_CHECKSUM: Final = int.from_bytes(_HEADER[-4:], "big")
#: No event of this version comes near it; a length beyond it is damage, and is never waited for.
_BODY_MAX: Final = 512
_LENGTHS: Final = struct.Struct(">HH")
_CHECKSUM: Final = struct.Struct(">I")
_PREFIX: Final = struct.Struct(">BI")
_BLOB_SIZE: Final = struct.Struct(">BI")
_OVERHEAD: Final = _LENGTHS.size + _CHECKSUM.size
#: So many records are in each piece that `compact` gives.
_BATCH: Final = 1024

_TAGS: Final[dict[type[Event], int]] = {
    Created: 1,
    Secured: 2,
    MessageSent: 3,
    OwnerSeen: 4,
    Suspended: 5,
    Deleted: 6,
    BlobReplaced: 7,
    BlobsDropped: 8,
    Kept: 9,
}
_PLAIN: Final[dict[int, type[Secured | MessageSent | OwnerSeen | Suspended | Deleted]]] = {
    _TAGS[kind]: kind for kind in (Secured, MessageSent, OwnerSeen, Suspended, Deleted)
}


class LogDamaged(StateError):
    """An entry is damaged or cannot follow what is before it.  The log before `offset` is whole."""

    def __init__(self, entry: int, offset: int, reason: str) -> None:
        where = "its header" if entry == 0 else f"entry {entry}"
        super().__init__(
            f"store log: {where} at byte {offset}: {reason}; restore the log from a copy, "
            "or cut it there if you can do without what follows"
        )
        self.entry = entry
        self.offset = offset
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """Where a log ends: what is needed to append to it.

    `torn` is how many bytes follow of an entry that was never completed.  Cut the file to `offset`
    bytes, then go on with `cut()`.
    """

    entries: int
    offset: int
    checksum: int
    torn: int = 0

    def cut(self) -> LogEnd:
        """Return the end of the log once the host has cut off the torn bytes."""
        return replace(self, torn=0)


#: The end of a log of no bytes; the first `append` to it also gives the log's header.
EMPTY_LOG: Final = LogEnd(entries=0, offset=0, checksum=0)


def append(end: LogEnd, *events: Event) -> tuple[bytes, LogEnd]:
    """Return the bytes to append for these events, and the end of the log once they are stored.

    Keep the new end only after the bytes are safely stored.  If storing fails, cut the file back to
    `end.offset` and append to the old end again.
    """
    if end.torn:
        raise MisuseError(
            f"the log ends in {end.torn} bytes of an entry that was never completed: "
            f"cut the file to {end.offset} bytes and append to end.cut()"
        )
    checksum = end.checksum
    pieces = []
    if end.offset == 0:
        pieces.append(_HEADER)
        checksum = _HEADER_CHECKSUM
    for event in events:
        body = _event_body(event)
        entry = _LENGTHS.pack(len(body), len(body) ^ 0xFFFF) + body
        checksum = crc32(entry, checksum)
        pieces += (entry, _CHECKSUM.pack(checksum))
    data = b"".join(pieces)
    return data, LogEnd(entries=end.entries + len(events), offset=end.offset + len(data), checksum=checksum)


class LogReader:
    """Reads a log in pieces of any size and keeps less than one entry of it.

    Feed it piece by piece and use the events before feeding on; `end` is always the end of the
    last event that came out.  After an error the reader is spent.
    """

    __slots__ = ("_broken", "_buffer", "_finished", "_last_offset", "_position", "end")

    def __init__(self) -> None:
        self.end = EMPTY_LOG
        self._buffer = b""
        self._position = 0
        self._last_offset = 0
        self._broken: LogDamaged | None = None
        self._finished = False

    def feed(self, chunk: Buffer) -> Iterator[Event]:
        """Take the next piece of the log; iterate over the events that are complete with it."""
        self._refuse_if_over()
        self._buffer = self._buffer[self._position :] + as_bytes(chunk)
        self._position = 0
        if self.end.offset == 0 and len(self._buffer) >= len(_HEADER):
            self._read_header()
        return self._events()

    def finish(self) -> LogEnd:
        """Say that there is no more; return the end of the log, with what was torn off it, if anything."""
        self._refuse_if_over()
        left = self._buffer[self._position :]
        if self.end.offset == 0:
            if not _HEADER.startswith(left):
                raise self._damaged(0, 0, "this is not the beginning of a store log")
        elif self._peek() is not None:
            raise MisuseError("events that are complete have not been taken yet; iterate over what feed() returned")
        self.end = replace(self.end, torn=len(left))
        self._finished = True
        return self.end

    def refused(self, reason: str) -> LogDamaged:
        """Return the error for the last event that came out: whole, but it cannot follow those before it."""
        return self._damaged(self.end.entries, self._last_offset, reason)

    def _damaged(self, entry: int, offset: int, reason: str) -> LogDamaged:
        self._broken = LogDamaged(entry, offset, reason)
        return self._broken

    def _refuse_if_over(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self._finished:
            raise MisuseError("the log was finished; read another one with another LogReader")

    def _read_header(self) -> None:
        try:
            open_document(Kind.STORE_LOG, _VERSION, self._buffer[: len(_HEADER)], stored=True)
        except StateError as error:
            raise self._damaged(0, 0, str(error)) from None
        self._position = len(_HEADER)
        self.end = LogEnd(entries=0, offset=len(_HEADER), checksum=_HEADER_CHECKSUM)

    def _events(self) -> Iterator[Event]:
        while self.end.offset and (found := self._peek()) is not None:
            event, end = found
            self._position += end.offset - self.end.offset
            self._last_offset = self.end.offset
            self.end = end
            yield event

    def _peek(self) -> tuple[Event, LogEnd] | None:
        """Read the entry at the position, and where it ends; nothing if it is not complete yet."""
        buffer, start, end = self._buffer, self._position, self.end
        if len(buffer) - start < _LENGTHS.size:
            return None
        length, complement = _LENGTHS.unpack_from(buffer, start)
        if length ^ complement != 0xFFFF or length > _BODY_MAX:
            raise self._damaged(end.entries + 1, end.offset, "its length is damaged")
        body_end = start + _LENGTHS.size + length
        if len(buffer) < body_end + _CHECKSUM.size:
            return None
        checksum = crc32(buffer[start:body_end], end.checksum)
        if checksum != _CHECKSUM.unpack_from(buffer, body_end)[0]:
            raise self._damaged(end.entries + 1, end.offset, "its checksum is wrong, or the entry before it is missing")
        try:
            event = _read_event(Reader(buffer[start + _LENGTHS.size : body_end], "entry", stored=True))
        except (StateError, MisuseError) as error:
            raise self._damaged(end.entries + 1, end.offset, str(error)) from None
        offset = end.offset + _OVERHEAD + length
        return event, LogEnd(entries=end.entries + 1, offset=offset, checksum=checksum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a log says: the records by queue id, and where it ends."""

    records: dict[bytes, QueueRecord]
    end: LogEnd


def replay(chunks: Iterable[Buffer]) -> Replay:
    """Fold a log into its records.

    A torn last entry is left out, and `end.torn` says so; any other damage raises `LogDamaged`.
    """
    reader = LogReader()
    records: dict[bytes, QueueRecord] = {}
    for chunk in chunks:
        for event in reader.feed(chunk):
            try:
                record = apply(records.get(event.queue_id), event).record
            except MisuseError as error:
                raise reader.refused(str(error)) from None
            if record is None:
                del records[event.queue_id]
            else:
                records[event.queue_id] = record
    return Replay(records=records, end=reader.finish())


def compact(records: Iterable[QueueRecord]) -> Iterator[tuple[bytes, LogEnd]]:
    """Write a new log that says what these records are and nothing of how they came to be.

    Gives the log in pieces, each with the end that it leads to; the last end is the one to append to.
    """
    data, end = append(EMPTY_LOG)
    yield data, end
    events = (Kept(record=record) for record in records)
    while batch := tuple(islice(events, _BATCH)):
        data, end = append(end, *batch)
        yield data, end


# --- Events as bytes -------------------------------------------------------------------------------


def _event_body(event: Event) -> bytes:
    if isinstance(event, Kept):
        return u8(_TAGS[Kept]) + record_body(event.record)
    head = _PREFIX.pack(_TAGS[type(event)], day_number(event.day)) + lv(event.queue_id)
    match event:
        case Created():
            blobs = [_BLOB_SIZE.pack(priority, size) for priority, size in event.blobs]
            return head + u8(event.usage.value) + u8(len(blobs)) + b"".join(blobs)
        case BlobReplaced():
            return head + _BLOB_SIZE.pack(event.priority, event.size)
        case BlobsDropped():
            return head + u8(len(event.priorities)) + bytes(event.priorities)
        case Secured() | MessageSent() | OwnerSeen() | Suspended() | Deleted():
            return head
        case _:
            assert_never(event)


def _read_event(reader: Reader) -> Event:
    tag = reader.u8()
    if tag == _TAGS[Kept]:
        record = read_record(reader)
        reader.end()
        return Kept(record=record)
    day = read_day(reader, reader.u32())
    queue_id = reader.lv()
    event: Event
    if tag in _PLAIN:
        event = _PLAIN[tag](queue_id=queue_id, day=day)
    elif tag == _TAGS[Created]:
        usage = read_usage(reader, reader.u8())
        blobs = tuple([_read_blob_size(reader) for _ in range(reader.u8())])
        event = Created(queue_id=queue_id, day=day, usage=usage, blobs=blobs)
    elif tag == _TAGS[BlobReplaced]:
        priority, size = _read_blob_size(reader)
        event = BlobReplaced(queue_id=queue_id, day=day, priority=priority, size=size)
    elif tag == _TAGS[BlobsDropped]:
        event = BlobsDropped(queue_id=queue_id, day=day, priorities=tuple(reader.take(reader.u8())))
    else:
        reader.fail(f"its tag {tag} is unknown")
    reader.end()
    return event


def _read_blob_size(reader: Reader) -> tuple[int, int]:
    priority, size = _BLOB_SIZE.unpack(reader.take(_BLOB_SIZE.size))
    return priority, size
