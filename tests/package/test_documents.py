"""The documents: what they print runs, and what they point at is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import qsratchet

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def code_blocks(page: Path) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))


#: Pages that are run whole.  docs/audit.md needs a Spark session and an export, so tests/spark/test_audit_page.py runs
#: it; docs/rotation.md shows the shape of a host's loop, and tests/rotation makes the same calls.
RUN_WHOLE = [ROOT / "README.md", *(ROOT / "docs" / name for name in ("guide.md", "links.md", "retention.md"))]


@pytest.mark.parametrize("page", RUN_WHOLE, ids=lambda page: page.name)
def test_the_code_on_a_page_runs_as_printed(page: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code_blocks(page)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_not_audited_is_on_the_first_screen_of_the_readme() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:25])
    assert "Not audited" in first_screen


def test_every_verdict_and_error_is_on_the_errors_page() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    errors = [
        name
        for name in qsratchet.__all__
        if isinstance(value := getattr(qsratchet, name), type) and issubclass(value, Exception)
    ]
    assert [name for name in errors if f"`{name}`" not in page and name != "FrameRejected"] == []


def test_every_label_in_the_code_is_in_the_protocol_document() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text()
    source = "".join((ROOT / "qsratchet" / "queue" / name).read_text() for name in ("schedule.py",))
    labels = set(re.findall(r'b"((?:qsratchet-v1 )?[a-z]+)"', source))
    assert labels >= {"ratchet", "rotation", "confirm", "head", "qsratchet-v1 init"}
    assert [label for label in labels if f"`{label}`" not in page and f'"{label}"' not in page] == []


def test_the_demonstration_runs_and_its_thieves_read_nothing_old() -> None:
    done = subprocess.run(
        [sys.executable, "examples/demonstration.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "before a theft that opened: 0" in done.stdout


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "benchmarks").glob("bench_*.py")))
def test_each_benchmark_runs(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--quick"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d", done.stdout), "it printed no figure"
