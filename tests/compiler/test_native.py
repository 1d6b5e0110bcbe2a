"""Calls of programs: arrays that are not as declared, threads, lifetimes, and the cache."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import least_growth

from weft import errors
from weft_compiler.codegen.module import module_of
from weft_compiler.codegen.targets import host
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Program
from weft_compiler.native import cache, entry
from weft_compiler.native.layouts import ArrayHeader
from weft_compiler.native.program import NativeProgram, load

SCALED = """
program scaled(x: float32[4, 6], s: float32[]) -> (y: float32[4, 6]):
  for i in 4:
    vector j in 6:
      y[i, j] = x[i, j] * s[]
"""
TEAM = """
program team(x: float64[1000, 8]) -> (y: float64[1000, 8], total: float64[8]):
  var worst = 100.0:float64
  alloc t: float64[1000, 8]
  for again in 3:
    let scale = cast(again, float64) + worst
    parallel i in 1000:
      alloc local: float64[2000]
      vector j in 8:
        local[j] = x[i, j] * scale
      check x[i, 0] < 50.0:float64, "small numbers were required"
      for j in 8:
        t[i, j] = local[j]
    parallel k in 1000:
      for j in 8:
        y[k, j] = t[999 - k, j] + worst
    worst = worst + y[0, 0]
  for j in 8:
    total[j] = 0.0:float64
  for i in 1000:
    for j in 8:
      total[j] add= y[i, j]
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cache of the test's own."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    cache.directory.cache_clear()
    yield tmp_path / "cache"
    cache.directory.cache_clear()


def scaled() -> NativeProgram:
    return load(parse(SCALED))


def test_arrays_that_are_not_as_declared_are_copied_or_refused() -> None:
    program = scaled()
    x, s = np.arange(24, dtype=np.float32).reshape(4, 6), np.float32(2)
    assert program.enter(x, np.array(s), np.empty_like(x)) is None
    turned = np.asfortranarray(x)
    odd = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(4, 6)
    for given in (x, turned, odd, np.repeat(x, 2, 1)[:, ::2]):
        (y,) = program(given, s)
        np.testing.assert_array_equal(y, 2 * x)
    spread = np.zeros((4, 12), np.float32)[:, ::2]
    (y,) = program(x, s, out=[spread])
    assert y is spread and (spread == 2 * x).all()
    frozen = np.empty_like(x)
    frozen.flags.writeable = False
    for wrong in ((x.astype(np.float64), s), (x[:3], s), (x,), (x, s, s), ("no", s)):
        with pytest.raises(errors.InvalidArgumentError):
            program(*wrong)
    with pytest.raises(errors.InvalidArgumentError, match="must be writeable"):
        program(x, s, out=[frozen])
    refused: list[tuple[Any, ...]] = [(), (x,), (1, 2, 3), (x, s, frozen)]
    assert all(program.enter(*each) is NotImplemented for each in refused)


def test_constants_are_part_of_the_program() -> None:
    program = parse(SCALED)
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for s in (2, 3):
        known = replace(program, constants={"s": np.array(s, np.float32)})
        np.testing.assert_array_equal(load(known)(x)[0], s * x)
    both = replace(program, constants={"x": x})
    np.testing.assert_array_equal(load(both)(np.float32(5))[0], 5 * x)


def test_code_lives_as_long_as_its_callable() -> None:
    x, out = np.ones((4, 6), np.float32), np.empty((4, 6), np.float32)
    enter = scaled().enter
    gc.collect()
    for _ in range(10):
        assert enter(x, np.array(3, np.float32), out) is None
    assert (out == 3).all()


def test_equal_programs_share_their_code() -> None:
    first, second = scaled(), load(replace(parse(SCALED), name="other"))
    assert first.code is second.code


def test_programs_that_differ_in_names_alone_share_their_code() -> None:
    """Each program has its own error messages."""
    text = """
program {0}({0}_x: float32[4], {0}_n: int64[]) -> ({0}_y: float32[4]):
  check {0}_n[] < 3, "{0} is too much"
  alloc {0}_z: float32[4]
  for {0}_i in 4:
    let {0}_a = {0}_x[{0}_i] * 2.0
    {0}_z[{0}_i] = {0}_a
  vector {0}_j in 4:
    {0}_y[{0}_j] = {0}_z[{0}_j] + 1.0
"""
    first, second, other = [load(parse(text.format(name))) for name in ("p", "q", "r")]
    assert first.code is second.code is other.code
    x = np.arange(4, dtype=np.float32)
    assert (second(x, np.int64(2))[0] == 2 * x + 1).all()
    with pytest.raises(errors.InvalidArgumentError, match="q is too much"):
        second(x, np.int64(3))
    assert load(parse(text.format("p").replace("2.0", "3.0"))).code is not first.code


