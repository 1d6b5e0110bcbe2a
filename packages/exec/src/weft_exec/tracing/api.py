"""`wf.trace`: records a block of code, and reads trace files."""

from __future__ import annotations

__all__ = ["trace"]

import os
from typing import TYPE_CHECKING, Any, Self, overload

from weft_graph.ops.matmul import trace as matrix_trace
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.tracing.recording import Recording
    from weft_graph.ir.node import Output
    from weft_trace.trace import Trace


class trace:  # noqa: N801 - a context manager used as a function
    """Records a block of code to a trace file; of matrices, returns their trace.

    All sessions of the process are recorded. Blocks may be nested, and threads may record at the
    same time: each block writes its own file. `weft trace summary FILE` shows how the time was
    spent.

    Args:
      x: the path of the file, which is replaced if it exists. For the trace of matrices: a tensor,
        as of `wf.linalg.trace`.
      name: name of the operation that computes the trace of matrices.
    Raises:
      OSError: the file cannot be written. If the block raises an error, that one is raised instead.
      AlreadyExistsError: another block writes the file.
      InvalidTypeError: `x` is neither a path nor numbers.

    Examples:
      >>> y = wf.reduce_sum(wf.random_uniform([100, 100]))
      >>> with wf.trace("run.weft-trace"), wf.Session() as session:
      ...     result = session.run(y)
      >>> [step.label for step in wf.trace.load("run.weft-trace").steps]
      ['Sum']
    """

    _path: str | os.PathLike[str]
    _recording: Recording | None

    @overload
    def __new__(cls, x: str | os.PathLike[str]) -> Self: ...

    @overload
    def __new__(cls, x: Any, name: str | None = None) -> Output: ...  # type: ignore[misc]

    def __new__(cls, x: Any, name: str | None = None) -> Any:
        """Return a context manager that records to a path, or the trace of a matrix."""
        if x is None:
            raise errors.InvalidTypeError("wf.trace requires the path of a file, got None")
        if not isinstance(x, str | os.PathLike):
            return matrix_trace(x, name)
        self = super().__new__(cls)
        self._path, self._recording = x, None
        return self

    def __enter__(self) -> None:
        from weft_exec.tracing.recording import Recording

        if self._recording is not None:
            raise errors.FailedPreconditionError(f"the block of {self._path!r} has begun already")
        self._recording = Recording(self._path)

    def __exit__(self, kind: object, *_: object) -> None:
        assert self._recording is not None
        recording, self._recording = self._recording, None
        try:
            recording.close()
        except OSError:
            if kind is None:  # else the error of the block is raised; a warning has been logged
                raise

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Trace:
        """Read a trace file into NumPy columns; see `weft_trace.load`.

        Args:
          path: the file.
        Returns: the processes, lanes, nodes, iterations and steps, and the events as an array.
        Raises:
          OSError: the file cannot be read.
          TraceError: it is not a trace.

        Examples:
          >>> with wf.trace("run.weft-trace"), wf.Session() as session:
          ...     result = session.run(wf.random_uniform([3]))
          >>> wf.trace.load("run.weft-trace").events.dtype.names[:3]
          ('kind', 'flags', 'lane')
        """
        from weft_trace.reader import load

        return load(path)
