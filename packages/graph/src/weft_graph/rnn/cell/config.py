"""Conversion of cells to serializable dictionaries and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft_graph.layers.arguments import activation_name
from weft_graph.layers.base import Layer
from weft_graph.variables import initializers


def to_config(value: Any) -> Any:
    """Convert a cell's argument to numbers, strings, lists and dictionaries if possible.

    Cells and initializers become their class name and arguments, and functions become their name.
    Functions without a known name, and tensors, are returned unchanged.
    """
    if isinstance(value, list | tuple):
        return [to_config(item) for item in value]
    if isinstance(value, initializers.Initializer) or hasattr(value, "zero_state"):
        return {"class_name": type(value).__name__, "config": value.get_config()}
    return activation_name(value) or value


def read(value: Any, base: type, custom_objects: dict[str, Any] | None = None) -> Any:
    """Convert a value back from the form of `to_config`.

    Args:
      value: result of `to_config`.
      base: base class of all cells.
      custom_objects: classes by name, which take precedence over known ones.
    Raises: InvalidArgumentError: a class is unknown.
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
    """Return the name of the dtype passed to a layer, or None."""
    dtype = layer._dtype
    return None if dtype is None else dtype.name


def _all_subclasses(base: type) -> Iterator[type]:
    """Yield subclasses of all depths, in the order of their definition."""
    nearest: list[type] = base.__subclasses__()
    for subclass in nearest:
        yield subclass
        yield from _all_subclasses(subclass)
