"""Python functions that a node calls at run time with tensors that have values.

A call has its own graph, in which its arguments are constants. The function adds nodes to it, which
are evaluated when Python reads a value, or at the end.
"""

from __future__ import annotations

__all__ = ["py_function"]

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_autodiff.gradients.backprop import gradients
from weft_exec.session.session import Session
from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role, State
from weft_graph.ops.array import zeros_like
from weft_graph.ops.control import hold_function
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import TensorShape
from weft_tensor.values import to_array


class EagerTensor(Output):
    """A tensor of a call, whose value Python can read."""

    __slots__ = ()

    def numpy(self) -> Any:
        """Return the value as a read-only array."""
        graph = self.graph
        assert isinstance(graph, CallGraph)
        return graph.value(self)

    @property
    def shape(self) -> TensorShape:
        """The static shape, which is fully known."""
        return TensorShape(np.shape(self.numpy()))

    def get_shape(self) -> TensorShape:
        """Return the static shape."""
        return self.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return np.ndim(self.numpy())

    def _first_size(self, refused: str, replacement: str) -> int:
        if not self.ndim:
            raise errors.InvalidTypeError(f"{self!r} {refused}: it has rank 0")
        return int(np.shape(self.numpy())[0])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.numpy(), dtype)

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __index__(self) -> int:
        return int(np.asarray(self.numpy()).__index__())

    def __float__(self) -> float:
        return float(self.numpy())

    def __complex__(self) -> complex:
        return complex(self.numpy())

    def __format__(self, spec: str) -> str:
        return format(self.numpy(), spec) if spec else str(self)

    def __str__(self) -> str:
        return f"weft.Tensor({self.numpy()}, shape={self.shape}, dtype={self.dtype.name})"

    def __repr__(self) -> str:
        return (
            f"<weft.Tensor: shape={np.shape(self.numpy())}, dtype={self.dtype.name}, "
            f"numpy={self.numpy()!r}>"
        )


