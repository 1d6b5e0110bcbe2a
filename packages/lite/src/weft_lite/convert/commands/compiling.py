"""`weft-lite build --compiled`: one model as a library with the runtime's interface."""

from __future__ import annotations

import argparse

from weft_compiler.commands.compile import shapes
from weft_lite.commands import output
from weft_lite.convert.commands.errors import plain_errors
from weft_lite.convert.compiled import build_compiled


def call(arguments: argparse.Namespace) -> int:
    """Build the library, and print all sizes."""
    with plain_errors():
        built = build_compiled(
            arguments.compiled,
            arguments.target,
            arguments.out,
            shapes=shapes(arguments.shape),
            cpu=arguments.cpu,
            features=arguments.features,
        )
    rows = [[path, output.size(path.stat().st_size)] for path in built.files]
    rows.append(["weights", output.size(built.compiled.weights)])
    rows.append(["arena", output.size(built.compiled.arena)])
    rows.append(["left open", " ".join(built.compiled.undefined) or "nothing"])
    output.table(["", "size"], rows)
    return 0
