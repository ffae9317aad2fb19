"""The diagrams of docs/rotation.md are the tables of the code."""

from __future__ import annotations

import runpy
from pathlib import Path

_DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_diagrams_and_tables_in_the_docs_are_drawn_from_the_code() -> None:
    page = (_DOCS / "rotation.md").read_text()
    drawn = runpy.run_path(str(_DOCS / "make_rotation_diagrams.py"))["filled"](page)
    assert page == drawn, "run `python docs/make_rotation_diagrams.py`"
