"""Parsing of serialized examples to tensors, by a dictionary of the requested features."""

from __future__ import annotations

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "SparseFeature",
    "VarLenFeature",
    "parse_example",
    "parse_single_example",
    "parse_single_sequence_example",
]

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, create
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ops.join import concat, stack
from weft_graph.ops.shapes import expand_dims, reshape, squeeze
from weft_graph.ops.sparse import sparse_reorder
from weft_io.input.ragged_features import RaggedFeature, assemble_ragged
from weft_tensor import dtypes, errors
from weft_tensor.arguments import INT64_MAX
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, as_dims, format_dims

# ----------------------------------------------------------------------------- features


class VarLenFeature(NamedTuple):
    """A feature of variable length, parsed to a SparseTensor.

    Attributes:
      dtype: float32, int64 or string.

    Args:
      dtype: float32, int64 or string.

    Examples:
      >>> wf.VarLenFeature(wf.string)
      VarLenFeature(dtype=weft.string)
    """

    dtype: Any


class SparseFeature(NamedTuple):
    """A SparseTensor from a feature of values and features of indices.

    Attributes:
      index_key: name of the int64 feature of indices, or of several, one per axis.
      value_key: name of the feature of values.
      dtype: float32, int64 or string.
      size: extent of the axis, or of each.
      already_sorted: True if the indices ascend; else they are put in order.

    Args:
      index_key: name of the int64 feature of indices, or of several, one per axis.
      value_key: name of the feature of values.
      dtype: float32, int64 or string.
      size: extent of the axis, or of each.
      already_sorted: True if the indices ascend; else they are put in order.

    Examples:
      >>> places = wf.train.Feature(int64_list=wf.train.Int64List(value=[0, 2]))
      >>> values = wf.train.Feature(float_list=wf.train.FloatList(value=[0.5, 1.5]))
      >>> features = wf.train.Features(feature={"places": places, "values": values})
      >>> text = wf.train.Example(features=features).SerializeToString()
      >>> row = wf.SparseFeature("places", "values", wf.float32, size=4)
      >>> wf.Session().run(wf.sparse.to_dense(wf.parse_example([text], {"row": row})["row"]))
      array([[0.5, 0. , 1.5, 0. ]], dtype=float32)
    """

    index_key: Any
    value_key: str
    dtype: Any
    size: Any
    already_sorted: bool = False


class FixedLenFeature(NamedTuple):
    """A feature of fixed shape, parsed to a dense tensor.

    Attributes:
      shape: shape of the value of one example.
      dtype: float32, int64 or string.
      default_value: value for examples without the feature; None if the feature is required.

    Args:
      shape: shape of the values of one example.
      dtype: float32, int64 or string.
      default_value: value for examples without the feature; None if the feature is required.

    Examples:
      >>> wf.FixedLenFeature([2], wf.float32)
      FixedLenFeature(shape=[2], dtype=weft.float32, default_value=None)
    """

    shape: Any
    dtype: Any
    default_value: Any = None


