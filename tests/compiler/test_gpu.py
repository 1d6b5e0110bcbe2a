"""Kernels for GPUs, run on the host thread by thread, and their PTX before NVIDIA's assembler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cupy_standin.rawkernel import compiler
from weft_testing.gpu_programs import registers, run_on_host

from weft_compiler.gpu import launches
from weft_compiler.gpu.fission import materialize_names
from weft_compiler.gpu.launches import Launch, LaunchKind, launches_of
from weft_compiler.gpu.module import ARCHITECTURES, gpu_module, ptx_of, target_of_capability
from weft_compiler.gpu.pipeline import optimize_for_gpu
from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.passes.framework import Context
from weft_tensor import errors


@pytest.fixture(autouse=True)
def _compiler() -> None:
    if compiler() is None:
        pytest.skip("no C++ compiler for blocks of threads")


def parsed(text: str) -> Program:
    program = parse(text)
    verify(program)
    return program


def run(text: str, *arrays: Any, atomics: bool = True) -> list[Launch]:
    """Compare with the interpreter; the launches."""
    program = parsed(text)
    module = gpu_module(program, target_of_capability(8, 0), atomics=atomics)
    count = len(program.inputs) - len(program.constants)
    failed, got = run_on_host(program, module, arrays[:count], arrays[count:])
    assert not failed
    for value, want in zip(got, interpret(program, *arrays), strict=True):
        if value.dtype.kind == "f":
            np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(value, want)
    return launches_of(program, atomics)


def numbers(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


SOFTMAX = """
program softmax(x: float32[5, 300]) -> (y: float32[5, 300]):
  for i in 5:
    alloc e: float32[300]
    var m = -inf
    for j in 300:
      m maximum= x[i, j]
    var s = 0.0
    for j in 300:
      e[j] = exp(x[i, j] - m)
      s add= e[j]
    for j in 300:
      y[i, j] = e[299 - j] / s
"""


def test_a_block_takes_a_row_and_its_threads_share_the_elements() -> None:
    (launch,) = run(SOFTMAX, numbers(5, 300))
    assert launch.way is LaunchKind.ROWS and launch.blocks == 5 and launch.threads == 256


@pytest.mark.parametrize("blocks", [7, 2])
def test_threads_wait_for_what_others_of_the_block_have_written(
    blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launches, "_BLOCKS", blocks)
    (launch,) = run(
        "program p(x: float32[7, 300]) -> (y: float32[7, 300]):\n  for i in 7:\n"
        "    alloc t: float32[301]\n    for j in 300:\n      t[j] = x[i, j]\n"
        "    t[300] = t[7] * 2.0\n    for j in 300:\n      y[i, j] = t[299 - j] + t[300]\n",
        numbers(7, 300),
    )
    assert launch.way is LaunchKind.ROWS and launch.blocks == blocks


def test_each_thread_takes_an_element_and_neighbors_take_neighbors() -> None:
    (launch,) = run(
        "program p(x: float32[7, 100]) -> (y: float32[7, 100]):\n"
        "  for i in 7:\n    for j in 100:\n      y[i, j] = tanh(x[i, j]) * x[i, 99 - j]\n",
        numbers(7, 100),
    )
    assert launch.way is LaunchKind.THREADS and launch.count == 700 and launch.blocks == 3
    assert [loop.variable for loop in launch.loops] == ["i", "j"]


COLUMNS = """
program p(x: float32[200, 6]) -> (y: float32[6]):
  for j in 6:
    y[j] = 0.0
  for i in 200:
    for j in 6:
      y[j] add= x[i, j]
