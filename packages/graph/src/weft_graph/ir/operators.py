"""Python's operators on outputs and variables: each builds one node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import weft_graph.ir.builder as _builder
from weft_tensor import dtypes

if TYPE_CHECKING:
    from weft_graph.ir.node import Output


class Operators:
    """Operators of everything that converts to a tensor.

    Binary operators broadcast as NumPy's do; the other operand takes this one's element type.
    Nodes are named as TensorFlow names them ("add", "mul", "and").
    `==` compares identity, as in TensorFlow 1.15; `equal` compares values.
    """

    __slots__ = ()

    __array_priority__ = 100.0
    __array_ufunc__ = None

    def __add__(self, other: Any) -> Output:
        return _binary(_adding(self), self, other, "add")

    def __radd__(self, other: Any) -> Output:
        return _binary(_adding(self), other, self, "add")

    def __sub__(self, other: Any) -> Output:
        return _binary("Sub", self, other, "sub")

    def __rsub__(self, other: Any) -> Output:
        return _binary("Sub", other, self, "sub")

    def __mul__(self, other: Any) -> Output:
        return _binary("Mul", self, other, "mul")

    def __rmul__(self, other: Any) -> Output:
        return _binary("Mul", other, self, "mul")

    def __truediv__(self, other: Any) -> Output:
        return _math("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Output:
        return _math("truediv", other, self)

    def __floordiv__(self, other: Any) -> Output:
        return _binary("FloorDiv", self, other, "floordiv")

    def __rfloordiv__(self, other: Any) -> Output:
        return _binary("FloorDiv", other, self, "floordiv")

    def __mod__(self, other: Any) -> Output:
        return _binary("FloorMod", self, other, "mod")

    def __rmod__(self, other: Any) -> Output:
        return _binary("FloorMod", other, self, "mod")

    def __pow__(self, other: Any) -> Output:
        return _binary("Pow", self, other, "pow")

    def __rpow__(self, other: Any) -> Output:
        return _binary("Pow", other, self, "pow")

    def __matmul__(self, other: Any) -> Output:
        return _math("matmul", self, other, name="matmul")

    def __rmatmul__(self, other: Any) -> Output:
        return _math("matmul", other, self, name="matmul")

    def __lt__(self, other: Any) -> Output:
        return _binary("Less", self, other)

    def __le__(self, other: Any) -> Output:
        return _binary("LessEqual", self, other)

    def __gt__(self, other: Any) -> Output:
        return _binary("Greater", self, other)

    def __ge__(self, other: Any) -> Output:
        return _binary("GreaterEqual", self, other)

    def __and__(self, other: Any) -> Output:
        return _logical("LogicalAnd", "BitwiseAnd", self, other, "and")

    def __rand__(self, other: Any) -> Output:
        return _logical("LogicalAnd", "BitwiseAnd", other, self, "and")

    def __or__(self, other: Any) -> Output:
        return _logical("LogicalOr", "BitwiseOr", self, other, "or")

    def __ror__(self, other: Any) -> Output:
        return _logical("LogicalOr", "BitwiseOr", other, self, "or")

    def __xor__(self, other: Any) -> Output:
        return _math("bitwise_or_logical_xor", self, other)

    def __rxor__(self, other: Any) -> Output:
        return _math("bitwise_or_logical_xor", other, self)

    def __invert__(self) -> Output:
        value = _builder.convert_to_tensor(self)
        return _builder.out("LogicalNot" if value.dtype.is_bool else "Invert", [value])

    def __neg__(self) -> Output:
        return _builder.out("Neg", [self])

    def __abs__(self) -> Output:
        return _math("abs", self)

    def __getitem__(self, key: Any) -> Output:
        from weft_graph.ops import slicing

        return slicing.getitem(self, key)


def _binary(op: str, a: Any, b: Any, name: str | None = None) -> Output:
    return _builder.out(op, (a, b), None, name)


def _adding(tensor: Any) -> str:
    """The op type of `+`: AddV2, which TensorFlow has not for strings."""
    return "Add" if tensor.dtype.base_dtype is dtypes.string else "AddV2"


def _logical(on_bool: str, on_integers: str, a: Any, b: Any, name: str) -> Output:
    tensor = a if isinstance(a, Operators) else b
    is_bool = _builder.convert_to_tensor(tensor).dtype.is_bool
    return _builder.out(on_bool if is_bool else on_integers, (a, b), None, name)


def _math(function: str, *operands: Any, **options: Any) -> Output:
    from weft_graph.ops import math

    result: Output = getattr(math, function)(*operands, **options)
    return result
