"""Elementary functions are as near to the truth as the page on the compiler says."""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing import special_functions
from weft_testing.case_graph import CaseGraph
from weft_testing.cases import load_cases

import weft as wf
from weft_compiler.codegen.mathematics import library
from weft_compiler.codegen.options import Options
from weft_compiler.codegen.scalars import supports
from weft_compiler.ir.parser import parse
from weft_compiler.lower.complex_numbers import is_complex
from weft_compiler.lower.region import unsupported_reason
from weft_compiler.lower.registry import rule_of
from weft_compiler.native.program import load
from weft_exec.kernels import probability, special
from weft_graph.ir.scalar import applications

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "compiler.md"
WIDE = np.longdouble
COUNT = 40_000
RANGES = {
    "log": (0, 5),
    "log1p": (-1, 3),
    "sin": (-100, 100),
    "cos": (-100, 100),
    "tan": (-100, 100),
    "tanh": (-25, 25),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "acosh": (1, 50),
    "atanh": (-1, 1),
    "erf": (-7, 7),
    "erfc": (-7, 28),
    "lgamma": (0, 40),
    "digamma": (0, 40),
    "bessel_i0e": (-40, 40),
    "bessel_i1e": (-40, 40),
    "erfinv": (-1, 1),
    "ndtri": (0, 1),
}
NAMES = {
    **{f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "atan2": "arctan2",
    "pow": "power",
}


POSITIVE = ("lgamma", "digamma", "ndtri")
"""What is measured of positive numbers: elsewhere it has zeros, or is no number."""


def bounds() -> dict[str, tuple[float, float]]:
    """From the page: names to units in the last place, of float32 and float64."""
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE)
    return {name: (float(single), float(double)) for name, single, double in rows}


def exact(name: str, inputs: list[Any]) -> Any:
    """The function in more digits; of float32 in float64, of float64 in long double."""
    wider = np.float64 if inputs[0].dtype == np.float32 else WIDE
    if name in special_functions.FUNCTIONS:
        return special_functions.FUNCTIONS[name](inputs[0]).astype(wider)
    if name not in ("erf", "erfc"):
        function: Callable[..., Any] = getattr(np, NAMES.get(name, name))
        return function(*(x.astype(wider) for x in inputs))
    one = getattr(ctypes.CDLL(ctypes.util.find_library("m")), f"{name}l")
    one.restype, one.argtypes = ctypes.c_longdouble, [ctypes.c_longdouble]
    return np.array([one(float(x)) for x in inputs[0]])


def samples(name: str, dtype: Any, seed: int) -> list[Any]:
    """Numbers of all magnitudes, and many from where the function has its shape."""
    random = np.random.default_rng(seed)
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    pairs = name in ("pow", "atan2")

    def any_bits() -> Any:
        return random.integers(0, np.iinfo(bits).max, COUNT, bits, endpoint=True).view(dtype)

    if pairs:
        x, y = random.uniform(0.01, 50, COUNT), random.uniform(-90, 90, COUNT)
        return [np.concatenate([any_bits(), each.astype(dtype)]) for each in (x, y)]
    low, high = RANGES.get(name, (-100, 88) if dtype == np.float32 else (-740, 709))
    near = random.uniform(-1, 1, COUNT) * 2.0 ** random.uniform(-30, 3, COUNT)
    spread = random.uniform(low, high, COUNT)
    found = np.concatenate([any_bits(), spread.astype(dtype), near.astype(dtype)])
    if name in POSITIVE:
        found = np.abs(found)
    if name == "ndtri":
        found = found[(found >= np.finfo(dtype).tiny) | (found == 0)]
    if name == "digamma":
        found = found[~((found > 1) & (found < 2))]
    return [found[::8] if name in special_functions.FUNCTIONS else found]


def compiled(name: str, dtype: Any, size: int, cpu: str) -> Any:
    of = np.dtype(dtype).name
    arity = 2 if name in ("pow", "atan2") else 1
    buffers = ", ".join(f"x{at}: {of}[{size}]" for at in range(arity))
    operands = ", ".join(f"x{at}[i]" for at in range(arity))
    text = f"program m({buffers}) -> (y: {of}[{size}]):\n  vector i in {size}:\n    y[i] = "
    return load(parse(f"{text}{name}({operands})\n"), Options(cpu=cpu))


