"""`weft compile`: compile a saved model to an object and a C header."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from weft_tensor import errors


def add(parser: argparse.ArgumentParser) -> None:
    """Compile a model to an object that C programs link, for this machine or another."""
    parser.add_argument(
        "model",
        type=Path,
        help="model to compile: a frozen GraphDef or a .weft graph; with the packages that read "
        "them, a SavedModel directory, a checkpoint prefix, an .onnx or a .weftlite file",
    )
    parser.add_argument(
        "--target",
        default="native",
        help="target machine: native, wasm32-wasi, or x86_64, aarch64, arm or riscv64 followed by "
        "-linux, -android or -none",
    )
    parser.add_argument(
        "-o", "--out", type=Path, default=Path(), help="output directory (default: .)"
    )
    parser.add_argument("--name", help="name of the C function (default: the name of the file)")
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="INPUT=1,224,224,3",
        help="shape of an input that has unknown sizes",
    )
    parser.add_argument(
        "--cpu", default="", help="minimum CPU, such as x86-64-v3, cortex-a76 or cortex-m4"
    )
    parser.add_argument(
        "--features", default="", help="CPU features to add or remove, such as +dotprod,-fma"
    )
    parser.add_argument(
        "--exact",
        action="store_true",
        help="round each product and each sum, in the order of the graph",
    )
    group = parser.add_argument_group("what to compile")
    group.add_argument("--inputs", help="comma-separated input names (default for graphs: all "
                       "placeholders without a default)")  # fmt: skip
    group.add_argument(
        "--outputs", help="comma-separated output names (default for graphs: unread outputs)"
    )
    group.add_argument("--signature", help="signature of a SavedModel (default: serving_default)")
    group.add_argument("--tags", help="comma-separated tags of a SavedModel (default: serve)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compile, write the files, and report their sizes."""
    # Imported here because LLVM takes 0.1 s to import, which other subcommands must not pay.
    from weft_compiler.ahead.compiled import compile_graph
    from weft_compiler.ahead.header import to_identifier
    from weft_compiler.ahead.sources import read_model

    inputs, outputs = read_model(
        arguments.model,
        _names(arguments.inputs),
        _names(arguments.outputs),
        arguments.signature,
        _names(arguments.tags),
    )
    compiled = compile_graph(
        inputs,
        outputs,
        arguments.target,
        shapes=shapes(arguments.shape),
        name=arguments.name or to_identifier(arguments.model.stem),
        cpu=arguments.cpu,
        features=arguments.features,
        contract=not arguments.exact,
    )
    files = compiled.write(arguments.out)
    rows = [(str(path), f"{path.stat().st_size:,} bytes") for path in files]
    rows.append(("weights", f"{compiled.weights:,} bytes"))
    rows.append(("arena", f"{compiled.arena:,} bytes"))
    rows.append(("left open", " ".join(compiled.undefined) or "nothing"))
    width = max(len(name) for name, _ in rows)
    sys.stdout.write("".join(f"{name:<{width}}  {value}\n" for name, value in rows))
    return 0


def _names(text: str | None) -> list[str]:
    return [name for name in (text or "").split(",") if name]


def shapes(texts: Sequence[str]) -> dict[str, list[int]]:
    """Parse shapes by input names, from texts such as "x=1,224,224,3"; "x=" is a scalar.

    Raises: InvalidArgumentError: a text is invalid.
    """
    names = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        if not equals or not all(size.isdecimal() for size in _names(sizes)):
            raise errors.InvalidArgumentError(
                f"--shape takes a name and sizes, such as x=1,224,224,3, got {text!r}"
            )
        names[name] = [int(size) for size in _names(sizes)]
    return names
