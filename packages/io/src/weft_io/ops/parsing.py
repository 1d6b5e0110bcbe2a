"""Ops that parse bytes to tensors: examples, CSV, JSON, compressed data, tensors.

The functions with dictionaries of features are in `weft_io.input.parsing`.
"""

from __future__ import annotations

__all__ = [
    "decode_compressed",
    "decode_csv",
    "decode_json_example",
    "parse_tensor",
    "serialize_tensor",
]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE
from weft_graph.ops.shape_rules import same_shape, scalar, with_rank
from weft_io.arguments import to_sequence
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer, check_text
from weft_tensor.shape import Dims, compatible_dims, format_dims

# ------------------------------------------------------------------------------ shape rules


def _dense_dims(shape: Dims) -> tuple[int | None, ...]:
    """Return the shape of a dense feature; only the first size may be unknown.

    Raises: InvalidArgumentError: another size is unknown.
    """
    if shape is None or None in shape[1:]:
        raise errors.InvalidArgumentError(
            "the shape of a dense feature must be known except for its first axis, got "
            f"{format_dims(shape)}"
        )
    return shape


def _check_default(shape: Dims, default: Dims) -> None:
    """Check that a default has the feature's shape, is empty, or pads an unknown first axis."""
    if shape is None or default is None:
        return
    padding = shape[:1] == (None,)
    if default in ((0,), (None,)) and not padding:
        return
    if not compatible_dims((), default) if padding else not compatible_dims(shape, default):
        raise errors.InvalidArgumentError(
            f"the default of a feature of shape {format_dims(shape)} must have "
            f"{'shape []' if padding else 'that shape'}, got {format_dims(default)}"
        )


def _sparse_dims(count: int, rank: int) -> list[Dims]:
    return [(None, rank)] * count + [(None,)] * count + [(rank,)] * count


def _example_shape(node: NodeSpec) -> Sequence[Dims]:
    (batch,) = with_rank(node.inputs[0].dims, 1, "ParseExample: serialized")
    with_rank(node.inputs[1].dims, 1, "ParseExample: names")
    sparse, dense = node.attrs["Nsparse"], node.attrs["Ndense"]
    _check_lengths(node, sparse, dense)
    for key in node.inputs[2 : 2 + sparse + dense]:
        with_rank(key.dims, 0, "ParseExample: a key")
    shapes = node.attrs["dense_shapes"]
    for shape, default in zip(shapes, node.inputs[2 + sparse + dense :], strict=True):
        _check_default(shape, default.dims)
    return [*_sparse_dims(sparse, 2), *[(batch, *_dense_dims(shape)) for shape in shapes]]


def _single_example_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "ParseSingleExample: serialized")
    attrs = node.attrs
    sparse, dense = attrs["num_sparse"], len(attrs["Tdense"])
    _check_lengths(node, sparse, dense)
    for label, expected in (("sparse_keys", sparse), ("dense_keys", dense)):
        if len(attrs[label]) != expected:
            raise errors.InvalidArgumentError(
                f"{label} must have {expected} entries, got {len(attrs[label])}"
            )
    for shape, default in zip(attrs["dense_shapes"], node.inputs[1:], strict=True):
        _check_default(shape, default.dims)
    return [*_sparse_dims(sparse, 1), *[_dense_dims(shape) for shape in attrs["dense_shapes"]]]


def _check_lengths(node: NodeSpec, sparse: int, dense: int) -> None:
    for label, expected in (("sparse_types", sparse), ("Tdense", dense), ("dense_shapes", dense)):
        if len(node.attrs[label]) != expected:
            raise errors.InvalidArgumentError(
                f"{label} must have {expected} entries, got {len(node.attrs[label])}"
            )


def _sequence_shape(node: NodeSpec) -> Sequence[Dims]:
    (batch,) = with_rank(node.inputs[0].dims, 1, "ParseSequenceExample: serialized")
    with_rank(node.inputs[1].dims, 1, "ParseSequenceExample: debug_name")
    attrs = node.attrs
    lists: list[Dims] = [(batch, None, *_require_known(shape)) for shape in _list_shapes(node)]
    return [
        *_sparse_dims(attrs["Ncontext_sparse"], 2),
        *[(batch, *_require_known(shape)) for shape in attrs["context_dense_shapes"]],
        *_sparse_dims(attrs["Nfeature_list_sparse"], 3),
        *lists,
        *[(batch,)] * attrs["Nfeature_list_dense"],
    ]


