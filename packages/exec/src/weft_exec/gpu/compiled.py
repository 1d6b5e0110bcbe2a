"""Compiled nodes as generated GPU kernels, which are loaded through CuPy.

A function launches its kernels one after the other on the kernels' stream. If its arrays have the
same addresses as in an earlier call, one launch of a captured CUDA graph replaces the launches;
this is common in training loops with pooled memory.

A program with checks, for example of indices, sets a flag, and the call waits for this flag.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from weft_exec.gpu.base_device import BaseGpuDevice
from weft_exec.gpu.capture import Capture, current
from weft_exec.gpu.gpu_measurement import fastest_times, roofline
from weft_exec.gpu.launch import finalize_result
from weft_exec.kernels.random import stream_of
from weft_graph.ir.code_generators import (
    DeviceCode,
    DeviceCodeGenerator,
    NoProfiles,
    NotGenerated,
    ProfileStore,
    RegionRequest,
    Request,
)
from weft_graph.ir.compiled_function import CompiledFunction, Roofline
from weft_graph.ir.node import Node
from weft_tensor import errors

_GRAPHS: Final = 4
"""Maximum number of graphs of a function, one for each set of addresses."""
_TRIES: Final = 64
"""Number of calls with new addresses after which no further graphs are captured."""

_log: Final = logging.getLogger(__name__)


class GpuFunction:
    """Kernels that compute some nodes on one GPU.

    Attributes:
      input_positions, rng_nodes, reports_rng_use, results, updates, is_long_running, is_bounded,
        is_shape_polymorphic, threads: see
        `weft_graph.ir.code_generators.Generated`.

    Raises: ResourceExhaustedError: the memory that it works in does not fit.
    """

    reports_rng_use = False
    is_long_running = False
    is_bounded = True
    is_shape_polymorphic = False

    def __init__(self, code: DeviceCode, device: BaseGpuDevice) -> None:
        self.input_positions, self.rng_nodes = code.input_positions, code.rng_nodes
        self.results, self.updates = code.results, code.updates
        self.threads = 1  # threads of the host
        self._device = device
        self._messages = code.messages
        self._streams = [stream_of(node, device.resources) for node in code.rng_nodes]
        self._memory = code.memory
        self._lock = threading.Lock()
        cupy = device.xp
        with device.active():
            module = cupy.cuda.function.Module()
            module.load(code.image.encode())
            self._launches = [
                (module.get_function(launch.kernel), launch) for launch in code.launches
            ]
            self._module = module  # its functions do not keep it alive
            self._arena = cupy.empty(max(1, code.memory), np.uint8)
            self._flag = cupy.zeros(1, np.int32)
            self._constants = [device.own(np.asarray(value)) for value in code.constants]
        self._graphs = Graphs(device, f"{len(code.launches)} kernels")

    @property
    def enter(self) -> Callable[..., Any]:
        """A call without a fast path; see `Generated`."""
        return self

    @property
    def enter_briefly(self) -> Callable[..., Any]:
        """The same call, because nothing interrupts it; see `Generated`."""
        return self

    def __call__(self, *arrays: Any) -> None:
        """Compute the nodes; see `Generated`. Arrays in the host's memory are copied to the GPU."""
        device, count = self._device, len(self.updates)
        if current.capture is not None:
            self._capture(current.capture, arrays)
            return
        with device.active():
            dense = [device.xp.ascontiguousarray(device.own(array)) for array in arrays]
            contiguous = [
                item.reshape(array.shape) for item, array in zip(dense, arrays, strict=True)
            ]
            with self._lock:  # calls share the arena, and must not interleave their kernels
                self._enqueue([*self._constants, *contiguous])
                self._raise_what_failed()
            for array, used in list(zip(arrays, contiguous, strict=True))[len(arrays) - count :]:
                if used.data.ptr != array.data.ptr:  # a variable that is not contiguous
                    device.xp.copyto(array, used)

    def _capture(self, capture: Capture, arrays: Sequence[Any]) -> None:
        """Add the kernels to a graph, with its own memory and flag.

        Raises: NotCaptured: the host would have to evaluate a check in between.
        """
        device, cupy, count = self._device, self._device.xp, len(self.updates)
        available = list(arrays)
        if self._streams:
            input_index = len(self.input_positions)
            available[input_index] = capture.rng_state_array(available[input_index], self._streams)
        contiguous = [
            cupy.ascontiguousarray(device.own(array)).reshape(array.shape) for array in available
        ]
        if count:
            capture.note_change()
        flag = capture.check() if self._messages else self._flag
        arena = cupy.empty(max(1, self._memory), np.uint8)
        self._launch([*self._constants, *contiguous], arena, flag)
        for array, used in list(zip(available, contiguous, strict=True))[len(available) - count :]:
            if used.data.ptr != array.data.ptr:
                cupy.copyto(array, used)
        capture.kept_alive.append(self)

    def _launch(self, arrays: Sequence[Any], arena: Any, flag: Any) -> None:
        for function, item in self._launches:
            arguments = [arrays[array_index] for array_index in item.arrays]
            function((item.blocks,), (item.threads,), (arena, flag, *arguments))

    def _enqueue(self, arrays: Sequence[Any]) -> None:
        launch = partial(self._launch, arrays, self._arena, self._flag)
        if len(self._launches) > 1:
            self._graphs.launch(launch, tuple([array.data.ptr for array in arrays]))
        else:
            launch()

    def _raise_what_failed(self) -> None:
        """Wait for the flag if there are checks, and raise the error of a failed one.

        Raises: InvalidArgumentError: a check failed.
        """
        if not self._messages:
            return
        failed = int(self._device.to_host(self._flag)[0])
        if failed:
            self._flag.fill(0)
            raise errors.InvalidArgumentError(self._messages[failed - 1])

    def measured(self, inputs: Sequence[Any]) -> list[float]:
        """Return the seconds of each kernel in its fastest run, on copies of host inputs.

        Raises: InvalidArgumentError: a check failed.
        """
        device, xp = self._device, self._device.xp
        with device.active(), self._lock:
            samples = [np.array(inputs[array_index]) for array_index in self.input_positions]
            if self.rng_nodes:  # a counter and a key for each, as from `RandomStream.next_state`
                samples.append(np.zeros((len(self.rng_nodes), 6), np.uint64))
            results = [xp.empty(shape, dtype.numpy) for dtype, shape in self.results]
            updated = [device.own(np.array(inputs[array_index])) for array_index in self.updates]
            arrays = [*self._constants, *map(device.own, samples), *results, *updated]
            launches = [
                partial(
                    function,
                    (item.blocks,),
                    (item.threads,),
                    (
                        self._arena,
                        self._flag,
                        *[arrays[array_index] for array_index in item.arrays],
                    ),
                )
                for function, item in self._launches
            ]
            seconds = fastest_times(device, launches)
            self._raise_what_failed()
        return seconds

    def interrupt(self) -> None:
        """Do nothing: work on a GPU ends on its own within milliseconds."""

    def resume(self) -> None:
        """Do nothing; see `interrupt`."""

    def copy(self) -> GpuFunction:
        """Return the function itself, because calls are serialized and never interrupted."""
        return self

    def traced(self, receive: Callable[[Any], None]) -> None:
        """Return None: kernels are launched together, and only their total time is measured."""


