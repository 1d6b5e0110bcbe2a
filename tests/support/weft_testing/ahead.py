"""Runners of ahead-of-time compiled models: in this process, or linked to small programs."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weft_compiler.ahead import Compiled
from weft_compiler.native.linking import Library


class Machine(NamedTuple):
    """A machine that is emulated: how to build and run programs for it.

    Attributes:
      emulator: its command.
      flags: what zig needs to link for it.
      call: assembly that calls the system, and the registers of the number, the arguments and the
        result.
      numbers: of exit, read and write.
    """

    emulator: str
    flags: tuple[str, ...]
    call: str
    registers: tuple[str, str, str, str]
    numbers: tuple[int, int, int]


EMULATORS = {
    "aarch64-linux": Machine(
        "qemu-aarch64", ("-target", "aarch64-linux-none"), "svc 0", ("x8", "x0", "x1", "x2"),
        (93, 63, 64),
    ),
    "arm-linux": Machine(
        "qemu-arm", ("-target", "arm-linux-musleabihf", "-mcpu=cortex_a7", "-lcompiler_rt"),
        "svc 0", ("r7", "r0", "r1", "r2"), (1, 3, 4),
    ),
    "riscv64-linux": Machine(
        "qemu-riscv64", ("-target", "riscv64-linux-none"), "ecall", ("a7", "a0", "a1", "a2"),
        (93, 63, 64),
    ),
}  # fmt: skip
"""The machines that can be emulated here."""


def loaded(made: Compiled) -> Callable[..., list[Any]]:
    """Load a model compiled for this machine; return its function of arrays."""
    library = Library(made.object, [made.name])
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * _count(made))(
        library.address(made.name)
    )

    def run(*arrays: Any, alive: Library = library) -> list[Any]:
        given = [np.require(array, None, "C") for array in arrays]
        for parameter, array in zip(made.inputs, given, strict=True):
            assert (parameter.dtype.numpy, parameter.shape) == (array.dtype, array.shape)
        results = [np.empty(each.shape, each.dtype.numpy) for each in made.outputs]
        arena = np.empty(made.arena + made.alignment, np.uint8)
        begin = -arena.ctypes.data % made.alignment
        own = arena[begin : begin + made.arena]
        status = function(*[each.ctypes.data for each in (*given, *results, own)])
        if status:
            raise RuntimeError(made.messages[status - 1] if status > 0 else f"status {status}")
        return results

    return run


def _count(made: Compiled) -> int:
    return len(made.inputs) + len(made.outputs) + 1


def linked_and_run(
    made: Compiled, arrays: Sequence[Any], folder: Path, compiler: Sequence[str] = ()
) -> list[Any]:
    """Link a model to a C program, run it, and return its outputs.

    Args:
      compiler: the command that links for this machine; without it zig does for another, without a
        C library, which it would have to build first.
    """
    machine = EMULATORS.get(made.target)
    made.write(folder)
    (folder / "main.c").write_text(_program(made, machine), "utf-8")
    command = [*compiler] or [sys.executable, "-m", "ziglang", "cc"]
    if machine is not None:
        command += [*machine.flags, "-nostdlib", "-static", "-ffreestanding", "-fno-sanitize=all"]
    files = [str(folder / "main.c"), str(folder / f"{made.name}.o"), "-o", str(folder / "main")]
    subprocess.run([*command, "-O1", "-Werror", *files], check=True, timeout=500)
    ran = subprocess.run(
        [*([machine.emulator] if machine else []), str(folder / "main")],
        input=b"".join(np.ascontiguousarray(array).tobytes() for array in arrays),
        capture_output=True,
        check=False,
        timeout=500,
    )
    assert ran.returncode == 0, (ran.returncode, ran.stderr)
    return _outputs(made, ran.stdout)


_HOSTED = """
#include <unistd.h>
int main(void) { return body(); }
"""

_BARE = """
static long call(long number, long first, const void *second, long third) {{
  register long n __asm__("{number}") = number;
  register long a __asm__("{first}") = first;
  register const void *b __asm__("{second}") = second;
  register long c __asm__("{third}") = third;
  __asm__ volatile("{call}" : "+r"(a) : "r"(n), "r"(b), "r"(c) : "memory");
  return a;
}}
static long read(int file, void *to, size_t size) {{ return call({read}, file, to, (long)size); }}
static long write(int file, const void *at, size_t size) {{
  return call({write}, file, at, (long)size);
}}
void *memcpy(void *restrict to, const void *restrict from, size_t size) {{
  for (volatile size_t i = 0; i < size; i++) ((char *)to)[i] = ((const char *)from)[i];
  return to;
}}
void *memset(void *to, int value, size_t size) {{
  for (volatile size_t i = 0; i < size; i++) ((char *)to)[i] = (char)value;
  return to;
}}
__attribute__((used)) static void start(void) {{ call({exit}, body(), 0, 0); }}
__attribute__((naked)) void _start(void) {{ __asm__("{align}{jump} start"); }}
"""
_ALIGN = {
    "aarch64-linux": ("", "bl"),
    "arm-linux": ("mov r4, sp\\nbic r4, r4, #15\\nmov sp, r4\\n", "bl"),
    "riscv64-linux": (
        ".option push\\n.option norelax\\nla gp, __global_pointer$\\n.option pop\\n", "call",
    ),
}  # fmt: skip


_SCRIPT = """
const fs = require('node:fs');
const made = new WebAssembly.Module(fs.readFileSync(process.argv[2]));
if (WebAssembly.Module.imports(made).length) process.exit(90);
const own = new WebAssembly.Instance(made).exports;
const given = fs.readFileSync(0), sizes = JSON.parse(process.argv[3]), inputs = +process.argv[4];
let at = 0;
for (let i = 0; i < inputs; at += sizes[i++])
  new Uint8Array(own.memory.buffer, own.place(i), sizes[i]).set(given.subarray(at, at + sizes[i]));
