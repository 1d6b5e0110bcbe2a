"""Programs cut into nests: each computes its part, and equal ones are compiled once."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest

from weft_compiler.codegen.options import Options
from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Program
from weft_compiler.ir.program_splitting import pieces_of
from weft_compiler.ir.verifier import verify
from weft_compiler.native import cache, program as native
from weft_compiler.native.program import load
from weft_tensor import errors

CUT = Options(contract=False, threads=False)


def parsed(text: str) -> Program:
    program = parse(text)
    verify(program)
    return program


def layers(count: int, first: str = "x") -> Program:
    """Return a program of equal layers, one after the other, each of two nests."""
    lines = [f"program p({first}: float32[6], w: float32[6]) -> (y: float32[6]):"]
    lines += [f"  alloc h{at}: float32[6]" for at in range(count)]
    for at in range(count):
        source = f"h{at - 1}" if at else first
        lines += [f"  var s{at} = 0.0", f"  for i{at} in 6:", f"    s{at} add= {source}[i{at}]"]
        lines += [f"  for j{at} in 6:", f"    h{at}[j{at}] = {source}[j{at}] - w[j{at}] * s{at}"]
    return parsed("\n".join([*lines, "  for k in 6:", f"    y[k] = h{count - 1}[k]", ""]))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules that this thread compiles, without caches on disk or of earlier tests.

    A thread of a session of an earlier test may still compile in the background.
    """
    monkeypatch.setenv("WEFT_CACHE", "off")
    cache.directory.cache_clear()
    texts: list[str] = []
    object_code = native.object_code

    this_thread = threading.get_ident()

    def counted(text: str, *rest: Any) -> bytes:
        if threading.get_ident() == this_thread:
            texts.append(text)
        return object_code(text, *rest)

    monkeypatch.setattr(native, "object_code", counted)
    monkeypatch.setattr(native, "_codes", WeakValueDictionary())
    return texts


@pytest.fixture(autouse=True)
def directory_again() -> Any:
    yield
    cache.directory.cache_clear()


def same(program: Program, *inputs: Any, out: Any = None) -> None:
    """The pieces compute the same as the program."""
    expected = interpret(program, *inputs, *[] if out is None else [each.copy() for each in out])
    got = load(program, CUT)(*inputs, out=out)
    for x, y in zip(got, expected, strict=True):
        np.testing.assert_array_equal(x, y)


X, W = np.arange(6, dtype=np.float32), np.linspace(0, 1, 6, dtype=np.float32)


def test_equal_layers_are_compiled_once(compiled: list[str]) -> None:
    program = layers(5)
    pieces = pieces_of(program)
    assert len(pieces) == 6 and len({str(piece.program) for piece in pieces}) == 2
    same(program, X, W)
    assert len(compiled) == 3  # the layer, the copy, and the sequence of both


def test_programs_share_what_they_have_in_common(compiled: list[str]) -> None:
    first = load(layers(2), CUT)
    assert len(compiled) == 3
    second = load(layers(3, "another"), CUT)
    assert len(compiled) == 4
    assert set(first.code.nests) == set(second.code.nests)


def test_what_is_compiled_for_clocks_stays_whole(compiled: list[str]) -> None:
    load(layers(2), Options(threads=False, clocks=True))
    assert len(compiled) == 1


@pytest.mark.parametrize(("sign", "nests"), [("*", 1), ("/", 2)])
def test_nests_that_differ_in_what_is_multiplied_are_one(
    sign: str, nests: int, compiled: list[str]
) -> None:
    program = parsed(f"""
program p(x: float32[4]) -> (a: float32[4], b: float32[4], c: float32[4]):
  for i in 4:
    a[i] = x[i] {sign} 0.0
  for j in 4:
    b[j] = x[j] {sign} -0.0
  for k in 4:
    c[k] = x[k] {sign} 0.0
""")
    assert len(load(program, CUT).code.nests) == nests
    same(program, -X[:4])


