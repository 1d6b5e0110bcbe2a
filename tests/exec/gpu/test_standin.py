"""Errors in CUDA kernels that the stand-in for CuPy detects; weft's kernels have none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cupy_standin import Machine, rawkernel


def kernel(body: str) -> rawkernel.RawKernel:
    return rawkernel.RawKernel(
        f'extern "C" __global__ void f(const float* x, float* y, int n) {{ {body} }}', "f"
    )


def test_the_standin_takes_only_arguments_of_the_kernels_types(machine: Machine) -> None:
    import cupy

    f = kernel("y[0] = x[0] + n;")
    x, y = cupy.ones(1, np.float32), cupy.zeros(1, np.float32)
    f((1,), (1,), (x, y, np.int32(3)))
    assert float(y[0]) == 4
    for wrong in ((x, y, 3), (x, y, np.int64(3)), (x, cupy.zeros(1), np.int32(3)), (x, y)):
        with pytest.raises(TypeError):
            f((1,), (1,), wrong)


SHARED = "__shared__ float held[8]; unsigned t = threadIdx.x; held[t] = x[t];"


def test_the_standin_finds_a_barrier_that_is_missing(machine: Machine) -> None:
    import cupy

    x, y = cupy.arange(8, dtype=np.float32), cupy.zeros(8, np.float32)
    sums = []
    for barrier in ("__syncthreads();", ""):
        body = f"__syncthreads(); {SHARED} {barrier} y[t] = held[t] + held[7 - t];"
        kernel(body)((1,), (8,), (x, y, np.int32(8)))
        sums.append(y.get().tolist())
    assert sums[0] == [7.0] * 8
    assert sums[1] != sums[0]


def test_the_standin_finds_barriers_that_not_all_pass(machine: Machine) -> None:
    import cupy

    x, y = cupy.zeros(8, np.float32), cupy.zeros(8, np.float32)
    with pytest.raises(AssertionError, match="barriers"):
        kernel(f"{SHARED} if (t < 4) __syncthreads();")((1,), (8,), (x, y, np.int32(8)))


def sanitized(*command: str) -> subprocess.CompletedProcess[str]:
    """Return the result of a Python command with kernels under AddressSanitizer."""
    cxx = rawkernel.compiler()
    if cxx is None:
        pytest.skip("no C++ compiler")
    found = subprocess.run([cxx, "-print-file-name=libasan.so"], capture_output=True, text=True)
    if not Path(found.stdout.strip()).is_absolute():
        pytest.skip("no AddressSanitizer")
    environment = {
        **os.environ,
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "LD_PRELOAD": found.stdout.strip(),
        "PYTHONPATH": str(Path(rawkernel.__file__).parents[1]),
        "WEFT_STANDIN_SANITIZE": "1",
    }
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True
    )


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_no_kernel_leaves_its_arrays() -> None:
    tests = [str(Path(__file__).with_name(name)) for name in ("test_kernels.py", "test_state.py")]
    done = sanitized("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    assert " passed" in done.stdout


@pytest.mark.long
def test_a_kernel_that_leaves_its_arrays_is_found_out() -> None:
    done = sanitized(
        "-c",
        "import numpy as np, cupy_standin\n"
        "with cupy_standin.installed():\n"
        "    import cupy\n"
        "    code = 'extern \"C\" __global__ void f(float* x, int n) { x[n] = 1; }'\n"
        "    cupy.RawKernel(code, 'f')((1,), (1,), (cupy.zeros(4096, np.float32), np.int32(4096)))",
    )
    assert "heap-buffer-overflow" in done.stderr


def test_the_standin_runs_a_graph_when_it_is_launched_and_not_before(machine: Machine) -> None:
    import cupy

    pool, stream = cupy.cuda.MemoryPool(), cupy.cuda.Stream(non_blocking=True)
    x = cupy.ones(8, np.float32)
    with cupy.cuda.using_allocator(pool.malloc), stream:
        stream.begin_capture()
        y = x + 1.0
        z = y * 2.0
        graph = stream.end_capture()
    assert np.isnan(z.get()).all()  # nothing has run yet
    x.fill(3.0)
    graph.launch(cupy.cuda.Stream(null=True))
    assert z.get().tolist() == [8.0] * 8


def test_the_standin_refuses_what_cannot_be_captured(machine: Machine) -> None:
    import cupy

    x, stream = cupy.ones((4, 4), np.float32), cupy.cuda.Stream(non_blocking=True)
    for work, error in (
        (lambda: cupy.matmul(x, x), NotImplementedError),
        (lambda: float(x[0, 0]), RuntimeError),
        (lambda: x.get(), RuntimeError),
        (lambda: cupy.nonzero(x), RuntimeError),
    ):
        with stream:
            stream.begin_capture()
            with pytest.raises(error):
                work()
            if error is RuntimeError:
                with pytest.raises(RuntimeError, match="Invalidated"):
                    stream.end_capture()
            else:
                stream.end_capture()
