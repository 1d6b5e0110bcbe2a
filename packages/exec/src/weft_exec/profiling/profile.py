"""`profile`: time, memory, parameters and operations of a graph, by op type, scope or node."""

from __future__ import annotations

__all__ = ["Profiler", "profile"]

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from weft_exec.costs.work import cost_of
from weft_exec.profiling.options import DEFAULTS
from weft_exec.profiling.timeline import Timeline, node_times
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Node
from weft_graph.ir.traits import Role
from weft_tensor import errors
from weft_tensor.os_errors import convert_os_errors
from weft_tensor.shape import num_elements

_COLUMNS: Final = {
    "micros": "exec_micros",
    "bytes": "requested_bytes",
    "params": "parameters",
    "float_ops": "float_ops",
    "occurrence": "run_count",
}
"""Attribute of a `ProfileNode` by the name of its option."""


class ProfileNode:
    """One node, scope or op type.

    Attributes:
      name: the name; "_TFProfRoot" for the root.
      exec_micros, requested_bytes, parameters, float_ops, run_count: values of this entry alone.
      total_exec_micros, total_requested_bytes, total_parameters, total_float_ops, total_run_count:
        values that include all entries below.
      children: the shown entries below.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.exec_micros = self.requested_bytes = 0
        self.parameters = self.float_ops = self.run_count = 0
        self.total_exec_micros = self.total_requested_bytes = 0
        self.total_parameters = self.total_float_ops = self.total_run_count = 0
        self.children: list[ProfileNode] = []

    def add(self, other: ProfileNode, is_own: bool = True) -> None:
        """Add the own numbers of another entry if `is_own`, otherwise its totals, to this one's."""
        for attribute in _COLUMNS.values():
            target, source = (attribute, attribute) if is_own else (f"total_{attribute}",) * 2
            setattr(self, target, getattr(self, target) + getattr(other, source))

    def close(self) -> None:
        """Initialize the totals with the entry's own numbers."""
        for attribute in _COLUMNS.values():
            setattr(self, f"total_{attribute}", getattr(self, attribute))

    def __repr__(self) -> str:
        return f"<ProfileNode '{self.name}' of {len(self.children)} parts>"


def profile(
    graph: Any = None,
    run_meta: Any = None,
    op_log: Any = None,
    cmd: str = "scope",
    options: Mapping[str, Any] | None = None,
) -> ProfileNode:
    """Show how a graph's time, memory, parameters and operations are distributed.

    Args:
      graph: the default graph by default.
      run_meta: a RunMetadata of a step with `trace_level=RunOptions.FULL_TRACE`; without it there
        are no times and bytes. Times of members of a compiled region are estimated shares of the
        region's time.
      op_log: accepted for compatibility: costs come from the declarations of ops.
      cmd: "op" groups by op type, "scope" by name scope, "graph" lists single nodes.
      options: options of `ProfileOptionBuilder`; the defaults show times.
    Returns: the root, with attributes such as `total_parameters` and `total_float_ops`, and with
      entries as `children`.
    Raises: InvalidArgumentError: an option or `cmd` is unknown; OSError: a file cannot be written.

    Examples:
      >>> x = wf.placeholder(wf.float32, [10, 20])
      >>> y = wf.layers.dense(x, 5, name="first")
      >>> builder = wf.profiler.ProfileOptionBuilder
      >>> options = builder.trainable_variables_parameter()
      >>> wf.profiler.profile(options=options).total_parameters
      node name | parameters
      _TFProfRoot (--/105)
        first (0/105)
          first/bias (5/5)
          first/kernel (100/100)
      105
    """
    options = _check_options(options, cmd)
    graph = graph or get_default_graph()
    leaves = _measure_nodes(graph, run_meta, options)
    root = _group_by_op(leaves) if cmd == "op" else _group_by_scope(leaves, flat=cmd == "graph")
    _compute_totals(root)
    text = _text(_visible_entries(root, options), options, cmd)
    _write(text, options["output"], run_meta)
    return root


def _check_options(options: Mapping[str, Any] | None, cmd: str) -> dict[str, Any]:
    if cmd not in ("op", "scope", "graph"):
        raise errors.InvalidArgumentError(f'cmd must be "op", "scope" or "graph", got {cmd!r}')
    result = DEFAULTS | dict(options or {})
    accepted = {*_COLUMNS, "name"}
    for key in (*result["select"], result["order_by"]):
        if key not in accepted:
            raise errors.InvalidArgumentError(
                f"{key!r} cannot be selected; choices: {', '.join(sorted(accepted))}"
            )
    return result


