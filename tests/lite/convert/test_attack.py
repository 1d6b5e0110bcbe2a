"""Random graphs, unusual shapes, invalid calls and threads: lite agrees with a session."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import weft as wf
from weft_lite import Interpreter
from weft_lite.convert import Converter
from weft_lite.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    LiteError,
    OutOfRangeError,
)

SHAPES = [(), (0,), (1,), (3,), (2, 0), (1, 4), (2, 3), (2, 1, 3), (1, 1, 2, 1, 2, 2), (5, 0, 1)]
UNARY = [
    wf.abs, wf.negative, wf.square, wf.tanh, wf.sigmoid, wf.nn.relu, wf.exp, wf.nn.elu, wf.floor,
    wf.sqrt, wf.log, wf.zeros_like, wf.ones_like, wf.nn.softplus, wf.sign, wf.is_nan,
]  # fmt: skip
BINARY = [wf.add, wf.subtract, wf.multiply, wf.maximum, wf.minimum, wf.divide, wf.less, wf.equal]
SHAPED = [
    lambda x: wf.reshape(x, [-1]),
    lambda x: wf.expand_dims(x, 0),
    lambda x: wf.transpose(x),
    lambda x: wf.reduce_sum(x, -1) if x.shape.rank else x,
    lambda x: wf.reduce_mean(x),
    lambda x: wf.reduce_max(x, 0, keepdims=True) if x.shape.rank and x.shape[0] else x,
    lambda x: wf.concat([x, x], 0) if x.shape.rank else x,
    lambda x: wf.stack([x, x], -1),
    lambda x: x[:1] if x.shape.rank else x,
    lambda x: x[..., ::-1] if x.shape.rank else x,
    lambda x: wf.pad(x, [[1, 0]] * x.shape.rank) if x.shape.rank else x,
    lambda x: wf.tile(x, [2] * x.shape.rank) if x.shape.rank else x,
    lambda x: wf.cast(wf.shape(x), wf.float32) + wf.cast(wf.size(x), wf.float32),
    lambda x: wf.cond(wf.reduce_sum(x) > 0.0, lambda: x * 2.0, lambda: x - 1.0),
    lambda x: wf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * 0.5 + x), [0, x])[1],
]


@st.composite
def programs(draw: Any) -> tuple[tuple[int, ...], list[tuple[str, int, int]], int]:
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["unary", "binary", "shaped"]),
                st.integers(0, 1 << 16),
                st.integers(0, 1 << 16),
            ),
            min_size=1,
            max_size=7,
        )
    )
    return draw(st.sampled_from(SHAPES)), steps, draw(st.integers(0, 1 << 16))


def build(x: Any, steps: list[tuple[str, int, int]]) -> list[Any]:
    """Return all float values of a program; a step uses one of them."""
    values = [x]
    for kind, op, which in steps:
        value = values[which % len(values)]
        if kind == "unary":
            made = UNARY[op % len(UNARY)](value)
        elif kind == "binary":
            other = values[(which // 7) % len(values)]
            if value.shape.as_list() != other.shape.as_list():
                other = wf.reduce_sum(other)
            made = BINARY[op % len(BINARY)](value, other)
        else:
            made = SHAPED[op % len(SHAPED)](value)
        if (made.shape.rank or 0) > 7 or (made.shape.num_elements() or 0) > 4096:
            continue
        values.append(made if made.dtype is wf.float32 else wf.cast(made, wf.float32))
    return values[1:] or [x + 1.0]


def numbers(shape: tuple[int, ...], seed: int) -> Any:
    """Normal numbers, with one that is none in some."""
    random = np.random.default_rng(seed)
    value = random.normal(size=shape).astype(np.float32)
    if value.size and seed % 4 == 0:
        value.reshape(-1)[seed % value.size] = [np.nan, np.inf, -np.inf, -0.0][seed // 4 % 4]
    return value


@given(programs())
def test_a_program_made_by_chance(program: Any) -> None:
    shape, steps, seed = program
    value = numbers(shape, seed)
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, shape, name="x")
        outputs = build(x, steps)
        wanted = session.run(outputs, {x: value})
        content = Converter.from_session(session, [x], outputs)._content([shape])
    interpreter = Interpreter(model_content=content)
    for _ in range(2):
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], value)
        interpreter.invoke()
        for details, theirs in zip(interpreter.get_output_details(), wanted, strict=True):
            ours = interpreter.get_tensor(details["index"])
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, 2e-4, 1e-5)


@given(programs(), st.integers(0, 3))
def test_a_program_with_an_open_size(program: Any, size: int) -> None:
    shape, steps, seed = program
    if not shape:
        return
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [None, *shape[1:]], name="x")
        kept = [step for step in steps if step[0] == "unary"]
        outputs = [*build(x, kept), wf.reduce_sum(x, 0), wf.reshape(x, [-1])]
        content = Converter.from_session(session, [x], outputs)._content([(4, *shape[1:])])
        interpreter = Interpreter(model_content=content)
        index = interpreter.get_input_details()[0]["index"]
        for rows in (size, 4, 0, 1):
            value = numbers((rows, *shape[1:]), seed)
            interpreter.resize_tensor_input(index, value.shape)
            interpreter.set_tensor(index, value)
            interpreter.invoke()
            wanted = session.run(outputs, {x: value})
            for details, theirs in zip(interpreter.get_output_details(), wanted, strict=True):
                ours = interpreter.get_tensor(details["index"])
                assert ours.shape == theirs.shape
                np.testing.assert_allclose(ours, theirs, 2e-4, 1e-5)


@pytest.mark.parametrize(
    "dtype", ["float32", "int32", "uint8", "int16", "int8", "int64", "bool", "float16"]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_type_and_shape_goes_through(dtype: str, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    value = (random.normal(size=shape) * 3).astype(dtype)
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(dtype, shape, name="x")
        outputs = [wf.reshape(wf.identity(x), [-1]), wf.stack([x, x]), wf.cast(x, wf.float32)]
        wanted = session.run(outputs, {x: value})
        content = Converter.from_session(session, [x], outputs).convert(samples={"x": value})
    runner = Interpreter(model_content=content).get_signature_runner()
    for ours, theirs in zip(runner(x=value).values(), wanted, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.tolist() == theirs.tolist()


@pytest.fixture
def doubler() -> Interpreter:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [None, 2], name="x")
        content = Converter.from_session(session, [x], [wf.add(x, x, name="y")], {"x": [3, 2]})
        return Interpreter(model_content=content.convert())


def run(doubler: Interpreter) -> Any:
    return doubler.get_signature_runner()(x=np.ones((3, 2), np.float32))["y"].tolist()


def test_a_signature_runner_resizes_open_inputs(doubler: Interpreter) -> None:
    runner = doubler.get_signature_runner()
    for rows in (1, 3, 0, 2):
        assert runner(x=np.ones((rows, 2), np.float32))["y"].tolist() == [[2, 2]] * rows
    assert runner(x=[[1.0, 2.0]])["y"].tolist() == [[2, 4]]
    with pytest.raises(LiteError, match="at most 3"):
        runner(x=np.ones((4, 2), np.float32))
    with pytest.raises(LiteError, match=r"requires float32 \(1, 2\), got float32 \(1, 3\)"):
        runner(x=np.ones((1, 3), np.float32))
    assert run(doubler) == [[2, 2]] * 3


def test_wrong_calls_leave_it_usable(doubler: Interpreter) -> None:
    output = doubler.get_output_details()[0]["index"]
    for wrong in (
        lambda: doubler.set_tensor(0, np.zeros((3, 2))),
        lambda: doubler.set_tensor(0, np.zeros((2, 3), np.float32)),
        lambda: doubler.set_tensor(0, np.zeros((3, 2, 1), np.float32)),
        lambda: doubler.set_tensor(output, np.zeros((3, 2), np.float32)),
        lambda: doubler.set_tensor(99, np.zeros((3, 2), np.float32)),
        lambda: doubler.set_tensor(-1, np.zeros((3, 2), np.float32)),
        lambda: doubler.get_tensor(99),
        lambda: doubler.get_tensor(-1),
        lambda: doubler.tensor(99),
        lambda: doubler.resize_tensor_input(output, [1, 2]),
        lambda: doubler.resize_tensor_input(0, [4, 2]),
        lambda: doubler.resize_tensor_input(0, [1, 3]),
        lambda: doubler.resize_tensor_input(0, [-1, 2]),
        lambda: doubler.resize_tensor_input(0, [1]),
        lambda: doubler.resize_tensor_input(0, [1, 2, 1]),
        lambda: doubler.resize_tensor_input(0, [(1 << 32) + 1, 2]),
        lambda: doubler.resize_tensor_input(0, [1.5, 2]),
        lambda: doubler.resize_tensor_input(1 << 32, [1, 2]),
        lambda: doubler.get_tensor(1 << 32),
        lambda: doubler.set_tensor(0, [["1", "2"]] * 3),
        lambda: doubler.set_tensor(0, [[1e300, 2]] * 3),
        lambda: doubler.get_signature_runner("no"),
        lambda: doubler.get_signature_runner()(z=1.0),
        lambda: doubler.get_signature_runner()(x=[["a", "b"]] * 3),
        lambda: doubler.get_signature_runner()(x=None),
        lambda: doubler.get_signature_runner()(x=np.ones((4, 2), np.float32)),
        lambda: doubler.get_signature_runner()(x=np.ones((3, 2, 1), np.float32)),
    ):
        with pytest.raises((LiteError, ValueError, TypeError)):
            wrong()
        assert run(doubler) == [[2, 2]] * 3


def test_a_size_that_values_tell_needs_a_bound() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        n = wf.placeholder(wf.int32, [], name="n")
        numbers = wf.range(0, n, 2, name="numbers")
        with pytest.raises(wf.errors.UnimplementedError, match=r"bounds=\{'numbers': \[...\]\}"):
            Converter.from_session(session, [n], [numbers]).convert()
        converter = Converter.from_session(session, [n], [numbers], {"numbers": [5]})
        run = Interpreter(model_content=converter.convert()).get_signature_runner()
    assert [run(n=count)["numbers"].tolist() for count in (9, 0, 4)] == [
        [0, 2, 4, 6, 8],
        [],
        [0, 2],
    ]
    with pytest.raises(LiteError, match="above its bound"):
        run(n=11)


def test_a_size_beyond_the_bound_is_named(doubler: Interpreter) -> None:
    with pytest.raises((InvalidArgumentError, OutOfRangeError), match="at most 3, not 4"):
        doubler.resize_tensor_input(0, [4, 2])


def test_what_python_gives_is_taken_without_loss() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x, flag = wf.placeholder(wf.int8, [2], name="x"), wf.placeholder(wf.bool, [], name="flag")
        outputs = [wf.identity(x), wf.identity(flag)]
        content = Converter.from_session(session, [x, flag], outputs).convert()
    interpreter = Interpreter(model_content=content)
    for right in ([-128, 127], [True, 0]):
        interpreter.set_tensor(0, right)
        assert interpreter.get_tensor(0).tolist() == right
    for wrong in ([1.0, 2.0], [128, 0], [-129, 0], ["1", "2"]):
        with pytest.raises(InvalidArgumentError, match="requires int8"):
            interpreter.set_tensor(0, wrong)
    interpreter.set_tensor(1, True)
    with pytest.raises(InvalidArgumentError, match="requires bool"):
        interpreter.set_tensor(1, 2)
    with pytest.raises(InvalidArgumentError, match="work_limit"):
        Interpreter(model_content=content, work_limit=-1)


def test_results_wait_for_a_plan_once_an_input_is_resized(doubler: Interpreter) -> None:
    output = doubler.get_output_details()[0]["index"]
    doubler.invoke()
    view = doubler.tensor(output)
    doubler.resize_tensor_input(0, [2, 2])
    for wrong in (view, lambda: doubler.get_tensor(output)):
        with pytest.raises(FailedPreconditionError, match="inputs were resized"):
            wrong()
    doubler.set_tensor(0, [[1, 2], [3, 4]])
    doubler.invoke()
    assert doubler.get_tensor(output).tolist() == [[2, 4], [6, 8]]


def test_a_view_outlives_its_interpreter_and_follows_it() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2], name="x")
        content = Converter.from_session(session, [x], [x + 1.0]).convert()
    interpreter = Interpreter(model_content=content)
    view = interpreter.tensor(interpreter.get_output_details()[0]["index"])()
    interpreter.set_tensor(0, [1, 2])
    interpreter.invoke()
    del interpreter
    assert view.tolist() == [2, 3]


def test_interpreters_of_one_file_in_several_threads(tmp_path: Any) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [8, 64], name="x")
        weights = np.random.default_rng(0).normal(size=(64, 64)).astype("float32")
        content = Converter.from_session(session, [x], [wf.matmul(x, weights, name="y")]).convert()
    path = tmp_path / "m.weftlite"
    path.write_bytes(content)
    wrong: list[int] = []

    def work(number: int) -> None:
        runner = Interpreter(str(path), num_threads=1 + number % 2).get_signature_runner()
        for turn in range(30):
            value = np.full((8, 64), number + turn, np.float32)
            if not np.allclose(runner(x=value)["y"], value @ weights, 1e-4, 1e-3):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=[i]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
