"""Loops compiled as one function: structure and calling convention."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from weft_graph.ir.code_generators import Shape
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import is_back_edge
from weft_graph.ir.traits import Role, State
from weft_graph.passes.flow import Flow, Frame
from weft_graph.passes.functional_form import Loop, nodes_in
from weft_tensor import dtypes


class Use(enum.Enum):
    """Uses of a TensorArray or a stack by a loop.

    READ, WRITE: elements of a TensorArray, by their indices.
    PUSH, POP: values of a stack.
    """

    READ = "TensorArrayReadV3"
    WRITE = "TensorArrayWriteV3"
    PUSH = "StackPushV2"
    POP = "StackPopV2"


STRIDE: Final = 0x9E3779B97F4A7C15
"""Step of an inner loop's iteration numbers from one outer iteration to the next, mod 2⁶⁴."""

USES: Final = {use.value: use for use in Use}


@dataclass(frozen=True, slots=True)
class Store:
    """A TensorArray or stack that a loop uses.

    Attributes:
      handle: index of its handle among the values that enter the loop.
      source: the gradient source, if it is the gradient array of the handle's array; else "".
    """

    handle: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class LoopStorage:
    """The use of one TensorArray or stack by a loop.

    Attributes:
      store: the TensorArray or stack.
      use: the kind of use.
      nodes: the nodes of the use, at most once per iteration. If inner loops push or pop values of
        stacks that an iteration creates, and an outer stack has the handles of these stacks: the
        nodes that push or pop the handles, the outermost first, then the node of the values.
    """

    store: Store
    use: Use
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Extent:
    """The size and behavior of a `Store` in a run.

    Attributes:
      shape: capacity in elements, then the sizes of an element; the loop determines the sizes of
        written elements. For stacks of stacks, that of the values.
      above: for stacks of stacks, the capacities for handles, the outermost first.
      adds: True if repeated writes to an element are summed.
      clear: True if an element can be read only once.
      grows: True if writes beyond the end grow it.
      begun: True if some elements were written before the loop and cannot be written again.
    """

    shape: Shape
    above: Shape = ()
    adds: bool = False
    clear: bool = False
    grows: bool = False
    begun: bool = False


