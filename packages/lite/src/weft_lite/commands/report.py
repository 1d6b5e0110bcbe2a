"""`weft-lite report`: a page with the ops and their time, memory, weights and errors."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft_lite.commands import output, running
from weft_lite.commands.arrays import name_of
from weft_lite.commands.output import size
from weft_lite.commands.report_page import BINS, Block, Description, ErrorRow, render
from weft_lite.errors import InvalidArgumentError
from weft_lite.interpreter import Interpreter
from weft_lite.watching import Op, invoke_watched, ops_of, profile

_ARENA, _CONSTANT, _VARIABLE = 0, 1, 2


def add(actions: Any) -> None:
    """Add the subcommand `report` to a parser."""
    parser = actions.add_parser(
        "report",
        help="write a page with graph, time per op, memory, weights and quantization errors",
    )
    running.common(parser, call)
    parser.add_argument("--runs", type=int, default=20, help="number of invocations (default: 20)")
    parser.add_argument(
        "--reference",
        metavar="FILE",
        help=".weftlite file of the same model in float, to show the error of each result",
    )
    parser.add_argument(
        "-o", "--output", type=Path, help="page to write (default: the model's name with .html)"
    )


def call(arguments: argparse.Namespace) -> int:
    """Write a page about a file."""
    if arguments.runs < 1:
        raise InvalidArgumentError(f"--runs must be positive, not {arguments.runs}")
    interpreter = running.open_interpreter(arguments)
    reference = None
    if arguments.reference is not None:
        reference = running.open_interpreter(arguments, arguments.reference)
        _copy_inputs(interpreter, reference)
    running.note_largest_shapes(interpreter, arguments)
    description = describe(Path(arguments.model).name, interpreter, arguments.runs, reference)
    path = arguments.output or Path(arguments.model).with_suffix(".html")
    path.write_text(render(description), encoding="utf-8")
    output.table(["page"], [[path]])
    return 0


def _copy_inputs(source: Interpreter, target: Interpreter) -> None:
    """Copy the inputs of one interpreter to another interpreter of the same model.

    Raises: InvalidArgumentError: the inputs differ.
    """
    inputs = {details["name"]: details for details in target.get_input_details()}
    for details in source.get_input_details():
        other = inputs.get(details["name"])
        if other is None:
            raise InvalidArgumentError(
                f"the reference has no input {details['name']!r}; it has {sorted(inputs)}"
            )
        if tuple(details["shape"]) != tuple(other["shape"]):
            target.resize_tensor_input(other["index"], tuple(map(int, details["shape"])))
        target.set_tensor(other["index"], source.get_tensor(details["index"]))


def describe(
    title: str, interpreter: Interpreter, runs: int, reference: Interpreter | None = None
) -> Description:
    """Collect the facts about a file.

    Args:
      title: name of the file.
      interpreter: interpreter of the file, whose inputs are set.
      runs: number of invocations to measure.
      reference: interpreter of the same model in float, whose inputs are set.
    """
    interpreter.invoke()
    timed = profile(interpreter, runs)
    ops = [item.op for item in timed]
    infos = [interpreter._info(i) for i in range(_tensor_count(interpreter))]
    readers, writers = _accesses(ops)
    edges = sorted({(w, r) for t, w in writers.items() for r in readers.get(t, []) if r > w})
    constants = sorted(
        ((_name(info), int(info.bytes)) for info in infos if info.storage == _CONSTANT),
        key=lambda item: -item[1],
    )
    details = interpreter.get_tensor_details()
    arena_bytes = int(interpreter._library.wl_arena_bytes(interpreter._handle))
    total = sum(item.seconds for item in timed if item.calls)
    summary = [
        ("file", size(interpreter._file.size)),
        ("weights", size(sum(count for _, count in constants))),
        ("arena", size(arena_bytes)),
        ("scratch memory per thread", size(_scratch(interpreter))),
        ("ops", str(len(ops))),
        ("time of the ops", f"{1e3 * total:.3f} ms per invocation, {runs} invocations"),
        ("instructions", interpreter._library.wl_instruction_set().decode()),
    ]
    return Description(
        title,
        summary,
        timed,
        [_form(details[op.outputs[0]]) if op.outputs else "" for op in ops],
        edges,
        _blocks(interpreter, infos, readers, writers, len(ops)),
        arena_bytes,
        constants,
        _errors(interpreter, reference) if reference is not None else [],
    )


def _tensor_count(interpreter: Interpreter) -> int:
    return int(interpreter._library.wl_tensor_count(interpreter._handle))


def _scratch(interpreter: Interpreter) -> int:
    return int(interpreter._library.wl_scratch_needed(interpreter._handle))


def _name(info: Any) -> str:
    return str(info.name.decode("utf-8", "replace"))


def _form(details: dict[str, Any]) -> str:
    return f"{name_of(details['dtype'])} {'×'.join(map(str, details['shape'])) or 'single'}"


def _accesses(ops: Sequence[Op]) -> tuple[dict[int, list[int]], dict[int, int]]:
    """Return the indices of the ops that read each tensor, and of the first op that writes it."""
    readers: dict[int, list[int]] = {}
    writers: dict[int, int] = {}
    for op in ops:
        for tensor in op.inputs:
            readers.setdefault(tensor, []).append(op.position)
        for tensor in op.outputs:
            writers.setdefault(tensor, op.position)
    return readers, writers


def _blocks(
    interpreter: Interpreter,
    infos: Sequence[Any],
    readers: dict[int, list[int]],
    writers: dict[int, int],
    num_ops: int,
) -> list[Block]:
    """Return the tensors in the arena. Inputs are alive from the start, outputs until the end."""
    outputs = {details["index"] for details in interpreter.get_output_details()}
    data = interpreter._library.wl_data
    places = {
        i: int(data(interpreter._handle, i) or 0)
        for i, info in enumerate(infos)
        if info.storage != _CONSTANT and info.bytes
    }
    start = min(places.values(), default=0)
    result = []
    for i, address in places.items():
        is_variable = infos[i].storage == _VARIABLE
        first = 0 if is_variable else writers.get(i, 0)
        last = max([first, *readers.get(i, [])])
        if is_variable or i in outputs:
            last = num_ops - 1
        size_bytes = int(infos[i].bytes)
        result.append(Block(_name(infos[i]), first, last, address - start, size_bytes, is_variable))
    return result


# ------------------------------------------------------------------------ errors


def _errors(interpreter: Interpreter, reference: Interpreter) -> list[ErrorRow]:
    """Compare the results that have the same names in both files, worst first."""
    actual, expected = _results(interpreter), _results(reference)
    names = [name for name in actual if name in expected]
    rows = [_error(name, actual[name], expected[name]) for name in names]
    return sorted((row for row in rows if row is not None), key=lambda row: row.decibels)


def _results(interpreter: Interpreter) -> dict[str, list[float]]:
    """Return the real values of the results of all ops outside subgraphs, by name."""
    ops, details = ops_of(interpreter), interpreter.get_tensor_details()
    result: dict[str, list[float]] = {}
    depth = 0

    def watch(number: int, has_ended: bool) -> None:
        nonlocal depth
        depth += -1 if has_ended else 1
        if not has_ended or depth:
            return
        for tensor in ops[number].outputs:
            if name_of(details[tensor]["dtype"]) == "float16":
                continue  # memoryviews do not support it
            name = details[tensor]["name"].removesuffix("/int8").removesuffix("/int16")
            result[name] = _real_values(interpreter, details[tensor])

    invoke_watched(interpreter, watch)
    return result


def _real_values(interpreter: Interpreter, details: dict[str, Any]) -> list[float]:
    elements = _flatten(memoryview(interpreter.get_tensor(details["index"])).tolist())
    scale, zero = details["quantization"]
    return [(float(x) - zero) * scale for x in elements] if scale else list(map(float, elements))


def _flatten(values: Any) -> list[Any]:
    """Return the elements of nested lists."""
    if not isinstance(values, list):
        return [values]
    return [element for value in values for element in _flatten(value)]


def _error(name: str, actual: Sequence[float], expected: Sequence[float]) -> ErrorRow | None:
    """Return the error of a result; None if the numbers of elements differ."""
    pairs = [
        (a, b)
        for a, b in zip(actual, expected, strict=False)
        if math.isfinite(a) and math.isfinite(b)
    ]
    if len(actual) != len(expected) or not pairs:
        return None
    errors = [a - b for a, b in pairs]
    noise, signal = sum(e * e for e in errors), sum(b * b for _, b in pairs)
    largest_error, largest = max(map(abs, errors)), max(abs(b) for _, b in pairs)
    histogram = [0] * BINS
    for e in errors:
        position = (e / largest_error + 1) / 2 if largest_error else 0.5
        histogram[min(BINS - 1, int(position * BINS))] += 1
    decibels = 10 * math.log10(signal / noise) if noise and signal else math.inf
    return ErrorRow(name, decibels, largest_error / largest if largest else 0.0, histogram)
