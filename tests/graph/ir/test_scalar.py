"""The language of scalar definitions: types, sharing, errors."""

from __future__ import annotations

import pytest

from weft_graph.ir.scalar import (
    PRIMITIVES,
    Definition,
    Scalar,
    applications,
    attribute,
    cast,
    complex_of,
    conj,
    exp,
    identity,
    maximum,
    where,
)
from weft_tensor import dtypes, errors


def traced(function: object, *types: object, **options: bool) -> Scalar:
    inputs = [dtypes.as_dtype(t) for t in types]
    return Definition(function, **options).expression(inputs, inputs[0])  # type: ignore[arg-type]  # what is tested are wrong ones, too


def test_numbers_and_attributes_take_part_with_their_type() -> None:
    made = traced(lambda x: where(x > 0, x, x * attribute("alpha", x.dtype) + 1), "float64")
    assert repr(made) == "where(greater(x0, 0), x0, add(mul(x0, alpha), 1))"
    assert [part.dtype.name for part in applications(made)] == [
        "bool", "float64", "float64", "float64",
    ]  # fmt: skip


def test_a_definition_is_traced_once_for_each_choice_of_types() -> None:
    calls = []

    def function(x: Scalar) -> Scalar:
        calls.append(x.dtype.name)
        return -x

    definition = Definition(function)
    assert calls == []
    first = definition.expression([dtypes.int32], dtypes.int32)
    assert definition.expression([dtypes.int32], dtypes.int32) is first
    definition.expression([dtypes.float32], dtypes.float32)
    assert calls == ["int32", "float32"]


def test_narrow_types_are_widened_where_the_definition_says_so() -> None:
    def negative(x: Scalar) -> Scalar:
        return exp(-x)

    assert repr(traced(negative, "bfloat16")) == "exp(neg(x0))"
    assert repr(traced(negative, "bfloat16", in_float32=True)) == "cast(exp(neg(cast(x0))))"
    assert repr(traced(negative, "float64", in_float32=True)) == "exp(neg(x0))"


def test_results_are_cast_to_the_type_of_the_op() -> None:
    definition = Definition(identity)
    assert definition.expression([dtypes.int8], dtypes.int8).name == "input"
    made = definition.expression([dtypes.int8], dtypes.bool_)
    assert (made.name, made.dtype) == ("cast", dtypes.bool_)


def test_a_shared_part_is_one_application() -> None:
    def twice(x: Scalar) -> Scalar:
        e = exp(x)
        return e * e

    assert [part.name for part in applications(traced(twice, "float32"))] == ["exp", "mul"]


def test_a_chain_may_be_longer_than_pythons_stack() -> None:
    def long(x: Scalar) -> Scalar:
        for _ in range(5000):
            x = x + 1
        return x

    assert len(applications(traced(long, "float32"))) == 5000


def test_parts_of_complex_numbers_have_real_types() -> None:
    assert traced(lambda x: cast(abs(x), x.dtype), "complex64").args[0].dtype is dtypes.float32
    x = Scalar("input", dtypes.float64, (), 0)
    assert complex_of(x, x).dtype is dtypes.complex128
    assert conj(x) is x


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(errors.InvalidTypeError, match="exp is not defined for int32"):
        traced(exp, "int32")
    with pytest.raises(errors.InvalidTypeError, match="the same type, got float32, int32"):
        traced(lambda x, y: x + y, "float32", "int32")
    with pytest.raises(errors.InvalidTypeError, match="where requires a bool"):
        traced(lambda x: where(x, x, x), "float32")
    with pytest.raises(errors.InvalidTypeError, match="no truth value"):
        traced(lambda x: x if x > 0 else -x, "float32")
    with pytest.raises(errors.InvalidArgumentError, match="maximum requires 2 operands, got 1"):
        traced(maximum, "float32")


def test_expressions_are_immutable() -> None:
    with pytest.raises(AttributeError):
        Scalar("input", dtypes.float32).name = "constant"


def test_every_primitive_says_what_it_computes() -> None:
    assert all(primitive.doc.endswith(".") for primitive in PRIMITIVES.values())
