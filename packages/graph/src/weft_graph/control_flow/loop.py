"""Loops: `while_loop`, built of Enter, Merge, Switch, NextIteration and Exit."""

from __future__ import annotations

__all__ = ["while_loop"]

import operator
from collections.abc import Callable, Sequence
from typing import Any

from weft_graph.control_flow.context import WhileContext, current_context
from weft_graph.control_flow.structure import check_arrays, flatten, unpack_single
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.composite import CompositeTensor
from weft_graph.ir.default_graph import get_default_graph, graph_for
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import IndexedSlices, SparseTensor
from weft_graph.ir.node import Node, Output
from weft_graph.ops import array, comparison, control_flow as primitives, identity
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, TensorShape, as_dims, format_dims


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
    maximum_iterations: Any = None,
    return_same_structure: bool = False,
) -> Any:
    """Apply `body` to the loop variables while `cond` of them is true.

    Args:
      cond: function of the loop variables that returns a bool of rank 0.
      body: function of the loop variables that returns their next values, in the same structure.
      loop_vars: a structure of tensors, TensorArrays and sparse values, at least one.
      shape_invariants: a structure of shapes or specs, for variables whose shape changes; each must
        be compatible with all values of its variable. The invariant of a sparse tensor is the shape
        of its `dense_shape`: [rank]. By default a variable keeps its initial shape, and a sparse
        tensor its rank.
      parallel_iterations: number of iterations that may run at the same time.
      back_prop: True if gradients may flow through the loop.
      swap_memory: True if saved forward values may be stored on the host.
      maximum_iterations: integer of rank 0, a bound on the number of iterations.
      return_same_structure: return a list of one variable unchanged, instead of the variable.
    Returns: the values of the loop variables when `cond` becomes false.
    Raises:
      InvalidTypeError: `cond` or `body` is not callable, or a next value has another type.
      InvalidArgumentError: there are no loop variables, the structures differ, or a variable
        changes its shape and its invariant does not allow it.
    Source: paper, section 4.4.

    Examples:
      >>> last, power = wf.while_loop(lambda i, p: i < 10, lambda i, p: (i + 1, 2 * p), [0, 1])
      >>> wf.Session().run(power)
      np.int32(1024)
    """
    _check_arguments(cond, body, loop_vars)
    at_a_time = _positive(parallel_iterations)
    structure = loop_vars if nest.is_nested(loop_vars) else [loop_vars]
    graph = _graph_of(structure)
    with (
        graph.as_default(),
        graph.name_scope(name or "while"),
        graph.under_construction(),
    ):
        initial, rebuild = flatten(structure)
        limit = None if maximum_iterations is None else _limit(maximum_iterations)
        context = WhileContext(
            graph,
            graph.unique_name("while_context"),
            current_context(graph),
            at_a_time,
            back_prop,
            swap_memory,
            limit,
        )
        step = _Body(body, structure, len(initial))
        results = _build(
            context,
            initial,
            _invariant_dims(structure, initial, shape_invariants),
            lambda values: cond(*_arguments(rebuild(values))),
            lambda values: step.next_values(rebuild(values)),
        )
        packed = _to_kind(rebuild(results), step.kind)
    return packed if return_same_structure or len(results) > 1 else unpack_single(packed)


def _check_arguments(cond: Any, body: Any, loop_vars: Any) -> None:
    for function, label in ((cond, "cond"), (body, "body")):
        if not callable(function):
            raise errors.InvalidTypeError(
                f"while_loop requires {label} to be callable, got {function!r}"
            )
    if nest.is_nested(loop_vars) and not nest.flatten(loop_vars):
        raise errors.InvalidArgumentError(
            "while_loop requires at least one loop variable, got none"
        )


def _positive(parallel_iterations: Any) -> int:
    try:
        count = operator.index(parallel_iterations)
    except TypeError:
        count = 0
    if count < 1:
        raise errors.InvalidTypeError(
            "while_loop requires parallel_iterations to be a positive integer, got "
            f"{parallel_iterations!r}"
        )
    return count


