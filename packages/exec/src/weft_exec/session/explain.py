"""`Session.explain`: reports how a step is planned, as text and as a picture."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.message import DecodeError

from weft_exec.placement import PlacementReport
from weft_exec.placement.report import NodePlacement
from weft_exec.placement.simulation_picture import timeline
from weft_exec.progress import regions_text
from weft_graph import proto
from weft_graph.ir.code_generators import NotGenerated, generators
from weft_graph.ir.compiled_function import CompiledFunction, Roofline
from weft_graph.ir.node import Node
from weft_graph.ir.step_graph import Part, StepGraph
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.executor.native.background_compilation import RegionState
    from weft_exec.executor.native.clustering import NodeSelection
    from weft_exec.executor.native.input_recording import InputRecorder

_CLUSTER = "_XlaCluster"
_MOST = 20
"""Maximum number of nodes that the text shows; `save` writes all."""


class StepReport:
    """The stages of a step's plan.

    Attributes:
      stages: the graph as a `GraphDef` after each stage: "pruned", "inlined" if it had calls,
        "optimized", "with less memory" if values are rematerialized or swapped, and the partition
        of each device if there are several.
      changes: number of changes made by the passes, by reason.
      placement: the device of each node, and the reason for it.
      compiled: names and op types of the nodes of each compiled region on CPUs, and of each loop
        compiled as a whole, which is not in `functions`.
      names: names of these regions and loops.
      states: the current state of regions, by name: compiled, or how long they still wait.
        Regions of steps that have run briefly or not at all have no state.
      left: the number of nodes that run with kernels, by op type and reason.
      loop_rejections: the loops that are not compiled as a whole, with the reason.
      functions: the compiled regions for the values that `explain` received, with the time of each
        kernel: `CompiledFunction`s.
      limits: the limits of one thread of the machine if there are functions: a `Roofline`.
      verbose: True if the text of the report has the remarks of the compiler's passes.
    """

    def __init__(self) -> None:
        self.stages: dict[str, Any] = {}
        self.changes: Counter[str] = Counter()
        self.placement = PlacementReport((), ())
        self.compiled: list[list[tuple[str, str]]] = []
        self.names: list[str] = []
        self.states: dict[str, str] = {}
        self.left: Counter[tuple[str, str]] = Counter()
        self.loop_rejections: dict[str, str] = {}
        self.functions: list[CompiledFunction] = []
        self.limits: Roofline | None = None
        self.verbose = False
        self._devices: list[str] = []

    def parts(self) -> list[Any]:
        """Return the partitions as `GraphDef`s, or the last stage of the unpartitioned graph.

        Nodes of a region have its name and state as the attribute `_XlaCluster`. TensorBoard
        shows them if nodes are colored by XLA cluster.
        """
        parts = [self.stages[name] for name in self._devices] or list(self.stages.values())[-1:]
        clusters = {
            node: f"{name}: {self.states.get(name, 'not run yet')}".encode()
            for name, region in zip(self.names, self.compiled, strict=True)
            for node, _ in region
        }
        return [_with_clusters(part, clusters) for part in parts]

    def add_stage(self, name: str, step: StepGraph) -> None:
        """Add the graph after a stage."""
        self.stages[name] = _graph_def(step, step.live_nodes())
        self.changes = Counter(step.changes)

    def add_part(self, device: str, part: Part) -> None:
        """Add the partition of one device."""
        self._devices.append(device)
        self.stages[device] = _graph_def(part.step, part.nodes)

    def add_compiled(self, choice: NodeSelection) -> None:
        """Add the compiled regions, and the nodes and loops that are not compiled, with reasons."""
        self.loop_rejections.update(choice.loops)
        self.names += choice.names
        self.compiled += [[(node.name, node.type) for node in region] for region in choice.regions]
        self.left.update((node.type, value) for node, value in choice.left.items())

    def add_states(self, states: Iterable[RegionState]) -> None:
        """Record how regions currently run, in a session that has run steps."""
        by_nodes = {state.nodes: state for state in states}
        for name, region in zip(self.names, self.compiled, strict=True):
            state = by_nodes.get(frozenset([node for node, _ in region]))
            if state is not None:
                self.states[name] = str(state)

    def add_functions(self, regions: Iterable[InputRecorder]) -> None:
        """Add the compiled functions of regions that were run, and the machine's limits.

        Raises: OpError: a function fails on the values of its region.
        """
        for region in regions:
            if not region.calls:  # in a branch that was not taken
                continue
            try:
                self.functions.append(region.explain())
            except NotGenerated as error:
                self.left.update((member.type, str(error)) for member in region.members)
        if any(function.limits is None for function in self.functions):
            self.limits = generators.lookup(generators.keys()[0]).roofline()

    @property
    def programs(self) -> dict[str, str]:
        """Return the loop nests of each function in the compiler's language, by name."""
        return {function.name: function.program for function in self.functions}

    @property
    def arena_bytes(self) -> int:
        """Return the size of the arena, which functions share because they run one at a time."""
        return max([function.arena_bytes for function in self.functions], default=0)

    @property
    def assembly(self) -> dict[str, str]:
        """Return the disassembled machine code of each function by name."""
        return {function.name: function.assembly() for function in self.functions}

    def to_arrays(self) -> list[np.ndarray[Any, Any]]:
        """Encode the report for another process, as bytes: data as JSON, then the stages."""
        document = {
            "stages": list(self.stages),
            "devices": self._devices,
            "changes": self.changes,
            "nodes": self.placement.nodes,
            "transfers": self.placement.transfers,
        }
        stages = [stage.SerializeToString() for stage in self.stages.values()]
        return [np.frombuffer(data, np.uint8) for data in (json.dumps(document).encode(), *stages)]

    @staticmethod
    def from_arrays(arrays: Sequence[Any]) -> StepReport:
        """Decode the result of `to_arrays`.

        Raises: DataLossError: it is not an encoded report.
        """
        step_report = StepReport()
        try:
            first, *stages = [np.asarray(array, np.uint8).tobytes() for array in arrays]
            document = json.loads(first)
            pairs = zip(document["stages"], stages, strict=True)
            step_report.stages = {name: proto.GraphDef.FromString(stage) for name, stage in pairs}
            step_report.changes = Counter(document["changes"])
            step_report.placement = PlacementReport(
                [NodePlacement(*node) for node in document["nodes"]],
                [tuple(transfer) for transfer in document["transfers"]],
            )
            step_report._devices = [
                name for name in document["devices"] if name in step_report.stages
            ]
        except (ValueError, TypeError, KeyError, DecodeError) as error:
            raise errors.DataLossError(
                f"the master's explanation of the step cannot be decoded: {error}"
            ) from error
        return step_report

    def __str__(self) -> str:
        return self._text(_MOST, self.verbose)

    def _text(self, limit: int | None, remarks: bool) -> str:
        lines = [f"{name}: {len(stage.node)} nodes" for name, stage in self.stages.items()]
        lines += [f"{reason}: {count}" for reason, count in self.changes.most_common()]
        micros, crossings = self.placement.seconds * 1e6, len(self.placement.transfers)
        lines.append(f"simulated: {micros:.1f} µs, {crossings} transfers")
        lines += self._compiler_lines(limit, remarks)
        return "\n".join([*lines, "", self.placement.table(limit)])

    def _compiler_lines(self, limit: int | None, remarks: bool) -> list[str]:
        """Return lines about regions and about the nodes that are not compiled."""
        if not self.compiled and not self.left:
            return []
        count = sum(map(len, self.compiled))
        lines = ["", f"to be compiled: {count} nodes in {regions_text(len(self.compiled))}"]
        for name, region in list(zip(self.names, self.compiled, strict=True))[:limit]:
            ops = Counter(op for _, op in region)
            named = ", ".join(f"{op} {n}" if n > 1 else op for op, n in ops.items())
            lines.append(f"  {name}: {named}")
            if name in self.states:
                lines.append(f"    {self.states[name]}")
        for (op, reason), n in self.left.most_common(limit):
            lines.append(f"with kernels: {op} {n}: {reason}")
        lines += [f"no whole loop: {name}: {loop}" for name, loop in self.loop_rejections.items()][
            :limit
        ]
        if self.functions:
            from weft_exec.session.compiled_page import text_of

            lines += ["", *text_of(self.functions, self.limits, remarks)]
        return lines

    def svg(self) -> str:
        """Return the simulated run as an SVG timeline of the devices and their waits."""
        return timeline(self.placement)

    def _repr_svg_(self) -> str:
        return self.svg()

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a self-contained HTML page about the compiled code and its speed.

        It has a table of the kernels of each function with the machine's limits, a picture of the
        graph with the kernels drawn around their nodes, and for each function the loops, the
        remarks of the compiler's passes, and the machine code.

        Raises: OSError: the file cannot be written.
        """
        from weft_exec.session.compiled_page import page

        text = page(self.parts(), self.functions, self.limits, self._text(None, False))
        Path(path).write_text(text, encoding="utf-8")

    def save(self, directory: str | os.PathLike[str]) -> list[str]:
        """Write everything to a directory, which is created if necessary.

        Returns: the paths: the stages in order as `GraphDef`s in text form, which TensorBoard
        shows, then `placement.txt` and `placement.svg`.
        Raises: OSError: a file cannot be written.
        """
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        texts = {
            f"{i}-{_file_name(name)}.pbtxt": str(stage)
            for i, (name, stage) in enumerate(self.stages.items())
        }
        texts |= {"placement.txt": f"{self._text(None, True)}\n", "placement.svg": self.svg()}
        for name, text in texts.items():
            (path / name).write_text(text, encoding="utf-8")
        return [str(path / name) for name in texts]


def _graph_def(step: StepGraph, nodes: Any) -> Any:
    live: set[Node] = set(nodes)
    message = step.graph.as_graph_def(add_shapes=True)
    names = {node.name for node in live}
    kept_nodes = [node for node in message.node if node.name in names]
    del message.node[:]
    message.node.extend(kept_nodes)
    return message


def _with_clusters(part: Any, clusters: Mapping[str, bytes]) -> Any:
    """Return a `GraphDef` with the node attribute that TensorBoard uses to color regions."""
    colored = type(part).FromString(part.SerializeToString())
    for node in colored.node:
        if node.name in clusters:
            node.attr[_CLUSTER].s = clusters[node.name]
    return colored


def _file_name(stage: str) -> str:
    return stage.rpartition("/")[2].replace(":", "-")
