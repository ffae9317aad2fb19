"""A grant source for tests: an unencrypted file.  A real one is encrypted."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from qsratchet import Grant, OwnerKeys

_LENGTH = struct.Struct(">I")


@lru_cache(maxsize=8)
def _load(path: str, stamp: int) -> dict[tuple[bytes, bytes], list[bytes]]:
    raw = Path(path).read_bytes()
    found: dict[tuple[bytes, bytes], list[bytes]] = {}
    at = 0
    while at < len(raw):
        parts = []
        for _ in range(3):
            size = _LENGTH.unpack_from(raw, at)[0]
            parts.append(raw[at + 4 : at + 4 + size])
            at += 4 + size
        found.setdefault((parts[0], parts[1]), []).append(parts[2])
    return found


class PlainSource:
    """Grants or owner's keys, by queue, from a file that is read once for each process."""

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def write(cls, path: Path, documents: Iterable[tuple[bytes, bytes, bytes]]) -> PlainSource:
        with path.open("wb") as file:
            for row in documents:
                for part in row:
                    file.write(_LENGTH.pack(len(part)) + part)
        return cls(str(path))

    def _documents(self) -> dict[tuple[bytes, bytes], list[bytes]]:
        return _load(self.path, Path(self.path).stat().st_mtime_ns)

    def grants(self, service_id: bytes, queue_id: bytes) -> Sequence[Grant]:
        return [Grant.decode(raw) for raw in self._documents().get((service_id, queue_id), ())]

    def queues(self) -> Sequence[tuple[bytes, bytes]]:
        return list(self._documents())

    def keys(self, service_id: bytes, queue_id: bytes) -> OwnerKeys | None:
        found = self._documents().get((service_id, queue_id))
        return OwnerKeys.decode(found[0]) if found else None
