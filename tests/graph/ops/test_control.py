"""Groups, assertions, printing, Python functions, and the checks built on them."""

from __future__ import annotations

import gc
import logging
import sys
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
from weft_testing.evaluate import Evaluator, evaluate

from weft_graph import Graph
from weft_graph.ir.builder import constant, convert_to_tensor
from weft_graph.ir.indexed_slices import IndexedSlices, SparseTensor
from weft_graph.ops import array, checks, control, shape_checks
from weft_tensor import dtypes, errors


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with Graph().as_default() as graph:
        yield graph


# --------------------------------------------------------------------------------- waiting


def test_a_group_waits_for_everything() -> None:
    a, b = constant(1), control.no_op()
    node = control.group(a, [b, {"x": a}], None)
    assert node.type == "NoOp" and set(node.control_inputs) == {a.node, b}
    assert control.group().control_inputs == []
    assert control.group(a, name="train").name == "train"


def test_a_group_gathers_per_device(_graph: Graph) -> None:
    nodes = []
    for device in ("/device:CPU:0", "/device:CPU:1"):
        with _graph.device(device):
            nodes += [control.no_op(), control.no_op()]
    node = control.group(*nodes, name="all")
    assert node.name == "all" and len(node.control_inputs) == 2
    for part in node.control_inputs:
        assert {other.device for other in part.control_inputs} == {part.device}


def test_dependencies() -> None:
    first = control.no_op()
    y = control.with_dependencies([first], constant(3.0), name="after")
    assert y.node.type == "Identity" and y.node.control_inputs == [first]
    assert y.node.name == "after"
    slices = IndexedSlices(constant([1.0]), constant([0]))
    after = control.with_dependencies([first], slices)
    assert isinstance(after, IndexedSlices) and after.indices is slices.indices


def test_a_tuple_comes_all_at_once() -> None:
    a, b = constant(1), constant(2)
    found = control.tuple([a, None, b])
    assert found[1] is None
    (gate,) = found[0].node.control_inputs
    assert set(gate.control_inputs) == {a.node, b.node}
    with pytest.raises(errors.InvalidArgumentError, match="at least one"):
        control.tuple([None])


# ------------------------------------------------------------------------------- messages


def test_assertions() -> None:
    x = array.placeholder(dtypes.bool_, ())
    node = control.Assert(x, ["not so:", constant([1, 2, 3, 4])])
    evaluate(node, {x: True})
    with pytest.raises(errors.InvalidArgumentError, match=r"failed: \[not so:\] \[1 2 3\.\.\.\]"):
        evaluate(node, {x: False})
    with pytest.raises(errors.InvalidArgumentError, match="rank 0"):
        control.Assert([True], [constant(1)])


def test_print(capsys: pytest.CaptureFixture[str]) -> None:
    x = constant([[1.5, 2.0], [3.0, 4.0]])
    y = control.Print(x, [x, constant(b"text"), constant(True)], "m: ", first_n=2, summarize=3)
    run = Evaluator()
    for _ in range(3):
        assert run.run(y).tolist() == [[1.5, 2], [3, 4]]
    line = "m: [[1.5 2][3]...][text][1]\n"
    assert capsys.readouterr().err == line * 2


