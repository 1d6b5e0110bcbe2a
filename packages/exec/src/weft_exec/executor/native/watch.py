"""Recording of the inputs of compiled regions, in a step that is run to explain it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import numpy as np

from weft_exec.executor.native.function import deciding
from weft_exec.executor.region import Region
from weft_exec.resources.resources import ResourceHandle, VariableState, state_of
from weft_graph.ir.code_generators import CodeGenerator, RegionRequest
from weft_graph.ir.compiled_function import CompiledFunction
from weft_graph.ir.node import Node

_watched: ContextVar[list[Watched] | None] = ContextVar("watched", default=None)


class Watched:
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
        self._given: list[Any] = []
        self._lock = threading.Lock()
        self.calls = 0

    def __call__(self, *inputs: Any) -> Any:
        """Record the inputs of the first call and return NotImplemented."""
        with self._lock:
            self.calls += 1
            if self.calls == 1:
                self._given = [self._array(value) for value in inputs]
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
        values = {at: self._given[at] for at in deciding(self._generator, region)}
        shapes = [array.shape for array in self._given]
        request = RegionRequest(
            region.members, region.inputs, region.outputs, shapes, values, region.branches
        )
        found = self._generator.explain(request, self._given)
        return replace(found, calls=self.calls)


@contextmanager
def watching() -> Iterator[list[Watched]]:
    """Collect the regions that are created inside; these run by their kernels."""
    found: list[Watched] = []
    token = _watched.set(found)
    try:
        yield found
    finally:
        _watched.reset(token)


def watched(
    generator: CodeGenerator, region: Region, to_host: Callable[[Any], Any]
) -> Watched | None:
    """Return a recording function for a region if steps are planned to be explained, else None.

    Args:
      to_host: copies values of the region's device to the host's memory.
    """
    found = _watched.get()
    if found is None:
        return None
    made = Watched(generator, region, to_host)
    found.append(made)
    return made
