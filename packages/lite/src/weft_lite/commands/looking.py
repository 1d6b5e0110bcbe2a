"""`weft-lite inspect` and `verify`."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from typing import Any

from weft_lite.commands import arrays, output
from weft_lite.interpreter import Interpreter
from weft_lite.watching import ops_of, verify_weights


def add(actions: Any) -> None:
    """Add the subcommands `inspect` and `verify` to a parser."""
    parser = actions.add_parser("inspect", help="show signatures, tensors, ops and memory")
    parser.add_argument("model", help=".weftlite file")
    parser.add_argument("--tensors", action="store_true", help="list all tensors")
    parser.add_argument("--ops", action="store_true", help="list all ops with their operands")
    parser.set_defaults(call=inspect)

    parser = actions.add_parser(
        "verify", help="check structure, memory plan and checksums; exit code 1 if damaged"
    )
    parser.add_argument("model", help=".weftlite file")
    parser.set_defaults(call=verify)


def inspect(arguments: argparse.Namespace) -> int:
    """Print the content of a file."""
    interpreter = Interpreter(arguments.model)
    if arguments.tensors:
        _tensors(interpreter.get_tensor_details())
    elif arguments.ops:
        _ops(interpreter)
    else:
        _summary(interpreter)
    return 0


def _form(item: dict[str, Any]) -> str:
    sizes = ["?" if size == -1 else str(size) for size in item["shape_signature"]]
    return f"{arrays.name_of(item['dtype'])} {'×'.join(sizes) or 'single'}"


def _summary(interpreter: Interpreter) -> None:
    rows = []
    for label, details in [
        ("input", interpreter.get_input_details()),
        ("output", interpreter.get_output_details()),
    ]:
        rows += [[label, detail["name"], _form(detail)] for detail in details]
    for key, ends in interpreter.get_signature_list().items():
        rows.append(["signature", key, f"{ends['inputs']} → {ends['outputs']}"])
    lib, handle, file = interpreter._library, interpreter._handle, interpreter._file
    rows += [
        ["file", "", output.size(file.size)],
        ["arena", "", output.size(lib.wl_arena_bytes(handle))],
        ["scratch memory per thread", "", output.size(lib.wl_scratch_needed(handle))],
        ["memory to open the model", "", output.size(len(interpreter._memory))],
    ]
    counts = Counter(op.kind for op in ops_of(interpreter))
    rows += [["ops", kind, str(count)] for kind, count in counts.most_common()]
    output.table(["", "name", ""], rows)


def _tensors(details: list[dict[str, Any]]) -> None:
    rows = []
    for detail in details:
        scales = detail["quantization_parameters"]["scales"]
        scaled = f"{len(scales)} scales" if len(scales) > 1 else ""
        if len(scales) == 1:
            scaled = f"{scales[0]:.6g}, {detail['quantization'][1]}"
        count = math.prod(map(int, detail["shape"]))
        rows.append([detail["index"], detail["name"], _form(detail), count, scaled])
    output.table(["", "name", "type and shape", "elements", "scale, zero"], rows)


def _ops(interpreter: Interpreter) -> None:
    rows = [
        [
            op.position,
            op.kind,
            op.name,
            " ".join(map(str, op.inputs)),
            " ".join(map(str, op.outputs)),
        ]
        for op in ops_of(interpreter)
    ]
    output.table(["", "kind", "name", "operands", "results"], rows)


def verify(arguments: argparse.Namespace) -> int:
    """Open the file, which verifies its structure and plan, and compare the weights' checksum."""
    interpreter = Interpreter(arguments.model)
    verify_weights(interpreter)
    count = interpreter._library.wl_op_count(interpreter._handle)
    size = output.size(interpreter._file.size)
    output.table(["", ""], [[arguments.model, f"whole: {count} ops, {size}"]])
    return 0
