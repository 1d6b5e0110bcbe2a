"""Draws the pictures of the architecture page from the code: `python docs/draw.py` writes them.

packages.svg: the packages with their layers as import-linter's contracts name them, and an arrow
for each import between packages that does not follow from other arrows. way.svg: the functions of
other modules that a Run, a plan and a step call, in the order of the calls. The suite draws both
again.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "drawings"
SOURCES = {path.name: path for path in sorted(ROOT.glob("packages/*/src/weft*")) if path.is_dir()}
WIDTH, MARGIN, ROW, LETTER = 1000, 20, 30, 6.6
STYLE = """<style>
svg { --page: #fff; --text: #222; --faint: #555; --edge: #888; --frame: #eef3f8; --arrow: #444 }
@media (prefers-color-scheme: dark) { svg { --page: #0d1117; --text: #e6edf3; --faint: #9198a1;
  --edge: #6e7681; --frame: #161b22; --arrow: #b1bac4 } }
text { font: 12px sans-serif; fill: var(--text) } .title { font-weight: bold; font-size: 14px }
.small { font-size: 10px; fill: var(--faint) }
rect { fill: var(--page); stroke: var(--edge); rx: 4 } .frame { fill: var(--frame) }
.page { fill: var(--page); stroke: none } line { stroke: var(--arrow); stroke-width: 1.5 }
.tip { fill: var(--arrow) }
</style>
<defs><marker id="tip" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">
<path class="tip" d="M0,0 L9,4 L0,8 z"/></marker></defs>"""


class Box(NamedTuple):
    """A rectangle with lines of text."""

    x: float
    y: float
    width: float
    height: float

    def svg(self, *lines: str, kind: str = "") -> str:
        """The rectangle, with its first line of text in the middle and the rest small below it."""
        middle = self.x + self.width / 2
        top = self.y + self.height / 2 + 4 - 6 * (len(lines) - 1)
        texts = [
            f'<text class="{"small" if i else ""}" x="{middle:g}" y="{top + 13 * i:g}" '
            f'text-anchor="middle">{escape(line)}</text>'
            for i, line in enumerate(lines)
        ]
        rectangle = (
            f'<rect class="{kind}" x="{self.x:g}" y="{self.y:g}" '
            f'width="{self.width:g}" height="{self.height:g}"/>'
        )
        return "\n".join([rectangle, *texts])


def page(height: float, parts: list[str]) -> str:
    """A picture of these parts."""
    size = f'width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}"'
    background = f'<rect class="page" width="{WIDTH}" height="{height:g}"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, STYLE, background, *parts, "</svg>", ""])


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """An arrow to the second place."""
    ends = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
    return f'<line {ends} marker-end="url(#tip)"/>'


# ------------------------------------------------------------------------------- packages


def packages() -> str:
    """The packages, their layers, and what imports what."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rows: list[list[str]] = []
    layers: dict[str, list[list[str]]] = {}
    for contract in contracts["contracts"]:
        if contract["type"] == "layers":
            split = [[name.strip() for name in row.split("|")] for row in contract["layers"]]
            for container in contract.get("containers", [""]):
                layers[container] = split
    rows = layers.pop("")
    layers["weft"] = [["every public name, under TensorFlow 1.15's"]]
    layers["weft_client"] = [["C++17 headers"], ["C11 library"]]
    layers["weft_tensor"] = [list(modules(SOURCES["weft_tensor"]))]
    frames: dict[str, Box] = {}
    parts: list[str] = []
    y = float(MARGIN)
    for row in rows:
        width = (WIDTH - MARGIN * (len(row) + 1)) / len(row)
        for i, name in enumerate(row):
            x = MARGIN + i * (width + MARGIN)
            height = 34 + ROW * sum(len(wrapped(boxes, width)) for boxes in layers[name])
            frames[name] = Box(x, y, width, height)
            parts += frame(frames[name], name, layers[name])
        y += max(frames[name].height for name in row) + 40
    for upper, lower in sorted(arrows()):
        if upper not in frames or lower not in frames:
            continue  # an extra package
        a, b = frames[upper], frames[lower]
        narrow = min(a, b, key=lambda box: box.width)
        x = narrow.x + narrow.width / 2
        parts.append(arrow(x, a.y + a.height, x, b.y))
    return page(y, parts)


def modules(package: Path) -> Iterator[str]:
    """The modules and folders of a package."""
    for path in sorted(package.iterdir()):
        if path.name[0] != "_" and (path.suffix == ".py" or (path / "__init__.py").exists()):
            yield path.stem


def wrapped(names: list[str], width: float) -> list[list[str]]:
    """Names in lines that are not wider than a frame."""
    lines: list[list[str]] = [[]]
    for name in names:
        if lines[-1] and sum(_width(n) + 8 for n in [*lines[-1], name]) > width - 16:
            lines.append([])
        lines[-1].append(name)
    return lines


def _width(name: str) -> float:
    return LETTER * len(name) + 16


def frame(box: Box, name: str, layers: list[list[str]]) -> list[str]:
    """A package: its name, and a line of boxes for each layer."""
    y = box.y + 28
    parts = [
        box.svg(kind="frame"),
        f'<text class="title" x="{box.x + 10:g}" y="{box.y + 18:g}">{name}</text>',
    ]
    for layer in layers:
        for line in wrapped(layer, box.width):
            x = box.x + (box.width - sum(_width(n) + 8 for n in line) + 8) / 2
            for label in line:
                parts.append(Box(x, y, _width(label), ROW - 6).svg(label))
                x += _width(label) + 8
            y += ROW
    return parts


def arrows() -> set[tuple[str, str]]:
    """The imports between packages, without those that follow from others."""
    direct = {name: imported(path) - {name} for name, path in SOURCES.items()}

    def reach(name: str) -> set[str]:
        return direct[name].union(*(reach(lower) for lower in direct[name]))

    return {
        (upper, lower)
        for upper, lowers in direct.items()
        for lower in lowers
        if not any(lower in reach(other) for other in lowers - {lower})
    }


def imported(package: Path) -> set[str]:
    """The packages of ours that a package's modules import, at any time."""
    statement = re.compile(r"^ *(?:from|import) (\w+)", re.M)
    texts = [path.read_text(encoding="utf-8") for path in package.rglob("*.py")]
    return set().union(*map(statement.findall, texts)) & SOURCES.keys()


# --------------------------------------------------------------------- from feed to fetch

STAGES = {  # title, and the methods whose calls are the way
    "Each Run": [
        ("weft_exec.session.base", "BaseSession._signature"),
        ("weft_exec.session.base", "BaseSession._step"),
    ],
    "The first Run of a signature": [("weft_exec.session.planning", "Planner.plan")],
    "Each step": [
        ("weft_exec.executor.runner", "Runner.run"),
        ("weft_exec.executor.linear", "Segment.run"),
        ("weft_exec.executor.driver", "Driver.run"),
        ("weft_exec.executor.executable", "Executable.results"),
    ],
}
OPENED = (  # modules whose functions are looked into; others are shown as one box
    "weft_exec.session.session",
    "weft_exec.session.planning",
    "weft_exec.passes.prepare",
    "weft_exec.executor.derive",
    "weft_exec.executor.partitioned_step",
    "weft_exec.executor.runner",
)
SHOWN = (
    "weft_graph.passes",
    "weft_exec.passes",
    "weft_exec.placement",
    "weft_exec.executor",
    "weft_exec.session",
)


def way() -> str:
    """Return the functions that are called on the way from a feed to a fetch, in order."""
    parts: list[str] = []
    width = (WIDTH - MARGIN * (len(STAGES) + 1)) / len(STAGES)
    height = 0.0
    for i, (title, starts) in enumerate(STAGES.items()):
        x = MARGIN + i * (width + MARGIN)
        steps = [boxed for start in starts for boxed in grouped(start, starts)]
        boxes = [Box(x, MARGIN + 24 + 52 * n, width, 38) for n in range(len(steps))]
        parts.append(f'<text class="title" x="{x:g}" y="{MARGIN + 8}">{title}</text>')
        for box, (place, names) in zip(boxes, steps, strict=True):
            kind = "frame" if (place, names[0]) in starts else ""
            parts.append(box.svg(", ".join(names), place.replace(".", "/") + ".py", kind=kind))
        parts += [arrow(x + width / 2, box.y + 38, x + width / 2, box.y + 52) for box in boxes[:-1]]
        height = max(height, MARGIN + 24 + 52 * len(steps))
    return page(height + MARGIN, parts)


def grouped(start: tuple[str, str], starts: list[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """A start and what it calls, each once, with neighbors of one module together.

    What is called on several branches is where it is called last.
    """
    steps = [step for step in calls(*start) if step not in starts]
    boxes = [(start[0], [start[1]])]
    for place, name in reversed(dict.fromkeys(reversed(steps))):
        last, names = boxes[-1]
        room = len(", ".join([*names, name])) < 44
        if len(boxes) > 1 and last == place and room:
            names.append(name)
        else:
            boxes.append((place, [name]))
    return boxes


@cache
class Module:
    """A module's functions, methods and imports."""

    def __init__(self, name: str) -> None:
        path = SOURCES[name.split(".")[0]].parent / Path(*name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.tree = ast.parse(path.read_text())
        self.functions: dict[str, ast.FunctionDef] = {}
        self.imports: dict[str, tuple[str, str]] = {}
        self.bases: dict[str, str] = {}
        self.classes = {node.name for node in self.tree.body if isinstance(node, ast.ClassDef)}
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef):
                self.functions[node.name] = node
            elif isinstance(node, ast.ClassDef):
                for base in node.bases:
                    if isinstance(base, ast.Name) and base.id in self.classes:
                        self._inherit(node.name, base.id)
                for item in node.body:
                    if isinstance(item, ast.FunctionDef):
                        self.functions[f"{node.name}.{item.name}"] = item
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (node.module, alias.name)

    def _inherit(self, name: str, base: str) -> None:
        self.bases[name] = base
        for method, function in list(self.functions.items()):
            if method.startswith(f"{base}."):
                self.functions[f"{name}.{method.removeprefix(f'{base}.')}"] = function

    def parts_of(self, owner: str) -> dict[str, str]:
        """The classes of the attributes of a class, where it makes them itself."""
        made = self.parts_of(self.bases[owner]) if owner in self.bases else {}
        for name, function in self.functions.items():
            if name.startswith(f"{owner}."):
                returned = function.returns
                if isinstance(returned, ast.Name):
                    made[function.name] = returned.id
                for node in ast.walk(function):
                    match node:
                        case ast.AnnAssign(
                            target=ast.Attribute(attr=attr), annotation=ast.Name(id=kind)
                        ):
                            made[attr] = kind
                        case ast.Assign(
                            targets=[ast.Attribute(attr=attr)],
                            value=ast.Call(func=ast.Name(id=kind)),
                        ):
                            made[attr] = kind
        return made


def calls(name: str, start: str, within: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """The functions of other modules that a function calls, (module, name), in order."""
    if start in within:
        return
    module = Module(name)
    owner = start.rpartition(".")[0]
    function = module.functions[start]
    kinds = module.parts_of(owner) if owner else {}
    kinds |= {
        argument.arg: argument.annotation.id
        for argument in function.args.args
        if isinstance(argument.annotation, ast.Name)
    }
    for target in called(function):
        found = _resolved(module, name, owner, kinds, target)
        if found is None:
            continue
        place, inner = found
        if (place == name or place in OPENED) and inner in Module(place).functions:
            yield from calls(place, inner, (*within, start))
        elif place != name and place.startswith(SHOWN):
            yield found


def called(function: ast.FunctionDef) -> list[ast.expr]:
    """Return the functions that a function calls, in order, ignoring branches.

    A method of a new object counts as called where it is handed on, as in
    `call_quietly(Driver().run)`.
    """
    found: list[ast.expr] = []

    class Visitor(ast.NodeVisitor):
        def visit_Call(self, node: ast.Call) -> None:
            self.generic_visit(node)
            found.append(node.func)

        def visit_Attribute(self, node: ast.Attribute) -> None:
            self.generic_visit(node)
            if isinstance(node.value, ast.Call):
                found.append(node)

    for statement in function.body:
        Visitor().visit(statement)
    return found


def _resolved(
    module: Module, name: str, owner: str, kinds: dict[str, str], target: ast.expr
) -> tuple[str, str] | None:
    """The module and the function that are called; None where that is nothing of ours."""
    kind = ""
    match target:
        case ast.Name(id=function):
            if function in module.imports:
                return defined(*module.imports[function])
            return (name, function) if function in module.functions else None
        case ast.Attribute(value=ast.Name(id="self"), attr=method):
            return (name, f"{owner}.{method}") if f"{owner}.{method}" in module.functions else None
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=part)):
            kind = kinds.get(part, "")
        case ast.Attribute(value=ast.Name(id=part)):
            kind = kinds.get(part, "")
        case ast.Attribute(value=ast.Call(func=ast.Name(id=made))):
            kind = made
    if not isinstance(target, ast.Attribute) or kind not in module.imports:
        return None
    place, real = defined(*module.imports[kind])
    return place, f"{real}.{target.attr}"


def defined(place: str, name: str) -> tuple[str, str]:
    """Return the module that defines a name of a package's namespace."""
    if place.split(".")[0] not in SOURCES:
        return place, name
    module = Module(place)
    return defined(*module.imports[name]) if name in module.imports else (place, name)


DRAWINGS = {"packages.svg": packages, "way.svg": way}


def main() -> None:
    """Write the pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