def worst(name: str, inputs: list[Any], cpu: str = "") -> float:
    """The largest error in units in the last place; NaN and infinities must be in their places."""
    dtype = inputs[0].dtype.type
    with np.errstate(all="ignore"):
        (got,) = compiled(name, dtype, inputs[0].size, cpu)(*inputs)
        truth = exact(name, inputs)
        near = truth.astype(dtype)
        same = (got == near) | (np.isnan(got) & np.isnan(near))
        error = np.abs(got.astype(truth.dtype) - truth) / np.spacing(np.abs(near))
    wrong = ~same & ~np.isfinite(error)
    assert not wrong.any(), [(x[wrong][:3], got[wrong][:3]) for x in inputs]
    return float(np.where(same & ~np.isfinite(error), 0, error).max())


@pytest.mark.skipif(np.finfo(WIDE).nmant < 60, reason="long double has no more digits here")
@pytest.mark.parametrize("name", sorted(library.FUNCTIONS))
def test_functions_are_as_exact_as_is_said(name: str) -> None:
    stated = bounds()[name]
    for dtype, bound in zip((np.float32, np.float64), stated, strict=True):
        for cpu in ("", "x86-64"):
            found = worst(name, samples(name, dtype, len(name)), cpu)
            assert found <= bound, (dtype, cpu, found)


ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sigmoid": (wf.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "softplus": (wf.nn.softplus, lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))),
    "rsqrt": (wf.rsqrt, lambda x: 1 / np.sqrt(x)),
    "elu": (wf.nn.elu, lambda x: np.where(x > 0, x, np.expm1(x))),
}
"""Ops, and what they compute."""


@pytest.mark.skipif(np.finfo(WIDE).nmant < 60, reason="long double has no more digits here")
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_ops_are_as_exact_as_is_said(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    op, truth_of = ACTIVATIONS[name]
    types: list[tuple[Any, Any]] = [(np.float32, np.float64), (np.float64, WIDE)]
    for (dtype, wider), bound in zip(types, bounds()[name], strict=True):
        x = samples(name, dtype, 1)[0]
        x = np.abs(x) if name == "rsqrt" else x
        with np.errstate(all="ignore"):
            truth = truth_of(x.astype(wider))
            near = truth.astype(dtype)
            normal = np.isfinite(near) & (np.abs(near) >= np.finfo(dtype).tiny)
        with wf.Graph().as_default(), wf.Session() as session:
            given = wf.placeholder(dtype, [None])
            found = session.run(op(wf.identity(given)) * 1.0, {given: x[normal]})
        far = np.abs(found.astype(wider) - truth[normal]) / np.spacing(np.abs(near[normal]))
        assert far.max() <= bound, (dtype, float(far.max()), x[normal][far.argmax()])


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    sorted(
        library.FUNCTIONS.keys() - {"pow", "atan2", "erf", "erfc", *special_functions.FUNCTIONS}
    ),
)
def test_every_float32(name: str) -> None:
    step = 1 << 22
    for first in range(0, 1 << 32, step):
        x = np.arange(first, first + step, dtype=np.uint32).view(np.float32)
        assert worst(name, [x]) <= bounds()[name][0]


@pytest.mark.parametrize("name", sorted(library.FUNCTIONS.keys() - {"atan2", "pow"}))
def test_narrow_numbers_have_all_functions(name: str) -> None:
    """LLVM once called a function that rounds a float64 to float16, which no process has."""
    program = parse(
        f"program p(x: float16[95]) -> (y: float16[95]):\n"
        f"  vector i in 95:\n    y[i] = {name}(x[i])\n"
    )
    x = np.linspace(*RANGES.get(name, (-9, 9)), 95).astype(np.float16)
    x[:2] = 0.0 if name in POSITIVE else -0.0, np.nan
    with np.errstate(all="ignore"):
        want = exact(name, [x.astype(np.float32)]).astype(np.float16)
    (found,) = load(program, Options(threads=False))(x)
    np.testing.assert_allclose(found, want, rtol=1e-3)
    np.testing.assert_array_equal(np.signbit(found[want == 0]), np.signbit(want[want == 0]))


