"""Files of lite run on other machines: AArch64 in an emulator, and WebAssembly in Node."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np

from weft_lite import targets
from weft_lite.compiling import RUNTIME
from weft_lite.convert.lowered import Array
from weft_lite.errors import BY_CODE, LiteError
from weft_lite.interpreter import Interpreter
from weft_lite.watching import invoke_watched, ops_of

FOLDER: Final = RUNTIME.parent / "foreign"
_HEADER: Final = struct.Struct("<12q")


class Result(NamedTuple):
    """A result of an op: the index of the op, that of the tensor, and the value."""

    op: int
    tensor: int
    value: Array


class Machine(NamedTuple):
    """A machine that this one can emulate.

    Attributes:
      name: its name on the command line.
      target: the target of the build.
      program: the program that emulates it.
      arguments: the arguments before the emulated program.
    """

    name: str
    target: str
    program: str
    arguments: Sequence[str] = ()

    def missing(self) -> str:
        """Return the name of a program that is not installed, or ""."""
        if not find_spec("ziglang") and not shutil.which("zig"):
            return "zig (pip install 'weftml-lite[build]')"
        return "" if shutil.which(self.program) else self.program


MACHINES: Final = {
    machine.name: machine
    for machine in (
        Machine("aarch64", "aarch64-linux-musl", "qemu-aarch64"),
        Machine("wasm", "wasm32-wasi", "node", ["--no-warnings", str(FOLDER / "wasi.cjs")]),
    )
}
"""Machines by name."""


def record_here(content: bytes, values: Sequence[Array]) -> list[Result]:
    """Run a file on this machine; return the results of all ops outside subgraphs, in order.

    Args:
      content: a `.weftlite` file with known shapes.
      values: the values of its inputs.
    """
    interpreter = Interpreter(model_content=content)
    for detail, value in zip(interpreter.get_input_details(), values, strict=True):
        interpreter.set_tensor(detail["index"], value)
    ops, results, depth = ops_of(interpreter), [], 0

    def watch(number: int, op_end: bool) -> None:
        nonlocal depth
        depth += -1 if op_end else 1
        if op_end and not depth:
            for tensor in ops[number].outputs:
                results.append(Result(number, tensor, interpreter.get_tensor(tensor)))

    invoke_watched(interpreter, watch)
    return results


def record_on(
    machine: Machine, contents: Iterable[tuple[bytes, Sequence[Array]]]
) -> list[list[Result]]:
    """Run files on an emulated machine, with one build of the runtime for all of them.

    Args:
      machine: one of `MACHINES`.
      contents: files with the values of their inputs, as for `record_here`.
    Raises: LiteError: the build or the emulator fails, or a file cannot be run.
    """
    runs = list(contents)
    kinds = {op.kind for content, _ in runs for op in ops_of(Interpreter(model_content=content))}
    with TemporaryDirectory() as name:
        folder = Path(name)
        program = _build(machine, folder, sorted(kinds))
        return [_run(machine, program, folder, content, values) for content, values in runs]


def _build(machine: Machine, folder: Path, kinds: Sequence[str]) -> Path:
    """Build the recording program for a machine."""
    targets.build(machine.target, folder, kinds, level="-O1")
    program = folder / "record"
    flags = targets.flags_of(machine.target, "record")
    command = [*targets.zig(), "cc", "-target", machine.target, *flags, "-static"]
    command += ["-I", str(folder), str(FOLDER / "record.c"), str(folder / "libweft_lite.a")]
    targets.call([*command, "-o", str(program)])
    return program


def _run(
    machine: Machine, program: Path, folder: Path, content: bytes, values: Sequence[Array]
) -> list[Result]:
    (folder / "model").write_bytes(content)
    (folder / "inputs").write_bytes(b"".join([np.ascontiguousarray(v).tobytes() for v in values]))
    command = [machine.program, *machine.arguments, str(program)]
    paths = ["model", "inputs", "out"]
    if machine.target.startswith("wasm"):
        command += [str(folder), *paths]
    else:
        command += [str(folder / path) for path in paths]
    targets.call(command)
    return _parse((folder / "out").read_bytes(), Interpreter(model_content=content))


def _parse(data: bytes, interpreter: Interpreter) -> list[Result]:
    """Return the results in the file that `record.c` wrote."""
    types = {
        detail["index"]: np.dtype(detail["dtype"]) for detail in interpreter.get_tensor_details()
    }
    results: list[Result] = []
    position = 0
    while True:
        op, tensor, size, rank, *dims = _HEADER.unpack_from(data, position)
        position += _HEADER.size
        block = data[position : position + size]
        position += size
        if op < 0:
            if rank:
                text = block.split(b"\0")[0].decode("utf-8", "replace")
                raise BY_CODE.get(rank, LiteError)(text)
            return results
        value = np.frombuffer(block, types[tensor]).reshape(dims[:rank])
        results.append(Result(op, tensor, value))
