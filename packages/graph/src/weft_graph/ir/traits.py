"""Traits: what can be known of an op without running it, said once in its declaration.

Passes, costs, placement, recomputation, partition, devices and tests ask these, never the name of
an op, so an op of a stranger's package is treated as a built-in one is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from weft_graph.ir.scalar import Definition, Function

if TYPE_CHECKING:
    from weft_graph.ir.node import Node


class State(enum.Enum):
    """What an op does with state that outlives it: variables, queues, files, random numbers aside.

    CREATES: gives the handle or the reference of something that it makes or finds by its name.
    READS: looks at state, and leaves it as it is.
    WRITES: changes state, or has another effect that somebody could notice.
    """

    NONE = "none"
    CREATES = "creates"
    READS = "reads"
    WRITES = "writes"


class Cost(NamedTuple):
    """What one run of a node takes: floating-point operations, and bytes read and written."""

    flops: float
    bytes: float


CostRule = Callable[["Node", Any], Cost]
"""The cost of a node for the sizes that are known of its inputs and outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What is known of an op.

    Attributes:
      elementwise: element i of the output is made of the elements i of the inputs, broadcast.
      scalar: for an elementwise op, what it computes of one element of each input.
      view: the input whose memory the first output may share, or None.
      state: what it does with state.
      random: it draws random numbers; nobody notices one run more or less.
      cheap: so quick that a gradient had better compute it again than keep it.
      differentiable: False where no gradient exists, as of comparisons and counts.
      asynchronous: it may wait for others than its inputs, as a dequeue does.
      cost: its cost where that is not the default, one operation for each element.
      reads_files, writes_files: it touches the file system.
      host_code: it runs code of the program's process, as `py_func` does.
      local_handle: what it gives means something in its own process only.
      overwrites: pairs (output, input): the output may take over the memory of the input.
      shape_only: the inputs of which only the shape matters.
    """

    elementwise: bool = False
    scalar: Definition | None = None
    view: int | None = None
    state: State = State.NONE
    random: bool = False
    cheap: bool = False
    differentiable: bool = True
    asynchronous: bool = False
    cost: CostRule | None = None
    reads_files: bool = False
    writes_files: bool = False
    host_code: bool = False
    local_handle: bool = False
    overwrites: tuple[tuple[int, int], ...] = ()
    shape_only: frozenset[int] = field(default=frozenset())


PLAIN = Traits()
"""Of an op of which nothing is said."""


def elementwise(
    function: Function, *, one_shape: bool = False, in_float32: bool = False, **others: Any
) -> Traits:
    """The traits of an elementwise op, by what it computes of one element of each input.

    Args:
      function: as of `scalar.Definition`; so are `one_shape` and `in_float32`.
      others: of `Traits`.
    """
    definition = Definition(function, one_shape=one_shape, in_float32=in_float32)
    return Traits(elementwise=True, scalar=definition, **others)
