"""The function of a region: one that was compiled for each choice of shapes that it meets."""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final

from weft_exec.devices.device import Device
from weft_exec.executor.region import Region
from weft_graph.ir.code_generators import CodeGenerator, Generated, NotGenerated, Shape

_WARM: Final = 3
"""Calls with the same shapes after which they are worth compiling for."""
_MOST: Final = 16
"""Choices of shapes that one region is compiled for; others run by their kernels."""

_log: Final = logging.getLogger(__name__)


class Mode(enum.Enum):
    """When regions are compiled.

    ON: in the background, for shapes that come again; kernels run until it is done.
    NOW: when shapes are first met.
    """

    ON = "on"
    NOW = "now"


class Specialised:
    """Computes the members of a region, or says that their kernels should.

    Args:
      generator: makes functions of the members.
      device: gives the memory of results.
      mode: when they are made.
    """

    def __init__(
        self, generator: CodeGenerator, region: Region, device: Device, mode: Mode
    ) -> None:
        self._generator = generator
        self._region = region
        self._new = device.new_array
        self._mode = mode
        self._made: dict[tuple[Shape, ...], Callable[..., Any] | None] = {}
        self._calls: dict[tuple[Shape, ...], int] = {}
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any) -> Any:
        """The results; NotImplemented where the members are to run by their kernels."""
        shapes = tuple([value.shape for value in inputs])
        found = self._made.get(shapes, NotImplemented)
        if found is NotImplemented:
            found = self._missed(shapes)
        return NotImplemented if found is None else found(inputs)

    def _missed(self, shapes: tuple[Shape, ...]) -> Callable[..., Any] | None:
        """The function for shapes that there is none for yet."""
        with self._lock:
            if shapes in self._made:
                return self._made[shapes]
            if len(self._made) >= _MOST:
                return None
            if self._mode is Mode.ON:
                self._calls[shapes] = self._calls.get(shapes, 0) + 1
                if self._calls[shapes] == _WARM:
                    _background().submit(self._make, shapes)
                return None
        return self._make(shapes)

    def _make(self, shapes: tuple[Shape, ...]) -> Callable[..., Any] | None:
        region = self._region
        made: Callable[..., Any] | None = None
        try:
            generated = self._generator.generate(
                region.members, region.inputs, region.outputs, shapes
            )
            made = self._filling(generated)
        except NotGenerated as why:
            _log.info("%s runs by kernels: %s", region.node.name, why)
        except Exception:  # because it may run in the background, where nobody would see it
            if self._mode is Mode.NOW:
                raise
            _log.exception("%s cannot be compiled, and runs by kernels", region.node.name)
        with self._lock:
            self._made[shapes] = made
            self._calls.pop(shapes, None)
        return made

    def _filling(self, generated: Generated) -> Callable[..., Any]:
        """Calls a function with new arrays for its results."""
        new, takes = self._new, tuple(generated.takes)
        results = [(shape, dtype.numpy) for dtype, shape in generated.results]

        def call(inputs: Sequence[Any]) -> Any:
            given = [inputs[at] for at in takes]
            out = [new(shape, dtype) for shape, dtype in results]
            generated(*given, *out)
            return out[0] if len(out) == 1 else tuple(out)

        return call


@cache
def _background() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="weft-compiler")
