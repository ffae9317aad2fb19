"""The report: it says the verdict first, shows hostile text as text, and works in a real browser."""

from __future__ import annotations

import html
import json
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pyspark_udfs.report import Finding, QueueLine, Report, render, write_report
from pyspark_udfs.report_plots import Bar, bar_plot, number, size

KINDS = ("gap", "fork", "tampered", "no grant")
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">&amp;"


def report_of(findings: int, queues: int = 40, sentence: str = "Frame {seq} is missing.") -> Report:
    chance = random.Random(3)
    ids = [chance.randbytes(24) for _ in range(queues)]
    found = []
    for index in range(findings):
        seq = chance.randrange(1_000)
        kind = KINDS[index % len(KINDS)]
        found.append(Finding(b"service", ids[index % queues], seq, seq + 3, 2, kind, sentence.format(seq=seq)))
    by_queue = Counter(one.queue_id for one in found)
    lines = [
        QueueLine(b"service", id, 1_000, 990, 10_000, 3, 0, 999, by_queue[id], True, not by_queue[id]) for id in ids
    ]
    return Report(
        about=["Export: somewhere"],
        queues=queues,
        verified_queues=sum(line.verified for line in lines),
        frames=1_000 * queues,
        messages=990 * queues,
        bytes=10_000 * queues,
        epochs=3 * queues,
        confirmed_ends=queues,
        kinds=dict(Counter(one.kind for one in found)),
        findings=found,
        lines=lines,
        volume=[Bar(label=f"{at}", value=at, findings=at % 2) for at in range(30)],
        sizes=[Bar(label="64 B", value=3)],
        intervals=[],
    )


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<(style|script)[^>]*>.*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL))


def test_the_verdict_comes_first() -> None:
    bad, good = text_of(render(report_of(7, 5))), text_of(render(report_of(0, 5)))
    assert "7 findings in 5 of 5 queues" in bad[:400]
    assert "Nothing wrong was found" in good[:400]
    assert "confirm the end of every queue" in good


def test_an_end_that_nothing_confirms_is_said_with_the_verdict() -> None:
    one = report_of(0, 3)
    open_end = Report(**{name: getattr(one, name) for name in one.__slots__} | {"confirmed_ends": 1})
    assert "The end of 2 queues is not confirmed" in text_of(render(open_end))


def test_the_page_names_no_other_place() -> None:
    page = render(report_of(10))
    assert not re.search(r"https?://|//[a-z]|@import|url\(", page.replace("<!doctype html>", ""))
    assert "default-src 'none'" in page


