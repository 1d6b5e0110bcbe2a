"""Registry of conversions of graphs and their parts to messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft_graph.ir.registry import Registry
from weft_tensor import shape

writers: Registry[Callable[..., Any]] = Registry("message", "weft_graph.messages")
"""Functions that convert an object to a message, by name of the message."""

readers: Registry[Callable[..., Any]] = Registry("message", "weft_graph.messages")
"""Functions that fill an object from a message, by name of the message."""


shape.message_of = lambda dims: to_message("TensorShapeProto", dims)


def to_message(kind: str, thing: Any, *options: Any) -> Any:
    """Convert `thing` to a message: "GraphDef", "NodeDef", "FunctionDef" or "VariableDef"."""
    return writers.lookup(kind)(thing, *options)
