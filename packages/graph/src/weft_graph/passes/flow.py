"""Control-flow analysis of a step: the frame and guard of each node (paper, section 4.4).

The analysis reads only the primitives, so it also supports graphs that were built by hand or
imported. A node's frame is its innermost loop. Its guard is the condition under which it runs in
the
frame: a set of predicates with their values. If the condition cannot be determined, as after a
  Merge
of unrelated inputs, the guard has a separate atom and the frame is not structured.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import is_back_edge
from weft_graph.ir.traits import Role
from weft_graph.ops.step import GUARD
from weft_tensor import errors

Atom = tuple[Any, int]
"""A predicate and its value; for unstructured control flow, a node and -1; for a condition that
another part of the step determines, the number of the guard and -1.
"""


Guard = frozenset[Atom]
ALWAYS: Guard = frozenset()


class Frame:
    """A loop, or the root frame outside all loops.

    Attributes:
      name: name of the loop; "" for the root frame.
      parent: the enclosing frame; None for the root frame.
      guard: the condition, in the parent frame, under which the loop runs.
      enters, merges, exits, following: the Enter of each entering value, and for each loop variable
        its Merge, Exit (if it exists) and NextIteration.
      cond: the node that computes the loop condition, or None.
      parallel_iterations: maximum number of concurrent iterations.
      problem: the reason why it is not a structured `while` loop, or "".
    """

    def __init__(self, name: str, parent: Frame | None, parallel_iterations: int = 1) -> None:
        self.name = name
        self.parent = parent
        self.parallel_iterations = parallel_iterations
        self.guard = ALWAYS
        self.enters: list[Node] = []
        self.merges: list[Node] = []
        self.exits: list[Node] = []
        self.following: list[Node] = []
        self.cond: Node | None = None
        self.problem = ""

    @property
    def label(self) -> str:
        """The name of the frame for messages."""
        return f"the frame {self.name!r}" if self.parent else "outside of all loops"

    def __repr__(self) -> str:
        return f"<Frame {self.name!r}>"


class Flow:
    """The frames and guards of a step's nodes.

    Args:
      nodes: nodes with inputs before users, ignoring back edges.
    Attributes:
        root: the root frame, outside of all loops.
      frames: all frames, outer ones first.
      frame: the frame of each node's outputs.
    Raises: InvalidArgumentError: a node has inputs from different frames.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.root = Frame("", None)
        self.frames = [self.root]
        self.frame: dict[Node, Frame] = {}
        self._children: dict[tuple[Frame, str], Frame] = {}
        self._guard: dict[Node, Guard] = {}
        self._decision_depths: dict[Output, int] = {}
        for node in nodes:
            self._set_guard(node)
        for frame in self.frames:
            self._check_back_edges(frame)
        for frame in self.frames[1:]:
            self._check(frame)

    def guard(self, node: Node) -> Guard:
        """Return the guard of a node in its frame; for an Enter, in the enclosing frame."""
        return self._guard[node]

    def output_guard(self, output: Output) -> Guard:
        """Return the guard under which an output is alive."""
        node = output.node
        guard = self._guard.get(node, ALWAYS)
        if node.role is Role.SWITCH:
            return guard | {(predicate(node), output.index)}
        if node.role is Role.ENTER:
            return ALWAYS
        return guard

    def problem(self, frame: Frame) -> str:
        """Return why a frame cannot be expressed with `if` and `while` alone, or ""."""
        return frame.problem

    def path(self, guard: Guard) -> tuple[Atom, ...]:
        """Return the atoms of a guard, outer predicates first."""
        if len(guard) < 2:
            return tuple(guard)
        return tuple(sorted(guard, key=self._depth))

    def _depth(self, atom: Atom) -> tuple[int, int, int]:
        source, side = atom
        if isinstance(source, int):
            return 0, -source, side
        if isinstance(source, Node):
            return 0, source.index, side
        computed = len(self.output_guard(source))
        return max(computed, self._decision_depths.get(source, 0)), source.node.index, side

    # ------------------------------------------------------------------ one node

    def _set_guard(self, node: Node) -> None:
        frame_around = self._enclosing_frame(node)
        guard = self._common_guard(node)
        if node.role is Role.ENTER:
            self._enter(node, frame_around, guard)
            return
        if node.role is Role.EXIT:
            if frame_around.parent is None:
                raise errors.InvalidArgumentError(
                    f"Exit {node.name!r} is not in any frame: none of its inputs comes from an "
                    "Enter",
                    op=node.type,
                    node=node.name,
                    line=node.line or None,
                )
            self._exit(node, frame_around, guard)
            return
        self.frame[node] = frame_around
        if GUARD in node.attrs:
            guard |= {(node.attrs[GUARD], -1)}
        if node.role is Role.MERGE:
            guard = self._merge_guard(node, frame_around)
        elif node.role is Role.LOOP_COND:
            if frame_around.cond is not None or frame_around.parent is None:
                frame_around.problem = (
                    frame_around.problem or f"{node.name!r} is not its only LoopCond"
                )
            frame_around.cond = node
        elif node.role is Role.NEXT_ITERATION:
            frame_around.following.append(node)
        elif node.role is Role.SWITCH:
            decided = predicate(node)
            self._decision_depths[decided] = min(
                len(guard), self._decision_depths.get(decided, len(guard))
            )
        elif node.role is Role.TRIGGER and node.controls:
            guard = frozenset.intersection(*map(self._control_guard, node.controls))
        self._guard[node] = guard

    def _enclosing_frame(self, node: Node) -> Frame:
        innermost_frame: Frame | None = None
        first: Node | None = None
        for need in dependencies_of(node):
            if is_free(need):
                continue
            frame = self.frame[need]
            if innermost_frame is None:
                innermost_frame, first = frame, need
            elif frame is not innermost_frame:
                assert first is not None
                raise _mixed_frames_error(node, first, innermost_frame, need, frame)
        return innermost_frame or self.root

    def _common_guard(self, node: Node) -> Guard:
        guard = ALWAYS
        for source in node.inputs:
            if not is_back_edge(node, source):
                dependency_guard = self.output_guard(source)
                guard = (
                    dependency_guard
                    if not guard
                    else guard | dependency_guard
                    if dependency_guard
                    else guard
                )
        for control in node.controls:
            dependency_guard = self._control_guard(control)
            guard = (
                dependency_guard
                if not guard
                else guard | dependency_guard
                if dependency_guard
                else guard
            )
        return guard

    def _control_guard(self, node: Node) -> Guard:
        return ALWAYS if node.role is Role.ENTER else self._guard.get(node, ALWAYS)

    def _enter(self, node: Node, outer_frame: Frame, guard: Guard) -> None:
        name = node.attrs["frame_name"]
        frame = self._children.get((outer_frame, name))
        if frame is None:
            frame = Frame(name, outer_frame, node.attrs["parallel_iterations"])
            self._children[outer_frame, name] = frame
            self.frames.append(frame)
        frame.enters.append(node)
        frame.guard |= guard
        self.frame[node] = frame
        self._guard[node] = guard

    def _exit(self, node: Node, frame: Frame, guard: Guard) -> None:
        frame.exits.append(node)
        assert frame.parent is not None
        self.frame[node] = frame.parent
        self._guard[node] = frame.guard
        source = node.inputs[0]
        from_variable = source.node.role is Role.SWITCH and source.index == 0
        if not from_variable or source.node.inputs[0].node not in frame.merges:
            frame.problem = frame.problem or f"{node.name!r} does not leave with a loop variable"
        if guard != {(frame.cond and frame.cond.outputs[0], 0)}:
            frame.problem = frame.problem or f"{node.name!r} is not decided by the LoopCond"

    def _merge_guard(self, node: Node, frame: Frame) -> Guard:
        back_edges = [source for source in node.inputs if is_back_edge(node, source)]
        ahead = [source for source in node.inputs if not is_back_edge(node, source)]
        controls = [self._control_guard(control) for control in node.controls]
        combined = frozenset().union(*controls) if controls else ALWAYS
        if back_edges:
            frame.merges.append(node)
            plain = len(back_edges) == len(ahead) == 1 and ahead[0].node.role is Role.ENTER
            if (
                not plain
                or combined
                or ahead[0].node.attrs["is_constant"]
                or node.outputs[1].consumers()
            ):
                frame.problem = frame.problem or f"{node.name!r} is not a plain loop variable"
            return ALWAYS
        guard = complement([self.output_guard(source) for source in ahead])
        if guard is None:
            frame.problem = frame.problem or f"{node.name!r} does not join the sides of a Switch"
            guard = frozenset({(node, -1)})
        return guard | combined

    # ------------------------------------------------------------------ one frame

    def _check_back_edges(self, frame: Frame) -> None:
        for merge in frame.merges:
            for source in merge.inputs:
                if self.frame[source.node] is not frame:
                    raise _mixed_frames_error(
                        merge, merge, frame, source.node, self.frame[source.node]
                    )

    def _check(self, frame: Frame) -> None:
        if frame.problem:
            return
        if frame.cond is None:
            frame.problem = "it has no LoopCond"
            return
        goes_on: Guard = frozenset({(frame.cond.outputs[0], 1)})
        for node in frame.following:
            if self._guard[node] != goes_on:
                frame.problem = f"{node.name!r} does not run in every iteration"
        for node in frame.enters:
            if self._guard[node] != frame.guard:
                frame.problem = f"{node.name!r} does not come in whenever the loop runs"
        used = {s.node for merge in frame.merges for s in merge.inputs if is_back_edge(merge, s)}
        if not frame.merges or used != set(frame.following):
            frame.problem = "its back edges are not those of loop variables"


