"""Base of dataset methods: nodes that derive one dataset from another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from weft_graph.ir.builder import out
from weft_graph.ir.node import Output
from weft_graph.ir.random_seed import MODULUS, get_seed
from weft_io import arguments
from weft_io.data import specs
from weft_io.data.functions import enclosing_graph
from weft_io.data.options import Options
from weft_tensor import dtypes

DatasetT = TypeVar("DatasetT", bound="Steps[Any]")
"""The class of the derived datasets."""


def int64(value: Any, label: str, minimum: int | None = None, auto: int | None = None) -> Output:
    """Convert an argument of a dataset to an int64 scalar, as `arguments.scalar` does."""
    return arguments.scalar(value, dtypes.int64, label, minimum, auto)


def seeds(seed: Any) -> list[Output]:
    """Return the two seeds of an order, as `get_seed` does, also for a seed known only at run time.

    Args:
      seed: integer, or a tensor int64, shape (); or None.
    """
    if not isinstance(seed, Output):
        return [int64(item or 0, "seed") for item in get_seed(seed)]
    first = get_seed(0)[0] or 0
    modulus = int64(MODULUS, "seed")
    second = out("FloorMod", [int64(seed, "seed"), modulus])
    if first == 0:  # two zeros would be no seed
        second = out("SelectV2", [out("Equal", [second, int64(0, "seed")]), modulus, second])
    return [int64(first, "seed"), second]


def drops(drop_remainder: Any) -> Output:
    """Return the input that selects whether a smaller last batch is dropped."""
    return arguments.scalar(drop_remainder, dtypes.bool_, "drop_remainder")


class Steps(specs.DatasetBase, Generic[DatasetT]):
    """Base class of datasets whose methods derive other datasets."""

    _element: Any
    _options: Options

    @staticmethod
    def _create(op: str, inputs: Sequence[Any], attrs: Mapping[str, Any], element: Any) -> DatasetT:
        raise NotImplementedError

    def _chain(self, op: str, *inputs: Any, element: Any = None, **attrs: Any) -> DatasetT:
        """Return the dataset of a new node whose inputs are this dataset and `inputs`."""
        form = self._element if element is None else element
        with enclosing_graph(self._variant_tensor).as_default():
            result = self._create(
                op, [self._variant_tensor, *inputs], {**specs.attrs_of(form), **attrs}, form
            )
        result._options = self._options
        return result