class WholeLoop:
    """A loop that is compiled as one function, and the values that enter it.

    Args:
      fetches: the fetches of the step.
    Attributes:
      loop: its condition and its body.
      flow: the frames and guards of the nodes.
      enters: the Enters of the initial values of all variables, then those of the loop invariants.
      kept: its uses of TensorArrays and stacks.
      reads: indices among `enters` of references and handles of variables that it only reads.
      updates: indices among `enters` of references and handles of variables that it updates.
      rng_nodes: the nodes with a random stream.
      stacks: the nodes that create a stack per iteration, with the nodes that push its handle.
      nodes: all nodes inside, including those of inner loops.
    """

    def __init__(self, loop: Loop, flow: Flow, fetches: Collection[Output] = ()) -> None:
        self.loop = loop
        self.flow = flow
        self._fetches = set(fetches)
        frame = loop.frame
        first = [first_value(merge) for merge in frame.merges]
        self.enters = [*first, *[node for node in frame.enters if node not in first]]
        self.nodes = list(nodes_in([loop]))
        self._position = {enter: position for position, enter in enumerate(self.enters)}
        self.stacks = self._stacks()
        self.kept = self._saved_values()
        changed = {
            self.variable_at(source) for node in self.nodes for source in updated_references(node)
        }
        self.updates = {position for position in changed if position is not None}
        read = {position for node in self.nodes for position in self._variables_read_by(node)}
        self.reads = {position for position in read if position is not None} - self.updates
        self.rng_nodes = [node for node in self.nodes if node.traits.random]

    @property
    def variables(self) -> Sequence[Node]:
        """The Merge of each variable."""
        return self.loop.frame.merges

    def wanted(self) -> list[bool]:
        """For each variable, True if its final value is used."""
        used_merges = {
            exit_.inputs[0].node.inputs[0].node
            for exit_ in self.loop.frame.exits
            if exit_.consumers or exit_.outputs[0] in self._fetches
        }
        return [merge in used_merges for merge in self.variables]

    def store_of(self, handle: Output) -> Store | None:
        """Return the store behind a handle inside the loop; None if it is not from outside."""
        source = ""
        while True:
            node = handle.node
            if gradient_source(node) and not source:
                source = gradient_source(node)
            elif node.role is Role.ENTER and node in self.enters:
                position = self.enters.index(node)
                return Store(position, source) if position >= len(self.variables) else None
            elif node.role not in (Role.ENTER, Role.SWITCH) and not node.traits.identity:
                return None
            handle = node.inputs[0]

    def variable_at(self, source: Output) -> int | None:
        """Return the index of the reference or handle that an output in the loop represents."""
        while source.dtype.is_ref or source.dtype is dtypes.resource:
            node = source.node
            if node in self._position:
                outside = node.inputs[0].node.role is Role.VARIABLE
                return self._position[node] if outside else None
            references = [i for i in node.inputs if i.dtype.is_ref or i.dtype is dtypes.resource]
            if not references or node.role is Role.MERGE:  # which may be of several
                return None
            source = references[0]
        return None

    def variable_read_by(self, node: Node) -> int | None:
        """Return the index of the handle whose variable a node reads, or None."""
        is_read = len(node.inputs) == 1 or reads_rows(node)
        if node.traits.state is not State.READS or not is_read:
            return None
        handle = node.inputs[0]
        store = self.store_of(handle) if handle.dtype is dtypes.resource else None
        if store is None or self.enters[store.handle].inputs[0].node.role is not Role.VARIABLE:
            return None
        return store.handle

    def _variables_read_by(self, node: Node) -> Iterator[int | None]:
        """Yield the indices of variables whose values a node reads."""
        yield self.variable_read_by(node)
        if not node.traits.routes and not passes_variable(node):
            yield from (self.variable_at(source) for source in node.inputs if source.dtype.is_ref)

    def _stacks(self) -> dict[Node, Node]:
        """Return the stacks created per iteration whose handles are pushed by exactly one node."""
        users: dict[Node, list[Node]] = {}
        for node in self.nodes:
            if node.role is Role.PUSH and node.inputs[1].dtype is dtypes.resource:
                users.setdefault(_origin(node.inputs[1]), []).append(node)
        return {
            stack: pushes[0]
            for stack, pushes in users.items()
            if stack.role is Role.STACK and len(pushes) == 1 and is_unbounded(stack)
        }

    def _saved_values(self) -> list[LoopStorage]:
        nodes_by_use: dict[tuple[Store, Use, Node | None], list[Node]] = {}
        for node in self.nodes:
            use = USES.get(node.type)
            if use is None or node.outputs[0].dtype is dtypes.resource:
                continue
            by_index = use in (Use.READ, Use.WRITE)
            way = [node] if by_index else self._handle_path(node)
            store = self.store_of(way[0].inputs[0])
            if store is not None:
                nodes_by_use.setdefault((store, use, None if by_index else node), []).extend(way)
        order = {node: position for position, node in enumerate(self.nodes)}
        interval = [
            LoopStorage(store, use, tuple(nodes)) for (store, use, _), nodes in nodes_by_use.items()
        ]
        return sorted(interval, key=lambda use_of_store: order[use_of_store.nodes[0]])

    def _handle_path(self, node: Node) -> list[Node]:
        """Return the nodes that push or pop handles on the path to a stack, and the node itself."""
        path = [node]
        while self.store_of(path[0].inputs[0]) is None:
            origin = _origin(path[0].inputs[0])
            enclosing = self.stacks.get(origin) if node.role is Role.PUSH else origin
            if enclosing is None or enclosing.role is not node.role or enclosing in path:
                break
            path.insert(0, enclosing)
        return path


def _origin(handle: Output) -> Node:
    """Return the source of a handle, traced through Enters, Switches and identities."""
    while handle.node.role in (Role.ENTER, Role.SWITCH) or handle.node.traits.identity:
        handle = handle.node.inputs[0]
    return handle.node


