"""A queue from creation to healing: what happens to each frame, and what a thief of each state could read.

    python examples/demonstration.py

A service seals messages for an owner; the owner offers a new key half-way.  Then the thief gets every frame that was
ever stored, and a copy of one side's state from one moment, and tries all that the library and the primitives allow.
"""

from __future__ import annotations

import argparse
import os
import sys

from qsratchet import (
    SUITES,
    Dequeuer,
    Enqueuer,
    Frame,
    FrameRejected,
    FrameType,
    Grant,
    Message,
    ReadPolicy,
    Updated,
    UpdatePolicy,
)

UPDATE_EVERY = 4


def stolen_from_service(state: bytes, frames: list[Frame]) -> set[int]:
    """The numbers of the messages that a copy of the service's state opens.

    The state holds the chain key of the next number: as good as a grant for the rest of that epoch, and for nothing
    else, because the private keys are with the owner.
    """
    service = Enqueuer.load(state)
    grant = Grant(
        suite=service.suite,
        service_id=b"?",
        queue_id=b"?",
        suites=(service.suite.id,),
        key_hash=bytes(32),
        epoch=service.epoch,
        first_seq=service.next_seq,
        chain_key=service._chain_key,
    )
    grant.qctx = service._qctx  # The state has the context itself, and not what it is made of.
    results = grant.open_many([frame.data for frame in frames])
    return {result.seq for result in results if isinstance(result, Message)}


def stolen_from_owner(state: bytes, frames: list[Frame]) -> set[int]:
    """The numbers of the messages that a copy of the owner's state opens: it reads on as the owner would."""
    thief = Dequeuer.load(state, policy=ReadPolicy(tolerant=True))
    read = set()
    for frame in frames:
        try:
            opened = thief.open(frame.data)
        except FrameRejected:
            continue
        if isinstance(opened, Message):
            read.add(opened.seq)
    return read


def picture(frames: list[Frame], read: set[int], moment: int) -> str:
    """A sign a frame: # read by the thief, . closed to it, i and u for INIT and UPDATE, | the moment of the theft."""
    signs = []
    for frame in frames:
        if frame.seq == moment:
            signs.append("|")
        signs.append(
            {FrameType.INIT: "i", FrameType.UPDATE: "u"}.get(frame.type) or ("#" if frame.seq in read else ".")
        )
    return "".join(signs) + ("|" if moment > frames[-1].seq else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--suite", type=lambda text: int(text, 0), default=0x0002, choices=list(SUITES), help="default 0x0002"
    )
    suite = parser.parse_args().suite

    print(f"Suite 0x{suite:04x}: {SUITES[suite].name}. An update every {UPDATE_EVERY} messages. Not audited.\n")
    owner, request = Dequeuer.create(b"service.example", b"queue 1", suites=(suite,))
    service, init = Enqueuer.create(request.encode(), now=0, policy=UpdatePolicy(frames=UPDATE_EVERY, seconds=None))
    frames = [init]
    states: dict[int, tuple[bytes, bytes]] = {}

    def deliver(stored: list[Frame]) -> None:
        for frame in stored:
            match owner.open(frame.data):
                case Message(body=body):
                    what = f"the owner reads {body!r}"
                case Updated(epoch=epoch, key_id=key_id):
                    what = f"fresh randomness, sealed to the owner's key {key_id}: epoch {epoch} begins"
                case _:
                    what = "the first chain key, sealed to the owner's key 0: epoch 0 begins"
            print(f"  {frame.seq:3}  {frame.type.name:6}  {len(frame.data):5} bytes  {what}")
        states[service.next_seq] = (service.dump(), owner.dump())

    print("What is stored, and what the owner makes of it:")
    deliver(frames)
    healed = 0
    for number in range(1, 15):
        stored = service.enqueue(b"message %d" % number, now=number)
        frames += stored
        deliver(stored)
        if number == 7:
            print("       the owner offers a new key; the service answers with an update to it")
            healed = service.next_seq
            stored = service.accept_offer(owner.offer_key().encode(), now=number)
            frames += stored
            deliver(stored)

    nonce = os.urandom(16)
    head = owner.verify_head(service.head(nonce), nonce)
    print(f"\nThe service proves that its next number is {head.next_seq}: nothing was cut off.")

    print("\nWhat a thief reads who has all frames and one stolen state (| the moment, # read, . closed):")
    late = 0
    for seq, (of_service, of_owner) in states.items():
        by_service, by_owner = stolen_from_service(of_service, frames), stolen_from_owner(of_owner, frames)
        late += sum(number < seq for number in by_service | by_owner)
        left, right = picture(frames, by_service, seq), picture(frames, by_owner, seq)
        print(f"  at {seq:3}   service's state  {left}   owner's state  {right}")
    print(
        f"\nMessages from before a theft that opened: {late}."
        "\nA copy of the service's state opens the rest of one epoch; then an update heals it."
        "\nA copy of the owner's state holds a private key, so it opens up to the first update to the key offered next:"
        f"\nhere thefts up to number {healed} end there, and later ones last until the owner offers another key."
    )
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
