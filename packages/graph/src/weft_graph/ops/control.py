"""Ordering and side effects: no-ops, groups, assertions, printing, calls of Python functions."""

from __future__ import annotations

import logging
import sys

__all__ = [
    "Assert",
    "Print",
    "group",
    "no_op",
    "numpy_function",
    "print",
    "py_func",
    "timestamp",
    "tuple",
]

import builtins
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.costs import free
from weft_graph.ir.default_graph import get_default_graph, graph_for
from weft_graph.ir.indexed_slices import (
    IndexedSlices,
    SparseTensor,
    convert_to_tensor_or_indexed_slices,
)
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import WRITES, State, Traits
from weft_graph.ops import print_format
from weft_graph.ops.shape_rules import same_shape, scalar, with_rank
from weft_tensor import dtypes, errors
from weft_tensor.nesting import format_value, too_deep_error
from weft_tensor.shape import Dims, format_dims

# ------------------------------------------------------------------------------ declarations


def _print_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "what is printed")
    return ()


def _no_outputs(node: NodeSpec) -> Sequence[Dims]:
    return ()


def _assert_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    if dims not in ((), None):
        raise errors.InvalidArgumentError(
            f"the condition must have rank 0, got shape {format_dims(dims)}"
        )
    return ()


register_op(
    "NoOp",
    shape=_no_outputs,
    traits=Traits(differentiable=False, cost=free),
    doc="Does nothing; used for control dependencies.",
)
register_op(
    "RefIdentity",
    ("input: Ref(T)",),
    ("output: Ref(T)",),
    {"T": "type"},
    same_shape,
    traits=Traits(identity=True, view=0),
    doc="Returns the reference unchanged.",
)
register_op(
    "Assert",
    ("condition: bool", "data: T"),
    (),
    {"T": "list(type) >= 1", "summarize": "int = 3"},
    _assert_shape,
    traits=WRITES,
    doc="Fails with the data unless the condition is true.",
)
register_op(
    "Print",
    ("input: T", "data: U"),
    ("output: T",),
    {
        "T": "type",
        "U": "list(type) >= 0",
        "message": "string = ''",
        "first_n": "int = -1",
        "summarize": "int = 3",
    },
    same_shape,
    traits=Traits(state=State.WRITES),
    doc="Returns the input and prints the data.",
)
register_op(
    "PrintV2",
    ("input: string",),
    (),
    {"output_stream": "string = 'stderr'", "end": "string = '\n'"},
    _print_shape,
    # A stream may be a file.
    traits=Traits(state=State.WRITES, writes_files=True, differentiable=False),
    doc="Prints a string.",
)
register_op(
    "Timestamp",
    (),
    ("ts: float64",),
    shape=scalar,
    traits=WRITES,
    doc="The time in seconds since 1970.",
)
for _name, _state in (("PyFunc", State.WRITES), ("PyFuncStateless", State.NONE)):
    register_op(
        _name,
        ("input: Tin",),
        ("output: Tout",),
        {"token": "string", "Tin": "list(type) >= 0", "Tout": "list(type) >= 0"},
        traits=Traits(state=_state, host_code=True, differentiable=False),
        doc="Calls a Python function of this process, identified by its token.",
    )
register_op(
    "EagerPyFunc",
    ("input: Tin",),
    ("output: Tout",),
    {
        "token": "string",
        "is_async": "bool = false",
        "Tin": "list(type) >= 0",
        "Tout": "list(type) >= 0",
    },
    traits=Traits(state=State.WRITES, host_code=True),
    doc="Calls a Python function with eager tensors, identified by its token.",
)

# --------------------------------------------------------------------------------- waiting


def no_op(name: str | None = None) -> Node:
    """Return a node that does nothing.

    Examples:
      >>> wf.Session().run(wf.no_op())
    """
    return create("NoOp", (), name=name)


def _node_of(item: Any) -> Node:
    if isinstance(item, Node):
        return item
    if isinstance(item, Output | IndexedSlices | SparseTensor):
        return item.op
    element = get_default_graph().as_graph_element(item)
    return element.node if isinstance(element, Output) else element


def group(*inputs: Any, name: str | None = None) -> Node:
    """Return a node that finishes when all `inputs` have.

    Args:
      *inputs: operations, tensors, variables, or nested lists of them.
    Returns: a NoOp; the nodes of each device are grouped by a separate NoOp on it.

    Examples:
      >>> x = wf.Variable(1.0)
      >>> y = wf.Variable(2.0)
      >>> both = wf.group(x.initializer, y.initializer)
      >>> with wf.Session() as session:
      ...     session.run(both)
      ...     session.run([x, y])
      [np.float32(1.0), np.float32(2.0)]
    """
    nodes = list(dict.fromkeys(_node_of(item) for item in _flat(inputs)))
    graph = graph_for(nodes[0]) if nodes else get_default_graph()
    by_device: dict[str, list[Node]] = {}
    for node in nodes:
        by_device.setdefault(node.device, []).append(node)
    with graph.as_default():
        if len(by_device) <= 1:
            device = next(iter(by_device), "")
            return _wait_for(nodes, device, name or "group_deps")
        with graph.name_scope(name or "group_deps") as scope:
            parts = [
                _wait_for(members, device, "NoOp") for device, members in sorted(by_device.items())
            ]
            with graph.control_dependencies(parts):
                return no_op(scope)


