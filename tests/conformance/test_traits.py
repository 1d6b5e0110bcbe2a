"""Declared traits of ops are true: views, shapes, identities, costs, kernels that wait."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from weft_testing.cases import Case, load_cases
from weft_testing.evaluate import HostDevice, evaluate

from weft_exec.costs import CostModel
from weft_exec.kernels.registry import ANY_DEVICE, find_kernel, kernels_of
from weft_graph.ir.builder import constant_of, create
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node
from weft_graph.ir.op_def import lookup_op, registered_ops
from weft_graph.ir.traits import EACH, Role, State, Traits
from weft_tensor import dtypes
from weft_tensor.shape import broadcast_dims

HANDLES = (dtypes.resource, dtypes.variant)
OPS = [op for op in registered_ops() if not op.startswith(("Attack", "Test"))]
CASES = [case for cases in load_cases().values() for case in cases]


def traits(op: str) -> Traits:
    return lookup_op(op).traits


class Ran(NamedTuple):
    case: Case
    node: Node
    inputs: list[Any]
    outputs: list[Any]


def built(case: Case) -> Node:
    """A case's node on constants."""
    dtype = case.dtypes[0]
    inputs = [
        [constant_of(a.copy()) for a in item] if isinstance(item, list) else constant_of(item)
        for item in case.arrays(dtype)
    ]
    attrs = dict(case.attrs)
    if dtype and case.type_attr in case.op_def.attrs:
        attrs[case.type_attr] = dtypes.as_dtype(dtype)
    return create(case.op, inputs, attrs)


def ran(wanted: Any) -> Iterator[Ran]:
    """The cases of ops with certain traits, with inputs and outputs of their kernels."""
    device = HostDevice()
    for case in CASES:
        if not wanted(traits(case.op)) or case.prepare:
            continue
        with Graph().as_default(), np.errstate(all="ignore"):
            node = built(case)
            kernel = find_kernel(node, "CPU")
            if kernel is None or kernel.asynchronous:
                continue
            inputs = [np.array(source.node.attrs["value"]) for source in node.inputs]
            result = kernel.make(node, device)(*inputs)
            outputs = list(result) if isinstance(result, tuple) else [result]
            yield Ran(case, node, inputs, outputs)


def test_views_share_the_memory_of_their_input() -> None:
    shared: dict[str, bool] = {}
    for case, _, inputs, outputs in ran(lambda known: known.view is not None):
        view = traits(case.op).view
        for i, output in enumerate(outputs):
            source = inputs[i if view == EACH else view]
            if isinstance(output, np.ndarray) and output.size and source.ndim:
                mine = np.shares_memory(output, source)
                shared[case.op] = shared.get(case.op, True) and mine
    assert len(shared) > 15
    # Small broadcasts are copied: views are slower to work with.
    assert [op for op, mine in shared.items() if not mine] == ["BroadcastTo"]


def test_kernels_that_may_share_memory_say_so() -> None:
    found = []
    for case, node, inputs, outputs in ran(lambda known: known.view is None):
        kernel = find_kernel(node, "CPU")
        assert kernel is not None
        arrays = [value for value in outputs if isinstance(value, np.ndarray) and value.ndim]
        if any(np.shares_memory(a, b) for a in arrays for b in inputs):
            found += [] if kernel.may_share(node) else [case.name]
    assert not found, " ".join(found)


def test_elementwise_ops_have_the_shape_of_their_inputs() -> None:
    seen = set()
    for case, _, inputs, outputs in ran(lambda known: known.elementwise):
        definition = traits(case.op).scalar
        if definition is None or definition.by_kernel:
            continue
        dims: Any = ()
        for value in inputs:
            dims = broadcast_dims(dims, value.shape)
        assert [np.shape(output) for output in outputs] == [dims], case
        seen.add(case.op)
    assert len(seen) > 90


