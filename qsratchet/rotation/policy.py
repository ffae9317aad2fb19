"""When to rotate by itself: a pure function from facts about queues to advice.

A queue is rotated because it is old (a server must not watch one pattern for ever), because it carried many
messages, or because its server is no longer one of the user's.  This module knows dates and counts; it starts
nothing: the host turns each piece of advice into a `StartRotation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..crypto.kdf import HKDF_SHA256
from ..errors import MisuseError
from .messages import QueueAddress

__all__ = ["Advice", "QueueFacts", "Reason", "RotationPolicy", "advise"]

_DAY: Final = 24 * 3600


class Reason(Enum):
    """Why a queue is to be rotated; the smaller number goes first."""

    SERVER_LEFT = 1
    MESSAGES = 2
    AGE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationPolicy:
    """When a queue is due, and how many rotations may run at a time."""

    #: Thirty days: a server sees at most a month of one pattern.
    max_age: int = 30 * _DAY
    #: A queue is due up to this part of `max_age` earlier, so that queues made together do not move together.
    jitter: float = 0.25
    max_messages: int = 10_000
    #: Rotations at a time: each costs both servers a queue and the peer some messages.
    at_once: int = 4

    def __post_init__(self) -> None:
        if self.max_age <= 0 or self.max_messages <= 0 or self.at_once < 0 or not 0 <= self.jitter < 1:
            raise MisuseError("a rotation policy needs a positive age and number, and a jitter from 0 to below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What the host knows of one receive queue."""

    queue: QueueAddress
    created: int
    messages: int
    rotating: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Start a rotation of this queue to this server."""

    queue: QueueAddress
    server: str
    reason: Reason


def advise(
    queues: Iterable[QueueFacts], servers: Sequence[str], policy: RotationPolicy, now: int
) -> tuple[Advice, ...]:
    """Which queues to rotate now, and where to.  `servers` are those the user has configured now.

    The most urgent reason goes first, then the oldest queue.  The new server is another one than the queue's
    own whenever there is another, and queues spread over the servers by their own ID.
    """
    if not servers:
        return ()
    facts = list(queues)
    free = policy.at_once - sum(fact.rotating for fact in facts)
    due = [(reason, fact) for fact in facts if (reason := _reason(fact, servers, policy, now)) is not None]
    due.sort(key=lambda item: (item[0].value, item[1].created, item[1].queue.sender_id))
    return tuple(
        Advice(queue=fact.queue, server=_server(fact.queue, servers), reason=reason)
        for reason, fact in due[: max(free, 0)]
    )


def _reason(fact: QueueFacts, servers: Sequence[str], policy: RotationPolicy, now: int) -> Reason | None:
    if fact.rotating:
        return None
    if fact.queue.server not in servers:
        return Reason.SERVER_LEFT
    if fact.messages >= policy.max_messages:
        return Reason.MESSAGES
    early = policy.max_age * policy.jitter * _fraction(fact.queue, b"jitter")
    return Reason.AGE if now - fact.created >= policy.max_age - early else None


def _server(queue: QueueAddress, servers: Sequence[str]) -> str:
    others = [server for server in servers if server != queue.server] or list(servers)
    return others[int(_fraction(queue, b"server") * len(others))]


def _fraction(queue: QueueAddress, purpose: bytes) -> float:
    """A number from 0 to below 1 that is the queue's own, so that the same question has the same answer."""
    return int.from_bytes(HKDF_SHA256.hash(purpose + queue.encode())[:6], "big") / (1 << 48)
