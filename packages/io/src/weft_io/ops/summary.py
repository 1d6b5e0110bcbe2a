"""Summary ops, whose results are serialized `Summary` messages for event files (section 9.1)."""

from __future__ import annotations

from weft_graph import proto

__all__ = [
    "audio",
    "get_summary_description",
    "histogram",
    "image",
    "merge",
    "merge_all",
    "scalar",
    "tensor_summary",
    "text",
]

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph, name_scope
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import lookup_op, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE
from weft_graph.ops.shape_rules import scalar as scalar_shape
from weft_tensor import dtypes, errors

if TYPE_CHECKING:
    from weft_graph import proto

_log = logging.getLogger("weft")

_NOT_IN_TAGS = re.compile(r"[^-/\w.]")
_BAD_COLOR = np.array([255, 0, 0, 255], np.uint8)

# ------------------------------------------------------------------------------ declarations

_SUMMARY = ("summary: string",)

register_op(
    "ScalarSummary",
    ("tags: string", "values: T"),
    _SUMMARY,
    {"T": "{realnumbertype}"},
    scalar_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="A Summary of numbers, one for each tag.",
)
register_op(
    "HistogramSummary",
    ("tag: string", "values: T"),
    _SUMMARY,
    {"T": "{realnumbertype} = float32"},
    scalar_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="A Summary of how values are distributed.",
)
register_op(
    "ImageSummary",
    ("tag: string", "tensor: T"),
    _SUMMARY,
    {
        "max_images": "int >= 1 = 3",
        "T": "{uint8, float32, float16, float64} = float32",
        "bad_color": "tensor = uint8[255, 0, 0, 255]",
    },
    scalar_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="A Summary of images as PNG.",
)
register_op(
    "AudioSummaryV2",
    ("tag: string", "tensor: float32", "sample_rate: float32"),
    _SUMMARY,
    {"max_outputs": "int >= 1 = 3"},
    scalar_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="A Summary of sounds as WAV.",
)
register_op(
    "TensorSummary",
    ("tensor: T",),
    _SUMMARY,
    {
        "T": "type",
        "description": "string = ''",
        "labels": "list(string) = []",
        "display_name": "string = ''",
    },
    scalar_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="A Summary of a tensor under the node's name; found in old graphs.",
)
register_op(
    "TensorSummaryV2",
    ("tag: string", "tensor: T", "serialized_summary_metadata: string"),
    _SUMMARY,
    {"T": "type"},
    scalar_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="A Summary of a tensor, with what says which part of TensorBoard shows it.",
)
register_op(
    "MergeSummary",
    ("inputs: N * string",),
    _SUMMARY,
    {"N": "int >= 1"},
    scalar_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="A Summary of all values of several.",
)

# -------------------------------------------------------------------------------- functions


def scalar(
    name: str, tensor: Any, collections: Iterable[Any] | None = None, family: str | None = None
) -> Output:
    """Create a summary of one number.

    Args:
      name: name of the node; with its scopes it is the tag of the curve. Characters that are
        invalid in names are replaced by "_".
      tensor: real number, shape ().
      collections: collections to add the summary to; `GraphKeys.SUMMARIES` by default.
      family: prefix of the tag; TensorBoard groups summaries by it.
    Returns: string, shape (): a serialized `Summary`.
    Raises: InvalidArgumentError: when it runs: `tensor` has another shape.

    Examples:
      >>> text = wf.Session().run(wf.summary.scalar("loss", 0.5))
      >>> wf.Summary.FromString(text).value[0].simple_value
      0.5
    """

    def make(tag: str, scope: str | None) -> Output:
        return out("ScalarSummary", [tag, tensor], name=scope)

    return _summary(make, name, tensor, collections, family)


def histogram(
    name: str, values: Any, collections: Iterable[Any] | None = None, family: str | None = None
) -> Output:
    """Create a summary of the distribution of values.

    Args:
      name, collections, family: as for `scalar`.
      values: real numbers, any shape.
    Returns: string, shape (): a serialized `Summary`.
    Raises: InvalidArgumentError: when it runs: a value is not finite.

    Examples:
      >>> text = wf.Session().run(wf.summary.histogram("weights", [1.0, 2.0]))
      >>> wf.Summary.FromString(text).value[0].histo.max
      2.0
    """

    def make(tag: str, scope: str | None) -> Output:
        return out(
            "HistogramSummary", [tag, values], _type_attrs("HistogramSummary", values), scope
        )

    return _summary(make, name, values, collections, family, "HistogramSummary")