def _parse_tensor_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "ParseTensor: serialized")
    return (None,)


def _single_sequence_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "ParseSingleSequenceExample: serialized")
    lists = ("context_sparse", "context_dense", "feature_list_sparse", "feature_list_dense")
    keys = sum(node.attrs[f"N{name}"] for name in lists)
    for key in node.inputs[2 : 2 + keys]:
        with_rank(key.dims, 0, "ParseSingleSequenceExample: a key")
    attrs = node.attrs
    return [
        *_sparse_dims(attrs["Ncontext_sparse"], 1),
        *[_require_known(shape) for shape in attrs["context_dense_shapes"]],
        *_sparse_dims(attrs["Nfeature_list_sparse"], 2),
        *[(None, *_require_known(shape)) for shape in _list_shapes(node)],
    ]


def _require_known(shape: Dims) -> tuple[int | None, ...]:
    if shape is None or None in shape:
        raise errors.InvalidArgumentError(
            f"the shape of a dense feature must be known, got {format_dims(shape)}"
        )
    return shape


def _list_shapes(node: NodeSpec) -> Sequence[Dims]:
    attrs = node.attrs
    for label, num_features in (
        ("context_sparse_types", attrs["Ncontext_sparse"]),
        ("Tcontext_dense", attrs["Ncontext_dense"]),
        ("context_dense_shapes", attrs["Ncontext_dense"]),
        ("feature_list_sparse_types", attrs["Nfeature_list_sparse"]),
        ("feature_list_dense_types", attrs["Nfeature_list_dense"]),
        ("feature_list_dense_shapes", attrs["Nfeature_list_dense"]),
    ):
        if len(attrs[label]) != num_features:
            raise errors.InvalidArgumentError(
                f"{label} must have {num_features} entries, got {len(attrs[label])}"
            )
    shapes: Sequence[Dims] = attrs["feature_list_dense_shapes"]
    return shapes


def _csv_shape(node: NodeSpec) -> Sequence[Dims]:
    for default in node.inputs[1:]:
        if default.dims is not None and default.dims not in ((), (0,), (1,), (None,)):
            raise errors.InvalidArgumentError(
                "a default must have shape [], [0] or [1], got " + format_dims(default.dims)
            )
    return [node.inputs[0].dims] * len(node.attrs["OUT_TYPE"])


# ------------------------------------------------------------------------------ declarations

_FEATURE_TYPES = "list({float32, int64, string})"

register_op(
    "ParseExample",
    (
        "serialized: string",
        "names: string",
        "sparse_keys: Nsparse * string",
        "dense_keys: Ndense * string",
        "dense_defaults: Tdense",
    ),
    (
        "sparse_indices: Nsparse * int64",
        "sparse_values: sparse_types",
        "sparse_shapes: Nsparse * int64",
        "dense_values: Tdense",
    ),
    {
        "Nsparse": "int >= 0",
        "Ndense": "int >= 0",
        "sparse_types": _FEATURE_TYPES,
        "Tdense": _FEATURE_TYPES,
        "dense_shapes": "list(shape)",
    },
    _example_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The features of a batch of serialized examples.",
)
register_op(
    "ParseSingleExample",
    ("serialized: string", "dense_defaults: Tdense"),
    (
        "sparse_indices: num_sparse * int64",
        "sparse_values: sparse_types",
        "sparse_shapes: num_sparse * int64",
        "dense_values: Tdense",
    ),
    {
        "num_sparse": "int >= 0",
        "sparse_keys": "list(string)",
        "dense_keys": "list(string)",
        "sparse_types": _FEATURE_TYPES,
        "Tdense": _FEATURE_TYPES,
        "dense_shapes": "list(shape)",
    },
    _single_example_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The features of one serialized example.",
)