def test_numbers_of_two_types_are_loaded_and_others_stay(compiled: list[str]) -> None:
    def nest(at: int, n: str, d: str, h: str, i: str) -> list[str]:
        x = f"cast((x[i{at}] + {n}) * {n}, float64) - {d}:float64"
        half = f"cast(x[i{at}], float16) * {h}:float16"
        whole = f"cast(x[i{at}], int32) + {i}:int32"
        return [
            f"  for i{at} in 4:",
            f"    a{at}[i{at}] = {x}",
            f"    h{at}[i{at}] = {half}",
            f"    n{at}[i{at}] = {whole}",
        ]

    def program(*nests: tuple[str, str, str, str]) -> Program:
        made = range(len(nests))
        out = ", ".join(f"a{at}: float64[4], h{at}: float16[4], n{at}: int32[4]" for at in made)
        lines = [f"program p(x: float32[4]) -> ({out}):"]
        for at, numbers in enumerate(nests):
            lines += nest(at, *numbers)
        return parsed("\n".join([*lines, ""]))

    alike = program(("0.1", "1e300", "2.0", "7"), ("inf", "-0.0", "2.0", "7"))
    assert len(load(alike, CUT).code.nests) == 1
    same(alike, X[:4])
    for apart in (("3.0", "1.0", "4.0", "7"), ("3.0", "1.0", "2.0", "8")):
        whole = program(("0.1", "1e300", "2.0", "7"), apart)
        assert len(load(whole, CUT).code.nests) == 2
        same(whole, X[:4])


def test_shapes_and_types_tell_nests_apart() -> None:
    program = parsed("""
program p(x: float32[4, 5], z: float64[4, 6]) -> (a: float32[4], b: float32[4], c: float64[4]):
  for i in 4:
    a[i] = x[i, 1]
  for j in 4:
    b[j] = x[3, 1]
  for k in 4:
    c[k] = z[k, 1]
""")
    assert len(load(program, CUT).code.nests) == 3
    same(program, np.arange(20, dtype=np.float32).reshape(4, 5), np.ones((4, 6)))


def test_names_of_a_nest_that_others_use_keep_them_together() -> None:
    program = parsed("""
program p(x: float32[4]) -> (a: float32[4], b: float32[4], c: float32[4]):
  var s = 0.0
  for i in 4:
    s add= x[i]
  for j in 4:
    a[j] = x[j] * 2.0
  for k in 4:
    b[k] = x[k] * s
  for l in 4:
    c[l] = x[l]
""")
    assert len(pieces_of(program)) == 2
    same(program, X[:4])


def test_far_users_of_a_scalar_are_pieces_of_their_own(compiled: list[str]) -> None:
    copies = "".join(f"  for j{at} in 4:\n    a{at}[j{at}] = x[j{at}] * s\n" for at in range(5))
    program = parsed(f"""
program p(x: float32[4]) -> ({", ".join(f"a{at}: float32[4]" for at in range(5))}):
  var s = 0.0
  for i in 4:
    s add= x[i]
{copies}""")
    assert len(pieces_of(program)) == 6
    same(program, X[:4])
    assert len(compiled) == 3  # the sum, the product, and the sequence of both


def test_steps_that_read_other_rows_are_compiled_once(compiled: list[str]) -> None:
    steps = "".join(
        f"  for i{at} in 6:\n    h[{at + 1}, i{at}] = h[{at}, i{at}] * 2.0 + x[i{at} + {3 * at}]\n"
        for at in range(4)
    )
    program = parsed(f"""
program p(x: float32[16]) -> (update h: float32[5, 6]):
{steps}""")
    assert len({str(piece.program) for piece in pieces_of(program)}) == 1
    out = [np.ones((5, 6), np.float32)]
    same(program, np.arange(16, dtype=np.float32), out=out)
    assert len(compiled) == 2  # the step, and the sequence of all


