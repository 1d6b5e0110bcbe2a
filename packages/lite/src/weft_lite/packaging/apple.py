"""Swift packages for Apple's systems: an xcframework of static libraries, and a Swift API."""

from __future__ import annotations

import plistlib
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from weft_lite import targets
from weft_lite.compiling import RUNTIME
from weft_lite.errors import LiteError

SOURCES: Final = RUNTIME.parent / "apple"
MODULE: Final = "CWeftLite"

_FAT_MAGIC: Final = 0xCAFEBABE
_FAT_ALIGNMENT: Final = 14  # a power of two: the pages of Apple's arm64 processors


class _Slice(NamedTuple):
    """A library of an xcframework.

    Attributes:
      identifier: the name of its folder.
      platform: Apple's name of the system.
      variant: "simulator" or empty.
      targets: a target by Apple's name of each processor.
    """

    identifier: str
    platform: str
    variant: str
    targets: dict[str, str]


SLICES: Final = (
    _Slice("ios-arm64", "ios", "", {"arm64": "aarch64-ios.12.0"}),
    _Slice("ios-arm64_x86_64-simulator", "ios", "simulator",
           {"arm64": "aarch64-ios.14.0-simulator", "x86_64": "x86_64-ios.12.0-simulator"}),
    _Slice("macos-arm64_x86_64", "macos", "",
           {"arm64": "aarch64-macos.11.0", "x86_64": "x86_64-macos.11.0"}),
)  # fmt: skip

_CPU_TYPES: Final = {"arm64": (0x0100000C, 0), "x86_64": (0x01000007, 3)}
"""The type and subtype of processors in universal files."""


def build(
    out: Path,
    kinds: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda text: None,
    level: str = "-O2",
) -> targets.BuildResult:
    """Build the folder `WeftLite`, a Swift package.

    Args:
      out: the folder to write to.
      kinds: the kinds of ops to compute; all by default.
      say: function called with a line of text at the start of each step.
      level: optimization level.
    Returns: the package; its size is that of the static library for iOS.
    Raises: LiteError: zig is missing or fails.
    """
    kinds_to_build = list(targets.all_kinds() if kinds is None else kinds)
    package = out / "WeftLite"
    if package.exists():
        shutil.rmtree(package)
    framework = package / f"{MODULE}.xcframework"
    framework.mkdir(parents=True)
    size = 0
    with TemporaryDirectory(dir=out) as folder:
        for part in SLICES:
            library = framework / part.identifier / "libweft_lite.a"
            library.parent.mkdir()
            archives = {}
            for processor, target in part.targets.items():
                say(f"compiling {len(kinds_to_build)} kernels for {target}")
                archives[processor] = _archive(target, Path(folder) / target, kinds_to_build, level)
            library.write_bytes(universal(archives))
            size = size or library.stat().st_size
            _write_headers(library.parent / "Headers" / MODULE)
    plist = plistlib.dumps(_property_list(), sort_keys=True)
    (framework / "Info.plist").write_bytes(plist)
    shutil.copyfile(SOURCES / "Package.swift", package / "Package.swift")
    swift = package / "Sources" / "WeftLite"
    swift.mkdir(parents=True)
    shutil.copyfile(SOURCES / "Interpreter.swift", swift / "Interpreter.swift")
    return targets.BuildResult([package], size, kinds_to_build)


def universal(files: dict[str, bytes]) -> bytes:
    """Return a universal ("fat") file; a single file stays as it is.

    Args:
      files: content by Apple's name of the processor.
    Raises: LiteError: a file is 4 GB or larger.
    """
    if len(files) == 1:
        return next(iter(files.values()))
    result = bytearray(struct.pack(">II", _FAT_MAGIC, len(files)))
    start = len(result) + 20 * len(files)
    contents = b""
    for processor, data in sorted(files.items()):
        padding = -(start + len(contents)) % (1 << _FAT_ALIGNMENT)
        offset = start + len(contents) + padding
        if offset + len(data) >= 1 << 32:
            raise LiteError(f"the library for {processor} is too large for a universal file")
        row = (*_CPU_TYPES[processor], offset, len(data), _FAT_ALIGNMENT)
        result += struct.pack(">IIIII", *row)
        contents += bytes(padding) + data
    return bytes(result) + contents


def _archive(target: str, folder: Path, kinds: Sequence[str], level: str) -> bytes:
    """Return the static library of a target."""
    objects = targets.compile_runtime(target, folder, kinds, level)
    archive = folder / "libweft_lite.a"
    targets.write_archive(archive, objects)
    return archive.read_bytes()


def _write_headers(folder: Path) -> None:
    """Write the headers and the module map of a library."""
    folder.mkdir(parents=True)
    for name in targets.HEADERS:
        shutil.copyfile(RUNTIME / name, folder / name)
    shutil.copyfile(SOURCES / "module.modulemap", folder / "module.modulemap")


def _property_list() -> dict[str, Any]:
    """Return the content of the xcframework's Info.plist."""
    libraries = []
    for part in SLICES:
        library = {
            "BinaryPath": "libweft_lite.a",
            "HeadersPath": "Headers",
            "LibraryIdentifier": part.identifier,
            "LibraryPath": "libweft_lite.a",
            "SupportedArchitectures": sorted(part.targets),
            "SupportedPlatform": part.platform,
        }
        if part.variant:
            library["SupportedPlatformVariant"] = part.variant
        libraries.append(library)
    return {
        "AvailableLibraries": libraries,
        "CFBundlePackageType": "XFWK",
        "XCFrameworkFormatVersion": "1.0",
    }


__all__ = ["MODULE", "SLICES", "build", "universal"]