def _graph_of(structure: Any) -> Graph:
    for leaf in nest.flatten(structure):
        graph = getattr(leaf, "graph", None)
        if isinstance(graph, Graph):
            return graph_for(leaf)
    return get_default_graph()


def _limit(maximum: Any) -> Output:
    limit = convert_to_tensor(maximum, preferred_dtype=dtypes.int32)
    if not limit.dtype.is_integer or limit.dims not in ((), None):
        raise errors.InvalidArgumentError(
            f"while_loop requires maximum_iterations to be an integer of rank 0, got {limit!r}"
        )
    return limit


def _arguments(structure: Any) -> Sequence[Any]:
    """Return the loop variables as `cond` and `body` receive them."""
    if isinstance(structure, dict):
        return [structure]
    return structure  # type: ignore[no-any-return]


class _Body:
    """The loop body as a function of flat values, and the sequence type that it returns."""

    def __init__(self, body: Callable[..., Any], structure: Any, count: int) -> None:
        self._body = body
        self._structure = structure
        self._count = count
        self.kind: type = type(structure)

    def next_values(self, current: Any) -> list[Output]:
        """Return the next values of the loop variables from their current ones."""
        result = self._body(*_arguments(current))
        if not nest.is_nested(result):
            result = [result]
        self.kind = type(result)
        result = _to_kind(result, type(self._structure))
        try:
            nest.assert_same_structure(self._structure, result)
        except (ValueError, TypeError) as cause:
            raise errors.InvalidArgumentError(
                f"body must return the structure of the loop variables: {cause}"
            ) from cause
        check_arrays(self._structure, result, "body, for a loop variable,")
        values = flatten(result)[0]
        if len(values) != self._count:
            raise errors.InvalidArgumentError(
                "body must return values like the loop variables: required "
                f"{self._count} tensors, got {len(values)}"
            )
        return values


def _to_kind(values: Any, kind: type) -> Any:
    """Convert between lists and plain tuples at the top level."""
    if kind in (list, tuple) and type(values) in (list, tuple):
        return kind(values)
    return values


def _invariant_dims(structure: Any, initial: Sequence[Output], invariants: Any) -> list[Dims]:
    """Return the shape invariant of each loop variable."""
    if invariants is None:
        return _default_dims(nest.flatten(structure), initial)
    if not nest.is_nested(invariants) or isinstance(invariants, TensorShape):
        invariants = [invariants]
    leaves = nest.flatten(structure)
    shapes = _shapes(structure, invariants, len(leaves))
    dims: list[Dims] = []
    for leaf, shape in zip(leaves, shapes, strict=True):
        _check_spec(leaf if hasattr(leaf, "dtype") else initial[len(dims)], shape)
        dims.extend(_part_dims(leaf, _dims_meant(leaf, shape)))
    for value, invariant in zip(initial, dims, strict=True):
        if not fits(value.dims, invariant):
            raise errors.InvalidArgumentError(
                f"the shape invariant {format_dims(invariant)} of {value!r} is not compatible "
                f"with its initial shape {format_dims(value.dims)}"
            )
    return dims


def _default_dims(leaves: Sequence[Any], initial: Sequence[Output]) -> list[Dims]:
    """Return the initial shapes of the variables; a sparse tensor's indices may change in size."""
    dims: list[Dims] = []
    for leaf in leaves:
        parts = [value.dims for value in initial[len(dims) :][: len(flatten([leaf])[0])]]
        if isinstance(leaf, SparseTensor) and parts[0] is not None:
            parts[:2] = [(None, parts[0][1]), (None,)]
        elif isinstance(leaf, CompositeTensor):
            parts = leaf.part_dims(leaf.dims)
        dims.extend(parts)
    return dims


