"""The rules that lower ops: what the declaration does not say by a scalar definition.

A rule gets an `Operation` and gives the value of each of its results.  Packages add rules for ops
of their own by modules that the entry-point group `weft_compiler.lowering` names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from weft_compiler.lower.values import Value
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Node
from weft_graph.ir.registry import Registry
from weft_graph.ir.scalar import Scalar
from weft_tensor.dtypes import DType


class Unsupported(Exception):  # noqa: N818 - it is no error of a program
    """What cannot be compiled, and why; its nodes run by their kernels."""


class Operation:
    """A node that is lowered, all of whose shapes are known.

    Attributes:
      node: as it was copied with the shapes of a call.
      inputs: its operands.
      stream: of what draws from a stream of its own, the states of streams and the row of its own.
      direct: whether convolutions are computed as they are defined, and not by fewer products.
    """

    def __init__(
        self,
        node: Node,
        inputs: Sequence[Value],
        stream: tuple[Value, int] | None = None,
        direct: bool = False,
    ) -> None:
        self.node = node
        self.inputs = tuple(inputs)
        self.stream = stream
        self.direct = direct

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    def attr(self, name: str) -> Any:
        """An attribute."""
        return self.node.attrs[name]

    def dtype(self, result: int = 0) -> DType:
        """The element type of a result."""
        return self.node.outputs[result].dtype

    def shape(self, result: int = 0) -> tuple[int, ...]:
        """The shape of a result."""
        dims = self.node.outputs[result].dims
        assert dims is not None
        return tuple([size for size in dims if size is not None])

    def known(self, operand: int) -> Any:
        """The value of an operand that has to be known, as an array.

        Raises: Unsupported: it is not.
        """
        value = constant_value(self.node.inputs[operand])
        if value is None:
            raise Unsupported(f"operand {operand} is known when the step runs only")
        return np.asarray(value)

    def axes(self, operand: int = 1) -> list[int]:
        """Axes of the first operand that another one lists, from 0, in order."""
        rank = self.inputs[0].rank
        named = self.known(operand).reshape(-1).tolist()
        return sorted({int(axis) % rank for axis in named}) if rank else []


Rule = Callable[[Operation], Value | Sequence[Value]]

_rules: Final[Registry[Rule]] = Registry(
    "lowering rule", "weft_compiler.lower.rules", "weft_compiler.lowering"
)


New = Callable[..., Sequence[Scalar]]
"""From the attributes of a node and an element of each input to new elements of variables."""


Rows = Callable[[Node, Sequence[Value]], Sequence[Value]]
"""From a node and its operands to what its variables become."""


@dataclass(frozen=True, slots=True)
class Update:
    """How an op changes variables.

    Attributes:
      states: how many of its inputs are variables, which come first.
      scalars: the positions of inputs without axes; the others have the variables' shape.
      new: what their new elements are.
      rows: what they become, where it changes some places of them alone: by loops that are given
        the variables' memory.
      by_kernel: why a node had better run by its kernel, or "".
    """

    states: int
    scalars: tuple[int, ...] = ()
    new: New | None = None
    rows: Rows | None = None
    by_kernel: Callable[[Node], str] = lambda _: ""


_updates: Final[Registry[Update]] = Registry(
    "rule of an update", "weft_compiler.lower.rules", "weft_compiler.lowering"
)


def changes(*ops: str, states: int = 1, scalars: tuple[int, ...] = ()) -> Callable[[New], New]:
    """Decorator that registers how some op types change variables.

    Args:
      states: how many of the inputs are variables, which come first.
      scalars: positions of inputs without axes.
    Raises: AlreadyExistsError: it is registered.
    """

    def register(new: New) -> New:
        for op in ops:
            _updates.register(op, Update(states, scalars, new))
        return new

    return register


def changes_rows(
    *ops: str, states: int = 1, by_kernel: Callable[[Node], str] = lambda _: ""
) -> Callable[[Rows], Rows]:
    """Decorator that registers how some op types change places of variables.

    Args:
      states: how many of the inputs are variables, which come first.
      by_kernel: why a node had better run by its own kernel, or "".
    Raises: AlreadyExistsError: it is registered.
    """

    def register(rows: Rows) -> Rows:
        for op in ops:
            _updates.register(op, Update(states, rows=rows, by_kernel=by_kernel))
        return rows

    return register


def update_of(op: str) -> Update | None:
    """How an op type changes variables; None if it does not, or nobody says how."""
    return _updates.get(op)


KnownOperands = tuple[int, ...] | Callable[[Node], tuple[int, ...]]
"""Positions of operands, or a function that returns those of a node."""

_by_kernel: Final[dict[str, Callable[[Node], str]]] = {}
_alone: Final[dict[str, Callable[[Node], bool]]] = {}
_known: Final[dict[str, KnownOperands]] = {}


def lowers(
    *ops: str,
    known: KnownOperands = (),
    by_kernel: Callable[[Node], str] = lambda _: "",
    alone: Callable[[Node], bool] = lambda _: False,
) -> Callable[[Rule], Rule]:
    """Decorator that registers the rule for some op types.

    Args:
      known: positions of the operands whose values the rule, or the shape of the result, depends
        on, such as axes; negative ones count from the last. A function where that depends on the
        node.
      by_kernel: why who has kernels had better run a node by its own, or "".
      alone: whether a node by itself is worth a function, as its kernel takes so much longer.
    Raises: AlreadyExistsError: there is one.
    """

    def register(rule: Rule) -> Rule:
        for op in ops:
            _known[op] = known
            _by_kernel[op] = by_kernel
            _alone[op] = alone
            _rules.register(op, rule)  # last, as other threads ask for it first
        return rule

    return register


def known_operands(node: Node) -> Sequence[int]:
    """Return the positions of the operands that have to be known when a node is lowered."""
    if rule_of(node.type) is None:
        return ()
    known = _known.get(node.type, ())
    count = len(node.inputs)
    return [at % count for at in (known(node) if callable(known) else known)]


def wants_kernel(node: Node) -> str:
    """Why a node that a rule lowers had better run by its kernel, or ""."""
    update = update_of(node.type)
    if update is not None:
        return update.by_kernel(node)
    return _by_kernel[node.type](node) if rule_of(node.type) is not None else ""


def repays(node: Node) -> bool:
    """Whether a node by itself is worth a function."""
    return rule_of(node.type) is not None and node.type in _alone and _alone[node.type](node)


def rule_of(op: str) -> Rule | None:
    """The rule for an op type, if there is one."""
    return _rules.get(op)


def require(condition: bool, said: str) -> None:
    """Raise Unsupported unless the condition holds."""
    if not condition:
        raise Unsupported(said)