def test_identities_give_their_input_on_any_device() -> None:
    for op in OPS:
        if traits(op).identity:
            assert traits(op).view == 0 and len(lookup_op(op).outputs) == 1, op
            assert kernels_of(op, ANY_DEVICE), op
    for case, _, inputs, outputs in ran(lambda known: known.identity):
        assert outputs[0] is inputs[0], case


def test_involutions_give_their_input_again() -> None:
    seen = set()
    for case, node, inputs, _ in ran(lambda known: known.involution):
        with node.graph.as_default():
            again = create(case.op, [node.outputs[0]], case.attrs).outputs[0]
        np.testing.assert_array_equal(evaluate(again), inputs[0])
        seen.add(case.op)
    assert seen == {op for op in OPS if traits(op).involution}


def test_only_the_shape_of_some_inputs_matters() -> None:
    seen = set()
    for case, node, inputs, outputs in ran(lambda known: bool(known.shape_only)):
        kernel = find_kernel(node, "CPU")
        assert kernel is not None
        chosen = traits(case.op).shape_only
        if lookup_op(case.op).inputs[0].is_list:
            chosen = frozenset(range(len(node.inputs)))
        zeros = [np.zeros_like(v) if i in chosen else v for i, v in enumerate(inputs)]
        result = kernel.make(node, HostDevice())(*zeros)
        results = list(result) if isinstance(result, tuple) else [result]
        for got, want in zip(results, outputs, strict=True):
            np.testing.assert_array_equal(got, want)
        seen.add(case.op)
    assert seen == {op for op in OPS if traits(op).shape_only}


def test_an_output_that_may_overwrite_an_input_is_like_it() -> None:
    for case, _, inputs, outputs in ran(lambda known: bool(known.overwrites)):
        for output, source in traits(case.op).overwrites:
            assert outputs[output].shape == inputs[source].shape, case
            assert outputs[output].dtype == inputs[source].dtype, case


def test_costs_are_numbers() -> None:
    model = CostModel()
    for case in CASES:
        if case.prepare:
            continue
        with Graph().as_default():
            cost = model.work(built(case))
        assert math.isfinite(cost.flops) and cost.flops >= 0, case
        assert math.isfinite(cost.bytes) and cost.bytes >= 0, case


def test_kernels_wait_where_the_declaration_says_so() -> None:
    for op in OPS:
        entries = [*kernels_of(op, "CPU"), *kernels_of(op, ANY_DEVICE)]
        assert all(entry.asynchronous == traits(op).asynchronous for entry in entries), op


def test_who_takes_a_reference_or_a_handle_says_what_it_does_with_it() -> None:
    for op in OPS:
        known, declared = traits(op), lookup_op(op)
        takes = any(arg.is_ref or arg.dtype is dtypes.resource for arg in declared.inputs)
        if takes and not (known.routes or known.identity):
            assert known.state in (State.READS, State.WRITES, State.STEP), op
        if known.state is State.CREATES:
            assert any(a.is_ref or a.dtype in HANDLES for a in declared.outputs), op


@pytest.mark.parametrize(
    ("role", "attr"),
    [
        (Role.CONSTANT, "value"),
        (Role.ARGUMENT, "index"),
        (Role.VARIABLE, "shape"),
        (Role.CALL, "f"),
        (Role.ENTER, "frame_name"),
    ],
)
def test_roles_have_the_attributes_that_the_system_looks_at(role: Role, attr: str) -> None:
    ops = [op for op in OPS if traits(op).role is role]
    assert ops and all(attr in lookup_op(op).attrs for op in ops)


def test_an_op_that_draws_has_seeds_and_the_other_way_round() -> None:
    for op in OPS:
        if traits(op).random and not op.startswith("ExtractGlimpse"):  # they draw noise without one
            assert "seed2" in lookup_op(op).attrs, op


def test_who_touches_files_has_effects_or_makes_what_will() -> None:
    for op in OPS:
        if traits(op).reads_files or traits(op).writes_files:
            assert traits(op).state is not State.NONE or traits(op).random, op
