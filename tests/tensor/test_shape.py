"""Shapes: the free functions, and the classes compared with TensorFlow 1.15."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from weft_tensor import shape as sh
from weft_tensor.errors import InvalidArgumentError, InvalidTypeError
from weft_tensor.shape import Dimension, Dims, TensorShape

known = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def _forget(dims: tuple[int, ...], mask: int) -> Dims:
    """The same shape with less known; every bit of the mask hides a size."""
    if mask == 0b11111:
        return None
    return tuple(None if mask >> axis & 1 else size for axis, size in enumerate(dims))


masks = st.integers(0, 31)


@given(known, masks, masks)
def test_merging_knows_what_either_knew(dims: tuple[int, ...], m1: int, m2: int) -> None:
    a, b = _forget(dims, m1), _forget(dims, m2)
    assert sh.compatible_dims(a, b)
    merged = sh.merge_dims(a, b)
    assert merged == sh.merge_dims(b, a)
    assert sh.compatible_dims(merged, dims)
    for part in (a, b):
        if part is not None:
            assert merged is not None
            assert all(p is None or p == m for p, m in zip(part, merged, strict=True))


@given(known, known, masks, masks)
def test_broadcasting_agrees_with_numpy(
    a: tuple[int, ...], b: tuple[int, ...], m1: int, m2: int
) -> None:
    try:
        actual = np.broadcast_shapes(a, b)
    except ValueError:
        with pytest.raises(InvalidArgumentError, match="broadcast"):
            sh.broadcast_dims(a, b)
        return
    assert sh.broadcast_dims(a, b) == actual
    partial = sh.broadcast_dims(_forget(a, m1), _forget(b, m2))
    assert sh.compatible_dims(partial, actual)


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        ((None,), (1,), (None,)),
        ((None,), (3,), (3,)),
        ((None, 1), (4,), (None, 4)),
        ((None,), (None,), (None,)),
        ((2, None), (None, 1), (2, None)),
        (None, (3,), None),
        ((), (2, None), (2, None)),
        ((0,), (1,), (0,)),
    ],
)
def test_broadcasting_of_unknown_sizes(a: Dims, b: Dims, result: Dims) -> None:
    assert sh.broadcast_dims(a, b) == result == sh.broadcast_dims(b, a)


def test_messages_name_both_shapes() -> None:
    with pytest.raises(InvalidArgumentError, match=r"\[2,\?\] and \[3,4\].*2 and 3.*axis -2"):
        sh.broadcast_dims((2, None), (3, 4))
    with pytest.raises(InvalidArgumentError, match=r"\[2\] and \[3\]"):
        sh.merge_dims((2,), (3,))


def test_numbers_of_elements() -> None:
    assert sh.num_elements((2, 3)) == 6
    assert sh.num_elements(()) == 1
    assert sh.num_elements((2, None)) is None
    assert sh.num_elements((0, None)) == 0
    assert sh.num_elements(None) is None
    assert sh.format_dims((2, None)) == "[2,?]"
    assert sh.format_dims(()) == "[]"
    assert sh.format_dims(None) == "<unknown>"


def _proto(*sizes: int, unknown_rank: bool = False) -> Any:
    entries = [SimpleNamespace(size=size) for size in sizes]
    return SimpleNamespace(dim=entries, unknown_rank=unknown_rank)


@pytest.mark.parametrize(
    ("value", "dims"),
    [
        (None, None),
        (5, (5,)),
        (np.int64(5), (5,)),
        (Dimension(5), (5,)),
        (Dimension(None), (None,)),
        ([2, None], (2, None)),
        ((Dimension(2), np.int32(3)), (2, 3)),
        (np.array([2, 3]), (2, 3)),
        (np.array([4]), (4,)),
        (iter([1, 2]), (1, 2)),
        (range(3), (0, 1, 2)),
        (TensorShape([2, None]), (2, None)),
        (_proto(2, -1), (2, None)),
        (_proto(unknown_rank=True), None),
        ((True,), (1,)),
    ],
)
def test_as_dims(value: object, dims: Dims) -> None:
    found = sh.as_dims(value)
    assert found == dims
    assert found is None or all(type(size) in (int, type(None)) for size in found)


@pytest.mark.parametrize("value", ["ab", [1.5], ["a"], 1.5, object(), b"ab", [[1]]])
def test_no_shapes(value: object) -> None:
    with pytest.raises(InvalidTypeError):
        TensorShape(value)


def test_negative_sizes() -> None:
    for value in ([-1], -2, _proto(-2)):
        with pytest.raises(InvalidArgumentError, match="at least 0"):
            TensorShape(value)


@pytest.mark.parametrize("value", [2**63, [2, 2**64]])
def test_sizes_that_no_tensor_can_have(value: object) -> None:
    sh.as_dims([2**63 - 1])
    with pytest.raises(InvalidArgumentError, match="at most 9223372036854775807"):
        sh.as_dims(value)


def test_dimension_arithmetic() -> None:
    seven, unknown = Dimension(7), Dimension(None)
    assert (seven + 2).value == 9 == (2 + seven).value
    assert (seven - 2).value == 5 == (12 - seven).value
    assert (seven * 2).value == 14 == (2 * seven).value
    assert (seven // 2).value == 3
    assert (22 // seven).value == 3
    assert (seven % 4).value == 3
    assert (16 % seven).value == 2
    for result in (unknown + 1, 1 * unknown, seven - None, seven % unknown):
        assert result.value is None
    with pytest.raises(ValueError, match="at least 0"):
        _ = seven - 8
    for broken in (lambda: seven + "a", lambda: seven / 2, lambda: seven + 1.5):
        with pytest.raises(TypeError):
            broken()


def test_dimension_comparisons() -> None:
    two, unknown = Dimension(2), Dimension(None)
    assert two == 2
    assert two != 3
    assert two < 3
    assert two <= Dimension(2)
    assert two > 1
    assert two >= 2
    for result in (unknown == unknown, two == None, two != unknown, unknown < 3):  # noqa: E711
        assert result is None
    assert two != "a"
    assert {two: 1}[Dimension(2)] == 1


def test_dimension_conversions() -> None:
    two, unknown = Dimension(2), Dimension(None)
    assert (int(two), [0, 1, 2][two], str(two), repr(two)) == (2, 2, "2", "Dimension(2)")
    assert (str(unknown), repr(unknown), bool(unknown)) == ("?", "Dimension(None)", False)
    with pytest.raises(TypeError):
        int(unknown)
    assert unknown.merge_with(3).value == 3 == Dimension(3).merge_with(None).value
    with pytest.raises(ValueError, match="not compatible"):
        two.merge_with(3)
    assert two.is_compatible_with(unknown)
    assert sh.dimension_value(two) == 2 == sh.dimension_value(2)
    assert sh.dimension_value(None) is None
    assert sh.as_dimension(two) is two


def test_tensor_shape_reads_like_tensorflow() -> None:
    shape = TensorShape([None, 2])
    assert str(shape) == "(?, 2)"
    assert repr(shape) == "TensorShape([Dimension(None), Dimension(2)])"
    assert (str(TensorShape([3])), str(TensorShape([]))) == ("(3,)", "()")
    assert (str(TensorShape(None)), repr(TensorShape(None))) == ("<unknown>", "TensorShape(None)")
    assert shape.as_list() == [None, 2]
    assert (shape.ndims, shape.rank, len(shape)) == (2, 2, 2)
    assert isinstance(shape[1], Dimension)
    assert shape[1].value == 2
    assert shape[-1] == 2
    assert shape.dims is not None
    assert [d.value for d in shape.dims] == [None, 2] == [d.value for d in shape]
    assert (bool(TensorShape([])), bool(TensorShape(None))) == (True, False)
    with pytest.raises(IndexError):
        shape[5]


def test_unknown_rank() -> None:
    unknown = TensorShape(None)
    assert (unknown.ndims, unknown.dims, unknown.num_elements()) == (None, None, None)
    for broken in (unknown.as_list, lambda: len(unknown), lambda: list(unknown)):
        with pytest.raises(ValueError, match=r"unknown"):
            broken()
    assert unknown[2].value is None


@pytest.mark.parametrize(
    ("key", "rank"),
    [
        (slice(2, None), None),
        (slice(2, 4), 2),
        (slice(-2, None), None),
        (slice(None, 3), 3),
        (slice(4, 2), 0),
        (slice(None, -1), None),
    ],
)
def test_slices_of_unknown_rank(key: slice, rank: int | None) -> None:
    assert TensorShape(None)[key].ndims == rank
    with pytest.raises(ValueError, match="step 1"):
        TensorShape(None)[::2]
    assert TensorShape([1, 2, 3])[::2].as_list() == [1, 3]


def test_equality() -> None:
    assert TensorShape([None]) == TensorShape([None])
    assert TensorShape(None) == TensorShape(None)
    assert TensorShape([2]) == [2]
    assert TensorShape([2]) != [None]
    assert TensorShape([2]) != None  # noqa: E711
    assert TensorShape([2]) != "a"
    assert hash(TensorShape([None, 2])) == hash(TensorShape((None, 2)))
    assert copy.deepcopy(TensorShape([None, 2])) == [None, 2]


def test_combining() -> None:
    two = TensorShape([2])
    assert TensorShape([2, None]).merge_with([None, 3]) == [2, 3]
    assert two.merge_with(None) == [2] == TensorShape(None).merge_with(two)
    assert two.concatenate([3]) == [2, 3] == two + [3]  # noqa: RUF005
    assert [1] + two == [1, 2]  # noqa: RUF005
    assert two.concatenate(None) == TensorShape(None)
    assert TensorShape([2, 3]).most_specific_compatible_shape([2, 4]) == [2, None]
    assert TensorShape([2, 3]).most_specific_compatible_shape([2]) == TensorShape(None)
    assert TensorShape([2, 3]).is_compatible_with([2, None])
    assert not TensorShape([2, 3]).is_compatible_with([2])
    assert TensorShape([2, 3]).num_elements() == 6
    assert (two.is_fully_defined(), TensorShape([None]).is_fully_defined()) == (True, False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.merge_with([3]), r"Shapes \(2,\) and \(3,\) are not compatible"),
        (lambda s: s.merge_with([3, 3]), r"Shapes \(2,\) and \(3, 3\) are not compatible"),
        (lambda s: s.with_rank(3), r"Shape \(2,\) must have rank 3"),
        (lambda s: s.with_rank_at_least(3), r"Shape \(2,\) must have rank at least 3"),
        (lambda s: s.with_rank_at_most(0), r"Shape \(2,\) must have rank at most 0"),
        (lambda s: s.assert_has_rank(3), r"Shape \(2,\) must have rank 3"),
        (lambda s: s.assert_same_rank([1, 2]), r"Shapes \(2,\) and \(1, 2\) must have the same"),
        (lambda s: s.assert_is_compatible_with([3]), r"Shapes \(2,\) and \(3,\) are incompatible"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(TensorShape([2]))


def test_ranks_and_makers() -> None:
    assert TensorShape(None).with_rank(3) == [None] * 3
    two = TensorShape([2])
    assert two.with_rank(1) is two is two.with_rank_at_least(1) is two.with_rank_at_most(3)
    TensorShape(None).assert_has_rank(3)
    TensorShape(None).assert_same_rank(two)
    two.assert_is_fully_defined()
    with pytest.raises(ValueError, match=r"\(\?,\) is not fully defined"):
        TensorShape([None]).assert_is_fully_defined()
    assert sh.unknown_shape(2) == [None, None]
    assert sh.unknown_shape().ndims is None
    assert (sh.scalar(), sh.vector(3), sh.matrix(2, None)) == ((), [3], [2, None])
    assert sh.as_shape(two) is two
    assert sh.dimension_at_index(two, 0) == 2