def image(
    name: str,
    tensor: Any,
    max_outputs: int = 3,
    collections: Iterable[Any] | None = None,
    family: str | None = None,
) -> Output:
    """Create a summary of images, tagged "name/image/0" and so on, or "name/image" for one.

    Each floating-point image is scaled separately: by 255 / max if no value is negative; otherwise
    0 becomes 128, and the largest magnitude 1 or 255. Non-finite pixels become red.

    Args:
      name, collections, family: as for `scalar`.
      tensor: uint8, float16, float32 or float64, shape (n, height, width, 1, 3 or 4).
      max_outputs: maximum number of items to show.
    Returns: string, shape (): a serialized `Summary`.
    Raises: InvalidArgumentError: when it runs: the shape is invalid, or the images are empty.

    Examples:
      >>> text = wf.Session().run(wf.summary.image("noise", wf.zeros([1, 4, 4, 3])))
      >>> wf.Summary.FromString(text).value[0].image.width
      4
    """
    attrs = {"max_images": max_outputs, "bad_color": _BAD_COLOR}
    attrs |= _type_attrs("ImageSummary", tensor)

    def make(tag: str, scope: str | None) -> Output:
        return out("ImageSummary", [tag, tensor], attrs, scope)

    return _summary(make, name, tensor, collections, family)


def audio(
    name: str,
    tensor: Any,
    sample_rate: Any,
    max_outputs: int = 3,
    collections: Iterable[Any] | None = None,
    family: str | None = None,
) -> Output:
    """Create a summary of sounds, tagged "name/audio/0" and so on, or "name/audio" for one.

    Args:
      name, collections, family: as for `scalar`.
      tensor: float32 from -1 to 1, shape (n, frames, channels) or (n, frames).
      sample_rate: float32, shape (), frames per second.
      max_outputs: maximum number of items to show.
    Returns: string, shape (): a serialized `Summary`, with 16-bit WAV inside.
    Raises: InvalidArgumentError: when it runs: a shape is invalid, or the rate is not positive.

    Examples:
      >>> tone = wf.sin(wf.range(800.0) * 0.35)
      >>> node = wf.summary.audio("tone", tone[wf.newaxis, :], sample_rate=8000)
      >>> text = wf.Session().run(node)
      >>> wf.Summary.FromString(text).value[0].audio.length_frames
      800
    """

    def make(tag: str, scope: str | None) -> Output:
        rate = convert_to_tensor(sample_rate, dtypes.float32, name="sample_rate")
        return out("AudioSummaryV2", [tag, tensor, rate], {"max_outputs": max_outputs}, scope)

    return _summary(make, name, tensor, collections, family)


def text(name: str, tensor: Any, collections: Iterable[Any] | None = None) -> Output:
    """Create a summary of Markdown text; TensorBoard shows vectors and matrices as tables.

    Args:
      name, collections: as for `scalar`.
      tensor: string, any shape.
    Returns: string, shape (): a serialized `Summary`.
    Raises: InvalidTypeError: `tensor` does not contain strings.

    Examples:
      >>> text = wf.Session().run(wf.summary.text("note", "hello"))
      >>> wf.Summary.FromString(text).value[0].tag
      'note'
    """
    value = convert_to_tensor(tensor)
    if value.dtype.base_dtype is not dtypes.string:
        raise errors.InvalidTypeError(f"a text summary requires strings, got {value!r}")
    plugin = proto.SummaryMetadata.PluginData(plugin_name="text")
    metadata = proto.SummaryMetadata(plugin_data=plugin)
    return tensor_summary(name, value, collections=collections, summary_metadata=metadata)


def tensor_summary(
    name: str,
    tensor: Any,
    summary_description: str | None = None,
    collections: Iterable[Any] | None = None,
    summary_metadata: proto.SummaryMetadata | None = None,
    family: str | None = None,
    display_name: str | None = None,
) -> Output:
    """Create a summary of a complete tensor.

    Args:
      name, collections, family: as for `scalar`.
      tensor: any type except handles, any shape.
      summary_description: description in Markdown, stored in the metadata.
      summary_metadata: metadata that selects the TensorBoard plugin.
      display_name: shown instead of the tag; stored in the metadata.
    Returns: string, shape (): a serialized `Summary`.
    Raises: InvalidArgumentError: `name` is None; InvalidTypeError: when it runs: `tensor` is a
      handle.

    Examples:
      >>> node = wf.summary.tensor_summary("confusion", [[9, 1], [2, 8]], "Rows are true classes.")
      >>> text = wf.Session().run(node)
      >>> wf.make_ndarray(wf.Summary.FromString(text).value[0].tensor)
      array([[9, 1],
             [2, 8]], dtype=int32)
    """
    metadata = proto.SummaryMetadata()
    if summary_metadata is not None:
        metadata.CopyFrom(summary_metadata)
    if summary_description is not None:
        metadata.summary_description = summary_description
    if display_name is not None:
        metadata.display_name = display_name
    data = metadata.SerializeToString()

    def make(tag: str, scope: str | None) -> Output:
        return out("TensorSummaryV2", [tag, tensor, data], name=scope)

    return _summary(make, name, tensor, collections, family)


