"""`weft checkpoint`: list, compare and verify checkpoints."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from weft_io.checkpoint.index import INDEX_SUFFIX
from weft_io.checkpoint.reader import CheckpointReader
from weft_io.checkpoint.state import latest_in
from weft_io.commands.output import Output
from weft_io.files import paths
from weft_io.meta_graphs.scoped_import import read_meta_graph_file
from weft_tensor import errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_io.checkpoint.statistics import Difference

DIFFERENT = 1
"""Exit code if checkpoints differ or one is damaged."""

_LONG = 10**12
"""Integers of at least this size are shown in exponent form."""

_STATISTICS = ("min", "max", "mean", "std", "zeros", "nan/inf")


def add(parser: argparse.ArgumentParser) -> None:
    """Inspect, compare and verify checkpoints, weft's and TensorFlow's."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    help_text = "prefix or index file of a checkpoint, or a directory, for its latest; may be a URL"

    result = actions.add_parser("inspect", help="list names, dtypes, shapes, sizes and statistics")
    result.add_argument("path", help=help_text)
    result.add_argument(
        "-s",
        "--statistics",
        action="store_true",
        help="also read the values and print their statistics",
    )
    _add_common_arguments(result, inspect)

    result = actions.add_parser(
        "compare", help="list added, removed and changed tensors; exit code 1 if any"
    )
    result.add_argument("path", help=help_text)
    result.add_argument("other", help="the other checkpoint")
    result.add_argument("--atol", type=float, default=0.0, help="absolute difference to ignore")
    result.add_argument("--rtol", type=float, default=0.0, help="relative difference to ignore")
    _add_common_arguments(result, compare)

    result = actions.add_parser("verify", help="verify all checksums; exit code 1 if damaged")
    result.add_argument("path", help=help_text)
    _add_common_arguments(result, verify, names=False)


def _add_common_arguments(parser: argparse.ArgumentParser, run: Any, names: bool = True) -> None:
    if names:
        parser.add_argument(
            "-n",
            "--names",
            metavar="PATTERN",
            default="*",
            help='tensors to show, such as "dense/*" (default: all)',
        )
    parser.add_argument(
        "--plain", action="store_true", help="print tab-separated fields instead of a table"
    )
    parser.set_defaults(run=run)


def _reader(path: str) -> CheckpointReader:
    path = paths.as_path(path).removesuffix(INDEX_SUFFIX)
    return CheckpointReader(latest_in(path))


def _select_names(reader: CheckpointReader, pattern: str) -> list[str]:
    return sorted([name for name in reader.index.tensors if fnmatchcase(name, pattern)])


# --------------------------------------------------------------------------- inspect


def inspect(arguments: argparse.Namespace) -> int:
    """List the tensors of a checkpoint."""
    output = Output(arguments.plain)
    reader = _reader(arguments.path)
    names = _select_names(reader, arguments.names)
    header: tuple[str, ...] = ("name", "tensor", "bytes", "parts")
    if arguments.statistics:
        header += _STATISTICS
    rows = (_describe(reader, name, arguments.statistics) for name in names)
    output.table(header, rows, numbers="bytes parts " + " ".join(_STATISTICS))
    total = sum([_size(reader.index.tensors[name]) for name in names])
    index = reader.index
    output.line(
        f"# {reader.prefix}: {len(names)} tensors, {total} bytes, {index.file_count} files, "
        f"format {index.format}"
    )
    return 0


def _size(entry: Any) -> int:
    return sum([part.end - part.begin for part in entry.parts])


def _describe(reader: CheckpointReader, name: str, values: bool) -> list[str]:
    entry = reader.index.tensors[name]
    cells = [name, _kind(entry), str(_size(entry)), str(len(entry.parts))]
    if not values:
        return cells
    if not isinstance(entry.dtype, DType) or not entry.dtype.is_numpy_compatible:
        return [*cells, *[""] * len(_STATISTICS)]
    from weft_io.checkpoint.statistics import statistics

    return cells + [
        _number(statistic) for statistic in statistics(reader.get_tensor(name), entry.dtype)
    ]


