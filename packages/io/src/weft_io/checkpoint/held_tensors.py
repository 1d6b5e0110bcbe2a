"""Tensors held for an asynchronous save, from HoldForSave until the saver takes them.

A snapshot of a variable never changes: an update while the snapshot is held works on a copy.
Holding is therefore free. Each variable is copied at most once per save, and only if it is updated
while the save is being written.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from weft_io.checkpoint.save_items import Item
from weft_tensor import errors

_held: Final[dict[str, Sequence[Item]]] = {}


def hold(items: Sequence[Item]) -> str:
    """Hold items; return the name under which `take` finds them."""
    name = secrets.token_hex(8)
    _held[name] = items
    return name


def take(name: str) -> Sequence[Item]:
    """Return the items held under a name and stop holding them.

    Raises: NotFoundError: this process holds nothing under that name.
    """
    items = _held.pop(name, None)
    if items is None:
        raise errors.NotFoundError(
            f"this process holds no tensors for the save {name!r}; asynchronous saves require "
            "the variables in the saver's process"
        )
    return items


def drop(name: str) -> None:
    """Release the items held under a name, if any."""
    _held.pop(name, None)
