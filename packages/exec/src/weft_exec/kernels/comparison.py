"""CPU kernels of comparisons, logic, bits, and the choice between two tensors."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import (
    binary,
    broadcast_shape,
    exact,
    new_array,
    register_binary,
    register_unary,
)
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

register_binary(
    {
        "Less": (np.less, operator.lt),
        "LessEqual": (np.less_equal, operator.le),
        "Greater": (np.greater, operator.gt),
        "GreaterEqual": (np.greater_equal, operator.ge),
        "LogicalAnd": (np.logical_and, operator.and_),
        "LogicalOr": (np.logical_or, operator.or_),
        "BitwiseAnd": (np.bitwise_and, operator.and_),
        "BitwiseOr": (np.bitwise_or, operator.or_),
        "BitwiseXor": (np.bitwise_xor, operator.xor),
    }
)
register_unary({"LogicalNot": (np.logical_not, None), "Invert": (np.invert, operator.invert)})


@kernel("Equal", "NotEqual")
def _equal(node: Node, device: Device) -> KernelFunction:
    function = np.equal if node.type == "Equal" else np.not_equal
    if node.attrs["T"].numpy.kind == "O":
        return exact(function)(node, device)
    scalar = operator.eq if node.type == "Equal" else operator.ne
    return binary(function, scalar)(node, device)


@kernel("ApproximateEqual")
def _approximate_equal(node: Node, device: Device) -> KernelFunction:
    dtype, tolerance = node.attrs["T"], node.attrs["tolerance"]
    if dtype.is_integer:

        def of_integers(x: Any, y: Any) -> Any:
            # The difference of unsigned numbers must not wrap around.
            return np.where(x > y, x - y, y - x) < tolerance

        return exact(of_integers)(node, device)
    bound = np.abs(np.array(tolerance, dtype.numpy))

    def run(x: Any, y: Any) -> Any:
        return np.less(np.absolute(np.subtract(x, y)), bound)

    return exact(run)(node, device)


@kernel("LeftShift", "RightShift")
def _shift(node: Node, device: Device) -> KernelFunction:
    dtype = node.attrs["T"].numpy
    last = dtype.itemsize * 8 - 1
    function = np.left_shift if node.type == "LeftShift" else np.right_shift

    def run(x: Any, y: Any) -> Any:
        return function(x, np.clip(y, 0, last))

    return exact(run)(node, device)


@kernel("PopulationCount")
def _population_count(node: Node, device: Device) -> KernelFunction:
    bits = np.dtype(f"u{node.attrs['T'].size}")  # NumPy counts the bits of magnitudes
    return exact(lambda x: np.bitwise_count(x.view(bits)))(node, device)


@kernel("Select", alias=True)
def _select(node: Node, device: Device) -> KernelFunction:
    strings = node.outputs[0].dtype.numpy.kind == "O"

    def run(condition: Any, t: Any, e: Any) -> Any:
        if t.shape != e.shape:
            raise errors.InvalidArgumentError(
                f"the values must have the same shape, got {list(t.shape)} and {list(e.shape)}"
            )
        if condition.ndim == 0:
            return t if condition else e
        if condition.shape != t.shape:
            if condition.ndim != 1 or t.ndim == 0 or len(condition) != len(t):
                raise errors.InvalidArgumentError(
                    "the condition must be a scalar, have the shape of the values, or one element "
                    f"per row of them, got {list(condition.shape)} for {list(t.shape)}"
                )
            count = np.count_nonzero(condition)
            if count == 0 or count == len(t):  # as in most steps of a recurrent network
                return t if count else e
            condition = condition.reshape(-1, *(1,) * (t.ndim - 1))
        return _choose(device, condition, t, e, t.shape, strings)

    return run


def _choose(
    device: Device, condition: Any, t: Any, e: Any, shape: tuple[int, ...], strings: bool
) -> Any:
    result = np.empty(shape, object) if strings else new_array(device, shape, t.dtype)
    np.copyto(result, e)
    np.copyto(result, t, where=condition)
    return result


@kernel("SelectV2", alias=True)
def _select_v2(node: Node, device: Device) -> KernelFunction:
    strings = node.outputs[0].dtype.numpy.kind == "O"

    def run(condition: Any, t: Any, e: Any) -> Any:
        if condition.ndim == 0 and t.shape == e.shape:
            return t if condition else e
        shape = t.shape if t.shape == e.shape else broadcast_shape(t, e)
        if condition.shape != shape:
            shape = np.broadcast_shapes(condition.shape, shape)
        return _choose(device, condition, t, e, shape, strings)

    return run
