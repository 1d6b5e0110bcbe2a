"""The routines of bfloat16 against the interpreter, and graphs of halves against kernels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from weft_testing.geometry import geometry

import weft as wf
from weft_compiler.ahead.targets import machine_options
from weft_compiler.codegen import targets
from weft_compiler.codegen.bf16_kernels import PairMethod, pairs_of
from weft_compiler.codegen.options import Options
from weft_compiler.codegen.targets import Target, host, remove_features, target_of
from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.layouts import PAIR, pair_panels
from weft_compiler.native.program import load
from weft_graph.ir.builder import create
from weft_graph.ir.node import Output
from weft_tensor import dtypes, errors

BFLOAT16 = dtypes.bfloat16.numpy
ROUNDING = 2.0**-8
"""Half a unit in the last place of bfloat16."""


def _options() -> dict[str, Options]:
    """Options for this machine, without tile registers, and with narrower registers."""
    here = host()
    found = {
        "here": Options(),
        "rows": Options(cpu=here.cpu, features=remove_features(here.features, ["amx-"])),
        "v3": Options(cpu="x86-64-v3"),
        "v1": Options(cpu="x86-64"),
    }
    if here.x86 and here.has("avx512bf16"):
        found["dots"] = Options(cpu="x86-64-v4", features="+avx512bf16")
    return found if here.x86 else {"here": Options()}


OPTIONS = _options()
WAYS = [pytest.param(way, marks=pytest.mark.long) if way == "v1" else way for way in OPTIONS]


def numbers(random: Any, *shape: int) -> Any:
    return random.normal(size=shape).astype(BFLOAT16)


def product(m: int, n: int, k: int, gap: int, turned: tuple[bool, bool]) -> Program:
    """A program of one product, of rows with a gap between."""
    a, row, column = (k, m + gap), 1, m + gap
    if not turned[0]:
        a, row, column = (m, k + gap), k + gap, 1
    b, b_row, b_column = (n, k + gap), 1, k + gap
    if not turned[1]:
        b, b_row, b_column = (k, n + gap), n + gap, 1
    panels = ", ".join(map(str, pair_panels(n, k)))
    return parse(f"""
program p(a: bfloat16[{a[0]}, {a[1]}], b: bfloat16[{b[0]}, {b[1]}]) \
-> (c: float32[{m}, {n}], panels: bfloat16[{panels}]):
  call pack_pairs(b[0, 0], panels[0, 0, 0, 0], n={n}, k={k}, b_row={b_row}, b_column={b_column})
  call matmul_pairs(a[0, 0], panels[0, 0, 0, 0], c[0, 0], m={m}, n={n}, k={k}, a_row={row}, \
a_column={column}, c_row={n})
""")


def near(found: Any, exact: Any, depth: int, said: str = "") -> None:
    """Sums of so many products of normal numbers agree, in another order."""
    bound = 8 * depth * np.finfo(np.float32).eps
    np.testing.assert_allclose(found, exact, rtol=bound, atol=bound, err_msg=said)


@pytest.mark.parametrize("way", WAYS)
def test_products_of_all_sizes(way: str) -> None:
    random = np.random.default_rng(len(way))
    sizes = [(1, 1, 1), (1, 64, 700), (33, 32, 2), (40, 1100, 3), (31, 33, 1027), (64, 65, 529)]
    sizes += [(int(m), int(n), int(k)) for m, n, k in random.integers(1, 80, (4, 3))]
    for at, (m, n, k) in enumerate(sizes):
        program = product(m, n, k, at % 3, (at % 2 > 0, at % 4 > 1))
        verify(program)
        assert str(parse(str(program))) == str(program)
        given = [numbers(random, *each.shape) for each in program.inputs]
        exact, panels = interpret(program, *given)
        found, packed = load(program, OPTIONS[way])(*given)
        near(found, exact, k, f"{(m, n, k)}")
        np.testing.assert_array_equal(packed.view(np.uint16), panels.view(np.uint16))


def test_a_matrix_that_begins_between_words_is_packed() -> None:
    """Its columns lie in rows, which are turned as words where they begin at some."""
    n, k = 33, 40
    shape = ", ".join(map(str, pair_panels(n, k)))
    program = parse(f"""
