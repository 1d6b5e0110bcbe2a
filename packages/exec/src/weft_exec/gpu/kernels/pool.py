"""GPU kernels of pools: one launch each, with a thread for each element of the result.

The CPU's kernels iterate over the positions of a window; on a GPU each position would be a launch.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.gpu.element_types import INTEGERS, REAL
from weft_exec.gpu.generated import THREADS, Program, Source
from weft_exec.kernels.pool import Pool, PoolGeometry
from weft_exec.kernels.registry import KernelFunction, kernel

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_MAX: Final = Source("max_pool", T=(*REAL, *INTEGERS))
_AVG: Final = Source("avg_pool", T=REAL)
_BY_PLACE: Final = Source("argmax_grad", T=(*REAL, *INTEGERS))
_AXES: Final = 5
_TYPES: Final = {"T": (*REAL, *INTEGERS)}


def _numbers(fit: PoolGeometry) -> list[int]:
    """Return the numbers that CUDA sources call WINDOWS: the parameters of a pool of five axes."""
    pool, lead = fit.pool, _AXES - len(fit.shape)
    return [
        *(1,) * lead, *fit.shape, *(1,) * lead, *fit.counts, *(1,) * lead, *pool.ksize,
        *(1,) * lead, *pool.strides, *(0,) * lead, *fit.before,
    ]  # fmt: skip


class _Pooling:
    """The launches of one node."""

    def __init__(self, node: Node, device: Device, source: Source) -> None:
        self.pool = Pool(node, device)
        self.xp = device.xp
        self._dtype = node.attrs["T"].numpy
        self.program: Program = source.program(device.xp, T=self._dtype)

    def contiguous_arrays(self, *arrays: Any) -> list[Any]:
        """Return the arrays in C order."""
        return [self.xp.ascontiguousarray(array) for array in arrays]

    def new(self, shape: tuple[int, ...]) -> Any:
        """Return an uninitialized array for the result of a kernel."""
        return self.xp.empty(shape, self._dtype)

    def run(self, name: str, fit: PoolGeometry, size: int, *args: Any) -> None:
        """Launch a thread for each of `size` elements."""
        self.program.launch_elements(name, size, *args, *_numbers(fit))


@kernel("MaxPool", "MaxPool3D", device="GPU", dtypes=_TYPES)
def _max_pool(node: Node, device: Device) -> KernelFunction:
    pooling = _Pooling(node, device, _MAX)

    def run(x: Any) -> Any:
        fit = pooling.pool.fit(x.shape)
        (x,), y = pooling.contiguous_arrays(x), pooling.new(fit.counts)
        pooling.run("max_pool", fit, y.size, x, y)
        return y

    return run


@kernel("MaxPoolGrad", "MaxPool3DGrad", device="GPU", dtypes=_TYPES)
def _max_pool_grad(node: Node, device: Device) -> KernelFunction:
    pooling = _Pooling(node, device, _MAX)

    def run(x: Any, y: Any, grad: Any) -> Any:
        fit = pooling.pool.fit(x.shape)
        fit.require("orig_output", y.shape, fit.counts)
        fit.require("grad", grad.shape, fit.counts)
        result = pooling.new(x.shape)
        pooling.run("max_pool_grad", fit, x.size, *pooling.contiguous_arrays(x, y, grad), result)
        return result

    return run


@kernel("MaxPoolGradGrad", "MaxPool3DGradGrad", device="GPU", dtypes=_TYPES)
def _max_pool_grad_grad(node: Node, device: Device) -> KernelFunction:
    pooling = _Pooling(node, device, _MAX)

    def run(x: Any, y: Any, grad: Any) -> Any:
        fit = pooling.pool.fit(x.shape)
        fit.require("orig_output", y.shape, fit.counts)
        fit.require("grad", grad.shape, x.shape)
        result = pooling.new(fit.counts)
        pooling.run(
            "max_pool_grad_grad", fit, y.size, *pooling.contiguous_arrays(x, y, grad), result
        )
        return result

    return run


@kernel("MaxPoolWithArgmax", device="GPU", dtypes=_TYPES)
def _max_pool_with_argmax(node: Node, device: Device) -> KernelFunction:
    pooling, with_batch = _Pooling(node, device, _MAX), node.attrs["include_batch_in_index"]

    def run(x: Any) -> Any:
        fit = pooling.pool.fit(x.shape)
        (x,), y = pooling.contiguous_arrays(x), pooling.new(fit.counts)
        indices = pooling.xp.empty(fit.counts, np.int64)
        image = x.size if with_batch else prod(x.shape[1:])
        pooling.run("max_pool_with_argmax", fit, y.size, x, y, indices, image)
        return y, indices

    return run


@kernel("MaxPoolGradWithArgmax", device="GPU", dtypes=_TYPES)
def _max_pool_grad_with_argmax(node: Node, device: Device) -> KernelFunction:
    pooling, with_batch = _Pooling(node, device, _BY_PLACE), node.attrs["include_batch_in_index"]
    xp = device.xp

    def run(x: Any, grad: Any, argmax: Any) -> Any:
        fit = pooling.pool.fit(x.shape)
        fit.require("grad", grad.shape, fit.counts)
        fit.require("argmax", argmax.shape, fit.counts)
        size, count, result = x.size, grad.size, pooling.new(x.shape)
        if not count:
            result.fill(0)
            return result
        (grad,), indices = (
            pooling.contiguous_arrays(grad),
            xp.ascontiguousarray(argmax.astype(np.int64)),
        )
        offsets = (0, 0) if with_batch else (prod(x.shape[1:]), prod(fit.counts[1:]))
        pooling.run("collect", fit, size, grad, indices, result, *offsets)
        blocks = -(-count // THREADS)
        match = xp.empty(blocks, np.uint8)
        pooling.run("look_for_strangers", fit, count, indices, match, *offsets, size)
        numbers = (blocks, THREADS, *offsets, size, *_numbers(fit), count)
        args = (grad, indices, match, result, *numbers)
        pooling.program.launch("add_strangers", (1,), THREADS, *args)
        return result

    return run


# -------------------------------------------------------------------------------- means


@kernel("AvgPool", "AvgPool3D", device="GPU", dtypes={"T": REAL})
def _avg_pool(node: Node, device: Device) -> KernelFunction:
    pooling = _Pooling(node, device, _AVG)

    def run(x: Any) -> Any:
        fit = pooling.pool.fit(x.shape)
        (x,), y = pooling.contiguous_arrays(x), pooling.new(fit.counts)
        pooling.run("avg_pool", fit, y.size, x, y)
        return y

    return run


@kernel(
    "AvgPoolGrad", "AvgPool3DGrad", device="GPU", host=("orig_input_shape",), dtypes={"T": REAL}
)
def _avg_pool_grad(node: Node, device: Device) -> KernelFunction:
    pooling = _Pooling(node, device, _AVG)

    def run(sizes: Any, grad: Any) -> Any:
        shape = tuple(int(n) for n in sizes)
        fit = pooling.pool.fit(shape)
        fit.require("grad", grad.shape, fit.counts)
        (grad,), result = pooling.contiguous_arrays(grad), pooling.new(shape)
        pooling.run("avg_pool_grad", fit, result.size, grad, result)
        return result

    return run
