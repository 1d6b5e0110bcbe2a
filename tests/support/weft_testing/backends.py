"""The backends of the conformance table: one entry of `BACKENDS` for each way to run a graph.

A backend gets a case as a graph of all its element types, with gradients for some, and returns the
values. They are compared with those of the reference, which runs the CPU's kernels node by node,
without any executor; `tests/conformance/test_ops.py` compares that reference with NumPy.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any, ClassVar

import cupy_standin
import numpy as np
import pytest
import weft_accelerator
from cupy_standin.rawkernel import compiler

import weft as wf
from weft_distrib import Server
from weft_distrib.wire import memory
from weft_exec.gpu import residency
from weft_graph.ir.code_generators import device_generators
from weft_testing import lite
from weft_testing.case_graph import CaseGraph, pin, unfolded
from weft_testing.cases import Case
from weft_testing.evaluate import evaluate
from weft_testing.gpu_programs import assembling
from weft_testing.gpus import missing_gpu
from weft_testing.tasks import free_ports

Tolerance = Mapping[str, tuple[float, float]]


class Backend:
    """A way to run graphs.

    Attributes:
      name: in the names of the items.
      tolerance: element type to (relative, absolute), against the reference; others are exact.
      marks: of its items.
      fewest: how many cases it takes at least.
    """

    name: str
    fewest = 500
    tolerance: ClassVar[Tolerance] = {}
    marks: tuple[pytest.MarkDecorator, ...] = ()

    def missing(self) -> str | None:
        """Return the reason why it cannot run on this machine, or ""."""
        return None

    def marks_of(self, case: Case) -> tuple[pytest.MarkDecorator, ...]:
        """Return the marks of a case's item."""
        return self.marks

    def takes(self, made: CaseGraph) -> bool:
        """Return True if the backend computes a part of the case; called during collection."""
        raise NotImplementedError

    def opened(self) -> AbstractContextManager[Any]:
        """Return a context for its runs."""
        return nullcontext()

    def run(self, made: CaseGraph) -> list[Any]:
        """Return the values of the case's fetches; None for those that it does not compute."""
        raise NotImplementedError

    def compare(self, case: Case, output: wf.Tensor, got: Any, want: Any) -> None:
        """Raise AssertionError unless a value equals the reference, up to rounding."""
        compare(output, got, want, self.tolerance)


class Sessions(Backend):
    """A session on the CPU, with all graph rewrites."""

    name = "session"
    # NumPy's power rounds scalars otherwise than arrays; compiled sums have another order.
    tolerance: ClassVar[Tolerance] = (
        {"float64": (4e-16, 0.0)}
        if os.environ.get("WEFT_JIT", "asked") in ("off", "asked")
        else {"float32": (2e-5, 2e-5), "float64": (1e-12, 1e-12)}
    )

    def takes(self, made: CaseGraph) -> bool:
        return True

    def run(self, made: CaseGraph) -> list[Any]:
        for node in made.graph.nodes:
            node.device = ""  # which another backend may have set
        return _run(made, wf.ConfigProto(device_count={"GPU": 0}))


class Devices(Backend):
    """A session with another device, to which all nodes with a kernel for it are pinned."""

    device_type: str

    def takes(self, made: CaseGraph) -> bool:
        pinned = set(pin(made.graph, self.device_type))
        return any(node in pinned for node in made.nodes)

    def config(self) -> wf.ConfigProto:
        """Return the config of a session with the device."""
        raise NotImplementedError

    def run(self, made: CaseGraph) -> list[Any]:
        pinned = set(pin(made.graph, self.device_type))
        assert any(node in pinned for node in made.nodes)
        return _run(made, self.config())


