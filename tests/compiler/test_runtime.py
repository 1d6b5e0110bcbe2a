"""The runtime in C: its IR, its layouts, and the thread pool."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from weft_testing.runtime_ir import (
    COPY,
    FILES,
    IR,
    POOL,
    SOURCES,
    clang_version,
    golden_text,
    sources_digest,
)

from weft_compiler.codegen import runtime
from weft_compiler.codegen.targets import Target, object_code
from weft_compiler.native import arena, entry, layouts, runtime as native_runtime

TRIPLES = [
    f"{processor}-{system}"
    for processor in ("x86_64", "aarch64")
    for system in ("unknown-linux-gnu", "apple-darwin23.0.0", "pc-windows-msvc")
]


@pytest.mark.parametrize("name", FILES)
def test_ir_is_of_the_sources(name: str) -> None:
    """`hatch run golden:runtime` writes it anew."""
    first = (IR / f"{name}.ll").read_text(encoding="utf-8").partition("\n")[0]
    assert f"sources {sources_digest()}" in first


@pytest.mark.skipif(not find_spec("ziglang"), reason="zig is not installed")
@pytest.mark.parametrize("targets", [1, pytest.param(None, marks=pytest.mark.long)])
def test_ir_is_what_clang_compiles(targets: int | None) -> None:
    files = {name: (IR / f"{name}.ll").read_text(encoding="utf-8") for name in FILES}
    if not all(f"clang {clang_version()}," in text for text in files.values()):
        pytest.skip("another version of clang compiled the files")
    with ThreadPoolExecutor(2) as pool:
        expected = pool.map(lambda name: golden_text(name, targets), files)
        for (name, text), compiled in zip(files.items(), expected, strict=True):
            assert text == compiled, name


def test_weft_lite_has_the_same_thread_pool() -> None:
    assert COPY.read_bytes() == POOL.read_bytes()


@pytest.mark.parametrize("triple", TRIPLES)
def test_every_target_compiles_the_ir(triple: str) -> None:
    target = Target(triple, "", "", freestanding=True)
    text = runtime.text(target)
    assert ("pthread_create" in text) == runtime.has_threads(target)
    assert "weft_pause()\ndeclare" not in text
    assert object_code(text, target)


def test_python_declares_structures_as_c_does() -> None:
    expected = [*layouts.layout(), arena.SLOTS, entry.BUSY]
    address = native_runtime.library().address(runtime.LAYOUT)
    actual = (ctypes.c_int64 * len(expected)).from_address(address)
    assert list(actual) == expected
    (most,) = re.findall(r"WEFT_MAX_THREADS = (\d+)", POOL.read_text(encoding="utf-8"))
    assert int(most) == runtime.MAX_THREADS


HEADERS = """
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>
#include "runtime.h"

#define SAME(field, theirs) \\
  _Static_assert(offsetof(weft_array, field) == offsetof(PyArrayObject_fields, theirs), #field)
SAME(object, base.ob_base);
SAME(data, data);
SAME(rank, nd);
SAME(sizes, dimensions);
SAME(strides, strides);
SAME(dtype, descr);
SAME(flags, flags);
_Static_assert(offsetof(weft_object, type) == offsetof(PyObject, ob_type), "type");
_Static_assert(offsetof(weft_scalar, value) == offsetof(PyFloatScalarObject, obval), "value");
_Static_assert(sizeof(npy_intp) == sizeof(int64_t), "sizes");
"""


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_headers_of_arrays_are_numpys(tmp_path: Path) -> None:
    include = sysconfig.get_paths()["include"]
    if not (Path(include) / "Python.h").exists():
        pytest.skip("the headers of Python are not installed")
    source = tmp_path / "headers.c"
    source.write_text(HEADERS.replace("base.ob_base", "ob_base"), encoding="utf-8")
    folders = [f"-I{each}" for each in (include, np.get_include(), SOURCES)]
    command = ["gcc", "-std=c11", "-fsyntax-only", *folders, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


STRESS = Path(__file__).with_name("thread_pool.c")
PARTS = ["many", "owners", "nested", "after_sleep", "errors", "in_child", "stop"]


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("gcc"), reason="no gcc of Linux")
@pytest.mark.parametrize("how", ["plain", "pinned", "sanitized"])
def test_the_thread_pool_runs_each_iteration_once(how: str, tmp_path: Path) -> None:
    program = str(tmp_path / "stress")
    flags = ["-fsanitize=thread", "-O1"] if how == "sanitized" else ["-O2"]
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
    command = ["gcc", "-std=c11", "-g", *flags, *warnings, f"-I{SOURCES}", str(STRESS)]
    subprocess.run([*command, "-o", program, "-lpthread"], check=True)
    processor = min(os.sched_getaffinity(0))
    done = subprocess.run(
        [program],
        env={**os.environ, "TSAN_OPTIONS": "die_after_fork=0"},
        preexec_fn=(lambda: os.sched_setaffinity(0, [processor])) if how == "pinned" else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer does not run on this kernel")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^ok run_(\w+)", done.stdout, re.M) == PARTS


CALLS = Path(__file__).with_name("runtime_calls.c")
ZIG = [sys.executable, "-m", "ziglang", "cc"]
LINKERS = {
    "x86_64-unknown-linux-gnu": ["gcc"],
    "aarch64-unknown-linux-gnu": [*ZIG, "-target", "aarch64-linux-musl", "-static"],
}


@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="other code")
@pytest.mark.parametrize(
    ("triple", "emulator"),
    [
        ("x86_64-unknown-linux-gnu", ""),
        # Zig compiles musl first, which takes minutes.
        pytest.param("aarch64-unknown-linux-gnu", "qemu-aarch64", marks=pytest.mark.long),
    ],
)
def test_object_code_of_the_ir_runs(triple: str, emulator: str, tmp_path: Path) -> None:
    missing = [each for each in ("gcc", emulator) if each and not shutil.which(each)]
    if emulator and not find_spec("ziglang"):
        missing.append("zig")
    if missing:
        pytest.skip(f"not installed: {missing}")
    target = Target(triple, "", "", freestanding=True)
    image, program = tmp_path / "runtime.o", str(tmp_path / "calls")
    image.write_bytes(object_code(runtime.text(target), target))
    flags = ["-std=gnu11", "-O1", "-Wall", f"-I{SOURCES}", "-lpthread"]
    command = [*LINKERS[triple], str(CALLS), str(image), *flags, "-o", program]
    subprocess.run(command, check=True, capture_output=True)
    run = [emulator, program] if emulator else [program]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
