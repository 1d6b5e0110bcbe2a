"""Recording of the inputs of compiled regions, in a step that is run to explain it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import numpy as np

from weft_exec.executor.native.function import find_static_inputs
from weft_exec.executor.region import Region
from weft_exec.resources.resources import ResourceHandle, VariableState, state_of
from weft_graph.ir.code_generators import CodeGenerator, RegionRequest
from weft_graph.ir.compiled_function import CompiledFunction
from weft_graph.ir.node import Node

_watched: ContextVar[list[InputRecorder] | None] = ContextVar("watched", default=None)


class InputRecorder:
    """Function of a region that lets its kernels run, and records the inputs of the first call.

    Attributes:
      calls: the number of calls.
    """

    def __init__(
        self, generator: CodeGenerator, region: Region, to_host: Callable[[Any], Any]
    ) -> None:
        self._generator = generator
        self._region = region
        self._to_host = to_host
        self._inputs: list[Any] = []
        self._lock = threading.Lock()
        self.calls = 0

    def __call__(self, *inputs: Any) -> Any:
        """Record the inputs of the first call and return NotImplemented."""
        with self._lock:
            self.calls += 1
            if self.calls == 1:
                self._inputs = [self._array(value) for value in inputs]
        return NotImplemented

    def _array(self, value: Any) -> Any:
        """Return a copy of an input, or of the variable that it refers to, on the host."""
        if isinstance(value, VariableState | ResourceHandle):
            value = state_of(value).read()
        return np.array(self._to_host(value), order="C")

    @property
    def members(self) -> Sequence[Node]:
        """Nodes of the region."""
        return self._region.members

    def explain(self) -> CompiledFunction:
        """Compile the region for the recorded inputs.

        Raises: NotGenerated: it cannot be compiled for them.
        """
        region = self._region
        values = {
            input_index: self._inputs[input_index]
            for input_index in find_static_inputs(self._generator, region)
        }
        shapes = [array.shape for array in self._inputs]
        request = RegionRequest(
            region.members, region.inputs, region.outputs, shapes, values, region.branches
        )
        explanation = self._generator.explain(request, self._inputs)
        return replace(explanation, calls=self.calls)


@contextmanager
def collect_watched() -> Iterator[list[InputRecorder]]:
    """Collect the regions that are created inside; these run by their kernels."""
    recorders: list[InputRecorder] = []
    token = _watched.set(recorders)
    try:
        yield recorders
    finally:
        _watched.reset(token)


def watch_region(
    generator: CodeGenerator, region: Region, to_host: Callable[[Any], Any]
) -> InputRecorder | None:
    """Return a recording function for a region if the plan is for an explanation, else None.

    Args:
      to_host: copies values of the region's device to the host's memory.
    """
    recorders = _watched.get()
    if recorders is None:
        return None
    recorder = InputRecorder(generator, region, to_host)
    recorders.append(recorder)
    return recorder
