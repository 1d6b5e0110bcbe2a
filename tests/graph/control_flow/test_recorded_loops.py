"""Loops, recurrent networks and functions over rows return the results of TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from weft_testing.loading import load

from weft_autodiff.gradients.backprop import gradients
from weft_exec.session.session import Session
from weft_graph import nn, proto
from weft_graph.control_flow import functional
from weft_graph.control_flow.conditional import cond
from weft_graph.control_flow.loop import while_loop
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir import nest
from weft_graph.ir.builder import constant, convert_to_tensor
from weft_graph.ir.graph import Graph
from weft_graph.ops import (
    arithmetic,
    array,
    casting,
    comparison,
    elementary,
    gather,
    join,
    masks,
    matmul,
    reduction,
    shapes,
    state,
    trigonometry,
)
from weft_graph.ops.array import placeholder
from weft_graph.rnn import cell as rnn_cell, dynamic as dynamic_rnn
from weft_graph.variables.reference import global_variables
from weft_graph.variables.scope import get_variable
from weft_tensor import dtypes
from weft_tensor.shape import TensorShape

LOOPS = Path(__file__).parent / "loops"
EXPECTED = json.loads((LOOPS / "expected.json").read_text())["cases"]
TOLERANCE = {"float32": 2e-5, "float64": 1e-10}


CASES = load(LOOPS / "cases.py")


class EverySession:
    """Sessions that run the same steps in a line, node by node, and as it suits each."""

    def __enter__(self) -> EverySession:
        self._sessions = [Session(config=config) for config in configs()]
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._sessions:
            session.close()

    def run(self, fetches: Any, feeds: Any = None) -> Any:
        first, *others = [session.run(fetches, feeds) for session in self._sessions]
        for other in others:
            for mine, value in zip(nest.flatten(first), nest.flatten(other), strict=True):
                np.testing.assert_array_equal(mine, value)
        return first


def configs() -> Iterator[proto.ConfigProto]:
    for executor in ("SINGLE_THREADED_EXECUTOR", "READY_QUEUE", ""):
        config = proto.ConfigProto(inter_op_parallelism_threads=2)
        config.experimental.executor_type = executor
        config.graph_options.optimizer_options.opt_level = -1 if executor else 0
        yield config


NAMES = SimpleNamespace(
    Graph=Graph,
    Session=EverySession,
    TensorArray=TensorArray,
    TensorShape=TensorShape,
    add_n=arithmetic.add_n,
    argmax=reduction.argmax,
    assign=state.assign,
    bool=dtypes.bool_,
    cast=casting.cast,
    concat=join.concat,
    cond=cond,
    constant=constant,
    convert_to_tensor=convert_to_tensor,
    equal=comparison.equal,
    float32=dtypes.float32,
    float64=dtypes.float64,
    foldl=functional.foldl,
    foldr=functional.foldr,
    gather=gather.gather,
    get_variable=get_variable,
    global_variables=global_variables,
    gradients=gradients,
    int32=dtypes.int32,
    int64=dtypes.int64,
    logical_and=comparison.logical_and,
    logical_or=comparison.logical_or,
    map_fn=functional.map_fn,
    matmul=matmul.matmul,
    nest=nest,
    nn=SimpleNamespace(
        bidirectional_dynamic_rnn=dynamic_rnn.bidirectional_dynamic_rnn,
        dynamic_rnn=dynamic_rnn.dynamic_rnn,
        embedding_lookup=nn.embedding_lookup,
        log_softmax=nn.log_softmax,
        raw_rnn=dynamic_rnn.raw_rnn,
        rnn_cell=rnn_cell,
        softmax=nn.softmax,
        top_k=nn.top_k,
    ),
    not_equal=comparison.not_equal,
    one_hot=gather.one_hot,
    ones=array.ones,
    placeholder=placeholder,
    reduce_all=reduction.reduce_all,
    reduce_any=reduction.reduce_any,
    reduce_sum=reduction.reduce_sum,
    reshape=shapes.reshape,
    scan=functional.scan,
    sigmoid=elementary.sigmoid,
    sin=trigonometry.sin,
    tanh=trigonometry.tanh,
    tile=join.tile,
    where=masks.where,
    while_loop=while_loop,
    zeros=array.zeros,
)
"""What the cases use, by TensorFlow's names."""


def test_every_case_is_recorded() -> None:
    assert set(CASES.CASES) == set(EXPECTED)


@pytest.mark.kernels
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_loops_are_those_of_tensorflow(name: str) -> None:
    found, expected = CASES.results(NAMES, name), EXPECTED[name]
    assert found["variables"] == expected["variables"]
    assert found["types"] == expected["types"]
    for mine, other in zip(found["shapes"], expected["shapes"], strict=True):
        assert at_least(mine, other), f"{mine} says less than {other}"
    for what in ("outputs", "gradients"):
        assert len(found[what]) == len(expected[what])
        for i, (mine, other) in enumerate(zip(found[what], expected[what], strict=True)):
            tolerance = TOLERANCE.get(mine.dtype.name, 0)
            np.testing.assert_allclose(
                mine, other, rtol=tolerance, atol=tolerance / 10, err_msg=f"{what} {i}"
            )


def at_least(dims: Any, others: Any) -> bool:
    """Return True if one shape implies the other."""
    if others is None:
        return True
    return dims is not None and all(b in (None, a) for a, b in zip(dims, others, strict=True))