program p(b: bfloat16[{n}, {k + 2}]) -> (even: bfloat16[{shape}], odd: bfloat16[{shape}]):
  call pack_pairs(b[0, 2], even[0, 0, 0, 0], n={n}, k={k}, b_row=1, b_column={k + 2})
  call pack_pairs(b[0, 1], odd[0, 0, 0, 0], n={n}, k={k}, b_row=1, b_column={k + 2})
""")
    verify(program)
    given = numbers(np.random.default_rng(5), n, k + 2)
    for found, exact in zip(load(program)(given), interpret(program, given), strict=True):
        np.testing.assert_array_equal(found.view(np.uint16), exact.view(np.uint16))


@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_finite_stays_in_its_row_and_column(way: str) -> None:
    """Copied rows that end within a step must not read the previous content of the buffer."""
    m, n, k = 70, 40, 1024 + 17
    random = np.random.default_rng(3)
    a, b = numbers(random, m, k), numbers(random, k, n)
    a[2, 5], a[40, -1], a[41, 510], a[45:, :1024] = np.nan, np.inf, -np.inf, np.nan
    b[k - 1, 7], b[3, 39] = np.inf, np.nan
    program = product(m, n, k, 0, (False, False))
    for _ in range(2):
        exact, _ = interpret(program, a, b)
        found, _ = load(program, OPTIONS[way])(a, b)
        near(found, exact, k)
    assert np.isfinite(found[:2, :7]).all()


@pytest.mark.parametrize("way", WAYS)
def test_windows_of_all_kinds(way: str) -> None:
    random = np.random.default_rng(len(way))
    for turn in range(4):
        of = geometry(random)
        row = turn % 3
        settings = ", ".join(f"{name}={value}" for name, value in of.items())
        places = of["taps_y"] * of["taps_x"] * of["channels"]
        shape = pair_panels(of["depth"], places)
        program = parse(f"""
program p(x: bfloat16[{of["images"]}, {of["height"]}, {of["breadth"]}, {of["channels"]}], \
w: bfloat16[{", ".join(map(str, shape))}]) \
-> (y: float32[{row + 1}, {of["images"]}, {of["rows"]}, {of["width"]}, {of["depth"]}]):
  for i in {row + 1}:
    call conv_pairs(x[0, 0, 0, 0], w[0, 0, 0, 0], y[i, 0, 0, 0, 0], {settings}, at i)
""")
        verify(program)
        x, w = (numbers(random, *each.shape) for each in program.inputs)
        if places % PAIR:
            w[:, -1, :, 1] = 0
        (exact,) = interpret(program, x, w)
        (found,) = load(program, OPTIONS[way])(x, w)
        near(found, exact, places, str(of))


@pytest.mark.parametrize("way", WAYS)
def test_gradients_by_the_filter_of_all_kinds(way: str) -> None:
    random = np.random.default_rng(len(way))
    for turn in range(4):
        of = geometry(random)
        if turn == 1:  # pixels, more of them than are gathered at once
            of |= dict.fromkeys(("taps_y", "taps_x", "stride_y", "stride_x"), 1)
            of |= {
                "before_y": 0,
                "before_x": 0,
                "rows": 20,
                "height": 20,
                "width": 19,
                "breadth": 19,
            }
        settings = ", ".join(f"{name}={value}" for name, value in of.items())
        places = of["taps_y"] * of["taps_x"] * of["channels"]
        program = parse(f"""
program p(x: bfloat16[{of["images"]}, {of["height"]}, {of["breadth"]}, {of["channels"]}], \
g: bfloat16[{of["images"]}, {of["rows"]}, {of["width"]}, {of["depth"]}]) \
-> (y: float32[{of["depth"]}, {places}]):
  for i in {of["depth"]}:
    for j in {places}:
      y[i, j] = 3.0
  call conv_filter_pairs(x[0, 0, 0, 0], g[0, 0, 0, 0], y[0, 0], {settings}, accumulate={turn % 2})
