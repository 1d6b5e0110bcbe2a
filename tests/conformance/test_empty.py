"""All cases with an empty axis: empty results, zeros, or a named error.

Gradients have the shapes of the inputs then, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
import pytest
from weft_testing.cases import Array, Case, load_cases
from weft_testing.evaluate import evaluate
from weft_testing.parts import Parts

import weft as wf
from weft_graph.ir.builder import constant_of, create, out
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_tensor import dtypes, errors


def _without(array: Array, axis: int) -> Array:
    return np.zeros((*array.shape[:axis], 0, *array.shape[axis + 1 :]), array.dtype)


def _emptied(arrays: list[Array], constant: list[bool]) -> Iterator[list[Array]]:
    """The inputs with an axis of one emptied, and with all axes of one size."""
    varied = [i for i, fixed in enumerate(constant) if not fixed]
    for i in varied:
        for axis in range(arrays[i].ndim):
            yield [_without(a, axis) if j == i else a for j, a in enumerate(arrays)]
    for size in {n for i in varied for n in arrays[i].shape if n}:
        found = list(arrays)
        for i in varied:
            for axis, n in enumerate(arrays[i].shape):
                found[i] = _without(found[i], axis) if n == size else found[i]
        yield found


def _check(case: Case, arrays: list[Array], constant: list[bool]) -> None:
    point: dict[Output, Any] = {}
    flat: list[Output] = []
    for array, fixed in zip(arrays, constant, strict=True):
        if fixed:
            flat.append(constant_of(array.copy()))
            continue
        element = dtypes.string if array.dtype.kind == "O" else dtypes.from_numpy(array.dtype)
        fed = out("TestInput", (), {"dtype": element, "shape": array.shape})
        point[fed] = array
        flat.append(fed)
    attrs, rest = dict(case.attrs), iter(flat)
    dtype = case.dtypes[0]
    if dtype and case.type_attr in case.op_def.attrs:
        attrs[case.type_attr] = dtypes.as_dtype(dtype)
    shaped = case.arrays(dtype)
    prepare = iter([case.prepare.get(i, lambda fed: fed) for i in range(len(flat))])

    def placed() -> Output:
        return next(prepare)(next(rest))

    inputs = [[placed() for _ in x] if isinstance(x, list) else placed() for x in shaped]
    node = create(case.op, inputs, attrs)
    evaluate(list(node.outputs), point)  # compares with the static shapes
    ys = [y for y in node.outputs if y.dtype.is_floating]
    xs = [x for x in point if x.dtype.is_floating]
    if not ys or not xs:
        return
    try:
        grads = wf.gradients(ys, xs)
    except LookupError:  # an op that refuses gradients
        return
    found = [(x, g) for x, g in zip(xs, grads, strict=True) if isinstance(g, Output)]
    for (x, _), value in zip(found, evaluate([g for _, g in found], point), strict=True):
        assert np.shape(value) == point[x].shape


def _variants(case: Case) -> list[list[Array]]:
    arrays = case.arrays(case.dtypes[0])
    flat = list(chain.from_iterable(x if isinstance(x, list) else [x] for x in arrays))
    return list(_emptied(flat, list(case.is_constant())))


FAMILIES = sorted(name for name, cases in load_cases().items() if any(map(_variants, cases)))


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_along_an_axis(family: str) -> None:
    with Parts() as parts:
        for case in load_cases()[family]:
            for number, chosen in enumerate(_variants(case)):
                # Our errors say that the sizes do not go together.
                part = parts.part(f"{case.name} {number}")
                with part, Graph().as_default(), suppress(errors.OpError):
                    _check(case, chosen, list(case.is_constant()))
