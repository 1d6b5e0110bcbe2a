"""The conformance table through conversion and the interpreter, for the ops and types of lite."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from weft_testing.backends import compare, reference
from weft_testing.case_graph import CaseGraph
from weft_testing.cases import Case, load_cases
from weft_testing.parts import Parts

from weft_graph.ir.node import Node, Output
from weft_lite import Interpreter
from weft_lite.convert.converter import Converter
from weft_lite.convert.lowered import TYPES
from weft_lite.convert.registry import rules
from weft_tensor import errors

TOLERANCE = {"float32": (2e-5, 2e-6), "float16": (2e-3, 2e-3)}
UNLIKE = {
    "Div": "integers are divided towards zero here, and by floor there",
}


def cases() -> list[Any]:
    """The rows for ops that lite has a rule for."""
    return [
        pytest.param(case, id=f"{family}-{case.name}")
        for family, rows in load_cases().items()
        for case in rows
        if case.op in rules() and case.op not in UNLIKE and any(map(takes, CaseGraph(case).nodes))
    ]


def takes(node: Node) -> bool:
    """Whether lite has the types of elements, and what goes in and comes out."""
    values = [*node.inputs, *node.outputs]
    return bool(node.outputs) and all(value.dtype.name in TYPES for value in values)


def converted(made: CaseGraph, node: Node) -> tuple[bytes, list[Any]]:
    """A file of one node, with what it is fed; constants where lite wants them."""
    fed = list(dict.fromkeys(x for x in node.inputs if x in made.feeds))
    try:
        return convert(made, fed, node), [made.feeds[x] for x in fed]
    except errors.UnimplementedError as error:
        if "must be a constant" not in str(error):
            raise
    frozen = CaseGraph(frozen_case(made.case))
    twin = frozen.nodes[made.nodes.index(node)]
    fed = list(dict.fromkeys(x for x in twin.inputs if x in frozen.feeds))
    return convert(frozen, fed, twin), [frozen.feeds[x] for x in fed]


def convert(made: CaseGraph, fed: list[Output], node: Node) -> bytes:
    """The file, without the trial, which this test is the thorough form of."""
    converter = Converter(made.graph, fed, node.outputs)
    return converter._content([np.shape(made.feeds[x]) for x in fed])


def frozen_case(case: Case) -> Case:
    """The same row with all inputs constant but the first."""
    frozen = copy.copy(case)
    others = len(list(case.is_constant())) - 1
    frozen.is_constant = lambda: [False] + [True] * others  # type: ignore[method-assign]
    return frozen


@pytest.mark.parametrize("case", cases())
def test_case(case: Case) -> None:
    made, wanted = reference(case)
    outputs = [output for node in made.nodes for output in node.outputs]
    values = dict(zip(outputs, wanted[: len(outputs)], strict=True))
    with Parts() as parts:
        for node in filter(takes, made.nodes):
            with parts.part(node.inputs[0].dtype.name if node.inputs else node.type):
                try:
                    content, fed = converted(made, node)
                except errors.UnimplementedError as error:
                    assert "lite" in str(error)
                    continue
                run(content, fed, node, values)


def run(content: bytes, fed: list[Any], node: Node, values: dict[Any, Any]) -> None:
    """Two invocations give what the kernels of the full runtime give."""
    interpreter = Interpreter(model_content=content)
    for _ in range(2):
        for details, value in zip(interpreter.get_input_details(), fed, strict=True):
            interpreter.set_tensor(details["index"], np.asarray(value))
        interpreter.invoke()
    for output, details in zip(node.outputs, interpreter.get_output_details(), strict=True):
        compare(output, interpreter.get_tensor(details["index"]), values[output], TOLERANCE)
