"""Registry of routines by name, for the parser."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from weft_compiler.ir.program import Call
from weft_tensor import errors

_ROUTINES: Final[dict[str, type[Call]]] = {}
_BUILT_IN: Final = "weft_compiler.routines.registry"
"""The module that registers this package's routines. It is imported by name, at the first lookup,
because it is in a higher layer.
"""


def register(*routines: type[Call]) -> None:
    """Register routines, so that their calls can be parsed.

    Raises: AlreadyExistsError: another routine has the name.
    """
    for routine in routines:
        name = routine.routine
        if _ROUTINES.setdefault(name, routine) is not routine:
            raise errors.AlreadyExistsError(f"a routine {name!r} is already registered")


def routines() -> dict[str, type[Call]]:
    """Return all routines by name."""
    import_module(_BUILT_IN)
    return dict(_ROUTINES)


def routine(name: str) -> type[Call]:
    """Return the routine with a name.

    Raises: NotFoundError: no routine has this name.
    """
    by_name = routines()
    if name not in by_name:
        listed = ", ".join(by_name)
        raise errors.NotFoundError(f"unknown routine {name!r}; the routines are {listed}")
    return by_name[name]
