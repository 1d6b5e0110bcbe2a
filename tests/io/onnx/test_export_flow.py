"""Branches and loops as If, Loop and Scan: three answers agree, those of others included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from weft_testing.onnx_evaluators import REFERENCE, answers  # noqa: E402

import weft as wf  # noqa: E402
from weft_tensor import errors  # noqa: E402


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield


def agree(fetches: Any, x: Any, *values: Any, without: tuple[str, ...] = ()) -> Any:
    """Export, and compare weft, an ONNX evaluator and the imported model for each x."""
    names = [f"y{i}" for i in range(len(fetches))] if isinstance(fetches, list) else ["y"]
    every = fetches if isinstance(fetches, list) else [fetches]
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        outputs = dict(zip(names, every, strict=True))
        model = wf.onnx.export(outputs, {"x": x}, session)
        wanted = [session.run(every, {x: value}) for value in values]
    with wf.Graph().as_default(), wf.Session() as session:
        back = wf.onnx.import_model(model)
        for value, expected in zip(values, wanted, strict=True):
            value = np.asarray(value, x.dtype.numpy)
            again = session.run(list(back.outputs.values()), {back.inputs["x"]: value})
            for found in (again, *answers(model, {"x": value}, without)):
                for a, b in zip(found, expected, strict=True):
                    np.testing.assert_allclose(a, b, 1e-5, 1e-6)
    return model


def ops(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


def loops(model: Any) -> list[str]:
    """The ops of all loops, those in subgraphs included."""
    return [op for op in all_ops(model.graph) if op in ("Loop", "Scan")]


def test_cond_is_if() -> None:
    x = wf.placeholder(wf.float32, [None], name="x")
    w = wf.Variable([2.0, 3.0])
    y = wf.cond(wf.reduce_sum(x) > 0, lambda: x * w, lambda: wf.exp(x) - w)
    model = agree(y, x, [1.0, 2.0], [-1.0, -2.0])
    assert ops(model).count("If") == 1


def test_branches_give_several_things_and_what_comes_from_outside() -> None:
    x = wf.placeholder(wf.float32, [2], name="x")
    a, b = wf.cond(x[0] > 0, lambda: (x, x + 1.0), lambda: (x * 2.0, x))
    agree([a, b, a + b], x, [1.0, 2.0], [-1.0, 2.0])


def test_nested_conditions() -> None:
    x = wf.placeholder(wf.float32, [], name="x")
    y = wf.case([(x < -1.0, lambda: x * 2.0), (x < 1.0, lambda: wf.square(x))], default=lambda: -x)
    z = wf.cond(x > 0, lambda: wf.cond(x > 5.0, lambda: x, lambda: y), lambda: x - 1.0)
    agree([y, z], x, -3.0, 0.5, 3.0, 7.0)


def test_images_in_branches_are_turned_inside() -> None:
    x = wf.placeholder(wf.float32, [1, 4, 4, 2], name="x")
    h = wf.layers.conv2d(x, 3, 3, padding="same")
    y = wf.cond(wf.reduce_sum(x) > 0, lambda: wf.layers.conv2d(h, 3, 1), lambda: wf.nn.relu(h))
    agree(y + h, x, np.ones((1, 4, 4, 2)), -np.ones((1, 4, 4, 2)))


def test_while_loop_is_loop() -> None:
    x = wf.placeholder(wf.float32, [None], name="x")
    w = wf.Variable(1.5)
    _, y = wf.while_loop(
        lambda i, v: wf.logical_and(i < 10, wf.reduce_sum(v) < 50.0),
        lambda i, v: (i + 1, v * w + wf.cast(i, wf.float32)),
        [0, x],
    )
    model = agree(y, x, [1.0, 2.0], [60.0], [-1.0, -2.0, 4.0])
    assert ops(model).count("Loop") == 1


def test_loops_in_loops_and_conditions_in_loops() -> None:
    x = wf.placeholder(wf.float32, [2], name="x")

    def inner(v: Any) -> Any:
        return wf.while_loop(lambda k, _: k < 3, lambda k, u: (k + 1, u + x), [0, v])[1]

    def body(i: Any, v: Any) -> Any:
        moved = wf.cond(wf.equal(i % 2, 0), lambda: inner(v), lambda: v * 0.5)
        return i + 1, moved

    agree(wf.while_loop(lambda i, _: i < 5, body, [0, x])[1], x, [1.0, 2.0])


def test_shapes_may_change_in_a_loop() -> None:
    x = wf.placeholder(wf.float32, [None, 2], name="x")
    y = wf.while_loop(
        lambda v: wf.shape(v)[0] < 20,
        lambda v: [wf.concat([v, v], 0)],
        [x],
        shape_invariants=[wf.TensorShape([None, 2])],
    )
    agree(y, x, np.ones((3, 2)), np.ones((30, 2)))


def _scan(x: Any) -> Any:
    return wf.scan(lambda a, b: a * 0.5 + b, x)


def _map(x: Any) -> Any:
    return wf.map_fn(lambda row: wf.reduce_sum(row) * row, x)


def _reversed(x: Any) -> Any:
    return wf.scan(lambda a, b: a + b, x, reverse=True)


def _grown(x: Any) -> Any:
    array = wf.TensorArray(wf.float32, 0, dynamic_size=True)
    turns = wf.shape(x)[0]
    return wf.while_loop(
        lambda i, _: i < turns, lambda i, a: (i + 1, a.write(i, x[i] * 2.0)), [0, array]
    )[1].stack()


def _gathered(x: Any) -> Any:
    array = wf.TensorArray(wf.float32, 3, clear_after_read=False).unstack(x)
    return array.gather([2, 0]) + wf.cast(array.size(), wf.float32) + array.read(1)


def _joined(x: Any) -> Any:
    array = wf.TensorArray(wf.float32, 2, infer_shape=False)
    return wf.ensure_shape(array.write(0, x[:1]).write(1, x).concat(), [None, 2])


@pytest.mark.parametrize(
    ("make", "op"),
    [
        (_scan, "Scan"),
        (_map, "Scan"),
        (_reversed, "Scan"),
        (_grown, "Scan"),
        (_gathered, None),
        (_joined, None),
    ],
)
def test_arrays_of_tensors(make: Callable[[Any], Any], op: str | None) -> None:
    x = wf.placeholder(wf.float32, [None, 2], name="x")
    # ONNX's evaluator knows no Scan that goes backwards.
    without = (REFERENCE,) if make is _reversed else ()
    model = agree(make(x), x, np.arange(6.0).reshape(3, 2), without=without)
    assert loops(model) == ([op] if op else [])
    assert make is _joined or not any("Sequence" in each for each in all_ops(model.graph))


def all_ops(graph: Any) -> list[str]:
    found = []
    for node in graph.node:
        found.append(node.op_type)
        for each in node.attribute:
            found += all_ops(each.g)
    return found


def _rows(x: Any, count: Any, first: Any, body: Callable[[Any, Any], Any], **more: Any) -> Any:
    """Write to an array of `count` rows in a loop while `i < end`, by `step`."""
    end, step = more.pop("end", count), more.pop("step", 1)
    array = wf.TensorArray(wf.float32, count, element_shape=[2], **more)
    going = (lambda i, _: i < end) if step > 0 else (lambda i, _: i >= end)
    return wf.while_loop(going, lambda i, a: (i + step, body(i, a)), [first, array])[1].stack()


def _length(x: Any) -> Any:
    return wf.shape(x)[0]


LOOPS: dict[str, tuple[Callable[[Any], Any], str, bool]] = {
    # what, ONNX's op, whether it does without sequences
    "all rows": (
        lambda x: _rows(x, _length(x), 0, lambda i, a: a.write(i, x[i] * 2.0)), "Scan", True,
    ),
    "some of the first": (
        lambda x: _rows(x, _length(x), 0, lambda i, a: a.write(i, x[i]), end=2), "Loop", True,
    ),
    "none": (lambda x: _rows(x, _length(x), 0, lambda i, a: a.write(i, x[i]), end=0), "Loop", True),
    "from the second": (
        lambda x: _rows(x, _length(x), 1, lambda i, a: a.write(i, x[i])), "Loop", False,
    ),
    "backwards": (
        lambda x: _rows(
            x, _length(x), _length(x) - 1, lambda i, a: a.write(i, x[i]), end=0, step=-1
        ), "Scan", True,
    ),
    "backwards, not all": (
        lambda x: _rows(
            x, _length(x), _length(x) - 1, lambda i, a: a.write(i, x[i]), end=1, step=-1
        ), "Loop", False,
    ),
    "every other one": (
        lambda x: _rows(x, _length(x), 0, lambda i, a: a.write(i, x[i]), step=2), "Loop", False,
    ),
    "other places": (
        lambda x: _rows(x, _length(x), 0, lambda i, a: a.write(_length(x) - 1 - i, x[i])),
        "Loop", False,
    ),
    "two maps in one": (
        lambda x: wf.add_n(wf.map_fn(lambda r: (r * 2.0, wf.exp(r)), x, (wf.float32, wf.float32))),
        "Scan", True,
    ),
    "rows of positions": (
        lambda x: wf.scan(lambda a, i: a + x[i] * x[0], wf.range(_length(x)), x[0]), "Scan", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_arrays_that_loops_write(name: str) -> None:
    make, op, stacked = LOOPS[name]
    x = wf.placeholder(wf.float32, [None, 2], name="x")
    # ONNX's evaluator loses the place of what is inserted, has no Loop without turns, and knows no
    # Scan that goes backwards.
    without = () if stacked and name not in ("none", "backwards") else (REFERENCE,)
    model = agree(make(x), x, np.arange(6.0).reshape(3, 2), without=without)
    assert loops(model) == [op]
    assert stacked == (not any("Sequence" in each for each in all_ops(model.graph)))


@pytest.mark.parametrize("make", [_scan, _map, _reversed])
def test_loops_over_known_rows_are_scans(make: Callable[[Any], Any]) -> None:
    x = wf.placeholder(wf.float32, [3, 2], name="x")
    # ONNX's evaluator knows no Scan that goes backwards.
    without = (REFERENCE,) if make is _reversed else ()
    model = agree(make(x), x, np.arange(6.0).reshape(3, 2), without=without)
    assert "Scan" in ops(model) and "Loop" not in ops(model)


@pytest.mark.parametrize("count", [3, 0])
def test_a_scan_from_the_last_row_writes_from_the_first_on(count: int) -> None:
    """`count` is 0 for an array that grows."""
    x = wf.placeholder(wf.float32, [3, 2], name="x")
    forward = wf.TensorArray(wf.float32, count, dynamic_size=not count, element_shape=[2])
    backward = wf.TensorArray(wf.float32, 3, element_shape=[2])
    rows = wf.TensorArray(wf.float32, 3).unstack(x)
    found = wf.while_loop(
        lambda i, *_: i >= 0,
        lambda i, j, a, b: (i - 1, j + 1, a.write(j, rows.read(i)), b.write(i, x[i] * 2.0)),
        [2, 0, forward, backward],
    )
    values = [found[2].stack(), found[3].stack()]
    # ONNX's evaluator knows no Scan that goes backwards.
    model = agree(values, x, np.arange(6.0).reshape(3, 2), without=(REFERENCE,))
    assert "Scan" in ops(model)


def test_a_scan_over_the_first_of_known_rows() -> None:
    x = wf.placeholder(wf.float32, [3, 2], name="x")
    y = _rows(x, 4, 0, lambda i, a: a.write(i, x[i]), end=2)
    assert "Scan" in ops(agree(y, x, np.arange(6.0).reshape(3, 2)))


def test_a_scan_with_several_states_and_results_and_what_is_outside() -> None:
    """Rows of `x` are the turns; those of `w`, of which there are more, the counter tells."""
    x = wf.placeholder(wf.float32, [None, 2], name="x")
    w = wf.Variable(np.arange(8.0, dtype=np.float32).reshape(4, 2))
    sums, squares = (wf.TensorArray(wf.float32, _length(x)) for _ in range(2))

    def body(i: Any, total: Any, most: Any, a: Any, b: Any) -> Any:
        row = x[i] * w[i] + wf.reduce_sum(w)
        total, most = total + row, wf.maximum(most, wf.reduce_max(row))
        return i + 1, total, most, a.write(i, total * most), b.write(i, wf.square(row)[:1])

    first = [0, wf.zeros([2]), wf.constant(-1.0), sums, squares]
    _, total, most, a, b = wf.while_loop(lambda i, *_: i < _length(x), body, first)
    model = agree([total, most, a.stack(), b.stack()], x, np.ones((3, 2)), np.ones((0, 2)))
    assert loops(model) == ["Scan"]


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_of_dynamic_lengths_in_scans(reverse: bool) -> None:
    x = wf.placeholder(wf.float32, [None, None, 2], name="x")
    w = wf.Variable([0.5, -0.25])

    def row(a: Any, m: Any) -> Any:
        inner = wf.scan(lambda b, r: b * w + r * a[0], m, wf.ones([2]), reverse=not reverse)
        return a + wf.reduce_sum(inner, 0)

    y = wf.scan(row, x, wf.zeros([2]), reverse=reverse)
    values = [np.linspace(0, 1, 24).reshape(4, 3, 2), np.ones((2, 0, 2)), np.ones((0, 3, 2))]
    model = agree(y, x, *values, without=(REFERENCE,))
    assert loops(model) == ["Scan", "Scan"]


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_a_recurrent_network_over_any_number_of_steps_is_a_scan(cell: str) -> None:
    x = wf.placeholder(wf.float32, [2, None, 3], name="x")
    made = wf.nn.rnn_cell.LSTMCell(4) if cell == "LSTM" else wf.nn.rnn_cell.GRUCell(4)
    y, _ = wf.nn.dynamic_rnn(made, x, dtype=wf.float32)
    rng = np.random.default_rng(0)
    values = [rng.standard_normal((2, steps, 3)) for steps in (5, 1, 0)]
    assert loops(agree(y, x, *values)) == ["Scan"]


def test_a_scan_over_rows_of_a_variable() -> None:
    x = wf.placeholder(wf.float32, [2], name="x")
    w = wf.Variable(np.arange(6.0, dtype=np.float32).reshape(3, 2))
    model = agree(wf.foldl(lambda a, row: a * 0.5 + row, w, x), x, [1.0, 2.0])
    assert loops(model) == ["Scan"]


def test_what_reads_other_rows_than_those_of_its_turns_is_no_scan() -> None:
    x = wf.placeholder(wf.float32, [None, 2], name="x")

    def of(going: Any, at: Any) -> Any:
        return wf.while_loop(going, lambda i, s: (i + 1, s + x[at(i)]), [0, wf.zeros([2])])[1]

    def all_rows(i: Any, _: Any) -> Any:
        return i < _length(x)

    found = [
        of(all_rows, lambda i: i - 1),
        of(all_rows, lambda i: i // 2),
        of(lambda i, s: wf.logical_and(i < _length(x), wf.reduce_sum(s) < 9.0), lambda i: i),
        of(lambda i, _: i < _length(x) - 1, lambda i: i + 1),
        of(lambda i, _: i < wf.cast(x[0, 0], wf.int32), lambda i: i),
    ]
    model = agree(found, x, np.arange(1.0, 7.0).reshape(3, 2))
    assert loops(model) == ["Loop"] * len(found)


def test_a_loop_in_a_scan_tells_its_shape() -> None:
    x = wf.placeholder(wf.float32, [4, 3, 2], name="x")
    y = wf.scan(lambda a, m: a * 0.5 + wf.foldr(lambda b, r: b + r * a[0], m), x, wf.ones([3, 2]))
    model = agree(y, x, np.linspace(0, 1, 24).reshape(4, 3, 2), without=(REFERENCE,))
    assert "Scan" in ops(model)
    (scan,) = (node for node in model.graph.node if node.op_type == "Scan")
    (body,) = (each.g for each in scan.attribute if each.name == "body")
    assert all(each.type.tensor_type.HasField("shape") for each in body.output)


def test_scans_in_scans() -> None:
    x = wf.placeholder(wf.float32, [3, 2], name="x")
    y = wf.map_fn(lambda r: wf.map_fn(lambda e: e * wf.reduce_sum(r) + x[0, 1], r), x)
    model = agree(y, x, np.arange(6.0).reshape(3, 2))
    assert all_ops(model.graph).count("Scan") == 2


def test_no_rows_at_all() -> None:
    x = wf.placeholder(wf.float32, [None, 2], name="x")
    agree(wf.map_fn(lambda row: row * 2.0, x), x, np.ones((0, 2)), without=(REFERENCE,))
    y = wf.map_fn(lambda row: row * 2.0, wf.ensure_shape(x, [0, 2]))
    assert "Scan" not in ops(agree(y, x, np.ones((0, 2)), without=(REFERENCE,)))


def test_a_state_that_may_change_its_shape_is_none_of_a_scan() -> None:
    x = wf.placeholder(wf.float32, [3, 2], name="x")
    first = x[wf.cast(x[0, 0], wf.int32) :]
    y = wf.foldl(lambda a, row: wf.concat([a, row[None]], 0), x, first)
    model = agree(y, x, np.arange(6.0).reshape(3, 2))
    assert "Loop" in ops(model) and "Scan" not in ops(model)


def test_a_recurrent_network_of_known_sizes_is_a_scan() -> None:
    x = wf.placeholder(wf.float32, [2, 5, 3], name="x")
    y, _ = wf.nn.dynamic_rnn(wf.nn.rnn_cell.LSTMCell(4), x, dtype=wf.float32)
    rng = np.random.default_rng(0)
    model = agree(y, x, rng.standard_normal((2, 5, 3)))
    assert "Scan" in ops(model)


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_recurrent_networks(cell: str) -> None:
    x = wf.placeholder(wf.float32, [None, None, 3], name="x")
    made = wf.nn.rnn_cell.LSTMCell(4) if cell == "LSTM" else wf.nn.rnn_cell.GRUCell(4)
    lengths = wf.stack([wf.shape(x)[1], 2])
    y, _ = wf.nn.dynamic_rnn(made, x, dtype=wf.float32, sequence_length=lengths)
    rng = np.random.default_rng(0)
    # ONNX's evaluator joins the matrices that turns of a Loop give, which are to be stacked.
    values = rng.standard_normal((2, 5, 3)), rng.standard_normal((2, 2, 3))
    agree(y, x, *values, without=(REFERENCE,))


def test_ranks_of_inputs_and_results_must_be_known() -> None:
    x = wf.placeholder(wf.float32, None, name="x")
    with wf.Session() as session, pytest.raises(errors.UnimplementedError, match="'x', 'y'"):
        wf.onnx.export({"y": wf.nn.relu(x)}, x, session)


def test_what_a_branch_or_loop_holds_that_has_no_form_is_named_once() -> None:
    x = wf.placeholder(wf.float32, [2], name="x")
    y = wf.while_loop(
        lambda v: wf.reduce_sum(wf.lgamma(v)) < 1.0, lambda v: [wf.digamma(v, name="odd")], [x]
    )
    with wf.Session() as session, pytest.raises(errors.UnimplementedError) as caught:
        wf.onnx.export(y, x, session)
    assert str(caught.value).count("(Digamma)") == 1
    assert str(caught.value).count("(Lgamma)") == 1


def test_gradients_of_arrays_are_named() -> None:
    x = wf.placeholder(wf.float32, [3, 2], name="x")
    (y,) = wf.gradients(wf.scan(lambda a, b: a * b + b, x), x)
    with wf.Session() as session, pytest.raises(errors.UnimplementedError, match="StackV2"):
        wf.onnx.export({"y": y}, x, session)
