"""Ops for non-maximum suppression: selection of boxes with limited overlap."""

from __future__ import annotations

__all__ = [
    "combined_non_max_suppression",
    "non_max_suppression",
    "non_max_suppression_overlaps",
    "non_max_suppression_padded",
    "non_max_suppression_with_scores",
]

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE
from weft_graph.ops.shape_rules import constant_array, merge_size, scalar_int, with_rank
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims

_LOWEST = float("-inf")

# ------------------------------------------------------------------------------ shape rules


def _check_inputs(node: NodeSpec) -> int | None:
    """Check boxes, scores and the scalar inputs after them.

    Returns: the maximum number of boxes to select, if it is known.
    """
    boxes, scores, maximum, *thresholds = node.inputs
    count, sides = with_rank(boxes.dims, 2, "boxes")
    (scored,) = with_rank(scores.dims, 1, "scores")
    merge_size(count, scored, "the numbers of boxes and of scores")
    if sides not in (4, None):
        raise errors.InvalidArgumentError(f"boxes must be [y1, x1, y2, x2], got {sides} numbers")
    for threshold in thresholds:
        with_rank(threshold.dims, 0, "a threshold")
    _check_threshold(thresholds[:1])
    limit = scalar_int(maximum, "max_output_size")
    if limit is not None and limit < 0:
        raise errors.InvalidArgumentError(f"max_output_size must be at least 0, got {limit}")
    return limit


def _check_threshold(thresholds: Sequence[Output]) -> None:
    for threshold in thresholds:
        constant = constant_array(threshold)
        if constant is not None and not 0 <= float(constant) <= 1:
            raise errors.InvalidArgumentError(f"iou_threshold must be from 0 to 1, got {constant}")


def _select(node: NodeSpec) -> Sequence[Dims]:
    _check_inputs(node)
    return ((None,),)


def _overlaps_shape(node: NodeSpec) -> Sequence[Dims]:
    boxes, scores, limit, *thresholds = node.inputs
    rows, columns = with_rank(boxes.dims, 2, "overlaps")
    (scored,) = with_rank(scores.dims, 1, "scores")
    merge_size(merge_size(rows, columns, "the sides of overlaps"), scored, "overlaps and scores")
    for threshold in thresholds:
        with_rank(threshold.dims, 0, "a threshold")
    scalar_int(limit, "max_output_size")
    return ((None,),)


def _padded_shape(node: NodeSpec) -> Sequence[Dims]:
    limit = _check_inputs(node)
    count = limit if node.attrs["pad_to_max_output_size"] else None
    return ((count,), ())


def _scored_shape(node: NodeSpec) -> Sequence[Dims]:
    selected, valid = _padded_shape(node)
    return (selected, selected, valid)


def _combine(node: NodeSpec) -> Sequence[Dims]:
    boxes, scores, per_class, total, *thresholds = node.inputs
    batch, count, groups, sides = with_rank(boxes.dims, 4, "boxes")
    scored = with_rank(scores.dims, 3, "scores")
    batch = merge_size(batch, scored[0], "the batch sizes of boxes and of scores")
    merge_size(count, scored[1], "the numbers of boxes and of scores")
    if sides not in (4, None):
        raise errors.InvalidArgumentError(f"boxes must be [y1, x1, y2, x2], got {sides} numbers")
    if groups not in (1, None) and scored[2] not in (groups, None):
        raise errors.InvalidArgumentError(
            f"boxes must be given once or for each of {scored[2]} classes, got {groups}"
        )
    for threshold in thresholds:
        with_rank(threshold.dims, 0, "a threshold")
    _check_threshold(thresholds[:1])
    limit = scalar_int(total, "max_total_size")
    item = scalar_int(per_class, "max_output_size_per_class")
    if node.attrs["pad_per_class"]:
        unknown = limit is None or item is None or scored[2] is None
        limit = None if unknown else min(limit or 0, (item or 0) * (scored[2] or 0))
    return ((batch, limit, 4), (batch, limit), (batch, limit), (batch,))


# ----------------------------------------------------------------------------- declarations

_TYPES = {"T": "{float16, float32} = float32", "T_threshold": "{float16, float32} = float32"}

