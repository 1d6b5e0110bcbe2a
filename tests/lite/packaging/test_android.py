"""Android archives: their files, the alignment of the libraries, and results in a Java machine."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
from weft_testing.lite_packages import check_sbom, counted, small_model
from weft_testing.workspace import ROOT

from weft_lite import Interpreter, compiling
from weft_lite.commands import main
from weft_lite.elf import read_segments
from weft_lite.errors import LiteError
from weft_lite.packaging import android

needs_jdk = pytest.mark.skipif(not shutil.which("javac"), reason="no javac")
HERE = ROOT / "tests" / "lite" / "foreign"
KINDS = ["Conv2D", "Reshape", "Softmax"]
OFFSETS = """\
#include <jni.h>
#include <stddef.h>
_Static_assert(offsetof(struct {name}, NewDirectByteBuffer) == 229 * sizeof(void *), "new");
_Static_assert(offsetof(struct {name}, GetDirectBufferAddress) == 230 * sizeof(void *), "address");
"""


def jdk_headers() -> Path | None:
    compiler = shutil.which("javac")
    folder = Path(compiler).resolve().parents[1] / "include" if compiler else None
    return folder if folder and (folder / "jni.h").exists() else None


@pytest.mark.parametrize("headers", ["own", "JDK"])
def test_the_functions_of_jni_have_their_positions(headers: str, tmp_path: Path) -> None:
    """Compile the same checks with the small header of the package and with that of a JDK."""
    folder = android.SOURCES if headers == "own" else jdk_headers()
    if not folder:
        pytest.skip("no header of a JDK")
    name = "JNINativeInterface" + ("" if headers == "own" else "_")
    (tmp_path / "offsets.c").write_text(OFFSETS.format(name=name))
    paths = ["-I", str(folder), "-I", str(folder / "linux")]
    command = [*compiling.compiler(), "-std=c11", *paths, "-fsyntax-only", "offsets.c"]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_a_library_with_small_pages_is_refused() -> None:
    """Two segments of an ELF file of 64 bits, the second aligned to 4 KB."""
    header = b"\x7fELF\x02\x01" + bytes(26) + struct.pack("<QQ", 64, 0) + bytes(6)
    header = header.ljust(54, b"\0") + struct.pack("<HH", 56, 2)
    good = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 16, 16, 16384)
    small = struct.pack("<IIQQQQQQ", 1, 5, 4096, 4096, 0, 16, 16, 4096)
    crooked = struct.pack("<IIQQQQQQ", 1, 5, 4096, 0, 0, 16, 16, 16384)
    android.check_alignment(header.ljust(64, b"\0") + good + good, "x86_64")
    for segment in (small, crooked):
        with pytest.raises(LiteError, match="Android requires 16384"):
            android.check_alignment(header.ljust(64, b"\0") + good + segment, "x86_64")


def test_without_a_jdk_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *names, **options: None)
    with pytest.raises(LiteError, match="needs javac: install a JDK, or set JAVA_HOME"):
        android.build(tmp_path, KINDS)


@needs_jdk
def test_the_classes_are_for_java_8(tmp_path: Path) -> None:
    first = android.compile_classes(tmp_path / "a")
    assert android.compile_classes(tmp_path / "b") == first
    with zipfile.ZipFile(io.BytesIO(first)) as jar:
        names = [name for name in jar.namelist() if name.endswith(".class")]
        assert "org/weftml/lite/Interpreter.class" in names
        for name in names:
            magic, _, version = struct.unpack(">IHH", jar.read(name)[:8])
            assert (magic, version) == (0xCAFEBABE, 52)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The model and the output folder of a build."""
    pytest.importorskip("ziglang")
    folder = tmp_path_factory.mktemp("android")
    model = small_model(folder / "model.weftlite")
    command = ["build", "--target", "android", "--models", str(model), "-o", str(folder / "out")]
    assert main(command) == 0
    return model, folder / "out"


@needs_jdk
@pytest.mark.long
def test_the_archive_has_aligned_libraries_for_each_abi(built: tuple[Path, Path]) -> None:
    _, out = built
    machines = {"arm64-v8a": (2, 183), "armeabi-v7a": (1, 40), "x86_64": (2, 62)}
    with zipfile.ZipFile(out / "weft_lite.aar") as archive:
        assert {info.date_time[0] for info in archive.infolist()} == {1980}
        assert {"AndroidManifest.xml", "classes.jar", "R.txt"} <= set(archive.namelist())
        for abi, (bits, machine) in machines.items():
            library = archive.read(f"jni/{abi}/libweft_lite.so")
            assert (library[4], struct.unpack_from("<H", library, 18)[0]) == (bits, machine)
            segments = read_segments(library)
            assert segments and all(part.alignment == 16384 for part in segments)
            assert b"libc.so\0" in library and b"libm.so\0" in library
            if abi == "armeabi-v7a":  # soft-float calls, as Android's ABI says
                assert struct.unpack_from("<I", library, 36)[0] & 0x400 == 0
    assert "compiler-rt" in {part["name"] for part in check_sbom(out)["components"]}


@needs_jdk
@pytest.mark.long
@pytest.mark.skipif(compiling.machine() != "x86_64", reason="loads the library for x86-64")
def test_the_library_for_x86_64_computes_in_a_java_machine(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    """Android's loader and libc are replaced by those of this system, under Android's names."""
    model, out = built
    libraries = [Path(f"/lib/x86_64-linux-gnu/{name}.so.6") for name in ("libc", "libm")]
    if not all(path.exists() for path in libraries):
        pytest.skip("no glibc in its usual folder")
    for path in libraries:
        (tmp_path / path.stem).symlink_to(path)
    with zipfile.ZipFile(out / "weft_lite.aar") as archive:
        (tmp_path / "libweft_lite.so").write_bytes(archive.read("jni/x86_64/libweft_lite.so"))
        (tmp_path / "classes.jar").write_bytes(archive.read("classes.jar"))
    classes = ["-cp", "classes.jar:."]
    source = str(HERE / "RunModel.java")
    subprocess.run(["javac", *classes, "-d", ".", source], cwd=tmp_path, check=True)
    done = subprocess.run(
        ["java", "-Djava.library.path=.", "-Xcheck:jni", *classes, "RunModel", str(model)],
        cwd=tmp_path, env={"LD_LIBRARY_PATH": "."}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    expected = Interpreter(model).get_signature_runner()(x=counted(2))["y"].ravel()
    for line in lines[:2]:  # of one thread and of two
        found = np.array(line.split()[1:], "int32").view("float32")
        np.testing.assert_allclose(found, expected, 1e-5)
    assert [line.split()[:2] for line in lines[2:]] == [
        ["size:", "3"], ["type:", "3"], ["bound:", "11"], ["rank:", "3"], ["name:", "3"],
        ["threads:", "3"], ["file:", "15"], ["checkpoint:", "15"], ["closed:", "9"],
    ]  # fmt: skip
