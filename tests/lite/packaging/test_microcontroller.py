"""Builds for Cortex-M: results under qemu, memory, and what a program needs from others."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from weft_testing.lite_packages import check_sbom, result_of, small_model
from weft_testing.workspace import ROOT

import weft as wf
from weft_lite import compiling, targets
from weft_lite.commands import main
from weft_lite.elf import read_object
from weft_lite.errors import InvalidArgumentError, LiteError
from weft_lite.packaging import microcontroller

HERE = ROOT / "tests" / "lite" / "foreign"
BOARDS = {
    "cortex-m4": ("mps2-an386", 0, 0x20000000),
    "cortex-m33": ("mps2-an505", 0x10000000, 0x38000000),
    "cortex-m7": ("mps2-an500", 0, 0x20000000),
}
"""qemu's name of a board with each processor, and the addresses of its memories."""

ROUNDING = """\
#include <math.h>
#include <stdio.h>
#include <string.h>
static float of(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
static unsigned bits(float x) { unsigned b; memcpy(&b, &x, 4); return b; }
static float floor_of(float x) { return floorf(x); }
static float ceil_of(float x) { return ceilf(x); }
static float trunc_of(float x) { return truncf(x); }
static float rint_of(float x) { return rintf(x); }
static float round_of(float x) { return roundf(x); }
static double rint64_of(double x) { return nearbyint(x); }
static long lrint_of(float x) { return lrintf(x); }
#include "rounding.h"
int main(void) {
  unsigned long failures = 0;
  for (unsigned long k = 0; k < 1ul << 32; k += 4099) {
    float x = of((unsigned)k);
    if (x != x) continue;
    failures += bits(floorf(x)) != bits(floor_of(x));
    failures += bits(ceilf(x)) != bits(ceil_of(x));
    failures += bits(truncf(x)) != bits(trunc_of(x));
    failures += bits(rintf(x)) != bits(rint_of(x));
    failures += bits(roundf(x)) != bits(round_of(x));
    failures += nearbyint(x) != rint64_of(x);
    if (fabsf(x) < 0x1p31f) failures += lrintf(x) != lrint_of(x);
  }
  float halves[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0.49999997f, 8388607.5f, -0.0f};
  for (int i = 0; i < 9; i++) {
    failures += bits(rintf(halves[i])) != bits(rint_of(halves[i]));
    failures += bits(roundf(halves[i])) != bits(round_of(halves[i]));
    failures += bits(floorf(halves[i])) != bits(floor_of(halves[i]));
    failures += bits(ceilf(halves[i])) != bits(ceil_of(halves[i]));
  }
  printf("%lu\\n", failures);
  return 0;
}
"""


def test_rounding_has_the_bits_of_the_c_library(tmp_path: Path) -> None:
    """Compare a million floats, and ties."""
    (tmp_path / "rounding.c").write_text(ROUNDING)
    bare = compiling.RUNTIME / "bare" / "rounding.h"
    shutil.copy(bare, tmp_path)
    command = [*compiling.compiler(), "-std=gnu11", "-O2", "-fno-builtin", "rounding.c"]
    subprocess.run([*command, "-o", "rounding", "-lm"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "rounding"], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_a_processor_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"--cpu must be one of cortex-m4, .* got ''"):
        microcontroller.build(tmp_path, "")
    models = [tmp_path / "a.weftlite", tmp_path / "b.weftlite"]
    with pytest.raises(InvalidArgumentError, match="contains one model, got 2"):
        microcontroller.build(tmp_path, "cortex-m4", models)


def test_functions_beyond_memory_and_mathematics_are_refused() -> None:
    known = {"memcpy", "strlen", "__aeabi_dadd", "logf", "sinf"}
    assert microcontroller._check(known) == ["logf", "sinf"]
    with pytest.raises(LiteError, match=r"needs unexpected functions: \['malloc'\]"):
        microcontroller._check(known | {"malloc"})


