"""Simplification, folding and kernel creation preserve failures.

Each program has a node whose failure static knowledge seems to exclude: because a shape is only
said to be so, or because what checks it is not needed for the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_graph.ir.node import Output
from weft_graph.passes import prune, simplify
from weft_graph.passes.certain_shapes import MAX_NODES, CertainShapes

Program = tuple[Any, dict[Any, Any]]
"""What to fetch, and what to feed."""

PROGRAMS: list[Callable[[], Program]] = []


def program(function: Callable[[], Program]) -> Callable[[], Program]:
    """Decorator of those that must fail."""
    PROGRAMS.append(function)
    return function


def fed(dims: Any, dtype: Any = wf.float32) -> wf.Tensor:
    return wf.placeholder(dtype, dims)


def said(dims: Any) -> tuple[wf.Tensor, wf.Tensor]:
    """A placeholder, and twice its value, of which the program says a shape."""
    x = fed(None)
    y = x * 2.0
    y.set_shape(dims)
    return x, y


def vector() -> wf.Tensor:
    """Two numbers, of unknown shape."""
    return wf.placeholder_with_default([1.0, 2.0], None)


def changed(change: Callable[..., Any]) -> Program:
    """A variable of two numbers, of unknown shape, changed by one number."""
    v = wf.Variable(vector(), validate_shape=False, use_resource=False)
    return change(v, 1.0), {}


# ---------------------------------------------------------------------------------- reshapes


@program
def to_a_default() -> Program:
    return wf.reshape(wf.constant([1, 2]), wf.placeholder_with_default([3], [1])), {}


@program
def to_a_fed_size() -> Program:
    k = fed([], wf.int32)
    return wf.reshape(wf.zeros([3, 2]), wf.stack([k, 2])), {k: 9}


@program
def to_a_fed_shape() -> Program:
    x, shape = fed([3]), fed([1], wf.int32)
    return wf.reshape(x, shape), {x: [1, 2, 3], shape: [2]}


@program
def to_a_checked_shape() -> Program:
    """The shape is known, but its control input fails."""
    x = fed([2])
    with wf.control_dependencies([wf.Assert(wf.placeholder_with_default(False, []), ["no"])]):
        shape = wf.identity(wf.constant([2]))
    return wf.reshape(x, shape + 0), {x: [1, 2]}


@program
def of_a_said_shape() -> Program:
    x, y = said([2])
    return wf.reshape(wf.negative(y), [2]), {x: [1, 2, 3]}


@program
def of_a_default() -> Program:
    x = fed(None)
    return wf.reshape(wf.placeholder_with_default(x, [2]) + 1.0, [2]), {x: [1, 2, 3]}


@program
def of_a_signature() -> Program:
    x = fed(None)

    @wf.function(input_signature=[wf.TensorSpec([2], wf.float32)])
    def function(a: wf.Tensor) -> wf.Tensor:
        return wf.reshape(a * 2.0, [2])

    return function(x), {x: [1, 2, 3]}


@program
def in_a_mapped_function() -> Program:
    def checked(x: wf.Tensor) -> wf.Tensor:
        y = wf.py_func(lambda a: a, [x], wf.float32)
        y.set_shape([2])
        return wf.reshape(y + 1.0, [2])

    elements = wf.data.Dataset.from_tensors([1.0, 2.0, 3.0]).map(checked)
    return wf.data.make_one_shot_iterator(elements).get_next(), {}


@program
def of_python_code() -> Program:
    y = wf.py_func(lambda: np.zeros(3, np.float32), [], wf.float32)
    y.set_shape([2])
    return wf.reshape(y, [2]), {}


@program
def of_a_variable() -> Program:
    v = wf.Variable([1.0, 2.0], use_resource=False)
    with wf.control_dependencies([wf.assign(v, [1.0, 2.0, 3.0], validate_shape=False)]):
        return wf.reshape(v.read_value(), [2]), {}


@program
def of_a_loop() -> Program:
    x, y = said([2])
    last = wf.while_loop(lambda i, _: i < 2, lambda i, a: (i + 1, y), [0, wf.zeros([2])])[1]
    return wf.reshape(last * 1.0, [2]), {x: [1, 2, 3]}


@program
def of_a_branch() -> Program:
    x, y = said([2])
    taken = fed([], wf.bool)
    value = wf.cond(taken, lambda: y, lambda: wf.zeros([2]))
    return wf.reshape(value, [2]), {x: [1, 2, 3], taken: True}


@program
def broadcast_to_a_fed_shape() -> Program:
    x, k = fed([3, 2]), fed([], wf.int32)
    wide = wf.broadcast_to(x, wf.stack([k, 2]))
    wide.set_shape([3, 2])
    return wide, {x: np.zeros([3, 2]), k: 9}


@program
def squeezed() -> Program:
    x = fed(None)
    y = wf.squeeze(x, [0])
    y.set_shape([2])
    return wf.squeeze(y), {x: [[1, 2], [1, 2]]}


# ------------------------------------------------------------------------------------ shapes


@program
def shape_of_an_ensured_shape() -> Program:
    x = fed(None)
    y = wf.ensure_shape(x, [None, 2])
    shape = wf.shape(y)
    y.set_shape([3, 2])
    return shape, {x: np.zeros([3, 3])}


@program
def shape_of_a_checked_value() -> Program:
    x = fed([2])
    return wf.raw_ops.Shape(input=wf.check_numerics(x, "x")), {x: [np.nan, 1]}


@program
def rank_of_a_checked_value() -> Program:
    x = fed([2])
    rank = wf.raw_ops.Rank(input=wf.check_numerics(x, "x"))
    return rank + 1, {x: [np.nan, 1]}


@program
def size_of_a_product() -> Program:
    x, y = fed(None), fed([2, 2])
    product = wf.matmul(x, y)
    size = wf.raw_ops.Size(input=product)
    product.set_shape([2, 2])
    return size, {x: np.zeros([2, 3]), y: np.zeros([2, 2])}


# ----------------------------------------------------------------- identities and constants


@program
def negated_twice() -> Program:
    x = fed([2])
    return wf.negative(wf.negative(wf.check_numerics(x, "x"))), {x: [np.nan, 1]}


@program
def cast_to_its_type() -> Program:
    x = fed([2])
    y = wf.raw_ops.Cast(x=wf.check_numerics(x, "x"), DstT=wf.float32)
    return wf.stop_gradient(y), {x: [np.nan, 1]}


@program
def constant_that_fails() -> Program:
    return wf.check_numerics(wf.constant([np.nan]), "x") * 0.0, {}


@program
def constant_of_another_shape() -> Program:
    return wf.ensure_shape(wf.placeholder_with_default([1, 2], None), [3]), {}


@program
def constant_after_a_check() -> Program:
    with wf.control_dependencies([wf.Assert(wf.placeholder_with_default(False, []), ["no"])]):
        return wf.identity(wf.constant(1)) + 1, {}


@program
def zeros_times_a_check() -> Program:
    x = fed([2])
    return wf.zeros([2]) * wf.check_numerics(x, "x"), {x: [np.nan, 1]}


@program
def twins() -> Program:
    """One of two equal nodes remains, with its failure."""
    x, k = fed([None]), fed([1], wf.int32)
    a, b = wf.reshape(x, k), wf.reshape(x, k)
    return wf.concat([a, b], 0), {x: [1, 2, 3], k: [2]}


# ------------------------------------------------------------------------------------- of one


@program
def tiled_once() -> Program:
    return wf.tile(vector(), [1, 1]), {}


@program
def part_of_one() -> Program:
    k = wf.placeholder_with_default(5, [])
    return wf.split(vector(), 1, axis=k)[0], {}


@program
def sum_of_one() -> Program:
    return wf.accumulate_n([vector()], shape=[3]), {}


@program
def sum_of_more() -> Program:
    return wf.accumulate_n([vector(), vector(), vector()], shape=[3]), {}


@program
def sum_with_a_number() -> Program:
    return wf.add_n([wf.placeholder_with_default(1.0, []), vector()]), {}


@program
def no_margins() -> Program:
    return wf.pad(vector(), [[0, 0], [0, 0]]), {}


@program
def whole_slice() -> Program:
    x, y = said([4])
    return wf.slice(y, [0], [4]), {x: [1, 2]}


# ---------------------------------------------------------------------------------- variables


@program
def assigned_a_said_shape() -> Program:
    x, y = said([4])
    v = wf.get_variable("v", [4], use_resource=True)
    return v.assign(y), {x: [1, 2]}


@program
def increased_by_a_number() -> Program:
    return changed(wf.assign_add)


@program
def decreased_by_a_number() -> Program:
    return changed(wf.assign_sub)


# ---------------------------------------------------------------------------------- gradients


@program
def gradient_of_a_sum() -> Program:
    x, y = fed([None]), fed([2])
    return wf.gradients(x + y, y)[0], {x: [1, 2, 3], y: [1, 2]}


@program
def gradient_of_a_reshape() -> Program:
    x, k = fed([2]), fed([1], wf.int32)
    return wf.gradients(wf.reshape(x, k) ** 2, x)[0], {x: [0, 1], k: [3]}


@program
def gradient_of_a_check() -> Program:
    x = fed([2])
    return wf.gradients(wf.log(wf.check_numerics(x, "x")), x)[0], {x: [0, 1]}


# -------------------------------------------------------------------------------------- tests


def failure(build: Callable[[], Program], level: int) -> type[Exception]:
    """Return the error of running a program at a level of optimization."""
    config = wf.ConfigProto()
    config.graph_options.optimizer_options.opt_level = level
    with wf.Graph().as_default(), wf.Session(config=config) as session:
        fetch, feeds = build()
        session.run(wf.global_variables_initializer())
        with pytest.raises(wf.errors.OpError) as raised:
            session.run(fetch, feeds)
    return raised.type


@pytest.mark.parametrize("build", PROGRAMS)
def test_a_failure_is_kept(build: Callable[[], Program]) -> None:
    options = wf.OptimizerOptions
    assert failure(build, options.L1) is failure(build, options.L0)


def left(fetch: Output, feeds: list[Output]) -> list[str]:
    """The types of nodes that are left of a simplified step."""
    step = prune(feeds, [fetch], [])
    simplify(step)
    return sorted(node.type for node in step.live_nodes())


def test_a_reshape_that_cannot_fail_goes() -> None:
    x = fed([2, 3])
    y = wf.reshape(wf.tanh(x) + wf.random_normal([2, 3]), [-1, 3])
    assert "Reshape" not in left(y, [x])
    assert "BroadcastTo" not in left(wf.broadcast_to(x + 1.0, [2, 3]), [x])
    assert "Squeeze" not in left(wf.squeeze(x * 2.0), [x])


def test_what_is_far_is_not_certain() -> None:
    x = y = fed([2])
    for _ in range(MAX_NODES):
        y = wf.tanh(y)
    assert "Reshape" in left(wf.reshape(y, [2]), [x])


def test_a_shape_that_is_said_is_not_certain() -> None:
    x, y = said([2])
    z, constant = y + 1.0, wf.constant([1.0])
    z.set_shape([2])
    step = prune([x], [z, constant], [])
    nodes = {node.name: node for node in step.graph.nodes}
    shapes = CertainShapes()
    assert [shapes.hold_for(nodes[o.node.name]) for o in (y, z, constant)] == [False, False, True]


@pytest.mark.parametrize("axis", [-1, (-1, -2), (-2, -1), (-1, 0)])
def test_a_said_rank_moves_no_axis(axis: Any) -> None:
    x, y = said([None, None])
    value = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    with wf.Session() as session:
        np.testing.assert_array_equal(
            session.run(wf.reduce_sum(y, axis), {x: value}), (2 * value).sum(axis)
        )
        rows = wf.gather(y, [1, 0], axis=-1)
        np.testing.assert_array_equal(session.run(rows, {x: value}), 2 * value[..., [1, 0]])
