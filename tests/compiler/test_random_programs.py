"""Random loop nests compute the same compiled and interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from weft_testing.gpu_programs import run_on_host

from weft_compiler.codegen.options import Options
from weft_compiler.gpu import launches
from weft_compiler.gpu.module import gpu_module, target_of_capability
from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.native.program import load

SIZE = 6
TYPES = ("float32", "float64", "int32", "int64", "bfloat16", "bool")
BINARY = {
    "f": ("add", "sub", "mul", "minimum", "maximum", "div"),
    "i": ("add", "sub", "mul", "minimum", "maximum", "bit_xor", "bit_and"),
    "b": ("bit_and", "bit_or", "bit_xor"),
}
COMBINERS = {"f": ("minimum", "maximum"), "i": ("add", "bit_xor", "maximum"), "b": ("bit_or",)}


def kind(dtype: str) -> str:
    return "b" if dtype == "bool" else "i" if dtype.startswith("int") else "f"


class _Writer:
    """Generates a random program, statement by statement; the result is verified afterwards."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.count = 0

    def pick(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def index(self, loops: list[str]) -> str:
        choices = [str(self.draw(st.integers(0, SIZE - 1)))]
        choices += [*loops, *(f"{SIZE - 1} - {loop}" for loop in loops)]
        return str(self.pick(choices))

    def value(self, dtype: str, names: dict[str, str], loops: list[str], depth: int = 3) -> str:
        known = [name for name, of in names.items() if of == dtype]
        leaf = self.pick(("load", "load", "constant", *(["name"] if known else [])))
        if depth and self.draw(st.booleans()):
            return self.application(dtype, names, loops, depth)
        if leaf == "name":
            return str(self.pick(known))
        if leaf == "load":
            return f"x_{dtype}[{self.index(loops)}, {self.index(loops)}]"
        number = self.draw(st.integers(-3, 3))
        return (
            ("true" if number > 0 else "false") if dtype == "bool" else f"cast({number}, {dtype})"
        )

    def application(self, dtype: str, names: dict[str, str], loops: list[str], depth: int) -> str:
        below = depth - 1
        how = self.pick(("binary", "binary", "where", "cast", "compare"))
        if how == "where":
            condition = self.value("bool", names, loops, below)
            chosen = [self.value(dtype, names, loops, below) for _ in range(2)]
            return f"where({condition}, {chosen[0]}, {chosen[1]})"
        if how == "cast" and dtype in ("float64", "int64"):
            of = "float32" if dtype == "float64" else "int32"
            return f"cast({self.value(of, names, loops, below)}, {dtype})"
        if how == "compare" and dtype == "bool":
            of = self.pick(("float32", "int32", "int64", "bfloat16"))
            x, y = (self.value(of, names, loops, below) for _ in range(2))
            return f"{self.pick(('less', 'greater_equal', 'not_equal'))}({x}, {y})"
        x, y = (self.value(dtype, names, loops, below) for _ in range(2))
        return f"{self.pick(BINARY[kind(dtype)])}({x}, {y})"

    def body(self, indent: str, names: dict[str, str], loops: list[str], depth: int) -> None:
        """Some statements; at least one."""
        names = dict(names)
        for _ in range(self.draw(st.integers(1, 3))):
            how = self.pick(("let", "loop", "loop", "if", "reduce", "store"))
            if how == "loop" and depth:
                self.loop(indent, names, loops, depth)
            elif how == "if" and depth:
                self.lines.append(f"{indent}if {self.value('bool', names, loops)}:")
                self.body(indent + "  ", names, loops, depth - 1)
            elif how == "reduce":
                self.reduction(indent, names, loops)
            elif how == "let":
                dtype, name = self.pick(TYPES), self.name("a")
                self.lines.append(f"{indent}let {name} = {self.value(dtype, names, loops)}")
                names[name] = dtype
            else:
                self.store(indent, names, loops)

    def loop(self, indent: str, names: dict[str, str], loops: list[str], depth: int) -> None:
        order = "for" if loops else self.pick(("for", "parallel"))
        self.lines.append(f"{indent}{order} {(i := self.name('i'))} in {SIZE}:")
        if order == "parallel" or self.draw(st.booleans()):
            self.store(indent + "  ", names, [i, *loops])
        else:
            self.body(indent + "  ", names, [i, *loops], depth - 1)

    def reduction(self, indent: str, names: dict[str, str], loops: list[str]) -> None:
        dtype, name, i = self.pick(TYPES), self.name("r"), self.name("i")
        combine = self.pick(COMBINERS[kind(dtype)])
        self.lines.append(f"{indent}var {name} = {self.value(dtype, names, loops, 1)}")
        self.lines.append(f"{indent}{self.pick(('for', 'vector'))} {i} in {SIZE}:")
        value = self.value(dtype, names, [i, *loops])
        self.lines.append(f"{indent}  {name} {combine}= {value}")
        names[name] = dtype

    def store(self, indent: str, names: dict[str, str], loops: list[str]) -> None:
        """A row of an output, by a loop that may be a vector's, or an element."""
        dtype = self.pick(TYPES)
        row = loops[0] if loops else "0"
        if self.draw(st.booleans()):
            i = self.name("i")
            self.lines.append(f"{indent}{self.pick(('for', 'vector'))} {i} in {SIZE}:")
            value = self.value(dtype, names, [i, *loops])
            self.lines.append(f"{indent}  y_{dtype}[{row}, {i}] = {value}")
        else:
            value = self.value(dtype, names, loops)
            self.lines.append(f"{indent}y_{dtype}[{row}, 1] = {value}")


@st.composite
def programs(draw: Any) -> str:
    writer = _Writer(draw)
    for dtype in TYPES:  # every element of each output
        writer.lines.append(f"  for z{dtype} in {SIZE}:\n    vector w{dtype} in {SIZE}:")
        zero = "false" if dtype == "bool" else f"cast(0, {dtype})"
        writer.lines.append(f"      y_{dtype}[z{dtype}, w{dtype}] = {zero}")
    writer.body("  ", {}, [], 3)
    inputs = ", ".join(f"x_{dtype}: {dtype}[{SIZE}, {SIZE}]" for dtype in TYPES)
    outputs = ", ".join(f"y_{dtype}: {dtype}[{SIZE}, {SIZE}]" for dtype in TYPES)
    return f"program drawn({inputs}) -> ({outputs}):\n" + "\n".join(writer.lines) + "\n"


def inputs_of(program: Program, seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    return [
        random.integers(-4, 5, (SIZE, SIZE)).astype(buffer.dtype.numpy) for buffer in program.inputs
    ]


def same(text: str, seed: int, cpu: str, bounds: bool) -> None:
    program = parse(text)
    verify(program)
    inputs = inputs_of(program, seed)
    expected = interpret(program, *inputs)
    whole = bool(seed % 2)  # else each nest is compiled by itself
    options = Options(contract=False, cpu=cpu, bounds_checks=bounds, threads=whole)
    got = load(program, options)(*inputs)
    agree(got, expected, text)


def same_on_gpu(text: str, seed: int) -> None:
    program = parse(text)
    inputs = inputs_of(program, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launches, "MIN_ITERATIONS", 2)
        module = gpu_module(program, target_of_capability(8, 0), contract=False)
    failed, got = run_on_host(program, module, inputs)
    assert not failed
    agree(got, interpret(program, *inputs), text)


def agree(got: Any, expected: Any, text: str) -> None:
    for x, y in zip(got, expected, strict=True):
        wide = np.float64 if x.dtype.kind in "fV" else x.dtype
        np.testing.assert_array_equal(x.astype(wide), y.astype(wide), err_msg=text)


@settings(max_examples=25, deadline=None)
@given(programs(), st.integers(0, 99), st.sampled_from(("", "x86-64-v3", "x86-64")), st.booleans())
def test_random_programs(text: str, seed: int, cpu: str, bounds: bool) -> None:
    same(text, seed, cpu, bounds)


@pytest.mark.long
@settings(max_examples=3000, deadline=None)
@given(programs(), st.integers(0, 99), st.sampled_from(("", "x86-64-v3", "x86-64")), st.booleans())
def test_many_random_programs(text: str, seed: int, cpu: str, bounds: bool) -> None:
    same(text, seed, cpu, bounds)


@settings(max_examples=20, deadline=None)
@given(programs(), st.integers(0, 99))
def test_random_programs_by_kernels_for_gpus(text: str, seed: int) -> None:
    same_on_gpu(text, seed)


@pytest.mark.long
@settings(max_examples=2000, deadline=None)
@given(programs(), st.integers(0, 99))
def test_many_random_programs_by_kernels_for_gpus(text: str, seed: int) -> None:
    same_on_gpu(text, seed)
