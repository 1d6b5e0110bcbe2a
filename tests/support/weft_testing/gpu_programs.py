"""Programs for GPUs, run on the host: the kernels' LLVM compiled for this processor.

The text is that of which PTX is made. What a GPU has and the host has not, the numbers of threads
and blocks, barriers and shuffles, are functions of `cupy_standin/blocks.cpp`, which runs the
threads of a block as fibers. So indices, barriers, memory and numbers are tested, and PTX is not.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from cupy_standin import modules
from cupy_standin.rawkernel import compiler

from weft_compiler.codegen.targets import host, object_code
from weft_compiler.gpu import code
from weft_compiler.gpu.kernel import BARRIER, BLOCK, BLOCKS, SHUFFLE, THREAD
from weft_compiler.gpu.module import GpuModule, ptx_of
from weft_compiler.ir.program import Program
from weft_compiler.native.linking import Library, call_once

_SOURCE: Final = Path(__file__).parent.parent / "cupy_standin" / "blocks.cpp"
_NAMES: Final = {
    THREAD: "weft_thread",
    BLOCK: "weft_block",
    BLOCKS: "weft_blocks",
    BARRIER: "weft_barrier",
    SHUFFLE: "weft_shuffle",
}
_KERNEL: Final = re.compile(r"define ptx_kernel void @(\w+)\(([^)]*)\)")
_SHARED: Final = re.compile(r"@([\w.]+) = internal addrspace\(3\) global \[(\d+) x i(\d+)\] undef")
_NO_CAST: Final = r"getelementptr i8, ptr \1, i64 0"
_lock = threading.Lock()


@call_once
def _driver() -> Any:
    """Build the driver that runs blocks, once per process."""
    cxx = compiler()
    assert cxx is not None, "no C++ compiler"
    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch) / "blocks.so"
        subprocess.run([cxx, "-O1", "-shared", "-fPIC", "-o", library, _SOURCE], check=True)
        return ctypes.CDLL(str(library))


class HostModule:
    """The kernels of a module as host functions.

    Args:
      text: of LLVM, for a GPU.
    """

    def __init__(self, text: str) -> None:
        kernels = {name: given.count("ptr ") for name, given in _KERNEL.findall(text)}
        self._shared = {
            name: int(count) * int(bits) // 8 for name, count, bits in _SHARED.findall(text)
        }
        self._waits = {
            name: f"@{BARRIER}(i32 0)" in body or f"@{SHUFFLE}(i32 -1" in body
            for name, body in re.findall(r"define ptx_kernel void @(\w+)(.*?)\n}", text, re.DOTALL)
        }
        text = re.sub(r"target (triple|datalayout) = .*", "", text)
        text = text.replace("internal addrspace(3) global", "global")
        text = re.sub(r"addrspacecast ptr addrspace\(3\) (.*) to ptr", _NO_CAST, text)
        text = text.replace(" addrspace(3)", "").replace("define ptx_kernel", "define")
        for name, other in _NAMES.items():
            text = text.replace(f"@{name}(", f"@{other}(")
        driver = _driver()
        imports = {
            name: ctypes.cast(getattr(driver, name), ctypes.c_void_p).value or 0
            for name in _NAMES.values()
        }
        entries = [_entry(name, count) for name, count in kernels.items()]
        image = object_code("\n".join([text, *entries]), host())
        names = [f"{name}.enter" for name in kernels]
        self._library = Library(image, [*names, *self._shared], imports)
        self.kernels = kernels

    def launch(self, name: str, blocks: int, threads: int, addresses: Sequence[int]) -> None:
        """Run a kernel.

        Raises: AssertionError: threads of a block wait for different things.
        """
        assert blocks > 0 and 0 < threads <= 1024 and len(addresses) == self.kernels[name]
        given = (ctypes.c_void_p * len(addresses))(*addresses)
        shared = {k: size for k, size in self._shared.items() if k.startswith(f"{name}.")}
        places = (ctypes.c_void_p * max(1, len(shared)))(*map(self._library.address, shared))
        sizes = (ctypes.c_ulong * max(1, len(shared)))(*shared.values())
        function = ctypes.c_void_p(self._library.address(f"{name}.enter"))
        with _lock:
            waits = self._waits[name]
            apart = _driver().weft_run(
                function, given, blocks, threads, int(waits), places, sizes, len(shared)
            )
        assert not apart, f"threads of a block of {name} wait for different things"


def _entry(name: str, count: int) -> str:
    """Return a function that reads a kernel's arguments from memory."""
    loads = [
        f"  %p{at} = getelementptr ptr, ptr %args, i64 {at}\n  %a{at} = load ptr, ptr %p{at}"
        for at in range(count)
    ]
    given = ", ".join(f"ptr %a{at}" for at in range(count))
    lines = [f"define void @{name}.enter(ptr %args) {{", *loads, f"  call void @{name}({given})"]
    return "\n".join([*lines, "  ret void", "}"])


