"""Builds of the runtime for other machines, with zig, optionally restricted to some kernels."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from weft_lite.compiling import COMMON, RUNTIME, VECTORS, sources
from weft_lite.elf import Object, read_object
from weft_lite.errors import InvalidArgumentError, LiteError
from weft_lite.interpreter import Interpreter
from weft_lite.watching import ops_of

SMALL: Final = ["-O2", "-ffunction-sections", "-fdata-sections", "-g0"]

HEADERS: Final = ("weft_lite.h", "threads.h", "schema.h")

_MATH = """
acosf acoshf asinf asinhf atan2f atanf atanhf ceilf copysignf cosf coshf erfcf erff exp expf
expm1f floor floorf fmodf log log1pf logf lrintf lroundf nearbyint nearbyintf powf rintf roundf
sinf sinhf sqrt sqrtf tanf tanhf trunc truncf fmaxf fminf fabsf
"""

MATH: Final = frozenset(_MATH.split())
"""Math library functions that the runtime may call."""

_ANDROID = """
calloc free getauxval memchr memcmp memcpy memmove memset strlen __stack_chk_fail
pthread_atfork pthread_cond_broadcast pthread_cond_destroy pthread_cond_init pthread_cond_wait
pthread_create pthread_join pthread_mutex_destroy pthread_mutex_init pthread_mutex_lock
pthread_mutex_unlock pthread_once pthread_sigmask sched_yield sigdelset sigfillset
"""

ANDROID: Final = MATH | frozenset(_ANDROID.split())
"""Functions in Android's libc and libm (API level 21) that the runtime may call."""


