"""Equal builds have equal bytes, from other folders and without caches."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from weft_testing.lite_packages import check_sbom, small_model

from weft_lite.commands import main
from weft_lite.packaging.sbom import write_sbom
from weft_lite.packaging.zip_files import write_zip


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_zip_file_does_not_depend_on_order_or_time(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", {"b": b"2" * 1000, "a": b"1"})
    write_zip(tmp_path / "b.zip", {"a": b"1", "b": b"2" * 1000})
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_bill_depends_on_the_files_only(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / name / "folder").mkdir(parents=True)
        (tmp_path / name / "folder" / "file").write_bytes(content)
        files = [tmp_path / name / "folder"]
        write_sbom(tmp_path / name, files, "aarch64-linux-musl", ["Add"], ["musl"])
    bills = [check_sbom(tmp_path / name) for name in "abc"]
    assert bills[0] == bills[1]
    assert bills[0]["serialNumber"] != bills[2]["serialNumber"]
    assert [part["name"] for part in bills[0]["components"]] == ["folder/file", "musl"]


@pytest.mark.long
@pytest.mark.parametrize(
    "target",
    [
        "android",
        "apple",
        "arm-none-eabi",
        "x86_64-linux-musl",
        "x86_64-linux-gnu.2.17",
        "wasm32-wasi",
        *[
            pytest.param(target, marks=pytest.mark.xfail(reason="zig's linker varies its output"))
            for target in ("x86_64-windows-gnu", "aarch64-macos.11.0")
        ],
    ],
)
def test_two_builds_are_equal(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """zig's cache of object files is cleared between the builds."""
    pytest.importorskip("ziglang")
    if target == "android" and not shutil.which("javac"):
        pytest.skip("no javac")
    model = small_model(tmp_path / "model.weftlite", int8=True)
    cpu = ["--cpu", "cortex-m4"] if target == "arm-none-eabi" else []
    for name in ("first", "another/folder"):
        monkeypatch.setenv("ZIG_LOCAL_CACHE_DIR", str(tmp_path / "caches" / name))
        monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(tmp_path / "caches" / name))
        out = ["-o", str(tmp_path / name)]
        assert main(["build", "--target", target, "--models", str(model), *cpu, *out]) == 0
    first = contents(tmp_path / "first")
    assert contents(tmp_path / "another" / "folder") == first
    assert not [name for name, data in first.items() if str(tmp_path).encode() in data]
    check_sbom(tmp_path / "first")
