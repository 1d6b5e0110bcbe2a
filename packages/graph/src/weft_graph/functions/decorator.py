"""`function`: a decorator that builds a Python function as a function of the graph."""

from __future__ import annotations

__all__ = ["function"]

import functools
import inspect
import logging
import re
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.functions.body import FunctionGraph
from weft_graph.functions.call import add_call, can_be_called_in
from weft_graph.functions.function import Function
from weft_graph.functions.trace import ArgumentSpec, Package, parts_of, placeholders, trace
from weft_graph.functions.type_spec import TensorSpec
from weft_graph.ir import builder, nest, thread_stacks
from weft_graph.ir.composite import CompositeTensor
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ir.tf2_switches import functions_run_eagerly
from weft_graph.variables.base import Variable
from weft_tensor import errors
from weft_tensor.shape import compatible_dims

_log = logging.getLogger("weft")


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Sequence[Any] | None = None,
    autograph: bool = True,
    experimental_autograph_options: Any = None,
    experimental_relax_shapes: bool = False,
    name: str | None = None,
    *,
    experimental_implements: str | None = None,
    experimental_compile: bool | None = None,
) -> Any:
    """Turn a Python function into a graph function: a subgraph that is built once and called.

    The Python function runs once for each combination of element types, shapes and Python values
    of its arguments. Each call adds one node, which a session may inline. Outer values that the
    body uses are passed as additional inputs; variables that it creates are created outside, once.
    Side effects run in program order and finish before any result is available.

    Args:
      func: function from tensors to tensors, in any structure; other arguments count as constants.
      input_signature: `TensorSpec`s, one per tensor; the function is then built once for all calls,
        which must fit.
      autograph: accepted and ignored; write branches on tensors with `cond`.
      experimental_autograph_options, experimental_compile: accepted and ignored.
      experimental_relax_shapes: from the second call on, treat sizes that differ between calls as
        unknown.
      name: name in the library; defaults to that of the Python function. A suffix makes it unique.
      experimental_implements: stored as an attribute of the function.
    Returns: a function that is called like `func`; a decorator, without `func`.
    Raises:
      InvalidTypeError: `func` is not callable, or the signature has no `TensorSpec`.
    Source: paper, section 10; tf.function.

    Examples:
      >>> @wf.function
      ... def scaled(x, factor):
      ...     return factor * x
      >>> wf.Session().run(scaled(wf.constant([1.0, 2.0]), 3.0))
      array([3., 6.], dtype=float32)
    """
    del autograph, experimental_autograph_options, experimental_compile
    attrs = {} if experimental_implements is None else {"_implements": experimental_implements}

    def decorate(inner: Callable[..., Any]) -> PythonFunction:
        return PythonFunction(inner, name, input_signature, experimental_relax_shapes, attrs)

    return decorate if func is None else decorate(func)


class _Trace:
    """One body and the argument structure it was built for.

    Attributes:
      function: the body.
      package: converts results to the structure of the Python function's results.
      specs: the leaves of the arguments.
    """

    __slots__ = ("function", "leaves", "package")

    def __init__(self, function: Function, package: Package, leaves: Sequence[Any]) -> None:
        self.function = function
        self.package = package
        self.leaves = leaves


