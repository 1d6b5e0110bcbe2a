"""Values that are kept past the step that made them: whose memory they are, rows, zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import kernels_of
from weft_exec.resources.resources import Done
from weft_graph.ir.traits import Role
from weft_tensor import errors
from weft_tensor.dtypes import DType, string
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_graph.ir.node import Node, Output

Array = np.ndarray[Any, Any]
Values = tuple[Any, ...]
Empty = Callable[[tuple[int, ...], np.dtype[Any]], Array]
"""An allocator: shape and NumPy dtype to an array whose content is undefined."""

_PINNED = 2
"""A view is copied when the array that it would keep alive is larger than it this many times."""


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of a value on an edge; handles and variants have rank 0."""
    shape: tuple[int, ...] = getattr(value, "shape", ())
    return shape


def number_of(value: Any, what: str) -> int:
    """The integer in a value of shape ().

    Args:
      what: for the message.
    Raises: InvalidArgumentError: the value has another rank.
    """
    shape = shape_of(value)
    if shape:
        raise errors.InvalidArgumentError(
            f"{what} must be a scalar, got shape {format_dims(shape)}"
        )
    return int(value)


def items_of(value: Any, what: str) -> list[Any]:
    """The elements of a value of shape (n,).

    Args:
      what: for the message.
    Raises: InvalidArgumentError: the value has another rank.
    """
    shape = shape_of(value)
    if len(shape) != 1:
        raise errors.InvalidArgumentError(
            f"{what} must be a vector, got shape {format_dims(shape)}"
        )
    found: list[Any] = value.tolist()
    return found


def row_of(batch: Array, index: int) -> Any:
    """One element of a batch: a view, or at rank 0 a scalar; strings stay arrays of objects."""
    return batch[index, ...] if batch.dtype.hasobject else batch[index]


class Unpacked:
    """Hands the only member of a tuple on as a kernel's only output."""

    __slots__ = ("_done", "fail")

    def __init__(self, done: Done) -> None:
        self._done = done
        self.fail = done.fail

    def __call__(self, value: Any = None) -> None:
        """The result, without its tuple."""
        self._done(value[0])


def keeper(node: Node, first: int) -> Callable[[Sequence[Any]], Values]:
    """What turns the inputs of `node` from position `first` on into values that may be kept.

    A kernel's result belongs to nobody and never changes, so it is kept as it is. What the caller
    feeds is borrowed for the Run, and so is copied; found out here, once per executable.
    """
    borrowed = tuple([_may_be_borrowed(source) for source in node.inputs[first:]])

    def keep(inputs: Sequence[Any]) -> Values:
        return tuple([_kept(v, b) for v, b in zip(inputs[first:], borrowed, strict=True)])

    return keep


def _kept(value: Any, borrowed: bool) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    base = value.base
    if borrowed or (type(base) is np.ndarray and base.nbytes > _PINNED * value.nbytes):
        return value.copy()
    return value


def _may_be_borrowed(output: Output) -> bool:
    """Whether an output may share memory with a fed array."""
    seen = {output.node}
    pending = [output.node]
    while pending:
        node = pending.pop()
        if node.role is Role.ARGUMENT:
            return True
        if not any([kernel.may_share(node) for kernel in kernels_of(node.type, "CPU")]):
            continue
        for source in node.inputs:
            if source.node not in seen:
                seen.add(source.node)
                pending.append(source.node)
    return False


def padding_of(dtype: DType) -> Any:
    """What fills the places that have no value: zero, or the empty string."""
    return b"" if dtype is string else dtype.numpy.type()
