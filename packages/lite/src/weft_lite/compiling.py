"""Compilation of the runtime with the system's C compiler, or with zig."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

RUNTIME: Final = Path(__file__).parent / "runtime"
LIBRARY: Final = {"win32": "weft_lite.dll", "darwin": "libweft_lite.dylib"}.get(
    sys.platform, "libweft_lite.so"
)
"""The file name of the shared library."""

COMMON: Final = [
    "-std=c11",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
]
"""Compiler flags of all files; products and sums are fused only in files with vectors."""

_AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"]

VECTORS: Final = {
    "x86_64": {
        "avx2": ["-mavx2", "-mfma", "-ffp-contract=fast"],
        "avx512": [*_AVX512, "-ffp-contract=fast"],
        "vnni": [*_AVX512, "-mavx512vnni", "-ffp-contract=fast"],
    },
    "aarch64": {
        "neon": ["-ffp-contract=fast"],
        "dot": ["-mcpu=generic+dotprod", "-ffp-contract=fast"],
    },
    "wasm32": {"simd128": ["-msimd128"]},
}
"""Additional compiler flags of the files `vector_<name>.c`, by processor family."""


def system_compiler() -> list[str] | None:
    """Return the command of the compiler set in `CC` or installed in the system."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name.split()[0]):
            return name.split()
    return None


def compiler() -> list[str]:
    """Return the command of the C compiler.

    Raises: FileNotFoundError: neither the system nor the Python environment has a compiler.
    """
    result = system_compiler()
    if result:
        return result
    if find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]  # its default is this CPU
    raise FileNotFoundError(
        "weft_lite needs a C compiler on this platform: install cc, or pip install ziglang"
    )


def machine() -> str:
    """Return the processor family, as in the names of vector files."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def sources(processor: str | None = None) -> list[Path]:
    """Return the C files of the runtime for a processor family; by default this machine's."""
    flags = VECTORS.get(processor or machine(), {})
    other_sets = {name for group in VECTORS.values() for name in group} - flags.keys()
    glob = sorted(RUNTIME.glob("*.c"))
    return [path for path in glob if path.stem.removeprefix("vector_") not in other_sets]


def build(target: Path, extra: Sequence[str] = (), cache_folder: Path | None = None) -> None:
    """Compile the shared library.

    Args:
      target: the path of the library, which is replaced atomically.
      extra: further flags, such as those of sanitizers.
      cache_folder: a folder that caches object files by source and flags.
    Raises:
      FileNotFoundError: there is no compiler.
      RuntimeError: the compiler failed; the message contains its output.
    """
    command = compiler()
    special = VECTORS.get(machine(), {})
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent) as folder, ThreadPoolExecutor(2) as pool:
        headers = b"".join(path.read_bytes() for path in sorted(RUNTIME.glob("*.[hi]*")))

        def compile_one(source: Path) -> Path:
            flags = [*COMMON, *special.get(source.stem.removeprefix("vector_"), ()), *extra]
            text = " ".join([*command, *flags]).encode() + headers + source.read_bytes()
            name = f"{source.stem}-{hashlib.sha256(text).hexdigest()[:16]}.o"
            if cache_folder and (cache_folder / name).exists():
                return cache_folder / name
            out = Path(folder) / name
            _call([*command, *flags, "-c", str(source), "-o", str(out)])
            return _keep(out, cache_folder) if cache_folder else out

        objects = list(pool.map(compile_one, sources()))
        library = Path(folder) / LIBRARY
        libraries = [] if sys.platform == "win32" else ["-lm", "-lpthread"]
        _call([*command, "-shared", *extra, *map(str, objects), "-o", str(library), *libraries])
        library.replace(target)


def build_checkout() -> Path:
    """Build the library from the sources of a checkout, unless it is up to date.

    One process builds it while others wait.
    """
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for source in sorted(RUNTIME.glob("*.*")):
        digest.update(source.read_bytes())
    folder = Path(__file__).parents[2] / "build"
    path = folder / digest.hexdigest()[:16] / LIBRARY
    if not path.exists():
        with _detach(folder):
            if not path.exists():
                build(path, cache_folder=folder / "objects")
    return path


@contextmanager
def _detach(folder: Path) -> Iterator[None]:
    """Return a context that one process can enter at a time; on Windows there is no lock."""
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with open(folder / "lock", "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # which ends with the process, however that ends
        yield


def _keep(path: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return path.replace(folder / path.name)


def _call(command: list[str]) -> None:
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{process.stderr}")
