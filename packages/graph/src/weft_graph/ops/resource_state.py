"""Ops of resource variables and mutexes, whose state is accessed through a handle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.costs import free
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import Array, NodeSpec, Values, register_op
from weft_graph.ir.traits import WAITS, WRITES, Role, State, Traits
from weft_graph.ir.value_rules import value_rule
from weft_graph.ops import cost_rules
from weft_graph.ops.shape_rules import scalar
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, as_dims, compatible_dims, format_dims, merge_dims

# --------------------------------------------------------------------------- handles


def handle_source(handle: Output) -> Node | None:
    """Return the VarHandleOp that produces `handle`, through control flow; None if unknown."""
    node = handle.node
    for _ in range(64):
        if node.role is Role.VARIABLE:
            return node
        if not (node.traits.identity or node.traits.routes) or not node.inputs:
            return None
        node = node.inputs[0].node
    return None


def handle_dims(handle: Output) -> Dims:
    """Return the static shape of the variable behind a handle."""
    node = handle_source(handle)
    return None if node is None else node.attrs["shape"]


def variable_dims_checked(handle: Output, dtype: DType) -> Dims:
    """Return the static shape of the variable behind a handle.

    Raises: InvalidTypeError: the variable is known to have another type than `dtype`.
    """
    node = handle_source(handle)
    if node is None:
        return None
    if node.attrs["dtype"] is not dtype:
        raise errors.InvalidTypeError(
            f"variable {node.name!r} holds {node.attrs['dtype'].name}, "
            f"but it is used as {dtype.name}"
        )
    dims: Dims = node.attrs["shape"]
    return dims


# --------------------------------------------------------------------------- shape rules


def require_same_dims(variable_dims: Dims, dims: Dims, label: str) -> Dims:
    """Return the combined shapes, or raise InvalidArgumentError if they differ."""
    if not compatible_dims(variable_dims, dims):
        raise errors.InvalidArgumentError(
            f"{label} must have the variable's shape {format_dims(variable_dims)}, got "
            f"{format_dims(dims)}"
        )
    return merge_dims(variable_dims, dims)


def _read_shape(node: NodeSpec) -> Sequence[Dims]:
    return (variable_dims_checked(node.inputs[0], node.attrs["dtype"]),)


def _initialized_value_shape(node: NodeSpec) -> Sequence[Dims]:
    variable_dims = variable_dims_checked(node.inputs[0], node.attrs["dtype"])
    return (require_same_dims(variable_dims, node.inputs[1].dims, "the initial value"),)


def _assign_handle_shape(node: NodeSpec) -> Sequence[Dims]:
    require_same_dims(
        variable_dims_checked(node.inputs[0], node.attrs["dtype"]), node.inputs[1].dims, "the value"
    )
    return ()


def check_rows(ref: Dims, indices: Dims, updates: Dims) -> None:
    """Check that updates have the shape `indices.shape + ref.shape[1:]`, or rank 0."""
    if ref is None or indices is None or updates is None or updates == ():
        return
    if not ref:
        raise errors.InvalidArgumentError("a scatter needs a variable of rank at least 1, got []")
    required_dims = (*indices, *ref[1:])
    if not compatible_dims(required_dims, updates):
        raise errors.InvalidArgumentError(
            "updates must have shape indices.shape + ref.shape[1:] = "
            f"{format_dims(required_dims)} or "
            f"rank 0, got {format_dims(updates)} (indices {format_dims(indices)}, "
            f"ref {format_dims(ref)})"
        )


def _resource_scatter_shape(node: NodeSpec) -> Sequence[Dims]:
    handle, indices, updates = node.inputs
    check_rows(variable_dims_checked(handle, node.attrs["dtype"]), indices.dims, updates.dims)
    return ()


def check_points(ref: Dims, indices: Dims, updates: Dims) -> None:
    """Check that updates have the shape `indices.shape[:-1] + ref.shape[indices.shape[-1]:]`."""
    if indices is None:
        return
    if not indices:
        raise errors.InvalidArgumentError("indices must have rank at least 1, got []")
    depth = indices[-1]
    if ref is None or updates is None or depth is None:
        return
    if depth > len(ref):
        raise errors.InvalidArgumentError(
            f"the last size of indices, {depth}, must not exceed the variable's rank, {len(ref)}"
        )
    required_dims = (*indices[:-1], *ref[depth:])
    if not compatible_dims(required_dims, updates):
        raise errors.InvalidArgumentError(
            f"updates must have shape indices.shape[:-1] + ref.shape[{depth}:] = "
            f"{format_dims(required_dims)}, got {format_dims(updates)}"
        )


def _resource_scatter_nd_shape(node: NodeSpec) -> Sequence[Dims]:
    handle, indices, updates = node.inputs
    check_points(variable_dims_checked(handle, node.attrs["T"]), indices.dims, updates.dims)
    return ()


def _gather_shape(node: NodeSpec) -> Sequence[Dims]:
    handle, indices = node.inputs
    dims = variable_dims_checked(handle, node.attrs["dtype"])
    batch: int = node.attrs["batch_dims"]
    if dims is None or indices.dims is None:
        return (None,)
    if len(dims) <= batch:
        raise errors.InvalidArgumentError(
            f"ResourceGather with batch_dims={batch} needs a variable of a higher rank, got "
            f"{format_dims(dims)}"
        )
    return ((*dims[:batch], *indices.dims[batch:], *dims[batch + 1 :]),)


def _gather_nd_shape(node: NodeSpec) -> Sequence[Dims]:
    handle, indices = node.inputs
    dims = variable_dims_checked(handle, node.attrs["dtype"])
    if dims is None or indices.dims is None or not indices.dims or indices.dims[-1] is None:
        return (None,)
    return ((*indices.dims[:-1], *dims[indices.dims[-1] :]),)


def _variable_shape_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = handle_dims(node.inputs[0])
    return ((None if dims is None else len(dims),),)


@value_rule(needs=(), uses_shape=True)
def _variable_shape_value(node: Node, index: int, values: Values) -> Array | None:
    """Return the static shape of the variable."""
    dims = handle_dims(node.inputs[0])
    return None if dims is None else np.array(dims, object if None in dims else np.int64)


# --------------------------------------------------------------------------- declarations

SCATTERS = {
    "Update": "Replaces rows of the variable; for repeated indices the last update wins.",
    "Add": "Adds to rows of the variable; repeated indices accumulate.",
    "Sub": "Subtracts from rows of the variable; repeated indices accumulate.",
    "Mul": "Multiplies rows of the variable; repeated indices multiply repeatedly.",
    "Div": "Divides rows of the variable; repeated indices divide repeatedly.",
    "Min": "Replaces rows of the variable by their minimum with the updates.",
    "Max": "Replaces rows of the variable by their maximum with the updates.",
}
SCATTER_TYPES = {"Update": "type", "Min": "{realnumbertype}", "Max": "{realnumbertype}"}
"""The element types of a scatter, if not all numeric types."""


def scatter_traits(mode: str) -> Traits:
    """Return the traits of the scatter of a key of SCATTERS."""
    return _REPLACES if mode == "Update" else _SUMS


_REPLACES = Traits(state=State.WRITES, differentiable=False, cost=cost_rules.scatters)
_SUMS = Traits(state=State.WRITES, differentiable=False, cost=cost_rules.scatter_sums)

for _how, _doc in SCATTERS.items():
    register_op(
        f"ResourceScatter{_how}",
        ("resource: resource", "indices: Tindices", "updates: dtype"),
        (),
        {"dtype": SCATTER_TYPES.get(_how, "{numbertype}"), "Tindices": "{index_type}"},
        _resource_scatter_shape,
        traits=scatter_traits(_how),
        doc=_doc,
    )

for _how in ("Update", "Add", "Sub"):
    register_op(
        f"ResourceScatterNd{_how}",
        ("ref: resource", "indices: Tindices", "updates: T"),
        (),
        {
            "T": "type" if _how == "Update" else "{numbertype}",
            "Tindices": "{index_type}",
            "use_locking": "bool = true",
        },
        _resource_scatter_nd_shape,
        traits=scatter_traits(_how),
        doc=SCATTERS[_how].replace("rows", "slices"),
    )

register_op(
    "ResourceCountUpTo",
    ("resource: resource",),
    ("output: T",),
    {"limit": "int", "T": "{int32, int64}"},
    scalar,
    traits=WRITES,
    doc="The variable's value before adding 1; OutOfRangeError at the limit.",
)
register_op(
    "VarHandleOp",
    (),
    ("resource: resource",),
    {"container": "string = ''", "shared_name": "string = ''", "dtype": "type", "shape": "shape"},
    scalar,
    traits=Traits(state=State.CREATES, role=Role.VARIABLE, differentiable=False, cost=free),
    doc="A handle to a variable in a container, which keeps its value between steps.",
)
register_op(
    "VarIsInitializedOp",
    ("resource: resource",),
    ("is_initialized: bool",),
    shape=scalar,
    traits=Traits(
        state=State.READS,
        role=Role.IS_INITIALIZED,
        differentiable=False,
        allows_uninitialized=True,
    ),
    doc="True if the variable has a value.",
)
register_op(
    "ReadVariableOp",
    ("resource: resource",),
    ("value: dtype",),
    {"dtype": "type"},
    _read_shape,
    traits=Traits(view=0, variable_type="dtype", state=State.READS, role=Role.READ),
    doc="The variable's value at the time of reading.",
)
register_op(
    "ResourceInitializedValue",
    ("resource: resource", "initial: dtype"),
    ("value: dtype",),
    {"dtype": "type"},
    _initialized_value_shape,
    traits=Traits(variable_type="dtype", state=State.READS, allows_uninitialized=True),
    doc="The variable's value, or `initial` if it has none.",
)
register_op(
    "AssignVariableOp",
    ("resource: resource", "value: dtype"),
    (),
    {"dtype": "type"},
    _assign_handle_shape,
    traits=Traits(
        variable_type="dtype",
        state=State.WRITES,
        role=Role.ASSIGN,
        differentiable=False,
        cost=cost_rules.assigns,
    ),
    doc="Replaces the variable's value.",
)
for _op in ("AssignAddVariableOp", "AssignSubVariableOp"):
    register_op(
        _op,
        ("resource: resource", "value: dtype"),
        (),
        {"dtype": "{numbertype}"},
        _assign_handle_shape,
        traits=Traits(
            variable_type="dtype",
            state=State.WRITES,
            differentiable=False,
            cost=cost_rules.sums_into_state,
        ),
        doc="Adds to the variable." if "Add" in _op else "Subtracts from the variable.",
    )
register_op(
    "ResourceGather",
    ("resource: resource", "indices: Tindices"),
    ("output: dtype",),
    {
        "batch_dims": "int = 0",
        "validate_indices": "bool = true",
        "dtype": "type",
        "Tindices": "{index_type}",
    },
    _gather_shape,
    traits=Traits(variable_type="dtype", state=State.READS, cost=cost_rules.gather_bytes),
    doc="Rows of a variable, without reading all of it.",
)
register_op(
    "ResourceGatherNd",
    ("resource: resource", "indices: Tindices"),
    ("output: dtype",),
    {"dtype": "type", "Tindices": "{index_type}"},
    _gather_nd_shape,
    traits=Traits(variable_type="dtype", state=State.READS, cost=cost_rules.gather_bytes),
    doc="Slices of a variable, without reading all of it.",
)
register_op(
    "VariableShape",
    ("input: resource",),
    ("output: out_type",),
    {"out_type": "{index_type} = int32"},
    _variable_shape_shape,
    value=_variable_shape_value,
    traits=Traits(state=State.READS, differentiable=False, cost=free),
    doc="The shape of a variable's value.",
)
register_op(
    "DestroyResourceOp",
    ("resource: resource",),
    (),
    {"ignore_lookup_error": "bool = true"},
    traits=WRITES,
    doc="Deletes the resource; it is uninitialized afterwards.",
)
register_op(
    "DisableCopyOnRead",
    ("resource: resource",),
    (),
    {},
    traits=Traits(state=State.WRITES, differentiable=False, cost=free),
    doc="Does nothing: reads never copy. TensorFlow 2 writes it before it saves a variable.",
)

register_op(
    "MutexV2",
    (),
    ("resource: resource",),
    {"container": "string = ''", "shared_name": "string = ''"},
    scalar,
    traits=Traits(state=State.CREATES, differentiable=False, cost=free),
    doc="A mutex in a container.",
)
for _op in ("MutexAcquire", "MutexLock"):
    register_op(
        _op,
        ("mutex: resource",),
        ("mutex_lock: variant",),
        shape=scalar,
        traits=WAITS,
        doc="Waits for the mutex, first come, first served, without blocking a thread.",
    )
for _op in ("MutexRelease", "ConsumeMutexLock"):
    register_op(
        _op,
        ("mutex_lock: variant",),
        (),
        traits=WRITES,
        doc="Releases the mutex. A lock that is not released ends with its step.",
    )

# --------------------------------------------------------------------------- functions


def current_container(container: str | None = None) -> str:
    """Return `container`, or that of the innermost `Graph.container` block; "" is the default."""
    if container:
        return container
    return getattr(get_default_graph().scopes, "container", "")


def var_handle_op(
    dtype: Any, shape: Any, container: str = "", shared_name: str = "", name: str | None = None
) -> Output:
    """Return the handle of a resource variable without an initial value."""
    attrs = {
        "dtype": dtypes.as_dtype(dtype).base_dtype,
        "shape": as_dims(shape),
        "container": current_container(container),
        "shared_name": shared_name,
    }
    return out("VarHandleOp", (), attrs, name)


def read_variable_op(resource: Any, dtype: Any, name: str | None = None) -> Output:
    """Return the value behind a handle: the variable's shape, `dtype`."""
    return out("ReadVariableOp", [resource], {"dtype": dtypes.as_dtype(dtype).base_dtype}, name)


