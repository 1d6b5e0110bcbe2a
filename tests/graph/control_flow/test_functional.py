"""`map_fn`, `foldl`, `foldr`, `scan`: values, shapes, structures, variables, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import weft as wf
from weft_autodiff.gradients.backprop import gradients
from weft_exec.session.session import Session
from weft_graph.control_flow.conditional import cond
from weft_graph.control_flow.functional import foldl, foldr, map_fn, scan
from weft_graph.ir.builder import constant
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ops import array, casting, reduction, shapes, strings, trigonometry
from weft_graph.ops.array import placeholder
from weft_graph.variables.reference import global_variables, global_variables_initializer
from weft_graph.variables.scope import get_variable, get_variable_scope, variable_scope
from weft_tensor import dtypes, errors

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as g:
        yield g


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        session.run(global_variables_initializer())
        return session.run(fetches, feeds)


# ---------------------------------------------------------------------------------- values


@given(rows=st.lists(st.integers(-9, 9), max_size=6), first=st.integers(-9, 9))
def test_all_agree_with_python(rows: list[int], first: int) -> None:
    with Graph().as_default():
        x = placeholder("int64", [None])
        start = constant(first, dtypes.int64)

        def step(a: Any, row: Any) -> Any:
            return 2 * a - row

        found = run(
            [
                map_fn(lambda row: row * row, x),
                foldl(step, x, start),
                foldr(step, x, start),
                scan(step, x, start),
                scan(step, x, start, reverse=True),
            ],
            {x: rows},
        )
    backwards = list(accumulate(reversed(rows), step, initial=first))[1:]
    assert [np.asarray(each).tolist() for each in found] == [
        [row * row for row in rows],
        reduce(step, rows, first),
        reduce(step, reversed(rows), first),
        list(accumulate(rows, step, initial=first))[1:],
        backwards[::-1],
    ]


def test_without_an_initializer_the_first_row_is_the_first_value() -> None:
    x = normal(4, 3)

    def step(a: Any, row: Any) -> Any:
        return a * 0.5 + row

    found = run([foldl(step, x), foldr(step, x), scan(step, x), scan(step, x, reverse=True)])
    forward, backward = list(accumulate(x, step)), list(accumulate(x[::-1], step))
    wanted = [forward[-1], backward[-1], forward, backward[::-1]]
    for mine, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6)


def test_one_row_is_enough_without_an_initializer_and_none_is_not() -> None:
    x = placeholder("float32", [None, 2])
    for fold in (foldl, foldr, scan):
        result = fold(lambda a, row: a + row, x)
        assert run(result, {x: [[1, 2]]}).reshape(-1).tolist() == [1, 2]
        with pytest.raises(errors.InvalidArgumentError):
            run(result, {x: np.zeros((0, 2))})


@pytest.mark.parametrize("count", [0, None])
def test_no_rows(count: int | None) -> None:
    x = placeholder("float32", [count, 2])
    mapped = map_fn(lambda row: (row[:1], casting.cast(row, "int32")), x, ("float32", "int32"))
    scanned = scan(lambda a, row: a + row, x, np.ones(2, np.float32))
    folded = foldl(lambda a, row: a + row, x, np.ones(2, np.float32))
    (a, b), c, d = run([mapped, scanned, folded], {x: np.zeros((0, 2))})
    assert (a.shape, b.shape, c.shape, d.tolist()) == ((0, 1), (0, 2), (0, 2), [1, 1])
    assert b.dtype == np.int32


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64", "complex64", "uint8", "bool"])
def test_element_types(kind: str) -> None:
    x = casting.cast(np.array([[0, 1], [1, 1]]), kind)
    mapped, last, whole = run([map_fn(lambda row: row, x), foldl(lambda _, row: row, x), x])
    assert mapped.dtype == last.dtype == dtypes.as_dtype(kind).numpy
    np.testing.assert_array_equal(mapped, whole)
    np.testing.assert_array_equal(last, whole[-1])


def test_strings() -> None:
    words = constant(["a", "b", "c"])
    joined = scan(lambda a, word: strings.string_join([a, word]), words)
    assert run(joined).tolist() == [b"a", b"ab", b"abc"]


# ------------------------------------------------------------------- structures and shapes


def test_structures_go_in_and_other_ones_come_out() -> None:
    rows = {"x": np.arange(3.0), "y": (np.arange(6).reshape(3, 2),)}

    def apart(row: Any) -> Any:
        assert row.keys() == {"x", "y"}
        return [row["x"] + 1.0, (row["y"][0],)]

    first, (second,) = run(map_fn(apart, rows, ["float64", ("int64",)]))
    assert first.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(second, rows["y"][0])
    total = foldl(lambda a, row: {"n": a["n"] + row["y"][0][1]}, rows, {"n": constant(0, "int64")})
    assert run(total) == {"n": 9}


def test_static_shapes() -> None:
    unknown, some = placeholder("float32", None), placeholder("float32", [None, 3])
    known, pair = placeholder("float32", [4, 3]), placeholder("float32", [4, None])
    assert map_fn(lambda row: row, unknown).dims is None
    assert map_fn(lambda row: shapes.size(row), unknown, "int32").dims == (None,)
    assert map_fn(lambda row: row[:2], some).dims == (None, 2)
    assert map_fn(lambda row: row, pair).dims == (4, None)
    assert map_fn(lambda row: row, (some, known))[0].dims == (4, 3)
    assert map_fn(lambda row: row, known, infer_shape=False).dims is None
    assert scan(lambda a, row: a + reduction.reduce_sum(row), some, 0.0).dims == (None,)
    assert scan(lambda a, row: a + row, pair, reverse=True).dims == (4, None)
    assert scan(lambda a, row: a + row, known, infer_shape=False).dims is None
    assert foldl(lambda a, row: a + row, some).dims == foldr(lambda a, row: a, some).dims == (3,)


def test_results_of_many_shapes_cannot_be_put_together() -> None:
    x = placeholder("int32", [None])
    result = map_fn(lambda n: array.zeros(shapes.reshape(n, [1])), x, "float32", infer_shape=False)
    assert run(result, {x: [2, 2]}).shape == (2, 2)
    with pytest.raises(errors.InvalidArgumentError, match="must have the same shape"):
        run(result, {x: [2, 3]})


def test_names() -> None:
    x = placeholder("float32", [3])
    assert map_fn(lambda row: row, x).name == "map/TensorArrayStack/TensorArrayGatherV3:0"
    assert scan(lambda a, _: a, x, name="mine").name.startswith("mine/")
    assert foldl(lambda a, _: a, x).name.startswith("foldl/while/Exit")
    assert foldr(lambda a, _: a, x).name.startswith("foldr/while/Exit")


# ------------------------------------------------------------------------------- gradients


def test_gradients_flow_to_rows_initializers_and_variables() -> None:
    x, first = placeholder("float64", [4]), placeholder("float64", [])
    w = get_variable("w", [], dtypes.float64)
    total = foldl(lambda a, row: a * w + row * row, x, first)
    values = RNG.standard_normal(4)
    with Session() as session:
        session.run(w.assign(0.7))
        found = session.run(gradients(total, [x, first, w]), {x: values, first: 1.5})
    np.testing.assert_allclose(found[0], 2 * values * 0.7 ** np.arange(3, -1, -1.0))
    assert found[1] == pytest.approx(0.7**4)
    derivative, value = 0.0, 1.5
    for each in values:
        derivative, value = derivative * 0.7 + value, value * 0.7 + each * each
    assert found[2] == pytest.approx(derivative)


@pytest.mark.parametrize("settings", [{"parallel_iterations": 1}, {"swap_memory": True}])
def test_settings_change_no_gradient(settings: Any) -> None:
    x = constant(normal(5, 3))
    plain = gradients(scan(lambda a, row: trigonometry.sin(a + row), x), x)
    other = gradients(scan(lambda a, row: trigonometry.sin(a + row), x, **settings), x)
    np.testing.assert_array_equal(*run([plain[0], other[0]]))


def test_how_many_rows_may_be_worked_on_at_a_time(graph: Graph) -> None:
    x = constant([1.0])
    map_fn(lambda row: row, x)
    foldl(lambda a, _: a, x)
    map_fn(lambda row: row, x, parallel_iterations=3)
    scan(lambda a, _: a, x, parallel_iterations=4, swap_memory=True)
    loops = [node.context for node in graph.nodes if node.type == "LoopCond"]
    assert [loop.parallel_iterations for loop in loops] == [10, 10, 3, 4]
    assert [loop.swap_memory for loop in loops] == [False, False, False, True]


def test_without_back_prop_no_gradient_flows_through() -> None:
    x = constant(normal(3))
    squares = map_fn(lambda row: row * row, x, back_prop=False)
    assert gradients(squares, x) == [None]
    (both,) = gradients(squares * x, x)
    np.testing.assert_allclose(*run([both, x * x]), rtol=1e-6)


def test_inside_a_branch_and_inside_each_other() -> None:
    x, wanted = placeholder("float32", [3, 2]), placeholder("bool", [])
    y = cond(
        wanted,
        lambda: map_fn(lambda row: scan(lambda a, v: a * v, row), x),
        lambda: x * 3.0,
    )
    (grad,) = gradients(y, x)
    value = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    on = run([y, grad], {x: value, wanted: True})
    np.testing.assert_array_equal(on[0], np.cumprod(value, 1))
    np.testing.assert_array_equal(on[1], np.stack([1 + value[:, 1], value[:, 0]], 1))
    off = run([y, grad], {x: value, wanted: False})
    np.testing.assert_array_equal(off[0], value * 3)
    np.testing.assert_array_equal(off[1], np.full_like(value, 3))


# ------------------------------------------------------------------------------- variables


def test_variables_made_inside_are_made_once_and_read_once_outside(graph: Graph) -> None:
    x = placeholder("float32", [None])
    with variable_scope("net", use_resource=True) as scope:
        y = map_fn(lambda row: row * get_variable("w", []), x)
        assert scope.caching_device is None
    assert [variable.op.name for variable in global_variables()] == ["net/w"]
    assert global_variables()[0].op.context is None
    reads = [node for node in graph.nodes if node.type == "ReadVariableOp"]
    assert [node.context for node in reads] == [None]
    assert run(y, {x: [1, 2]}).shape == (2,)


def test_a_failing_function_leaves_the_scope_as_it_was() -> None:
    scope = get_variable_scope()
    with pytest.raises(ZeroDivisionError):
        map_fn(lambda row: 1 / 0, [constant([1.0])])
    assert scope.caching_device is None
    assert get_variable_scope() is scope


# ----------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("function", [map_fn, foldl, foldr, scan])
def test_refusals_of_all(function: Callable[..., Any]) -> None:
    with pytest.raises(errors.InvalidTypeError, match="fn must be callable"):
        function(3, [1.0])
    with pytest.raises(errors.InvalidArgumentError, match="rank at least 1"):
        function(lambda *a: a[-1], 1.0)
    with pytest.raises(errors.InvalidArgumentError, match="at least one tensor"):
        function(lambda *a: a[-1], [])
    with pytest.raises(errors.InvalidArgumentError, match="equal numbers of rows, got 2 and 3"):
        function(lambda *a: a[-1], (normal(2, 1), normal(3, 1)))


def test_refusals_of_each() -> None:
    x = constant(normal(2, 3))
    sparse = SparseTensor([[0]], [1.0], [3])
    with pytest.raises(errors.InvalidTypeError, match="elems must be dense"):
        map_fn(lambda row: row, sparse)
    with pytest.raises(errors.InvalidArgumentError, match="structures must be the same"):
        map_fn(lambda row: (row, row), x)
    with pytest.raises(errors.InvalidTypeError, match="requires values of float32"):
        map_fn(lambda row: casting.cast(row, "int32"), x)
    with pytest.raises(errors.InvalidArgumentError, match="structures must be the same"):
        scan(lambda a, row: [a], x)
    with pytest.raises(errors.InvalidArgumentError, match="shape"):
        scan(lambda a, row: row[:2], x)
    with pytest.raises(errors.InvalidArgumentError, match="shape"):
        foldl(lambda a, row: row[:2], x)
    with pytest.raises(errors.InvalidTypeError, match="float32"):
        foldl(lambda a, row: casting.cast(row, "float64"), x)
    with pytest.raises(errors.InvalidArgumentError, match="structure"):
        foldr(lambda a, row: [a, a], x)


def test_a_sparse_loop_variable_may_come_to_have_other_places() -> None:
    x = wf.SparseTensor([[0], [3]], [2.0, 4.0], [10])

    def more(i: Any, x: Any) -> Any:
        place = wf.cast(wf.fill([1, 1], i + 5), wf.int64)
        return i + 1, wf.sparse.add(x, wf.SparseTensor(place, [1.0], x.dense_shape))

    def wider(i: Any, x: Any) -> Any:
        return i + 1, wf.sparse.expand_dims(x, 0)

    with wf.Session() as session:
        last = wf.while_loop(lambda i, _: i < 3, more, [0, x])[1]
        assert last.indices.shape.as_list() == [None, 1]
        dense = session.run(wf.sparse.to_dense(last))
        assert dense.tolist() == [2, 0, 0, 4, 0, 1, 1, 1, 0, 0]
        with pytest.raises(errors.InvalidArgumentError, match="shape_invariants"):
            wf.while_loop(lambda i, _: i < 3, wider, [0, x])
        any_rank = [wf.TensorShape([]), wf.TensorShape([None])]
        deep = wf.while_loop(lambda i, _: i < 3, wider, [0, x], any_rank)[1]
        assert session.run(deep.dense_shape).tolist() == [1, 1, 1, 10]
        for rank, message in (([5], "not compatible"), ([1, 1], "dense_shape")):
            bad = [wf.TensorShape([]), wf.TensorShape(rank)]
            with pytest.raises(errors.InvalidArgumentError, match=message):
                wf.while_loop(lambda i, _: i < 3, more, [0, x], bad)


def test_an_invariant_that_is_a_spec_describes_its_variable() -> None:
    x = wf.SparseTensor([[0]], [1.0], [10])
    specs = [wf.TensorSpec([], wf.int32), wf.SparseTensorSpec([None])]

    def loop(*variables: Any) -> Any:
        return wf.while_loop(lambda i, _: i < 10, lambda i, x: (i + 1, x), [*variables], specs)

    loop(0, x)
    for others in ((0, wf.constant([1])), (0.0, x)):
        with pytest.raises(errors.InvalidTypeError, match="does not describe"):
            loop(*others)


def test_a_branch_cannot_use_a_value_of_the_other() -> None:
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(wf.identity(x))
        return kept[0]

    x = wf.constant(1.0)
    for nested in (False, True):
        kept.clear()
        use = (
            (lambda: wf.cond(x > 2, lambda: kept[0] * 2, lambda: x))
            if nested
            else (lambda: kept[0] * 2)
        )
        with pytest.raises(errors.InvalidArgumentError, match="has no value in the branch for"):
            wf.cond(x > 0, lambda: keep(x), use)
