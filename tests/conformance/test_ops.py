"""Every case: values, element types and static shapes; gradients against finite differences."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from weft_testing.cases import Array, Case, load_cases, widen
from weft_testing.differentiate import directional_error, random_like, vector_jacobian
from weft_testing.evaluate import evaluate
from weft_testing.parts import Parts

from weft_autodiff.gradients.backprop import gradients
from weft_autodiff.registry import gradient_of, not_differentiable
from weft_graph.ir.builder import constant_of, convert_to_tensor, create, out
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_tensor import dtypes
from weft_tensor.shape import is_fully_defined

GRADIENT_TYPES = ("float64", "complex128")
GRADIENT_KNOWLEDGE = ("static", "unknown")


def _forward_rows() -> list[Any]:
    return [
        pytest.param(case, id=f"{family}-{case.name}")
        for family, cases in load_cases().items()
        for case in cases
    ]


class _Built:
    """A case as a graph of one node with fed inputs.

    Args:
      constants: flat positions of inputs that are constants, whatever the knowledge.
    """

    def __init__(
        self, case: Case, dtype: str, knowledge: str, constants: Collection[int] = ()
    ) -> None:
        constant = iter(case.is_constant())
        self.point: dict[Output, Any] = {}
        self.flat: list[Output] = []
        self.arrays = case.arrays(dtype)

        def place(array: Array) -> Output:
            folded = (next(constant) and knowledge == "static") or len(self.flat) in constants
            value = constant_of(array.copy()) if folded else _feed(array, knowledge)
            if not folded:
                self.point[value] = array
            prepare = case.prepare.get(len(self.flat))
            self.flat.append(value)
            return value if prepare is None else prepare(value)

        inputs = [[place(a) for a in x] if isinstance(x, list) else place(x) for x in self.arrays]
        attrs = dict(case.attrs)
        if dtype and case.type_attr in case.op_def.attrs:
            attrs[case.type_attr] = dtypes.as_dtype(dtype)
        self.node: Node = create(case.op, inputs, attrs)

    def evaluate(self) -> tuple[list[Any], list[Any]]:
        """The outputs, and the inputs of the node in the structure of its arguments."""
        outputs, inputs = self.node.outputs, self.node.inputs
        values = evaluate([*outputs, *inputs], self.point)
        taken = iter([np.asarray(value) for value in values[len(outputs) :]])
        arrays = [
            [next(taken) for _ in x] if isinstance(x, list) else next(taken) for x in self.arrays
        ]
        return values[: len(outputs)], arrays


def _feed(array: Array, knowledge: str) -> Output:
    element = dtypes.string if array.dtype.kind == "O" else dtypes.from_numpy(array.dtype)
    shape: Any = array.shape
    if knowledge == "ranked":
        shape = (None,) * array.ndim
    elif knowledge == "unknown":
        shape = None
    return out("TestInput", (), {"dtype": element, "shape": shape})


@pytest.mark.parametrize("case", _forward_rows())
def test_forward(case: Case) -> None:
    with Parts() as parts:
        for dtype in case.dtypes:
            wanted: tuple[Any, ...] | None = None
            for knowledge in case.knowledge:
                with parts.part(f"{dtype}, {knowledge} shapes"):
                    outputs, results, arrays = _forward(case, dtype, knowledge)
                    if case.expected is None:
                        continue
                    wanted = wanted or _wanted(case, arrays)
                    for output, got, want in zip(outputs, results, wanted, strict=True):
                        _compare(case, output, got, np.asarray(want))


def _forward(case: Case, dtype: str, knowledge: str) -> tuple[list[Output], list[Any], list[Any]]:
    """The outputs, their values, and the inputs' values."""
    with Graph().as_default():
        built = _Built(case, dtype, knowledge)
        outputs = built.node.outputs
        results, arrays = built.evaluate()
        if knowledge == "static" and case.static:
            assert all(is_fully_defined(output.dims) for output in outputs), outputs
    return list(outputs), results, arrays


def _wanted(case: Case, arrays: list[Any]) -> tuple[Any, ...]:
    """Return NumPy's results for the inputs."""
    assert case.expected is not None
    wide = [[widen(a) for a in x] if isinstance(x, list) else widen(x) for x in arrays]
    with np.errstate(all="ignore"):
        wanted = case.expected(*wide)
    return wanted if isinstance(wanted, tuple) else (wanted,)


def _compare(case: Case, output: Output, got: Any, want: Array) -> None:
    assert got.shape == want.shape, f"{output!r}: shape {got.shape}, expected {want.shape}"
    limits = case.tolerance.get(output.dtype.name)
    if limits is None:
        np.testing.assert_array_equal(got, want.astype(got.dtype))
        return
    relative, absolute = limits
    np.testing.assert_allclose(widen(np.asarray(got)), want, rtol=relative, atol=absolute)


@cache
def _gradient_rows() -> list[Any]:
    return [
        pytest.param(case, id=f"{family}-{case.name}")
        for family, cases in load_cases().items()
        for case in cases
        if any(dtype in case.dtypes for dtype in GRADIENT_TYPES)
        if any(knowledge in case.knowledge for knowledge in GRADIENT_KNOWLEDGE)
        if _is_differentiated(case)
    ]


