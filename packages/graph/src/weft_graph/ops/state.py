"""Ops of reference variables, and functions over both kinds of variables.

A reference variable (VariableV2) returns a reference, which update ops use; other ops receive a
snapshot of its value. A resource variable (VarHandleOp) returns a handle and is read by
ReadVariableOp. Both access the same kind of state.
"""

from __future__ import annotations

__all__ = [
    "assign",
    "assign_add",
    "assign_sub",
    "count_up_to",
    "scatter_add",
    "scatter_div",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_nd_add",
    "scatter_nd_sub",
    "scatter_nd_update",
    "scatter_sub",
    "scatter_update",
]

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from weft_graph.ir.builder import out
from weft_graph.ir.costs import free
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import WRITES, Role, State, Traits
from weft_graph.ops import cost_rules
from weft_graph.ops.resource_state import (
    SCATTER_TYPES,
    SCATTERS,
    check_points,
    check_rows,
    current_container,
    require_same_dims,
    resource_scatter,
    scatter_traits,
)
from weft_graph.ops.shape_rules import scalar, with_rank
from weft_tensor import dtypes
from weft_tensor.shape import Dims, as_dims

# --------------------------------------------------------------------------- shape rules


def _declared_shape(node: NodeSpec) -> Sequence[Dims]:
    return (node.attrs["shape"],)


def _assign_shape(node: NodeSpec) -> Sequence[Dims]:
    ref, value = node.inputs[0].dims, node.inputs[1].dims
    if not node.attrs["validate_shape"]:
        return (value,)
    return (require_same_dims(ref, value, "the value assigned"),)


def _update_shape(node: NodeSpec) -> Sequence[Dims]:
    return (require_same_dims(node.inputs[0].dims, node.inputs[1].dims, "the update"),)


def _scatter_shape(node: NodeSpec) -> Sequence[Dims]:
    ref, indices, updates = node.inputs
    check_rows(ref.dims, indices.dims, updates.dims)
    return (ref.dims,)


def _scatter_nd_shape(node: NodeSpec) -> Sequence[Dims]:
    ref, indices, updates = node.inputs
    check_points(ref.dims, indices.dims, updates.dims)
    return (ref.dims,)


def _count_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "CountUpTo: ref")
    return ((),)


# --------------------------------------------------------------------------- declarations

_HOLDER = {
    "shape": "shape",
    "dtype": "type",
    "container": "string = ''",
    "shared_name": "string = ''",
}
_LOCK = "bool = false"

for _op in ("Variable", "VariableV2"):
    register_op(
        _op,
        (),
        ("ref: Ref(dtype)",),
        _HOLDER,
        _declared_shape,
        traits=Traits(state=State.CREATES, role=Role.VARIABLE, differentiable=False, cost=free),
        doc="A variable in a container, which keeps its value between steps.",
    )

register_op(
    "IsVariableInitialized",
    ("ref: Ref(dtype)",),
    ("is_initialized: bool",),
    {"dtype": "type"},
    scalar,
    traits=Traits(
        state=State.READS,
        role=Role.IS_INITIALIZED,
        differentiable=False,
        cost=free,
        allows_uninitialized=True,
    ),
    doc="True if the variable has a value.",
)
register_op(
    "InitializedValue",
    ("ref: Ref(T)", "initial: T"),
    ("value: T",),
    {"T": "type"},
    lambda node: (
        require_same_dims(node.inputs[0].dims, node.inputs[1].dims, "the initial value"),
    ),
    traits=Traits(state=State.READS, cost=free, allows_uninitialized=True),
    doc="The variable's value, or `initial` if it has none.",
)
register_op(
    "Assign",
    ("ref: Ref(T)", "value: T"),
    ("output_ref: Ref(T)",),
    {"T": "type", "validate_shape": "bool = true", "use_locking": "bool = true"},
    _assign_shape,
    traits=Traits(
        state=State.WRITES, role=Role.ASSIGN, differentiable=False, cost=cost_rules.assigns
    ),
    doc="Replaces the variable's value; the output is the same reference.",
)
for _op, _doc in (("AssignAdd", "Adds to"), ("AssignSub", "Subtracts from")):
    register_op(
        _op,
        ("ref: Ref(T)", "value: T"),
        ("output_ref: Ref(T)",),
        {"T": "{numbertype}", "use_locking": _LOCK},
        _update_shape,
        traits=Traits(state=State.WRITES, differentiable=False, cost=cost_rules.sums_into_state),
        doc=f"{_doc} the variable; the output is the same reference.",
    )

