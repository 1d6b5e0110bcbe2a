"""Machines that models are compiled for, by the names that people have for them."""

from __future__ import annotations

import re
from typing import Final

from weft_compiler.codegen.options import Options
from weft_compiler.codegen.targets import host, require_features, without
from weft_tensor import errors

PROCESSORS: Final = {
    "x86_64": ("x86_64", "x86-64", ""),
    "aarch64": ("aarch64", "generic", "+neon"),
    "arm": ("armv7", "cortex-a7", ""),
    "riscv64": ("riscv64", "generic-rv64", "+m,+a,+f,+d,+c"),
    "wasm32": ("wasm32", "generic", "+simd128"),
}
"""Of each its name in LLVM, and the least processor and features that are assumed."""

_SYSTEMS: Final = {
    "linux": "unknown-linux-gnu",
    "android": "unknown-linux-android",
    "none": "unknown-none-elf",
    "wasi": "unknown-wasi",
}
_LIBRARIES: Final = ("", "-gnu", "-musl", "-gnueabihf", "-musleabihf")


def options_of(target: str, cpu: str = "", features: str = "", contract: bool = True) -> Options:
    """How to compile for a machine.

    Args:
      target: such as "aarch64-linux", with or without the C library's name; "native" is this one.
      cpu: a processor that LLVM knows, such as "cortex-a72", instead of the least.
      features: what it has or lacks besides, such as "+dotprod,-fma".
      contract: as of `Options`.
    Raises: InvalidArgumentError: the target or a feature is not known.
    """
    if target == "native":
        here = host()
        # Who runs the object may not have asked the system for AMX: it has to be named.
        own = (here.cpu, without(here.features, ["amx-"])) if not cpu else (cpu, "")
        _require(here.triple, features)
        return Options(contract, False, False, own[0], _joined(own[1], features), here.triple)
    match = re.fullmatch(r"(\w+?)-(linux|android|none|wasi)(-\w+)?", target)
    if (
        match is None
        or match[1] not in PROCESSORS
        or (match[3] or "") not in _LIBRARIES
        or (match[1] == "wasm32") != (match[2] == "wasi")
    ):
        raise errors.InvalidArgumentError(
            f"target {target!r} is not known; there are native, wasm32-wasi, and "
            f"{', '.join(p for p in PROCESSORS if p != 'wasm32')} with -linux, -android or -none"
        )
    family, least, always = PROCESSORS[match[1]]
    system = _SYSTEMS[match[2]] + ("eabihf" if match[1] == "arm" and match[2] == "linux" else "")
    triple = f"{family}-{system}"
    _require(triple, features)
    return Options(contract, False, False, cpu or least, _joined(always, features), triple)


def _require(triple: str, features: str) -> None:
    if features:
        require_features(triple, features)


def _joined(*features: str) -> str:
    return ",".join(part for part in features if part)