_SEQUENCE_TYPES = {
    "Ncontext_sparse": "int >= 0 = 0",
    "Ncontext_dense": "int >= 0 = 0",
    "Nfeature_list_sparse": "int >= 0 = 0",
    "Nfeature_list_dense": "int >= 0 = 0",
    "context_sparse_types": f"{_FEATURE_TYPES} = []",
    "Tcontext_dense": f"{_FEATURE_TYPES} = []",
    "feature_list_dense_types": f"{_FEATURE_TYPES} = []",
    "context_dense_shapes": "list(shape) = []",
    "feature_list_sparse_types": f"{_FEATURE_TYPES} = []",
    "feature_list_dense_shapes": "list(shape) = []",
}
_SEQUENCE_OUTPUTS = (
    "context_sparse_indices: Ncontext_sparse * int64",
    "context_sparse_values: context_sparse_types",
    "context_sparse_shapes: Ncontext_sparse * int64",
    "context_dense_values: Tcontext_dense",
    "feature_list_sparse_indices: Nfeature_list_sparse * int64",
    "feature_list_sparse_values: feature_list_sparse_types",
    "feature_list_sparse_shapes: Nfeature_list_sparse * int64",
    "feature_list_dense_values: feature_list_dense_types",
)

register_op(
    "ParseSequenceExample",
    ("serialized: string", "debug_name: string", "context_dense_defaults: Tcontext_dense"),
    (*_SEQUENCE_OUTPUTS, "feature_list_dense_lengths: Nfeature_list_dense * int64"),
    {
        "feature_list_dense_missing_assumed_empty": "list(string)",
        "context_sparse_keys": "list(string)",
        "context_dense_keys": "list(string)",
        "feature_list_sparse_keys": "list(string)",
        "feature_list_dense_keys": "list(string)",
        **_SEQUENCE_TYPES,
    },
    _sequence_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The context features and feature lists of a batch of serialized sequence examples.",
)
register_op(
    "ParseSingleSequenceExample",
    (
        "serialized: string",
        "feature_list_dense_missing_assumed_empty: string",
        "context_sparse_keys: Ncontext_sparse * string",
        "context_dense_keys: Ncontext_dense * string",
        "feature_list_sparse_keys: Nfeature_list_sparse * string",
        "feature_list_dense_keys: Nfeature_list_dense * string",
        "context_dense_defaults: Tcontext_dense",
        "debug_name: string",
    ),
    _SEQUENCE_OUTPUTS,
    _SEQUENCE_TYPES,
    _single_sequence_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The context features and feature lists of one serialized sequence example.",
)
register_op(
    "DecodeCSV",
    ("records: string", "record_defaults: OUT_TYPE"),
    ("output: OUT_TYPE",),
    {
        "OUT_TYPE": "list({float32, float64, int32, int64, string}) >= 1",
        "field_delim": "string = ','",
        "use_quote_delim": "bool = true",
        "na_value": "string = ''",
        "select_cols": "list(int) = []",
    },
    _csv_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="Lines of comma-separated values as a tensor per column.",
)
register_op(
    "DecodeJSONExample",
    ("json_examples: string",),
    ("binary_examples: string",),
    shape=same_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="Examples in JSON as serialized ones.",
)
register_op(
    "DecodeCompressed",
    ("bytes: string",),
    ("output: string",),
    {"compression_type": "string = ''"},
    same_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="Each string decompressed.",
)
register_op(
    "SerializeTensor",
    ("tensor: T",),
    ("serialized: string",),
    {"T": "type"},
    scalar,
    traits=NOT_DIFFERENTIABLE,
    doc="A tensor as a serialized TensorProto.",
)
register_op(
    "ParseTensor",
    ("serialized: string",),
    ("output: out_type",),
    {"out_type": "type"},
    _parse_tensor_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The tensor of a serialized TensorProto.",
)

# ---------------------------------------------------------------------------------- functions


