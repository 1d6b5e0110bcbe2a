"""Objects that all programs share: those of a wheel, and those that a machine compiles once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from weft_compiler.codegen import runtime
from weft_compiler.codegen.targets import Target, host
from weft_compiler.codegen.tiles import symbol
from weft_compiler.native import cache, shared_objects, wheel_objects
from weft_compiler.native.linking import Library
from weft_compiler.native.shared_objects import LEVELS, can_run, file_of, load_shared
from weft_compiler.routines.gemm import MATMUL_LIBRARY
from weft_compiler.routines.registry import library_routines
from weft_tensor import dtypes, errors

HERE = [level for level in LEVELS if can_run(level, host())]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache and an empty folder of the wheel's objects."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shared_objects, "FOLDER", tmp_path / "wheel")
    monkeypatch.setattr(cache, "_since_trim", {})
    (tmp_path / "wheel").mkdir()
    cache.directory.cache_clear()
    yield tmp_path
    cache.directory.cache_clear()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were compiled."""
    texts: list[str] = []

    def compile_text(text: str, target: Target) -> bytes:
        texts.append(text)
        return b"object of " + text.encode()

    monkeypatch.setattr(shared_objects, "object_code", compile_text)
    return texts


def ship(place: Path, text: str, content: bytes) -> None:
    (place / "wheel" / file_of("one", text, HERE[0])).write_bytes(content)


@pytest.mark.skipif(not HERE, reason="no level of a wheel is for this processor")
def test_the_object_of_a_wheel_is_not_compiled(place: Path, compiled: list[str]) -> None:
    ship(place, "text", b"shipped")
    assert load_shared("one", "text", host(), bytes) == b"shipped"
    assert not compiled


@pytest.mark.skipif(not HERE, reason="no level of a wheel is for this processor")
def test_an_object_of_another_text_is_not_loaded(place: Path, compiled: list[str]) -> None:
    ship(place, "text", b"stale")
    assert load_shared("one", "another text", host(), bytes) == b"object of another text"
    assert compiled == ["another text"]


def test_an_object_that_another_llvm_compiled_is_not_loaded(
    place: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_shared("one", "text", host(), bytes)
    monkeypatch.setattr(shared_objects.binding, "llvm_version_info", (1, 0, 0))
    load_shared("one", "text", host(), bytes)
    assert compiled == ["text", "text"]


def test_a_text_is_compiled_once_for_a_machine(place: Path, compiled: list[str]) -> None:
    for _ in range(2):
        assert load_shared("one", "text", host(), bytes) == b"object of text"
    assert compiled == ["text"]
    assert [path.parent.name for path in cache.entries(place / "cache")] == [cache.SHARED]


def test_programs_do_not_displace_shared_objects(
    place: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE_BYTES", "200")
    load_shared("one", "text", host(), bytes)
    for number in range(9):
        cache.compile_object("program", f"text {number}", host(), lambda: bytes(90))
    load_shared("one", "text", host(), bytes)
    assert compiled == ["text"]
    assert len(list(cache.entries(place / "cache"))) < 9


def test_what_cannot_be_loaded_is_compiled_again(compiled: list[str]) -> None:
    load_shared("one", "text", host(), bytes)

    def load(content: bytes) -> bytes:
        if len(compiled) == 1:
            raise errors.InternalError("no code")
        return content

    assert load_shared("one", "text", host(), load) == b"object of text"
    assert compiled == ["text", "text"]


def test_a_level_needs_all_of_its_instructions() -> None:
    for level in LEVELS:
        features = ",".join(f"+{each}" for each in level.features)
        target = replace(level.target, cpu="", features=features)
        assert can_run(level, target)
        assert not can_run(level, replace(target, features=features.replace("+", "-", 1)))
        assert not can_run(level, replace(target, triple="x86_64-apple-darwin"))


@pytest.mark.skipif(not HERE, reason="no level of a wheel is for this processor")
def test_built_objects_are_found_and_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    level = HERE[-1]
    matmul = replace(MATMUL_LIBRARY, in_wheel=(dtypes.float32,))
    monkeypatch.setattr(wheel_objects, "libraries", lambda: (matmul,))
    assert wheel_objects.build(place / "wheel", [level]) > 0
    monkeypatch.delattr(shared_objects, "object_code")
    text = matmul.text(dtypes.float32, level.target)
    names = [symbol(name, dtypes.float32) for name in library_routines(MATMUL_LIBRARY)]
    library = load_shared("matmul.float32", text, level.target, lambda image: Library(image, names))
    assert library.address(names[0])
    assert load_shared("runtime", runtime.text(level.target), level.target, bytes)