def merge(
    inputs: Sequence[Any], collections: Iterable[Any] | None = None, name: str | None = None
) -> Output:
    """Merge several summaries into one.

    Args:
      inputs: strings, serialized `Summary` messages.
      collections: collections to add the result to; none by default.
      name: name of the node, and of a scope around it.
    Returns: string, shape (): a serialized `Summary`.
    Raises: InvalidArgumentError: there are no inputs; when it runs: an input is not a `Summary`, or
      two have the same tag.

    Examples:
      >>> merged = wf.summary.merge([wf.summary.scalar("a", 1.0), wf.summary.scalar("b", 2.0)])
      >>> len(wf.Summary.FromString(wf.Session().run(merged)).value)
      2
    """
    clean = _clean(name)
    with name_scope(clean, "Merge", inputs):
        result = out("MergeSummary", [list(inputs)], name=clean)
    result.graph.add_to_collections(collections or (), result)
    return result


def merge_all(
    key: Any = GraphKeys.SUMMARIES, scope: str | None = None, name: str | None = None
) -> Output | None:
    """Merge all summaries in a collection of the default graph.

    Args:
      key: the collection.
      scope: regular expression; only summaries whose names begin with a match are merged.
      name: name of the node.
    Returns: string, shape (): a serialized `Summary`; None if there are none.

    Examples:
      >>> node = wf.summary.scalar("loss", 0.5)
      >>> merged = wf.summary.merge_all()
      >>> len(wf.Summary.FromString(wf.Session().run(merged)).value)
      1
    """
    summaries = get_default_graph().get_collection(key, scope)
    return merge(summaries, name=name) if summaries else None


def get_summary_description(node_def: proto.NodeDef) -> proto.SummaryDescription:
    """Return the description in a TensorSummary node of an old graph.

    Args:
      node_def: a `NodeDef` of a TensorSummary, whose attribute `description` is JSON.
    Returns: a `SummaryDescription` message.
    Raises: InvalidArgumentError: the node is not a TensorSummary, or its description is not valid
      JSON.

    Examples:
      >>> node = wf.NodeDef(name="confusion", op="TensorSummary")
      >>> node.attr["description"].s = b'{"typeHint": "matrix"}'
      >>> wf.summary.get_summary_description(node).type_hint
      'matrix'
    """
    from google.protobuf import json_format

    if node_def.op != "TensorSummary":
        raise errors.InvalidArgumentError(f"a TensorSummary is required, got {node_def.op}")
    description: Any = proto.SummaryDescription()
    try:
        json_format.Parse(node_def.attr["description"].s, description)
    except json_format.ParseError as cause:
        raise errors.InvalidArgumentError(
            f"the description of {node_def.name} cannot be read: {cause}"
        ) from cause
    return description  # type: ignore[no-any-return]


def _summary(
    make: Callable[[str, str | None], Output],
    name: str | None,
    value: Any,
    collections: Iterable[Any] | None,
    family: str | None,
    default_name: str | None = None,
) -> Output:
    """Call `make` with a tag and a unique name, and add the result to the collections."""
    with _summary_scope(name, family, default_name, value) as (tag, scope):
        result = make(tag, scope or None)
    keys = (GraphKeys.SUMMARIES,) if collections is None else collections
    result.graph.add_to_collections(keys, result)
    return result


def _type_attrs(op: str, value: Any) -> dict[str, Any]:
    """Return the element type of an array as an attribute, if the op accepts it."""
    if not isinstance(value, np.ndarray | np.generic):
        return {}
    dtype = dtypes.from_numpy(value.dtype)
    return {"T": dtype} if dtype in (lookup_op(op).attrs["T"].allowed or ()) else {}


@contextmanager
def _summary_scope(
    name: str | None, family: str | None, default_name: str | None, value: Any
) -> Iterator[tuple[str, str]]:
    """Open the scope of a summary's node; yield its tag and the node's name.

    The scope's name contains the family, too, so that all tags of a family are different.
    """
    clean, group = _clean(name), _clean(family)
    base = default_name if clean is None else clean
    if base is None:
        raise errors.InvalidArgumentError("a summary requires a name, got None")
    if group is not None:
        base = f"{group}/{base}"
    with name_scope(base, values=[value]) as scope:
        tag = scope.rstrip("/")
        yield (tag if group is None else f"{group}/{tag}"), scope


def _clean(name: str | None) -> str | None:
    if name is None:
        return None
    clean = _NOT_IN_TAGS.sub("_", name).lstrip("/")
    if clean != name:
        _log.info("the summary name %r is not allowed; %r is used instead", name, clean)
    return clean
