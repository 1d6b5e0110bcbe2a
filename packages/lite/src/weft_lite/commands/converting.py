"""`weft-lite convert` and `compare`, which need the extra `convert`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft_lite.commands import arrays, output, running
from weft_lite.errors import BY_CODE, InvalidArgumentError, LiteError
from weft_lite.interpreter import Interpreter
from weft_lite.watching import Op, ops_of, watched

if TYPE_CHECKING:
    from weft_graph.ir.graph import Graph
    from weft_graph.ir.node import Output

DIFFERENT = 1
_INT8 = "/int8"


def add(actions: Any) -> None:
    """Add the two to a parser."""
    made = actions.add_parser("convert", help="make a .weftlite file of a frozen graph")
    made.add_argument("graph", type=Path, help="a frozen GraphDef, such as frozen.pb")
    made.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
    made.add_argument("--inputs", default="", help="names with commas; else all placeholders")
    made.add_argument("--outputs", default="", help="names with commas; else what nobody reads")
    made.add_argument(
        "-b", "--bound", action="append", default=[], metavar="NAME=16,8,8,3",
        help="the largest shape of an input whose sizes are open",
    )  # fmt: skip
    made.add_argument(
        "--calibration", type=Path, metavar="FILE.npz",
        help="compute in int8: an array for each input, by name, whose first axis counts samples",
    )  # fmt: skip
    made.add_argument("--keep-float", action="append", default=[], metavar="NAME",
                      help="a result that stays in float")  # fmt: skip
    made.add_argument("--limit", type=float, help="how far outputs may be from the graph's")
    made.set_defaults(call=convert)

    made = actions.add_parser(
        "compare", help="run lite beside the full runtime: the first node that differs; exit code 1"
    )
    running.common(made, compare)
    made.add_argument("graph", type=Path, help="the frozen GraphDef that the file was made of")
    made.add_argument("--limit", type=float, default=1e-3, help="of a value's largest (1e-3)")
    made.add_argument("--all", action="store_true", help="show all nodes, not only the first")


@contextmanager
def _plain_errors() -> Iterator[None]:
    """What the packages of the extra raise, as errors of this one."""
    try:
        from weft_tensor.errors import OpError
    except ImportError as error:
        raise LiteError(
            f"this needs the extra: pip install 'weftml-lite[convert]' ({error})"
        ) from error
    try:
        yield
    except OpError as error:
        raise BY_CODE.get(error.code, LiteError)(error.message) from error


def read_graph(path: Path) -> Graph:
    """The graph of a file.

    Raises: InvalidArgumentError: it holds no GraphDef.
    """
    from google.protobuf.message import DecodeError

    from weft_graph import proto
    from weft_graph.ir.graph import Graph
    from weft_graph.messages.import_graph_def import import_graph_def

    message, graph = proto.GraphDef(), Graph()
    try:
        message.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise InvalidArgumentError(f"{path} holds no GraphDef: {error}") from error
    with graph.as_default():
        import_graph_def(message, name="")
    return graph


def _named(graph: Graph, names: str) -> list[Output]:
    found = []
    for name in filter(None, names.split(",")):
        node, _, index = name.partition(":")
        found.append(graph.get_operation_by_name(node).outputs[int(index or 0)])
    return found


def ends(graph: Graph, inputs: str, outputs: str) -> tuple[list[Output], list[Output]]:
    """The tensors that are given a value, and those that are computed."""
    from weft_graph.ir.traits import Role

    nodes = graph.get_operations()
    read = {source.node for node in nodes for source in node.inputs}
    placeholders = [n.outputs[0] for n in nodes if n.role is Role.PLACEHOLDER]
    last = [
        n.outputs[0] for n in nodes if n not in read and n.outputs and n.role is not Role.CONSTANT
    ]
    return _named(graph, inputs) or placeholders, _named(graph, outputs) or last


def convert(arguments: argparse.Namespace) -> int:
    """Convert, with the trial that every conversion ends with, and write the file."""
    with _plain_errors():
        from weft_lite.convert import Converter

        _say(f"reading {arguments.graph}")
        graph = read_graph(arguments.graph)
        inputs, outputs = ends(graph, arguments.inputs, arguments.outputs)
        samples = _calibration(arguments.calibration) if arguments.calibration else None
        _say("converting, then trying the file beside the graph")
        converter = Converter(graph, inputs, outputs, arrays.shapes(arguments.bound))
        content = converter.convert(
            limit=arguments.limit, calibration=samples, keep_float=arguments.keep_float
        )
    arguments.output.write_bytes(content)
    rows = [[arguments.output, output.size(len(content))]]
    output.table(["file", "size"], rows)
    return 0


def _say(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(text + "\n")


def _calibration(path: Path) -> list[dict[str, Any]]:
    """Samples of all inputs, one for each entry of the first axis.

    Raises: InvalidArgumentError: arrays are not of one length.
    """
    import numpy as np

    with np.load(path, allow_pickle=False) as file:
        found = {name: file[name] for name in file.files}
    counts = {name: len(value) if value.ndim else 0 for name, value in found.items()}
    if len(set(counts.values())) != 1:
        raise InvalidArgumentError(f"{path} has other numbers of samples for inputs: {counts}")
    count = next(iter(counts.values()))
    return [{name: value[i : i + 1] for name, value in found.items()} for i in range(count)]


# ------------------------------------------------------------------------------ comparing


def compare(arguments: argparse.Namespace) -> int:
    """Run both on the same inputs: what each op gives is held beside the node of its name."""
    with _plain_errors():
        from weft_lite.convert.agreement import difference

        graph = read_graph(arguments.graph)
        interpreter = running.opened(arguments)
        values = _values(interpreter)
        wanted = _wanted(graph, interpreter, [name for _, name, _ in values])
        rows, first = [], ""
        for op, name, value in values:
            if name not in wanted:
                continue
            apart = difference(value, wanted[name])
            if not apart <= arguments.limit and not first:
                first = name
            if arguments.all or first == name:
                rows.append([op.place, op.kind, name, f"{apart:.3g}"])
    output.table(["op", "kind", "node", "difference"], rows)
    if not first:
        word = f"{len(wanted)} nodes agree within {arguments.limit:g} of their largest values"
        output.table(["", ""], [["", word]])
    return DIFFERENT if first else 0


def _values(interpreter: Interpreter) -> list[tuple[Op, str, Any]]:
    """What each op outside of subgraphs gives, with the name that its node has in the graph."""
    ops, found, depth = ops_of(interpreter), [], 0
    details = interpreter.get_tensor_details()

    def watch(number: int, ended: bool) -> None:
        nonlocal depth
        depth += -1 if ended else 1
        if not ended or depth:
            return
        for tensor in ops[number].outputs:
            value = interpreter.get_tensor(tensor)
            name = details[tensor]["name"]
            if name.endswith(_INT8):
                name, (scale, zero) = name.removesuffix(_INT8), details[tensor]["quantization"]
                value = (value.astype("float32") - zero) * scale
            found.append((ops[number], name, value))

    watched(interpreter, watch)
    return found


def _wanted(graph: Graph, interpreter: Interpreter, names: list[str]) -> Mapping[str, Any]:
    """What the graph gives for the nodes of these names, as far as it has them."""
    from weft_exec.session.session import Session

    known = {node.name: node for node in graph.get_operations()}

    def output_of(name: str) -> Output | None:
        node, _, index = name.partition(":")
        outputs = known[node].outputs if node in known else ()
        return outputs[int(index or 0)] if int(index or 0) < len(outputs) else None

    feeds = {}
    for each in interpreter.get_input_details():
        source = output_of(each["name"])
        if source is None:
            raise InvalidArgumentError(f"the graph has no input {each['name']!r}")
        feeds[source] = interpreter.get_tensor(each["index"])
    fetches = {name: found for name in names if (found := output_of(name)) is not None}
    with Session(graph=graph) as session:
        wanted: dict[str, Any] = session.run(fetches, feeds)
    return wanted
