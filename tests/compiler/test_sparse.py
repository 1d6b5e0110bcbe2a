"""Compiled sparse tensors, sampled classes and permutations, compared with their kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from weft_testing.both_ways import agree, by_both, compiled_ops, outputs

import weft as wf
from weft_graph.ir.node import Output
from weft_tensor import errors


def some(first: Any, *rest: Any) -> list[Any]:
    """The first one in every run, the rest in long ones."""
    return [first, *[pytest.param(each, marks=pytest.mark.long) for each in rest]]


@pytest.mark.parametrize("dtype", some("float32", "float64", "int16", "bfloat16"))
@pytest.mark.parametrize("sizes", [(30, 20, 17), *some((4, 0, 3), (1, 5, 1), (0, 6, 2), (3, 4, 0))])
def test_sparse_times_dense(
    monkeypatch: pytest.MonkeyPatch, dtype: str, sizes: tuple[int, ...]
) -> None:
    """Places come in any order, and some twice."""
    m, k, n = sizes
    draw, made = np.random.default_rng(1), compiled_ops(monkeypatch)
    count = 90 if m and k else 0
    places = np.stack([draw.integers(0, max(size, 1), count) for size in (m, k)], 1)
    kind = wf.as_dtype(dtype).as_numpy_dtype
    values = (draw.standard_normal(count) * 9).astype(kind)
    dense = (draw.standard_normal((k, n)) * 9).astype(kind)

    def build(places: Output, values: Output, dense: Output) -> Sequence[Output]:
        found, turned = [], wf.transpose(dense)
        for adjoint_a in (False, True):
            at = wf.reverse(places, [1]) if adjoint_a else places
            shape = [k, m] if adjoint_a else [m, k]
            given = [at, values, wf.constant(shape, wf.int64)]
            for b, adjoint_b in ((dense, False), (turned, True)):
                attrs = {"adjoint_a": adjoint_a, "adjoint_b": adjoint_b}
                found += outputs("SparseTensorDenseMatMul", [*given, b], **attrs)
        if values.dtype.is_floating and count:
            found += wf.gradients(found[:1], [values, dense])
        return found

    want, got = by_both(monkeypatch, build, places, values, dense)
    limit = {"float32": 2e-5, "float64": 1e-11, "int16": 0.0, "bfloat16": 1e-2}[dtype]
    agree(got, want, limit, limit * 9)
    assert "SparseTensorDenseMatMul" in made


@pytest.mark.parametrize("shape", some((2, 3, 4), (7,), (3, 4)))
def test_sparse_made_dense(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    draw, made = np.random.default_rng(2), compiled_ops(monkeypatch)
    flat = np.sort(draw.choice(np.prod(shape), 5, replace=False))
    places = np.stack(np.unravel_index(flat, shape), 1)
    again = np.concatenate([places[::-1], places[:2]])
    values = draw.standard_normal(7)

    def build(places: Output, again: Output, values: Output) -> Sequence[Output]:
        found = [*outputs("SparseToDense", [places, list(shape), values[:5], -1.0])]
        found += outputs("SparseToDense", [places, list(shape), 2.5, values[0]])
        free = {"validate_indices": False}
        return [*found, *outputs("SparseToDense", [again, list(shape), values, 0.0], **free)]

    want, got = by_both(monkeypatch, build, places, again, values)
    agree(got, want, 0, 0)
    assert "SparseToDense" in made


@pytest.mark.parametrize("dtype", some("float32", "float64", "float16", "int32"))
def test_classes_are_those_that_kernels_draw(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    draw, made = np.random.default_rng(3), compiled_ops(monkeypatch)
    logits = (draw.standard_normal((40, 70)) * 3).astype(dtype)
    if dtype != "int32":
        logits[0, :69], logits[1], logits[2, 5], logits[3, 6] = -np.inf, -np.inf, np.nan, np.inf

    def build(logits: Output) -> Sequence[Output]:
        wf.set_random_seed(3)
        found = [wf.multinomial(logits, count, seed=7) for count in (1, 50)]
        seed = {"output_dtype": wf.int32}
        return [*found, *outputs("StatelessMultinomial", [logits, 9, [5, 6]], **seed)]

    want, got = by_both(monkeypatch, build, logits)
    agree(got, want, 0, 0)
    assert {"Multinomial", "StatelessMultinomial"} <= made
    assert len(np.unique(want[1])) > 50


def test_a_loop_draws_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a text generator: each iteration draws the next numbers of the stream."""
    table = np.random.default_rng(4).standard_normal((9, 9))

    def build(table: Output) -> Sequence[Output]:
        wf.set_random_seed(5)

        def turn(i: Output, state: Output) -> list[Output]:
            logits = wf.gather(table, state)
            drawn = wf.multinomial(logits, 1, seed=2, output_dtype=wf.int32)
            return [i + 1, wf.reshape(drawn, [6])]

        start = wf.zeros([6], wf.int32)
        return [wf.while_loop(lambda i, _: i < 20, turn, [wf.constant(0), start])[1]]

    want, got = by_both(monkeypatch, build, table)
    agree(got, want, 0, 0)


