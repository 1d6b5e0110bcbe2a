"""A unittest case with sessions and array assertions, for programs that test their graphs."""

from __future__ import annotations

__all__ = [
    "TestCase",
    "assert_equal_graph_def",
    "get_temp_dir",
    "gpu_device_name",
    "is_built_with_cuda",
    "is_built_with_gpu_support",
    "is_built_with_rocm",
    "is_gpu_available",
    "main",
]

import random
import re
import shutil
import tempfile
import unittest
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from weft_exec.session.session import Session
from weft_graph.ir.default_graph import reset_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.ir.random_seed import set_random_seed
from weft_graph.ir.thread_stacks import get_default_session, graph_as_default
from weft_tensor.dtypes import as_dtype
from weft_tensor.errors import InvalidArgumentError, OpError

_SEED = 87654321


class TestCase(unittest.TestCase):
    """A test case whose tests each start with an empty default graph and the same random seeds.

    Args:
      methodName: the name of the method to run.

    Examples:
      >>> class SquareTest(wf.test.TestCase):
      ...     def test_square(self):
      ...         self.assertAllClose(self.evaluate(wf.square([1.0, 3.0])), [1.0, 9.0])
      >>> SquareTest("test_square").countTestCases()
      1
    """

    _cached: Session | None = None
    _directory: str | None = None

    def __init__(self, methodName: str = "runTest") -> None:
        super().__init__(methodName)

    def setUp(self) -> None:
        """Start with an empty default graph."""
        if self._testMethodName == "test_session":
            self.skipTest("test_session is not a test")
        super().setUp()
        random.seed(_SEED)
        np.random.seed(_SEED)
        reset_default_graph()
        set_random_seed(_SEED)

    def get_temp_dir(self) -> str:
        """Return a directory of this test, which is removed at its end."""
        if self._directory is None:
            self._directory = tempfile.mkdtemp()
            self.addCleanup(shutil.rmtree, self._directory, ignore_errors=True)
        return self._directory

    @contextmanager
    def session(
        self,
        graph: Graph | None = None,
        config: Any = None,
        use_gpu: bool = False,
        force_gpu: bool = False,
    ) -> Iterator[Session]:
        """Open a session on `graph` or the default graph; it is the default session inside."""
        with Session(graph=graph, config=config) as session:
            yield session

    @contextmanager
    def cached_session(
        self,
        graph: Graph | None = None,
        config: Any = None,
        use_gpu: bool = False,
        force_gpu: bool = False,
    ) -> Iterator[Session]:
        """Enter the session that all such blocks of a test share; the first block sets its options.

        Raises: InvalidArgumentError: the session was opened on another graph.
        """
        if self._cached is None:
            self._cached = Session(graph=graph, config=config)
            self.addCleanup(self._cached.close)
        shared = self._cached
        if graph is not None and graph is not shared.graph:
            raise InvalidArgumentError(
                "the cached session of this test was opened on another graph; use session() instead"
            )
        with graph_as_default(shared.graph), shared.as_default():
            yield shared

    def test_session(
        self,
        graph: Graph | None = None,
        config: Any = None,
        use_gpu: bool = False,
        force_gpu: bool = False,
    ) -> AbstractContextManager[Session]:
        """Open a new `session` if `graph` is set, else enter the `cached_session`."""
        make = self.cached_session if graph is None else self.session
        return make(graph, config, use_gpu, force_gpu)

    def evaluate(self, tensors: Any) -> Any:
        """Return the values of `tensors`, computed in the default session or a new one."""
        session = get_default_session()
        if session is not None:
            return session.run(tensors)
        with Session() as new:
            return new.run(tensors)

    # ------------------------------------------------------------------------ arrays

    def assertAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:  # noqa: N802
        """Assert that two arrays have the same shape and elements."""
        a, b = self._pair(a, b, msg)
        if not np.array_equal(a, b):  # formatting the difference is slow
            np.testing.assert_array_equal(a, b, err_msg=msg or "")

    def assertNotAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:  # noqa: N802
        """Assert that two arrays differ in shape or elements."""
        with self.assertRaises(AssertionError, msg=msg):
            self.assertAllEqual(a, b)

    def assertAllClose(  # noqa: N802
        self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None
    ) -> None:
        """Assert that structures and shapes are equal and elements are within the tolerance."""
        if isinstance(a, Mapping):
            self.assertEqual(set(a), set(b), msg)
            for key in a:
                self.assertAllClose(a[key], b[key], rtol, atol, f"{msg or ''} [{key!r}]")
        elif _is_structure(a) or _is_structure(b):
            self.assertEqual(len(a), len(b), msg)
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                self.assertAllClose(x, y, rtol, atol, f"{msg or ''} [{i}]")
        else:
            a, b = self._pair(a, b, msg)
            np.testing.assert_allclose(a, b, rtol, atol, err_msg=msg or "")

    def assertNotAllClose(  # noqa: N802
        self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None
    ) -> None:
        """Assert that an element is outside the tolerance, or that the structures differ."""
        with self.assertRaises(AssertionError, msg=msg):
            self.assertAllClose(a, b, rtol, atol)

    def assertAllCloseAccordingToType(  # noqa: N802
        self,
        a: Any,
        b: Any,
        rtol: float = 1e-6,
        atol: float = 1e-6,
        float_rtol: float = 1e-6,
        float_atol: float = 1e-6,
        half_rtol: float = 1e-3,
        half_atol: float = 1e-3,
        bfloat16_rtol: float = 1e-2,
        bfloat16_atol: float = 1e-2,
        msg: str | None = None,
    ) -> None:
        """Call `assertAllClose` with the wider of the tolerances of the two element types."""
        a, b = self._pair(a, b, msg)
        types = {a.dtype.name, b.dtype.name}
        for names, wider in (
            ({"float32", "complex64"}, (float_rtol, float_atol)),
            ({"float16"}, (half_rtol, half_atol)),
            ({"bfloat16"}, (bfloat16_rtol, bfloat16_atol)),
        ):
            if names & types:
                rtol, atol = max(rtol, wider[0]), max(atol, wider[1])
        self.assertAllClose(a, b, rtol, atol, msg)

    def assertArrayNear(  # noqa: N802
        self, farray1: Any, farray2: Any, err: float, msg: str | None = None
    ) -> None:
        """Assert that two vectors have the same size and elements within `err` of each other."""
        self.assertEqual(len(farray1), len(farray2), msg)
        for f1, f2 in zip(farray1, farray2, strict=True):
            self.assertNear(float(f1), float(f2), err, msg)

    def assertNear(  # noqa: N802
        self, f1: float, f2: float, err: float, msg: str | None = None
    ) -> None:
        """Assert that two numbers differ by at most `err`."""
        self.assertLessEqual(abs(f1 - f2), err, msg)

    def assertAllGreater(self, a: Any, comparison_target: Any) -> None:  # noqa: N802
        """Assert that every element is greater than the target."""
        self.assertGreater(np.min(self._array(a)), comparison_target)

    def assertAllGreaterEqual(self, a: Any, comparison_target: Any) -> None:  # noqa: N802
        """Assert that no element is less than the target."""
        self.assertGreaterEqual(np.min(self._array(a)), comparison_target)

    def assertAllLess(self, a: Any, comparison_target: Any) -> None:  # noqa: N802
        """Assert that every element is less than the target."""
        self.assertLess(np.max(self._array(a)), comparison_target)

    def assertAllLessEqual(self, a: Any, comparison_target: Any) -> None:  # noqa: N802
        """Assert that no element is greater than the target."""
        self.assertLessEqual(np.max(self._array(a)), comparison_target)

    def assertShapeEqual(  # noqa: N802
        self, np_array: Any, tf_tensor: Any, msg: str | None = None
    ) -> None:
        """Assert that the shape of an array equals a tensor's static shape."""
        self.assertEqual(list(np_array.shape), tf_tensor.get_shape().as_list(), msg)

    def assertDTypeEqual(self, target: Any, expected_dtype: Any) -> None:  # noqa: N802
        """Assert that an array or tensor has an element type."""
        self.assertEqual(as_dtype(target.dtype), as_dtype(expected_dtype))

    def _array(self, value: Any) -> np.ndarray:
        return np.asarray(self.evaluate(value) if hasattr(value, "graph") else value)

    def _pair(self, a: Any, b: Any, msg: str | None) -> tuple[np.ndarray, np.ndarray]:
        x, y = self._array(a), self._array(b)
        self.assertEqual(x.shape, y.shape, msg)
        return x, y

    # ------------------------------------------------------------------------ errors

    @contextmanager
    def assertRaisesWithPredicateMatch(  # noqa: N802
        self, exception_type: Any, expected_err_re_or_predicate: Any
    ) -> Iterator[None]:
        """Expect an exception whose text matches a pattern, or that satisfies a predicate."""
        test = expected_err_re_or_predicate
        with self.assertRaises(exception_type) as caught:
            yield
        result = (
            test(caught.exception) if callable(test) else re.search(test, str(caught.exception))
        )
        self.assertTrue(result, f"{caught.exception!r} is not the expected one: {test!r}")

    @contextmanager
    def assertRaisesOpError(  # noqa: N802
        self, expected_err_re_or_predicate: Any
    ) -> Iterator[None]:
        """Expect an OpError that satisfies `assertRaisesWithPredicateMatch`."""
        with self.assertRaisesWithPredicateMatch(OpError, expected_err_re_or_predicate):
            yield


