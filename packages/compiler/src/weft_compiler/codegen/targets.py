"""Target processors: their LLVM names and features, and machine code for them."""

from __future__ import annotations

import ctypes
import functools
import platform
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from llvmlite import binding
from llvmlite.binding.newpassmanagers import NewPassManager

from weft_compiler.codegen.options import Options
from weft_compiler.layouts import LINE
from weft_tensor import errors

_LOCK: Final = threading.RLock()  # llvmlite does not promise thread safety


@dataclass(frozen=True, slots=True)
class Target:
    """A processor.

    Attributes:
      triple: its LLVM target triple.
      cpu: its name, or empty.
      features: its LLVM features.
      freestanding: True for freestanding code: it may call memory functions and compiler runtime
        helpers, but no math library.
    """

    triple: str
    cpu: str
    features: str
    freestanding: bool = False

    @property
    def family(self) -> str:
        """The instruction set, such as "aarch64" or "arm"."""
        first = self.triple.partition("-")[0]
        if first == "arm64":  # Apple's name
            return "aarch64"
        return "arm" if first.startswith(("arm", "thumb")) else first

    @property
    def x86(self) -> bool:
        """True for x86-64."""
        return self.triple.startswith("x86_64")

    def has(self, feature: str) -> bool:
        """Return True if the processor has a feature.

        If a feature is listed twice, the last entry counts.

        Args:
          feature: its LLVM name; "fma", "f16c" and "sse4.1" also mean their equivalents on other
            families.
        """
        name = _ARM_NAMES.get(feature, feature) if self.family == "arm" else feature
        for listed in reversed(self.features.split(",")):
            if listed[1:] == name:
                return listed[0] == "+"
        if self.x86:
            return feature == "sse2" or feature in _LEVELS.get(self.cpu, frozenset())
        return feature in _FAMILIES.get(self.family, _ARM64)

    def has_tiles(self, element: str) -> bool:
        """Return True if it has tile registers (AMX).

        Args:
          element: the element type of products: "int8" or "bf16".
        """
        return self.x86 and self.has("amx-tile") and self.has(f"amx-{element}")

    @property
    def vector_bytes(self) -> int:
        """The width of vector registers, in bytes."""
        if not self.x86:
            return 16
        return LINE if self.has("avx512f") else 32 if self.has("avx2") else 16


_V3: Final = frozenset(("sse4.1", "avx", "avx2", "fma", "f16c"))
_LEVELS: Final = {
    "x86-64-v2": frozenset(("sse4.1",)),
    "x86-64-v3": _V3,
    "x86-64-v4": _V3 | {"avx512f", "avx512dq", "avx512bw", "avx512vl"},
}
"""Features of the x86-64 microarchitecture levels."""

_ARM64: Final = frozenset(("fma", "f16c", "sse4.1", "neon"))
_FAMILIES: Final = {
    "arm": frozenset(("fma", "neon")),
    "riscv64": frozenset(("fma", "sse4.1")),
    "wasm32": frozenset(("sse4.1", "simd128")),
}
"""Baseline features of other families: fused multiply-add (fma), float16 conversion (f16c),
rounding to integers (sse4.1), and vectors.
"""

_ARM_NAMES: Final = {"fma": "vfp4d16"}
"""Names of 32-bit Arm features, by the x86-64 features that they correspond to."""

_QUERIED: Final = {
    "x86_64": (
        "sse2", "sse4.1", "avx", "avx2", "fma", "f16c", "avx512f", "avx512dq", "avx512bw",
        "avx512vl", "avx512vnni", "avxvnni", "avx512bf16", "avx512fp16",
    ),
    "aarch64": ("neon", "dotprod", "bf16"),
    "arm": ("neon", "vfp2sp", "fp64", "vfp4d16", "mclass"),
    "riscv64": ("f", "d"),
    "wasm32": ("simd128",),
}  # fmt: skip
"""Features that affect generated code or its limits. AMX features must be named explicitly."""


