"""Every wheel, built as for a release and tried with nothing but what it brings along."""

from __future__ import annotations

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
from weft_testing.parts import Parts
from weft_testing.workspace import ROOT, distribution, module

import weft as wf

PACKAGES = ["tensor", "graph", "autodiff", "compiler", "exec", "io", "contrib", "distrib", "weft"]
APART = "lite"  # with a library for one machine in it, and nothing that it brings along

# What comes along with each package, and nothing else does.
TENSOR = {"weftml-tensor", "numpy", "ml-dtypes"}
GRAPH = TENSOR | {"weftml-graph", "flatbuffers", "protobuf"}
AUTODIFF = GRAPH | {"weftml-autodiff"}
COMPILER = GRAPH | {"weftml-compiler", "llvmlite"}
EXEC = GRAPH | {"weftml-exec", "threadpoolctl", "google-re2"}
IO = AUTODIFF | EXEC | {"weftml-io", "pillow", "xxhash", "fsspec", "google-crc32c"}
CONTRIB = IO | {"weftml-contrib"}
DISTRIB = IO | {"weftml-distrib", "grpcio", "typing-extensions"}
WEFT = DISTRIB | {"weftml", "absl-py"}
BRINGS = dict(
    zip(
        PACKAGES, [TENSOR, GRAPH, AUTODIFF, COMPILER, EXEC, IO, CONTRIB, DISTRIB, WEFT], strict=True
    )
)

WHEEL_LIMIT = 1_000_000  # bytes
LITE_LIMIT = 2_000_000


def call(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Environment:
    """A virtual environment of its own; the running one's pip installs into it."""

    def __init__(self, path: Path) -> None:
        venv.create(path, with_pip=False)
        self.path = path
        self.python = path / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        self._packages = self.run("import sysconfig; print(sysconfig.get_path('purelib'))").strip()

    def install(self, *args: str | Path) -> None:
        self._pip("install", "--quiet", "--no-compile", *args)

    def keep(self, names: set[str]) -> None:
        """Take out everything else, so that nothing it brought along can help."""
        extra = self.installed().keys() - names
        if extra:
            self._pip("uninstall", "--quiet", "--yes", *sorted(extra))
        assert self.installed().keys() <= names

    def _pip(self, *args: str | Path) -> None:
        call(sys.executable, "-m", "pip", "--python", self.python, *args)

    def installed(self) -> dict[str, Distribution]:
        found = distributions(path=[self._packages])
        return {canonicalize_name(each.metadata["Name"]): each for each in found}

    def required_by(self, name: str) -> set[str]:
        """A distribution with all that it requires, each of which is there in a fitting version."""
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


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    house = tmp_path_factory.mktemp("wheelhouse")
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", house)
    packages = [APART, *PACKAGES]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: call(*build, cwd=ROOT / "packages" / name), packages))
    found = {path.name.partition("-")[0]: path for path in house.iterdir()}
    return {package: found[distribution(package).replace("-", "_")] for package in packages}


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


@pytest.mark.parametrize("package", [*PACKAGES, APART])
def test_wheel_holds_the_package_only(package: str, wheels: dict[str, Path]) -> None:
    wheel = wheels[package]
    machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{machine if package == APART else 'any'}.whl")
    assert wheel.stat().st_size < (LITE_LIMIT if package == APART else WHEEL_LIMIT)
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


def test_packages_work_alone(
    environment: Environment, wheels: dict[str, Path], constraints: Path
) -> None:
    """One after the other; what a package does not require is taken out before it is tried."""
    with Parts() as parts:
        for package in PACKAGES:
            with parts.part(package):
                environment.keep(BRINGS[package] - {distribution(package)})
                environment.install("-c", constraints, wheels[package])
                assert environment.installed().keys() == BRINGS[package]
                assert environment.required_by(distribution(package)) == BRINGS[package]
                where = environment.run(f"import {module(package)} as m; print(m.__file__)")
                assert where.startswith(str(environment.path))
                environment.run(readme_program(package))


def test_lite_works_with_nothing_else(wheels: dict[str, Path], tmp_path: Path) -> None:
    """Neither NumPy nor a compiler is there: the wheel's library runs a file made elsewhere."""
    environment = Environment(tmp_path / "bare")
    environment.install(wheels[APART])
    assert environment.installed().keys() == {distribution(APART)}
    environment.run(readme_program(APART))
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [2], name="x")
        y = wf.nn.relu(x * 2.0, name="y")
        with wf.Session() as session:
            content = wf.lite.Converter.from_session(session, [x], [y]).convert()
    (tmp_path / "model.weftlite").write_bytes(content)
    said = environment.run(
        "import os; os.environ['PATH'] = ''\n"
        "from array import array; from weft_lite import Interpreter, library\n"
        f"interpreter = Interpreter({str(tmp_path / 'model.weftlite')!r})\n"
        "runner = interpreter.get_signature_runner()\n"
        "print(runner(x=array('f', [-1.0, 4.0]))['y'].tolist(), library.load()._name)"
    )
    value, _, path = said.strip().rpartition(" ")
    assert value == "[0.0, 8.0]"
    assert path.startswith(str(environment.path))


def test_a_package_installs_from_the_tree_with_its_siblings(environment: Environment) -> None:
    environment.keep(WEFT - {distribution(package) for package in PACKAGES})
    before = environment.installed().keys()
    environment.install("hatchling>=1.27")
    builders = environment.installed().keys() - before
    environment.install("--no-build-isolation", ROOT / "packages" / "weft")
    assert environment.installed().keys() - builders == WEFT
    environment.run("import weft")


@pytest.mark.parametrize("package", [*PACKAGES, APART])
def test_a_build_needs_hatchling_alone(package: str) -> None:
    """So the builds of this file, which are not isolated, are those of a user."""
    text = (ROOT / "packages" / package / "pyproject.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["build-system"]["requires"] == ["hatchling>=1.27"]
