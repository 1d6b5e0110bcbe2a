"""Assertions about values, ranks, shapes and types, checked statically if possible."""

from __future__ import annotations

__all__ = [
    "assert_equal",
    "assert_greater",
    "assert_greater_equal",
    "assert_integer",
    "assert_less",
    "assert_less_equal",
    "assert_near",
    "assert_negative",
    "assert_non_negative",
    "assert_non_positive",
    "assert_none_equal",
    "assert_positive",
    "assert_proper_iterable",
    "assert_rank",
    "assert_rank_at_least",
    "assert_rank_in",
    "assert_same_float_dtype",
    "assert_scalar",
    "assert_type",
    "is_non_decreasing",
    "is_numeric_tensor",
    "is_strictly_increasing",
]

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, out
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Node, Output
from weft_graph.ops import control, shapes as shape_ops
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer
from weft_tensor.dtypes import DType
from weft_tensor.shape import format_dims

# --------------------------------------------------------------------------------- values


def _make_assert(
    condition: Output,
    statement: str,
    operands: Sequence[Output],
    data: Sequence[Any] | None,
    summarize: int | None,
    message: str | None,
) -> Node:
    """Return a node that checks a condition for all elements, or a no-op if it is statically true.

    Raises: InvalidArgumentError: the condition is statically false.
    """
    static = constant_value(condition)
    prefix = f"{message}. " if message else ""
    if static is not None:
        if static.all():
            return control.no_op()
        values = "; ".join(f"{value.name} = {constant_value(value)!r}" for value in operands)
        raise errors.InvalidArgumentError(f"{prefix}{statement} did not hold: {values}")
    all_hold = condition
    if condition.dims != ():
        rank = out("Range", [0, shape_ops.rank(condition), 1])
        all_hold = out("All", [condition, rank])
    if data is None:
        data = [f"{prefix}{statement} did not hold element-wise:"]
        for value in operands:
            data += [f"{value.name} = ", value]
    return control.Assert(all_hold, data, summarize)


def _relation(
    name: str, ops: Sequence[str], sign: str, holds: tuple[int, int]
) -> Callable[..., Node]:
    """Return an assertion function for a relation between two tensors.

    Args:
      name: name of the assertion.
      ops: the comparison op, and further ops that convert its result to the condition.
      sign: the Python operator of the relation.
      holds: two numbers that satisfy the relation, for the example.
    """

    def check(
        x: Any,
        y: Any,
        data: Sequence[Any] | None = None,
        summarize: int | None = None,
        message: str | None = None,
        name: str | None = None,
    ) -> Node:
        with get_default_graph().name_scope(name or default):
            a, b = _convert_pair(x, y)
            condition = out(ops[0], [a, b])
            for op in ops[1:]:
                condition = out(op, [condition])
            statement = f"x {sign} y for x = {a.name}, y = {b.name}"
            return _make_assert(condition, statement, [a, b], data, summarize, message)

    default = name
    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"""A node that fails unless x {sign} y for all elements, which broadcast.

    Args:
      x, y: tensors of one type.
      data: what the message shows, by default both.
      summarize: how many elements of each.
      message: what the message starts with.
    Raises: InvalidArgumentError: at construction where both are constant, else at run time.

    Examples:
      >>> x = wf.placeholder(wf.int32, [2])
      >>> with wf.control_dependencies([wf.{name}(x, {holds[1]})]):
      ...     checked = wf.identity(x)
      >>> wf.Session().run(checked, {{x: [{holds[0]}, {holds[0]}]}})
      array([{holds[0]}, {holds[0]}], dtype=int32)
    """
    return check


def _convert_pair(x: Any, y: Any) -> tuple[Output, Output]:
    if isinstance(x, Output) or hasattr(x, "_as_output") or not isinstance(y, Output):
        a = convert_to_tensor(x)
        return a, convert_to_tensor(y, a.dtype.base_dtype)
    b = convert_to_tensor(y)
    return convert_to_tensor(x, b.dtype.base_dtype), b