@functools.cache
def host() -> Target:
    """Return the target of this machine."""
    with _LOCK:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        binding.initialize_native_asmparser()
    features = permitted_features(binding.get_host_cpu_features().flatten())
    return Target(binding.get_process_triple(), binding.get_host_cpu_name(), features)


def target_of(options: Options) -> Target:
    """Return the target that some options select.

    Raises: InvalidArgumentError: LLVM does not know the processor.
    """
    if options.triple:
        triple = options.triple
        features = all_features(triple, options.cpu, options.features)
        result = Target(triple, options.cpu, features, freestanding=True)
    elif options.cpu:
        triple = host().triple
        features = permitted_features(all_features(triple, options.cpu, options.features))
        result = Target(triple, options.cpu, features)
    else:
        result = host()
    return (
        result
        if options.contract
        else replace(result, features=remove_features(result.features, _BF16))
    )


_BF16: Final = ("amx-bf16", "avx512bf16", "bf16")
"""Features that provide bfloat16 dot products, which flush denormals to zero."""


def remove_features(features: str, names: Sequence[str]) -> str:
    """Remove features from a list.

    Args:
      names: the features; a name that ends with a dash is a prefix.
    """
    results = []
    for feature in filter(None, features.split(",")):
        name = feature[1:]
        is_removed = any(
            name == removed or (removed.endswith("-") and name.startswith(removed))
            for removed in names
        )
        results.append(f"-{name}" if is_removed else feature)
    return ",".join(results)


def permitted_features(features: str) -> str:
    """Return the features that this process may use; AMX requires permission of the system."""
    if "+amx-tile" in features.split(",") and not may_use_tiles():
        return remove_features(features, ["amx-"])
    return features


@functools.cache
def may_use_tiles() -> bool:
    """Return True if the system permits AMX; it is asked once per process.

    A thread's state grows by 8 KB with AMX, so Linux requires the request.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    try:
        library = ctypes.CDLL(None)
        requested = [ctypes.c_long(tile) for tile in (_ARCH_PRCTL, _REQUEST, _TILES)]
        return int(library.syscall(*requested)) == 0
    except (OSError, AttributeError):  # a C library that cannot be queried
        return False


_ARCH_PRCTL: Final = 158
_REQUEST: Final = 0x1023
"""ARCH_REQ_XCOMP_PERM."""
_TILES: Final = 18
"""XFEATURE_XTILEDATA."""


def all_features(triple: str, cpu: str, features: str) -> str:
    """Return features, followed by those implied by the name of a processor.

    LLVM is queried in a separate process, because it may exit on unknown names.

    Args:
      triple: the target triple.
      cpu: the processor's name; empty for the baseline.
      features: additional features.
    Raises: InvalidArgumentError: LLVM does not know the processor or a feature.
    """
    host_target = host()
    if not features and (cpu in _LEVELS or cpu in ("", "x86-64")):
        return ""
    if (triple, cpu) == (host_target.triple, host_target.cpu) and features in _host_features():
        return features or host_target.features
    # A core without "arm" instructions ends the process before it prints its features.
    return _queried_features(triple.replace("armv7", "thumbv7", 1), cpu, features)


@functools.cache
def _host_features() -> tuple[str, str, str]:
    """Return all features of this machine."""
    host_features = host().features
    return "", host_features, remove_features(host_features, ["amx-"])


@functools.cache
def _queried_features(triple: str, cpu: str, features: str) -> str:
    """Query LLVM in a separate process."""
    queried = _QUERIED.get(Target(triple, cpu, features).family, ())
    command = [sys.executable, "-c", _QUERY, triple, cpu, features, *queried]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    unsigned = any(feature[:1] not in ("+", "-") for feature in features.split(",") if features)
    if unsigned or "not a recognized feature" in tried.stderr:
        raise errors.InvalidArgumentError(
            f"features of {triple} must be comma-separated feature names of LLVM, each with + "
            f"or - before it, such as '+dotprod,-fma', got {features!r}"
        )
    if tried.returncode or "not a recognized processor" in tried.stderr:
        raise errors.InvalidArgumentError(
            f"LLVM knows no processor {cpu!r} of {triple} with the features {features!r}"
        )
    return ",".join(filter(None, (features, tried.stdout.strip())))


_QUERY: Final = """
import sys
from llvmlite import binding

