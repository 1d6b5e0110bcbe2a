"""Kernels report inputs of wrong ranks, sizes and values by the requirement that they violate.

Shapes are unknown while the graph is built, so that the kernels receive them. The messages of NumPy
and Python about their own arguments do not explain what is wrong with a graph.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest
from weft_testing.cases import Array, Case, load_cases
from weft_testing.evaluate import HostDevice
from weft_testing.parts import Parts

import weft as wf
from weft_exec.executor.kernel_errors import to_op_error
from weft_exec.kernels.numpy_warnings import call_quietly
from weft_exec.kernels.registry import find_kernel
from weft_graph.ir.builder import create, out
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_tensor import dtypes, errors

ROUNDS = 6
"""Wrong inputs that each case is tried with."""

_OTHERS = errors.ResourceExhaustedError | errors.UnimplementedError | errors.DataLossError
"""What else a kernel may say of a wrong value."""


def _feed(array: Array) -> Output:
    element = dtypes.string if array.dtype.kind == "O" else dtypes.from_numpy(array.dtype)
    return out("TestInput", (), {"dtype": element, "shape": None})


def _node(case: Case) -> tuple[Node, list[Array]]:
    """The case's node on inputs of unknown shapes, and their values."""
    dtype = case.dtypes[0]
    arrays = case.arrays(dtype)
    prepare = iter([case.prepare.get(i, lambda fed: fed) for i in range(len(case.is_constant()))])

    def place(array: Array) -> Output:
        return next(prepare)(_feed(array))

    inputs = [[place(a) for a in x] if isinstance(x, list) else place(x) for x in arrays]
    attrs = dict(case.attrs)
    if dtype and case.type_attr in case.op_def.attrs:
        attrs[case.type_attr] = dtypes.as_dtype(dtype)
    flat = [a for x in arrays for a in (x if isinstance(x, list) else [x])]
    return create(case.op, inputs, attrs), flat


def _wrong(rng: random.Random, array: Array) -> Array:
    """The array with another rank, another size or another value."""
    axis = rng.randrange(array.ndim) if array.ndim else 0
    kinds = ["more", "before", "none"]
    if array.ndim and array.shape[axis]:
        kinds += ["longer", "shorter"]
    if array.size:
        kinds += ["scalar"] + ["value"] * (array.dtype.kind == "i")
    match rng.choice(kinds):
        case "more":
            return array[..., None]
        case "before":
            return array[None]
        case "none":
            return np.zeros((0, *array.shape[1:]), array.dtype)
        case "longer":
            return np.concatenate([array, array.take([0], axis)], axis)
        case "shorter":
            return array.take(range(array.shape[axis] - 1), axis)
        case "scalar":
            result = np.empty((), array.dtype)
            result[...] = array.flat[0]
            return result
    result = array.copy()
    result.flat[rng.randrange(array.size)] = rng.choice([-7, -1, 0, 7, 99])
    return result


def _failures(case: Case) -> Iterator[tuple[Exception, errors.OpError]]:
    """Return the errors of the kernel and of a session for wrong inputs of a case."""
    rng = random.Random(case.name)
    device = HostDevice()
    with Graph().as_default():
        node, arrays = _node(case)
        kernel = find_kernel(node, "CPU")
        if kernel is None or kernel.asynchronous or not arrays or _has_handles(node):
            return
        for _ in range(ROUNDS):
            values = list(arrays)
            for i in rng.sample(range(len(values)), min(len(values), rng.choice([1, 1, 2]))):
                values[i] = _wrong(rng, values[i])
            try:
                call_quietly(kernel.make(node, device), *values)
            except Exception as error:  # because which ones kernels raise is the question
                yield error, to_op_error(error, node, "CPU", values)


def _has_handles(node: Node) -> bool:
    return any(
        source.dtype.is_ref or not source.dtype.is_numpy_compatible for source in node.inputs
    )


def test_messages_are_ours() -> None:
    count = 0
    with Parts() as parts:
        for case in chain.from_iterable(load_cases().values()):
            with parts.part(case.name):
                for raised, told in _failures(case):
                    count += 1
                    assert isinstance(told, errors.InvalidArgumentError | _OTHERS), repr(told)
                    ours = isinstance(raised, errors.OpError) or told.message != str(raised)
                    assert ours, (repr(raised), told.inputs)
    assert count > 1000


@pytest.mark.parametrize(
    ("make", "values", "wanted"),
    [
        (lambda x, y: x + y, ([1.0, 2.0], [1.0, 2.0, 3.0]), r"broadcast, got \[2\] and \[3\]"),
        (wf.matmul, (np.ones((2, 3)), np.ones((2, 3))), "equal inner sizes, got 3 and 2"),
        (lambda x, y: wf.concat([x, y], 0), (np.ones((2, 3)), np.ones((2, 4))), "equal sizes"),
        (lambda x, y: wf.reshape(x, [4]) + y, ([1.0, 2.0, 3.0], 1.0), r"4 elements|\[4\]"),
        (lambda x, y: wf.tile(x, wf.cast(y, wf.int32)), ([1.0], [[2.0]]), "multiples must have"),
        (lambda x, y: wf.reshape(x, wf.cast(y, wf.int32)), ([1.0, 2.0], 2.0), "must be a vector"),
        (
            lambda x, y: wf.raw_ops.RaggedTensorToVariant(
                rt_nested_splits=[], rt_dense_values=x, batched_input=True
            ),
            (1.0, 1.0),
            "values must have rank 1 or more to be a batch",
        ),
    ],
)
def test_sessions_say_it(make: Any, values: Any, wanted: str) -> None:
    with Graph().as_default(), wf.Session() as session:
        x, y = wf.placeholder(wf.float32), wf.placeholder(wf.float32)
        z = make(x, y)
        with pytest.raises(errors.InvalidArgumentError, match=wanted) as caught:
            session.run(z, {x: values[0], y: values[1]})
    assert caught.value.node and caught.value.line and caught.value.inputs


def test_python_functions_keep_their_words() -> None:
    def fail(x: Any) -> Any:
        raise ValueError("the program's own words")

    with Graph().as_default(), wf.Session() as session:
        y = wf.py_func(fail, [wf.constant([1.0, 2.0])], wf.float32)
        with pytest.raises(errors.InvalidArgumentError, match="the program's own words"):
            session.run(y)
