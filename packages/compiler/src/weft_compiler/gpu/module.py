"""Programs as kernels: their PTX, and how they are launched one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from weft_compiler.codegen import philox
from weft_compiler.codegen.kernel import Kernel
from weft_compiler.codegen.mathematics import library
from weft_compiler.codegen.memory import Place, Plan, arrange
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
"""Compute capabilities, times ten, that code is made for; the driver takes it for later ones."""


@dataclass(frozen=True, slots=True)
class Step:
    """A kernel that is launched.

    Attributes:
      name: its function. It takes the addresses of the arena, of the flag, which is an int32, and
        of some buffers.
      blocks, threads: how many blocks, and threads in each.
      buffers: the names of the program's inputs and outputs that it takes.
      body: what it computes.
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
      text: its kernels as LLVM.
      target: what the text is for.
      steps: its launches, in their order.
      arena: bytes of memory besides inputs and outputs.
      messages: of its checks; the flag has the number of one that fails, from 1, else 0.
    """

    text: str
    target: Target
    steps: tuple[Step, ...]
    arena: int
    messages: tuple[str, ...]


def target_of_capability(major: int, minor: int) -> Target:
    """The newest architecture that a GPU has, of those that code is made for."""
    known = [each for each in ARCHITECTURES if each <= 10 * major + minor]
    return Target(TRIPLE, f"sm_{max(known, default=ARCHITECTURES[0])}", "", alone=True)


def gpu_module(
    program: Program, target: Target, contract: bool = True, atomics: bool = True
) -> GpuModule:
    """The kernels of a verified program.

    Args:
      contract: as in `Options`.
      atomics: whether sums may depend on the order in which threads come.
    Raises: UnimplementedError: something in it has no code for GPUs.
    """
    require_supported(program)
    launches = launches_of(program, atomics)
    plan = _plan(program, launches)
    scalars = Scalars(target, contract)
    kernel = Kernel(program, plan, scalars, Options(contract=contract, threads=False))
    functions = [LaunchFunction(kernel, each, at) for at, each in enumerate(launches, 1)]
    texts = [each.write() for each in functions]
    whole = "\n".join(
        [
            f'target datalayout = "{data_layout(target)}"',
            f'target triple = "{target.triple}"',
            *texts,
            *library.texts(scalars.used, target),
            *([philox.text()] if kernel.philox else []),
            DECLARATIONS,
            "attributes #0 = { nounwind }",
            *kernel.metadata.lines,
        ]
    )
    steps = [
        Step(
            each.name,
            each.launch.blocks,
            each.launch.threads,
            tuple(each.buffers),
            each.launch.body,
        )
        for each in functions
        if each.launch.count
    ]
    messages = [each.message for each in walk(program.body) if isinstance(each, Check)]
    return GpuModule(whole, target, tuple(steps), plan.shared, tuple(messages))


def ptx_of(module: GpuModule) -> str:
    """The PTX of a module, which is kept on the disk like other code.

    Raises: InternalError: LLVM refuses the text.
    """

    def compiled() -> bytes:
        return assembly(module.text, module.target).encode()

    return cache.object_of("ptx", module.text, module.target, compiled).decode()


def _plan(program: Program, launches: list[Launch]) -> Plan:
    """Where the buffers lie that several launches may touch."""
    touched = [_touched(launch.body) for launch in launches]
    places = []
    for each in program.body:
        if isinstance(each, Allocate):
            users = [at for at, names in enumerate(touched) if each.buffer.name in names]
            if users:
                places.append(Place(each.buffer, "shared", users[0], users[-1]))
    size = arrange(places)
    return Plan({place.buffer.name: place for place in places}, size, 0)


def _touched(body: Body) -> set[str]:
    found = {each.buffer for each in walk(body) if isinstance(each, Store)}
    return found | {
        part.buffer
        for each in walk(body)
        for expression in expressions(each)
        for part in parts(expression)
        if isinstance(part, Load)
    }
