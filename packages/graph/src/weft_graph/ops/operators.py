"""Python's operators on tensors and variables, implemented as nodes.

Nodes have the same names as in TensorFlow ("add", "mul", "and").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Operators, Output, implementations
from weft_graph.ops.arithmetic import abs
from weft_graph.ops.comparison import bitwise_or_logical_xor
from weft_graph.ops.division import truediv
from weft_graph.ops.matmul import matmul
from weft_graph.ops.slicing import getitem
from weft_tensor import dtypes


def _node(op: str, name: str | None = None) -> Callable[..., Output]:
    def build(*operands: Any) -> Output:
        return out(op, operands, None, name)

    return build


def _add(a: Any, b: Any) -> Output:
    """Return x + y by AddV2, or by Add for strings, which TensorFlow's AddV2 does not support."""
    tensor: Any = a if isinstance(a, Operators) else b
    op = "Add" if tensor.dtype.base_dtype is dtypes.string else "AddV2"
    return out(op, (a, b), None, "add")


def _mul(a: Any, b: Any) -> Any:
    """Return the product; a sparse operand keeps its indices."""
    if isinstance(b, SparseTensor):
        return b * a
    return out("Mul", (a, b), None, "mul")


def _logical(bool_op: str, integer_op: str, name: str) -> Callable[[Any, Any], Output]:
    def build(a: Any, b: Any) -> Output:
        tensor = convert_to_tensor(a if isinstance(a, Operators) else b)
        return out(bool_op if tensor.dtype.is_bool else integer_op, (a, b), None, name)

    return build


def _invert(operand: Any) -> Output:
    value = convert_to_tensor(operand)
    return out("LogicalNot" if value.dtype.is_bool else "Invert", [value])


def _matmul(a: Any, b: Any) -> Output:
    return matmul(a, b, name="matmul")


_BUILD: dict[str, Callable[..., Output]] = {
    "abs": abs,
    "add": _add,
    "and": _logical("LogicalAnd", "BitwiseAnd", "and"),
    "floordiv": _node("FloorDiv", "floordiv"),
    "ge": _node("GreaterEqual"),
    "getitem": getitem,
    "gt": _node("Greater"),
    "invert": _invert,
    "le": _node("LessEqual"),
    "lt": _node("Less"),
    "matmul": _matmul,
    "mod": _node("FloorMod", "mod"),
    "mul": _mul,
    "neg": _node("Neg"),
    "or": _logical("LogicalOr", "BitwiseOr", "or"),
    "pow": _node("Pow", "pow"),
    "sub": _node("Sub", "sub"),
    "truediv": truediv,
    "xor": bitwise_or_logical_xor,
}

for _operator, _build in _BUILD.items():
    implementations.register(_operator, _build)