""")
        verify(program)
        given = [numbers(random, *each.shape) for each in program.inputs]
        (exact,) = interpret(program, *given)
        (found,) = load(program, OPTIONS[way])(*given)
        near(found, exact, of["images"] * of["rows"] * of["width"], str(of))


def test_threads_change_nothing() -> None:
    """Two threads, and programs of which several run at once: registers are each thread's own."""
    random = np.random.default_rng(4)
    programs = []
    for m, n, k in ((600, 200, 300), (90, 900, 300)):
        program = product(m, n, k, 0, (m < n, False))
        given = [numbers(random, *each.shape) for each in program.inputs]
        alone = load(program)
        wanted = [each.copy() for each in alone(*given)]
        shared = alone.copy()
        shared.threads = 2
        programs += [(each, given, wanted) for each in (alone, shared)]

    def run(at: int) -> None:
        program, given, wanted = programs[at]
        for _ in range(20):
            for found, want in zip(program(*given), wanted, strict=True):
                np.testing.assert_array_equal(found.view(np.uint8), want.view(np.uint8))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(len(programs))))


def test_what_wants_equal_bits_has_float32() -> None:
    """Small numbers are lost by the instructions, and not without them."""
    program = product(1, 1, 1, 0, (False, False))
    small, large = np.full((1, 1), 2.0**-130, BFLOAT16), np.full((1, 1), 2.0**100, BFLOAT16)
    assert pairs_of(target_of(Options(contract=False))) is PairMethod.WIDE
    exact = load(program, Options(contract=False))(small, large)[0]
    assert exact == np.float32(2.0**-30)
    lost = pairs_of(host()) is not PairMethod.WIDE
    assert load(program)(small, large)[0] == (0 if lost else exact)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("m=2", "m=3", "a needs 9 elements, but has 6"),
        ("m=2, n=40, k=3", "m=2, n=65, k=3", "rows overlap"),
        ("k=3, b_row", "k=5, b_row", "b needs"),
        ("k=3, a_row", "k=0, a_row", "a depth of at least 1"),
        ("c_row=40", "c_row=39", "rows overlap"),
        ("c: float32", "c: bfloat16", "a result of float32 were required"),
        ("a: bfloat16", "a: float16", "operands of bfloat16"),
    ],
)
def test_calls_that_are_wrong(old: str, new: str, said: str) -> None:
    text = str(product(2, 40, 3, 0, (False, False)))
    assert old in text
    with pytest.raises(errors.InternalError, match=said):
        verify(parse(text.replace(old, new)))


# ---------------------------------------------------------------------------- permission


@pytest.fixture
def found_anew() -> Iterator[None]:
    host.cache_clear()
    yield
    host.cache_clear()


def test_a_system_that_refuses_tiles_has_a_processor_without(
    monkeypatch: pytest.MonkeyPatch, found_anew: None
) -> None:
    monkeypatch.setattr(targets, "may_use_tiles", lambda: False)
    assert not (host().has_tiles("int8") or host().has_tiles("bf16"))
    named = Options(cpu="x86-64-v4", features="+amx-tile,+amx-int8,+avx2")
    assert not target_of(named).has_tiles("int8")
    assert target_of(named).has("avx2")


REFUSED = """
import ctypes
class Stack(ctypes.Structure):
    _fields_ = [("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
memory = ctypes.create_string_buffer(4096)  # signals have room for no tiles
stack = Stack(ctypes.addressof(memory), 0, 4096)
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
import numpy as np
from weft_compiler.codegen.targets import host
from weft_compiler.ir.parser import parse
from weft_compiler.native.program import load
assert not host().has("amx-tile")
program = parse('''program p(a: bfloat16[3, 2], b: bfloat16[1, 1, 32, 2]) -> (c: float32[3, 5]):
  call matmul_pairs(a[0, 0], b[0, 0, 0, 0], c[0, 0], m=3, n=5, k=2, a_row=2, a_column=1, c_row=5)
''')
a, b = (np.ones(each.shape, each.dtype.numpy) for each in program.inputs)
assert (load(program)(a, b)[0] == 2).all()
"""