class PythonFunction:
    """A Python function decorated by `function`, with its traces.

    Attributes:
      python_function: the decorated function.
    """

    def __init__(
        self,
        python_function: Callable[..., Any],
        name: str | None,
        input_signature: Sequence[Any] | None,
        relax_shapes: bool,
        attrs: dict[str, Any],
    ) -> None:
        if not callable(python_function):
            raise errors.InvalidTypeError(f"a function is required, got {python_function!r}")
        self.python_function = python_function
        self._name = name or name_of(python_function)
        self._attrs = attrs
        self._relax = relax_shapes
        self._signature = None if input_signature is None else _check_signature(input_signature)
        self._parameters = inspect.signature(python_function)
        self._makers: weakref.WeakSet[Graph] = weakref.WeakSet()
        self._bound: weakref.WeakKeyDictionary[Any, PythonFunction] = weakref.WeakKeyDictionary()
        self._building: list[tuple[Graph, Hashable]] = []
        self._lock = threading.RLock()
        functools.update_wrapper(self, python_function)

    @property
    def input_signature(self) -> Any:
        """The `TensorSpec`s passed to the decorator, or None."""
        return self._signature

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Return the function bound to an object, for methods."""
        if instance is None:
            return self
        bound = self._bound.get(instance)
        if bound is None:
            reference = weakref.ref(instance)
            plain = self.python_function

            def method(*args: Any, **kwargs: Any) -> Any:
                return plain(reference(), *args, **kwargs)

            method.__signature__ = _drop_first_parameter(self._parameters)  # type: ignore[attr-defined]
            bound = PythonFunction(method, self._name, self._signature, self._relax, self._attrs)
            self._bound[instance] = bound
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it in the graph of its arguments, or in the default graph."""
        if functions_run_eagerly():
            return self.python_function(*args, **kwargs)
        structure, leaves, names = self._arguments(args, kwargs)
        graph = _graph_of(leaves)
        with graph.as_default():
            leaves = [_to_argument(leaf) for leaf in leaves]
            trace = self._trace_for(graph, structure, leaves, names)
            values = [part for leaf in leaves if _is_tensor(leaf) for part in _parts(leaf)]
            node, results = add_call(trace.function, values)
            return trace.package(results, node)

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Function:
        """Return the function for arguments, which may be `TensorSpec`s instead of tensors.

        It is in the library of the arguments' graph, or of the default graph.
        """
        structure, leaves, names = self._arguments(args, kwargs)
        graph = _graph_of(leaves)
        with graph.as_default():
            leaves = [leaf if _is_spec(leaf) else _to_argument(leaf) for leaf in leaves]
            trace = self._trace_for(graph, structure, leaves, names)
            graph.functions.add(trace.function)
            return trace.function

    # ------------------------------------------------------------------ arguments

    def _arguments(self, args: Any, kwargs: Any) -> tuple[Any, list[Any], list[str]]:
        """Return the structure of the arguments, their leaves, and a name for each."""
        try:
            bound = self._parameters.bind(*args, **kwargs)
        except TypeError as cause:
            if not args and not kwargs and self._signature is not None:
                bound = self._parameters.bind(*self._signature)
            else:
                raise errors.InvalidTypeError(f"{self._name}: {cause}") from None
        bound.apply_defaults()
        if self._signature is not None:
            self._fit_signature(bound)
        structure = (list(bound.args), dict(bound.kwargs))
        leaves, names = [], []
        for path, leaf in nest.flatten_with_tuple_paths(structure):
            leaves.append(leaf)
            names.append(self._leaf_name(path, leaf))
        return structure, leaves, names

    def _leaf_name(self, path: Any, leaf: Any) -> str:
        spec = leaf.spec if isinstance(leaf, _ConvertedArgument) else leaf
        if isinstance(spec, TensorSpec) and spec.name:
            return spec.name
        kind, first, *key_path = path
        parameters = list(self._parameters.parameters)
        name = str(first)
        if kind == 0:
            name = parameters[min(first, len(parameters) - 1)]
        text = "_".join([name, *map(str, key_path)])
        return re.sub(r"[^A-Za-z0-9_]", "_", text).lstrip("_") or "arg"

    def _fit_signature(self, bound: inspect.BoundArguments) -> None:
        assert self._signature is not None
        arguments = list(bound.args)
        if bound.kwargs or len(arguments) < len(self._signature):
            raise errors.InvalidArgumentError(
                f"{self._name} has an input_signature of {len(self._signature)} arguments, got "
                f"{len(arguments)}"
            )
        fitted = [
            self._fit_argument(expected, argument)
            for expected, argument in zip(
                self._signature, arguments[: len(self._signature)], strict=True
            )
        ]
        for name, value in zip(self._parameters.parameters, fitted, strict=False):
            if self._parameters.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(
                    fitted[list(self._parameters.parameters).index(name) :]
                )
                break
            bound.arguments[name] = value

    def _fit_argument(self, signature: Any, value: Any) -> Any:
        """Return an argument in the signature's structure, with its leaves converted to tensors."""
        try:
            leaves = nest.flatten_up_to(signature, value, check_types=False)
        except (ValueError, TypeError) as cause:
            raise errors.InvalidArgumentError(
                f"{self._name}: the structure of an argument differs from input_signature: {cause}"
            ) from cause
        specs = nest.flatten(signature)
        fitted = [
            leaf if isinstance(leaf, TensorSpec) else _ConvertedArgument(spec, leaf, self._name)
            for spec, leaf in zip(specs, leaves, strict=True)
        ]
        return nest.pack_sequence_as(signature, fitted)

    # ------------------------------------------------------------------ traces

    def _trace_for(
        self, graph: Graph, structure: Any, leaves: Sequence[Any], names: Sequence[str]
    ) -> _Trace:
        specs = [_spec_of(leaf) for leaf in leaves]
        key = (_skeleton(structure), tuple(map(_key_of, specs)))
        outermost = graph.outermost if isinstance(graph, FunctionGraph) else graph
        with self._lock:
            traces: dict[Hashable, _Trace] = outermost.functions.traces.setdefault(self, {})
            cached = traces.get(key)
            if cached is not None and can_be_called_in(cached.function, graph):
                return cached
            if self._relax and cached is None:
                specs = list(self._relax_specs(traces, key, specs))
                wide = (key[0], tuple(map(_key_of, specs)))
                cached = traces.get(wide)
                if cached is not None and can_be_called_in(cached.function, graph):
                    return cached
                key = wide
            built = self._build(graph, outermost, key, structure, specs, names)
            traces[key] = built
            return built

    def _relax_specs(
        self, traces: dict[Hashable, _Trace], key: Any, specs: Sequence[Any]
    ) -> Sequence[Any]:
        """Return specs that also match an earlier call that differs only in shapes."""
        for trace_key, entry in traces.items():
            if trace_key[0] == key[0]:  # type: ignore[index]
                wide = _common_specs(specs, entry.leaves)
                if wide is not None:
                    return wide
        return specs

    def _build(
        self,
        graph: Graph,
        home: Graph,
        key: Hashable,
        structure: Any,
        specs: Sequence[Any],
        names: Sequence[str],
    ) -> _Trace:
        if (home, key) in self._building:
            raise errors.InvalidArgumentError(
                f"{self._name} calls itself with arguments of the same types while it is being "
                f"built: declare it first, {self._name}_ = Declare({self._name!r}, inputs, "
                "outputs), "
                "and call what that returns"
            )

        def arguments(body: FunctionGraph) -> tuple[list[Any], dict[str, Any]]:
            packed = nest.pack_sequence_as(structure, placeholders(body, specs, names))
            return packed[0], packed[1]

        self._building.append((home, key))
        try:
            with graph.functions.reserve_name(self._name) as name:
                new_function, package = trace(
                    self.python_function, arguments, name, graph, attrs=self._attrs
                )
        finally:
            self._building.pop()
        if new_function.graph.variables_made:
            if home in self._makers:
                raise errors.InvalidArgumentError(
                    f"{self._name} created variables in its first call and again for other "
                    "arguments; create them once, or use get_variable with reuse"
                )
            self._makers.add(home)
        new_function.package = package
        return _Trace(new_function, package, specs)


