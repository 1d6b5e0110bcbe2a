"""Feature crosses, and counts of integers, as sparse tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.composite import AppliesOps
from weft_graph.ir.indexed_slices import SparseTensor, SparseTensorValue, is_sparse
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE
from weft_graph.ops.checks import assert_equal
from weft_graph.ops.control import with_dependencies
from weft_graph.ops.shape_rules import merge_size, with_rank
from weft_graph.ops.sparse_rules import form_at, form_of
from weft_tensor import arguments, dtypes, errors
from weft_tensor.shape import Dims, compatible_dims, format_dims

_DEFAULT_KEY: Final = 0xDECAFCAFFE
_COUNTED: Final = "{int32, int64, float32, float64}"

# ------------------------------------------------------------------------------ shape rules


def _cross_shape(node: NodeSpec) -> Sequence[Dims]:
    count: int = node.attrs["N"]
    types = node.attrs.get("sparse_types", ())
    if len(types) != count:
        raise errors.InvalidArgumentError(
            f"there must be one sparse type per sparse input, got {len(types)} for {count}"
        )
    rows: int | None = None
    for i in range(count):
        parts = [node.inputs[i + j * count] for j in range(3)]
        form = form_of(parts, f"input {i}: ")
        merge_size(form.rank, 2, f"the rank of input {i} and 2")
        rows = merge_size(rows, form.dims[0] if form.dims else None, "the rows of all inputs")
    for i, value in enumerate(node.inputs[3 * count : 3 * count + len(node.attrs["dense_types"])]):
        rows = merge_size(
            rows, with_rank(value.dims, 2, f"dense input {i}")[0], "the rows of all inputs"
        )
    return (None, 2), (None,), (2,)


def _count_shape(node: NodeSpec) -> Sequence[Dims]:
    values, weights = node.inputs[0].dims, node.inputs[1].dims
    _check_weights(values, weights)
    if values is not None and len(values) not in (1, 2):
        raise errors.InvalidArgumentError(
            f"values must have rank 1 or 2, got shape {format_dims(values)}"
        )
    rank = None if values is None else len(values)
    return (None, rank), (None,), (rank,)


def _check_weights(values: Dims, weights: Dims) -> None:
    """Raise InvalidArgumentError unless weights are empty or have one per value."""
    some = weights is not None and None not in weights and 0 not in weights
    if some and not compatible_dims(values, weights):
        raise errors.InvalidArgumentError(
            f"weights must have the shape of values, {format_dims(values)}, got "
            f"{format_dims(weights)}"
        )


def _sparse_count_shape(node: NodeSpec) -> Sequence[Dims]:
    form = form_at(node)
    _check_weights((form.count,), node.inputs[3].dims)
    if form.rank not in (None, 1, 2):
        raise errors.InvalidArgumentError(f"dense_shape must have rank 1 or 2, got {form.rank}")
    return (None, form.rank), (None,), (form.rank,)


# ------------------------------------------------------------------------------ declarations

_PARTS = (
    "indices: N * int64",
    "values: sparse_types",
    "shapes: N * int64",
    "dense_inputs: dense_types",
)
_TYPES = {
    "N": "int >= 0",
    "sparse_types": "list({int64, string}) >= 0",
    "dense_types": "list({int64, string}) >= 0",
}
register_op(
    "SparseCross",
    _PARTS,
    ("output_indices: int64", "output_values: out_type", "output_shape: int64"),
    {
        **_TYPES,
        "hashed_output": "bool",
        "num_buckets": "int >= 0",
        "hash_key": "int",
        "out_type": "{int64, string}",
        "internal_type": "{int64, string}",
    },
    _cross_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The cross of the features of all inputs, for each row.",
)
register_op(
    "SparseCrossV2",
    (*_PARTS, "sep: string"),
    ("output_indices: int64", "output_values: string", "output_shape: int64"),
    _TYPES,
    _cross_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="Like SparseCross, as strings joined by `sep`.",
)
_COUNTS: Final = {
    "T": "{int32, int64}",
    "minlength": "int >= -1 = -1",
    "maxlength": "int >= -1 = -1",
    "binary_output": "bool",
    "output_type": _COUNTED,
}
_COUNT_OUTPUTS: Final = (
    "output_indices: int64",
    "output_values: output_type",
    "output_dense_shape: int64",
)
register_op(
    "DenseCountSparseOutput",
    ("values: T", "weights: output_type"),
    _COUNT_OUTPUTS,
    _COUNTS,
    _count_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The count of each integer in each row.",
)
register_op(
    "SparseCountSparseOutput",
    ("indices: int64", "values: T", "dense_shape: int64", "weights: output_type"),
    _COUNT_OUTPUTS,
    _COUNTS,
    _sparse_count_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The count of each integer among the stored elements of each row.",
)

# ---------------------------------------------------------------------------------- functions


def cross(inputs: Any, name: str | None = None, separator: Any = None) -> SparseTensor:
    """Return the feature crosses of each row as joined strings.

    Args:
      inputs: a list of SparseTensors and tensors of integers or strings, all of shape (N, ?).
        Features of sparse inputs come first in each string, then those of dense inputs.
      separator: text between the features, "_X_" by default.
    Returns: string, shape (N, M); row n has one string per combination of one feature of each
      input.
    Raises: InvalidTypeError: it is not a list of such tensors; InvalidArgumentError: the numbers
      of rows differ.

    Examples:
      >>> names = wf.SparseTensor([[0, 0], [0, 1]], ["a", "b"], [1, 2])
      >>> wf.Session().run(wf.sparse.cross([names, wf.constant([[3]])])).values
      array([b'a_X_3', b'b_X_3'], dtype=object)
    """
    sparse, dense = _features(inputs)
    sep = convert_to_tensor("_X_" if separator is None else separator, dtypes.string)
    attrs = {"N": len(sparse)}
    return SparseTensor(
        *create("SparseCrossV2", [*_parts(sparse), dense, sep], attrs, name).outputs
    )


def cross_hashed(
    inputs: Any, num_buckets: int = 0, hash_key: int | None = None, name: str | None = None
) -> SparseTensor:
    """Return the feature crosses of each row as hashes.

    Args:
      inputs: as for `cross`.
      num_buckets: upper bound of the hashes; 2**63 - 1 if it is 0.
      hash_key: integer, initial value of the hash.
    Returns: int64, shape (N, M), as for `cross`; the hashes are those of TensorFlow.
    Raises: as `cross`; InvalidArgumentError: `num_buckets` is negative.

    Examples:
      >>> names = wf.SparseTensor([[0, 0], [0, 1]], ["a", "b"], [1, 2])
      >>> wf.Session().run(wf.sparse.cross_hashed([names, wf.constant([[3]])], 100)).values
      array([86, 64])
    """
    sparse, dense = _features(inputs)
    types = [value.dtype for value in (*[tensor.values for tensor in sparse], *dense)]
    attrs = {
        "N": len(sparse),
        "hashed_output": True,
        "num_buckets": arguments.check_integer(num_buckets, "num_buckets", 0),
        "hash_key": hash_key or _DEFAULT_KEY,
        "out_type": dtypes.int64,
        "internal_type": dtypes.int64 if dtypes.int64 in types else dtypes.string,
    }
    return SparseTensor(*create("SparseCross", [*_parts(sparse), dense], attrs, name).outputs)


def _parts(sparse: Sequence[SparseTensor]) -> list[list[Output]]:
    return [
        [tensor.indices for tensor in sparse],
        [tensor.values for tensor in sparse],
        [tensor.dense_shape for tensor in sparse],
    ]


def _features(inputs: Any) -> tuple[list[SparseTensor], list[Output]]:
    """Return the sparse and the dense inputs, with integers cast to int64."""
    if not isinstance(inputs, list | tuple) or isinstance(inputs, SparseTensorValue):
        raise errors.InvalidTypeError(f"inputs must be a list of tensors, got {inputs!r}")
    sparse = [SparseTensor.from_value(value) for value in inputs if is_sparse(value)]
    dense = [convert_to_tensor(value) for value in inputs if not is_sparse(value)]
    if not inputs:
        raise errors.InvalidArgumentError("inputs must have at least one tensor, got none")
    features = [tensor.with_values(_to_feature(tensor.values)) for tensor in sparse]
    return features, [_to_feature(value) for value in dense]


def _to_feature(values: Output) -> Output:
    dtype = values.dtype.base_dtype
    if dtype is dtypes.string or dtype is dtypes.int64:
        return values
    if not dtype.is_integer:
        raise errors.InvalidTypeError(f"features must be integers or text, got {dtype.name}")
    return out("Cast", [values], {"DstT": dtypes.int64})


def bincount(
    values: Any,
    weights: Any = None,
    axis: int | None = 0,
    minlength: int | None = None,
    maxlength: int | None = None,
    binary_output: bool = False,
    name: str | None = None,
) -> SparseTensor:
    """Count the occurrences of each non-negative integer, storing nonzero counts only.

    Args:
      values: integers of rank 1 or 2: a tensor, a SparseTensor (stored elements are counted) or a
        RaggedTensor.
      weights: weights to sum instead of counting; the same kind of tensor and shape as `values`.
      axis: 0 or None to count all values together, -1 to count each row separately.
      minlength: the least size of the last axis.
      maxlength: the size of the last axis; larger integers are not counted.
      binary_output: return 1 for each integer that occurs.
    Returns: a SparseTensor, shape (K,), or (N, K) with axis -1; dtype of the values, or of the
      weights.
    Raises: InvalidArgumentError: the axis is invalid, weights and `binary_output` are combined,
      or the indices of weights and values differ; at run time, a negative value.

    Examples:
      >>> counts = wf.Session().run(wf.sparse.bincount([3, 1, 3]))
      >>> counts.indices.tolist(), counts.values.tolist()
      ([[1], [3]], [1, 2])
    """
    if axis not in (None, 0, -1):
        raise errors.InvalidArgumentError(f"axis must be 0, -1 or None, got {axis!r}")
    if weights is not None and binary_output:
        raise errors.InvalidArgumentError("weights cannot be combined with binary_output=True")
    attrs = {
        "minlength": -1
        if minlength is None
        else arguments.check_integer(minlength, "minlength", 0),
        "maxlength": -1
        if maxlength is None
        else arguments.check_integer(maxlength, "maxlength", 0),
        "binary_output": bool(binary_output),
    }
    values, weights = [
        part.to_sparse() if isinstance(part, AppliesOps) else part for part in (values, weights)
    ]
    if is_sparse(values):
        return _count_of_sparse(SparseTensor.from_value(values), weights, axis, attrs, name)
    dense = _int(convert_to_tensor(values))
    weight_tensor = _no_weights(dense) if weights is None else convert_to_tensor(weights)
    if axis != -1:
        dense = out("Reshape", [dense, [-1]])
        weight_tensor = weight_tensor if weights is None else out("Reshape", [weight_tensor, [-1]])
    return SparseTensor(
        *create("DenseCountSparseOutput", [dense, weight_tensor], attrs, name).outputs
    )


def _no_weights(values: Output) -> Output:
    return convert_to_tensor(np.zeros(0, values.dtype.base_dtype.numpy))


def _int(values: Output) -> Output:
    if values.dtype.base_dtype in (dtypes.int32, dtypes.int64):
        return values
    return out("Cast", [values], {"DstT": dtypes.int32})


def _count_of_sparse(
    values: SparseTensor, weights: Any, axis: int | None, attrs: Any, name: str | None
) -> SparseTensor:
    given_weights = None
    if weights is not None:
        if not is_sparse(weights):
            raise errors.InvalidTypeError(
                f"weights of a SparseTensor must be a SparseTensor, got {weights!r}"
            )
        given_weights = _check_same_indices(values, SparseTensor.from_value(weights))
    count = _int(values.values)
    last = _no_weights(count) if given_weights is None else given_weights
    if axis != -1:
        return SparseTensor(*create("DenseCountSparseOutput", [count, last], attrs, name).outputs)
    inputs = [values.indices, count, values.dense_shape, last]
    return SparseTensor(*create("SparseCountSparseOutput", inputs, attrs, name).outputs)


def _check_same_indices(values: SparseTensor, weights: SparseTensor) -> Output:
    """Return the weights after checking that their indices are those of the values."""
    message = "weights must be stored at the places of values"
    checks = [
        assert_equal(values.dense_shape, weights.dense_shape, message=message),
        assert_equal(values.indices, weights.indices, message=message),
    ]
    weight_values: Output = with_dependencies(checks, weights.values)
    return weight_values