for _how, _doc in SCATTERS.items():
    register_op(
        f"Scatter{_how}",
        ("ref: Ref(T)", "indices: Tindices", "updates: T"),
        ("output_ref: Ref(T)",),
        {
            "T": SCATTER_TYPES.get(_how, "{numbertype}"),
            "Tindices": "{index_type}",
            "use_locking": "bool = true" if _how == "Update" else _LOCK,
        },
        _scatter_shape,
        traits=scatter_traits(_how),
        doc=_doc,
    )
for _how in ("Update", "Add", "Sub"):
    _doc = SCATTERS[_how].replace("rows", "slices")
    _type = "type" if _how == "Update" else "{numbertype}"
    register_op(
        f"ScatterNd{_how}",
        ("ref: Ref(T)", "indices: Tindices", "updates: T"),
        ("output_ref: Ref(T)",),
        {
            "T": _type,
            "Tindices": "{index_type}",
            "use_locking": "bool = true" if _how == "Update" else _LOCK,
        },
        _scatter_nd_shape,
        traits=scatter_traits(_how),
        doc=_doc,
    )

register_op(
    "CountUpTo",
    ("ref: Ref(T)",),
    ("output: T",),
    {"limit": "int", "T": "{int32, int64}"},
    _count_shape,
    traits=WRITES,
    doc="The variable's value before adding 1; OutOfRangeError at the limit.",
)
# --------------------------------------------------------------------------- making variables


def variable_op_v2(
    shape: Any, dtype: Any, name: str = "Variable", container: str = "", shared_name: str = ""
) -> Output:
    """Return the reference of a variable without an initial value.

    Args:
      shape: shape of the values; unknown sizes allowed.
      dtype: element type.
      container: container of its state.
      shared_name: name of the state; the node's by default.
    """
    attrs = {
        "shape": as_dims(shape),
        "dtype": dtypes.as_dtype(dtype).base_dtype,
        "container": current_container(container),
        "shared_name": shared_name,
    }
    return out("VariableV2", (), attrs, name)


def is_variable_initialized(ref: Any, name: str | None = None) -> Output:
    """Return True if a variable has a value: bool, shape ()."""
    if _is_ref(ref):
        with _colocate_with(ref):
            return out("IsVariableInitialized", [ref], None, name)
    result: Output = ref.is_initialized(name=name)
    return result


# --------------------------------------------------------------------------- updates


def _is_ref(ref: Any) -> bool:
    return bool(ref.dtype.is_ref)


def _colocate_with(ref: Any) -> AbstractContextManager[None]:
    """Colocate with the variable, as TensorFlow requires for users of a reference."""
    node = ref.op if hasattr(ref, "op") else None
    if isinstance(node, Node):
        return node.graph.colocate_with(node)
    return nullcontext()


def _update(
    op: str, ref: Any, other_inputs: Sequence[Any], attrs: dict[str, Any], name: Any
) -> Output:
    with _colocate_with(ref):
        return out(op, [ref, *other_inputs], attrs, name)


def assign(
    ref: Any,
    value: Any,
    validate_shape: bool | None = None,
    use_locking: bool | None = None,
    name: str | None = None,
) -> Any:
    """Replace a variable's value.

    Args:
      ref: a variable.
      value: the variable's type, and its shape unless `validate_shape` is False.
      use_locking: accepted and ignored; updates are always atomic.
    Returns: the variable after the assignment.
    Raises: InvalidArgumentError: the shapes differ.

    Examples:
      >>> x = wf.Variable(1.0)
      >>> with wf.Session() as session:
      ...     session.run(x.initializer)
      ...     session.run(wf.assign(x, 5.0))
      np.float32(5.0)
    """
    if not _is_ref(ref):
        return ref.assign(value, name=name)
    attrs = {
        "validate_shape": True if validate_shape is None else validate_shape,
        "use_locking": True if use_locking is None else use_locking,
    }
    return _update("Assign", ref, [value], attrs, name)


