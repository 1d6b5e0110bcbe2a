"""The C interface and its library: programs that use it, with AddressSanitizer and UBSan."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import weft_client
from tests.client.conftest import call, run

LIBRARY_BYTES = 1 << 20


def test_the_c_interface(build: Path, target: str) -> None:
    assert run(build / "c_client_c", target) == "complete\n"


def test_the_library_is_small(tmp_path: Path, build: Path) -> None:
    sources = sorted(str(path) for path in (weft_client.source_directory() / "csrc").glob("*.c"))
    options = ["-std=c11", "-shared", "-fPIC", f"-I{weft_client.include_directory()}"]
    if "openssl" in next((build / "installed").rglob("weft_client.pc")).read_text():
        options += ["-DWEFT_CLIENT_TLS"]
    call("gcc", *options, *sources, "-o", tmp_path / "all.so")
    assert (tmp_path / "all.so").stat().st_size < LIBRARY_BYTES


def test_the_directories_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert weft_client.main(["--include"]) == 0
    assert (Path(capsys.readouterr().out.strip()) / "weft_client.h").is_file()
    assert weft_client.main(["--source"]) == 0
    assert (Path(capsys.readouterr().out.strip()) / "CMakeLists.txt").is_file()


def test_the_installed_library_can_be_moved(build: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(build / "installed", moved)
    (file,) = moved.rglob("weft_client.pc")
    flags = ["--with-path", str(file.parent), "--cflags", "--libs", "weft_client"]
    words = call("pkg-config", *flags).split()
    include = next(Path(word[2:]) for word in words if word.startswith("-I"))
    library = next(Path(word[2:]) for word in words if word.startswith("-L"))
    assert include.resolve().is_relative_to(moved) and (include / "weft_client.h").is_file()
    assert library.resolve().is_relative_to(moved) and (library / "libweft_client.a").is_file()
    static = call("pkg-config", "--static", *flags).split()
    sanitizers = ["-fsanitize=address,undefined"]  # with which the library was built
    call("gcc", build / "pages" / "product.c", *static, *sanitizers, "-o", tmp_path / "product")
    assert "-lweft_client" in words
