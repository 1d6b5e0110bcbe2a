"""Base class of optimizers: gradients, slots, and the node that applies the updates."""

from __future__ import annotations

__all__ = ["Optimizer"]

from collections.abc import Callable, Iterable, Sequence, Set, ValuesView
from typing import Any, ClassVar

from weft_autodiff.gradients.backprop import gradients
from weft_autodiff.gradients.values import Grad, all_before_any
from weft_autodiff.optimizers import slot_creator
from weft_graph.ir import builder
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph, graph_for
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import IndexedSlices, convert_to_tensor_or_indexed_slices
from weft_graph.ir.node import Node, Output
from weft_graph.ops import control, state
from weft_graph.variables.base import Variable
from weft_graph.variables.reference import trainable_variables
from weft_graph.variables.resource import is_resource_variable
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

GradAndVar = tuple[Grad | None, Any]


class Optimizer:
    """Base class of optimizers.

    A subclass implements `_apply_dense` and `_apply_sparse` for reference variables, their
    `_resource_` twins for resource variables, and, if it has state, `_create_slots`.

    Args:
      use_locking: accepted and ignored; updates are always atomic.
      name: name of the node that applies the updates, and of the slots.
    Source: paper, section 4.1; "TensorFlow: large-scale machine learning on heterogeneous systems".

    Examples:
      >>> x = wf.Variable(1.0)
      >>> optimizer = wf.train.GradientDescentOptimizer(0.25)
      >>> isinstance(optimizer, wf.train.Optimizer)
      True
    """

    GATE_NONE: ClassVar[int] = 0
    GATE_OP: ClassVar[int] = 1
    GATE_GRAPH: ClassVar[int] = 2

    def __init__(self, use_locking: bool, name: str) -> None:
        if not name:
            raise errors.InvalidArgumentError("the name of an optimizer must not be empty")
        self._use_locking = use_locking
        self._name = name
        self._slots: dict[str, dict[Any, Any]] = {}
        self._non_slot_dict: dict[tuple[str, Graph], Any] = {}

    def get_name(self) -> str:
        """Return the name passed to the constructor."""
        return self._name

    # ---------------------------------------------------------------- minimizing

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: Any = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Any:
        """Add nodes that update variables to minimize `loss`.

        Args:
          loss: floating, any shape; or a function that returns it.
          global_step: integer variable that counts the updates.
          var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss: as
            `compute_gradients`.
          name: name of the node returned.
        Returns: a node that makes one update when it runs.
        Raises: InvalidArgumentError: the loss depends on none of the variables.

        Examples:
          >>> x = wf.Variable(4.0)
          >>> update = wf.train.GradientDescentOptimizer(0.25).minimize(x * x)
          >>> with wf.Session() as session:
          ...     session.run(wf.global_variables_initializer())
          ...     session.run(update)
          ...     session.run(x)
          np.float32(2.0)
        """
        grads_and_vars = self.compute_gradients(
            loss,
            var_list=var_list,
            gate_gradients=gate_gradients,
            aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
            grad_loss=grad_loss,
        )
        if all(grad is None for grad, _ in grads_and_vars):
            names = ", ".join(str(var.name) for _, var in grads_and_vars)
            raise errors.InvalidArgumentError(
                f"No gradients provided for any variable: {loss!r} depends on none of {names}; "
                "check for ops without gradients between them"
            )
        return self.apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: Any = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[GradAndVar]:
        """Return the gradients of `loss` with respect to variables.

        Args:
          loss: floating, any shape; or a function that returns it.
          var_list: variables, nested lists allowed; all trainable ones by default.
          gate_gradients: GATE_NONE, GATE_OP (all gradients of a node before any is used) or
            GATE_GRAPH (all gradients of the graph before any is used).
          aggregation_method: accepted for compatibility and ignored.
          colocate_gradients_with_ops: request the forward node's device for its gradient.
          grad_loss: gradient to start from, shape of `loss`; ones by default.
        Returns: (gradient, variable) pairs; None for variables that the loss does not depend on.
        Raises:
          InvalidArgumentError: there are no variables, or `gate_gradients` is invalid.
          InvalidTypeError: the loss or a variable is not floating.

        Examples:
          >>> x = wf.Variable(4.0)
          >>> optimizer = wf.train.GradientDescentOptimizer(0.25)
          >>> pairs = optimizer.compute_gradients(x * x)
          >>> clipped = [(wf.clip_by_value(grad, -1.0, 1.0), var) for grad, var in pairs]
          >>> update = optimizer.apply_gradients(clipped)
          >>> with wf.Session() as session:
          ...     session.run(wf.global_variables_initializer())
          ...     session.run(update)
          ...     session.run(x)
          np.float32(3.75)
        """
        if callable(loss) and not isinstance(loss, Output):
            loss = loss()
        if gate_gradients not in (self.GATE_NONE, self.GATE_OP, self.GATE_GRAPH):
            raise errors.InvalidArgumentError(
                "gate_gradients must be one of Optimizer.GATE_NONE, GATE_OP and GATE_GRAPH, "
                f"got {gate_gradients!r}"
            )
        target = builder.convert_to_tensor(loss)
        self._assert_valid_dtypes([target])
        if grad_loss is not None:
            self._assert_valid_dtypes([grad_loss])
        if var_list is None:
            variables = trainable_variables()
            variables += get_default_graph().get_collection(GraphKeys.TRAINABLE_RESOURCE_VARIABLES)
        else:
            variables = _flatten(var_list)
            for variable in variables:
                _check_node_of(variable, "var_list must be variables")
        if not variables:
            raise errors.InvalidArgumentError("No variables to optimize.")
        grads: Sequence[Grad | None] = gradients(
            target,
            variables,
            grad_ys=grad_loss,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
            gate_gradients=gate_gradients == self.GATE_OP,
            aggregation_method=aggregation_method,
        )
        self._assert_valid_dtypes(
            [v for g, v in zip(grads, variables, strict=True) if g is not None]
        )
        if gate_gradients == self.GATE_GRAPH:
            grads = all_before_any(grads)
        return list(zip(grads, variables, strict=True))

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Any:
        """Add the nodes that update the variables.

        Args:
          grads_and_vars: as `compute_gradients` returns; pairs with None are skipped.
          global_step: integer variable that is incremented after the updates.
          name: name of the node returned; the optimizer's by default.
        Returns: a node that makes one update when it runs.
        Raises:
          InvalidArgumentError: there are no pairs, or all gradients are None.
          InvalidTypeError: a gradient is not a tensor, or a variable is not a variable.
        """
        pairs = [(_as_gradient(grad, var), var) for grad, var in _pairs(grads_and_vars)]
        if global_step is not None:
            _check_node_of(global_step, "global_step must be a variable")
        if not pairs:
            raise errors.InvalidArgumentError("No variables provided.")
        gradient_pairs = [(grad, var) for grad, var in pairs if grad is not None]
        if not gradient_pairs:
            names = ", ".join(str(var.name) for _, var in pairs)
            raise errors.InvalidArgumentError(f"No gradients provided for any variable: {names}.")
        graph = graph_for(gradient_pairs[0][1])
        with graph.as_default(), graph.control_dependencies(None):
            self._create_slots([var for _, var in gradient_pairs])
        with graph.as_default(), graph.name_scope(name or self._name) as scope:
            self._prepare()
            updates = []
            for grad, var in gradient_pairs:
                with graph.name_scope(f"update_{var.op.name}"), graph.colocate_with(var.op):
                    updates.append(self._update(grad, var))
            train_op = self._finish_with(updates, global_step, scope)
        if train_op not in graph.get_collection_ref(GraphKeys.TRAIN_OP):
            graph.add_to_collection(GraphKeys.TRAIN_OP, train_op)
        return train_op

    def _finish_with(self, updates: list[Any], global_step: Any, scope: str) -> Node:
        if global_step is None:
            return _node(self._finish(updates, scope))
        graph = graph_for(global_step)
        updated = self._finish(updates, "update")
        with graph.control_dependencies([updated]), graph.colocate_with(global_step.op):
            unit = builder.constant(1, global_step.dtype.base_dtype)
            if is_resource_variable(global_step):
                return _node(global_step.assign_add(unit, name=scope, read_value=False))
            return _node(state.assign_add(global_step, unit, name=scope))

    def _update(self, grad: Grad, var: Any) -> Any:
        """Return the update of one variable, followed by its constraint."""
        if isinstance(grad, IndexedSlices):
            if var.constraint is not None:
                raise errors.InvalidArgumentError(
                    f"Cannot use a constraint function on a sparse variable: {var.name} has a "
                    "constraint, and its gradient is IndexedSlices"
                )
            if is_resource_variable(var):
                return self._resource_apply_sparse_duplicate_indices(grad.values, var, grad.indices)
            return self._apply_sparse_duplicate_indices(grad, var)
        resource = is_resource_variable(var)
        update = self._resource_apply_dense(grad, var) if resource else self._apply_dense(grad, var)
        if var.constraint is None:
            return update
        with get_default_graph().control_dependencies([update]):
            return var.assign(var.constraint(var.read_value()), read_value=False)

    # ---------------------------------------------------------------- state

    def get_slot(self, var: Any, name: str) -> Any:
        """Return the slot `name` of `var`, or None when there is none."""
        return self._slots.get(name, {}).get(_var_key(var))

    def get_slot_names(self) -> list[str]:
        """Return the sorted names of the optimizer's slots."""
        return sorted(self._slots)

    def variables(self) -> list[Any]:
        """Return all variables of the optimizer's state in the default graph, sorted by name."""
        graph = get_default_graph()
        variables = list(self._non_slot_variables())
        for slots in self._slots.values():
            variables += slots.values()
        return sorted([v for v in variables if v.op.graph is graph], key=lambda v: str(v.name))

    def _create_non_slot_variable(self, initial_value: Any, name: str, colocate_with: Any) -> Any:
        """Return optimizer state that is not a slot, created once per graph."""
        graph = colocate_with.graph
        variable = self._non_slot_dict.get((name, graph))
        if variable is None:
            make: Any = Variable  # its metaclass takes the arguments
            with graph.colocate_with(colocate_with.op):
                variable = make(
                    initial_value,
                    name=name,
                    trainable=False,
                    use_resource=is_resource_variable(colocate_with),
                )
            self._non_slot_dict[name, graph] = variable
        return variable

    def _get_non_slot_variable(self, name: str, graph: Graph | None = None) -> Any:
        return self._non_slot_dict.get((name, (graph or get_default_graph()).outermost))

    def _non_slot_variables(self) -> Iterable[Any]:
        return self._non_slot_dict.values()

    def _slot_dict(self, slot_name: str) -> dict[Any, Any]:
        return self._slots.setdefault(slot_name, {})

    def _get_or_make_slot(self, var: Any, val: Any, slot_name: str, op_name: str) -> Any:
        """Return the slot; create it with the initial value `val` if it does not exist."""
        return self._slot(var, slot_name, lambda: slot_creator.create_slot(var, val, op_name))

    def _get_or_make_slot_with_initializer(
        self, var: Any, initializer: Any, shape: Any, dtype: Any, slot_name: str, op_name: str
    ) -> Any:
        """Return the slot; create it with `initializer` if it does not exist."""
        return self._slot(
            var,
            slot_name,
            lambda: slot_creator.create_slot_with_initializer(
                var, initializer, shape, dtype, op_name
            ),
        )

    def _zeros_slot(self, var: Any, slot_name: str, op_name: str) -> Any:
        """Return the slot; create it with zeros if it does not exist."""
        return self._constant_slot(var, 0.0, slot_name, op_name)

    def _constant_slot(self, var: Any, value: float, slot_name: str, op_name: str) -> Any:
        """Return the slot; create it filled with `value` if it does not exist."""
        return self._slot(
            var, slot_name, lambda: slot_creator.create_constant_slot(var, value, op_name)
        )

    def _slot(self, var: Any, slot_name: str, make: Callable[[], Any]) -> Any:
        slots = self._slot_dict(slot_name)
        key = _var_key(var)
        if key not in slots:
            slots[key] = make()
        return slots[key]

    # ---------------------------------------------------------------- for subclasses

    def _valid_dtypes(self) -> set[DType]:
        """Return the supported element types of losses, variables and gradients."""
        return {dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64}

    def _assert_valid_dtypes(self, tensors: Iterable[Any]) -> None:
        valid = self._valid_dtypes()
        for tensor in tensors:
            dtype = builder.convert_to_tensor(tensor).dtype if _is_plain(tensor) else tensor.dtype
            if dtype.base_dtype not in valid:
                names = ", ".join(sorted(v.name for v in valid))
                raise errors.InvalidTypeError(
                    f"Invalid type {dtype.base_dtype.name} for {getattr(tensor, 'name', tensor)}, "
                    f"expected one of {names}"
                )

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        """Create the slots; called with the variables that have gradients."""

    def _prepare(self) -> None:
        """Convert hyperparameters to tensors; called in the scope of the updates."""

    def _finish(self, update_ops: Sequence[Any], name_scope: str) -> Any:
        """Return a node that runs after all updates."""
        return control.group(*update_ops, name=name_scope)

    def _apply_dense(self, grad: Output, var: Any) -> Any:
        """Return the update of a reference variable."""
        raise _unimplemented_error(self, "_apply_dense")

    def _resource_apply_dense(self, grad: Output, handle: Any) -> Any:
        """Return the update of a resource variable."""
        raise _unimplemented_error(self, "_resource_apply_dense")

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        """Return the update of rows of a reference variable; indices are unique."""
        raise _unimplemented_error(self, "_apply_sparse")

    def _resource_apply_sparse(self, grad: Output, handle: Any, indices: Output) -> Any:
        """Return the update of rows of a resource variable; indices are unique."""
        raise _unimplemented_error(self, "_resource_apply_sparse")

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Any:
        """Return the sparse update for indices that may repeat; their rows are summed first."""
        values, indices = _deduplicate_indexed_slices(grad.values, grad.indices)
        return self._apply_sparse(IndexedSlices(values, indices, grad.dense_shape), var)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Output, handle: Any, indices: Output
    ) -> Any:
        """Return the sparse update for indices that may repeat; their rows are summed first."""
        values, unique = _deduplicate_indexed_slices(grad, indices)
        return self._resource_apply_sparse(values, handle, unique)

    def _call_if_callable(self, param: Any) -> Any:
        """Return `param`, or its result if it is a function."""
        return param() if callable(param) and not isinstance(param, Output) else param

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"


