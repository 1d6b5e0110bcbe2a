"""Lazy loading of names on first use (PEP 562), for the modules of this package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any


def attach(
    package: str, *lazy_modules: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a module with submodules and lazy names.

    Type checkers read the same names from `import *` of the same modules.

    Args:
      package: the module's name.
      lazy_modules: modules whose public names the module re-exports. They are imported in order,
        until one has the requested name; `__version__` is in the last.
    """

    @cache
    def submodules() -> frozenset[str]:
        path = vars(sys.modules[package]).get("__path__", ())
        return frozenset(info.name for info in iter_modules(path) if info.name[0] != "_")

    def list_names() -> list[str]:
        public_names = {name for module in lazy_modules for name in _public(import_module(module))}
        return sorted({*vars(sys.modules[package]), *submodules(), *public_names})

    def load(name: str) -> Any:
        if name in submodules():
            return import_module(f"{package}.{name}")
        if _may_be_shown(name):
            for module in map(import_module, lazy_modules if name[0] != "_" else lazy_modules[-1:]):
                if name in _public(module):
                    value = vars(module)[name]
                    setattr(sys.modules[package], name, value)
                    return value
        module = sys.modules[package]
        raise AttributeError(
            f"module {package!r} has no attribute {name!r}{_hint(module, name, list_names)}",
            name=name,
            obj=module,
        )

    return load, list_names


def hint(package: str) -> None:
    """Let AttributeErrors of a module without lazy names suggest similar names."""
    vars(sys.modules[package])["__getattr__"], _ = attach(package)


def _public(module: ModuleType) -> list[str]:
    """Return the names that `import *` imports: `__all__`, if it exists."""
    return vars(module).get("__all__") or [name for name in vars(module) if _may_be_shown(name)]


def _may_be_shown(name: str) -> bool:
    """Return True if a name may be public, since tools probe many dunder names."""
    return name[0] != "_" or name == "__version__"


def _hint(module: ModuleType, name: str, list_names: Callable[[], list[str]]) -> str:
    if name[0] == "_":
        return ""
    from difflib import get_close_matches

    from weft._deprecated import advice

    similar = get_close_matches(name, list_names(), cutoff=0.8)
    return advice(module, name) or (f"; similar names: {', '.join(similar)}" if similar else "")