const status = own.run();
for (let i = inputs; i < sizes.length; i++)
  fs.writeSync(1, new Uint8Array(own.memory.buffer, own.place(i), sizes[i]));
process.exit(status);
"""


def run_in_node(made: Compiled, arrays: Sequence[Any], folder: Path) -> list[Any]:
    """Run a WebAssembly model in Node; return its outputs."""
    made.write(folder)
    every = [*made.inputs, *made.outputs]
    buffers = "\n".join(f"static {p.c_type} {p.name}_[{max(1, p.size)}];" for p in every)
    names = [f"{p.name}_" for p in every]
    (folder / "main.c").write_text(
        f"""#include "{made.name}.h"
{buffers}
static _Alignas({made.alignment}) char arena[{made.arena} + 1];
static void *const places[] = {{{", ".join(names)}}};
void *place(int i) {{ return places[i]; }}
int run(void) {{ return {made.name}({", ".join([*names, "arena"])}); }}
""",
        "utf-8",
    )
    (folder / "run.cjs").write_text(_SCRIPT, "utf-8")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-freestanding"]
    command += ["-mcpu=generic+simd128+bulk_memory", "-nostdlib", "-O1", "-Wl,--no-entry"]
    command += ["-Wl,--export=run", "-Wl,--export=place"]
    files = [str(folder / "main.c"), str(folder / f"{made.name}.o"), "-o", str(folder / "m.wasm")]
    subprocess.run([*command, *files], check=True, timeout=500)
    sizes = [each.size * each.dtype.size for each in every]
    script = ["node", str(folder / "run.cjs"), str(folder / "m.wasm"), json.dumps(sizes)]
    given = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    ran = subprocess.run(
        [*script, str(len(made.inputs))], input=given, capture_output=True, check=False, timeout=500
    )
    assert ran.returncode == 0, (ran.returncode, ran.stderr)
    return _outputs(made, ran.stdout)


def _outputs(made: Compiled, content: bytes) -> list[Any]:
    """Split concatenated outputs."""
    found, at = [], 0
    for each in made.outputs:
        size = each.size * each.dtype.size
        values = np.frombuffer(content[at : at + size], each.dtype.numpy)
        found.append(values.reshape(each.shape))
        at += size
    assert at == len(content)
    return found


def _program(made: Compiled, machine: Machine | None) -> str:
    """Return a program that reads inputs and writes outputs."""
    every = [*made.inputs, *made.outputs]
    buffers = "\n".join(f"static {p.c_type} {p.name}_[{max(1, p.size)}];" for p in every)
    given = ", ".join([*(f"{p.name}_" for p in every), "arena"])
    reads = "\n".join(f"  all_of(0, {p.name}_, {p.size} * sizeof *{p.name}_);" for p in made.inputs)
    writes = "\n".join(
        f"  all_of(1, {p.name}_, {p.size} * sizeof *{p.name}_);" for p in made.outputs
    )
    system = _HOSTED
    if machine is not None:
        number, first, second, third = machine.registers
        align, jump = _ALIGN[made.target]
        leave, get, put = machine.numbers
        system = _BARE.format(
            number=number, first=first, second=second, third=third, call=machine.call, exit=leave,
            read=get, write=put, align=align, jump=jump,
        )  # fmt: skip
    declared = (
        "static long read(int, void *, size_t);\nstatic long write(int, const void *, size_t);"
    )
    return f"""
#include <stddef.h>
{declared if machine else "#include <unistd.h>"}
#include "{made.name}.h"
{buffers}
static _Alignas({made.alignment}) char arena[{made.arena} + 1];
static void all_of(int file, void *at, size_t size) {{
  for (size_t done = 0; done < size;) {{
    long n = file ? write(file, (char *)at + done, size - done)
                  : read(file, (char *)at + done, size - done);
    if (n <= 0) return;
    done += (size_t)n;
  }}
}}
static int body(void) {{
{reads}
  int status = {made.name}({given});
{writes}
  return status;
}}
{system}
"""
