"""Rewrite api.txt: the names of TensorFlow 1.15, and which of them weft has.

A block of api.txt is a line `[namespace] state` and names below it. The states are

    have      weft has the name
    beyond    weft has it, and TensorFlow 1.15 does not
    anything  weft does not have it yet; the words say what it belongs to

Names that came move to "have", and new ones of weft's own are added. A name that was there and is
gone stays, so that the test goes on failing until it is back or is taken out by hand.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import weft as wf

FILE = Path(__file__).with_name("api.txt")
HAVE, BEYOND = "have", "beyond"

EXTRA = {"contrib", "lite"}
"""Namespaces of packages that need not be installed."""

Api = dict[tuple[str, str], set[str]]


def read() -> Api:
    """Names by namespace and state."""
    api: Api = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            namespace, _, state = line[1:].partition("] ")
            names = api[namespace, state] = set()
        else:
            names.update(line.split())
    return api


def write(api: Api) -> None:
    """Write the file in an order that does not depend on `api`."""
    blocks = []
    for (namespace, state), names in sorted(api.items(), key=_order):
        if names:
            text = " ".join(sorted(names))
            lines = textwrap.wrap(text, 98, break_on_hyphens=False)
            blocks.append("\n".join([f"[{namespace}] {state}", *lines, ""]))
    FILE.write_text("\n".join(blocks), encoding="utf-8")


def _order(item: tuple[tuple[str, str], set[str]]) -> tuple[str, bool, bool, str]:
    (namespace, state), _ = item
    return namespace, state != HAVE, state != BEYOND, state


def find(namespace: str) -> Any:
    """The namespace "wf", "wf.nn" or "wf.nn.rnn_cell"; None where there is none."""
    found: Any = wf
    for part in namespace.split(".")[1:]:
        found = getattr(found, part, None)
    return found


def has(namespace: str, name: str) -> bool:
    """Return True if the namespace exists and has the name."""
    found = find(namespace)
    return found is not None and hasattr(found, name)


def public(namespace: str) -> set[str]:
    """All names that the namespace shows."""
    return {name for name in dir(find(namespace)) if name[0] != "_" and name not in EXTRA}


def namespaces() -> list[str]:
    """The namespaces that weft has; `wf.flags` is absl's, `wf.raw_ops` has a name for each op."""
    names = [name for name in dir(wf) if name not in EXTRA]
    modules = [name for name in names if isinstance(getattr(wf, name), ModuleType)]
    skipped = ("flags", "raw_ops")
    return ["wf", *(f"wf.{name}" for name in modules if name[0] != "_" and name not in skipped)]


def main() -> None:
    """Update the file."""
    api = read()
    for (namespace, state), names in list(api.items()):
        if state not in (HAVE, BEYOND):
            came = {name for name in names if has(namespace, name)}
            api.setdefault((namespace, HAVE), set()).update(came)
            names -= came
    within = {place for place, state in api if state == HAVE and place.count(".") > 1}
    for namespace in [*namespaces(), *sorted(within)]:
        listed = set().union(*(names for (place, _), names in api.items() if place == namespace))
        api.setdefault((namespace, BEYOND), set()).update(public(namespace) - listed)
    write(api)


if __name__ == "__main__":
    main()
