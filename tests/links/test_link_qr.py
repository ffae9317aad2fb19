"""QR codes: both drawings show the code of exactly the link's text, and a missing library is explained."""

from __future__ import annotations

import re
import sys
from xml.etree import ElementTree as ET

import pytest
import segno

from qsratchet.errors import MisuseError
from qsratchet.links import format_link, qr_svg, qr_terminal

from .shelf import make

BORDER = 4
SVG = "{http://www.w3.org/2000/svg}"


def expected(text: str) -> list[list[bool]]:
    """The dark modules of a QR code of this text, with its quiet zone."""
    code = segno.make_qr(text, error="m", boost_error=False)
    return [[bool(module) for module in row] for row in code.matrix_iter(border=BORDER)]


def modules_of_terminal(drawing: str) -> list[list[bool]]:
    """A character shows two modules, one above the other; light ones are drawn, dark ones are left out."""
    rows = []
    for line in drawing.rstrip("\n").split("\n"):
        rows.append([character not in "█▀" for character in line])
        rows.append([character not in "█▄" for character in line])
    return rows[: len(rows[0])]


def modules_of_svg(drawing: str) -> list[list[bool]]:
    root = ET.fromstring(drawing)
    ground, lines = root.iter(f"{SVG}path")
    size = int(re.findall(r"h(\d+)", ground.attrib["d"])[0])
    rows = [[False] * size for _ in range(size)]
    x = y = 0.0
    for move, dx, dy, width in re.findall(r"([Mm])(-?[\d.]+) (-?[\d.]+)h(\d+)", lines.attrib["d"]):
        x, y = (float(dx), float(dy)) if move == "M" else (x + float(dx), y + float(dy))
        for column in range(int(x), int(x) + int(width)):
            rows[int(y)][column] = True
        x += int(width)
    return rows


@pytest.mark.parametrize("site", [None, "links.example.com"])
def test_both_drawings_show_the_code_of_the_links_text(site: str | None) -> None:
    link = make()[0].link
    modules = expected(format_link(link, site=site))
    assert modules_of_terminal(qr_terminal(link, site=site)) == modules
    assert modules_of_svg(qr_svg(link, site=site)) == modules


def test_the_same_link_is_drawn_the_same_and_another_differently() -> None:
    link, other = make()[0].link, make()[0].link
    assert qr_svg(link) == qr_svg(link) != qr_svg(other)


def test_a_module_is_as_wide_as_asked() -> None:
    link = make()[0].link
    widths = [int(ET.fromstring(qr_svg(link, scale=scale)).attrib["width"]) for scale in (1, 4)]
    assert widths[1] == 4 * widths[0]


@pytest.mark.parametrize("draw", [qr_svg, qr_terminal])
def test_without_the_library_the_error_says_what_to_install(draw: type[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "segno", None)
    with pytest.raises(MisuseError, match=r"pip install 'qsratchet\[qr\]'"):
        draw(make()[0].link)
