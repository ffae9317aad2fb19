"""What opening a frame gives.  Plain tuples: one is made for every message read."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

__all__ = ["Head", "Initialised", "Message", "Opened", "Updated"]

NOTHING_MISSING: Final = range(0)


class Message(NamedTuple):
    """A DATA frame's message.  `missing` names the numbers that a tolerant reader passed over to reach it."""

    seq: int
    epoch: int
    body: bytes
    missing: range = NOTHING_MISSING

    def __repr__(self) -> str:
        """Without the plaintext: results end up in logs."""
        return f"Message(seq={self.seq}, epoch={self.epoch}, body=<{len(self.body)} bytes>, missing={self.missing})"


class Initialised(NamedTuple):
    """The INIT frame was taken; the queue uses this suite."""

    seq: int
    suite: int


class Updated(NamedTuple):
    """An UPDATE frame was taken; `epoch` is the new one, `key_id` the owner's key that it was sealed to."""

    seq: int
    epoch: int
    key_id: int
    missing: range = NOTHING_MISSING


Opened: TypeAlias = Initialised | Message | Updated


class Head(NamedTuple):
    """An authentic head: the service's next number, and the numbers before it that were not read yet."""

    next_seq: int
    epoch: int
    missing: range