def values_of(text: str) -> dict[str, bytes]:
    """Return the bytes that the program prints, by name."""
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: bytes.fromhex("".join(row[1:])) for row in rows if row}


def run(cpu: str, model: Path, out: Path) -> dict[str, bytes]:
    """Link the program of `foreign/cortex_m.c` with a build, and run it under qemu."""
    machine, flash, ram = BOARDS[cpu]
    command = [*microcontroller._command(cpu, "-O2"), "-I", str(out)]
    objects = targets.compile_files(
        [HERE / "cortex_m.c", out / "weft_lite_model.c"], out / "objects", lambda path: command
    )
    helpers = targets.compile_helpers(
        microcontroller._ZIG_TARGET, microcontroller.CPUS[cpu], out / "objects"
    )
    link = [*targets.zig(), "ld.lld", "-m", "armelf", "--gc-sections", "-e", "start"]
    link += [f"--defsym=FLASH={flash}", f"--defsym=RAM={ram}", "-T", str(HERE / "cortex_m.ld")]
    parts = [*objects, out / "libweft_lite.a", helpers]
    targets.call([*link, *map(str, parts), "-o", str(out / "program")])
    semihosting = ["-semihosting-config", "enable=on,target=native"]
    done = subprocess.run(
        ["qemu-system-arm", "-M", machine, "-nographic", "-monitor", "none", "-serial", "none",
         *semihosting, "-kernel", str(out / "program")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return values_of(done.stderr + done.stdout)


needs_emulator = pytest.mark.skipif(
    not shutil.which("qemu-system-arm"), reason="no qemu-system-arm"
)


@pytest.mark.parametrize(
    ("cpu", "int8"),
    [
        pytest.param("cortex-m4", True),
        pytest.param("cortex-m4", False, marks=pytest.mark.long),
        pytest.param("cortex-m33", True, marks=pytest.mark.long),
        pytest.param("cortex-m7", False, marks=pytest.mark.long),
    ],
)
@needs_emulator
def test_a_microcontroller_computes_the_same_bits(
    cpu: str, int8: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ziglang")
    model, out = small_model(tmp_path / "model.weftlite", int8), tmp_path / "out"
    words = ["--target", "arm-none-eabi", "--cpu", cpu, "--models", str(model), "-o", str(out)]
    assert main(["build", *words]) == 0
    printed = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert printed["math functions to link"] == "none"
    found = run(cpu, model, out)
    portable = compiling.machine() == "x86_64"  # other processors lack its order of sums
    if int8 or portable:
        assert found["result"] == result_of(model, 1 if int8 else 4, portable=portable)
    (needed,) = struct.unpack("<I", found["needed"])
    header = (out / "weft_lite_model.h").read_text("utf-8")
    assert f"#define WEFT_MODEL_MEMORY {needed} " in header
    assert 4 * needed > 1000 * float(printed["RAM, without the stack"].split()[0]) >= 0.99 * needed
    (stack,) = struct.unpack("<I", found["stack"])
    assert 100 < stack < 4096
    image = read_object((out / "program").read_bytes())
    assert (
        image.size
        < 1.1
        * 1000
        * sum(float(printed[name].split()[0]) for name in ("flash: code", "flash: model"))
        + 2000
    )
    check_sbom(out)
    flags = struct.unpack_from("<I", (out / "program").read_bytes(), 36)[0]
    assert flags & 0x400  # the hard-float ABI


@pytest.mark.long
def test_functions_of_the_math_library_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ziglang")
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [1, 4], name="x")
        y = wf.math.log(x, name="y")
        content = wf.lite.Converter.from_session(session, [x], [y]).convert(
            samples={"x": np.ones([1, 4], "float32")}
        )
    (tmp_path / "model.weftlite").write_bytes(content)
    words = ["--cpu", "cortex-m4", "--models", str(tmp_path / "model.weftlite")]
    out = ["-o", str(tmp_path / "out")]
    assert main(["build", "--target", "arm-none-eabi", *words, *out]) == 0
    printed = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert printed["math functions to link"] == "logf"