class StandIn(Devices):
    """Simulated GPUs, by the stand-in for CuPy.

    Args:
      all_there: also what is usually left in the host's memory because it is small.
    """

    device_type = "GPU"
    tolerance: ClassVar[Tolerance] = {
        "float16": (4e-3, 4e-3),
        "float32": (2e-5, 2e-5),
        "float64": (1e-9, 1e-9),
        "complex64": (2e-5, 2e-5),
        "complex128": (1e-9, 1e-9),
    }

    def __init__(self, all_there: bool) -> None:
        self.name = "standin-all-there" if all_there else "standin"
        self._all_there = all_there

    def missing(self) -> str | None:
        return None if compiler() else "no C compiler for the stand-in's kernels"

    def takes(self, made: CaseGraph) -> bool:
        if self._all_there and len(made.case.op_def.inputs) < 2 and "int32" not in made.case.dtypes:
            return False  # nothing of the case would be elsewhere than without the setting
        return super().takes(made)

    def opened(self) -> AbstractContextManager[Any]:
        return cupy_standin.installed()

    def config(self) -> wf.ConfigProto:
        return unfolded()

    def run(self, made: CaseGraph) -> list[Any]:
        with _staying(-1) if self._all_there else nullcontext():
            return super().run(made)


def _is_compiled_for_gpus(backend: Devices, made: CaseGraph) -> bool:
    """Return True if a GPU-compiling backend compiles a part of a case."""
    generator = device_generators.lookup("GPU")
    return Devices.takes(backend, made) and not all(map(generator.unsupported_reason, made.nodes))


