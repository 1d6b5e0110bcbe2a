"""Values that outlive their step: copies, rows, padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import kernels_of
from weft_exec.resources.resources import CompletionCallback
from weft_graph.ir.traits import Role
from weft_tensor import errors
from weft_tensor.dtypes import DType, string
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_graph.ir.node import Node, Output

Array = np.ndarray[Any, Any]
Values = tuple[Any, ...]
Empty = Callable[[tuple[int, ...], np.dtype[Any]], Array]
"""An allocator: returns an uninitialized array for a shape and NumPy dtype."""

_PINNED = 2
"""A view is copied if its base is larger by more than this factor."""


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of a value on an edge; that of handles and variants is ()."""
    shape: tuple[int, ...] = getattr(value, "shape", ())
    return shape


def number_of(value: Any, label: str) -> int:
    """Return the integer in a value of shape ().

    Args:
      label: name in the message.
    Raises: InvalidArgumentError: the value has another rank.
    """
    shape = shape_of(value)
    if shape:
        raise errors.InvalidArgumentError(
            f"{label} must be a scalar, got shape {format_dims(shape)}"
        )
    return int(value)


def items_of(value: Any, label: str) -> list[Any]:
    """Return the elements of a value of shape (n,).

    Args:
      label: name in the message.
    Raises: InvalidArgumentError: the value has another rank.
    """
    shape = shape_of(value)
    if len(shape) != 1:
        raise errors.InvalidArgumentError(
            f"{label} must be a vector, got shape {format_dims(shape)}"
        )
    result: list[Any] = value.tolist()
    return result


def row_of(batch: Array, index: int) -> Any:
    """Return one element of a batch: a view, or a scalar; strings stay object arrays."""
    return batch[index, ...] if batch.dtype.hasobject else batch[index]


class Unpacked:
    """A callback that returns the only member of a tuple as a kernel's only output."""

    __slots__ = ("_done", "fail")

    def __init__(self, completion: CompletionCallback) -> None:
        self._done = completion
        self.fail = completion.fail

    def __call__(self, value: Any = None) -> None:
        """Complete with the only member of the tuple."""
        self._done(value[0])


def keeper(node: Node, first: int) -> Callable[[Sequence[Any]], Values]:
    """Return a function that converts inputs of `node` from `first` on to values to keep.

    The result of a kernel never changes, so it is kept without a copy. Fed values are borrowed for
    the run, so they are copied. The choice is made once per executable.
    """
    borrowed = tuple([_may_be_borrowed(source) for source in node.inputs[first:]])

    def keep(inputs: Sequence[Any]) -> Values:
        return tuple([_own_value(v, b) for v, b in zip(inputs[first:], borrowed, strict=True)])

    return keep


def _own_value(value: Any, borrowed: bool) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    base = value.base
    if borrowed or (type(base) is np.ndarray and base.nbytes > _PINNED * value.nbytes):
        return value.copy()
    return value


def _may_be_borrowed(output: Output) -> bool:
    """Return True if an output may share memory with a fed array."""
    visited = {output.node}
    pending = [output.node]
    while pending:
        node = pending.pop()
        if node.role is Role.ARGUMENT:
            return True
        if not any([kernel.may_share(node) for kernel in kernels_of(node.type, "CPU")]):
            continue
        for source in node.inputs:
            if source.node not in visited:
                visited.add(source.node)
                pending.append(source.node)
    return False


def padding_of(dtype: DType) -> Any:
    """Return the padding value of a type: zero, or the empty string."""
    return b"" if dtype is string else dtype.numpy.type()
