"""Kernels of accumulators; taking a result waits without blocking a thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.resources.resources import CompletionCallback
from weft_io.resources.accumulator import DenseAccumulator, SparseAccumulator
from weft_io.resources.handles import holder, resource_of
from weft_io.resources.values import keeper, number_of
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_exec.kernels.context import StepContext
    from weft_graph.ir.node import Node

_Kinds = type[DenseAccumulator] | type[SparseAccumulator]


def _holder(node: Node, device: Device, cls: _Kinds) -> KernelFunction:
    dtype, dims = node.attrs["dtype"], node.attrs["shape"]
    mean = node.attrs["reduction_type"] == "MEAN"

    def make(name: str) -> DenseAccumulator | SparseAccumulator:
        return cls(name, dtype, dims, mean)

    def check(dense_accumulator: DenseAccumulator | SparseAccumulator) -> None:
        for label, actual, expected in (
            ("type", dense_accumulator.dtype.name, dtype.name),
            ("shape", format_dims(dense_accumulator.dims), format_dims(dims)),
            ("reduction", dense_accumulator.mean, mean),
        ):
            if actual != expected:
                raise errors.InvalidArgumentError(
                    f"Shared accumulator {dense_accumulator.name!r} has {label} {actual}, "
                    f"but {expected} was requested"
                )

    return holder(node, device, cls, make, check)


@kernel("ConditionalAccumulator", "ResourceConditionalAccumulator")
def _dense(node: Node, device: Device) -> KernelFunction:
    return _holder(node, device, DenseAccumulator)


@kernel("SparseConditionalAccumulator")
def _sparse(node: Node, device: Device) -> KernelFunction:
    return _holder(node, device, SparseAccumulator)


def _kind_of(node: Node) -> _Kinds:
    return SparseAccumulator if node.type.startswith("Sparse") else DenseAccumulator


def _check_type(dense_accumulator: DenseAccumulator | SparseAccumulator, node: Node) -> None:
    if dense_accumulator.dtype != node.attrs["dtype"]:
        raise errors.InvalidArgumentError(
            f"the accumulator {dense_accumulator.name!r} is {dense_accumulator.dtype.name}, "
            f"but the gradient is {node.attrs['dtype'].name}"
        )


@kernel("AccumulatorApplyGradient", "ResourceAccumulatorApplyGradient")
def _apply(node: Node, device: Device) -> KernelFunction:
    keep = keeper(node, 2)

    def run(handle: Any, step: Any, gradient: Any) -> None:
        resource = resource_of(handle, DenseAccumulator)
        _check_type(resource, node)
        resource.apply(number_of(step, "local_step"), *keep((handle, step, gradient)))

    return run


@kernel("SparseAccumulatorApplyGradient")
def _apply_sparse(node: Node, device: Device) -> KernelFunction:
    keep = keeper(node, 2)
    has_known_shape: bool = node.attrs["has_known_shape"]

    def run(handle: Any, step: Any, *parts: Any) -> None:
        resource = resource_of(handle, SparseAccumulator)
        _check_type(resource, node)
        indices, values, shape = keep((handle, step, *parts))
        resource.apply(
            number_of(step, "local_step"), indices, values, shape if has_known_shape else None
        )

    return run


@kernel(
    "AccumulatorTakeGradient", "ResourceAccumulatorTakeGradient", "SparseAccumulatorTakeGradient"
)
def _take(node: Node, device: Device) -> KernelFunction:
    kind = _kind_of(node)

    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        dense_accumulator: DenseAccumulator | SparseAccumulator = resource_of(inputs[0], kind)
        _check_type(dense_accumulator, node)
        dense_accumulator.take(number_of(inputs[1], "num_required"), completion, ctx.cancellation)

    return run


def _find_accumulator(handle: Any) -> DenseAccumulator | SparseAccumulator:
    resource = getattr(handle, "resource", None)
    if isinstance(resource, SparseAccumulator):
        return resource
    return resource_of(handle, DenseAccumulator)


@kernel("AccumulatorSetGlobalStep", "ResourceAccumulatorSetGlobalStep")
def _set_step(node: Node, device: Device) -> KernelFunction:
    return lambda handle, step: _find_accumulator(handle).set_step(
        number_of(step, "new_global_step")
    )


@kernel("AccumulatorNumAccumulated", "ResourceAccumulatorNumAccumulated")
def _count(node: Node, device: Device) -> KernelFunction:
    return lambda handle: np.int32(_find_accumulator(handle).count)
