"""The values that branches return and loops carry, as flat lists of outputs.

A structure nests lists, tuples, named tuples and dictionaries; its leaves are tensors or
composites: a TensorArray is represented by its flow, sparse and ragged values by their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft_graph.control_flow.tensor_array import TensorArray, rebuild
from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.composite import CompositeTensor
from weft_graph.ir.node import Output
from weft_graph.ops import identity
from weft_tensor import errors

Rebuild = Callable[[Sequence[Output]], Any]


def parts_of(leaf: Any) -> list[Output]:
    """Return the outputs of a leaf."""
    if isinstance(leaf, TensorArray):
        return [leaf.flow]
    if isinstance(leaf, CompositeTensor):
        return list(leaf.parts)
    value = convert_to_tensor(leaf)
    return [identity.identity(value) if value.dtype.is_ref else value]


def rebuild_leaf(leaf: Any, parts: Sequence[Output]) -> Any:
    """Return a leaf like `leaf` with other outputs."""
    if isinstance(leaf, TensorArray):
        return rebuild(leaf, parts[0])
    if isinstance(leaf, CompositeTensor):
        return leaf.rebuilt(parts)
    return parts[0]


def flatten(structure: Any) -> tuple[list[Output], Rebuild]:
    """Return all outputs in a structure, and a function that replaces them."""
    leaves = nest.flatten(structure)
    groups = [parts_of(leaf) for leaf in leaves]

    def rebuild_all(values: Sequence[Output]) -> Any:
        remaining = list(values)
        rebuilt_leaves = []
        for leaf, group in zip(leaves, groups, strict=True):
            rebuilt_leaves.append(rebuild_leaf(leaf, remaining[: len(group)]))
            del remaining[: len(group)]
        return nest.pack_sequence_as(structure, rebuilt_leaves)

    return [part for group in groups for part in group], rebuild_all


def check_arrays(expected: Any, actual: Any, subject: str) -> None:
    """Require each TensorArray in `actual` to be the one at the same position in `expected`.

    Raises: InvalidArgumentError: it is a different TensorArray, or not a TensorArray.
    """
    for a, b in zip(nest.flatten(expected), nest.flatten(actual), strict=True):
        if not isinstance(a, TensorArray) and not isinstance(b, TensorArray):
            continue
        if (
            not isinstance(a, TensorArray)
            or not isinstance(b, TensorArray)
            or a.handle is not b.handle
        ):
            raise errors.InvalidArgumentError(
                f"{subject} must both return the same TensorArray, which is created outside of "
                f"them; got {a!r} and {b!r}"
            )


def unpack_single(result: Any) -> Any:
    """Return a list or tuple of one item as that item."""
    if isinstance(result, list | tuple) and len(result) == 1:
        return result[0]
    return result
