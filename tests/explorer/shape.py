"""The shape of a world: what its numbers stand for, what a scenario allows, and how a world is changed.

This module knows no machine and no rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from qsratchet.crypto.signing import SigningKey
from qsratchet.rotation import (
    QueueAddress,
)
from qsratchet.rotation.messages import decode_frame

UP, DOWN, DEAD = 0, 1, 2
ALICE, BOB = 0, 1
NAMES = ("Alice", "Bob")

#: One queue: owner, server, is there, key (0 none), suspended, messages as (id, frame), next id, subscribed, pushed.
Queue: TypeAlias = tuple[int, int, bool, int, bool, tuple[tuple[int, int], ...], int, bool, bool]
OWNER, SERVER, THERE, KEY, SUSPENDED, MESSAGES, NEXT, SUBSCRIBED, PUSHED = range(9)
#: What an agent received: next body expected, numbers of the peer's bodies, numbers named in gaps, gave up, orphans.
World: TypeAlias = tuple[Any, ...]
MACHINES, OUTSTANDING, REPLIES, QUEUES, SERVERS, SUBMITS, STARTS, ABORTS, FAULTS, SEEN = range(10)


class Violation(Exception):
    """An invariant does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is explored: how much each agent does, how many faults, and which kinds."""

    name: str
    submits: tuple[int, int] = (1, 1)
    starts: tuple[int, int] = (1, 0)
    faults: int = 1
    aborts: int = 0
    forces: bool = False
    early_deadlines: bool = False
    crash: bool = True
    lost_reply: bool = True
    repeat: bool = False
    outage: bool = False
    #: The servers that may die for good: 0 and 1 have the first queues, the new ones follow.
    death: tuple[int, ...] = ()
    drop: bool = False
    #: Somebody else secures a queue that is not secured yet.
    intruder: bool = False
    fast: tuple[bool, bool] = (False, False)
    #: How a server tells that a queue is drained: by a flag on the last message, or by an empty reply only.
    flag: bool = True
    #: Whether empty replies also come from queues that are not suspended, and so may be out of date.
    eager_empty: bool = False
    capacity: int = 3
    #: Replies are never under way: a request, its work and its reply are one move.  Far fewer worlds, for long runs.
    atomic: bool = False


def entropy_of(agent: int) -> Any:
    """Keys that are a function of the agent alone, so that equal worlds are equal."""
    return lambda size: bytes([agent + 1]) * size


SERVER_KEYS = tuple(SigningKey(entropy_of(agent)(32)).public() for agent in (ALICE, BOB))


def address(number: int) -> QueueAddress:
    return QueueAddress(server=f"s{number}", sender_id=bytes([number]) * 24)


def with_field(world: World, field: int, value: Any) -> World:
    return (*world[:field], value, *world[field + 1 :])


def with_item(world: World, field: int, index: int, value: Any) -> World:
    items = world[field]
    return (*world[:field], (*items[:index], value, *items[index + 1 :]), *world[field + 1 :])


def without(items: tuple[int, ...], item: int) -> tuple[int, ...]:
    position = items.index(item)
    return (*items[:position], *items[position + 1 :])


def stream_number(frame: bytes) -> int:
    return int.from_bytes(frame[1:9], "big")


def short(value: Any) -> str:
    name = type(value).__name__
    number = ""
    frame = getattr(value, "frame", None) or getattr(value, "body", None)
    if frame:
        decoded = decode_frame(frame)
        number = f" {type(decoded.message).__name__} {decoded.number}"
    queue = getattr(value, "queue", None)
    place = f" at {queue.sender_id[0]}" if queue is not None else f" {getattr(value, 'effect', '')}"
    return f"{name}{number}{place}"
