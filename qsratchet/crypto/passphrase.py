"""A key from a passphrase: scrypt (RFC 7914), with costs that are stored beside what they protect.

Stored costs are anybody's bytes, so they are bounded here before any work is done.  This module knows keys and bytes,
nothing of files.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from ..errors import MisuseError
from .kdf import KEY_SIZE

__all__ = ["DEFAULT_COST", "ScryptCost", "stretch"]

#: No stored cost makes a reader use more memory than this.
MEMORY_LIMIT: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ScryptCost:
    """What one guess costs: 128 · 2^log_n · r bytes of memory, p times over."""

    log_n: int = 17
    r: int = 8
    p: int = 1

    def __post_init__(self) -> None:
        if not (14 <= self.log_n <= 20 and 8 <= self.r <= 32 and 1 <= self.p <= 4) or self.memory > MEMORY_LIMIT:
            raise MisuseError(
                f"scrypt costs of log n {self.log_n}, r {self.r}, p {self.p} are outside what is allowed: "
                "log n from 14 to 20, r from 8 to 32, p from 1 to 4, and 1 GiB of memory"
            )

    @property
    def memory(self) -> int:
        """Bytes that one derivation needs."""
        return 128 * (1 << self.log_n) * self.r


#: 128 MiB and about a third of a second, once for each process that opens a file.
DEFAULT_COST: Final = ScryptCost()


def stretch(passphrase: bytes, salt: bytes, cost: ScryptCost) -> bytes:
    """The 32-byte key of a passphrase."""
    return hashlib.scrypt(
        passphrase,
        salt=salt,
        n=1 << cost.log_n,
        r=cost.r,
        p=cost.p,
        maxmem=cost.memory * 2,
        dklen=KEY_SIZE,
    )
