"""Fuzzes the runtime of lite with libFuzzer: address and undefined-behavior sanitizers, a mutator
that knows the schema, and files of every kernel to begin with.

    hatch run fuzz:lite [--seconds 60 | --runs 10000000] [--shapes 5] [--folder FOLDER] [--keep]

Before it every kernel runs over random valid shapes, so often for each file.

Needs clang with its runtime (Debian: clang, libclang-rt-dev, llvm). What fails is written to the
folder as `crash-…`, `timeout-…` or `oom-…`. `--keep` replaces the corpora of the tests by the
smallest files that reach all that was reached. The branches of the loader that were reached are
printed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from weft_testing.loading import load

from weft_lite.compiling import COMMON, RUNTIME, VECTORS, machine, sources
from weft_lite.schema.enums import OpKind

HERE = Path(__file__).parent
seeds: Any = load(HERE / "seeds.py")
KEPT_BYTES = 1200
"""That a file which the tests replay has at most."""

SANITIZERS = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
FUZZER = [*SANITIZERS, "-fsanitize=fuzzer"]
LOADER = ["open.c", "flatbuffer.c", "plan.c", "run.c"]


def build(folder: Path, name: str, flags: Sequence[str], compiler: str = "clang") -> Path:
    """Build a program with the runtime; unchanged objects are reused.

    The sources for each instruction set are not optimized, which would take minutes, and like the
    mutator it does not lead the fuzzer.
    """
    program, objects = folder / name, folder / f"{name}.o"
    objects.mkdir(parents=True, exist_ok=True)
    headers = max(path.stat().st_mtime for path in RUNTIME.glob("*.[hi]*"))
    more = [] if "-fsanitize=fuzzer" in flags else [HERE / "replay.c"]

    def compile_one(source: Path) -> Path:
        target = objects / f"{source.stem}.o"
        if target.exists() and target.stat().st_mtime > max(headers, source.stat().st_mtime):
            return target
        own = VECTORS.get(machine(), {}).get(source.stem.removeprefix("vector_"), [])
        vectors = source.stem.startswith("vector_")
        level = "-O0" if more or vectors else "-O1"
        leads = not vectors and source.parent != HERE
        given = [flag for flag in flags if leads or "fuzzer" not in flag]
        words = [compiler, *COMMON, level, "-g", "-D_POSIX_C_SOURCE=200809L", "-I", str(RUNTIME)]
        if "-fsanitize=fuzzer" in given:  # comparisons are what half of the time went to
            given.append("-fno-sanitize-coverage=trace-cmp")
        call(*words, *own, *given, "-c", str(source), "-o", str(target))
        return target

    with ThreadPoolExecutor(2) as pool:
        made = [*map(str, pool.map(compile_one, [*sources(), HERE / "open_file.c", *more]))]
    call(compiler, *flags, *made, "-o", str(program), "-lm", "-lpthread")
    return program


def call(*command: str) -> str:
    """Run a command and return its output.

    Raises: RuntimeError: it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def shapes(program: Path, files: Path, turns: int) -> list[str]:
    """Run files with open sizes, drawn so often for each; the kernels that never ran.

    Raises: RuntimeError: a sanitizer found something.
    """
    told = files.with_name(f"{files.name}.kinds")
    environment = {**os.environ, "TURNS": str(turns), "RAN": str(told)}
    each = sorted(map(str, files.iterdir()))
    command = [str(program), *each]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-6000:])
    ran = {int(line) for line in told.read_text("ascii").split()}
    return sorted(kind.name for kind in OpKind if kind not in ran)


def fuzz(folder: Path, limits: Sequence[str]) -> int:
    """Run libFuzzer for some time; return its exit status."""
    program = build(folder, "fuzz", FUZZER)
    command = [str(program), str(folder / "corpus"), f"-artifact_prefix={folder}/", *limits]
    command += ["-timeout=60", f"-max_len={seeds.MOST_BYTES}", "-rss_limit_mb=1024"]
    command += ["-print_final_stats=1", "-reload=0", "-verbosity=0"]
    options = "quarantine_size_mb=1:malloc_context_size=0"
    environment = {**os.environ, "ASAN_OPTIONS": options}
    return subprocess.run(command, env=environment, check=False).returncode


def coverage(folder: Path) -> str:
    """Lines of the files that load, with how many of their branches the corpus reaches."""
    flags = ["-fprofile-instr-generate", "-fcoverage-mapping"]
    program = build(folder, "covered", [*flags, "-fsanitize=address", "-fsanitize=fuzzer"])
    raw, merged = folder / "raw.profile", folder / "merged.profile"
    environment = {**os.environ, "LLVM_PROFILE_FILE": str(raw)}
    command = [str(program), "-runs=0", str(folder / "corpus")]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    suffix = re.search(r"version (\d+)", call("clang", "--version"))[1]
    tool = lambda name: shutil.which(name) or f"{name}-{suffix}"  # noqa: E731
    call(tool("llvm-profdata"), "merge", str(raw), "-o", str(merged))
    report = call(
        tool("llvm-cov"),
        "report",
        "--show-branch-summary",
        str(program),
        f"-instr-profile={merged}",
        *[str(RUNTIME / name) for name in LOADER],
    )
    rows = [line.split() for line in report.splitlines() if line.startswith((*LOADER, "TOTAL"))]
    return "\n".join(f"{row[0]}: {row[-1]} of {row[-3]} branches" for row in rows)


def keep(folder: Path) -> None:
    """Renew the corpora of the tests: small files with the same coverage, and one for each kernel.

    Files of before stay, since some were found to do harm.
    """
    small = folder / "minimal"
    shutil.rmtree(small, ignore_errors=True)
    small.mkdir()
    # Branches alone: how often each is taken would let thousands of files stay.
    call(str(folder / "fuzz"), "-merge=1", "-use_counters=0", str(small), str(folder / "corpus"))
    found = [data for path in small.iterdir() if len(data := path.read_bytes()) <= KEPT_BYTES]
    seeds.archive(seeds.CORPUS, [*found, *seeds.kept(seeds.CORPUS)])
    seeds.archive(
        seeds.SHAPES, seeds.few(path.read_bytes() for path in (folder / "open").iterdir())
    )


def main() -> int:
    """Fuzz as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--runs", type=int, help="how many executions, instead of --seconds")
    parser.add_argument("--shapes", type=int, default=5, help="draws of sizes for each file")
    parser.add_argument("--folder", type=Path, default=HERE / "build")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "corpus").exists():
        seeds.write_seeds(folder)
    never = shapes(build(folder, "fuzz", FUZZER), folder / "open", arguments.shapes)
    print(f"kernels that never ran over random shapes: {' '.join(never) or 'none'}")
    limits = [f"-runs={arguments.runs}"] if arguments.runs else []
    status = fuzz(folder, limits or [f"-max_total_time={arguments.seconds}"])
    if arguments.keep and not status:
        keep(folder)
    print(coverage(folder))
    return status


if __name__ == "__main__":
    sys.exit(main())
