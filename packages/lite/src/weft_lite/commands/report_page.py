"""The page of `weft-lite report`: HTML without scripts, whose pictures are SVG.

Names from the file are data and are escaped.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from weft_lite.commands.output import printable, size
from weft_lite.watching import TimedOp

BINS = 24
"""Number of bins of a histogram of errors."""

_ROW, _WIDTH, _MEMORY_HEIGHT, _ARC = 18, 960, 320, 90


class Block(NamedTuple):
    """A tensor in the arena.

    Attributes:
      name: name of the tensor.
      first, last: indices of the ops that write it first and read it last.
      offset, size_bytes: its position and size in the arena.
      is_variable: True if it keeps its value between invocations.
    """

    name: str
    first: int
    last: int
    offset: int
    size_bytes: int
    is_variable: bool


class ErrorRow(NamedTuple):
    """The error of one result.

    Attributes:
      name: name of the result.
      decibels: signal-to-noise ratio; infinite if the result is exact.
      largest: the largest error, relative to the largest value.
      histogram: numbers of errors in bins from -`largest` to `largest`.
    """

    name: str
    decibels: float
    largest: float
    histogram: list[int]


class Description(NamedTuple):
    """The facts about a file that a report shows.

    Attributes:
      title: name of the file.
      summary: pairs of a label and a text.
      ops: the ops with their times.
      forms: the type and shape of the first result of each op.
      edges: pairs of the indices of ops, the second of which reads a result of the first.
      blocks: the tensors in the arena.
      arena_bytes: size of the arena.
      constants: names and sizes in bytes of constants, largest first.
      errors: errors of the results against another file, worst first.
    """

    title: str
    summary: list[tuple[str, str]]
    ops: list[TimedOp]
    forms: list[str]
    edges: list[tuple[int, int]]
    blocks: list[Block]
    arena_bytes: int
    constants: list[tuple[str, int]]
    errors: list[ErrorRow]


_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #667; --paper: #fff; --line: #d8dde3;
  --bar: #3b78c4; --warm: #d9822b; --state: #7a5bbd; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #9aa4b0; --paper: #14171a;
  --line: #333a42; --bar: #6ea8ee; --warm: #f0a657; --state: #b09ae6; } }
body { font: 14px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1000px; margin: 24px auto; padding: 0 16px; }
h1 { font-size: 22px; } h2 { font-size: 17px; margin-top: 32px; }
p { color: var(--soft); } svg { max-width: 100%; height: auto; display: block; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .soft { fill: var(--soft); }
table { border-collapse: collapse; } td, th { text-align: left; padding: 3px 16px 3px 0;
  border-bottom: 1px solid var(--line); } td.number { text-align: right; }
.wide { overflow-x: auto; }
"""


