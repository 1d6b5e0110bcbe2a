"""Tracking of transpositions between values of an imported model.

Convolution kernels need channels last, but ONNX has channels first. Convolutions and pooling are
therefore computed on transposed inputs, and their results are transposed back. Elementwise ops that
follow are computed before the transposition. Adjacent transpositions cancel, and unused ones are
not computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft_graph.ir.builder import constant_of
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Output
from weft_graph.ops.permutation import transpose
from weft_graph.ops.shapes import reshape

Order = tuple[int, ...]


class Transpositions:
    """The transpositions of a graph and its subgraphs.

    Args:
      around: the transpositions of the enclosing graph, whose values the graph may use.
    """

    def __init__(self, outer: Transpositions | None = None) -> None:
        self._outer = outer
        self._sources: dict[Output, tuple[Output, Order]] = {}
        self._cache: dict[tuple[Output, Order], Output] = {}
        self._constants: dict[tuple[int, ...] | int, Output] = {}

    def constant(self, value: Order | int) -> Output:
        """Return an int32 constant of axes; equal ones share a node."""
        result = self._constants.get(value)
        if result is None:
            result = self._constants[value] = constant_of(np.array(value, np.int32), name="axes")
        return result

    def source(self, x: Output) -> tuple[Output, Order] | None:
        """Return the value and the permutation that a value is a transposition of, or None."""
        result = self._sources.get(x)
        return self._outer.source(x) if result is None and self._outer is not None else result

    def _find_transposed(self, x: Output, order: Order) -> Output | None:
        result = self._cache.get((x, order))
        return self._outer._find_transposed(x, order) if result is None and self._outer else result

    def transposed(self, x: Output, order: Sequence[int]) -> Output:
        """Permute axes; the inverse permutation returns the original value."""
        order, source = tuple(order), self.source(x)
        if source is not None:
            x, order = source[0], tuple(source[1][axis] for axis in order)
        if order == tuple(range(len(order))):
            return x
        result = self._find_transposed(x, order)
        if result is None:
            result = transpose(x, self.constant(order))
            self._cache[x, order] = result
            self._sources[result] = (x, order)
        return result

    def find_untransposed(
        self, values: Sequence[Output | None]
    ) -> tuple[list[Output | None], Order] | None:
        """Return untransposed values that broadcast, and the permutation that was undone.

        Returns: None if that would cost as much as it saves.
        """
        sources = (self.source(item) for item in values if item is not None)
        order = next((item[1] for item in sources if item is not None), None)
        if order is None:
            return None
        result = [None if item is None else self._untranspose_one(item, order) for item in values]
        lost = any(a is None and b is not None for a, b in zip(result, values, strict=True))
        return None if lost else (result, order)

    def _untranspose_one(self, x: Output, order: Order) -> Output | None:
        source = self.source(x)
        if source is not None:
            return source[0] if source[1] == order else None
        dims = x.dims
        if dims is None or len(dims) > len(order):
            return None
        if not dims:
            return x
        full_dims = [1] * (len(order) - len(dims)) + list(dims)
        sizes = [full_dims[axis] for axis in inverse(order)]
        if None in sizes:
            return None
        if sum(size != 1 for size in full_dims) <= 1:
            return reshape(x, sizes)
        if constant_value(x) is None:
            return None
        return self.transposed(reshape(x, full_dims), inverse(order))


def inverse(order: Sequence[int]) -> list[int]:
    """Return the inverse permutation."""
    return sorted(range(len(order)), key=order.__getitem__)


def channels_first(rank: int) -> list[int]:
    """Return the permutation from (N, ..., C) to (N, C, ...)."""
    return [0, rank - 1, *range(1, rank - 1)]
