"""Formulas of the update rules of optimizers, as scalar expressions.

A formula receives the node's attributes and one element of each input of `Apply*`, in the order
of `weft_graph.ops.training.RULES`. It returns the new element of each variable. Operations are in
the same order as in the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from weft_graph.ir.scalar import (
    Scalar,
    absolute,
    cast,
    greater,
    maximum,
    power,
    sign,
    sqrt,
    where,
)

Attrs = Mapping[str, Any]
New = Sequence[Scalar]
Formula = Callable[..., New]


def _gradient_descent(attrs: Attrs, var: Scalar, alpha: Scalar, delta: Scalar) -> New:
    return [var - delta * alpha]


def _momentum(
    attrs: Attrs, var: Scalar, accum: Scalar, lr: Scalar, grad: Scalar, momentum: Scalar
) -> New:
    accum = accum * momentum + grad
    step = accum * momentum + grad if attrs["use_nesterov"] else accum
    return [var - step * lr, accum]


def _adagrad(attrs: Attrs, var: Scalar, accum: Scalar, lr: Scalar, grad: Scalar) -> New:
    accum = accum + grad * grad if attrs["update_slots"] else accum
    return [var - grad * lr / sqrt(accum), accum]


def _adagrad_v2(
    attrs: Attrs, var: Scalar, accum: Scalar, lr: Scalar, epsilon: Scalar, grad: Scalar
) -> New:
    accum = accum + grad * grad if attrs["update_slots"] else accum
    return [var - grad * lr / (sqrt(accum) + epsilon), accum]


def _adadelta(attrs: Attrs, *elements: Scalar) -> New:
    var, accum, updates, lr, rho, epsilon, grad = elements
    accum = accum * rho + grad * grad * (1 - rho)
    update = sqrt(updates + epsilon) / sqrt(accum + epsilon) * grad
    return [var - update * lr, accum, updates * rho + update * update * (1 - rho)]


def _adam(attrs: Attrs, *elements: Scalar) -> New:
    var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad = elements
    rate = lr * sqrt(1 - beta2_power) / (1 - beta1_power)
    m = m + (grad - m) * (1 - beta1)
    v = v + (grad * grad - v) * (1 - beta2)
    root = sqrt(v) + epsilon
    if attrs["use_nesterov"]:
        var = var - m * beta1 / root * rate - grad * ((1 - beta1) * rate) / root
    else:
        var = var - m * rate / root
    return [var, m, v]


def _rmsprop(attrs: Attrs, *elements: Scalar) -> New:
    var, ms, mom, lr, rho, momentum, epsilon, grad = elements
    ms = ms + (grad * grad - ms) * (1 - rho)
    mom = mom * momentum + grad * lr / sqrt(ms + epsilon)
    return [var - mom, ms, mom]


def _centered_rmsprop(attrs: Attrs, *elements: Scalar) -> New:
    var, mg, ms, mom, lr, rho, momentum, epsilon, grad = elements
    ms = ms + (grad * grad - ms) * (1 - rho)
    mg = mg + (grad - mg) * (1 - rho)
    mom = mom * momentum + grad * lr / sqrt(ms - mg * mg + epsilon)
    return [var - mom, mg, ms, mom]


def _shrunk(value: Scalar, amount: Scalar, l1: Scalar) -> Scalar:
    """Return sign(value) * max(|value| - by, 0), or the value itself if `l1` is 0."""
    return where(greater(l1, 0), sign(value) * maximum(absolute(value) - amount, 0), value)


def _proximal_gradient_descent(
    attrs: Attrs, var: Scalar, alpha: Scalar, l1: Scalar, l2: Scalar, delta: Scalar
) -> New:
    return [_shrunk(var - delta * alpha, alpha * l1, l1) / (1 + alpha * l2)]


def _proximal_adagrad(attrs: Attrs, *elements: Scalar) -> New:
    var, accum, lr, l1, l2, grad = elements
    accum = accum + grad * grad
    rate = lr / sqrt(accum)
    return [_shrunk(var - grad * rate, rate * l1, l1) / (rate * l2 + 1), accum]


def _adagrad_da(attrs: Attrs, *elements: Scalar) -> New:
    var, total, squares, grad, lr, l1, l2, global_step = elements
    count = cast(global_step, var.dtype)
    total, squares = total + grad, squares + grad * grad
    shrunk = _shrunk(total, l1 * count, l1)
    return [shrunk * -lr / (sqrt(squares) + l2 * count * lr), total, squares]


def _ftrl(attrs: Attrs, *elements: Scalar) -> New:
    *_, l1, l2, lr_power = elements
    return _ftrl_with(elements[:5], l1, l2, lr_power)


def _ftrl_v2(attrs: Attrs, *elements: Scalar) -> New:
    *_, l1, l2, l2_shrinkage, lr_power = elements
    return _ftrl_with(elements[:5], l1, l2, lr_power, l2_shrinkage)


def _ftrl_with(
    elements: Sequence[Scalar],
    l1: Scalar,
    l2: Scalar,
    lr_power: Scalar,
    l2_shrinkage: Scalar | None = None,
) -> New:
    var, accum, linear, grad, lr = elements
    new = accum + grad * grad
    root = power(new, -lr_power)
    linear = linear + grad - (root - power(accum, -lr_power)) / lr * var
    if l2_shrinkage is not None:
        linear = linear + var * (l2_shrinkage + l2_shrinkage)
    result = (sign(linear) * l1 - linear) / (root / lr + (l2 + l2))
    return [where(greater(absolute(linear), l1), result, 0), new, linear]


FORMULAS: Final[Mapping[str, Formula]] = {
    "GradientDescent": _gradient_descent,
    "Momentum": _momentum,
    "Adagrad": _adagrad,
    "AdagradV2": _adagrad_v2,
    "Adadelta": _adadelta,
    "Adam": _adam,
    "RMSProp": _rmsprop,
    "CenteredRMSProp": _centered_rmsprop,
    "ProximalGradientDescent": _proximal_gradient_descent,
    "ProximalAdagrad": _proximal_adagrad,
    "AdagradDA": _adagrad_da,
    "Ftrl": _ftrl,
    "FtrlV2": _ftrl_v2,
}
"""Formulas by the names of `weft_graph.ops.training.RULES`."""