assert_equal = _relation("assert_equal", ["Equal"], "==", (2, 2))
"""Fail unless x == y for all elements; takes (x, y, data, summarize, message, name)."""
assert_none_equal = _relation("assert_none_equal", ["NotEqual"], "!=", (1, 2))
"""Fail unless x != y for all elements; takes (x, y, data, summarize, message, name)."""
assert_less = _relation("assert_less", ["Less"], "<", (1, 2))
"""Fail unless x < y for all elements; takes (x, y, data, summarize, message, name)."""
assert_less_equal = _relation("assert_less_equal", ["LessEqual"], "<=", (2, 2))
"""Fail unless x <= y for all elements; takes (x, y, data, summarize, message, name)."""
assert_greater = _relation("assert_greater", ["Greater"], ">", (3, 2))
"""Fail unless x > y for all elements; takes (x, y, data, summarize, message, name)."""
assert_greater_equal = _relation("assert_greater_equal", ["GreaterEqual"], ">=", (2, 2))
"""Fail unless x >= y for all elements; takes (x, y, data, summarize, message, name)."""


def _sign(name: str, op: str, sign: str, holds: int) -> Callable[..., Node]:
    """Return an assertion function for a relation to 0; the number `holds` satisfies it."""

    def check(
        x: Any,
        data: Sequence[Any] | None = None,
        summarize: int | None = None,
        message: str | None = None,
        name: str | None = None,
    ) -> Node:
        with get_default_graph().name_scope(name or default):
            value = convert_to_tensor(x)
            zero = constant_of(np.array(0, value.dtype.base_dtype.numpy))
            condition = out(op, [value, zero])
            statement = f"x {sign} 0 for x = {value.name}"
            return _make_assert(condition, statement, [value], data, summarize, message)

    default = name
    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"""A node that fails unless x {sign} 0 for all elements.

    Args:
      x: real numbers.
      data: what the message shows, by default `x`.
      summarize: how many elements of it.
      message: what the message starts with.
    Raises: InvalidArgumentError: at construction where `x` is constant, else at run time.

    Examples:
      >>> x = wf.placeholder(wf.int32, [2])
      >>> with wf.control_dependencies([wf.{name}(x)]):
      ...     checked = wf.identity(x)
      >>> wf.Session().run(checked, {{x: [{holds}, {holds}]}})
      array([{holds}, {holds}], dtype=int32)
    """
    return check


assert_negative = _sign("assert_negative", "Less", "<", -1)
"""Fail unless x < 0 for all elements; takes (x, data, summarize, message, name)."""
assert_positive = _sign("assert_positive", "Greater", ">", 1)
"""Fail unless x > 0 for all elements; takes (x, data, summarize, message, name)."""
assert_non_negative = _sign("assert_non_negative", "GreaterEqual", ">=", 0)
"""Fail unless x >= 0 for all elements; takes (x, data, summarize, message, name)."""
assert_non_positive = _sign("assert_non_positive", "LessEqual", "<=", 0)
"""Fail unless x <= 0 for all elements; takes (x, data, summarize, message, name)."""


