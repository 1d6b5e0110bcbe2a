"""Rewrite undocumented.txt: public callables with incomplete documentation.

A block of undocumented.txt is a line `[arguments]` or `[example]` and names below it: those whose
docstring has no `Args:` though they take arguments, and those whose docstring has no `>>>`. The
file may only shrink. A callable with several public names stands there under the shortest.
"""

from __future__ import annotations

import inspect
import runpy
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("undocumented.txt")
SPEAK_FOR_THEMSELVES = {"self", "cls", "name"}
api: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("write_api.py")))
PRESENT = (api["HAVE"], api["BEYOND"])

Missing = dict[str, set[str]]


def callables() -> Iterator[tuple[str, Any]]:
    """Yield each public function and class of weft once, without errors and messages."""
    seen: dict[int, tuple[str, Any]] = {}
    for namespace in sorted({place for place, state in api["read"]() if state in PRESENT}):
        for name in api["public"](namespace):
            value = getattr(api["find"](namespace), name)
            if not callable(value) or not str(getattr(value, "__module__", "")).startswith("weft"):
                continue
            if isinstance(value, type) and (
                issubclass(value, BaseException) or hasattr(value, "DESCRIPTOR")
            ):
                continue
            full = f"{namespace}.{name}"
            known = seen.get(id(value))
            if known is None or (len(full), full) < (len(known[0]), known[0]):
                seen[id(value)] = (full, value)
    return iter(sorted(seen.values(), key=lambda item: item[0]))


def missing() -> Missing:
    """Names, by the missing part of their documentation."""
    found: Missing = {"arguments": set(), "example": set()}
    for name, value in callables():
        text = own_doc(value)
        if "Args:" not in text and _takes_arguments(value):
            found["arguments"].add(name)
        if ">>>" not in text:
            found["example"].add(name)
    return found


def own_doc(value: Any) -> str:
    """The docstring; that of a class is not its base's."""
    return str(vars(value).get("__doc__") if isinstance(value, type) else value.__doc__)


def _takes_arguments(value: Any) -> bool:
    try:
        return bool(inspect.signature(value).parameters.keys() - SPEAK_FOR_THEMSELVES)
    except ValueError:  # a class of C has none
        return False


def read() -> Missing:
    """Return the text of the file."""
    told: Missing = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            names = told[line.strip("[]")] = set()
        else:
            names.update(line.split())
    return told


def main() -> None:
    """Write the file."""
    blocks = []
    for what, names in missing().items():
        lines = textwrap.wrap(" ".join(sorted(names)), 98, break_on_hyphens=False)
        blocks.append("\n".join([f"[{what}]", *lines, ""]))
    FILE.write_text("\n".join(blocks), encoding="utf-8")


if __name__ == "__main__":
    main()
