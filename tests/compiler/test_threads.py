"""Programs on several threads: results, participating threads, and interruption."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from weft_compiler.codegen.interrupt_checks import iterations_between_polls
from weft_compiler.codegen.options import Options
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import For
from weft_compiler.ir.verifier import verify
from weft_compiler.native.program import NativeProgram, load
from weft_compiler.passes.framework import Context
from weft_compiler.passes.pipeline import optimize
from weft_compiler.passes.split_reductions import split_reductions
from weft_tensor import errors

pytestmark = pytest.mark.skipif(os.name != "posix", reason="helpers are threads of POSIX")

ROWS = """
program rows(x: float32[640, 300]) -> (y: float32[640, 300]):
  parallel i in 640:
    var s = 0.0
    for j in 300:
      s add= exp(x[i, j])
    vector j in 300:
      y[i, j] = exp(x[i, j]) / s
"""
FLAT = """
program flat(x: float32[300001]) -> (y: float32[300001]):
  parallel i in 300001:
    y[i] = tanh(x[i]) * 2.0
"""
MATMUL = """
program product(a: float32[150, 130], b: float32[130, 170]) -> (c: float32[150, 170]):
  call {name}(a[0, 0], b[0, 0], c[0, 0], m=150, n=170, k=130, a_row=130, a_column=1, b_row=170, \
b_column=1, c_row=170, accumulate=0)
"""
WINDOWS = (
    "width=24, depth=32, channels=16, height=26, breadth=26, taps_y=3, taps_x=3, stride_y=1, "
    "stride_x=1, dilation_y=1, dilation_x=1, before_y=0, before_x=0"
)
CONV = """
program conv(x: float32[{images}, 26, 26, 16], w: float32[3, 3, 16, 32]) -> \
(y: float32[{images}, 24, 24, 32]):
  call conv(x[0, 0, 0, 0], w[0, 0, 0, 0], y[0, 0, 0, 0], images={images}, rows=24, {windows}, \
packed=0, at 0)
"""
FEW_WINDOWS = """
program conv(x: float64[{images}, 2, 9, 62], w: float64[2, 5, 62, 40]) -> \
(y: float64[{images}, 1, 5, 40]):
  call conv(x[0, 0, 0, 0], w[0, 0, 0, 0], y[0, 0, 0, 0], images={images}, rows=1, width=5, \
depth=40, channels=62, height=2, breadth=9, taps_y=2, taps_x=5, stride_y=1, stride_x=1, \
dilation_y=1, dilation_x=1, before_y=0, before_x=0, packed=0, at 0)
"""
FILTER = """
program filter(x: float32[2, 26, 26, 16], g: float32[2, 24, 24, 32]) -> (y: float32[32, 144]):
  call conv_filter(x[0, 0, 0, 0], g[0, 0, 0, 0], y[0, 0], images=2, rows=24, {windows}, \
accumulate=0)
"""
PACKED = """
program packed(a: float32[{m}, 300], b: float32[9, 300, 32]) -> (c: float32[{m}, {n}]):
  call matmul_packed(a[0, 0], b[0, 0, 0], c[0, 0], m={m}, n={n}, k=300, a_row=300, c_row={n}, \
accumulate=0)
"""
BYTES = """
program bytes(a: uint8[{m}, 301], b: int8[9, 76, 32, 4], s: int32[9, 32]) -> (c: int32[{m}, 280]):
  call matmul_bytes(a[0, 0], b[0, 0, 0, 0], s[0, 0], c[0, 0], m={m}, n=280, k=301, a_row=301, \
c_row=280)
"""
CONV_BYTES = """
program conv(x: uint8[{images}, 50, 50, 16], w: int8[1, 36, 32, 4], s: int32[1, 32]) -> \
(y: int32[{images}, 48, 48, 32]):
  call conv_bytes(x[0, 0, 0, 0], w[0, 0, 0, 0], s[0, 0], y[0, 0, 0, 0], images={images}, rows=48, \
width=48, depth=32, channels=16, height=50, breadth=50, taps_y=3, taps_x=3, stride_y=1, \
stride_x=1, dilation_y=1, dilation_x=1, before_y=0, before_x=0, outside=3, at 0)
"""
SUMS = """
program sums(x: float32[600, 512]) -> (y: float32[600, 512], s: float32[512], m: float32[], \
c: int32[3]):
  for j in 512:
    s[j] = 1.0
  m[] = -inf
  for j in 3:
    c[j] = cast(7, int32)
  var t = 0.0
  for i in 600:
    for j in 512:
      let z = x[i, j] * 2.0
      y[i, j] = z
      s[j] add= z
      t add= z
      m[] maximum= z
      c[1] add= cast(z > 0.0, int32)
  m[] = m[] + t
