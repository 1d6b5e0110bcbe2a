"""Sections of docstrings in the house form, without blank lines between, as pages show them.

`Args:`, `Attributes:` and `Examples:` become the tables and code that the reader of docstrings
makes of them, with one row for each name of `x, y: tensors`, so that each finds its default.
`Returns:`, `Raises:` and the like, which are sentences, become paragraphs and lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import griffe

_SENTENCES = re.compile(r"^(Returns|Yields|Raises|Source)( \([^)]*\))?:(.*)$")
_TABLES = re.compile(r"^(Args|Attributes|Examples):$")
_ITEM = re.compile(r"^ {2}(\S[^:]*): ")
_ROW = re.compile(r"^ {2}(\S[^:]*|):(?: |$)")


class HouseForm(griffe.Extension):
    """Rewrites every docstring when it has been read, and gives named tuples their `__init__`."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each function, module and attribute, and for each class before its members."""
        if obj.docstring is not None and not obj.is_class:
            obj.docstring.value = rewritten(obj.docstring.value, parameters(obj))

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Called for each class with its members."""
        if any(str(base).endswith("NamedTuple") for base in cls.bases):
            cls.set_member("__init__", tuple_initializer(cls))

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Called for each package when it has been read: now classes know what they inherit."""
        for cls in _classes(pkg):
            if cls.docstring is not None:
                cls.docstring.value = rewritten(cls.docstring.value, parameters(cls))


def _classes(scope: griffe.Object) -> Iterator[griffe.Class]:
    """The classes of a module, of its submodules, and of these classes."""
    for member in scope.members.values():
        if isinstance(member, griffe.Module | griffe.Class):
            yield from _classes(member)
        if isinstance(member, griffe.Class):
            yield member


def parameters(obj: griffe.Object) -> list[str]:
    """The names of the parameters of a function or a class."""
    if isinstance(obj, griffe.Function | griffe.Class):
        return [parameter.name for parameter in obj.parameters]
    return []


def rewritten(text: str, parameters: Sequence[str] = ()) -> str:
    """The docstring with blank lines between its sections, and one row for each of `parameters`."""
    result: list[str] = []
    lines = text.splitlines()
    start = 0
    while start < len(lines):
        line = lines[start]
        end = start + 1
        while end < len(lines) and lines[end].startswith("  "):
            end += 1
        body = lines[start + 1 : end]
        if sentence := _SENTENCES.match(line):
            title, when, first = sentence.groups()
            result += ["", f"**{title}{when or ''}:**{first}", *_body(first, body), ""]
        elif table := _TABLES.match(line):
            result += ["", line, *(body if table[1] == "Examples" else _rows(body, parameters))]
        else:
            result += [line, *body]
        start = end
    return "\n".join(result)


def tuple_initializer(cls: griffe.Class) -> griffe.Function:
    """The `__init__` that a named tuple has without defining it."""
    kind = griffe.ParameterKind.positional_or_keyword
    fields = [
        griffe.Parameter(name, annotation=member.annotation, kind=kind, default=member.value)
        for name, member in cls.members.items()
        if member.is_attribute and member.annotation is not None
    ]
    return griffe.Function("__init__", parameters=griffe.Parameters(*fields), parent=cls)


def _rows(lines: Sequence[str], parameters: Sequence[str]) -> list[str]:
    """Repeat the description of `x, y: tensors` for each name."""
    result: list[str] = []
    names: list[str] = []
    description: list[str] = []
    for line in [*lines, "  :"]:  # an item without a name ends the last one
        if item := _ROW.match(line):
            for name in names:
                result += [f"  {name}: {description[0]}".rstrip(), *description[1:]]
            names = _expand(item[1].split(", "), parameters) if item[1] else []
            description = [line[item.end() :]]
        else:
            description.append(line)
    return result


def _expand(names: list[str], parameters: Sequence[str]) -> list[str]:
    """Replace the dots in `a, ..., d` by the parameters between `a` and `d`."""
    position = names.index("...") if "..." in names else len(names)
    before, after = names[:position], names[position + 1 :]
    if position == len(names) or not {before[-1], *after[:1]} <= set(parameters):
        return names
    first = parameters.index(before[-1]) + 1
    last = parameters.index(after[0]) if after else len(parameters)
    return [*before, *parameters[first:last], *after]


def _body(first: str, lines: list[str]) -> list[str]:
    """Return the text under a title: the rest of its sentence, or a list."""
    if first:
        return [line.strip() for line in lines]
    return ["", *(_ITEM.sub(r"- `\1`: ", line) for line in lines)]