def test_where_the_system_refuses_others_compute() -> None:
    if not host().has("amx-tile"):
        pytest.skip("this processor has no tiles")
    subprocess.run([sys.executable, "-c", REFUSED], check=True, timeout=120)


def test_ahead_of_time_tiles_have_to_be_named() -> None:
    assert not target_of(machine_options("native")).has_tiles("int8")
    if host().x86:
        named = machine_options("native", features="+amx-tile,+amx-int8")
        assert target_of(named).has_tiles("int8")


@pytest.mark.parametrize(
    ("triple", "cpu", "features", "way"),
    [
        ("x86_64-linux", "znver4", "+avx512f,+avx512bf16", PairMethod.DOT),
        ("x86_64-linux", "x86-64-v4", "+avx512bf16,+avx512fp16", PairMethod.WIDE),
        ("x86_64-linux", "x86-64-v4", "+amx-tile,+amx-int8", PairMethod.WIDE),
        ("x86_64-linux", "x86-64-v4", "+amx-tile,+amx-bf16", PairMethod.TILES),
        ("aarch64-linux", "generic", "+neon,+bf16", PairMethod.DOT),
        ("aarch64-linux", "generic", "+neon", PairMethod.WIDE),
        ("riscv64-linux", "generic-rv64", "+d", PairMethod.WIDE),
    ],
)
def test_what_multiplies_pairs(triple: str, cpu: str, features: str, way: PairMethod) -> None:
    assert pairs_of(Target(triple, cpu, features)) is way


# ---------------------------------------------------------------------------- graphs


def compiled(build: Callable[..., list[Output]], *arrays: Any) -> tuple[list[Any], Any]:
    """Return the results of compiled code for some feeds, and its report."""
    with wf.Graph().as_default(), wf.Session() as session:
        feeds = [wf.placeholder(array.dtype, array.shape) for array in arrays]
        fetches = build(*[wf.identity(feed) for feed in feeds])
        report = session.explain(fetches, feeds)
        return session.run(fetches, dict(zip(feeds, arrays, strict=True))), report


