"""The LLVM IR of the compiler's runtime, compiled from its C sources by zig's clang.

`hatch run golden:runtime` writes the IR anew, and copies the thread pool to weft-lite.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from weft_testing.workspace import ROOT

SOURCES: Final = ROOT / "packages" / "compiler" / "src" / "weft_compiler" / "runtime"
IR: Final = SOURCES / "ir"
POOL: Final = SOURCES / "thread_pool.h"
COPY: Final = ROOT / "packages" / "lite" / "src" / "weft_lite" / "runtime" / POOL.name

TARGETS: Final = {
    "linux": ("x86_64-linux-gnu", "aarch64-linux-gnu"),
    "macos": ("x86_64-macos", "aarch64-macos"),
    "serial": ("x86_64-windows-gnu", "aarch64-windows-gnu"),
}
"""The targets of each system, whose IR is the same. Systems other than Linux and macOS have no
helper threads."""

FILES: Final = {
    **{f"runtime.{system}": ("runtime.c", targets) for system, targets in TARGETS.items()},
    "fmod": ("fmod.c", tuple(target for each in TARGETS.values() for target in each)),
}
"""The source and the targets of each file."""

_FLAGS: Final = (
    *("-std=c11", "-Os", "-g0", "-Wall", "-Wextra", "-Wconversion", "-DWEFT_PAUSE_FUNCTION"),
    *("-fno-sanitize=undefined", "-fno-stack-protector", "-fno-strict-aliasing"),
    *("-fno-vectorize", "-fno-slp-vectorize", "-fno-unroll-loops", "-ffp-contract=off"),
)
_DROPPED: Final = re.compile(
    r"^(target |source_filename|!|attributes |; ModuleID|; Function Attrs|.*@llvm\.lifetime\.)"
)
_ERASED: Final = re.compile(
    r" (local_unnamed_addr|unnamed_addr|dso_local|noundef|nonnull|writeonly|readonly|nocapture|"
    r"captures\(\w+\)|dereferenceable\(\d+\)|initializes\(\([^)]*\)\)|range\([^)]*\))(?=[ ,)])"
    r"|, ![\w.]+ !\d+|\s+; preds = .*$"
)
_GROUP: Final = re.compile(r" #(\d+)(?= \{|$)")


def ir_of(source: Path, target: str) -> str:
    """Compile a source to IR without the attributes that depend on the processor."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out.ll"
        zig = [sys.executable, "-m", "ziglang", "cc", "-target", target, *_FLAGS]
        command = [*zig, "-S", "-emit-llvm", str(source), "-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or "warning:" in done.stderr.replace(
            "zig: warning: argument unused", ""
        ):
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
        return portable(out.read_text(encoding="utf-8"))


def portable(text: str) -> str:
    """Remove everything from IR that processors or versions of LLVM do not share.

    Of the attributes of functions, `noinline` and `nounwind` remain.
    """
    groups = {
        number: " ".join(name for name in ("noinline", "nounwind") if name in words.split())
        for number, words in re.findall(r"^attributes #(\d+) = \{(.*)\}$", text, re.MULTILINE)
    }
    lines = []
    for line in text.splitlines():
        if not _DROPPED.match(line):
            line = _ERASED.sub("", line)
            line = _GROUP.sub(lambda match: f" {groups[match[1]]}".rstrip(), line)
            lines.append(line.rstrip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def golden_text(name: str, max_targets: int | None = None) -> str:
    """Return the IR of a file.

    Args:
      max_targets: the number of targets to compile; all by default.
    Raises: ValueError: its targets differ.
    """
    source, every = FILES[name]
    targets = every[:max_targets]
    texts = {target: ir_of(SOURCES / source, target) for target in targets}
    first = texts[targets[0]]
    different = [target for target, text in texts.items() if text != first]
    if different:
        raise ValueError(f"the IR of {source} differs between {targets[0]} and {different}")
    by = f"clang {clang_version()}, sources {sources_digest()}"
    return f"; {source} by `hatch run golden:runtime`: {by}\n\n{first}"


@functools.cache
def clang_version() -> str:
    """Return the version of zig's clang."""
    command = [sys.executable, "-m", "ziglang", "cc", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    match = re.search(r"clang version ([\d.]+)", done.stdout)
    assert match is not None
    return match[1]


def sources_digest() -> str:
    """Return a hash of the sources."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.glob("*.[ch]")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Write the files anew."""
    IR.mkdir(exist_ok=True)
    for name in FILES:
        (IR / f"{name}.ll").write_text(golden_text(name), encoding="utf-8")
    shutil.copyfile(POOL, COPY)


if __name__ == "__main__":
    main()