def assign_variable_op(resource: Any, value: Any, name: str | None = None) -> Node:
    """Replace the value behind a handle."""
    return create("AssignVariableOp", [resource, value], None, name)


def var_is_initialized_op(resource: Any, name: str | None = None) -> Output:
    """Return True if the variable behind a handle has a value: bool, shape ()."""
    return out("VarIsInitializedOp", [resource], None, name)


def resource_gather(
    resource: Any,
    indices: Any,
    dtype: Any,
    batch_dims: int = 0,
    validate_indices: bool = True,
    name: str | None = None,
) -> Output:
    """Return rows of the variable behind a handle: shape `indices.shape + variable.shape[1:]`."""
    attrs = {
        "dtype": dtypes.as_dtype(dtype).base_dtype,
        "batch_dims": batch_dims,
        "validate_indices": validate_indices,
    }
    return out("ResourceGather", [resource, indices], attrs, name)


def variable_shape(handle: Output, out_type: Any = dtypes.int32, name: str | None = None) -> Output:
    """Return the shape of the value behind a handle, a constant if static: shape (rank,)."""
    dims = handle_dims(handle)
    if dims is not None and None not in dims:
        return convert_to_tensor(list(dims), out_type, name)
    return out("VariableShape", [handle], {"out_type": out_type}, name)