CALLS = """
program p(a: float32[2, 96, 64], b: float32[64, 256], x: float32[{images}, 26, 26, 16],
    w: float32[3, 3, 16, 32]) -> (c: float32[96, 256], d: float32[64, 256],
    y: float32[{images}, 24, 24, 32], f: float32[32, 144], t: float32[256, 96]):
  call gemm(a[1, 0, 0], b[0, 0], c[0, 0], m=96, n=256, k=64, a_row=64, a_column=1, b_row=256,
b_column=1, c_row=256, accumulate=0)
  call gemm(a[0, 32, 0], b[0, 0], d[0, 0], m=64, n=256, k=64, a_row=1, a_column=64, b_row=256,
b_column=1, c_row=256, accumulate=0)
  call conv(x[0, 0, 0, 0], w[0, 0, 0, 0], y[0, 0, 0, 0], images={images}, rows=24, {windows},
packed=0, at 0)
  call conv_filter(x[0, 0, 0, 0], y[0, 0, 0, 0], f[0, 0], images={images}, rows=24, {windows},
accumulate=0)
  call transpose(c[0, 0], t[0, 0], rows=96, columns=256, x_row=256, y_row=96)
"""
WINDOWS = """width=24, depth=32, channels=16, height=26, breadth=26, taps_y=3, taps_x=3, stride_y=1,
stride_x=1, dilation_y=1, dilation_x=1, before_y=0, before_x=0"""


@pytest.mark.parametrize("images", [1, 3])
def test_calls_of_a_routine_share_a_function_for_all_sizes(
    images: int, compiled: list[str]
) -> None:
    text = CALLS.format(images=images, windows=WINDOWS)
    lines = text.replace(",\n", ", ").replace("program", "\nprogram", 1)
    program = parsed(lines)
    random = np.random.default_rng(images)
    inputs = [random.normal(size=each.shape).astype(np.float32) for each in program.inputs]
    expected = interpret(program, *inputs)
    loaded = load(program, Options())
    assert len(compiled) == 5  # gemm, conv, conv_filter, turn and the sequence
    alone = loaded(*inputs)
    for result, value in zip(alone, expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-3)
    loaded.threads = 3
    for result, value in zip(loaded(*inputs)[2:], alone[2:], strict=True):
        np.testing.assert_array_equal(result, value)
    for result, value in zip(loaded(*inputs), expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-3)


def test_a_size_is_read_by_each_nest() -> None:
    program = parsed("""
program p(sizes: int64[], x: float32[8]) -> (update a: float32[8], update b: float32[8]):
  let n = sizes[]
  check bit_and(n >= 1, n <= 4), "another size"
  let twice = n * 2
  for i in n:
    a[i] = x[i]
  for j in twice:
    b[j] = x[j] + 1.0
""")
    assert len(pieces_of(program)) == 3
    out = [np.zeros(8, np.float32), np.zeros(8, np.float32)]
    same(program, np.int64(3), np.arange(8, dtype=np.float32), out=out)


def test_the_check_that_fails_is_named() -> None:
    checks = "\n".join(f'  check x[{at}] > 0.0, "x[{at}]"\n  for i{at} in 4:\n'
                       f"    y[i{at}] = x[i{at}] + {at}.0" for at in range(4))  # fmt: skip
    program = load(parsed(f"program p(x: float32[4]) -> (y: float32[4]):\n{checks}\n"), CUT)
    assert program.code.nests
    for at in range(4):
        x = np.ones(4, np.float32)
        x[at] = 0
        with pytest.raises(errors.InvalidArgumentError, match=rf"x\[{at}\]"):
            program(x)
    (y,) = program(np.ones(4, np.float32))
    assert (y == 4).all()


