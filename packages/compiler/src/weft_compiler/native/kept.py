"""Which code is of which nodes, on disk: what was lowered once is not lowered again.

Where there is no disk for it, that holds within a process.

An entry has what the caller of a program has to know of it, and the names of the files with its
code and with its own large constants, such as panels of weights, which are named by their content.
It is refused where it was made for another processor or LLVM than this process finds, which is
looked at only here: to find that there is no entry takes no LLVM.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft_compiler.ir.program import Buffer, Program
from weft_compiler.native import cache
from weft_graph.ir.gc_pause import paused_gc
from weft_graph.ir.node import Output
from weft_graph.ir.traits import Role
from weft_tensor import errors
from weft_tensor.dtypes import as_dtype

if TYPE_CHECKING:
    from weft_compiler.lower.shape_polymorphism import Varying
    from weft_compiler.native.program import Code, NativeProgram

_MOST_INLINE: Final = 1 << 12
"""Bytes of a constant that an entry has in it."""

_MOST_KEPT: Final = 64 << 20
"""Bytes of own constants of a program that has an entry: a quarter of what is kept in all."""

_MOST_HERE: Final = 1000
_here: dict[str, bytes] = {}
"""Entries of this process, where none are kept on the disk: for code that is still loaded."""


class Restored(NamedTuple):
    """What an entry has.

    Attributes:
      program: without its statements.
      size: that it is for, where its code is for many.
      varying: what tells the other sizes, of `Family.varying`; None where there are none.
    """

    program: NativeProgram
    size: int | None
    varying: Varying | None


def restore(key: str, inputs: Sequence[Output]) -> Restored | None:
    """The program of a fingerprint.

    Args:
      inputs: outputs of constants, among others, whose arrays it takes: as `remember` was given.
    Returns: None where it is not on the disk.
    """
    file = _file(key)
    content = _here.get(key) if cache.directory() is None else cache.read(file)
    if content is None:
        return None
    try:
        with paused_gc():  # what an entry is read into goes again
            return _restored(json.loads(content), inputs)
    except (ValueError, LookupError, TypeError, AttributeError):  # somebody else wrote it
        cache.forget(file)
        return None


def _restored(entry: Mapping[str, Any], inputs: Sequence[Output]) -> Restored | None:
    if entry["host"] != _host():
        return None
    from weft_compiler.codegen.polls import Work
    from weft_compiler.native.program import NativeProgram

    code = _code(entry["code"])
    if code is None:
        return None
    constants = {}
    for name, kept in entry["constants"].items():
        value = _constant(kept, inputs)
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
    varying = entry["varying"]
    if varying is not None:
        most, lines = varying
        varying = int(most), [(int(at), int(slope), int(offset)) for at, slope, offset in lines]
    made = NativeProgram(program, code, Work(*entry["work"]), entry["messages"])
    return Restored(made, entry["size"], varying)


def remember(
    key: str,
    made: NativeProgram,
    inputs: Sequence[Output],
    size: int | None = None,
    varying: Varying | None = None,
) -> None:
    """Keep what `restore` has to know of a program, unless its own constants are too large.

    Args:
      size, varying: as of `Restored`.
    """
    program = made.program
    places = {
        id(source.node.attrs["value"]): at
        for at, source in enumerate(inputs)
        if source.node.role is Role.CONSTANT
    }
    own = [value for value in program.constants.values() if id(value) not in places]
    large = sum(value.nbytes for value in own if value.nbytes > _MOST_INLINE)
    if large > (_MOST_KEPT if cache.directory() is not None else 0):
        return
    entry = {
        "host": _host(),
        "name": program.name,
        "inputs": [(b.name, b.dtype.name, b.shape) for b in program.inputs],
        "outputs": [(b.name, b.dtype.name, b.shape) for b in program.outputs],
        "constants": {
            name: places[id(value)] if id(value) in places else _written(value)
            for name, value in program.constants.items()
        },
        "updated": sorted(program.updated),
        "work": made.work,
        "size": size,
        "varying": varying,
        "messages": made.messages,
        "code": _of_code(made.code),
    }
    content = json.dumps(entry).encode()
    if cache.directory() is not None:
        cache.keep(_file(key), content)
        return
    _here[key] = content
    while len(_here) > _MOST_HERE:
        del _here[next(iter(_here))]


def _file(key: str) -> str:
    return f"{key}.nodes"


def _host() -> list[Any]:
    """What code depends on that only LLVM knows."""
    from llvmlite import binding

    from weft_compiler.codegen.targets import host

    target = host()
    return [list(binding.llvm_version_info), target.triple, target.cpu, target.features]


def _of_code(code: Code) -> dict[str, Any]:
    """What `_code` has to know of some code."""
    module = code.module
    return {
        "key": code.key,
        "file": code.file,
        "memory": (module.shared, module.thread, module.shares),
        "routines": [(routine, dtype.name) for routine, dtype in module.routines],
        "blas": module.blas,
        "nests": list(map(_of_code, code.nests)),
    }


def _code(known: dict[str, Any]) -> Code | None:
    """Code that `_of_code` is of; None where a file is gone, or has something else in it."""
    from weft_compiler.native.program import shared_code

    try:
        return shared_code(known["key"], lambda: _loaded(known))
    except errors.InternalError:
        cache.forget(known["file"])
        return None


def _loaded(known: dict[str, Any]) -> Code | None:
    from weft_compiler.codegen.module import Module
    from weft_compiler.codegen.targets import host
    from weft_compiler.native.program import Code

    nests = [nest for nest in map(_code, known["nests"]) if nest is not None]
    image = cache.read(known["file"])
    if image is None or len(nests) < len(known["nests"]):
        return None
    routines = tuple([(routine, as_dtype(dtype)) for routine, dtype in known["routines"]])
    shared, thread, shares = known["memory"]
    module = Module("", shared, thread, 0, shares, routines, tuple(known["blas"]))
    return Code(module, image, host(), known["key"], known["file"], nests)


def _buffer(written: Sequence[Any]) -> Buffer:
    name, dtype, shape = written
    return Buffer(name, as_dtype(dtype), tuple(shape))


def _written(value: np.ndarray) -> list[Any]:
    content = value.tobytes()
    if len(content) <= _MOST_INLINE:
        return [as_dtype(value.dtype).name, value.shape, base64.b64encode(content).decode()]
    file = f"{hashlib.sha256(content).hexdigest()}.constant"
    cache.keep(file, content)
    return [as_dtype(value.dtype).name, value.shape, {"file": file}]


def _constant(kept: Any, inputs: Sequence[Output]) -> np.ndarray | None:
    """A constant; None where the file that it is in is gone, or is not as it was."""
    if isinstance(kept, int):
        value: np.ndarray = inputs[kept].node.attrs["value"]
        return value
    dtype, shape, content = kept
    found = cache.read(content["file"]) if isinstance(content, dict) else base64.b64decode(content)
    if found is None:
        return None
    return np.frombuffer(found, as_dtype(dtype).numpy).reshape(shape)