def _wait_for(nodes: Sequence[Node], device: str, name: str) -> Node:
    graph = get_default_graph()
    with graph.control_dependencies(nodes):
        if not device:
            return no_op(name)
        with graph.device(device):
            return no_op(name)


def _flat(items: Any) -> Iterable[Any]:
    try:
        for item in items:
            if isinstance(item, dict):
                yield from _flat(item.values())
            elif isinstance(item, list | builtins.tuple):
                yield from _flat(item)
            elif item is not None:
                yield item
    except RecursionError:
        raise too_deep_error(items) from None


def with_dependencies(
    dependencies: Iterable[Any], output_tensor: Any, name: str | None = None
) -> Any:
    """Return `output_tensor`, available only after all `dependencies` have run.

    Args:
      dependencies: operations or tensors.
      output_tensor: an output or IndexedSlices.
    Returns: a new output or new IndexedSlices with the same value.
    """
    value = convert_to_tensor_or_indexed_slices(output_tensor)
    graph = value.graph
    with (
        graph.as_default(),
        graph.name_scope(name or "control_dependency") as scope,
        graph.control_dependencies([_node_of(item) for item in dependencies]),
        graph.colocate_with(value.op),
    ):
        if isinstance(value, IndexedSlices):
            return IndexedSlices(
                out("Identity", [value.values], name=scope), value.indices, value.dense_shape
            )
        return out("Identity", [value], name=scope)


def tuple(
    tensors: Sequence[Any], name: str | None = None, control_inputs: Iterable[Any] | None = None
) -> list[Any]:
    """Return the same tensors, each of which is available only when all are.

    Args:
      tensors: outputs, IndexedSlices or None, at least one not None.
      control_inputs: further operations or tensors to wait for.
    Raises: InvalidArgumentError: there is nothing to wait for.

    Examples:
      >>> wf.Session().run(wf.tuple([wf.constant(1), wf.constant(2)]))
      [np.int32(1), np.int32(2)]
    """
    values = [None if t is None else convert_to_tensor_or_indexed_slices(t) for t in tensors]
    waited = [value.op for value in values if value is not None]
    if not waited:
        raise errors.InvalidArgumentError("tuple requires at least one tensor that is not None")
    waited += [_node_of(item) for item in control_inputs or ()]
    graph = waited[0].graph
    with graph.as_default(), graph.name_scope(name or "tuple"):
        gate = group(*waited)
        return [None if value is None else with_dependencies([gate], value) for value in values]


# ------------------------------------------------------------------------------- messages


def Assert(  # noqa: N802 - TensorFlow's name
    condition: Any, data: Sequence[Any], summarize: int | None = None, name: str | None = None
) -> Node:
    """Return a node that fails at run time unless `condition` is true.

    Args:
      condition: bool, rank 0.
      data: tensors to show in the message.
      summarize: number of elements of each to show, 3 by default; -1 for all.
    Raises: InvalidArgumentError: at run time, if the condition is False.

    Examples:
      >>> x = wf.constant(1)
      >>> with wf.control_dependencies([wf.Assert(x > 0, [x])]):
      ...     checked = wf.identity(x)
      >>> wf.Session().run(checked)
      np.int32(1)
    """
    attrs = {} if summarize is None else {"summarize": summarize}
    predicate = convert_to_tensor(condition, dtypes.bool_)
    return create("Assert", [predicate, list(data)], attrs, name)


