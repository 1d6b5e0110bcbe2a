"""Any op with any element types, ranks and sizes returns a result or raises a named error.

Attributes and inputs follow from the op's declaration, so that an op is covered as soon as it is
declared; others are those of its cases with sizes changed, which must then equal the reference.
Nothing else may happen: no error of NumPy's or Python's, no warning, no hang, no element type and
no static shape that the run contradicts.
"""

from __future__ import annotations

import random
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
from weft_testing.cases import Array, Case, load_cases, widen
from weft_testing.evaluate import HostDevice
from weft_testing.parts import Parts
from weft_testing.random_nodes import Arguments, changed

import weft as wf
from weft_exec.executor.kernel_errors import to_op_error
from weft_exec.kernels.numpy_warnings import call_quietly
from weft_exec.kernels.registry import find_kernel
from weft_graph.ir.builder import create, out
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op, registered_ops
from weft_graph.ir.op_signature import OpDef
from weft_tensor import dtypes, errors
from weft_tensor.shape import compatible_dims, format_dims

SAMPLE = 6
MANY = 300
SECONDS = 20
"""That one kernel may take on a few elements: more is a hang."""

ALLOWED = (
    errors.InvalidArgumentError
    | errors.UnimplementedError
    | errors.ResourceExhaustedError
    | errors.DataLossError
    | errors.OutOfRangeError
    | errors.NotFoundError
)
RELATED = (
    *("MaxPoolGrad", "MaxPoolGradGrad", "MaxPool3DGrad", "MaxPool3DGradGrad", "Bincount"),
    *("MaxPoolGradWithArgmax", "MaxPoolGradGradWithArgmax"),
    *("CTCBeamSearchDecoder", "CTCGreedyDecoder", "DenseToDenseSetOperation"),
    *(
        "FractionalAvgPool",
        "FractionalMaxPool",
        "CumulativeLogsumexp",
        "MatrixLogarithm",
        "MatrixSquareRoot",
    ),
    *("MatrixSolveLs", "SparseReorder", "SparseToDense"),
)
"""Whose inputs follow from one another, so that those of other sizes are none."""

OF_OTHERS = ("Attack", "Test", "Stranger", "_")


class RefusedError(Exception):
    """The node cannot be made, or its kernel says no, as it may."""


def _ops() -> list[OpDef]:
    """The ops that are functions of tensors."""
    found = [lookup_op(op) for op in registered_ops() if not op.startswith(OF_OTHERS)]
    return [op_def for op_def in found if _is_function(op_def)]


def _is_function(op_def: OpDef) -> bool:
    traits, args = op_def.traits, (*op_def.inputs, *op_def.outputs)
    if op_def.stateful and not traits.random:
        return False
    if traits.asynchronous or traits.host_code or traits.role is not None:
        return False
    if traits.reads_files or traits.writes_files or traits.local_handle:
        return False
    handles = (dtypes.resource, dtypes.variant)
    return bool(op_def.outputs) and not any(arg.is_ref or arg.dtype in handles for arg in args)


def _feed(array: Array, known: bool) -> Output:
    element = dtypes.string if array.dtype.kind == "O" else dtypes.from_numpy(array.dtype)
    return out("TestInput", (), {"dtype": element, "shape": array.shape if known else None})


