"""Fuzzes the runtime of lite with libFuzzer: address and undefined-behaviour sanitizers, a mutator
that knows the schema, and files of every kernel to begin with.

    hatch run fuzz:lite [--seconds 60] [--folder FOLDER] [--keep]

Needs clang with its runtime (Debian: clang, libclang-rt-dev, llvm). What fails is written to the
folder as `crash-…`, `timeout-…` or `oom-…`. `--keep` replaces the corpus of the tests by the
smallest files that reach all that was reached. The branches of the loader that were reached are
printed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from weft_testing.loading import load

from weft_lite.compiling import COMMON, RUNTIME, VECTORS, machine, sources

HERE = Path(__file__).parent
CORPUS = HERE / "corpus.zip"
KEPT = 350
"""Files that the tests replay, at most."""

SANITIZERS = "-fsanitize=address,undefined,float-cast-overflow"
LOADER = ["open.c", "flatbuffer.c", "plan.c", "run.c"]


def build(folder: Path, name: str, flags: list[str]) -> Path:
    """The fuzzer, with the runtime in it."""
    program = folder / name
    if not program.exists():
        objects = folder / f"{name}.o"
        objects.mkdir(exist_ok=True)
        for source in [*sources(), HERE / "open_file.c"]:
            own = VECTORS.get(machine(), {}).get(source.stem.removeprefix("vector_"), [])
            command = [
                "clang",
                *COMMON,
                "-O1",
                "-g",
                "-D_POSIX_C_SOURCE=200809L",
                "-I",
                str(RUNTIME),
            ]
            target = objects / f"{source.stem}.o"
            call(*command, *own, *flags, "-c", str(source), "-o", str(target))
        call("clang", *flags, *map(str, objects.iterdir()), "-o", str(program), "-lm", "-lpthread")
    return program


def call(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def write_seeds(folder: Path) -> None:
    """The files of the tests, and one for each row of the conformance table."""
    folder.mkdir(parents=True)
    hostile = load(HERE.parent / "runtime" / "test_hostile_files.py")
    table = load(HERE.parent / "convert" / "test_conformance.py")
    with zipfile.ZipFile(CORPUS) as kept:
        found = [*hostile.seeds(), *map(kept.read, kept.namelist())]
    for each in table.cases():
        made = table.CaseGraph(each.values[0])
        for node in filter(table.takes, made.nodes):
            try:
                found.append(table.converted(made, node)[0])
            except table.errors.UnimplementedError:
                continue
    for data in found:
        if len(data) < 1 << 16:
            (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


def fuzz(folder: Path, seconds: int) -> int:
    """Run for some time; the exit status of libFuzzer."""
    program = build(folder, "fuzz", [SANITIZERS, "-fno-sanitize-recover=all", "-fsanitize=fuzzer"])
    command = [str(program), str(folder / "corpus"), f"-artifact_prefix={folder}/"]
    command += ["-timeout=1", "-max_len=65536", "-rss_limit_mb=1024", f"-max_total_time={seconds}"]
    command += ["-print_final_stats=1", "-reload=0", "-verbosity=0"]
    return subprocess.run(command, check=False).returncode


def coverage(folder: Path) -> str:
    """Lines of the files that load, with how many of their branches the corpus reaches."""
    flags = ["-fprofile-instr-generate", "-fcoverage-mapping"]
    program = build(folder, "covered", [*flags, "-fsanitize=fuzzer"])
    raw, merged = folder / "raw.profile", folder / "merged.profile"
    environment = {**os.environ, "LLVM_PROFILE_FILE": str(raw)}
    command = [str(program), "-runs=0", str(folder / "corpus")]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    suffix = re.search(r"version (\d+)", call("clang", "--version"))[1]
    tool = lambda name: shutil.which(name) or f"{name}-{suffix}"  # noqa: E731
    call(tool("llvm-profdata"), "merge", str(raw), "-o", str(merged))
    files = [str(RUNTIME / name) for name in LOADER]
    report = call(
        tool("llvm-cov"),
        "report",
        "--show-branch-summary",
        str(program),
        f"-instr-profile={merged}",
        *files,
    )
    rows = [line.split() for line in report.splitlines() if line.startswith((*LOADER, "TOTAL"))]
    return "\n".join(f"{row[0]}: {row[-1]} of {row[-3]} branches" for row in rows)


def keep(folder: Path) -> None:
    """Replace the corpus of the tests by the smallest of a minimal one."""
    program, small = folder / "fuzz", folder / "minimal"
    shutil.rmtree(small, ignore_errors=True)
    small.mkdir()
    call(str(program), "-merge=1", str(small), str(folder / "corpus"))
    with zipfile.ZipFile(CORPUS, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as kept:
        for path in sorted(small.iterdir(), key=lambda path: path.stat().st_size)[:KEPT]:
            kept.writestr(zipfile.ZipInfo(path.name[:12]), path.read_bytes(), zipfile.ZIP_DEFLATED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--folder", type=Path, default=HERE / "build")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "corpus").exists():
        write_seeds(folder / "corpus")
    status = fuzz(folder, arguments.seconds)
    if arguments.keep and not status:
        keep(folder)
    print(coverage(folder))
    return status


if __name__ == "__main__":
    sys.exit(main())
