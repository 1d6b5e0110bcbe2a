"""Objects that all programs share: routines, and the functions that enter programs.

The build of a wheel compiles them for several instruction set levels; an editable install compiles
them for the level of its machine (`weft_compiler.native.wheel_objects`). A file's name contains a
hash of the text and the target that the object was compiled from, so stale objects are never
loaded. A text without
an object is compiled once for this machine and stored in a cache folder with its own limit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from llvmlite import binding

from weft_compiler.codegen.targets import Target, object_code
from weft_compiler.native import cache
from weft_tensor import errors
from weft_tensor.dtypes import DType

Loaded = TypeVar("Loaded")

FOLDER: Final = Path(__file__).parent.parent / "objects"
"""The folder of the objects in the wheel, which `weft_compiler.native.wheel_objects` writes."""

_V2: Final = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3: Final = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4: Final = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_VNNI: Final = ("avx512vnni",)
_BF16: Final = ("avx512vnni", "avx512bf16")
_AMX: Final = ("avx512vnni", "avx512bf16", "avx512fp16", "amx-tile", "amx-int8", "amx-bf16")
_LINUX: Final = "unknown-linux-gnu"


class InstructionSetLevel(NamedTuple):
    """An instruction set level to build objects for.

    Attributes:
      name: part of its file names.
      target: the LLVM target.
      features: the required processor features.
    """

    name: str
    target: Target
    features: tuple[str, ...]


def _x86(
    name: str, cpu: str, features: tuple[str, ...], added: tuple[str, ...] = ()
) -> InstructionSetLevel:
    listed = ",".join([f"+{feature}" for feature in added])
    return InstructionSetLevel(name, Target(f"x86_64-{_LINUX}", cpu, listed), (*features, *added))


LEVELS: Final = (
    _x86("amx", "x86-64-v4", _V4, _AMX),
    _x86("bf16", "x86-64-v4", _V4, _BF16),
    _x86("vnni", "x86-64-v4", _V4, _VNNI),
    _x86("v4", "x86-64-v4", _V4),
    _x86("v3vnni", "x86-64-v3", _V3, ("avxvnni",)),
    _x86("v3", "x86-64-v3", _V3),
    _x86("v2", "x86-64-v2", _V2),
    InstructionSetLevel("neon", Target(f"aarch64-{_LINUX}", "generic", "+neon"), ("neon",)),
)
"""The levels, from the one with the most instructions to the one with the fewest."""


def load_shared(name: str, text: str, target: Target, load: Callable[[bytes], Loaded]) -> Loaded:
    """Load the object of a text: from the wheel or the cache, or else compile and store it.

    Args:
      name: a readable part of the file's name.
      load: raises InternalError for invalid code.
    """
    for level in LEVELS:
        if can_run(level, target):
            try:
                return load((FOLDER / file_of(name, text, level)).read_bytes())
            except OSError:  # the wheel has none, or it was made from another text
                continue
    digest = _digest(repr(binding.llvm_version_info), text, target)
    file = f"{cache.SHARED}/{digest}.{name[:40]}.o"
    result = cache.read(file)
    if result is not None:
        try:
            return load(result)
        except errors.InternalError:  # the file has other content
            cache.forget(file)
    image = object_code(text, target)
    cache.keep(file, image)
    return load(image)


def can_run(level: InstructionSetLevel, target: Target) -> bool:
    """Return True if a processor supports all instructions of a level."""
    if level.target.triple != target.triple:
        return False
    listed = set(target.features.split(","))
    named = target.cpu == level.target.cpu and level.target.features in ("", target.features)
    return named or all(f"+{feature}" in listed for feature in level.features)


def name_of(library: str, dtype: DType) -> str:
    """Return the name of a library's object for an element type."""
    return f"{library}.{dtype.name}"


def file_of(name: str, text: str, level: InstructionSetLevel) -> str:
    """Return the name of the file for a text in the wheel."""
    return f"{name}.{level.name}.{_digest('', text, level.target)[:24]}.o"


def _digest(version: str, text: str, target: Target) -> str:
    """Return a hash of a text and of everything else that its object depends on."""
    key_text = "\0".join([version, target.triple, target.cpu, target.features, text])
    return hashlib.sha256(key_text.encode()).hexdigest()
