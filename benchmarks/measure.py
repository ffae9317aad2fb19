"""How the benchmarks measure: in interleaved rounds, the best of each, as ratios within one run.

Machines are noisy, and noise only ever adds time: the minimum over many short rounds is the steadiest figure, and
running the contestants in turn gives each the same weather.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Mapping

__all__ = ["arguments", "interleaved", "table"]


def arguments(description: str) -> argparse.Namespace:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds: shows that it runs, the figures mean little"
    )
    return parser.parse_args()


def interleaved(contestants: Mapping[str, Callable[[], object]], *, per: int, rounds: int) -> dict[str, float]:
    """Run each contestant once a round; return its best time in microseconds, divided by `per`."""
    best = dict.fromkeys(contestants, float("inf"))
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, run in contestants.items():
                start = time.perf_counter()
                run()
                best[name] = min(best[name], time.perf_counter() - start)
    finally:
        gc.enable()
    return {name: seconds / per * 1e6 for name, seconds in best.items()}


def table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table, so that a run can be pasted into the docs."""
    lines = [f"### {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, ""])
