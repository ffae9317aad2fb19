"""The queue ratchet against a bare floor of the same primitives, in the same run.

    python -m benchmarks.bench_queue

The floor of a suite is a loop that does only the cryptography: two derivations and one AEAD call with a fresh key and,
for sealing, a fresh nonce.  All contestants keep what they make.  What the library adds is headers, context, padding,
checks, and the state around them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial

from benchmarks.measure import arguments, interleaved, table
from qsratchet import SUITES, Dequeuer, Enqueuer, GrantWalk, OwnerKeys, Suite, UpdatePolicy

#: An epoch without an update, so that updates are measured alone.
QUIET = UpdatePolicy(frames=None, seconds=None)
SIZES = (64, 256, 1024, 4096, 16384)
COUNT = 500

#: What the project promises at 1 KiB; a ratio over its bar makes the exit status 1.
BARS = {"batch": 1.3, "single": 1.5, "stored": 2.0, "walk": 1.2, "policy": 1.1}


class Queue:
    """A queue of one suite, as stored states, so that every round starts from the same point."""

    def __init__(self, suite: int) -> None:
        owner, request = Dequeuer.create(b"service", b"queue", suites=(suite,))
        self.keys: OwnerKeys = owner.owner_keys()
        service, self.init = Enqueuer.create(request, now=0, policy=QUIET)
        owner.open(self.init.data)
        self.service, self.owner = service.dump(), owner.dump()
        self.suite: Suite = service.suite

    def enqueuer(self, policy: UpdatePolicy = QUIET) -> Enqueuer:
        return Enqueuer.load(self.service, policy=policy)

    def dequeuer(self) -> Dequeuer:
        return Dequeuer.load(self.owner)


def floor_seal(suite: Suite, messages: list[bytes]) -> list[tuple[bytes, bytes]]:
    step, aead, aad, chain_key = suite.kdf.step, suite.aead, bytes(48), bytes(32)
    sealed = []
    for message in messages:
        key, chain_key = step(chain_key)
        nonce = os.urandom(12)
        sealed.append((nonce, aead(key).encrypt(nonce, message, aad)))
    return sealed


def floor_open(suite: Suite, sealed: list[tuple[bytes, bytes]]) -> list[bytes]:
    step, aead, aad, chain_key = suite.kdf.step, suite.aead, bytes(48), bytes(32)
    messages = []
    for nonce, ciphertext in sealed:
        key, chain_key = step(chain_key)
        messages.append(aead(key).decrypt(nonce, ciphertext, aad))
    return messages


def single_seal(queue: Queue, messages: list[bytes]) -> list[object]:
    service = queue.enqueuer()
    return [service.enqueue(message, now=0) for message in messages]


def single_open(queue: Queue, frames: list[bytes]) -> list[object]:
    owner = queue.dequeuer()
    return [owner.open(frame) for frame in frames]


def stored_seal(queue: Queue, messages: list[bytes]) -> list[object]:
    """What a service does for each message: load, enqueue, dump."""
    state = queue.service
    frames: list[object] = []
    for message in messages:
        service = Enqueuer.load(state, policy=QUIET)
        frames.append(service.enqueue(message, now=0))
        state = service.dump()
    return frames


def both(queue: Queue, messages: list[bytes], policy: UpdatePolicy) -> None:
    frames = queue.enqueuer(policy).enqueue_many(messages, now=0)
    queue.dequeuer().open_many([frame.data for frame in frames])


def frames_of(queue: Queue, rounds: int) -> tuple[list[tuple[str, ...]], dict[str, float]]:
    rows: list[tuple[str, ...]] = []
    worst = dict.fromkeys(BARS, 0.0)
    for size in SIZES:
        messages = [os.urandom(size) for _ in range(COUNT)]
        bare = floor_seal(queue.suite, messages)
        frames = [frame.data for frame in queue.enqueuer().enqueue_many(messages, now=0)]
        contestants: dict[str, Callable[[], object]] = {
            "floor seal": partial(floor_seal, queue.suite, messages),
            "floor open": partial(floor_open, queue.suite, bare),
            "batch seal": lambda messages=messages: queue.enqueuer().enqueue_many(messages, now=0),  # type: ignore[misc]
            "batch open": lambda frames=frames: queue.dequeuer().open_many(frames),  # type: ignore[misc]
            "single seal": partial(single_seal, queue, messages),
            "single open": partial(single_open, queue, frames),
            "stored": partial(stored_seal, queue, messages),
        }
        time = interleaved(contestants, per=COUNT, rounds=rounds)
        floor = time["floor seal"] + time["floor open"]
        ratios = {
            "batch": (time["batch seal"] + time["batch open"]) / floor,
            "single": (time["single seal"] + time["single open"]) / floor,
            "stored": time["stored"] / time["single seal"],
        }
        if size == 1024:
            worst.update(ratios)
        rows.append(
            (
                f"0x{queue.suite.id:04x}",
                f"{size}",
                f"{floor:.2f}",
                f"{ratios['batch']:.2f}",
                f"{ratios['single']:.2f}",
                f"{time['batch open'] / time['floor open']:.2f}",
                f"{time['single open'] / time['floor open']:.2f}",
                f"{ratios['stored']:.2f}",
                f"{1e6 / (time['batch seal'] + time['batch open']):,.0f}",
            )
        )
    return rows, worst


def updates_of(queue: Queue, rounds: int) -> tuple[tuple[str, ...], dict[str, float]]:
    suite, count = queue.suite, 20
    public = suite.kem.public_bytes(bytes(32))
    private = suite.kem.parse_private(bytes(32))
    parsed = suite.kem.parse_public(public)
    messages = [os.urandom(1024) for _ in range(2000)]

    def floor() -> None:
        for _ in range(count):
            suite.kem.suite.decrypt(suite.kem.suite.encrypt(bytes(32), parsed, b"info"), private, b"info")

    def update() -> None:
        service, owner = queue.enqueuer(), queue.dequeuer()
        for _ in range(count):
            owner.open(service.update(now=0).data)

    time = interleaved({"floor": floor, "update": update}, per=count, rounds=rounds)
    cost = interleaved(
        {"without": partial(both, queue, messages, QUIET), "with": partial(both, queue, messages, UpdatePolicy())},
        per=len(messages),
        rounds=max(rounds // 5, 3),
    )
    policy = cost["with"] / cost["without"]
    row = (
        f"0x{suite.id:04x}",
        f"{time['floor']:.0f}",
        f"{time['update']:.0f}",
        f"{time['update'] / time['floor']:.2f}",
        f"{policy:.3f}",
    )
    return row, {"policy": policy}


def walk_of(queue: Queue, rounds: int) -> tuple[tuple[str, ...], dict[str, float]]:
    """Deriving the grant after an epoch of `steps` frames, against as many bare derivations."""
    steps, kdf = 20_000, queue.suite.kdf
    service = queue.enqueuer()
    service.enqueue_many([b""] * (steps - 1), now=0)
    update = service.update(now=0).data

    def floor() -> None:
        kdf.advance(bytes(32), steps)

    def walk() -> None:
        grants = GrantWalk(queue.keys)
        grants.open(queue.init.data)
        grants.open(update)

    time = interleaved({"floor": floor, "walk": walk}, per=steps, rounds=max(rounds // 5, 3))
    ratio = time["walk"] / time["floor"]
    return (f"0x{queue.suite.id:04x}", f"{time['floor']:.2f}", f"{time['walk']:.2f}", f"{ratio:.2f}"), {"walk": ratio}


def main() -> int:
    options = arguments(__doc__ or "")
    rounds = 3 if options.quick else 60
    frame_rows, update_rows, walk_rows, missed = [], [], [], []
    # The first rounds of a process pay for growing its heap; nobody is to be measured by them.
    frames_of(Queue(0x0001), 5)
    for suite in SUITES:
        print(f"measuring suite 0x{suite:04x} …", file=sys.stderr)
        queue = Queue(suite)
        rows, ratios = frames_of(queue, rounds)
        frame_rows += rows
        row, more = updates_of(queue, rounds)
        update_rows.append(row)
        walk, most = walk_of(queue, rounds)
        walk_rows.append(walk)
        ratios |= more | most
        missed += [
            f"suite 0x{suite:04x}: {name} {ratios[name]:.3f} > {bar}"
            for name, bar in BARS.items()
            if ratios[name] > bar
        ]
    head = (
        "suite",
        "bytes",
        "floor seal+open µs",
        "batch ÷ floor",
        "single ÷ floor",
        "open, batch ÷ floor",
        "open, single ÷ floor",
    )
    print(table("Frames", (*head, "load+enqueue+dump ÷ enqueue", "seal+open/s, batch"), frame_rows))
    print(
        table(
            "Updates",
            ("suite", "bare HPKE seal+open µs", "update+open µs", "ratio", "default policy ÷ no updates"),
            update_rows,
        )
    )
    print(table("Chain walk for grants", ("suite", "bare derivation µs", "walk µs a step", "ratio"), walk_rows))
    for miss in missed:
        print("over its bar:", miss)
    return 1 if missed and not options.quick else 0


if __name__ == "__main__":
    sys.exit(main())
