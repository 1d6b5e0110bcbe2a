"""Traits: static facts about an op, declared once.

Passes, cost rules, placement, recomputation, partitioning, devices and tests read traits instead of
op names, so ops of third-party packages are treated like built-in ones.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from weft_graph.ir.costs import CostRule, Rule, elementwise_cost, free, memory_cost
from weft_graph.ir.scalar import Definition, Function

EACH: Final = -1
"""Stands for the index of an input: for each output, the input at the same index."""


Batch = Callable[[Mapping[str, Any]], tuple[str, dict[str, Any]] | None]
"""Function from the attributes of a node to an op type and its attributes."""


class State(enum.Enum):
    """Use of state that outlives an op; drawing random numbers is `Traits.random`.

    CREATES: returns a handle or reference of a resource that it creates or finds by name.
    READS: reads state and does not change it.
    WRITES: changes state, or has another observable side effect.
    STEP: creates or uses a TensorArray or stack, whose lifetime is one step and whose uses are
      ordered by data flow.
    """

    NONE = "none"
    CREATES = "creates"
    READS = "reads"
    WRITES = "writes"
    STEP = "step"


class Role(enum.Enum):
    """The role of an op in the system, beyond running its kernel.

    CONSTANT: the value is the attribute `value`.
    ARGUMENT: the value is the feed at the index in the attribute `index`.
    PLACEHOLDER: the value must be fed.
    VARIABLE: returns the reference or handle of a variable.
    READ: returns the value of the variable whose handle is its first input.
    ASSIGN: assigns its second input to the variable of its first input.
    IS_INITIALIZED: returns True if the variable of its first input has a value.
    TENSOR_ARRAY: creates a TensorArray.
    STACK, PUSH, POP: create a stack, push a value, pop the last value.
    CALL: calls the function named in the attribute `f`.
    SWITCH, MERGE, ENTER, EXIT, NEXT_ITERATION: route values through branches and loops.
    LOOP_COND: marks the predicate of a loop.
    TRIGGER: runs after its control inputs, even if these are dead.
    KEEP: returns a handle of a value that the session stores.
    SEND, RECEIVE: transfer a value to another device.
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
      elementwise: element i of the output depends on elements i of the broadcast inputs, or as
        defined by `scalar`.
      by_element: element i of each output depends on element i of the first input, whose shape they
        have; other inputs are parameters. Implied for elementwise ops.
      scalar: for an elementwise op, its scalar definition.
      identity: its only output is its first input.
      involution: applied twice, it returns its input.
      reshapes: its output is its first input if both have the same static shape.
      casts: its output is its first input if both have the same type.
      stacks: its output is its inputs stacked along the axis of the attribute `axis`.
      unstacks: its outputs are the slices of its input along the axis of the attribute `axis`.
      batch: function from a node's attributes to an op and attributes that compute the node for a
        batch of inputs along a new first axis; it returns None if there is no such op.
      view: the index of the input whose memory the outputs share, EACH, or None; for a handle, the
        memory of its variable.
      state: its use of state.
      random: it uses random numbers; an additional or missing run is not observable.
      role: its role in the system.
      cheap: so fast that gradients recompute it instead of saving it.
      differentiable: False if it has no gradient, such as comparisons and counts.
      asynchronous: it may wait for events other than its inputs, like a dequeue.
      numbered: its kernel needs the number of its execution and the iteration.
      cost: cost rule. By default a view is free, an elementwise op has one operation per element,
        and other ops read their inputs and write their outputs once.
      cost_attrs: attributes that affect the cost beyond the shapes.
      scratch: bytes of device memory that its kernel uses temporarily.
      variable_type: the attribute with the element type of the variable whose handle is its first
        input.
      allows_uninitialized: its variable may be uninitialized.
      reads_files, writes_files: it accesses the file system.
      host_code: it runs code of the program's process, like `py_func`.
      local_handle: its output is a value that is meaningful only in its process, like references
        and handles.
      overwrites: pairs (output, input): the output may reuse the memory of the input. For an
        elementwise op, any input of the output's type and shape qualifies.
      adds: for an op whose elements are sums of terms that may cancel: for each floating input, the
        sign that prevents cancellation; the last one applies to all further inputs. Applied to the
        inputs' magnitudes with these signs, the op returns the sums of the magnitudes of its terms,
        which bound the rounding error.
      shape_only: the arguments of which only the shape matters.
      routes: it routes values through branches and loops; derived from the role.
      stateful: equal nodes may return different results or have effects; derived from the rest.
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
        """The cost rule of the op."""
        if self.cost is not None:
            return self.cost
        if self.view is not None:
            return free
        return elementwise_cost if self.elementwise else memory_cost


PLAIN = Traits()
"""Default traits."""

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
