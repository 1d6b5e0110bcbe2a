"""Update rules of optimizers: one op changes a variable and its slots together.

Each rule is declared in up to four forms, as in TensorFlow: `Apply*` on reference variables,
`ResourceApply*` on resource variables, and both also as `SparseApply*` for gradients of only some
rows.  The formulas are in the documentation of the ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from weft_graph.ir.builder import create
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, ShapeRule, register_op
from weft_graph.ir.traits import State, Traits
from weft_graph.ops import cost_rules
from weft_graph.ops.resource_state import variable_dims_checked
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, format_dims, merge_dims

GRADIENTS: Final = frozenset(("grad", "delta"))
"""Names of the inputs that have the shape of the variables; the other inputs are scalars."""


class UpdateRule:
    """The signature of one update rule.

    Attributes:
      name: the op type without its prefix.
      flops: operations per element of the gradient.
      states: the variables that it updates, in order.
      dense: the other inputs of `Apply*`, in order.
      sparse: the other inputs of `SparseApply*`, in order; empty if there is no such op.
      attrs: attributes besides T, Tindices and use_locking.
      doc: the formula.
    """

    __slots__ = ("attrs", "dense", "doc", "flops", "name", "sparse", "states")

    def __init__(
        self,
        name: str,
        flops: int,
        states: str,
        dense: str,
        sparse: str,
        doc: str,
        attrs: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.flops = flops
        self.states = tuple(states.split())
        self.dense = tuple(dense.split())
        self.sparse = tuple(sparse.split())
        self.attrs = dict(attrs or {})
        self.doc = doc

    def arguments(self, sparse: bool) -> tuple[str, ...]:
        """Return the names of the inputs after the states."""
        return self.sparse if sparse else self.dense


_NESTEROV = {"use_nesterov": "bool = false"}
_UPDATE_SLOTS = {"update_slots": "bool = true"}

RULES: Final[Mapping[str, UpdateRule]] = {
    rule.name: rule
    for rule in (
        UpdateRule("GradientDescent", 2, "var", "alpha delta", "", "var -= alpha * delta"),
        UpdateRule(
            "ProximalGradientDescent",
            7,
            "var",
            "alpha l1 l2 delta",
            "alpha l1 l2 grad indices",
            "prox = var - alpha * delta; "
            "var = sign(prox) * max(|prox| - alpha * l1, 0) / (1 + alpha * l2)",
        ),
        UpdateRule(
            "Momentum",
            4,
            "var accum",
            "lr grad momentum",
            "lr grad indices momentum",
            "accum = accum * momentum + grad; var -= lr * accum, "
            "or with use_nesterov: var -= lr * (grad + momentum * accum)",
            _NESTEROV,
        ),
        UpdateRule(
            "Adagrad",
            5,
            "var accum",
            "lr grad",
            "lr grad indices",
            "accum += grad^2 if update_slots; var -= lr * grad / sqrt(accum)",
            _UPDATE_SLOTS,
        ),
        UpdateRule(
            "AdagradV2",
            6,
            "var accum",
            "lr epsilon grad",
            "lr epsilon grad indices",
            "accum += grad^2 if update_slots; var -= lr * grad / (sqrt(accum) + epsilon)",
            _UPDATE_SLOTS,
        ),
        UpdateRule(
            "ProximalAdagrad",
            10,
            "var accum",
            "lr l1 l2 grad",
            "lr l1 l2 grad indices",
            "accum += grad^2; rate = lr / sqrt(accum); prox = var - rate * grad; "
            "var = sign(prox) * max(|prox| - rate * l1, 0) / (1 + rate * l2)",
        ),
        UpdateRule(
            "AdagradDA",
            10,
            "var gradient_accumulator gradient_squared_accumulator",
            "grad lr l1 l2 global_step",
            "grad indices lr l1 l2 global_step",
            "sum += grad; squares += grad^2; s = sign(sum) * max(|sum| - l1 * global_step, 0); "
            "var = -lr * s / (l2 * global_step * lr + sqrt(squares))",
        ),
        UpdateRule(
            "Adadelta",
            12,
            "var accum accum_update",
            "lr rho epsilon grad",
            "lr rho epsilon grad indices",
            "accum = rho * accum + (1 - rho) * grad^2; "
            "update = grad * sqrt(accum_update + epsilon) / sqrt(accum + epsilon); "
            "accum_update = rho * accum_update + (1 - rho) * update^2; var -= lr * update",
        ),
        UpdateRule(
            "Ftrl",
            14,
            "var accum linear",
            "grad lr l1 l2 lr_power",
            "grad indices lr l1 l2 lr_power",
            "new = accum + grad^2; "
            "linear += grad - (new^-lr_power - accum^-lr_power) / lr * var; "
            "var = (sign(linear) * l1 - linear) / (new^-lr_power / lr + 2 * l2) "
            "if |linear| > l1 else 0; accum = new",
        ),
        UpdateRule(
            "FtrlV2",
            16,
            "var accum linear",
            "grad lr l1 l2 l2_shrinkage lr_power",
            "grad indices lr l1 l2 l2_shrinkage lr_power",
            "as Ftrl, with grad + 2 * l2_shrinkage * var in place of grad in the update of linear",
        ),
        UpdateRule(
            "Adam",
            12,
            "var m v",
            "beta1_power beta2_power lr beta1 beta2 epsilon grad",
            "",
            "m += (1 - beta1) * (grad - m); v += (1 - beta2) * (grad^2 - v); "
            "rate = lr * sqrt(1 - beta2_power) / (1 - beta1_power); "
            "var -= rate * m / (sqrt(v) + epsilon), "
            "or with use_nesterov: beta1 * m + (1 - beta1) * grad in place of m",
            _NESTEROV,
        ),
        UpdateRule(
            "RMSProp",
            9,
            "var ms mom",
            "lr rho momentum epsilon grad",
            "lr rho momentum epsilon grad indices",
            "ms += (1 - rho) * (grad^2 - ms); "
            "mom = momentum * mom + lr * grad / sqrt(ms + epsilon); var -= mom",
        ),
        UpdateRule(
            "CenteredRMSProp",
            13,
            "var mg ms mom",
            "lr rho momentum epsilon grad",
            "lr rho momentum epsilon grad indices",
            "ms += (1 - rho) * (grad^2 - ms); mg += (1 - rho) * (grad - mg); "
            "mom = momentum * mom + lr * grad / sqrt(ms - mg^2 + epsilon); var -= mom",
        ),
    )
}
"""The update rules by name."""


def _merge(label: str, dims: Dims, actual: Dims) -> Dims:
    try:
        return merge_dims(dims, actual)
    except errors.InvalidArgumentError:
        raise errors.InvalidArgumentError(
            f"requires {label} to have shape {format_dims(dims)}, got {format_dims(actual)}"
        ) from None


def _shape_rule(rule: UpdateRule, sparse: bool, resource: bool) -> ShapeRule:
    arguments = rule.arguments(sparse)
    states = rule.states

    def infer(node: NodeSpec) -> Sequence[Dims]:
        dims: Dims = None
        count = len(states)
        for name, state in zip(states, node.inputs, strict=False):
            actual = variable_dims_checked(state, node.attrs["T"]) if resource else state.dims
            dims = _merge(f"{name} (as {states[0]})", dims, actual)
        for name, value in zip(arguments, node.inputs[count:], strict=True):
            if name in GRADIENTS:
                if not sparse:
                    dims = _merge(f"{name} (as {states[0]})", dims, value.dims)
            elif name != "indices" and value.dims:
                raise errors.InvalidArgumentError(
                    f"requires {name} to be a scalar, got shape {format_dims(value.dims)}"
                )
        if sparse:
            grad = node.inputs[count + arguments.index("grad")]
            indices = node.inputs[count + arguments.index("indices")]
            _check_rows(dims, grad.dims, indices.dims)
        return () if resource else (dims,)

    return infer


def _check_rows(dims: Dims, grad: Dims, indices: Dims) -> None:
    count = _merge("indices", (None,), indices)
    assert count is not None
    if dims is not None and not dims:
        raise errors.InvalidArgumentError("requires var to have at least one axis, got a scalar")
    rows = None if dims is None else (count[0], *dims[1:])
    _merge("grad (one row of var per index)", rows, grad)


def _traits(rule: UpdateRule, sparse: bool) -> Traits:
    names = (*rule.states, *rule.arguments(sparse))
    return Traits(
        state=State.WRITES,
        differentiable=False,
        cost=cost_rules.update(
            rule.flops,
            len(rule.states),
            next(i for i, name in enumerate(names) if name in GRADIENTS),
            names.index("indices") if sparse else None,
        ),
    )


def _declare(rule: UpdateRule, sparse: bool, resource: bool) -> None:
    state_type = "resource" if resource else "Ref(T)"
    types = {"indices": "Tindices", "global_step": "int64"}
    inputs = [f"{name}: {state_type}" for name in rule.states]
    inputs += [f"{name}: {types.get(name, 'T')}" for name in rule.arguments(sparse)]
    attrs = {"T": "{numbertype}"}
    if sparse:
        attrs["Tindices"] = "{index_type}"
    register_op(
        op_type(rule.name, sparse, resource),
        inputs,
        () if resource else ("out: Ref(T)",),
        attrs | {"use_locking": "bool = false"} | rule.attrs,
        _shape_rule(rule, sparse, resource),
        traits=_traits(rule, sparse),
        doc=f"{rule.doc}{'; only on the rows at indices' if sparse else ''}.",
    )


def op_type(rule: str, sparse: bool, resource: bool) -> str:
    """Return the op type of one form of an update rule."""
    return f"{'Resource' if resource else ''}{'Sparse' if sparse else ''}Apply{rule}"


def op_types() -> list[tuple[UpdateRule, bool, bool]]:
    """Return all declared forms as (rule, sparse, resource)."""
    return [
        (rule, sparse, resource)
        for rule in RULES.values()
        for sparse in ((False, True) if rule.sparse else (False,))
        for resource in (False, True)
    ]


for _form in op_types():
    _declare(*_form)


def apply_update(
    rule: str,
    states: Sequence[Any],
    arguments: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Node:
    """Update a variable and its slots by one step of an update rule.

    Args:
      rule: a key of RULES.
      states: the variable and its slots, in the rule's order; all reference variables or all
        resource variables, of the same element type and shape.
      arguments: the other inputs by name. Gradients have the variable's dtype and shape, or, if
        there are "indices" (int32 or int64, shape (N,)), the shape (N, ...); all others are
        scalars.
      attrs: use_locking, and further attributes of the rule.
    Returns: the node; its output, if any, is the reference to the variable.
    Raises: InvalidArgumentError: shapes do not match, or an argument is missing.
    """
    update_rule = RULES[rule]
    handles = [getattr(state, "handle", None) for state in states]
    resource = isinstance(handles[0], Output) and handles[0].dtype is dtypes.resource
    sparse = "indices" in arguments
    argument_names = update_rule.arguments(sparse)
    missing = [key for key in argument_names if key not in arguments]
    if missing or not argument_names:
        raise errors.InvalidArgumentError(
            f"{op_type(rule, sparse, resource)} requires "
            f"{', '.join(argument_names) or 'no indices'}, "
            f"got {', '.join(arguments)}"
        )
    inputs = [*(handles if resource else states), *(arguments[key] for key in argument_names)]
    return create(op_type(rule, sparse, resource), inputs, attrs, name)
