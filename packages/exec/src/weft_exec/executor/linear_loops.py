"""Classification of loops as linear or scheduled node by node."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from weft_exec.executor.overlap import Overlap
from weft_exec.kernels.registry import Kernel
from weft_graph.ir.node import Node
from weft_graph.passes.flow import Flow, Frame
from weft_graph.passes.whole_loops import is_inside


class LinearLoops:
    """The decision for each frame of a step.

    A loop is linear unless something in it can overlap: an asynchronous kernel, or with several
      threads a heavy kernel that the next iteration does not wait for.

    Args:
      kernel_of: returns the kernel of a node; None for nodes that need none.
      overlap: decides which nodes may run in parallel.
      compiled: the nodes that compute the predicates of compiled loops, inside which nothing runs
        in parallel.
    Attributes:
      linear: True if the whole step runs in a fixed order.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        flow: Flow,
        kernel_of: Callable[[Node], Kernel | None],
        overlap: Overlap,
        compiled: Container[Node] = (),
    ) -> None:
        self._flow = flow
        self._compiled_frames = {frame for frame in flow.frames if frame.cond in compiled}
        self._overlap = overlap
        self._heavy: dict[Frame, list[Node]] = {frame: [] for frame in flow.frames}
        self._dynamic = {frame for frame in flow.frames if frame.problem}
        self._slot_frames: dict[Frame, Frame] = {}
        for node in nodes:
            kernel = kernel_of(node)
            if kernel is not None:
                self._note(node, kernel)
        for frame in reversed(flow.frames):
            if self._overlaps(frame):
                self._dynamic.add(frame)
            if frame in self._dynamic and frame.parent is not None:
                self._dynamic.add(frame.parent)
        self.linear = not self._dynamic

    def home(self, frame: Frame) -> Frame:
        """Return the frame whose slots a frame uses: the innermost non-linear one."""
        parent = frame
        while parent.parent is not None and parent not in self._dynamic:
            parent = parent.parent
        return parent

    def _note(self, node: Node, kernel: Kernel) -> None:
        frame = self._flow.frame[node]
        if kernel.asynchronous:
            self._dynamic.add(frame)
        if kernel.heavy:
            self._heavy[frame].append(node)

    def _overlaps(self, frame: Frame) -> bool:
        if self._overlap is Overlap.EVERYTHING:
            return True
        if any(is_inside(frame, loop) for loop in self._compiled_frames):
            return False
        if self._overlap is Overlap.NOTHING or frame in self._dynamic:
            return False
        heavy = self._heavy[frame]
        inner = [f for f in self._flow.frames if f.parent is frame and self._has_heavy(f)]
        if frame.parent is None:
            return len(heavy) + len(inner) > 1
        return len(inner) > 1 or not all(self._is_recurrent(node, frame) for node in heavy)

    def _has_heavy(self, frame: Frame) -> bool:
        return bool(self._heavy[frame]) or any(
            f.parent is frame and self._has_heavy(f) for f in self._flow.frames
        )

    def _is_recurrent(self, node: Node, frame: Frame) -> bool:
        """Return True if a node depends on itself in the previous iteration."""
        visited: set[Node] = set()
        stack = [node]
        while stack:
            for user in stack.pop().consumers:
                if user is node:
                    return True
                if user not in visited and self._flow.frame.get(user, self._flow.root) is not (
                    frame.parent
                ):
                    visited.add(user)
                    stack.append(user)
        return False