def test_elementwise_ops_are_lowered_where_there_is_machine_code_of_them() -> None:
    """A region with one that has none would not be compiled at all."""
    seen = set()
    for case in (case for cases in load_cases().values() for case in cases):
        definition = case.op_def.traits.scalar
        if definition is None or definition.by_kernel or rule_of(case.op) is not None:
            continue
        for node in CaseGraph(case).nodes:
            if node.outputs and not is_complex(node) and not unsupported_reason(node):
                types = [value.dtype for value in node.inputs]
                parts = applications(definition.expression(types, node.outputs[0].dtype))
                lacking = [p for p in parts if p.args and not supports(p.name, p.args[-1].dtype)]
                assert not lacking, (node, lacking)
                seen.add(case.op)
    assert len(seen) > 100 and "Lgamma" in seen and "Zeta" in seen


ITERATED: dict[str, tuple[Callable[..., Any], float]] = {
    "igamma": (special.igamma, 1e-11),
    "igammac": (special.igammac, 1e-11),
    "igamma_grad_a": (special.igamma_grad_a, 1e-11),
    "betainc": (probability.betainc, 1e-10),
    "zeta": (special.zeta, 1e-13),
    "polygamma": (special.polygamma, 1e-12),
}
"""Kernels, whose errors the op table has, and how far machine code may be from them."""
ODD = [np.nan, np.inf, -np.inf, -1, -0.0, 0, 0.5, 1, 2, 3, 7, 60, 1e-5, 1e-300, 2e6, -0.5, -2.5]


@pytest.mark.parametrize("name", ITERATED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_found_by_iteration_is_what_kernels_have(name: str, dtype: str) -> None:
    """Arguments that are special in every way, and ordinary ones."""
    kernel, limit = ITERATED[name]
    count = 3 if name == "betainc" else 2
    random = np.random.default_rng(3)
    first = 10 ** random.uniform(-3, 3, 3000)
    near = first * np.exp(random.normal(0, 1, 3000) / np.sqrt(first + 1))
    usual = {
        "betainc": [first, 10 ** random.uniform(-2, 3, 3000), random.uniform(0, 1, 3000)],
        "zeta": [first + 1, near],
        "polygamma": [np.rint(random.uniform(0, 20, 3000)), first],
    }.get(name, [first, near])
    odd = zip(*itertools.product(ODD, repeat=count), strict=True)
    inputs = [np.concatenate([each, x]).astype(dtype) for each, x in zip(odd, usual, strict=True)]
    buffers = ", ".join(f"x{at}: {dtype}[{x.size}]" for at, x in enumerate(inputs))
    operands = ", ".join(f"x{at}[i]" for at in range(count))
    size = inputs[0].size
    text = f"program m({buffers}) -> (y: {dtype}[{size}]):\n  vector i in {size}:\n"
    with np.errstate(all="ignore"):
        (got,) = load(parse(f"{text}    y[i] = {name}({operands})\n"), Options())(*inputs)
        want = kernel(*inputs)
    least = float(np.finfo(dtype).tiny)
    if dtype == "float32":
        limit = 2e-7
    elif name in ("igamma", "igammac", "betainc"):
        least = 2e-15  # of what is 1 less another
    np.testing.assert_allclose(got, want, limit, least)


def test_exp_of_what_is_masked_takes_no_longer() -> None:
    """Processors of Intel take ten times as long where a product has to be rounded to 0."""
    text = "program m(x: float32[4096]) -> (y: float32[4096]):\n  vector i in 4096:\n"
    program = load(parse(f"{text}    y[i] = exp(x[i])\n"))
    usual, masked = [np.full(4096, low, np.float32) for low in (-1, -1e9)]
    out = program(masked)
    assert not out[0].any()

    def seconds(x: Any) -> float:
        started = time.thread_time()
        for _ in range(20):
            program(x, out=out)
        return time.thread_time() - started

    assert min(map(seconds, [masked] * 20)) < 3 * min(map(seconds, [usual] * 20))