def Print(  # noqa: N802 - TensorFlow's name
    input_: Any,
    data: Sequence[Any],
    message: str | None = None,
    first_n: int | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Output:
    """Return `input_`, and print `data` to standard error as a side effect.

    Args:
      message: text printed before the data.
      first_n: print only the first n times; by default always.
      summarize: number of elements of each tensor to print, 3 by default.

    Examples:
      >>> x = wf.constant([1.0, 2.0])
      >>> wf.Session().run(wf.Print(x, [wf.shape(x)], "the shape is "))
      array([1., 2.], dtype=float32)
    """
    attrs = {"message": message, "first_n": first_n, "summarize": summarize}
    given_attrs = {key: value for key, value in attrs.items() if value is not None}
    return out("Print", [input_, list(data)], given_attrs, name)


def print_v2(
    *inputs: Any,
    output_stream: Any = None,
    summarize: int = 3,
    sep: str = " ",
    end: str = "\n",
    name: str | None = None,
) -> Node:
    """Print tensors and Python values when the node runs.

    Args:
      *inputs: tensors, Python values, and dicts, lists and tuples of these, formatted as in Python.
      output_stream: sys.stderr (the default), sys.stdout, "log(info)", or "file://path".
      summarize: number of elements to print at both ends of every axis; -1 for all.
      sep, end: text between the inputs and after the last.
    Raises: InvalidArgumentError: the stream is unknown.

    Examples:
      >>> said = wf.print("x is", wf.constant([1, 2]), output_stream="file://said.txt")
      >>> wf.Session().run(said)
      >>> open("said.txt").read().split()
      ['x', 'is', '[1', '2]']
    """
    attrs = {"output_stream": _stream_name(output_stream), "end": end}
    if len(inputs) == 1 and _is_line(inputs[0]):
        return create("PrintV2", [inputs[0]], attrs, name or "PrintV2")
    line = print_format.line_of(inputs, sep, summarize)
    return create("PrintV2", [line], attrs, name or "PrintV2")


print = print_v2


def timestamp(name: str | None = None) -> Output:
    """Return the time when the node runs, in seconds since 1970: float64, rank 0.

    Examples:
      >>> seconds = wf.timestamp()
      >>> with wf.Session() as session:
      ...     bool(session.run(seconds) <= session.run(seconds))
      True
    """
    return out("Timestamp", (), name=name)


def _is_line(value: Any) -> bool:
    return isinstance(value, Output) and value.dtype == dtypes.string and value.dims == ()


def _stream_name(stream: Any) -> str:
    if stream is None or stream is sys.stderr:
        return "stderr"
    if stream is sys.stdout:
        return "stdout"
    log = logging.getLogger("weft")
    for level in ("info", "warning", "error"):
        if stream == getattr(log, level):  # as in wf.logging
            return f"log({level})"
    stream_names = ("log(info)", "log(warning)", "log(error)", "stderr", "stdout")
    if isinstance(stream, str) and (stream in stream_names or stream.startswith("file://")):
        return stream
    raise errors.InvalidArgumentError(
        f"output_stream must be sys.stdout, sys.stderr, one of {stream_names} or file://…, got "
        f"{stream!r}"
    )


# ----------------------------------------------------------------------- Python functions


class PyFunction:
    """A Python function that nodes call by its token; its graph keeps it alive."""

    __slots__ = ("__weakref__", "function", "token")

    def __init__(self, function: Callable[..., Any], token: str) -> None:
        self.function = function
        self.token = token


_functions: WeakValueDictionary[str, PyFunction] = WeakValueDictionary()


def hold_function(function: Callable[..., Any]) -> PyFunction:
    """Register a function under a token; the registration lasts as long as the returned object."""
    if not callable(function):
        raise errors.InvalidTypeError(
            f"a Python function must be callable, got {format_value(function)}"
        )
    token = f"pyfunc_{os.urandom(16).hex()}"  # what an imported graph cannot guess
    holder = _functions[token] = PyFunction(function, token)
    return holder


def py_function_of(token: str) -> Callable[..., Any]:
    """Return the function registered under a token.

    Raises: FailedPreconditionError: this process has no such function; graphs do not contain
      functions.
    """
    holder = _functions.get(token)
    if holder is None:
        raise errors.FailedPreconditionError(
            f"the Python function {token!r} is not in this process: functions are not serialized "
            "with a graph, and live as long as their graph"
        )
    return holder.function


def py_func(
    func: Callable[..., Any],
    inp: Sequence[Any],
    Tout: Any,
    stateful: bool = True,
    name: str | None = None,
) -> Any:
    """Call a Python function on NumPy arrays when the node runs.

    Args:
      func: function of one read-only array per input that returns arrays or values of types `Tout`.
      inp: tensors.
      Tout: element type, or a list of element types.
      stateful: True if equal inputs may produce different results, or if calls have side effects.
        Otherwise a function of constants is called once instead of in each step.
    Returns: an output of unknown shape, or a list of them. If `Tout` is empty, the node, or an
      empty list if it is not stateful, because nothing would run it.
    Raises: InvalidTypeError: `func` is not callable.

    Examples:
      >>> wf.Session().run(wf.py_func(lambda x: 2 * x, [wf.constant([1, 2])], wf.int32))
      array([2, 4], dtype=int32)
    """
    is_sequence = isinstance(Tout, list | builtins.tuple)
    types = list(Tout) if is_sequence else [Tout]
    values = [convert_to_tensor(value) for value in inp]
    graph = values[0].graph if values else get_default_graph()
    holder = hold_function(func)
    graph.add_to_collection("_py_funcs", holder)
    op = "PyFunc" if stateful else "PyFuncStateless"
    node = create(op, [values], {"token": holder.token, "Tout": types}, name)
    if not types:
        return node if stateful else []
    return list(node.outputs) if is_sequence else node.outputs[0]


def numpy_function(
    func: Callable[..., Any], inp: Sequence[Any], Tout: Any, name: str | None = None
) -> Any:
    """Call a stateful Python function; newer name of `py_func`.

    Args:
      func, inp, Tout: as for `py_func`.
    Returns: as `py_func`.
    Examples:
      >>> wf.Session().run(wf.numpy_function(lambda x: 2 * x, [wf.constant([1, 2])], wf.int32))
      array([2, 4], dtype=int32)
    """
    return py_func(func, inp, Tout, name=name)
