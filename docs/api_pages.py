"""Generates the API pages, one for each namespace of `weft` and one of messages.

The build of the pages calls it as a hook. The names are those of `tests/weft/api.txt`, which the
suite compares with the code; the descriptions are the docstrings.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import griffe
import message_page

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
SHADOWED = {  # functions whose names submodules of the same package have, too
    "weft_io.onnx.exporter": "weft_io.onnx.registry.exporter",
    "weft_io.onnx.importer": "weft_io.onnx.registry.importer",
}
BLOCK = """\
::: {path}
    options:
      heading_level: {level}
      inherited_members: true
"""
HEADING = """\
      heading: {namespace}.{name}
      toc_label: {name}
"""
REPEATED = """\
      skip_local_inventory: true
"""
OTHER_NAME = """\
{marks} {namespace}.{name}

Another name of `{original}`.
"""
BOOST = 4.0
"""Weight in searches of an entry whose full name is one word; that of guides is 1."""

WORD = re.compile(r"[A-Z]+[a-z0-9]*|[a-z0-9]+")

LIST = "<!-- namespaces -->"
"""Place of the table of namespaces on the page `api/index.md`."""


class Entry(NamedTuple):
    """A public function, class or documented value, as a page shows it."""

    name: str
    """Its name in the namespace."""

    module: str
    """The module that defines it."""

    path: str
    """The path under which the reader of docstrings finds it."""

    original: str
    """The name in its definition; another one than `name` after `name = original`."""


def on_config(config: Any) -> Any:
    """Put the pages into the navigation."""
    groups = {title: entries for entry in config.nav for title, entries in entry.items()}
    api = next(entry["API"] for entry in groups["Reference"] if "API" in entry)
    api[1:1] = [{title: path} for path, title, _ in pages()]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to those of the folder."""
    from mkdocs.structure.files import File

    for path, title, blocks in pages():
        text = f"# {title}\n\n" + "\n".join(blocks)
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **kwargs: Any) -> str:
    """Put the table of namespaces into the first API page."""
    return markdown.replace(LIST, namespaces()) if page.file.src_uri == "api/index.md" else markdown


def on_post_build(config: Any) -> None:
    """Weight the entries in the index of the search."""
    path = Path(config.site_dir) / "search" / "search_index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    for section in index["docs"]:
        if section["location"].startswith("api/"):
            section["boost"] = boost(section["location"], section["title"])
    path.write_text(json.dumps(index, separators=(",", ":")), encoding="utf-8")


def boost(location: str, title: str) -> float:
    """Return the weight of an API section in searches.

    A search for `conv2d` matches all names with this word. The shortest name is meant, but the
    search prefers rare words, such as those of longer names.
    """
    if location.startswith("api/messages/"):
        return 0.5
    if "#" not in location or not title.startswith("wf."):
        return 1.0
    return float(BOOST / len(WORD.findall(title.removeprefix("wf."))) ** 1.25)


def namespaces() -> str:
    """Return the table of all namespaces, with the first lines of their docstrings."""
    rows = ["| Namespace | Contents | Entries |", "|---|---|---:|"]
    for path, title, blocks in pages():
        link = f"[{title}]({path.removeprefix('api/')})"
        if title.startswith("wf."):
            docstring = find(load(), title.removeprefix("wf.")).docstring
            contents = docstring.value.splitlines()[0].removeprefix(f"`{title}`").strip(":. ")
            rows.append(f"| {link} | {contents} | {len(blocks)} |")
        elif title != "Messages":
            rows.append(f"| `wf`: {link} | | {len(blocks)} |")
    return "\n".join(rows) + "\n"


@cache
def pages() -> list[tuple[str, str, list[str]]]:
    """Path, title and blocks of each page."""
    shown = dict(entries())
    areas: dict[str, list[Entry]] = defaultdict(list)
    for entry in shown.pop("wf"):
        areas[area(entry.module)].append(entry)
    result = [
        (f"api/{title.lower().replace(' ', '-')}.md", title, by_module(areas[title]))
        for title in dict.fromkeys(AREAS.values())
        if areas[title]
    ]
    described = {entry.path for listed in areas.values() for entry in listed}
    for namespace, listed in shown.items():
        blocks = [
            block(entry, listed, namespace, 2, repeated=entry.path in described) for entry in listed
        ]
        described.update(entry.path for entry in listed)
        result.append((f"api/{namespace}.md", namespace, blocks))
    result.append(("api/messages.md", "Messages", message_page.blocks(message_names())))
    return result


