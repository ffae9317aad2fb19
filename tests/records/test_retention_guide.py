"""The guide is true: its code runs as printed, in order, and its tables are those of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

from qsratchet.records import DEFAULT_POLICY, UPSTREAM_2025, Event, Rule

DOCS = Path(__file__).parent.parent.parent / "docs"
GUIDE = (DOCS / "retention.md").read_text()


def test_the_code_of_the_guide_runs_from_top_to_bottom() -> None:
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL))
    assert len(blocks) > 8
    names: dict[str, Any] = {"__name__": "guide"}
    for block in blocks:
        # Empty lines before the code make a traceback name the line of the guide.
        line = GUIDE.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block[1], str(DOCS / "retention.md"), "exec"), names)


def rows(after: str) -> dict[str, list[str]]:
    """The first table after a text, by its first cell without backquotes."""
    lines = GUIDE[GUIDE.index(after) :].split("\n")
    start = next(index for index, line in enumerate(lines) if line.startswith("|---"))
    table = {}
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            break
        first, *others = [cell.strip() for cell in line.strip("|").split("|")]
        table[first.strip("`")] = others
    return table


def test_the_table_of_rules_has_every_rule_with_the_numbers_of_the_presets() -> None:
    table = rows("Each names its rule")
    assert set(table) == {rule.name for rule in Rule}
    for name, field in (
        ("SUSPENDED", "suspended_days"),
        ("UNSECURED", "unsecured_days"),
        ("OWNER_ABSENT", "owner_days"),
    ):
        expected = [str(getattr(policy, field) or "never") for policy in (DEFAULT_POLICY, UPSTREAM_2025)]
        assert table[name][-2:] == expected
        assert field in table[name][1]


def test_the_table_of_events_has_every_event_but_the_one_of_compaction() -> None:
    kinds = {kind.__name__ for kind in get_args(Event)}
    assert set(rows("such as a message to a suspended queue")) == kinds - {"Kept"}
