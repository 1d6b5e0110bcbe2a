"""Kernels of sequences of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_io.resources.tensor_sequence import TensorSequence
from weft_tensor import dtypes, errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


def _sequence(value: Any) -> TensorSequence:
    if not isinstance(value, TensorSequence):
        raise errors.InvalidArgumentError(
            f"a sequence of tensors is required, got {type(value).__name__}"
        )
    return value


def _normalize_position(position: Any, count: int, end: int) -> int:
    """Return a position counted from the front.

    Raises: InvalidArgumentError: it is not in the range from -count to `end`.
    """
    index = int(position)
    if not -count <= index <= end:
        raise errors.InvalidArgumentError(
            f"an index in a sequence of {count} tensors must be from {-count} to {end}, got {index}"
        )
    return index + count if index < 0 else index


@kernel("TensorSequence")
def _make(node: Node, device: Device) -> KernelFunction:
    return lambda *values: TensorSequence(np.array(value) for value in values)


@kernel("SequenceInsert")
def _insert(node: Node, device: Device) -> KernelFunction:
    def run(sequence: Any, value: Any, position: Any) -> TensorSequence:
        values = _sequence(sequence).values
        index = _normalize_position(position, len(values), len(values))
        return TensorSequence((*values[:index], np.array(value), *values[index:]))

    return run


@kernel("SequenceErase")
def _erase(node: Node, device: Device) -> KernelFunction:
    def run(sequence: Any, position: Any) -> TensorSequence:
        values = _sequence(sequence).values
        index = _normalize_position(position, len(values), len(values) - 1)
        return TensorSequence((*values[:index], *values[index + 1 :]))

    return run


@kernel("SequenceAt")
def _sequence_at(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype

    def run(sequence: Any, position: Any) -> Any:
        values = _sequence(sequence).values
        return _validate(values[_normalize_position(position, len(values), len(values) - 1)], dtype)

    return run


def _validate(value: Any, dtype: dtypes.DType) -> Any:
    if dtypes.from_numpy(value.dtype) is not dtype:
        raise errors.InvalidTypeError(
            f"a sequence of {dtype.name} is required, got one of {value.dtype}"
        )
    return value


@kernel("SequenceLength")
def _length(node: Node, device: Device) -> KernelFunction:
    return lambda sequence: np.int64(len(_sequence(sequence)))


@kernel("SequenceSplit")
def _split(node: Node, device: Device) -> KernelFunction:
    axis, squeeze = node.attrs["axis"], node.attrs["squeeze"]

    def run(value: Any, sizes: Any) -> TensorSequence:
        if not -value.ndim <= axis < value.ndim:
            raise errors.InvalidArgumentError(
                f"axis must be in [{-value.ndim}, {value.ndim}), got {axis}"
            )
        count = value.shape[axis]
        if np.ndim(sizes) == 0:
            if sizes < 1:
                raise errors.InvalidArgumentError(f"a size must be 1 or more, got {int(sizes)}")
            ends = np.arange(int(sizes), count, int(sizes))
        else:
            if np.any(sizes < 0) or int(sizes.sum()) != count:
                raise errors.InvalidArgumentError(
                    f"sizes {sizes.tolist()} must add up to {count}, the size of axis {axis}"
                )
            ends = np.cumsum(sizes)[:-1]
        parts = np.split(value, ends, axis)
        if squeeze:
            parts = [part.squeeze(axis) if part.shape[axis] == 1 else part for part in parts]
        return TensorSequence(np.array(part) for part in parts)

    return run


@kernel("SequenceConcat")
def _concat(node: Node, device: Device) -> KernelFunction:
    axis, new_axis = node.attrs["axis"], node.attrs["new_axis"]
    dtype = node.outputs[0].dtype

    def run(sequence: Any) -> Any:
        values = _sequence(sequence).values
        if not values:
            raise errors.InvalidArgumentError("an empty sequence of tensors cannot be joined")
        joined = np.stack if new_axis else np.concatenate
        try:
            return _validate(joined(values, axis), dtype)
        except ValueError as error:
            shapes = [list(value.shape) for value in values]
            raise errors.InvalidArgumentError(
                f"tensors of shapes {shapes} cannot be joined along axis {axis}"
            ) from error

    return run
