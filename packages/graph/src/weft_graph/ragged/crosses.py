"""Feature crosses of ragged features."""

from __future__ import annotations

__all__ = ["cross", "cross_hashed"]

from collections.abc import Sequence
from typing import Any, Final

from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import SparseTensor, is_sparse
from weft_graph.ops import casting
from weft_graph.ragged.rows import Rows
from weft_graph.ragged.tensor import RaggedTensor, is_ragged
from weft_tensor import dtypes, errors

_DEFAULT_KEY: Final = 0xDECAFCAFFE


def cross(inputs: Sequence[Any], name: str | None = None) -> RaggedTensor:
    """Return, for each row, all combinations of one value of each input, joined by "_X_".

    Args:
      inputs: matrices of integers or strings: Tensors, SparseTensors or RaggedTensors with the same
        number of rows.
      name: name scope of the nodes.
    Returns: string, RaggedTensor, shape (nrows, (n)).
    Raises:
      InvalidTypeError: `inputs` is not a list of these.
      InvalidArgumentError: it is empty; or, at run time, the numbers of rows differ.

    Examples:
      >>> wf.Session().run(wf.ragged.cross([[["a"]], wf.ragged.constant([["b", "c"]])])).to_list()
      [[b'a_X_b', b'a_X_c']]
    """
    return _cross(inputs, False, 0, _DEFAULT_KEY, name)


def cross_hashed(
    inputs: Sequence[Any],
    num_buckets: int = 0,
    hash_key: int | None = None,
    name: str | None = None,
) -> RaggedTensor:
    """Return `cross` with hashes instead of strings.

    Args:
      inputs: as in `cross`.
      num_buckets: upper bound of the hashes; 0 for no bound.
      hash_key: initial value of the hash.
      name: name scope of the nodes.
    Returns: int64, RaggedTensor, shape (nrows, (n)).
    Raises: InvalidArgumentError: `num_buckets` is negative, or as in `cross`.

    Examples:
      >>> crossed = wf.ragged.cross_hashed([wf.ragged.constant([["a"], []]), [["b"], ["c"]]], 100)
      >>> wf.Session().run(crossed.row_lengths())
      array([1, 0])
    """
    if not isinstance(num_buckets, int) or num_buckets < 0:
        raise errors.InvalidArgumentError(f"num_buckets must be at least 0, got {num_buckets!r}")
    return _cross(inputs, True, num_buckets, _DEFAULT_KEY if hash_key is None else hash_key, name)


def _cross(inputs: Any, hashed: bool, buckets: int, key: int, name: str | None) -> RaggedTensor:
    if not isinstance(inputs, list | tuple):
        raise errors.InvalidTypeError(f"inputs must be a list of tensors, got {inputs!r}")
    if not inputs:
        raise errors.InvalidArgumentError("a cross requires at least one input, got none")
    ragged: list[RaggedTensor] = []
    sparse: list[SparseTensor] = []
    dense: list[Any] = []
    order = ""
    with get_default_graph().name_scope(name or "RaggedCross"):
        for value in inputs:
            if is_ragged(value):
                ragged.append(_matrix(RaggedTensor.from_value(value)))
                order += "R"
            elif is_sparse(value):
                sparse.append(SparseTensor.from_value(value))
                order += "S"
            else:
                dense.append(_convert_feature(convert_to_tensor(value)))
                order += "D"
        splits_type = dtypes.int64
        values, splits = create(
            "RaggedCross",
            [
                [_convert_feature(value.values) for value in ragged],
                [value.row_splits for value in ragged],
                [value.indices for value in sparse],
                [_convert_feature(value.values) for value in sparse],
                [value.dense_shape for value in sparse],
                dense,
            ],
            {
                "input_order": order,
                "hashed_output": hashed,
                "num_buckets": buckets,
                "hash_key": key,
                "out_values_type": dtypes.int64 if hashed else dtypes.string,
                "out_row_splits_type": splits_type,
            },
        ).outputs
        return RaggedTensor(values, Rows(splits))


def _matrix(value: RaggedTensor) -> RaggedTensor:
    if value.ragged_rank != 1 or (value.dims is not None and len(value.dims) != 2):
        raise errors.InvalidArgumentError(
            f"a cross requires ragged tensors of rank 2, with one ragged axis, got {value!r}"
        )
    return value


def _convert_feature(value: Any) -> Any:
    """Convert features to int64 or string."""
    dtype = value.dtype.base_dtype
    if dtype is dtypes.string or dtype is dtypes.int64:
        return value
    if not dtype.is_integer:
        raise errors.InvalidTypeError(f"features must be integers or text, got {value!r}")
    return casting.cast(value, dtypes.int64)