"""


def random_inputs(program: NativeProgram) -> list[Any]:
    random = np.random.default_rng(4)
    made = [
        random.integers(0, 100, buffer.shape).astype(buffer.dtype.numpy)
        if buffer.dtype.is_integer
        else random.normal(size=buffer.shape).astype(buffer.dtype.numpy)
        for buffer in program.program.inputs
    ]
    if program.program.name == "bytes":
        made[1][:, -1, :, 301 % 4 :] = 0  # as panels have behind the last row
    return made


@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        FLAT,
        MATMUL.format(name="matmul"),
        CONV.format(images=5, windows=WINDOWS),
        CONV.format(images=1, windows=WINDOWS),
        FILTER.format(windows=WINDOWS),
        *[FEW_WINDOWS.format(images=images) for images in (17, 23, 31)],
        *[PACKED.format(m=m, n=270) for m in (80, 289, 300)],
        *[PACKED.format(m=m, n=12) for m in (354, 515, 611)],
        BYTES.format(m=300),
        BYTES.format(m=70),
        CONV_BYTES.format(images=5),
        CONV_BYTES.format(images=1),
    ],
)
def test_results_do_not_depend_on_threads(text: str) -> None:
    parsed = parse(text)
    verify(parsed)
    program = load(parsed)
    assert program.code.module.shares
    inputs = random_inputs(program)
    alone = program(*inputs)
    for threads in (2, 3, 4, 7):
        program.threads = threads
        for _ in range(3):
            for one, several in zip(alone, program(*inputs), strict=True):
                np.testing.assert_array_equal(one, several)


WIDTHS = """
program conv(x: {dtype}[{images}, {rows}, {width}, 200], w: {dtype}[200, {depth}]) -> \
(y: {dtype}[{images}, {rows}, {width}, {depth}]):
  call conv(x[0, 0, 0, 0], w[0, 0], y[0, 0, 0, 0], images={images}, rows={rows}, width={width}, \
depth={depth}, channels=200, height={rows}, breadth={width}, taps_y=1, taps_x=1, stride_y=1, \
stride_x=1, dilation_y=1, dilation_x=1, before_y=0, before_x=0, packed=0, at 0)
"""
EDGES = """
program product(a: {dtype}[{m}, 200], b: {dtype}[200, {n}]) -> (c: {dtype}[{m}, {n}]):
  call matmul(a[0, 0], b[0, 0], c[0, 0], m={m}, n={n}, k=200, a_row=200, a_column=1, b_row={n}, \
b_column=1, c_row={n}, accumulate=0)
"""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cpu", ["", "x86-64-v3"])
def test_an_element_is_added_up_in_one_order_however_rows_are_cut(dtype: str, cpu: str) -> None:
    """Tiles of other heights, down to a row, are at the end of parts than of the whole."""
    windows = [(1, 299, 1, 100), (1, 103, 3, 70), (7, 19, 5, 33), (1500, 1, 2, 17), (700, 1, 1, 40)]
    texts = [
        WIDTHS.format(dtype=dtype, images=images, rows=rows, width=width, depth=depth)
        for images, rows, width, depth in windows
    ]
    texts += [EDGES.format(dtype=dtype, m=m, n=n) for m, n in ((243, 37), (433, 44), (2, 5000))]
    for text in texts:
        program = load(parse(text), Options(cpu=cpu))
        assert program.code.module.shares
        inputs = random_inputs(program)
        (alone,) = program(*inputs)
        for threads in (2, 3, 5):
            program.threads = threads
            np.testing.assert_array_equal(alone, program(*inputs)[0], err_msg=text)


def test_products_by_blas_are_the_same_each_time() -> None:
    program = load(parse(MATMUL.format(name="gemm")))
    a, b = random_inputs(program)
    for threads in (1, 2, 3):
        program.threads = threads
        (first,) = program(a, b)
        np.testing.assert_allclose(first, a @ b, rtol=1e-4, atol=1e-4)
        for _ in range(5):
            np.testing.assert_array_equal(program(a, b)[0], first)


def test_sums_of_blocks_follow_from_the_loop_alone() -> None:
    parsed = parse(SUMS)
    cut = split_reductions(parsed, Context())
    verify(cut)
    assert "parallel block" in str(cut)
    program = load(optimize(parsed).program)
    (x,) = random_inputs(program)
    alone = program(x)
    doubled = 2 * x.astype(np.float64)
    np.testing.assert_array_equal(alone[0], 2 * x)
    np.testing.assert_allclose(alone[1], 1 + doubled.sum(0), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(alone[2], doubled.max() + doubled.sum(), rtol=1e-4)
    np.testing.assert_array_equal(alone[3], [7, 7 + (x > 0).sum(), 7])
    program.threads = 3
    for _ in range(5):
        for one, several in zip(alone, program(x), strict=True):
            np.testing.assert_array_equal(one, several)


@pytest.mark.parametrize(
    "line",
    [
        "      let w = s[0]\n      y[i, j] = w",  # reads what it combines into
        "      s[j] = z",  # stores besides
        "      s[j] maximum= z",  # combines in two ways
        "      y[0, j] = z",  # turns meet
    ],
)
def test_loops_whose_turns_depend_on_each_other_are_not_cut(line: str) -> None:
    parsed = parse(SUMS.replace("      t add= z", f"{line}\n      t add= z"))
    assert split_reductions(parsed, Context()) is parsed


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("text", [ROWS, FLAT])
def test_a_shared_loop_is_interrupted(text: str, threads: int) -> None:
    program = load(parse(text))
    program.threads = threads
    program.interrupt()
    with pytest.raises(errors.CancelledError):
        program(*random_inputs(program))
    program.resume()


def test_what_a_turn_computes_decides_how_often_a_loop_looks() -> None:
    def between(value: str) -> int:
        loop = parse(FLAT.replace("tanh(x[i])", value)).body[0]
        assert isinstance(loop, For)
        return iterations_between_polls(loop)

    few, many = between("x[i]"), between("exp(" * 100 + "x[i]" + ")" * 100)
    assert 10 * many < few <= 1 << 16


def test_a_check_that_fails_in_one_part_ends_them_all() -> None:
    text = FLAT.replace("    y[i]", '    check x[i] < 3.0, "small numbers were required"\n    y[i]')
    program = load(parse(text))
    program.threads = 3
    x = np.ones(300_001, np.float32)
    (want,) = program(x)
    for at in (0, 150_000, 300_000):
        wrong = x.copy()
        wrong[at] = 3
        with pytest.raises(errors.InvalidArgumentError, match="small numbers"):
            program(wrong)
        np.testing.assert_array_equal(program(x)[0], want)


def test_programs_that_run_at_once_share_the_helpers() -> None:
    programs = [load(parse(ROWS)) for _ in range(4)]
    (x,) = random_inputs(programs[0])
    (known,) = programs[0](x)
    wrong: list[int] = []

    def work(at: int) -> None:
        programs[at].threads = 3
        for _ in range(50):
            if not (programs[at](x)[0] == known).all():
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong


def in_another_process(body: str) -> str:
    """Return the output of a process that runs a program with two threads."""
    text = f"""
import os, sys
import numpy as np
from weft_compiler.ir.parser import parse
from weft_compiler.native.program import load

def threads():
    return len(os.listdir("/proc/self/task"))

program = load(parse({ROWS!r}))
x = np.ones((640, 300), np.float32)
known = program(x)[0]
before = threads()
program.threads = 2
{body}
"""
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")


@on_linux
def test_helpers_are_made_once_and_end_with_the_process() -> None:
    found = in_another_process(
        f"""
for _ in range(20):
    other = load(parse("program p() -> (y: float32[]):\\n  y[] = 1.0\\n"))
    other.threads = 2
    program = load(parse({ROWS!r}))
    program.threads = 2
    for _ in range(20):
        assert (program(x)[0] == known).all()
print(threads() - before)
"""
    )
    assert found == "1\n"


@on_linux
def test_a_forked_process_has_helpers_of_its_own() -> None:
    found = in_another_process(
        """
program(x)
child = os.fork()
if not child:
    alone = threads()
    for _ in range(20):
        assert (program(x)[0] == known).all()
    sys.stdout.write(f"{alone} {threads()}")
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert (program(x)[0] == known).all()
"""
    )
    assert found == "1 2"
