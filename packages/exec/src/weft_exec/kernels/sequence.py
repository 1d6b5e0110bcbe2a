"""CPU kernels of ranges and of counts in bins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import NARROW, as_exact, new_array
from weft_exec.kernels.registry import ALL, ARRAY_DEVICE, KernelFunction, kernel
from weft_graph.ops.sequence import range_length
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("Range", device=ARRAY_DEVICE, host=ALL)
def _range(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype
    element = dtype.numpy

    def of_integers(start: Any, limit: Any, delta: Any) -> Any:
        first, step = int(start), int(delta)
        count = range_length(first, int(limit), step)
        result = new_array(device, (count,), element)
        # The last multiple of the step may not fit the type although it is never reached.
        result[...] = np.arange(count, dtype=element) * np.asarray(step).astype(element)
        return np.add(result, np.asarray(first).astype(element), out=result)

    def of_floats(start: Any, limit: Any, delta: Any) -> Any:
        first, step = float(start), float(delta)
        count = range_length(first, float(limit), step)
        return as_exact(first + np.arange(count, dtype=np.float64) * step, element, device)

    return of_integers if dtype.is_integer else of_floats


@kernel("LinSpace", device=ARRAY_DEVICE, host=ALL)
def _linspace(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype
    wide = np.float32 if dtype in NARROW else dtype.numpy
    element = dtype.numpy

    def run(start: Any, stop: Any, num: Any) -> Any:
        if start.ndim or stop.ndim:
            raise errors.InvalidArgumentError(
                f"start and stop must have rank 0, got {list(start.shape)} and {list(stop.shape)}"
            )
        count = int(num)
        if count <= 0:
            raise errors.InvalidArgumentError(f"num must be greater than 0, got {count}")
        values = np.linspace(start.astype(wide), stop.astype(wide), count, dtype=wide)
        return as_exact(values, element, device)

    return run


@kernel("Bincount", device=ARRAY_DEVICE, host=ALL)
def _bincount(node: Node, device: Device) -> KernelFunction:
    element = node.outputs[0].dtype.numpy
    is_integer = node.attrs["T"].is_integer

    def run(arr: Any, size: Any, weights: Any) -> Any:
        count, values = int(size), np.reshape(arr, -1)
        if count < 0:
            raise errors.InvalidArgumentError(f"size must be at least 0, got {count}")
        if values.size and values.min() < 0:
            raise errors.InvalidArgumentError(
                f"Bincount requires values of at least 0, got {values.min()}"
            )
        is_inside = values < count
        if not weights.size:
            return np.bincount(values[is_inside], minlength=count).astype(element)
        if weights.shape != arr.shape:
            raise errors.InvalidArgumentError(
                f"the weights must have the shape of the values, got {list(weights.shape)} and "
                f"{list(arr.shape)}"
            )
        selected = np.reshape(weights, -1)[is_inside]
        if not is_integer:
            return np.bincount(values[is_inside], selected, minlength=count).astype(element)
        result = np.zeros(count, element)
        np.add.at(result, values[is_inside], selected)
        return result

    return run


@kernel("HistogramFixedWidth")
def _histogram(node: Node, device: Device) -> KernelFunction:
    element = node.outputs[0].dtype.numpy

    def run(values: Any, value_range: Any, nbins: Any) -> Any:
        count = int(nbins)
        if count <= 0:
            raise errors.InvalidArgumentError(f"nbins must be greater than 0, got {count}")
        if value_range.shape != (2,) or not value_range[0] < value_range[1]:
            raise errors.InvalidArgumentError(
                f"value_range must be two numbers in ascending order, got {value_range.tolist()}"
            )
        low, high = value_range.astype(np.float64)
        scaled = (np.reshape(values, -1).astype(np.float64) - low) * (count / (high - low))
        bins = np.clip(np.nan_to_num(np.floor(scaled), nan=0.0), 0, count - 1)
        return np.bincount(bins.astype(np.int64), minlength=count).astype(element)

    return run
