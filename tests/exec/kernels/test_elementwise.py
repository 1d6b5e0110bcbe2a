"""Kernels that are derived from definitions which leave inputs out, on the CPU and on GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from cupy_standin import Machine, installed
from cupy_standin.rawkernel import compiler

import weft as wf
from weft_graph.ir.builder import out
from weft_graph.ir.op_def import NodeSpec, lookup_op, register_op
from weft_graph.ir.scalar import Function, attribute, constant, exp
from weft_graph.ir.traits import elementwise
from weft_tensor import errors
from weft_tensor.shape import Dims, broadcast_dims

DEFINITIONS: dict[str, tuple[Function, float]] = {
    "One": (lambda x, y: constant(1, x.dtype), 1.0),
    "Attribute": (lambda x, y: attribute("a", x.dtype), 0.5),
    "Number": (lambda x, y: exp(constant(0, x.dtype)) + 1, 2.0),
    "Second": (lambda x, y: y, 3.0),
    "Scaled": (lambda x, y: y * 2, 6.0),
    "Square": (lambda x, y: y * y, 9.0),
    "Exponent": (lambda x, y: exp(y - 3), 1.0),
}
"""What each computes of y = 3, whatever x is."""


def _broadcast(node: NodeSpec) -> Sequence[Dims]:
    return [broadcast_dims(node.inputs[0].dims, node.inputs[1].dims)]


def _declared(name: str, *, one_shape: bool = False) -> str:
    op = f"TestLeavesOut{name}{'OfOneShape' if one_shape else ''}"
    try:
        lookup_op(op)
    except errors.NotFoundError:
        traits = elementwise(DEFINITIONS[name][0], one_shape=one_shape)
        attrs = {"T": "{float32, float64}", "a": "float = 0.5"}
        register_op(op, ("x: T", "y: T"), ("z: T",), attrs, _broadcast, traits=traits)
    return op


def _run(op: str, device: str, x_shape: tuple[int, ...], y_shape: tuple[int, ...]) -> np.ndarray:
    with wf.Graph().as_default(), wf.device(device), wf.Session() as session:
        x, y = wf.placeholder(wf.float32), wf.placeholder(wf.float32)
        z = out(op, [x, y])
        feeds = {x: np.full(x_shape, 7, np.float32), y: np.full(y_shape, 3, np.float32)}
        return np.asarray(session.run(z, feeds))


@pytest.mark.parametrize("device", ["/CPU:0", "/GPU:0"])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_the_shapes_of_all_inputs_count(name: str, device: str) -> None:
    if device == "/GPU:0" and compiler() is None:
        pytest.skip("no C compiler for the stand-in's kernels")
    op, want = _declared(name), DEFINITIONS[name][1]
    shapes = [((2, 3), ()), ((2, 1), (3,)), ((3,), (3,)), ((), ()), ((500, 3), (3,))]
    with installed(Machine()):
        for x_shape, y_shape in shapes:
            z = _run(op, device, x_shape, y_shape)
            np.testing.assert_array_equal(
                z, np.full(np.broadcast_shapes(x_shape, y_shape), want, np.float32), strict=True
            )


@pytest.mark.parametrize("name", ["One", "Second", "Square"])
def test_inputs_that_must_have_one_shape_must_so_where_they_are_left_out(name: str) -> None:
    op = _declared(name, one_shape=True)
    assert _run(op, "/CPU:0", (3,), (3,)).shape == (3,)
    with pytest.raises(
        errors.InvalidArgumentError, match=r"the same shape, got \[2, 1\] and \[3\]"
    ):
        _run(op, "/CPU:0", (2, 1), (3,))
