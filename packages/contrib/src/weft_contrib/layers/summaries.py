"""Summaries of activations and variables."""

from __future__ import annotations

__all__ = [
    "summarize_activation",
    "summarize_activations",
    "summarize_collection",
    "summarize_tensor",
    "summarize_tensors",
    "summarize_variables",
]

from collections.abc import Callable
from typing import Any

from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_collection
from weft_graph.nn.activation import zero_fraction
from weft_graph.ops import comparison
from weft_io import summary


def summarize_tensor(tensor: Any, tag: str | None = None) -> Any:
    """Create a scalar summary of a tensor of rank 0, and a histogram of any other.

    Args:
      tensor: a tensor.
      tag: tag of the summary; the tensor's name by default.
    """
    write = summary.scalar if tensor.shape.ndims == 0 else summary.histogram
    return write(tag or f"{tensor.op.name}_summary", tensor)


def summarize_activation(op: Any) -> Any:
    """Create a histogram of an activation, and for ReLU and softmax the fraction near 0.

    Args:
      op: a tensor.
    """
    name = op.op.name
    if op.op.type in ("Relu", "Softplus", "Relu6"):
        summary.scalar(f"{name}/zeros", zero_fraction(op))
    if op.op.type == "Relu6":
        summary.scalar(f"{name}/sixes", zero_fraction(comparison.not_equal(op, 6.0)))
    return summary.histogram(f"{name}/activation", op)


def summarize_tensors(tensors: Any, summarizer: Callable[..., Any] = summarize_tensor) -> list[Any]:
    """Create a summary of each tensor.

    Args:
      tensors: a list.
      summarizer: function that summarizes one tensor.
    """
    return [summarizer(tensor) for tensor in tensors]


def summarize_collection(
    collection: str,
    name_filter: str | None = None,
    summarizer: Callable[..., Any] = summarize_tensor,
) -> list[Any]:
    """Create a summary of each tensor of a collection.

    Args:
      collection: key of the collection.
      name_filter: pattern for the beginning of names.
      summarizer: function that summarizes one tensor.
    """
    return [summarizer(tensor) for tensor in get_collection(collection, name_filter)]


def summarize_activations(
    name_filter: str | None = None, summarizer: Callable[..., Any] = summarize_activation
) -> list[Any]:
    """Create a summary of each tensor in ACTIVATIONS.

    Args:
      name_filter, summarizer: as for `summarize_collection`.
    """
    return summarize_collection(GraphKeys.ACTIVATIONS, name_filter, summarizer)


def summarize_variables(
    name_filter: str | None = None, summarizer: Callable[..., Any] = summarize_tensor
) -> list[Any]:
    """Create a summary of each global variable.

    Args:
      name_filter, summarizer: as for `summarize_collection`.
    """
    return summarize_collection(GraphKeys.GLOBAL_VARIABLES, name_filter, summarizer)
