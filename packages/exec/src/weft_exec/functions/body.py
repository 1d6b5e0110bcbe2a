"""The body of a function, ready to run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from weft_exec.devices.device import Device
from weft_exec.executor.derivation import Placement
from weft_exec.executor.derive import derive, derive_first
from weft_exec.executor.executable import Executable
from weft_exec.executor.memory_budget import MemoryBudget, bytes_for_values, unknown_size
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.partitioned_step import place_on
from weft_exec.executor.runner import Runner
from weft_exec.passes.prepare import prepare
from weft_exec.placement import Placer
from weft_graph.functions.function import Function
from weft_graph.ir.gc_pause import pause_gc
from weft_graph.ir.step_graph import StepGraph

Derive = Callable[..., Executable]
"""The signature of `derive` and `derive_first`."""


class FunctionBody:
    """The body of a function, ready to run on one device.

    Its executable is derived at the first run. Thread-safe.

    Args:
      function: a function of a graph's library.
      device: the device that runs the whole body, with the variables and resources of its session.
      outputs: the positions of the outputs to return; all results by default.
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
        """Run the body as a separate step.

        Args:
          values: one value for each input of the function, as for kernels of the device.
        Returns: the requested outputs; they belong to the caller.
        Raises: OpError: see `executable`; or a kernel failed.
        """
        executable = self._executable or self.executable(values)
        warm_up = executable.warm_up
        if warm_up is None:
            return self._runner.run(executable, executable.slots(values))
        start = warm_up.begin()
        results = self._runner.run(executable, executable.slots(values))
        warm_up.end(start)
        if warm_up.is_over:
            self._replace(executable, values)
        return results

    def executable(self, values: Sequence[Any] = ()) -> Executable:
        """Return the executable, which is derived at the first call.

        Args:
          values: values of the inputs, whose sizes are used to estimate its memory.
        Raises:
          UnimplementedError: the device has no kernel for one of the nodes.
          InvalidArgumentError: a node requests another device.
        """
        with self._lock:
            if self._executable is None:
                with pause_gc():
                    self._executable = self._derive(values)
        return self._executable

    def _replace(self, executable: Executable, values: Sequence[Any]) -> None:
        """Replace the executable by one with compiled regions, unless another thread did so."""
        with self._lock:
            if self._executable is executable:
                with pause_gc():
                    self._executable = self._derive(values, derive)

    def _derive(self, values: Sequence[Any], make: Derive = derive_first) -> Executable:
        function, device = self.function, self.device
        placer = Placer([device.describe()], device.config)
        placer.extend(function.graph.nodes)
        outputs = [function.outputs[i] for i in self.outputs]
        step = prepare(function.inputs, outputs, function.effects, device, note=placer.note)
        budget = self._budget(values) if device.memory_limit else None
        return self._executable_of(step, place_on(device, placer.place), budget, make)

    def _budget(self, values: Sequence[Any]) -> MemoryBudget:
        """Return the memory budget of compiled code, from the memory in use at the first run."""
        from weft_exec.costs import CostModel

        device = self.device
        costs = CostModel()
        inputs = self.function.inputs
        pairs = zip(inputs, values, strict=False)
        of_any_rank = [getattr(value, "size", 0) for arg, value in pairs if arg.dims is None]
        costs.assume(max(unknown_size(inputs, values), *of_any_rank, 0))
        used = device.allocator.statistics().bytes_in_use
        return MemoryBudget(bytes_for_values(device.memory_limit, used), costs.nbytes)

    def _executable_of(
        self, step: StepGraph, placement: Placement, budget: MemoryBudget | None, make: Derive
    ) -> Executable:
        return make(step, placement, Overlap.NOTHING, budget=budget)
