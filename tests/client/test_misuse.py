"""Invalid calls fail immediately with a clear message and change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import weft as wf
from tests.client.conftest import command, run

GRAPHS = (  # of both languages, in their order
    ("INVALID_ARGUMENT", "x:0 is fed more than once"),
    ("NOT_FOUND", "nothing"),
    ("NOT_FOUND", "nothing"),
    ("NOT_FOUND", "nothing"),
    ("INVALID_ARGUMENT", "port of 1 to 65535"),
    ("INVALID_ARGUMENT", "port of 1 to 65535"),
    ("ALREADY_EXISTS", "a function named 'Same'"),
    ("DATA_LOSS", "GraphDef"),
    ("ALREADY_EXISTS", "a node named 'y'"),
)
EXPECTED = {
    "cpp": (
        ("FAILED_PRECONDITION", "empty"),
        ("FAILED_PRECONDITION", "empty"),
        ("FAILED_PRECONDITION", "empty"),
        ("RESOURCE_EXHAUSTED", "more than 2^63 elements"),
        ("FAILED_PRECONDITION", "'finished' was finished already"),
        ("FAILED_PRECONDITION", "'finished' was finished already"),
        ("INVALID_ARGUMENT", "empty output or tensor"),
        ("INVALID_ARGUMENT", "empty output or tensor"),
        ("INVALID_ARGUMENT", "x:0 is fed no value"),
        *GRAPHS,
        ("INVALID_ARGUMENT", "No gradients provided for any variable: unused"),
        ("INVALID_ARGUMENT", "No variables provided."),
    ),
    "js": (
        ("INVALID_ARGUMENT", "must be a Float32Array, got Float64Array"),
        ("INVALID_ARGUMENT", "must be an array of Buffers"),
        ("INVALID_ARGUMENT", "no tensor can have the type 'resource'"),
        ("INVALID_ARGUMENT", "uint8 must be integers from 0 to 255, got 300"),
        ("INVALID_ARGUMENT", "from 0 to 18446744073709551615, got -1"),
        ("INVALID_ARGUMENT", "int32 must be integers"),
        ("INVALID_ARGUMENT", "int64 must be integers"),
        ("INVALID_ARGUMENT", "from -8 to 7, got 8"),
        ("INVALID_ARGUMENT", "from 0 to 1, got 2"),
        ("INVALID_ARGUMENT", "float32 must be numbers between -3.4028235e+38 and 3.4028235e+38"),
        ("INVALID_ARGUMENT", "float32 must be numbers, got 1 (string)"),
        ("INVALID_ARGUMENT", "from 0 to 255, got 300"),
        ("INVALID_ARGUMENT", "nested arrays"),
        ("INVALID_ARGUMENT", "nested arrays"),
        GRAPHS[0],
        ("INVALID_ARGUMENT", "a positive number of milliseconds, or Infinity, got 0"),
        ("INVALID_ARGUMENT", "got NaN"),
        ("INVALID_ARGUMENT", "got 1000"),
        *GRAPHS[1:7],
        ("INVALID_ARGUMENT", "'shape' of type shape cannot have the value 5"),
        ("INVALID_ARGUMENT", "'num' of type int cannot have the value 1.5"),
        ("INVALID_ARGUMENT", "'num' of type int cannot have the value 9223372036854775808"),
        ("INVALID_ARGUMENT", "'alpha' of type float cannot have the value 'steep'"),
        *GRAPHS[7:],
    ),
}


@pytest.mark.parametrize("language", EXPECTED)
def test_misuse(request: pytest.FixtureRequest, language: str, target: str, tmp_path: Path) -> None:
    with wf.Graph().as_default() as graph:
        wf.constant(1.0, name="y")
        (tmp_path / "theirs").write_bytes(graph.as_graph_def().SerializeToString())
    program = command(request, language, "lines")
    *refused, last = run(*program, "misuse", target, tmp_path / "theirs").splitlines()
    for line, (code, words) in zip(refused, EXPECTED[language], strict=True):
        assert line.startswith(f"{code}: ") and words in line, line
    # Names are unique without regard to case, and differ from those of gradients and of imports.
    assert last == "Y_1:0 1 1 1 -1 y_1:0"