def test_unknown_builds_enter_through_ctypes(monkeypatch: pytest.MonkeyPatch) -> None:
    class OtherHeader(ctypes.Structure):
        _fields_ = (
            *ArrayHeader._fields_[:-3],
            ("dtype", ctypes.c_void_p),
            ("base", ctypes.c_void_p),
            ("flags", ctypes.c_int32),
        )

    monkeypatch.setattr(entry, "ArrayHeader", OtherHeader)
    entry.are_headers_readable.cache_clear()
    from weft_compiler.native import program as module

    module._readable_or_warn.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="ctypes"):
            program = scaled()
        x = np.ones((4, 6), np.float32)
        assert (program(x, np.float32(2))[0] == 2).all()
    finally:
        monkeypatch.undo()
        entry.are_headers_readable.cache_clear()
        module._readable_or_warn.cache_clear()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_run_a_program_together(threads: int) -> None:
    program = load(parse(TEAM))
    x = np.random.default_rng(3).normal(size=(1000, 8))
    alone = program(x)
    program.threads = threads
    for _ in range(20):
        y, total = program(x)
        np.testing.assert_array_equal(y, alone[0])
        np.testing.assert_array_equal(total, alone[1])
    x[990, 0] = 60
    with pytest.raises(errors.InvalidArgumentError, match="small numbers"):
        program(x)


def test_calls_at_the_same_time_have_arenas_of_their_own() -> None:
    program = load(parse(TEAM))
    random = np.random.default_rng(3)
    given = [random.normal(size=(1000, 8)) for _ in range(4)]
    known = [program(x)[0] for x in given]
    wrong: list[int] = []

    def work(at: int) -> None:
        for _ in range(30):
            if not (program(given[at])[0] == known[at]).all():
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


@pytest.mark.parametrize(
    "name",
    ["bool", "int8", "uint16", "int32", "int64", "float16", "bfloat16", "float32", "float64"],
)
def test_scalars_of_numpy_are_entered_as_they_are(name: str) -> None:
    text = f"program same(x: {name}[]) -> (y: {name}[]):\n  y[] = x[]\n"
    program = load(parse(text))
    dtype = program.program.inputs[0].dtype.numpy
    filled = np.zeros((), dtype)
    one = dtype.type(1)
    assert program.enter(one, filled) is None and filled == one
    for other in (np.complex64(1), 1, 1.0, None, np.longdouble(1), np.ones(1, dtype)):
        assert program.enter(other, filled) is NotImplemented
    assert program.enter(one, dtype.type(0)) is NotImplemented  # nobody may write to it


def test_a_brief_call_ends_where_it_looks_at_its_flag() -> None:
    turns = "  y[] = 0\n  while y[] < x[]:\n    y[] = y[] + 1\n"
    program = load(parse(f"program count(x: int64[]) -> (y: int64[]):\n{turns}"))
    filled = np.zeros((), np.int64)
    assert program.enter_briefly(np.int64(100), filled) is None and filled == 100
    assert isinstance(program.enter_briefly(np.int64(1 << 62), filled), int)
    assert program.enter(np.int64(1 << 20), filled) is None and filled == 1 << 20
    program.interrupt()
    assert isinstance(program.enter(np.int64(1 << 62), filled), int)


def test_a_loop_without_end_is_interrupted() -> None:
    program = load(
        parse(
            "program endless() -> (y: int64[]):\n  y[] = 0\n  while y[] >= 0:\n    y[] = 1 - y[]\n"
        )
    )
    done: list[Any] = []

    def work() -> None:
        with pytest.raises(errors.CancelledError) as raised:
            program()
        done.append(raised)

    thread = threading.Thread(target=work)
    program.interrupt()
    thread.start()
    thread.join(60)
    assert done


