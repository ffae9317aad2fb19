"""The examples that fit on a page run as their docstrings say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .processes import ROOT


def run(module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_minimal_example_reads_what_was_sent_and_renews_its_key() -> None:
    assert run("examples.minimal").splitlines() == ["(init)", "hello", "world", "key 1, epoch 1, 0 missing"]


def test_the_persistence_example_goes_on_where_it_stopped(tmp_path: Path) -> None:
    for count in (1, 2, 3):
        assert run("examples.persistence", str(tmp_path)).count("a message of ") == count


@pytest.mark.parametrize(("name", "lines"), [("minimal", 30), ("persistence", 60)])
def test_an_example_is_as_short_as_it_says(name: str, lines: int) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text()
    assert len(text.splitlines()) <= lines
    assert f"in {lines} lines" in text


def test_the_owner_example_reads_renews_its_key_and_recovers_from_a_service_that_went_back() -> None:
    lines = run("examples.owner").splitlines()
    assert any(line.startswith("RolledBack: ") for line in lines)
    assert lines[-1] == "inbox: [b'first', b'second', b'third', b'after the reset']"


def test_the_agents_meet_chat_and_move_a_queue_with_every_message_once_and_in_order() -> None:
    lines = run("examples.agents").splitlines()
    assert lines[-1] == "moved: True; every message once and in order: True"
    phases = [line.split("receiving: ")[1] for line in lines if "receiving: " in line]
    assert phases[:5] == ["CREATING", "OFFERED", "SECURING", "READY", "SWITCHING"]
    assert phases[-2:] == ["DELETING", "IDLE"]