def assign_add(
    ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None
) -> Any:
    """Add `value` to a variable; return the variable after the update.

    Args:
      ref: a variable.
      value: the variable's type and shape.
      use_locking: accepted and ignored; updates are always atomic.

    Examples:
      >>> x = wf.Variable(1.0)
      >>> with wf.Session() as session:
      ...     session.run(x.initializer)
      ...     session.run(wf.assign_add(x, 5.0))
      np.float32(6.0)
    """
    if not _is_ref(ref):
        return ref.assign_add(value, name=name)
    return _update("AssignAdd", ref, [value], {"use_locking": bool(use_locking)}, name)


def assign_sub(
    ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None
) -> Any:
    """Subtract `value` from a variable; return the variable after the update.

    Args:
      ref: a variable.
      value: the variable's type and shape.
      use_locking: accepted and ignored; updates are always atomic.

    Examples:
      >>> x = wf.Variable(1.0)
      >>> with wf.Session() as session:
      ...     session.run(x.initializer)
      ...     session.run(wf.assign_sub(x, 5.0))
      np.float32(-4.0)
    """
    if not _is_ref(ref):
        return ref.assign_sub(value, name=name)
    return _update("AssignSub", ref, [value], {"use_locking": bool(use_locking)}, name)


def count_up_to(ref: Any, limit: int, name: str | None = None) -> Output:
    """Increment an integer variable of rank 0; return its value before that.

    Args:
      ref: an integer variable of rank 0.
      limit: an integer.
    Raises (at run time): OutOfRangeError: the value has reached `limit`.

    Examples:
      >>> x = wf.Variable(0)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(wf.count_up_to(x, 3))
      ...     session.run(x)
      np.int32(0)
      np.int32(1)
    """
    if not _is_ref(ref):
        attrs = {"limit": limit, "T": ref.dtype.base_dtype}
        return out("ResourceCountUpTo", [ref.handle], attrs, name)
    return _update("CountUpTo", ref, [], {"limit": limit}, name)


def _scatter(
    op: str, ref: Any, indices: Any, updates: Any, use_locking: bool | None, name: str | None
) -> Any:
    if _is_ref(ref):
        attrs = {} if use_locking is None else {"use_locking": use_locking}
        return _update(f"Scatter{op}", ref, [indices, updates], attrs, name)
    node = resource_scatter(op, ref.handle, indices, updates, ref.dtype, name)
    return ref._lazy_read(node)


def scatter_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Any:
    """Replace rows of a variable: `ref[indices[i]] = updates[i]`.

    Args:
      ref: a variable of shape (N, ...).
      indices: int32 or int64, any shape; each in [0, N). For repeated indices the last update wins.
      updates: shape `indices.shape + ref.shape[1:]`, or ().
      use_locking: accepted and ignored; updates are always atomic.
    Returns: the variable after the update.
    Raises (at run time): InvalidArgumentError: an index is out of range.

    Examples:
      >>> x = wf.Variable([1, 2, 3])
      >>> with wf.Session() as session:
      ...     session.run(x.initializer)
      ...     session.run(wf.scatter_update(x, [0, 2], [10, 30]))
      array([10,  2, 30], dtype=int32)
    """
    return _scatter("Update", ref, indices, updates, use_locking, name)


