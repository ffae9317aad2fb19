"""Processes really killed: a short campaign.  The long one is `python -m tests.examples.kill --rounds 200`."""

from __future__ import annotations

from pathlib import Path

from . import kill_agents
from .kill import campaign
from .wires import Wire


def test_killing_loses_nothing_doubles_nothing_and_repeats_no_key(tmp_path: Path, wire: Wire) -> None:
    report = campaign(tmp_path, rounds=12, seed=1, http="--http" in wire.options)
    assert report.faults == []
    assert sum(report.kills.values()) == 12
    assert all(report.kills.values())
    assert len(report.sent) > 12
    assert report.frames > len(report.sent)


def test_killing_agents_and_servers_while_queues_move_loses_and_doubles_nothing(tmp_path: Path) -> None:
    report = kill_agents.campaign(tmp_path, rounds=12, seed=3)
    assert report.faults == []
    assert sum(report.kills.values()) == 12
    assert min(report.submitted.values()) > 10
    assert report.rotations > 1