register_op(
    "NonMaxSuppression",
    ("boxes: float32", "scores: float32", "max_output_size: int32"),
    ("selected_indices: int32",),
    {"iou_threshold": "float = 0.5"},
    _select,
    traits=NOT_DIFFERENTIABLE,
    doc="The boxes that overlap no better one too much.",
)
register_op(
    "NonMaxSuppressionV2",
    ("boxes: T", "scores: T", "max_output_size: int32", "iou_threshold: T_threshold"),
    ("selected_indices: int32",),
    _TYPES,
    _select,
    traits=NOT_DIFFERENTIABLE,
    doc="The boxes that overlap no better one too much.",
)
_SCORED = (
    "boxes: T",
    "scores: T",
    "max_output_size: int32",
    "iou_threshold: T_threshold",
    "score_threshold: T_threshold",
)
register_op(
    "NonMaxSuppressionV3",
    _SCORED,
    ("selected_indices: int32",),
    _TYPES,
    _select,
    traits=NOT_DIFFERENTIABLE,
    doc="The boxes above a score that overlap no better one too much.",
)
register_op(
    "NonMaxSuppressionV4",
    _SCORED,
    ("selected_indices: int32", "valid_outputs: int32"),
    {**_TYPES, "pad_to_max_output_size": "bool = false"},
    _padded_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The boxes above a score that overlap no better one too much, and how many they are.",
)
register_op(
    "NonMaxSuppressionV5",
    (
        "boxes: T",
        "scores: T",
        "max_output_size: int32",
        "iou_threshold: T",
        "score_threshold: T",
        "soft_nms_sigma: T",
    ),
    ("selected_indices: int32", "selected_scores: T", "valid_outputs: int32"),
    {"T": "{float16, float32} = float32", "pad_to_max_output_size": "bool = false"},
    _scored_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The boxes above a score, which overlaps with better ones lower.",
)
register_op(
    "NonMaxSuppressionWithOverlaps",
    (
        "overlaps: float32",
        "scores: float32",
        "max_output_size: int32",
        "overlap_threshold: float32",
        "score_threshold: float32",
    ),
    ("selected_indices: int32",),
    {},
    _overlaps_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The items above a score whose given overlap with no better one is too large.",
)
register_op(
    "CombinedNonMaxSuppression",
    (
        "boxes: float32",
        "scores: float32",
        "max_output_size_per_class: int32",
        "max_total_size: int32",
        "iou_threshold: float32",
        "score_threshold: float32",
    ),
    (
        "nmsed_boxes: float32",
        "nmsed_scores: float32",
        "nmsed_classes: float32",
        "valid_detections: int32",
    ),
    {"pad_per_class": "bool = false", "clip_boxes": "bool = true"},
    _combine,
    traits=NOT_DIFFERENTIABLE,
    doc="The best boxes of all classes, of each image of a batch.",
)

# -------------------------------------------------------------------------------- functions


class NonMaxSuppressionV4(NamedTuple):
    """The result of `non_max_suppression_padded`."""

    selected_indices: Output
    valid_outputs: Output


class NonMaxSuppressionV5(NamedTuple):
    """The result of `non_max_suppression_with_scores`."""

    selected_indices: Output
    selected_scores: Output


class CombinedNonMaxSuppression(NamedTuple):
    """The result of `combined_non_max_suppression`."""

    nmsed_boxes: Output
    nmsed_scores: Output
    nmsed_classes: Output
    valid_detections: Output


def non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = _LOWEST,
    name: str | None = None,
) -> Output:
    """Return the boxes that overlap no better box too much, best first.

    Args:
      boxes: float16 or float32, shape (n, 4): y1, x1, y2, x2 of two opposite corners.
      scores: dtype of `boxes`, shape (n,).
      max_output_size: int32, shape (): maximum number of boxes.
      iou_threshold: maximum intersection over union of two selected boxes, from 0 to 1.
      score_threshold: lower bound of scores, exclusive.
    Returns: int32, shape (m,): the indices of the boxes.
    Raises: InvalidArgumentError: shapes are incompatible, or the threshold is out of range.

    Examples:
      >>> boxes = [[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9], [5.0, 5.0, 6.0, 6.0]]
      >>> wf.Session().run(wf.image.non_max_suppression(boxes, [0.8, 0.9, 0.3], 3))
      array([1, 2], dtype=int32)
    """
    numbers = _thresholds(iou_threshold, score_threshold)
    inputs = [convert_to_tensor(boxes), scores, max_output_size, *numbers]
    return out("NonMaxSuppressionV3", inputs, None, name)


def _thresholds(*values: Any) -> list[Output]:
    return [convert_to_tensor(v, None if isinstance(v, Output) else dtypes.float32) for v in values]


def non_max_suppression_padded(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = _LOWEST,
    pad_to_max_output_size: bool = False,
    name: str | None = None,
) -> NonMaxSuppressionV4:
    """Run `non_max_suppression` and pad the result with zeros to a fixed number.

    Args:
      boxes, scores, max_output_size, iou_threshold, score_threshold: as for `non_max_suppression`.
      pad_to_max_output_size: return `max_output_size` indices.
    Returns: selected_indices: int32, shape (m,); valid_outputs: int32, shape (): the number of
      valid indices.
    Raises: InvalidArgumentError: shapes are incompatible, or the threshold is out of range.

    Examples:
      >>> boxes = [[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9]]
      >>> found = wf.image.non_max_suppression_padded(
      ...     boxes, [0.8, 0.9], 3, pad_to_max_output_size=True)
      >>> wf.Session().run(list(found))
      [array([1, 0, 0], dtype=int32), np.int32(1)]
    """
    numbers = _thresholds(iou_threshold, score_threshold)
    inputs = [convert_to_tensor(boxes), scores, max_output_size, *numbers]
    attrs = {"pad_to_max_output_size": pad_to_max_output_size}
    return NonMaxSuppressionV4(*create("NonMaxSuppressionV4", inputs, attrs, name).outputs)


