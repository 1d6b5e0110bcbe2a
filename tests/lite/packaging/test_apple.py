"""Swift packages: layout and object files. No program of Apple's systems reads them here."""

from __future__ import annotations

import plistlib
import struct
from pathlib import Path

import pytest
from weft_testing.lite_packages import (
    archive_members,
    check_sbom,
    fat_slices,
    mach_o,
    small_model,
)

from weft_lite.commands import main
from weft_lite.packaging import apple

ARM64, X86_64 = 0x0100000C, 0x01000007


def test_a_universal_file_has_aligned_parts() -> None:
    files = {"x86_64": b"x" * 100, "arm64": b"a" * 20000}
    data = apple.universal(files)
    assert fat_slices(data) == {(ARM64, 0): files["arm64"], (X86_64, 3): files["x86_64"]}
    assert apple.universal({"arm64": b"a"}) == b"a"


def test_the_property_list_names_a_folder_for_each_system() -> None:
    rows = apple._property_list()["AvailableLibraries"]
    assert {row["LibraryIdentifier"]: row["SupportedArchitectures"] for row in rows} == {
        "ios-arm64": ["arm64"],
        "ios-arm64_x86_64-simulator": ["arm64", "x86_64"],
        "macos-arm64_x86_64": ["arm64", "x86_64"],
    }
    variants = [row.get("SupportedPlatformVariant") for row in rows]
    assert variants == [None, "simulator", None]


@pytest.mark.long
def test_the_package_has_libraries_for_each_system(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    model, out = small_model(tmp_path / "model.weftlite"), tmp_path / "out"
    words = ["--target", "apple", "--models", str(model), "-o", str(out)]
    assert main(["build", *words]) == 0
    package = out / "WeftLite"
    framework = package / "CWeftLite.xcframework"
    info = plistlib.loads((framework / "Info.plist").read_bytes())
    assert (info["CFBundlePackageType"], info["XCFrameworkFormatVersion"]) == ("XFWK", "1.0")
    platforms: dict[str, set[tuple[int, int, int]]] = {}
    for row in info["AvailableLibraries"]:
        folder = framework / row["LibraryIdentifier"]
        headers = folder / row["HeadersPath"] / "CWeftLite"
        assert {"weft_lite.h", "threads.h", "schema.h", "module.modulemap"} == {
            path.name for path in headers.iterdir()
        }
        data = (folder / row["LibraryPath"]).read_bytes()
        parts = list(fat_slices(data).values()) if data[:4] == b"\xca\xfe\xba\xbe" else [data]
        assert len(parts) == len(row["SupportedArchitectures"])
        for part in parts:
            members = archive_members(part)
            assert {"open.o", "conv.o", "threads.o"} <= set(members)
            found = {mach_o(content) for content in members.values()}
            assert len(found) == 1
            platforms.setdefault(row["LibraryIdentifier"], set()).update(found)
    assert platforms == {  # processor, platform, and lowest version of the system
        "ios-arm64": {(ARM64, 2, 12)},
        "ios-arm64_x86_64-simulator": {(ARM64, 7, 14), (X86_64, 7, 12)},
        "macos-arm64_x86_64": {(ARM64, 1, 11), (X86_64, 1, 11)},
    }
    text = (package / "Package.swift").read_text("utf-8")
    assert 'path: "CWeftLite.xcframework"' in text
    assert (package / "Sources" / "WeftLite" / "Interpreter.swift").exists()
    names = {part["name"] for part in check_sbom(out)["components"]}
    assert "WeftLite/CWeftLite.xcframework/Info.plist" in names


def test_an_incomplete_universal_file_is_seen() -> None:
    data = struct.pack(">II", 0xCAFEBABE, 1) + struct.pack(">IIIII", ARM64, 0, 1 << 14, 100, 14)
    with pytest.raises(AssertionError):
        fat_slices(data)
