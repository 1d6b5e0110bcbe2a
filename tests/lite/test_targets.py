"""Libraries for other machines: contents, size and results."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft_lite import Interpreter, compiling, targets
from weft_lite.commands import main
from weft_lite.elf import read_object
from weft_lite.errors import InvalidArgumentError, LiteError

pytest.importorskip("ziglang")

PROGRAM = """\
#include <stdio.h>
#include <stdlib.h>
#include "weft_lite.h"

static _Alignas(64) unsigned char file[1 << 16];

int main(int count, char **names) {
  FILE *stream = count == 2 ? fopen(names[1], "rb") : NULL;
  if (!stream) return 2;
  size_t size = fread(file, 1, sizeof file, stream), bytes;
  wl_error error;
  wl_interpreter *r;
  if (wl_query(file, size, NULL, &bytes, &error)) return puts(error.text), 1;
  void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (wl_open(file, size, memory, bytes, NULL, &r, &error)) return puts(error.text), 1;
  wl_info info;
  wl_tensor_info(r, wl_input(r, 0), &info);
  float *x = wl_data(r, wl_input(r, 0)), *y = wl_data(r, wl_output(r, 0));
  for (size_t i = 0; i < info.bytes / 4; i++) x[i] = (float)(i % 7) - 3;
  if (wl_invoke(r, &error)) return puts(error.text), 1;
  wl_tensor_info(r, wl_output(r, 0), &info);
  for (size_t i = 0; i < info.bytes / 4; i++) printf("%.9g\\n", y[i]);
  return 0;
}
"""


SETS = """\
#include <stdio.h>
#include "vector.h"

const wl_vector wl_vector_base = {"SSE2"}, wl_vector_avx2 = {"AVX2"};
const wl_vector wl_vector_avx512 = {"AVX-512"}, wl_vector_vnni = {"AVX-512 VNNI"};
const wl_vector wl_vector_vbmi = {"AVX-512 VBMI"}, wl_vector_amx = {"AMX"};

int main(void) {
  const wl_vector *each;
  for (size_t i = 0; (each = wl_vector_at(i)); i++) puts(each->name);
  return 0;
}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [1, 6, 6, 3], name="x")
        filters = wf.constant(np.random.default_rng(0).random((3, 3, 3, 5), "float32"))
        h = wf.nn.relu(wf.nn.conv2d(x, filters, 1, "SAME"))
        y = wf.nn.softmax(wf.reshape(h, [1, -1]), name="y")
        content = wf.lite.Converter.from_session(session, [x], [y]).convert()
    path = tmp_path_factory.mktemp("model") / "model.weftlite"
    path.write_bytes(content)
    return path


def wanted(model: Path) -> list[float]:
    interpreter = Interpreter(model)
    value = (np.arange(108) % 7 - 3).reshape(1, 6, 6, 3).astype("float32")
    return interpreter.get_signature_runner()(x=value)["y"].ravel().tolist()


