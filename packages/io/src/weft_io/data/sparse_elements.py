"""Sparse tensors in elements that are sliced and batched: as variants on the way.

A sparse tensor of an element is three components whose sizes differ from element to element. What
stacks components, or takes their rows, so gets a vector of variants in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft_graph.ir import nest
from weft_graph.ir.builder import create
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_io.data import specs
from weft_io.ops.sparse_serialization import serialize_many_sparse, serialize_sparse
from weft_tensor import dtypes


def any_sparse(form: Any) -> bool:
    """Whether there is a sparse tensor in elements of a form."""
    return any(spec.cls is SparseTensor for spec in nest.flatten(form))


def packed(tensors: Any) -> Any:
    """A structure of tensors with the rows of sparse ones as variants, shape (N, 3)."""
    return nest.map_structure(
        lambda leaf: (
            serialize_many_sparse(leaf, out_type=dtypes.variant)
            if isinstance(leaf, SparseTensor)
            else leaf
        ),
        tensors,
    )


def packed_each(dataset: Any, rows: bool = False) -> Any:
    """A dataset with the sparse tensors of its elements as variants, shape (3,).

    Args:
      rows: the rows of each by itself, shape (N, 3).
    """
    write = serialize_many_sparse if rows else serialize_sparse

    def pack(leaf: Any, spec: specs.Spec) -> Any:
        return write(leaf, out_type=dtypes.variant) if spec.cls is SparseTensor else leaf

    return dataset.map(_leaf_by_leaf(dataset._element, dataset._element, pack))


def unpacked_each(dataset: Any, form: Any) -> Any:
    """A dataset of elements of `form`, from one with variants in the place of sparse tensors."""
    return dataset.map(_leaf_by_leaf(dataset._element, form, _unpack))


def unpacked_windows(dataset: Any, form: Any) -> Any:
    """The same of a dataset whose elements are datasets, one for each tensor of `form`."""

    def unpack(leaf: Any, spec: specs.Spec) -> Any:
        if spec.cls is not SparseTensor:
            return leaf
        return leaf.map(lambda parts: _unpack(parts, spec))

    return dataset.map(_leaf_by_leaf(dataset._element, form, unpack))


def _unpack(leaf: Any, spec: specs.Spec) -> Any:
    if spec.cls is not SparseTensor:
        return leaf
    indices, values, shape = create("DeserializeSparse", [leaf], {"dtype": spec.dtype}).outputs
    if spec.dims is not None:
        indices.set_shape([None, len(spec.dims)])
        shape.set_shape([len(spec.dims)])
    found = SparseTensor(indices, values, shape)
    found.set_shape(spec.dims)
    return found


def _leaf_by_leaf(
    given: Any, form: Any, change: Callable[[Any, specs.Spec], Any]
) -> Callable[..., Any]:
    """What changes each tensor of an element, by the specs of `form`."""

    def changed(*parts: Output) -> Any:
        element = parts if type(given) is tuple else parts[0]
        pairs = zip(nest.flatten(element), nest.flatten(form), strict=True)
        return nest.pack_sequence_as(form, [change(leaf, spec) for leaf, spec in pairs])

    return changed
