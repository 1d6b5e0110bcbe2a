"""Messages that graphs and what is in them turn into, written by whoever knows the format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft_graph.ir.registry import Registry
from weft_tensor import shape

writers: Registry[Callable[..., Any]] = Registry("message", "weft_graph.messages")
"""From an object to a message, by the name of the message."""

readers: Registry[Callable[..., Any]] = Registry("message", "weft_graph.messages")
"""What fills in an object from a message, by the name of the message."""


shape.message_of = lambda dims: to_message("TensorShapeProto", dims)


def to_message(kind: str, thing: Any, *options: Any) -> Any:
    """`thing` as a message of a kind: "GraphDef", "NodeDef", "FunctionDef" or "VariableDef"."""
    return writers.lookup(kind)(thing, *options)