def render(description: Description) -> str:
    """Return the report as an HTML page."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        "<meta http-equiv='Content-Security-Policy' "
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{_text(description.title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{_text(description.title)}</h1>",
        _table((), description.summary),
        "<h2>Graph and time</h2><p>Ops in the order in which they run. An arc leads from an op to "
        "a later one that reads its result.</p>",
        _graph(description),
        "<h2>Memory</h2><p>The arena over the ops: a tensor is a rectangle from the op that "
        "writes it to the last one that reads it. Variables are permanent.</p>",
        _memory(description),
        "<h2>Weights</h2>",
        _weights(description),
    ]
    if description.errors:
        parts += [
            "<h2>Quantization error</h2><p>Results against the reference on the same inputs, "
            "worst first. The signal-to-noise ratio includes the errors of preceding ops.</p>",
            _error_table(description.errors),
        ]
    return "\n".join([*parts, "</body></html>\n"])


def _text(text: str) -> str:
    return html.escape(printable(text))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{_text(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<div class='wide'><table>{f'<tr>{head}</tr>' if head else ''}{body}</table></div>"


def _svg(width: int, height: int, parts: Iterable[str]) -> str:
    return (
        f"<div class='wide'><svg viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
        f"role='img'>{''.join(parts)}</svg></div>"
    )


def _rect(x: float, y: float, width: float, height: float, color: str, title: str) -> str:
    return (
        f"<rect x='{x:.1f}' y='{y:.1f}' width='{max(width, 0.5):.1f}' "
        f"height='{max(height, 0.5):.1f}' fill='var(--{color})' stroke='var(--paper)' "
        f"stroke-width='0.5'><title>{_text(title)}</title></rect>"
    )


def _label(x: float, y: float, text: str, css: str = "") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' class='{css}'>{_text(text)}</text>"


def _graph(d: Description) -> str:
    """Draw the ops as rows, with bars of their time and arcs for edges between distant rows."""
    total = sum(item.seconds for item in d.ops) or 1.0
    longest = max((item.seconds for item in d.ops), default=0.0) or 1.0
    parts = []
    for first, second in d.edges:
        if second - first > 1:
            top, bottom = first * _ROW + 9, second * _ROW + 9
            depth = min(_ARC - 6, 8 + 3 * math.sqrt(bottom - top))
            parts.append(
                f"<path d='M {_ARC} {top} C {_ARC - depth:.0f} {top}, {_ARC - depth:.0f} {bottom}, "
                f"{_ARC} {bottom}' fill='none' stroke='var(--soft)' stroke-width='1'/>"
            )
    for i, (item, form) in enumerate(zip(d.ops, d.forms, strict=True)):
        y = i * _ROW
        share = f"{1e3 * item.seconds:.4f} ms, {100 * item.seconds / total:.1f} %"
        parts.append(_label(_ARC + 6, y + 13, f"{i}  {item.op.kind}"))
        parts.append(_label(_ARC + 170, y + 13, _shorten(item.op.name, 44), "soft"))
        parts.append(_label(_ARC + 450, y + 13, form, "soft"))
        parts.append(_rect(_ARC + 620, y + 3, 160 * item.seconds / longest, _ROW - 6, "bar", share))
        parts.append(_label(_ARC + 785, y + 13, f"{1e3 * item.seconds:.3f} ms", "soft"))
    return _svg(_WIDTH, len(d.ops) * _ROW + 4, parts)


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else "…" + text[1 - length :]


def _memory(d: Description) -> str:
    """Draw the tensors in the arena over the ops, and the bytes that are in use."""
    num_ops, height = max(1, len(d.ops)), max(1, d.arena_bytes)
    scale_x, scale_y = (_WIDTH - 90) / num_ops, (_MEMORY_HEIGHT - 20) / height
    used = [0] * num_ops
    parts = []
    for block in d.blocks:
        for op in range(block.first, block.last + 1):
            used[op] += block.size_bytes
        label = f"{block.name}: {size(block.size_bytes)}, ops {block.first} to {block.last}"
        parts.append(
            _rect(
                80 + block.first * scale_x,
                _MEMORY_HEIGHT - 10 - (block.offset + block.size_bytes) * scale_y,
                (block.last + 1 - block.first) * scale_x,
                block.size_bytes * scale_y,
                "state" if block.is_variable else "bar",
                label,
            )
        )
    peak = max(range(num_ops), key=used.__getitem__)
    x = 80 + (peak + 0.5) * scale_x
    parts += [
        f"<line x1='{x:.1f}' x2='{x:.1f}' y1='10' y2='{_MEMORY_HEIGHT - 10}' "
        "stroke='var(--warm)' stroke-dasharray='4 3'/>",
        _label(0, 20, size(d.arena_bytes), "soft"),
        _label(0, _MEMORY_HEIGHT - 10, "0 B", "soft"),
    ]
    note = f" at op {peak}, {d.ops[peak].op.kind} {d.ops[peak].op.name}" if d.ops else ""
    caption = f"<p>At most {size(used[peak])} are in use{_text(note)} (dashed line).</p>"
    return _svg(_WIDTH, _MEMORY_HEIGHT, parts) + caption


def _weights(d: Description) -> str:
    """Draw the largest constants as bars."""
    shown, remaining = d.constants[:20], d.constants[20:]
    rows = [*shown]
    if remaining:
        rows.append((f"{len(remaining)} others", sum(count for _, count in remaining)))
    if not rows:
        return "<p>The file has no weights.</p>"
    largest = max(count for _, count in rows) or 1
    parts = []
    for i, (name, count) in enumerate(rows):
        y = i * _ROW
        parts.append(_label(0, y + 13, _shorten(name, 60)))
        parts.append(_rect(400, y + 3, 440 * count / largest, _ROW - 6, "warm", size(count)))
        parts.append(_label(850, y + 13, size(count), "soft"))
    return _svg(_WIDTH, len(rows) * _ROW + 4, parts)


def _error_table(errors: Sequence[ErrorRow]) -> str:
    rows = []
    for row in errors:
        decibels = "exact" if math.isinf(row.decibels) else f"{row.decibels:.1f} dB"
        rows.append(
            f"<tr><td>{_text(row.name)}</td><td class='number'>{decibels}</td>"
            f"<td class='number'>{100 * row.largest:.2f} %</td><td>{_histogram(row)}</td></tr>"
        )
    head = "<tr><th>result</th><th>signal to noise</th><th>largest error</th><th>errors</th></tr>"
    return f"<div class='wide'><table>{head}{''.join(rows)}</table></div>"


def _histogram(row: ErrorRow) -> str:
    highest = max(row.histogram) or 1
    bars = (
        _rect(i * 6, 26 - 26 * count / highest, 6, 26 * count / highest, "bar", str(count))
        for i, count in enumerate(row.histogram)
        if count
    )
    return f"<svg width='{6 * BINS}' height='26' role='img'>{''.join(bars)}</svg>"


__all__ = ["BINS", "Block", "Description", "ErrorRow", "render"]