@pytest.mark.skipif(compiling.machine() != "x86_64", reason="asks an x86-64 processor")
@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="asks Linux what it knows")
@pytest.mark.parametrize("compiler", [targets.zig(), ["gcc"]], ids=["zig", "gcc"])
def test_each_compiler_finds_the_instruction_sets_that_linux_does(
    compiler: list[str], tmp_path: Path
) -> None:
    """Zig's default processor once had no vector instructions, so the library found none."""
    if not shutil.which(compiler[0]):
        pytest.skip(f"no {compiler[0]}")
    (tmp_path / "sets.c").write_text(SETS)
    runtime = str(compiling.RUNTIME)
    words = ["-std=c11", "-I", runtime, "sets.c", f"{runtime}/vector.c", "-o", "sets"]
    command = [*compiler, *(["cc"] if compiler[0] != "gcc" else []), *words]
    subprocess.run(command, cwd=tmp_path, check=True)
    found = subprocess.run([tmp_path / "sets"], capture_output=True, text=True, check=True)
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    flags = set(next(line for line in lines if line.startswith("flags")).split())
    wide = flags >= {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
    known = {
        "AMX": wide and flags >= {"amx_tile", "amx_int8", "avx512_vnni", "avx512vbmi"},
        "AVX-512 VBMI": wide and flags >= {"avx512_vnni", "avx512vbmi"},
        "AVX-512 VNNI": wide and "avx512_vnni" in flags,
        "AVX-512": wide,
        "AVX2": flags >= {"avx2", "fma"},
        "SSE2": True,
    }
    assert found.stdout.splitlines() == [name for name, is_there in known.items() if is_there]


@pytest.mark.skipif(compiling.machine() != "x86_64", reason="names x86-64 instruction sets")
def test_zig_compiles_for_any_processor_of_the_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its default is the building machine: no wheel for others, and no build at all on AVX-512."""
    monkeypatch.setattr(compiling, "system_compiler", lambda: None)
    command = [*compiling.compiler(), "-dM", "-E", "-x", "c", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "__SSE2__" in done.stdout and "__AVX__" not in done.stdout


def test_kinds_are_those_of_the_files(model: Path) -> None:
    assert targets.kinds_of([model, model]) == ["Conv2D", "Reshape", "Softmax"]
    assert {"Conv2D", "While", "LstmCell"} <= set(targets.all_kinds())


CHOICE = """\
#include "runtime.h"

int main(void) { return WL_HAS(Sigmoid) == 1 && WL_HAS(Conv2D) == 1 && WL_HAS(Tanh) == 0 ? 0 : 1; }
"""


def test_a_build_of_some_kernels_has_these(tmp_path: Path) -> None:
    """Cases of chosen kernels were compiled as if they were not chosen."""
    (tmp_path / "choice.c").write_text(CHOICE)
    flags = [*compiling.COMMON, *targets.kernel_flags(["Sigmoid", "Conv2D"])]
    command = [*compiling.compiler(), *flags, "-I", str(compiling.RUNTIME), "choice.c"]
    subprocess.run([*command, "-o", "choice"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "choice"], check=True)


def test_a_library_for_android_asks_for_what_android_has(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = targets.build("aarch64-android", tmp_path / "a", targets.kinds_of([model]))
    assert [path.name for path in built.files[:2]] == ["libweft_lite.a", "weft_lite.h"]
    assert 20_000 < built.size < 160_000
    monkeypatch.setattr(targets, "ANDROID", targets.ANDROID - {"memcpy"})
    with pytest.raises(LiteError, match=r"needs symbols that Android does not have: \['memcpy'\]"):
        targets.build("aarch64-android", tmp_path / "b", targets.kinds_of([model]))


@pytest.mark.parametrize("target", ["", "aarch64", "mips-linux", "aarch64-linux-musl; ls", "-o"])
def test_a_target_that_is_not_known_is_refused(target: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="is not supported; examples are"):
        targets.build(target, tmp_path)


def test_an_object_that_is_no_elf_file_is_refused() -> None:
    with pytest.raises(ValueError, match="not a little-endian ELF file"):
        read_object(b"\0asm")


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="no qemu-aarch64")
@pytest.mark.parametrize("cpu", ["cortex-a57", "max"])
def test_a_program_for_aarch64_computes_the_same(model: Path, tmp_path: Path, cpu: str) -> None:
    """Without and with dot products; zig builds its C library the first time."""
    words = ["--target", "aarch64-linux-musl", "--out", str(tmp_path)]
    assert main(["build", "--models", str(model), *words]) == 0
    (tmp_path / "main.c").write_text(PROGRAM)
    command = [
        *targets.zig(),
        "cc",
        "-target",
        "aarch64-linux-musl",
        "-static",
        "-I",
        ".",
        "main.c",
    ]
    command += ["libweft_lite.a", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    said = subprocess.run(
        ["qemu-aarch64", "-cpu", cpu, "main", str(model)],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    np.testing.assert_allclose(np.array(said.stdout.split(), float), wanted(model), 1e-4, 1e-7)


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "most"),
    [
        ("aarch64-linux-musl", 600_000),
        ("x86_64-linux-musl", 900_000),
        ("wasm32-wasi", 600_000),
        ("aarch64-macos", 600_000),
        ("x86_64-windows-gnu", 900_000),
    ],
)
def test_all_kernels_are_small(target: str, most: int, tmp_path: Path) -> None:
    built = targets.build(target, tmp_path)
    assert 100_000 < built.size < most
    assert all(path.exists() for path in built.files)


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "system_compiler", lambda: None)
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"install cc, or pip install ziglang"):
        compiling.compiler()


def test_what_a_compiler_says_is_told() -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such header')"]
    with pytest.raises(RuntimeError, match="no such header"):
        compiling._call(command)