def _is_structure(value: Any) -> bool:
    """Return True if a list is not one array: it has tensors, or items of different shapes."""
    if not isinstance(value, list | tuple):
        return False
    if any(hasattr(v, "graph") or isinstance(v, Mapping) or _is_structure(v) for v in value):
        return True
    return len({np.shape(v) for v in value}) > 1


def is_gpu_available(cuda_only: bool = False, min_cuda_compute_capability: Any = None) -> bool:
    """Return True if a session would have a GPU.

    Args:
      cuda_only, min_cuda_compute_capability: accepted for compatibility with TensorFlow.

    Examples:
      >>> wf.test.is_gpu_available() == bool(wf.test.gpu_device_name())
      True
    """
    with graph_as_default(Graph()), Session() as session:
        return any(device.device_type == "GPU" for device in session.list_devices())


def is_built_with_cuda() -> bool:
    """Return True if a session would have a GPU; same as `is_gpu_available`.

    Examples:
      >>> wf.test.is_built_with_cuda() == wf.test.is_built_with_gpu_support()
      True
    """
    return is_gpu_available()


def is_built_with_gpu_support() -> bool:
    """Return True if a session would have a GPU; same as `is_gpu_available`.

    Examples:
      >>> isinstance(wf.test.is_built_with_gpu_support(), bool)
      True
    """
    return is_built_with_cuda()


