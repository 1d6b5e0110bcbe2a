"""GPU kernels of activations, biases, softmax and the fused losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.gpu.kernels.elementwise import Compute
from weft_exec.gpu.kernels.reduction import widened
from weft_exec.gpu.registration import INEXACT, INTEGERS, REAL, gpu_kernel
from weft_exec.kernels.registry import KernelFunction
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.device import Device
    from weft_graph.node import Node

_SCALE = 1.0507009873554804934193349852946
_ALPHA = 1.6732632423543772848170429916717
_FLOATING = {"T": REAL}


def _relu6(xp: Any, x: Any) -> Any:
    return xp.minimum(xp.maximum(x, x.dtype.type(0)), x.dtype.type(6))


def _elu(xp: Any, x: Any) -> Any:
    return xp.where(x > 0, x, xp.expm1(xp.minimum(x, x.dtype.type(0))))


def _selu(xp: Any, x: Any) -> Any:
    scale, alpha = x.dtype.type(_SCALE), x.dtype.type(_ALPHA)
    return scale * xp.where(x > 0, x, alpha * xp.expm1(xp.minimum(x, x.dtype.type(0))))


def _softplus(xp: Any, x: Any) -> Any:
    return xp.log1p(xp.exp(-xp.absolute(x))) + xp.maximum(x, x.dtype.type(0))


_COMPUTES: dict[str, Compute] = {
    "Relu": lambda xp, x: xp.maximum(x, x.dtype.type(0)),
    "Relu6": _relu6,
    "Elu": _elu,
    "Selu": _selu,
    "Softplus": _softplus,
    "Softsign": lambda xp, x: x / (xp.absolute(x) + x.dtype.type(1)),
    "ReluGrad": lambda xp, g, x: g * (x > 0),
    "Relu6Grad": lambda xp, g, x: g * ((x > 0) & (x < 6)),
    "EluGrad": lambda xp, g, y: g * (xp.minimum(y, y.dtype.type(0)) + y.dtype.type(1)),
    "SeluGrad": lambda xp, g, y: (
        g * xp.where(y >= 0, y.dtype.type(_SCALE), y + y.dtype.type(_SCALE * _ALPHA))
    ),
    "SoftplusGrad": lambda xp, g, x: g / (xp.exp(-x) + x.dtype.type(1)),
    "SoftsignGrad": lambda xp, g, x: g / xp.square(xp.absolute(x) + x.dtype.type(1)),
}


@gpu_kernel(*_COMPUTES, types={"T": (*REAL, *INTEGERS)})
def _activation(node: Node, device: Device) -> KernelFunction:
    xp, op, compute = device.xp, node.type, _COMPUTES[node.type]

    def run(*inputs: Any) -> Any:
        if len(inputs) == 2 and inputs[0].shape != inputs[1].shape:
            raise errors.InvalidArgumentError(
                f"{op} requires inputs of one shape, got {list(inputs[0].shape)} and "
                f"{list(inputs[1].shape)}"
            )
        return compute(xp, *[widened(value) for value in inputs])

    return run


@gpu_kernel("LeakyRelu", types=_FLOATING)
def _leaky_relu(node: Node, device: Device) -> KernelFunction:
    xp, alpha = device.xp, node.attrs["alpha"]
    choose = xp.maximum if alpha <= 1 else xp.minimum

    def run(x: Any) -> Any:
        x = widened(x)
        return choose(x, x * x.dtype.type(alpha))

    return run


@gpu_kernel("LeakyReluGrad", types=_FLOATING)
def _leaky_relu_grad(node: Node, device: Device) -> KernelFunction:
    xp, alpha = device.xp, node.attrs["alpha"]

    def run(grad: Any, x: Any) -> Any:
        grad = widened(grad)
        return xp.where(x > 0, grad, grad * grad.dtype.type(alpha))

    return run


# -------------------------------------------------------------------------------- bias


@gpu_kernel("BiasAdd", types={"T": (*INEXACT, *INTEGERS)})
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


@gpu_kernel("BiasAddGrad", types={"T": (*INEXACT, *INTEGERS)})
def _bias_add_grad(node: Node, device: Device) -> KernelFunction:
    xp, first = device.xp, node.attrs["data_format"] == "NCHW"

    def run(grad: Any) -> Any:
        grad = widened(grad)
        channel = 1 if first else grad.ndim - 1
        axes = tuple(axis for axis in range(grad.ndim) if axis != channel)
        return xp.sum(grad, axis=axes, dtype=grad.dtype)

    return run


@gpu_kernel("L2Loss", types=_FLOATING)
def _l2_loss(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(t: Any) -> Any:
        t = widened(t)
        return xp.sum(xp.square(t), dtype=t.dtype) * t.dtype.type(0.5)

    return run


# ----------------------------------------------------------------------------- softmax


def _shifted(xp: Any, logits: Any) -> Any:
    """The logits less the maximum of their row; float32 for float16."""
    logits = widened(logits)
    return logits - xp.max(logits, axis=-1, keepdims=True) if logits.size else logits


@gpu_kernel("Softmax", types=_FLOATING)
def _softmax(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(logits: Any) -> Any:
        powers = xp.exp(_shifted(xp, logits))
        return powers / xp.sum(powers, axis=-1, keepdims=True)

    return run


@gpu_kernel("LogSoftmax", types=_FLOATING)
def _log_softmax(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(logits: Any) -> Any:
        shifted = _shifted(xp, logits)
        return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))

    return run


@gpu_kernel("SoftmaxCrossEntropyWithLogits", types=_FLOATING)
def _cross_entropy(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(logits: Any, labels: Any) -> Any:
        try:
            shape = np.broadcast_shapes(logits.shape, labels.shape)
        except ValueError:
            raise errors.InvalidArgumentError(
                f"logits and labels must be broadcastable, got shapes {list(logits.shape)} and "
                f"{list(labels.shape)}"
            ) from None
        labels = xp.broadcast_to(widened(labels), shape)
        shifted = _shifted(xp, xp.broadcast_to(logits, shape))
        powers = xp.exp(shifted)
        total = xp.sum(powers, axis=-1, keepdims=True)
        loss = xp.sum((xp.log(total) - shifted) * labels, axis=-1)
        return loss, powers / total - labels

    return run


@gpu_kernel("SparseSoftmaxCrossEntropyWithLogits", types=_FLOATING)
def _sparse_cross_entropy(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(logits: Any, labels: Any) -> Any:
        if logits.ndim != 2 or labels.shape != logits.shape[:1]:
            raise errors.InvalidArgumentError(
                f"requires logits of shape [batch, classes] and labels of shape [batch], "
                f"got {list(logits.shape)} and {list(labels.shape)}"
            )
        shifted = _shifted(xp, logits)
        powers = xp.exp(shifted)
        total = xp.sum(powers, axis=-1, keepdims=True)
        chosen = labels[:, None] == xp.arange(logits.shape[1])
        # What is no class has no loss to speak of: NaN, as on the GPUs of TensorFlow.
        lost = xp.where((labels < 0) | (labels >= logits.shape[1]), np.nan, 0)
        lost = lost.astype(shifted.dtype)
        zero = shifted.dtype.type(0)
        loss = xp.sum(xp.where(chosen, xp.log(total) - shifted, zero), axis=-1) + lost
        return loss, powers / total - chosen.astype(shifted.dtype) + lost[:, None]

    return run