def _mixed_frames_error(
    node: Node, first: Node, frame: Frame, second: Node, second_frame: Frame
) -> errors.InvalidArgumentError:
    """Return the error about a node with inputs from two frames."""
    return errors.InvalidArgumentError(
        f"{node.name!r} has the inputs {first.name!r} from {frame.label} and {second.name!r} from "
        f"{second_frame.label}; values enter a frame through Enter and leave it through Exit",
        op=node.type,
        node=node.name,
        line=node.line or None,
    )


def only_waits(node: Node) -> bool:
    """Return True if a node does nothing but wait for its control inputs."""
    return not (node.inputs or node.outputs or node.op_def.traits.stateful)


def dependencies_of(node: Node) -> list[Node]:
    """Return the nodes that a node waits for, ignoring back edges."""
    if node.role is Role.MERGE:
        needs = [source.node for source in node.inputs if not is_back_edge(node, source)]
    else:
        needs = [source.node for source in node.inputs]
    if node.controls:
        needs += node.controls
    return needs


def sort_topologically(nodes: Sequence[Node], key: Callable[[Node], Any]) -> list[Node]:
    """Return `nodes` in topological order, with ties broken by `key`."""
    members = set(nodes)
    users: dict[Node, list[Node]] = {node: [] for node in nodes}
    pending: dict[Node, int] = {}
    for node in nodes:
        intersection = members.intersection(dependencies_of(node))
        pending[node] = len(intersection)
        for need in intersection:
            users[need].append(node)
    keys = {node: (key(node), i) for i, node in enumerate(nodes)}
    ready = [keys[node] for node in nodes if not pending[node]]
    heapq.heapify(ready)
    result: list[Node] = []
    while ready:
        node = nodes[heapq.heappop(ready)[1]]
        result.append(node)
        for user in users[node]:
            pending[user] -= 1
            if not pending[user]:
                heapq.heappush(ready, keys[user])
    return result


