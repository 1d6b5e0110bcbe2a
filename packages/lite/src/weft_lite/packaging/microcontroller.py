"""Builds for Cortex-M microcontrollers: a static library, the model as C source, and their memory.

The library has no dependency except `memcpy` and its kin, the helpers of every Arm compiler
(`__aeabi_...`), and functions of the math library if a model has ops such as Log or Sin.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from weft_lite import targets
from weft_lite.compiling import COMMON, RUNTIME, sources
from weft_lite.elf import read_object
from weft_lite.errors import InvalidArgumentError, LiteError
from weft_lite.packaging.model_source import model_files

TARGET: Final = "arm-none-eabi"

CPUS: Final = {
    "cortex-m4": "cortex_m4+vfp4d16sp",
    "cortex-m33": "cortex_m33+fp_armv8d16sp",
    "cortex-m7": "cortex_m7+fp_armv8d16",
}
"""zig's names of processors and their floating-point units."""

_ZIG_TARGET: Final = "thumb-freestanding-eabihf"
_LIBRARY_FUNCTIONS: Final = {"memcpy", "memmove", "memset", "memcmp", "strlen"}
_PROBE: Final = """#include "runtime.h"
#include "plan.c"
const uint32_t wl_sizes[] = {sizeof(wl_interpreter), sizeof(wl_tensor), sizeof(wl_op),
                             sizeof(tensor_plan), sizeof(subgraph_plan), 0x57464c54};
"""
_NUM_SIZES: Final = 5
_MARK: Final = struct.pack("<I", 0x57464C54)


class Footprint(NamedTuple):
    """Memory of a program that runs a model.

    Attributes:
      code: bytes of flash for code and constants, the helpers of the compiler included.
      model: bytes of flash for the model.
      ram: bytes of RAM for the interpreter and its tensors, without the stack.
      undefined: functions of the math library that the program needs.
    """

    code: int
    model: int
    ram: int
    undefined: list[str]


class Firmware(NamedTuple):
    """Result of a build for a microcontroller.

    Attributes:
      files: the library, the sources of the model, and the headers.
      kernels: the kinds of ops that the library computes.
      footprint: memory of the model; None without a model.
    """

    files: list[Path]
    kernels: list[str]
    footprint: Footprint | None


def build(
    out: Path,
    cpu: str,
    models: Sequence[Path] = (),
    say: Callable[[str], None] = lambda text: None,
    level: str = "-O2",
) -> Firmware:
    """Build a library for a Cortex-M processor with the hard-float ABI.

    Args:
      out: the folder to write to.
      cpu: a key of `CPUS`.
      models: at most one model, which becomes C source; without a model, the library has all
        kernels.
      say: function called with a line of text at the start of each step.
      level: optimization level.
    Raises:
      InvalidArgumentError: the processor is unknown, or there are several models.
      DataLossError: the model is damaged.
      LiteError: zig is missing or fails, or the library needs unexpected functions.
    """
    if cpu not in CPUS:
        raise InvalidArgumentError(f"--cpu must be one of {', '.join(CPUS)}, got {cpu!r}")
    if len(models) > 1:
        raise InvalidArgumentError(
            f"a build for {TARGET} contains one model, got {len(models)}; build each separately"
        )
    kinds = targets.kinds_of(models) if models else targets.all_kinds()
    out.mkdir(parents=True, exist_ok=True)
    footprint = None
    with TemporaryDirectory(dir=out) as name:
        folder = Path(name)
        say(f"compiling {len(kinds)} kernels for {cpu}")
        command = _command(cpu, level)
        objects = targets.compile_files(
            [path for path in sources("arm") if path.stem != "threads" and
             targets.is_needed(path, kinds)],
            folder / "objects", lambda path: [*command, *targets.kernel_flags(kinds)],
        )  # fmt: skip
        archive = out / "libweft_lite.a"
        targets.write_archive(archive, objects)
        files = [archive]
        if models:
            memory = memory_of(models[0], _sizes(command, folder))
            written = model_files(models[0], memory)
            files += _write(out, written)
            say("linking a program to measure it")
            footprint = _measure(cpu, out, folder, objects, models[0].stat().st_size)
        else:
            _check(targets.undefined_symbols([read_object(p.read_bytes()) for p in objects]))
    headers = [RUNTIME / name for name in ("weft_lite.h", "schema.h")]
    files += [Path(shutil.copy(path, out / path.name)) for path in headers]
    return Firmware(files, kinds, footprint)


