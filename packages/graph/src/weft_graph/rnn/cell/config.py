"""Cells as dictionaries that can be written down, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft_graph.layers.arguments import activation_name
from weft_graph.layers.base import Layer
from weft_graph.variables import initializers


def written(value: Any) -> Any:
    """Return a cell's argument as numbers, strings, lists and dictionaries where possible.

    Cells and initializers become their class's name and their own arguments, functions the name
    that cells take for them; functions without one, and tensors, stay what they are.
    """
    if isinstance(value, list | tuple):
        return [written(item) for item in value]
    if isinstance(value, initializers.Initializer) or hasattr(value, "zero_state"):
        return {"class_name": type(value).__name__, "config": value.get_config()}
    return activation_name(value) or value


def read(value: Any, base: type, custom_objects: dict[str, Any] | None = None) -> Any:
    """Return the value that `written` converted.

    Args:
      value: what `written` returned.
      base: the class that all cells are of.
      custom_objects: classes by their names, before those that are known.
    Raises: InvalidArgumentError: an unknown class.
    """
    if isinstance(value, list):
        return [read(item, base, custom_objects) for item in value]
    if not isinstance(value, dict) or set(value) != {"class_name", "config"}:
        return value
    name, config = value["class_name"], value["config"]
    cls: Any = (custom_objects or {}).get(name)
    if cls is None:
        cls = next(
            (subclass for subclass in _all_subclasses(base) if subclass.__name__ == name), None
        )
    if cls is None:
        return initializers.get(value)
    return cls.from_config(config, custom_objects)


def type_name(layer: Layer) -> str | None:
    """Return the name of the type that a layer was made with, if there was one."""
    dtype = layer._dtype
    return None if dtype is None else dtype.name


def _all_subclasses(base: type) -> Iterator[type]:
    """Yield subclasses of all depths, in the order of their definition."""
    nearest: list[type] = base.__subclasses__()
    for subclass in nearest:
        yield subclass
        yield from _all_subclasses(subclass)