def test_machine_code_is_kept_on_disk(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SCALED.replace("* s[]", "+ s[]")
    x = np.ones((4, 6), np.float32)
    load(parse(text))(x, np.float32(1))
    gc.collect()
    (kept,) = place.glob("*.scaled.o")
    assert place.stat().st_mode & 0o777 == 0o700 and not kept.stat().st_mode & 0o022
    compiled: list[str] = []
    monkeypatch.setattr(
        "weft_compiler.native.program.object_code",
        lambda text, target: compiled.append(text) or object_code(text, target),
    )
    from weft_compiler.codegen.targets import object_code

    assert (load(parse(text))(x, np.float32(2))[0] == 3).all() and not compiled
    gc.collect()
    content = kept.read_bytes()
    for wrong in (content[:-1], content[:40] + b"\0" + content[41:], b"", b"not code"):
        kept.write_bytes(wrong)
        assert (load(parse(text))(x, np.float32(2))[0] == 3).all()
        gc.collect()
        assert kept.read_bytes() == content  # compiled again, and kept
    assert len(compiled) == 4
    kept.chmod(0o666)
    load(parse(text))
    assert len(compiled) == 5


def test_a_place_that_others_can_write_is_not_used(place: Path) -> None:
    place.mkdir(0o777)
    place.chmod(0o777)
    assert cache.directory() is None
    assert (scaled()(np.ones((4, 6), np.float32), np.float32(2))[0] == 2).all()
    assert not list(place.iterdir())


def test_what_was_used_longest_ago_goes_first(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_BYTES", "5000")
    for at in range(8):
        cache.compile_object(f"n{at}", str(at), host(), lambda: bytes(1000))
        for path in place.glob(f"*.n{at}.o"):
            os.utime(path, (at, at))
    left = sorted(path.suffixes[-2] for path in place.iterdir())
    assert left[-1] == ".n7" and ".n0" not in left and len(left) < 8


def test_each_process_keeps_the_limit_and_what_is_not_ours(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE_BYTES", "5000")
    place.mkdir(0o700)
    other = place / "thesis.o"
    other.write_bytes(bytes(9000))
    os.utime(other, (0, 0))
    for at in range(20):  # each keeps less than what one looks after
        monkeypatch.setattr(cache, "_since_trim", {})
        cache.compile_object(f"n{at}", str(at), host(), lambda: bytes(1000))
    assert other.exists()
    assert sum(path.stat().st_size for path in place.iterdir()) <= 9000 + 5000


def test_an_entry_of_which_any_byte_is_wrong_is_compiled_again(place: Path) -> None:
    made: list[int] = []

    def compiled() -> bytes:
        made.append(1)
        return bytes(range(64))

    def image() -> bytes:
        return cache.compile_object("flipped", "text", host(), compiled)

    image()
    (kept,) = place.iterdir()
    content = kept.read_bytes()
    for at in range(len(content)):
        kept.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        assert image() == bytes(range(64)) and len(made) == at + 2
        assert kept.read_bytes() == content


@pytest.mark.skipif(sys.platform != "linux", reason="wants a place that not even root can write")
@pytest.mark.parametrize("where", ["/proc/there/is/none", "/proc/{}", "/dev/null/no"])
def test_a_place_that_cannot_be_written_is_tolerated(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE", where.format(os.getpid()))
    cache.directory.cache_clear()
    text = SCALED.replace("* s[]", "- s[]")
    (found,) = load(parse(text))(np.ones((4, 6), np.float32), np.float32(3))
    assert (found == -2).all()


def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_BYTES", "1e9")
    monkeypatch.setattr(cache, "_since_trim", {cache.directory(): 0})
    with pytest.raises(errors.InvalidArgumentError, match="WEFT_CACHE_BYTES must be a number"):
        cache.compile_object("n", "text", host(), lambda: bytes(10))


def test_processes_share_the_cache(place: Path) -> None:
    script = f"""
import numpy as np
from weft_compiler.ir.parser import parse
from weft_compiler.native.program import load
for s in range(3):
    text = {SCALED!r}.replace("* s[]", f"* s[] + {{s}}.0")
    assert (load(parse(text))(np.ones((4, 6), np.float32), np.float32(2))[0] == 2 + s).all()
"""
    running = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(2)]
    assert [each.wait(120) for each in running] == [0, 0]
    assert len(list(place.glob("*.scaled.o"))) == 3
    assert not list(place.glob(".new-*"))


def test_memory_does_not_grow_with_compilations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first compilations fill LLVM's own caches."""
    monkeypatch.setenv("WEFT_CACHE", "off")
    cache.directory.cache_clear()
    base = parse("program p(x: float32[4]) -> (y: float32[4]):\n  for i in 4:\n    y[i] = x[i]\n")

    shifts = itertools.count()

    def compile_some() -> None:
        for at in itertools.islice(shifts, 40):
            program = _shifted(base, at)
            assert load(program)(np.zeros(4, np.float32))[0][0] == at
        gc.collect()

    # A program's code takes some pages while it is loaded.
    assert least_growth(compile_some) < 40 * 20_000


def _shifted(program: Program, by: int) -> Program:
    return parse(str(program).replace("x[i]", f"x[i] + {by}.0"))


def test_llvm_says_nothing_of_loops_that_divide_places(capfd: pytest.CaptureFixture[str]) -> None:
    tiled = """
program tiled(x: float32[64, 64]) -> (y: float32[64, 192]):
  for i in 64:
    vector j in 192:
      y[i, j] = x[i, floor_mod(j, 64)] + 1.0
"""
    x = np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32)
    assert (load(parse(tiled))(x)[0] == np.tile(x, 3) + 1).all()
    assert capfd.readouterr().err == ""


def test_modules_of_one_program_are_the_same() -> None:
    assert module_of(parse(TEAM)).text == module_of(parse(TEAM)).text