def test_an_interrupt_ends_the_nest_that_runs() -> None:
    lines = [
        f"  for i{n} in {n}:\n    for j{n} in 600:\n"
        f"      y[minimum(i{n}, 3)] add= x[minimum(j{n}, 3)]\n"
        for n in (7, 8)
    ]
    body = "".join(lines)
    program = load(parsed(f"program p(x: float32[4]) -> (update y: float32[4]):\n{body}"), CUT)
    assert program.code.nests
    program.interrupt()
    with pytest.raises(errors.CancelledError):
        program(X[:4], out=[np.zeros(4, np.float32)])
    program.resume()
    program(X[:4], out=[np.zeros(4, np.float32)])


def test_buffers_of_several_nests_share_memory_when_one_is_done() -> None:
    chain = ["program p(x: float32[1000]) -> (y: float32[1000]):"]
    chain += [f"  alloc h{at}: float32[1000]" for at in range(9)]
    chain += ["  for i in 1000:\n    h0[i] = x[i]"]
    chain += [f"  for i{at} in 1000:\n    h{at}[i{at}] = h{at - 1}[999 - i{at}] + 1.0"
              for at in range(1, 9)]  # fmt: skip
    program = parsed("\n".join([*chain, "  for k in 1000:\n    y[k] = h8[k]", ""]))
    assert load(program, CUT).code.module.shared == 2 * 4032
    same(program, np.arange(1000, dtype=np.float32))


def test_what_a_nest_has_to_itself_lies_where_others_have_nothing() -> None:
    """The third needs as much as h or g, which are needed no longer; m is needed until the end."""
    program = parsed("""
program p(x: float32[2000]) -> (y: float32[2000], z: float32[2000]):
  alloc m: float32[2000]
  alloc h: float32[2000]
  alloc g: float32[2000]
  for i in 2000:
    m[i] = x[i] * 2.0
    h[i] = x[i]
    g[i] = x[i] + 1.0
  for i in 2000:
    y[i] = h[1999 - i] + g[1999 - i]
  for again in 2:
    alloc own: float32[2000]
    for i in 2000:
      own[i] = x[1999 - i]
    for i in 2000:
      z[i] = own[1999 - i]
  for i in 2000:
    z[i] = z[i] + m[1999 - i]
""")
    assert load(program, CUT).code.module.shared == 3 * 8000
    same(program, np.arange(2000, dtype=np.float32))


def test_constants_are_given_to_the_nests_that_take_them() -> None:
    program = parsed("""
program p(x: float32[4], two: float32[], t: float32[4]) -> (a: float32[4], b: float32[4]):
  for i in 4:
    a[i] = x[i] * two[]
  for j in 4:
    b[j] = x[j] * t[j]
""")
    constants = {"two": np.array(2, np.float32), "t": W[:4]}
    program = Program(
        "p", program.inputs, program.outputs, program.body, constants, program.updated
    )
    a, b = load(program, CUT)(X[:4])
    assert (a == 2 * X[:4]).all() and (b == X[:4] * W[:4]).all()


def test_nests_with_other_constants_are_not_shared() -> None:
    """The code of a nest has the values of its constants, which its text does not show."""
    program = parsed("""
program p(x: float32[4], u: float32[], v: float32[]) -> (a: float32[4], b: float32[4], \
c: float32[4], d: float32[4], e: float32[4]):
  for i in 4:
    a[i] = u[]
  for j in 4:
    b[j] = v[]
  for k in 4:
    c[k] = x[k] * 2.0 + u[]
  for l in 4:
    d[l] = x[l] * 2.0 + v[]
  for m in 4:
    e[m] = x[m] * 3.0 + v[]
""")
    values = {"u": np.array(-1.0, np.float32), "v": np.array(5.0, np.float32)}
    program = replace(program, constants=values)
    x = X[:4]
    expected = (np.full(4, -1), np.full(4, 5), x * 2 - 1, x * 2 + 5, x * 3 + 5)
    for result, value in zip(load(program, CUT)(x), expected, strict=True):
        np.testing.assert_array_equal(result, value)
