"""Tensors held for an asynchronous save, from HoldForSave until the saver takes them.

A variable's snapshot never changes: whoever updates the variable while the snapshot is held works
on a copy. So holding costs nothing by itself, and the copies are made by those updates that come
while the save is being written, each variable once.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from weft_io.checkpoint.items import Item
from weft_tensor import errors

_held: Final[dict[str, Sequence[Item]]] = {}


def hold(items: Sequence[Item]) -> str:
    """Keep items; the name under which `take` finds them."""
    name = secrets.token_hex(8)
    _held[name] = items
    return name


def take(name: str) -> Sequence[Item]:
    """Return the items that are held under a name, which are not held any longer.

    Raises: NotFoundError: there are none in this process.
    """
    items = _held.pop(name, None)
    if items is None:
        raise errors.NotFoundError(
            f"this process holds no tensors for the save {name!r}; asynchronous saves require "
            "the variables in the saver's process"
        )
    return items


def drop(name: str) -> None:
    """Release the tensors held under a name, if they are still held."""
    _held.pop(name, None)
