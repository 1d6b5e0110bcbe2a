"""Models compiled ahead of time: objects that C programs link, here and on other machines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest
from weft_testing.ahead import EMULATORS, linked_and_run, loaded, run_in_node
from weft_testing.ahead_models import convnet, many_ops, products_of_bytes
from weft_testing.loading import load
from weft_testing.workspace import ROOT

import weft as wf
from weft._commands import main
from weft_compiler.ahead import Compiled, compile_graph
from weft_compiler.ahead.header import quote
from weft_graph.ir.node import Output
from weft_tensor import errors

OTHERS = sorted(EMULATORS)


@pytest.fixture(autouse=True)
def own_graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield


def wanted(outputs: dict[str, Output], feeds: dict[Output, Any]) -> list[Any]:
    with wf.Session() as session:
        return list(session.run(list(outputs.values()), feeds))


def agree(got: Sequence[Any], want: Sequence[Any]) -> None:
    for value, expected in zip(got, want, strict=True):
        assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
        limit = 1e-2 if expected.dtype.itemsize == 2 else 2e-5
        wide = value.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_allclose(*wide, rtol=limit, atol=limit)


def compiled(target: str) -> tuple[Compiled, list[Any], list[Any]]:
    inputs, outputs, arrays = convnet()
    made = compile_graph(inputs, outputs, target, shapes={"x": [2, 8, 8, 3]}, name="net")
    want = wanted(outputs, {inputs[key]: array for key, array in arrays.items()})
    return made, list(arrays.values()), want


def test_an_object_computes_what_a_session_does() -> None:
    made, arrays, want = compiled("native")
    agree(loaded(made)(*arrays), want)


def test_it_is_linked_by_the_compiler_of_the_system(tmp_path: Path) -> None:
    if which("cc") is None:
        pytest.skip("no C compiler")
    made, arrays, want = compiled("x86_64-linux" if sys.platform == "linux" else "native")
    agree(linked_and_run(made, arrays, tmp_path, ["cc"]), want)


@pytest.mark.parametrize("target", OTHERS)
def test_other_machines_compute_it(target: str, tmp_path: Path) -> None:
    emulator = EMULATORS[target].emulator
    if which(emulator) is None or not find_spec("ziglang"):
        pytest.skip(f"needs {emulator} and ziglang")
    made, arrays, want = compiled(target)
    agree(linked_and_run(made, arrays, tmp_path), want)


def test_dots_of_bfloat16_are_used_where_they_are_named(tmp_path: Path) -> None:
    if which("qemu-aarch64") is None or not find_spec("ziglang"):
        pytest.skip("needs qemu-aarch64 and ziglang")
    draw = np.random.default_rng(2)
    w = wf.constant(draw.standard_normal((33, 37)).astype("f"))
    x = wf.placeholder(wf.float32, [9, 33])
    y = wf.matmul(wf.cast(x, wf.bfloat16), wf.cast(w, wf.bfloat16))
    array = draw.standard_normal((9, 33)).astype("f")
    want = wanted({"y": y}, {x: array})
    for features in ("+bf16", ""):
        made = compile_graph({"x": x}, {"y": y}, "aarch64-linux", name="net", features=features)
        words = np.frombuffer(made.object[: len(made.object) & -4], "<u4")
        assert ((words & 0xFFE0FC00) == 0x6E40FC00).any() == bool(features)  # bfdot
        agree(linked_and_run(made, [array], tmp_path), want)


@pytest.mark.parametrize(
    "target",
    ["native", *[pytest.param(each, marks=pytest.mark.long) for each in OTHERS]],
)
def test_ops_of_many_families(target: str, tmp_path: Path) -> None:
    emulated = target in EMULATORS
    if emulated and (which(EMULATORS[target].emulator) is None or not find_spec("ziglang")):
        pytest.skip(f"needs {EMULATORS[target].emulator} and ziglang")
    inputs, outputs, arrays = many_ops()
    made = compile_graph(inputs, outputs, target, name="many")
    want = wanted(outputs, dict(zip(inputs.values(), arrays, strict=True)))
    got = linked_and_run(made, arrays, tmp_path) if emulated else loaded(made)(*arrays)
    agree(got, want)


@pytest.mark.parametrize(
    ("target", "features"),
    [
        *[(target, "") for target in OTHERS],
        ("aarch64-linux", "+dotprod"),
        ("arm-linux", "-neon"),
        ("x86_64-linux", ""),
    ],
)
def test_products_of_bytes_are_exact(target: str, features: str, tmp_path: Path) -> None:
    command: list[str] = []
    if target in EMULATORS:
        if which(EMULATORS[target].emulator) is None or not find_spec("ziglang"):
            pytest.skip(f"needs {EMULATORS[target].emulator} and ziglang")
    elif which("cc") is None or sys.platform != "linux":
        pytest.skip("no C compiler for Linux")
    else:
        command = ["cc"]
    inputs, outputs, arrays = products_of_bytes()
    made = compile_graph(inputs, outputs, target, name="net", features=features)
    want = wanted(outputs, dict(zip(inputs.values(), arrays, strict=True)))
    for got, expected in zip(linked_and_run(made, arrays, tmp_path, command), want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_node_multiplies_bytes_exactly(tmp_path: Path) -> None:
    if which("node") is None or not find_spec("ziglang"):
        pytest.skip("needs node and ziglang")
    inputs, outputs, arrays = products_of_bytes()
    made = compile_graph(inputs, outputs, "wasm32-wasi", name="net")
    want = wanted(outputs, dict(zip(inputs.values(), arrays, strict=True)))
    for got, expected in zip(run_in_node(made, arrays, tmp_path), want, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.long
@pytest.mark.parametrize("target", [*OTHERS, "native", "wasm32-wasi"])
@pytest.mark.parametrize("network", ["keywords", "lstm", "mobilenet_v2", "transformer"])
def test_whole_networks(network: str, target: str, tmp_path: Path) -> None:
    emulator = EMULATORS[target].emulator if target in EMULATORS else "node"
    if target != "native" and (which(emulator) is None or not find_spec("ziglang")):
        pytest.skip(f"needs {emulator} and ziglang")
    x, y = load(ROOT / "benchmarks/lite/models.py").MODELS[network](wf)
    value = np.random.default_rng(1).random([int(size) for size in x.shape], "f")
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        want = session.run(y, {x: value})
        freeze = wf.graph_util.convert_variables_to_constants
        frozen = freeze(session, session.graph_def, [y.op.name])
    with wf.Graph().as_default():
        given, computed = wf.import_graph_def(frozen, return_elements=[x.name, y.name], name="")
        made = compile_graph({"x": given}, {"y": computed}, target, name="network")
    if target == "native":
        got = loaded(made)(value)
    elif target in EMULATORS:
        got = linked_and_run(made, [value], tmp_path)
    else:
        got = run_in_node(made, [value], tmp_path)
    np.testing.assert_allclose(got[0], want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_node_computes_it(tmp_path: Path) -> None:
    if which("node") is None or not find_spec("ziglang"):
        pytest.skip("needs node and ziglang")
    made, arrays, want = compiled("wasm32-wasi")
    agree(run_in_node(made, arrays, tmp_path), want)


def test_the_same_bytes_each_time_and_no_paths() -> None:
    first, again = compiled("aarch64-linux")[0], compiled("aarch64-linux")[0]
    assert first == again
    assert str(Path(__file__).parent).encode() not in first.object
    assert set(first.undefined) <= {"memcpy", "memset"}


def test_weights_lie_in_read_only_data_and_once() -> None:
    same = np.random.default_rng(0).standard_normal((64, 64)).astype("f")
    x = wf.placeholder(wf.float32, [1, 64], name="x")
    made = compile_graph({"x": x}, {"y": x @ wf.constant(same)}, "x86_64-linux")
    panels = same.reshape(64, 2, 32).swapaxes(0, 1)
    assert made.object.count(panels.tobytes()) == 1
    assert made.weights == same.nbytes


def test_all_that_cannot_be_compiled_is_listed() -> None:
    x = wf.placeholder(wf.float32, [3, 3], name="x")
    inverse, variable = wf.linalg.inv(x), wf.Variable(wf.zeros([3, 3]), name="v")
    with pytest.raises(errors.UnimplementedError) as raised:
        compile_graph({"x": x}, {"y": inverse * wf.cholesky(x) * wf.linalg.det(x) + variable})
    said = str(raised.value)
    for part in (
        "MatrixInverse",
        "MatrixDeterminant",
        "VariableV2",
        "freeze",
        "Cholesky",
        __file__,
    ):
        assert part in said


def test_loops_conditionals_and_random_numbers_are_listed() -> None:
    x = wf.placeholder(wf.float32, [4], name="x")
    last = wf.while_loop(lambda v: v[0] < 5, lambda v: v * 2, [x], name="doubling")
    either = wf.cond(x[0] > 0, lambda: x * 2, lambda: x, name="either")
    noise = wf.random_uniform([4], name="noise")
    with pytest.raises(errors.UnimplementedError) as raised:
        compile_graph({"x": x}, {"y": last + either + noise})
    said = str(raised.value)
    for part in ("doubling/Merge", "either/", "unroll", "noise (RandomUniform", __file__):
        assert part in said


def test_conditionals_that_a_default_decides_are_folded() -> None:
    x = wf.placeholder(wf.float32, [3], name="x")
    training = wf.placeholder_with_default(False, [])
    y = wf.cond(training, lambda: wf.nn.dropout(x, rate=0.5), lambda: x * 2.0)
    (result,) = loaded(compile_graph({"x": x}, {"y": y}))(np.float32([1, 2, 3]))
    np.testing.assert_array_equal(result, [2, 4, 6])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "--shape x=1,3"),
        ({"x": [2, 4]}, r"\[2, 4\]"),
        ({"x": [-1, 3]}, r"\[-1, 3\]"),
        ({"x": [2, 3], "z": [1]}, "'z'"),
    ],
)
def test_shapes_that_are_open_or_wrong(given: dict[str, list[int]], said: str) -> None:
    x = wf.placeholder(wf.float32, [None, 3], name="x")
    with pytest.raises(errors.InvalidArgumentError, match=said):
        compile_graph({"x": x}, {"y": x + 1}, shapes=given)


@pytest.mark.parametrize("name", ["two words", "2", "float", "", "try", "main", "memcpy"])
def test_names_that_no_function_can_have(name: str) -> None:
    x = wf.placeholder(wf.float32, [3], name="x")
    with pytest.raises(errors.InvalidArgumentError, match="name"):
        compile_graph({"x": x}, {"y": x + 1}, name=name)


@pytest.mark.parametrize("target", ["aarch64", "mips-linux", "wasm32-linux", "arm-wasi", ""])
def test_targets_that_are_none(target: str) -> None:
    x = wf.placeholder(wf.float32, [3], name="x")
    with pytest.raises(errors.InvalidArgumentError, match="native, wasm32-wasi"):
        compile_graph({"x": x}, {"y": x + 1}, target)


@pytest.mark.parametrize("features", ["avx2", "+nonsense", "+neon,fma"])
def test_features_that_are_none(features: str) -> None:
    x = wf.placeholder(wf.float32, [3], name="x")
    with pytest.raises(errors.InvalidArgumentError, match="features of aarch64"):
        compile_graph({"x": x}, {"y": x + 1}, "aarch64-linux", features=features)


def test_inputs_and_outputs_that_no_function_can_have() -> None:
    x = wf.placeholder(wf.float32, [None, 3], name="x")
    with pytest.raises(errors.InvalidArgumentError, match="at least one output"):
        compile_graph({}, {})
    with pytest.raises(errors.InvalidArgumentError, match="'a' and as 'b'"):
        compile_graph({"a": x, "b": x}, {"y": x + 1}, shapes={"a": [1, 3], "b": [1, 3]})
    with pytest.raises(errors.InvalidArgumentError, match="exceeds the address space of 32 bits"):
        compile_graph({"x": x}, {"y": x + 1}, "arm-linux", shapes={"x": [1 << 29, 3]})
    with pytest.raises(errors.InvalidArgumentError, match="exceeds the address space of 64 bits"):
        compile_graph({"x": x}, {"y": x + 1}, shapes={"x": [1 << 62, 3]})


def test_checks_say_what_was_wrong() -> None:
    at = wf.placeholder(wf.int32, [2], name="at")
    table = wf.constant([1.0, 2.0, 3.0])
    made = compile_graph({"at": at}, {"y": wf.gather(table, at)})
    run = loaded(made)
    assert run(np.array([2, 0], np.int32))[0].tolist() == [3, 1]
    with pytest.raises(RuntimeError, match=r"3"):
        run(np.array([2, 3], np.int32))
    assert run(np.array([1, 1], np.int32))[0].tolist() == [2, 2]
    assert made.messages[0] in made.header


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = wf.placeholder(wf.float32, [None, 3], name="x")
    wf.identity(x * 2, name="y")
    model = tmp_path / "twice.pb"
    model.write_bytes(x.graph.as_graph_def().SerializeToString())
    command = ["compile", str(model), "--target", "riscv64-linux", "-o", str(tmp_path)]
    assert main(command) == 2
    assert "--shape x=1,3" in capsys.readouterr().err
    assert main([*command, "--shape", "x=4,3"]) == 0
    assert "nothing" in capsys.readouterr().out  # is left open
    assert "int32_t twice(const float *x, float *y, void *arena);" in (
        tmp_path / "twice.h"
    ).read_text("utf-8")
    assert (tmp_path / "twice.o").read_bytes()[:4] == b"\x7fELF"
    assert main([*command[:-1], str(model), "--shape", "x=4,3"]) == 2
    assert "File exists" in capsys.readouterr().err


def test_saved_models_by_the_command(tmp_path: Path) -> None:
    with wf.Session() as session:
        x = wf.placeholder(wf.float32, [2, 3], name="x")
        y = x @ wf.Variable(wf.ones([3, 4]), name="w")
        session.run(wf.global_variables_initializer())
        wf.saved_model.simple_save(session, str(tmp_path / "saved"), {"x": x}, {"y": y})
    assert main(["compile", str(tmp_path / "saved"), "-o", str(tmp_path)]) == 0
    assert "float *y" in (tmp_path / "saved.h").read_text("utf-8")


def test_texts_are_literals_of_c() -> None:
    assert quote('a"b\\?\n\u00e9') == '"a\\042b\\134\\077\\012\\303\\251"'


def test_headers_are_of_c_and_of_cpp(tmp_path: Path) -> None:
    if which("cc") is None:
        pytest.skip("no C compiler")
    x = wf.placeholder(wf.float32, [2], name="x")
    at = wf.placeholder(wf.int32, [2], name="at")
    odd = {"double": wf.cast(x, wf.float64), "a/b:0*/": x > 0, "x": x * 2, "X": x}
    odd |= {key: x + 1 for key in ("public", "and", "nullptr", "asm", "linux", "a/*b")}
    made = compile_graph({"x": x, "int32_t": at, "at": at + 1}, odd)
    made.write(tmp_path)
    for language in ("c", "c++"):
        source = tmp_path / f"use.{language.replace('+', 'p')}"
        source.write_text('#include "model.h"\nint main(void) { return *model_error(0); }\n')
        flags = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-x", language]
        subprocess.run(["cc", *flags, str(source)], check=True)
