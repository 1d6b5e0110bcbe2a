"""Sections of docstrings in the house form, without blank lines between, as pages show them.

`Args:`, `Attributes:` and `Examples:` become the tables and code that the reader of docstrings
makes of them; `Returns:`, `Raises:` and the like, which are sentences, become paragraphs and lists.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_SENTENCES = re.compile(r"^(Returns|Yields|Raises|Source)( \([^)]*\))?:(.*)$")
_TABLES = re.compile(r"^(Args|Attributes|Examples):$")
_ITEM = re.compile(r"^ {2}(\S[^:]*): ")


class HouseForm(griffe.Extension):
    """Rewrites every docstring when it has been read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each function, class, module and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = rewritten(obj.docstring.value)


def rewritten(text: str) -> str:
    """The docstring with blank lines between its sections."""
    made: list[str] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        sentence = _SENTENCES.match(lines[at])
        if sentence is None:
            made += [""] * bool(_TABLES.match(lines[at])) + [lines[at]]
            at += 1
            continue
        end = at + 1
        while end < len(lines) and lines[end].startswith("  "):
            end += 1
        title, when, first = sentence.groups()
        made += ["", f"**{title}{when or ''}:**{first}", *_body(first, lines[at + 1 : end]), ""]
        at = end
    return "\n".join(made)


def _body(first: str, lines: list[str]) -> list[str]:
    """What is under a title: the rest of its sentence, or a list."""
    if first:
        return [line.strip() for line in lines]
    return ["", *(_ITEM.sub(r"- `\1`: ", line) for line in lines)]