def assert_near(
    x: Any,
    y: Any,
    rtol: Any = None,
    atol: Any = None,
    data: Sequence[Any] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Node:
    """Return a node that fails unless |x - y| <= atol + rtol * |y| for all elements.

    Args:
      x, y: floating or complex tensors of one type.
      rtol, atol: tolerances, 10 times the type's epsilon by default.
    Raises: InvalidArgumentError: at run time.

    Examples:
      >>> check = wf.assert_near([1.0, 2.0], [1.0, 2.1], rtol=0.1)
      >>> wf.Session().run(check)
    """
    with get_default_graph().name_scope(name or "assert_near"):
        a, b = _convert_pair(x, y)
        real = a.dtype.base_dtype.real_dtype
        epsilon = 10 * _epsilon(real)
        relative = convert_to_tensor(epsilon if rtol is None else rtol, real)
        absolute = convert_to_tensor(epsilon if atol is None else atol, real)
        size = "ComplexAbs" if a.dtype.is_complex else "Abs"
        limit = absolute + relative * out(size, [b])
        condition = out("LessEqual", [out(size, [a - b]), limit])
        statement = f"x and y nearly equal for x = {a.name}, y = {b.name}"
        return _make_assert(condition, statement, [a, b], data, summarize, message)


def _epsilon(dtype: DType) -> float:
    unit = np.ones((), dtype.numpy)
    return float(np.nextafter(unit, unit + unit) - unit)


def is_non_decreasing(x: Any, name: str | None = None) -> Output:
    """Return True if the elements in row-major order never decrease: bool, rank 0.

    Args:
      x: real, any shape.

    Examples:
      >>> wf.Session().run(wf.is_non_decreasing([1, 1, 2]))
      np.True_
    """
    return _monotone(x, "LessEqual", name or "is_non_decreasing")


def is_strictly_increasing(x: Any, name: str | None = None) -> Output:
    """Return True if the elements in row-major order always increase: bool, rank 0.

    Args:
      x: real, any shape.

    Examples:
      >>> wf.Session().run(wf.is_strictly_increasing([1, 1, 2]))
      np.False_
    """
    return _monotone(x, "Less", name or "is_strictly_increasing")


def _monotone(x: Any, op: str, name: str) -> Output:
    with get_default_graph().name_scope(name):
        flat = shape_ops.reshape(x, [-1])
        return out("All", [out(op, [flat[:-1], flat[1:]]), [0]])


# ------------------------------------------------------------------------- ranks and shapes


def _rank_check(
    x: Any,
    rank: Any,
    holds: Callable[[int, int], bool],
    op: str,
    relation: str,
    options: tuple[Sequence[Any] | None, int | None, str | None],
) -> Node:
    value = convert_to_tensor(x)
    rank_tensor = convert_to_tensor(rank, dtypes.int32)
    if rank_tensor.dims not in ((), None):
        raise errors.InvalidArgumentError(f"rank must be one integer, got {rank_tensor!r}")
    data, summarize, message = options
    prefix = f"{message}. " if message else ""
    static = constant_value(rank_tensor)
    statement = f"{prefix}Tensor {value.name} must have rank {relation}"
    if static is not None and value.dims is not None:
        if not holds(len(value.dims), int(static)):
            raise errors.InvalidArgumentError(
                f"{statement} {int(static)}. Received rank {len(value.dims)}, shape "
                f"{format_dims(value.dims)}"
            )
        return control.no_op("static_checks_determined_all_ok")
    shown = data or [statement, rank_tensor, "Received shape: ", shape_ops.shape(value)]
    return control.Assert(out(op, [shape_ops.rank(value), rank_tensor]), shown, summarize)


def assert_rank(
    x: Any,
    rank: Any,
    data: Sequence[Any] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Node:
    """Return a node that fails unless `x` has the rank `rank`.

    Args:
      x: any type.
      rank: an integer.
      data, summarize, message: as for `assert_equal`.
    Raises: InvalidArgumentError: at construction if the rank is known, else at run time.

    Examples:
      >>> wf.Session().run(wf.assert_rank([[1, 2]], 2))
    """
    with get_default_graph().name_scope(name or "assert_rank"):
        options = (data, summarize, message)
        return _rank_check(x, rank, lambda a, b: a == b, "Equal", "", options)


def assert_rank_at_least(
    x: Any,
    rank: Any,
    data: Sequence[Any] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Node:
    """Return a node that fails unless the rank of `x` is at least `rank`.

    Args:
      x: any type.
      rank: an integer.
      data, summarize, message: as for `assert_equal`.
    Raises: InvalidArgumentError: at construction if the rank is known, else at run time.

    Examples:
      >>> wf.Session().run(wf.assert_rank_at_least([[1, 2]], 1))
    """
    with get_default_graph().name_scope(name or "assert_rank_at_least"):
        options = (data, summarize, message)
        return _rank_check(x, rank, lambda a, b: a >= b, "GreaterEqual", "at least", options)


def assert_rank_in(
    x: Any,
    ranks: Sequence[int],
    data: Sequence[Any] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Node:
    """Return a node that fails unless the rank of `x` is one of `ranks`.

    Args:
      x: any type.
      ranks: integers.
      data, summarize, message: as for `assert_equal`.
    Raises: InvalidArgumentError: at construction if the rank is known, else at run time.

    Examples:
      >>> wf.Session().run(wf.assert_rank_in([[1, 2]], [1, 2]))
    """
    with get_default_graph().name_scope(name or "assert_rank_in"):
        value = convert_to_tensor(x)
        prefix = f"{message}. " if message else ""
        ranks = [check_integer(rank, "a rank") for rank in ranks]
        statement = f"{prefix}Tensor {value.name} must have a rank in {tuple(ranks)}"
        if value.dims is not None:
            if len(value.dims) not in ranks:
                raise errors.InvalidArgumentError(
                    f"{statement}. Received rank {len(value.dims)}, shape {format_dims(value.dims)}"
                )
            return control.no_op("static_checks_determined_all_ok")
        equal = out("Equal", [shape_ops.rank(value), np.array(list(ranks), np.int32)])
        shown = data or [statement, "Received shape: ", shape_ops.shape(value)]
        return control.Assert(out("Any", [equal, [0]]), shown, summarize)


def assert_scalar(tensor: Any, name: str | None = None, message: str | None = None) -> Output:
    """Check that a tensor has rank 0; return the tensor.

    Args:
      tensor: any type.
      message: prefix of the error message.
    Raises: InvalidArgumentError: the rank is unknown or not 0.

    Examples:
      >>> wf.Session().run(wf.assert_scalar(1))
      np.int32(1)
    """
    value = convert_to_tensor(tensor, name=name)
    if value.dims != ():
        prefix = f"{message}. " if message else ""
        raise errors.InvalidArgumentError(f"{prefix}Expected rank 0, got {value!r}")
    return value


# ---------------------------------------------------------------------------------- types


def assert_type(
    tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None
) -> Node:
    """Check the element type of a tensor; return a no-op.

    Args:
      tensor: a tensor or SparseTensor.
      tf_type: element type.
      message: prefix of the error message.
    Raises: InvalidTypeError: the tensor has another type.

    Examples:
      >>> wf.Session().run(wf.assert_type(wf.constant(1), wf.int32))
    """
    element_type = dtypes.as_dtype(tf_type)
    value = tensor if isinstance(tensor, SparseTensor) else convert_to_tensor(tensor)
    if value.dtype.base_dtype is not element_type:
        prefix = f"{message}. " if message else ""
        raise errors.InvalidTypeError(f"{prefix}required type {element_type.name}, got {value!r}")
    return control.no_op(name or "statically_determined_correct_type")


def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> Node:
    """Check that a tensor has an integer type; return a no-op.

    Args:
      x: a tensor.
      message: prefix of the error message.
    Raises: InvalidTypeError: the type is not an integer type.

    Examples:
      >>> wf.Session().run(wf.assert_integer([1, 2]))
    """
    value = convert_to_tensor(x)
    if not (value.dtype.is_integer or value.dtype.is_quantized):
        prefix = f"{message}. " if message else ""
        raise errors.InvalidTypeError(f"{prefix}required an integer type, got {value!r}")
    return control.no_op(name or "statically_determined_was_integer")


def assert_same_float_dtype(tensors: Iterable[Any] | None = None, dtype: Any = None) -> DType:
    """Return the common floating type of tensors; float32 if there are none.

    Args:
      tensors: floating tensors of the same type.
      dtype: the required type, if any.
    Raises: InvalidTypeError: they differ, or their type is not floating.

    Examples:
      >>> wf.assert_same_float_dtype([wf.constant(1.0)])
      weft.float32
    """
    element_type = None if dtype is None else dtypes.as_dtype(dtype).base_dtype
    for tensor in tensors or ():
        if tensor is None:
            continue
        base_dtype = tensor.dtype.base_dtype
        element_type = element_type or base_dtype
        if base_dtype is not element_type:
            raise errors.InvalidTypeError(
                f"all tensors must be {element_type.name}, got {tensor!r}"
            )
    element_type = element_type or dtypes.float32
    if not element_type.is_floating:
        raise errors.InvalidTypeError(f"required a floating type, got {element_type.name}")
    return element_type


def assert_proper_iterable(values: Any) -> None:
    """Check that `values` is a collection of tensors and not a tensor, an array or a string.

    Args:
      values: any object.
    Raises: InvalidTypeError: it is not such a collection.

    Examples:
      >>> wf.assert_proper_iterable([wf.constant(1.0), wf.constant(2.0)])
      >>> wf.assert_proper_iterable("text")
      Traceback (most recent call last):
        ...
      weft_tensor.errors.InvalidTypeError: ...
    """
    unintended = (Output, SparseTensor, np.ndarray, str, bytes)
    if isinstance(values, unintended) or not hasattr(values, "__iter__"):
        raise errors.InvalidTypeError(
            f"required a collection of tensors, got {type(values).__name__}"
        )


def is_numeric_tensor(tensor: Any) -> bool:
    """Return True if `tensor` is a tensor of numbers.

    Args:
      tensor: any object.

    Examples:
      >>> wf.is_numeric_tensor(wf.constant(1)), wf.is_numeric_tensor(wf.constant("a"))
      (True, False)
    """
    if not isinstance(tensor, Output):
        return False
    dtype = tensor.dtype.base_dtype
    return dtype.is_floating or dtype.is_integer or dtype.is_complex or dtype.is_quantized
