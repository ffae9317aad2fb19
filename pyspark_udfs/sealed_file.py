"""An encrypted file of sorted records, looked up by queue without reading all of it (docs/grant_file.md).

Records lie in blocks of one size, each sealed by itself under its place, so a look-up is a binary search over blocks:
memory does not grow with the file.  This module knows queues as pairs of ids and records as bytes; what the records are
is in `grant_file`.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from qsratchet import MisuseError, StateError
from qsratchet.codec import Kind, Reader, document, lv, open_document, u8, u16, u32, u64
from qsratchet.crypto.kdf import HKDF_SHA256, same
from qsratchet.crypto.passphrase import DEFAULT_COST, ScryptCost
from qsratchet.crypto.secret import Sensitive

from .atomic import replaced_at_end
from .file_key import FileKey, KeyService, root_key

__all__ = ["Content", "Record", "SealedFile", "SealedWriter", "WrongKey"]

FORMAT: Final = 1
_BLOCK_RANGE: Final = range(1 << 10, (1 << 24) + 1)
_HINT_LIMIT: Final = 1024
_HEADER_LIMIT: Final = 2048
_TAG: Final = 16
#: So many opened blocks are kept: where queues are read in order, the next look-up is nearly always in one of them.
_KEPT_BLOCKS: Final = 16
#: So many blocks are remembered by their last queue, which spares a binary search all steps but the last few.
_KEPT_BOUNDS: Final = 1 << 16
_PLACE: Final = struct.Struct(">IQ")


class Content(IntEnum):
    """What the records of a file are."""

    GRANTS = 1
    OWNER_KEYS = 2


#: A look-up out of order opens a block, so blocks of grants are small: some twenty grants.  The keys of an owner who
#: offered often take more room, and are looked up once for each queue.
_BLOCK_SIZES: Final = {Content.GRANTS: 1 << 12, Content.OWNER_KEYS: 1 << 16}


class WrongKey(MisuseError):
    """The passphrase, or the key service's key, is not the one that the file was sealed with."""


