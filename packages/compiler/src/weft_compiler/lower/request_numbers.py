"""Numbers of requests for the same nodes: sizes of inputs, and integers that code depends on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from weft_graph.ir.code_generators import RegionRequest
from weft_graph.passes.whole_loops import Extent, LoopRequest

AnyRequest = RegionRequest | LoopRequest


class RequestNumbers(NamedTuple):
    """The numbers of a request.

    Attributes:
      numbers: in a fixed order.
      rest: a text with all other differences between requests for the same nodes.
    """

    numbers: tuple[int, ...]
    rest: str


def numbers_of(request: AnyRequest) -> RequestNumbers:
    """Return the numbers of a request."""
    numbers = [size for shape in request.shapes for size in shape]
    remainder: list[Any] = [[len(shape) for shape in request.shapes]]
    if isinstance(request, LoopRequest):
        remainder.append(request.is_resumable)
        for extent in request.extents:
            numbers += [*extent.shape, *extent.above]
            ranks = len(extent.shape), len(extent.above)
            remainder.append((ranks, extent.adds, extent.clear, extent.grows, extent.begun))
    else:
        for position, value in sorted(request.values.items()):
            array = np.asarray(value)
            remainder.append((position, str(array.dtype), array.shape))
            if _is_integer(array):
                numbers += array.ravel().tolist()
            else:
                remainder.append(array.tobytes())
    return RequestNumbers(tuple(map(int, numbers)), repr(remainder))


def _is_integer(array: np.ndarray) -> bool:
    return array.dtype.kind in "iu"


def with_numbers(request: AnyRequest, numbers: Sequence[int]) -> AnyRequest:
    """Return a request with other numbers, in the order of `numbers_of`."""
    remaining = iter(numbers)
    shapes = [tuple(islice(remaining, len(shape))) for shape in request.shapes]
    if isinstance(request, LoopRequest):
        extents = tuple([_resized(extent, remaining) for extent in request.extents])
        return request._replace(shapes=tuple(shapes), extents=extents)
    values = dict(request.values)
    for position, value in sorted(values.items()):
        array = np.asarray(value)
        if _is_integer(array):
            new = np.array(list(islice(remaining, array.size)), array.dtype)
            values[position] = new.reshape(array.shape)
    return request._replace(shapes=tuple(shapes), values=values)


def _resized(extent: Extent, numbers: Iterator[int]) -> Extent:
    shape = tuple(islice(numbers, len(extent.shape)))
    return replace(extent, shape=shape, above=tuple(islice(numbers, len(extent.above))))
