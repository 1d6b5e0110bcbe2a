"""Losses of logits, per example."""

from __future__ import annotations

__all__ = [
    "log_poisson_loss",
    "sigmoid_cross_entropy_with_logits",
    "weighted_cross_entropy_with_logits",
]

from math import pi
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.nn.scope import scope
from weft_graph.ops import array, casting, nn
from weft_tensor import errors
from weft_tensor.shape import format_dims, merge_dims


def _pair(function: str, labels: Any, logits: Any) -> tuple[Output, Output]:
    if labels is None or logits is None:
        raise errors.InvalidArgumentError(
            f"{function} must be called with named arguments (labels=..., logits=..., ...)"
        )
    logits = convert_to_tensor(logits)
    kind = logits.dtype.base_dtype
    labels = casting.cast(convert_to_tensor(labels, preferred_dtype=kind), kind)
    try:
        merge_dims(labels.dims, logits.dims)
    except errors.InvalidArgumentError:
        raise errors.InvalidArgumentError(
            f"logits and labels must have the same shape, got {format_dims(logits.dims)} and "
            f"{format_dims(labels.dims)}"
        ) from None
    return labels, logits


def sigmoid_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, name: str | None = None
) -> Output:
    """Return the cross entropy of binary labels: max(x, 0) - x * z + log(1 + exp(-abs(x))).

    Args:
      labels: z, floating, any shape, in [0, 1].
      logits: x, same dtype and shape.
    Returns: the same shape and dtype.
    Raises: InvalidArgumentError: arguments are positional, or the shapes differ.

    Examples:
      >>> loss = wf.nn.sigmoid_cross_entropy_with_logits(labels=[1.0], logits=[0.0])
      >>> np.round(wf.Session().run(loss), 3)
      array([0.693], dtype=float32)
    """
    function = "sigmoid_cross_entropy_with_logits"
    if _sentinel is not None:
        labels = None
    labels, logits = _pair(function, labels, logits)
    with scope(name, "logistic_loss") as full:
        # Selections rather than relu and abs: their gradients at 0 add up to 1/2 - z.
        zeros = array.zeros_like(logits)
        positive = out("GreaterEqual", [logits, zeros])
        positive_logits = out("SelectV2", [positive, logits, zeros])
        negative_abs = out("SelectV2", [positive, out("Neg", [logits]), logits])
        linear = out("Sub", [positive_logits, out("Mul", [logits, labels])])
        return out("AddV2", [linear, out("Log1p", [out("Exp", [negative_abs])])], name=full)


def weighted_cross_entropy_with_logits(
    labels: Any = None,
    logits: Any = None,
    pos_weight: Any = None,
    name: str | None = None,
    targets: Any = None,
) -> Output:
    """Return the sigmoid cross entropy with a weighted positive term.

    The loss is pos_weight * z * -log(sigmoid(x)) + (1 - z) * -log(1 - sigmoid(x)).

    Args:
      labels: z, floating, any shape; also `targets`.
      logits: x, same dtype and shape.
      pos_weight: weight of the positive term; broadcasts to `labels`.
    Returns: the same shape and dtype.
    Raises: InvalidArgumentError: the shapes differ.

    Examples:
      >>> loss = wf.nn.weighted_cross_entropy_with_logits([1.0], [0.0], pos_weight=2.0)
      >>> np.round(wf.Session().run(loss), 3)
      array([1.386], dtype=float32)
    """
    labels = targets if labels is None else labels
    labels, logits = _pair("weighted_cross_entropy_with_logits", labels, logits)
    with scope(name, "logistic_loss") as full:
        if not isinstance(pos_weight, Output):
            pos_weight = convert_to_tensor(pos_weight, labels.dtype)
        weight = out("AddV2", [1, out("Mul", [out("Sub", [pos_weight, 1.0]), labels])])
        tail = out("Log1p", [out("Exp", [out("Neg", [out("Abs", [logits])])])])
        tail = out("AddV2", [tail, nn.relu(out("Neg", [logits]))])
        linear = out("Mul", [out("Sub", [1, labels]), logits])
        return out("AddV2", [linear, out("Mul", [weight, tail])], name=full)


def log_poisson_loss(
    targets: Any, log_input: Any, compute_full_loss: bool = False, name: str | None = None
) -> Output:
    """Return exp(c) - z * c, the Poisson loss except for a constant.

    Args:
      targets: z, floating, any shape.
      log_input: c, same dtype and shape.
      compute_full_loss: also add Stirling's approximation of the constant where z > 1.
    Returns: the same shape and dtype.
    Raises: InvalidArgumentError: the shapes differ.

    Examples:
      >>> wf.Session().run(wf.nn.log_poisson_loss([1.0], [0.0]))
      array([1.], dtype=float32)
    """
    targets, log_input = _pair("log_poisson_loss", targets, log_input)
    with scope(name, "log_poisson_loss") as full:
        linear = out("Mul", [log_input, targets])
        if not compute_full_loss:
            return out("Sub", [out("Exp", [log_input]), linear], name=full)
        result = out("Sub", [out("Exp", [log_input]), linear])
        logarithm = out("Log", [targets])
        stirling = out("Sub", [out("Mul", [targets, logarithm]), targets])
        half = out("Mul", [0.5, out("Log", [out("Mul", [2 * pi, targets])])])
        stirling = out("AddV2", [stirling, half])
        zeros = array.zeros_like(targets)
        in_unit_interval = out(
            "LogicalAnd",
            [out("GreaterEqual", [targets, 0.0]), out("LessEqual", [targets, 1.0])],
        )
        correction = out("SelectV2", [in_unit_interval, zeros, stirling])
        return out("AddV2", [result, correction], name=full)
