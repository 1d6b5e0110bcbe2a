"""Programs as LLVM modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft_compiler.codegen import blas, runtime
from weft_compiler.codegen.kernel import TIME, Kernel
from weft_compiler.codegen.mathematics import library
from weft_compiler.codegen.memory import plan_memory
from weft_compiler.codegen.options import Options
from weft_compiler.codegen.routine import Routine
from weft_compiler.codegen.scalars import Scalars, supports
from weft_compiler.codegen.targets import Target, target_of
from weft_compiler.ir.expressions import Apply, Expr, walk as parts
from weft_compiler.ir.nests import nests_of
from weft_compiler.ir.program import Call, Program, expressions, walk
from weft_graph.ir.scalar import PRIMITIVES
from weft_tensor import errors
from weft_tensor.dtypes import DType

ENTRY: Final = "weft.run"
"""Name of the function that a module exports: `int32 run(void **buffers, void *arena, int32
*interrupt, void *times, int64 threads)`. It returns 0, or the number of the check that failed.
"""


@dataclass(frozen=True, slots=True)
class Module:
    """An LLVM module of a program.

    Attributes:
      text: the module as LLVM IR.
      shared: size of the arena part that threads share, in bytes.
      thread: size of the arena part of each thread, in bytes.
      times: size of the timestamps, in bytes.
      shares: True if several threads may run some of its loops.
      routines: the called routines of libraries, with their types.
      blas: the called BLAS functions.
    """

    text: str
    shared: int
    thread: int
    times: int
    shares: bool
    routines: tuple[tuple[str, DType], ...]
    blas: tuple[str, ...]


def module_of(program: Program, options: Options | None = None) -> Module:
    """Translate a verified program to an LLVM module.

    Raises: UnimplementedError: a primitive of the program has no machine code.
    """
    options = options or Options()
    require_supported(program)
    target = target_of(options)
    scalars = Scalars(target, options.contract)
    plan = plan_memory(program, _workspace(program, target))
    kernel = Kernel(program, plan, scalars, options)
    kernel.write()
    buffers = [b.name for b in (*program.inputs, *program.outputs)]
    texts = [
        f'target triple = "{target.triple}"\n; {program.name}',
        *kernel.functions,
        _entry(buffers, kernel.arguments),
        runtime.PARALLEL_FOR_DECLARATION if kernel.regions else "",
        *library.texts(scalars.used, target),
        *kernel.definitions.values(),
        *[kernel.routines[routine] for routine in sorted(kernel.routines, key=str)],
        *map(blas.declaration, sorted(kernel.blas)),
        "declare i32 @clock_gettime(i32, ptr)\n" if options.clocks else "",
        attributes(target),
        *kernel.metadata.lines,
    ]
    return Module(
        "\n".join(texts),
        plan.shared,
        plan.thread,
        _times(program) if options.clocks else 0,
        kernel.regions > 0,
        tuple(sorted(kernel.routines, key=str)),
        tuple(sorted(kernel.blas)),
    )


def _entry(buffers: Sequence[str], arguments: str) -> str:
    """Return the entry function, which unpacks the list of buffer pointers."""
    loads = "\n".join(
        f"  %p{index} = getelementptr ptr, ptr %buffers, i64 {index}\n"
        f"  %buffer.{buffer} = load ptr, ptr %p{index}"
        for index, buffer in enumerate(buffers)
    )
    remainder = "ptr %arena, ptr %interrupt, ptr %times, i64 %threads"
    call_arguments = arguments.replace("i64 %thread,", "i64 0,")
    return f"""
define i32 @{ENTRY}(ptr %buffers, {remainder}) #0 {{
{loads}
  %result = call i32 @weft.main({call_arguments})
  ret i32 %result
}}
"""


def require_supported(program: Program) -> None:
    """Raise if a primitive of a program has no machine code.

    Raises: UnimplementedError: one of them has none.
    """
    for statement in walk(program.body):
        for expression in expressions(statement):
            _require_supported(expression)


def _require_supported(expression: Expr) -> None:
    for part in parts(expression):
        if isinstance(part, Apply):
            source_dtype = part.operands[-1].dtype
            if not (supports(part.primitive, source_dtype) and supports("cast", part.dtype)):
                raise errors.UnimplementedError(
                    f"there is no machine code for {part.primitive} of {source_dtype.name}: "
                    f"{PRIMITIVES[part.primitive].doc}"
                )


def _workspace(program: Program, target: Target) -> int:
    """Return the workspace of the routines that a program calls, in bytes."""
    buffers = program.buffers
    maximum = 0
    for call in walk(program.body):
        if isinstance(call, Call):
            assert isinstance(call, Routine)
            dtype = buffers[call.views[0].buffer].dtype
            if dtype not in call.dtypes:
                raise errors.UnimplementedError(
                    f"there is no machine code for {call.routine} of {dtype.name}"
                )
            maximum = max(maximum, call.workspace_bytes(dtype, target))
    return maximum


def _times(program: Program) -> int:
    """Return the size of the timestamps that a program records, in bytes."""
    return TIME * (len(nests_of(program)) + 1)


def attributes(target: Target) -> str:
    """Return the LLVM attributes of all functions."""
    width = 8 * target.vector_bytes
    return f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" }}'
