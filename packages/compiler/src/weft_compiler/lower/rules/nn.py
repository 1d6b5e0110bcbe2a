"""Softmax and ops based on it, and gradients of biases."""

from __future__ import annotations

from weft_compiler.ir.expressions import INDEX, Expr, apply, cast, number, where
from weft_compiler.ir.indices import clamp_index
from weft_compiler.lower.precision import wide_type
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.gather import require_in_range
from weft_compiler.lower.rules.reduction import reduce
from weft_compiler.lower.values import Value, broadcast, compute_value


class _Softmax:
    """The parts of a softmax along the last axis, in float32 if the operand is narrower."""

    def __init__(self, op: Operation, logits: Value) -> None:
        wide = wide_type(logits.dtype)
        self.wide = wide
        shape = op.shape(len(op.node.outputs) - 1)
        last = len(shape) - 1
        x = compute_value(
            f"{op.name}_x", wide, shape, lambda *index: logits.at(*broadcast(logits.shape, index))
        )
        limit = reduce(f"{op.name}_max", x, [last], "maximum")
        self.shifted = compute_value(
            f"{op.name}_shifted",
            wide,
            x.shape,
            lambda *index: apply("sub", x.at(*index), limit.at(*index[:-1])),
        )
        self.exp = compute_value(
            f"{op.name}_exp", wide, x.shape, lambda *index: apply("exp", self.shifted.at(*index))
        )
        self.sum = reduce(f"{op.name}_sum", self.exp, [last], "add")
        self.log_sum = compute_value(
            f"{op.name}_log", wide, self.sum.shape, lambda *index: apply("log", self.sum.at(*index))
        )

    def probability(self, *index: Expr) -> Expr:
        return apply("div", self.exp.at(*index), self.sum.at(*index[:-1]))

    def log_probability(self, *index: Expr) -> Expr:
        return apply("sub", self.shifted.at(*index), self.log_sum.at(*index[:-1]))


@lowers("Softmax", compiles_alone=lambda _: True)
def _softmax(op: Operation) -> Value:
    return compute_value(op.name, op.dtype(), op.shape(), _Softmax(op, op.inputs[0]).probability)


@lowers("LogSoftmax", compiles_alone=lambda _: True)
def _log_softmax(op: Operation) -> Value:
    return compute_value(
        op.name, op.dtype(), op.shape(), _Softmax(op, op.inputs[0]).log_probability
    )


@lowers("BiasAddGrad")
def _bias_add_grad(op: Operation) -> Value:
    x = op.inputs[0]
    axis = 1 if op.attr("data_format") == "NCHW" else x.rank - 1
    return reduce(
        op.name, x, [reduced_axis for reduced_axis in range(x.rank) if reduced_axis != axis], "add"
    )


@lowers("L2Loss")
def _l2_loss(op: Operation) -> Value:
    x = op.inputs[0]
    squares = compute_value(
        f"{op.name}_squares", x.dtype, x.shape, lambda *index: apply("square", x.at(*index))
    )
    total = reduce(f"{op.name}_sum", squares, list(range(x.rank)), "add")
    half = number(0.5, x.dtype)
    return compute_value(op.name, x.dtype, (), lambda: apply("mul", total.at(), half))


@lowers("SoftmaxCrossEntropyWithLogits")
def _cross_entropy(op: Operation) -> list[Value]:
    logits, labels = op.inputs
    parts = _Softmax(op, logits)
    wide, shape = parts.wide, op.shape(1)

    def label_at(*index: Expr) -> Expr:
        return cast(labels.at(*broadcast(labels.shape, index)), wide)

    def term(*index: Expr) -> Expr:
        return apply("neg", apply("mul", label_at(*index), parts.log_probability(*index)))

    terms = compute_value(f"{op.name}_terms", wide, shape, term)
    loss = reduce(f"{op.name}_loss", terms, [1], "add")

    def gradient(*index: Expr) -> Expr:
        return apply("sub", parts.probability(*index), label_at(*index))

    return [
        compute_value(f"{op.name}_0", op.dtype(), loss.shape, loss.at),
        compute_value(f"{op.name}_1", op.dtype(1), shape, gradient),
    ]


@lowers("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_cross_entropy(op: Operation) -> list[Value]:
    logits, labels = op.inputs
    require(bool(logits.shape[1]), "the number of classes is 0")
    parts = _Softmax(op, logits)
    wide, classes = parts.wide, logits.shape[1]

    def loss(*index: Expr) -> Expr:
        label = clamp_index(cast(labels.at(*index), INDEX), classes)
        return apply("neg", parts.log_probability(*index, label))

    def gradient(*index: Expr) -> Expr:
        selected = apply("equal", cast(labels.at(index[0]), INDEX), index[1])
        target = where(selected, number(1, wide), number(0, wide))
        return apply("sub", parts.probability(*index), target)

    results = [
        compute_value(f"{op.name}_0", op.dtype(), labels.shape, loss),
        compute_value(f"{op.name}_1", op.dtype(1), logits.shape, gradient),
    ]
    for result in results:
        result.requires = (require_in_range(labels, classes),)
    return results
