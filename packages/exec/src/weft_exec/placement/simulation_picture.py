"""A simulated run as a picture: a lane for each device, boxes for nodes, arrows for transfers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from weft_exec.placement.report import NodePlacement, PlacementReport

_WIDTH: Final = 900
_LABELS: Final = 120
_LANE: Final = 56
_BOX: Final = 26
_TOP: Final = 34
_LEAST: Final = 1.5
"""Width in pixels below which neighboring boxes are drawn as one."""
_MOST_ARROWS: Final = 2000
_COLORS: Final = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#9c755f")
_STYLE: Final = (
    "svg{--page:#fff;--text:#333}"
    "@media(prefers-color-scheme:dark){svg{--page:#0d1117;--text:#e6edf3}}"
    "text{font:12px sans-serif;fill:var(--text)}rect{stroke:var(--page);stroke-width:.5}"
    "path{stroke:#d1495b;fill:none;marker-end:url(#a)}"
)


def timeline(report: PlacementReport) -> str:
    """Return an SVG document of a report.

    Neighboring nodes that would be too narrow to see are drawn as one box with their number.
    """
    lanes = sorted({node.device for node in report})
    lanes += sorted({lane for t in report.transfers for lane in t[1:3]} - set(lanes))
    scale = (_WIDTH - _LABELS - 20) / (report.seconds or 1.0)
    height = _TOP + _LANE * len(lanes) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}"><style>{_STYLE}</style>'
        '<defs><marker id="a" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" '
        'markerHeight="6" orient="auto"><path d="M0 0L6 3L0 6z" style="fill:#d1495b;stroke:none;'
        'marker-end:none"/></marker></defs>'
        f'<rect width="{_WIDTH}" height="{height}" style="fill:var(--page)"/>'
    ]
    for i, lane in enumerate(lanes):
        y = _TOP + i * _LANE
        parts.append(f'<text x="8" y="{y + 17}">/{escape(lane.rpartition("/")[2])}</text>')
        lane_nodes = sorted([node for node in report if node.device == lane], key=lambda n: n.start)
        parts += _boxes(lane_nodes, y, scale)
    parts += _arrows(report, lanes, scale)
    parts += _axis(report.seconds, scale, height)
    return "\n".join([*parts, "</svg>\n"])


def _boxes(nodes: Sequence[NodePlacement], y: int, scale: float) -> Iterator[str]:
    for group in _group_boxes(nodes, scale):
        x = _LABELS + group[0].start * scale
        width = max(0.5, (group[-1].finish - group[0].start) * scale)
        first = group[0]
        subject = f"{first.name}: {first.op}\n{first.reason}" if len(group) == 1 else ""
        title = subject or f"{len(group)} nodes, {first.name} to {group[-1].name}"
        micros = (group[-1].finish - first.start) * 1e6
        color = _COLORS[sum(first.op.encode()) % len(_COLORS)] if subject else "#999"
        yield (
            f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_BOX}" fill="{color}">'
            f"<title>{escape(title)}\n{micros:.1f} µs</title></rect>"
        )
        label = first.name.rpartition("/")[2]
        if subject and width > 7 * len(label):
            yield f'<text x="{x + 3:.2f}" y="{y + 17}" style="fill:#fff">{escape(label)}</text>'


def _group_boxes(nodes: Sequence[NodePlacement], scale: float) -> list[list[NodePlacement]]:
    """Group nodes by box: narrow ones that follow each other share a box."""
    boxes: list[list[NodePlacement]] = []
    for node in nodes:
        narrow = (node.finish - node.start) * scale < _LEAST
        if narrow and boxes:
            last = boxes[-1][-1]
            is_close = (node.start - last.finish) * scale < _LEAST
            if is_close and (last.finish - last.start) * scale < _LEAST:
                boxes[-1].append(node)
                continue
        boxes.append([node])
    return boxes


def _arrows(report: PlacementReport, lanes: Sequence[str], scale: float) -> Iterator[str]:
    ends = {node.name: node.finish for node in report}
    for name, source, target, nbytes, arrival in report.transfers[:_MOST_ARROWS]:
        x = _LABELS + ends.get(name.rpartition(":")[0], arrival) * scale
        end_x = _LABELS + arrival * scale
        above, below = lanes.index(source), lanes.index(target)
        y = _TOP + above * _LANE + (_BOX if below > above else 0)
        end = _TOP + below * _LANE + (0 if below > above else _BOX)
        yield (
            f'<path d="M{x:.2f} {y}L{end_x:.2f} {end}"><title>{escape(name)}\n'
            f"{nbytes} bytes</title></path>"
        )
    num_omitted = len(report.transfers) - _MOST_ARROWS
    if num_omitted > 0:
        yield f'<text x="{_LABELS}" y="14">{num_omitted} more transfers are not drawn</text>'


def _axis(seconds: float, scale: float, height: int) -> Iterator[str]:
    for i in range(6):
        x = _LABELS + seconds * scale * i / 5
        anchor = "end" if i == 5 else "middle" if i else "start"
        label = f"{seconds * i / 5 * 1e6:.0f} µs"
        yield f'<text x="{x:.2f}" y="{height - 8}" text-anchor="{anchor}">{label}</text>'
