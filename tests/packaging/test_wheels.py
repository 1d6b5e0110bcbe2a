"""Tests of all release wheels in clean environments."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from weft_testing.loading import load
from weft_testing.workspace import ROOT, distribution, module

import weft as wf

PACKAGES = [
    "tensor",
    "graph",
    "autodiff",
    "client",
    "compiler",
    "exec",
    "io",
    "contrib",
    "distrib",
    "trace",
    "weft",
]
APART = "lite"  # with a library for one machine in it, and nothing that it brings along

# What comes along with each package, and nothing else does.
TENSOR = {"weftml-tensor", "numpy", "ml-dtypes"}
GRAPH = TENSOR | {"weftml-graph", "flatbuffers", "protobuf"}
AUTODIFF = GRAPH | {"weftml-autodiff"}
CLIENT = {"weftml-client"}
COMPILER = GRAPH | {"weftml-compiler", "llvmlite"}
EXEC = GRAPH | {"weftml-exec", "weftml-trace", "threadpoolctl", "google-re2"}
IO = (
    AUTODIFF
    | EXEC
    | {"weftml-io", "pillow", "simplejpeg", "isal", "xxhash", "fsspec", "google-crc32c"}
)
CONTRIB = IO | {"weftml-contrib"}
TRACE = {"weftml-trace", "numpy"}
DISTRIB = IO | {"weftml-distrib", "grpcio", "typing-extensions"}
WEFT = DISTRIB | {"weftml", "absl-py"}
BRINGS = dict(
    zip(
        PACKAGES,
        [TENSOR, GRAPH, AUTODIFF, CLIENT, COMPILER, EXEC, IO, CONTRIB, DISTRIB, TRACE, WEFT],
        strict=True,
    )
)

BUILDER = "hatchling>=1.27"
BUILD = """
import os, sys
from hatchling.build import build_wheel
for package in sys.argv[2:]:
    os.chdir(package)
    build_wheel(sys.argv[1])
"""

WHEEL_LIMIT = 1_000_000  # bytes
LITE_LIMIT = 2_000_000
COMPILER_LIMIT = 1_200_000  # with machine code of routines for several processors


def call(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Environment:
    """Create a virtual environment, into which the running environment's pip installs."""

    def __init__(self, path: Path) -> None:
        venv.create(path, with_pip=False)
        self.path = path
        self.python = path / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        purelib = self.run("import sysconfig; print(sysconfig.get_path('purelib'))")
        self._packages = Path(purelib.strip())

    def install(self, *args: str | Path) -> None:
        pip = (sys.executable, "-m", "pip", "--python", self.python)
        call(*pip, "install", "--quiet", "--no-compile", *args)

    def with_only(self, names: set[str], path: Path) -> Environment:
        """Return an environment with some of the distributions, by links to this one."""
        owners: dict[str, set[str]] = {}
        for name, found in self.installed().items():
            for file in found.files or ():
                owners.setdefault(file.parts[0], set()).add(name)
        made = Environment(path)
        for entry, of in owners.items():
            if of & names and entry != "..":  # the commands are not needed
                assert of <= names, f"{entry} belongs to {of}"
                (made._packages / entry).symlink_to(self._packages / entry)
        assert made.installed().keys() == names
        return made

    def installed(self) -> dict[str, Distribution]:
        found = distributions(path=[str(self._packages)])
        return {canonicalize_name(each.metadata["Name"]): each for each in found}

    def required_by(self, name: str) -> set[str]:
        """Return a distribution with all its requirements, each in a fitting version."""
        installed = self.installed()
        seen: set[str] = set()
        ahead = [canonicalize_name(name)]
        while ahead:
            name = ahead.pop()
            if name in seen:
                continue
            seen.add(name)
            for text in installed[name].requires or ():
                need = Requirement(text)
                if need.marker is None or need.marker.evaluate({"extra": ""}):
                    other = canonicalize_name(need.name)
                    assert installed[other].version in need.specifier, (name, text)
                    ahead.append(other)
        return seen

    def run(self, program: str) -> str:
        """Runs it isolated from this checkout and from the caller's environment."""
        return call(self.python, "-I", "-c", program, cwd=self.path)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Built by the hook that pip and build call; lite, which compiles, beside the others."""
    house = tmp_path_factory.mktemp("wheelhouse")

    def build(names: list[str]) -> None:
        call(sys.executable, "-c", BUILD, house, *[ROOT / "packages" / name for name in names])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(build, [[APART], PACKAGES]))
    found = {path.name.partition("-")[0]: path for path in house.iterdir()}
    return {name: found[distribution(name).replace("-", "_")] for name in (APART, *PACKAGES)}


@pytest.fixture(scope="session")
def environment(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with all wheels, their dependencies and the build tools."""
    made = Environment(tmp_path_factory.mktemp("environment"))
    made.install(*wheels.values(), BUILDER)
    return made


