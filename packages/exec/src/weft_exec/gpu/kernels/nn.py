"""GPU kernels of activations, biases, softmax and the fused losses."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.gpu.element_types import INEXACT, INTEGERS, REAL
from weft_exec.gpu.generated import Source
from weft_exec.gpu.kernels.reduction import widened
from weft_exec.kernels.registry import KernelFactory, KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_ANY: Final = Source("relu", T=(*REAL, *INTEGERS))
_INEXACT: Final = Source("activation", T=REAL)
_FLOATING: Final = {"T": REAL}
_OF_INTEGERS: Final = {
    "Relu": "relu",
    "Relu6": "relu6",
    "ReluGrad": "relu_grad",
    "Relu6Grad": "relu6_grad",
}
_OF_REALS: Final = {
    "Elu": "elu",
    "Selu": "selu",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Sigmoid": "sigmoid",
    "SigmoidGrad": "sigmoid_grad",
    "TanhGrad": "tanh_grad",
    "EluGrad": "elu_grad",
    "SeluGrad": "selu_grad",
    "SoftplusGrad": "softplus_grad",
    "SoftsignGrad": "softsign_grad",
}
_OF_SLOPES: Final = {"LeakyRelu": "leaky_relu", "LeakyReluGrad": "leaky_relu_grad"}


def _activation(source: Source, names: dict[str, str]) -> KernelFactory:
    """A factory of kernels over elements; `alpha` is a number of those that have it."""

    def make(node: Node, device: Device) -> KernelFunction:
        op, xp, name = node.type, device.xp, names[node.type]
        program = source.program(xp, T=node.attrs["T"].numpy)
        numbers = [float(node.attrs["alpha"])] if "alpha" in node.attrs else []

        def run(*inputs: Any) -> Any:
            if len(inputs) == 2 and inputs[0].shape != inputs[1].shape:
                raise errors.InvalidArgumentError(
                    f"{op} requires inputs of one shape, got {list(inputs[0].shape)} and "
                    f"{list(inputs[1].shape)}"
                )
            whole = [xp.ascontiguousarray(value) for value in inputs]
            result = xp.empty(inputs[0].shape, inputs[0].dtype)
            program.over(name, result.size, *whole, result, *numbers)
            return result

        return run

    return make


kernel(*_OF_INTEGERS, device="GPU", dtypes={"T": (*REAL, *INTEGERS)})(
    _activation(_ANY, _OF_INTEGERS)
)
kernel(*_OF_REALS, device="GPU", dtypes=_FLOATING)(_activation(_INEXACT, _OF_REALS))
kernel(*_OF_SLOPES, device="GPU", dtypes=_FLOATING)(_activation(_INEXACT, _OF_SLOPES))


# -------------------------------------------------------------------------------- bias


@kernel("BiasAdd", device="GPU", dtypes={"T": (*INEXACT, *INTEGERS)})
def _bias_add(node: Node, device: Device) -> KernelFunction:
    xp, first = device.xp, node.attrs["data_format"] == "NCHW"

    def run(value: Any, bias: Any) -> Any:
        channels = value.shape[1 if first else -1]
        if bias.shape != (channels,):
            raise errors.InvalidArgumentError(
                f"BiasAdd requires a bias of shape [{channels}] for a value of "
                f"{list(value.shape)}, got {list(bias.shape)}"
            )
        return xp.add(value, bias.reshape(-1, *(1,) * (value.ndim - 2)) if first else bias)

    return run


@kernel("BiasAddGrad", device="GPU", dtypes={"T": (*INEXACT, *INTEGERS)})
def _bias_add_grad(node: Node, device: Device) -> KernelFunction:
    xp, first = device.xp, node.attrs["data_format"] == "NCHW"

    def run(grad: Any) -> Any:
        grad = widened(grad)
        channel = 1 if first else grad.ndim - 1
        axes = tuple(axis for axis in range(grad.ndim) if axis != channel)
        return xp.sum(grad, axis=axes, dtype=grad.dtype)

    return run


@kernel("L2Loss", device="GPU", dtypes=_FLOATING)
def _l2_loss(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(t: Any) -> Any:
        t = widened(t)
        return xp.sum(xp.square(t), dtype=t.dtype) * t.dtype.type(0.5)

    return run


# ----------------------------------------------------------------------------- softmax

_SOFTMAX: Final = Source("softmax", T=REAL)
_SPARSE: Final = Source("sparse_cross_entropy", T=REAL, L=("int32", "int64"))
_OF_ROWS: Final = {"Softmax": "softmax", "LogSoftmax": "log_softmax"}


def _rows(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many rows there are, and the elements of each."""
    return prod(shape[:-1]), shape[-1]


@kernel(*_OF_ROWS, device="GPU", dtypes=_FLOATING)
def _softmax(node: Node, device: Device) -> KernelFunction:
    xp, name = device.xp, _OF_ROWS[node.type]
    program = _SOFTMAX.program(xp, T=node.attrs["T"].numpy)

    def run(logits: Any) -> Any:
        logits, result = xp.ascontiguousarray(logits), xp.empty(logits.shape, logits.dtype)
        program.rows(name, *_rows(logits.shape), logits, result)
        return result

    return run


def _losses(
    xp: Any, shape: tuple[int, ...], dtype: np.dtype[Any], of_none: float
) -> tuple[Any, Any]:
    """Arrays for the losses, which are `of_none` for rows without elements, and the gradients."""
    loss = xp.empty(shape[:-1], dtype) if shape[-1] else xp.full(shape[:-1], of_none, dtype)
    return loss, xp.empty(shape, dtype)


@kernel("SoftmaxCrossEntropyWithLogits", device="GPU", dtypes=_FLOATING)
def _cross_entropy(node: Node, device: Device) -> KernelFunction:
    xp, dtype = device.xp, node.attrs["T"].numpy
    program = _SOFTMAX.program(xp, T=dtype)

    def run(*inputs: Any) -> Any:
        try:
            shape = np.broadcast_shapes(*[value.shape for value in inputs])
        except ValueError:
            raise errors.InvalidArgumentError(
                f"logits and labels must be broadcastable, got shapes {list(inputs[0].shape)} and "
                f"{list(inputs[1].shape)}"
            ) from None
        whole = [xp.ascontiguousarray(xp.broadcast_to(value, shape)) for value in inputs]
        results = _losses(xp, shape, dtype, 0.0)
        program.rows("cross_entropy", *_rows(shape), *whole, *results)
        return results

    return run


@kernel("SparseSoftmaxCrossEntropyWithLogits", device="GPU", dtypes=_FLOATING)
def _sparse_cross_entropy(node: Node, device: Device) -> KernelFunction:
    xp, dtype = device.xp, node.attrs["T"].numpy
    program = _SPARSE.program(xp, T=dtype, L=node.attrs["Tlabels"].numpy)

    def run(logits: Any, labels: Any) -> Any:
        if logits.ndim != 2 or labels.shape != logits.shape[:1]:
            raise errors.InvalidArgumentError(
                f"requires logits of shape [batch, classes] and labels of shape [batch], "
                f"got {list(logits.shape)} and {list(labels.shape)}"
            )
        given = [xp.ascontiguousarray(value) for value in (logits, labels)]
        results = _losses(xp, logits.shape, dtype, np.nan)
        program.rows("sparse_cross_entropy", *logits.shape, *given, *results)
        return results

    return run
