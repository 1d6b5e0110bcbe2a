"""Creation of nodes: conversion of Python values, attribute inference, checks, shape rules.

`create` is the only way to add a node. Its budget is about ten microseconds, so the common case
(all inputs are outputs, one type attribute) has a fast path.
"""

from __future__ import annotations

__all__ = ["constant", "register_tensor_conversion_function"]

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import CodeType
from typing import Any, cast

import numpy as np

from weft_graph.ir import lossy_conversions, thread_stacks
from weft_graph.ir.composite import AppliesOps, DispatchedResult, HandOver
from weft_graph.ir.constants import to_array
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, lookup_op, parsed_ops
from weft_graph.ir.op_signature import REQUIRED, ArgDef, AttrDef, OpDef
from weft_graph.ir.scopes import check_scope_name
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.nesting import format_value, too_deep_error

_WEFT_PACKAGES = frozenset(
    f"weft{suffix}"
    for suffix in (
        "",
        "_tensor",
        "_graph",
        "_autodiff",
        "_exec",
        "_io",
        "_distrib",
        "_lite",
        "_contrib",
    )
)
_is_ours: dict[str, bool] = {}


def create(
    op: str,
    inputs: Sequence[Any] = (),
    attrs: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Node:
    """Add a node to the default graph, or to the graph of its inputs.

    Args:
      op: op type.
      inputs: one item per argument of the op; outputs, or values that convert to constants of the
        type that the other inputs imply; a list for a list argument.
      attrs: attributes that the inputs do not imply; defaults are filled in.
      name: name in the current name scope; the op type by default; used unchanged if it ends in
        "/".
    Raises:
      NotFoundError: the op does not exist.
      InvalidTypeError: an input has an unsupported element type.
      InvalidArgumentError: shapes or attributes are invalid, or the inputs are from several graphs.
    """
    op_def = parsed_ops.get(op) or lookup_op(op)
    code, line = user_line()
    naming = _Naming(op, name)
    try:
        attr_values = dict(attrs) if attrs else {}
        if thread_stacks.tracing_depth():
            inputs = get_default_graph().capture_inputs(op_def, inputs)
        values, all_attrs = _resolve_inputs(op_def, inputs, attr_values, naming)
        graph = values[0].graph if values else get_default_graph()
        for value in values:
            if value.node.graph is not graph:
                raise _mixed_graphs_error(values[0], value)
        _fill_attrs(op_def, all_attrs)
        types = argument_types(op_def.outputs, all_attrs)
        rule = op_def.shape_rule
        shapes = None if rule is None else rule(NodeSpec(values, all_attrs))
    except errors.OpError as error:
        raise error.with_context(
            op=op, node=requested_name(op, name), line=format_line(code, line)
        ) from error.__cause__
    except HandOver as applied:
        taker = applied.value
    else:
        full_name = naming.full or _node_name(graph, op, name)
        return graph.add_node(op_def, full_name, values, all_attrs, types, shapes, code, line)
    return _dispatch_to_input(taker, op_def, inputs, attrs, name)


def out(
    op: str,
    inputs: Sequence[Any] = (),
    attrs: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Output:
    """Create a node of an op with one output; return the output."""
    return create(op, inputs, attrs, name).outputs[0]


def _dispatch_to_input(
    value: AppliesOps,
    op_def: OpDef,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any] | None,
    name: str | None,
) -> Node:
    """Let an input that implements ops apply the op; return the result in the form of a node."""
    try:
        results = value.apply_op(op_def, inputs, dict(attrs or {}), name)
    except errors.OpError as error:
        node, line = requested_name(op_def.name, name), format_line(*user_line())
        raise error.with_context(op=op_def.name, node=node, line=line) from error.__cause__
    return cast(Node, DispatchedResult(results))


def _node_name(graph: Graph, op: str, name: str | bytes | None) -> str:
    if not name:
        return graph.unique_name(op)
    if isinstance(name, bytes):
        with suppress(UnicodeDecodeError):
            name = name.decode()
    if not isinstance(name, str):
        raise errors.InvalidTypeError(f"a name must be text, got {format_value(name)}")
    if name[-1] == "/":
        return graph.exact_name(name[:-1])
    if not (name.isidentifier() and name.isascii() and name[0] != "_"):
        check_scope_name(name, top=not graph.scopes.name_prefix)
    return graph.unique_name(name)


class _Naming:
    """The name of a node under construction.

    It is fixed early if constants are created for the node: they are named after it ("add/y"), as
    in TensorFlow, and are added to the graph of its inputs.
    """

    __slots__ = ("_name", "_op", "full")

    def __init__(self, op: str, name: str | None) -> None:
        self._op = op
        self._name = name
        self.full: str | None = None

    def enter(self, inputs: Iterable[Any]) -> Callable[[], None]:
        """Enter the context for constants of `inputs`; return the exit function."""
        graph = next((v.graph for v in inputs if isinstance(v, Output)), get_default_graph())
        if self.full is None:
            self.full = _node_name(graph, self._op, self._name)
        scopes = graph.scopes
        saved_prefix = scopes.name_prefix
        scopes.name_prefix = self.full + "/"
        thread_stacks.push_graph(graph)

        def leave() -> None:
            thread_stacks.pop_graph(graph)
            scopes.name_prefix = saved_prefix

        return leave


def requested_name(op: str, name: str | None) -> str:
    """Return the requested name of a new node, before it is made unique."""
    return (get_default_graph().scopes.name_prefix + (name or op)).rstrip("/")


def _mixed_graphs_error(a: Output, b: Output) -> errors.InvalidArgumentError:
    for value in (a, b):
        function = getattr(value.graph, "name", None)
        if function is not None:
            return errors.InvalidArgumentError(
                f"{value!r} is inside the function {function!r} and has no value outside its "
                "calls: return it, or create it outside; initial values may be functions"
            )
    return errors.InvalidArgumentError(
        f"the inputs of a node must be in the same graph: {a!r} and {b!r} are not"
    )


# ------------------------------------------------------------------------ the user's line


_one_line: dict[int, tuple[CodeType | None, int]] = {}
"""The source line of all nodes that a thread creates inside `cache_user_line`."""


@contextmanager
def cache_user_line() -> Iterator[None]:
    """Look up the user's line once and use it for all nodes created inside."""
    thread = threading.get_ident()
    outer_line = _one_line.get(thread)
    _one_line[thread] = outer_line or user_line()
    try:
        yield
    finally:
        if outer_line is None:
            del _one_line[thread]


def user_line() -> tuple[CodeType | None, int]:
    """Return the first frame outside weft, as (code object, line number)."""
    if _one_line and (noted := _one_line.get(threading.get_ident())) is not None:
        return noted
    frame = sys._getframe(2)
    while True:
        file = frame.f_code.co_filename
        is_internal = _is_ours.get(file)
        if is_internal is None:
            package = frame.f_globals.get("__name__", "").partition(".")[0]
            is_internal = (
                package in _WEFT_PACKAGES or file.startswith("<frozen") or "contextlib" in file
            )
            _is_ours[file] = is_internal
        if not is_internal:
            return frame.f_code, frame.f_lineno
        if frame.f_back is None:
            return None, 0
        frame = frame.f_back


def format_line(code: CodeType | None, line: int) -> str | None:
    """Format a location found by `user_line` for messages."""
    return None if code is None else f"{code.co_filename}:{line} in {code.co_qualname}"


# ---------------------------------------------------------------------------- inputs


def _resolve_inputs(
    op_def: OpDef, inputs: Sequence[Any], attrs: dict[str, Any], naming: _Naming
) -> tuple[tuple[Output, ...], dict[str, Any]]:
    args = op_def.inputs
    if len(inputs) != len(args):
        names = ", ".join(arg.name for arg in args)
        raise errors.InvalidArgumentError(
            f"{op_def.name} takes {len(args)} inputs ({names}), got {len(inputs)}"
        )
    for key in attrs:
        if key not in op_def.attrs:
            if not key.startswith("_"):
                raise errors.InvalidArgumentError(
                    f"{op_def.name} has no attribute {key!r}; it has {sorted(op_def.attrs)}"
                )
        elif attrs[key] is None and op_def.attrs[key].type != "shape":
            raise errors.InvalidArgumentError(f"attribute {key} of {op_def.name} must not be None")
    for key, value in attrs.items():
        attr = op_def.attrs.get(key)
        if attr is not None:
            attrs[key] = attr.check(value)
    if not op_def.simple:
        return _resolve_lists(op_def, inputs, attrs, naming)
    values = list(inputs)
    pending: list[int] | None = None
    for i, arg in enumerate(args):
        value = values[i]
        if type(value) is not Output:
            converted = output_of(value)
            if converted is None:
                pending = [i] if pending is None else [*pending, i]
                continue
            values[i] = value = converted
        _check_type(op_def, arg, value, attrs)
    if pending is not None:
        _raise_if_dispatched([values[i] for i in pending])
        leave = naming.enter(values)
        try:
            for i in pending:
                values[i] = _convert_for(op_def, args[i], values[i], attrs)
        finally:
            leave()
    return tuple(values), attrs


def _raise_if_dispatched(values: Sequence[Any]) -> None:
    """Raise HandOver if one of the values implements ops itself."""
    for value in values:
        if isinstance(value, AppliesOps):
            raise HandOver(value)


def _check_type(op_def: OpDef, arg: ArgDef, value: Output, attrs: dict[str, Any]) -> None:
    base_dtype = value.dtype
    if base_dtype.is_ref:
        base_dtype = base_dtype.base_dtype
    elif arg.is_ref:
        raise errors.InvalidTypeError(
            f"{op_def.name} requires {arg.name} to be a reference to a variable, got {value!r}"
        )
    attr = arg.type_attr
    if attr is None:
        if arg.list_attr is None and base_dtype is not arg.dtype:
            assert arg.dtype is not None
            raise errors.InvalidTypeError(
                f"{op_def.name} requires {arg.name} to be {arg.dtype.name}, got {value!r}"
            )
        return
    expected = attrs.get(attr)
    if expected is None:
        allowed = op_def.attrs[attr].allowed
        if allowed is not None and base_dtype not in allowed:
            names = ", ".join(sorted(d.name for d in allowed))
            raise errors.InvalidTypeError(
                f"{op_def.name} requires {arg.name} to be one of {{{names}}}, got {value!r}"
            )
        attrs[attr] = base_dtype
    elif expected is not base_dtype:
        raise errors.InvalidTypeError(
            f"{op_def.name}: {arg.name} must be {expected.name}, like the other operands of type "
            f"{attr}, got {value!r}; convert one of them with cast"
        )


def _convert_for(op_def: OpDef, arg: ArgDef, value: Any, attrs: dict[str, Any]) -> Output:
    if arg.is_ref:
        raise errors.InvalidTypeError(
            f"{op_def.name} requires {arg.name} to be a reference to a variable, got {value!r}"
        )
    element_type = arg.dtype or attrs.get(arg.type_attr or "")
    preferred = None
    if element_type is None and arg.type_attr is not None:
        preferred = _preferred_type(op_def.attrs[arg.type_attr], value)
    try:
        converted = convert_to_tensor(value, element_type, arg.name, preferred_dtype=preferred)
    except errors.OpError as error:
        raise type(error)(f"{op_def.name}, input {arg.name}: {error.message}") from error
    _check_type(op_def, arg, converted, attrs)
    return converted


def _preferred_type(attr: AttrDef, value: Any) -> DType | None:
    """Return the type of a value if the attribute allows it, else the attribute's default."""
    default: DType | None = None if attr.default is REQUIRED else attr.default
    if default is None or attr.allowed is None or (type(value) is int and default is dtypes.int32):
        return default
    if _holds_outputs(value) or isinstance(value, AppliesOps):
        return default
    try:
        value_type = dtypes.from_numpy(value.dtype if _is_numpy(value) else to_array(value).dtype)
    except errors.OpError:
        return default  # a registered conversion may take it; else the conversion says what is odd
    return value_type if value_type in attr.allowed else default


def _is_numpy(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def _resolve_lists(
    op_def: OpDef, inputs: Sequence[Any], attrs: dict[str, Any], naming: _Naming
) -> tuple[tuple[Output, ...], dict[str, Any]]:
    groups: list[list[Any]] = []
    for arg, item in zip(op_def.inputs, inputs, strict=True):
        if arg.is_list and not isinstance(item, list | tuple):
            raise errors.InvalidTypeError(
                f"{op_def.name} requires {arg.name} to be a list of tensors, got {item!r}"
            )
        members = list(item) if arg.is_list else [item]
        outputs = [output_of(m, arg.is_ref) for m in members]
        groups.append([m if f is None else f for m, f in zip(members, outputs, strict=True)])
        if arg.number_attr is not None:
            _know_number(op_def, arg, len(members), attrs)
    for arg, members in zip(op_def.inputs, groups, strict=True):
        for member in members:
            if isinstance(member, Output):
                _check_type(op_def, arg, member, attrs)
    flat = [member for members in groups for member in members]
    plain = all([type(member) is Output for member in flat])
    if not plain:
        _raise_if_dispatched(flat)
    leave = None if plain else naming.enter(flat)
    try:
        for arg, members in zip(op_def.inputs, groups, strict=True):
            _convert_members(op_def, arg, members, attrs)
    finally:
        if leave is not None:
            leave()
    return tuple([member for members in groups for member in members]), attrs


def _convert_members(op_def: OpDef, arg: ArgDef, members: list[Any], attrs: dict[str, Any]) -> None:
    list_types = attrs.get(arg.list_attr) if arg.list_attr else None
    for i, member in enumerate(members):
        if not isinstance(member, Output):
            if list_types is not None and i < len(list_types):
                members[i] = convert_to_tensor(member, list_types[i], arg.name)
            else:
                members[i] = _convert_for(op_def, arg, member, attrs)
    if arg.list_attr is not None:
        _know_list(op_def, arg, members, attrs)


def _know_number(op_def: OpDef, arg: ArgDef, count: int, attrs: dict[str, Any]) -> None:
    assert arg.number_attr is not None
    attr = attrs.setdefault(arg.number_attr, count)
    if attr != count:
        raise errors.InvalidArgumentError(
            f"{op_def.name} requires {attr} tensors for {arg.name}, got {count}"
        )
    op_def.attrs[arg.number_attr].check(count)


def _know_list(op_def: OpDef, arg: ArgDef, members: list[Output], attrs: dict[str, Any]) -> None:
    assert arg.list_attr is not None
    types = tuple([member.dtype.base_dtype for member in members])
    attr = attrs.setdefault(arg.list_attr, types)
    if tuple(attr) != types:
        raise errors.InvalidTypeError(
            f"{op_def.name} requires {arg.name} to be {[t.name for t in attr]}, "
            f"got {[t.name for t in types]}"
        )
    op_def.attrs[arg.list_attr].check(types)


def _fill_attrs(op_def: OpDef, values: dict[str, Any]) -> None:
    attrs = op_def.attrs
    if values.keys() >= attrs.keys():
        return
    for key, attr in attrs.items():
        if key not in values:
            if attr.default is REQUIRED:
                raise errors.InvalidArgumentError(
                    f"{op_def.name} requires the attribute {key} ({attr.type})"
                )
            values[key] = attr.default


def argument_types(args: Iterable[ArgDef], attrs: Mapping[str, Any]) -> list[DType]:
    """Return the element types of a node's inputs or outputs by its attributes."""
    types: list[DType] = []
    for arg in args:
        if arg.list_attr is not None:
            types.extend(attrs[arg.list_attr])
            continue
        dtype: DType = arg.dtype or attrs[arg.type_attr or ""]
        if arg.is_ref:
            dtype = dtype.as_ref
        if arg.number_attr is not None:
            types.extend([dtype] * attrs[arg.number_attr])
        else:
            types.append(dtype)
    return types


# ------------------------------------------------------------------------ conversion

Converter = Callable[..., Any]
_converters: list[tuple[int, Any, Converter]] = []


def register_tensor_conversion_function(
    base_type: Any, conversion_func: Converter, priority: int = 100
) -> None:
    """Convert instances of `base_type` with `conversion_func(value, dtype, name, as_ref)`.

    Args:
      base_type: a class or tuple of classes.
      conversion_func: returns an Output, or NotImplemented to try the next function.
      priority: functions with lower priorities are tried first.
    Raises: InvalidTypeError: `base_type` is not a class, or `conversion_func` is not callable.

    Examples:
      >>> class Money:
      ...     cents = 250
      >>> def convert(value, dtype=None, name=None, as_ref=False):
      ...     return wf.constant(value.cents / 100, dtype, name=name)
      >>> wf.register_tensor_conversion_function(Money, convert)
      >>> wf.Session().run(wf.convert_to_tensor(Money()) + 1.0)
      np.float32(3.5)
    """
    types = base_type if isinstance(base_type, tuple) else (base_type,)
    if not all(isinstance(cls, type) for cls in types):
        raise errors.InvalidTypeError(
            f"base_type must be a type or a tuple of types, got {base_type!r}"
        )
    if not callable(conversion_func):
        raise errors.InvalidTypeError(f"conversion_func must be callable, got {conversion_func!r}")
    _converters.append((priority, base_type, conversion_func))
    _converters.sort(key=lambda entry: entry[0])


def output_of(value: Any, as_ref: bool = False) -> Output | None:
    """Return the output that a graph object represents; None for plain Python and NumPy values."""
    if isinstance(value, Output):
        return value
    convert = getattr(value, "_as_output", None)
    if convert is not None:
        result: Output = convert(as_ref)
        return result
    return None


def convert_to_tensor(
    value: Any,
    dtype: Any = None,
    name: str | None = None,
    preferred_dtype: Any = None,
    dtype_hint: Any = None,
) -> Output:
    """Convert `value` to an output: itself, a constant, a stack of outputs, or via a converter.

    Values that implement ops themselves are returned unchanged, so that functions which convert
    their arguments pass them to the op. `ops.conversion.convert_to_tensor`, the public function,
    rejects them; its Args and Raises apply.
    """
    element_type = None if dtype is None else dtypes.as_dtype(dtype).base_dtype
    output = output_of(value)
    if output is not None:
        if thread_stacks.tracing_depth():
            output = get_default_graph().capture(output)
        if element_type is not None and output.dtype.base_dtype is not element_type:
            raise errors.InvalidTypeError(f"requires {element_type.name}, got {output!r}")
        return output
    if isinstance(value, AppliesOps):
        return cast(Output, value.as_operand(element_type))
    for _, base_type, convert in _converters:
        if isinstance(value, base_type):
            result = convert(value, dtype=element_type, name=name, as_ref=False)
            if result is not NotImplemented:
                return result  # type: ignore[no-any-return]
    if isinstance(value, list | tuple) and _holds_outputs(value):
        return _stack_list(value, element_type, name)
    preferred = preferred_dtype if dtype_hint is None else dtype_hint
    if preferred is not None and element_type is None:
        try:
            return constant(value, preferred, name=name or "Const")
        except errors.InvalidTypeError:
            pass
    return constant(value, element_type, name=name or "Const")


def _holds_outputs(value: Any) -> bool:
    if isinstance(value, list | tuple):
        try:
            return any(_holds_outputs(item) for item in value)
        except RecursionError:
            raise too_deep_error(value) from None
    return isinstance(value, Output) or hasattr(value, "_as_output")


def _stack_list(values: Sequence[Any], dtype: DType | None, name: str | None) -> Output:
    cast = dtype is not None
    try:
        if dtype is None:
            for item in values:
                output = _stack_list(item, None, name) if _is_nested(item) else output_of(item)
                if output is not None:
                    dtype = output.dtype.base_dtype
                    break
        return out("Pack", [[_member(v, dtype, cast) for v in values]], {"axis": 0}, name)
    except RecursionError:
        raise too_deep_error(values) from None


def _member(value: Any, dtype: DType | None, cast: bool) -> Output:
    """Return an element of a stacked list, cast if the program specifies a type."""
    output = output_of(value) if cast else None
    if output is None or dtype is None or output.dtype.base_dtype is dtype:
        return convert_to_tensor(value, dtype)
    return out("Cast", [output], {"DstT": dtype})


def _is_nested(item: Any) -> bool:
    return isinstance(item, list | tuple) and _holds_outputs(item)


def constant(
    value: Any,
    dtype: Any = None,
    shape: Any = None,
    name: str = "Const",
    verify_shape: bool = False,
) -> Output:
    """Return a constant.

    Args:
      value: number, string, nested list or array.
      dtype: by default float32, int32, bool, string or complex128 for Python values, or that of an
        array. Arrays of another numeric type are converted, and losses are logged; Python numbers
        of another kind are errors.
      shape: shape of the result; the last value is repeated to fill it.
      verify_shape: require `value` to have `shape` already.
    Returns: a constant of the shape of `value`, or of `shape`.
    Raises:
      InvalidTypeError: the value cannot be converted to `dtype`.
      InvalidArgumentError: the value does not fit `shape`.

    Examples:
      >>> wf.constant([[1, 2], [3, 4]])
      <weft.Tensor 'Const:0' shape=[2,2] dtype=int32>
      >>> wf.Session().run(wf.constant(7.0, shape=[2, 2]))
      array([[7., 7.],
             [7., 7.]], dtype=float32)
    """
    element_type = None if dtype is None else dtypes.as_dtype(dtype).base_dtype

    def report_loss(change: str) -> None:
        if element_type is not None:
            lossy_conversions.say("a constant", element_type, change, format_line(*user_line()))

    array = to_array(value, element_type, shape, verify_shape, report_loss)
    return constant_of(array, element_type, name)


def constant_of(array: np.ndarray, dtype: DType | None = None, name: str = "Const") -> Output:
    """Return a constant that takes ownership of `array`, which must not be modified afterwards."""
    array.flags.writeable = False
    element = dtype or dtypes.from_numpy(array.dtype)
    code, line = user_line()
    graph = get_default_graph()
    attrs = {"value": array, "dtype": element}
    op_def = parsed_ops.get("Const") or lookup_op("Const")
    full = _node_name(graph, "Const", name)
    return graph.add_node(op_def, full, (), attrs, (element,), (array.shape,), code, line).outputs[
        0
    ]
