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
from weft_lite.watching import Timed, profile


def add(actions: Any) -> None:
    """Add the three to a parser."""
    made = actions.add_parser("run", help="run a file once; show or save its outputs")
    common(made, run)
    made.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FOLDER",
        help="directory to save the outputs in, as NAME.npy",
    )

    made = actions.add_parser(
        "bench", help="measure the time of an invocation: median and percentiles"
    )
    common(made, bench)
    made.add_argument(
        "--runs",
        type=int,
        default=0,
        help="number of invocations (default: as many as fit into --seconds)",
    )
    made.add_argument(
        "--seconds", type=float, default=2.0, help="duration of the measurement (default: 2)"
    )
    made.add_argument(
        "--warm-up", type=int, default=5, help="invocations before the measurement (default: 5)"
    )

    made = actions.add_parser("profile", help="measure the time of each op, slowest first")
    common(made, profile_ops)
    made.add_argument("--runs", type=int, default=50, help="number of invocations (default: 50)")
    made.add_argument("--by-kind", action="store_true", help="one line per kind of op")


def common(parser: argparse.ArgumentParser, call: Any) -> None:
    """Add the arguments of commands that run a file."""
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


def opened(arguments: argparse.Namespace) -> Interpreter:
    """Return an interpreter with its inputs set as the arguments say."""
    interpreter = Interpreter(arguments.model, num_threads=arguments.threads)
    given, shapes = arrays.assignments(arguments.input), arrays.shapes(arguments.shape)
    arrays.feed(interpreter, given, shapes)
    return interpreter


def run(arguments: argparse.Namespace) -> int:
    """Show the outputs, or write a file for each."""
    interpreter = opened(arguments)
    interpreter.invoke()
    rows = []
    for each in interpreter.get_output_details():
        dtype, shape = arrays.name_of(each["dtype"]), tuple(map(int, each["shape"]))
        value = interpreter.get_tensor(each["index"])
        if arguments.output:
            arguments.output.mkdir(parents=True, exist_ok=True)
            path = arguments.output / (re.sub(r"[^\w.-]+", "_", each["name"]) + ".npy")
            arrays.write_npy(path, dtype, shape, memoryview(value).tobytes())
            shown = str(path)
        else:
            shown = _shown(memoryview(value).tolist())
        rows.append([each["name"], dtype, _dims(shape), shown])
    output.table(["output", "type", "shape", "value"], rows)
    return 0


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 400 else text[:400] + " …"


def _dims(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "single"


def bench(arguments: argparse.Namespace) -> int:
    """Show the minimum, the median and percentiles of the time, and the memory used."""
    if arguments.runs < 0 or arguments.warm_up < 0 or not arguments.seconds > 0:
        raise InvalidArgumentError("--runs and --warm-up are not negative, --seconds is positive")
    interpreter = opened(arguments)
    _note_largest_shapes(interpreter, arguments)
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
    rows = [[f"input {each['name']}", _form(each)] for each in interpreter.get_input_details()]
    rows.append(["invocations", str(len(times))])
    for name, part in [("least", 0.0), ("median", 0.5), ("90 %", 0.9), ("99 %", 0.99)]:
        rows.append([name, f"{1e3 * times[min(len(times) - 1, int(part * len(times)))]:.4f} ms"])
    arena = interpreter._library.wl_arena_bytes(interpreter._handle)
    rows += [["arena", output.size(arena)], ["threads", str(arguments.threads)]]
    rows.append(["instructions", load().wl_instruction_set().decode()])
    output.table(["", ""], rows)
    return 0


def _note_largest_shapes(interpreter: Interpreter, arguments: argparse.Namespace) -> None:
    """Say on stderr which inputs are timed at their bound, as no shape was given."""
    shapes = arrays.shapes(arguments.shape)
    given = {*shapes, *(k for k, v in arrays.assignments(arguments.input).items() if v[:1] == "@")}
    for each in interpreter.get_input_details():
        if -1 in tuple(each["shape_signature"]) and each["name"] not in given:
            name, dims = output.printable(each["name"]), tuple(map(int, each["shape"]))
            example = ",".join(map(str, dims))
            sys.stderr.write(
                f"weft-lite: input {name} is timed at its largest shape, {_dims(dims)}; for a "
                f"smaller one give --shape {name}={example} with other sizes\n"
            )


def _form(details: dict[str, Any]) -> str:
    return f"{arrays.name_of(details['dtype'])} {_dims(tuple(map(int, details['shape'])))}"


def _progress(done: int, whole: int) -> None:
    if sys.stderr.isatty() and done % 16 == 0:
        sys.stderr.write(f"\r{done}{f' of {whole}' if whole else ''} invocations")


def _progress_done() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")


def profile_ops(arguments: argparse.Namespace) -> int:
    """Show each op, or each kind of op, with its time and share."""
    if arguments.runs < 1:
        raise InvalidArgumentError(f"--runs must be positive, not {arguments.runs}")
    interpreter = opened(arguments)
    _note_largest_shapes(interpreter, arguments)
    interpreter.invoke()
    found = profile(interpreter, arguments.runs)
    whole = sum(each.seconds for each in found) or 1.0
    rows = _kinds(found) if arguments.by_kind else _ops(found)
    rows.sort(key=lambda row: -row[0])
    table = [[f"{1e3 * t:.4f} ms", f"{100 * t / whole:.1f} %", *rest] for t, *rest in rows]
    output.table(["time", "share", "calls", "kind", "op"], table)
    return 0


def _ops(found: list[Timed]) -> list[list[Any]]:
    return [
        [each.seconds, f"{each.calls:g}", each.op.kind, f"{each.op.place} {each.op.name}".strip()]
        for each in found
    ]


def _kinds(found: list[Timed]) -> list[list[Any]]:
    kinds: dict[str, tuple[float, float, int]] = {}
    for each in found:
        seconds, calls, count = kinds.get(each.op.kind, (0.0, 0.0, 0))
        kinds[each.op.kind] = (seconds + each.seconds, calls + each.calls, count + 1)
    return [[s, f"{calls:g}", kind, f"{n} ops"] for kind, (s, calls, n) in kinds.items()]
