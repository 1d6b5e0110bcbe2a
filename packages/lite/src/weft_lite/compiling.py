"""Compiles the runtime with the system's C compiler, or with zig's where there is none."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

RUNTIME: Final = Path(__file__).parent / "runtime"
LIBRARY: Final = {"win32": "weft_lite.dll", "darwin": "libweft_lite.dylib"}.get(
    sys.platform, "libweft_lite.so"
)
"""What the shared library is called."""

COMMON: Final = ["-std=c11", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off"]
"""Flags of all files. Contraction would round otherwise on one machine than on another."""

VECTORS: Final = {
    "x86_64": {
        "avx2": ["-mavx2", "-mfma", "-mf16c"],
        "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c"],
        "vnni": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mfma"],
    },
    "aarch64": {"dotprod": ["-march=armv8.2-a+dotprod"]},
}
"""What files of one instruction set need besides: `vector_<name>.c`, by the machine."""


def system_compiler() -> list[str] | None:
    """The command of the compiler that `CC` or the system has."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name.split()[0]):
            return name.split()
    return None


def compiler() -> list[str]:
    """The command to compile with.

    Raises: FileNotFoundError: neither the system nor the package index gave one.
    """
    found = system_compiler()
    if found:
        return found
    if find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise FileNotFoundError("weft_lite needs a C compiler here: install cc, or pip install ziglang")


def machine() -> str:
    """The processor family, by the name that its vector files go by."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def sources() -> list[Path]:
    """The C files of the runtime for this machine."""
    others = {name for group in VECTORS.values() for name in group} - VECTORS.get(
        machine(), {}
    ).keys()
    found = sorted(RUNTIME.glob("*.c"))
    return [path for path in found if path.stem.removeprefix("vector_") not in others]


def build(target: Path, extra: Sequence[str] = ()) -> None:
    """Compile the shared library.

    Args:
      target: where it goes; it appears there whole or not at all.
      extra: further flags, such as those of sanitizers.
    Raises:
      FileNotFoundError: there is no compiler.
      RuntimeError: the compiler refused; says with which words.
    """
    command = compiler()
    special = VECTORS.get(machine(), {})
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent) as folder, ThreadPoolExecutor(2) as pool:
        objects = [Path(folder) / f"{path.stem}.o" for path in sources()]

        def compile_one(source: Path, out: Path) -> None:
            flags = [*COMMON, *special.get(source.stem.removeprefix("vector_"), ()), *extra]
            _call([*command, *flags, "-c", str(source), "-o", str(out)])

        list(pool.map(compile_one, sources(), objects))
        library = Path(folder) / LIBRARY
        libraries = [] if sys.platform == "win32" else ["-lm", "-lpthread"]
        _call([*command, "-shared", *extra, *map(str, objects), "-o", str(library), *libraries])
        library.replace(target)


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