def memory_of(model: Path, sizes: Sequence[int]) -> int:
    """Compute the result of `wl_query` for one task on a machine with other sizes of structures.

    Args:
      model: a `.weftlite` file.
      sizes: bytes of an interpreter, a tensor, an op, a planned tensor and a planned subgraph.
    Returns: number of bytes.
    """
    from weft_lite.schema.codec import decode

    content = decode(model.read_bytes()).model
    interpreter, tensor, op, tensor_plan, subgraph_plan = sizes
    num_tensors, num_ops = len(content.tensors), len(content.ops)
    plan = tensor_plan * num_tensors + subgraph_plan * len(content.subgraphs)
    plan += 4 * (num_tensors + 2 * num_ops + 3) + 16 + 64
    words = num_tensors
    while words > 1:
        words = (words + 63) // 64
        plan += 8 * words
    parts = [interpreter, tensor * num_tensors, op * num_ops, plan]
    parts += [content.scratch_size, content.arena_size]
    return sum((size + 63) // 64 * 64 for size in parts)


def _command(cpu: str, level: str) -> list[str]:
    """Return the command to compile a C file for a processor."""
    flags = [flag for flag in COMMON if flag not in ("-O3", "-fPIC")]
    flags += [flag for flag in targets.SMALL if flag != "-O2"]
    flags += [*targets.bare_flags(), "-fno-sanitize=undefined", "-fno-math-errno"]
    flags += ["-fno-unwind-tables", "-fno-asynchronous-unwind-tables"]
    flags += ["-DWL_OWN_ROUNDING", "-DWL_SMALL_STACK"]
    return [*targets.zig(), "cc", "-target", _ZIG_TARGET, f"-mcpu={CPUS[cpu]}", level, *flags]


def _sizes(command: list[str], folder: Path) -> list[int]:
    """Return the sizes of the runtime's structures on the target."""
    probe = folder / "probe.c"
    probe.write_text(_PROBE, "utf-8")
    (compiled,) = targets.compile_files([probe], folder, lambda path: command)
    data = compiled.read_bytes()
    end = data.index(_MARK)
    return list(struct.unpack_from(f"<{_NUM_SIZES}I", data, end - 4 * _NUM_SIZES))


def _write(out: Path, texts: dict[str, str]) -> list[Path]:
    for name, text in texts.items():
        (out / name).write_text(text, "utf-8")
    return [out / name for name in texts]


def _measure(
    cpu: str, out: Path, folder: Path, objects: Sequence[Path], model_bytes: int
) -> Footprint:
    """Link a program that opens and invokes the model, and return its memory."""
    program = folder / "program.c"
    program.write_text(_PROGRAM, "utf-8")
    command = [*_command(cpu, "-O2"), "-I", str(out)]
    program_objects = targets.compile_files(
        [program, out / "weft_lite_model.c"], folder / "own", lambda path: command
    )
    helpers = targets.compile_helpers(_ZIG_TARGET, CPUS[cpu], folder)
    linked = folder / "program"
    link = [*targets.zig(), "ld.lld", "-m", "armelf", "--gc-sections", "-e", "main"]
    link += [
        "--unresolved-symbols=ignore-all",
        "-o",
        str(linked),
        *map(str, [*program_objects, *objects]),
    ]
    targets.call(link)  # without zig's helpers, which include mathematics
    undefined = _check(read_object(linked.read_bytes()).undefined)
    targets.call([*link, str(helpers)])
    image = read_object(linked.read_bytes())
    return Footprint(image.size - model_bytes, model_bytes, image.writable, undefined)


_PROGRAM: Final = """#include "weft_lite_model.h"
int main(void) {
  wl_interpreter *interpreter;
  return weft_model_open(&interpreter, 0) || wl_invoke(interpreter, 0);
}
"""


def _check(undefined: set[str]) -> list[str]:
    """Return the functions of the math library among undefined symbols.

    Raises: LiteError: other functions are among them.
    """
    others = {
        name for name in undefined if not name.startswith(targets.HELPERS)
    } - _LIBRARY_FUNCTIONS
    if others - targets.MATH:
        raise LiteError(f"the library needs unexpected functions: {sorted(others - targets.MATH)}")
    return sorted(others)


__all__ = ["CPUS", "TARGET", "Firmware", "Footprint", "build", "memory_of"]
