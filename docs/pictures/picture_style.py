"""SVG elements in colors that are legible on light and on dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

WIDTH = 900
STYLE = """<style>
svg { --page: #ffffff; --text: #1f2328; --faint: #59636e; --grid: #d1d9e0;
  --first: #0969da; --second: #bc4c00; --third: #8250df; --fourth: #1a7f37 }
@media (prefers-color-scheme: dark) {
  svg { --page: #0d1117; --text: #e6edf3; --faint: #9198a1; --grid: #30363d;
    --first: #58a6ff; --second: #f0883e; --third: #bc8cff; --fourth: #3fb950 } }
text { font: 12px sans-serif; fill: var(--text) } .title { font-size: 15px; font-weight: bold }
.faint { fill: var(--faint); font-size: 11px } .page { fill: var(--page) }
.grid { stroke: var(--grid) } .axis { stroke: var(--faint) }
.first { fill: var(--first) } .second { fill: var(--second) } .third { fill: var(--third) }
.fourth { fill: var(--fourth) } .inside { fill: var(--page) }
path.line { fill: none; stroke-width: 2 } .line.first { stroke: var(--first) }
.line.second { stroke: var(--second) } .line.third { stroke: var(--third) }
.arrow { stroke: var(--text); stroke-width: 1.2 }
.tip { fill: var(--text) }
</style>
<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">
<path class="tip" d="M0,0 L8,4 L0,8 z"/></marker></defs>"""


def document(height: float, title: str, parts: Sequence[str]) -> str:
    """Return an SVG document on an opaque page, with a title for screen readers."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH}" height="{height:g}" '
        f'viewBox="0 0 {WIDTH} {height:g}">'
    )
    page = f'<rect class="page" width="{WIDTH}" height="{height:g}"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", STYLE, page, *parts, "</svg>", ""])


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    """Draw a line of text."""
    shown = escape(content)
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{shown}</text>'


def bar(x: float, y: float, width: float, height: float, kind: str, note: str = "") -> str:
    """Draw a rectangle; `note` is shown when the pointer is over it."""
    title = f"<title>{escape(note)}</title>" if note else ""
    size = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" {size} rx="2">{title}</rect>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    """Draw a straight line."""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    tip = ' marker-end="url(#tip)"' if kind == "arrow" else ""
    return f'<line class="{kind}" {ends}{tip}/>'


class Plot(NamedTuple):
    """A frame with two linear axes.

    Attributes:
      left, top, width, height: the frame, in pixels.
      x_range, y_range: the values at its ends.
    """

    left: float
    top: float
    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        """Return the horizontal position of a value."""
        low, high = self.x_range
        return self.left + (value - low) / (high - low) * self.width

    def y(self, value: float) -> float:
        """Return the vertical position of a value."""
        low, high = self.y_range
        return self.top + self.height - (value - low) / (high - low) * self.height

    def frame(self, title: str, label: str, ticks: Sequence[tuple[float, str]]) -> Iterator[str]:
        """Draw title, horizontal grid lines at ticks of the y axis, and the label of the x axis."""
        yield text(self.left, self.top - 14, title, "title")
        for value, shown in ticks:
            yield line(self.left, self.y(value), self.left + self.width, self.y(value))
            yield text(self.left - 6, self.y(value) + 4, shown, "faint", "end")
        bottom = self.top + self.height
        for value in self.x_range:
            yield text(self.x(value), bottom + 18, f"{value:g}", "faint", "middle")
        yield text(self.left + self.width / 2, bottom + 18, label, "faint", "middle")

    def curve(self, points: Sequence[tuple[float, float]], kind: str) -> str:
        """Draw points joined by lines."""
        steps = " L".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        return f'<path class="line {kind}" d="M{steps}"/>'
