"""Statistics of the size of a model."""

from __future__ import annotations

__all__ = ["analyze_ops", "analyze_vars", "tensor_description"]

import math
from collections.abc import Sequence
from typing import Any


def tensor_description(var: Any) -> str:
    """Return the type and shape, such as "float32 2x3".

    Args:
      var: a tensor or a variable.
    """
    sizes = "x".join(["?" if s.value is None else str(s.value) for s in var.shape.dims or ()])
    return f"{var.dtype.base_dtype.name}{' ' if sizes else ''}{sizes}"


def analyze_ops(graph: Any, print_info: bool = False) -> int:
    """Return the number of elements of all outputs of a graph; unknown sizes count as 0.

    Args:
      graph: the graph.
      print_info: print each op.
    """
    total = 0
    for node in graph.get_operations():
        for output in node.outputs:
            count = math.prod([s.value or 0 for s in output.shape.dims or ()])
            total += count
            if print_info:
                print(f"{output.name} ({tensor_description(output)}) [{count}]")  # noqa: T201
    return total


def analyze_vars(variables: Sequence[Any], print_info: bool = False) -> tuple[int, int]:
    """Return the number of elements of variables, and their size in bytes.

    Args:
      variables: a list.
      print_info: print a table of the variables.
    """
    sizes = [math.prod([s.value or 0 for s in v.shape.dims or ()]) for v in variables]
    widths = [v.dtype.base_dtype.size for v in variables]
    total, total_bytes = sum(sizes), sum(n * w for n, w in zip(sizes, widths, strict=True))
    if print_info:
        rule = "---------"
        print(f"{rule}\nVariables: name (type shape) [size]\n{rule}")  # noqa: T201
        for v, n, w in zip(variables, sizes, widths, strict=True):
            print(f"{v.name} ({tensor_description(v)}) [{n}, bytes: {n * w}]")  # noqa: T201
        print(f"Total size of variables: {total}")  # noqa: T201
        print(f"Total bytes of variables: {total_bytes}")  # noqa: T201
    return total, total_bytes
