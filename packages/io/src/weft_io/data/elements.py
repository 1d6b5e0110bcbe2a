"""Datasets from the elements of a Python list."""

from __future__ import annotations

__all__ = ["from_list"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir import nest
from weft_graph.ops.join import stack
from weft_io.data.dataset import Dataset
from weft_tensor import errors


def from_list(elements: Sequence[Any], name: str | None = None) -> Dataset:
    """Create a dataset of the elements of a list.

    Args:
      elements: a non-empty list of structures of tensors, all of the same types and shapes.
      name: accepted and ignored.
    Raises: InvalidArgumentError: the list is empty, or the elements have different structures or
      shapes.

    Examples:
      >>> pairs = wf.data.experimental.from_list([(1, "a"), (2, "b")])
      >>> wf.Session().run(pairs.skip(1).make_one_shot_iterator().get_next())
      (np.int32(2), b'b')
    """
    if not elements:
        raise errors.InvalidArgumentError(
            "from_list requires at least one element, which determines the types"
        )
    parts = nest.map_structure(lambda *leaves: stack(list(leaves)), *elements)
    return Dataset.from_tensor_slices(parts)