"""


def test_sums_of_columns_that_threads_add_up_in_order() -> None:
    _, launch = run(COLUMNS, numbers(200, 6), atomics=False)
    assert launch.count == 6 and not launch.atomic


def test_sums_of_few_columns_are_atomic_where_the_order_is_free() -> None:
    _, launch = run(COLUMNS, numbers(200, 6))
    assert launch.count == 1200 and launch.atomic == {"y"}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "int64", "uint32"])
@pytest.mark.parametrize("combine", ["add", "maximum", "minimum", "mul"])
def test_all_threads_of_one_block_combine_numbers(dtype: str, combine: str) -> None:
    values = np.arange(1500) % 3
    if combine == "mul":  # whose product no type rounds
        values = np.where(np.arange(1500) % 500 == 7, 2, 1)
    text = (
        f"program p(x: {dtype}[1500]) -> (y: {dtype}[]):\n  var t = cast(2, {dtype})\n"
        f"  for i in 1500:\n    t {combine}= x[i]\n  y[] = t\n"
    )
    program = parsed(text)
    x = values.astype(program.inputs[0].dtype.numpy)
    module = gpu_module(program, target_of_capability(8, 0))
    _, (got,) = run_on_host(program, module, [x])
    wide = np.float64 if "float" in dtype else np.int64
    if dtype != "bfloat16" or combine != "add":  # sums of 16 bits depend on their order
        np.testing.assert_array_equal(got.astype(wide), interpret(program, x)[0].astype(wide))
    (launch,) = launches_of(program, False)
    assert launch.way is LaunchKind.ROWS and (launch.blocks, launch.threads) == (1, 1024)


def test_a_value_that_is_not_a_number_is_found_by_all() -> None:
    x = numbers(5, 300)
    x[2, 17] = np.nan
    run(SOFTMAX, x)


SCATTER = """
program p(at: int32[400], u: {0}[400]) -> (update v: {0}[9]):
  for k in 400:
    let place = cast(at[k], int64)
    check place >= 0, "too low"
    check place < 9, "too high"
  for k in 400:
    let to = minimum(maximum(cast(at[k], int64), 0), 8)
    v[to] add= u[k]
