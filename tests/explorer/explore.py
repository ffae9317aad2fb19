"""Breadth-first search over a model: every world once, every invariant on the way, and no dead ends.

A world is remembered by a 16-byte fingerprint and a number.  Edges without a fault are kept, so that after
the search it can be told from which worlds the end cannot be reached.
"""

from __future__ import annotations

import marshal
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from .shape import Scenario, Violation, World
from .world import Model


@dataclass(slots=True, kw_only=True)
class Result:
    """What a search found."""

    scenario: Scenario
    states: int = 0
    edges: int = 0
    ends: int = 0
    stuck: int = 0
    #: The first violation or dead end, and the moves that lead to it.
    finding: str = ""
    trace: list[str] = field(default_factory=list)
    complete: bool = True


def fingerprint(world: World) -> bytes:
    return blake2b(marshal.dumps(world, 2), digest_size=16).digest()


def explore(
    scenario: Scenario,
    *,
    model_type: type[Model] = Model,
    limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Search until the end, the first violation, or `limit` worlds."""
    model = model_type(scenario)
    result = Result(scenario=scenario)
    first = model.start()
    seen = {fingerprint(first): 0}
    parents, labels = array("q", [-1]), [""]
    sources, targets = array("q"), array("q")
    ends = array("q")
    frontier = deque([(0, first)])
    while frontier:
        here, world = frontier.popleft()
        ended = model.ended(world)
        if ended:
            ends.append(here)
        alive = ended
        try:
            for label, fault, after in model.moves(world):
                key = fingerprint(after)
                there = seen.get(key)
                if there is None:
                    there = seen[key] = len(seen)
                    parents.append(here)
                    labels.append(label)
                    frontier.append((there, after))
                result.edges += 1
                if not fault:
                    alive = alive or there != here
                    sources.append(here)
                    targets.append(there)
        except Violation as violation:
            result.finding = str(violation)
            result.trace = _trace(parents, labels, here)
            break
        if not alive:
            result.finding = "nothing can happen any more, and this is not the end"
            result.stuck = 1
            result.trace = _trace(parents, labels, here)
            break
        if progress is not None and here % 50_000 == 0:
            progress(len(seen), len(frontier))
        if limit is not None and len(seen) >= limit:
            result.complete = False
            break
    result.states, result.ends = len(seen), len(ends)
    if not result.finding and result.complete:
        stuck = _cannot_end(len(seen), sources, targets, ends)
        result.stuck = len(stuck)
        if stuck:
            result.finding = "the end cannot be reached"
            result.trace = _trace(parents, labels, stuck[0])
    return result


def _trace(parents: array[int], labels: list[str], here: int) -> list[str]:
    trace = []
    while here > 0:
        trace.append(labels[here])
        here = parents[here]
    return trace[::-1]


def _cannot_end(states: int, sources: array[int], targets: array[int], ends: array[int]) -> list[int]:
    """Walk the fault-free edges backwards from every end; what is not met is stuck."""
    counts = array("q", bytes(8 * (states + 1)))
    for target in targets:
        counts[target + 1] += 1
    for index in range(states):
        counts[index + 1] += counts[index]
    starts, back = array("q", counts), array("q", bytes(8 * len(sources)))
    for source, target in zip(sources, targets, strict=True):
        back[counts[target]] = source
        counts[target] += 1
    met = bytearray(states)
    todo = list(ends)
    for end in todo:
        met[end] = 1
    while todo:
        target = todo.pop()
        for position in range(starts[target], starts[target + 1]):
            source = back[position]
            if not met[source]:
                met[source] = 1
                todo.append(source)
    return [index for index in range(states) if not met[index]]
