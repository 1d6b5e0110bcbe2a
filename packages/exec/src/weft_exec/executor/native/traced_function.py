"""Compiled regions that record when each of their generated kernels ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from weft_exec.costs.time_attribution import time_fractions
from weft_exec.executor.native.region_profile import Function
from weft_exec.tracing.programs import Event, GeneratedProgram, note_readings
from weft_graph.ir.code_generators import CodeGenerator, Generated, NotGenerated, RegionRequest
from weft_graph.ir.node import Node
from weft_tensor import errors


class TracedFunctions:
    """Counterparts of the functions of a region, which record the times of their kernels.

    Args:
      generator: that compiled them.
      whole: the event of the region.
      bind: returns a function that calls code compiled for a request.
    """

    def __init__(
        self,
        generator: CodeGenerator,
        event: Event,
        bind: Callable[[Generated, RegionRequest], Function],
    ) -> None:
        self._generator = generator
        self._event = event
        self._bind = bind
        self._origins: WeakKeyDictionary[Function, tuple[Generated, RegionRequest]]
        self._origins = WeakKeyDictionary()
        self._functions: WeakKeyDictionary[Function, Function] = WeakKeyDictionary()

    def note(self, function: Function, generated: Generated, request: RegionRequest) -> None:
        """Record the names that a function was bound to."""
        self._origins[function] = generated, request

    def of(self, function: Function) -> Function:
        """Return the counterpart of a function; itself if its kernels cannot be recorded."""
        traced = self._functions.get(function)
        if traced is None:
            origin = self._origins.get(function)
            if origin is None:
                return function
            traced = self._functions[function] = self._make_counterpart(*origin) or function
        return traced

    def _make_counterpart(self, generated: Generated, request: RegionRequest) -> Function | None:
        programs: dict[int, GeneratedProgram] = {}

        def receive(readings: Any) -> None:
            num_kernels = len(readings) - 3  # between the readings of the caller
            program = programs.get(num_kernels)
            if program is None:
                program = GeneratedProgram(self._event, num_kernels, kernels, time_fractions)
                programs[num_kernels] = program
            note_readings(program, readings)

        @cache
        def kernels() -> Sequence[Sequence[Node]]:
            try:
                return self._generator.kernels(request)
            except (NotGenerated, errors.OpError):
                return ()  # they are unknown

        counterpart = generated.traced(receive)
        return None if counterpart is None else self._bind(counterpart, request)


def make_traced_lookup(
    lookup: Callable[[Any, Any], Any], functions: TracedFunctions
) -> Callable[[Any, Any], Any]:
    """Return a lookup of functions that returns their counterparts."""

    def traced(key: Any, default: Any) -> Any:
        function = lookup(key, default)
        return function if function is None or function is default else functions.of(function)

    return traced
