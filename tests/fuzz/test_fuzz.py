"""The short run: a few thousand seeded mutations and Hypothesis at every entrance, in every suite."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from qsratchet import SUITES, DecodeError, Suite

from . import __main__ as campaign
from . import targets as module
from .mutations import mutated
from .targets import Broken, Target, taken, targets

#: Enough that every kind of mutation meets every target; the campaign is for the rest.
INPUTS = 3_000
NAMES = [target.name for suite in SUITES for target in targets(suite)]


@functools.cache
def by_name() -> dict[str, Target]:
    return {target.name: target for suite in SUITES for target in targets(suite)}


@pytest.mark.parametrize("name", NAMES)
def test_mutated_bytes_give_a_value_or_our_error_and_change_nothing(name: str) -> None:
    target = by_name()[name]
    # A seed of its own for each target: the same inputs in every run, up to the keys.
    source = random.Random(name)
    for _ in range(INPUTS):
        data = mutated(source, target.seeds)
        try:
            target.feed(data)
        except Broken as finding:
            pytest.fail(f"{finding}\ninput: {data.hex()}")


@pytest.mark.parametrize("name", NAMES)
def test_every_entrance_takes_at_least_one_of_the_genuine_inputs(name: str) -> None:
    """Otherwise its fuzzing would stop at the first check, and show nothing."""
    target = by_name()[name]
    assert any(target.feed(genuine) for genuine in target.seeds)


@pytest.mark.parametrize("name", [name for name in NAMES if "0x0001" in name])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
@given(data=st.binary(max_size=200), prefix=st.integers(0, 60), choice=st.integers(0, 6))
@example(data=b"", prefix=0, choice=0)
def test_any_bytes_after_any_genuine_beginning_are_harmless(name: str, data: bytes, prefix: int, choice: int) -> None:
    target = by_name()[name]
    target.feed(target.seeds[choice % len(target.seeds)][:prefix] + data)


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: f"0x{suite:04x}")
def test_every_entrance_takes_any_kind_of_buffer(suite: int) -> None:
    for target in by_name().values():
        if f"0x{suite:04x}" in target.name and "open" in target.name:
            genuine = target.seeds[0]
            kinds: tuple[Callable[[bytes], Any], ...] = (bytearray, memoryview)
            for kind in kinds:
                assert target.feed(kind(genuine)) == target.feed(genuine)


def test_a_foreign_error_is_a_finding_and_ours_is_not() -> None:
    def ours() -> None:
        raise DecodeError("thing", "reason")

    assert taken(lambda: None) is True
    assert taken(ours) is False
    with pytest.raises(Broken, match="ZeroDivisionError"):
        taken(lambda: 1 / 0)


def test_the_campaign_counts_what_it_fed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(campaign, "ROUND", 2)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--inputs", "100", "--seed", "7"])
    assert campaign.main() == 0
    output = capsys.readouterr().out
    assert output.startswith("seed 7, 68 targets")
    assert "136 inputs in" in output
    assert "no finding" in output


def test_the_campaign_shows_the_input_that_broke_something(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_the_suite(frame: bytes) -> Suite:
        raise RuntimeError(f"{len(frame)} bytes")

    monkeypatch.setattr(module, "header_of", break_the_suite)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--inputs", "100"])
    assert campaign.main() == 1
    assert "FOUND after 0 inputs: header_of (0x0001): RuntimeError" in capsys.readouterr().out