class _ConvertedArgument:
    """An argument to convert to the type that a signature declares."""

    __slots__ = ("owner", "spec", "value")

    def __init__(self, spec: TensorSpec, value: Any, owner: str) -> None:
        self.spec = spec
        self.value = value
        self.owner = owner

    def tensor(self) -> Output:
        """Return the argument as a tensor.

        Raises: InvalidArgumentError, InvalidTypeError: it does not fit.
        """
        tensor_value = builder.convert_to_tensor(self.value, self.spec.dtype)
        if not compatible_dims(tensor_value.dims, self.spec._dims):
            raise errors.InvalidArgumentError(
                f"{self.owner} requires {self.spec!r} by its input_signature, got {tensor_value!r}"
            )
        return tensor_value


class _SignatureTensor:
    """A tensor argument, and the spec for which the body is built."""

    __slots__ = ("spec", "tensor")

    def __init__(self, tensor: Output, spec: TensorSpec) -> None:
        self.tensor = tensor
        self.spec = spec


_COMPOSITES = (CompositeTensor, TensorArray)


def _to_argument(leaf: Any) -> Any:
    """Return a leaf, converted to a tensor if it is tensor-like."""
    if isinstance(leaf, _ConvertedArgument):
        return _SignatureTensor(leaf.tensor(), leaf.spec)
    if isinstance(leaf, Output):
        return builder.convert_to_tensor(leaf)
    if isinstance(leaf, np.ndarray):
        return builder.convert_to_tensor(leaf)
    return leaf


