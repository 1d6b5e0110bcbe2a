"""Traits: static facts about an op, declared once.

Passes, costs, placement, recomputation, partition, devices and tests ask these, never the name of
an op, so an op of a stranger's package is treated as a built-in one is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from weft_graph.ir.costs import CostRule, Rule, free, once, one_for_each
from weft_graph.ir.scalar import Definition, Function

EACH: Final = -1
"""In place of the number of an input: for each output the input at the same position."""


Batch = Callable[[Mapping[str, Any]], tuple[str, dict[str, Any]] | None]
"""From the attributes of a node to an op and its attributes."""


class State(enum.Enum):
    """Use of state that outlives an op; drawing random numbers is `Traits.random`.

    CREATES: gives the handle or the reference of something that it makes or finds by its name.
    READS: looks at state, and leaves it as it is.
    WRITES: changes state, or has another effect that somebody could notice.
    STEP: makes or uses a TensorArray or a stack, which a step makes anew and its data flow orders.
    """

    NONE = "none"
    CREATES = "creates"
    READS = "reads"
    WRITES = "writes"
    STEP = "step"


class Role(enum.Enum):
    """The role of an op in the system, beyond running its kernel.

    CONSTANT: the value is the attribute `value`.
    ARGUMENT: the value is fed, at the position that the attribute `index` tells.
    PLACEHOLDER: the value is to be fed.
    VARIABLE: it gives the reference or the handle of a variable.
    READ: it gives the value of the variable behind its first input, a handle.
    ASSIGN: it gives the variable of its first input the value of its second.
    IS_INITIALIZED: it tells whether the variable behind its first input has a value.
    TENSOR_ARRAY: it makes a TensorArray.
    STACK, PUSH, POP: it makes a stack, puts a value onto one, takes the last value off one.
    CALL: it calls the function that the attribute `f` names.
    SWITCH, MERGE, ENTER, EXIT, NEXT_ITERATION: they route values through branches and loops.
    LOOP_COND: it marks the predicate of a loop.
    TRIGGER: it runs when what it waits for is over, dead or not.
    KEEP: what is fetched of it stands for a value that the session keeps.
    SEND, RECEIVE: they take a value to another device.
    """

    CONSTANT = "constant"
    ARGUMENT = "argument"
    PLACEHOLDER = "placeholder"
    VARIABLE = "variable"
    READ = "read"
    ASSIGN = "assign"
    IS_INITIALIZED = "is initialized"
    TENSOR_ARRAY = "tensor array"
    STACK = "stack"
    PUSH = "push"
    POP = "pop"
    CALL = "call"
    SWITCH = "switch"
    MERGE = "merge"
    ENTER = "enter"
    EXIT = "exit"
    NEXT_ITERATION = "next iteration"
    LOOP_COND = "loop condition"
    TRIGGER = "trigger"
    KEEP = "keep"
    SEND = "send"
    RECEIVE = "receive"


_ROUTING = frozenset({Role.SWITCH, Role.MERGE, Role.ENTER, Role.EXIT, Role.NEXT_ITERATION})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Traits:
    """Static facts about an op.

    Attributes:
      elementwise: element i of the output is made of the elements i of the inputs, broadcast, or as
        `scalar` says.
      by_element: element i of each output is made of element i of the first input, of which the
        shape is; other inputs say how. Elementwise ops need not say so.
      scalar: for an elementwise op, what it computes of one element of each input.
      identity: its one output is its first input.
      involution: twice, it gives its input again.
      reshapes: its output is its first input where both have the same static shape.
      casts: its output is its first input where both have the same type.
      stacks: its output is its inputs along a new axis, that of the attribute `axis`.
      unstacks: its outputs are the parts of its input along the axis of the attribute `axis`.
      batch: from a node's attributes to the op and the attributes that do for each part of inputs
        along a new first axis what the node does for one, or to None where there is no such op.
      view: the input whose memory the outputs show, or EACH, or None; of a handle, the memory of
        what is behind it.
      state: what it does with state.
      random: it draws random numbers; nobody notices one run more or less.
      role: what the system itself does with it.
      cheap: so quick that a gradient had better compute it again than keep it.
      differentiable: False where no gradient exists, as of comparisons and counts.
      asynchronous: it may wait for others than its inputs, as a dequeue does.
      numbered: its kernel asks which run it is, of those of the same node, in which iteration.
      cost: its cost where that is not the default: nothing for a view, one operation for each
        element if it is elementwise, inputs read and outputs written once for all others.
      cost_attrs: attributes that change its cost and cannot be seen from the shapes.
      scratch: bytes that its kernel takes from the device while it runs, and gives back.
      variable_type: the attribute with the element type of the variable whose handle is its first
        input.
      allows_uninitialized: it may be given a variable that has no value yet.
      reads_files, writes_files: it touches the file system.
      host_code: it runs code of the program's process, as `py_func` does.
      local_handle: what it gives means something in its own process only, though it is a value;
        references and handles always do.
      overwrites: pairs (output, input): the output may take over the memory of the input. Of an
        elementwise op any input will do that has the output's type and shape.
      adds: of an op whose elements are sums of terms that may cancel: for each floating input the
        sign with which they do not, the last one for all further inputs. Of the inputs' magnitudes
        with these signs it gives the sums of the magnitudes of its terms, and what rounding makes
        of its elements is relative to those.
      shape_only: the arguments of which only the shape matters.
      routes: it routes values through branches and loops; follows from the role.
      stateful: equal nodes may give different results, or have effects; follows from the rest.
    """

    elementwise: bool = False
    by_element: bool = False
    scalar: Definition | None = None
    identity: bool = False
    involution: bool = False
    reshapes: bool = False
    casts: bool = False
    stacks: bool = False
    unstacks: bool = False
    batch: Batch | None = None
    view: int | None = None
    state: State = State.NONE
    random: bool = False
    role: Role | None = None
    cheap: bool = False
    differentiable: bool = True
    asynchronous: bool = False
    numbered: bool = False
    cost: CostRule | None = None
    cost_attrs: tuple[str, ...] = ()
    scratch: Rule | None = None
    variable_type: str = ""
    allows_uninitialized: bool = False
    reads_files: bool = False
    writes_files: bool = False
    host_code: bool = False
    local_handle: bool = False
    overwrites: tuple[tuple[int, int], ...] = ()
    adds: tuple[int, ...] = ()
    shape_only: frozenset[int] = frozenset()
    routes: bool = field(init=False, default=False)
    stateful: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "routes", self.role in _ROUTING)
        object.__setattr__(self, "stateful", self.random or self.state is not State.NONE)

    @property
    def tells_shape(self) -> bool:
        """True if the outputs depend only on the shapes of the inputs, such as a rank."""
        return bool(self.shape_only) and self.cost is free

    @property
    def cost_rule(self) -> CostRule:
        """The rule that tells its cost."""
        if self.cost is not None:
            return self.cost
        if self.view is not None:
            return free
        return one_for_each if self.elementwise else once


PLAIN = Traits()
"""Of an op of which nothing is said."""

NOT_DIFFERENTIABLE = Traits(differentiable=False)
EACH_ELEMENT = Traits(by_element=True, differentiable=False)
VIEW = Traits(view=0)
CREATES = Traits(state=State.CREATES, differentiable=False)
READS = Traits(state=State.READS, differentiable=False)
WRITES = Traits(state=State.WRITES, differentiable=False)
WAITS = Traits(state=State.WRITES, asynchronous=True, differentiable=False)
DRAWS = Traits(random=True, differentiable=False)
"""Common traits of several kinds of ops."""


def elementwise(
    function: Function,
    *,
    one_shape: bool = False,
    by_kernel: bool = False,
    in_float32: bool = False,
    **traits: Any,
) -> Traits:
    """Return the traits of an elementwise op from its scalar definition.

    Args:
      function, one_shape, by_kernel, in_float32: as for `scalar.Definition`.
      traits: other fields of `Traits`.
    """
    definition = Definition(
        function, one_shape=one_shape, by_kernel=by_kernel, in_float32=in_float32
    )
    return Traits(elementwise=True, scalar=definition, **traits)
