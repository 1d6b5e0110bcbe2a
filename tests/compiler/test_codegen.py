"""Machine code computes the same results as the interpreter."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from weft import errors
from weft_compiler.codegen.module import module_of
from weft_compiler.codegen.options import Options
from weft_compiler.codegen.scalars import supports
from weft_compiler.codegen.targets import object_code, target_of
from weft_compiler.interpreter import PRIMITIVES as INTERPRETED, interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.verifier import verify
from weft_compiler.native.program import load
from weft_graph.ir.scalar import PRIMITIVES, kind
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

CPUS = ["", "x86-64-v3", "x86-64"]
TYPES = [
    dtypes.bool_,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.float64,
    *(getattr(dtypes, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
]


def agree(text: str, *inputs: Any, cpus: list[str] = CPUS[:1], ulps: float = 0) -> None:
    """Compiled for each processor, and with bounds checks, a program computes the same."""
    program = parse(text)
    verify(program)
    expected = interpret(program, *inputs)
    for cpu, bounds in itertools.product(cpus, (False, True)):
        got = load(program, Options(cpu=cpu, bounds_checks=bounds, contract=bool(ulps)))(*inputs)
        for x, y in zip(got, expected, strict=True):
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            if ulps:
                np.testing.assert_allclose(x, y, rtol=ulps * float(np.finfo(x.dtype).eps))
            else:
                np.testing.assert_array_equal(x.astype(_comparable(x)), y.astype(_comparable(y)))


def _comparable(array: Any) -> Any:
    return np.float32 if array.dtype.kind == "V" else array.dtype


def samples(dtype: DType) -> Any:
    """Numbers of a type, those at its ends among them."""
    if dtype.is_bool:
        return np.array([False, True] * 8)
    random = np.random.default_rng(7)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        ends = [0, 1, 2, 3, info.max, info.min, info.max - 1, info.min + 1, 7, info.max // 3]
        rest = random.integers(info.min, info.max, 6, dtype.numpy, endpoint=True)
        return np.concatenate([np.array(ends, dtype.numpy), rest])
    plain = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5, np.inf, -np.inf, np.nan, 1e-7, 6.1e-5, 60000.0]
    return np.concatenate([plain, random.normal(size=3) * 3]).astype(dtype.numpy)


def _pairs(dtype: DType, arity: int) -> list[Any]:
    """Operands in all combinations, as rows."""
    columns = [samples(dtype)[:: max(1, 2 * arity - 3)]] * arity
    return [np.ascontiguousarray(each.reshape(-1)) for each in np.meshgrid(*columns)]


APPLICATIONS = [
    (name, dtype)
    for name, declared in PRIMITIVES.items()
    for dtype in TYPES
    if name in INTERPRETED and kind(dtype) in declared.kinds and name != "cast"
]


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
def test_primitives_compute_what_the_interpreter_does(dtype: DType) -> None:
    names = [name for name, of in APPLICATIONS if of is dtype and supports(name, of)]
    for arity in (1, 2, 3):
        chosen = [name for name in names if PRIMITIVES[name].arity == arity]
        inputs = _pairs(dtype, arity)
        _compare(dtype, chosen, inputs)


def _compare(dtype: DType, names: list[str], inputs: list[Any]) -> None:
    size = inputs[0].size
    operands = [f"x{at}[i]" for at in range(len(inputs))]
    buffers = ", ".join(f"x{at}: {dtype.name}[{size}]" for at in range(len(inputs)))
    outputs, lines = [], []
    for name in names:
        given = list(operands)
        if name == "where":
            given[0] = f"cast({given[0]}, bool)"
        if name in _DIVISIONS and dtype.is_integer:
            given[-1] = (
                f"where(x{len(inputs) - 1}[i] == 0:{dtype.name}, 1:{dtype.name}, {given[-1]})"
            )
        if name.startswith("shift"):
            given[1] = f"bit_and(x1[i], {8 * dtype.size - 1}:{dtype.name})"
        if name == "pow" and dtype.is_integer:
            given[1] = f"bit_and(x1[i], 15:{dtype.name})"
        found = PRIMITIVES[name].result
        result = {"bool": "bool", "uint8": "uint8"}.get(found, dtype.name)
        outputs.append(f"y_{name}: {result}[{size}]")
        lines.append(f"    y_{name}[i] = {name}({', '.join(given)})")
    body = "\n".join(lines)
    text = f"program p({buffers}) -> ({', '.join(outputs)}):\n  vector i in {size}:\n{body}\n"
    program = parse(text)
    verify(program)
    expected = interpret(program, *inputs)
    for cpu in CPUS:
        got = load(program, Options(cpu=cpu, contract=False))(*inputs)
        for name, x, y in zip(names, got, expected, strict=True):
            _assert_near(name, dtype, x, y, inputs)


_DIVISIONS = ("div", "floor_div", "floor_mod", "trunc_mod", "reciprocal")
_ROUNDED = (
    frozenset(
        f"{inverse}{name}{hyperbolic}"
        for inverse in ("", "a")
        for name in ("sin", "cos", "tan")
        for hyperbolic in ("", "h")
    )
    | {"exp", "expm1", "log", "log1p", "atan2", "erf", "erfc", "pow"}
    | {"lgamma", "digamma", "bessel_i0e", "bessel_i1e", "erfinv", "ndtri"}
)


def _assert_near(name: str, dtype: DType, x: Any, y: Any, inputs: list[Any]) -> None:
    if dtype.is_floating and x.dtype != bool:
        x, y = x.astype(np.float64), y.astype(np.float64)
    if name not in _ROUNDED or not dtype.is_floating:
        wrong = ~((x == y) | ((x != x) & (y != y)))
    else:
        eps = {2: 2.0**-7 if dtype is dtypes.bfloat16 else 2.0**-10}.get(
            dtype.size, float(np.finfo(dtype.numpy if dtype.size > 2 else np.float32).eps)
        )
        least = 1e-45 if dtype is dtypes.float32 else 6e-8 if dtype is dtypes.float16 else 1e-300
        if name in ("lgamma", "digamma") and dtype is dtypes.float64:
            least = 1e-14  # near their zeros, as docs/internals/compiler.md says
        with np.errstate(all="ignore"):
            near = abs(x - y) <= 4 * eps * abs(y) + least
        wrong = ~((x == y) | ((x != x) & (y != y)) | near)
    if name == "pow" and dtype.is_floating:  # NumPy takes a square root there, IEEE 754 does not
        wrong &= ~((inputs[0] == -np.inf) & (inputs[1] == 0.5))
    rows = [tuple(column[at] for column in inputs) for at in np.flatnonzero(wrong)[:5]]
    assert not wrong.any(), (name, rows, x[wrong][:5], y[wrong][:5])


@pytest.mark.parametrize("source", TYPES, ids=lambda dtype: dtype.name)
def test_casts_compute_what_the_interpreter_does(source: DType) -> None:
    x = samples(source)
    fits = x
    if source.is_floating:
        fits = np.clip(np.nan_to_num(x.astype(np.float64)), 0, 100).astype(source.numpy)
    declared = [f"y_{result.name}: {result.name}[{x.size}]" for result in TYPES]
    lines = [
        f"    y_{result.name}[i] = cast({'z' if result.is_integer else 'x'}[i], {result.name})\n"
        for result in TYPES
    ]
    text = (
        f"program p(x: {source.name}[{x.size}], z: {source.name}[{x.size}]) -> "
        f"({', '.join(declared)}):\n  vector i in {x.size}:\n{''.join(lines)}"
    )
    with np.errstate(all="ignore"):
        expected = interpret(parse(text), x, fits)
    for cpu in CPUS:
        for result, got, known in zip(
            TYPES, load(parse(text), Options(cpu=cpu))(x, fits), expected, strict=True
        ):
            if result.is_floating:
                got, known = got.astype(np.float64), known.astype(np.float64)
            np.testing.assert_array_equal(got, known, err_msg=result.name)


def test_division_by_zero_is_some_number() -> None:
    for dtype in (dtypes.int8, dtypes.int32, dtypes.int64, dtypes.uint32):
        lines = "".join(
            f"    y[i] = y[i] + {name}(x[i], z[i])\n"
            for name in ("div", "floor_div", "floor_mod", "trunc_mod")
        )
        text = (
            f"program p(x: {dtype.name}[3], z: {dtype.name}[3]) -> (y: {dtype.name}[3]):\n"
            f"  for i in 3:\n    y[i] = 0:{dtype.name}\n{lines}"
        )
        least = np.iinfo(dtype.numpy).min
        load(parse(text))(np.array([1, 0, least], dtype.numpy), np.zeros(3, dtype.numpy))
        if not dtype.is_unsigned:
            load(parse(text))(np.array([1, 0, least], dtype.numpy), np.full(3, -1, dtype.numpy))


SOFTMAX = """
program softmax(x: float32[7, 100]) -> (y: float32[7, 100]):
  parallel i in 7:
    var m = -inf
    for j in 100:
      m maximum= x[i, j]
    var s = 0.0
    vector j in 100:
      s add= exp(x[i, j] - m)
    vector j in 100:
      y[i, j] = exp(x[i, j] - m) / s
