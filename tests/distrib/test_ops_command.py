"""`weft ops`: declarations as text, and as JSON for generators."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest

import weft as wf
from weft_distrib.commands import ops
from weft_graph.ir.op_def import registered_ops


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    parser = argparse.ArgumentParser()
    ops.add(parser)
    parsed = parser.parse_args(arguments)
    assert parsed.run(parsed) == 0
    return capsys.readouterr().out


def described(capsys: pytest.CaptureFixture[str], *patterns: str) -> dict[str, Any]:
    table = json.loads(run(capsys, "--json", *patterns))
    assert table["format"] == ops.FORMAT
    return {op["name"]: op for op in table["ops"]}


def test_an_op_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    (op,) = described(capsys, "Split").values()
    assert op == {
        "name": "Split",
        "package": "weft_graph",
        "family": "join",
        "doc": op["doc"],
        "inputs": [{"name": "split_dim", "type": "int32"}, {"name": "value", "type_attr": "T"}],
        "outputs": [{"name": "output", "number_attr": "num_split", "type_attr": "T"}],
        "attrs": [
            {"name": "num_split", "type": "int", "minimum": 1},
            {"name": "T", "type": "type", "inferred": True},
        ],
        "traits": {"view": 1},
    }
    assert op["doc"]


def test_all_ops_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    table = described(capsys)
    assert sorted(table) == registered_ops()
    assert table["ApplyAdam"]["inputs"][0]["is_ref"]
    assert table["Placeholder"]["attrs"][1] == {"name": "shape", "type": "shape", "default": None}
    assert table["ImageSummary"]["attrs"][-1]["default"]["values"] == [255, 0, 0, 255]
    assert table["PyFunc"]["traits"]["host_code"] and table["Neg"]["traits"]["elementwise"]
    assert table["VariableV2"]["traits"]["role"] == "variable"


def test_ops_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "MatMul", "*DequeueMany*")
    assert "MatMul(a: T, b: T, transpose_a: bool = False" in text
    assert "-> product: T  [matmul]\n    The product of two matrices" in text
    assert "QueueDequeueManyV2(" in text and "QueueDequeueV2(" not in text


def test_a_pattern_that_matches_nothing_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(wf.errors.NotFoundError, match="MatMulX"):
        run(capsys, "MatMulX")
