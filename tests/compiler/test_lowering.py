"""Lowered programs compute the same as the kernels, before and after the passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from weft_testing.ahead import loaded
from weft_testing.cases import Case, load_cases
from weft_testing.gpu_programs import registers, run_on_host

import weft as wf
from weft_compiler.ahead.compiled import compile_program
from weft_compiler.ahead.header import parameters
from weft_compiler.ahead.targets import machine_options
from weft_compiler.codegen.targets import host
from weft_compiler.gpu import launches, split_reductions
from weft_compiler.gpu.module import gpu_module, target_of_capability
from weft_compiler.gpu.pipeline import optimize_for_gpu
from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.lower.complex_numbers import stored_value
from weft_compiler.lower.region import lower, unsupported_reason
from weft_compiler.lower.registry import Unsupported
from weft_compiler.native.program import load
from weft_compiler.passes.pipeline import optimize
from weft_compiler.passes.select_routines import replace_blas
from weft_graph.ir.builder import create
from weft_graph.ir.code_generators import RegionRequest
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_tensor import errors


def lowered(fetches: Sequence[Output], feeds: Sequence[Output], arrays: Sequence[Any]) -> Program:
    """The program of all that fetches need of feeds, verified before and after the passes."""
    nodes = fetches[0].graph.get_operations()
    members = [node for node in nodes if node.role not in (Role.CONSTANT, Role.PLACEHOLDER)]
    constants = [node.outputs[0] for node in nodes if node.role is Role.CONSTANT]
    shapes = [array.shape for array in arrays] + [tuple(out.shape.as_list()) for out in constants]
    program = lower(RegionRequest(members, [*feeds, *constants], fetches, shapes), "test")
    verify(program)
    optimized = optimize(program).program
    assert str(parse(str(optimized))) == str(optimized)
    return optimized


Compute = Callable[[Program, Sequence[Any]], Iterable[Sequence[Any]]]


def interpreted(program: Program, arrays: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """Interpret a program, with the iterations of its loops in both orders."""
    for turns in (range, lambda count: range(count - 1, -1, -1)):
        yield interpret(program, *arrays, iteration_order=turns)


def by_machine_code(program: Program, arrays: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return [load(program)(*arrays)]


def ahead_of_time(program: Program, arrays: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """By an object for the least of these processors, which has no rounding to integers."""
    given = [b for b in program.inputs if b.name not in program.constants]
    ends = [
        parameters([b.name for b in some], [b.dtype for b in some], [b.shape for b in some])
        for some in (given, program.outputs)
    ]
    whole = replace(program, body=replace_blas(program.body))
    least = "x86_64-linux" if host().x86 else "native"
    made = compile_program(whole, *ends, machine_options(least), "row", least)
    return [loaded(made)(*map(stored_value, arrays))]


def on_gpu(program: Program, arrays: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """By kernels for a GPU, on the host: as ever, and all that can be by rows and in parts."""
    for small in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if small:
                patch.setattr(launches, "MIN_ITERATIONS", 2)
                for limit in ("LONG", "PART", "COLUMN"):
                    patch.setattr(split_reductions, limit, 2)
            whole = optimize_for_gpu(replace(program, body=replace_blas(program.body))).program
            module = gpu_module(whole, target_of_capability(8, 0))
        failed, results = run_on_host(whole, module, list(map(stored_value, arrays)))
        assert not failed, module.messages[failed - 1]
        yield results


def assembled(program: Program, arrays: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """Nothing: PTX that NVIDIA's assembler takes, with all numbers in registers."""
    whole = optimize_for_gpu(replace(program, body=replace_blas(program.body))).program
    for capability in ((7, 0), (9, 0), (12, 0)):
        module = gpu_module(whole, target_of_capability(*capability))
        assert len(registers(module)) == len(module.steps)
    return []


def agrees(
    program: Program,
    arrays: Sequence[Any],
    wanted: Sequence[Any],
    rtol: float,
    compute: Compute = interpreted,
) -> None:
    for values in compute(program, arrays):
        for value, want in zip(values, wanted, strict=True):
            want = np.asarray(want)
            if want.dtype.kind == "c" and value.dtype.kind == "f":  # without a caller's interface
                value = value.view(want.dtype)[..., 0]
            assert (value.dtype, value.shape) == (want.dtype, want.shape)
            if value.dtype.kind in "biu":
                np.testing.assert_array_equal(value, want)
            else:
                kind = np.complex128 if want.dtype.kind == "c" else np.float64
                wide = value.astype(kind), want.astype(kind)
                np.testing.assert_allclose(*wide, rtol=rtol, atol=rtol)


def _rows() -> list[Any]:
    return [
        pytest.param(case, dtype, id=f"{family}-{case.name}-{dtype}")
        for family, cases in load_cases().items()
        for case in cases
        for dtype in _some_of(case.dtypes)
        if _can_be_lowered(case, dtype)
    ]


def _some_of(names: Sequence[str]) -> list[str]:
    """A narrow, a wide, a complex and an integer type at most: rules hardly look at types."""
    return [
        name for name in ("bfloat16", "float32", "complex64", "int16", "bool", "") if name in names
    ]