@cache
def entries() -> dict[str, list[Entry]]:
    """The entries of each namespace, by name."""
    weft = load()
    result = {}
    for namespace, names in sorted(public().items()):
        scope = weft if namespace == "wf" else find(weft, namespace.removeprefix("wf."))
        listed = [describe(scope, name) for name in sorted(names)] if scope else []
        if any(listed):
            result[namespace] = [entry for entry in listed if entry]
    return result


def message_names() -> dict[str, str]:
    """The shortest public name of each thing that is called like a message, by that."""
    names = [(name, f"{space}.{name}") for space, known in public().items() for name in known]
    return dict(sorted(names, key=lambda pair: (-len(pair[1]), pair[1])))


def by_module(listed: list[Entry]) -> list[str]:
    """Return the blocks of entries, below the first lines of their modules' docstrings."""
    blocks = []
    for module in sorted({entry.module for entry in listed}):
        title = load().modules_collection[module].docstring
        blocks.append(f"## {title.value.splitlines()[0].rstrip('.:')}\n" if title else "")
        members = [entry for entry in listed if entry.module == module]
        blocks += [block(entry, listed, "wf", level=3) for entry in members]
    return blocks


def block(
    entry: Entry, listed: list[Entry], namespace: str, level: int, repeated: bool = False
) -> str:
    """Return the text of an entry; a second name of one in `listed` refers to the first.

    The heading has the namespace, so that a search for `layers.conv2d` finds it.

    Args:
      repeated: True if an earlier page describes the same path; links then lead to that page.
    """
    same = (entry.module, entry.original)
    if entry.name != entry.original and any((each.module, each.name) == same for each in listed):
        return OTHER_NAME.format(
            marks="#" * level, namespace=namespace, name=entry.name, original=entry.original
        )
    text = BLOCK.format(path=entry.path, level=level) + (REPEATED if repeated else "")
    return text + HEADING.format(namespace=namespace, name=entry.name)


def area(module: str) -> str:
    """The page of a name of `wf` itself, by the module that defines it."""
    return next(title for prefix, title in AREAS.items() if module.startswith(prefix))


@cache
def load() -> griffe.Module:
    """The umbrella, read but not imported."""
    loader = griffe.GriffeLoader(
        extensions=griffe.load_extensions(ROOT / "docs" / "house_form.py"),
        search_paths=[str(path) for path in sorted(ROOT.glob("packages/*/src"))],
    )
    for path in sorted(ROOT.glob("packages/*/src/weft_*")):
        if path.name == "weft_compiler":  # which `weft` does not import
            continue
        loader.load(path.name)  # first: `weft` shows the names in `import *` of modules read before
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
    """A namespace of the umbrella, None where another distribution defines the module."""
    try:
        return weft[path]
    except KeyError:
        return None


def describe(scope: griffe.Module, name: str) -> Entry | None:
    """Return the entry of a name.

    None for modules, messages, values without a docstring, and what other distributions define.

    Raises: KeyError: the namespace has no such name.
    """
    member = scope[name]
    try:
        target = definition(member)
    except griffe.AliasResolutionError:
        return None
    module = str(target.module.path)
    is_public = target.is_function or target.is_class or (target.is_attribute and target.docstring)
    if not is_public or module.startswith("weft_graph.proto"):
        return None
    is_imported = member.is_alias and member.final_target is target
    path = f"{scope.path}.{name}" if is_imported and name == target.name else target.path
    return Entry(name, module, path, target.name)


def definition(member: Any) -> Any:
    """Follow imports and assignments of names to what they name.

    Raises: AliasResolutionError: another distribution defines it.
    """
    target = member.final_target if member.is_alias else member
    if target.is_attribute and isinstance(target.value, griffe.ExprName | griffe.ExprAttribute):
        value: Any = target.module
        for part in str(target.value).split("."):  # Tensor = _node.Output
            value = value.members.get(part)
            if value is None:  # a builtin, or an attribute of a value
                return target
            value = value.final_target if value.is_alias else value
        return definition(value)
    if target.path in SHADOWED:
        return load().modules_collection[SHADOWED[target.path]]
    return target