def test_print_v2(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    x = constant(np.arange(8))
    evaluate(control.print_v2("x:", x, 1.5, output_stream=sys.stdout))
    evaluate(control.print_v2(constant("plain"), end="!"))
    evaluate(control.print_v2("{}", constant(1), sep="|"))
    captured = capsys.readouterr()
    assert captured.out == "x: [0 1 2 ... 5 6 7] 1.5\n"
    assert captured.err == "plain!{}|1\n"
    with caplog.at_level(logging.INFO, "weft"):
        evaluate(control.print_v2("logged", output_stream="log(info)"))
    assert caplog.messages == ["logged"]
    with pytest.raises(errors.InvalidArgumentError, match="output_stream"):
        control.print_v2("x", output_stream="nowhere")


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            lambda: ["at:", {"small": constant([0.5, 1.5]), "Big": 3}, [constant(1), (2,)]],
            "at: {'Big': 3, 'small': [0.5 1.5]} [1, (2,)]",
        ),
        (lambda: [{6: 12, "a": None}, True, b"raw", 1.5], "{6: 12, 'a': None} True b'raw' 1.5"),
        (lambda: [{"{}": constant(1)}, "{{}}"], "{'{}': 1} {{}}"),
        (lambda: [Pair(constant([1]), ["text"])], "Pair(left=[1], right=['text'])"),
        (lambda: [OrderedDict(b=constant(1), a=2)], "OrderedDict([('b', 1), ('a', 2)])"),
        (
            lambda: [SparseTensor([[0, 1]], [5], [2, 3])],
            "'SparseTensor(indices=[[0 1]], values=[5], shape=[2 3])'",
        ),
    ],
)
def test_print_of_structures(make: Any, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(control.print_v2(*make(), output_stream=sys.stdout))
    assert capsys.readouterr().out == f"{line}\n"


def test_print_to_a_file(tmp_path: Any) -> None:
    path = tmp_path / "lines"
    evaluate(control.print_v2("a", output_stream=f"file://{path}"))
    evaluate(control.print_v2("b", output_stream=f"file://{path}"))
    assert path.read_text() == "a\nb\n"


# ----------------------------------------------------------------------- Python functions


def test_py_func() -> None:
    def double(x: Any) -> Any:
        assert not x.flags.writeable
        return x * 2

    y = control.py_func(double, [constant([1.0, 2.0])], dtypes.float32)
    assert y.dims is None and evaluate(y).tolist() == [2, 4]
    several = control.py_func(
        lambda a, s: (a + 1, s + b"!"), [constant(1), "x"], [dtypes.int32, dtypes.string]
    )
    a, s = evaluate(several)
    assert a == 2 and s.tolist() == b"x!"
    listed = control.py_func(lambda: [1, 2], [], dtypes.int64)
    assert evaluate(listed).tolist() == [1, 2]
    node = control.py_func(lambda: None, [], [])
    evaluate(node)


def test_py_func_results_are_checked() -> None:
    wrong = control.py_func(lambda: np.float64([1]), [], dtypes.float32)
    with pytest.raises(errors.InvalidArgumentError, match="must be float32, got float64"):
        evaluate(wrong)
    few = control.py_func(lambda: (1,), [], [dtypes.int32, dtypes.int32])
    with pytest.raises(errors.InvalidArgumentError, match="2 values, got 1"):
        evaluate(few)


@pytest.mark.parametrize(
    ("result", "dtype", "message"),
    [
        (object(), dtypes.float32, "must be float32, got an object of type object"),
        ({"a": 1.0}, dtypes.string, "must be string, got an object of type dict"),
        ([None], dtypes.float32, "an object of type NoneType"),
        ({1}, dtypes.int64, "an object of type set"),
        (np.array([1.0], object), dtypes.float32, "an object of type float"),
        (2**70, dtypes.int64, "an object of type int"),
        (np.datetime64("2020-01-01"), dtypes.int64, "the NumPy type datetime64"),
        (np.zeros(2, [("a", np.float32)]), dtypes.float32, "the NumPy type"),
    ],
)
def test_py_func_results_that_no_tensor_holds(result: Any, dtype: Any, message: str) -> None:
    wrong = control.py_func(lambda: result, [], dtype)
    with pytest.raises(errors.InternalError, match=message):
        evaluate(wrong)


def test_py_func_results_of_other_types_are_no_internal_errors() -> None:
    for result in (1.5, "a", np.array(["1"]), 1j, [[1], [1, 2]]):
        with pytest.raises(errors.InvalidArgumentError) as caught:
            evaluate(control.py_func(lambda result=result: result, [], dtypes.int32))
        assert not isinstance(caught.value, errors.InternalError)


@pytest.mark.parametrize(
    ("raised", "wanted"),
    [
        (ValueError, errors.InvalidArgumentError),
        (TypeError, errors.InvalidArgumentError),
        (StopIteration, errors.OutOfRangeError),
        (NotImplementedError, errors.UnimplementedError),
        (MemoryError, errors.ResourceExhaustedError),
        (RuntimeError, errors.UnknownError),
        (errors.AbortedError, errors.AbortedError),
    ],
)
def test_py_func_errors_are_wrapped(raised: Any, wanted: Any) -> None:
    def fail() -> Any:
        raise raised("because")

    with pytest.raises(wanted, match="because"):
        evaluate(control.py_func(fail, [], dtypes.int32))


def test_py_functions_live_as_long_as_their_graph() -> None:
    with Graph().as_default() as graph:
        y = control.py_func(lambda: 1, [], dtypes.int32)
        token = y.node.attrs["token"]
        assert control.py_function_of(token)() == 1
    del y, graph
    gc.collect()
    with pytest.raises(errors.FailedPreconditionError, match="not in this process"):
        control.py_function_of(token)


def test_another_graph_cannot_name_a_python_function() -> None:
    with Graph().as_default():
        tokens = [control.hold_function(lambda: 1).token for _ in range(3)]
    numbers = [int(token.removeprefix("pyfunc_"), 16) for token in tokens]
    assert min(numbers).bit_length() > 90, "128 random bits"
    assert len({number >> 64 for number in numbers}) == 3, "no token tells of another"
    for guess in range(10):
        with pytest.raises(errors.FailedPreconditionError, match="not in this process"):
            control.py_function_of(f"pyfunc_{guess}")


# ----------------------------------------------------------------------------------- checks

RELATIONS = [
    (checks.assert_equal, [1, 2], [1, 2], [1, 3]),
    (checks.assert_none_equal, [1, 2], [2, 1], [1, 3]),
    (checks.assert_less, [1, 2], [2, 3], [1, 3]),
    (checks.assert_less_equal, [1, 2], [1, 3], [0, 3]),
    (checks.assert_greater, [1, 2], [0, 1], [1, 1]),
    (checks.assert_greater_equal, [1, 2], [1, 1], [2, 2]),
]


@pytest.mark.parametrize(("check", "x", "good", "bad"), RELATIONS)
def test_relations(check: Any, x: Any, good: Any, bad: Any) -> None:
    assert check(x, good).type == "NoOp"
    with pytest.raises(errors.InvalidArgumentError, match=r"word\. x .* did not hold"):
        check(x, bad, message="word")
    fed = array.placeholder(dtypes.int32, [2])
    node = check(fed, bad)
    with pytest.raises(errors.InvalidArgumentError, match="did not hold element-wise"):
        evaluate(node, {fed: x})
    evaluate(check(fed, good), {fed: x})


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (checks.assert_positive, 1.0, 0.0),
        (checks.assert_negative, -1.0, 0.0),
        (checks.assert_non_negative, 0.0, -1.0),
        (checks.assert_non_positive, 0.0, 1.0),
    ],
)
def test_signs(check: Any, good: Any, bad: Any) -> None:
    assert check(good).type == "NoOp"
    with pytest.raises(errors.InvalidArgumentError, match="0 for x"):
        check(bad)
    fed = array.placeholder(dtypes.float32)
    with pytest.raises(errors.InvalidArgumentError, match="element-wise"):
        evaluate(check(fed), {fed: [good, bad]})


