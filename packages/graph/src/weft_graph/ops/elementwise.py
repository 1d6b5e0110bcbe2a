"""Helpers that declare elementwise ops and add their nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from weft_graph.ir import scalar
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import ValueRule, register_op
from weft_graph.ir.scalar import Scalar
from weft_graph.ir.traits import elementwise
from weft_graph.ops import shape_rules

NUMBERS: Final = "{inexact, integral}"
REALS: Final = "{realnumbertype}"
INEXACT: Final = "{inexact}"
FLOATING: Final = "{floating}"


def register_unary(
    op: str,
    types: str,
    function: Callable[[Scalar], Scalar],
    doc: str,
    *,
    result: str = "T",
    value: ValueRule | None = None,
    **traits: Any,
) -> None:
    """Declare an op of one input; `traits` as in `elementwise`."""
    register_op(
        op,
        ("x: T",),
        (f"y: {result}",),
        {"T": types},
        shape_rules.same_shape,
        value=value,
        traits=elementwise(function, **traits),
        doc=doc,
    )


def register_binary(
    op: str,
    types: str,
    function: Callable[[Scalar, Scalar], Scalar],
    doc: str,
    *,
    names: Sequence[str] = "xy",
    value: ValueRule | None = None,
    **traits: Any,
) -> None:
    """Declare an op of two inputs whose shapes broadcast; `traits` as in `elementwise`."""
    register_op(
        op,
        tuple(f"{name}: T" for name in names),
        ("z: T",),
        {"T": types},
        shape_rules.broadcast,
        value=value,
        traits=elementwise(function, **traits),
        doc=doc,
    )


def register_gradient_of_unary(
    op: str, function: Callable[[Scalar, Scalar], Scalar], doc: str
) -> None:
    """Declare the gradient of a unary op as a function of its result and of dy."""
    register_op(
        op,
        ("y: T", "dy: T"),
        ("z: T",),
        {"T": INEXACT},
        shape_rules.merged_shape_of(0, 1),
        traits=elementwise(function),
        doc=doc,
    )


def zero_if_zero_grad(dy: Scalar, slope: Scalar) -> Scalar:
    """Return a gradient that is 0 where the upstream gradient is, even if the slope is infinite.

    Gradients masked by a selection after a root or a quotient therefore do not become NaN.
    """
    return scalar.where(scalar.equal(dy, 0), 0, slope)


def pair(x: Any, y: Any) -> tuple[Output, Output]:
    """Return two operands as outputs; a Python value gets the element type of the other.

    Raises: InvalidTypeError: their element types differ.
    """
    if type(x) is Output and type(y) is Output and x.dtype is y.dtype:
        return x, y
    if isinstance(x, Output) or hasattr(x, "_as_output"):
        a = convert_to_tensor(x)
        return a, convert_to_tensor(y, a.dtype.base_dtype)
    b = convert_to_tensor(y)
    if isinstance(y, Output) or hasattr(y, "_as_output"):
        return convert_to_tensor(x, b.dtype.base_dtype), b
    a = convert_to_tensor(x)
    return a, convert_to_tensor(y, a.dtype.base_dtype)


def unary(op: str, x: Any, name: str | None) -> Any:
    """Apply an elementwise op that maps 0 to 0; for a sparse tensor, to its values."""
    if isinstance(x, SparseTensor):
        return SparseTensor(x.indices, out(op, [x.values], name=name), x.dense_shape)
    return out(op, [x], name=name)