def non_max_suppression_with_scores(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = _LOWEST,
    soft_nms_sigma: Any = 0.0,
    name: str | None = None,
) -> NonMaxSuppressionV5:
    """Run soft `non_max_suppression`: overlaps with better boxes lower scores (Bodla, 2017).

    Args:
      boxes, scores, max_output_size, iou_threshold, score_threshold: as for
        `non_max_suppression`.
      soft_nms_sigma: a box's score is multiplied by exp(-iou² / (2 sigma)) for each better box. For
        0, scores are unchanged and `iou_threshold` applies.
    Returns: selected_indices: int32, shape (m,); selected_scores: dtype of `scores`, shape (m,).
    Raises: InvalidArgumentError: shapes are incompatible, or the threshold is out of range.

    Examples:
      >>> boxes = [[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.0]]
      >>> indices, scores = wf.image.non_max_suppression_with_scores(
      ...     boxes, [0.8, 0.9], 3, 1.0, 0.0, soft_nms_sigma=0.5)
      >>> wf.Session().run(scores).round(3)
      array([0.9  , 0.623], dtype=float32)
    """
    value = convert_to_tensor(boxes)
    dtype = value.dtype.base_dtype
    numbers = [
        convert_to_tensor(number, dtype)
        for number in (iou_threshold, score_threshold, soft_nms_sigma)
    ]
    inputs = [value, scores, max_output_size, *numbers]
    attrs = {"pad_to_max_output_size": False}
    return NonMaxSuppressionV5(*create("NonMaxSuppressionV5", inputs, attrs, name).outputs[:2])


def non_max_suppression_overlaps(
    overlaps: Any,
    scores: Any,
    max_output_size: Any,
    overlap_threshold: Any = 0.5,
    score_threshold: Any = _LOWEST,
    name: str | None = None,
) -> Output:
    """Select boxes, as `non_max_suppression` does, by a matrix of overlaps.

    Args:
      overlaps: float32, shape (n, n).
      scores: float32, shape (n,).
      max_output_size, score_threshold: as for `non_max_suppression`.
      overlap_threshold: maximum overlap with a better box.
    Returns: int32, shape (m,).
    Raises: InvalidArgumentError: shapes are incompatible.

    Examples:
      >>> overlaps = [[1.0, 0.7], [0.7, 1.0]]
      >>> wf.Session().run(wf.image.non_max_suppression_overlaps(overlaps, [0.8, 0.9], 3))
      array([1], dtype=int32)
    """
    inputs = [overlaps, scores, max_output_size, overlap_threshold, score_threshold]
    return out("NonMaxSuppressionWithOverlaps", inputs, None, name)


def combined_non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_size_per_class: Any,
    max_total_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = _LOWEST,
    pad_per_class: bool = False,
    clip_boxes: bool = True,
    name: str | None = None,
) -> CombinedNonMaxSuppression:
    """Run `non_max_suppression` for each class of each image, and return the best boxes.

    Args:
      boxes: float32, shape (batch, n, classes, 4), or (batch, n, 1, 4) if all classes share the
        boxes.
      scores: float32, shape (batch, n, classes).
      max_output_size_per_class, max_total_size: int32, shape ().
      iou_threshold, score_threshold: as for `non_max_suppression`.
      pad_per_class: limit the result to the maximum over all classes.
      clip_boxes: clip coordinates to [0, 1].
    Returns: for each image the best boxes, shape (batch, m, 4), their scores and classes, float32,
      shape (batch, m), padded with zeros, and their number, int32, shape (batch,).
    Raises:
      InvalidArgumentError: shapes are incompatible, or the threshold is out of range.

    Examples:
      >>> boxes = [[[[0.0, 0.0, 0.5, 0.5]], [[0.0, 0.0, 0.5, 0.4]]]]
      >>> found = wf.image.combined_non_max_suppression(boxes, [[[0.8, 0.1], [0.9, 0.2]]], 1, 3)
      >>> wf.Session().run(found.nmsed_classes)
      array([[0., 1., 0.]], dtype=float32)
    """
    inputs = [boxes, scores, max_output_size_per_class, max_total_size]
    inputs += [iou_threshold, score_threshold]
    attrs = {"pad_per_class": pad_per_class, "clip_boxes": clip_boxes}
    result = create("CombinedNonMaxSuppression", inputs, attrs, name)
    return CombinedNonMaxSuppression(*result.outputs)
