"""Explanation of compiled nodes: the fused kernels, and the time of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from weft_compiler.codegen.module import module_of
from weft_compiler.codegen.options import Options
from weft_compiler.codegen.targets import assembly, target_of
from weft_compiler.gpu.code import PtxCode, code_of, module_for
from weft_compiler.gpu.pipeline import optimize_for_gpu
from weft_compiler.ir.nests import bytes_moved, defined_names, flops, nests_of
from weft_compiler.ir.program import Allocate, Body, Program, walk
from weft_compiler.ir.program_splitting import bodies_of
from weft_compiler.ir.verifier import verify
from weft_compiler.lower.region import lower
from weft_compiler.native.program import NativeProgram, load
from weft_compiler.passes.framework import PassResult
from weft_compiler.passes.pipeline import optimize
from weft_graph.ir.code_generators import RegionRequest
from weft_graph.ir.compiled_function import CompiledFunction, FusedKernel
from weft_graph.ir.node import Node
from weft_tensor import dtypes

_SECONDS: Final = 0.1
"""Total time of the repeated runs that find a function's fastest run; it runs at least `_RUNS`
times.
"""
_RUNS: Final = 5
_MOST_RUNS: Final = 1000


def explain(
    request: RegionRequest, arrays: Callable[[Program], Sequence[Any]], options: Options
) -> CompiledFunction:
    """Compile some nodes, run the result, and describe its kernels.

    Args:
      request: as in `CodeGenerator.generate`.
      arrays: returns new arguments for a program: inputs, outputs and updated values.
      options: the compiler options that steps use.
    Raises: Unsupported: the nodes cannot be compiled for these shapes.
    """
    fused: dict[str, list[Node]] = {}
    started = time.perf_counter()
    program = lower(request, fused=fused)
    optimized = optimize(program, check=False, vector_bytes=target_of(options).vector_bytes)
    program = optimized.program
    verify(program)
    lowering = time.perf_counter() - started
    native = load(program, options)
    arguments = arrays(program)
    seconds, _ = _fastest(native, arguments, None)
    code = native.code
    return CompiledFunction(
        request.name,
        tuple(request.members),
        tuple(request.shapes),
        _kernels(
            program, nests_of(program), request.members, fused, _times(program, options, arguments)
        ),
        code.module.shared + code.module.thread,
        lowering,
        code.seconds,
        code.from_disk,
        seconds,
        str(program),
        lambda: assembly(module_of(program, options).text, code.target),
        _remarks(optimized),
    )


def kernel_nodes(request: RegionRequest, options: Options) -> list[list[Node]]:
    """Return the nodes that each separately compiled part of a region computes, in order.

    Args:
      request: as in `CodeGenerator.generate`.
      options: the compiler options of steps.
    Raises: Unsupported: the nodes cannot be compiled for these.
    """
    fused: dict[str, list[Node]] = {}
    lowered = lower(request, fused=fused)
    vector_bytes = target_of(options).vector_bytes
    program = optimize(lowered, check=False, vector_bytes=vector_bytes).program
    position = {node: index for index, node in enumerate(request.members)}
    return [_computed_nodes(body, fused, position) for body in bodies_of(program)]


def explain_for_gpu(
    request: RegionRequest, capability: tuple[int, int], deterministic: bool
) -> tuple[PtxCode, CompiledFunction]:
    """Return the GPU kernels of some nodes and the nodes of each kernel, without times.

    Args:
      request: as in `CodeGenerator.generate`.
      capability, deterministic: as in `DeviceCodeGenerator.generate`.
    Raises: Unsupported, UnimplementedError: the nodes cannot be compiled for these shapes.
    """
    fused: dict[str, list[Node]] = {}
    started = time.perf_counter()
    optimized = optimize_for_gpu(lower(request, fused=fused))
    program = optimized.program
    lowering = time.perf_counter() - started
    module = module_for(program, capability, deterministic)
    code = code_of(program, module)
    return code, CompiledFunction(
        request.name,
        tuple(request.members),
        tuple(request.shapes),
        _kernels(program, [step.body for step in module.steps], request.members, fused, None),
        module.arena,
        lowering,
        time.perf_counter() - started - lowering,
        False,
        0.0,
        str(program),
        lambda: code.image,
        _remarks(optimized),
    )


def _remarks(result: PassResult) -> list[str]:
    """Return the remarks as text, without duplicates: a pass may try a rewrite several times."""
    return list(dict.fromkeys(map(str, result.remarks)))


def _times(program: Program, options: Options, arrays: Sequence[Any]) -> list[float] | None:
    """Return the fastest time of each loop nest in seconds; None if no times are recorded."""
    if not hasattr(time, "clock_gettime"):
        return None
    clocked = load(program, Options(options.contract, threads=False, clocks=True))
    return _fastest(clocked, arrays, lambda: clocked.times() * 1e-9)[1]


def _fastest(
    native: NativeProgram, arrays: Sequence[Any], parts: Callable[[], Any] | None
) -> tuple[float, list[float]]:
    """Return the fastest times of a program and of its parts, in seconds."""
    best_seconds, of_parts = float("inf"), None
    start_seconds = time.perf_counter()
    for run in range(_MOST_RUNS):
        if run >= _RUNS and time.perf_counter() - start_seconds > _SECONDS:
            break
        started = time.perf_counter()
        result = native.enter(*arrays)
        seconds = time.perf_counter() - started
        if result is not None:
            raise native.failure(result)
        best_seconds = min(best_seconds, seconds)
        if parts is not None:
            part_seconds = parts()
            of_parts = part_seconds if of_parts is None else of_parts.clip(max=part_seconds)
    return best_seconds, [] if of_parts is None else [float(part) for part in of_parts]


def _computed_nodes(
    nest: Body, fused: Mapping[str, Sequence[Node]], position: Mapping[Node, int]
) -> list[Node]:
    """Return the nodes that some statements compute, by position."""
    names = defined_names(nest) & fused.keys()
    nodes = {node for name in names for node in fused[name] if node in position}
    return sorted(nodes, key=position.__getitem__)


def _kernels(
    program: Program,
    nests: Iterable[Body],
    members: Sequence[Node],
    fused: Mapping[str, Sequence[Node]],
    seconds: Sequence[float] | None,
) -> list[FusedKernel]:
    position = {node: index for index, node in enumerate(members)}
    local_names, buffers = _local_buffers(program), program.buffers
    results = []
    for index, nest in enumerate(nests):
        names = defined_names(nest) & fused.keys()
        filled = [name for name in fused if name in names]
        outside = [name for name in filled if name in buffers and name not in local_names]
        results.append(
            FusedKernel(
                (outside or filled or [f"nest {index + 1}"])[-1],
                _computed_nodes(nest, fused, position),
                _text(nest),
                buffers[outside[-1]].dtype if outside else dtypes.float32,
                flops(nest),
                bytes_moved(nest, program),
                None if seconds is None else seconds[index],
            )
        )
    return results


def _local_buffers(program: Program) -> set[str]:
    """Return the buffers that are local to loops."""
    outermost = set(program.body)
    inner = [statement for statement in walk(program.body) if statement not in outermost]
    return {statement.buffer.name for statement in inner if isinstance(statement, Allocate)}


def _text(nest: Body) -> str:
    return "\n".join(map(str, nest))
