"""The graph of a step as a picture, with frames around the nodes of each fused kernel.

A compiled function is a frame with its kernels in execution order. Frames and other nodes are
arranged in rows, each below its inputs. A node that several kernels compute is drawn in each of
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from weft_graph.ir.compiled_function import CompiledFunction

MOST: Final = 2000
"""Maximum number of nodes that are drawn; compiled nodes come first."""
_ROW, _GAP, _PAD, _HEAD, _LETTER = 24, 14, 10, 18, 6.3
_WIDEST: Final = 1500
_LONGEST: Final = 26
_COLORS: Final = ("#dce9f5", "#fde5cc", "#dff0d8", "#efe0ee", "#d9efed", "#fbf3cf", "#eadfd5")
_STYLE: Final = (
    "text{font:11px sans-serif;fill:#222}.node{fill:#fff;stroke:#777}.plain{fill:#f2f2f2}"
    ".function{fill:#fafafa;stroke:#444;stroke-width:1.5}.kernel{stroke:#999;cursor:pointer}"
    ".none{fill:#fff;stroke:#bbb;stroke-dasharray:3}.title{font-weight:bold}"
    ".edge{stroke:#8898a8;fill:none;opacity:.55;marker-end:url(#tip)}"
)
_TIP: Final = (
    '<defs><marker id="tip" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" '
    'orient="auto"><path d="M0 0L6 3L0 6z" fill="#8898a8"/></marker></defs>'
)


@dataclass(eq=False)
class _Box:
    """A rectangle: a node or a container of other boxes."""

    kind: str
    label: str
    title: str
    fill: str = ""
    key: str = ""
    rows: list[list[_Box]] = field(default_factory=list)
    x: float = 0
    y: float = 0
    width: float = 0
    height: float = 0

    def measure(self) -> None:
        """Compute its size from the sizes of its contents."""
        label_width = _LETTER * len(self.label) + _PAD
        for box in self.inner_boxes():
            box.measure()
        if not self.rows:
            self.width, self.height = label_width, _ROW - 6
            return
        widths = [sum(b.width for b in row) + _GAP * (len(row) - 1) for row in self.rows]
        heights = [max(b.height for b in row) for row in self.rows]
        self.width = max(label_width, *widths) + 2 * _PAD
        self.height = _HEAD + sum(heights) + _GAP * (len(self.rows) - 1) + _PAD

    def place(self, x: float, y: float) -> None:
        """Set the position of the box and its contents."""
        self.x, self.y = x, y
        top = y + _HEAD
        for row in self.rows:
            box_x = x + (self.width - sum(b.width for b in row) - _GAP * (len(row) - 1)) / 2
            for box in row:
                box.place(box_x, top)
                box_x += box.width + _GAP
            top += max(b.height for b in row) + _GAP

    def inner_boxes(self) -> Iterator[_Box]:
        """Iterate over the boxes inside."""
        for row in self.rows:
            yield from row

    def frames(self) -> Iterator[str]:
        """Yield the rectangles of containers, outer ones first."""
        if self.rows:
            yield self._rectangle()
        for box in self.inner_boxes():
            yield from box.frames()

    def labels(self) -> Iterator[str]:
        """Yield the rectangles of nodes, and all labels."""
        if not self.rows:
            yield self._rectangle()
        bold = ' class="title"' if self.rows else ""
        yield f'<text{bold} x="{self.x + 5:.1f}" y="{self.y + 13:.1f}">{escape(self.label)}</text>'
        for box in self.inner_boxes():
            yield from box.labels()

    def _rectangle(self) -> str:
        key = f' data-kernel="{self.key}"' if self.key else ""
        fill = f' style="fill:{self.fill}"' if self.fill else ""
        return (
            f'<rect class="{self.kind}" x="{self.x:.1f}" y="{self.y:.1f}" rx="3" '
            f'width="{self.width:.1f}" height="{self.height:.1f}"{fill}{key}>'
            f"<title>{escape(self.title)}</title></rect>"
        )


class _Nodes:
    """The nodes of a step by name, with their ops and inputs."""

    def __init__(self, parts: Iterable[Any], functions: Sequence[CompiledFunction]) -> None:
        self.op: dict[str, str] = {}
        self.takes: dict[str, list[str]] = {}
        for part in parts:
            for node in part.node:
                sources = [name.lstrip("^").partition(":")[0] for name in node.input]
                self.op[node.name], self.takes[node.name] = node.op, sources
        for function in functions:
            for member in function.members:
                self.op[member.name] = member.type
                sources = [source.node.name for source in member.inputs]
                self.takes.setdefault(member.name, sources)

    def box(self, name: str, kind: str = "node") -> _Box:
        last = name.rpartition("/")[2]
        label = last if len(last) <= _LONGEST else f"{last[: _LONGEST - 1]}…"
        return _Box(kind, label, f"{name}: {self.op[name]}")

    def rows(self, names: Sequence[str]) -> list[list[str]]:
        """Arrange nodes in rows, each below its inputs."""
        return _layers(names, {name: self.takes[name] for name in names})


def _layers(names: Sequence[str], name_lists: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Group names by the longest path to them, without back edges."""
    depth: dict[str, int] = {}
    open_: set[str] = set()
    name_set = set(names)
    for name in names:
        waiting = [name]
        while waiting:
            top = waiting[-1]
            open_.add(top)
            sources = [s for s in name_lists.get(top, ()) if s in name_set]
            missing = [s for s in sources if s not in depth and s not in open_]
            if top in depth or not missing:
                depth[top] = 1 + max((depth.get(s, -1) for s in sources), default=-1)
                waiting.pop()
            else:
                waiting += missing
    result: list[list[str]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for name in names:
        result[depth[name]].append(name)
    return [row for row in result if row]  # cycles leave gaps


class _Picture:
    def __init__(self, parts: Iterable[Any], functions: Sequence[CompiledFunction]) -> None:
        self._nodes = _Nodes(parts, functions)
        self._instances: dict[str, list[tuple[int, int, _Box]]] = {}
        self._frames = [self._frame(index, function) for index, function in enumerate(functions)]
        remaining = [name for name in self._nodes.op if name not in self._instances]
        room = max(0, MOST - len(self._instances))
        self.left = max(0, len(remaining) - room)
        for name in remaining[:room]:
            self._instances[name] = [(-1, 0, self._nodes.box(name, "node plain"))]

    def _frame(self, index: int, function: CompiledFunction) -> _Box:
        """Return the frame of a function, with a row for each kernel."""
        frame = _Box("function", function.name, f"{function.name}: one call")
        node_names = {node.name for kernel in function.kernels for node in kernel.nodes}
        none = [member.name for member in function.members if member.name not in node_names]
        if none:
            box = _Box("none", "no loops", "known before it runs, or other views of memory")
            frame.rows.append([self._fill_box(box, none, index, -1)])
        for number, kernel in enumerate(function.kernels):
            names = [node.name for node in kernel.nodes]
            color = _COLORS[number % len(_COLORS)]
            box = _Box("kernel", kernel.name, f"{kernel.name}: {len(names)} nodes", color)
            box.key = f"{index}-{number}"
            frame.rows.append([self._fill_box(box, names, index, number)])
        return frame

    def _fill_box(self, box: _Box, names: Sequence[str], function: int, kernel: int) -> _Box:
        for row in self._nodes.rows(names):
            boxes = [self._nodes.box(name) for name in row]
            for name, item in zip(row, boxes, strict=True):
                self._instances.setdefault(name, []).append((function, kernel, item))
            box.rows += [boxes[i : i + 6] for i in range(0, len(boxes), 6)]
        return box

    def svg(self) -> str:
        root = self._arrange()
        edges = [self._edge(box, source) for box, source in self._edges()]
        note = f"{self.left} more nodes that run by their kernels are not drawn"
        notes = [f'<text x="10" y="14">{note}</text>'] if self.left else []
        width, height = root.width + 20, root.height + 20
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}"><style>{_STYLE}</style>{_TIP}'
        )
        frames = [line for box in root.inner_boxes() for line in box.frames()]
        labels = [line for box in root.inner_boxes() for line in box.labels()]
        return "\n".join([head, *notes, *frames, *edges, *labels, "</svg>\n"])

    def _arrange(self) -> _Box:
        """Arrange all frames and other nodes in rows of one box."""
        unit = {
            name: f"function {index[0][0]}" if index[0][0] >= 0 else name
            for name, index in self._instances.items()
        }
        boxes = {f"function {index}": frame for index, frame in enumerate(self._frames)}
        boxes |= {name: index[0][2] for name, index in self._instances.items() if index[0][0] < 0}
        name_lists: dict[str, list[str]] = {key: [] for key in boxes}
        for name in self._instances:
            sources = [unit[s] for s in self._nodes.takes[name] if s in unit]
            name_lists[unit[name]] += [source for source in sources if source != unit[name]]
        root = _Box("", "", "")
        for row in _layers(list(boxes), name_lists):
            root.rows += _wrap_row([boxes[key] for key in row])
        root.measure()
        root.place(10, 10)
        return root

    def _edges(self) -> Iterator[tuple[_Box, _Box]]:
        """Yield the edges from each node's box to its inputs' boxes, in the nearest kernel."""
        for name, instances in self._instances.items():
            for function, kernel, box in instances:
                for source in dict.fromkeys(self._nodes.takes[name]):
                    instance = self._instances.get(source, [])
                    candidates = [m for m in instance if m[0] == function and m[1] <= kernel]
                    if instance:
                        yield box, (candidates or instance)[-1][2]

    @staticmethod
    def _edge(box: _Box, source: _Box) -> str:
        x, y = source.x + source.width / 2, source.y + source.height
        end_x, end_y = box.x + box.width / 2, box.y
        bend = max(12.0, abs(end_y - y) / 2)
        return (
            f'<path class="edge" d="M{x:.1f} {y:.1f}C{x:.1f} {y + bend:.1f} '
            f'{end_x:.1f} {end_y - bend:.1f} {end_x:.1f} {end_y:.1f}"/>'
        )


def _wrap_row(boxes: Sequence[_Box]) -> list[list[_Box]]:
    """Split a row of boxes that is too wide into several rows."""
    box_rows: list[list[_Box]] = [[]]
    width = 0.0
    for box in boxes:
        box.measure()
        if box_rows[-1] and width + box.width > _WIDEST:
            box_rows.append([])
            width = 0.0
        box_rows[-1].append(box)
        width += box.width + _GAP
    return box_rows


def graph_picture(parts: Iterable[Any], functions: Sequence[CompiledFunction]) -> str:
    """Return an SVG document of a step.

    Args:
      parts: the partitions as `GraphDef`s.
      functions: the compiled functions.
    """
    return _Picture(parts, functions).svg()