def complement(guards: Sequence[Guard]) -> Guard | None:
    """Return the union of two guards that differ only in the value of one predicate."""
    if len(guards) != 2:
        return None
    only_first, only_second = guards[0] - guards[1], guards[1] - guards[0]
    if len(only_first) != 1 or len(only_second) != 1:
        return None
    (pred, side), (other_pred, other_side) = *only_first, *only_second
    if pred is not other_pred or side + other_side != 1:
        return None
    return guards[0] & guards[1]


def exclusive(a: Guard, b: Guard) -> bool:
    """Return True if two guards are mutually exclusive, like two branches of a conditional."""
    return any([(pred, 1 - side) in b for pred, side in a if side >= 0])


def predicate(switch: Node) -> Output:
    """Return the predicate of a Switch; copies of a value count as the same predicate.

    Switches of other conditionals are followed, unless they route their own predicate, whose value
    is known in the branch.
    """
    output = switch.inputs[1]
    while not output.node.inputs or not output.node.inputs[0].dtype.is_ref:
        node = output.node
        if node.role is Role.SWITCH:
            if node.inputs[1].node.role is Role.LOOP_COND or _decides_itself(node):
                break
        elif not node.traits.identity:
            break
        output = node.inputs[0]
    return output


def _decides_itself(switch: Node) -> bool:
    """Return True if a Switch routes its own predicate."""
    return _skip_copies(switch.inputs[0]) is _skip_copies(switch.inputs[1])


def _skip_copies(output: Output) -> Output:
    while output.node.traits.identity and not output.node.inputs[0].dtype.is_ref:
        output = output.node.inputs[0]
    return output


def has_control_flow(nodes: Iterable[Node]) -> bool:
    """Return True if any node is a control-flow primitive or may receive a dead value."""
    return any([node.traits.routes or GUARD in node.attrs for node in nodes])


def is_free(node: Node) -> bool:
    """Return True if a node is the same in every frame: a constant without control inputs."""
    return node.role is Role.CONSTANT and not node.controls