binding.initialize_all_targets()
binding.initialize_all_asmprinters()
triple, cpu, features, *names = sys.argv[1:]
machine = binding.Target.from_triple(triple).create_target_machine(cpu, features)
# LLVM inlines a function that requires a feature into its caller only if the target has it.
text = "define void @f() { ret void }"
for name in names:
    text += f'''
define internal i32 @"has {name}"(i32 %x) "target-features"="{features},+{name}" {{
  %y = add i32 %x, {len(text)}
  ret i32 %y
}}
define i32 @"calls {name}"(i32 %x) {{
  %y = call i32 @"has {name}"(i32 %x)
  ret i32 %y
}}'''
module = binding.parse_assembly(text)
module.triple = triple
builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(1))
builder.getModulePassManager().run(module, builder)
kept = {function.name for function in module.functions}
print(",".join(("-" if f"has {name}" in kept else "+") + name for name in names))
machine.emit_object(binding.parse_assembly("define void @f() { ret void }"))
"""


def object_code(text: str, target: Target, libraries: Sequence[str] = ()) -> bytes:
    """Compile a module to a relocatable object.

    Args:
      libraries: modules that define what the text declares; their symbols become internal.
    Raises: InternalError: LLVM rejects the text.
    """
    with _LOCK:
        machine = _target_machine(target)
        module = _parse(text)
        for library_text in libraries:
            library = _parse(library_text, module)
            names = [function.name for function in library.functions if not function.is_declaration]
            module.link_in(library)
            for name in names:
                module.get_function(name).linkage = "internal"
        return bytes(machine.emit_object(_run_passes(module, machine)))


def data_layout(target: Target) -> str:
    """Return the data layout of a processor, which modules for other machines declare."""
    with _LOCK:
        return str(_target_machine(target).target_data)


def assembly(text: str, target: Target) -> str:
    """Return the assembly of a module, for reading."""
    with _LOCK:
        machine = _target_machine(target)
        return str(machine.emit_assembly(_run_passes(_parse(text), machine)))


def _parse(text: str, sibling: Any = None) -> Any:
    """Parse a module.

    With `sibling`, in the LLVM context of that module, so that they can be linked.
    """
    try:
        return binding.parse_assembly(
            text, sibling._context if sibling else binding.create_context()
        )
    except RuntimeError as error:
        raise errors.InternalError(f"LLVM rejects the module: {error}") from error


def _run_passes(module: Any, machine: Any) -> Any:
    """Run LLVM's passes on a module.

    Level 1 with the vectorizer creates the same loops as level 2 in half the time, because it does
    not process functions twice. Loops are unrolled for GPUs only. On CPUs unrolling took a fifth of
    the compile time and sped up no benchmark, since register tiles are emitted unrolled.
    """
    tuning = binding.create_pipeline_tuning_options(speed_level=1)
    tuning.loop_vectorization = True
    tuning.loop_interleaving = True
    tuning.loop_unrolling = machine.triple.startswith("nvptx")
    builder = binding.create_pass_builder(machine, tuning)
    manager = builder.getModulePassManager()  # which runs once
    manager.run(module, builder)
    NewPassManager._dispose(manager)  # llvmlite 0.50 never does: another base class hides it
    manager.detach()
    return module


@functools.cache
def _target_machine(target: Target) -> Any:
    if target.freestanding or target.family != host().family:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
    # WebAssembly has no position-independent code; RISC-V passes floats in registers on request.
    reloc = "static" if target.family == "wasm32" else "pic"
    abi = "lp64d" if target.family == "riscv64" else ""
    return binding.Target.from_triple(target.triple).create_target_machine(
        target.cpu, target.features, opt=2, reloc=reloc, codemodel="small", abiname=abi
    )