def _node(op: str, inputs: list[Any], attrs: dict[str, Any], known: bool) -> Node | None:
    """Create the node; return None if it is rejected."""
    fed = [[_feed(a, known) for a in x] if isinstance(x, list) else _feed(x, known) for x in inputs]
    try:
        return create(op, fed, attrs)
    except errors.OpError as error:
        assert isinstance(error, ALLOWED), repr(error)
        return None


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise AssertionError(f"it takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _results(node: Node, values: list[Array]) -> tuple[Any, ...]:
    """Return the results of the kernel.

    Raises: RefusedError: one of our errors.
    """
    kernel = find_kernel(node, "CPU")
    if kernel is None:
        raise RefusedError
    try:
        with warnings.catch_warnings(), _at_most(SECONDS):
            warnings.simplefilter("error")
            found = call_quietly(kernel.make(node, HostDevice()), *values)
    except AssertionError:
        raise
    except Exception as error:  # because which ones kernels raise is the question
        told = to_op_error(error, node, "CPU", values)
        ours = isinstance(error, errors.OpError) or told.message != str(error)
        assert isinstance(told, ALLOWED) and ours, repr(error)
        raise RefusedError from error
    return found if isinstance(found, tuple) else (found,)


def _check(op: str, inputs: list[Any], attrs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the results of a node, checked against its static types and shapes.

    Raises: RefusedError: it cannot be made, or not run.
    """
    flat = [a for x in inputs for a in (x if isinstance(x, list) else [x])]
    with wf.Graph().as_default():
        blind, seeing = _node(op, inputs, attrs, False), _node(op, inputs, attrs, True)
        if blind is None:
            assert seeing is None, "made where the shapes are known, and refused where they are not"
            raise RefusedError
        results = _results(blind, flat)
    # A kernel may take more than the shape rule, as one that broadcasts does.
    for output, value in zip((seeing or blind).outputs, results, strict=True):
        assert isinstance(value, np.ndarray | np.generic), type(value)
        assert value.dtype == output.dtype.numpy, (value.dtype, output)
        assert compatible_dims(output.dims, value.shape), (value.shape, format_dims(output.dims))
    return results


def _try_declared(op_def: OpDef, seed: str) -> None:
    try:
        arguments = Arguments(op_def, random.Random(seed))
    except LookupError:
        return
    with suppress(RefusedError):
        _check(op_def.name, arguments.inputs, arguments.attrs)


def _try_case(case: Case, seed: str, every: bool) -> None:
    rng = random.Random(seed)
    dtype = rng.choice(case.dtypes)
    attrs = dict(case.attrs)
    if dtype and case.type_attr in case.op_def.attrs:
        attrs[case.type_attr] = dtypes.as_dtype(dtype)
    before = case.arrays(dtype)
    inputs = changed(rng, before, case.is_constant())
    try:
        results = _check(case.op, inputs, attrs)
    except RefusedError:
        return
    if case.expected is None or case.prepare or case.op in RELATED:
        return
    if not every and not case.op_def.traits.elementwise:
        return  # the references of others may be for their inputs alone
    wanted, first = _reference(case, inputs), _reference(case, before)
    if not wanted or [a.shape for a in wanted] == [a.shape for a in first]:
        return  # written down for the sizes of the case
    for got, want in zip(results, wanted, strict=True):
        _compare(case, got, want)


def _reference(case: Case, inputs: list[Any]) -> list[Array]:
    """Return NumPy's results, or None if the reference requires other sizes."""
    assert case.expected is not None
    wide = [[widen(a) for a in x] if isinstance(x, list) else widen(x) for x in inputs]
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = case.expected(*wide)
    except Exception:  # because the reference is for the sizes of the case
        return []
    return [np.asarray(a) for a in (wanted if isinstance(wanted, tuple) else (wanted,))]


def _compare(case: Case, got: Any, want: Array) -> None:
    if not got.size and not want.size:
        return  # NumPy's functions of nothing often lose the inner axes
    assert got.shape == want.shape, (got.shape, want.shape)
    element = dtypes.string if got.dtype.kind == "O" else dtypes.from_numpy(got.dtype)
    limits = case.tolerance.get(element.name)
    if limits is None:
        np.testing.assert_array_equal(got, want.astype(got.dtype))
    else:
        np.testing.assert_allclose(widen(np.asarray(got)), want, rtol=limits[0], atol=limits[1])


def _try_all(rounds: int, every: bool) -> None:
    cases: dict[str, list[Case]] = {}
    for family in load_cases().values():
        for case in family:
            cases.setdefault(case.op, []).append(case)
    with Parts() as parts:
        for op_def in _ops():
            for i in range(rounds):
                seed = f"{op_def.name}/{i}"
                with parts.part(seed):
                    _try_declared(op_def, seed)
                rows = cases.get(op_def.name)
                if rows:
                    case = rows[i % len(rows)]
                    with parts.part(f"{case.name}/{i}"):
                        _try_case(case, seed, every)


def test_a_sample() -> None:
    _try_all(SAMPLE, every=False)


@pytest.mark.long
def test_many() -> None:
    _try_all(MANY, every=True)
