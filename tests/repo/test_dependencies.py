"""The imports of a package equal the declarations in its pyproject.toml."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from weft_testing.survey import Facts, packages
from weft_testing.workspace import PACKAGES, ROOT, UMBRELLA, distribution, module, project

# Import names of optional dependencies, which need not be installed here.
OPTIONAL_MODULES = {
    "cudnn": {"nvidia-cudnn-frontend", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"},
    "cupy": {"cupy-cuda12x", "cupy-cuda13x"},
    "cupyx": {"cupy-cuda12x", "cupy-cuda13x"},
    "llvmlite": {"llvmlite"},
}

SIBLINGS = {module(path.name): {distribution(path.name)} for path in PACKAGES}


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def imported_modules(found: Facts) -> Iterator[str]:
    """Every absolute import, at the top or lazy, also those made through `import_module`."""
    yield from (module for level, module, _ in found.imports if not level)
    yield from found.loaded


@cache
def providers() -> Mapping[str, list[str]]:
    """Module -> distributions that are installed with it."""
    return packages_distributions()


def distributions_used(package: Path) -> dict[str, tuple[set[str], Path]]:
    """Module -> (distributions that provide it, a file that imports it), without its own."""
    own = {path.name for path in (package / "src").iterdir()}
    used: dict[str, tuple[set[str], Path]] = {}
    for source in sorted((package / "src").rglob("*.py")):
        for imported in imported_modules(packages()[source]):
            top = imported.partition(".")[0]
            if top in sys.stdlib_module_names or top in own or top in used:
                continue
            found = {canonicalize_name(name) for name in providers().get(top, [])}
            found |= OPTIONAL_MODULES.get(top, set()) | SIBLINGS.get(top, set())
            used[top] = (found or {canonicalize_name(top)}, source)
    return used


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_imports_match_declared_dependencies(package: Path) -> None:
    table = project(package)
    required = names(table.get("dependencies", []))
    extras = table.get("optional-dependencies", {}).values()
    declared = required.union(*(names(extra) for extra in extras))
    used = distributions_used(package)

    missing = {
        f"{imported} (in {source.relative_to(ROOT)})"
        for imported, (providers, source) in used.items()
        if not providers & declared
    }
    assert not missing, f"imported, but not declared in {package.relative_to(ROOT)}: {missing}"
    idle = required - set().union(*(providers for providers, _ in used.values()))
    assert not idle, f"declared in {package.relative_to(ROOT)}, but never imported: {idle}"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_ranges_on_siblings_hold_their_versions(package: Path) -> None:
    versions = {project(path)["name"]: project(path)["version"] for path in PACKAGES}
    for text in project(package)["dependencies"]:
        requirement = Requirement(text)
        if requirement.name in versions:
            assert re.search(r"<\d", str(requirement.specifier)), f"no upper bound: {text}"
            assert requirement.specifier.contains(versions[requirement.name]), text


def test_mypy_and_the_linters_know_every_package() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    modules = {module(path.name) for path in PACKAGES}
    assert set(tools["importlinter"]["root_packages"]) == modules
    assert set(tools["ruff"]["lint"]["isort"]["known-first-party"]) == modules
    assert {Path(path).parent.name for path in tools["mypy"]["mypy_path"]} == {
        path.name for path in PACKAGES
    }


ENVIRONMENTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "hatch"
]["envs"]


def test_a_command_installs_only_the_environment_that_it_names() -> None:
    default = ENVIRONMENTS["default"]
    assert not {"dependencies", "workspace"} & default.keys()
    for name, command in default["scripts"].items():
        forwarded = re.match(r"hatch run ([\w-]+):([\w-]+)", command)
        assert forwarded, f"{name} would run in an environment without packages: {command}"
        environment, script = forwarded.groups()
        assert script in ENVIRONMENTS[environment]["scripts"], name


def test_the_demo_installs_what_it_imports_and_no_more() -> None:
    demo = ENVIRONMENTS["demo"]
    members = {Path(path).name for path in demo["workspace"]["members"]}
    declared = names(demo["dependencies"])
    by_name = {distribution(path.name): path.name for path in PACKAGES}
    needed = {"compiler", "lite", UMBRELLA}  # what train.py and deploy.py import, and its compiler
    for path in PACKAGES * 2:  # dependencies of dependencies
        if path.name in needed:
            required = names(project(path)["dependencies"])
            needed |= {by_name[name] for name in required if name in by_name}
    assert members == needed
    assert declared == {"hatchling", "matplotlib", "onnx", "rich"}
    for path in (ROOT / "examples" / "digits").glob("*.py"):
        for top in imports_of(path) - sys.stdlib_module_names - {"deploy", "digits", "model"}:
            provided = {canonicalize_name(name) for name in providers().get(top, [])}
            assert (
                top in {module(name) for name in members}
                or provided & declared
                or top in {"numpy", "ray"}  # of weftml-tensor; of the environment cluster-demo
            ), f"{path.name} imports {top}"


def imports_of(path: Path) -> set[str]:
    """The top-level modules that a file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    plain |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in plain}
