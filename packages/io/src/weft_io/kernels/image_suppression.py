"""Kernels for non-maximum suppression of boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.common import widen_value
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]

_BLOCK: Final = 128
"""Number of boxes compared at a time."""


def _sides(boxes: Array) -> Array:
    """Return the corners of boxes in ascending order, and their areas: five rows."""
    y1, x1, y2, x2 = boxes.T
    top, bottom = np.minimum(y1, y2), np.maximum(y1, y2)
    left, right = np.minimum(x1, x2), np.maximum(x1, x2)
    return np.stack([top, left, bottom, right, (bottom - top) * (right - left)])


def _overlap(array: Array, other_boxes: Array) -> Array:
    """Return the intersection over union of boxes that broadcast; 0 for empty boxes."""
    top, left, bottom, right, area = other_boxes
    down = np.minimum(array[2], bottom) - np.maximum(array[0], top)
    overlap_width = np.minimum(array[3], right) - np.maximum(array[1], left)
    shared = np.maximum(down, 0) * np.maximum(overlap_width, 0)
    real = (area > 0) & (array[4] > 0)
    union = np.where(real, array[4] + area - shared, 1)
    result: Array = np.where(real, shared / union, 0)
    return result


def _best_first(scores: Array, score_threshold: float) -> Array:
    """Return the indices of boxes with scores over the threshold, best first, in stable order."""
    order = np.argsort(-scores, kind="stable")
    return order[scores[order] > score_threshold]


def _select(boxes: Array, scores: Array, limit: int, iou: float, score_threshold: float) -> Array:
    """Select the boxes that overlap no better box by more than `iou`.

    Boxes are processed in blocks; each block is compared with the selected boxes and with itself.
    Boxes after the last selected one are not processed.
    """
    order = _best_first(scores, score_threshold)
    sides = _sides(boxes)[:, order]
    selected: list[int] = []
    for start in range(0, len(order) if limit else 0, _BLOCK):
        block = sides[:, start : start + _BLOCK, None]
        array: Array = np.all(_overlap(block, sides[:, None, selected]) <= iou, axis=1)
        clash = _overlap(block, block.swapaxes(1, 2)) > iou
        for i in range(len(array)):
            if array[i]:
                selected.append(start + i)
                array &= ~clash[i]
                if len(selected) == limit:
                    return order[selected].astype(np.int32)
    return order[selected].astype(np.int32)


def _select_softly(
    boxes: Array, scores: Array, limit: int, score_threshold: float, sigma: float
) -> tuple[Array, Array]:
    """Select the best boxes, with scores reduced by the overlap with each better box (soft NMS)."""
    candidates = _best_first(scores, score_threshold)
    sides, scores = _sides(boxes)[:, candidates], scores[candidates].copy()
    selected: list[int] = []
    final: list[float] = []
    factor = -0.5 / sigma
    while len(candidates) and len(selected) < limit:
        index = int(np.argmax(scores))
        selected.append(int(candidates[index]))
        final.append(float(scores[index]))
        overlap = _overlap(sides[:, index], sides)
        scores = scores * np.exp(scores.dtype.type(factor) * overlap * overlap)
        keep = scores > score_threshold
        keep[index] = False
        candidates, sides, scores = candidates[keep], sides[:, keep], scores[keep]
    return np.array(selected, np.int32), np.array(final, scores.dtype)


def _check(boxes: Array, scores: Array, max_count: Any, iou: Any) -> tuple[int, float]:
    """Check the arguments; return the largest number of boxes, and the threshold."""
    if boxes.ndim != 2 or boxes.shape[1] != 4 or scores.shape != boxes.shape[:1]:
        raise errors.InvalidArgumentError(
            "boxes must have shape [n, 4] and scores [n], got shapes "
            f"{format_dims(boxes.shape)} and {format_dims(scores.shape)}"
        )
    return _limit(max_count), _threshold(iou)


def _limit(maximum: Any) -> int:
    limit = int(maximum)
    if limit < 0:
        raise errors.InvalidArgumentError(f"max_output_size must be at least 0, got {limit}")
    return limit


def _threshold(iou: Any) -> float:
    threshold = float(iou)
    if not 0 <= threshold <= 1:
        raise errors.InvalidArgumentError(f"iou_threshold must be from 0 to 1, got {threshold}")
    return threshold


@kernel(
    "NonMaxSuppression",
    "NonMaxSuppressionV2",
    "NonMaxSuppressionV3",
    "NonMaxSuppressionV4",
    heavy=True,
)
def _suppress(node: Node, device: Device) -> KernelFunction:
    fixed, pad = node.attrs.get("iou_threshold"), node.attrs.get("pad_to_max_output_size")
    has_count = len(node.outputs) == 2

    def run(
        boxes: Any, scores: Any, maximum: Any, iou: Any = None, score_threshold: Any = -np.inf
    ) -> Any:
        limit, threshold = _check(boxes, scores, maximum, fixed if iou is None else iou)
        wide = widen_value(boxes), widen_value(scores)
        selected = _select(*wide, limit, threshold, float(score_threshold))
        count = np.int32(len(selected))
        result = _pad(selected, limit) if pad else selected
        return (result, count) if has_count else result

    return run


def _pad(values: Array, count: int) -> Array:
    result = np.zeros(count, values.dtype)
    result[: len(values)] = values
    return result


@kernel("NonMaxSuppressionV5", heavy=True)
def _suppress_softly(node: Node, device: Device) -> KernelFunction:
    pad, dtype = node.attrs["pad_to_max_output_size"], node.outputs[1].dtype.numpy

    def run(
        boxes: Any, scores: Any, maximum: Any, iou: Any, score_threshold: Any, sigma: Any
    ) -> Any:
        limit, threshold = _check(boxes, scores, maximum, iou)
        softness = float(sigma)
        if softness < 0:
            raise errors.InvalidArgumentError(f"soft_nms_sigma must be at least 0, got {softness}")
        wide = widen_value(boxes), widen_value(scores)
        if softness:
            selected, final = _select_softly(*wide, limit, float(score_threshold), softness)
        else:
            selected = _select(*wide, limit, threshold, float(score_threshold))
            final = scores[selected]
        count = np.int32(len(selected))
        if pad:
            selected, final = _pad(selected, limit), _pad(final, limit)
        return selected, final.astype(dtype), count

    return run


@kernel("NonMaxSuppressionWithOverlaps", heavy=True)
def _suppress_overlaps(node: Node, device: Device) -> KernelFunction:
    def run(overlaps: Any, scores: Any, maximum: Any, threshold: Any, score_threshold: Any) -> Any:
        if overlaps.shape != (*scores.shape, *scores.shape) or scores.ndim != 1:
            raise errors.InvalidArgumentError(
                "overlaps must have shape [n, n] for scores of shape [n], got shapes "
                f"{format_dims(overlaps.shape)} and {format_dims(scores.shape)}"
            )
        limit, largest = _limit(maximum), float(threshold)
        candidates = _best_first(scores, float(score_threshold))
        selected: list[int] = []
        while len(candidates) and len(selected) < limit:
            best, candidates = int(candidates[0]), candidates[1:]
            selected.append(best)
            candidates = candidates[overlaps[candidates, best] <= largest]
        return np.array(selected, np.int32)

    return run


@kernel("CombinedNonMaxSuppression", heavy=True)
def _suppress_classes(node: Node, device: Device) -> KernelFunction:
    pad_per_class, clip = node.attrs["pad_per_class"], node.attrs["clip_boxes"]

    def run(
        boxes: Any, scores: Any, per_class: Any, total: Any, iou: Any, score_threshold: Any
    ) -> Any:
        item, limit, threshold = _limit(per_class), _limit(total), _threshold(iou)
        _check_classes(boxes, scores)
        batch, _, classes = scores.shape
        size = min(limit, item * classes) if pad_per_class else limit
        result = np.zeros((batch, size, 6), np.float32)
        counts = np.zeros(batch, np.int32)
        for i in range(batch):
            matches = _best_of_classes(
                boxes[i], scores[i], item, threshold, float(score_threshold)
            )[:size]
            result[i, : len(matches)] = matches
            counts[i] = len(matches)
        coordinates = np.clip(result[:, :, :4], 0, 1) if clip else result[:, :, :4].copy()
        return coordinates, result[:, :, 4].copy(), result[:, :, 5].copy(), counts

    return run


def _check_classes(boxes: Array, scores: Array) -> None:
    fits = boxes.ndim == 4 and scores.ndim == 3 and boxes.shape[:2] == scores.shape[:2]
    if not fits or boxes.shape[3] != 4 or boxes.shape[2] not in (1, scores.shape[2]):
        raise errors.InvalidArgumentError(
            "boxes [batch, n, 1 or classes, 4] and scores [batch, n, classes] are required, got "
            f"shapes {format_dims(boxes.shape)} and {format_dims(scores.shape)}"
        )


def _best_of_classes(
    boxes: Array, scores: Array, item: int, iou: float, score_threshold: float
) -> Array:
    """Return the selected boxes of all classes of one image, best first: box, score and class."""
    parts = []
    for number in range(scores.shape[1]):
        class_boxes = boxes[:, number if boxes.shape[1] > 1 else 0]
        score = scores[:, number]
        selected = _select(class_boxes, score, item, iou, score_threshold)
        rows = np.empty((len(selected), 6), np.float32)
        rows[:, :4], rows[:, 4], rows[:, 5] = class_boxes[selected], score[selected], number
        parts.append(rows)
    result = np.concatenate(parts) if parts else np.empty((0, 6), np.float32)
    return result[np.argsort(-result[:, 4], kind="stable")]
