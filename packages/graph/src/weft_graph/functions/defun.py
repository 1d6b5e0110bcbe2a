"""`Defun` and `Declare`: functions with declared element types."""

from __future__ import annotations

__all__ = ["Declare", "Defun"]

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from weft_graph.functions.body import FunctionGraph
from weft_graph.functions.call import add_call, call_node
from weft_graph.functions.decorator import name_of
from weft_graph.functions.definition import Declaration
from weft_graph.functions.function import Function
from weft_graph.functions.trace import Package, trace
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType


class Defun:
    """Decorator that turns a Python function into a graph function.

    The function is built once, when it is first called or named. Without `input_types` it is built
    once for each combination of argument types.

    Args:
      *input_types: element types of the arguments.
      func_name: name in the library; a unique form of the Python function's name by default.
      grad_func: graph function that computes the gradient from the arguments and a gradient for
        each result; it returns one gradient for each argument.
      python_grad_func: Python function that builds the gradient from a call's node and a gradient
        for each result; it returns one gradient for each argument.
      out_names: names of the results.
      shape_func: a Python function from the node of a call to the shapes of the results.
      **kwargs: attributes of the function: `noinline=True` keeps its calls.
    Source: TensorFlow's `tensorflow.python.framework.function.Defun`.

    Examples:
      >>> @wf.Defun(wf.float32)
      ... def cube(x):
      ...     return x * x * x
      >>> wf.Session().run(cube(wf.constant(2.0)))
      np.float32(8.0)
    """

    def __init__(
        self,
        *input_types: Any,
        func_name: str | None = None,
        grad_func: Any = None,
        python_grad_func: Any = None,
        out_names: Sequence[str] | None = None,
        shape_func: Callable[[Node], Sequence[Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        if grad_func is not None and python_grad_func is not None:
            raise errors.InvalidArgumentError("Defun takes grad_func or python_grad_func, not both")
        self._types = [dtypes.as_dtype(input_type).base_dtype for input_type in input_types]
        self._options = {
            "func_name": func_name,
            "grad_func": grad_func,
            "python_grad_func": python_grad_func,
            "out_names": out_names,
            "shape_func": shape_func,
            "attrs": _attrs(kwargs),
        }

    def __call__(self, func: Callable[..., Any]) -> Any:
        """Return the graph function for `func`.

        Raises:
          InvalidTypeError: `func` is not callable.
          InvalidArgumentError: its number of arguments is not that of the types.
        """
        if not callable(func):
            raise errors.InvalidTypeError(f"Defun requires a function, got {func!r}")
        names = _argument_names(func, len(self._types))
        if self._types or not names:
            return DefinedFunction(func, names, self._types, **self._options)
        return OverloadedFunction(func, names, **self._options)


def _attrs(options: dict[str, Any]) -> dict[str, Any]:
    attrs = {}
    for key, value in options.items():
        name = key if key.startswith("experimental_") else f"_{key.lstrip('_')}"
        attrs[name] = value
    return attrs


def _argument_names(func: Callable[..., Any], count: int) -> list[str]:
    parameters = list(inspect.signature(func).parameters.values())
    if any(p.kind is p.KEYWORD_ONLY or p.kind is p.VAR_KEYWORD for p in parameters):
        raise errors.InvalidArgumentError("graph functions do not support keyword arguments")
    if any(p.default is not p.empty for p in parameters):
        raise errors.InvalidArgumentError("graph functions do not support default arguments")
    plain = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    has_varargs = len(plain) < len(parameters)
    if count and (count < len(plain) or (count > len(plain) and not has_varargs)):
        raise errors.InvalidArgumentError(
            f"{name_of(func)} takes {len(plain)} arguments ({', '.join(plain)}), but {count} "
            "types are given"
        )
    return plain + [f"arg{i}" for i in range(len(plain), count)] if has_varargs else plain


class DefinedFunction:
    """A function with declared element types.

    It belongs to the graph in which it is first called or named.

    Attributes:
      grad_func_name: name of the function that computes its gradient, or None.
      python_grad_func: Python function that builds its gradient, or None.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        argnames: Sequence[str],
        input_types: Sequence[DType],
        func_name: str | None = None,
        grad_func: Any = None,
        python_grad_func: Any = None,
        out_names: Sequence[str] | None = None,
        shape_func: Callable[[Node], Sequence[Any]] | None = None,
        attrs: dict[str, Any] | None = None,
    ) -> None:
        self._func = func
        self._names = list(argnames)
        self._types = list(input_types)
        self._func_name = func_name
        self._grad_func = grad_func
        self.python_grad_func = python_grad_func
        self._out_names = list(out_names or ())
        self._shape_func = shape_func
        self._attrs = dict(attrs or {})
        self._built_function: Function | None = None
        self._package: Package | None = None
        self._building = False

    @property
    def name(self) -> str:
        """The name in the library; reading it builds the function."""
        return self._function().name

    @property
    def definition(self) -> Any:
        """The function as a `FunctionDef` message."""
        return self._function().definition

    @property
    def function(self) -> Function:
        """The function in the library."""
        return self._function()

    @property
    def declared_input_types(self) -> list[DType]:
        """The element types passed to the decorator."""
        return list(self._types)

    @property
    def captured_inputs(self) -> list[Output]:
        """The values from outside that the body uses."""
        return list(self._function().captured or ())

    @property
    def stateful_ops(self) -> list[tuple[str, str]]:
        """Name and type of each stateful node of the body."""
        return [(n.name, n.type) for n in self._function().nodes if n.op_def.stateful]

    @property
    def grad_func_name(self) -> str | None:
        """The name of the function that computes the gradient, or None."""
        return None if self._grad_func is None else self._grad_func.name

    def set_grad_func(self, grad_func: Any) -> None:
        """Set the function that computes the gradient.

        Raises: FailedPreconditionError: the function is built already.
        """
        if self._built_function is not None or self._grad_func is not None:
            raise errors.FailedPreconditionError(
                f"the function {name_of(self._func)} is already built or already has a gradient"
            )
        self._grad_func = grad_func

    def add_to_graph(self, g: Graph) -> None:
        """Add the function to a graph's library."""
        g.functions.add(self._function())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; returns one result, a tuple, or the node if there is no result."""
        name = kwargs.pop("name", None)
        kwargs.pop("noinline", None)
        if kwargs:
            raise errors.InvalidArgumentError(f"unknown arguments: {sorted(kwargs)}")
        if self._building:
            raise errors.InvalidArgumentError(
                f"{name_of(self._func)} calls itself while it is being built: call what "
                f"Declare({self._func_name or name_of(self._func)!r}, inputs, outputs) returns"
            )
        function = self._function()
        node, results = add_call(function, args, name)
        if self._shape_func is not None and results:
            for result, shape in zip(results, self._shape_func(node), strict=True):
                result.set_shape(shape)
        if not results:
            return node
        return results[0] if len(results) == 1 else tuple(results)

    # ------------------------------------------------------------------ building

    def _function(self) -> Function:
        if self._built_function is None:
            self._building = True
            try:
                self._built_function = self._build(get_default_graph())
            finally:
                self._building = False
        return self._built_function

    def _check_func(self, *args: Any) -> Any:
        result = self._func(*args)
        is_sequence = isinstance(result, list | tuple)
        if is_sequence and any(value is None for value in result):
            raise errors.InvalidArgumentError(
                f"{name_of(self._func)} returned None as a result; graph functions must return "
                "tensors"
            )
        return result

    def _build(self, graph: Graph) -> Function:
        library = graph.functions
        if self._func_name is not None:
            return self._build_as(self._func_name, graph)
        with library.reserve_name(name_of(self._func)) as name:
            return self._build_as(name, graph)

    def _build_as(self, name: str, graph: Graph) -> Function:
        def arguments(body: FunctionGraph) -> tuple[list[Any], dict[str, Any]]:
            pairs = zip(self._types, self._names, strict=True)
            return [
                body.add_input(dtype, None, argument_name) for dtype, argument_name in pairs
            ], {}

        own_gradient = self._grad_func is not None or self.python_grad_func is not None
        definition, _ = trace(
            self._check_func,
            arguments,
            name,
            graph,
            ordered=False,
            save=not own_gradient,
            output_names=self._out_names,
            attrs=self._attrs,
        )
        if self._out_names and len(self._out_names) != definition.results:
            raise errors.InvalidArgumentError(
                f"the function {name!r} has {definition.results} results, but out_names are "
                f"{self._out_names}"
            )
        definition.python_gradient = self.python_grad_func
        definition.description = inspect.getdoc(self._func) or ""
        if self._grad_func is not None:
            gradient = self._grad_func
            definition.gradient_name = gradient if isinstance(gradient, str) else gradient.name
        graph.functions.add(definition)
        return definition


class OverloadedFunction:
    """A function with one body per combination of argument types."""

    def __init__(self, func: Callable[..., Any], argnames: Sequence[str], **options: Any) -> None:
        self._func = func
        self._names = list(argnames)
        self._options = options
        self._built_function: dict[tuple[DType, ...], DefinedFunction] = {}

    def instantiate(self, input_types: Sequence[Any]) -> DefinedFunction:
        """Return the function for element types.

        Raises: InvalidArgumentError: there are too many or too few types, or one is a reference.
        """
        types = tuple([dtypes.as_dtype(input_type) for input_type in input_types])
        if any(dtype.is_ref for dtype in types):
            raise errors.InvalidArgumentError("graph functions do not accept references")
        if len(types) != len(self._names):
            raise errors.InvalidArgumentError(
                f"{name_of(self._func)} takes {len(self._names)} arguments "
                f"({', '.join(self._names)}), got {len(types)}"
            )
        instance = self._built_function.get(types)
        if instance is None:
            options = dict(self._options)
            if options["func_name"] is not None:
                suffix = "_".join(dtype.name for dtype in types)
                options["func_name"] = f"{options['func_name']}_{suffix}"
            if isinstance(options["grad_func"], OverloadedFunction):
                options["grad_func"] = self._gradient_for(types)
            instance = self._built_function[types] = DefinedFunction(
                self._func, self._names, types, **options
            )
        return instance

    def _gradient_for(self, types: Sequence[DType]) -> DefinedFunction:
        plain = DefinedFunction(self._func, self._names, types)
        results = plain._function().output_types
        gradient: OverloadedFunction = self._options["grad_func"]
        return gradient.instantiate([*types, *results])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function for the arguments' types, as `DefinedFunction` does."""
        values = [convert_to_tensor(value) for value in args]
        return self.instantiate([value.dtype.base_dtype for value in values])(*values, **kwargs)


def Declare(  # noqa: N802 - TensorFlow's name
    func_name: str,
    inputs: Sequence[tuple[str, Any]],
    outputs: Sequence[tuple[str, Any]],
    stateful: bool = False,
) -> Callable[..., Any]:
    """Return a caller of a function that is defined later or is being defined, for recursion.

    Args:
      func_name: name that the function will have in the library.
      inputs, outputs: (name, element type) pairs.
      stateful: True if the function has state or side effects.
    Returns: a function of tensors: one result, a tuple of several, or the node.
    Raises (by the returned function): InvalidArgumentError, InvalidTypeError: arguments do not fit.
    Source: TensorFlow's `tensorflow.python.framework.function.Declare`.

    Examples:
      >>> double = wf.Declare("Double", [("x", wf.float32)], [("y", wf.float32)])
      >>> y = double(wf.constant(2.0))
      >>> wf.Defun(wf.float32, func_name="Double")(lambda x: 2.0 * x).add_to_graph(
      ...     wf.get_default_graph()
      ... )
      >>> wf.Session().run(y)
      np.float32(4.0)
    """
    kinds = [(name, dtypes.as_dtype(kind)) for name, kind in inputs]
    results = [dtypes.as_dtype(kind) for _, kind in outputs]
    declared = Declaration(func_name, [kind for _, kind in kinds], results, stateful)

    def call(*args: Any, name: str | None = None) -> Any:
        if len(args) != len(kinds):
            raise errors.InvalidArgumentError(
                f"the function {func_name!r} takes {len(kinds)} arguments "
                f"({', '.join(argument for argument, _ in kinds)}), got {len(args)}"
            )
        values = [
            convert_to_tensor(value, kind) for value, (_, kind) in zip(args, kinds, strict=True)
        ]
        node, outputs = call_node(declared, values, name)
        if not outputs:
            return node
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return call
