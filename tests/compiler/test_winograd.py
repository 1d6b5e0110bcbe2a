"""Convolutions of 3×3 and 5×5 by fewer products.

Errors, what is not finite, processors and threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_compiler.ahead.lowering import program_of
from weft_compiler.codegen.options import Options
from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.layouts import PANEL_BYTES
from weft_compiler.lower.region import lower
from weft_compiler.native.program import load
from weft_graph.ir.code_generators import RegionRequest
from weft_graph.ir.node import Output
from weft_tensor import errors

CPUS = ("", "x86-64-v3", "x86-64")
LARGEST = 100
"""How many times as large as what is summed directly, at most, what is rounded may be."""


def program_of_call(
    dtype: str,
    images: int,
    size: tuple[int, int],
    before: int,
    channels: int,
    depth: int,
    taps: int = 3,
) -> Program:
    """Filters as values at points, and a convolution with as many windows as fit."""
    (rows, width), columns = size, PANEL_BYTES // np.dtype(dtype).itemsize
    height, breadth = (each + taps - 1 - 2 * before for each in size)
    panels = -(-depth // columns)
    return parse(f"""
program p(x: {dtype}[{images}, {height}, {breadth}, {channels}], \
w: {dtype}[{panels}, {taps}, {taps}, {channels}, {columns}]) \
-> (y: {dtype}[{images}, {rows}, {width}, {depth}]):
  alloc u: {dtype}[{panels}, 6, 6, {channels}, {columns}]
  call winograd_filters(w[0, 0, 0, 0, 0], u[0, 0, 0, 0, 0], panels={panels}, \
channels={channels}, taps={taps})
  call winograd(x[0, 0, 0, 0], w[0, 0, 0, 0, 0], u[0, 0, 0, 0, 0], y[0, 0, 0, 0], \
images={images}, rows={rows}, width={width}, depth={depth}, channels={channels}, \
height={height}, breadth={breadth}, taps_y={taps}, taps_x={taps}, stride_y=1, stride_x=1, \
dilation_y=1, dilation_x=1, before_y={before}, before_x={before}, at 0)
""")


def program_of_gradient(
    dtype: str,
    images: int,
    size: tuple[int, int],
    before: int,
    channels: int,
    depth: int,
    taps: int = 3,
) -> Program:
    """The gradient by the filters of such a convolution."""
    (rows, width), columns = size, PANEL_BYTES // np.dtype(dtype).itemsize
    height, breadth = (each + taps - 1 - 2 * before for each in size)
    memory = (36 * -(-depth // columns) * columns + taps**2 * depth) * channels
    return parse(f"""
