"""How fast rotations are: one connection at a time, and 10,000 at once in one process.

`python benchmarks/bench_rotation.py [--quick]`.  The servers are dictionaries in this process, so the figures are
the cost of the machines: steps with all their cryptography, and with a dump after each step where it says so.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections import deque
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from qsratchet.crypto.dh import DhKey
from qsratchet.crypto.signing import SigningKey
from qsratchet.rotation import (
    Accepted,
    Acknowledge,
    Connection,
    CreateQueue,
    Deleted,
    DeleteQueue,
    Event,
    Outcome,
    QueueAddress,
    QueueCreated,
    Received,
    ReceiveQueue,
    Secured,
    SecureQueue,
    Send,
    SendQueue,
    StartRotation,
    Subscribe,
    Suspended,
    SuspendQueue,
)


class Pair:
    """Two connections; every event is queued, so that many pairs can take turns."""

    __slots__ = ("agents", "dumps", "events", "number", "owners", "queues", "steps")

    def __init__(self, number: int, dumps: bool) -> None:
        a, b = self._address(2 * number), self._address(2 * number + 1)
        self.agents = (
            Connection(receive=ReceiveQueue(address=a), send=SendQueue(address=b)),
            Connection(receive=ReceiveQueue(address=b), send=SendQueue(address=a)),
        )
        self.queues: dict[QueueAddress, deque[bytes]] = {a: deque(), b: deque()}
        self.owners = {a: 0, b: 1}
        self.events: deque[tuple[int, Event]] = deque([(0, StartRotation(server="new"))])
        self.number, self.dumps, self.steps = number, dumps, 0

    @staticmethod
    def _address(number: int) -> QueueAddress:
        return QueueAddress(server="server", sender_id=number.to_bytes(24, "big"))

    def turn(self) -> bool:
        """One step; False when nothing is left to do."""
        if not self.events:
            return False
        agent, event = self.events.popleft()
        connection = self.agents[agent]
        effects = connection.step(event, 0)
        if self.dumps:
            connection.dump()
        self.steps += 1
        for effect in effects:
            answer = self._serve(agent, effect)
            if answer is not None:
                self.events.append((agent, answer))
        return True

    def _push(self, queue: QueueAddress) -> None:
        frame = self.queues[queue][0]
        self.events.append((self.owners[queue], Received(queue=queue, message_id=b"", body=frame)))

    def _serve(self, agent: int, effect: Any) -> Event | None:
        match effect:
            case CreateQueue():
                queue = self._address((1 << 40) + self.number)
                self.queues[queue], self.owners[queue] = deque(), agent
                return QueueCreated(effect=effect.id, queue=queue)
            case SecureQueue():
                return Secured(effect=effect.id)
            case Send():
                self.queues[effect.queue].append(effect.frame)
                if len(self.queues[effect.queue]) == 1:
                    self._push(effect.queue)
                return Accepted(effect=effect.id)
            case Acknowledge():
                messages = self.queues.get(effect.queue)
                if messages:
                    messages.popleft()
                    if messages:
                        self._push(effect.queue)
            case Subscribe():
                pass
            case SuspendQueue():
                return Suspended(effect=effect.id, remaining=len(self.queues[effect.queue]))
            case DeleteQueue():
                del self.queues[effect.queue], self.owners[effect.queue]
                return Deleted(effect=effect.id)
            case _:
                if getattr(effect, "outcome", Outcome.COMPLETED) is not Outcome.COMPLETED:
                    raise SystemExit(f"a rotation went wrong: {effect}")
        return None


def one_by_one(rotations: int, dumps: bool) -> tuple[float, int]:
    pairs = [Pair(number, dumps) for number in range(rotations)]
    started = time.perf_counter()
    for pair in pairs:
        while pair.turn():
            pass
    elapsed = time.perf_counter() - started
    for pair in pairs:
        assert all(status.phase.value == 0 for agent in pair.agents for status in agent.status())
    return elapsed, sum(pair.steps for pair in pairs)


def all_at_once(connections: int) -> tuple[float, int, float]:
    """Round-robin over all pairs; also the memory per connection half-way through."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    pairs = [Pair(number, dumps=False) for number in range(connections // 2)]
    for _ in range(10):
        for pair in pairs:
            pair.turn()
    memory = (tracemalloc.get_traced_memory()[0] - before) / connections
    tracemalloc.stop()
    done = sum(pair.steps for pair in pairs)
    started = time.perf_counter()
    running = pairs
    while running:
        running = [pair for pair in running if pair.turn()]
    elapsed = time.perf_counter() - started
    return elapsed, sum(pair.steps for pair in pairs) - done, memory


def floor(rotations: int) -> float:
    """The X25519 and Ed25519 work that a rotation cannot do without: three key pairs and two exchanges."""
    started = time.perf_counter()
    for _ in range(rotations):
        alice, bob = DhKey.generate(), DhKey.generate()
        SigningKey.generate().public()
        bob.exchange(alice.public())
        alice.exchange(bob.public())
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of half a minute")
    quick = parser.parse_args().quick
    rotations, connections = (200, 1_000) if quick else (2_000, 10_000)
    least = floor(rotations) / rotations
    print(f"{'what':44} {'rotations/s':>12} {'steps/s':>10} {'x of the floor':>15}")
    print(f"{'floor: the key pairs and exchanges alone':44} {1 / least:12,.0f} {'':>10} {1.0:15.2f}")
    for name, dumps in (("one connection after the other", False), ("the same, with a dump after each step", True)):
        elapsed, steps = one_by_one(rotations, dumps)
        each = elapsed / rotations
        print(f"{name:44} {1 / each:12,.0f} {steps / elapsed:10,.0f} {each / least:15.2f}")
    elapsed, steps, memory = all_at_once(connections)
    print(f"{f'{connections:,} connections rotating at once':44} {'':>12} {steps / elapsed:10,.0f}")
    print(f"memory per connection in the middle of a rotation, with its share of the servers: {memory:,.0f} bytes")


if __name__ == "__main__":
    main()