"""
STATEMENTS = """
program all(x: float32[4, 10], k: int32[], p: bfloat16[3]) -> (y: float32[4, 10], n: int64[]):
  let i = cast(k[], int64)
  check bit_and(i >= 0, i < 4), "a row was required"
  alloc big: float64[4, 2000]
  for r in 4:
    alloc t: float32[10]
    for j in 10:
      t[j] = (1.0 - (2.0 - 3.5e-07)) * (x[r, j] / (2.0 / x[i, j]))
      if (j < 3) == true:
        t[j] mul= cast(p[minimum(j, 2)], float32)
      else:
        t[j] = where(t[j] != nan, -inf, neg(t[j]))
    alloc u: float64[2000]
    vector j in 2000:
      u[j] = cast(j, float64) * 0.5:float64
    vector j in 2000:
      big[r, j] = u[j] + cast(r, float64)
    for j in 10:
      y[r, j] = t[j] + cast(big[r, j * 100], float32)
  var c = 0
  while c < 10:
    c = c - -3
    n[] = c
"""


@pytest.mark.parametrize("cpu", CPUS)
def test_statements_compute_what_the_interpreter_does(cpu: str) -> None:
    x = np.random.default_rng(1).normal(size=(4, 10)).astype(np.float32)
    p = np.array([1, 2, 3], dtypes.bfloat16.numpy)
    agree(STATEMENTS, x, np.int32(2), p, cpus=[cpu])
    agree(SOFTMAX, np.random.default_rng(2).normal(size=(7, 100)).astype(np.float32), ulps=32)


def test_a_check_that_fails_says_what_was_required() -> None:
    program = load(parse(STATEMENTS))
    x, p = np.ones((4, 10), np.float32), np.ones(3, dtypes.bfloat16.numpy)
    for wrong in (-1, 4):
        with pytest.raises(errors.InvalidArgumentError, match="a row was required"):
            program(x, np.array(wrong, np.int32), p)
    program(x, np.array(3, np.int32), p)


def test_nothing_is_said_of_loops_that_may_be_left(capfd: pytest.CaptureFixture[str]) -> None:
    """LLVM complains of loops that it was told to vectorize and cannot."""
    program = parse(
        "program p(a: float32[], x: float32[2]) -> (y: float32[2]):\n"
        "  vector i in 2:\n    y[i] = tanh(a[] * tanh(x[i]))\n"
    )
    options = Options(bounds_checks=True)
    object_code(module_of(program, options).text, target_of(options))
    assert capfd.readouterr().err == ""


def test_turns_share_the_place_of_a_buffer_of_their_own() -> None:
    text = """