HELPERS: Final = ("__aeabi_", "__aarch64_")
"""Prefixes of helper functions that every Arm compiler provides, such as 64-bit division."""


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
    match = re.fullmatch(r"(x86_64|aarch64|arm|wasm32|riscv64)-"
                         r"(linux|macos|ios|windows|android|wasi)(-\w+)?(\.[\d.]+)?"
                         r"(-simulator)?", target)  # fmt: skip
    if not match:
        raise InvalidArgumentError(
            f"target {target!r} is not supported; examples are aarch64-linux-musl, "
            "x86_64-linux-gnu.2.17, wasm32-wasi, aarch64-macos, x86_64-windows-gnu, "
            "aarch64-android, and the packages android, apple, arduino, dart and arm-none-eabi"
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
        objects = compile_runtime(target, Path(folder), kinds_to_build, level)
        archive = out / ("weft_lite.lib" if system == "windows" else "libweft_lite.a")
        write_archive(archive, objects)
        files = [archive]
        if system in ("android", "ios"):
            is_android = system == "android"
            size = check_android(objects, archive) if is_android else archive.stat().st_size
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
    if system != "android":
        return target
    return "thumb-linux-androideabi" if processor == "arm" else f"{processor}-linux-android"


@cache
def zig_library() -> Path:
    """Return the folder of zig's headers and sources."""
    text = call([*zig(), "env"])
    match = re.search(r'lib_dir"?\s*[:=]\s*"([^"]+)"', text)
    if not match:
        raise LiteError(f"`zig env` does not name its lib_dir: {text}")
    return Path(match[1]).resolve()  # zig may name it relative to the working directory


def flags_of(target: str, stem: str) -> list[str]:
    """Return the compiler flags of a source file."""
    processor, system = parts_of(target)
    flags = [flag for flag in COMMON if flag != "-O3"] + SMALL
    if system == "android":
        flags += bare_flags()
        flags += ["-mcpu=generic+v7a+neon", "-mfloat-abi=softfp"] if processor == "arm" else []
    if system == "ios":
        flags += ["-isystem", str(zig_library() / "libc" / "include" / "any-darwin-any")]
    if system in ("windows", "wasi"):
        flags.remove("-fPIC")
    return [
        *flags,
        "-fno-sanitize=undefined",
        *VECTORS.get(processor, {}).get(stem.removeprefix("vector_"), []),
    ]


def bare_flags() -> list[str]:
    """Return compiler flags for systems whose C headers are not installed."""
    flags = ["-nostdinc", "-isystem", str(RUNTIME / "bare")]
    flags += ["-isystem", str(zig_library() / "include")]
    return [*flags, "-fno-builtin-bcmp", "-fno-stack-protector"]


def kernel_flags(kinds: Sequence[str]) -> list[str]:
    """Return compiler flags that exclude all kernels except the given ones."""
    if set(kinds) == set(all_kinds()):
        return []
    table = " ".join(f"OP({kind})" for kind in kinds)
    return [f"-DWL_KERNELS(OP)={table}", *[f"-DWL_WITH_{kind}=1" for kind in kinds]]


def is_needed(source: Path, kinds: Sequence[str]) -> bool:
    """Return True if a source file defines one of the kernels, or belongs to every build."""
    kinds_in_source = set(
        re.findall(r"\b(?:wl_op_|KERNEL\(|TEST\()(\w+)", source.read_text("utf-8"))
    )
    return not kinds_in_source & set(all_kinds()) or bool(kinds_in_source & set(kinds))


def compile_runtime(
    target: str,
    folder: Path,
    kinds: Sequence[str],
    level: str = "-O2",
    extra: Sequence[Path] = (),
) -> list[Path]:
    """Compile the runtime for a target.

    Args:
      target: as for `build`.
      folder: the folder for the object files, which is created.
      kinds: the kinds of ops to compute.
      level: optimization level.
      extra: further C files, whose folders are searched for headers.
    Returns: the object files.
    """
    processor, _ = parts_of(target)
    command = [*zig(), "cc", "-target", zig_target(target), *kernel_flags(kinds), level]
    for path in extra:
        command += ["-I", str(path.parent)]
    files = [path for path in sources(processor) if is_needed(path, kinds)]
    return compile_files(
        [*files, *extra], folder, lambda path: [*command, *flags_of(target, path.stem)]
    )


def compile_files(
    files: Sequence[Path], folder: Path, command_of: Callable[[Path], list[str]]
) -> list[Path]:
    """Compile C files reproducibly: the objects do not contain folder names.

    Args:
      files: C files.
      folder: the folder for the object files, which is created.
      command_of: function that returns the compile command of a file, without file names.
    Returns: the object files.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def compile_one(source: Path) -> Path:
        result = folder / f"{source.stem}.o"
        map_folder = f"-ffile-prefix-map={source.parent}=."
        words = ["-I", str(RUNTIME), map_folder, "-c", str(source), "-o", str(result)]
        call([*command_of(source), *words])
        return result

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(compile_one, files))


def compile_helpers(zig_target: str, cpu: str, folder: Path, flags: Sequence[str] = ()) -> Path:
    """Compile the helper functions of zig's compiler, such as 64-bit division, to an object file.

    Args:
      zig_target, cpu: zig's names of the target and the processor.
      folder: the folder for the object file.
      flags: further flags.
    """
    result = folder / "compiler_rt.o"
    command = [*zig(), "build-obj", str(zig_library() / "compiler_rt.zig")]
    command += ["-target", zig_target, "-mcpu", cpu, "-O", "ReleaseSmall"]
    call([*command, "-ffunction-sections", "-fstrip", *flags, f"-femit-bin={result}"])
    return result


def write_archive(path: Path, objects: Sequence[Path]) -> None:
    """Write a static library."""
    path.unlink(missing_ok=True)
    call([*zig(), "ar", "rcsD", str(path), *map(str, objects)])


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


def check_android(objects: Sequence[Path], archive: Path) -> int:
    """Check the undefined symbols of an archive and return the size of its code and data.

    Raises: LiteError: it needs symbols that Android does not have.
    """
    result = [read_object(path.read_bytes()) for path in objects]
    missing = undefined_symbols(result) - ANDROID
    missing = {name for name in missing if not name.startswith(HELPERS)}
    if missing:
        raise LiteError(f"{archive} needs symbols that Android does not have: {sorted(missing)}")
    return sum(item.size for item in result)


def undefined_symbols(objects: Sequence[Object]) -> set[str]:
    """Return the symbols that a set of object files imports."""
    defined = {name for item in objects for name in item.defined}
    return {name for item in objects for name in item.undefined} - defined


__all__ = ["BuildResult", "all_kinds", "build", "kinds_of", "parts_of", "zig"]