def test_nothing_from_an_export_is_markup() -> None:
    page = render(report_of(3, sentence=HOSTILE))
    assert HOSTILE not in page
    assert page.count("</script>") == 2
    data = re.search(r'type="application/json">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["findings"][0][6] == HOSTILE


def test_a_page_is_written_whole(tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", report_of(1))
    assert (tmp_path / "report.html").read_text().endswith("</html>\n")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_list_that_was_cut_says_so() -> None:
    one = report_of(8, 10)
    cut = Report(**{name: getattr(one, name) for name in one.__slots__} | {"findings": one.findings[:2], "lines": ()})
    said = text_of(render(cut))
    assert "The page has the first 2" in said
    assert "The page has 0 queues" in said


def test_a_service_id_is_shown_as_text_only_if_it_is_text() -> None:
    one = report_of(1, 1)
    odd = Report(
        **{name: getattr(one, name) for name in one.__slots__}
        | {"findings": [one.findings[0]._replace(service_id=b"\xff\0")], "lines": ()}
    )
    assert '"services":["ff00"]' in render(odd)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1_234, "1,234"), (2.5, "2.5"), (150_000, "150 k"), (12_345_678, "12.3 M"), (3e12, "3 T")],
)
def test_numbers_are_written_as_people_do(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (2_048, "2 KiB"), (123 << 20, "123 MiB"), (1 << 60, "1.02e+03 PiB")]
)
def test_sizes_are_written_as_people_do(value: int, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize("top", [1, 4, 5, 9, 10, 99, 101, 999, 1_000_001, 10**12 + 1])
def test_no_bar_is_higher_than_its_plot(top: int) -> None:
    svg = bar_plot([Bar(label="a", value=top), Bar(label="b", value=0)], title="t", x="x", y="y")
    heights = [float(found) for found in re.findall(r'class="bar"[^>]*height="([\d.]+)"', svg)]
    assert 50 <= max(heights) <= 215
    assert "No data" in bar_plot([], title="t", x="x", y="y")


# --- in a browser --------------------------------------------------------------------------------

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here: apt-get install chromium")


def browse(folder: Path, report: Report, script: str, *arguments: str) -> Any:
    """Open the page, run a script that returns a value, and give that value back."""
    page = folder / "page.html"
    probe = (
        "<script>window.addEventListener('load', () => { let said; try { said = (() => {"
        + script
        + "})(); } catch (error) { said = 'failed: ' + error; }"
        "const out = document.createElement('pre'); out.id = 'probe'; out.textContent = JSON.stringify(said);"
        "document.body.append(out); });</script></body>"
    )
    page.write_text(render(report).replace("</body>", probe), encoding="utf-8")
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom", f"--user-data-dir={folder}/c"]
    done = subprocess.run(
        [*command, *arguments, page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    said = re.search(r'<pre id="probe">(.*?)</pre>', done, re.DOTALL)
    assert said is not None, done[-2_000:]
    return json.loads(html.unescape(said[1]))


@in_browser
def test_ten_thousand_findings_are_filtered_and_turned_page_by_page(tmp_path: Path) -> None:
    many = report_of(10_000, 500)
    said = browse(
        tmp_path,
        many,
        """
        const state = () => [document.querySelectorAll('#f-list li').length,
                             document.getElementById('f-count').textContent,
                             document.querySelector('#f-list .kind')?.textContent ?? null];
        const buttons = () => [...document.querySelectorAll('#f-pages button')];
        const press = (text) => buttons().find((b) => b.textContent === text).click();
        const steps = [state()];
        document.querySelector('.chip[data-kind="fork"]').click();
        steps.push(state());
        press('Last');
        steps.push(document.querySelector('#f-pages span').textContent);
        const box = document.getElementById('f-text');
        box.value = document.querySelector('#f-list button.id').textContent;
        box.dispatchEvent(new Event('input'));
        steps.push(state());
        box.value = 'no such words';
        box.dispatchEvent(new Event('input'));
        steps.push(state());
        document.getElementById('q-bad').click();
        steps.push(document.getElementById('q-count').textContent);
        return steps;
        """,
    )
    queue = many.findings[-3].queue_id
    of_queue = sum(one.kind == "fork" and one.queue_id == queue for one in many.findings)
    assert said == [
        [25, "10,000 findings", "gap"],
        [25, "2,500 of 10,000 findings", "fork"],
        "page 100 of 100",
        [of_queue, f"{of_queue} of 10,000 findings", "fork"],
        [0, "0 of 10,000 findings", None],
        "500 queues",
    ]


@in_browser
def test_hostile_text_does_nothing_in_a_browser(tmp_path: Path) -> None:
    said = browse(
        tmp_path,
        report_of(3, sentence=HOSTILE),
        "return [document.title, document.querySelectorAll('img').length, "
        "document.querySelector('#f-list li span:nth-child(2)').textContent];",
    )
    assert said == ["3 findings in 3 of 40 queues", 0, HOSTILE]


def contrast(one: Sequence[float], other: Sequence[float]) -> float:
    """The contrast ratio of two colours, as WCAG 2 defines it."""

    def luminance(colour: Sequence[float]) -> float:
        parts = [value / 255 for value in colour[:3]]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@in_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_everything_in_colours_that_can_be_read(tmp_path: Path, scheme: str) -> None:
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    said = browse(
        tmp_path,
        report_of(60),
        """
        // A headless window has a least width of 500, so the page itself is made as narrow as a phone.
        const colours = [];
        const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
        const ground = (node) => {
          for (let at = node; at; at = at.parentElement) {
            const colour = rgb(getComputedStyle(at).backgroundColor);
            if (colour.length === 3 || colour[3] > 0) return colour;
          }
          return [255, 255, 255];
        };
        document.body.style.width = '360px';
        const texts = 'h1, .verdict p, .about li, dt, dd, .chip, .kind, .facts span, .ok, .nok, .quiet, summary';
        for (const node of document.querySelectorAll(texts)) {
          if (!node.textContent.trim() || !node.offsetParent) continue;
          colours.push([rgb(getComputedStyle(node).color), ground(node)]);
        }
        const wide = [...document.querySelectorAll('main *')].filter((n) => !(n instanceof SVGElement)
            && !n.closest('.strip') && n.offsetParent && n.getBoundingClientRect().right > 362).length;
        return [matchMedia('(prefers-color-scheme: dark)').matches, wide, colours];
        """,
        "--window-size=500,900",
        *dark,
    )
    assert said[0] is (scheme == "dark")
    assert said[1] == 0, "something is wider than the phone"
    assert len(said[2]) > 100
    assert min(contrast(*pair) for pair in said[2]) >= 4.5