class Graphs:
    """Launches as CUDA graphs, for arrays whose addresses were seen before.

    Args:
      what: a description of the launches, for the log.
    """

    def __init__(self, device: BaseGpuDevice, message: str) -> None:
        self._device = device
        self._message = message
        self._graphs: dict[tuple[int, ...], Any] = {}
        self._last: tuple[int, ...] = ()
        self._tries = 0

    def launch(self, launches: Callable[[], None], positions: tuple[int, ...]) -> None:
        """Enqueue launches on the kernels' stream, as one graph if they were captured.

        Args:
          launches: enqueues them on the current stream.
          positions: the addresses of all their arrays.
        """
        graph = self._graphs.get(positions)
        if graph is not None:
            graph.launch(stream=self._device.hardware.compute)
            return
        launches()
        if len(self._graphs) == _GRAPHS or self._tries > _TRIES:
            return
        if positions == self._last:
            self._graphs[positions] = self._capture_graph(launches)
        else:
            self._tries += 1
            if self._tries > _TRIES:
                _log.info(
                    "%s are launched one by one: the addresses of their arrays keep changing",
                    self._message,
                )
        self._last = positions

    def _capture_graph(self, launches: Callable[[], None]) -> Any:
        """Return a graph of launches, captured on a separate stream."""
        stream = self._device.xp.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            try:
                launches()
            finally:
                graph = stream.end_capture()
        return graph


