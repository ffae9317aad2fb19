"""The long search: `python -m tests.explorer`.  See docs/rotation.md for the counts of the last run."""

from __future__ import annotations

import argparse
import sys
import time

from .explore import Result, explore
from .scenarios import LONG, QUICK


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.explorer",
        description="Explore every interleaving of the shipped rotation machines, scenario by scenario. "
        "The long set takes about ten minutes on a quiet machine, and some GB of memory.",
    )
    parser.add_argument("--quick", action="store_true", help="only the scenarios of the test command")
    parser.add_argument("--only", metavar="TEXT", default="", help="only the scenarios whose name has this text in it")
    parser.add_argument("--limit", type=int, default=4_000_000, help="stop a scenario after so many states")
    arguments = parser.parse_args()
    scenarios = [s for s in (QUICK if arguments.quick else LONG) if arguments.only in s.name]
    print(f"{'scenario':44} {'faults':>6} {'states':>10} {'edges':>11} {'ends':>8} {'stuck':>6} {'seconds':>8}")
    results: list[Result] = []
    for scenario in scenarios:
        started = time.perf_counter()

        def progress(states: int, frontier: int, name: str = scenario.name) -> None:
            if sys.stderr.isatty():
                print(f"\r  {name}: {states:,} states, {frontier:,} to go   ", end="", file=sys.stderr, flush=True)

        result = explore(scenario, limit=arguments.limit, progress=progress)
        results.append(result)
        if sys.stderr.isatty():
            print("\r" + " " * 78 + "\r", end="", file=sys.stderr)
        mark = "" if result.complete else "  stopped at the limit"
        print(
            f"{scenario.name:44} {scenario.faults:6} {result.states:10,} {result.edges:11,} {result.ends:8,} "
            f"{result.stuck:6,} {time.perf_counter() - started:8.0f}{mark}",
            flush=True,
        )
        if result.finding:
            print(f"  FOUND: {result.finding}")
            for number, move in enumerate(result.trace, 1):
                print(f"  {number:3}. {move}")
    found = [result for result in results if result.finding]
    whole = [result for result in results if result.complete]
    print(
        f"{sum(result.states for result in results):,} distinct states in {len(results)} scenarios "
        f"({len(whole)} complete), {len(found)} with a violation or a dead end"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
