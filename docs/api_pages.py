"""Makes the API pages, one for each namespace of `weft` and one of messages, from the public names.

The build of the pages calls it as a hook. The names are those of `tests/weft/api.txt`, which the
suite holds against the code; the descriptions are the docstrings.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import griffe
import message_page
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
NAMES = ROOT / "tests" / "weft" / "api.txt"
AREAS = {  # where a name of `wf` itself is defined, and the page it is on
    "weft_exec": "Sessions",
    "weft_graph.ir": "Graphs",
    "weft_graph.messages": "Graphs",
    "weft_graph.variables": "Variables",
    "weft_graph.control_flow": "Control flow",
    "weft_graph.functions": "Functions",
    "weft_autodiff": "Gradients",
    "weft_graph.ops": "Operations",
    "weft_graph.ragged": "Ragged tensors",
    "weft_graph.metrics": "Operations",
    "weft_io": "Input",
    "weft_tensor": "Types and shapes",
    "weft": "Logging",
}
BLOCK = """\
::: {path}
    options:
      heading_level: {level}
      inherited_members: true
"""


def on_config(config: Any) -> Any:
    """Put the pages into the navigation."""
    api = next(entry["API"] for entry in config.nav if isinstance(entry, dict) and "API" in entry)
    api[1:1] = [{title: path} for path, title, _ in pages()]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to those of the folder."""
    for path, title, blocks in pages():
        text = f"# {title}\n\n" + "\n".join(blocks)
        files.append(File.generated(config, path, content=text))
    return files


@cache
def pages() -> list[tuple[str, str, list[str]]]:
    """Path, title and blocks of each page."""
    weft = load()
    areas: dict[str, list[tuple[str, str]]] = defaultdict(list)
    spaces: dict[str, list[str]] = {}
    for namespace, names in sorted(public().items()):
        place = weft if namespace == "wf" else find(weft, namespace.removeprefix("wf."))
        if place is None:
            continue
        shown = [described(place, name) for name in sorted(names)]
        known = [found for found in shown if found]
        if namespace == "wf":
            for module, path in known:
                areas[area(module)].append((module, path))
        elif known:
            spaces[namespace] = [path for _, path in known]
    made = [
        (f"api/{title.lower().replace(' ', '-')}.md", title, by_module(weft, areas[title]))
        for title in dict.fromkeys(AREAS.values())
        if areas[title]
    ]
    for namespace, paths in spaces.items():
        blocks = [BLOCK.format(path=path, level=2) for path in paths]
        made.append((f"api/{namespace}.md", namespace, blocks))
    made.append(("api/messages.md", "Messages", message_page.blocks(message_names())))
    return made


def message_names() -> dict[str, str]:
    """The shortest public name of each thing that is called like a message, by that."""
    names = [(name, f"{space}.{name}") for space, known in public().items() for name in known]
    return dict(sorted(names, key=lambda pair: (-len(pair[1]), pair[1])))


def by_module(weft: griffe.Module, names: list[tuple[str, str]]) -> list[str]:
    """The blocks of names, under what their modules say of themselves."""
    blocks = []
    for module in dict.fromkeys(module for module, _ in sorted(names)):
        title = weft.modules_collection[module].docstring
        blocks.append(f"## {title.value.splitlines()[0].rstrip('.:')}\n" if title else "")
        blocks += [BLOCK.format(path=path, level=3) for home, path in names if home == module]
    return blocks


def area(module: str) -> str:
    """The page of a name of `wf` itself, by the module that defines it."""
    return next(title for prefix, title in AREAS.items() if module.startswith(prefix))


def load() -> griffe.Module:
    """The umbrella, read but not imported."""
    loader = griffe.GriffeLoader(
        search_paths=[str(path) for path in sorted(ROOT.glob("packages/*/src"))]
    )
    module = loader.load("weft")
    loader.resolve_aliases(external=True)
    assert isinstance(module, griffe.Module)
    return module


def public() -> dict[str, set[str]]:
    """The names that are there, by namespace."""
    names: dict[str, set[str]] = defaultdict(set)
    there = False
    for line in NAMES.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            namespace, _, state = line[1:].partition("] ")
            there = state in ("have", "beyond")
        elif there:
            names[namespace].update(line.split())
    return names


def find(weft: griffe.Module, path: str) -> Any:
    """A namespace of the umbrella, None where it is a module of somebody else's."""
    try:
        return weft[path]
    except KeyError:
        return None


def described(place: Any, name: str) -> tuple[str, str] | None:
    """The module that defines a function or a class, and the path under which to describe it.

    None for messages, values and modules, and for other names of what is described already.
    """
    try:
        found = place[name]
        if found.is_attribute and str(found.value).startswith("_"):  # Tensor = _node.Output
            module, _, inner = str(found.value).partition(".")
            found = place[module].final_target[inner] if place[module].is_alias else found
        target = found.final_target if found.is_alias else found
    except (KeyError, griffe.AliasResolutionError):
        return None
    if not (target.is_function or target.is_class) or target.path.startswith("weft_graph.proto"):
        return None
    path = f"{place.path}.{name}" if found.is_alias else target.path
    return str(target.module.path), path