MATRICES = (
    ((33, 65), (65, 70), (False, False)),
    ((65, 33), (70, 65), (True, True)),
    ((3, 33, 65), (65, 7), (False, False)),
    ((2, 1, 65, 33), (3, 65, 70), (True, False)),
    ((5, 9, 8), (5, 8, 8), (False, True)),
    ((3, 0), (0, 4), (False, False)),
    ((0, 4), (4, 3), (False, False)),
    ((4, 640), (640, 900), (False, False)),  # whose pairs are a large temporary
)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16])
def test_products_of_graphs(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    """Products of matrices and batches: transposed, empty, with constants, rounded once."""
    monkeypatch.setenv("WEFT_JIT", "now")
    random = np.random.default_rng(5)
    unit = ROUNDING if dtype is BFLOAT16 else 2.0**-11
    pairs = [
        [random.normal(size=shape).astype(dtype) for shape in shapes] for *shapes, _ in MATRICES
    ]

    def build(*given: Output) -> list[Output]:
        found = []
        for x, y, (_, b), (*_, turned) in zip(
            given[::2], given[1::2], pairs, MATRICES, strict=True
        ):
            for other in (y, wf.constant(b)):
                z = wf.matmul(x, other, transpose_a=turned[0], transpose_b=turned[1])
                found.append(wf.nn.relu(z))
        return found

    found, report = compiled(build, *[each for pair in pairs for each in pair])
    assert report.compiled
    for at, value in enumerate(found):
        turned = MATRICES[at // 2][2]
        left, right = (
            (each.swapaxes(-1, -2) if turns else each).astype(np.float32)
            for each, turns in zip(pairs[at // 2], turned, strict=True)
        )
        assert value.dtype == dtype
        bound = unit * abs(left @ right) + 2.0**-20 * (abs(left) @ abs(right))
        error = abs(value.astype(np.float32) - np.maximum(left @ right, 0))
        assert (error <= bound).all(), MATRICES[at // 2]


@pytest.mark.parametrize(
    ("dtype", "size", "channels", "depth", "taps", "stride", "padding"),
    [
        (BFLOAT16, (9, 11), 3, 5, 3, 1, "SAME"),
        (BFLOAT16, (30, 28), 32, 40, 3, 1, "SAME"),
        (BFLOAT16, (12, 10), 7, 33, 3, 2, "VALID"),
        (BFLOAT16, (30, 30), 16, 34, 1, 1, "SAME"),
        (BFLOAT16, (15, 15), 2, 3, 5, 2, "SAME"),
        (np.float16, (24, 28), 32, 48, 3, 1, "SAME"),
        (np.float16, (12, 10), 7, 33, 3, 2, "VALID"),
    ],
)
def test_convolutions_of_graphs(
    monkeypatch: pytest.MonkeyPatch,
    dtype: Any,
    size: tuple[int, int],
    channels: int,
    depth: int,
    taps: int,
    stride: int,
    padding: str,
) -> None:
    """Convolutions and both gradients, with a bias and an activation in the same loops."""
    random = np.random.default_rng(6)
    x = random.normal(size=(2, *size, channels)).astype(dtype)
    w = random.normal(size=(taps, taps, channels, depth)).astype(dtype)
    bias = random.normal(size=depth).astype(dtype)

    def convolved(x: Output, w: Output) -> Output:
        return wf.nn.conv2d(x, w, strides=[1, stride, stride, 1], padding=padding)

    def build(x: Output, filters: Output, bias: Output) -> list[Output]:
        y = convolved(x, filters)
        gradients = wf.gradients(y, [x, filters], grad_ys=[wf.nn.relu(y)])
        return [y, wf.nn.relu(y + bias), *gradients, convolved(x, wf.constant(w))]

    monkeypatch.setenv("WEFT_JIT", "now")
    found, report = compiled(build, x, w, bias)
    assert {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"} <= {
        op for region in report.compiled for _, op in region
    }
    monkeypatch.setenv("WEFT_JIT", "off")
    wide = [each.astype(np.float32) for each in (x, w)]
    given = np.maximum(found[0].astype(np.float32), 0)
    with wf.Graph().as_default(), wf.Session() as session:
        inputs = [wf.constant(each) for each in wide]
        y = convolved(*inputs)
        exact = session.run([y, *wf.gradients(y, inputs, grad_ys=[wf.constant(given)])])
    unit = ROUNDING if dtype is BFLOAT16 else 2.0**-11
    for value, want in zip(
        (found[0], found[2], found[3], found[4]), (*exact, exact[0]), strict=True
    ):
        assert value.dtype == dtype
        error = abs(value.astype(np.float32) - want)
        assert (error <= unit * abs(want) + 2.0**-18 * abs(want).max()).all()
    biased = np.maximum((found[0] + bias).astype(dtype), np.zeros((), dtype))
    np.testing.assert_array_equal(found[1].astype(np.float32), biased.astype(np.float32))


def test_sums_of_three_products_are_rounded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    random = np.random.default_rng(7)
    a, b, c = (numbers(random, *shape) for shape in ((20, 33), (33, 18), (18, 21)))

    def build(*given: Output) -> list[Output]:
        (found,) = create("Einsum", [list(given)], {"equation": "ij,jk,kl->il"}).outputs
        return [wf.nn.relu(found), found]

    found, report = compiled(build, a, b, c)
    assert report.compiled
    exact = np.linalg.multi_dot([each.astype(np.float64) for each in (a, b, c)])
    error = abs(found[1].astype(np.float64) - exact)
    assert (error <= ROUNDING * abs(exact) + 1e-5 * abs(exact).max()).all()