class _Leaf(ProfileNode):
    def __init__(self, name: str, op: str) -> None:
        super().__init__(name)
        self.op = op
        self.nanoseconds = 0


def _measure_nodes(graph: Any, run_meta: Any, options: Mapping[str, Any]) -> list[_Leaf]:
    """Return the measurements and costs of each node whose type is counted."""
    trained = {v.op for v in graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)}
    leaves: dict[str, _Leaf] = {}
    devices: dict[str, str] = {}
    for time in node_times(run_meta.step_stats) if run_meta is not None else ():
        leaf = leaves.setdefault(time.name, _Leaf(time.name, time.label.op))
        leaf.nanoseconds += time.duration
        leaf.exec_micros = round(leaf.nanoseconds / 1000)
        leaf.requested_bytes += time.nbytes
        leaf.run_count += 1
        devices[time.name] = time.device
    for node in graph.nodes:
        leaf = leaves.setdefault(node.name, _Leaf(node.name, node.type))
        leaf.parameters = _parameters(node)
        leaf.float_ops = _float_ops(node)
        if not run_meta:
            leaf.run_count = 1
    expected = [re.compile(pattern) for pattern in options["account_type_regexes"]]

    def kinds(leaf: _Leaf) -> Iterable[str]:
        yield from (leaf.op, devices.get(leaf.name, ""))
        node = graph.find_node(leaf.name)
        if node in trained:
            yield "_trainable_variables"

    return [
        leaf for leaf in leaves.values() if any(p.match(k) for p in expected for k in kinds(leaf))
    ]


def _parameters(node: Node) -> int:
    if node.role is not Role.VARIABLE:
        return 0
    return num_elements(node.attrs.get("shape")) or 0


def _float_ops(node: Node) -> int:
    shapes = [value.dims for value in (*node.inputs, *node.outputs)]
    if any(dims is None or None in dims for dims in shapes):
        return 0
    static_shapes: Any = shapes
    return int(
        cost_of(node, static_shapes[: len(node.inputs)], static_shapes[len(node.inputs) :]).flops
    )


def _group_by_op(leaves: Iterable[_Leaf]) -> ProfileNode:
    kinds: dict[str, ProfileNode] = {}
    for leaf in leaves:
        kinds.setdefault(leaf.op, ProfileNode(leaf.op)).add(leaf)
    root = ProfileNode("_TFProfRoot")
    root.children = list(kinds.values())
    return root


def _group_by_scope(leaves: Iterable[_Leaf], flat: bool) -> ProfileNode:
    root = ProfileNode("_TFProfRoot")
    nodes_by_scope = {"": root}

    def scope(name: str) -> ProfileNode:
        profile_node = nodes_by_scope.get(name)
        if profile_node is None:
            profile_node = nodes_by_scope[name] = ProfileNode(name)
            scope("" if flat else name.rpartition("/")[0]).children.append(profile_node)
        return profile_node

    for leaf in leaves:
        scope(leaf.name).add(leaf)
    return root


def _compute_totals(root: ProfileNode) -> None:
    """Set the totals, children first."""
    order = [root]
    for node in order:
        order.extend(node.children)
    for node in reversed(order):
        node.close()
        for child in node.children:
            node.add(child, is_own=False)


def _visible_entries(
    root: ProfileNode, options: Mapping[str, Any]
) -> list[tuple[int, ProfileNode]]:
    """Return the shown entries with their depths, and sort the children in display order."""
    minimum = {
        f"total_{_COLUMNS[key]}": options.get(f"min_{key}", 0)
        for key in _COLUMNS
        if options.get(f"min_{key}", 0)
    }
    if options["order_by"] == "name":
        key: Callable[[ProfileNode], Any] = lambda node: node.name  # noqa: E731
    else:
        attribute = f"total_{_COLUMNS[options['order_by']]}"
        key = lambda node: -getattr(node, attribute)  # noqa: E731
    lines: list[tuple[int, ProfileNode]] = []
    stack = [(0, root)]
    while stack:
        depth, node = stack.pop()
        if node is not root and not _is_shown(node, options, minimum):
            continue
        lines.append((depth, node))
        trimmed = any(re.match(p, node.name) for p in options["trim_name_regexes"])
        if depth < options["max_depth"] and not trimmed:
            node.children.sort(key=key)
            stack.extend([(depth + 1, child) for child in reversed(node.children)])
    return lines


