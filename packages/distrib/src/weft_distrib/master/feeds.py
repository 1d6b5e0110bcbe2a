"""Validation of the feeds that a client sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from weft_exec.resources.rendezvous import DEAD
from weft_graph.ir.node import Output
from weft_tensor import dtypes, errors
from weft_tensor.shape import compatible_dims, format_dims

_OBJECT: Final = np.dtype(object)


class Feeds:
    """The feeds of a signature.

    Args:
      outputs: the outputs to feed, in order.
    """

    def __init__(self, outputs: Sequence[Output]) -> None:
        self._declared = [(output.name, output.dtype.base_dtype, output.dims) for output in outputs]

    def check(self, values: Sequence[Any]) -> None:
        """Check the number, the dtypes and the shapes of values.

        Raises: InvalidArgumentError: one of them differs; the message names it.
        """
        if len(values) != len(self._declared):
            raise errors.InvalidArgumentError(
                f"the step has {len(self._declared)} feeds, got {len(values)} values"
            )
        for position, value in enumerate(values):
            self.check_one(position, value)

    def check_one(self, position: int, value: Any) -> None:
        """Check a single feed; see `check`."""
        if not 0 <= position < len(self._declared):
            raise errors.InvalidArgumentError(f"the step has no feed {position}")
        name, dtype, dims = self._declared[position]
        if dtype in (dtypes.resource, dtypes.variant):
            return  # their kernels validate their inputs
        actual, shape = getattr(value, "dtype", _OBJECT), getattr(value, "shape", ())
        if value is DEAD or actual != dtype.numpy or not compatible_dims(dims, shape):
            raise errors.InvalidArgumentError(
                f"{name} is fed {actual}{list(shape)}, but it is {dtype.name} {format_dims(dims)}"
            )
