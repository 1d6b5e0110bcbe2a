"""Kernels of slices: views of the input, and assignments to slices of variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.array import fill_tensor, to_sizes
from weft_exec.kernels.common import constant_input, new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_graph.ops.slicing import Index, Masks, index_of, masks_of, strided_slice_dims
from weft_tensor import errors
from weft_tensor.shape import format_dims, is_fully_defined

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("Slice", device=ARRAY_DEVICE, host=("begin", "size"))
def _slice(node: Node, device: Device) -> KernelFunction:
    constants = constant_input(node, 1), constant_input(node, 2)
    if constants[0] is not None and constants[1] is not None and node.inputs[0].dims is not None:
        first, count = constants[0].tolist(), constants[1].tolist()
        dims = node.inputs[0].dims
        if is_fully_defined(dims) and _is_inside(dims, first, count):
            key, expected = _box(first, count), node.outputs[0].dims

            def run_static(x: Any, begin: Any, size: Any) -> Any:
                part = x[key]
                if part.shape != expected:  # a size differs from that of set_shape
                    _check_box(x.shape, first, count)
                return part

            return run_static

    def run(x: Any, begin: Any, size: Any) -> Any:
        first, count = begin.tolist(), size.tolist()
        _check_box(x.shape, first, count)
        return x[_box(first, count)]

    return run


def _box(begin: list[int], size: list[int]) -> Index:
    key = [slice(b, None if n == -1 else b + n) for b, n in zip(begin, size, strict=True)]
    return tuple(key) if key else (Ellipsis,)


def _is_inside(shape: Any, begin: list[int], size: list[int]) -> bool:
    """Return True if a box is inside a shape; the shape rule may not have known the box."""
    try:
        _check_box(shape, begin, size)
    except errors.InvalidArgumentError:
        return False
    return True


def _check_box(shape: tuple[int, ...], begin: list[int], size: list[int]) -> None:
    if len(begin) != len(shape) or len(size) != len(shape):
        raise errors.InvalidArgumentError(
            f"begin and size must have one entry per axis of {format_dims(shape)}, got {begin} "
            f"and {size}"
        )
    for axis, (n, b, count) in enumerate(zip(shape, begin, size, strict=True)):
        if not 0 <= b <= n or not (count == -1 or 0 <= count <= n - b):
            raise errors.InvalidArgumentError(
                f"the slice must be inside size {n} at axis {axis}, got begin {b} and size {count}"
            )


def key_of(begin: Any, end: Any, strides: Any, masks: Masks) -> Index:
    """Convert the vectors of a StridedSlice to an index.

    Indexing with it always returns an array.
    """
    return index_of(begin.tolist(), end.tolist(), strides.tolist(), masks)


def _fixed_key(node: Node, first: int) -> Index | None:
    """Return the index if begin, end and strides, from input `first` on, are constants."""
    constants = [constant_input(node, first + i) for i in range(3)]
    begin, end, strides = constants
    if begin is None or end is None or strides is None:
        return None
    return key_of(begin, end, strides, masks_of(node.attrs))


def _index_error(shape: tuple[int, ...], key: Index) -> errors.InvalidArgumentError:
    """Return the error for an index that NumPy rejected."""
    masks = [0, 0, 0, 0, 0]
    entries = []
    for i, item in enumerate(key):
        if item is Ellipsis:
            masks[2] |= 1 << i
        elif item is None:
            masks[3] |= 1 << i
        elif isinstance(item, int):
            masks[4] |= 1 << i
        entries.append(item if isinstance(item, int) else 0)
    unit_axes = [1] * len(key)
    try:
        strided_slice_dims(shape, entries, entries, unit_axes, Masks(*masks))
    except errors.InvalidArgumentError as error:
        return error
    return errors.InvalidArgumentError(f"{key} is not a valid index for shape {format_dims(shape)}")


@kernel("StridedSlice", device=ARRAY_DEVICE, host=("begin", "end", "strides"))
def _strided_slice(node: Node, device: Device) -> KernelFunction:
    objects = node.inputs[0].dtype.numpy.kind == "O"
    masks = masks_of(node.attrs)
    fixed = _fixed_key(node, 1)
    if fixed is not None:
        key = _keep_array(fixed) if objects else fixed

        def run_static(x: Any, begin: Any, end: Any, strides: Any) -> Any:
            try:
                return x[key]
            except IndexError:
                raise _index_error(x.shape, fixed) from None

        return run_static

    if masks == (0, 0, 0, 0, 1) and not objects and node.inputs[1].dims == (1,):

        def run_single(x: Any, begin: Any, end: Any, strides: Any) -> Any:
            try:
                return x[int(begin[0])]
            except IndexError:
                raise _index_error(x.shape, (int(begin[0]),)) from None

        return run_single

    def run(x: Any, begin: Any, end: Any, strides: Any) -> Any:
        key = key_of(begin, end, strides, masks)
        try:
            return x[_keep_array(key) if objects else key]
        except IndexError:
            raise _index_error(x.shape, key) from None

    return run


def _keep_array(key: Index) -> Index:
    """Append an ellipsis to an index, so that a single string is returned as a rank-0 array."""
    return key if Ellipsis in key else (*key, Ellipsis)


@kernel("StridedSliceGrad", device=ARRAY_DEVICE, host=("shape", "begin", "end", "strides"))
def _strided_slice_grad(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    masks = masks_of(node.attrs)
    fixed = _fixed_key(node, 1)
    zero = b"" if dtype.kind == "O" else dtype.type(0)

    def run(shape: Any, begin: Any, end: Any, strides: Any, dy: Any) -> Any:
        key = fixed if fixed is not None else key_of(begin, end, strides, masks)
        result = fill_tensor(device, to_sizes(shape), zero, dtype)
        if result.ndim == 0:
            return dy.reshape(())[()]
        _store(result, key, dy)
        return result

    return run


def _store(target: Any, key: Index, value: Any) -> None:
    try:
        part = target[_keep_array(key)]
    except IndexError:
        raise _index_error(target.shape, key) from None
    try:
        part[...] = value
    except ValueError:
        raise errors.InvalidArgumentError(
            f"the value must have the slice's shape {format_dims(part.shape)}, got "
            f"{format_dims(value.shape)}"
        ) from None


@kernel("TensorStridedSliceUpdate", device=ARRAY_DEVICE, host=("begin", "end", "strides"))
def _strided_slice_update(node: Node, device: Device) -> KernelFunction:
    masks = masks_of(node.attrs)

    def run(x: Any, begin: Any, end: Any, strides: Any, value: Any) -> Any:
        result = new_array(device, x.shape, x.dtype)
        result[...] = x
        _store(result, key_of(begin, end, strides, masks), value)
        return result

    return run


def _assign_slice(state: Any, key: Index, value: Any) -> None:
    """Assign to a slice of a variable."""

    def write(array: np.ndarray[Any, Any]) -> None:
        _store(array, key, value)

    state.update(write)


@kernel("StridedSliceAssign", device=ARRAY_DEVICE, host=("begin", "end", "strides"))
def _strided_slice_assign(node: Node, device: Device) -> KernelFunction:
    masks = masks_of(node.attrs)

    def run(ref: Any, begin: Any, end: Any, strides: Any, value: Any) -> Any:
        _assign_slice(ref, key_of(begin, end, strides, masks), value)
        return ref

    return run


@kernel("ResourceStridedSliceAssign", device=ARRAY_DEVICE, host=("begin", "end", "strides"))
def _resource_strided_slice_assign(node: Node, device: Device) -> KernelFunction:
    masks = masks_of(node.attrs)

    def run(ref: Any, begin: Any, end: Any, strides: Any, value: Any) -> None:
        _assign_slice(ref.resource, key_of(begin, end, strides, masks), value)

    return run
