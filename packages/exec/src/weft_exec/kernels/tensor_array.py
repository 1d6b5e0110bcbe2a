"""Kernels of TensorArrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_exec.resources.resources import ResourceHandle
from weft_exec.resources.tensor_arrays import TensorArrayState
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, format_dims, is_fully_defined, merge_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


def _array(handle: ResourceHandle) -> TensorArrayState:
    state = handle.resource
    if not isinstance(state, TensorArrayState):
        raise errors.InvalidTypeError(f"requires the handle of a TensorArray, got {state!r}")
    return state


def _array_of(handle: ResourceHandle, dtype: DType) -> TensorArrayState:
    state = handle.resource
    if not isinstance(state, TensorArrayState) or state.dtype is not dtype:
        raise _dtype_error(state, dtype)
    return state


def _dtype_error(state: Any, dtype: DType) -> errors.InvalidTypeError:
    return errors.InvalidTypeError(f"requires a TensorArray of {dtype.name}, got {state!r}")


# --------------------------------------------------------------------------- arrays


@kernel("TensorArrayV3", device=ARRAY_DEVICE, host=("size",))
def _tensor_array(node: Node, device: Device) -> KernelFunction:
    attrs = node.attrs
    name = attrs["tensor_array_name"] or node.name
    dtype, dims = attrs["dtype"], attrs["element_shape"]
    options = {
        "dynamic": attrs["dynamic_size"],
        "clear": attrs["clear_after_read"],
        "identical": attrs["identical_element_shapes"],
        "device": device.name,
        "xp": device.xp,
        "empty": device.new_array,
    }
    flow = np.float32(0) if device.xp is np else device.xp.zeros((), np.float32)

    def run(size: Any) -> tuple[ResourceHandle, Any]:
        count = int(size)
        if count < 0:
            raise errors.InvalidArgumentError(
                f"the size of the TensorArray {name!r} must be at least 0, got {count}"
            )
        state = TensorArrayState(name, dtype, count, dims, **options)
        return ResourceHandle(device.name, "", name, state), flow

    return run


@kernel("TensorArrayGradV3", device=ARRAY_DEVICE)
def _gradient(node: Node, device: Device) -> KernelFunction:
    source = node.attrs["source"]

    def run(handle: ResourceHandle, flow: Any) -> tuple[ResourceHandle, Any]:
        return _array(handle).gradient(source), flow

    return run


@kernel("TensorArrayGradWithShape", device=ARRAY_DEVICE, host=("shape_to_prepend",))
def _gradient_with_shape(node: Node, device: Device) -> KernelFunction:
    source = node.attrs["source"]

    def run(handle: ResourceHandle, flow: Any, shape: Any) -> tuple[ResourceHandle, Any]:
        sizes = tuple(shape.tolist())
        if any(size < 0 for size in sizes):
            raise errors.InvalidArgumentError(
                f"shape_to_prepend must have sizes of at least 0, got {list(sizes)}"
            )
        return _array(handle).gradient(source, sizes), flow

    return run


@kernel("TensorArraySizeV3", device=ARRAY_DEVICE)
def _size(node: Node, device: Device) -> KernelFunction:
    return lambda handle, flow: np.int32(_array(handle).size)


@kernel("TensorArrayCloseV3", device=ARRAY_DEVICE)
def _close(node: Node, device: Device) -> KernelFunction:
    return lambda handle: _array(handle).close()


# --------------------------------------------------------------------------- elements


@kernel("TensorArrayWriteV3", device=ARRAY_DEVICE, host=("index",))
def _write(node: Node, device: Device) -> KernelFunction:
    dtype = node.attrs["T"]

    def run(handle: ResourceHandle, index: Any, value: Any, flow: Any) -> Any:
        state = handle.resource
        if not isinstance(state, TensorArrayState) or state.dtype is not dtype:
            raise _dtype_error(state, dtype)
        state.write(int(index), value)
        return flow

    return run


@kernel("TensorArrayReadV3", device=ARRAY_DEVICE, host=("index",), alias=True)
def _read(node: Node, device: Device) -> KernelFunction:
    dtype = node.attrs["dtype"]

    def run(handle: ResourceHandle, index: Any, flow: Any) -> Any:
        state = handle.resource
        if not isinstance(state, TensorArrayState) or state.dtype is not dtype:
            raise _dtype_error(state, dtype)
        return state.read(int(index))

    return run


# --------------------------------------------------------------------------- together


@kernel("TensorArrayGatherV3", device=ARRAY_DEVICE, host=("indices",))
def _gather(node: Node, device: Device) -> KernelFunction:
    dtype, dims = node.attrs["dtype"], node.attrs["element_shape"]

    def run(handle: ResourceHandle, indices: Any, flow: Any) -> Any:
        state = _array_of(handle, dtype)
        state.refine(dims)
        places = _vector(indices, "indices")
        rows = state.gather_all(places)
        if rows is not None:
            result = new_array(device, rows.shape, dtype.numpy)
            device.xp.copyto(result, rows)
            return result
        values = state.gather(places)
        if not values:
            return new_array(
                device, (0, *_require_static(state, state.dims, "element_shape")), dtype.numpy
            )
        return _stack_values(values, dtype.numpy, device)

    return run


def _vector(value: Any, label: str) -> list[int]:
    if value.ndim != 1:
        raise errors.InvalidArgumentError(
            f"{label} must have rank 1, got shape {format_dims(value.shape)}"
        )
    return value.tolist()  # type: ignore[no-any-return]


def _require_static(state: TensorArrayState, dims: Dims, label: str) -> tuple[int, ...]:
    """Return the shape of an empty concatenation or stack, which must be known statically."""
    if not is_fully_defined(dims):
        raise errors.InvalidArgumentError(
            f"no element of the TensorArray {state.name!r} is requested, so the shape of "
            f"the result must be known from a fully known {label}, got {format_dims(dims)}"
        )
    return dims  # type: ignore[return-value]


def _stack_values(values: Sequence[Any], dtype: np.dtype[Any], device: Device) -> Any:
    """Stack values of the same shape along a new first axis."""
    shape = values[0].shape
    for i, value in enumerate(values):
        if value.shape != shape:
            raise errors.InvalidArgumentError(
                f"elements that are stacked must have the same shape, got "
                f"{format_dims(shape)} at 0 "
                f"and {format_dims(value.shape)} at {i}"
            )
    xp, result = device.xp, new_array(device, (len(values), *shape), dtype)
    if shape:
        flat = result.reshape(len(values) * shape[0], *shape[1:])
        xp.concatenate(values, 0, out=flat)
    elif xp is np:
        result[:] = [value[()] for value in values] if dtype.kind == "O" else values
    else:
        xp.stack(values, out=result)
    return result


@kernel("TensorArrayConcatV3", device=ARRAY_DEVICE)
def _concat(node: Node, device: Device) -> KernelFunction:
    dtype, remaining = node.attrs["dtype"], node.attrs["element_shape_except0"]

    def run(handle: ResourceHandle, flow: Any) -> tuple[Any, Any]:
        state = _array_of(handle, dtype)
        values = state.gather(range(state.concat_size))
        if not values:
            dims = merge_dims(remaining, None if state.dims is None else state.dims[1:])
            shape = _require_static(state, dims, "element_shape_except0")
            return new_array(device, (0, *shape), dtype.numpy), np.zeros(0, np.int64)
        lengths = _lengths(values)
        result = new_array(device, (sum(lengths), *values[0].shape[1:]), dtype.numpy)
        device.xp.concatenate(values, 0, out=result)
        return result, np.array(lengths, np.int64)

    return run


def _lengths(values: Sequence[Any]) -> list[int]:
    """Return the first sizes of values whose other sizes must be equal."""
    shape = values[0].shape
    for i, value in enumerate(values):
        if not value.shape:
            raise errors.InvalidArgumentError(
                f"elements of rank 0 cannot be concatenated (element {i} is one); use stack"
            )
        if value.shape[1:] != shape[1:]:
            raise errors.InvalidArgumentError(
                "concatenated elements must have equal sizes except at axis 0, got shapes "
                f"{format_dims(shape)} at 0 and {format_dims(value.shape)} at {i}"
            )
    return [value.shape[0] for value in values]


# --------------------------------------------------------------------------- apart


@kernel("TensorArrayScatterV3", device=ARRAY_DEVICE, host=("indices",))
def _scatter(node: Node, device: Device) -> KernelFunction:
    dtype = node.attrs["T"]

    def run(handle: ResourceHandle, indices: Any, value: Any, flow: Any) -> Any:
        state = _array_of(handle, dtype)
        places = _vector(indices, "indices")
        if not value.ndim or value.shape[0] != len(places):
            raise errors.InvalidArgumentError(
                f"the value must have one row for each of {len(places)} indices, got shape "
                f"{format_dims(value.shape)}"
            )
        if not places and state.identical:
            state.refine(value.shape[1:])
        state.scatter(places, _rows(value), value if type(value) is np.ndarray else None)
        return flow

    return run


def _rows(value: Any) -> list[Any]:
    """Return views of the rows of a value; NumPy scalars for a vector if its type has them."""
    if value.ndim == 1 and value.dtype.kind == "O":
        return [value[i, ...] for i in range(len(value))]
    return list(value)


@kernel("TensorArraySplitV3", device=ARRAY_DEVICE, host=("lengths",))
def _split(node: Node, device: Device) -> KernelFunction:
    dtype = node.attrs["T"]

    def run(handle: ResourceHandle, value: Any, lengths: Any, flow: Any) -> Any:
        state = _array_of(handle, dtype)
        sizes = _vector(lengths, "lengths")
        _check_lengths(sizes, value.shape)
        state.resize_for(len(sizes))
        pieces, start = [], 0
        for size in sizes:
            pieces.append(value[start : start + size])
            start += size
        state.scatter(range(len(pieces)), pieces)
        return flow

    return run


def _check_lengths(lengths: Sequence[int], shape: tuple[int, ...]) -> None:
    if not shape:
        raise errors.InvalidArgumentError("a value of rank 0 cannot be split")
    if any(length < 0 for length in lengths) or sum(lengths) != shape[0]:
        raise errors.InvalidArgumentError(
            f"lengths must be at least 0 and add up to the first size of shape "
            f"{format_dims(shape)}, got {lengths} with the sum {sum(lengths)}"
        )
