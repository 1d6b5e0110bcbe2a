"""Compiled models behind `weft_lite.h`: the same app, with another library."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft._commands import main as weft_main
from weft_lite import Interpreter, library
from weft_lite.commands import main
from weft_lite.compiling import RUNTIME, system_compiler
from weft_lite.convert.compiled import build_compiled
from weft_lite.convert.graphs import graph_of
from weft_tensor import errors

pytest.importorskip("weft_compiler")

APP = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "weft_lite.h"

static char *content(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  char *found = aligned_alloc(64, (*size + 63) / 64 * 64);
  if (fread(found, 1, *size, file) != *size) exit(9);
  fclose(file);
  return found;
}

int main(int count, char **words) {
  size_t size = 0, bytes, spare = count > 2 ? (size_t)atoi(words[2]) : 0;
  char *file = content(words[1], &size);
  wl_error error;
  wl_interpreter *r = (wl_interpreter *)words;
  if (wl_query(file, size, NULL, &bytes, &error)) return fputs(error.text, stderr), 1;
  void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (wl_open(file, size, memory, bytes - spare, NULL, &r, &error))
    return fputs(error.text, stderr), r ? 8 : 2;
  if (wl_input(r, 1) != UINT32_MAX || wl_output(r, 1) != UINT32_MAX) return 6;
  wl_info info;
  wl_tensor_info(r, wl_input(r, 0), &info);
  int32_t dims[WL_MAX_RANK];
  memcpy(dims, info.dims, sizeof dims);
  if (wl_resize(r, wl_input(r, 0), info.rank, dims, &error)) return 3;
  for (int turn = 0; turn < 2; turn++) {
    for (size_t i = 0; i < info.bytes / 4; i++)
      ((float *)wl_data(r, wl_input(r, 0)))[i] = (float)(i % 13) / 8 - 0.5f;
    if (wl_plan(r, &error) || wl_invoke(r, &error)) return fputs(error.text, stderr), 4;
  }
  wl_tensor_info(r, wl_output(r, 0), &info);
  printf("%s %d\n", info.name, info.dims[1]);
  float *result = wl_data(r, wl_output(r, 0));
  for (size_t i = 0; i < info.bytes / 4; i++) printf("%.5f\n", result[i]);
  dims[0]++;
  if (wl_resize(r, wl_input(r, 0), 1, dims, &error) != WL_INVALID_ARGUMENT) return 5;
  if (wl_resize(r, wl_input(r, 0), 4, dims, &error) != WL_OUT_OF_RANGE) return 7;
  return 0;
}
"""


