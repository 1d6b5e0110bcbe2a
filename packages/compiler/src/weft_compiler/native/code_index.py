"""Index of compiled code on disk, by fingerprint, which avoids lowering a program again.

Without a cache directory, the index is kept in memory.

An entry contains the interface of a program, and the names of the files with its code and its large
constants, such as panels of weights. Files of constants are named by their content. An entry for
another
processor or LLVM version is rejected. This check needs LLVM, so it comes after the lookup, and a
miss does not import LLVM.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from weft_compiler.ir.program import Buffer, Program
from weft_compiler.native import cache
from weft_graph.ir.gc_pause import pause_gc
from weft_graph.ir.node import Output
from weft_graph.ir.traits import Role
from weft_tensor import errors
from weft_tensor.dtypes import as_dtype

if TYPE_CHECKING:
    from weft_compiler.lower.shape_polymorphism import Varying
    from weft_compiler.native.polymorphic_code import PolymorphicCode
    from weft_compiler.native.program import MachineCode, NativeProgram

R = TypeVar("R")

_MOST_INLINE: Final = 1 << 12
"""Largest constant stored inside an entry, in bytes."""

_MOST_KEPT: Final = 64 << 20
"""Maximum total size of the constants of an entry: a quarter of the cache."""

_MOST_CODES: Final = 4
"""Largest number of codes for many sizes in an entry, for ranges that are lowered differently."""

_MOST_HERE: Final = 1000
_here: dict[str, bytes] = {}
"""Entries of this process, used if no cache directory is available; their code is still loaded."""


class IndexEntry(NamedTuple):
    """The content of an entry.

    Attributes:
      program: the program without its statements.
      size: the size that the code receives, if it is shape-polymorphic.
      varying: as in `PolymorphicProgram`; None if the code is not shape-polymorphic.
    """

    program: NativeProgram
    size: int | None
    varying: Varying | None


def restore_polymorphic(key: str, inputs: Sequence[Output]) -> list[PolymorphicCode]:
    """Return the codes for many sizes that were stored under a fingerprint; see `restore`."""
    return _read(key, inputs, _restore_polymorphic) or []


def restore(key: str, inputs: Sequence[Output]) -> IndexEntry | None:
    """Return the program with a fingerprint; None if it is not on disk.

    Args:
      inputs: outputs whose constants the program uses, as passed to `remember`.
    Returns: None if it is not on disk.
    """
    return _read(key, inputs, _restore)


def _read(
    key: str,
    inputs: Sequence[Output],
    restored: Callable[[Mapping[str, Any], Sequence[Output]], R | None],
) -> R | None:
    content = _read_entry(key)
    if content is None:
        return None
    try:
        with pause_gc():  # objects built from the entry are freed again
            return restored(json.loads(content), inputs)
    except (ValueError, LookupError, TypeError, AttributeError):  # not written by this version
        cache.forget(_file(key))
        return None


def _read_entry(key: str) -> bytes | None:
    return _here.get(key) if cache.directory() is None else cache.read(_file(key))


def _restore(entry: Mapping[str, Any], inputs: Sequence[Output]) -> IndexEntry | None:
    result = _interface(entry, inputs)
    if result is None:
        return None
    from weft_compiler.codegen.interrupt_checks import WorkEstimate
    from weft_compiler.native.program import NativeProgram

    program, code = result
    varying = entry["varying"]
    if varying is not None:
        maximum, lines = varying
        varying = (
            int(maximum),
            [(int(index), int(slope), int(offset)) for index, slope, offset in lines],
        )
    native = NativeProgram(program, code, WorkEstimate(*entry["work"]), entry["messages"])
    return IndexEntry(native, entry["size"], varying)


def _restore_polymorphic(
    entry: Mapping[str, Any], inputs: Sequence[Output]
) -> list[PolymorphicCode]:
    codes = [_restore_one_code(stored, inputs) for stored in entry["codes"]]
    return [code for code in codes if code is not None]


def _restore_one_code(entry: Mapping[str, Any], inputs: Sequence[Output]) -> PolymorphicCode | None:
    result = _interface(entry, inputs)
    if result is None:
        return None
    from weft_compiler.codegen.interrupt_checks import WorkEstimate
    from weft_compiler.ir.linear_functions import LinearFunction
    from weft_compiler.native.polymorphic_code import PolymorphicCode, VerifiedSize

    shapes = [
        [LinearFunction(int(slope), int(offset)) for slope, offset in s] for s in entry["shapes"]
    ]
    verified = {
        int(size): VerifiedSize(tuple(map(int, numbers)), WorkEstimate(int(work[0]), bool(work[1])))
        for size, numbers, work in entry["verified"]
    }
    return PolymorphicCode(*result, entry["messages"], shapes, entry["rest"], verified)


def _interface(
    entry: Mapping[str, Any], inputs: Sequence[Output]
) -> tuple[Program, MachineCode] | None:
    """Return the program of an entry without its statements, and its code; None if one is lost."""
    if entry["host"] != _host():
        return None
    code = _code(entry["code"])
    if code is None:
        return None
    constants = {}
    for name, stored in entry["constants"].items():
        value = _constant(stored, inputs)
        if value is None:
            return None
        constants[name] = value
    program = Program(
        entry["name"],
        tuple(map(_buffer, entry["inputs"])),
        tuple(map(_buffer, entry["outputs"])),
        (),
        constants,
        frozenset(entry["updated"]),
    )
    return program, code


def remember(
    key: str,
    native: NativeProgram,
    inputs: Sequence[Output],
    size: int | None = None,
    varying: Varying | None = None,
) -> None:
    """Store an entry for a program, unless its own constants are too large.

    Args:
      size, varying: as in `IndexEntry`.
    """
    entry = _entry(native.program, native.code, native.messages, inputs)
    if entry is not None:
        _keep(key, entry | {"work": native.work, "size": size, "varying": varying})


def remember_polymorphic(key: str, code: PolymorphicCode, inputs: Sequence[Output]) -> None:
    """Add code for many sizes to an entry, unless its own constants are too large."""
    entry = _entry(code.program, code.code, code.messages, inputs)
    if entry is None:
        return
    polymorphic_fields = {
        "shapes": [[(line.slope, line.offset) for line in shape] for shape in code.shapes],
        "rest": code.rest,
        "verified": [
            (size, instance.numbers, instance.work) for size, instance in code.verified.items()
        ],
    }
    stored_codes = _read(key, inputs, lambda stored, _: list(stored["codes"])) or []
    codes = [stored for stored in stored_codes if stored["code"]["key"] != code.code.key]
    _keep(key, {"codes": [*codes[1 - _MOST_CODES :], entry | polymorphic_fields]})


def _entry(
    program: Program, code: MachineCode, messages: Sequence[str], inputs: Sequence[Output]
) -> dict[str, Any] | None:
    """Return the parts that all entries have; None if the program's own constants are too large."""
    indices = {
        id(source.node.attrs["value"]): index
        for index, source in enumerate(inputs)
        if source.node.role is Role.CONSTANT
    }
    own_constants = [value for value in program.constants.values() if id(value) not in indices]
    large = sum(value.nbytes for value in own_constants if value.nbytes > _MOST_INLINE)
    if large > (_MOST_KEPT if cache.directory() is not None else 0):
        return None
    return {
        "host": _host(),
        "name": program.name,
        "inputs": list(map(_describe_buffer, program.inputs)),
        "outputs": list(map(_describe_buffer, program.outputs)),
        "constants": {
            name: indices[id(value)] if id(value) in indices else _written(value)
            for name, value in program.constants.items()
        },
        "updated": sorted(program.updated),
        "messages": messages,
        "code": _describe_code(code),
    }