def is_unbounded(stack: Node) -> bool:
    """Return True if a stack has no size limit."""
    size = stack.inputs[0].node
    return size.role is Role.CONSTANT and int(size.attrs["value"]) < 0


def updated_references(node: Node) -> Sequence[Output]:
    """Return the references and handles of the variables that a node may update."""
    traits, args = node.traits, node.op_def.inputs
    if traits.routes or not traits.stateful or traits.state is State.READS:
        return ()
    handles = [source for source in node.inputs if source.dtype is dtypes.resource]
    refs = [source for source, arg in zip(node.inputs, args, strict=False) if arg.is_ref]
    return [*refs, *handles]


def reads_rows(node: Node) -> bool:
    """Return True if a node reads rows of the variable behind a handle, by indices of any rank."""
    return node.traits.state is State.READS and node.attrs.get("batch_dims") == 0


def passes_variable(node: Node) -> bool:
    """Return True if a node forwards a reference or a handle unchanged."""
    output_type = node.outputs[0].dtype if node.traits.identity else None
    return output_type is not None and (output_type.is_ref or output_type is dtypes.resource)


def gradient_source(node: Node) -> str:
    """Return the gradient source of a node that returns a gradient TensorArray; "" for others."""
    gives_handle = any(output.dtype is dtypes.resource for output in node.outputs)
    takes_flow_alone = len(node.inputs) == 2  # other forms change the shapes
    return node.attrs.get("source", "") if gives_handle and takes_flow_alone else ""


def first_value(merge: Node) -> Node:
    """Return the Enter of a loop variable."""
    return next(s.node for s in merge.inputs if not is_back_edge(merge, s))


def next_value(merge: Node) -> Output:
    """Return the value of a loop variable after an iteration."""
    return next(s.node.inputs[0] for s in merge.inputs if is_back_edge(merge, s))


def is_inside(frame: Frame, enclosing: Frame) -> bool:
    """Return True if a frame equals `enclosing` or is nested in it."""
    outer: Frame | None = frame
    while outer is not None and outer is not enclosing:
        outer = outer.parent
    return outer is enclosing


class LoopRequest(NamedTuple):
    """Request to compile a loop.

    The input arrays of the function are, in this order:

    - The inputs that it `takes`; for handles in `reads` and `updates`, the values of the variables.
    - For each use in `kept`:
        - READ: the elements, and uint8 flags, 1 for readable elements.
        - WRITE with `begun`: uint8 flags, 2 for elements that cannot be written and 0 for others.
        - POP: the values, and their number as int64.
    - If it uses random numbers, the states of its streams in the first iteration: uint64 of shape
      (rng_nodes, 6). The element with index 3 is the iteration counter, which increases by one per
      iteration; in an inner loop it is `STRIDE` times that of the outer loop plus the iteration
      number.

    The output arrays, `results`, are in this order:

    - The used final values.
    - The new values of the variables in `updates`, in the order of their indices.
    - If it uses random numbers, the number of iterations, int64.
    - For each POP, in the order of nodes in the loop, the number of remaining values, int64.
    - If it uses random numbers, uint8 flags, 1 for each node in `rng_nodes` that has run.
    - For each READ, WRITE and PUSH in `kept`:
        - READ: uint8 flags, 2 for elements that were read.
        - WRITE: the elements, and uint8 flags, 1 for elements that were written. If it `grows`,
          also the largest index, int64.
        - PUSH: the values, and their number as int64.
    - If there are pushes and it is resumable, a flag: True if it stopped because a stack was full.

    A loop that is not resumable runs to its end, regardless of capacities. If the largest index or
    the number of pushes exceeds a capacity, elements are missing, but values and numbers are
    correct, because no loop reads its own writes.

    Attributes:
      whole: the loop.
      shapes: the shapes of the values of its `enters`; () for handles.
      extents: the extents of its `kept`.
      is_resumable: True if all final values are returned, so that the loop can continue after it
        stopped.
    """

    whole: WholeLoop
    shapes: Sequence[Shape]
    extents: Sequence[Extent]
    is_resumable: bool

    @property
    def name(self) -> str:
        """Name of the loop's frame."""
        return self.whole.loop.frame.name

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes inside."""
        return self.whole.nodes
