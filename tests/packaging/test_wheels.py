"""Every wheel, built as for a release and tried alone in a clean environment."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from weft_testing.workspace import ROOT, distribution, module

PACKAGES = ["tensor", "graph", "autodiff", "exec", "io", "weft"]

# What comes along with each package, and nothing else does.
TENSOR = {"weftml-tensor", "numpy", "ml-dtypes"}
GRAPH = TENSOR | {"weftml-graph", "flatbuffers", "protobuf"}
AUTODIFF = GRAPH | {"weftml-autodiff"}
EXEC = GRAPH | {"weftml-exec", "threadpoolctl"}
IO = AUTODIFF | EXEC | {"weftml-io", "pillow", "xxhash", "fsspec", "google-crc32c"}
WEFT = IO | {"weftml", "absl-py"}
BRINGS = dict(zip(PACKAGES, [TENSOR, GRAPH, AUTODIFF, EXEC, IO, WEFT], strict=True))

WHEEL_LIMIT = 1_000_000  # bytes


def call(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Environment:
    """A new virtual environment with nothing in it; the running one's pip installs into it."""

    def __init__(self, path: Path) -> None:
        venv.create(path, with_pip=False)
        self.path = path
        self.python = path / ("Scripts" if sys.platform == "win32" else "bin") / "python"

    def pip(self, *args: str | Path) -> str:
        return call(sys.executable, "-m", "pip", "--python", self.python, *args)

    def installed(self) -> set[str]:
        rows = json.loads(self.pip("list", "--format", "json"))
        return {re.sub(r"[-_.]+", "-", row["name"]).lower() for row in rows}

    def run(self, program: str) -> str:
        """Runs it isolated from this checkout and from the caller's environment."""
        return call(self.python, "-I", "-c", program, cwd=self.path)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    house = tmp_path_factory.mktemp("wheelhouse")
    for package in PACKAGES:
        build = ("-m", "hatchling", "build", "-t", "wheel", "-d", str(house))
        call(sys.executable, *build, cwd=ROOT / "packages" / package)
    found = {path.name.partition("-")[0]: path for path in house.iterdir()}
    return {package: found[distribution(package).replace("-", "_")] for package in PACKAGES}


@pytest.fixture(scope="session")
def constraints(wheels: dict[str, Path]) -> Path:
    """Holds siblings to the new wheels: an index may know other projects by the same names."""
    lines = [f"{distribution(package)} @ {path.as_uri()}" for package, path in wheels.items()]
    path = wheels["weft"].parent / "constraints.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def readme_program(package: str) -> str:
    """The Python blocks of a package's README, one after the other."""
    text = (ROOT / "packages" / package / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks, f"the README of {package} shows no use"
    return "\n".join(blocks)


@pytest.mark.parametrize("package", PACKAGES)
def test_wheel_holds_the_package_only(package: str, wheels: dict[str, Path]) -> None:
    wheel = wheels[package]
    assert wheel.name.endswith("-py3-none-any.whl")
    assert wheel.stat().st_size < WHEEL_LIMIT
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
        info = next(name for name in files if name.endswith("/METADATA"))
        metadata = archive.read(info).decode()
    assert {name.partition("/")[0] for name in files} == {module(package), info.partition("/")[0]}
    assert f"{module(package)}/py.typed" in files
    assert any(name.endswith("/licenses/LICENSE") for name in files)
    sources = ROOT / "packages" / package / "src"
    assert {path.relative_to(sources).as_posix() for path in sources.rglob("*.py")} <= set(files)
    assert "License-Expression: Apache-2.0" in metadata
    required = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    assert not [text for text in required if "@" in text], "a release names no paths"


@pytest.mark.parametrize("package", PACKAGES)
def test_package_works_alone(
    package: str, wheels: dict[str, Path], constraints: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "environment")
    environment.pip("install", "--quiet", "--no-compile", "-c", constraints, wheels[package])
    assert environment.installed() == BRINGS[package]
    environment.pip("check")
    where = environment.run(f"import {module(package)} as m; print(m.__file__)")
    assert where.startswith(str(environment.path))
    environment.run(readme_program(package))


def test_a_package_installs_from_the_tree_with_its_siblings(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment")
    environment.pip("install", "--quiet", "--no-compile", ROOT / "packages" / "weft")
    assert environment.installed() == WEFT
    environment.run("import weft")
