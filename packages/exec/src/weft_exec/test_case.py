"""A unittest case with sessions and comparisons of arrays, for programs that test their graphs."""

from __future__ import annotations

import shutil
import tempfile
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from weft_graph.graph import Graph
from weft_graph.stacks import graph_as_default, reset_default_graph

from weft_exec.session import Session

main = unittest.main


class TestCase(unittest.TestCase):
    """Each test starts with an empty default graph."""

    def setUp(self) -> None:
        """Start with an empty default graph."""
        super().setUp()
        reset_default_graph()
        self._directory: str | None = None

    def get_temp_dir(self) -> str:
        """A directory of this test's own, removed after it."""
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
        """A session on `graph` or the default graph, as the default one inside the block."""
        with Session(graph=graph, config=config) as session:
            yield session

    test_session = session
    cached_session = session

    def evaluate(self, tensors: Any) -> Any:
        """The values of `tensors` in the default session, or in a new one."""
        from weft_graph.stacks import get_default_session

        session = get_default_session()
        if session is not None:
            return session.run(tensors)
        with Session() as new:
            return new.run(tensors)

    def assertAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:  # noqa: N802
        """The same shape and elements."""
        np.testing.assert_array_equal(_value(self, a), _value(self, b), err_msg=msg or "")

    def assertAllClose(  # noqa: N802
        self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None
    ) -> None:
        """The same structure, shapes, and elements within the tolerance."""
        a, b = _value(self, a), _value(self, b)
        if isinstance(a, dict):
            self.assertEqual(set(a), set(b))
            for key in a:
                self.assertAllClose(a[key], b[key], rtol, atol, f"{msg or ''} [{key!r}]")
            return
        np.testing.assert_allclose(a, b, rtol, atol, err_msg=msg or "")

    def assertNear(  # noqa: N802
        self, f1: float, f2: float, err: float, msg: str | None = None
    ) -> None:
        """Two numbers at most `err` apart."""
        self.assertLessEqual(abs(f1 - f2), err, msg)

    def assertShapeEqual(self, array: Any, tensor: Any) -> None:  # noqa: N802
        """The shape of an array equals a tensor's static shape."""
        self.assertEqual(list(array.shape), tensor.get_shape().as_list())

    @contextmanager
    def assertRaisesOpError(self, pattern: str) -> Iterator[None]:  # noqa: N802
        """An OpError whose text matches `pattern`."""
        from weft_tensor.errors import OpError

        with self.assertRaisesRegex(OpError, pattern):
            yield


def _value(case: TestCase, value: Any) -> Any:
    return case.evaluate(value) if hasattr(value, "graph") else value


def is_gpu_available(cuda_only: bool = False, min_cuda_compute_capability: Any = None) -> bool:
    """Whether a session would have a GPU."""
    with graph_as_default(Graph()), Session() as session:
        return any(device.device_type == "GPU" for device in session.list_devices())


def is_built_with_cuda() -> bool:
    """Whether a GPU could be used if there were one."""
    return is_gpu_available()


def gpu_device_name() -> str:
    """The first GPU's name, or ""."""
    with graph_as_default(Graph()), Session() as session:
        return next((d.name for d in session.list_devices() if d.device_type == "GPU"), "")


def get_temp_dir() -> str:
    """A directory for files of this process's tests."""
    return tempfile.gettempdir()