def _number(value: Any) -> str:
    if value is None:
        return ""
    exact = isinstance(value, int) and abs(value) < _LONG
    return str(value) if exact else f"{value:.5g}"


# --------------------------------------------------------------------------- compare


def compare(arguments: argparse.Namespace) -> int:
    """List the differences between two checkpoints."""
    output = Output(arguments.plain)
    first, second = _reader(arguments.path), _reader(arguments.other)
    names = sorted(
        {*_select_names(first, arguments.names), *_select_names(second, arguments.names)}
    )
    counts = {"added": 0, "removed": 0, "changed": 0}

    def rows() -> Iterator[Sequence[str]]:
        for name in names:
            result = _compare(first, second, name, arguments.atol, arguments.rtol)
            if result is not None:
                counts[result[0]] += 1
                yield result

    header = ("difference", "name", "what", "elements", "absolute", "relative")
    output.table(header, rows(), numbers="elements absolute relative")
    summary = ", ".join([f"{number} {label}" for label, number in counts.items()])
    output.line(f"# {first.prefix} and {second.prefix}: {summary}, of {len(names)}")
    return DIFFERENT if any(counts.values()) else 0


def _compare(
    first: CheckpointReader, second: CheckpointReader, name: str, atol: float, rtol: float
) -> Sequence[str] | None:
    a, b = first.index.tensors.get(name), second.index.tensors.get(name)
    if a is None or b is None:
        return ("removed" if b is None else "added", name, _kind(a or b), "", "", "")
    if a.dtype is not b.dtype or a.shape != b.shape:
        return ("changed", name, f"{_kind(a)} -> {_kind(b)}", "", "", "")
    if not isinstance(a.dtype, DType) or not a.dtype.is_numpy_compatible:
        return ("changed", name, f"{_kind(a)} cannot be compared", "", "", "")
    from weft_io.checkpoint.statistics import difference

    result = difference(first.get_tensor(name), second.get_tensor(name), a.dtype)
    if result is None or _is_small(result, atol, rtol):
        return None
    absolute, relative = _number(result.absolute), _number(result.relative)
    return ("changed", name, _kind(a), str(result.elements), absolute, relative)


def _is_small(difference: Difference, atol: float, rtol: float) -> bool:
    if difference.absolute is None or difference.relative is None:
        return False
    return bool(0 < atol >= difference.absolute or 0 < rtol >= difference.relative)


def _kind(entry: Any) -> str:
    return f"{entry.dtype.name}[{','.join(map(str, entry.shape))}]"


# --------------------------------------------------------------------------- verify


def verify(arguments: argparse.Namespace) -> int:
    """Verify all checksums of a checkpoint and of its graph file."""
    output = Output(arguments.plain)
    reader = _reader(arguments.path)
    total = sum([_size(entry) for entry in reader.index.tensors.values()])
    damaged: dict[errors.OpError, set[str]] = {}  # one error may be that of a whole file
    with output.progress(reader.prefix, total) as advance:
        for checked in reader.checks():
            advance(checked.size)
            if checked.error is not None:
                damaged.setdefault(checked.error, set()).add(checked.tensor)
    rows = [_damage(error, names) for error, names in damaged.items()]
    graph = _graph_damage(reader.prefix)
    if rows or graph:
        output.table(("damage", "tensor", "what"), [*rows, *graph])
    number = len(set().union(*damaged.values()))
    summary = [f"{number} of {len(reader.index.tensors)} tensors are damaged"] if damaged else []
    summary += ["the graph is damaged"] if graph else []
    output.line(f"# {reader.prefix}: {', '.join(summary) or 'whole'}, {total} bytes")
    return DIFFERENT if summary else 0


def _graph_damage(prefix: str) -> list[Sequence[str]]:
    """Return the damage to the graph of a checkpoint, if it has one."""
    try:
        read_meta_graph_file(f"{prefix}.meta")
    except errors.NotFoundError:
        return []
    except errors.DataLossError as error:
        return [("damaged", "", error.message)]
    return []


def _damage(error: errors.OpError, names: set[str]) -> Sequence[str]:
    kind = "missing" if isinstance(error, errors.NotFoundError) else "damaged"
    return (kind, *names, error.message) if len(names) == 1 else (kind, "*", error.message)
