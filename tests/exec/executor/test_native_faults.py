"""Failures in compiled regions: bad input, and a compiler or machine that fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft_compiler import sharing
from weft_compiler.codegen.options import Options
from weft_compiler.codegen.targets import target_of
from weft_compiler.ir.expressions import INDEX, cast
from weft_compiler.ir.indices import plus
from weft_compiler.lower.rules import gather
from weft_compiler.lower.values import Value, move_elements
from weft_compiler.native import cache, code_index, program as native


class Bad(NamedTuple):
    """A fed computation and its failure.

    Attributes:
      build: from a float64 placeholder of any shape and an int32 one to a result.
      good, bad: what is fed of both.
      op: the type of the node that refuses it; a graph has one of them.
    """

    build: Callable[[Any, Any], Any]
    good: tuple[Any, Any]
    bad: tuple[Any, Any]
    op: str


X = np.linspace(0, 1, 12).reshape(4, 3)
I = np.array([0, 3, 1])  # noqa: E741
OUT = np.array([0, 4, 1])
LOW = np.array([0, -1, 1])


def _shaped(x: Any) -> Any:
    return wf.placeholder_with_default(x, [None, None])


TABLE: dict[str, Bad] = {
    "row": Bad(lambda x, i: wf.gather(x, i), (X, I), (X, OUT), "GatherV2"),
    "negative row": Bad(lambda x, i: wf.gather(x, i), (X, I), (X, LOW), "GatherV2"),
    "column": Bad(lambda x, i: wf.gather(x, i, axis=1), (X, I % 3), (X, I), "GatherV2"),
    "point": Bad(
        lambda x, i: wf.gather_nd(x, wf.expand_dims(i, 1)), (X, I), (X, OUT), "GatherNd"
    ),
    "place": Bad(
        lambda x, i: wf.scatter_nd(wf.expand_dims(i, 1), x[:3], [4, 3]), (X, I), (X, OUT),
        "ScatterNd",
    ),
    "update": Bad(
        lambda x, i: wf.tensor_scatter_nd_add(x, wf.expand_dims(i, 1), x[:3]), (X, I), (X, LOW),
        "TensorScatterAdd",
    ),
    "segment": Bad(
        lambda x, i: wf.unsorted_segment_sum(x[:3], i, 4), (X, I), (X, OUT), "UnsortedSegmentSum"
    ),
    "label": Bad(
        lambda x, i: wf.nn.sparse_softmax_cross_entropy_with_logits(labels=i, logits=x[:3]),
        (X, I % 3), (X, I), "SparseSoftmaxCrossEntropyWithLogits",
    ),
    "length": Bad(
        lambda x, i: wf.reverse_sequence(x[:3], i, seq_axis=1, batch_axis=0),
        (X, I), (X, OUT), "ReverseSequence",
    ),
    "divisor": Bad(
        lambda x, i: wf.cast(wf.floordiv(wf.cast(x * 9, wf.int32)[:, :1], i), wf.float64),
        (X, I + 1), (X, I), "FloorDiv",
    ),
    "remainder": Bad(
        lambda x, i: wf.cast(wf.floormod(wf.cast(x * 9, wf.int32)[:, :1], i), wf.float64),
        (X, I + 1), (X, I), "FloorMod",
    ),
    "size": Bad(lambda x, i: x * wf.cast(i, wf.float64), (X, I), (X[:, :2], I), "Mul"),
    "product": Bad(
        lambda x, i: wf.matmul(x, wf.expand_dims(wf.cast(i, wf.float64), 1)), (X, I), (X.T, I),
        "BatchMatMulV2",
    ),
    "elements": Bad(lambda x, i: wf.reshape(x, [3, 4]), (X, I), (X[:3], I), "Reshape"),
    "diagonals": Bad(
        lambda x, i: wf.linalg.band_part(x, 3, 0), (X, I), (X[:2], I), "MatrixBandPart"
    ),
    "rank": Bad(lambda x, i: wf.transpose(x, [1, 0]), (X, I), (X[0], I), "Transpose"),
    "range": Bad(
        lambda x, i: x + wf.cast(wf.random_uniform([3], 0, i[0] + 1, wf.int32), wf.float64),
        (X, I), (X, I - 1), "RandomUniformInt",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_bad_input_is_refused_as_by_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same error, at the same node with its line; before and after, good input is computed."""
    bad = TABLE[name]
    said: dict[str, Any] = {}
    for how in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", how)
        with wf.Graph().as_default(), wf.Session() as session:
            x, i = wf.placeholder(wf.float64, None), wf.placeholder(wf.int32, None)
            y = bad.build(wf.tanh(x) * 2.0, i)
            y = wf.exp(y) + 1.0
            first = session.run(y, {x: bad.good[0], i: bad.good[1]})
            with pytest.raises(errors.OpError) as raised:
                session.run(y, {x: bad.bad[0], i: bad.bad[1]})
            again = session.run(y, {x: bad.good[0], i: bad.good[1]})
            assert first.shape == again.shape
            assert raised.value.op.type == bad.op
            said[how] = type(raised.value), str(raised.value)
    assert said["now"] == said["off"]


