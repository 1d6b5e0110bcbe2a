"""The routines of bytes: all geometries against the interpreter, exactly, on all processors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.geometry import geometry

from weft_compiler.codegen.options import Options
from weft_compiler.codegen.targets import host
from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.layouts import FOUR, PANEL, WINDOWS
from weft_compiler.native.program import load
from weft_compiler.routines.int8 import pack_bytes
from weft_tensor import errors

LEVELS = {"x86-64-v4": "avx512vl", "x86-64-v3": "avx2", "x86-64": "sse2"}
CPUS = ("", *(cpu for cpu, feature in LEVELS.items() if host().x86 and host().has(feature)))
"""Dots of four bytes where this machine has them, and pairs in registers of its widths."""
TYPES = ("int8", "uint8")


def bytes_of(random: Any, dtype: str, *shape: int) -> Any:
    """Random bytes with frequent extremes, whose sums may overflow."""
    limits = np.iinfo(dtype)
    found = random.integers(limits.min, limits.max + 1, shape)
    ends = random.choice([limits.min, limits.max], shape)
    return np.where(random.random(shape) < 0.5, ends, found).astype(dtype)


def product(dtype: str, m: int, n: int, k: int, gap: int) -> Program:
    """A program of one product, of rows with a gap between."""
    panels = -(-n // PANEL)
    return parse(f"""
program p(a: {dtype}[{m}, {k + gap}], b: int8[{panels}, {-(-k // FOUR)}, {PANEL}, {FOUR}], \
sums: int32[{panels}, {PANEL}]) -> (c: int32[{m}, {n}]):
  call matmul_bytes(a[0, 0], b[0, 0, 0, 0], sums[0, 0], c[0, 0], m={m}, n={n}, k={k}, \
a_row={k + gap}, c_row={n})
""")


def agree(program: Program, options: Options, *given: Any) -> None:
    """Check that the interpreter and compiled code return the same integers."""
    verify(program)
    assert str(parse(str(program))) == str(program)
    for found, exact in zip(
        load(program, options)(*given), interpret(program, *given), strict=True
    ):
        np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", TYPES)
def test_products_of_all_sizes(dtype: str, cpu: str) -> None:
    random = np.random.default_rng(len(dtype + cpu))
    sizes = [(1, 1, 1), (1, 64, 2100), (14, 32, 4), (3, 600, 5), (30, 33, 1027), (5, 16, 1)]
    sizes += [(int(m), int(n), int(k)) for m, n, k in random.integers(1, 80, (6, 3))]
    for m, n, k in sizes:
        gap = int(random.integers(0, 3))
        panels, sums = pack_bytes(bytes_of(random, "int8", k, n))
        a = bytes_of(random, dtype, m, k + gap)
        agree(product(dtype, m, n, k, gap), Options(cpu=cpu), a, panels, sums)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", TYPES)
def test_windows_of_all_kinds(dtype: str, cpu: str) -> None:
    random = np.random.default_rng(len(dtype + cpu))
    limits = np.iinfo(dtype)
    for turn in range(12):
        of = geometry(random)
        row, outside = turn % 3, int(random.integers(limits.min, limits.max + 1))
        places = of["taps_y"] * of["taps_x"] * of["channels"]
        panels, sums = pack_bytes(bytes_of(random, "int8", places, of["depth"]))
        settings = ", ".join(f"{name}={value}" for name, value in of.items())
        program = parse(f"""
program p(x: {dtype}[{of["images"]}, {of["height"]}, {of["breadth"]}, {of["channels"]}], \
w: int8[{panels.size}], sums: int32[{sums.size}]) \
-> (y: int32[{row + 1}, {of["images"]}, {of["rows"]}, {of["width"]}, {of["depth"]}]):
  for i in {row + 1}:
    call conv_bytes(x[0, 0, 0, 0], w[0], sums[0], y[i, 0, 0, 0, 0], {settings}, \
outside={outside}, at i)
""")
        x = bytes_of(random, dtype, *program.inputs[0].shape)
        agree(program, Options(cpu=cpu), x, panels.reshape(-1), sums.reshape(-1))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("turned", [False, True])
def test_packing(dtype: str, turned: bool) -> None:
    random = np.random.default_rng(turned)
    for k, n in [(1, 1), (4, 32), (9, 70), (64, 96), (7, 33)]:
        shape = (n, k) if turned else (k, n)
        row, column = (1, k) if turned else (n, 1)
        panels = -(-n // PANEL)
        program = parse(f"""
program p(b: {dtype}[{shape[0]}, {shape[1]}]) \
-> (panels: int8[{panels}, {-(-k // FOUR)}, {PANEL}, {FOUR}], sums: int32[{panels}, {PANEL}]):
  call pack_bytes(b[0, 0], panels[0, 0, 0, 0], sums[0, 0], n={n}, k={k}, b_row={row}, \
b_column={column})
""")
        agree(program, Options(), bytes_of(random, dtype, *shape))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("a: uint8", "a: int16", "a of int8 or uint8, b of int8 and sums and c of int32"),
        ("b: int8", "b: uint8", "a of int8 or uint8, b of int8 and sums and c of int32"),
        ("c: int32", "c: int64", "a of int8 or uint8, b of int8 and sums and c of int32"),
        ("m=2", "m=3", "a needs 15 elements, but has 10"),
        ("n=3", "n=33", "rows overlap"),
        ("k=5", "k=0", "a depth of at least 1"),
        ("k=5", "k=9", "rows overlap"),
    ],
)
def test_calls_that_are_wrong(old: str, new: str, said: str) -> None:
    text = str(product("uint8", 2, 3, 5, 0))
    assert old in text
    with pytest.raises(errors.InternalError) as caught:
        verify(parse(text.replace(old, new, 1)))
    assert said in str(caught.value)


def test_what_is_outside_is_a_byte() -> None:
    of = dict.fromkeys(WINDOWS, 1) | {"before_y": 0, "before_x": 0}
    settings = ", ".join(f"{name}={value}" for name, value in of.items())
    text = f"""
program p(x: int8[1], w: int8[128], sums: int32[32]) -> (y: int32[1]):
  call conv_bytes(x[0], w[0], sums[0], y[0], {settings}, outside=128, at 0)
"""
    with pytest.raises(errors.InternalError) as caught:
        verify(parse(text))
    assert "outside was required to be of int8, got 128" in str(caught.value)
