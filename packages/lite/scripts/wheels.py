"""Builds the wheels of a release for all machines, and the sdist; needs the extra `build`.

    hatch run lite-wheels [--out FOLDER] [--only manylinux]

Each library is cross-compiled with zig; what a Linux one asks of the system's libraries is looked
at, and no wheel may be above 2 MB.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from weft_lite import targets

PACKAGE = Path(__file__).resolve().parents[1]
MOST = 2_000_000
PLATFORMS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_1_x86_64": "x86_64-linux-musl",
    "musllinux_1_1_aarch64": "aarch64-linux-musl",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
}
SYSTEM = {b"libc.so.6", b"libm.so.6", b"libpthread.so.0", b"libc.so", b"ld-linux-x86-64.so.2",
          b"ld-linux-aarch64.so.1"}  # fmt: skip


def audit(library: Path, platform: str) -> None:
    """Refuse a Linux library that asks for other libraries, or for a newer glibc.

    Raises: SystemExit: it does.
    """
    data = library.read_bytes()
    if "linux" not in platform:
        return
    asked = set(re.findall(rb"(?:lib|ld-)[\w+-]+\.so(?:\.\d+)*", data)) - {library.name.encode()}
    if asked - SYSTEM:
        raise SystemExit(f"{platform}: the library asks for {sorted(asked - SYSTEM)}")
    versions = {tuple(map(int, v.split(b"."))) for v in re.findall(rb"GLIBC_([\d.]+)", data)}
    if max(versions, default=(2, 0)) > (2, 17):
        raise SystemExit(f"{platform}: the library asks for glibc {max(versions)}")


def build(platform: str, target: str, out: Path) -> Path:
    """The wheel of a platform."""
    with TemporaryDirectory() as folder:
        built = targets.build(target, Path(folder), level="-O3")
        library = built.files[1]
        audit(library, platform)
        environment = {**os.environ, "WEFT_LITE_MADE": str(library), "WEFT_LITE_TAG": platform}
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
        subprocess.run(command, cwd=PACKAGE, env=environment, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = out.glob(f"*-py3-none-{platform}.whl")
    with zipfile.ZipFile(wheel) as file:
        if f"weft_lite/{library.name}" not in file.namelist():
            raise SystemExit(f"{wheel} has no library")
    if wheel.stat().st_size > MOST:
        raise SystemExit(
            f"{wheel} has {wheel.stat().st_size} bytes, and at most {MOST} are allowed"
        )
    return wheel


def main() -> None:
    """Build all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PACKAGE / "dist")
    parser.add_argument("--only", default="", help="platforms with this in their names")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for platform, target in PLATFORMS.items():
        if arguments.only in platform:
            wheel = build(platform, target, arguments.out.resolve())
            print(f"{wheel.name}: {wheel.stat().st_size / 1000:.0f} KB", flush=True)
    if not arguments.only:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist"]
        subprocess.run([*command, "-d", str(arguments.out.resolve())], cwd=PACKAGE, check=True)


if __name__ == "__main__":
    main()
