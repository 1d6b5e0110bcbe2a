"""`weft-lite run`, `bench` and `profile`."""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Any

from weft_lite.commands import arrays, output
from weft_lite.errors import InvalidArgumentError
from weft_lite.interpreter import Interpreter
from weft_lite.library import load
from weft_lite.watching import TimedOp, record, timed_ops


def add(actions: Any) -> None:
    """Add the subcommands `run`, `bench` and `profile` to a parser."""
    parser = actions.add_parser("run", help="run a file once; show or save its outputs")
    common(parser, run)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FOLDER",
        help="directory to save the outputs in, as NAME.npy",
    )

    parser = actions.add_parser(
        "bench", help="measure the time of an invocation: median and percentiles"
    )
    common(parser, bench)
    parser.add_argument(
        "--runs",
        type=int,
        default=0,
        help="number of invocations (default: as many as fit into --seconds)",
    )
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="duration of the measurement (default: 2)"
    )
    parser.add_argument(
        "--warm-up", type=int, default=5, help="invocations before the measurement (default: 5)"
    )

    parser = actions.add_parser("profile", help="measure the time of each op, slowest first")
    common(parser, profile_ops)
    parser.add_argument("--runs", type=int, default=50, help="number of invocations (default: 50)")
    parser.add_argument("--by-kind", action="store_true", help="one line per kind of op")
    parser.add_argument(
        "--timeline", metavar="FILE", help="write the times in JSON, for `weft trace import`"
    )


def common(parser: argparse.ArgumentParser, call: Any) -> None:
    """Add the arguments shared by commands that run a file."""
    parser.add_argument("model", help=".weftlite file")
    parser.add_argument(
        "-i", "--input", action="append", default=[], metavar="NAME=VALUE",
        help="value of an input: numbers such as 1,2,3, or @FILE.npy (default: random)",
    )  # fmt: skip
    parser.add_argument(
        "-s", "--shape", action="append", default=[], metavar="NAME=1,8,8,3",
        help="shape of an input that has unknown sizes",
    )  # fmt: skip
    parser.add_argument(
        "-t", "--threads", type=int, default=1, help="number of threads (default: 1)"
    )
    parser.set_defaults(call=call)


def open_interpreter(arguments: argparse.Namespace, model: str | None = None) -> Interpreter:
    """Return an interpreter whose inputs are set by the arguments.

    Args:
      model: the file; by default that of the arguments.
    """
    interpreter = Interpreter(model or arguments.model, num_threads=arguments.threads)
    assignments, shapes = arrays.assignments(arguments.input), arrays.shapes(arguments.shape)
    arrays.feed(interpreter, assignments, shapes)
    return interpreter


def run(arguments: argparse.Namespace) -> int:
    """Print the outputs, or write each to a file."""
    interpreter = open_interpreter(arguments)
    interpreter.invoke()
    rows = []
    for output_detail in interpreter.get_output_details():
        dtype, shape = (
            arrays.name_of(output_detail["dtype"]),
            tuple(map(int, output_detail["shape"])),
        )
        value = interpreter.get_tensor(output_detail["index"])
        if arguments.output:
            arguments.output.mkdir(parents=True, exist_ok=True)
            path = arguments.output / (re.sub(r"[^\w.-]+", "_", output_detail["name"]) + ".npy")
            arrays.write_npy(path, dtype, shape, memoryview(value).tobytes())
            path_text = str(path)
        else:
            path_text = _format_value(memoryview(value).tolist())
        rows.append([output_detail["name"], dtype, _dims(shape), path_text])
    output.table(["output", "type", "shape", "value"], rows)
    return 0


def _format_value(value: object) -> str:
    text = str(value)
    return text if len(text) <= 400 else text[:400] + " …"