def run_on_host(
    program: Program, module: GpuModule, arrays: Sequence[Any], before: Sequence[Any] = ()
) -> tuple[int, list[Any]]:
    """Run the kernels of a program on the host; return the flag and the outputs.

    Args:
      arrays: the inputs that are no constants.
      before: what outputs that are updated have.
    Returns: the flag, and the outputs.
    """
    given = iter(arrays)
    memory: dict[str, Any] = {}
    for buffer in program.inputs:
        value = program.constants.get(buffer.name)
        memory[buffer.name] = np.ascontiguousarray(next(given) if value is None else value)
    old = iter(before)
    for buffer in program.outputs:
        if buffer.name in program.updated:
            memory[buffer.name] = np.array(next(old), order="C")
        else:
            undefined = np.frombuffer(b"\x7f" * buffer.bytes, buffer.dtype.numpy)
            memory[buffer.name] = undefined.reshape(buffer.shape).copy()
    arena, flag = np.full(max(1, module.arena), 0x7F, np.uint8), np.zeros(1, np.int32)
    kernels = HostModule(module.text)
    for step in module.steps:
        taken = [arena, flag, *[memory[name] for name in step.buffers]]
        kernels.launch(step.name, step.blocks, step.threads, [each.ctypes.data for each in taken])
    return int(flag[0]), [memory[buffer.name] for buffer in program.outputs]


def ptxas() -> str | None:
    """Return the path of NVIDIA's assembler."""
    try:
        found = importlib.util.find_spec("nvidia.cuda_nvcc")
    except ModuleNotFoundError:
        found = None
    for folder in (found.submodule_search_locations or []) if found else []:
        path = Path(folder) / "bin" / "ptxas"
        if path.exists():
            return str(path)
    return shutil.which("ptxas")


@cache
def assembled_for(assembler: str) -> frozenset[str]:
    """Return the architectures that an assembler supports, such as sm_80."""
    said = subprocess.run([assembler, "--help"], capture_output=True, text=True, check=True)
    return frozenset(re.findall(r"'(sm_\d+)'", said.stdout))


def registers(module: GpuModule) -> list[int]:
    """Return the number of registers of each kernel; skip the test if there is no assembler.

    What spills is a warning, so that pytest lists it with the test.

    Raises: AssertionError: it refuses the PTX, or four registers and more do not suffice.
    """
    assembler = ptxas()
    if assembler is None:
        pytest.skip("ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
    cpu = module.target.cpu
    known = assembled_for(assembler)
    if cpu not in known:
        later = [int(each[3:]) for each in known if int(each[3:]) > int(cpu[3:])]
        if not later:
            pytest.skip(f"{assembler} knows nothing as new as {cpu}")
        cpu = f"sm_{min(later)}"  # which runs the same PTX
    with tempfile.TemporaryDirectory() as scratch:
        source, made = Path(scratch) / "kernel.ptx", Path(scratch) / "kernel.cubin"
        source.write_text(ptx_of(module))
        command = [assembler, "-v", f"-arch={cpu}", str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    spilled = [int(count) for count in re.findall(r"(\d+) bytes spill stores", done.stderr)]
    if any(spilled):
        warnings.warn(f"kernels for {cpu} spill {spilled} bytes", stacklevel=2)
    assert max(spilled, default=0) <= 16, done.stderr
    return [int(count) for count in re.findall(r"Used (\d+) registers", done.stderr)]


@contextmanager
def assembling() -> Iterator[None]:
    """Let the stand-in for CuPy run the generated PTX inside a block."""
    made = code.ptx_of

    def ptx(module: GpuModule) -> str:
        found = made(module)
        if found not in modules.assembled:
            modules.assembled[found] = HostModule(module.text)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code, "ptx_of", ptx)
        yield