def destroy_resource_op(
    resource: Any, ignore_lookup_error: bool = True, name: str | None = None
) -> Node:
    """Delete the resource behind a handle."""
    attrs = {"ignore_lookup_error": ignore_lookup_error}
    return create("DestroyResourceOp", [resource], attrs, name)


def resource_scatter(
    op: str, handle: Any, indices: Any, updates: Any, dtype: Any, name: str | None = None
) -> Node:
    """Scatter into the variable behind a handle; `op` is "Add", "NdAdd", "Update", ..."""
    key = "T" if op.startswith("Nd") else "dtype"
    return create(
        f"ResourceScatter{op}", [handle, indices, updates], {key: dtypes.as_dtype(dtype)}, name
    )


# --------------------------------------------------------------------------- mutexes


def mutex(shared_name: str = "", container: str = "", name: str | None = None) -> Output:
    """Return a mutex for steps and parts of steps: a handle, shape ().

    Source: the white paper's Table 1.
    """
    attrs = {"shared_name": shared_name, "container": current_container(container)}
    return out("MutexV2", (), attrs, name)


def mutex_acquire(mutex: Any, name: str | None = None) -> Output:
    """Wait for a mutex, first come, first served; return the lock, which releases it.

    A lock that is not released ends with the step that acquired it, even if the step fails.
    """
    return out("MutexAcquire", [mutex], None, name)


def mutex_release(mutex_lock: Any, name: str | None = None) -> Node:
    """Release a mutex; use control dependencies to run this after the guarded work."""
    return create("MutexRelease", [mutex_lock], None, name)