def _built(case: Case, dtype: str) -> tuple[Node, list[Output], list[Any]]:
    constant = iter(case.is_constant())
    feeds: list[Output] = []
    arrays: list[Any] = []

    def place(array: Any) -> Output:
        if next(constant):
            return wf.constant(array)
        feeds.append(wf.placeholder(array.dtype, array.shape))
        arrays.append(array)
        return feeds[-1]

    inputs = [
        [place(a) for a in x] if isinstance(x, list) else place(x) for x in case.arrays(dtype)
    ]
    attrs = dict(case.attrs)
    if dtype and case.type_attr in case.op_def.attrs:
        attrs[case.type_attr] = wf.as_dtype(dtype)
    return create(case.op, inputs, attrs), feeds, arrays


def _can_be_lowered(case: Case, dtype: str) -> bool:
    if case.prepare or not case.op_def.outputs or case.op_def.traits.random:
        return False
    with wf.Graph().as_default():
        try:
            return not unsupported_reason(_built(case, dtype)[0])
        except errors.OpError:
            return False


ROWS = _rows()
REFUSED = ("not supported by the interpreter", "no machine code", "no implementation for GPUs")


def test_most_of_the_cases_of_arithmetic_are_lowered() -> None:
    assert len(ROWS) > 700


@pytest.mark.parametrize(
    "compute",
    [
        pytest.param(interpreted, id=""),
        pytest.param(by_machine_code, id="machine", marks=pytest.mark.long),
        pytest.param(ahead_of_time, id="ahead", marks=pytest.mark.long),
        pytest.param(on_gpu, id="gpu-on-host", marks=pytest.mark.long),
        pytest.param(assembled, id="ptxas", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize(("case", "dtype"), ROWS)
def test_a_lowered_op_computes_what_its_kernel_does(
    case: Case, dtype: str, compute: Compute
) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        node, feeds, arrays = _built(case, dtype)
        try:
            wanted = session.run(list(node.outputs), dict(zip(feeds, arrays, strict=True)))
        except errors.OpError:
            pytest.skip("the kernel refuses it")
        try:
            program = lowered(node.outputs, feeds, arrays)
            names = (dtype, *[output.dtype.name for output in node.outputs])
            limit = 2 * max(case.tolerance.get(name, (0, 0))[0] for name in names)
            agrees(program, arrays, wanted, limit, compute)
        except Unsupported as why:
            pytest.skip(str(why))
        except errors.UnimplementedError as why:
            assert any(each in str(why) for each in REFUSED), why
            pytest.skip(str(why))


@pytest.mark.parametrize("start", range(3))
def test_ops_compiled_ahead_of_time(start: int) -> None:
    """A sample of the rows; all of them are in the long run."""
    for case, dtype in [row.values for row in ROWS[start * 17 :: 51]]:
        with suppress(pytest.skip.Exception):
            test_a_lowered_op_computes_what_its_kernel_does(case, dtype, ahead_of_time)


@pytest.mark.parametrize("start", range(2))
def test_ops_by_kernels_for_gpus(start: int) -> None:
    """A sample of the rows; all of them are in the long run."""
    for case, dtype in [row.values for row in ROWS[start * 29 :: 58]]:
        with suppress(pytest.skip.Exception):
            test_a_lowered_op_computes_what_its_kernel_does(case, dtype, on_gpu)


def test_softmax_becomes_one_loop_over_rows() -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [None, None])
        y = wf.nn.softmax(wf.nn.relu(x) * 2.0)
        array = np.linspace(-3, 3, 40, dtype=np.float32).reshape(4, 10)
        program = lowered([y], [x], [array])
        e = np.exp(np.maximum(array, 0) * 2)
        agrees(program, [array], [e / e.sum(1, keepdims=True)], 1e-6)
    assert str(program).count(" in 4:") == 1 and str(program).count(" in 10:") == 3
    assert str(program).count("exp(") == 1


Model = Callable[[Any], Any]


@pytest.mark.parametrize("width", [1, 7])
@pytest.mark.parametrize(
    "model",
    [
        lambda x: wf.nn.softmax(x),
        lambda x: wf.reduce_mean(wf.tanh(x) * wf.exp(x), 0),
        lambda x: wf.nn.l2_normalize(wf.reshape(x, [-1]), 0),
        lambda x: wf.matmul(wf.transpose(x), wf.sigmoid(x)),
        lambda x: wf.nn.softmax_cross_entropy_with_logits_v2(labels=wf.nn.softmax(x), logits=2 * x),
        lambda x: wf.concat([x[:, ::-1], wf.pad(x, [[0, 0], [1, 2]])], 1) + wf.reduce_max(x),
        lambda x: (x - wf.reduce_mean(x, 1, keepdims=True)) * wf.rsqrt(wf.reduce_sum(x * x) + 1e-3),
    ],
)
def test_models_and_their_gradients_compute_what_kernels_do(model: Model, width: int) -> None:
    array = np.random.default_rng(3).normal(size=(5, width))
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float64, array.shape)
        y = model(x)
        fetches = [y, *wf.gradients(y, x)]
        program = lowered(fetches, [x], [array])
        agrees(program, [array], session.run(fetches, {x: array}), 1e-9)


def test_zeros_of_both_signs_are_kept() -> None:
    ones = np.ones(2, np.float32)
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [2])
        y = x / wf.stack([wf.constant(0.0), wf.constant(-0.0)])
        agrees(lowered([y], [x], [ones]), [ones], [np.array([np.inf, -np.inf], np.float32)], 0.0)
