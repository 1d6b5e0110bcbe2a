"""A routine is one module and one row: the rest of the compiler asks its calls."""

from __future__ import annotations

import numpy as np
import pytest
from weft_testing.scale_routine import Scale

from weft_compiler.codegen.module import module_of
from weft_compiler.codegen.parallel_split import cut_of
from weft_compiler.interpreter import interpret
from weft_compiler.ir.expressions import INDEX, Constant, Load, index
from weft_compiler.ir.nests import bytes_moved, flops
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Call, Program, operand_names, walk
from weft_compiler.ir.registry import register, routine, routines
from weft_compiler.ir.verifier import verify
from weft_compiler.lower.shape_polymorphism import extract_numbers, generalize
from weft_compiler.native.program import load
from weft_compiler.passes.pipeline import optimize
from weft_compiler.routines.gemm import Gemm, Matmul
from weft_compiler.routines.registry import ROUTINES, libraries, library_routines
from weft_tensor import dtypes, errors

SIZE = 3 << 20
TEXT = """
program scale(x: float32[{size}]) -> (y: float32[{size}]):
  call test_scale(x[0], y[0], count={size}, at 3)
"""


def scale(size: int = SIZE) -> Program:
    program = parse(TEXT.format(size=size))
    verify(program)
    return program


def test_a_new_routine_is_parsed_and_printed() -> None:
    program = scale()
    (call,) = program.body
    assert isinstance(call, Scale)
    assert (call.count, call.x.buffer, str(call.factor)) == (SIZE, "x", "3")
    assert str(program).strip() == TEXT.format(size=SIZE).strip()
    assert "test_scale" in routines()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_new_routine_is_interpreted_compiled_and_split(threads: int) -> None:
    program = optimize(scale()).program
    x = np.arange(SIZE, dtype=np.float32)
    (expected,) = interpret(program, x)
    native = load(program)
    native.threads = threads
    (actual,) = native(x)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(actual, 3 * x)
    assert module_of(program).shares, "no thread can take a part"
    assert module_of(scale(1000)).shares is False


def test_a_new_routine_has_work_memory_and_a_split() -> None:
    program = scale()
    (call,) = program.body
    assert isinstance(call, Scale)
    cut = cut_of(call)
    assert cut is not None
    assert (cut.size, cut.count) == ("count", SIZE)
    assert flops(program.body) == 2 * SIZE
    assert bytes_moved(program.body, program) == 8 * SIZE


def test_a_new_routine_may_have_a_symbolic_size() -> None:
    first, second = scale(100), scale(300)
    family = generalize(extract_numbers(first), extract_numbers(second), first)
    assert family is not None
    verify(family.program)
    (call,) = [each for each in walk(family.program.body) if isinstance(each, Call)]
    assert call.sizes
    x = np.arange(family.program.inputs[1].size, dtype=np.float32)
    for run in (interpret, lambda program, *inputs: load(program)(*inputs)):
        (y,) = run(family.program, np.array(200), x)
        np.testing.assert_array_equal(y[:200], 3 * x[:200])


def test_wrong_calls_of_a_new_routine_are_refused() -> None:
    text = TEXT.format(size=8)
    with pytest.raises(errors.InternalError, match="x needs 9 elements, but has 8"):
        verify(parse(text.replace("count=8", "count=9")))
    with pytest.raises(errors.InternalError, match="a count of at least 1"):
        verify(parse(text.replace("count=8", "count=0")))
    with pytest.raises(errors.InvalidArgumentError, match=r"test_scale\(x, y, count=, at factor\)"):
        parse(text.replace("count=8", "size=8"))
    with pytest.raises(errors.UnimplementedError, match="no machine code for test_scale of int8"):
        module_of(parse(text.replace("float32", "int8")))
    with pytest.raises(errors.NotFoundError, match="unknown routine 'other'"):
        parse(text.replace("test_scale", "other"))


def test_a_name_has_one_routine() -> None:
    class Other(Scale):
        """Another routine with the name."""

    with pytest.raises(errors.AlreadyExistsError, match="test_scale"):
        register(Other)


@pytest.mark.parametrize("each", ROUTINES, ids=lambda each: each.routine)
def test_routines_are_complete(each: type[Call]) -> None:
    names = operand_names(each)
    assert routine(each.routine) is each
    assert names.views
    assert names.outputs
    assert {*names.outputs} <= {*names.views}
    for method in ("spans", "error", "reference", "work"):
        assert getattr(each, method) is not getattr(Call, method), method


def test_each_routine_has_machine_code_of_one_kind() -> None:
    in_libraries = [name for each in libraries() for name in library_routines(each)]
    assert len(in_libraries) == len(set(in_libraries))
    others = {each.routine for each in ROUTINES} - {*in_libraries}
    assert others == {"gemm", "small_matmul", "philox"}


def test_a_product_converts_to_another_routine() -> None:
    view = Load(dtypes.float32, "x", (index(0), index(0)))
    sizes = {"m": 2, "n": 3, "k": 4, "a_row": 4, "a_column": 1, "b_row": 3, "b_column": 1}
    gemm = Gemm(view, view, view, **sizes, c_row=3, sizes=(("m", Constant(INDEX, 2)),))
    product = gemm.convert(Matmul)
    assert isinstance(product, Matmul)
    assert (product.views, product.parameters, product.sizes) == (
        gemm.views,
        gemm.parameters,
        gemm.sizes,
    )