def converter() -> wf.lite.Converter:
    draw = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return wf.constant(draw.standard_normal(shape).astype("f") / 3)

    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [1, 9, 9, 3], name="x")
        h = wf.nn.relu6(
            wf.nn.bias_add(wf.nn.conv2d(x, weights(3, 3, 3, 20), 2, "SAME"), weights(20))
        )
        h = wf.nn.relu(wf.nn.depthwise_conv2d(h, weights(3, 3, 20, 1), [1, 1, 1, 1], "SAME"))
        h = h + wf.nn.conv2d(h, weights(1, 1, 20, 20), 1, "VALID")
        pooled = wf.reshape(wf.nn.avg_pool(h, 5, 1, "VALID"), [1, 20])
        y = wf.nn.softmax(pooled @ weights(20, 7), name="y")
        return wf.lite.Converter.from_session(session, [x], [y])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The network in float32 and in int8, and a library of each."""
    if not system_compiler() or sys.platform != "linux":
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("models")
    made = converter()
    calibration = [{"x": np.random.default_rng(i).random((1, 9, 9, 3), "f")} for i in range(4)]
    found = {}
    for name, content in [
        ("float32", made.convert()),
        ("int8", made.convert(calibration=calibration, limit=1.0)),
    ]:
        found[name] = folder / f"{name}.weftlite"
        found[name].write_bytes(content)
        build_compiled(found[name], "native", folder / name)
    (folder / "app.c").write_text(APP, "utf-8")
    return found


def linked(file: Path, folder: Path) -> list[str]:
    """The app with the library that is in a folder, or with the runtime."""
    app, command = folder / "app", system_compiler()
    assert command
    include = folder if (folder / "weft_lite.h").exists() else RUNTIME
    libraries = [str(folder / "libweft_lite.a")]
    if not Path(libraries[0]).exists():
        built = Path(library.load()._name)
        libraries = [str(built), f"-Wl,-rpath,{built.parent}"]
    source = str(file.parent / "app.c")
    subprocess.run([*command, "-I", str(include), source, *libraries, "-o", str(app)], check=True)
    return [str(app)]


@pytest.mark.parametrize("form", ["float32", "int8"])
def test_an_app_links_the_model_in_the_place_of_the_runtime(
    form: str, files: dict[str, Path], tmp_path: Path
) -> None:
    file = files[form]
    own, runtime = linked(file, file.parent / form), linked(file, tmp_path)
    said = [
        subprocess.run([*app, str(file)], capture_output=True, text=True, timeout=100, check=False)
        for app in (runtime, own)
    ]
    assert [each.returncode for each in said] == [0, 0], said
    assert said[0].stdout.startswith("y 7\n") and len(said[0].stdout.split()) == 9
    values = [np.array(each.stdout.split()[2:], float) for each in said]
    np.testing.assert_allclose(values[1], values[0], atol=0 if form == "int8" else 2e-5)


def test_another_file_and_too_little_memory_are_refused(
    files: dict[str, Path], tmp_path: Path
) -> None:
    app = linked(files["float32"], files["float32"].parent / "float32")

    def run(*words: str) -> tuple[int, str]:
        done = subprocess.run([*app, *words], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    other = tmp_path / "other"
    content = bytearray(files["float32"].read_bytes())
    content[40] ^= 1
    other.write_bytes(content)
    assert run(str(files["int8"])) == (
        1, "this library runs one model, and the file is not the one that was compiled",
    )  # fmt: skip
    assert run(str(other))[0] == 1
    assert run(str(tmp_path / "none"))[0] == 0  # NULL: the model needs no file
    assert run(str(files["float32"]), "64") == (2, "there is less memory than wl_query says")


def test_damaged_files_are_not_compiled(
    files: dict[str, Path], tmp_path: Path, capsys: Any
) -> None:
    content = bytearray(files["float32"].read_bytes())
    content[-1] ^= 1
    damaged = tmp_path / "damaged.weftlite"
    damaged.write_bytes(content)
    with pytest.raises(errors.DataLossError, match="weights"):
        build_compiled(damaged, "native", tmp_path)
    damaged.write_bytes(content[:-1])
    assert weft_main(["compile", str(damaged), "-o", str(tmp_path)]) == 2
    assert "damaged.weftlite: header: sections" in capsys.readouterr().err


def test_python_runs_it_too(files: dict[str, Path]) -> None:
    file = files["float32"]
    script = (
        "import sys, numpy as np; from weft_lite import Interpreter\n"
        "i = Interpreter(model_path=sys.argv[1]); run = i.get_signature_runner()\n"
        "print(run(x=np.ones((1, 9, 9, 3), 'f'))['y'].tolist())"
    )
    built = file.parent / "float32" / "libweft_lite.so"
    done = subprocess.run(
        [sys.executable, "-c", script, str(file)],
        env={"WEFT_LITE_LIBRARY": str(built), "PATH": ""},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    interpreter = Interpreter(model_path=str(file))
    want = interpreter.get_signature_runner()(x=np.ones((1, 9, 9, 3), "f"))["y"]
    np.testing.assert_allclose(np.array(json.loads(done.stdout)), want, atol=1e-6)


def test_the_command(files: dict[str, Path], tmp_path: Path, capsys: Any) -> None:
    command = ["build", "--compiled", str(files["float32"]), "-o", str(tmp_path)]
    assert main([*command, "--target", "native"]) == 0
    assert "memcpy" in capsys.readouterr().out
    assert (tmp_path / "libweft_lite.a").exists() and (tmp_path / "weft_lite.h").exists()
    if find_spec("ziglang"):
        assert main([*command[:-1], str(tmp_path / "phone"), "--target", "aarch64-android"]) == 0
        assert "libweft_lite.a" in capsys.readouterr().out
    assert main([*command, "--target", "x86_64-windows-gnu"]) != 0
    assert "Linux, Android and WASI" in capsys.readouterr().err
    assert main(
        ["build", "--all", "--cpu", "x86-64-v3", "--target", "aarch64-linux-musl", "-o", "x"]
    )


def test_a_file_of_int8_compiles_for_a_microcontroller(
    files: dict[str, Path], tmp_path: Path
) -> None:
    script = "import sys; from weft._commands import main; sys.exit(main(sys.argv[1:]))"
    words = ["compile", str(files["int8"]), "--target", "arm-none", "--cpu", "cortex-m4"]
    command = [sys.executable, "-c", script, *words, "-o", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "int8.o").read_bytes()[:6] == b"\x7fELF\x01\x01"


def test_what_no_graph_computes_is_listed() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [3], name="x")
        seen = wf.Variable(wf.zeros([3]), name="seen")
        many = wf.while_loop(lambda v: wf.reduce_sum(v) < 9, lambda v: v * 2, [x])
        total = wf.identity(wf.assign_add(seen, many), name="total")
        session.run(wf.global_variables_initializer())
        converter = wf.lite.Converter.from_session(session, [x], [total], variables=[seen])
        content = converter.convert(samples={"x": np.ones(3, "f")})
    with pytest.raises(errors.UnimplementedError) as raised:
        graph_of(content)
    assert "While" in str(raised.value) and "variable seen" in str(raised.value)


@pytest.mark.long
def test_it_runs_on_aarch64(files: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    if which("qemu-aarch64") is None:
        pytest.skip("needs qemu-aarch64")
    file = files["float32"]
    build_compiled(file, "aarch64-linux-musl", tmp_path)
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static"]
    app = tmp_path / "app"
    parts = [str(file.parent / "app.c"), str(tmp_path / "libweft_lite.a")]
    subprocess.run([*zig, "-I", str(tmp_path), *parts, "-o", str(app)], check=True)
    command = ["qemu-aarch64", str(app), str(file)]
    got = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    own = linked(file, file.parent / "float32")
    want = subprocess.run([*own, str(file)], capture_output=True, text=True, check=True).stdout
    first, second = [np.array(text.split()[2:], float) for text in (got, want)]
    np.testing.assert_allclose(first, second, atol=2e-5)
