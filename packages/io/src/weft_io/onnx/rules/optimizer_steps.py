"""Optimizer steps and gradients inside a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft_autodiff.gradients.backprop import gradients
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.node import Output
from weft_graph.ops.comparison import greater
from weft_graph.ops.masks import where_v2
from weft_graph.ops.powers import pow, sqrt
from weft_io.onnx.operation import Operation, cast, like
from weft_io.onnx.registry import importer
from weft_tensor import errors

_DOMAIN = "ai.onnx.preview.training"
Update = Callable[[Operation, Output, Output, Sequence[Output]], Sequence[Output]]


def _update_each(operation: Operation, states: int, update: Update) -> list[Output]:
    """Return the update of each variable; inputs and results are grouped by kind."""
    values = [operation[index] for index in range(2, len(operation.inputs))]
    count, slots = divmod(len(values), 2 + states)
    if slots or not count:
        raise errors.InvalidArgumentError(
            f"{operation.op} requires {2 + states} inputs for each variable, got {len(values)}"
        )
    groups = [values[count * i : count * (i + 1)] for i in range(2 + states)]
    match = [update(operation, x, g, slots) for x, g, *slots in zip(*groups, strict=True)]
    return [result for group in zip(*match, strict=True) for result in group]


def _decay(operation: Operation, x: Output, gradient: Output) -> Output:
    return gradient + like(operation.attribute("norm_coefficient", 0.0), x) * x


@importer("Adagrad", domain=_DOMAIN)
def _adagrad(operation: Operation) -> list[Output]:
    rate, step = operation[0], operation[1]
    current_rate = rate / (
        1.0 + cast(step, rate.dtype) * like(operation.attribute("decay_factor", 0.0), rate)
    )

    def update(_: Operation, x: Output, g: Output, state: Sequence[Output]) -> list[Output]:
        g = _decay(operation, x, g)
        total = state[0] + g * g
        denominator = sqrt(total) + like(operation.attribute("epsilon", 1e-6), x)
        return [x - cast(current_rate, x.dtype) * g / denominator, total]

    return _update_each(operation, 1, update)


@importer("Momentum", domain=_DOMAIN)
def _momentum(operation: Operation) -> list[Output]:
    rate, turn = operation[0], operation[1]
    mode = operation.required("mode")
    if mode not in ("standard", "nesterov"):
        raise errors.InvalidArgumentError(
            f"mode of Momentum must be standard or nesterov, got {mode!r}"
        )

    def update(_: Operation, x: Output, g: Output, state: Sequence[Output]) -> list[Output]:
        g = _decay(operation, x, g)
        alpha = like(operation.required("alpha"), x)
        first = greater(turn, like(0, turn))
        beta = where_v2(first, like(operation.required("beta"), x), like(1, x))
        new = alpha * state[0] + beta * g
        step = new if mode == "standard" else g + alpha * new
        return [x - cast(rate, x.dtype) * step, new]

    return _update_each(operation, 1, update)


@importer("Adam", domain=_DOMAIN)
def _adam(operation: Operation) -> list[Output]:
    rate, step = operation[0], operation[1]

    def update(_: Operation, x: Output, g: Output, state: Sequence[Output]) -> list[Output]:
        g = _decay(operation, x, g)
        alpha = like(operation.attribute("alpha", 0.9), x)
        beta = like(operation.attribute("beta", 0.999), x)
        first = alpha * state[0] + (1.0 - alpha) * g
        second = beta * state[1] + (1.0 - beta) * g * g
        steps = cast(step, x.dtype)
        corrected = sqrt(1.0 - pow(beta, steps)) / (1.0 - pow(alpha, steps))
        current_rate = where_v2(
            greater(step, like(0, step)), cast(rate, x.dtype) * corrected, cast(rate, x.dtype)
        )
        new = x - current_rate * first / (
            sqrt(second) + like(operation.attribute("epsilon", 1e-6), x)
        )
        scale = 1.0 - like(operation.attribute("norm_coefficient_post", 0.0), x)
        return [scale * new, first, second]

    return _update_each(operation, 2, update)


@importer("Gradient", domain=_DOMAIN)
def _gradient(operation: Operation) -> list[Output]:
    """Return the derivatives of a value of the enclosing graph with respect to other values."""
    y = operation.named(operation.required("y"))
    sources = [operation.named(name) for name in operation.required("xs")]
    pairs = zip(gradients(y, sources), sources, strict=True)
    return [x * like(0, x) if g is None else convert_to_tensor(g) for g, x in pairs]
