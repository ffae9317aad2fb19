"""What a host decides: when to update, how to pad, how to read over gaps.  Values, no state.

Policies are given when a machine is made or loaded; they are not stored with it, so that a service can
change its configuration for every queue at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import Final

from ..errors import MisuseError
from .frames import EPOCH_CAP, SEQ_LIMIT

__all__ = ["PADME", "UNPADDED", "Padding", "ReadPolicy", "UpdatePolicy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePolicy:
    """When the service injects fresh randomness by itself.

    `frames`: after so many DATA frames in an epoch.  It bounds what a copy of the service's state opens later;
    the default costs less than a tenth of the throughput.  `seconds`: at the first message after so long, on the
    caller's clock (or so long before it: that clock was wrong); a day, so that a quiet queue heals too.  None switches
    a rule off.  An update also follows every key offer, and no policy lets an epoch grow beyond `EPOCH_CAP` frames.
    """

    frames: int | None = 500
    seconds: int | None = 86_400

    def __post_init__(self) -> None:
        if self.frames is not None and not 1 <= index(self.frames) < EPOCH_CAP:
            raise MisuseError(f"frames must be from 1 to {EPOCH_CAP - 1}, or None")
        if self.seconds is not None and index(self.seconds) < 1:
            raise MisuseError("seconds must be at least 1, or None")

    @property
    def room(self) -> int:
        """How many DATA frames an epoch takes."""
        return EPOCH_CAP - 1 if self.frames is None else self.frames

    @property
    def span(self) -> int:
        """How many seconds an epoch lasts; beyond every clock when that is switched off."""
        return SEQ_LIMIT if self.seconds is None else self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPolicy:
    """How the owner reads over missing frames.

    Strict, the default, refuses a frame after a gap.  Tolerant opens it, if no more than `forward_limit` frames are
    missing, and says which ones.  The limit bounds the work that a forged number can cause: 2,000 steps are about
    two milliseconds.
    """

    tolerant: bool = False
    forward_limit: int = 2_000

    def __post_init__(self) -> None:
        if not 1 <= index(self.forward_limit) < EPOCH_CAP:
            raise MisuseError(f"forward_limit must be from 1 to {EPOCH_CAP - 1}")


@dataclass(frozen=True, slots=True)
class Padding:
    """How long a padded message is.

    No buckets: Padmé, which leaks no more than O(log log) bits of the length and adds at most 12 %.  Buckets: the
    smallest that fits, or a multiple of the largest.  A bucket of 1 pads nothing.
    """

    buckets: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if any(index(size) < 1 for size in self.buckets) or sorted(set(self.buckets)) != list(self.buckets):
            raise MisuseError("buckets are sizes in bytes from 1 on, each once, smallest first")
        if self.buckets and self.buckets[-1] > 1 << 20:
            raise MisuseError("the largest bucket may have 1 MiB at most")

    @property
    def size_of(self) -> Callable[[int], int]:
        """The function from a length to its padded length."""
        return self._bucket if self.buckets else padme

    def _bucket(self, length: int) -> int:
        for size in self.buckets:
            if length <= size:
                return size
        last = self.buckets[-1]
        return -(-length // last) * last


# Most queues carry few different lengths, and a look-up costs a third of the arithmetic.
@lru_cache(maxsize=4096)
def padme(length: int) -> int:
    """The Padmé size of `length` bytes: only the leading bits of a length stay visible."""
    exponent = length.bit_length() - 1
    mask = (1 << max(exponent - exponent.bit_length(), 0)) - 1
    return (length + mask) & ~mask


PADME: Final = Padding()
UNPADDED: Final = Padding((1,))
