"""The front end for Node: values of all types, and declarations for TypeScript."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from weft_testing.workspace import ROOT

from tests.client.conftest import PROGRAMS, call, command, node_program, page_blocks, run
from tests.client.test_errors import GRACE_MS, LARGE, TIMEOUT_MS, Program, process

MAX_KEPT_BYTES = 16 << 20  # two of the forty values that are fed
TSC = shutil.which("tsc")
PACKAGE = ROOT / "packages" / "client" / "js"

REFUSALS = {
    "attributes": (
        "unknown option 'transpose_a'; accepted are transposeA, transposeB",
        "'transpose_a' of type bool cannot have the value 'false'; it must be true or false",
        "placeholder: options must be an object; accepted are shape; got [2,2] (Array)",
        "'shape' of type shape cannot have the value [1.5] (Array); it must be null or an array",
        "'shape' of type shape cannot have the value [-2] (Array)",
        "'shape' of type shape cannot have the value [\"2\"] (Array)",
        "'strides' of type list(int) cannot have the value 1; it must be an array of values",
        "unknown element type 'toString'; accepted are float32, float64",
        "unknown element type '__proto__'",
        "neg: unknown option 'T'; it has none",
        "neg: options must be an object; it has none; got 2",
        'feeds must be pairs of outputs and values, as in [[x, 1], [y, 2]], got {"a":1} (Object)',
        "feeds must be pairs of outputs and values, as in [[x, 1], [y, 2]], got the item ",
        "Session.run: unknown option 'feed'; accepted are feeds, targets, timeout",
        "Client.connect: unknown option 'tokens'; accepted are certificate, key, authority, token",
    ),
    "arguments": (
        'Session.run: fetches must be an array, got {"name":"x:0"} (Output)',
        "1 is not an output; give an Output, an op with one output, a Variable or a name",
        "undefined is not an output",
        "Session.run: targets must be an array",
        "undefined is not an operation; give an Operation, an Output or a name such as 'node'",
        "Session.gradients: ys must be an array",
        "Session.functionDefs: names must be an array, got 'Twice'",
        "Neg: scope must be a Scope, got {} (Object)",
        "AddN: an input that is a list must be an array",
        "Scope.withName: the name must be a string, got 1",
        "Scope.withControls: operations must be an array",
        "Scope.colocateWith: expected an Operation",
        "body of the function 'Twice' must return an Output or an array of Outputs, got undefined",
        "must return an Output or an array of Outputs, got {} (Promise); it must not be async",
        "must return an Output or an array of Outputs, got {} (Promise); it must not be async",
        "must return an Output or an array of Outputs, got 1",
        "defineFunction: build must be a function, got 'body'",
        "callFunction: args must be an array",
        "importGraphDef: graphDef must be a Uint8Array, got undefined",
        "importGraphDef: graphDef must be a Uint8Array, got 'nodes'",
        "Variable: shape must be an array, got undefined",
        "unknown element type 'float31'; accepted are float32",
        "Variable: the initial value is missing, got undefined",
        "initializeVariables: scope must be a Scope, got undefined",
        "Output: the name must be a string, got undefined",
    ),
    "training": (
        'minimize: variables must be an array of Variables, got {"shape":[2],"dtype":"float32"',
        "minimize: No gradients provided for any variable: the list of variables is empty",
        "apply: No gradients provided for any variable: the list of variables is empty",
        "apply needs a gradient for each variable, got 0 gradients of 1 variables",
        "apply needs gradients with values and indices, as session.gradients returns them with {",
        "No gradients provided for any variable: the loss does not depend on any of weights:0",
        "Saver: variables must be an array of Variables, got {",
        "Saver: optimizers must be an array of optimizers, got [null] (Array)",
    ),
    "tensors": (
        "int32 must be integers from -2147483648 to 2147483647, got 3.5",
        "a float32 tensor of the shape [2] has 2 numbers, got 3",
        "elements of string must be strings or Buffers, got 1",
        "a tensor of float32 cannot be converted to complex64",
        "a tensor of string cannot be converted to int32",
        "bool must be integers from 0 to 1, got 2",
        "int4 must be integers from -8 to 7, got 100",
        "bool must be integers from 0 to 1, got 2",
        "int4 must be integers from -8 to 7, got -9",
        "float32 must be numbers between -3.4028235e+38 and 3.4028235e+38, got 1e+39",
        "as a bigint from 2 ** 53 on, got 9007199254740992",
        "elements of float32 must be numbers, got undefined",
        "a shape must be an array of sizes, got '1'",
        "no tensor can have the type 'toString'; accepted are float32",
        "no tensor can have the type '__proto__'",
        "arrays may be nested 32 deep, got more",
        'elements of float32 must be numbers, got {"a":1} (Object)',
        "elements of string must be strings or Buffers, got {} (object)",
        "no element type is stored in a Uint8ClampedArray; accepted are Float32Array",
        "nested arrays must be equal in shape, got [1] and [2]",
    ),
}


@pytest.mark.parametrize("group", REFUSALS)
def test_refusals(group: str) -> None:
    lines = run(*node_program("refusals.mjs"), group).splitlines()
    for line, words in zip(lines, REFUSALS[group], strict=True):
        assert line.startswith("INVALID_ARGUMENT: ") and words in line, line


def test_cancelled_calls_are_not_kept(request: pytest.FixtureRequest) -> None:
    with process() as (server, target):
        program = command(request, "js", "lines")
        with closing(Program(program, target)) as lines:
            assert lines.send("large patient") == LARGE
            server.stop()
            for _ in range(2):
                assert int(lines.send("jam")) < MAX_KEPT_BYTES
            assert lines.fail("gradients").code == "DEADLINE_EXCEEDED"
            server.go_on()
            assert lines.send("gradients patient") == "3\n"
            assert lines.send("large patient") == LARGE


def test_closing_a_session_of_a_frozen_server(request: pytest.FixtureRequest) -> None:
    with process() as (server, target):
        program = subprocess.Popen(
            [*command(request, "js", "lines"), "close", target, str(TIMEOUT_MS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        server.stop()
        output, _ = program.communicate("close\n", timeout=60)
        server.go_on()
        assert program.returncode == 0
        assert 2 * TIMEOUT_MS <= int(output) < 2 * TIMEOUT_MS + GRACE_MS


def test_values(request: pytest.FixtureRequest, target: str) -> None:
    assert run(*command(request, "js", "suite"), "values", target) == "complete\n"


@pytest.mark.skipif(TSC is None, reason="tsc, the compiler of TypeScript, is not installed")
def test_the_declarations_for_typescript(tmp_path: Path) -> None:
    options = {"strict": True, "noEmit": True, "target": "es2022", "types": []}
    options |= {"module": "nodenext", "moduleResolution": "nodenext"}
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "weftml").symlink_to(PACKAGE)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": options}))
    shutil.copy(PROGRAMS / "typed.mts", tmp_path)
    ((_, program),) = page_blocks("js")
    (tmp_path / "line.mts").write_text(program, encoding="utf-8")
    assert TSC is not None
    call(TSC, "--project", tmp_path)