class Record(NamedTuple):
    """One record; files are sorted by the first four fields."""

    service_id: bytes
    queue_id: bytes
    #: The epoch of a grant, the lowest key id of an owner's keys.
    major: int
    #: The first number of a grant, otherwise 0.
    minor: int
    #: The secret bytes.
    payload: bytes

    def __repr__(self) -> str:
        return f"<Record queue={self.queue_id.hex()} {self.major}/{self.minor}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    """The clear part of a file, all of it authenticated by the seal."""

    content: Content
    cost: ScryptCost | None
    salt: bytes
    hint: bytes
    block_size: int
    blocks: int
    records: int

    def encode(self, root: bytes) -> bytes:
        fields = self._fields()
        size = 5 + 2 + len(fields) + 2 * _TAG + 4
        claimed = u16(size) + fields + _check(root)
        seal = _cipher(root, b"file header").encrypt(bytes(12), b"", claimed)
        return document(Kind.SEALED_FILE, FORMAT, claimed + seal)

    def _fields(self) -> bytes:
        cost = u8(1) + u8(self.cost.log_n) + u8(self.cost.r) + u8(self.cost.p) if self.cost else u8(2)
        sizes = u32(self.block_size) + u64(self.blocks) + u64(self.records)
        return u8(self.content) + cost + self.salt + lv(self.hint) + sizes

    def check(self, root: bytes, check: bytes, seal: bytes, path: str) -> None:
        if not same(check, _check(root)):
            raise WrongKey(
                f"{path} does not open with this {'passphrase' if self.cost else 'key'}: it is another one, or the "
                "first bytes of the file were altered"
            )
        fields = self._fields()
        claimed = u16(5 + 2 + len(fields) + 2 * _TAG + 4) + fields + check
        try:
            _cipher(root, b"file header").decrypt(bytes(12), seal, claimed)
        except InvalidTag:
            raise StateError(f"{path}: its header was altered; take the file from a copy that you trust") from None


def _check(root: bytes) -> bytes:
    """Tells a wrong passphrase from an altered file."""
    return HKDF_SHA256.expand(root, b"file check", b"", _TAG)


def _cipher(root: bytes, label: bytes) -> AESGCM:
    return AESGCM(HKDF_SHA256.expand(root, label))


def _read_header(data: bytes, path: str) -> tuple[_Header, bytes, bytes]:
    """The header, its check value and its seal; nothing of it is authenticated yet."""
    size = int.from_bytes(data[5:7], "big")
    if data[:4] == Kind.SEALED_FILE.value and not 7 <= size <= min(_HEADER_LIMIT, len(data)):
        raise StateError(f"{path}: it is cut short within its header")
    try:
        reader = open_document(Kind.SEALED_FILE, FORMAT, data[:size], stored=True)
        reader.u16()
        content = Content(reader.u8())
        cost = _read_cost(reader)
        header = _Header(
            content=content,
            cost=cost,
            salt=reader.take(32),
            hint=reader.lv(),
            block_size=reader.u32(),
            blocks=reader.u64(),
            records=reader.u64(),
        )
        check, seal = reader.take(_TAG), reader.take(_TAG)
        reader.end()
    except (StateError, MisuseError, ValueError) as error:
        raise StateError(f"{path} is not a grant or key file that this release reads: {error}") from None
    if header.block_size not in _BLOCK_RANGE:
        raise StateError(f"{path}: its block size {header.block_size} is out of range")
    return header, check, seal


def _read_cost(reader: Reader) -> ScryptCost | None:
    kind = reader.u8()
    if kind == 1:
        return ScryptCost(log_n=reader.u8(), r=reader.u8(), p=reader.u8())
    if kind != 2:
        reader.fail(f"its key is of kind {kind}")
    return None


class SealedWriter(Sensitive):
    """Writes a file from records in order, as a context: the file is there when the block ends well, or not at all.

    Nothing of it is written in clear at any time, and a file that was there before stays until the new one is whole.
    """

    __slots__ = ("_cipher", "_file", "_header", "_last", "_packed", "_place", "_root", "_used")

    def __init__(
        self,
        path: str | os.PathLike[str],
        content: Content,
        key: FileKey,
        *,
        cost: ScryptCost = DEFAULT_COST,
        hint: bytes = b"",
        block_size: int | None = None,
    ) -> None:
        if block_size is None:
            block_size = _BLOCK_SIZES[content]
        if block_size not in _BLOCK_RANGE:
            raise MisuseError(f"a block has {_BLOCK_RANGE.start} to {_BLOCK_RANGE.stop - 1} bytes, not {block_size}")
        if len(hint) > _HINT_LIMIT:
            raise MisuseError(f"a hint has at most {_HINT_LIMIT} bytes, not {len(hint)}")
        self._header = _Header(
            content=content,
            cost=None if isinstance(key, KeyService) else cost,
            salt=os.urandom(32),
            hint=hint,
            block_size=block_size,
            blocks=0,
            records=0,
        )
        self._root = root_key(key, self._header.salt, self._header.cost, hint)
        self._cipher = _cipher(self._root, b"file block")
        self._place = replaced_at_end(path, private=True)
        self._packed: list[bytes] = []
        self._used = 4
        self._last: tuple[bytes, bytes, int, int] = (b"", b"", 0, 0)

    def __enter__(self) -> Self:
        self._file = self._place.__enter__()
        self._file.write(bytes(len(self._header.encode(self._root))))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._flush()
                self._file.seek(0)
                self._file.write(self._header.encode(self._root))
        except BaseException as failed:
            self._place.__exit__(type(failed), failed, failed.__traceback__)
            raise
        self._place.__exit__(kind, error, trace)

    def __len__(self) -> int:
        """How many records were added."""
        return self._header.records + len(self._packed)

    def add(self, record: Record) -> None:
        place = record[:4]
        if place < self._last:
            raise MisuseError("records must come sorted by service, queue and epoch: sort them before writing the file")
        self._last = place
        data = lv(record.service_id) + lv(record.queue_id) + u32(record.major) + u64(record.minor) + lv(record.payload)
        size = self._header.block_size
        if len(data) + 4 > size:
            raise MisuseError(f"a record of {len(data)} bytes does not fit a block of {size}: raise the block size")
        if self._used + len(data) > size:
            self._flush()
        self._packed.append(data)
        self._used += len(data)

    def _flush(self) -> None:
        if self._packed:
            header, count = self._header, len(self._packed)
            plain = (u32(count) + b"".join(self._packed)).ljust(header.block_size, b"\0")
            self._file.write(self._cipher.encrypt(_PLACE.pack(0, header.blocks), plain, header.salt))
            self._header = replace(header, blocks=header.blocks + 1, records=header.records + count)
            self._packed, self._used = [], 4


class _Block(NamedTuple):
    """An opened block: its records by queue, in order.  No block is empty."""

    queues: dict[tuple[bytes, bytes], list[Record]]


class SealedFile(Sensitive):
    """An open file.  It holds keys and an open file descriptor, so it stays in its process."""

    __slots__ = ("_bounds", "_cipher", "_file", "_header", "_kept", "_recent", "_start", "path")

    def __init__(self, path: str | os.PathLike[str], content: Content, key: FileKey) -> None:
        self.path = os.fspath(path)
        try:
            self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - it stays open for the look-ups.
        except OSError as error:
            raise MisuseError(f"{self.path} cannot be read here: {error.strerror}") from None
        try:
            data = self._file.read(_HEADER_LIMIT)
            header, check, seal = _read_header(data, self.path)
            root = root_key(key, header.salt, header.cost, header.hint)
            header.check(root, check, seal, self.path)
            if header.content is not content:
                raise MisuseError(
                    f"{self.path} holds {header.content.name.lower().replace('_', ' ')}, not "
                    f"{content.name.lower().replace('_', ' ')}"
                )
            self._start = int.from_bytes(data[5:7], "big")
            whole = self._start + header.blocks * (header.block_size + _TAG)
            size = os.fstat(self._file.fileno()).st_size
            if size != whole:
                raise StateError(f"{self.path} has {size} bytes instead of {whole}: it was cut short or added to")
        except BaseException:
            self._file.close()
            raise
        self._header = header
        self._recent = 0
        self._cipher = _cipher(root, b"file block")
        self._kept: OrderedDict[int, _Block] = OrderedDict()
        self._bounds: OrderedDict[int, tuple[bytes, bytes]] = OrderedDict()

    def describe(self) -> str:
        return f"{self._header.content.name.lower()} records={self._header.records} blocks={self._header.blocks}"

    def __len__(self) -> int:
        return self._header.records

    def close(self) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Record]:
        for index in range(self._header.blocks):
            for records in self._block(index).queues.values():
                yield from records

    def of_queue(self, service_id: bytes, queue_id: bytes) -> list[Record]:
        """The records of one queue, in order; none if the file has none."""
        queue = (service_id, queue_id)
        blocks = range(self._header.blocks)
        # Readers come in order, so the block of the last look-up is tried first.
        index = self._recent
        if index >= len(blocks) or not self._before(index) < queue <= self._last_queue(index):
            index = self._recent = bisect_left(blocks, queue, key=self._last_queue)
        found: list[Record] = []
        for at in blocks[index:]:
            block = self._block(at)
            found += block.queues.get(queue, ())
            if self._last_queue(at) > queue:
                break
        return found

    def _before(self, index: int) -> tuple[bytes, bytes]:
        """The last queue of the block before, or what is less than any queue."""
        return self._last_queue(index - 1) if index else (b"", b"")

    def _last_queue(self, index: int) -> tuple[bytes, bytes]:
        known = self._bounds.get(index)
        if known is None:
            known = next(reversed(self._block(index).queues))
            self._bounds[index] = known
            if len(self._bounds) > _KEPT_BOUNDS:
                self._bounds.popitem(last=False)
        return known

    def _block(self, index: int) -> _Block:
        kept = self._kept.get(index)
        if kept is not None:
            self._kept.move_to_end(index)
            return kept
        size = self._header.block_size + _TAG
        sealed = os.pread(self._file.fileno(), size, self._start + index * size)
        try:
            plain = self._cipher.decrypt(_PLACE.pack(0, index), sealed, self._header.salt)
        except (InvalidTag, ValueError):
            raise StateError(
                f"{self.path}: block {index} was altered or moved; take the file from a copy that you trust"
            ) from None
        reader = Reader(plain, "block", stored=True)
        queues: dict[tuple[bytes, bytes], list[Record]] = {}
        for _ in range(reader.u32()):
            record = Record(reader.lv(), reader.lv(), reader.u32(), reader.u64(), reader.lv())
            queues.setdefault(record[:2], []).append(record)
        block = self._kept[index] = _Block(queues)
        if len(self._kept) > _KEPT_BLOCKS:
            self._kept.popitem(last=False)
        return block
