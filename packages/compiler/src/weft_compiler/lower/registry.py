"""Registry of lowering rules, for ops that have no scalar definition.

A rule receives an `Operation` and returns the values of its results. Packages add rules for their
own ops in modules that they name in the entry-point group `weft_compiler.lowering`.
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


class Unsupported(Exception):  # noqa: N818 - it is not an error of a program
    """Signal that an op or a program cannot be compiled, with the reason.

    Its nodes run with kernels.
    """


class Operation:
    """A node to lower, whose shapes are all known.

    Attributes:
      node: the copy of the node with the shapes of this call.
      inputs: its operands.
      stream: for random ops, the states of all streams and the row that belongs to the op.
      direct: use direct convolution, not an algorithm with fewer multiplications.
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
        """The name of the node."""
        return self.node.name

    def attr(self, name: str) -> Any:
        """Return the value of an attribute."""
        return self.node.attrs[name]

    def dtype(self, result: int = 0) -> DType:
        """Return the element type of a result."""
        return self.node.outputs[result].dtype

    def shape(self, result: int = 0) -> tuple[int, ...]:
        """Return the shape of a result."""
        dims = self.node.outputs[result].dims
        assert dims is not None
        return tuple([size for size in dims if size is not None])

    def known_value(self, operand: int) -> Any:
        """Return the value of an operand that must be known at compile time, as an array.

        Raises: Unsupported: the value is not known.
        """
        value = constant_value(self.node.inputs[operand])
        if value is None:
            raise Unsupported(f"operand {operand} must be known at compile time")
        return np.asarray(value)

    def axes(self, operand: int = 1) -> list[int]:
        """Return the axes of the first operand that `operand` lists, non-negative and sorted."""
        rank = self.inputs[0].rank
        named = self.known_value(operand).reshape(-1).tolist()
        return sorted({int(axis) % rank for axis in named}) if rank else []


Rule = Callable[[Operation], Value | Sequence[Value]]

_rules: Final[Registry[Rule]] = Registry(
    "lowering rule", "weft_compiler.lower.rules", "weft_compiler.lowering"
)


New = Callable[..., Sequence[Scalar]]
"""Function from a node's attributes and one element of each input to the new elements of its
variables.
"""


Rows = Callable[[Node, Sequence[Value]], Sequence[Value]]
"""Function from a node and its operands to the new values of its variables."""


@dataclass(frozen=True, slots=True)
class Update:
    """The rule for an op that updates variables.

    Attributes:
      states: number of leading inputs that are variables.
      scalars: positions of scalar inputs; the other inputs have the shape of the variables.
      new: computes the new elements of the variables.
      rows: for ops that change only some rows or elements; computes the new values of the variables
        by loops that write to their memory.
      by_kernel: returns why the node's kernel is preferred, or "".
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
    """Register the elementwise update rule of some op types; a decorator.

    Args:
      states: number of leading inputs that are variables.
      scalars: positions of scalar inputs.
    Raises: AlreadyExistsError: an op type already has an update rule.
    """

    def register(new: New) -> New:
        for op in ops:
            _updates.register(op, Update(states, scalars, new))
        return new

    return register


def changes_rows(
    *ops: str, states: int = 1, by_kernel: Callable[[Node], str] = lambda _: ""
) -> Callable[[Rows], Rows]:
    """Register the rule for op types that update parts of variables; a decorator.

    Args:
      states: number of leading inputs that are variables.
      by_kernel: returns why a node's kernel is preferred, or "".
    Raises: AlreadyExistsError: an op type already has an update rule.
    """

    def register(rows: Rows) -> Rows:
        for op in ops:
            _updates.register(op, Update(states, rows=rows, by_kernel=by_kernel))
        return rows

    return register


def update_of(op: str) -> Update | None:
    """Return the update rule of an op type, or None if it has none."""
    return _updates.get(op)


KnownOperands = tuple[int, ...] | Callable[[Node], tuple[int, ...]]
"""Positions of operands, or a function from a node to such positions."""

_by_kernel: Final[dict[str, Callable[[Node], str]]] = {}
_alone: Final[dict[str, Callable[[Node], bool]]] = {}
_known: Final[dict[str, KnownOperands]] = {}
_pairs: Final[set[str]] = set()


def lowers(
    *ops: str,
    known_operands: KnownOperands = (),
    by_kernel: Callable[[Node], str] = lambda _: "",
    compiles_alone: Callable[[Node], bool] = lambda _: False,
    pairs: bool = False,
) -> Callable[[Rule], Rule]:
    """Register the lowering rule of some op types; a decorator.

    Args:
      known_operands: positions of the operands whose values must be known at compile time, such
        as axes, because the rule or the result shape depends on them. Negative positions
        count from the end. If the positions depend on the node, pass a function.
      by_kernel: returns why a node's kernel is preferred if there is one, or "".
      compiles_alone: returns True if compiling a single node pays off, because its kernel is much
        slower.
      pairs: True if the rule handles complex tensors, as real ones with a last axis of two.
    Raises: AlreadyExistsError: an op type already has a rule.
    """

    def register(rule: Rule) -> Rule:
        for op in ops:
            _known[op] = known_operands
            _by_kernel[op] = by_kernel
            _alone[op] = compiles_alone
            if pairs:
                _pairs.add(op)
            _rules.register(op, rule)  # last: other threads look up the rule first
        return rule

    return register


def known_operands(node: Node) -> Sequence[int]:
    """Return the positions of the operands that must be known when a node is lowered."""
    if rule_of(node.type) is None:
        return ()
    positions = _known.get(node.type, ())
    count = len(node.inputs)
    return [index % count for index in (positions(node) if callable(positions) else positions)]


def kernel_preference_reason(node: Node) -> str:
    """Return why the kernel is preferred for a node that has a lowering rule, or ""."""
    update = update_of(node.type)
    if update is not None:
        return update.by_kernel(node)
    return _by_kernel[node.type](node) if rule_of(node.type) is not None else ""


def is_worth_compiling(node: Node) -> bool:
    """Return True if compiling a single node pays off."""
    return rule_of(node.type) is not None and node.type in _alone and _alone[node.type](node)


def rule_of(op: str) -> Rule | None:
    """Return the lowering rule of an op type, or None if it has none."""
    return _rules.get(op)


def handles_complex(op: str) -> bool:
    """Return True if the rule of an op type handles complex tensors."""
    return rule_of(op) is not None and op in _pairs


def require(condition: bool, label: str) -> None:
    """Raise Unsupported with the reason `label` unless a condition is true."""
    if not condition:
        raise Unsupported(label)
