"""Builds of the runtime for other machines, with zig, optionally restricted to some kernels."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from weft_lite.compiling import COMMON, RUNTIME, VECTORS, sources
from weft_lite.errors import InvalidArgumentError, LiteError
from weft_lite.interpreter import Interpreter
from weft_lite.watching import ops_of

SMALL: Final = ["-O2", "-ffunction-sections", "-fdata-sections", "-g0"]

HEADERS: Final = ("weft_lite.h", "threads.h", "schema.h")

_ANDROID = """
memchr memcmp memcpy memmove memset strlen getauxval __stack_chk_fail acosf acoshf asinf
asinhf atan2f atanf atanhf ceilf copysignf cosf coshf erfcf erff exp expf expm1f floor
floorf fmodf log log1pf logf lrintf lroundf nearbyint nearbyintf powf rintf roundf sinf
sinhf sqrt sqrtf tanf tanhf trunc truncf fmaxf fminf fabsf
"""

ANDROID: Final = frozenset(_ANDROID.split())
"""Functions of Android's libc and libm since API level 21 that the runtime may call."""


class BuildResult(NamedTuple):
    """Result of a build.

    Attributes:
      files: the libraries and headers.
      size: bytes that the runtime adds to a program: the size of the stripped shared library.
      kernels: the kinds of ops that it computes.
    """

    files: list[Path]
    size: int
    kernels: list[str]


def kinds_of(models: Iterable[Path]) -> list[str]:
    """Return the kinds of ops in some files, after verifying the files.

    Raises: DataLossError: a file is damaged.
    """
    result = {op.kind for path in models for op in ops_of(Interpreter(path))}
    return sorted(result)


def all_kinds() -> list[str]:
    """Return the kinds of ops that have a kernel."""
    text = (RUNTIME / "schema.h").read_text("utf-8")
    return re.findall(r"^  OP\((\w+)\)", text, re.MULTILINE)


def parts_of(target: str) -> tuple[str, str]:
    """Return the processor and the system of a target.

    Raises: InvalidArgumentError: it does not have the form `aarch64-linux-musl`.
    """
    match = re.fullmatch(r"(x86_64|aarch64|arm|wasm32|riscv64)-(linux|macos|windows|android|wasi)"
                         r"(-\w+)?(\.[\d.]+)?", target)  # fmt: skip
    if not match:
        raise InvalidArgumentError(
            f"target {target!r} is not supported; examples are aarch64-linux-musl, "
            "x86_64-linux-gnu.2.17, wasm32-wasi, aarch64-macos, x86_64-windows-gnu, aarch64-android"
        )
    return match[1], match[2]


def zig() -> list[str]:
    """Return the command of zig.

    Raises: LiteError: the package ziglang is not installed.
    """
    if find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang"]
    if shutil.which("zig"):
        return ["zig"]
    raise LiteError("cross-compiling needs zig: pip install 'weftml-lite[build]'")


def build(
    target: str,
    out: Path,
    kinds: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda text: None,
    level: str = "-O2",
) -> BuildResult:
    """Build a static and a shared library.

    For Android there is only a static library, which is built without system headers; the build
    checks which system functions it calls.

    Args:
      target: processor, system and C library, such as `aarch64-linux-musl`.
      out: the folder to write to.
      kinds: the kinds of ops to compute; all by default.
      say: function called with a line of text at the start of each step.
      level: optimization level; -O3 is larger by a third.
    Returns: the libraries and headers, their size and kernels.
    Raises:
      InvalidArgumentError: the target is unknown.
      LiteError: zig is missing or fails, or the library for Android needs symbols that Android does
        not have.
    """
    _, system = parts_of(target)
    kinds_to_build = list(all_kinds() if kinds is None else kinds)
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out) as folder:
        say(f"compiling {len(kinds_to_build)} kernels for {target}")
        objects = _compile(target, Path(folder), kinds_to_build, level)
        archive = out / ("weft_lite.lib" if system == "windows" else "libweft_lite.a")
        archive.unlink(missing_ok=True)
        call([*zig(), "ar", "rcs", str(archive), *map(str, objects)])
        files = [archive]
        if system == "android":
            size = _check_android(objects, archive)
        else:
            say("linking")
            shared = out / _shared_library_name(system)
            _link(target, objects, shared)
            files.append(shared)
            size = shared.stat().st_size
    headers = [RUNTIME / name for name in HEADERS]
    headers += sorted((RUNTIME.parent / "js").iterdir()) if system == "wasi" else []
    for path in headers:
        shutil.copy(path, out / path.name)
    return BuildResult([*files, *[out / path.name for path in headers]], size, kinds_to_build)