def _keep(key: str, entry: Mapping[str, Any]) -> None:
    """Store an entry."""
    written = json.dumps(entry).encode()
    if cache.directory() is not None:
        cache.keep(_file(key), written)
        return
    _here[key] = written
    while len(_here) > _MOST_HERE:
        del _here[next(iter(_here))]


def _file(key: str) -> str:
    return f"{key}.nodes"


def _host() -> list[Any]:
    """Return the properties of this machine that affect code and that only LLVM knows."""
    from llvmlite import binding

    from weft_compiler.codegen.targets import host

    target = host()
    return [list(binding.llvm_version_info), target.triple, target.cpu, target.features]


def _describe_code(code: MachineCode) -> dict[str, Any]:
    """Return a description of code, which `_code` restores."""
    module = code.module
    return {
        "key": code.key,
        "file": code.file,
        "memory": (module.shared, module.thread, module.shares),
        "routines": [(routine, dtype.name) for routine, dtype in module.routines],
        "blas": module.blas,
        "nests": list(map(_describe_code, code.nests)),
    }


def _code(known_values: dict[str, Any]) -> MachineCode | None:
    """Restore code from its description; None if a file is missing or damaged."""
    from weft_compiler.native.program import shared_code

    try:
        return shared_code(known_values["key"], lambda: _load_code(known_values))
    except errors.InternalError:
        cache.forget(known_values["file"])
        return None


def _load_code(known_values: dict[str, Any]) -> MachineCode | None:
    from weft_compiler.codegen.module import Module
    from weft_compiler.codegen.targets import host
    from weft_compiler.native.program import MachineCode

    nests = [nest for nest in map(_code, known_values["nests"]) if nest is not None]
    image = cache.read(known_values["file"])
    if image is None or len(nests) < len(known_values["nests"]):
        return None
    routines = tuple([(routine, as_dtype(dtype)) for routine, dtype in known_values["routines"]])
    shared, thread, shares = known_values["memory"]
    module = Module("", shared, thread, 0, shares, routines, tuple(known_values["blas"]))
    return MachineCode(module, image, host(), known_values["key"], known_values["file"], nests)


def _describe_buffer(buffer: Buffer) -> Sequence[Any]:
    return buffer.name, buffer.dtype.name, buffer.shape, buffer.is_complex


def _buffer(written: Sequence[Any]) -> Buffer:
    name, dtype, shape, is_complex = written
    return Buffer(name, as_dtype(dtype), tuple(shape), bool(is_complex))


def _written(value: np.ndarray) -> list[Any]:
    content = value.tobytes()
    if len(content) <= _MOST_INLINE:
        return [as_dtype(value.dtype).name, value.shape, base64.b64encode(content).decode()]
    file = f"{hashlib.sha256(content).hexdigest()}.constant"
    cache.keep(file, content)
    return [as_dtype(value.dtype).name, value.shape, {"file": file}]


def _constant(stored: Any, inputs: Sequence[Output]) -> np.ndarray | None:
    """Restore a constant; None if its file is missing or damaged."""
    if isinstance(stored, int):
        value: np.ndarray = inputs[stored].node.attrs["value"]
        return value
    dtype, shape, content = stored
    result = cache.read(content["file"]) if isinstance(content, dict) else base64.b64decode(content)
    if result is None:
        return None
    return np.frombuffer(result, as_dtype(dtype).numpy).reshape(shape)
