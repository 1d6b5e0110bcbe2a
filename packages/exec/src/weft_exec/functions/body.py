"""A function's body, ready to run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from weft_exec.devices.device import Device
from weft_exec.executor.derivation import Placement
from weft_exec.executor.derive import derive
from weft_exec.executor.executable import Executable
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.parts import placing_on
from weft_exec.executor.runner import Runner
from weft_exec.passes.prepare import prepare
from weft_exec.placement import Placer
from weft_graph.functions.function import Function
from weft_graph.ir.gc_pause import paused_gc
from weft_graph.ir.step_graph import StepGraph


class FunctionBody:
    """The body of a function, ready to run on one device.

    It is made executable once, when it is first run, as the graph of a step is. It may be run by
    several threads at once.

    Args:
      function: of a graph's library.
      device: where all of it runs; it sees the variables and resources of the device's session.
      outputs: the positions of the outputs that are wanted; all results by default.
    """

    def __init__(
        self, function: Function, device: Device, outputs: Sequence[int] | None = None
    ) -> None:
        self.function = function
        self.device = device
        self.outputs = tuple(range(function.results) if outputs is None else outputs)
        self._executable: Executable | None = None
        self._runner = Runner(device.resources.default_container)
        self._lock = threading.Lock()

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """Run it as a step of its own.

        Args:
          values: one for each of the function's inputs, as kernels of the device take them.
        Returns: the outputs that are wanted; they belong to the caller.
        Raises: OpError: as `executable`, or a kernel failed.
        """
        executable = self._executable or self.executable()
        return self._runner.run(executable, executable.slots(values))

    def executable(self) -> Executable:
        """What runs it, derived when first asked for.

        Raises:
          UnimplementedError: the device has no kernel for one of its nodes.
          InvalidArgumentError: a node asks for another device.
        """
        with self._lock:
            if self._executable is None:
                with paused_gc():
                    self._executable = self._derive()
        return self._executable

    def _derive(self) -> Executable:
        function, device = self.function, self.device
        placer = Placer([device.describe()], device.config)
        placer.extend(function.graph.nodes)
        outputs = [function.outputs[i] for i in self.outputs]
        step = prepare(function.inputs, outputs, function.effects, device, note=placer.note)
        return self._executable_of(step, placing_on(device, placer.place))

    def _executable_of(self, step: StepGraph, place: Placement) -> Executable:
        return derive(step, place, Overlap.NOTHING)