program rows(x: float32[8, 3], at: int64[8]) -> (y: float32[8], sums: float32[8]):
  parallel b in 8:
    alloc row: float32[3]
    var most = -inf
    vector i in 3:
      row[i] = x[b, i] / 24.0
      most maximum= row[i]
    var total = 0.0
    vector j in 3:
      total add= row[j] - most
    sums[b] = total
    y[b] = row[clamp(at[b], 0, 2)] - total
"""
    numbers = np.random.default_rng(3).normal(size=(8, 3)).astype(np.float32)
    agree(text, numbers, np.arange(8) % 3, cpus=CPUS, ulps=16)


def test_nothing_is_said_of_the_largest_of_halves(capfd: pytest.CaptureFixture[str]) -> None:
    program = parse(
        "program p(x: bfloat16[64]) -> (y: bfloat16[]):\n"
        "  var m = -inf:bfloat16\n"
        "  vector i in 64:\n    m maximum= x[i] * 2.0:bfloat16\n"
        "  y[] = m\n"
    )
    object_code(module_of(program, Options()).text, target_of(Options()))
    assert capfd.readouterr().err == ""
    x = np.random.default_rng(1).normal(size=64).astype(dtypes.bfloat16.numpy)
    assert load(program)(x)[0] == x.max() * 2
    x[5] = np.nan
    assert np.isnan(load(program)(x)[0])
