"""Android archives (AAR) with a Java API: one library for each ABI, and the classes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from weft_lite import targets
from weft_lite.compiling import RUNTIME
from weft_lite.elf import read_segments
from weft_lite.errors import LiteError
from weft_lite.packaging.zip_files import write_zip

ABIS: Final = {
    "arm64-v8a": "aarch64-android",
    "armeabi-v7a": "arm-android",
    "x86_64": "x86_64-android",
}
"""Targets by Android's names of processors."""

PAGE: Final = 16384
"""Alignment of loaded segments, in bytes: the largest page of Android devices."""

LEVEL: Final = 21
"""The lowest API level of Android that the archive supports."""

SOURCES: Final = RUNTIME.parent / "android"

_EMULATIONS: Final = {
    "arm64-v8a": "aarch64linux",
    "armeabi-v7a": "armelf_linux_eabi",
    "x86_64": "elf_x86_64",
}
_MANIFEST: Final = f"""<?xml version="1.0" encoding="utf-8"?>
<manifest xmlns:android="http://schemas.android.com/apk/res/android" package="org.weftml.lite">
  <uses-sdk android:minSdkVersion="{LEVEL}" />
</manifest>
"""
_KEEP: Final = """-keep class org.weftml.lite.Native { native <methods>; }
"""
_METADATA: Final = "aarFormatVersion=1.0\naarMetadataVersion=1.0\n"
_EXPORTS: Final = "{ global: wl_*; Java_org_weftml_lite_*; local: *; };\n"


def build(
    out: Path,
    kinds: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda text: None,
    level: str = "-O2",
) -> targets.BuildResult:
    """Build `weft_lite.aar`.

    Args:
      out: the folder to write to.
      kinds: the kinds of ops to compute; all by default.
      say: function called with a line of text at the start of each step.
      level: optimization level.
    Returns: the archive; its size is that of the library for arm64-v8a.
    Raises: LiteError: zig or a JDK is missing or fails, or a library does not suit Android.
    """
    kinds_to_build = list(targets.all_kinds() if kinds is None else kinds)
    out.mkdir(parents=True, exist_ok=True)
    members = {
        "AndroidManifest.xml": _MANIFEST.encode(),
        "R.txt": b"",
        "proguard.txt": _KEEP.encode(),
        "META-INF/com/android/build/gradle/aar-metadata.properties": _METADATA.encode(),
    }
    with TemporaryDirectory(dir=out) as folder:
        say("compiling the classes")
        members["classes.jar"] = compile_classes(Path(folder) / "classes")
        for abi in ABIS:
            say(f"compiling {len(kinds_to_build)} kernels for {abi}")
            library = build_library(abi, Path(folder) / abi, kinds_to_build, level)
            members[f"jni/{abi}/libweft_lite.so"] = library
    archive = out / "weft_lite.aar"
    write_zip(archive, members)
    size = len(members["jni/arm64-v8a/libweft_lite.so"])
    return targets.BuildResult([archive], size, kinds_to_build)


def compile_classes(folder: Path) -> bytes:
    """Compile the Java classes, and return a jar of them.

    Args: folder: a folder for the class files, which is created.
    Raises: LiteError: there is no JDK, or it refuses the classes.
    """
    folder.mkdir()
    files = sorted((SOURCES / "org" / "weftml" / "lite").glob("*.java"))
    # Java 8 is what all versions of Android's tools read.
    flags = ["--release", "8", "-Xlint:-options", "-g:none", "-encoding", "UTF-8"]
    targets.call([_compiler(), *flags, "-d", str(folder), *map(str, files)])
    classes = sorted(folder.rglob("*.class"))
    manifest = {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\n\r\n"}
    members = {path.relative_to(folder).as_posix(): path.read_bytes() for path in classes}
    jar = folder / "classes.jar"
    write_zip(jar, manifest | members)
    return jar.read_bytes()


def build_library(abi: str, folder: Path, kinds: Sequence[str], level: str = "-O2") -> bytes:
    """Compile and link the shared library of an ABI, and return its bytes.

    Args:
      abi: a key of `ABIS`.
      folder: a folder for intermediate files, which is created.
      kinds: the kinds of ops to compute.
      level: optimization level.
    Raises: LiteError: the library needs symbols that Android does not have, or a segment is not
      aligned to 16 KB.
    """
    target = ABIS[abi]
    glue = SOURCES / "weft_lite_jni.c"
    objects = targets.compile_runtime(target, folder / "objects", kinds, level, [glue])
    library = folder / "libweft_lite.so"
    targets.check_android(objects, library)
    helpers = [_helpers(target, folder)] if abi != "x86_64" else []
    exports = folder / "exports.map"
    exports.write_text(_EXPORTS, "utf-8")
    link = [*targets.zig(), "ld.lld", "-m", _EMULATIONS[abi], "-shared", "--build-id=none"]
    needed = [_stub(target, name, folder, link) for name in ("libc.so", "libm.so")]
    flags = ["--gc-sections", "-s", "--hash-style=both", "-soname", library.name]
    for option in (f"max-page-size={PAGE}", "relro", "now", "noexecstack"):
        flags += ["-z", option]
    words = [*flags, "--version-script", str(exports), "-o", str(library)]
    targets.call([*link, *words, *map(str, [*objects, *helpers, *needed])])
    data = library.read_bytes()
    check_alignment(data, abi)
    return data


def check_alignment(library: bytes, abi: str) -> None:
    """Check that Android can load a library on devices with pages of 16 KB.

    Raises: LiteError: a loaded segment has a smaller alignment.
    """
    for segment in read_segments(library):
        if segment.alignment < PAGE or (segment.offset - segment.address) % PAGE:
            raise LiteError(
                f"{abi}: the segment at {segment.address:#x} is aligned to {segment.alignment} "
                f"bytes, and Android requires {PAGE}"
            )


def _helpers(target: str, folder: Path) -> Path:
    """Compile the helper functions of a target."""
    cpu = "generic+v7a+neon" if target == "arm-android" else "generic"
    return targets.compile_helpers(targets.zig_target(target), cpu, folder, ["-fPIC"])


def _stub(target: str, name: str, folder: Path, link: Sequence[str]) -> Path:
    """Write an empty library with the name of one of Android's, for the loader to look up."""
    source = folder / "empty.c"
    source.write_text("", "utf-8")
    (empty,) = targets.compile_files(
        [source], folder / name.removesuffix(".so"), lambda path: [
            *targets.zig(), "cc", "-target", targets.zig_target(target),
            *targets.flags_of(target, path.stem),
        ],
    )  # fmt: skip
    library = folder / name
    targets.call([*link, "-soname", name, "-o", str(library), str(empty)])
    return library


def _compiler() -> str:
    """Return the path of the Java compiler."""
    home = os.environ.get("JAVA_HOME")
    name = shutil.which("javac", path=str(Path(home) / "bin")) if home else None
    result = name or shutil.which("javac")
    if not result:
        raise LiteError("an Android archive needs javac: install a JDK, or set JAVA_HOME")
    return result


__all__ = ["ABIS", "LEVEL", "PAGE", "build", "build_library", "check_alignment"]