def _is_spec(leaf: Any) -> bool:
    return isinstance(leaf, TensorSpec)


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, (Output, _SignatureTensor, *_COMPOSITES))


def _parts(leaf: Any) -> list[Output]:
    return [leaf.tensor] if isinstance(leaf, _SignatureTensor) else parts_of(leaf)


def _spec_of(leaf: Any) -> Any:
    """Return an ArgumentSpec for a tensor-like value, and any other value unchanged."""
    if isinstance(leaf, _SignatureTensor):
        leaf = leaf.spec
    if isinstance(leaf, _ConvertedArgument):
        leaf = leaf.spec
    if isinstance(leaf, TensorSpec):
        return ArgumentSpec([(leaf.dtype.base_dtype, leaf._dims)])
    return ArgumentSpec.of(leaf) if _is_tensor(leaf) else leaf


def _key_of(leaf: Any) -> Hashable:
    if isinstance(leaf, ArgumentSpec):
        return ("tensor", leaf.key)
    if isinstance(leaf, Variable):
        return ("variable", id(leaf))
    try:
        hash(leaf)
    except TypeError:
        raise errors.InvalidTypeError(
            f"an argument that is not a tensor must be hashable, got {leaf!r}"
        ) from None
    return (type(leaf), leaf)


def _skeleton(structure: Any) -> Hashable:
    """Return the structure without its leaves: types of containers, and keys."""
    if not nest.is_nested(structure):
        return None
    if isinstance(structure, dict):
        items = sorted(structure.items())
        return (type(structure), tuple([(key, _skeleton(value)) for key, value in items]))
    return (type(structure), tuple(map(_skeleton, structure)))


def _common_specs(specs: Sequence[Any], other_specs: Sequence[Any]) -> list[Any] | None:
    """Return specs compatible with both, if they differ only in sizes."""
    common: list[Any] = []
    for a, b in zip(specs, other_specs, strict=True):
        if not isinstance(a, ArgumentSpec) or not isinstance(b, ArgumentSpec):
            if (
                isinstance(a, ArgumentSpec)
                or isinstance(b, ArgumentSpec)
                or _key_of(a) != _key_of(b)
            ):
                return None
            common.append(a)
            continue
        parts = []
        for (kind, dims), (other_kind, other_dims) in zip(a.parts, b.parts, strict=True):
            if (
                kind is not other_kind
                or dims is None
                or other_dims is None
                or len(dims) != len(other_dims)
            ):
                return None
            parts.append(
                (
                    kind,
                    tuple([m if m == n else None for m, n in zip(dims, other_dims, strict=True)]),
                )
            )
        common.append(ArgumentSpec(parts, a.leaf))
    return common


def _graph_of(leaves: Sequence[Any]) -> Graph:
    if not thread_stacks.tracing_depth():
        for leaf in leaves:
            inner = leaf.value if isinstance(leaf, _ConvertedArgument) else leaf
            if isinstance(inner, (Output, CompositeTensor)):
                return inner.graph
    return get_default_graph()


def _check_signature(signature: Sequence[Any]) -> list[Any]:
    if not isinstance(signature, list | tuple):
        raise errors.InvalidTypeError(
            f"input_signature must be a list or a tuple, got {signature!r}"
        )
    for leaf in nest.flatten(list(signature)):
        if not isinstance(leaf, TensorSpec):
            raise errors.InvalidTypeError(f"input_signature must hold TensorSpecs, got {leaf!r}")
    return list(signature)


def name_of(python_function: Callable[..., Any]) -> str:
    """Return the name of a Python function, restricted to letters allowed in node names."""
    name = getattr(python_function, "__name__", type(python_function).__name__)
    return re.sub(r"[^A-Za-z0-9_]", "_", name).strip("_") or "lambda"


def _drop_first_parameter(signature: inspect.Signature) -> inspect.Signature:
    return signature.replace(parameters=list(signature.parameters.values())[1:])