def _computed(said: str, monkeypatch: pytest.MonkeyPatch, factor: float) -> Any:
    """Return the results of a small graph for two batches in a deterministic session.

    Args:
      factor: of one test alone, whose code nobody else has made.
    """
    monkeypatch.setenv("WEFT_JIT", said)
    config = wf.ConfigProto()
    config.experimental.deterministic = True
    with wf.Graph().as_default(), wf.Session(config=config) as session:
        x = wf.placeholder(wf.float64, [None, 3])
        y = wf.reduce_sum(wf.exp(x) * factor, 0) + 1.0
        return [session.run(y, {x: X[:rows]}) for rows in (4, 3)]


def _refuses(*_: Any) -> bytes:
    raise errors.InternalError("LLVM refuses it")


class _TooSmall:
    """An arena of a system that has no memory."""

    def lease(self, size: int) -> Any:
        raise errors.ResourceExhaustedError(f"no {size} bytes")


@pytest.mark.parametrize(("name", "fails"), [("object_code", _refuses), ("ARENA", _TooSmall())])
def test_a_compiler_that_fails_leaves_nodes_to_kernels_and_says_so_once(
    name: str, fails: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = _computed("off", monkeypatch, 3.25)
    monkeypatch.setattr(cache, "directory", lambda: None)
    monkeypatch.setattr(code_index, "_here", {})
    monkeypatch.setattr(native, name, fails)
    monkeypatch.setattr(native, "_codes", {})
    with caplog.at_level(logging.ERROR):
        found = _computed("on", monkeypatch, 3.25)
    np.testing.assert_array_equal(found, wanted)
    assert len([each for each in caplog.records if "cannot be compiled" in each.message]) == 1


def test_an_unknown_processor_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """LLVM itself would end the process."""
    with pytest.raises(errors.InvalidArgumentError, match="no processor 'no-such-one'"):
        target_of(Options(cpu="no-such-one"))
    monkeypatch.setenv("WEFT_JIT_CPU", "no-such-one")
    wanted = _computed("off", monkeypatch, 3.5)
    np.testing.assert_array_equal(_computed("on", monkeypatch, 3.5), wanted)
    assert "no processor 'no-such-one'" in caplog.text


def test_a_wrong_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT_BOUNDS", "yes")
    with pytest.raises(errors.OpError, match="WEFT_JIT_BOUNDS must be on or off, got 'yes'"):
        _computed("now", monkeypatch, 3.75)


def test_checked_bounds_catch_a_wrong_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gather that takes the rows after those that are asked for, which no check looks at."""

    def wrong(op: Any, axis: int, batch: int) -> Value:
        x, indices = op.inputs[:2]

        def source(i: Any, j: Any) -> list[Any]:
            return [plus(cast(indices.at(i), INDEX), 1), j]

        return move_elements(op.name, x, op.shape(), source)

    monkeypatch.setattr(gather, "gather", wrong)
    monkeypatch.setattr(sharing, "verify", lambda program: None)
    monkeypatch.setenv("WEFT_JIT", "now")
    monkeypatch.setenv("WEFT_JIT_BOUNDS", "on")
    with wf.Graph().as_default(), wf.Session() as session:
        x, i = wf.placeholder(wf.float64, [4, 3]), wf.placeholder(wf.int32, [3])
        y = wf.gather(x, i) * 2.0 + 1.0
        with pytest.raises(errors.InternalError, match="an index is out of bounds") as raised:
            session.run(y, {x: X, i: I})  # the last row is asked for
        assert "test_native_faults.py" in str(raised.value)


def _awaited(x: Any, i: Any) -> Any:
    """A check that only the step waits for."""
    return [wf.group(wf.check_numerics(wf.log(x) * 2.0, "logarithm")), i + 1]


def _awaited_in_branch(x: Any, i: Any) -> Any:
    """The same where the branch is taken."""

    def taken() -> Any:
        with wf.control_dependencies([wf.check_numerics(wf.log(x), "logarithm")]):
            return x - 1.0

    return wf.cond(i > 0, taken, lambda: x * 2.0)


def _only_shape(x: Any, i: Any) -> Any:
    """A node whose shape alone is wanted, and which the step runs."""
    rows = wf.gather(wf.stack([x, x]), [i, i])
    return [wf.shape(rows) + 1, rows.op]


@pytest.mark.parametrize("build", [_awaited, _awaited_in_branch, _only_shape])
def test_values_that_nobody_takes_are_looked_at(
    build: Callable[[Any, Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with wf.Graph().as_default():
        x, i = wf.placeholder(wf.float32, []), wf.placeholder(wf.int32, [])
        fetches = build(x, i)
        said = []
        for mode in ("off", "now"):
            monkeypatch.setenv("WEFT_JIT", mode)
            with wf.Session() as session:
                session.run(fetches, {x: 2.0, i: 1})
                bad = {x: 2.0, i: 2} if build is _only_shape else {x: -1.0, i: 1}
                with pytest.raises(errors.InvalidArgumentError) as caught:
                    session.run(fetches, bad)
                said.append(str(caught.value))
                if build is _awaited_in_branch:
                    assert session.run(fetches, {x: -1.0, i: 0}) == -2.0
        assert said[0] == said[1]