class GpuGenerator:
    """Generator of functions of nodes for one GPU: a `CodeGenerator`.

    Args:
      inner: generates the kernels.
    Attributes:
      profiles: see `CodeGenerator`.
    """

    profiles: ProfileStore = NoProfiles()

    def __init__(self, inner: DeviceCodeGenerator, device: BaseGpuDevice) -> None:
        self._inner = inner
        self._device = device
        self.unsupported_reason = inner.unsupported_reason
        self.changes = inner.changes
        self.changes_places = inner.changes_places
        self.reads = inner.reads
        self.uses_rng = inner.uses_rng
        self.value_dependent_inputs = inner.value_dependent_inputs
        self.repays = inner.repays

    def fingerprint(self, request: Request) -> str | None:
        """Return None: PTX is cached by its text; see `CodeGenerator`."""
        return None

    def find(self, request: Request) -> GpuFunction | None:
        """Return None: PTX is looked up on the disk during generation; see `CodeGenerator`."""
        return None

    def polymorphic_fingerprint(self, request: Request) -> str | None:
        """Return None; see `fingerprint`."""
        return None

    def instance(self, request: Request, like: Any) -> GpuFunction | None:
        """Return None: code of GPUs is for one choice of sizes; see `CodeGenerator`."""
        return None

    def generate(self, request: Request, like: Any = (), other_choices: Any = ()) -> GpuFunction:
        """Return a function that computes some nodes; see `CodeGenerator`."""
        return GpuFunction(
            self._inner.generate(_region(request), *self._code_variants()), self._device
        )

    def kernels(self, request: Request) -> Sequence[Sequence[Node]]:
        """Raise NotGenerated, because `GpuFunction.traced` records no kernels."""
        raise NotGenerated("the kernels of a region on a GPU are not recorded")

    def explain(self, request: Request, inputs: Sequence[Any]) -> CompiledFunction:
        """Explain the kernels of some nodes, with the time of each by the GPU's clock."""
        code, result = self._inner.explain(_region(request), *self._code_variants())
        seconds = GpuFunction(code, self._device).measured([np.asarray(array) for array in inputs])
        kernels = [
            replace(kernel, seconds=item)
            for kernel, item in zip(result.kernels, seconds, strict=True)
        ]
        return replace(result, kernels=kernels, seconds=sum(seconds), limits=self.roofline())

    def _code_variants(self) -> tuple[tuple[int, int], bool]:
        """Return the compute capability, and True if all runs must give the same bits."""
        device = self._device
        return device.properties.compute_capability, device.config.deterministic

    def roofline(self) -> Roofline:
        """Return the GPU's limits; see `gpu_measurement.py`."""
        return roofline(self._device)

    def clock_reader(self) -> None:
        """Return None: the host's generator reads the clock of the host."""
        return None


def _region(request: Request) -> RegionRequest:
    """Return the request if it is for a region.

    Raises: NotGenerated: it is for a loop.
    """
    if isinstance(request, RegionRequest):
        return request
    raise NotGenerated("whole loops are not compiled for GPUs")


def make_launcher(device: BaseGpuDevice, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs on the kernels' stream and stores its results as kernels do."""

    def run(*inputs: Any) -> Any:
        with device.active():
            result = function(*inputs)
            if isinstance(result, tuple):
                return tuple([finalize_result(device, item, item.dtype) for item in result])
            return (
                finalize_result(device, result, result.dtype) if device.is_own(result) else result
            )

    return run
