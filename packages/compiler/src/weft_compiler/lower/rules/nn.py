"""Softmax and ops based on it, and gradients of biases."""

from __future__ import annotations

from weft_compiler.ir.expressions import INDEX, Expr, apply, cast, number, where
from weft_compiler.ir.indices import clamped
from weft_compiler.lower.precision import wide_type
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.gather import in_range
from weft_compiler.lower.rules.reduction import reduce
from weft_compiler.lower.values import Value, broadcast, computed


class _Softmax:
    """Parts of the softmax along the last axis, in float32 if the operand is narrower."""

    def __init__(self, op: Operation, logits: Value) -> None:
        wide = wide_type(logits.dtype)
        self.wide = wide
        shape = op.shape(len(op.node.outputs) - 1)
        last = len(shape) - 1
        x = computed(
            f"{op.name}_x", wide, shape, lambda *at: logits.at(*broadcast(logits.shape, at))
        )
        most = reduce(f"{op.name}_max", x, [last], "maximum")
        self.shifted = computed(
            f"{op.name}_shifted",
            wide,
            x.shape,
            lambda *at: apply("sub", x.at(*at), most.at(*at[:-1])),
        )
        self.exp = computed(
            f"{op.name}_exp", wide, x.shape, lambda *at: apply("exp", self.shifted.at(*at))
        )
        self.sum = reduce(f"{op.name}_sum", self.exp, [last], "add")
        self.log_sum = computed(
            f"{op.name}_log", wide, self.sum.shape, lambda *at: apply("log", self.sum.at(*at))
        )

    def probability(self, *at: Expr) -> Expr:
        return apply("div", self.exp.at(*at), self.sum.at(*at[:-1]))

    def log_probability(self, *at: Expr) -> Expr:
        return apply("sub", self.shifted.at(*at), self.log_sum.at(*at[:-1]))


@lowers("Softmax")
def _softmax(op: Operation) -> Value:
    return computed(op.name, op.dtype(), op.shape(), _Softmax(op, op.inputs[0]).probability)


@lowers("LogSoftmax")
def _log_softmax(op: Operation) -> Value:
    return computed(op.name, op.dtype(), op.shape(), _Softmax(op, op.inputs[0]).log_probability)


@lowers("BiasAddGrad")
def _bias_add_grad(op: Operation) -> Value:
    x = op.inputs[0]
    axis = 1 if op.attr("data_format") == "NCHW" else x.rank - 1
    return reduce(op.name, x, [other for other in range(x.rank) if other != axis], "add")


@lowers("L2Loss")
def _l2_loss(op: Operation) -> Value:
    x = op.inputs[0]
    squares = computed(
        f"{op.name}_squares", x.dtype, x.shape, lambda *at: apply("square", x.at(*at))
    )
    total = reduce(f"{op.name}_sum", squares, list(range(x.rank)), "add")
    half = number(0.5, x.dtype)
    return computed(op.name, x.dtype, (), lambda: apply("mul", total.at(), half))


@lowers("SoftmaxCrossEntropyWithLogits")
def _cross_entropy(op: Operation) -> list[Value]:
    logits, labels = op.inputs
    parts = _Softmax(op, logits)
    wide, shape = parts.wide, op.shape(1)

    def label_at(*at: Expr) -> Expr:
        return cast(labels.at(*broadcast(labels.shape, at)), wide)

    def term(*at: Expr) -> Expr:
        return apply("neg", apply("mul", label_at(*at), parts.log_probability(*at)))

    terms = computed(f"{op.name}_terms", wide, shape, term)
    loss = reduce(f"{op.name}_loss", terms, [1], "add")

    def gradient(*at: Expr) -> Expr:
        return apply("sub", parts.probability(*at), label_at(*at))

    return [
        computed(f"{op.name}_0", op.dtype(), loss.shape, loss.at),
        computed(f"{op.name}_1", op.dtype(1), shape, gradient),
    ]


@lowers("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_cross_entropy(op: Operation) -> list[Value]:
    logits, labels = op.inputs
    require(bool(logits.shape[1]), "there are no classes")
    parts = _Softmax(op, logits)
    wide, classes = parts.wide, logits.shape[1]

    def loss(*at: Expr) -> Expr:
        label = clamped(cast(labels.at(*at), INDEX), classes)
        return apply("neg", parts.log_probability(*at, label))

    def gradient(*at: Expr) -> Expr:
        chosen = apply("equal", cast(labels.at(at[0]), INDEX), at[1])
        one = where(chosen, number(1, wide), number(0, wide))
        return apply("sub", parts.probability(*at), one)

    results = [
        computed(f"{op.name}_0", op.dtype(), labels.shape, loss),
        computed(f"{op.name}_1", op.dtype(1), logits.shape, gradient),
    ]
    for result in results:
        result.requires = (in_range(labels, classes),)
    return results
