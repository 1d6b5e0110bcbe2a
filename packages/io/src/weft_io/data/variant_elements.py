"""Sparse and ragged tensors as variants, for slicing and batching of elements.

Such a tensor has several components, whose sizes differ between elements. Transformations that
stack components or slice rows therefore receive variants: a vector of three for a sparse tensor,
and a scalar for a ragged tensor or for a row of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft_graph.ir import nest
from weft_graph.ir.builder import create
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ragged.tensor import RaggedTensor
from weft_io.data import specs
from weft_io.ops.sparse_serialization import serialize_many_sparse, serialize_sparse
from weft_tensor import dtypes


def contains_variant(form: Any) -> bool:
    """Return True if a form contains a dataset."""
    return any(_transport_form(spec) for spec in nest.flatten(form))


def _transport_form(spec: specs.Spec) -> bool:
    return spec.cls is SparseTensor or (spec.ragged is not None and spec.ragged.rank >= 0)


def pack_variants(tensors: Any) -> Any:
    """Return a structure of tensors with the rows of sparse and ragged tensors as variants."""
    return nest.map_structure(
        lambda leaf, spec: _pack(leaf, spec, True), tensors, specs.form_of(tensors)
    )


def pack_elements(dataset: Any, rows: bool = False) -> Any:
    """Return a dataset whose elements have variants in place of sparse and ragged tensors.

    Args:
      rows: convert each row separately, along a first axis.
    """
    form = dataset._element
    return dataset.map(_leaf_by_leaf(form, form, lambda leaf, spec: _pack(leaf, spec, rows)))


def _pack(leaf: Any, spec: specs.Spec, rows: bool) -> Any:
    if not _transport_form(spec.row if rows else spec):
        return leaf
    if spec.cls is SparseTensor:
        write = serialize_many_sparse if rows else serialize_sparse
        return write(leaf, out_type=dtypes.variant)
    assert spec.ragged is not None
    values, *splits = leaf.parts if isinstance(leaf, RaggedTensor) else (leaf,)
    attrs = {"batched_input": rows, "Tsplits": spec.ragged.splits}
    return create("RaggedTensorToVariant", [splits, values], attrs).outputs[0]


def unpack_elements(dataset: Any, form: Any) -> Any:
    """Return a dataset of elements of `form`, from one of variants in its place."""
    return dataset.map(_leaf_by_leaf(dataset._element, form, _unpack))._with_form(form)


def unpack_windows(dataset: Any, form: Any) -> Any:
    """Undo `pack_elements` for a dataset of datasets, one for each tensor of `form`."""

    def unpack(leaf: Any, spec: specs.Spec) -> Any:
        return leaf.map(lambda parts: _unpack(parts, spec))._with_form(spec)

    return dataset.map(_leaf_by_leaf(dataset._element, form, unpack))


def _unpack(leaf: Any, spec: specs.Spec) -> Any:
    if leaf.dtype is not dtypes.variant or spec.dtype is dtypes.variant:
        return leaf
    if spec.cls is not SparseTensor:
        return _unpack_ragged(leaf, spec)
    indices, values, shape = create("DeserializeSparse", [leaf], {"dtype": spec.dtype}).outputs
    if spec.dims is not None:
        indices.set_shape([None, len(spec.dims)])
        shape.set_shape([len(spec.dims)])
    sparse_tensor = SparseTensor(indices, values, shape)
    sparse_tensor.set_shape(spec.dims)
    return sparse_tensor


def _unpack_ragged(leaf: Output, spec: specs.Spec) -> Any:
    assert spec.ragged is not None
    levels = spec.ragged.rank
    attrs = {
        "input_ragged_rank": -1,
        "output_ragged_rank": levels,
        "Tvalues": spec.dtype,
        "Tsplits": spec.ragged.splits,
    }
    *splits, values = create("RaggedTensorFromVariant", [leaf], attrs).outputs
    parts = [values, *splits]
    for part, part_spec in zip(parts, spec.parts, strict=True):
        part.set_shape(part_spec.dims)
    return spec.rebuilt(parts)


def _leaf_by_leaf(
    handle: Any, form: Any, change: Callable[[Any, specs.Spec], Any]
) -> Callable[..., Any]:
    """Return a function that converts each tensor of an element according to `form`."""

    def apply_change(*parts: Output) -> Any:
        element = parts if type(handle) is tuple else parts[0]
        pairs = zip(nest.flatten(element), nest.flatten(form), strict=True)
        return nest.pack_sequence_as(form, [change(leaf, spec) for leaf, spec in pairs])

    return apply_change