def _shared_library_name(system: str) -> str:
    """Return the file name of the shared library on a system."""
    names = {"macos": "libweft_lite.dylib", "windows": "weft_lite.dll", "wasi": "weft_lite.wasm"}
    return names.get(system, "libweft_lite.so")


def zig_target(target: str) -> str:
    """Return zig's name of a target."""
    processor, system = parts_of(target)
    return f"{processor}-linux-android" if system == "android" else target


def flags_of(target: str, stem: str) -> list[str]:
    """Return the compiler flags of a source file."""
    processor, system = parts_of(target)
    flags = [flag for flag in COMMON if flag != "-O3"] + SMALL
    if system == "android":
        flags += ["-nostdinc", "-isystem", str(RUNTIME / "bare"), "-fno-builtin-bcmp"]
        flags += ["-fno-stack-protector"]
    if system in ("windows", "wasi"):
        flags.remove("-fPIC")
    return [
        *flags,
        "-fno-sanitize=undefined",
        *VECTORS.get(processor, {}).get(stem.removeprefix("vector_"), []),
    ]


def kernel_flags(kinds: Sequence[str]) -> list[str]:
    """Return compiler flags that exclude all other kernels."""
    if set(kinds) == set(all_kinds()):
        return []
    table = " ".join(f"OP({kind})" for kind in kinds)
    return [f"-DWL_KERNELS(OP)={table}", *[f"-DWL_WITH_{kind}=1" for kind in kinds]]


def is_needed(source: Path, kinds: Sequence[str]) -> bool:
    """Return True if a source file has one of some kernels, or belongs to all builds."""
    kinds_in_source = set(
        re.findall(r"\b(?:wl_op_|KERNEL\(|TEST\()(\w+)", source.read_text("utf-8"))
    )
    return not kinds_in_source & set(all_kinds()) or bool(kinds_in_source & set(kinds))


def _compile(target: str, folder: Path, kinds: Sequence[str], level: str) -> list[Path]:
    """Compile the source files; return the object files."""
    processor, system = parts_of(target)
    command = [*zig(), "cc", "-target", zig_target(target), *kernel_flags(kinds)]

    def compile_one(source: Path) -> Path:
        result = folder / f"{source.stem}.o"
        flags = flags_of(target, source.stem)
        call([*command, *flags, level, "-c", str(source), "-o", str(result)])
        return result

    files = [
        path
        for path in sources(processor)
        if is_needed(path, kinds) and (path.stem != "threads" or system != "android")
    ]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(compile_one, files))


def _link(target: str, objects: Sequence[Path], shared: Path) -> None:
    """Link object files to a shared library."""
    _, system = parts_of(target)
    command = [*zig(), "cc", "-target", target, "-O2", "-s", *map(str, objects), "-o", str(shared)]
    if system == "wasi":
        command += ["-mexec-model=reactor", "-Wl,--export-dynamic", "-Wl,--gc-sections"]
        command += ["-Wl,--export=__heap_base"]
    else:
        command += ["-shared"]
    if system == "linux":
        command += ["-Wl,--gc-sections", "-lm", "-lpthread"]
    if system == "macos":
        command += ["-Wl,-dead_strip"]
    call(command)
    if system == "windows":  # zig names the import library after the first object
        (shared.parent / f"{objects[0].stem}.lib").rename(shared.parent / "weft_lite_dll.lib")
        for extra in shared.parent.glob("*.pdb"):
            extra.unlink()


def call(command: list[str]) -> str:
    """Run a command and return its output.

    Raises: LiteError: the command failed; the message contains its error output.
    """
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise LiteError(f"{' '.join(command)}\n{process.stderr}")
    return process.stdout


# ------------------------------------------------------------------------------ Android


def _check_android(objects: Sequence[Path], archive: Path) -> int:
    """Check the undefined symbols of an archive and return the size of its code and data.

    Raises: LiteError: it needs symbols that Android does not have.
    """
    from weft_lite.elf import read_object

    result = [read_object(path.read_bytes()) for path in objects]
    defined = {name for item in result for name in item.defined}
    missing = {name for item in result for name in item.undefined} - defined - ANDROID
    if missing:
        raise LiteError(f"{archive} needs symbols that Android does not have: {sorted(missing)}")
    return sum(item.size for item in result)


__all__ = ["BuildResult", "all_kinds", "build", "kinds_of", "parts_of", "zig"]
