"""Target machines by common names, such as "aarch64-linux"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from weft_compiler.codegen.options import Options
from weft_compiler.codegen.targets import Target, all_features, host, remove_features
from weft_tensor import errors

PROCESSORS: Final = {
    "x86_64": ("x86_64", "x86-64", ""),
    "aarch64": ("aarch64", "generic", "+neon"),
    "arm": ("armv7", "cortex-a7", ""),
    "riscv64": ("riscv64", "generic-rv64", "+m,+a,+f,+d,+c"),
    "wasm32": ("wasm32", "generic", "+simd128"),
}
"""LLVM's name, the baseline processor and its features, by processor family."""

_SYSTEMS: Final = {
    "linux": "unknown-linux-gnu",
    "android": "unknown-linux-android",
    "none": "unknown-none-elf",
    "wasi": "unknown-wasi",
}
_ARM_SYSTEMS: Final = {
    "linux": "unknown-linux-gnueabihf",
    "android": "unknown-linux-androideabi",
    "none": "unknown-none-eabi",
}
_LIBRARIES: Final = ("", "-gnu", "-musl", "-gnueabihf", "-musleabihf")


def machine_options(
    target: str, cpu: str = "", features: str = "", contract: bool = True
) -> Options:
    """Return the code generation options for a machine.

    Args:
      target: such as "aarch64-linux", with or without the name of the C library; "native" is this
        one.
      cpu: an LLVM processor name, such as "cortex-a72"; by default the baseline.
      features: additional LLVM features, such as "+dotprod,-fma".
      contract: as in `Options`.
    Raises: InvalidArgumentError: the target, the processor or a feature is unknown, or the
      processor lacks a feature that all code requires.
    """
    if target == "native":
        host_target = host()
        # The host program may not have requested AMX from the system, so it must be explicit.
        host_options = (
            (host_target.cpu, remove_features(host_target.features, ["amx-"]))
            if not cpu
            else (cpu, "")
        )
        cpu, base_features, triple = host_options[0], host_options[1], host_target.triple
    else:
        family, default_cpu, base_features = PROCESSORS[_processor_family(target)]
        cpu, triple = cpu or default_cpu, f"{family}-{_system_name(target)}"
    features = ",".join(filter(None, (base_features, features)))
    processor = Target(triple, cpu, all_features(triple, cpu, features))
    _require_basis(target, processor, features)
    if processor.family == "arm" and processor.has("mclass"):  # it has Thumb instructions only
        triple = triple.replace("armv7", "thumbv7", 1)
    return Options(contract, False, False, cpu, features, triple)


def _processor_family(target: str) -> str:
    """Return the processor family at the start of a target's name.

    Raises: InvalidArgumentError: the target is unknown.
    """
    match = re.fullmatch(r"(\w+?)-(linux|android|none|wasi)(-\w+)?", target)
    if (
        match is None
        or match[1] not in PROCESSORS
        or (match[3] or "") not in _LIBRARIES
        or (match[1] == "wasm32") != (match[2] == "wasi")
    ):
        raise errors.InvalidArgumentError(
            f"unknown target {target!r}; the targets are native, wasm32-wasi, and "
            f"{', '.join(p for p in PROCESSORS if p != 'wasm32')} with -linux, -android or -none"
        )
    return match[1]


def _system_name(target: str) -> str:
    """Return LLVM's name of the system of a target."""
    processor, system, *_ = target.split("-")
    return _ARM_SYSTEMS[system] if processor == "arm" else _SYSTEMS[system]


_BASIS: Final = {
    "x86_64": ("sse2", "SSE2"),
    "aarch64": ("neon", "NEON"),
    "arm": ("vfp2sp", "a floating-point unit"),
    "riscv64": ("d", "the extension D"),
}
"""The feature that all code for a family requires, with its common name."""


def _require_basis(target: str, processor: Target, features: str) -> None:
    basis = _BASIS.get(processor.family)
    if basis is not None and not processor.has(basis[0]):
        raise errors.InvalidArgumentError(
            f"code for {target} needs {basis[1]} ({basis[0]!r}), which the processor "
            f"{processor.cpu!r} with the features {features!r} does not have; name another "
            "processor"
        )


_FLOAT64_ROOT: Final = re.compile(r"call [^\n]*@llvm\.sqrt\.(v\d+)?f64\(")


def require_instructions(texts: Sequence[str], processor: Target, target: str) -> None:
    """Reject float64 square roots for processors without float64 instructions.

    Args:
      texts: the LLVM modules.
      processor: their target.
      target: its name, for the error.
    Raises: UnimplementedError: there is a square root of float64.
    """
    soft = processor.family == "arm" and not processor.has("fp64")
    if soft and any(_FLOAT64_ROOT.search(text) for text in texts):
        raise errors.UnimplementedError(
            f"the model has square roots of float64, for which {target} with the processor "
            f"{processor.cpu!r} has no instructions; cast to float32, or name a processor such as "
            "cortex-m7"
        )