def test_near() -> None:
    x = array.placeholder(dtypes.float32)
    node = checks.assert_near(x, [1.0, 1e6])
    evaluate(node, {x: [1.0 + 1e-6, 1e6 + 0.5]})
    with pytest.raises(errors.InvalidArgumentError, match="nearly equal"):
        evaluate(node, {x: [1.1, 1e6]})


def test_ranks() -> None:
    x = array.placeholder(dtypes.float32, [2, 3])
    for node in (
        checks.assert_rank(x, 2),
        checks.assert_rank_at_least(x, 1),
        checks.assert_rank_in(x, [1, 2]),
    ):
        assert node.type == "NoOp"
    for build in (
        lambda: checks.assert_rank(x, 1),
        lambda: checks.assert_rank_at_least(x, 3),
        lambda: checks.assert_rank_in(x, [0, 1]),
    ):
        with pytest.raises(ValueError, match=r"Received rank 2, shape \[2,3\]"):
            build()
    hidden = array.placeholder(dtypes.float32)
    for node in (
        checks.assert_rank(hidden, 1),
        checks.assert_rank_at_least(hidden, 3),
        checks.assert_rank_in(hidden, [0, 1]),
    ):
        with pytest.raises(errors.InvalidArgumentError, match="must have"):
            evaluate(node, {hidden: np.zeros((2, 3))})


