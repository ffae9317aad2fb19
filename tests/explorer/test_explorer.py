"""The explorer as a test: the shipped machines hold, and each planted bug is found."""

from __future__ import annotations

import pytest

from .explore import Result, explore
from .planted import BUGS, Bug
from .scenarios import QUICK


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [explore(scenario) for scenario in QUICK]


def test_no_interleaving_breaks_an_invariant_or_cannot_end(results: list[Result]) -> None:
    for result in results:
        assert not result.finding, "\n".join([result.scenario.name, result.finding, *result.trace])
        assert result.complete
        assert result.stuck == 0
        assert result.ends > 0


def test_at_least_a_hundred_thousand_states_are_explored(results: list[Result]) -> None:
    states = sum(result.states for result in results)
    print(f"{states:,} distinct states, {sum(result.edges for result in results):,} edges")
    assert states >= 100_000


def test_at_least_fifteen_bugs_are_planted() -> None:
    assert len({bug.name for bug in BUGS}) >= 15


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_the_explorer_finds_the_planted_bug(bug: Bug) -> None:
    with bug.plant():
        result = explore(bug.scenario, model_type=bug.model, limit=100_000)
    assert result.finding
    assert result.trace
