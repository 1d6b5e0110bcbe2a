"""Conformance cases in lite: one file per node, run by the interpreter."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from weft_graph.ir.node import Node, Output
from weft_lite import Interpreter
from weft_lite.convert.converter import Converter
from weft_lite.convert.lowered import TYPES
from weft_lite.convert.scalars import find_rule
from weft_tensor import errors
from weft_testing.case_graph import CaseGraph
from weft_testing.cases import Case

UNLIKE = {
    "Div": "integers are divided towards zero here, and by floor there",
}

REFUSED = {
    "Conv2D-first", "Conv2D-first-unit", "Conv2DBackpropInput-first",
    "Conv2DBackpropInput-first-unit", "DepthwiseConv2dNative-first",
    "DepthwiseConv2dNative-first-single", "BiasAdd-first",
    "BiasAdd-first-3", "MaxPool-channels-first", "AvgPool-channels-first", "SpaceToDepth-NCHW",
    "DepthToSpace-NCHW", "FusedBatchNorm-first-training", "FusedBatchNorm-first-inference",
    "FusedBatchNorm-last-training", "FusedBatchNorm-last-inference", "FusedBatchNormV3-float16",
    "MaxPool-depth", "AvgPool-depth", "MaxPool-integers", "Reciprocal-int", "Inv-int", "Round-int",
    "Min-empty-int", "Sum-wraps", "Sum-accumulates-wide", "OneHot--1uint8", "OneHot-0uint8",
    "OneHot-1uint8", "FakeQuantWithMinMaxArgs-few", "FakeQuantWithMinMaxArgs-narrow",
    "FakeQuantWithMinMaxVars-narrow", "FakeQuantWithMinMaxVars-nothing",
    "FakeQuantWithMinMaxVarsPerChannel", "FakeQuantWithMinMaxVarsPerChannel-narrow", "Range",
    "Range-step", "Range-down", "Range-fractions", "Range-empty", "MaxPoolGrad-depth",
    "AvgPoolGrad-depth", "MaxPoolGrad-integers", "ApproximateEqual-int",
}  # fmt: skip
"""Cases that lite rejects with the reason."""


def takes(made: CaseGraph) -> bool:
    """Return True if lite supports an op and type of a case."""
    case = made.case
    known = find_rule(case.op) is not None and case.op not in UNLIKE and case.name not in REFUSED
    return known and any(map(has_types, made.nodes))


def has_types(node: Node) -> bool:
    """Return True if lite supports the element types of a node."""
    values = [*node.inputs, *node.outputs]
    return bool(node.outputs) and all(value.dtype.name in TYPES for value in values)


def values(made: CaseGraph) -> dict[Output, Any]:
    """Return lite's values of the outputs of supported nodes."""
    found: dict[Output, Any] = {}
    for node in filter(has_types, made.nodes):
        try:
            content, fed = converted(made, node)
        except errors.UnimplementedError as error:
            assert "lite" in str(error), error
            continue
        found.update(zip(node.outputs, run(content, fed), strict=True))
    return found


def converted(made: CaseGraph, node: Node) -> tuple[bytes, list[Any]]:
    """Convert one node to a file; return it with its feeds."""
    fed = list(dict.fromkeys(x for x in node.inputs if x in made.feeds))
    try:
        return _content(made, fed, node), [made.feeds[x] for x in fed]
    except errors.UnimplementedError as error:
        if "must be a constant" not in str(error):
            raise
    frozen = CaseGraph(_frozen(made.case))
    twin = frozen.nodes[made.nodes.index(node)]
    fed = list(dict.fromkeys(x for x in twin.inputs if x in frozen.feeds))
    return _content(frozen, fed, twin), [frozen.feeds[x] for x in fed]


def _content(made: CaseGraph, fed: list[Output], node: Node) -> bytes:
    """Convert without the check, which the comparison replaces."""
    converter = Converter(made.graph, fed, node.outputs)
    return converter._content([np.shape(made.feeds[x]) for x in fed])


def _frozen(case: Case) -> Case:
    """Return the case with all inputs constant except the first."""
    frozen = copy.copy(case)
    others = len(list(case.is_constant())) - 1
    frozen.is_constant = lambda: [False] + [True] * others  # type: ignore[method-assign]
    return frozen


def run(content: bytes, fed: list[Any]) -> list[Any]:
    """Return the outputs of the second of two invocations."""
    interpreter = Interpreter(model_content=content)
    for _ in range(2):
        for details, value in zip(interpreter.get_input_details(), fed, strict=True):
            interpreter.set_tensor(details["index"], np.asarray(value))
        interpreter.invoke()
    return [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]
