"""The connection's stream: one sequence of numbers per direction, whatever queues it passes through.

The outbox holds what no server has definitely accepted, as the very bytes that go out, so a retransmission
is the same number and the same bytes.  This module knows numbers and bytes; it knows nothing of queues.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from ..crypto.kdf import HKDF_SHA256
from ..crypto.secret import Sensitive
from .messages import Message, encode_frame

__all__ = ["NO_DIGEST", "Arrival", "Entry", "Stream"]

NO_DIGEST: Final = bytes(32)


class Arrival(Enum):
    """How a number compares with the last one that was delivered."""

    NEXT = 1
    AFTER_GAP = 2
    AGAIN = 3
    OTHER_BYTES = 4
    OLD = 5


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Entry(Sensitive):
    """One message on its way."""

    number: int
    frame: bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Stream(Sensitive):
    """Both directions of one connection."""

    #: The number that the next message gets.
    next_number: int = 1
    #: What is not definitely accepted, in order.
    outbox: tuple[Entry, ...] = ()
    #: The last number delivered or named in a gap, and the hash of its frame: with one message in flight per
    #: queue, an honest repetition is always of this one.
    delivered: int = 0
    digest: bytes = NO_DIGEST

    def add(self, message: Message) -> Stream:
        """Give a message the next number and put it into the outbox."""
        entry = Entry(number=self.next_number, frame=encode_frame(self.next_number, message))
        return replace(self, next_number=self.next_number + 1, outbox=(*self.outbox, entry))

    def accepted(self) -> Stream:
        """The first message of the outbox is with a server for good."""
        return replace(self, outbox=self.outbox[1:])

    @property
    def last_accepted(self) -> int:
        """The last number that a server has for good; every number after it is in the outbox."""
        return self.next_number - 1 - len(self.outbox)

    def compare(self, number: int, frame: bytes) -> Arrival:
        if number == self.delivered + 1:
            return Arrival.NEXT
        if number > self.delivered:
            return Arrival.AFTER_GAP
        if number < self.delivered:
            return Arrival.OLD
        # After a gap that was named without a message, there is no frame to compare with.
        if self.digest in (NO_DIGEST, HKDF_SHA256.hash(frame)):
            return Arrival.AGAIN
        return Arrival.OTHER_BYTES

    def deliver(self, number: int, frame: bytes) -> Stream:
        return replace(self, delivered=number, digest=HKDF_SHA256.hash(frame))

    def skip(self, number: int) -> Stream:
        """Everything up to this number was named in a gap."""
        return replace(self, delivered=number, digest=NO_DIGEST)
