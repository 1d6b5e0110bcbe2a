"""Python functions of tensors that have values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors


@pytest.fixture(autouse=True)
def graph() -> wf.Graph:
    with wf.Graph().as_default() as made:
        yield made


def _run(function: Any, inputs: Any, types: Any, feeds: Any = None) -> Any:
    with wf.Session() as session:
        return session.run(wf.py_function(function, inputs, types), feeds)


class TestArguments:
    def test_behave_as_tensors_and_as_values(self) -> None:
        seen: list[Any] = []

        def function(x: Any, n: Any, text: Any) -> Any:
            seen.append((x.numpy(), x.shape.as_list(), x.ndim, len(x), x.dtype, text.numpy()))
            seen.append((bool(n > 1), int(n), float(n), list(range(3))[n], f"{n:03d}"))
            seen.append(np.sum(np.asarray(x)))
            rows = [float(row[0]) for row in x]
            return wf.reduce_sum(x) + sum(rows) + wf.cast(n, wf.float32)

        x = wf.placeholder(wf.float32)
        value = np.array([[1, 2], [3, 4]], np.float32)
        got = _run(function, [x, 2, wf.constant("ab")], wf.float32, {x: value})
        assert got == 10.0 + 4.0 + 2.0
        array, *rest = seen[0]
        np.testing.assert_array_equal(array, value)
        assert rest == [[2, 2], 2, 2, wf.float32, b"ab"]
        assert seen[1:] == [(True, 2, 2.0, 2, "002"), 10.0]

    def test_shapes_that_only_values_tell(self) -> None:
        def function(x: Any) -> Any:
            kept = wf.boolean_mask(x, x > 1.0)
            return wf.constant(kept.shape[0].value) if kept.shape.is_fully_defined() else -1

        assert _run(function, [[1.0, 2.0, 3.0]], wf.int32) == 2

    def test_repr_shows_values(self) -> None:
        shown: list[str] = []

        def function(x: Any) -> None:
            shown.extend([str(x * 2), repr(x)])

        _run(function, [[1.0]], [])
        assert "[2.]" in shown[0] and "shape=(1,), dtype=float32" in shown[1]


class TestResults:
    def test_of_all_kinds(self) -> None:
        def function(x: Any) -> Any:
            return x * 2.0, x.numpy().astype(np.float64), [1, 2], b"s"

        got = _run(function, [[1.0]], [wf.float32, wf.float64, wf.int64, wf.string])
        np.testing.assert_array_equal(got[0], [2.0])
        assert got[1].dtype == np.float64 and got[2].dtype == np.int64 and got[3] == b"s"

    def test_wrong_ones(self, graph: wf.Graph) -> None:
        outside = wf.constant(1.0)
        wrong = [
            (lambda x: wf.cast(x, wf.int32), "must be float32, got int32"),
            (lambda x: None, "got None"),
            (lambda x: outside, "pass it as an input"),
            (lambda x: 1 // 0, "ZeroDivisionError"),
        ]
        for function, words in wrong:
            with pytest.raises(errors.OpError, match=words):
                _run(function, [1.0], wf.float32)

    def test_random_numbers_are_drawn_once(self) -> None:
        def function(x: Any) -> Any:
            drawn = wf.random_uniform([])
            more = drawn + x
            return float(more), float(drawn), more, drawn

        first, second, third, fourth = _run(function, [1.0], [wf.float32] * 4)
        assert (first, second) == (third, fourth) and first == np.float32(second + 1.0)

    def test_effects_happen_once_and_without_being_asked_for(self, capfd: Any) -> None:
        def function(x: Any) -> Any:
            wf.print("seen", x)
            float(x + 1.0)
            return x + 2.0

        assert _run(function, [1.0], wf.float32) == 3.0
        assert capfd.readouterr().err == "seen 1\n"


class TestGradients:
    def test_to_second_order(self) -> None:
        def function(x: Any, n: Any, y: Any) -> Any:
            return x**3 * y if n > 0 else x, wf.cast(n, wf.int32)

        x, y = wf.constant([1.0, 2.0]), wf.constant(5.0)
        result, _ = wf.py_function(function, [x, 3, y], [wf.float32, wf.int32])
        dx, dy = wf.gradients(result, [x, y])
        (ddx,) = wf.gradients(dx, [x])
        assert dx.shape.as_list() == [2]
        with wf.Session() as session:
            got = session.run([dx, dy, ddx])
        np.testing.assert_allclose(got[0], [15.0, 60.0])
        np.testing.assert_allclose(got[1], 9.0)
        np.testing.assert_allclose(got[2], [30.0, 60.0])

    def test_nothing_flows_through_values(self) -> None:
        x = wf.constant([1.0, 2.0])
        result = wf.py_function(lambda x: x.numpy() * 2.0, [x], wf.float32)
        with wf.Session() as session:
            np.testing.assert_array_equal(session.run(wf.gradients(result, x)[0]), [0.0, 0.0])
