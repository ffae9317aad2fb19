"""An encrypted file of sorted records, looked up by queue without reading all of it (docs/grant_file.md).

Records lie in blocks of one size, each sealed by itself under its place, so a look-up is a binary search over blocks:
memory does not grow with the file.  This module knows queues as pairs of ids and records as bytes; what the records are
is in `grant_file`.
"""

from __future__ import annotations

import os
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from qsratchet import MisuseError, StateError
from qsratchet.codec import Kind, Reader, document, lv, open_document, u8, u16, u32, u64
from qsratchet.crypto.kdf import HKDF_SHA256, same
from qsratchet.crypto.passphrase import DEFAULT_COST, ScryptCost
from qsratchet.crypto.secret import Sensitive

from .atomic import replaced_at_end
from .key_source import KeyService, KeySource, root_key

__all__ = ["Content", "Record", "SealedFile", "WrongKey", "write_sealed"]

FORMAT: Final = 1
#: A block holds about 450 grants; a look-up opens one, and some twenty more the first time in a huge file.
BLOCK_SIZE: Final = 1 << 16
_BLOCK_RANGE: Final = range(1 << 10, (1 << 24) + 1)
_HINT_LIMIT: Final = 1024
_HEADER_LIMIT: Final = 2048
_TAG: Final = 16
#: So many opened blocks are kept; workers read queues in order, so the next look-up is nearly always in one of them.
_KEPT_BLOCKS: Final = 8
#: So many blocks are remembered by their last queue, which spares a binary search its first steps.
_KEPT_BOUNDS: Final = 4096
_PLACE: Final = struct.Struct(">IQ")


class Content(IntEnum):
    """What the records of a file are."""

    GRANTS = 1
    OWNER_KEYS = 2


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
                f"{path} does not open with this {'passphrase' if self.cost else 'key'}: it is another one, or the first "
                "bytes of the file were altered"
            )
        fields = self._fields()
        claimed = u16(5 + 2 + len(fields) + 2 * _TAG + 4) + fields + check
        try:
            _cipher(root, b"file header").decrypt(bytes(12), seal, claimed)
        except InvalidTag:
            raise StateError(f"{path}: its header was altered; take the file from a copy that you trust") from None


def _check(root: bytes) -> bytes:
    """Tells a wrong passphrase from an altered file."""
    return HKDF_SHA256.expand(root, b"file check", b"", _TAG)  # type: ignore[no-any-return]


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


def write_sealed(
    path: str | os.PathLike[str],
    content: Content,
    records: Iterable[Record],
    key: KeySource,
    *,
    cost: ScryptCost = DEFAULT_COST,
    hint: bytes = b"",
    block_size: int = BLOCK_SIZE,
) -> int:
    """Write a file, whole or not at all, from records in order; return how many there were.

    Nothing of a file is written in clear at any time, and a file that was there before stays until the new one is whole.
    """
    if block_size not in _BLOCK_RANGE:
        raise MisuseError(f"a block has {_BLOCK_RANGE.start} to {_BLOCK_RANGE.stop - 1} bytes, not {block_size}")
    if len(hint) > _HINT_LIMIT:
        raise MisuseError(f"a hint has at most {_HINT_LIMIT} bytes, not {len(hint)}")
    used_cost = None if isinstance(key, KeyService) else cost
    salt = os.urandom(32)
    root = root_key(key, salt, used_cost, hint)

    def header(blocks: int, count: int) -> bytes:
        return _Header(
            content=content, cost=used_cost, salt=salt, hint=hint, block_size=block_size, blocks=blocks, records=count
        ).encode(root)

    cipher = _cipher(root, b"file block")
    blocks = count = 0
    with replaced_at_end(path, private=True) as file:
        file.write(bytes(len(header(0, 0))))
        for plain, held in _blocks(records, block_size):
            file.write(cipher.encrypt(_PLACE.pack(0, blocks), plain, salt))
            blocks += 1
            count += held
        file.seek(0)
        file.write(header(blocks, count))
    return count


def _blocks(records: Iterable[Record], size: int) -> Iterator[tuple[bytes, int]]:
    """Records packed into blocks of one size, each with how many it holds."""
    packed: list[bytes] = []
    used = 4
    last: Record | None = None
    for record in records:
        if last is not None and record[:4] < last[:4]:
            raise MisuseError("records must come sorted by service, queue and epoch: sort them before writing the file")
        last = record
        data = lv(record.service_id) + lv(record.queue_id) + u32(record.major) + u64(record.minor) + lv(record.payload)
        if len(data) + 4 > size:
            raise MisuseError(f"a record of {len(data)} bytes does not fit a block of {size}: raise the block size")
        if used + len(data) > size:
            yield (u32(len(packed)) + b"".join(packed)).ljust(size, b"\0"), len(packed)
            packed, used = [], 4
        packed.append(data)
        used += len(data)
    if packed:
        yield (u32(len(packed)) + b"".join(packed)).ljust(size, b"\0"), len(packed)


class SealedFile(Sensitive):
    """An open file.  It holds keys and an open file descriptor, so it stays in its process."""

    __slots__ = ("_bounds", "_cipher", "_file", "_header", "_kept", "_start", "path")

    def __init__(self, path: str | os.PathLike[str], content: Content, key: KeySource) -> None:
        self.path = os.fspath(path)
        try:
            self._file = Path(path).open("rb", buffering=0)
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
        self._cipher = _cipher(root, b"file block")
        self._kept: OrderedDict[int, list[Record]] = OrderedDict()
        self._bounds: OrderedDict[int, tuple[bytes, bytes]] = OrderedDict()

    def describe(self) -> str:
        return f"{self._header.content.name.lower()} records={self._header.records} blocks={self._header.blocks}"

    def __len__(self) -> int:
        return self._header.records

    def close(self) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Record]:
        for index in range(self._header.blocks):
            yield from self._block(index)

    def of_queue(self, service_id: bytes, queue_id: bytes) -> list[Record]:
        """The records of one queue, in order; none if the file has none."""
        queue = (service_id, queue_id)
        low, high = 0, self._header.blocks
        while low < high:
            middle = (low + high) // 2
            if self._last_queue(middle) < queue:
                low = middle + 1
            else:
                high = middle
        found: list[Record] = []
        for index in range(low, self._header.blocks):
            block = self._block(index)
            found += [record for record in block if record[:2] == queue]
            if block[-1][:2] > queue:
                break
        return found

    def _last_queue(self, index: int) -> tuple[bytes, bytes]:
        known = self._bounds.get(index)
        if known is None:
            known = self._block(index)[-1][:2]
            self._bounds[index] = known
            if len(self._bounds) > _KEPT_BOUNDS:
                self._bounds.popitem(last=False)
        return known

    def _block(self, index: int) -> list[Record]:
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
        records = [
            Record(reader.lv(), reader.lv(), reader.u32(), reader.u64(), reader.lv()) for _ in range(reader.u32())
        ]
        self._kept[index] = records
        if len(self._kept) > _KEPT_BLOCKS:
            self._kept.popitem(last=False)
        return records