def scatter_add(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Add to rows of a variable; repeated indices accumulate. See `scatter_update`.

    Args:
      ref, indices, updates, use_locking: as for `scatter_update`.

    Examples:
      >>> x = wf.Variable([1, 2, 3])
      >>> with wf.Session() as session:
      ...     session.run(x.initializer)
      ...     session.run(wf.scatter_add(x, [0, 0], [10, 30]))
      array([41,  2,  3], dtype=int32)
    """
    return _scatter("Add", ref, indices, updates, use_locking, name)


def scatter_sub(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Subtract from rows of a variable; repeated indices accumulate. See `scatter_update`.

    Args:
      ref, indices, updates, use_locking: as for `scatter_update`.

    Examples:
      >>> x = wf.Variable([1, 2, 3])
      >>> with wf.Session() as session:
      ...     session.run(x.initializer)
      ...     session.run(wf.scatter_sub(x, [0, 0], [10, 30]))
      array([-39,   2,   3], dtype=int32)
    """
    return _scatter("Sub", ref, indices, updates, use_locking, name)


def scatter_mul(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Multiply rows of a variable. See `scatter_update`.

    Args:
      ref, indices, updates, use_locking: as for `scatter_update`.

    Examples:
      >>> x = wf.Variable([1, 2, 3])
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(wf.scatter_mul(x, [1], [10]))
      array([ 1, 20,  3], dtype=int32)
    """
    return _scatter("Mul", ref, indices, updates, use_locking, name)


def scatter_div(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Divide rows of a variable; integers are rounded down. See `scatter_update`.

    Args:
      ref, indices, updates, use_locking: as for `scatter_update`.

    Examples:
      >>> x = wf.Variable([1.0, 2.0])
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(wf.scatter_div(x, [1], [4.0]))
      array([1. , 0.5], dtype=float32)
    """
    return _scatter("Div", ref, indices, updates, use_locking, name)


def scatter_min(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Replace rows of a variable by their minimum with the updates. See `scatter_update`.

    Args:
      ref, indices, updates, use_locking: as for `scatter_update`.

    Examples:
      >>> x = wf.Variable([1, 5])
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(wf.scatter_min(x, [0, 1], [3, 3]))
      array([1, 3], dtype=int32)
    """
    return _scatter("Min", ref, indices, updates, use_locking, name)


def scatter_max(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Replace rows of a variable by their maximum with the updates. See `scatter_update`.

    Args:
      ref, indices, updates, use_locking: as for `scatter_update`.

    Examples:
      >>> x = wf.Variable([1, 5])
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(wf.scatter_max(x, [0, 1], [3, 3]))
      array([3, 5], dtype=int32)
    """
    return _scatter("Max", ref, indices, updates, use_locking, name)


def scatter_nd_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Any:
    """Replace slices of a variable: `ref[tuple(indices[i])] = updates[i]`.

    Args:
      ref: a variable of shape (N0, N1, ...).
      indices: int32 or int64, shape (..., K) with K at most the variable's rank.
      updates: shape `indices.shape[:-1] + ref.shape[K:]`.
      use_locking: accepted and ignored; updates are always atomic.
    Returns: the variable after the update.
    Raises (at run time): InvalidArgumentError: an index is out of range.

    Examples:
      >>> x = wf.Variable([1, 2, 3])
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(wf.scatter_nd_update(x, [[1]], [20]))
      array([ 1, 20,  3], dtype=int32)
    """
    return _scatter("NdUpdate", ref, indices, updates, use_locking, name)


def scatter_nd_add(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Add to slices of a variable; repeated indices accumulate. See `scatter_nd_update`.

    Args:
      ref, indices, updates, use_locking: as for `scatter_nd_update`.

    Examples:
      >>> x = wf.Variable([1, 2, 3])
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(wf.scatter_nd_add(x, [[1]], [20]))
      array([ 1, 22,  3], dtype=int32)
    """
    return _scatter("NdAdd", ref, indices, updates, use_locking, name)


def scatter_nd_sub(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Subtract from slices of a variable; repeated indices accumulate. See `scatter_nd_update`.

    Args:
      ref, indices, updates, use_locking: as for `scatter_nd_update`.

    Examples:
      >>> x = wf.Variable([1, 2, 3])
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(wf.scatter_nd_sub(x, [[1]], [20]))
      array([  1, -18,   3], dtype=int32)
    """
    return _scatter("NdSub", ref, indices, updates, use_locking, name)
