"""Makes `frozen_v1.json`.  Run once for a format version; never again for the same one."""

from __future__ import annotations

import json
import sys

from qsratchet import SUITES, UpdatePolicy
from tests.queue.pair import Pair
from tests.queue.test_state import FROZEN


def main() -> None:
    if FROZEN.exists():
        sys.exit(f"{FROZEN.name} exists: stored states of that version must load for ever, so it is not made again")
    cases = []
    for suite in SUITES:
        pair = Pair(suite, update=UpdatePolicy(frames=3, seconds=None), initialised=False)
        awaiting = pair.owner.dump()
        pair.send(*[b"%d" % number for number in range(7)])
        pair.read_all()
        pair.owner.open(pair.offer())
        pair.owner.discard(pair.service.next_seq)
        pair.send(b"given up", b"read")
        pair.read_all()
        offer = pair.owner.offer_key()
        blobs = {
            "enqueuer": pair.service.dump(),
            "dequeuer": pair.owner.dump(),
            "awaiting": awaiting,
            "grant": pair.owner.grant().encode(),
            "owner_keys": pair.keys.encode(),
            "request": pair.request.encode(),
            "offer": offer.encode(),
        }
        case = {"suite": suite, "next": pair.service.next_seq, "epoch": pair.service.epoch}
        case["blobs"] = {name: blob.hex() for name, blob in blobs.items()}  # type: ignore[assignment]
        case["next_frame"] = pair.send(b"frozen")[0].hex()  # type: ignore[assignment]
        cases.append(case)
    FROZEN.write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
