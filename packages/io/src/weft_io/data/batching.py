"""Dataset methods that batch and unbatch elements."""

from __future__ import annotations

from typing import Any, Final

from weft_graph.ir import nest
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ragged.tensor import RaggedTensor
from weft_io.data import specs
from weft_io.data.dataset_methods import DatasetT, Steps, drops, int64
from weft_io.data.padding import compute_padded_shapes, padding_values_for
from weft_io.data.variant_elements import contains_variant, pack_elements, unpack_elements
from weft_tensor import errors

_STACKED: Final = (SparseTensor, RaggedTensor, specs.DatasetBase)
"""Classes of element parts that can be batched, besides dense tensors."""


class Batching(Steps[DatasetT]):
    """Dataset methods that form batches and split them."""

    def batch(self, batch_size: Any, drop_remainder: Any = False) -> DatasetT:
        """Stack elements in batches, along a new first axis.

        Sparse tensors may have different shapes: each size is the largest in the batch. Ragged
        tensors, and their rows, become ragged tensors with one more ragged axis. Datasets, such as
        those of `window`, become a tensor of datasets; `from_tensor_slices` splits it again.

        Args:
          batch_size: int64, shape ().
          drop_remainder: bool, shape (): omit the last batch if it is smaller.
        Raises (when it is iterated): InvalidArgumentError: shapes in a batch differ.
        """
        self._check_dense("batch", but=_STACKED)
        inputs = int64(batch_size, "batch_size", 1), drops(drop_remainder)
        rows = _static_rows(batch_size, drop_remainder)
        form = nest.map_structure(lambda spec: spec.batch(rows), self._element)
        if contains_variant(self._element):
            stacked = pack_elements(self).batch(batch_size, drop_remainder)
            batches: DatasetT = unpack_elements(stacked, form)
            return batches
        return self._chain("BatchDatasetV2", *inputs, element=form)

    def padded_batch(
        self,
        batch_size: Any,
        padded_shapes: Any,
        padding_values: Any = None,
        drop_remainder: Any = False,
    ) -> DatasetT:
        """Stack elements in batches, each padded at the end of its axes to the shape of the batch.

        Args:
          batch_size: int64, shape ().
          padded_shapes: a structure of shapes; a size None or -1 is the largest in the batch.
          padding_values: a structure of values; zeros and empty strings by default.
          drop_remainder: bool, shape (): omit the last batch if it is smaller.
        Raises: InvalidTypeError: an element contains a dataset; when it is iterated:
          InvalidArgumentError: an element is larger or of another rank.

        Examples:
          >>> rows = wf.data.Dataset.range(1, 3).map(lambda n: wf.fill([n], n))
          >>> batch = rows.padded_batch(2, padded_shapes=[None]).make_one_shot_iterator().get_next()
          >>> wf.Session().run(batch)
          array([[1, 0],
                 [2, 2]])
        """
        if any(issubclass(spec.cls, specs.DatasetBase) for spec in nest.flatten(self._element)):
            raise errors.InvalidTypeError(
                "padded_batch is not supported for datasets of datasets, got elements "
                f"{self.element_spec!r}; use batch"
            )
        self._check_dense("padded_batch")
        size, drop = int64(batch_size, "batch_size", 1), drops(drop_remainder)
        shapes, dims = compute_padded_shapes(self._element, padded_shapes)
        padding = padding_values_for(self._element, padding_values)
        rows = _static_rows(batch_size, drop_remainder)
        flat = [
            specs.Spec(spec.dtype, None if d is None else (rows, *d))
            for spec, d in zip(nest.flatten(self._element), dims, strict=True)
        ]
        form = nest.pack_sequence_as(self._element, flat)
        attrs = {"output_shapes": [part.dims for part in specs.parts(form)]}
        inputs = [self._variant_tensor, size, shapes, padding, drop]
        result = self._create("PaddedBatchDatasetV2", inputs, attrs, form)
        result._options = self._options
        return result

    def unbatch(self) -> DatasetT:
        """Return the rows of elements as separate elements; for a tensor of datasets, its datasets.

        Raises: InvalidArgumentError: a part has rank 0, or the sizes differ; sizes that are not
          known statically are checked during iteration.
        """
        self._check_dense("unbatch", but=_STACKED)
        check_rows(self._element, "unbatch")
        form = nest.map_structure(lambda spec: spec.row, self._element)
        if contains_variant(form):
            rows: DatasetT = unpack_elements(pack_elements(self, rows=True).unbatch(), form)
            return rows
        return self._chain("UnbatchDataset", element=form)

    def _check_dense(self, label: str, but: tuple[type, ...] = ()) -> None:
        for spec in nest.flatten(self._element):
            if not issubclass(spec.cls, (Output, *but)):
                raise errors.UnimplementedError(
                    f"{label} requires dense tensors, got a {spec.cls.__name__} in the elements"
                )


def check_rows(form: Any, label: str) -> None:
    """Require all parts, tensors of any kind, to have a first axis of the same size.

    Raises: UnimplementedError, InvalidArgumentError: a part is not a tensor, or the sizes differ.
    """
    size: int | None = None
    for spec in nest.flatten(form):
        if not issubclass(spec.cls, (Output, *_STACKED)):
            raise errors.UnimplementedError(f"{label} requires tensors, got a {spec.cls.__name__}")
        if spec.dims == ():
            raise errors.InvalidArgumentError(f"{label} requires a rank of at least 1, got ()")
        rows = None if spec.dims is None else spec.dims[0]
        if None not in (rows, size) and rows != size:
            raise errors.InvalidArgumentError(
                f"{label} requires first axes of the same size, got {size} and {rows}"
            )
        size = rows if size is None else size


def _static_rows(batch_size: Any, drop_remainder: Any) -> int | None:
    """Return the size of every batch if it is known, else None."""
    size, drop = (
        constant_value(item) if isinstance(item, Output) else item
        for item in (batch_size, drop_remainder)
    )
    return int(size) if drop is not None and bool(drop) and size is not None else None