def decode_csv(
    records: Any,
    record_defaults: Sequence[Any],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    name: str | None = None,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
) -> tuple[Output, ...]:
    """Parse lines of comma-separated values (RFC 4180) to a tensor per column.

    Args:
      records: strings of any shape, one line each, without line ends.
      record_defaults: per column the default of a missing field, a tensor of shape () or (1,) and
        of the column's type (float32, float64, int32, int64, string); shape (0,) if the field is
        required.
      field_delim: one byte.
      use_quote_delim: True if fields may be in double quotes.
      na_value: a text that marks a missing field, in addition to the empty text.
      select_cols: indices of the columns to return, ascending; all by default.
    Returns: a tensor per column, shape of `records`.
    Raises:
      InvalidTypeError: `record_defaults` or `select_cols` is not a list or tuple.
      InvalidArgumentError: `select_cols` are not ascending, or do not match the number of defaults;
        when it runs: a line has another number of fields, or a field is missing or not a number.

    Examples:
      >>> wf.Session().run(wf.decode_csv("1,abc", [[0], [""]]))
      (np.int32(1), b'abc')
    """
    defaults = [
        convert_to_tensor(default) for default in to_sequence(record_defaults, "record_defaults")
    ]
    columns = () if select_cols is None else to_sequence(select_cols, "select_cols")
    selected = tuple([check_integer(column, "each of select_cols") for column in columns])
    if any(column < 0 for column in selected):
        raise errors.InvalidArgumentError(f"select_cols must not be negative, got {list(selected)}")
    if list(selected) != sorted(set(selected)):
        raise errors.InvalidArgumentError(f"select_cols must be ascending, got {list(selected)}")
    if selected and len(selected) != len(defaults):
        raise errors.InvalidArgumentError(
            f"select_cols and record_defaults must have the same length, got {len(selected)} and "
            f"{len(defaults)}"
        )
    if len(check_text(field_delim, "field_delim").encode("utf-8", "replace")) != 1:
        raise errors.InvalidArgumentError(f"field_delim must be one byte, got {field_delim!r}")
    attrs = {
        "field_delim": field_delim,
        "use_quote_delim": use_quote_delim,
        "na_value": na_value,
        "select_cols": selected,
    }
    return create("DecodeCSV", [records, defaults], attrs, name).outputs


def decode_json_example(json_examples: Any, name: str | None = None) -> Output:
    """Convert examples in protobuf's JSON form to serialized ones, for `parse_example`.

    Args:
      json_examples: strings of any shape.
    Returns: strings of that shape.
    Raises: InvalidTypeError: `json_examples` are not strings; when it runs: InvalidArgumentError: a
      string is not an example in JSON.

    Examples:
      >>> text = '{"features": {"feature": {"a": {"int64List": {"value": ["3"]}}}}}'
      >>> serialized = wf.decode_json_example([text])
      >>> wf.Session().run(wf.parse_example(serialized, {"a": wf.FixedLenFeature([], wf.int64)}))
      {'a': array([3])}
    """
    return out("DecodeJSONExample", [json_examples], None, name)


def decode_compressed(bytes: Any, compression_type: str = "", name: str | None = None) -> Output:
    """Decompress each string.

    Args:
      bytes: strings of any shape.
      compression_type: "", "ZLIB" or "GZIP".
    Returns: strings of that shape.
    Raises: InvalidTypeError: `bytes` are not strings; InvalidArgumentError: the compression is
      unknown; when it runs: a string is not valid compressed data.

    Examples:
      >>> import zlib
      >>> wf.Session().run(wf.decode_compressed([zlib.compress(b"text")], "ZLIB"))
      array([b'text'], dtype=object)
    """
    if compression_type not in ("", "ZLIB", "GZIP"):
        raise errors.InvalidArgumentError(
            f"compression_type must be '', 'ZLIB' or 'GZIP', got {compression_type!r}"
        )
    return out("DecodeCompressed", [bytes], {"compression_type": compression_type}, name)


def serialize_tensor(tensor: Any, name: str | None = None) -> Output:
    """Serialize a tensor to a TensorProto: string, shape ().

    Args:
      tensor: any type except handles.

    Examples:
      >>> type(wf.Session().run(wf.serialize_tensor([1, 2])))
      <class 'bytes'>
    """
    return out("SerializeTensor", [tensor], None, name)


def parse_tensor(serialized: Any, out_type: Any, name: str | None = None) -> Output:
    """Return the tensor in a serialized TensorProto.

    Args:
      serialized: string, shape ().
      out_type: its element type.
    Raises (when it runs): InvalidArgumentError: the string is not a serialized tensor, or has
      another element type.

    Examples:
      >>> wf.Session().run(wf.parse_tensor(wf.serialize_tensor(wf.constant([1, 2])), wf.int32))
      array([1, 2], dtype=int32)
    """
    return out("ParseTensor", [serialized], {"out_type": dtypes.as_dtype(out_type)}, name)
