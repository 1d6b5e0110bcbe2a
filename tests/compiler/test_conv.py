"""The routines of convolutions: all geometries against the interpreter, and processors."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from weft_testing.geometry import geometry

from weft_compiler.codegen.options import Options
from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.layouts import PANEL_BYTES, WINDOWS
from weft_compiler.native.program import load
from weft_tensor import errors

CPUS = ("", "x86-64-v3", "x86-64")


def forward(of: dict[str, int], dtype: str, row: int, packed: int) -> Program:
    """A program of a single call, whose first row is a loop variable."""
    columns = PANEL_BYTES // np.dtype(dtype).itemsize if packed else of["depth"]
    panels, places = -(-of["depth"] // columns), of["taps_y"] * of["taps_x"] * of["channels"]
    settings = ", ".join(f"{name}={value}" for name, value in (of | {"packed": packed}).items())
    return parse(f"""
program p(x: {dtype}[{of["images"]}, {of["height"]}, {of["breadth"]}, {of["channels"]}], \
w: {dtype}[{panels}, {places}, {columns}]) \
-> (y: {dtype}[{row + 1}, {of["images"]}, {of["rows"]}, {of["width"]}, {of["depth"]}]):
  for i in {row + 1}:
    call conv(x[0, 0, 0, 0], w[0, 0, 0], y[i, 0, 0, 0, 0], {settings}, at i)
""")


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_windows_of_all_kinds(dtype: str, cpu: str) -> None:
    random = np.random.default_rng(len(dtype + cpu))
    for turn in range(12):
        of = geometry(random)
        program = forward(of, dtype, turn % 3, turn % 2)
        verify(program)
        assert str(parse(str(program))) == str(program)
        given = [random.normal(size=b.shape).astype(dtype) for b in program.inputs]
        (exact,) = interpret(program, *given)
        (found,) = load(program, Options(cpu=cpu))(*given)
        bound = 2 * of["taps_y"] * of["taps_x"] * of["channels"] * np.finfo(dtype).eps
        np.testing.assert_allclose(found, exact, rtol=bound, atol=bound, err_msg=str(of))


def first_layer(size: int, channels: int, taps: int, stride: int, dilation: int) -> dict[str, int]:
    """Windows of few channels in two images, padded by half the extent of a window."""
    before = dilation * (taps - 1) // 2
    width = (size + 2 * before - dilation * (taps - 1) - 1) // stride + 1
    found = {"images": 2, "rows": width, "width": width, "depth": 9, "channels": channels}
    found |= {"height": size, "breadth": size, "taps_y": taps, "taps_x": taps}
    found |= {"stride_y": stride, "stride_x": stride, "dilation_y": dilation}
    return found | {"dilation_x": dilation, "before_y": before, "before_x": before}


FIRST = [(20, 3, 3, 1, 1), (19, 1, 5, 1, 1), (31, 3, 7, 2, 1), (18, 5, 2, 3, 1), (24, 3, 3, 1, 3)]
FIRST += [(9, 40, 1, 1, 1), (8, 1, 1, 2, 1), (16, 6, 12, 1, 1)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cpu", CPUS)
def test_windows_of_first_layers(dtype: str, cpu: str) -> None:
    """Runs of many neighboring windows are copied at once, and those at the edges one by one."""
    random = np.random.default_rng(5)
    for at, layer in enumerate(FIRST):
        of = first_layer(*layer)
        for program in (forward(of, dtype, 0, at % 2), by_filter(of, dtype, 0)):
            given = [random.normal(size=b.shape).astype(dtype) for b in program.inputs]
            (exact,) = interpret(program, *given)
            (found,) = load(program, Options(cpu=cpu))(*given)
            summed = max(layer[1] * layer[2] ** 2, of["images"] * of["rows"] * of["width"])
            bound = 4 * summed * np.finfo(dtype).eps
            np.testing.assert_allclose(found, exact, rtol=bound, atol=bound, err_msg=str(of))


def windows_of(taps: int, channels: int, depth: int, width: int) -> dict[str, int]:
    """Windows of a row of two images, as wide as it, with zeros around."""
    found = {"images": 2, "rows": 1, "width": width, "depth": depth, "channels": channels}
    found |= {"height": 1, "breadth": width, "taps_y": taps, "taps_x": taps}
    found |= dict.fromkeys(("stride_y", "stride_x", "dilation_y", "dilation_x"), 1)
    return found | dict.fromkeys(("before_y", "before_x"), taps // 2)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_filters_larger_than_caches(dtype: str, cpu: str) -> None:
    """Each panel is used by all windows: of one tile, of some, and of more than are gathered."""
    random = np.random.default_rng(3)
    sizes = [(1, 600, 300, 6), (3, 60, 310, 40), (1, 520, 270, 140)]
    for (taps, channels, depth, width), packed in product(sizes, (0, 1)):
        of = windows_of(taps, channels, depth, width)
        program = forward(of, dtype, 0, packed)
        given = [random.normal(size=b.shape).astype(dtype) for b in program.inputs]
        (exact,) = interpret(program, *given)
        (found,) = load(program, Options(cpu=cpu))(*given)
        bound = 2 * taps * taps * channels * np.finfo(dtype).eps
        np.testing.assert_allclose(found, exact, rtol=bound, atol=bound, err_msg=str(of))


def by_filter(of: dict[str, int], dtype: str, accumulate: int) -> Program:
    """A program of one gradient by the filter."""
    settings = ", ".join(f"{name}={value}" for name, value in of.items())
    places = of["taps_y"] * of["taps_x"] * of["channels"]
    return parse(f"""