class CallGraph(Graph):
    """The graph of one call, which caches computed values."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[Output, Any] = {}
        self._done = 0
        self._session: Session | None = None

    def add_node(self, *args: Any, **kwargs: Any) -> Node:
        """Add a node; its outputs are `EagerTensor`s."""
        node = super().add_node(*args, **kwargs)
        node.outputs = tuple(EagerTensor(node, o.index, o.dtype, o.dims) for o in node.outputs)
        return node

    def argument(self, value: Any, dtype: DType) -> Output:
        """Return a tensor with the value of an argument."""
        tensor = convert_to_tensor(value, dtype)
        self._values[tensor] = value
        return tensor

    def value(self, output: Output) -> Any:
        """Return the value of one output."""
        return self.evaluate([output])[0]

    def evaluate(self, outputs: Sequence[Output]) -> list[Any]:
        """Return the values of some outputs, and run each new node with side effects once."""
        values = self._values
        expected = [output for output in dict.fromkeys(outputs) if output not in values]
        pending = self._effects()
        expected += [o for node in pending for o in node.outputs if not o.dtype.is_ref]
        if expected or pending:
            feeds = {
                o: v
                for o, v in values.items()
                if o not in expected and o.node.role is not Role.CONSTANT
            }
            if self._session is None:
                self._session = Session(graph=self)
            result, _ = self._session.run((expected, pending), feeds)
            values.update(zip(expected, result, strict=True))
        return [values[output] for output in outputs]

    def _effects(self) -> list[Node]:
        """Return the nodes with side effects or random numbers that have not run."""
        new, self._done = self.nodes[self._done :], len(self.nodes)
        return [
            node
            for node in new
            if (node.traits.random or node.traits.state is State.WRITES) and node.context is None
        ]

    def close(self) -> None:
        """Release the values of the call."""
        if self._session is not None:
            self._session.close()
        self._values.clear()


class EagerCall:
    """An adapter from a Python function of tensors to a function of arrays.

    Args:
      function: function from tensors to values that can be converted to tensors.
      inputs, outputs: their element types.
    """

    def __init__(
        self, function: Callable[..., Any], inputs: Sequence[DType], outputs: Sequence[DType]
    ) -> None:
        self.function = function
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)

    def __call__(self, *values: Any) -> Any:
        """Call the function and return its results as arrays."""
        graph = CallGraph()
        try:
            with graph.as_default():
                arguments = [
                    graph.argument(*pair) for pair in zip(values, self.inputs, strict=True)
                ]
                results = self._results(self.function(*arguments))
                tensors = [r for r in results if isinstance(r, Output)]
                result = dict(zip(tensors, graph.evaluate(tensors), strict=True))
                return [result[r] if isinstance(r, Output) else r for r in results]
        finally:
            graph.close()

    def _results(self, result: Any) -> list[Any]:
        """Return the results of the function: tensors of the call, or arrays."""
        if result is None and not self.outputs:
            return []
        is_sequence = isinstance(result, list | builtins.tuple)
        if is_sequence and len(self.outputs) == 1 and len(result) != 1:
            is_sequence = False
        values = list(result) if is_sequence else [result]
        if result is None or len(values) != len(self.outputs):
            text = "None" if result is None else f"{len(values)} values"
            raise errors.InvalidArgumentError(
                f"the Python function must return {len(self.outputs)} values, got {text}"
            )
        return [_result(v, t, i) for i, (v, t) in enumerate(zip(values, self.outputs, strict=True))]

    def backward(self, *values: Any) -> list[Any]:
        """Return the gradients with respect to the differentiable inputs.

        Args:
          values: tensors of a call: the inputs, then the gradients of the differentiable outputs.
        """
        count = len(self.inputs)
        inputs, grads = values[:count], iter(values[count:])
        results = [convert_to_tensor(r) for r in self._results(self.function(*inputs))]
        flowing = [(r, next(grads)) for r, t in zip(results, self.outputs, strict=True) if can(t)]
        varied = [x for x, t in zip(inputs, self.inputs, strict=True) if can(t)]
        result = gradients([r for r, _ in flowing], varied, [g for _, g in flowing])
        return [
            zeros_like(x) if g is None else convert_to_tensor(g)
            for x, g in zip(varied, result, strict=True)
        ]

    def gradient(self, node: Node, grads: Sequence[Output]) -> list[Output | None]:
        """Add the gradient nodes of a call."""
        output_grads = [g for g, t in zip(grads, self.outputs, strict=True) if can(t)]
        varied = [x for x in node.inputs if can(x.dtype)]
        if not output_grads or not varied:
            return [None] * len(node.inputs)
        matches = iter(
            _call(self.backward, [*node.inputs, *output_grads], [x.dtype for x in varied], None)
        )
        result: list[Output | None] = [next(matches) if can(x.dtype) else None for x in node.inputs]
        for grad, source in zip(result, node.inputs, strict=True):
            if grad is not None:
                grad.set_shape(source.shape)
        return result


def can(dtype: DType) -> bool:
    """Return True if values of a type are differentiable."""
    return dtype.is_floating or dtype.is_complex


def _result(value: Any, dtype: DType, position: int) -> Any:
    if isinstance(value, Output) or hasattr(value, "_as_output"):
        tensor = convert_to_tensor(value)
        if tensor.dtype.base_dtype is not dtype:
            raise errors.InvalidArgumentError(
                f"value {position} of the Python function must be {dtype.name}, got "
                f"{tensor.dtype.name}"
            )
        if not isinstance(tensor.graph, CallGraph):
            raise errors.InvalidArgumentError(
                f"value {position} of the Python function is {tensor!r}, which is part of another "
                "graph: pass it as an input"
            )
        return tensor
    return to_array(value, dtype)


def py_function(
    func: Callable[..., Any],
    inp: Sequence[Any],
    Tout: Any,
    name: str | None = None,
) -> Any:
    """Call a Python function on tensors that have values when the node runs.

    Unlike those of `py_func`, its arguments are tensors: functions of weft accept them, `numpy()`
    returns their values, and `if`, `float()` and `len()` work. Computations by functions of weft
    have gradients, for which the function is called once more.

    Args:
      func: function of one tensor per input that returns tensors, arrays or values of the types
        `Tout`.
      inp: tensors.
      Tout: element type, or a list of element types; empty if nothing is returned.
    Returns: an output of unknown shape, or a list of them; the node if `Tout` is empty.
    Raises (when run): errors of `func`, as the nearest error of weft.

    Examples:
      >>> def root(x):
      ...     return wf.sqrt(x) if x > 0.0 else -wf.sqrt(-x)
      >>> x = wf.constant(4.0)
      >>> y = wf.py_function(root, [x], wf.float32)
      >>> wf.Session().run([y, wf.gradients(y, x)[0]])
      [np.float32(2.0), np.float32(0.25)]
    """
    is_sequence = isinstance(Tout, list | builtins.tuple)
    types = [dtypes.as_dtype(t) for t in (Tout if is_sequence else [Tout])]
    values = [convert_to_tensor(value) for value in inp]
    result = _call(func, values, types, name)
    return result if is_sequence or not types else result[0]


def _call(
    function: Callable[..., Any], values: Sequence[Output], types: Sequence[DType], name: str | None
) -> Any:
    graph = values[0].graph if values else get_default_graph()
    call = EagerCall(function, [value.dtype.base_dtype for value in values], types)
    holder = hold_function(call)
    graph.add_to_collection("_py_funcs", holder)
    node = create("EagerPyFunc", [values], {"token": holder.token, "Tout": list(types)}, name)
    return list(node.outputs) if types else node
