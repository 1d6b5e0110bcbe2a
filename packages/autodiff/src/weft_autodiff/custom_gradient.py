"""Functions with custom gradients."""

from __future__ import annotations

__all__ = ["custom_gradient", "grad_pass_through"]

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from weft_autodiff.registry import Gradient, register_in_graph
from weft_graph.ir import builder
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.variables.base import shared_reads
from weft_tensor import errors
from weft_tensor.nesting import format_value


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for functions that return their result and its gradient function.

    `f(*args)` returns `(result, grad_fn)`, and `grad_fn(*grads)`, one per result, returns one
    gradient per argument.  If `f` reads or creates variables, `grad_fn` must accept `variables=`
    and return `(argument_gradients, variable_gradients)`.

    Args:
      f: function of tensors that returns (result, grad_fn).
    Raises (the decorated function): InvalidTypeError: `f` does not return such a pair, or reads
      variables although `grad_fn` does not accept `variables=`.
    Source: tf.custom_gradient.

    Examples:
      >>> @wf.custom_gradient
      ... def clipped_square(x):
      ...     return x * x, lambda grad: wf.clip_by_value(2.0 * x * grad, -1.0, 1.0)
      >>> x = wf.constant(5.0)
      >>> wf.Session().run(wf.gradients(clipped_square(x), [x]))
      [np.float32(1.0)]
    """

    @functools.wraps(f)
    def call_with_gradient(*args: Any, **kwargs: Any) -> Any:
        inputs = [builder.out("Identity", [arg]) for arg in args]
        graph = inputs[0].graph if inputs else get_default_graph()
        start = len(graph.nodes)
        pair = f(*inputs, **kwargs)
        if not (isinstance(pair, tuple) and len(pair) == 2 and callable(pair[1])):
            raise errors.InvalidTypeError(
                f"{f.__name__} must return (result, grad_fn), got {format_value(pair)}"
            )
        result, grad_fn = pair
        is_sequence = isinstance(result, list | tuple)
        results = [builder.convert_to_tensor(r) for r in (result if is_sequence else [result])]
        variables = _variables_read(graph.nodes[start:], graph)
        if variables and "variables" not in inspect.signature(grad_fn).parameters:
            raise errors.InvalidTypeError(
                f"{f.__name__} reads the variables {[v.name for v in variables]}, so its grad_fn "
                "must take the argument variables="
            )
        handles = [v.handle for v in variables]
        return _wrap(graph, results, inputs, handles, variables, grad_fn, type(result), is_sequence)

    return call_with_gradient


def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return `f` with the gradient of the identity: gradients pass to its argument unchanged.

    Args:
      f: a function of one tensor, with a result of the same shape.

    Examples:
      >>> x = wf.constant(1.4)
      >>> y = wf.grad_pass_through(wf.round)(x)
      >>> wf.Session().run(wf.gradients(y, [x]))
      [np.float32(1.0)]
    """

    @custom_gradient
    def call_and_grad(*args: Any, **kwargs: Any) -> Any:
        def grad(*grads: Any, variables: Any = None) -> Any:
            if variables is None:
                return list(grads)
            return list(grads), [None] * len(variables)

        return f(*args, **kwargs), grad

    return functools.wraps(f)(call_and_grad)


def _wrap(
    graph: Any,
    results: list[Output],
    inputs: list[Output],
    handles: list[Output],
    variables: list[Any],
    grad_fn: Callable[..., Any],
    kind: Any,
    is_sequence: bool,
) -> Any:
    def gradient(node: Node, *grads: Any) -> Sequence[Any]:
        kwargs = {"variables": variables} if variables else {}
        answer = grad_fn(*grads[: len(results)], **kwargs)
        of_variables: Sequence[Any] = ()
        if variables:
            answer, of_variables = answer
        of_inputs = list(answer) if isinstance(answer, list | tuple) else [answer]
        if len(of_inputs) != len(inputs) or len(of_variables) != len(variables):
            raise errors.InvalidArgumentError(
                f"grad_fn must return {len(inputs)} gradients of arguments and {len(variables)} of "
                f"variables, got {len(of_inputs)} and {len(of_variables)}"
            )
        return [*[None] * len(results), *of_inputs, *of_variables]

    name = graph.unique_name("CustomGradient")
    register_in_graph(graph, name, Gradient(gradient))
    lookup_op("IdentityN")
    with graph.gradient_override_map({"IdentityN": name}):
        node = builder.create("IdentityN", [[*results, *inputs, *handles]])
    values = list(node.outputs[: len(results)])
    if not is_sequence:
        return values[0]
    return kind._make(values) if hasattr(kind, "_make") else kind(values)


def _variables_read(nodes: Sequence[Node], graph: Any) -> list[Any]:
    """Return the variables in the graph's collections whose outputs the nodes use.

    Variables created among the nodes are included, because their initializers use them.
    """
    owners = {}
    for key in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.LOCAL_VARIABLES):
        for variable in graph.get_collection(key):
            for output in (*variable.op.outputs, *shared_reads(variable)):
                owners[output] = variable
    return list({owners[s]: None for node in nodes for s in node.inputs if s in owners})