def is_built_with_rocm() -> bool:
    """Return False: GPUs are used through CUDA.

    Examples:
      >>> wf.test.is_built_with_rocm()
      False
    """
    return False


def gpu_device_name() -> str:
    """Return the name of the first GPU, or "" if there is none.

    Examples:
      >>> with wf.device(wf.test.gpu_device_name()):  # "" requests no device
      ...     x = wf.constant(1.0)
    """
    with graph_as_default(Graph()), Session() as session:
        return next((d.name for d in session.list_devices() if d.device_type == "GPU"), "")


def get_temp_dir() -> str:
    """Return a directory for files of this process's tests.

    Examples:
      >>> wf.test.get_temp_dir() == wf.test.get_temp_dir()
      True
    """
    return tempfile.gettempdir()


def assert_equal_graph_def(
    actual: Any,
    expected: Any,
    checkpoint_v2: bool = False,
    hash_table_shared_name: bool = False,
) -> None:
    """Assert that two `GraphDef`s have the same nodes, in any order.

    Args:
      checkpoint_v2, hash_table_shared_name: accepted for compatibility; the names that TensorFlow
        draws at random are not random in weft.
    Raises: AssertionError: a node is missing, unexpected or different; the message names it.

    Examples:
      >>> x = wf.constant(1.0)
      >>> graph_def = wf.get_default_graph().as_graph_def()
      >>> wf.test.assert_equal_graph_def(graph_def, x.graph.as_graph_def())
    """
    actual_nodes, expected_nodes = (
        {node.name: node for node in graph.node} for graph in (actual, expected)
    )
    for label, extra in (
        ("unexpected", actual_nodes.keys() - expected_nodes),
        ("missing", expected_nodes.keys() - actual_nodes),
    ):
        if extra:
            raise AssertionError(f"{label} nodes: {', '.join(sorted(extra))}")
    for name, node in actual_nodes.items():
        if node != expected_nodes[name]:
            raise AssertionError(
                f"the node {name!r} is\n{node}but should be\n{expected_nodes[name]}"
            )


def main(argv: list[str] | None = None) -> None:
    """Run the tests of the program's main module, and exit.

    Args:
      argv: the command line, by default `sys.argv`: the name of the program, then options and names
        of tests as for `python -m unittest`.
    Raises: SystemExit: always; its status is 0 if all tests passed.

    Examples:
      >>> import pathlib, subprocess, sys
      >>> program = pathlib.Path("square_test.py")
      >>> length = program.write_text('''
      ... import weft as wf
      ...
      ... class SquareTest(wf.test.TestCase):
      ...     def test_negative(self):
      ...         with self.session():
      ...             self.assertAllClose(wf.square([-2.0]).eval(), [4.0])
      ...
      ... if __name__ == "__main__":
      ...     wf.test.main()
      ... ''')
      >>> subprocess.run([sys.executable, program], capture_output=True).returncode
      0
    """
    unittest.main(argv=argv)
