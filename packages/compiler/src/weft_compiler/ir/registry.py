"""Registry of routines by name, for programs in text form."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from weft_compiler.ir.program import Call
from weft_tensor import errors

_ROUTINES: Final[dict[str, type[Call]]] = {}
_BUILT_IN: Final = "weft_compiler.routines.registry"
"""The module that registers the routines of this package. It is above this one, so it is imported
by name when a routine is first looked up."""


def register(*routines: type[Call]) -> None:
    """Register routines, so that their calls can be parsed.

    Raises: AlreadyExistsError: another routine has the name.
    """
    for each in routines:
        if _ROUTINES.setdefault(each.routine, each) is not each:
            raise errors.AlreadyExistsError(f"there is a routine {each.routine!r} already")


def routines() -> dict[str, type[Call]]:
    """Return all routines by name."""
    import_module(_BUILT_IN)
    return dict(_ROUTINES)


def routine(name: str) -> type[Call]:
    """Return the routine with a name.

    Raises: NotFoundError: there is none.
    """
    known = routines()
    if name not in known:
        raise errors.NotFoundError(f"there is no routine {name!r}; there are {', '.join(known)}")
    return known[name]