"""


def test_a_sum_and_what_is_made_of_it_are_two_kernels() -> None:
    text = (
        "program p(x: float32[4000]) -> (y: float32[4000]):\n  var t = 0.0\n"
        "  for i in 4000:\n    t add= x[i]\n  let half = t * 0.5\n"
        "  for i in 4000:\n    y[i] = x[i] - half\n"
    )
    assert len(run(text, numbers(4000))) == 1
    program = materialize_names(parsed(text), Context())
    total, rest = run(str(program), numbers(4000))
    assert (total.blocks, total.threads) == (1, 1024) and rest.count == 4000


def in_parts(text: str, *arrays: Any) -> tuple[list[Any], list[Launch]]:
    """The results after the passes, and the launches; the bits are those of every choice."""
    found: list[list[Any]] = []
    program = optimize_for_gpu(parsed(text)).program
    for atomics in (True, False):
        module = gpu_module(program, target_of_capability(8, 0), atomics=atomics)
        failed, results = run_on_host(program, module, arrays)
        assert not failed
        found.append(results)
    for first, second in zip(*found, strict=True):
        assert first.tobytes() == second.tobytes()
    made = launches_of(program, True)
    assert not any(launch.atomic for launch in made)
    return found[0], made


@pytest.mark.parametrize("rows", [257, 256])  # the first of which blocks share unevenly
def test_a_sum_of_all_elements_is_made_by_many_blocks(rows: int) -> None:
    x = numbers(rows, 501).astype(np.float32)
    (y,), (parts, whole, *_) = in_parts(
        f"program p(x: float32[{rows}, 501]) -> (y: float32[]):\n  var t = 1.0\n"
        f"  for i in {rows}:\n    for j in 501:\n      t add= x[i, j] * x[i, j]\n  y[] = t\n",
        x,
    )
    np.testing.assert_allclose(y, 1 + np.square(x.astype(np.float64)).sum(), rtol=1e-6)
    assert parts.way is LaunchKind.ROWS and parts.blocks >= 16 and whole.blocks == 1


@pytest.mark.parametrize("count", [30011, 30000])
def test_sums_of_few_columns_are_made_in_parts(count: int) -> None:
    x = numbers(count, 3)
    text = COLUMNS.replace("200", str(count)).replace("6", "3").replace("j", "k", 2)
    (y,), (parts, whole) = in_parts(text, x)
    np.testing.assert_allclose(y, x.astype(np.float64).sum(0), rtol=1e-4, atol=1e-4)
    assert parts.way is LaunchKind.THREADS and parts.count > 2000 and whole.count == 3


def test_sums_of_images_are_made_of_rows_of_them() -> None:
    x = numbers(4, 40, 40, 5)
    (y,), (parts, _) = in_parts(
        "program p(x: float32[4, 40, 40, 5]) -> (y: float32[5]):\n"
        "  for k in 5:\n    y[k] = 0.0\n  for n in 4:\n    for h in 40:\n"
        "      let at = h\n      for w in 40:\n        for c in 5:\n"
        "          y[c] add= x[n, at, w, c]\n",
        x,
    )
    np.testing.assert_allclose(y, x.astype(np.float64).sum((0, 1, 2)), rtol=1e-4, atol=1e-3)
    assert parts.count >= 4 * 40 * 5


@pytest.mark.parametrize(("rows", "length"), [(2, 40000), (1, 70001), (3, 65537)])
def test_a_softmax_of_few_long_rows_is_shared_by_many_blocks(rows: int, length: int) -> None:
    x = numbers(rows, length)
    (y,), made = in_parts(SOFTMAX.replace("5", str(rows)).replace("300", str(length))
                          .replace("e[299 - j]", "e[j]"), x)  # fmt: skip
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-4)
    assert sum(launch.blocks > rows for launch in made) == 3


def test_rows_that_no_block_can_hold_are_in_memory() -> None:
    x = numbers(130, 10300)  # more than the 40 KiB of a block
    text = SOFTMAX.replace("5", "130").replace("300", "10300").replace("299 - j", "10299 - j")
    (y,), (launch,) = in_parts(text, x)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e[:, ::-1] / e.sum(1, keepdims=True), rtol=1e-4)
    assert launch.way is LaunchKind.ROWS and launch.blocks == 130


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "uint32", "int64"])
@pytest.mark.parametrize("combine", ["add", "mul", "maximum", "minimum"])
def test_parts_begin_with_what_changes_nothing(dtype: str, combine: str) -> None:
    text = (
        f"program p(x: {dtype}[66001]) -> (y: {dtype}[]):\n  var t = x[0]\n"
        f"  for i in 66001:\n    t {combine}= x[i]\n  y[] = t\n"
    )
    x = np.ones(66001).astype(parsed(text).inputs[0].dtype.numpy)
    x[1:4] = [2, 3, 0 if combine == "minimum" else 1]
    if combine == "add":
        x[4:] = 0
    (y,), made = in_parts(text, x)
    assert float(y) == {"add": 8, "mul": 6, "maximum": 3, "minimum": 0}[combine]
    assert made[-2 if len(made) > 1 else 0].blocks >= 1 and made[0].blocks > 10


@pytest.mark.parametrize("combine", ["bit_and", "bit_or"])
@pytest.mark.parametrize("one", [True, False])
def test_bits_of_many_are_combined_in_parts(combine: str, one: bool) -> None:
    x = np.full(66001, not one)
    x[60000] = one
    (y,), made = in_parts(
        f"program p(x: bool[66001]) -> (y: bool[]):\n  var t = x[0]\n"
        f"  for i in 66001:\n    t {combine}= x[i]\n  y[] = t\n",
        x,
    )
    assert bool(y) == (combine == "bit_or") and made[0].blocks > 10


def test_one_value_that_is_not_a_number_is_found_in_whichever_part() -> None:
    x = numbers(66001)
    x[65999] = np.nan
    text = (
        "program p(x: float32[66001]) -> (y: float32[]):\n  var t = -inf\n"
        "  for i in 66001:\n    t maximum= x[i]\n  y[] = t\n"
    )
    assert np.isnan(in_parts(text, x)[0][0])


def test_what_a_later_part_of_a_row_reads_of_an_earlier_one_is_there() -> None:
    x = numbers(2, 40000)
    (y,), made = in_parts(
        "program p(x: float32[2, 40000]) -> (y: float32[2, 40000]):\n  for i in 2:\n"
        "    alloc t: float32[40000]\n    let first = x[i, 0]\n    for j in 40000:\n"
        "      t[j] = x[i, j] * first\n    var s = 0.0\n    for j in 40000:\n"
        "      s add= t[39999 - j]\n    for j in 40000:\n      y[i, j] = t[39999 - j] + s\n",
        x,
    )
    t = x * x[:, :1]
    np.testing.assert_allclose(y, t[:, ::-1] + t.sum(1, keepdims=True), rtol=1e-3, atol=1e-2)
    assert len(made) > 3


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint64"])
def test_scatters_add_up_by_atomic_instructions(dtype: str) -> None:
    at = np.random.default_rng(1).integers(0, 9, 400).astype(np.int32)
    u = np.arange(400).astype(dtype)
    _, launch = run(SCATTER.format(dtype), at, u, np.ones(9, dtype))
    assert launch.atomic == {"v"} and launch.count == 400


def test_scatters_of_floats_are_in_order_where_atomics_are_refused() -> None:
    at = np.random.default_rng(1).integers(0, 9, 400).astype(np.int32)
    _, launch = run(SCATTER.format("float32"), at, numbers(400), numbers(9), atomics=False)
    assert not launch.atomic and launch.count == 1


def test_a_check_that_fails_keeps_later_kernels_from_changing_anything() -> None:
    program = parsed(SCATTER.format("float32"))
    module = gpu_module(program, target_of_capability(8, 0))
    at = np.zeros(400, np.int32)
    at[77] = 9
    failed, (v,) = run_on_host(program, module, [at, numbers(400)], [np.ones(9, np.float32)])
    assert module.messages[failed - 1] == "too high"
    np.testing.assert_array_equal(v, np.ones(9))


def test_random_words_are_made_by_a_thread_for_each_block_of_them() -> None:
    state = np.array([3, 0, 0, 0, 11, 12], np.uint64)
    (launch,) = run(
        "program p(state: uint64[6]) -> (words: uint64[4000]):\n"
        "  call philox(words[0], state[0], blocks=1000)\n",
        state,
    )
    assert launch.count == 1000


def test_what_one_thread_would_take_long_for_is_refused() -> None:
    text = "  for i in 9000000:\n    y[i + 1] = y[i] * 0.5\n"
    program = parsed(f"program p() -> (y: float32[9000001]):\n  y[0] = 1.0\n{text}")
    with pytest.raises(errors.UnimplementedError, match="too few operations"):
        gpu_module(program, target_of_capability(8, 0))


def test_what_a_thread_keeps_is_limited() -> None:
    program = parsed(
        "program p(x: float32[64]) -> (y: float32[64]):\n  for i in 64:\n"
        "    alloc t: float32[2000]\n    t[0] = 1.0\n    for j in 1999:\n"
        "      t[j + 1] = t[j] + x[i]\n    y[i] = t[1999]\n"
    )
    with pytest.raises(errors.UnimplementedError, match="8000 bytes for t"):
        gpu_module(program, target_of_capability(8, 0))


# ------------------------------------------------------------------------------- PTX


@pytest.mark.parametrize("capability", [divmod(each, 10) for each in ARCHITECTURES])
def test_the_assembler_takes_the_kernels(capability: tuple[int, int]) -> None:
    long = SOFTMAX.replace("300", "40000").replace("299", "39999")
    for text in (SOFTMAX, long, COLUMNS.replace("200", "30011"), SCATTER.format("float64")):
        program = optimize_for_gpu(parsed(text)).program
        module = gpu_module(program, target_of_capability(*capability))
        used = registers(module)
        assert len(used) == len(module.steps) and max(used) <= 64


def test_products_and_sums_are_rounded_as_asked_for() -> None:
    """Without its rounding said, NVIDIA's assembler may make one operation of two."""
    text = (
        "program p(x: float32[64]) -> (y: float32[64]):\n"
        "  for i in 64:\n    y[i] = x[i] * x[i] + 1.0 / x[i]\n"
    )
    apart = ptx_of(gpu_module(parsed(text), target_of_capability(8, 0), contract=False))
    assert "fma" not in apart and "mul.rn.f32" in apart and "rcp.rn.f32" in apart
    assert "fma.rn.f32" in ptx_of(gpu_module(parsed(text), target_of_capability(8, 0)))


def test_a_gpu_gets_the_newest_code_that_it_takes() -> None:
    found = [target_of_capability(*each).cpu for each in ((7, 0), (8, 8), (9, 0), (12, 1))]
    assert found == ["sm_70", "sm_87", "sm_90", "sm_120"]
