"""The C interface and its library: programs that use it, with AddressSanitizer and UBSan."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import weft_client
from tests.client.conftest import call, run

LIBRARY_BYTES = 1 << 20


def test_the_c_interface(build: Path, target: str) -> None:
    assert run(build / "c_client", target) == "complete\n"


def test_the_library_is_small(tmp_path: Path, build: Path) -> None:
    sources = sorted(str(path) for path in (weft_client.source_directory() / "csrc").glob("*.c"))
    include = f"-I{weft_client.include_directory()}"
    call("gcc", "-std=c11", "-shared", "-fPIC", include, *sources, "-o", tmp_path / "all.so")
    assert (tmp_path / "all.so").stat().st_size < LIBRARY_BYTES


def test_the_directories_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert weft_client.main(["--include"]) == 0
    assert (Path(capsys.readouterr().out.strip()) / "weft_client.h").is_file()
    assert weft_client.main(["--source"]) == 0
    assert (Path(capsys.readouterr().out.strip()) / "CMakeLists.txt").is_file()


def test_pkg_config_finds_the_installed_library(build: Path) -> None:
    (file,) = (build / "installed").rglob("weft_client.pc")
    said = subprocess.run(
        ["pkg-config", "--with-path", str(file.parent), "--cflags", "--libs", "weft_client"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    include = next(Path(word[2:]) for word in said if word.startswith("-I"))
    assert (include / "weft_client.h").is_file() and "-lweft_client" in said
