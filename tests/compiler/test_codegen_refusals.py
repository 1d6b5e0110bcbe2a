"""Errors of code generation: indices out of bounds, and unsupported statements."""

from __future__ import annotations

import numpy as np
import pytest
from weft_testing.parts import Parts

from weft_compiler.codegen.module import require_supported
from weft_compiler.codegen.options import Options
from weft_compiler.codegen.targets import host
from weft_compiler.ir.parser import parse
from weft_compiler.native.program import load
from weft_tensor import errors

HEAD = "program p(x: float32[2, 3], i: int64[]) -> (y: float32[2, 3]):\n"
ACCESSES = {
    "load of rows": (2, "y[0, 0] = x[i[], 0]"),
    "load of columns": (3, "y[0, 0] = x[1, i[]]"),
    "store of rows": (2, "y[i[], 2] = x[0, 0]"),
    "store of columns": (3, "y[1, i[]] = x[0, 0]"),
    "update": (3, "y[1, i[]] add= x[0, 0]"),
    "load in a loop": (3, "for j in 1:\n    y[0, 0] = x[j, i[] + j]"),
    "load in a vector": (3, "vector j in 2:\n    y[j, 0] = x[j, i[]]"),
    "load in parallel": (2, "parallel j in 3:\n    y[0, j] = x[i[], j]"),
    "load of a condition": (3, "if x[0, i[]] < 9.0:\n    y[0, 0] = 1.0"),
}


def test_checked_indices_are_within_their_axes() -> None:
    x = np.ones((2, 3), np.float32)
    with Parts() as parts:
        for title, (size, statement) in ACCESSES.items():
            text = (
                f"program p(x: float32[2, 3], i: int64[]) -> (y: float32[2, 3]):\n  {statement}\n"
            )
            program = load(parse(text), Options(bounds_checks=True))
            for index in (0, size - 1):
                with parts.part(f"{title} at {index}"):
                    program(x, np.int64(index))
            for index in (-1, size, 1 << 40, -(1 << 63)):
                with (
                    parts.part(f"{title} at {index}"),
                    pytest.raises(errors.InternalError, match="p: an index is out of bounds"),
                ):
                    program(x, np.int64(index))


@pytest.mark.parametrize(
    ("dtype", "expression", "words"),
    [
        ("float16", "next_after(x[i], x[i])", "next_after of float16"),
        ("float16", "1.0:float16 + next_after(x[i], x[i])", "next_after of float16"),
        ("complex64", "x[i] + x[i]", "add of complex64"),
    ],
)
def test_primitives_without_machine_code(dtype: str, expression: str, words: str) -> None:
    text = f"program p(x: {dtype}[3]) -> (y: {dtype}[3]):\n  for i in 3:\n    y[i] = {expression}\n"
    program = parse(text)
    for refuse in (require_supported, load):
        with pytest.raises(errors.UnimplementedError, match=f"no machine code for {words}"):
            refuse(program)


def test_routines_without_machine_code() -> None:
    sizes = "m=2, n=2, k=2, a_row=2, a_column=1, b_row=2, b_column=1, c_row=2, accumulate=0"
    text = (
        "program p(a: float16[2, 2], b: float16[2, 2]) -> (c: float16[2, 2]):\n"
        f"  call small_matmul(a[0, 0], b[0, 0], c[0, 0], {sizes})\n"
    )
    with pytest.raises(errors.UnimplementedError, match="code for small_matmul of float16"):
        load(parse(text))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(cpu="pentium-9000"), "no processor 'pentium-9000'"),
        (Options(cpu=host().cpu, features="avx2"), "with \\+ or -"),
        (Options(cpu=host().cpu, features="+nonsense"), "with \\+ or -"),
        (Options(cpu="cortex-m4", triple="x86_64-linux"), "no processor 'cortex-m4'"),
    ],
)
def test_processors_that_llvm_does_not_know(options: Options, words: str) -> None:
    program = parse("program p(x: float32[]) -> (y: float32[]):\n  y[] = x[]\n")
    with pytest.raises(errors.InvalidArgumentError, match=words):
        load(program, options)
