"""Nested structures: flat lists and back, comparison, paths, shallow structures."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from weft_graph.ir import nest
from weft_graph.ir.builder import constant
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import IndexedSlices, SparseTensor
from weft_graph.rnn.cell import LSTMStateTuple
from weft_graph.variables.base import Variable
from weft_tensor import errors
from weft_tensor.shape import TensorShape

Point = namedtuple("Point", "x y")
OtherPoint = namedtuple("Point", "x y")  # type: ignore[name-match]
Pair = namedtuple("Pair", "x y")

STRUCTURES = st.recursive(
    st.integers() | st.none() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.builds(Point, inner, inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.dictionaries(st.integers(), inner, max_size=3).map(OrderedDict)
        | st.lists(inner, max_size=2).map(deque)
    ),
    max_leaves=12,
)


# ------------------------------------------------------------------------------- what is nested


@pytest.mark.parametrize(
    "value",
    [[], (), {}, Point(1, 2), OrderedDict(), deque(), range(2), {}.keys(), {}.values(), UserDict()],
)
def test_sequences_and_mappings_are_nested(value: Any) -> None:
    assert nest.is_nested(value)
    assert nest.is_sequence(value)


@pytest.mark.parametrize(
    "value",
    [None, 1, "abc", b"abc", bytearray(b"a"), {1}, np.ones(2), TensorShape([1, 2]), iter([1])],
)
def test_everything_else_is_a_leaf(value: Any) -> None:
    assert not nest.is_nested(value)
    assert nest.flatten(value) == [value] or nest.flatten(value)[0] is value


def test_what_is_in_the_graph_is_a_leaf() -> None:
    with Graph().as_default():
        tensor, variable = constant([1.0, 2.0]), Variable([1.0])
        assert nest.flatten([tensor, {"v": variable}]) == [tensor, variable]


# ------------------------------------------------------------------------ flat lists and back


def test_leaves_come_in_order_and_mappings_by_their_keys() -> None:
    assert nest.flatten({"b": 2, "a": [1, (3,)]}) == [1, 3, 2]
    assert nest.flatten(OrderedDict([("b", 1), ("a", 2)])) == [2, 1]
    assert nest.flatten(LSTMStateTuple(1, (2, 3))) == [1, 2, 3]
    assert nest.flatten({"b": 1, "a": 2}.items()) == ["b", 1, "a", 2]
    assert nest.flatten([[], ((), {})]) == []
    with pytest.raises(errors.InvalidTypeError, match=r"must be sortable, got \['b', 1\]"):
        nest.flatten({"b": 2, 1: 3})


@pytest.mark.parametrize(
    ("like", "flat", "expected"),
    [
        ({"b": 1, "a": 2}, [10, 20], {"b": 20, "a": 10}),
        (OrderedDict([("b", 1), ("a", 2)]), (10, 20), OrderedDict([("b", 20), ("a", 10)])),
        (UserDict(b=1, a=2), [10, 20], UserDict(b=20, a=10)),
        (Point(1, (2, 3)), [4, 5, 6], Point(4, (5, 6))),
        (deque([1, [2]]), [3, 4], deque([3, [4]])),
        (range(2), [5, 6], [5, 6]),
        ({"b": 1, "a": 2}.values(), [5, 6], [5, 6]),
        (7, ["x"], "x"),
        ([], [], []),
    ],
)
def test_leaves_go_back_into_a_structure_of_the_same_type(
    like: Any, flat: Any, expected: Any
) -> None:
    found = nest.pack_sequence_as(like, flat)
    assert found == expected
    assert type(found) is type(expected)
    if isinstance(expected, OrderedDict):
        assert list(found) == list(expected)


def test_a_mapping_keeps_its_default() -> None:
    found = nest.pack_sequence_as(defaultdict(list, b=1, a=2), [3, 4])
    assert found == {"a": 3, "b": 4}
    assert found["new"] == []


@given(STRUCTURES)
def test_taking_apart_and_putting_together_gives_the_same(structure: Any) -> None:
    leaves = nest.flatten(structure)
    rebuilt = nest.pack_sequence_as(structure, leaves)
    assert rebuilt == structure
    assert type(rebuilt) is type(structure)
    nest.assert_same_structure(structure, rebuilt)
    assert [leaf for _, leaf in nest.flatten_with_tuple_paths(structure)] == leaves
    numbered = nest.pack_sequence_as(structure, range(len(leaves)))
    assert nest.flatten(numbered) == list(range(len(leaves)))
    assert nest.flatten_up_to(structure, numbered) == nest.flatten(numbered)
    assert len(set(nest.yield_flat_paths(structure))) == len(leaves)


@pytest.mark.parametrize(
    ("like", "flat", "error"),
    [
        ([1, 2], [1, 2, 3], r"must have 2 items, one for each leaf of \[\., \.\], got 3"),
        ([1, (2,)], [1], r"for each leaf of \[\., \(\.,\)\], got 1"),
        (1, [1, 2], r"must have 1 items"),
        ([1, 2], 3, "must be a sequence of leaves, got int"),
        ([1, 2], np.ones(2), "got ndarray"),
        ([1], {"a": 1}, "got dict"),
    ],
)
def test_the_number_of_leaves_must_fit(like: Any, flat: Any, error: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=error):
        nest.pack_sequence_as(like, flat)


def test_sparse_values_open_where_asked() -> None:
    with Graph().as_default():
        sparse = SparseTensor([[0, 0]], [1.0], [1, 1])
        slices = IndexedSlices(constant([[1.0]]), constant([0]), constant([3, 1]))
        short = IndexedSlices(constant([[1.0]]), constant([0]))
        assert nest.flatten([sparse, slices]) == [sparse, slices]
        parts = nest.flatten([sparse, slices, short], expand_composites=True)
        assert parts == [
            *(sparse.indices, sparse.values, sparse.dense_shape),
            *(slices.values, slices.indices, slices.dense_shape),
            *(short.values, short.indices),
        ]
        again = nest.map_structure(lambda part: part, [sparse, slices], expand_composites=True)
        assert isinstance(again[0], SparseTensor)
        assert again[0].values is sparse.values
        assert isinstance(again[1], IndexedSlices)
        assert again[1].dense_shape is slices.dense_shape
        nest.assert_same_structure(sparse, sparse.values)
        with pytest.raises(errors.InvalidArgumentError, match="must be the same"):
            nest.assert_same_structure(sparse, sparse.values, expand_composites=True)


# -------------------------------------------------------------------------------- comparison

SAME = [
    (1, None),
    ([1, (2, 3)], [4, (5, 6)]),
    ({"a": 1, "b": [2]}, {"b": [5], "a": 7}),
    ({"a": 1}, OrderedDict(a=2)),
    (defaultdict(list, a=1), UserDict(a=2)),
    (Point(1, 2), OtherPoint(3, 4)),
]

SAME_BUT_FOR_TYPES = [
    ([1], (2,)),
    ([], ()),
    (Point(1, 2), Pair(1, 2)),
    (Point(1, 2), (1, 2)),
    ([{"a": 1}], [[1]]),
    (range(2), [0, 1]),
]

DIFFERENT = [
    ([1], [2, 3]),
    ([1], 1),
    ("abc", [1]),
    (None, []),
    ([[1, 2], 3], [3, [1, 2]]),
    ({"a": 1}, {"a": 1, "b": 2}),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_structures_are_the_same_whatever_their_leaves(a: Any, b: Any) -> None:
    nest.assert_same_structure(a, b)
    nest.assert_same_structure(b, a)


@pytest.mark.parametrize(("a", "b"), SAME_BUT_FOR_TYPES)
def test_types_of_containers_count_unless_told_otherwise(a: Any, b: Any) -> None:
    with pytest.raises(errors.InvalidTypeError, match="must be the same"):
        nest.assert_same_structure(a, b)
    nest.assert_same_structure(a, b, check_types=False)


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
@pytest.mark.parametrize("check_types", [True, False])
def test_structures_differ(a: Any, b: Any, check_types: bool) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="must be the same") as caught:
        nest.assert_same_structure(a, b, check_types)
    assert not isinstance(caught.value, TypeError)


def test_the_keys_of_mappings_count_with_their_types() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"the keys \['a'\], the second \['b'\]"):
        nest.assert_same_structure({"a": 1}, {"b": 1})
    nest.assert_same_structure({"a": 1}, {"b": 1}, check_types=False)


def test_a_difference_is_placed() -> None:
    a, b = {"k": (1, [2, 3])}, {"k": (1, [2, 3, 4])}
    with pytest.raises(errors.InvalidArgumentError) as caught:
        nest.assert_same_structure(a, b)
    assert "at ['k'][1] the first has 2 items, the second 3" in str(caught.value)
    wide = [list(range(10_000))]
    with pytest.raises(errors.InvalidArgumentError) as caught:
        nest.assert_same_structure(wide, [1])
    assert len(str(caught.value)) < 500


# ----------------------------------------------------------------------------------- mapping


def test_a_function_of_leaves_keeps_the_structure() -> None:
    assert nest.map_structure(lambda x: x + 1, {"a": (1, [2])}) == {"a": (2, [3])}
    assert nest.map_structure(lambda x, y: x * y, Point(2, 3), Point(4, 5)) == Point(8, 15)
    assert nest.map_structure(lambda x: x, None) is None
    assert nest.map_structure(lambda x, y: x - y, [5], (2,), check_types=False) == [3]
    with pytest.raises(errors.InvalidTypeError, match="must be the same"):
        nest.map_structure(lambda x, y: x, [5], (2,))


def test_mapping_checks_its_arguments() -> None:
    with pytest.raises(errors.InvalidTypeError, match="must be callable, got 3"):
        nest.map_structure(3, [1])  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="at least one structure"):
        nest.map_structure(abs)
    with pytest.raises(errors.InvalidArgumentError, match="got wrong"):
        nest.map_structure(abs, [1], wrong=2)
    with pytest.raises(errors.InvalidArgumentError, match="at least one structure"):
        nest.map_structure_up_to([1], abs)
    with pytest.raises(errors.InvalidArgumentError, match="got wrong"):
        nest.map_structure_up_to([1], abs, [1], wrong=2)


def test_paths_are_keys_fields_and_positions() -> None:
    structure = {"a": [1, (2,)], "b": Point(3, 4)}
    paths = [("a", 0), ("a", 1, 0), ("b", "x"), ("b", "y")]
    assert list(nest.yield_flat_paths(structure)) == paths
    assert list(nest.yield_flat_paths(5)) == [()]
    assert nest.flatten_with_joined_string_paths(structure)[1] == ("a/1/0", 2)
    assert nest.flatten_with_joined_string_paths(structure, ".")[2] == ("b.x", 3)
    found = nest.map_structure_with_paths(lambda path, x: f"{path}={x}", structure)
    assert found["b"] == Point("b/x=3", "b/y=4")
    sums = nest.map_structure_with_tuple_paths(lambda p, x, y: (len(p), x + y), [1, [2]], [3, [4]])
    assert sums == [(1, 4), [(2, 6)]]
    with pytest.raises(errors.InvalidArgumentError, match="at least one structure"):
        nest.map_structure_with_paths(abs)


# ------------------------------------------------------------------------- shallow structures


def test_a_shallow_structure_says_where_to_stop() -> None:
    assert nest.flatten_up_to([1, (2,)], [[1, 2], ({"a": 3},)]) == [[1, 2], {"a": 3}]
    assert nest.flatten_up_to(0, [1, 2]) == [[1, 2]]
    assert nest.flatten_up_to({"b": 0, "a": 0}, {"a": [1], "b": 2}) == [[1], 2]
    assert nest.flatten_up_to([(0,)], [[5]], check_types=False) == [5]
    found = nest.map_structure_up_to(Point(0, 0), lambda a, b: (a, b), Point(1, 2), Point([3], {}))
    assert found == Point((1, [3]), (2, {}))
    nest.assert_shallow_structure([0, 0], [[1], [2]])


@pytest.mark.parametrize(
    ("shallow", "whole", "kind", "error"),
    [
        ([0, (0,)], [1, [2]], errors.InvalidTypeError, "must have a tuple like"),
        ([0, (0,)], [1, 2], errors.InvalidTypeError, "where it has the leaf 2"),
        (Point(0, 0), Pair(1, 2), errors.InvalidTypeError, "must have a Point"),
        ([0, 0], [1], errors.InvalidArgumentError, "must have 2 items"),
        ({"a": 0}, {"b": 1}, errors.InvalidArgumentError, r"lacks \['a'\]"),
    ],
)
def test_a_structure_must_go_on_from_the_shallow_one(
    shallow: Any, whole: Any, kind: Any, error: str
) -> None:
    with pytest.raises(kind, match=error):
        nest.assert_shallow_structure(shallow, whole)


def test_a_function_says_what_to_look_into() -> None:
    def lists_only(part: Any) -> bool:
        return isinstance(part, list)

    structure = [1, (2, 3), [4, {"a": 5}]]
    assert nest.get_traverse_shallow_structure(lists_only, structure) == [
        False,
        False,
        [False, False],
    ]

    def second_of_points(part: Any) -> Any:
        return Point(False, True) if isinstance(part, Point) else True

    found = nest.get_traverse_shallow_structure(second_of_points, [Point([1], [2]), 3])
    assert found == [Point(False, [True]), True]
    assert nest.get_traverse_shallow_structure(lambda part: False, [1]) is False


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda part: "yes", "must return a Boolean for"),
        (lambda part: [True, False], "must return a Boolean for 1"),
        (lambda part: [True] if isinstance(part, list) else True, "must have 2 items"),
        (lambda part: [True, 1] if isinstance(part, list) else True, "Booleans for the items"),
    ],
)
def test_answers_are_checked(answer: Any, error: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=error):
        nest.get_traverse_shallow_structure(answer, [1, 2])


def test_keys_and_values_come_apart_together() -> None:
    nested = {("a", ("b", "c")): (1, (2, 3)), "x": 4}
    assert nest.flatten_dict_items(nested) == {"a": 1, "b": 2, "c": 3, "x": 4}
    with pytest.raises(errors.InvalidArgumentError, match="must be the same"):
        nest.flatten_dict_items({("a", "b"): (1,)})
    with pytest.raises(errors.InvalidArgumentError, match="'x' appears more than once"):
        nest.flatten_dict_items({("a", "x"): (1, 2), "x": 4})
    with pytest.raises(errors.InvalidTypeError, match="must be a dictionary"):
        nest.flatten_dict_items([1])  # type: ignore[arg-type]
