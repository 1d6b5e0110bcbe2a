from __future__ import annotations

import io
import unittest
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors


def outcome(case: type[unittest.TestCase]) -> unittest.TestResult:
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    return unittest.TextTestRunner(stream=io.StringIO()).run(suite)


@pytest.fixture
def case() -> Any:
    class Case(wf.test.TestCase):
        def runTest(self) -> None:  # noqa: N802
            pass

    made = Case()
    made.setUp()
    yield made
    made.doCleanups()


def test_test_session_is_skipped_and_each_test_has_an_empty_graph() -> None:
    class Case(wf.test.TestCase):
        def test_one(self) -> None:
            self.assertEqual(wf.constant(1.0, name="c").name, "c:0")

        def test_two(self) -> None:
            self.assertEqual(wf.constant(1.0, name="c").name, "c:0")
            self.assertIsNotNone(wf.get_seed(None)[0])

    result = outcome(Case)
    assert result.wasSuccessful()
    assert (result.testsRun, len(result.skipped)) == (3, 1)


def test_cached_sessions_of_a_test_are_one(case: Any) -> None:
    v = wf.Variable(1.0)
    with case.cached_session() as first:
        first.run(v.initializer)
    with case.test_session() as second:
        assert second is first
        assert v.eval() == case.evaluate(v) == 1.0
    with case.session() as other, pytest.raises(errors.FailedPreconditionError):
        other.run(v)
    with (
        pytest.raises(errors.InvalidArgumentError, match="another graph"),
        case.cached_session(wf.Graph()),
    ):
        pass


def test_comparisons_of_arrays(case: Any) -> None:
    case.assertAllEqual([1, 2], wf.constant([1, 2]))
    case.assertAllClose(1.0, 1.0 + 5e-7)
    case.assertAllClose({"a": [[1.0, 2.0], [3.0]]}, {"a": (np.array([1, 2]), wf.constant([3.0]))})
    case.assertAllCloseAccordingToType(np.float16([1]), np.float16([1.001]))
    case.assertArrayNear([1.0], [1.2], 0.3)
    case.assertAllGreater([1, 2], 0)
    case.assertAllGreaterEqual([1, 2], 1)
    case.assertAllLess(wf.constant([1, 2]), 3)
    case.assertAllLessEqual([1, 2], 2)
    case.assertShapeEqual(np.ones([2]), wf.ones([2]))
    case.assertDTypeEqual(wf.ones([2]), np.float32)
    case.assertNotAllEqual([1], [2])
    case.assertNotAllClose([1.0], [2.0])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("assertAllEqual", ([1, 1], 1)),
        ("assertAllClose", ([1.0, 1.0], 1.0)),
        ("assertAllClose", ({"a": 1.0}, {"b": 1.0})),
        ("assertAllClose", ([[1.0], [2.0, 3.0]], [[1.0]])),
        ("assertAllCloseAccordingToType", ([1.0], [1.001])),
        ("assertNotAllEqual", ([1], [1])),
        ("assertNotAllClose", ([1.0], [1.0])),
        ("assertArrayNear", ([1.0], [2.0], 0.5)),
        ("assertAllGreater", ([0, 2], 0)),
        ("assertAllLess", ([0, 2], 2)),
        ("assertDTypeEqual", (np.ones(2), np.float32)),
    ],
)
def test_comparisons_that_fail(case: Any, name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(AssertionError):
        getattr(case, name)(*arguments)


def test_errors_by_pattern_and_predicate(case: Any) -> None:
    x = wf.check_numerics(wf.log(-1.0), "the logarithm")
    with case.session() as session:
        with case.assertRaisesOpError("the logarithm"):
            session.run(x)
        with case.assertRaisesOpError(lambda error: error.op.type == "CheckNumerics"):
            session.run(x)
        with pytest.raises(AssertionError, match="is not true"), case.assertRaisesOpError("other"):
            session.run(x)


def test_graphs_with_equal_nodes() -> None:
    def graph(*values: float) -> Any:
        with wf.Graph().as_default() as made:
            for number, value in enumerate(values):
                wf.constant(value, name=f"c{number}")
        return made.as_graph_def()

    same = wf.test.assert_equal_graph_def
    same(graph(1.0, 2.0), graph(1.0, 2.0))
    with pytest.raises(AssertionError, match="missing nodes: c1"):
        same(graph(1.0), graph(1.0, 2.0))
    with pytest.raises(AssertionError, match="unexpected nodes: c1"):
        same(graph(1.0, 2.0), graph(1.0))
    with pytest.raises(AssertionError, match="the node 'c0' is"):
        same(graph(1.0), graph(2.0))
