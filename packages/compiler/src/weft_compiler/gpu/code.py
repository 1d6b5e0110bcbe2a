"""What whoever has a GPU needs of a program to load and launch it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft_compiler.gpu.module import GpuModule, gpu_module, ptx_of, target_of_capability
from weft_compiler.gpu.pipeline import optimize_for_gpu
from weft_compiler.ir.program import Program
from weft_graph.ir.code_generators import Launch, Shape
from weft_graph.ir.node import Node
from weft_tensor.dtypes import DType


class PtxCode(NamedTuple):
    """Nodes as kernels of PTX; see `weft_graph.ir.code_generators.DeviceCode`."""

    image: str
    launches: Sequence[Launch]
    memory: int
    constants: Sequence[Any]
    messages: Sequence[str]
    takes: Sequence[int]
    draws: Sequence[Node]
    results: Sequence[tuple[DType, Shape]]
    updates: Sequence[int]


def ptx_code(lowered: Program, capability: tuple[int, int], deterministic: bool) -> PtxCode:
    """The kernels of a lowered program.

    Args:
      deterministic: whether sums may not depend on the order in which threads come.
    Returns: code whose results are all outputs, those that are updated too; what it takes and draws
      is not known here.
    Raises: UnimplementedError: something in it has no code for GPUs.
    """
    program = optimize_for_gpu(lowered).program
    return code_of(program, module_for(program, capability, deterministic))


def module_for(program: Program, capability: tuple[int, int], deterministic: bool) -> GpuModule:
    """The kernels of an optimized program.

    Raises: UnimplementedError: as of `ptx_code`.
    """
    return gpu_module(program, target_of_capability(*capability), atomics=not deterministic)


def code_of(program: Program, module: GpuModule) -> PtxCode:
    """What whoever has a GPU needs of a program and its kernels."""
    constants = [b.name for b in program.inputs if b.name in program.constants]
    given = [b.name for b in program.inputs if b.name not in program.constants]
    order = {name: at for at, name in enumerate(constants)}
    for buffer in (*given, *[b.name for b in program.outputs]):
        order[buffer] = len(order)
    launches = [
        Launch(step.name, step.blocks, step.threads, [order[name] for name in step.buffers])
        for step in module.steps
    ]
    return PtxCode(
        ptx_of(module),
        launches,
        module.arena,
        [program.constants[name] for name in constants],
        module.messages,
        (),
        (),
        [(b.dtype, b.shape) for b in program.outputs],
        (),
    )