def _check_spec(leaf: Any, spec: Any) -> None:
    """Reject a spec that does not match the type of its variable."""
    kind = getattr(spec, "value_type", None)
    if kind is None:
        return
    dtype = getattr(spec, "dtype", leaf.dtype)
    if not isinstance(leaf, kind) or dtype.base_dtype is not leaf.dtype.base_dtype:
        raise errors.InvalidTypeError(f"the shape invariant {spec!r} does not describe {leaf!r}")


def _shapes(structure: Any, invariants: Any, count: int) -> list[Any]:
    try:
        shapes = nest.flatten_up_to(structure, invariants)
    except (ValueError, TypeError) as cause:
        raise errors.InvalidArgumentError(
            f"shape_invariants must have the structure of loop_vars: {cause}"
        ) from cause
    if len(shapes) != count:
        raise errors.InvalidArgumentError(
            f"shape_invariants must have one shape per loop variable: required {count}, "
            f"got {len(shapes)}"
        )
    return shapes


def _dims_meant(leaf: Any, shape: Any) -> Dims:
    """Return the shape of an invariant; for a sparse tensor, that of its dense_shape."""
    dims = as_dims(getattr(shape, "shape", shape))
    if not isinstance(leaf, SparseTensor) or hasattr(shape, "value_type") or dims is None:
        return dims
    if len(dims) != 1:
        raise errors.InvalidArgumentError(
            f"the shape invariant of {leaf!r} must be the shape of its dense_shape, such as [3] "
            f"for rank 3, got {format_dims(dims)}"
        )
    return None if dims[0] is None else (None,) * dims[0]


def _part_dims(leaf: Any, dims: Dims) -> list[Dims]:
    """Return the invariants of a leaf's parts from the shape of the leaf."""
    if isinstance(leaf, TensorArray):
        return [()]
    rank = None if dims is None else len(dims)
    if isinstance(leaf, SparseTensor):
        if not fits(tuple(leaf.shape.as_list()) if leaf.shape.ndims is not None else None, dims):
            raise errors.InvalidArgumentError(
                f"the shape invariant {format_dims(dims)} of {leaf!r} is not compatible with the "
                f"initial shape {leaf.shape}"
            )
        return [(None, rank), (None,), (rank,)]
    if isinstance(leaf, IndexedSlices):
        parts: list[Dims] = [dims, (None if dims is None else dims[0],)]
        return parts if leaf.dense_shape is None else [*parts, leaf.dense_shape.dims]
    if isinstance(leaf, CompositeTensor):
        return leaf.part_dims(dims)
    return [dims]


def fits(dims: Dims, invariant: Dims) -> bool:
    """Return True if every value of shape `dims` also has the shape `invariant`."""
    if invariant is None:
        return True
    if dims is None or len(dims) != len(invariant):
        return False
    return all(
        [expected is None or expected == dim for expected, dim in zip(invariant, dims, strict=True)]
    )


