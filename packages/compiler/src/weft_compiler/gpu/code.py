"""Code of a program for GPUs: the data needed to load and launch it."""

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
    """Nodes compiled to PTX kernels; see `weft_graph.ir.code_generators.DeviceCode`."""

    image: str
    launches: Sequence[Launch]
    memory: int
    constants: Sequence[Any]
    messages: Sequence[str]
    input_positions: Sequence[int]
    rng_nodes: Sequence[Node]
    results: Sequence[tuple[DType, Shape]]
    updates: Sequence[int]


def ptx_code(lowered: Program, capability: tuple[int, int], deterministic: bool) -> PtxCode:
    """Return the kernels of a lowered program.

    Args:
      deterministic: True if sums must not depend on the order of threads.
    Returns: code whose results include the updated outputs; its `input_positions` and `rng_nodes`
      are empty.
    Raises: UnimplementedError: a part of the program has no code for GPUs.
    """
    program = optimize_for_gpu(lowered).program
    return code_of(program, module_for(program, capability, deterministic))


def module_for(program: Program, capability: tuple[int, int], deterministic: bool) -> GpuModule:
    """Return the kernels of an optimized program.

    Raises: UnimplementedError: as for `ptx_code`.
    """
    return gpu_module(program, target_of_capability(*capability), atomics=not deterministic)


def code_of(program: Program, module: GpuModule) -> PtxCode:
    """Return the code of a program from its kernels."""
    constants = [b.name for b in program.inputs if b.name in program.constants]
    input_names = [b.name for b in program.inputs if b.name not in program.constants]
    order = {name: index for index, name in enumerate(constants)}
    for buffer in (*input_names, *[b.name for b in program.outputs]):
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
