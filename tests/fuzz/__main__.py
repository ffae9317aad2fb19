"""The long campaign: python -m tests.fuzz --inputs 3000000 [--seed 1]."""

from __future__ import annotations

import argparse
import random
import sys
import time

from qsratchet import SUITES

from .mutations import mutated
from .targets import Broken, targets

ROUND = 200


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Feed mutated bytes to every entrance.")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="how many inputs in all")
    parser.add_argument("--seed", type=int, default=None, help="repeat the mutations of an earlier run (keys are new)")
    options = parser.parse_args()
    seed: int = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    source = random.Random(seed)
    every = [target for suite in SUITES for target in targets(suite)]
    fed = dict.fromkeys((target.name for target in every), 0)
    accepted = dict(fed)
    print(f"seed {seed}, {len(every)} targets, {options.inputs:,} inputs", flush=True)
    start = last = time.monotonic()
    done = 0
    while done < options.inputs:
        for target in every:
            for _ in range(ROUND):
                data = mutated(source, target.seeds)
                try:
                    accepted[target.name] += target.feed(data)
                except Broken as finding:
                    print(f"FOUND after {done:,} inputs: {target.name}: {finding}\ninput: {data.hex()}")
                    return 1
            fed[target.name] += ROUND
            done += ROUND
        if time.monotonic() - last > 10:
            last = time.monotonic()
            print(f"{done:>12,} inputs, {done / (last - start):,.0f} a second", flush=True)
    for name, count in fed.items():
        print(f"{name:<44}{count:>12,} fed {accepted[name]:>10,} taken")
    elapsed = time.monotonic() - start
    print(f"{done:,} inputs in {elapsed:.0f} s, {done / elapsed:,.0f} a second, no finding")
    return 0


if __name__ == "__main__":
    sys.exit(main())
