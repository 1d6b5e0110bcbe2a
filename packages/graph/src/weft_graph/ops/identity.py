"""Ops that return their input: identities, gradient barriers, checks of values and shapes."""

from __future__ import annotations

__all__ = [
    "add_check_numerics_ops",
    "check_numerics",
    "ensure_shape",
    "guarantee_const",
    "identity",
    "identity_n",
    "stop_gradient",
    "verify_tensor_all_finite",
]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir import value_rules
from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import EACH, VIEW, Role, Traits
from weft_graph.ops import cost_rules
from weft_graph.ops.shape_rules import same_shape
from weft_tensor.shape import Dims, merge_dims

# ------------------------------------------------------------------------------ shape rules


def _ensure_shape_shape(node: NodeSpec) -> Sequence[Dims]:
    return (merge_dims(node.inputs[0].dims, node.attrs["shape"]),)


def _all_unchanged(node: NodeSpec) -> Sequence[Dims]:
    return [value.dims for value in node.inputs]


# ------------------------------------------------------------------------------ declarations

_CONSTANT = Traits(identity=True, view=0, differentiable=False)

for _name, _traits, _doc in (
    ("Identity", Traits(identity=True, view=0, cheap=True), "The input."),
    ("StopGradient", _CONSTANT, "The input; gradients do not flow through it."),
    ("Snapshot", Traits(identity=True, view=0), "The input."),
    ("GuaranteeConst", _CONSTANT, "The input, which the program promises never to change."),
):
    register_op(
        _name,
        ("input: T",),
        ("output: T",),
        {"T": "type"},
        same_shape,
        value=value_rules.identity_value,
        traits=_traits,
        doc=_doc,
    )
register_op(
    "PreventGradient",
    ("input: T",),
    ("output: T",),
    {"T": "type", "message": "string = ''"},
    same_shape,
    traits=Traits(identity=True, view=0),
    doc="The input; computing a gradient through it is an error.",
)
register_op(
    "CheckNumerics",
    ("tensor: T",),
    ("output: T",),
    {"T": "{floating}", "message": "string"},
    same_shape,
    traits=Traits(view=0, by_element=True, cost=cost_rules.per_output(1)),
    doc="The input; an error if an element is infinite or NaN.",
)
register_op(
    "EnsureShape",
    ("input: T",),
    ("output: T",),
    {"T": "type", "shape": "shape"},
    _ensure_shape_shape,
    traits=VIEW,
    doc="The input; an error if its shape is incompatible with the attribute.",
)
register_op(
    "IdentityN",
    ("input: T",),
    ("output: T",),
    {"T": "list(type) >= 1"},
    _all_unchanged,
    value=value_rules.identity_value,
    traits=Traits(view=EACH),
    doc="All inputs.",
)
# ---------------------------------------------------------------------------------- functions


def _dense(value: Any) -> Any:
    return convert_to_tensor(value) if isinstance(value, IndexedSlices) else value


def identity(input: Any, name: str | None = None) -> Output:
    """Return the same values as a new tensor: any type and shape.

    Args:
      input: any type, any shape.
    Returns: shape and dtype of `input`.

    Examples:
      >>> wf.Session().run(wf.identity([1.0, 2.0]))
      array([1., 2.], dtype=float32)
    """
    return out("Identity", [_dense(input)], name=name)


def identity_n(input: Sequence[Any], name: str | None = None) -> list[Output]:
    """Return the same values as new tensors, each of which waits for all inputs.

    Args:
      input: list of tensors, any types and shapes.
    Returns: a list of tensors.

    Examples:
      >>> wf.Session().run(wf.identity_n([1, 2.0]))
      [np.int32(1), np.float32(2.0)]
    """
    return list(create("IdentityN", [list(input)], name=name).outputs)


def stop_gradient(input: Any, name: str | None = None) -> Output:
    """Return the same values; gradients do not flow through it.

    Args:
      input: any type, any shape.
    Returns: shape and dtype of `input`.

    Examples:
      >>> x = wf.constant(3.0)
      >>> wf.Session().run(wf.gradients(x * wf.stop_gradient(x), [x]))
      [np.float32(3.0)]
    """
    return out("StopGradient", [input], name=name)


def check_numerics(tensor: Any, message: str, name: str | None = None) -> Output:
    """Return the same floating values, which are checked at run time.

    Args:
      tensor: floating, any shape.
      message: prefix of the error message.
    Raises: InvalidArgumentError: at run time, an element is infinite or NaN.

    Examples:
      >>> wf.Session().run(wf.check_numerics([1.0], "the input"))
      array([1.], dtype=float32)
    """
    return out("CheckNumerics", [tensor], {"message": message}, name)


def verify_tensor_all_finite(
    t: Any = None,
    msg: str | None = None,
    name: str | None = None,
    x: Any = None,
    message: str | None = None,
) -> Output:
    """Return the same floating values, which are checked at run time.

    Args:
      t: floating, any shape; `x` is its newer name.
      msg: prefix of the error message; `message` is its newer name.
    Raises: InvalidArgumentError: at run time, an element is infinite or NaN.

    Examples:
      >>> wf.Session().run(wf.verify_tensor_all_finite([1.0], "the input"))
      array([1.], dtype=float32)
    """
    value = convert_to_tensor(t if x is None else x)
    return check_numerics(value, (msg if message is None else message) or "", name)


def add_check_numerics_ops() -> Node:
    """Return a node that checks every floating tensor of the default graph.

    For branches and loops it checks only the outputs, because inner nodes may not run.

    Raises: InvalidArgumentError: at run time, an element is infinite or NaN; the message names the
      tensor.

    Examples:
      >>> x = wf.placeholder(wf.float32, name="x")
      >>> y = wf.log(x)
      >>> check = wf.add_check_numerics_ops()
      >>> value, _ = wf.Session().run([y, check], {x: 1.0})
      >>> value
      np.float32(0.0)
    """
    graph = get_default_graph()
    checks: list[Node] = []
    for node in list(graph.nodes):
        for output in () if _can_be_skipped(node) else node.outputs:
            if output.dtype.is_floating and not output.dtype.is_ref:
                with graph.control_dependencies(checks[-1:]), graph.colocate_with(node):
                    checks.append(check_numerics(output, output.name).node)
    with graph.control_dependencies(checks):
        return create("NoOp", ())


def _can_be_skipped(node: Node) -> bool:
    """Return True if a step may skip a node or run it several times."""
    context = node.context
    if context is not None and node.role is Role.EXIT:
        context = context.outer
    return context is not None or node.role is Role.SWITCH


def guarantee_const(input: Any, name: str | None = None) -> Output:
    """Return the same values, which the program promises not to change.

    Args:
      input: any type and shape.

    Examples:
      >>> wf.Session().run(wf.guarantee_const(3.0))
      np.float32(3.0)
    """
    return out("GuaranteeConst", [input], name=name)


def snapshot(input: Any, name: str | None = None) -> Output:
    """Return a snapshot of the values."""
    return out("Snapshot", [input], name=name)


def ensure_shape(x: Any, shape: Any, name: str | None = None) -> Output:
    """Return the same values with a refined static shape, which is checked at run time.

    Args:
      x: any type.
      shape: list of ints and Nones, or a TensorShape.
    Raises: InvalidArgumentError: the shape is incompatible; raised at construction if that is
      known.

    Examples:
      >>> wf.ensure_shape(wf.placeholder(wf.float32), [None, 3]).shape
      TensorShape([Dimension(None), Dimension(3)])
    """
    return out("EnsureShape", [x], {"shape": shape}, name)
