"""Programs over the client library, built once for all tests, and servers for them."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from weft_testing.workspace import ROOT

import weft as wf

PROGRAMS = Path(__file__).parent / "programs"
TOOLS = ("cmake", "gcc", "g++", "pkg-config")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
NODE = shutil.which("node")

Command = list[str | Path]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs and of the installed library; workers share one build."""
    if MISSING:
        pytest.skip(f"{', '.join(MISSING)} not installed")
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "client-build"
    with (shared / "client-build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _build(folder)
            (folder / "complete").touch()
    return folder


def command(request: pytest.FixtureRequest, language: str, program: str) -> Command:
    """Return the beginning of the command line of a program: "lines" or "suite"."""
    if language != "js":
        return [request.getfixturevalue("build") / f"{program}_{language}"]
    return node_program("suite.mjs")


def node_program(name: str) -> Command:
    """Return the beginning of the command line of a program for Node."""
    if NODE is None:
        pytest.skip("node is not installed")
    return [NODE, PROGRAMS / name]


def _build(folder: Path) -> None:
    write_page_programs(folder / "pages")
    options = [f"-DCMAKE_INSTALL_PREFIX={folder}/installed", f"-DPAGES={folder}/pages"]
    call("cmake", "-S", PROGRAMS, "-B", folder, *options)
    call("cmake", "--build", folder, "--parallel", "2")
    call("cmake", "--install", folder)


def write_page_programs(folder: Path) -> None:
    """Write the page's programs, each of which begins with its name, and its CMakeLists.txt."""
    folder.mkdir(parents=True)
    for language, block in page_blocks("c|cpp|cmake"):
        name = re.match(r"/[/*] ([\w.]+):", block)
        assert name is not None or language == "cmake", block
        (folder / (name[1] if name else "CMakeLists.txt")).write_text(block, encoding="utf-8")


def page_blocks(languages: str) -> list[tuple[str, str]]:
    """Return the languages and the texts of blocks of the page."""
    text = (ROOT / "docs" / "frontends.md").read_text(encoding="utf-8")
    return re.findall(rf"^```({languages})\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def call(*command: str | Path) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run(
    program: str | Path,
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    timeout: int = 120,
) -> str:
    """Return the output of a program; it must succeed, and its sanitizers must report nothing."""
    done = subprocess.run(
        [program, *map(str, arguments)],
        env=os.environ | environment() | dict(env or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout


def environment() -> dict[str, str]:
    """Lets programs start servers of this checkout."""
    return {"WEFT_COMMAND": str(PROGRAMS / "weft.sh"), "WEFT_PYTHON": sys.executable}


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """The value target of a server of one task."""
    server = wf.train.Server.create_local_server()
    yield server.value_target
    server.close()