@pytest.fixture(scope="session")
def newcomer(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the packages that the README of the examples names."""
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    sentence = re.search(r"Without hatch, the examples need these packages: (.*?)\.\s", text, re.S)
    assert sentence is not None
    made = tmp_path_factory.mktemp("newcomer")
    venv.create(made, with_pip=True)
    python = made / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    house = ["--find-links", next(iter(wheels.values())).parent]
    call(python, "-m", "pip", "install", "--quiet", *house, *re.findall("`(.+?)`", sentence[1]))
    return python


def readme_program(package: str) -> str:
    """The Python blocks of a package's README, one after the other."""
    text = (ROOT / "packages" / package / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks, f"the README of {package} shows no use"
    return "\n".join(blocks)


@pytest.mark.parametrize("package", [*PACKAGES, APART])
def test_wheel_holds_the_package_only(package: str, wheels: dict[str, Path]) -> None:
    wheel = wheels[package]
    machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{machine if package == APART else 'any'}.whl")
    limits = {APART: LITE_LIMIT, "compiler": COMPILER_LIMIT}
    assert wheel.stat().st_size < limits.get(package, WHEEL_LIMIT)
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
        info = next(name for name in files if name.endswith("/METADATA"))
        metadata = archive.read(info).decode()
    assert {name.partition("/")[0] for name in files} == {module(package), info.partition("/")[0]}
    assert f"{module(package)}/py.typed" in files
    assert any(name.endswith("/licenses/LICENSE") for name in files)
    sources = ROOT / "packages" / package / "src"
    expected = [path for path in sources.rglob("*") if path.suffix in {".py", ".c", ".h", ".ll"}]
    assert {path.relative_to(sources).as_posix() for path in expected} <= set(files)
    assert "License-Expression: Apache-2.0" in metadata
    required = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    assert not [text for text in required if "@" in text], "a release names no paths"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_works_alone(package: str, environment: Environment, tmp_path: Path) -> None:
    """Only its dependencies are installed."""
    name = distribution(package)
    assert environment.required_by(name) == BRINGS[package]
    alone = environment.with_only(BRINGS[package], tmp_path / "alone")
    said = alone.run(f"import {module(package)} as m; print(m.__file__)\n{readme_program(package)}")
    assert said.startswith(str(alone.path))


def test_lite_works_with_nothing_else(environment: Environment, tmp_path: Path) -> None:
    """Without NumPy and a compiler, the wheel's library runs a file made elsewhere."""
    name = distribution(APART)
    assert environment.required_by(name) == {name}
    alone = environment.with_only({name}, tmp_path / "bare")
    alone.run(readme_program(APART))
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [2], name="x")
        y = wf.nn.relu(x * 2.0, name="y")
        with wf.Session() as session:
            content = wf.lite.Converter.from_session(session, [x], [y]).convert()
    (tmp_path / "model.weftlite").write_bytes(content)
    said = alone.run(
        "import os; os.environ['PATH'] = ''\n"
        "from array import array; from weft_lite import Interpreter, library\n"
        f"interpreter = Interpreter({str(tmp_path / 'model.weftlite')!r})\n"
        "runner = interpreter.get_signature_runner()\n"
        "print(runner(x=array('f', [-1.0, 4.0]))['y'].tolist(), library.load()._name)"
    )
    value, _, path = said.strip().rpartition(" ")
    assert value == "[0.0, 8.0]"
    assert path.startswith(str(alone.path))


def test_a_package_installs_from_the_tree_with_its_siblings(
    environment: Environment, tmp_path: Path
) -> None:
    ours = {distribution(package) for package in PACKAGES}
    foreign = environment.installed().keys() - ours - {distribution(APART)}
    fresh = environment.with_only(foreign, tmp_path / "fresh")
    fresh.install("--no-build-isolation", ROOT / "packages" / "weft")
    assert fresh.installed().keys() - foreign == WEFT & ours
    fresh.run("import weft")


@pytest.mark.long
@pytest.mark.parametrize("name", load(ROOT / "tests/integration/test_journeys.py").NAMES)
def test_an_example_needs_the_packages_that_its_readme_names(
    name: str, newcomer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It builds the environment of the device as well."""
    for variable in [v for v in os.environ if v.startswith(("PYTHON", "WEFT_"))]:
        monkeypatch.delenv(variable)
    run = [newcomer, ROOT / "examples" / "run.py", name, "--short", "--restart"]
    said = call(*run, cwd=newcomer.parents[1])
    assert "device, int8" in said


@pytest.mark.parametrize("package", [*PACKAGES, APART])
def test_a_build_needs_hatchling_and_what_is_installed(package: str) -> None:
    """Builds of this file, which are not isolated, equal those of a user."""
    text = (ROOT / "packages" / package / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)
    first, *others = project["build-system"]["requires"]
    assert first == BUILDER
    if package == "compiler":  # it compiles routines, which import these packages
        tensor = (ROOT / "packages" / "tensor" / "pyproject.toml").read_text(encoding="utf-8")
        installed = [tomllib.loads(tensor), project]
        dependencies = {each for of in installed for each in of["project"]["dependencies"]}
        assert dependencies.issuperset(others)
    else:
        assert not others