def test_shapes_with_symbols() -> None:
    x = array.placeholder(dtypes.float32, [None, 3])
    y = array.placeholder(dtypes.float32, [None, 5])
    node = shape_checks.assert_shapes([(x, ("n", 3)), (y, ("n", None))])
    evaluate(node, {x: np.zeros((2, 3)), y: np.zeros((2, 5))})
    with pytest.raises(errors.InvalidArgumentError, match="must have size"):
        evaluate(node, {x: np.zeros((2, 3)), y: np.zeros((4, 5))})
    with pytest.raises(errors.InvalidArgumentError, match="size 4 at axis 1"):
        shape_checks.assert_shapes({x: ("n", 4)})
    with pytest.raises(errors.InvalidArgumentError, match="size 3 at axis 1"):
        shape_checks.assert_shapes([(x, ("n", "d")), (y, ("n", "d"))])


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([((2, 5, 2, 3), (..., "N", "Q")), ((2, 3), "NQ"), ((7, 2, 3), "*NQ")], None),
        ([((2, 5), "*N"), ((4,), "N")], "size 5 at axis 0"),
        ([((3, 3), "3N"), ((3, 4), "N.")], None),
        ([((), "N"), ((1, 2), "N2"), ((1,), ()), ((), ())], None),
        ([((2,), ())], "size 1 at axis 0"),
        ([((2, 3), None)], None),
        ([((2, 3), "N")], "rank 0 or 1"),
        ([((3,), "*NQ")], "rank at least 2"),
        ([((3,), 3)], "must be a list of sizes"),
        ([((3, 3), ("N", ...))], "only for the leading axes"),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_shapes_with_any_axes(late: bool, shapes: Any, message: str | None) -> None:
    tensors = [constant(np.ones(shape)) for shape, _ in shapes]
    if late:
        tensors = [array.placeholder_with_default(tensor, None) for tensor in tensors]

    def check() -> None:
        sizes = [wanted for _, wanted in shapes]
        evaluate(shape_checks.assert_shapes(list(zip(tensors, sizes, strict=True))))

    if message is None:
        check()
    else:
        early = "list" in message or "only" in message or not late
        with pytest.raises(errors.InvalidArgumentError, match=message if early else "must have"):
            check()


def test_shapes_of_sparse_tensors() -> None:
    sparse = SparseTensor([[0, 0]], [1], [2, 3])
    evaluate(shape_checks.assert_shapes({sparse: ("N", 3)}))
    with pytest.raises(errors.InvalidArgumentError, match=r"size 4 at axis 1, got shape \[2,3\]"):
        shape_checks.assert_shapes({sparse: ("N", 4)})


def test_types() -> None:
    x = constant(1.0)
    assert checks.assert_type(x, dtypes.float32).type == "NoOp"
    for build in (
        lambda: checks.assert_type(x, dtypes.int32),
        lambda: checks.assert_integer(x),
        lambda: checks.assert_same_float_dtype([x], dtypes.float64),
        lambda: checks.assert_same_float_dtype([constant(1)]),
        lambda: checks.assert_proper_iterable(x),
    ):
        with pytest.raises(TypeError):
            build()
    assert checks.assert_same_float_dtype([x, None]) is dtypes.float32
    checks.assert_proper_iterable([x])
    assert checks.is_numeric_tensor(x) and not checks.is_numeric_tensor(constant("a"))
    with pytest.raises(ValueError, match="Expected rank 0"):
        checks.assert_scalar([1.0])
    assert checks.assert_scalar(x) is x


def test_monotone() -> None:
    for values, decreasing, increasing in (
        ([1, 2, 2], True, False),
        ([1, 3], True, True),
        ([2, 1], False, False),
        ([], True, True),
    ):
        x = convert_to_tensor(values, dtypes.int32)
        assert evaluate(checks.is_non_decreasing(x)) == decreasing
        assert evaluate(checks.is_strictly_increasing(x)) == increasing


def test_numpy_function() -> None:
    doubled = control.numpy_function(lambda x: x * 2, [constant([1.0])], dtypes.float32, "double")
    assert doubled.name == "double:0" and doubled.node.type == "PyFunc"
    assert evaluate(doubled).tolist() == [2.0]


@pytest.mark.parametrize("level", ["info", "warning", "error"])
def test_print_to_a_level_of_the_log(level: str, caplog: pytest.LogCaptureFixture) -> None:
    import weft as wf

    printed = wf.print("seen", output_stream=getattr(wf.logging, level))
    with caplog.at_level("INFO", logger="weft"):
        wf.Session().run(printed)
    assert [(r.levelname, r.message) for r in caplog.records] == [(level.upper(), "seen")]
