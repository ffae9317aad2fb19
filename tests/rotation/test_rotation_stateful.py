"""Long runs of two connections with many faults, far beyond what the explorer can exhaust."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.explorer.shape import FAULTS, Scenario
from tests.explorer.world import Model

_BUSY: dict[str, Any] = {"submits": (6, 6), "starts": (3, 3), "faults": 15, "repeat": True, "outage": True}


class Walk(RuleBasedStateMachine):
    """One walk through a world: Hypothesis picks each move, and every invariant is checked on the way."""

    scenario = Scenario(name="many faults", **_BUSY)

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(self.scenario)
        self.world = self.model.start()

    @rule(choice=st.integers(0, 10**6))
    def go_on(self, choice: int) -> None:
        moves = [after for _, after in self.model.free_moves(self.world)]
        if moves:
            self.world = moves[choice % len(moves)]

    @precondition(lambda self: self.world[FAULTS] > 0)
    @rule(choice=st.integers(0, 10**6))
    def suffer(self, choice: int) -> None:
        moves = [after for _, after in self.model.fault_moves(self.world)]
        if moves:
            self.world = moves[choice % len(moves)]

    def teardown(self) -> None:
        """From wherever the walk got to, the end is reached without any more faults."""
        seen = set()
        for _ in range(5000):
            if self.model.ended(self.world):
                return
            seen.add(self.world)
            fresh = next((after for _, after in self.model.free_moves(self.world) if after not in seen), None)
            assert fresh is not None, "nothing can happen any more, and this is not the end"
            self.world = fresh
        raise AssertionError("the end was not reached in 5,000 moves")


class WalkWithAborts(Walk):
    scenario = Scenario(name="aborts, forces, deadlines", aborts=5, forces=True, early_deadlines=True, **_BUSY)


class WalkOnTheFastPath(Walk):
    scenario = Scenario(name="fast path", fast=(True, True), eager_empty=True, flag=False, **_BUSY)


class WalkWithAbortsOnTheFastPath(Walk):
    scenario = Scenario(
        name="fast path, aborts", fast=(True, True), aborts=5, forces=True, early_deadlines=True, **_BUSY
    )


class WalkWithLosses(Walk):
    scenario = Scenario(name="lost messages", drop=True, **_BUSY)


_SETTINGS = settings(max_examples=10, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))
for _walk in (Walk, WalkWithAborts, WalkOnTheFastPath, WalkWithAbortsOnTheFastPath, WalkWithLosses):
    _walk.TestCase.settings = _SETTINGS

TestManyFaults = Walk.TestCase
TestAborts = WalkWithAborts.TestCase
TestFastPath = WalkOnTheFastPath.TestCase
TestFastPathAborts = WalkWithAbortsOnTheFastPath.TestCase
TestLosses = WalkWithLosses.TestCase
