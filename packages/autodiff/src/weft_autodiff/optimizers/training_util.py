"""The global step: the integer variable that counts updates."""

from __future__ import annotations

__all__ = [
    "assert_global_step",
    "create_global_step",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
]

from typing import Any

from weft_graph.ir import builder
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.variables.scope import get_variable
from weft_tensor import dtypes, errors


def global_step(sess: Any, global_step_tensor: Any) -> int:
    """Return the value of the global step in a session.

    Args:
      sess: a session over the step's graph.
      global_step_tensor: the variable or tensor.

    Examples:
      >>> step = wf.train.create_global_step()
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(wf.assign_add(step, 3))
      ...     wf.train.global_step(session, step)
      np.int64(3)
      3
    """
    return int(sess.run(global_step_tensor))


def get_global_step(graph: Graph | None = None) -> Any:
    """Return the global step of a graph, or None if it has none.

    It is in the collection GLOBAL_STEP, or is the tensor "global_step:0".

    Args:
      graph: the default graph by default.
    Raises:
      InvalidTypeError: it is not an integer scalar.
      InvalidArgumentError: the collection has more than one.

    Examples:
      >>> print(wf.train.get_global_step())
      None
    """
    graph = graph or get_default_graph()
    steps = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if len(steps) > 1:
        raise errors.InvalidArgumentError(
            f"the collection {GraphKeys.GLOBAL_STEP} must have one item, got {steps}"
        )
    if steps:
        step = steps[0]
    else:
        try:
            step = graph.get_tensor_by_name("global_step:0")
        except errors.NotFoundError:
            return None
    assert_global_step(step)
    return step


def create_global_step(graph: Graph | None = None) -> Any:
    """Create the global step: an int64 variable "global_step", 0 at first, not trainable.

    Args:
      graph: the default graph by default.
    Raises: InvalidArgumentError: the graph has one already.

    Examples:
      >>> wf.train.create_global_step().dtype
      weft.int64_ref
    """
    graph = graph or get_default_graph()
    if get_global_step(graph) is not None:
        raise errors.InvalidArgumentError('"global_step" already exists.')
    with graph.as_default(), graph.name_scope(None):
        return get_variable(
            "global_step",
            shape=[],
            dtype=dtypes.int64,
            initializer=_zeros,
            trainable=False,
            collections=[GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP],
        )


def _zeros(shape: Any, dtype: Any = None, partition_info: Any = None) -> Output:
    return builder.constant(0, dtype, shape)


def get_or_create_global_step(graph: Graph | None = None) -> Any:
    """Return the global step of a graph; create it if there is none.

    Args:
      graph: the default graph by default.

    Examples:
      >>> wf.train.get_or_create_global_step().name
      'global_step:0'
    """
    graph = graph or get_default_graph()
    step = get_global_step(graph)
    return create_global_step(graph) if step is None else step


def assert_global_step(global_step_tensor: Any) -> None:
    """Check that a tensor or variable can be a global step.

    Args:
      global_step_tensor: the object to check.
    Raises: InvalidTypeError: it is not an integer scalar tensor or variable.

    Examples:
      >>> wf.train.assert_global_step(wf.train.create_global_step())
      >>> wf.train.assert_global_step(wf.Variable(0.5))
      Traceback (most recent call last):
        ...
      weft_tensor.errors.InvalidTypeError: ...
    """
    dtype = getattr(global_step_tensor, "dtype", None)
    if not isinstance(dtype, dtypes.DType) or not hasattr(global_step_tensor, "op"):
        raise errors.InvalidTypeError(
            f"the global step must be a tensor or a variable, got {global_step_tensor!r}"
        )
    if not dtype.base_dtype.is_integer:
        raise errors.InvalidTypeError(
            f'Existing "global_step" does not have integer type: {dtype.base_dtype.name}'
        )
    shape = global_step_tensor.get_shape()
    if shape.ndims not in (0, None):
        raise errors.InvalidTypeError(f'Existing "global_step" is not scalar: {shape}')
