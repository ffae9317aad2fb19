"""Follows the epochs of a queue: one leads to the next by its UPDATE only.

It knows spans of frames by their numbers, epochs and whether they opened, in the order of their first numbers, and
says so when an UPDATE is not there.  It says only what no later frame can take back: so the answer is the same
whether a queue is audited at once or in increments.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Chain", "MissingUpdate"]


class MissingUpdate(NamedTuple):
    """No UPDATE ends `epoch`, although the frame `follower` is of a later epoch (or, unopened, claims to be)."""

    epoch: int
    first: int
    follower: int
    opened: bool


class Chain:
    """Where the sequence of epochs stands."""

    __slots__ = ("_claim", "_granted", "_last", "_update", "epoch")

    def __init__(self) -> None:
        #: The epoch that the chain has reached, and whether frames of it opened.
        self.epoch: int | None = None
        self._granted = False
        # The last number of that epoch, and whether the UPDATE that ends it was seen.
        self._last = -1
        self._update = False
        # A later epoch that one unopened frame claims, and its number: perhaps a flipped bit.
        self._claim: tuple[int, int] | None = None

    def state(self) -> list[Any]:
        """All of it, for a checkpoint."""
        return [self.epoch, self._granted, self._last, self._update, self._claim]

    def resume(self, state: list[Any]) -> None:
        self.epoch, self._granted, self._last, self._update, claim = state
        self._claim = None if claim is None else (claim[0], claim[1])

    def follow(self, first: int, last: int, epoch: int, granted: bool, update: bool) -> MissingUpdate | None:
        """Go on with a span of frames."""
        if self.epoch is None:
            self._move(last, epoch, granted, update)
            return None
        if epoch == self.epoch:
            self._granted |= granted
            self._last = max(last, self._last)
            self._update |= update
            self._claim = None
            return None
        if epoch < self.epoch:
            # Frames that open show that the later epoch, of which nothing opened, was a false claim.
            if granted and not self._granted:
                self._move(last, epoch, granted, update)
            return None
        if not granted:
            # Under a number that the chain has passed, a frame that does not open claims nothing.
            first = max(first, self._last + 1)
            if first > last:
                return None
        follower = first if self._claim is None or self._claim[0] != epoch else self._claim[1]
        missing = None
        if not (self._update and epoch == self.epoch + 1):
            if not granted and last == follower:
                self._claim = (epoch, follower)
                return None
            # If the UPDATE of this epoch is there, nothing is there of the next one.
            lost = self.epoch + self._update
            missing = MissingUpdate(lost, min(self._last + 1, follower), follower, granted)
        self._move(last, epoch, granted, update)
        return missing

    def _move(self, last: int, epoch: int, granted: bool, update: bool) -> None:
        self.epoch, self._granted, self._last, self._update, self._claim = epoch, granted, last, update, None
