"""The functional form of a step: nodes in order, with `if` and `while` around them.

The executor runs this form without bookkeeping for frames and dead values, and a compiler can lower
it. It exists for structured control flow, which includes everything built by `cond` and
`while_loop`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import is_back_edge
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import Atom, Flow, Frame, dependencies_of, is_free

Path = tuple[Atom, ...]


class Branch:
    """Two blocks; a predicate selects one of them.

    Attributes:
      pred: bool, rank 0.
      sides: the blocks for False and for True.
    """

    __slots__ = ("pred", "sides")

    def __init__(self, pred: Output) -> None:
        self.pred = pred
        self.sides: tuple[Block, Block] = ([], [])


class Loop:
    """A loop: its condition, and its body, which runs while the condition is True.

    Attributes:
      frame: frame of the loop, with its variables.
      test, body: blocks of the condition and of the body.
    """

    __slots__ = ("body", "frame", "test")

    def __init__(self, frame: Frame, test: Block, body: Block) -> None:
        self.frame = frame
        self.test = test
        self.body = body


Step = Node | Branch | Loop
Block = list[Step]
Element = Node | Frame


def nodes_in(block: Iterable[Step]) -> Iterator[Node]:
    """Yield the nodes of a block, including those of its branches and loops."""
    for step in block:
        if isinstance(step, Branch):
            yield from nodes_in(step.sides[0])
            yield from nodes_in(step.sides[1])
        elif isinstance(step, Loop):
            yield from nodes_in(step.test)
            yield from nodes_in(step.body)
        else:
            yield step


class Structurer:
    """Scheduler that arranges the nodes of frames into blocks.

    Args:
      nodes: inputs before users, in the order to prefer.
      flow: frames and guards of the nodes.
      late: predicate of the nodes to schedule after all nodes that do not depend on them.
    """

    def __init__(self, nodes: Sequence[Node], flow: Flow, late: Callable[[Node], bool]) -> None:
        self._flow = flow
        self._late: dict[Element, bool] = {}
        self._order: dict[Element, int] = {}
        self._members: dict[Frame, list[Element]] = {frame: [] for frame in flow.frames}
        self._users: dict[Element, list[Element]] = {}
        self._pending: dict[Element, int] = {}
        for node in nodes:
            self._add(node, late(node))
        for frame in reversed(flow.frames[1:]):
            assert frame.parent is not None
            if self._late.get(frame):
                self._late[frame.parent] = True

    def _add(self, node: Node, late: bool) -> None:
        element = self._element(node)
        if element is not None and element not in self._order:
            self._register(element)
        if late:
            self._late[node] = True
            frame = self._flow.frame[node]
            if frame.parent is not None:
                self._late[frame] = True
        for need in dict.fromkeys(dependencies_of(node)):
            self._connect(need, node)

    def _register(self, element: Element) -> None:
        self._order[element] = len(self._order)
        self._users[element] = []
        self._pending[element] = 0
        if isinstance(element, Frame):
            assert element.parent is not None
            self._members[element.parent].append(element)
        else:
            self._members[self._flow.frame[element]].append(element)

    def _element(self, node: Node) -> Element | None:
        """Return the element to schedule for a node: itself, the loop that it starts, or None."""
        if node.role is Role.ENTER:
            return self._flow.frame[node]
        if node.role is Role.EXIT or node.role is Role.NEXT_ITERATION:
            return None
        frame = self._flow.frame[node]
        if frame.parent is not None and any(is_back_edge(node, s) for s in node.inputs):
            return None
        return node

    def _connect(self, need: Node, node: Node) -> None:
        """Make the element of `node` wait for the element of `need`, in the frame of `need`."""
        target = self._element(node)
        if target is None or need.role is Role.ENTER or is_free(need):
            return
        source: Element | None = need
        if need.role is Role.EXIT:
            source = self._flow.frame[need.inputs[0].node]
        elif self._element(need) is None:
            return
        assert source is not None
        self._users[source].append(target)
        self._pending[target] += 1

    # ------------------------------------------------------------------ arranging

    def block(self, frame: Frame) -> Block:
        """Return the nodes of a frame as a block; its loops have separate blocks."""
        return block_of(
            (path, self.loop(element) if isinstance(element, Frame) else element)
            for path, element in self._arrange(frame)
        )

    def loop(self, frame: Frame) -> Loop:
        """Return a structured frame as a loop."""
        assert frame.cond is not None
        steps = self.block(frame)
        body: Block = []
        test: Block = []
        for step in steps:
            if isinstance(step, Branch) and step.pred is frame.cond.outputs[0]:
                body.extend(step.sides[1])
            else:
                test.append(step)
        return Loop(frame, test, body)

    def _arrange(self, frame: Frame) -> list[tuple[Path, Element]]:
        members = self._members[frame]
        paths: dict[Element, Path] = {}
        pending = {element: self._pending[element] for element in members}
        ready = _Ready()
        late: list[tuple[int, Element]] = []
        result: list[tuple[Path, Element]] = []

        def push(element: Element) -> None:
            guard = element.guard if isinstance(element, Frame) else self._flow.guard(element)
            path = paths[element] = self._flow.path(guard)
            if self._late.get(element):
                heapq.heappush(late, (self._order[element], element))
            else:
                ready.push(path, self._order[element], element)

        for element in members:
            if not pending[element]:
                push(element)
        current: Path = ()
        while ready or late:
            element = ready.pop(current) if ready else heapq.heappop(late)[1]
            current = paths[element]
            result.append((current, element))
            for user in self._users[element]:
                pending[user] -= 1
                if not pending[user]:
                    push(user)
        assert len(result) == len(members), "elements of a frame wait for each other"
        return result


def block_of(steps: Iterable[tuple[Path, Step]]) -> Block:
    """Return a block of ordered elements.

    Args:
      steps: elements with their path conditions, the outermost predicate first.
    """
    block: Block = []
    current: Path = ()
    stack = [block]
    for path, step in steps:
        num_common = _common_prefix_length(current, path)
        del stack[num_common + 1 :]
        for atom in path[num_common:]:
            stack.append(_side(stack[-1], atom))
        current = path
        stack[-1].append(step)
    return block


class _Ready:
    """Ready elements, by the path of their branch.

    The next element is the nearest one: in the same branch, in a nested one, in the other branch of
    the same predicate, then further out. A branch is thus left as late as possible.
    """

    def __init__(self) -> None:
        self._elements: dict[Path, list[tuple[int, Element]]] = {}
        self._count: dict[Path, int] = {}
        self._inner: dict[Path, list[Atom]] = {}

    def __bool__(self) -> bool:
        return bool(self._count.get(()))

    def push(self, path: Path, order: int, element: Element) -> None:
        """Add an element."""
        heapq.heappush(self._elements.setdefault(path, []), (order, element))
        for depth in range(len(path), -1, -1):
            prefix = path[:depth]
            count = self._count[prefix] = self._count.get(prefix, 0) + 1
            if depth and count == 1:
                self._inner.setdefault(path[: depth - 1], []).append(path[depth - 1])

    def pop(self, current: Path) -> Element:
        """Remove and return the element nearest to `current`."""
        path = self._descend(self._nearest(current))
        element = heapq.heappop(self._elements[path])[1]
        for depth in range(len(path) + 1):
            self._count[path[:depth]] -= 1
        return element

    def _nearest(self, current: Path) -> Path:
        """Return the innermost enclosing branch with elements, or the other side of one."""
        for depth in range(len(current), 0, -1):
            prefix = current[:depth]
            if self._count.get(prefix):
                return prefix
            pred, side = current[depth - 1]
            opposite = (*current[: depth - 1], (pred, 1 - side))
            if self._count.get(opposite):
                return opposite
        return ()

    def _descend(self, path: Path) -> Path:
        """Return the branch itself if it has elements, else a nested one with elements."""
        while not self._elements.get(path):
            inner = self._inner[path]
            while not self._count[(*path, inner[-1])]:
                inner.pop()
            path = (*path, inner[-1])
        return path


def _common_prefix_length(a: Path, b: Path) -> int:
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def _side(block: Block, atom: Atom) -> Block:
    """Return the block of one side of a predicate at the end of `block`."""
    pred, side = atom
    last = block[-1] if block else None
    if not isinstance(last, Branch) or last.pred is not pred:
        last = Branch(pred)
        block.append(last)
    return last.sides[side]
