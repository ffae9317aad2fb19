"""Mutations of real frames and documents.  Everything comes from one seeded generator, so a run can be repeated."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final
from zlib import crc32

__all__ = ["mutated"]

#: Values at the edges of the fields that frames and documents have.
_EDGES: Final = tuple(
    value.to_bytes(size)
    for size in (1, 2, 4, 8)
    for value in (0, 1, 2, 3, 4, 2 ** (8 * size - 1) - 1, 2 ** (8 * size - 1), 2 ** (8 * size) - 2, 2 ** (8 * size) - 1)
)
#: Where the fields of a frame's header, and of most documents, begin.
_FIELDS: Final = (0, 1, 2, 4, 5, 7, 8, 13, 16, 20, 28, 31, 36, 52)


def mutated(source: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds, changed in one to four ways; half of the documents get a right checksum again."""
    choose = source.randrange
    data = bytearray(seeds[choose(len(seeds))])
    for _ in range(1 + (choose(4) if choose(2) else 0)):
        size = len(data)
        match choose(9):
            case 0 if size:
                data[choose(size)] ^= 1 << choose(8)
            case 1 if size:
                data[choose(size)] = choose(256)
            case 2:
                edge = _EDGES[choose(len(_EDGES))]
                at = _FIELDS[choose(len(_FIELDS))] if choose(2) else choose(size + 1)
                data[at : at + len(edge)] = edge
            case 3:
                del data[choose(size + 1) :]
            case 4:
                data += source.randbytes(choose(40))
            case 5 if size:
                at = choose(size)
                del data[at : at + 1 + choose(8)]
            case 6:
                at = choose(size + 1)
                data[at:at] = source.randbytes(1 + choose(8))
            case 7:
                # The beginning of one and the end of another.
                other = seeds[choose(len(seeds))]
                at = choose(size + 1)
                data[at:] = other[at:]
            case _:
                # A number near the true one, where a frame has it.
                data[8:16] = choose(1 << choose(64) + 1).to_bytes(8)
    if data[:3] == b"QSR" and len(data) >= 9 and choose(2):
        data[-4:] = crc32(data[:-4]).to_bytes(4)
    return bytes(data)
