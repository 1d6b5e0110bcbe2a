"""Results of ops with several outputs, named as in their declarations."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from functools import cache
from typing import Any

from weft_graph.ir.node import Node
from weft_graph.ir.op_def import lookup_op


def named_results(node: Node) -> Any:
    """Return the outputs of a node as a named tuple; list arguments are lists."""
    return _kind(node.type)(*_group_by_argument(node))


@cache
def _kind(op: str) -> Any:
    names = [arg.name for arg in lookup_op(op).outputs]
    return namedtuple(op, names, rename=True)


def _group_by_argument(node: Node) -> Iterator[Any]:
    index = 0
    for arg in node.op_def.outputs:
        if not arg.is_list:
            yield node.outputs[index]
            index += 1
            continue
        size = node.attrs[arg.number_attr or arg.list_attr or ""]
        count = size if isinstance(size, int) else len(size)
        yield list(node.outputs[index : index + count])
        index += count
