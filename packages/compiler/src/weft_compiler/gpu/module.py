"""GPU kernels of a program, as PTX, and the sequence of their launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from weft_compiler.codegen.kernel import Kernel
from weft_compiler.codegen.mathematics import library
from weft_compiler.codegen.memory import Allocation, Plan, arrange
from weft_compiler.codegen.module import require_supported
from weft_compiler.codegen.options import Options
from weft_compiler.codegen.scalars import Scalars
from weft_compiler.codegen.targets import Target, assembly, data_layout
from weft_compiler.gpu.kernel import DECLARATIONS, LaunchFunction
from weft_compiler.gpu.launches import Launch, launches_of
from weft_compiler.ir.expressions import Load, walk as parts
from weft_compiler.ir.program import Allocate, Body, Check, Program, Store, expressions, walk
from weft_compiler.native import cache

TRIPLE: Final = "nvptx64-nvidia-cuda"

ARCHITECTURES: Final = (70, 72, 75, 80, 86, 87, 89, 90, 100, 103, 120)
"""Compute capabilities to compile for, times ten; the driver accepts the code for later ones."""


@dataclass(frozen=True, slots=True)
class Step:
    """A launch of a kernel.

    Attributes:
      name: its function, whose parameters are the addresses of the arena, of the int32 flag, and of
        `buffers`.
      blocks, threads: the number of blocks, and of threads per block.
      buffers: the names of the program's inputs and outputs that it receives.
      body: the statements that it runs.
    """

    name: str
    blocks: int
    threads: int
    buffers: tuple[str, ...]
    body: Body


@dataclass(frozen=True, slots=True)
class GpuModule:
    """A program for GPUs.

    Attributes:
      text: the kernels as LLVM IR.
      target: the target of the text.
      steps: the launches in order.
      arena: size of the temporaries, in bytes.
      messages: error messages of the checks. The flag holds the 1-based index of a failed check,
        or 0.
    """

    text: str
    target: Target
    steps: tuple[Step, ...]
    arena: int
    messages: tuple[str, ...]


def target_of_capability(major: int, minor: int) -> Target:
    """Return the newest supported architecture whose code a GPU can run."""
    known_values = [
        architecture for architecture in ARCHITECTURES if architecture <= 10 * major + minor
    ]
    return Target(
        TRIPLE, f"sm_{max(known_values, default=ARCHITECTURES[0])}", "", freestanding=True
    )


def gpu_module(
    program: Program, target: Target, contract: bool = True, atomics: bool = True
) -> GpuModule:
    """Return the kernels of a verified program.

    Args:
      contract: as in `Options`.
      atomics: True if sums may depend on the order of threads.
    Raises: UnimplementedError: a part of the program has no code for GPUs.
    """
    require_supported(program)
    launches = launches_of(program, atomics)
    plan = _plan(program, launches)
    scalars = Scalars(target, contract)
    kernel = Kernel(program, plan, scalars, Options(contract=contract, threads=False))
    functions = [LaunchFunction(kernel, launch, index) for index, launch in enumerate(launches, 1)]
    texts = [launch.write() for launch in functions]
    text = "\n".join(
        [
            f'target datalayout = "{data_layout(target)}"',
            f'target triple = "{target.triple}"',
            *texts,
            *library.texts(scalars.used, target),
            *kernel.definitions.values(),
            DECLARATIONS,
            "attributes #0 = { nounwind }",
            *kernel.metadata.lines,
        ]
    )
    steps = [
        Step(
            launch.name,
            launch.launch.blocks,
            launch.launch.threads,
            tuple(launch.buffers),
            launch.launch.body,
        )
        for launch in functions
        if launch.launch.count
    ]
    messages = [launch.message for launch in walk(program.body) if isinstance(launch, Check)]
    return GpuModule(text, target, tuple(steps), plan.shared, tuple(messages))


def ptx_of(module: GpuModule) -> str:
    """Return the PTX of a module; results are cached on disk.

    Raises: InternalError: LLVM rejects the text.
    """

    def compiled() -> bytes:
        return assembly(module.text, module.target).encode()

    return cache.compile_object("ptx", module.text, module.target, compiled).decode()


def _plan(program: Program, launches: list[Launch]) -> Plan:
    """Plan the locations of the buffers that several launches may use."""
    touched_names = [_touched_buffers(launch.body) for launch in launches]
    indices = []
    for statement in program.body:
        if isinstance(statement, Allocate):
            users = [
                index for index, names in enumerate(touched_names) if statement.buffer.name in names
            ]
            if users:
                indices.append(Allocation(statement.buffer, "shared", users[0], users[-1]))
    size = arrange(indices)
    return Plan({place.buffer.name: place for place in indices}, size, 0)


def _touched_buffers(body: Body) -> set[str]:
    names = {statement.buffer for statement in walk(body) if isinstance(statement, Store)}
    return names | {
        part.buffer
        for statement in walk(body)
        for expression in expressions(statement)
        for part in parts(expression)
        if isinstance(part, Load)
    }