def _is_differentiated(case: Case) -> bool:
    if case.grad is not None:
        return case.grad is not False
    try:
        with Graph().as_default():
            node = _Built(case, case.dtypes[0], case.knowledge[0]).node
            return gradient_of(node).function is not not_differentiable
    except Exception:  # because the item of the case then fails by itself
        return True


@pytest.mark.parametrize("case", _gradient_rows())
def test_gradient(case: Case) -> None:
    with Parts() as parts:
        for dtype in GRADIENT_TYPES:
            for knowledge in GRADIENT_KNOWLEDGE:
                if dtype in case.dtypes and knowledge in case.knowledge:
                    with parts.part(f"{dtype}, {knowledge} shapes"), Graph().as_default():
                        _check_gradient(case, _Built(case, dtype, knowledge))


def _check_gradient(case: Case, built: _Built) -> None:
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    ys = [y for y in built.node.outputs if y.dtype.is_floating or y.dtype.is_complex]
    xs = [built.flat[i] for i in _positions(case)]
    grads, seeds = _differentiate(ys, xs, built.point, rng)
    _check_direction(case, ys, grads, xs, built.point, seeds, rng)
    ys = [grad for grad in grads if grad is not None]
    if case.order < 2 or not ys:
        return
    grads, more = _differentiate(ys, xs, built.point | seeds, rng)
    _check_direction(case, ys, grads, xs, built.point | seeds, more, rng)


def _positions(case: Case) -> list[int]:
    if case.grad is None or case.grad is True:
        return case.varied()
    assert not isinstance(case.grad, bool)
    return list(case.grad)


def _differentiate(
    ys: list[Output], xs: list[Output], point: dict[Output, Any], rng: np.random.Generator
) -> tuple[list[Output | None], dict[Output, Any]]:
    """Gradients of the outputs for random seeds, which are fed like any input."""
    values = evaluate(ys, point)
    seeds = [random_like(rng, np.asarray(value)) for value in values]
    fed = [_feed(seed, "static") for seed in seeds]
    return vector_jacobian(ys, fed, xs), dict(zip(fed, seeds, strict=True))


def _check_direction(
    case: Case,
    ys: list[Output],
    grads: list[Output | None],
    xs: list[Output],
    point: dict[Output, Any],
    fed: dict[Output, Any],
    rng: np.random.Generator,
) -> None:
    seeds = dict(zip(ys, fed.values(), strict=True))
    expected, found = directional_error(ys, grads, xs, point | fed, seeds, rng)
    scale = max(abs(expected), abs(found), 1.0)
    assert abs(expected - found) <= case.grad_tolerance * scale, (
        f"derivative {expected} by differences, {found} by gradients"
    )


# ------------------------------------------------------- gradients by and beside constants


@pytest.mark.parametrize("family", load_cases())
def test_gradient_of_constants(family: str) -> None:
    """A constant input does not change the gradients by any input."""
    rows = [row.values[0] for row in _gradient_rows() if row.id.startswith(f"{family}-")]
    if not rows:
        return
    with Parts() as parts:
        for case in rows:
            dtype = next(dtype for dtype in GRADIENT_TYPES if dtype in case.dtypes)
            fed = _gradients(case, dtype, ())
            for constants in _subsets(_positions(case)):
                with parts.part(f"{case.name}, constants {sorted(constants)}"):
                    _check_same(_gradients(case, dtype, constants), fed)


def _subsets(positions: list[int]) -> Iterator[set[int]]:
    """All positions, and where they are few each alone and all but each."""
    whole = set(positions)
    yield whole
    if 1 < len(whole) <= 3:
        yield from [{position} for position in positions]
    if len(whole) == 3:
        yield from [whole - {position} for position in positions]


def _gradients(case: Case, dtype: str, constants: Collection[int]) -> list[Any]:
    """The gradients by all inputs at once, then by each alone if they are few; None for none."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    with Graph().as_default():
        built = _Built(case, dtype, "static", constants)
        ys = [y for y in built.node.outputs if y.dtype.is_floating or y.dtype.is_complex]
        seeds = [random_like(rng, np.asarray(v)) for v in evaluate(ys, built.point)]
        starts = [constant_of(np.asarray(seed)) for seed in seeds]
        xs = [built.flat[i] for i in _positions(case)]
        found = gradients(ys, xs, starts)
        if 1 < len(xs) <= 3:
            found += [gradients(ys, x, starts)[0] for x in xs]
        there = [convert_to_tensor(grad) for grad in found if grad is not None]
        values = iter(evaluate(there, built.point))
        return [None if grad is None else next(values) for grad in found]


def _check_same(found: list[Any], wanted: list[Any]) -> None:
    assert [value is None for value in found] == [value is None for value in wanted]
    for value, want in zip(found, wanted, strict=True):
        if want is not None:
            np.testing.assert_allclose(value, want, rtol=1e-9, atol=1e-12)
