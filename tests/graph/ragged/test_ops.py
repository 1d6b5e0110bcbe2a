"""Functions of ragged tensors, compared with loops over nested lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts
from weft_testing.ragged import fetched, lists, nested, of_leaves, ragged

import weft as wf
from weft_tensor import errors

ROUNDS = 6
Check = Callable[[np.random.Generator], list[tuple[Any, Any]]]
"""Makes values, and what they should be."""


def check(make: Check) -> None:
    rng = np.random.default_rng(1)
    pairs = [pair for _ in range(ROUNDS) for pair in make(rng)]
    found = fetched(*[value for value, _ in pairs])
    for i, (got, (_, want)) in enumerate(zip(found, pairs, strict=True)):
        assert _near(got, want), f"{i}: {got} is not {want}"


def _near(got: Any, want: Any) -> bool:
    if isinstance(want, list):
        return (
            isinstance(got, list)
            and len(got) == len(want)
            and all(_near(*pair) for pair in zip(got, want, strict=True))
        )
    return bool(np.isclose(got, want, equal_nan=True)) if isinstance(want, float) else got == want


def test_elementwise() -> None:
    def make(rng: np.random.Generator) -> list[tuple[Any, Any]]:
        rank = int(rng.integers(2, 4))
        rows = nested(rng, rank)
        others = of_leaves(lambda n: n + 1, rows)
        x, y = ragged(rows, rank), ragged(others, rank)
        return [
            (x + y, of_leaves(lambda a, b: a + b, rows, others)),
            (2 * x - 1, of_leaves(lambda a: 2 * a - 1, rows)),
            (x // y, of_leaves(lambda a, b: a // b, rows, others)),
            (x > 3, of_leaves(lambda a: a > 3, rows)),
            (wf.where_v2(x > 3, x, -y), of_leaves(lambda a, b: a if a > 3 else -b, rows, others)),
            (wf.where(x > 3, x, y), of_leaves(lambda a, b: a if a > 3 else b, rows, others)),
            (wf.clip_by_value(x, 2, 5), of_leaves(lambda a: min(max(a, 2), 5), rows)),
            (wf.cast(x, wf.bool), of_leaves(bool, rows)),
            (wf.add_n([x, y, x]), of_leaves(lambda a, b: 2 * a + b, rows, others)),
            (wf.zeros_like(x), of_leaves(lambda a: 0, rows)),
            (wf.as_string(x), of_leaves(lambda a: b"%d" % a, rows)),
            (wf.one_hot(x, 3), of_leaves(lambda a: [float(a == i) for i in range(3)], rows)),
            (wf.nn.embedding_lookup(wf.range(10) * 3, x), of_leaves(lambda a: 3 * a, rows)),
        ]

    check(make)


def test_broadcasting() -> None:
    def make(rng: np.random.Generator) -> list[tuple[Any, Any]]:
        rows = nested(rng, 3, 2)
        x = ragged(rows, 3)
        inner = [[int(rng.integers(0, 9)) for _ in row] for row in rows]
        flat = nested(rng, 2, 3)
        return [
            (
                wf.add(ragged(flat), [[10], [20], [30]]),
                [[n + 10 * i for n in row] for i, row in enumerate(flat, 1)],
            ),
            (
                wf.add(x, [[[1]], [[2]]]),
                [[[n + i for n in r] for r in row] for i, row in enumerate(rows, 1)],
            ),
            (
                x * ragged(inner)[..., None],
                [
                    [[n * k for n in r] for r, k in zip(row, ks, strict=True)]
                    for row, ks in zip(rows, inner, strict=True)
                ],
            ),
            (
                ragged(flat)[None] + [[[1]], [[2]]],
                [[[n + i for n in r] for r in flat] for i in (1, 2)],
            ),
        ]

    check(make)
    x = ragged([[1, 2], [3]])
    for other in (ragged([[1], [3]]), ragged([[1, 2], [3], []])):
        with wf.Session() as session, pytest.raises(errors.InvalidArgumentError):
            session.run(x + other)


def test_reductions() -> None:
    def columns(rows: list[list[int]]) -> list[list[int]]:
        width = max(map(len, rows), default=0)
        return [[row[j] for row in rows if j < len(row)] for j in range(width)]

    def make(rng: np.random.Generator) -> list[tuple[Any, Any]]:
        rows = [[*row, 1] for row in nested(rng, 2, 3)]
        x, f = ragged(rows), ragged(rows, dtype=wf.float64)
        every = [n for row in rows for n in row]
        deep = nested(rng, 3, 3)
        z = ragged(deep, 3)
        return [
            (wf.reduce_sum(x), sum(every)),
            (wf.reduce_sum(x, 0), [sum(c) for c in columns(rows)]),
            (wf.reduce_sum(x, -1, keepdims=True), [[sum(r)] for r in rows]),
            (wf.reduce_max(x, 1), [max(r) for r in rows]),
            (wf.reduce_min(x, 0), [min(c) for c in columns(rows)]),
            (wf.reduce_prod(x, 1), [int(np.prod(r)) for r in rows]),
            (wf.reduce_mean(f, 1), [float(np.mean(r)) for r in rows]),
            (wf.math.reduce_std(f, 1), [float(np.std(r)) for r in rows]),
            (wf.math.reduce_variance(f, 0), [float(np.var(c)) for c in columns(rows)]),
            (wf.reduce_any(x > 5, 1), [any(n > 5 for n in r) for r in rows]),
            (wf.reduce_all(x > 5, 0), [all(n > 5 for n in c) for c in columns(rows)]),
            (wf.reduce_sum(z, 2), [[sum(r) for r in row] for row in deep]),
            (wf.reduce_sum(z, 1), [[sum(c) for c in columns(row)] for row in deep]),
            (wf.reduce_sum(z, [1, 2]), [sum(map(sum, row)) for row in deep]),
            (wf.cumsum(x, 1), [np.cumsum(r).tolist() for r in rows]),
            (wf.nn.softmax(f), [(np.exp(r) / np.exp(r).sum()).tolist() for r in rows]),
        ]

    check(make)


def test_joining_and_repeating() -> None:
    def make(rng: np.random.Generator) -> list[tuple[Any, Any]]:
        a, b = nested(rng, 2, 3), nested(rng, 2, 3)
        x, y = ragged(a), ragged(b)
        deep = nested(rng, 3, 3)
        z = ragged(deep, 3)
        return [
            (wf.concat([x, y], 0), a + b),
            (
                wf.concat([x, y, [[7], [8], [9]]], 1),
                [[*p, *q, n] for p, q, n in zip(a, b, (7, 8, 9), strict=True)],
            ),
            (wf.concat([z, z], 2), [[r + r for r in row] for row in deep]),
            (wf.stack([x, y]), [a, b]),
            (wf.stack([x, y], 1), [[p, q] for p, q in zip(a, b, strict=True)]),
            (wf.stack([x, x], -1), [[[n, n] for n in row] for row in a]),
            (wf.ragged.stack([[1, 2], [3], wf.zeros([0], wf.int32)]), [[1, 2], [3], []]),
            (wf.tile(x, [2, 3]), [row * 3 for row in a] * 2),
            (wf.tile(z, [1, 2, 2]), [[r * 2 for r in row] * 2 for row in deep]),
            (wf.reverse(x, [0]), a[::-1]),
            (wf.reverse(z, [1, 2]), [[r[::-1] for r in row[::-1]] for row in deep]),
            (wf.split(x, [1, 2])[1], a[1:]),
            (wf.expand_dims(x, 1), [[row] for row in a]),
            (wf.squeeze(wf.expand_dims(x, 1), 1), a),
            (wf.size(z), sum(len(r) for row in deep for r in row)),
            (wf.rank(z), 3),
        ]

    check(make)


def test_gathering_and_masks() -> None:
    def make(rng: np.random.Generator) -> list[tuple[Any, Any]]:
        a = [[*row, 5] for row in nested(rng, 2, 3)]
        x = ragged(a)
        which = [[int(rng.integers(0, len(row))) for _ in range(rng.integers(0, 3))] for row in a]
        deep = nested(rng, 3, 3)
        z = ragged(deep, 3)
        keep = of_leaves(lambda n: n > 3, deep)
        numbers = rng.integers(0, 3, 3)
        return [
            (wf.gather(x, [2, 0]), [a[2], a[0]]),
            (wf.gather(x, [[0], [1]]), [[a[0]], [a[1]]]),
            (wf.gather(x, ragged([[1], [], [0, 2]])), [[a[1]], [], [a[0], a[2]]]),
            (
                wf.gather(x, ragged(which), batch_dims=1, axis=1),
                [[row[i] for i in at] for row, at in zip(a, which, strict=True)],
            ),
            (wf.gather(x, [0, 0], axis=1), [[row[0]] * 2 for row in a]),
            (wf.gather_nd(x, [[0, 0], [2, 0]]), [a[0][0], a[2][0]]),
            (wf.gather_nd(z, [[1], [0]]), [deep[1], deep[0]]),
            (
                wf.ragged.boolean_mask(z, ragged(keep, 3, wf.bool)),
                [[[n for n in r if n > 3] for r in row] for row in deep],
            ),
            (wf.ragged.boolean_mask(z, [True, False, True]), [deep[0], deep[2]]),
            (
                wf.where(x > 4),
                [[i, j] for i, row in enumerate(a) for j, n in enumerate(row) if n > 4],
            ),
            (wf.where([True, False, True], x, x[::-1]), [a[0], a[1], a[2]]),
            (
                wf.ragged.stack_dynamic_partitions(x, numbers, 3),
                [[row for row, n in zip(a, numbers, strict=True) if n == i] for i in range(3)],
            ),
            (wf.unsorted_segment_sum(ragged([[1, 2], [3], [4]]), [1, 0, 1], 2), [[3], [5, 2]]),
            (wf.dynamic_partition(x, [0, 1, 0], 2)[0], [a[0], a[2]]),
        ]

    check(make)


def test_an_index_outside_its_row_is_an_error() -> None:
    x = ragged([[1], [2, 3]])
    for wrong in (
        wf.gather(x, ragged([[1], [0]]), batch_dims=1, axis=1),
        wf.gather_nd(x, [[0, 1]]),
        wf.gather(x, [2]),
    ):
        with wf.Session() as session, pytest.raises(errors.InvalidArgumentError):
            session.run(wrong)


def test_ranges_crosses_and_counts() -> None:
    a, b = ragged([[1, 2], []]), wf.ragged.constant([["x"], ["y", "z"]])
    counted = wf.sparse.bincount(ragged([[1, 1, 0], [2]]), axis=-1)
    assert fetched(
        wf.ragged.range([3, 0, 2]),
        wf.ragged.range([0, 5], [4, 1], [2, -2]),
        wf.ragged.range(wf.constant(1.0), 2.0, 0.5),
        wf.ragged.cross([a, b]),
        wf.sparse.to_dense(counted),
        wf.ragged.map_flat_values(wf.multiply, a, 3),
    ) == [
        [[0, 1, 2], [], [0, 1]],
        [[0, 2], [5, 3]],
        [[1.0, 1.5]],
        [[b"1_X_x", b"2_X_x"], []],
        [[1, 2, 0], [0, 0, 1]],
        [[3, 6], []],
    ]
    hashed = fetched(wf.ragged.cross_hashed([a, b], 10))[0]
    assert [len(row) for row in hashed] == [2, 0]
    assert all(0 <= n < 10 for row in hashed for n in row)


def test_text() -> None:
    text = wf.ragged.constant([["ab", "π c"], [], [""]])
    codes, starts = wf.strings.unicode_decode_with_offsets(text, "UTF-8")
    assert fetched(
        wf.strings.length(text),
        wf.strings.upper(text),
        wf.strings.join([text, "!"]),
        wf.strings.reduce_join(text, axis=1, separator="-"),
        wf.strings.bytes_split(["ab", ""]),
        wf.strings.unicode_split("aπ", "UTF-8"),
        codes,
        starts,
        wf.strings.unicode_encode(codes, "UTF-8"),
        wf.strings.split(text, result_type="RaggedTensor"),
        wf.strings.ngrams(wf.strings.split(["a b c", "d"], result_type="RaggedTensor"), 2),
        wf.string_split(["a b", ""], result_type="RaggedTensor"),
    ) == [
        [[2, 4], [], [0]],
        [[b"AB", "π C".encode()], [], [b""]],
        [[b"ab!", "π c!".encode()], [], [b"!"]],
        ["ab-π c".encode(), b"", b""],
        [[b"a", b"b"], []],
        [b"a", "π".encode()],
        [[[97, 98], [960, 32, 99]], [], [[]]],
        [[[0, 1], [0, 2, 3]], [], [[]]],
        [[b"ab", "π c".encode()], [], [b""]],
        [[[b"ab"], ["π".encode(), b"c"]], [], [[]]],
        [[b"a b", b"b c"], []],
        [[b"a", b"b"], []],
    ]


def test_gradients_flow_through_flat_values() -> None:
    x = wf.ragged.placeholder(wf.float64, 1, [])
    y = wf.reduce_sum(x * x, axis=1)
    loss = wf.reduce_sum(y * [1.0, 10.0, 100.0]) + wf.reduce_sum(wf.concat([x, x], 1)[:, 1:])
    (slope,) = wf.gradients(loss, x.flat_values)
    rows = [[1.0, 2.0], [], [3.0]]
    with wf.Session() as session:
        assert session.run(slope, {x: rows}).tolist() == [2 + 1, 4 + 2, 600 + 1]


def test_ops_that_take_no_ragged_tensors_say_so() -> None:
    x = ragged([[1, 2], [3]])
    with Parts() as parts:
        calls: dict[str, Callable[[], Any]] = {
            "convert": lambda: wf.convert_to_tensor(x),
            "shape": lambda: wf.shape(x),
            "reshape": lambda: wf.reshape(x, [-1]),
            "transpose": lambda: wf.transpose(x),
            "argmax": lambda: wf.argmax(x),
            "matmul": lambda: wf.matmul(x, x),
            "pad": lambda: wf.pad(x, [[0, 0], [0, 1]]),
            "top_k": lambda: wf.nn.top_k(x),
            "if": lambda: bool(x > 1),
            "numpy": lambda: np.asarray(x),
            "len": lambda: len(x),
        }
        for name, call in calls.items():
            with parts.part(name), pytest.raises(errors.InvalidTypeError):
                call()


def test_sessions_loops_branches_and_functions_take_ragged_tensors() -> None:
    x = wf.ragged.placeholder(wf.int32, 1, [])
    rows = [[1], [], [2, 3]]

    @wf.function
    def doubled(value: Any) -> Any:
        return wf.concat([value, value], 1), wf.reduce_sum(value, 1)

    _, grown = wf.while_loop(lambda i, _: i < 2, lambda i, r: (i + 1, wf.concat([r, r], 1)), [0, x])
    spec = wf.RaggedTensorSpec([None], wf.int32, ragged_rank=0)
    wide, sums = doubled(x)
    chosen = wf.cond(wf.size(x) > 2, lambda: x[::-1], lambda: x * 0)
    found = fetched(
        {"x": x}["x"],
        grown,
        wide,
        sums,
        chosen,
        wf.map_fn(wf.reduce_sum, x),
        wf.map_fn(lambda row: row[::-1], x, fn_output_signature=spec),
        feed={x: rows},
    )
    assert found == [
        rows,
        [row * 4 for row in rows],
        [row * 2 for row in rows],
        [1, 0, 5],
        rows[::-1],
        [1, 0, 5],
        [row[::-1] for row in rows],
    ]
    with wf.Session() as session:
        value = session.run(x, {x: wf.ragged.constant_value(rows)})
        assert value == wf.ragged.constant_value(rows, np.int32)
        assert lists([session.run(x, {x: value})]) == [rows]
        for wrong in (3, [[[1]]], wf.ragged.constant_value([[[1]]])):
            with pytest.raises((errors.InvalidTypeError, errors.InvalidArgumentError)):
                session.run(x, {x: wrong})


def test_a_graph_with_ragged_ops_is_imported() -> None:
    with wf.Graph().as_default() as graph:
        x = wf.ragged.constant([[1, 2], [3]])
        wf.identity(wf.gather(x, [1, 0]).to_tensor(), name="found")
        message = graph.as_graph_def()
    with wf.Graph().as_default() as graph:
        wf.import_graph_def(message, name="")
        with wf.Session() as session:
            assert session.run("found:0").tolist() == [[3, 0], [1, 2]]


def test_rows_without_values_are_filled() -> None:
    with wf.Graph().as_default():
        values, default = wf.constant([5.0, 6.0, 7.0]), wf.constant(-1.0)
        filled = wf.ragged_fill_empty_rows([0, 2, 2], values, nrows=4, default_value=default)
        grads = wf.gradients(filled.output_values * [1.0, 2.0, 3.0, 4.0, 5.0], [values, default])
        by_hand = wf.ragged_fill_empty_rows_grad(
            filled.reverse_index_map, [1.0, 2.0, 3.0, 4.0, 5.0]
        )
        with wf.Session() as session:
            found = session.run(filled)
            assert found.output_value_rowids.tolist() == [0, 1, 2, 2, 3]
            assert found.output_values.tolist() == [5, -1, 6, 7, -1]
            assert found.empty_row_indicator.tolist() == [False, True, False, True]
            assert found.reverse_index_map.tolist() == [0, 2, 3]
            assert [each.tolist() for each in session.run(grads)] == [[1, 3, 4], 7]
            assert [each.tolist() for each in session.run(by_hand)] == [[1, 3, 4], 7]


def test_kept_axes_and_stacks_of_uniform_rows_stay_uniform() -> None:
    x = wf.ragged.constant([[[1, 2], [3, 4]], []], ragged_rank=1, inner_shape=(2,))
    total = wf.reduce_sum(x, axis=1, keepdims=True)
    assert isinstance(total, wf.Tensor)
    both = wf.stack([x, x + 1], axis=2)
    assert both.ragged_rank == 1
    with wf.Session() as session:
        assert session.run(total).tolist() == [[[4, 6]], [[0, 0]]]
        value = session.run(both)
    assert value.to_list() == [[[[1, 2], [2, 3]], [[3, 4], [4, 5]]], []]
    assert wf.split(x, 1, axis=1) == [x]


def test_lengths_of_axes_from_the_end() -> None:
    x = wf.ragged.constant([[[1, 2], [3]], []], dtype=wf.int32, ragged_rank=2)
    with wf.Session() as session:
        assert session.run(x.row_lengths(-1)).to_list() == [[2, 1], []]
        assert session.run(x.row_lengths(-2)).tolist() == [2, 0]
        assert session.run(x.row_lengths(-3)) == 2
    with pytest.raises(errors.InvalidArgumentError, match="in \\[-rank, rank\\)"):
        x.row_lengths(-4)


def test_segments_in_any_order_are_counted() -> None:
    with wf.Session() as session:
        assert session.run(wf.ragged.segment_ids_to_row_splits([3, 1])).tolist() == [0, 0, 1, 1, 2]
        none = wf.zeros([0], wf.int32)
        assert session.run(wf.ragged.segment_ids_to_row_splits(none, 2)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("splits", [[0, 3, 1], [1, 2], [0, 1], [0, -1, 2]])
def test_a_fed_value_with_splits_that_are_none_is_refused(splits: list[int]) -> None:
    x = wf.ragged.placeholder(wf.int64, 1)
    value = wf.ragged.RaggedTensorValue(np.array([1, 2]), np.array(splits, np.int64))
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError, match="row_splits"):
        session.run(x, {x: value})


@pytest.mark.parametrize(
    "make",
    [
        lambda: wf.RaggedTensor.from_value_rowids([1, 2], [0, 2**60]),
        lambda: wf.RaggedTensor.from_value_rowids([1, 2], [0, 1], nrows=2**60),
        lambda: wf.RaggedTensor.from_uniform_row_length(wf.zeros([0]), 0, nrows=2**50),
        lambda: wf.ragged.segment_ids_to_row_splits([2**60]),
        lambda: wf.ragged.constant([[1]])[2**65],
        lambda: wf.ragged.constant([[1]]).to_tensor(shape=wf.constant([-7, 2])),
        lambda: wf.ragged.range(wf.constant([2**50], wf.int64)),
        lambda: wf.tile(wf.ragged.constant([[1, 2]]), wf.constant([2**40, 2**20], wf.int64)),
    ],
)
def test_sizes_that_no_machine_has_are_named_errors(make: Callable[[], Any]) -> None:
    with wf.Session() as session, pytest.raises(errors.OpError):
        session.run(make())
