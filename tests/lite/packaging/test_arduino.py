"""Arduino libraries: compiled without options, as the Arduino IDE does, and run on this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from weft_testing.lite_packages import check_sbom, result_of, small_model

from weft_lite import compiling
from weft_lite.commands import main
from weft_lite.errors import InvalidArgumentError
from weft_lite.packaging import arduino

BOARD = """\
#pragma once
#include <cstdio>
#include <cstddef>
struct Port {
  void begin(long) {}
  void println(const char *text) { std::puts(text); }
  void println(float value, int) { std::printf("%a\\n", static_cast<double>(value)); }
};
static Port Serial;
static void delay(int) {}
"""
PROGRAM = """\
#include "Arduino.h"
#include "Run.ino"
int main() {
  setup();
  for (size_t i = 0; i < model.inputBytes() / 4; i++) model.input<float>()[i] = float(i % 7) - 3;
  if (!model.invoke()) return 1;
  for (size_t i = 0; i < model.outputBytes() / 4; i++) Serial.println(model.output<float>()[i], 6);
  std::puts("loop");
  loop();
}
"""


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_a_sketch_computes_the_same_bits(tmp_path: Path) -> None:
    model, out = small_model(tmp_path / "model.weftlite", int8=True), tmp_path / "out"
    words = ["--target", "arduino", "--models", str(model), "-o", str(out)]
    assert main(["build", *words]) == 0
    library = out / "WeftLite"
    properties = dict(
        line.split("=", 1) for line in (library / "library.properties").read_text().splitlines()
    )
    assert properties["name"] == "WeftLite" and properties["includes"] == "WeftLite.h"
    assert {"version", "author", "maintainer", "sentence", "category", "url"} <= set(properties)
    source = library / "src"
    assert not [path.name for path in source.iterdir() if path.name.startswith("vector_avx")]

    (tmp_path / "Arduino.h").write_text(BOARD)
    (tmp_path / "main.cpp").write_text(PROGRAM)
    files = [str(path) for path in sorted(source.glob("*.c"))]
    compiler = compiling.compiler()
    subprocess.run([*compiler, "-Os", "-w", "-c", *files], cwd=tmp_path, check=True)
    objects = sorted(str(path) for path in tmp_path.glob("*.o"))
    paths = ["-I", ".", "-I", str(source), "-I", str(library / "examples" / "Run")]
    command = ["g++", "-std=gnu++11", *paths, "-Wall", "-Wextra", "-Werror", "main.cpp", *objects]
    subprocess.run([*command, "-o", "main", "-lm"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    first, second = done.stdout.split("loop\n")
    values = np.array([float.fromhex(line) for line in first.splitlines()], "float32")
    portable = compiling.machine() == "x86_64"
    assert values.tobytes() == result_of(model, 1, portable=portable)
    assert len(second.splitlines()) == values.size
    names = {part["name"] for part in check_sbom(out)["components"]}
    assert "WeftLite/src/weft_lite_model.c" in names


def test_a_library_needs_one_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="contains one model, got 0: pass --models"):
        arduino.build(tmp_path, [])
    assert main(["build", "--target", "arduino", "--all", "-o", str(tmp_path)]) == 2


def test_two_builds_are_equal(tmp_path: Path) -> None:
    model = small_model(tmp_path / "model.weftlite", int8=True)
    words = ["build", "--target", "arduino", "--models", str(model), "-o"]
    contents = []
    for name in ("a", "b"):
        assert main([*words, str(tmp_path / name)]) == 0
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        contents.append([(p.relative_to(tmp_path / name), p.read_bytes()) for p in files])
    assert contents[0] == contents[1]