def _is_shown(node: ProfileNode, options: Mapping[str, Any], minimum: Mapping[str, int]) -> bool:
    selected = [f"total_{_COLUMNS[key]}" for key in options["select"]]
    if not any(getattr(node, attribute) for attribute in selected):
        return False
    if minimum and not any(getattr(node, name) >= value for name, value in minimum.items()):
        return False
    if any(re.match(pattern, node.name) for pattern in options["hide_name_regexes"]):
        return False
    return any(re.match(pattern, node.name) for pattern in options["show_name_regexes"])


# ----------------------------------------------------------------------------- text


def _text(lines: Sequence[tuple[int, ProfileNode]], options: Mapping[str, Any], cmd: str) -> str:
    columns = [_COLUMNS[key] for key in options["select"]]
    head = " | ".join(["node name", *columns])
    body = [_line(depth, node, columns, cmd) for depth, node in lines if depth or cmd != "op"]
    return "\n".join([head, *body]) + "\n"


def _line(depth: int, node: ProfileNode, columns: Sequence[str], cmd: str) -> str:
    if cmd == "op":
        return " | ".join(
            [node.name, *[_format_amount(column, getattr(node, column)) for column in columns]]
        )
    cells = ["--" if not depth else _format_amount(c, getattr(node, c)) for c in columns]
    totals = [_format_amount(c, getattr(node, f"total_{c}")) for c in columns]
    pairs = ", ".join(
        f"{own_value}/{total}" for own_value, total in zip(cells, totals, strict=True)
    )
    return f"{'  ' * depth}{node.name} ({pairs})"


def _format_amount(column: str, value: float) -> str:
    if column == "exec_micros":
        return f"{value / 1000:.2f}ms" if value >= 1000 else f"{value:.0f}us"
    if column == "requested_bytes":
        for unit in ("B", "KB", "MB", "GB"):
            if value < 1000 or unit == "GB":
                return f"{value:.0f}B" if unit == "B" else f"{value:.2f}{unit}"
            value /= 1000
    return f"{value:.0f}"


def _write(text: str, output: str, run_meta: Any) -> None:
    kind, _, remaining = output.partition(":")
    if kind == "none":
        return
    if kind == "stdout":
        sys.stdout.write(text)
        return
    path = remaining.removeprefix("outfile=")
    if kind not in ("file", "timeline") or not path:
        raise errors.InvalidArgumentError(f"output {output!r} is not valid")
    if kind == "timeline":
        if run_meta is None:
            raise errors.InvalidArgumentError("a timeline needs run_meta")
        text = Timeline(run_meta.step_stats).generate_chrome_trace_format()
    with convert_os_errors("writing", path):
        Path(path).write_text(text, encoding="utf-8")


class Profiler:
    """Profiles several steps of a graph.

    Args:
      graph: the default graph by default.
      op_log: accepted for compatibility.

    Examples:
      >>> y = wf.reduce_sum(wf.random_uniform([100]), name="total")
      >>> profiler = wf.profiler.Profiler()
      >>> metadata = wf.RunMetadata()
      >>> options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
      >>> result = wf.Session().run(y, options=options, run_metadata=metadata)
      >>> profiler.add_step(0, metadata)
      >>> builder = wf.profiler.ProfileOptionBuilder
      >>> quiet = builder(builder.time_and_memory()).with_empty_output().build()
      >>> {"Sum"} <= {kind.name for kind in profiler.profile_operations(quiet).children}
      True
    """

    def __init__(self, graph: Any = None, op_log: Any = None) -> None:
        self._graph = graph or get_default_graph()
        self._steps: dict[int, Any] = {}

    def add_step(self, step: int, run_meta: Any) -> None:
        """Add a traced step.

        Args:
          step: its number.
          run_meta: its RunMetadata.
        """
        self._steps[step] = run_meta

    def _profile(self, cmd: str, options: Mapping[str, Any]) -> ProfileNode:
        step = options.get("step", -1)
        selected = max(self._steps, default=-1) if step == -1 else step
        return profile(self._graph, self._steps.get(selected), cmd=cmd, options=options)

    def profile_operations(self, options: Mapping[str, Any]) -> ProfileNode:
        """Return the profile of a step by op type; of the last one if `step` is -1."""
        return self._profile("op", options)

    def profile_name_scope(self, options: Mapping[str, Any]) -> ProfileNode:
        """Return the profile of a step by name scope."""
        return self._profile("scope", options)

    def profile_graph(self, options: Mapping[str, Any]) -> ProfileNode:
        """Return the profile of a step by node."""
        return self._profile("graph", options)
