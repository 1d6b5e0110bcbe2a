"""`weft-lite build`: libraries and packages for other machines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from weft_lite import targets
from weft_lite.commands import extra, output
from weft_lite.errors import InvalidArgumentError
from weft_lite.packaging import android, apple, arduino, dart, microcontroller, sbom


def add(actions: Any) -> None:
    """Add the subcommand `build` to a parser."""
    parser = actions.add_parser(
        "build",
        help="build the runtime for other machines with the kernels that given files need, or "
        "a model",
    )
    parser.add_argument(
        "--models", type=Path, nargs="+", default=[], help="files that the runtime must run"
    )
    parser.add_argument(
        "--all", action="store_true", help="include all kernels, instead of --models"
    )
    parser.add_argument("--compiled", type=Path, metavar="MODEL", help="compile a model to a "
                      "library: a .weftlite file, a graph or a SavedModel")  # fmt: skip
    parser.add_argument("--shape", action="append", default=[], metavar="INPUT=1,224,224,3",
                      help="shape of an input that has unknown sizes (--compiled)")  # fmt: skip
    parser.add_argument(
        "--cpu",
        default="",
        help="minimum CPU, such as x86-64-v3 (--compiled); or the processor of "
        f"{microcontroller.TARGET}: {', '.join(microcontroller.CPUS)}",
    )
    parser.add_argument(
        "--features", default="", help="CPU features, such as +dotprod (--compiled)"
    )
    parser.add_argument(
        "--target",
        required=True,
        help="a machine, such as aarch64-linux-musl, wasm32-wasi, aarch64-macos, "
        "x86_64-windows-gnu, aarch64-android or arm-none-eabi; or a package: android (AAR), "
        "apple (Swift package), arduino (library), dart (bindings)",
    )
    parser.add_argument("-o", "--out", type=Path, required=True, help="output directory")
    parser.set_defaults(call=build)


def build(arguments: argparse.Namespace) -> int:
    """Build the libraries and their bill of materials, and print the sizes."""
    is_dart = arguments.target == "dart"
    num_sources = [bool(arguments.models), arguments.all, bool(arguments.compiled)].count(True)
    if num_sources != (0 if is_dart else 1):
        accepted = "none" if is_dart else "exactly one"
        raise InvalidArgumentError(
            f"--target {arguments.target}: pass {accepted} of --models, --all and --compiled"
        )
    if arguments.compiled:
        return extra.call_extra("compiling", "weft_compiler")(arguments)
    needs_cpu = arguments.target == microcontroller.TARGET
    if arguments.shape or arguments.features or (arguments.cpu and not needs_cpu):
        raise InvalidArgumentError("--shape, --cpu and --features require --compiled")
    if needs_cpu:
        return _build_firmware(arguments)
    built = _build(arguments)
    linked = _linked_libraries(arguments.target)
    bill = sbom.write_sbom(arguments.out, built.files, arguments.target, built.kernels, linked)
    rows = [_row(path) for path in [*built.files, bill]]
    rows.append([_SIZES.get(arguments.target, "in a program, stripped"), output.size(built.size)])
    rows.append(["kernels", " ".join(built.kernels)])
    output.table(["", "size"], rows)
    return 0


_SIZES = {
    "android": "library for arm64-v8a",
    "apple": "static library for iOS",
    "arduino": "sources",
    "dart": "bindings",
}
"""Description of the size that a package build reports."""


def _build(arguments: argparse.Namespace) -> targets.BuildResult:
    """Build for a machine or a package, except for microcontrollers."""
    target, out, models = arguments.target, arguments.out, arguments.models
    if target == "dart":
        return dart.build(out)
    if target == "arduino":
        return arduino.build(out, models)
    if target not in ("android", "apple"):
        targets.parts_of(target)
    kinds = None if arguments.all else targets.kinds_of(models)
    if target == "android":
        return android.build(out, kinds, _print_progress)
    if target == "apple":
        return apple.build(out, kinds, _print_progress)
    return targets.build(target, out, kinds, _print_progress)


def _build_firmware(arguments: argparse.Namespace) -> int:
    """Build for a microcontroller, and print the sizes and the memory."""
    target, out = arguments.target, arguments.out
    built = microcontroller.build(out, arguments.cpu, arguments.models, _print_progress)
    bill = sbom.write_sbom(out, built.files, f"{target}-{arguments.cpu}", built.kernels, [])
    rows = [_row(path) for path in [*built.files, bill]]
    if built.footprint:
        code, model, ram, undefined = built.footprint
        rows.append(["flash: code", output.size(code)])
        rows.append(["flash: model", output.size(model)])
        rows.append(["RAM, without the stack", output.size(ram)])
        rows.append(["math functions to link", " ".join(undefined) or "none"])
    rows.append(["kernels", " ".join(built.kernels)])
    output.table(["", "size"], rows)
    return 0


def _linked_libraries(target: str) -> list[str]:
    """Return zig's components that are linked into the libraries of a target."""
    if target == "android":
        return ["compiler-rt"]
    for system, name in (("wasi", "wasi-libc"), ("windows", "mingw-w64")):
        if system in target:
            return ["compiler-rt", name]
    return ["compiler-rt"] if "linux" in target else []


def _row(path: Path) -> list[object]:
    """Return the row of a file or a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return [path, output.size(sum(item.stat().st_size for item in files if item.is_file()))]


def _print_progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(text + "\n")
