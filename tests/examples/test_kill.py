"""Processes really killed: a short campaign.  The long one is `python -m tests.examples.kill --rounds 200`."""

from __future__ import annotations

from pathlib import Path

from .kill import campaign


def test_killing_loses_nothing_doubles_nothing_and_repeats_no_key(tmp_path: Path) -> None:
    report = campaign(tmp_path, rounds=15, seed=1)
    assert report.faults == []
    assert sum(report.kills.values()) == 15
    assert all(report.kills.values())
    assert len(report.sent) > 15
    assert report.frames > len(report.sent)
