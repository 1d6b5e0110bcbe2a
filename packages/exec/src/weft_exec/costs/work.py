"""What one execution of a node computes and moves, from the shapes of its inputs and outputs.

An op without a rule computes nothing that is worth counting and moves its inputs and outputs once.
"""

from __future__ import annotations

__all__ = ["Work", "register_work"]

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from weft_exec.costs import elements, movement, products
from weft_exec.costs.sizes import Rule, Sizes
from weft_graph.ir.node import Node
from weft_tensor import errors

_FLOPS: dict[str, Rule] = {**elements.FLOPS, **products.FLOPS, **movement.FLOPS}
_BYTES: dict[str, Rule] = {**elements.BYTES, **movement.BYTES}


class Work(NamedTuple):
    """What one execution takes.

    Attributes:
      flops: floating-point operations; a multiplication with an addition is two.
      bytes: bytes read and written.
    """

    flops: float
    bytes: float


def register_work(op: str, flops: Rule | None = None, nbytes: Rule | None = None) -> None:
    """Say what an op computes and moves; for the ops of other packages.

    Args:
      op: op type.
      flops: from `Sizes` to floating-point operations; none by default.
      nbytes: from `Sizes` to bytes; inputs and outputs by default.
    Raises: AlreadyExistsError: the op has rules already.
    """
    if op in _FLOPS or op in _BYTES:
        raise errors.AlreadyExistsError(f"the work of {op} is registered already", op=op)
    if flops is not None:
        _FLOPS[op] = flops
    if nbytes is not None:
        _BYTES[op] = nbytes


def work_of(
    node: Node, inputs: Sequence[tuple[int, ...]], outputs: Sequence[tuple[int, ...]]
) -> Work:
    """The work of a node whose inputs and outputs have these shapes."""
    sizes = Sizes(
        node,
        tuple(inputs),
        tuple(outputs),
        tuple(prod(d) * o.dtype.size for d, o in zip(inputs, node.inputs, strict=True)),
        tuple(prod(d) * o.dtype.size for d, o in zip(outputs, node.outputs, strict=True)),
    )
    flops, nbytes = _FLOPS.get(node.type), _BYTES.get(node.type)
    return Work(
        0.0 if flops is None else float(flops(sizes)),
        float(sizes.all_bytes if nbytes is None else nbytes(sizes)),
    )
