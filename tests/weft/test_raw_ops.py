"""`wf.raw_ops` has the arguments of `tf.raw_ops`, as tests/oracle/raw_ops.txt lists them."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft_graph.ir.op_def import lookup_op, registered_ops
from weft_tensor import errors

LISTED = Path(__file__).parents[1] / "oracle" / "raw_ops.txt"
APART = {"MutableDenseHashTable"}  # TensorFlow's own fails: its kernel asks for a key more


def taken(op: str) -> list[str]:
    parameters = inspect.signature(getattr(wf.raw_ops, op)).parameters.values()
    return sorted(p.name + "=" * (p.default is not p.empty) for p in parameters if p.name != "name")


def test_arguments_and_results_are_those_of_tensorflow() -> None:
    lines = dict(line.split(" ", 1) for line in LISTED.read_text().splitlines() if " " in line)
    both = lines.keys() & set(registered_ops()) - APART
    assert len(both) > 800
    differing = {}
    for op in both:
        arguments, _, results = lines[op].partition("->")
        named = results.split() or [arg.name for arg in lookup_op(op).outputs]
        ours = taken(op), [arg.name for arg in lookup_op(op).outputs]
        if ours != (sorted(arguments.split()), named):
            differing[op] = (lines[op], ours)
    assert not differing


def test_what_programs_call_otherwise_than_graphs() -> None:
    x, raw = wf.constant([[1.0, 2.0, 3.0]]), wf.raw_ops
    built = [
        raw.Sum(input=x, axis=1, keep_dims=True),
        raw.ExpandDims(input=x, axis=0),
        raw.Squeeze(input=x, axis=[0]),
        raw.Select(condition=x > 2, x=x, y=-x),
        raw.Where(condition=x > 2),
        *raw.SplitV(value=x, size_splits=[1, 2], axis=1, num_split=2),
        *raw.Split(axis=1, value=x, num_split=3),
        raw.Mean(input=x, axis=[0]),
    ]
    wanted = [[[6]], [[[1, 2, 3]]], [1, 2, 3], [[-1, -2, 3]], [[0, 2]]]
    wanted += [[[1]], [[2, 3]], [[1]], [[2]], [[3]], [1, 2, 3]]
    for value, want in zip(wf.Session().run(built), wanted, strict=True):
        np.testing.assert_array_equal(value, want)
    assert built[0].op.get_attr("keep_dims") is True


def test_what_is_missing_or_unknown_is_named() -> None:
    x, raw = wf.constant([1.0]), wf.raw_ops
    with pytest.raises(errors.InvalidTypeError, match=r"Sum requires the argument 'axis'"):
        raw.Sum(input=x)
    with pytest.raises(errors.InvalidTypeError, match=r"Sum has no argument 'axes'.*axis"):
        raw.Sum(input=x, axis=0, axes=0)


def test_attributes_of_later_versions_are_taken_where_they_change_nothing() -> None:
    x, raw = wf.constant([[1.0, 2.0]]), wf.raw_ops
    raw.MatMul(a=x, b=x, transpose_b=True, grad_a=True)
    raw.Equal(x=x, y=x, incompatible_shape_error=True)
    raw.TopKV2(input=x, k=1, index_type=wf.int32)
    with pytest.raises(errors.UnimplementedError, match="index_type"):
        raw.TopKV2(input=x, k=1, index_type=wf.int64)
    with pytest.raises(errors.InvalidTypeError, match="grad_a"):
        raw.Equal(x=x, y=x, grad_a=True)
