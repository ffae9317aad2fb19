"""Line plots as SVG files that stand alone: light and dark follow the reader's setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from pyspark_udfs.report_plots import axis_top, number

__all__ = ["line_plot"]

_WIDTH: Final = 640
_HEIGHT: Final = 360
_LEFT: Final = 80
_RIGHT: Final = 190
_TOP: Final = 48
_BOTTOM: Final = 56
_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #222 } .title { font-size: 15px; font-weight: 600 }
.back { fill: #fff } .grid { stroke: #ddd } .line { fill: none; stroke-width: 2.5 }
.s0 { stroke: #1f6feb; fill: #1f6feb } .s1 { stroke: #c2410c; fill: #c2410c } .s2 { stroke: #15803d; fill: #15803d }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .back { fill: #16181c } .grid { stroke: #3a3d44 }
.s0 { stroke: #79b0ff; fill: #79b0ff } .s1 { stroke: #ff9c66; fill: #ff9c66 } .s2 { stroke: #6ed18f; fill: #6ed18f } }
""".strip()


def line_plot(
    lines: Mapping[str, Sequence[tuple[float, float]]], *, title: str, x: str, y: str, ticks: Sequence[float]
) -> str:
    """Points joined by lines over equally spaced `ticks`; the vertical axis begins at 0."""
    inner, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    top = axis_top(round(max(value for points in lines.values() for _, value in points) * 1.05))
    places = {tick: _LEFT + inner * (at + 0.5) / len(ticks) for at, tick in enumerate(ticks)}
    parts = [f'<rect class="back" width="{_WIDTH}" height="{_HEIGHT}"/>']
    parts.append(f'<text class="title" x="16" y="28">{escape(title)}</text>')
    for part in range(5):
        at = _TOP + height - height * part / 4
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_LEFT + inner}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{number(round(top * part / 4))}</text>')
    for tick, at in places.items():
        parts.append(f'<text x="{at:.1f}" y="{_TOP + height + 20}" text-anchor="middle">{number(tick)}</text>')
    parts.append(f'<text x="{_LEFT + inner / 2}" y="{_HEIGHT - 12}" text-anchor="middle">{escape(x)}</text>')
    middle = _TOP + height / 2
    parts.append(
        f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">{escape(y)}</text>'
    )
    for index, (name, points) in enumerate(lines.items()):
        drawn = [(places[tick], _TOP + height - height * value / top, value) for tick, value in points]
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down, _ in drawn)
        parts.append(f'<polyline class="line s{index}" style="fill:none" points="{path}"/>')
        for across, down, value in drawn:
            label = f"{escape(name)}: {number(round(value))}"
            parts.append(
                f'<circle class="s{index}" cx="{across:.1f}" cy="{down:.1f}" r="4"><title>{label}</title></circle>'
            )
        legend = _TOP + 14 + 22 * index
        parts.append(f'<rect class="s{index}" x="{_LEFT + inner + 14}" y="{legend - 10}" width="12" height="12"/>')
        parts.append(f'<text x="{_LEFT + inner + 32}" y="{legend}">{escape(name)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">\n<style>{_STYLE}</style>\n' + "\n".join(parts) + "\n</svg>\n"
    )