class FixedLenSequenceFeature(NamedTuple):
    """A sequence of values of fixed shape, parsed to a padded dense tensor.

    Attributes:
      shape: shape of one value.
      dtype: float32, int64 or string.
      allow_missing: True if examples may lack it.
      default_value: the padding value; 0 or "" by default.

    Args:
      shape: shape of one value.
      dtype: float32, int64 or string.
      allow_missing: True if examples may lack it; `parse_example` requires True.
      default_value: the padding value; must be None for `parse_sequence_example`.

    Examples:
      >>> one_two = wf.train.Feature(int64_list=wf.train.Int64List(value=[1, 2]))
      >>> features = wf.train.Features(feature={"a": one_two})
      >>> text = wf.train.Example(features=features).SerializeToString()
      >>> numbers = wf.FixedLenSequenceFeature([], wf.int64, allow_missing=True)
      >>> wf.Session().run(wf.parse_example([text, ""], {"a": numbers}))
      {'a': array([[1, 2],
             [0, 0]])}
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


FeatureSpec = (
    VarLenFeature | SparseFeature | RaggedFeature | FixedLenFeature | FixedLenSequenceFeature
)
Features = Mapping[str, FeatureSpec]
Parsed = dict[str, Any]
"""Parsed features: name to Tensor, SparseTensor or RaggedTensor."""


class _Plan:
    """The requested features of an op: sparse and dense ones by name, in order.

    Attributes:
      sparse: name to element type.
      dense: name to (element type, shape, default).
    """

    def __init__(self) -> None:
        self.sparse: dict[str, DType] = {}
        self.dense: dict[str, tuple[DType, Dims, Any]] = {}

    def add_sparse(self, key: str, dtype: Any) -> None:
        """Request a feature of variable length; repeated requests must have the same type."""
        element = _element(key, dtype)
        if self.sparse.setdefault(key, element) is not element:
            raise errors.InvalidArgumentError(
                f"Conflicting type {self.sparse[key].name} vs {element.name} for feature {key}."
            )

    def check(self) -> None:
        """Check that no feature is both sparse and dense."""
        common = sorted(set(self.sparse) & set(self.dense))
        if common:
            raise errors.InvalidArgumentError(
                f"Dense and sparse keys must not intersect; intersection: {common}"
            )


def _element(key: str, dtype: Any) -> DType:
    if dtype is None:
        raise errors.InvalidArgumentError(f"Missing type for feature {key}.")
    element = dtypes.as_dtype(dtype)
    if element not in (dtypes.float32, dtypes.int64, dtypes.string):
        raise errors.InvalidTypeError(
            f"feature {key} must be float32, int64 or string, got {element.name}"
        )
    return element


def _plan(features: Features, allowed: tuple[type, ...], lists: bool = False) -> _Plan:
    """Return the plan for a dictionary of features; with `lists`, of feature lists."""
    plan = _Plan()
    for key in sorted(_validate(features)):
        feature = features[key]
        if not isinstance(feature, allowed):
            raise errors.InvalidArgumentError(
                f"Unsupported {type(feature).__name__} {feature} for key {key!r}; allowed are "
                + ", ".join([kind.__name__ for kind in allowed])
            )
        if isinstance(feature, VarLenFeature):
            plan.add_sparse(key, feature.dtype)
        elif isinstance(feature, SparseFeature):
            _add_sparse_feature(plan, key, feature)
        elif isinstance(feature, RaggedFeature):
            plan.add_sparse(feature.value_key or key, feature.dtype)
            for name in feature.partition_keys:
                plan.add_sparse(name, dtypes.int64)
        elif isinstance(feature, FixedLenFeature):
            shape = _require_fixed_shape(key, feature)
            plan.dense[key] = (_element(key, feature.dtype), shape, feature.default_value)
        else:
            plan.dense[key] = _sequence_feature(key, feature, lists)
    plan.check()
    return plan


def _validate(features: Any) -> Features:
    """Check that features are a dictionary with names as keys."""
    if not isinstance(features, Mapping):
        raise errors.InvalidTypeError(
            f"features must be a dict from names to features, got {features!r}"
        )
    kind = bytes if any(isinstance(key, bytes) for key in features) else str
    for key in features:
        if not isinstance(key, kind):
            raise errors.InvalidTypeError(f"the name of a feature must be text, got {key!r}")
    return features


def _add_sparse_feature(plan: _Plan, key: str, feature: SparseFeature) -> None:
    for label in ("index_key", "value_key"):
        if not getattr(feature, label):
            raise errors.InvalidArgumentError(f"Missing {label} for SparseFeature {key}: {feature}")
    for name in (*_index_keys(feature), feature.value_key):
        if not isinstance(name, str | bytes):
            raise errors.InvalidTypeError(
                f"index_key and value_key of SparseFeature {key} must be names of features, "
                f"got {name!r}"
            )
    for index_key in sorted(_index_keys(feature)):
        plan.add_sparse(index_key, dtypes.int64)
    plan.add_sparse(feature.value_key, feature.dtype)


def _index_keys(feature: SparseFeature) -> list[str]:
    keys = feature.index_key
    return list(keys) if isinstance(keys, list | tuple) else [keys]


def _require_fixed_shape(key: str, feature: FixedLenFeature) -> Dims:
    if feature.shape is None:
        raise errors.InvalidArgumentError(f"Missing shape for feature {key}.")
    dims = as_dims(feature.shape)
    if dims and dims[0] is None:
        raise errors.InvalidArgumentError(
            f"First dimension of shape for feature {key} unknown. Consider using "
            "FixedLenSequenceFeature."
        )
    return _require_dims(key, dims)


def _require_dims(key: str, dims: Dims) -> tuple[int, ...]:
    sizes = [] if dims is None else [size for size in dims if size is not None]
    if dims is None or len(sizes) < len(dims):
        raise errors.InvalidArgumentError(
            f"All dimensions of shape for feature {key} need to be known but received "
            f"{format_dims(dims)}."
        )
    if math.prod(sizes) > INT64_MAX:
        raise errors.InvalidArgumentError(
            f"the shape for feature {key} must have at most {INT64_MAX} elements, "
            f"got {format_dims(dims)}"
        )
    return tuple(sizes)


def _sequence_feature(
    key: str, feature: FixedLenSequenceFeature, lists: bool
) -> tuple[DType, Dims, Any]:
    element = _element(key, feature.dtype)
    if feature.shape is None:
        raise errors.InvalidArgumentError(f"Missing shape for feature {key}.")
    dims = _require_dims(key, as_dims(feature.shape))
    if lists:
        if feature.default_value is not None:
            raise errors.InvalidArgumentError(
                f"The default_value of feature list {key} must be None"
            )
        return element, dims, None
    if not feature.allow_missing:
        raise errors.InvalidArgumentError(
            "Unsupported: FixedLenSequenceFeature requires allow_missing to be True."
        )
    return element, (None, *dims), feature.default_value


# ------------------------------------------------------------------------------ inputs


def _defaults(plan: _Plan) -> list[Output]:
    """Return the default of each dense feature as a tensor; an empty tensor if it is required."""
    return [_default(key, *parts) for key, parts in plan.dense.items()]


def _default(key: str, dtype: DType, dims: Dims, value: Any) -> Output:
    named = "key_" + re.sub(r"[^A-Za-z0-9_.\-/]", "_", key)
    if dims is not None and dims[:1] == (None,):
        if value is None:
            value = b"" if dtype is dtypes.string else 0
        return reshape(convert_to_tensor(value, dtype, f"padding_{named}"), ())
    if value is None:
        return constant_of(np.zeros(0, dtype.numpy), dtype, named)
    return reshape(convert_to_tensor(value, dtype, named), dims)


def _strings(values: Any) -> Output:
    return convert_to_tensor([] if values is None else values, dtypes.string, "names")


def _shapes(plan: _Plan) -> list[Dims]:
    return [dims for _, dims, _ in plan.dense.values()]


def _types(plan: _Plan) -> list[DType]:
    return [dtype for dtype, _, _ in plan.dense.values()]


# ------------------------------------------------------------------------------ outputs


def _name_outputs(outputs: Sequence[Output], plan: _Plan) -> tuple[Parsed, Sequence[Output]]:
    """Split the outputs of the op into the parsed features, by name, and the remaining outputs."""
    count = len(plan.sparse)
    parsed: Parsed = {
        key: SparseTensor(outputs[i], outputs[count + i], outputs[2 * count + i])
        for i, key in enumerate(plan.sparse)
    }
    stop = 3 * count + len(plan.dense)
    parsed.update(zip(plan.dense, outputs[3 * count : stop], strict=True))
    return parsed, outputs[stop:]


def _assemble_features(parsed: Parsed, features: Features | None) -> Parsed:
    """Assemble composite features from their components, which are dropped."""
    result: Parsed = {}
    for key, feature in sorted((features or {}).items()):
        if isinstance(feature, SparseFeature):
            result[key] = _merge(parsed, feature)
        elif isinstance(feature, RaggedFeature):
            result[key] = assemble_ragged(parsed, key, feature)
    return {key: result.get(key, parsed.get(key)) for key in features or {}}


def _merge(parsed: Parsed, feature: SparseFeature) -> SparseTensor:
    values = parsed[feature.value_key]
    keys = _index_keys(feature)
    sizes = list(feature.size) if isinstance(feature.size, list | tuple) else [feature.size]
    if len(sizes) != len(keys):
        raise errors.InvalidArgumentError(
            f"a SparseFeature needs one size per index_key, got {len(sizes)} for {len(keys)}"
        )
    assert isinstance(values, SparseTensor)
    with name_scope(None, "SparseMerge"):
        columns = [values.indices[:, :-1]]
        for key in keys:
            ids = parsed[key]
            assert isinstance(ids, SparseTensor)
            columns.append(expand_dims(ids.values, 1))
        extents = [convert_to_tensor(size, dtypes.int64) for size in sizes]
        merged = SparseTensor(
            concat(columns, 1),
            values.values,
            concat([values.dense_shape[:-1], stack(extents)], 0),
        )
    return merged if feature.already_sorted else sparse_reorder(merged)


# ---------------------------------------------------------------------------- functions

_OF_EXAMPLES = (
    VarLenFeature,
    SparseFeature,
    RaggedFeature,
    FixedLenFeature,
    FixedLenSequenceFeature,
)
_OF_CONTEXTS = (VarLenFeature, RaggedFeature, FixedLenFeature)
_OF_LISTS = (VarLenFeature, FixedLenSequenceFeature)
_OF_ONE_LIST = (*_OF_LISTS, RaggedFeature)


def parse_example(
    serialized: Any, features: Features, name: str | None = None, example_names: Any = None
) -> Parsed:
    """Parse a batch of serialized `Example`s; unrequested features are ignored.

    Other features are ignored.

    Args:
      serialized: string, shape (n,).
      features: name to VarLenFeature, SparseFeature, RaggedFeature, FixedLenFeature or
        FixedLenSequenceFeature.
      example_names: string, shape (n,): names of the examples for messages.
    Returns: name to tensor: of shape (n, *shape) for a FixedLenFeature; (n, most, *shape), padded,
      for a FixedLenSequenceFeature; a SparseTensor of shape (n, most) for a VarLenFeature; a
      RaggedTensor of shape (n, (values)), or with further axes, for a RaggedFeature.
    Raises:
      InvalidArgumentError: the description of a feature is invalid; when it runs: an example is
        malformed, or a feature is missing or has another type or another number of values.

    Examples:
      >>> three = wf.train.Feature(int64_list=wf.train.Int64List(value=[3]))
      >>> features = wf.train.Features(feature={"a": three})
      >>> text = wf.train.Example(features=features).SerializeToString()
      >>> wf.Session().run(wf.parse_example([text, text], {"a": wf.FixedLenFeature([], wf.int64)}))
      {'a': array([3, 3])}
    """
    plan = _plan(_check_features(features), _OF_EXAMPLES)
    with name_scope(name, "ParseExample", [serialized, example_names]) as scope:
        return _assemble_features(
            _parse_example(serialized, _strings(example_names), plan, scope), features
        )


def _check_features(features: Features) -> Features:
    if features is None or (isinstance(features, Mapping) and not features):
        raise errors.InvalidArgumentError(f"features must not be empty, got {features!r}")
    return features


def _parse_example(serialized: Any, names: Output, plan: _Plan, name: str | None) -> Parsed:
    inputs = [serialized, names, list(plan.sparse), list(plan.dense), _defaults(plan)]
    attrs = {"sparse_types": list(plan.sparse.values()), "dense_shapes": _shapes(plan)}
    return _name_outputs(create("ParseExample", inputs, attrs, name).outputs, plan)[0]


def parse_single_example(
    serialized: Any, features: Features, name: str | None = None, example_names: Any = None
) -> Parsed:
    """Parse one serialized `Example`.

    Args:
      serialized: string, shape ().
      features: as for `parse_example`.
      example_names: string, shape (): name of the example for messages.
    Returns: as `parse_example`, without the first axis.
    Raises: as `parse_example`.

    Examples:
      >>> three = wf.train.Feature(int64_list=wf.train.Int64List(value=[3]))
      >>> features = wf.train.Features(feature={"a": three})
      >>> text = wf.train.Example(features=features).SerializeToString()
      >>> wf.Session().run(wf.parse_single_example(text, {"a": wf.FixedLenFeature([], wf.int64)}))
      {'a': np.int64(3)}
    """
    plan = _plan(_check_features(features), _OF_EXAMPLES)
    with name_scope(name, "ParseSingleExample", [serialized, example_names]) as scope:
        value = convert_to_tensor(serialized, dtypes.string, "serialized")
        if value.dims not in ((), None):
            raise errors.InvalidArgumentError(
                f"Input serialized must be a scalar, got shape {format_dims(value.dims)}"
            )
        if example_names is not None:
            parsed = _parse_named(value, example_names, plan)
        else:
            attrs = {
                "num_sparse": len(plan.sparse),
                "sparse_keys": list(plan.sparse),
                "dense_keys": list(plan.dense),
                "sparse_types": list(plan.sparse.values()),
                "dense_shapes": _shapes(plan),
            }
            node = create("ParseSingleExample", [value, _defaults(plan)], attrs, scope)
            parsed = _name_outputs(node.outputs, plan)[0]
        return _assemble_features(parsed, features)


def _parse_named(value: Output, example_names: Any, plan: _Plan) -> Parsed:
    """Parse one example by the op for batches, which supports names."""
    names = convert_to_tensor(example_names, dtypes.string)
    parsed = _parse_example(expand_dims(value, 0), expand_dims(names, 0), plan, None)
    return {key: _unbatch(tensor) for key, tensor in parsed.items()}


def _unbatch(tensor: Output | SparseTensor) -> Output | SparseTensor:
    if isinstance(tensor, Output):
        return squeeze(tensor, [0])
    return SparseTensor(tensor.indices[:, 1:], tensor.values, tensor.dense_shape[1:])


def _sequence_plans(
    context: Features | None, lists: Features | None, of_lists: tuple[type, ...]
) -> tuple[_Plan, _Plan]:
    for features in (context, lists):
        if features is not None:
            _validate(features)
    if not (context or lists):
        raise errors.InvalidArgumentError(
            "Both context_features and sequence_features are None, but at least one should have "
            "values."
        )
    return _plan(context or {}, _OF_CONTEXTS), _plan(lists or {}, of_lists, lists=True)


def _sequence_attrs(context: _Plan, lists: _Plan) -> dict[str, Any]:
    return {
        "Ncontext_sparse": len(context.sparse),
        "Ncontext_dense": len(context.dense),
        "Nfeature_list_sparse": len(lists.sparse),
        "Nfeature_list_dense": len(lists.dense),
        "context_sparse_types": list(context.sparse.values()),
        "context_dense_shapes": _shapes(context),
        "feature_list_sparse_types": list(lists.sparse.values()),
        "feature_list_dense_types": _types(lists),
        "feature_list_dense_shapes": _shapes(lists),
    }


def _features_assumed_empty(features: Features | None) -> list[str]:
    return [
        key
        for key, feature in sorted((features or {}).items())
        if isinstance(feature, FixedLenSequenceFeature) and feature.allow_missing
    ]


def parse_sequence_example(
    serialized: Any,
    context_features: Features | None = None,
    sequence_features: Features | None = None,
    example_names: Any = None,
    name: str | None = None,
) -> tuple[Parsed, Parsed, Parsed]:
    """Parse a batch of serialized `SequenceExample`s.

    Args:
      serialized: string, shape (n,).
      context_features: name to VarLenFeature, RaggedFeature or FixedLenFeature.
      sequence_features: name to VarLenFeature or FixedLenSequenceFeature.
      example_names: string, shape (n,): names of the examples for messages.
    Returns: context features as those of `parse_example`; feature lists: (n, most steps, *shape),
      padded, or a SparseTensor of shape (n, most steps, most values); the number of steps of each
      dense feature list, int64, shape (n,).
    Raises: as `parse_example`; InvalidArgumentError: both kinds of features are empty.

    Examples:
      >>> one, two = (
      ...     wf.train.Feature(int64_list=wf.train.Int64List(value=[i])) for i in (1, 2)
      ... )
      >>> steps = wf.train.FeatureLists(
      ...     feature_list={"step": wf.train.FeatureList(feature=[one, two])}
      ... )
      >>> text = wf.train.SequenceExample(feature_lists=steps).SerializeToString()
      >>> step = wf.FixedLenSequenceFeature([], wf.int64)
      >>> _, lists, lengths = wf.io.parse_sequence_example(
      ...     [text], sequence_features={"step": step}
      ... )
      >>> wf.Session().run([lists, lengths])
      [{'step': array([[1, 2]])}, {'step': array([2])}]
    """
    context, lists = _sequence_plans(context_features, sequence_features, _OF_LISTS)
    with name_scope(name, "ParseSequenceExample", [serialized, example_names]) as scope:
        attrs = {
            **_sequence_attrs(context, lists),
            "feature_list_dense_missing_assumed_empty": _features_assumed_empty(sequence_features),
            "context_sparse_keys": list(context.sparse),
            "context_dense_keys": list(context.dense),
            "feature_list_sparse_keys": list(lists.sparse),
            "feature_list_dense_keys": list(lists.dense),
        }
        inputs = [serialized, _strings(example_names), _defaults(context)]
        node = create("ParseSequenceExample", inputs, attrs, scope)
        of_context, remaining = _name_outputs(node.outputs, context)
        of_lists, remaining = _name_outputs(remaining, lists)
        of_context = _assemble_features(of_context, context_features)
        return of_context, of_lists, dict(zip(lists.dense, remaining, strict=True))


def parse_single_sequence_example(
    serialized: Any,
    context_features: Features | None = None,
    sequence_features: Features | None = None,
    example_name: Any = None,
    name: str | None = None,
) -> tuple[Parsed, Parsed]:
    """Parse one serialized `SequenceExample`.

    Args:
      serialized: string, shape ().
      context_features, sequence_features: as for `parse_sequence_example`; feature lists may be
        RaggedFeatures too.
      example_name: string, shape (): name of the example for messages.
    Returns: context features as those of `parse_single_example`; feature lists: (steps, *shape), or
      a SparseTensor of shape (steps, most values).
    Raises: as `parse_sequence_example`.

    Examples:
      >>> one, two = (
      ...     wf.train.Feature(int64_list=wf.train.Int64List(value=[i])) for i in (1, 2)
      ... )
      >>> steps = wf.train.FeatureLists(
      ...     feature_list={"step": wf.train.FeatureList(feature=[one, two])}
      ... )
      >>> text = wf.train.SequenceExample(feature_lists=steps).SerializeToString()
      >>> step = wf.FixedLenSequenceFeature([], wf.int64)
      >>> _, lists = wf.parse_single_sequence_example(text, sequence_features={"step": step})
      >>> wf.Session().run(lists)
      {'step': array([1, 2])}
    """
    context, lists = _sequence_plans(context_features, sequence_features, _OF_ONE_LIST)
    with name_scope(name, "ParseSingleSequenceExample", [serialized, example_name]) as scope:
        inputs = [
            serialized,
            convert_to_tensor(_features_assumed_empty(sequence_features), dtypes.string),
            list(context.sparse),
            list(context.dense),
            list(lists.sparse),
            list(lists.dense),
            _defaults(context),
            "" if example_name is None else example_name,
        ]
        node = create("ParseSingleSequenceExample", inputs, _sequence_attrs(context, lists), scope)
        of_context, remaining = _name_outputs(node.outputs, context)
        of_lists = _name_outputs(remaining, lists)[0]
        return (
            _assemble_features(of_context, context_features),
            _assemble_features(of_lists, sequence_features),
        )