class CompiledStandIn(StandIn):
    """Compiled regions on simulated GPUs; all cases in long runs, otherwise a twentieth."""

    takes = _is_compiled_for_gpus

    def __init__(self) -> None:
        super().__init__(all_there=True)
        self.name = "standin-compiled"

    def marks_of(self, case: Case) -> tuple[pytest.MarkDecorator, ...]:
        chosen = zlib.crc32(f"{self.name} {case.op} {case.name}".encode()) % 20 == 0
        return () if chosen else (pytest.mark.long,)

    @contextmanager
    def opened(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch, super().opened(), assembling():
            patch.setenv("WEFT_JIT", "now")
            yield


class Accelerator(Devices):
    """A simulated accelerator, which copies values to its own memory."""

    name = "accelerator"
    device_type = "ACCEL"
    tolerance: ClassVar[Tolerance] = Sessions.tolerance

    def opened(self) -> AbstractContextManager[Any]:
        return nullcontext(weft_accelerator.plug_in(1))

    def config(self) -> wf.ConfigProto:
        return unfolded(device_count={"GPU": 0, "ACCEL": 1})

    def run(self, made: CaseGraph) -> list[Any]:
        hardware = weft_accelerator.accelerator()
        before = hardware.kernels
        values = super().run(made)
        pinned = [node for node in made.nodes if node.device]
        assert hardware.kernels - before >= len(pinned), "nodes ran elsewhere"
        return values


class Cluster(Backend):
    """Two tasks of a cluster in this process, connected by sockets, with nodes on alternating
    tasks.
    """

    name = "cluster"
    tolerance: ClassVar[Tolerance] = Sessions.tolerance
    protocol = "grpc"

    def takes(self, made: CaseGraph) -> bool:
        return True

    def run(self, made: CaseGraph) -> list[Any]:
        for i, node in enumerate(made.graph.nodes):
            node.device = "" if _stays(node) else f"/job:worker/task:{i % 2}"
        first, _ = two_servers(self.protocol)
        with wf.Session(first.target, graph=made.graph, config=unfolded()) as session:
            results = list(session.run(made.fetches, made.feeds))
        wf.Session.reset(first.target)
        return results


class SharedCluster(Cluster):
    """A cluster with all arrays in shared memory, for a tenth of the cases."""

    name = "cluster, shared memory"
    fewest = 100

    def takes(self, made: CaseGraph) -> bool:
        return zlib.crc32(f"{self.name} {made.case.op} {made.case.name}".encode()) % 10 == 0

    @contextmanager
    def opened(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(memory, "SHARED_BYTES", 1)
            yield


class TcpCluster(Cluster):
    """A cluster that uses only TCP, for a tenth of the cases."""

    name = "cluster, tcp"
    fewest = 100
    protocol = "grpc+tcp"
    takes = SharedCluster.takes


def _stays(node: wf.Operation) -> bool:
    """Return True if a node reads or returns values that cannot leave their task."""
    kept = (wf.resource, wf.variant)
    return any(v.dtype in kept or v.dtype._is_ref_dtype for v in (*node.inputs, *node.outputs))


@lru_cache
def two_servers(protocol: str) -> tuple[Server, Server]:
    """Start two tasks of one cluster, which live as long as the process."""
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
    first, second = [Server(cluster, "worker", i, protocol) for i in range(2)]
    return first, second


class Lite(Backend):
    """One lite file per node, run by lite's interpreter, without gradients."""

    name = "lite"
    tolerance: ClassVar[Tolerance] = {"float32": (2e-5, 2e-6), "float16": (2e-3, 2e-3)}

    def takes(self, made: CaseGraph) -> bool:
        return lite.takes(made)

    def run(self, made: CaseGraph) -> list[Any]:
        values = lite.values(made)
        return [values.get(output) for output in made.fetches]


class Gpu(Devices):
    """A real GPU."""

    name = "gpu"
    device_type = "GPU"
    marks = (pytest.mark.gpu,)
    tolerance: ClassVar[Tolerance] = {
        "float16": (1e-2, 1e-2),
        "float32": (2e-3, 2e-4),  # cuDNN and cuBLAS may use TF32
        "float64": (1e-7, 1e-8),
        "complex64": (2e-3, 2e-4),
        "complex128": (1e-7, 1e-8),
    }
    up_to_sign = ("Svd", "Qr", "SelfAdjointEigV2")
    """Ops whose vectors are determined only up to their signs."""

    def missing(self) -> str | None:
        return missing_gpu()

    def config(self) -> wf.ConfigProto:
        proto = unfolded()
        proto.gpu_options.allow_growth = True
        return proto

    def compare(self, case: Case, output: wf.Tensor, got: Any, want: Any) -> None:
        if case.op in self.up_to_sign and got.ndim > 1:
            got, want = np.abs(got), np.abs(want)
        super().compare(case, output, got, want)


class CompiledGpu(Gpu):
    """Compiled regions on a real GPU."""

    name = "gpu-compiled"
    takes = _is_compiled_for_gpus

    @contextmanager
    def opened(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("WEFT_JIT", "now")
            yield


BACKENDS: tuple[Backend, ...] = (
    Sessions(),
    StandIn(all_there=False),
    StandIn(all_there=True),
    CompiledStandIn(),
    Accelerator(),
    Cluster(),
    SharedCluster(),
    TcpCluster(),
    Lite(),
    Gpu(),
    CompiledGpu(),
)
"""All backends of the table."""


@lru_cache(maxsize=4)
def reference(case: Case) -> tuple[CaseGraph, list[Any]]:
    """Return the graph of a case and its reference values, from a small cache."""
    made = CaseGraph(case)
    made.differentiate()
    with made.graph.as_default():
        return made, [np.asarray(value) for value in evaluate(made.fetches, made.feeds)]


def compare(output: wf.Tensor, got: Any, want: Any, tolerance: Tolerance) -> None:
    """Raise AssertionError unless two values have the same type and shape, and agree."""
    got = np.asarray(got, object if want.dtype == object else None)
    assert got.dtype == want.dtype and got.shape == want.shape, (output, got, want)
    limits = tolerance.get(output.dtype.name)
    if want.dtype != object and got.tobytes() == want.tobytes():
        return
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    if limits is None:
        if output.dtype.is_floating:  # what is no number of bfloat16 is unequal to itself
            got, want = got.astype(wide), want.astype(wide)
        np.testing.assert_array_equal(got, want, err_msg=repr(output))
        return
    np.testing.assert_allclose(
        got.astype(wide), want.astype(wide), *limits, equal_nan=True, err_msg=repr(output)
    )


def _run(made: CaseGraph, config: wf.ConfigProto) -> list[Any]:
    with wf.Session(graph=made.graph, config=config) as session:
        return list(session.run(made.fetches, made.feeds))


@contextmanager
def _staying(size: int) -> Iterator[None]:
    """Change the size up to which GPU values stay on the host."""
    before = residency.STAYING_BYTES
    residency.STAYING_BYTES = size
    try:
        yield
    finally:
        residency.STAYING_BYTES = before