class LoopBuilder:
    """Builder that adds variables to a new or existing loop.

    Existing nodes do not change. All methods except `leave` must be called while the loop's context
    is open.
    """

    def __init__(self, context: WhileContext) -> None:
        self.context = context
        self._body_inputs: dict[int, Output] = {}

    def variable(self, initial: Output, dims: Dims = None, controls: Sequence[Node] = ()) -> int:
        """Add a loop variable and return its index.

        Args:
          initial: its first value, from the enclosing context.
          dims: its shape invariant.
          controls: nodes of the enclosing context that it waits for.
        """
        context = self.context
        start = context.enter(initial, controls=controls)
        start.dims = dims
        merge = primitives.merge([start, start], name="Merge").output.node
        for output in merge.outputs:
            context.graph.prevent_feeding(output)
        context.merges.append(merge)
        position = len(context.merges) - 1
        if context.pivot is None:
            context.pivot = merge
        if context.cond is not None:
            self._switch(position)
        return position

    def merged(self, position: int) -> Output:
        """Return a variable's value for use in the condition."""
        return self.context.merges[position].outputs[0]

    def condition(self, predicate: Any) -> None:
        """Set the loop condition: a bool of rank 0."""
        context = self.context
        context.cond = primitives.loop_cond(predicate, name="LoopCond")
        for position in range(len(context.merges)):
            self._switch(position)
        context.pivot = self._body_inputs[0].node

    def _switch(self, position: int) -> None:
        context = self.context
        assert context.cond is not None
        node = primitives.switch(self.merged(position), context.cond, name="Switch")[0].node
        context.switches.append(node)
        for output in node.outputs:
            context.graph.prevent_feeding(output)
        self._body_inputs[position] = identity.identity(node.outputs[1])

    def inside(self, position: int) -> Output:
        """Return a variable's value for use in the body."""
        return self._body_inputs[position]

    def close(self, position: int, value: Output) -> None:
        """Set the next value of a variable; call in the order of indices.

        Raises:
          InvalidTypeError: it has another type than the variable.
          InvalidArgumentError: its shape is incompatible with the variable's invariant.
        """
        context = self.context
        merge = context.merges[position]
        self._check_next(position, merge.outputs[0], value)
        iteration = primitives.next_iteration(value)
        context.next_values.append(iteration.node)
        context.graph.replace_input(merge, 1, iteration, reason="close the loop")

    def leave(self, position: int) -> Output:
        """Return a variable's final value; call in the order of indices."""
        exit_value = primitives.exit(self.context.switches[position].outputs[0], name="Exit")
        self.context.exits.append(exit_value.node)
        return exit_value

    def _check_next(self, position: int, variable: Output, value: Output) -> None:
        initial = variable.node.inputs[0].node.inputs[0]
        label = f"loop variable {position} ({initial.name}) of {self.context.name!r}"
        if value.dtype.base_dtype is not variable.dtype.base_dtype:
            raise errors.InvalidTypeError(
                f"{label} is {variable.dtype.name}, but body returns {value.dtype.name} for it"
            )
        if not fits(value.dims, variable.dims):
            raise errors.InvalidArgumentError(
                f"{label} enters the loop with shape {format_dims(variable.dims)}, but has shape "
                f"{format_dims(value.dims)} after one iteration; pass shape_invariants, or call "
                "set_shape in the body"
            )


def _build(
    context: WhileContext,
    initial: Sequence[Output],
    dims: Sequence[Dims],
    cond: Callable[[Sequence[Output]], Any],
    body: Callable[[Sequence[Output]], Sequence[Output]],
) -> list[Output]:
    """Return the final values of the loop variables; `cond` and `body` receive them as a list."""
    limit = context.maximum_iterations
    builder = LoopBuilder(context)
    counter = [] if limit is None else [_zero_of(context, limit)]
    values = [*counter, *initial]
    controls = [context.graph.scopes.control_inputs([value]) for value in values]
    with context.open():
        for value, shape, control in zip(
            values, [()] * len(counter) + list(dims), controls, strict=True
        ):
            builder.variable(value, shape, control)
        positions = range(len(counter), len(context.merges))
        proceed = cond([builder.merged(i) for i in positions])
        if limit is not None:
            below_limit = comparison.less(builder.merged(0), limit)
            proceed = comparison.logical_and(below_limit, proceed)
        builder.condition(proceed)
        following = list(body([builder.inside(i) for i in positions]))
        if counter:
            following.insert(0, builder.inside(0) + 1)
        for position, value in enumerate(following):
            builder.close(position, value)
        results = [builder.leave(position) for position in range(len(context.merges))]
    context.read_what_changes()
    return results[len(counter) :]


def _zero_of(context: WhileContext, limit: Output) -> Output:
    with context.outside():
        return array.zeros((), limit.dtype, name="iteration_counter")
