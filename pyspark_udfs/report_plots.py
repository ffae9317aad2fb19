"""Plots of a report as inline SVG: bars with axes that a person can read, and a table of the same for who cannot see.

Colours are CSS classes, so that light and dark are the page's business.  This module knows numbers and text only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

__all__ = ["Bar", "axis_top", "bar_plot", "number", "size"]

_WIDTH: Final = 640
_HEIGHT: Final = 300
_LEFT: Final = 84
_RIGHT: Final = 16
_TOP: Final = 14
_BOTTOM: Final = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: what it stands for, how high it is, and how many findings lie in it."""

    label: str
    value: int
    findings: int = 0


def number(value: float) -> str:
    """A number as a person writes it: 1,234 in full, 12.3 M in short."""
    if abs(value) < 100_000:
        return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
    for factor, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{unit}"
    raise AssertionError(value)


def size(value: float) -> str:
    """A number of bytes as a person writes it."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} PiB"


def bar_plot(bars: Sequence[Bar], *, title: str, x: str, y: str) -> str:
    """A bar plot with its title, axis labels and a table of its values."""
    if not bars:
        return f'<figure class="plot"><figcaption>{escape(title)}</figcaption><p class="quiet">No data.</p></figure>'
    top = axis_top(max(bar.value for bar in bars))
    inner = _WIDTH - _LEFT - _RIGHT
    height = _HEIGHT - _TOP - _BOTTOM
    step = inner / len(bars)
    gap = min(2.0, step * 0.2)
    parts: list[str] = []
    for tick in range(5):
        value = top * tick / 4
        at = _TOP + height - height * tick / 4
        if value == int(value):
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
            parts.append(
                f'<text class="tick" x="{_LEFT - 6}" y="{at + 6:.1f}" text-anchor="end">{number(value)}</text>'
            )
    for index, bar in enumerate(bars):
        left = _LEFT + step * index + gap / 2
        tall = height * bar.value / top
        found = f", {number(bar.findings)} finding{'s' if bar.findings != 1 else ''}" if bar.findings else ""
        parts.append(
            f"<g><title>{escape(bar.label)}: {number(bar.value)}{found}</title>"
            f'<rect class="hover" x="{_LEFT + step * index:.1f}" y="{_TOP}" width="{step:.2f}" height="{height}"/>'
            f'<rect class="bar" x="{left:.1f}" y="{_TOP + height - tall:.1f}" width="{step - gap:.2f}" '
            f'height="{tall:.1f}" rx="{min(1.5, step / 8):.1f}"/>'
        )
        if bar.findings:
            parts.append(f'<circle class="mark" cx="{left + (step - gap) / 2:.1f}" cy="{_TOP + height + 8}" r="4"/>')
        parts.append("</g>")
    every = max(1, math.ceil(len(bars) / 5))
    for index in range(0, len(bars), every):
        at = _LEFT + step * (index + 0.5)
        label = escape(bars[index].label.split(" to ")[0])
        parts.append(f'<text class="tick" x="{at:.1f}" y="{_HEIGHT - 38}" text-anchor="middle">{label}</text>')
    axis = f'<text class="axis" x="{_LEFT + inner / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(x)}</text>'
    rows = "".join(
        f"<tr><th scope=row>{escape(bar.label)}</th><td>{number(bar.value)}</td><td>{number(bar.findings)}</td></tr>"
        for bar in bars
    )
    return (
        f'<figure class="plot"><figcaption>{escape(title)} <span class="quiet">{escape(y)}</span></figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}. The values are in the table below.">'
        f"{''.join(parts)}{axis}</svg>"
        "<details><summary>Values as a table</summary><div class=scroll><table><thead><tr>"
        f"<th scope=col>{escape(x)}</th>"
        f"<th scope=col>{escape(y)}</th><th scope=col>findings</th></tr></thead><tbody>{rows}</tbody></table></div>"
        "</details></figure>"
    )


def axis_top(value: int) -> int:
    """The top of an axis: the next of 4, 8, 12, 20, 40, 80, … that four equal parts divide evenly."""
    if value <= 4:
        return 4
    magnitude: int = 10 ** (len(str(value)) - 1)
    for factor in (0.4, 0.8, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10, 12):
        top = factor * magnitude
        if top >= value and top == int(top):
            return int(top)
    return magnitude * 20
