"""Kernels of LeakyRelu, biases, softmax and the fused losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.common import LARGE, as_exact, map_rows, new_array, widen_value
from weft_exec.kernels.elementwise import shapes_differ
from weft_exec.kernels.primitives import maximum
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_exec.kernels.sums import sum_axes
from weft_exec.kernels.window_functions import Array, column_sums, contiguous
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

# ------------------------------------------------------------------------------- slopes


@kernel("LeakyRelu")
def _make_leaky(node: Node, device: Device) -> KernelFunction:
    # A maximum: the derived kernel selects by a mask, which takes ten times as long.
    alpha = node.attrs["alpha"]
    exact = node.outputs[0].dtype.numpy
    choose = np.maximum if alpha <= 1 else np.minimum

    def run(x: Any) -> Any:
        x = widen_value(x)
        target = new_array(device, x.shape, x.dtype)
        np.multiply(x, x.dtype.type(alpha), out=target)
        choose(x, target, out=target)
        return contiguous(target, exact, device)

    return run


@kernel("LeakyReluGrad")
def _make_leaky_grad(node: Node, device: Device) -> KernelFunction:
    alpha = node.attrs["alpha"]
    exact = node.outputs[0].dtype.numpy

    def run(grad: Any, x: Any) -> Any:
        if grad.shape != x.shape:
            raise shapes_differ(node, (grad, x))
        grad, x = widen_value(grad), widen_value(x)
        is_positive, slope = np.greater(x, 0), grad.dtype.type(alpha)
        if not 0 <= alpha <= 1:
            return as_exact(np.where(is_positive, grad, grad * slope), exact, device)
        # 1 or alpha, by a bound: choosing by a mask takes twice as long.
        factor = new_array(device, x.shape, grad.dtype)
        np.copyto(factor, is_positive)
        maximum(factor, slope, out=factor)
        np.multiply(grad, factor, out=factor)
        return contiguous(factor, exact, device)

    return run


# -------------------------------------------------------------------------------- bias


@kernel("BiasAdd", device=ARRAY_DEVICE)
def _make_bias_add(node: Node, device: Device) -> KernelFunction:
    xp, channels_first = device.xp, node.attrs["data_format"] == "NCHW"

    def run(value: Any, bias: Any) -> Any:
        channels = value.shape[1 if channels_first else -1]
        if bias.shape != (channels,):
            raise errors.InvalidArgumentError(
                f"BiasAdd requires a bias of shape [{channels}] for a value of "
                f"{list(value.shape)}, got {list(bias.shape)}"
            )
        if channels_first:
            bias = bias.reshape((-1,) + (1,) * (value.ndim - 2))
        if value.nbytes <= LARGE:
            return xp.add(value, bias)
        result = new_array(device, value.shape, value.dtype)
        if channels_first or xp is not np:
            return xp.add(value, bias, out=result)
        return map_rows(np.add, value, bias, result)

    return run


@kernel("BiasAddGrad", device=ARRAY_DEVICE)
def _make_bias_grad(node: Node, device: Device) -> KernelFunction:
    xp, channels_first = device.xp, node.attrs["data_format"] == "NCHW"
    exact = node.outputs[0].dtype.numpy

    def run(grad: Any) -> Any:
        grad = widen_value(grad)
        if xp is not np:  # one launch takes all axes; NumPy is fast along one of them at a time
            channel = 1 if channels_first else grad.ndim - 1
            axes = tuple([axis for axis in range(grad.ndim) if axis != channel])
            return xp.sum(grad, axis=axes, dtype=grad.dtype).astype(exact)
        if channels_first:
            batch, channels = grad.shape[:2]
            remaining = -1 if grad.size else 0
            inner = sum_axes(grad.reshape(batch, channels, remaining), 2, 3)
            return column_sums(inner).astype(exact)
        matrix = grad.reshape(-1, grad.shape[-1]) if grad.size else grad.reshape(0, grad.shape[-1])
        return column_sums(matrix).astype(exact)

    return run


_SQUARES: Final = 1 << 14
"""Number of squares that one dot product adds; BLAS adds in dozens of lanes."""


@kernel("L2Loss", device=ARRAY_DEVICE)
def _make_l2(node: Node, device: Device) -> KernelFunction:
    dot: Any = device.xp.dot
    exact = node.outputs[0].dtype.numpy

    def run(t: Any) -> Any:
        flat = widen_value(t).reshape(-1)
        half = squares(flat) * flat.dtype.type(0.5)
        return half if half.dtype == exact else half.astype(exact)

    def squares(flat: Any) -> Any:
        """Return the sum of squares.

        On the host it is computed in blocks, which limits rounding errors.
        """
        if flat.size <= _SQUARES or type(flat) is not np.ndarray:
            return dot(flat, flat)
        blocks = [flat[index : index + _SQUARES] for index in range(0, flat.size, _SQUARES)]
        return np.add.reduce(np.array([dot(block, block) for block in blocks], flat.dtype))

    return run


# ----------------------------------------------------------------------------- softmax


_SHORT = 48
"""Maximum number of columns for which row maxima are computed faster in a transposed copy."""


def _maxima(logits: Array) -> Array:
    """Return the maximum of each row, keeping the axis."""
    if logits.shape[-1] > _SHORT or logits.size < 4 * _SHORT or not logits.flags.c_contiguous:
        array: Array = np.maximum.reduce(logits, axis=-1, keepdims=True)
        return array
    columns = np.ascontiguousarray(logits.reshape(-1, logits.shape[-1]).T)
    array = np.maximum.reduce(columns, axis=0)
    return array.reshape(*logits.shape[:-1], 1)


def row_sums(values: Array) -> Array:
    """Return the sum of each row, keeping the axis."""
    axis = values.ndim - 1
    sums: Array = sum_axes(values, axis, axis + 1).reshape(*values.shape[:-1], 1)
    return sums


def _shift_logits(logits: Array, device: Device) -> Array:
    """Return the logits minus the maximum of their row, in a new array.

    Float32 for narrow types.
    """
    logits = widen_value(logits)
    result = new_array(device, logits.shape, logits.dtype)
    if logits.size:
        # Softmax does not change if a row is shifted. After subtracting the maximum, no exponential
        # overflows.
        np.subtract(logits, _maxima(logits), out=result)
    return result


@kernel("Softmax")
def _make_softmax(node: Node, device: Device) -> KernelFunction:
    exact = node.outputs[0].dtype.numpy

    def run(logits: Any) -> Any:
        result = _shift_logits(logits, device)
        np.exp(result, out=result)
        np.divide(result, row_sums(result), out=result)
        return contiguous(result, exact, device)

    return run


@kernel("LogSoftmax")
def _make_log_softmax(node: Node, device: Device) -> KernelFunction:
    exact = node.outputs[0].dtype.numpy

    def run(logits: Any) -> Any:
        result = _shift_logits(logits, device)
        # The logarithm of the softmax itself would be -inf where a probability underflows.
        powers = new_array(device, result.shape, result.dtype)
        np.exp(result, out=powers)
        np.subtract(result, np.log(row_sums(powers)), out=result)
        return contiguous(result, exact, device)

    return run


@kernel("SoftmaxCrossEntropyWithLogits")
def _make_cross_entropy(node: Node, device: Device) -> KernelFunction:
    exact = node.outputs[0].dtype.numpy

    def run(logits: Any, labels: Any) -> Any:
        labels = widen_value(labels)
        if logits.ndim != 2 or labels.ndim != 2:
            raise errors.InvalidArgumentError(
                f"logits and labels must have rank 2, got shapes {list(logits.shape)} and "
                f"{list(labels.shape)}"
            )
        if logits.shape != labels.shape:
            shape = shape_of_losses(logits, labels)
            logits, labels = np.broadcast_to(logits, shape), np.broadcast_to(labels, shape)
        shifted = _shift_logits(logits, device)
        backprop = new_array(device, shifted.shape, shifted.dtype)
        np.exp(shifted, out=backprop)
        total = row_sums(backprop)
        np.subtract(np.log(total), shifted, out=shifted)
        np.multiply(shifted, labels, out=shifted)
        loss = sum_axes(shifted, 1, 2)
        np.divide(backprop, total, out=backprop)
        np.subtract(backprop, labels, out=backprop)
        return contiguous(loss, exact, device), contiguous(backprop, exact, device)

    return run


def shape_of_losses(logits: Any, labels: Any) -> tuple[int, ...]:
    """Return the broadcast shape of logits and labels."""
    try:
        return np.broadcast_shapes(logits.shape, labels.shape)
    except ValueError:
        raise errors.InvalidArgumentError(
            f"logits and labels must be broadcastable, got shapes {list(logits.shape)} and "
            f"{list(labels.shape)}"
        ) from None


@kernel("SparseSoftmaxCrossEntropyWithLogits")
def _make_sparse_cross_entropy(node: Node, device: Device) -> KernelFunction:
    exact = node.outputs[0].dtype.numpy

    def run(logits: Any, labels: Any) -> Any:
        _check_labels(logits, labels)
        batch, classes = logits.shape
        index = np.arange(0, batch * classes, classes or 1, dtype=np.intp)
        np.add(index, labels, out=index, casting="unsafe")
        backprop = _shift_logits(logits, device)
        flat = backprop.reshape(-1)
        # Read before the exponentials overwrite the shifted logits.
        selected = flat.take(index)
        np.exp(backprop, out=backprop)
        total = row_sums(backprop)
        loss = np.log(total[:, 0]) - selected
        np.divide(backprop, total, out=backprop)
        # The gradient is the softmax minus the one-hot labels, which are never built.
        flat[index] -= 1
        return contiguous(loss, exact, device), contiguous(backprop, exact, device)

    return run


def check_label_shapes(logits: Any, labels: Any) -> None:
    """Raise InvalidArgumentError unless there is one label for each row of a matrix."""
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise errors.InvalidArgumentError(
            f"requires logits of shape [batch, classes] and labels of shape [batch], "
            f"got {list(logits.shape)} and {list(labels.shape)}"
        )


def _check_labels(logits: Array, labels: Array) -> None:
    check_label_shapes(logits, labels)
    batch, classes = logits.shape
    if batch and not (labels.min() >= 0 and labels.max() < classes):
        bad = labels[(labels < 0) | (labels >= classes)][0]
        text = " ".join(map(str, labels[:32])) + (" ..." if batch > 32 else "")
        raise errors.InvalidArgumentError(
            f"Received a label value of {bad} which is outside the valid range of "
            f"[0, {classes}).  Label values: {text}"
        )