def _dims(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "single"


def bench(arguments: argparse.Namespace) -> int:
    """Print the minimum, median and percentiles of the time, and the memory used."""
    if arguments.runs < 0 or arguments.warm_up < 0 or not arguments.seconds > 0:
        raise InvalidArgumentError(
            "--runs and --warm-up must not be negative, and --seconds must be positive"
        )
    interpreter = open_interpreter(arguments)
    note_largest_shapes(interpreter, arguments)
    for _ in range(arguments.warm_up):
        interpreter.invoke()
    times: list[float] = []
    end = time.perf_counter() + arguments.seconds
    while len(times) < arguments.runs or (not arguments.runs and time.perf_counter() < end):
        start = time.perf_counter()
        interpreter.invoke()
        times.append(time.perf_counter() - start)
        _progress(len(times), arguments.runs)
    _progress_done()
    times.sort()
    rows = [
        [f"input {input_detail['name']}", _form(input_detail)]
        for input_detail in interpreter.get_input_details()
    ]
    rows.append(["invocations", str(len(times))])
    for name, part in [("least", 0.0), ("median", 0.5), ("90 %", 0.9), ("99 %", 0.99)]:
        rows.append([name, f"{1e3 * times[min(len(times) - 1, int(part * len(times)))]:.4f} ms"])
    arena = interpreter._library.wl_arena_bytes(interpreter._handle)
    rows += [["arena", output.size(arena)], ["threads", str(arguments.threads)]]
    rows.append(["instructions", load().wl_instruction_set().decode()])
    output.table(["", ""], rows)
    return 0


def note_largest_shapes(interpreter: Interpreter, arguments: argparse.Namespace) -> None:
    """Print to stderr which inputs have their largest shape because none was specified."""
    shapes = arrays.shapes(arguments.shape)
    names = {*shapes, *(k for k, v in arrays.assignments(arguments.input).items() if v[:1] == "@")}
    for input_detail in interpreter.get_input_details():
        if -1 in tuple(input_detail["shape_signature"]) and input_detail["name"] not in names:
            name, dims = (
                output.printable(input_detail["name"]),
                tuple(map(int, input_detail["shape"])),
            )
            example = ",".join(map(str, dims))
            sys.stderr.write(
                f"weft-lite: input {name} is timed at its largest shape, {_dims(dims)}; to use a "
                f"smaller one, give --shape {name}={example} with smaller sizes\n"
            )


def _form(details: dict[str, Any]) -> str:
    return f"{arrays.name_of(details['dtype'])} {_dims(tuple(map(int, details['shape'])))}"


def _progress(num_done: int, total: int) -> None:
    if sys.stderr.isatty() and num_done % 16 == 0:
        sys.stderr.write(f"\r{num_done}{f' of {total}' if total else ''} invocations")


def _progress_done() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")


def profile_ops(arguments: argparse.Namespace) -> int:
    """Print the time and share of each op, or of each kind of op."""
    if arguments.runs < 1:
        raise InvalidArgumentError(f"--runs must be positive, not {arguments.runs}")
    interpreter = open_interpreter(arguments)
    note_largest_shapes(interpreter, arguments)
    interpreter.invoke()
    timeline = record(interpreter, arguments.runs)
    if arguments.timeline:
        timeline.write(arguments.timeline, interpreter, Path(arguments.model).name)
    result = timed_ops(interpreter, timeline)
    total = sum(item.seconds for item in result) or 1.0
    rows = _kinds(result) if arguments.by_kind else _ops(result)
    rows.sort(key=lambda row: -row[0])
    table = [
        [f"{1e3 * t:.4f} ms", f"{100 * t / total:.1f} %", *remaining] for t, *remaining in rows
    ]
    output.table(["time", "share", "calls", "kind", "op"], table)
    return 0


def _ops(timeds: list[TimedOp]) -> list[list[Any]]:
    return [
        [
            item.seconds,
            f"{item.calls:g}",
            item.op.kind,
            f"{item.op.position} {item.op.name}".strip(),
        ]
        for item in timeds
    ]


def _kinds(timeds: list[TimedOp]) -> list[list[Any]]:
    kinds: dict[str, tuple[float, float, int]] = {}
    for item in timeds:
        seconds, calls, count = kinds.get(item.op.kind, (0.0, 0.0, 0))
        kinds[item.op.kind] = (seconds + item.seconds, calls + item.calls, count + 1)
    return [[s, f"{calls:g}", kind, f"{n} ops"] for kind, (s, calls, n) in kinds.items()]