program p(x: {dtype}[{of["images"]}, {of["height"]}, {of["breadth"]}, {of["channels"]}], \
g: {dtype}[{of["images"]}, {of["rows"]}, {of["width"]}, {of["depth"]}]) \
-> (y: {dtype}[{of["depth"]}, {places}]):
  for i in {of["depth"]}:
    for j in {places}:
      y[i, j] = g[0, 0, 0, 0]
  call conv_filter(x[0, 0, 0, 0], g[0, 0, 0, 0], y[0, 0], {settings}, accumulate={accumulate})
""")


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_by_the_filter_of_all_kinds(dtype: str, cpu: str) -> None:
    random = np.random.default_rng(len(dtype + cpu))
    for turn in range(12):
        of = geometry(random)
        program = by_filter(of, dtype, turn % 2)
        verify(program)
        given = [random.normal(size=b.shape).astype(dtype) for b in program.inputs]
        (exact,) = interpret(program, *given)
        (found,) = load(program, Options(cpu=cpu))(*given)
        bound = 4 * of["images"] * of["rows"] * of["width"] * np.finfo(dtype).eps
        np.testing.assert_allclose(found, exact, rtol=bound, atol=bound, err_msg=str(of))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("images=1", "images=2", "x needs 50 elements, but has 25"),
        ("depth=2", "depth=33", "w needs 64 elements, but has 32"),
        ("rows=5", "rows=6", "y needs 60 elements, but has 50"),
        ("taps_x=1", "taps_x=0", "sizes of at least 1"),
        ("stride_y=1", "stride_y=-1", "sizes of at least 0"),
        ("at 0", "at x[0, 0]", "a number must be an int64"),
    ],
)
def test_calls_that_are_wrong(old: str, new: str, said: str) -> None:
    of = dict.fromkeys(WINDOWS, 1) | {"depth": 2, "rows": 5, "width": 5, "height": 5, "breadth": 5}
    of |= {"before_y": 0, "before_x": 0, "packed": 1}
    settings = ", ".join(f"{name}={value}" for name, value in of.items())
    text = f"""
program p(x: float32[5, 5], w: float32[32]) -> (y: float32[50]):
  call conv(x[0, 0], w[0], y[0], {settings}, at 0)
"""
    assert old in text
    verify(parse(text))
    with pytest.raises(errors.InternalError) as caught:
        verify(parse(text.replace(old, new)))
    assert said in str(caught.value)
    with pytest.raises(errors.InvalidArgumentError, match=r"conv requires conv\(x, w, y, images="):
        parse(text.replace(", at 0", ""))
