"""Which defects a sample has, and where: chosen by a seed before any frame is made.

The choice needs only the layout of the queues, so the same seed plants the same defects at the same numbers whatever
keys are drawn.  What is planted is what an audit has to find; `sample` does the planting.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from qsratchet import MisuseError

__all__ = ["Defect", "Layout", "Planted", "parse_defects", "plan_defects"]


class Defect(Enum):
    """What can be wrong with a sample; the values are the kinds of findings."""

    GAP = "gap"
    DUPLICATE = "duplicate"
    FORK = "fork"
    REORDERED = "reordered"
    TAMPERED = "tampered"
    WRONG_QUEUE = "wrong queue"
    WRONG_EPOCH = "wrong epoch"
    UNKNOWN_SUITE = "unknown suite"
    NO_GRANT = "no grant"
    UPDATE_MISSING = "update missing"
    TAIL_CUT_OFF = "tail cut off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One planted defect: the number concerned, or the first of several up to `last_seq`."""

    kind: Defect
    queue: int
    epoch: int
    seq: int
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a queue is cut into epochs: INIT is number 0, every epoch but the last ends with an UPDATE."""

    #: How many DATA frames each epoch has.
    epochs: tuple[int, ...]

    def first(self, epoch: int) -> int:
        """The number of the first frame of an epoch."""
        return 1 + sum(self.epochs[:epoch]) + epoch

    def end(self, epoch: int) -> int:
        """The number after the last DATA frame of an epoch: its UPDATE, save in the last epoch."""
        return self.first(epoch) + self.epochs[epoch]

    @property
    def frames(self) -> int:
        return self.end(len(self.epochs) - 1)


#: Fewer messages than this in an epoch leave no room for a defect that has authentic frames on both sides.
_ROOM: Final = 6
_TRIES: Final = 200


def parse_defects(text: str) -> dict[Defect, int]:
    """Read `all`, `all:3` or `gap:2,fork,tail cut off`; a dash or an underscore may stand for a space."""
    wanted: dict[Defect, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, colon, number = item.partition(":")
        if colon and not number.isdecimal():
            raise MisuseError(f"{item!r} is not a kind of defect and a number, such as gap:2")
        count = int(number) if colon else 1
        if name == "all":
            kinds = list(Defect)
        else:
            try:
                kinds = [Defect(name.strip().lower().replace("-", " ").replace("_", " "))]
            except ValueError:
                known = ", ".join(kind.value for kind in Defect)
                raise MisuseError(f"{name!r} is not a kind of defect; there are: all, {known}") from None
        for kind in kinds:
            wanted[kind] = wanted.get(kind, 0) + count
    return wanted


def plan_defects(
    wanted: Mapping[Defect, int], layouts: Mapping[int, Layout] | list[Layout], seed: int
) -> list[Planted]:
    """Choose a place for each defect: one to a queue as long as there are queues, then one to an epoch."""
    chance = random.Random(f"defects {seed}")  # noqa: S311 - a choice to be repeated, not a secret.
    total = sum(wanted.values())
    spread = total <= len(layouts) // 2
    taken: set[tuple[int, int]] = set()
    planted: list[Planted] = []
    for kind, count in wanted.items():
        for _ in range(count):
            for _ in range(_TRIES):
                queue = chance.randrange(len(layouts))
                found = _place(kind, queue, layouts, chance)
                if found is None:
                    continue
                slots = {(queue, -1)} if spread else {(queue, found.epoch + near) for near in (-1, 0, 1)}
                if not slots & taken:
                    taken |= {(queue, -1)} if spread else {(queue, found.epoch)}
                    planted.append(found)
                    break
            else:
                raise MisuseError(
                    f"there is no room for {count} of the defect {kind.value!r}: make more queues, or longer ones, or "
                    "shorter epochs"
                )
    return sorted(planted, key=lambda one: (one.queue, one.seq, one.kind.value))


def _place(
    kind: Defect, queue: int, layouts: Mapping[int, Layout] | list[Layout], chance: random.Random
) -> Planted | None:
    """A place for this defect in this queue, or None if it has none."""
    layout = layouts[queue]
    last = len(layout.epochs) - 1
    match kind:
        case Defect.TAIL_CUT_OFF:
            epoch = last
        case Defect.UPDATE_MISSING | Defect.NO_GRANT:
            # Not the last epoch: it has no UPDATE, and without its grant the head would be a second finding.
            if last == 0:
                return None
            epoch = chance.randrange(last)
        case Defect.WRONG_QUEUE:
            # The stranger is the frame with the same number of the next queue, where it is in epoch 0 too.
            if queue + 1 == len(layouts) or layouts[queue + 1].epochs[0] < _ROOM:
                return None
            epoch = 0
        case _:
            epoch = chance.randrange(last + 1)
    room = layout.epochs[epoch]
    if room < _ROOM:
        return None
    if kind is Defect.WRONG_QUEUE:
        room = min(room, layouts[queue + 1].epochs[0])
    first, end = layout.first(epoch), layout.first(epoch) + room
    seq = last_seq = chance.randrange(first + 1, end - 3)
    match kind:
        case Defect.GAP:
            last_seq = seq + chance.randrange(3)
        case Defect.REORDERED:
            last_seq = seq + 1
        case Defect.NO_GRANT:
            # INIT, number 0, is of epoch 0.
            seq, last_seq = first if epoch else 0, end
        case Defect.UPDATE_MISSING:
            seq = last_seq = end
        case Defect.TAIL_CUT_OFF:
            seq, last_seq = chance.randrange(max(first + 1, end - 20), end - 1), end - 1
        case _:
            pass
    return Planted(kind=kind, queue=queue, epoch=epoch, seq=seq, last_seq=last_seq)
