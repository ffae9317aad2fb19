"""docs/links.md: every block of code runs, in order, and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from qsratchet.errors import RejectedError

GUIDE = Path(__file__).parents[2] / "docs" / "links.md"
BLOCKS = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_guide_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = BLOCKS.findall(GUIDE.read_text(encoding="utf-8"))
    assert {language for language, _ in blocks} == {"python"}
    assert len(blocks) == 10
    names: dict[str, Any] = {}
    for _, code in blocks:
        exec(compile(code, str(GUIDE), "exec"), names)
    assert names["text"].startswith("qsr:1cb/")
    assert names["web"].startswith("https://links.example.com/qsr#1cb/")
    assert 100 < len(names["text"]) < 140
    assert names["found"].contents[names["Priority"].PROFILE] == b'{"name": "Alice C."}'
    assert set(names["storage"]) == {"bob", "opening", "seen"}
    assert len(names["queues"]) == 1
    printed = capsys.readouterr().out
    assert "█" in printed
    assert "this invitation has been used" in printed


def test_the_errors_that_the_guide_catches_are_raised() -> None:
    """A try block that catches nothing would pass too; without its except clause, it must not."""
    blocks = [code for _, code in BLOCKS.findall(GUIDE.read_text(encoding="utf-8"))]
    caught = 0
    for index, code in enumerate(blocks):
        if "except " not in code:
            continue
        caught += 1
        names: dict[str, Any] = {}
        for part in blocks[:index]:
            exec(compile(part, str(GUIDE), "exec"), names)
        bare = re.sub(r"^except (\w+).*?:$", "except ZeroDivisionError as error:", code, flags=re.MULTILINE)
        with pytest.raises((PermissionError, RejectedError)) as raised:
            exec(compile(bare, str(GUIDE), "exec"), names)
        assert type(raised.value).__name__ in re.findall(r"^except (\w+)", code, flags=re.MULTILINE)
    assert caught == 3
