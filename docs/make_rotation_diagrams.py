"""Draw the diagrams and tables of docs/rotation.md from the tables in qsratchet/rotation/tables.py.

Run `python docs/make_rotation_diagrams.py` after a change of the tables; a test fails until it was run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "rotation.md"
sys.path.insert(0, str(PAGE.parent.parent))

from qsratchet.rotation.tables import COMMANDS, PATIENCE, RECEIVING, SENDING, WAITS, Receiving, Sending  # noqa: E402


def diagram(table: Mapping[tuple[Any, Any], Any], first: Enum) -> str:
    """A Mermaid state diagram: one arrow per pair of states, with every input that takes it."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, input), row in table.items():
        arrows.setdefault((state.name, row.next.name), []).append(input.name)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.name}"]
    lines += [f"    {source} --> {target}: {', '.join(inputs)}" for (source, target), inputs in arrows.items()]
    return "\n".join([*lines, "```"])


def states(kind: type[Enum]) -> str:
    """What each state waits for, asks for, and does at its deadline."""
    lines = ["| state | waits for | asks a server to | patience | at the deadline |", "|---|---|---|---|---|"]
    for state in kind:
        waits_for, at_deadline = WAITS[state]  # type: ignore[index]
        command, wait = COMMANDS.get(state), PATIENCE.get(state)  # type: ignore[call-overload]
        asks = command.name.lower().replace("_", " ") if command else ""
        lines.append(f"| {state.name} | {waits_for} | {asks} | {wait.name.lower() if wait else ''} | {at_deadline} |")
    return "\n".join(lines)


def rows(table: Mapping[tuple[Any, Any], Any]) -> str:
    """The table itself."""
    lines = ["| state | input | actions | next |", "|---|---|---|---|"]
    for (state, input), row in table.items():
        actions = ", ".join(action.name for action in row.actions)
        lines.append(f"| {state.name} | {input.name} | {actions} | {row.next.name} |")
    return "\n".join(lines)


PARTS = {
    "receiving diagram": diagram(RECEIVING, Receiving.IDLE),
    "receiving states": states(Receiving),
    "receiving rows": rows(RECEIVING),
    "sending diagram": diagram(SENDING, Sending.IDLE),
    "sending states": states(Sending),
    "sending rows": rows(SENDING),
}


def filled(page: str) -> str:
    """The page with every generated part replaced."""
    for name, part in PARTS.items():
        begin, end = f"<!-- begin {name} -->\n", f"\n<!-- end {name} -->"
        head, rest = page.split(begin)
        page = head + begin + part + end + rest.split(end, 1)[1]
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
