"""The function of a region: one that was compiled for each choice of shapes that it meets.

Where members change variables, the function has these arrays between `VariableState.update_all`
taking and giving them back: under their locks, in place unless somebody holds a snapshot.  What
else the region reads of variables was read when it began.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.executor.native.check import Checked, results_of
from weft_exec.executor.native.choice import deciding_inputs
from weft_exec.executor.region import Region
from weft_exec.resources.resources import VariableState, state_of
from weft_graph.ir.code_generators import CodeGenerator, Generated, NotGenerated, Shape
from weft_graph.ir.node import Output
from weft_graph.ir.traits import Role

_WARM: Final = 3
"""Calls of the same kind after which they are worth compiling for."""
_MOST: Final = 16
"""Choices of shapes and values that a region is compiled for; others run by their kernels."""

_MOST_COUNTED: Final = 256
"""Choices whose calls are counted at a time, until one is worth compiling for."""

_log: Final = logging.getLogger(__name__)


class Mode(enum.Enum):
    """When regions are compiled.

    ON: in the background, for shapes that come again; kernels run until it is done.
    FIRST: when shapes are first met, so that no number depends on timing.
    NOW: the same, and what fails in the compiler is raised.
    """

    ON = "on"
    FIRST = "first"
    NOW = "now"


Key = tuple[tuple[Shape, ...], tuple[bytes, ...]]
"""Shapes of all inputs, and the values of those that decide what is compiled."""


class Specialised:
    """Computes the members of a region, or says that their kernels should.

    Args:
      generator: makes functions of the members.
      device: gives the memory of results.
      mode: when they are made.
      checked: whether kernels compute the same, to compare it.
    """

    def __init__(
        self,
        generator: CodeGenerator,
        region: Region,
        device: Device,
        mode: Mode,
        checked: bool = False,
    ) -> None:
        self._generator = generator
        self._region = region
        self._new = device.new_array
        self._mode = mode
        self._deciding = _deciding(generator, region)
        self._updates: Sequence[int] = region.node.attrs["updates"]
        self._checked = Checked(region, device) if checked else None
        self._made: dict[Key, Callable[..., Any] | None] = {}
        self._calls: dict[Key, int] = {}
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any) -> Any:
        """The results; NotImplemented where the members are to run by their kernels."""
        if self._updates:
            found = self._shapes(inputs)
            if found is None:
                return NotImplemented
            shapes = found
        else:
            shapes = tuple([value.shape for value in inputs])
        deciding = self._deciding
        values = tuple([inputs[at].tobytes() for at in deciding]) if deciding else ()
        key = shapes, values
        made = self._made.get(key, NotImplemented)
        if made is NotImplemented:
            made = self._missed(key, inputs)
        return NotImplemented if made is None else made(inputs)

    def _shapes(self, inputs: Sequence[Any]) -> tuple[Shape, ...] | None:
        """The shapes of all inputs; None where what is changed has no value, or is one twice."""
        states = {at: state_of(inputs[at]) for at in self._updates}
        if len(set(map(id, states.values()))) < len(states):
            return None
        if not all([state.is_initialized for state in states.values()]):
            return None
        return tuple(
            [
                states[at].read().shape if at in states else value.shape
                for at, value in enumerate(inputs)
            ]
        )

    def _missed(self, key: Key, inputs: Sequence[Any]) -> Callable[..., Any] | None:
        """The function for shapes that there is none for yet."""
        values = {at: np.array(inputs[at]) for at in self._deciding}
        with self._lock:
            if key in self._made:
                return self._made[key]
            if len(self._made) >= _MOST:
                return None
            if self._mode is Mode.ON:
                if len(self._calls) >= _MOST_COUNTED:  # shapes that never come again
                    self._calls.clear()
                self._calls[key] = self._calls.get(key, 0) + 1
                if self._calls[key] == _WARM:
                    _background().submit(self._make, key, values)
                return None
        return self._make(key, values)

    def _make(self, key: Key, values: dict[int, Any]) -> Callable[..., Any] | None:
        region = self._region
        made: Callable[..., Any] | None = None
        try:
            generated = self._generated(region.outputs, key, values)
            if self._checked is not None:
                made = self._checking(self._checked, generated, key, values)
            else:
                made = self._calling(generated, key[0])
        except NotGenerated as why:
            _log.info("%s runs by kernels: %s", region.node.name, why)
        except Exception:  # because it may run in the background, where nobody would see it
            if self._mode is Mode.NOW:
                raise
            _log.exception("%s cannot be compiled, and runs by kernels", region.node.name)
        with self._lock:
            self._made[key] = made
            self._calls.pop(key, None)
        return made

    def _generated(self, outputs: Sequence[Output], key: Key, values: dict[int, Any]) -> Generated:
        region = self._region
        return self._generator.generate(region.members, region.inputs, outputs, key[0], values)

    def _checking(
        self, checked: Checked, generated: Generated, key: Key, values: dict[int, Any]
    ) -> Callable[..., Any]:
        """Calls a function on copies of variables, and compares what it gives."""
        run = self._filling(generated)

        def every() -> Callable[..., Any]:
            outputs = results_of(self._region.members, self._region.updated)
            return self._filling(self._generated(outputs, key, values))

        def call(inputs: Sequence[Any]) -> Any:
            before = [np.array(state_of(inputs[at]).read()) for at in generated.updates]
            arrays = [array.copy() for array in before]
            return checked(inputs, run(inputs, *arrays), before, arrays, every)

        return call

    def _calling(self, generated: Generated, shapes: Sequence[Shape]) -> Callable[..., Any]:
        """Calls a function."""
        run, updates = self._filling(generated), tuple(generated.updates)
        if not updates:
            return run
        wanted = [shapes[at] for at in updates]

        def call(inputs: Sequence[Any]) -> Any:
            results: Any = NotImplemented

            def change(*arrays: Any) -> None:
                nonlocal results
                if [array.shape for array in arrays] == wanted:  # nobody gave it another one
                    results = run(inputs, *arrays)

            VariableState.update_all(tuple([state_of(inputs[at]) for at in updates]), change)
            return results

        return call

    def _filling(self, generated: Generated) -> Callable[..., Any]:
        """Calls a function with inputs, new arrays for its results, and those of variables."""
        new, takes = self._new, tuple(generated.takes)
        results = [(shape, dtype.numpy) for dtype, shape in generated.results]

        def call(inputs: Sequence[Any], *arrays: Any) -> Any:
            given = [inputs[at] for at in takes]
            out = [new(shape, dtype) for shape, dtype in results]
            generated(*given, *out, *arrays)
            return out[0] if len(out) == 1 else tuple(out)

        return call


def _deciding(generator: CodeGenerator, region: Region) -> tuple[int, ...]:
    """The inputs of a region whose values decide what is compiled."""
    position = {source: at for at, source in enumerate(region.inputs)}
    found = {
        position[member.inputs[at]]
        for member in region.members
        for at in deciding_inputs(generator, member)
        if member.inputs[at] in position and member.inputs[at].node.role is not Role.CONSTANT
    }
    return tuple(sorted(found))


@cache
def _background() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="weft-compiler")