@pytest.mark.parametrize("dtype", some("float32", "float64", "float16", "bfloat16"))
def test_numbers_in_steps(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    kind = wf.as_dtype(dtype).as_numpy_dtype
    ends = np.array([-3.5, 11.25, np.inf, 1e-40], "d").astype(kind)

    def build(ends: Output) -> Sequence[Output]:
        pairs = [(0, 1, 300), (1, 0, 7), (0, 0, 40), (1, 1, 1), (0, 2, 5), (3, 3, 2)]
        return [wf.linspace(ends[first], ends[last], count) * 1 for first, last, count in pairs]

    want, got = by_both(monkeypatch, build, ends)
    limit = {"float32": 2e-6, "float64": 1e-14}.get(dtype, 1e-2)
    agree(got, want, limit, limit)


def test_permutations_and_places(monkeypatch: pytest.MonkeyPatch) -> None:
    made, draw = compiled_ops(monkeypatch), np.random.default_rng(6)
    order, flat = draw.permutation(2000), draw.integers(0, 60, 900).astype("i")

    def build(order: Output, flat: Output) -> Sequence[Output]:
        return [
            wf.invert_permutation(order * 1) + 1,
            wf.cast(wf.unravel_index(flat * 1, [3, 4, 5]), wf.float32) / 2,
        ]

    want, got = by_both(monkeypatch, build, order, flat)
    agree(got, want, 0, 0)
    assert {"InvertPermutation", "UnravelIndex"} <= made


WRONG: dict[str, tuple[Callable[[Output], Sequence[Output]], list[Any]]] = {
    "row": (
        lambda x: outputs("SparseTensorDenseMatMul", [x, [1.0], [2, 3], np.ones((3, 2), "f")]),
        [[2, 0]],
    ),
    "column": (
        lambda x: outputs("SparseTensorDenseMatMul", [x, [1.0], [2, 3], np.ones((3, 2), "f")]),
        [[1, -1]],
    ),
    "place": (lambda x: outputs("SparseToDense", [x, [2], 1.0, 0.0]), [0, 2]),
    "order": (lambda x: outputs("SparseToDense", [x, [2], 1.0, 0.0]), [1, 0]),
    "twice": (lambda x: outputs("SparseToDense", [x, [9], 1.0, 0.0]), [1, 1]),
    "permutation": (lambda x: [wf.invert_permutation(x)], [0, 2, 2, *range(3, 700)]),
    "outside": (lambda x: [wf.unravel_index(x, [2, 3])], [6] * 700),
}


@pytest.mark.parametrize("which", WRONG)
def test_what_is_wrong_has_the_error_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    build, given = WRONG[which]
    array, said = np.array(given, np.int64), []
    for mode in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", mode)
        with wf.Graph().as_default(), wf.Session() as session:
            feed = wf.placeholder(array.dtype, array.shape)
            fetches = [wf.identity(y) for y in build(wf.identity(feed) * 1)]
            with pytest.raises(errors.InvalidArgumentError) as caught:
                session.run(fetches, {feed: array})
            said.append((caught.value.node, str(caught.value)))
    assert said[0] == said[1]
