"""Names that load when they are first used (PEP 562), for the modules of this package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def attach(
    package: str, namespaces: Iterable[str] = (), names: Mapping[str, Iterable[str]] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a module.

    Args:
      package: the module's own name.
      namespaces: submodules of it.
      names: module to names in it, which the module shows as its own.
    """
    owners = {name: module for module, owned in (names or {}).items() for name in owned}
    modules = {name: f"{package}.{name}" for name in namespaces}

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *owners, *modules})

    def load(name: str) -> Any:
        if name in modules:
            return import_module(modules[name])
        if name in owners:
            value = getattr(import_module(owners[name]), name)
            setattr(sys.modules[package], name, value)
            return value
        raise AttributeError(
            f"module {package!r} has no attribute {name!r}{_near(name, list_names())}",
            name=name,
            obj=sys.modules[package],
        )

    return load, list_names


def _near(name: str, known: list[str]) -> str:
    if name.startswith("_"):  # what interpreters and tools ask every module for
        return ""
    from difflib import get_close_matches

    near = get_close_matches(name, known, cutoff=0.8)
    return f"; near misses are {', '.join(near)}" if near else ""