program p(x: {dtype}[{images}, {height}, {breadth}, {channels}], \
g: {dtype}[{images}, {rows}, {width}, {depth}]) \
-> (y: {dtype}[{taps}, {taps}, {channels}, {depth}]):
  alloc m: {dtype}[{memory}]
  call winograd_gradient(x[0, 0, 0, 0], g[0, 0, 0, 0], m[0], y[0, 0, 0, 0], \
images={images}, rows={rows}, width={width}, depth={depth}, channels={channels}, \
height={height}, breadth={breadth}, taps_y={taps}, taps_x={taps}, stride_y=1, stride_x=1, \
dilation_y=1, dilation_x=1, before_y={before}, before_x={before})
""")


def directly(images: Any, filters: Any, size: tuple[int, int], before: int) -> Any:
    """The same convolution by products over each tap."""
    padded = np.pad(images, [(0, 0), *[(before, before)] * 2, (0, 0)])
    panels, count, _, channels, columns = filters.shape
    taps = filters.transpose(1, 2, 3, 0, 4).reshape(count, count, channels, panels * columns)
    rows, width = size
    return sum(
        padded[:, i : i + rows, j : j + width] @ taps[i, j]
        for i in range(count)
        for j in range(count)
    )


def given_for(program: Program) -> list[Any]:
    random = np.random.default_rng(5)
    return [random.normal(size=b.shape).astype(b.dtype.numpy) for b in program.inputs]


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(
    ("dtype", "images", "size", "before", "channels", "depth", "taps"),
    [
        ("float32", 2, (9, 7), 1, 32, 48, 3),
        ("float32", 1, (33, 30), 1, 16, 16, 3),
        ("float32", 3, (4, 5), 0, 272, 80, 3),
        ("float32", 1, (5, 6), 2, 16, 32, 3),
        ("float64", 2, (8, 9), 1, 136, 24, 3),
        ("float32", 2, (9, 7), 2, 32, 48, 5),
        ("float32", 3, (4, 5), 0, 272, 80, 5),
        ("float64", 1, (7, 18), 1, 136, 24, 5),
    ],
)
def test_errors_are_within_the_bound(
    dtype: str,
    images: int,
    size: tuple[int, int],
    before: int,
    channels: int,
    depth: int,
    taps: int,
    cpu: str,
) -> None:
    program = program_of_call(dtype, images, size, before, channels, depth, taps)
    verify(program)
    assert str(parse(str(program))) == str(program)
    given = given_for(program)
    (exact,) = interpret(program, *given)
    (found,) = load(program, Options(cpu=cpu))(*given)
    largest = abs(given[0]).max() * abs(given[1]).max()
    bound = LARGEST * taps**2 * channels * np.finfo(dtype).eps * largest
    np.testing.assert_allclose(found, exact, rtol=0, atol=bound)
    if dtype == "float32":
        exact = directly(*[each.astype(np.float64) for each in given], size, before)[..., :depth]
        assert np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2)) < 3e-6


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(
    ("dtype", "images", "size", "before", "channels", "depth", "taps"),
    [
        ("float32", 2, (9, 7), 1, 32, 48, 3),
        ("float32", 1, (33, 30), 0, 16, 16, 3),
        ("float32", 3, (4, 5), 2, 48, 80, 3),
        ("float64", 2, (8, 9), 1, 40, 24, 3),
        ("float32", 2, (9, 7), 2, 32, 48, 5),
        ("float32", 3, (20, 15), 0, 48, 80, 5),
        ("float64", 1, (8, 9), 3, 40, 24, 5),
    ],
)
def test_errors_of_gradients_by_filters(
    dtype: str,
    images: int,
    size: tuple[int, int],
    before: int,
    channels: int,
    depth: int,
    taps: int,
    cpu: str,
) -> None:
    program = program_of_gradient(dtype, images, size, before, channels, depth, taps)
    verify(program)
    assert str(parse(str(program))) == str(program)
    given = given_for(program)
    (exact,) = interpret(program, *given)
    (found,) = load(program, Options(cpu=cpu))(*given)
    largest = abs(given[0]).max() * abs(given[1]).max()
    bound = LARGEST * images * size[0] * size[1] * np.finfo(dtype).eps * largest
    np.testing.assert_allclose(found, exact, rtol=0, atol=bound)
    error = np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2))
    assert error < 30 * np.finfo(dtype).eps


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize(("which", "taps"), [(0, 3), (1, 3), (0, 5), (1, 5)])
def test_gradients_by_filters_that_are_not_finite(which: int, value: float, taps: int) -> None:
    program = program_of_gradient("float32", 2, (13, 9), taps // 2, 48, 32, taps)
    given = given_for(program)
    given[which][1, 5, 8, 3] = value
    given[1 - which][1, 4, 7] = 0  # times infinity, which is no number
    with np.errstate(all="ignore"):
        (exact,) = interpret(program, *given)
    (found,) = load(program)(*given)
    assert 0 < np.isfinite(exact).mean() < 1
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("taps", [3, 5])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e38])
def test_what_is_not_finite_stays_where_its_windows_are(value: float, taps: int) -> None:
    program = program_of_call("float32", 2, (13, 9), taps // 2, 16, 32, taps)
    images, filters = given_for(program)
    images[1, 5, 8, 3] = value
    filters[...] *= 0.01
    with np.errstate(all="ignore"):
        (exact,) = interpret(program, images, filters)
    (found,) = load(program)(images, filters)
    near = np.zeros(exact.shape, bool)
    near[1, 5 - taps // 2 : 6 + taps // 2, 8 - taps // 2 : 9] = True
    assert (np.isfinite(found) == np.isfinite(exact)).all()
    # Where all stays finite, errors are those of the largest element of a tile.
    error = 1e-6 * abs(exact[near]).max() if np.isfinite(value) else 0
    np.testing.assert_allclose(found[near], exact[near], rtol=1e-5, atol=error)
    if not np.isfinite(value):
        np.testing.assert_allclose(found[~near], exact[~near], rtol=0, atol=1e-5)


def test_filters_that_are_not_finite() -> None:
    program = program_of_call("float32", 1, (6, 6), 1, 16, 32)
    images, filters = given_for(program)
    filters[0, 1, 2, 3, 4] = np.inf
    images[0, 0, 0] = 0  # times infinity, which is no number
    with np.errstate(all="ignore"):
        (exact,) = interpret(program, images, filters)
    (found,) = load(program)(images, filters)
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("images", "taps"), [(1, 3), (5, 3), (1, 5), (5, 5)])
@pytest.mark.parametrize("made", [program_of_call, program_of_gradient])
def test_bits_do_not_depend_on_threads(
    made: Callable[..., Program], images: int, taps: int
) -> None:
    program = made("float32", images, (31, 29), 1, 64, 48, taps)
    given = given_for(program)
    given[0][0, 9, 9, 9] = np.nan
    code = load(program)
    (alone,) = code(*given)
    assert np.isfinite(alone).any()
    for threads in (2, 3):
        code.threads = threads
        (found,) = code(*given)
        np.testing.assert_array_equal(found, alone)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("taps_x=3", "taps_x=2", "taps of 3 or 5"),
        ("taps_x=3", "taps_x=5", "taps of 3 or 5"),
        ("taps=3", "taps=4", "taps of 3 or 5"),
        ("stride_y=1", "stride_y=2", "strides and dilations of 1"),
        ("channels=16", "channels=15", "whole 64 bytes"),
        ("images=1", "images=2", "x needs"),
        ("panels=1", "panels=2", "w needs"),
    ],
)
def test_calls_that_are_wrong(old: str, new: str, said: str) -> None:
    text = str(program_of_call("float32", 1, (6, 6), 1, 16, 32))
    assert old in text
    with pytest.raises(errors.InternalError, match=said):
        verify(parse(text.replace(old, new)))


def convolutions(constant: bool, taps: int) -> tuple[list[Output], list[Output], list[Any]]:
    """A convolution and its gradients, with filters that are known or not."""
    random = np.random.default_rng(3)
    shapes = [(4, 14, 14, 32), (4, 14, 14, 64), (taps, taps, 32, 64)]
    given = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    x, g = (wf.placeholder(wf.float32, shape) for shape in shapes[:2])
    w = wf.constant(given[2]) if constant else wf.placeholder(wf.float32, shapes[2])
    y = wf.nn.relu(wf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME") + 1.0)
    back = wf.nn.conv2d_backprop_input([4, 14, 14, 32], w, g, [1, 1, 1, 1], "SAME") * 2.0
    by_filter = wf.nn.conv2d_backprop_filter(x, shapes[2], g, [1, 1, 1, 1], "SAME") * 2.0
    inputs = [x, g] if constant else [x, g, w]
    return inputs, [y, back, by_filter], given[: len(inputs)]


@pytest.mark.parametrize("taps", [3, 5])
@pytest.mark.parametrize("constant", [False, True])
def test_regions_have_fewer_products(
    constant: bool, taps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, outputs, given = convolutions(constant, taps)
    feeds = dict(zip(inputs, given, strict=True))
    found = []
    for said in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Session() as session:
            found.append(session.run(outputs, feeds))
    for kernel, compiled in zip(*found, strict=True):
        np.testing.assert_allclose(compiled, kernel, rtol=0, atol=1e-5 * abs(kernel).max())
    with wf.Session() as session:
        report = session.explain(outputs, feed_dict=feeds)
    text = "\n".join(report.programs.values())
    assert text.count("call winograd(") == 2
    assert text.count("call winograd_gradient(") == 1
    assert ("call winograd_filters(" in text) is not constant


def test_ahead_of_time_filters_are_kept_once() -> None:
    inputs, outputs, given = convolutions(constant=True, taps=5)
    program = program_of("p", inputs, outputs, [each.shape for each in given])
    assert "call winograd" not in str(program)
    assert str(program).count("call conv(") == 2


@pytest.mark.parametrize(
    ("shape", "taps", "stride"),
    [
        ((8, 32, 32, 16), 3, 1),
        ((8, 32, 32, 40), 3, 1),
        ((8, 32, 32, 64), 3, 2),
        ((8, 32, 32, 64), 7, 1),
        ((3, 8, 8, 64), 5, 1),
        ((28, 1, 4, 64), 5, 1),
        ((1, 8, 8, 64), 3, 1),
        ((8, 2, 2, 64), 3, 1),
    ],
)
def test_others_are_direct(shape: tuple[int, ...], taps: int, stride: int) -> None:
    x = wf.placeholder(wf.float32, shape)
    w = wf.placeholder(wf.float32, [taps, taps, shape[3], 64])
    y = wf.nn.conv2d(x, w, [1, stride, stride, 1], "SAME")
    program = lower(RegionRequest([y.node], [x, w], [y], [shape, (taps, taps, shape[3], 64)]))
    assert "call winograd" not in str(program)