def _unimplemented_error(optimizer: Optimizer, method: str) -> errors.UnimplementedError:
    return errors.UnimplementedError(f"{type(optimizer).__name__} does not implement {method}")


def _var_key(var: Any) -> tuple[Graph, str]:
    return var.op.graph, var.op.name


def _node(result: Any) -> Node:
    if isinstance(result, Node):
        return result
    node: Node = result.op
    return node


def _is_plain(value: Any) -> bool:
    return not isinstance(getattr(value, "dtype", None), DType)


def _flatten(var_list: Any) -> list[Any]:
    if isinstance(var_list, dict):
        return [v for key in sorted(var_list) for v in _flatten(var_list[key])]
    if isinstance(var_list, list | tuple | Set | ValuesView) or hasattr(var_list, "__next__"):
        return [v for item in var_list for v in _flatten(item)]
    parts = getattr(var_list, "_get_variable_list", None)
    return [var_list] if parts is None else list(parts())


def _pairs(grads_and_vars: Any) -> list[Any]:
    pairs = list(grads_and_vars)
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise errors.InvalidTypeError(
                f"apply_gradients requires pairs (gradient, variable), got {pair!r}"
            )
    return pairs


def _check_node_of(var: Any, required: str) -> None:
    if getattr(var, "op", None) is None:
        raise errors.InvalidTypeError(f"{required}, got {var!r}")


def _as_gradient(grad: Any, var: Any) -> Grad | None:
    required = "an optimizer updates variables"
    _check_node_of(var, required)
    if isinstance(var, Output):
        raise errors.InvalidTypeError(f"{required}, got {var!r}")
    if grad is None or isinstance(grad, Output | IndexedSlices):
        return grad
    try:
        return convert_to_tensor_or_indexed_slices(grad, var.dtype.base_dtype)
    except errors.InvalidTypeError as error:
        raise errors.InvalidTypeError(
            f"Gradient must be convertible to a Tensor or IndexedSlices, or None: {grad!r}"
        ) from error


def _deduplicate_indexed_slices(values: Output, indices: Output) -> tuple[Output, Output]:
    """Sum the rows of equal indices; return the sums and the unique indices."""
    unique, positions = builder.create("Unique", [indices]).outputs
    count = builder.out("Size", [unique])
    return builder.out("UnsortedSegmentSum", [values, positions, count]), unique
