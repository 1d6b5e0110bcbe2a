"""Suppression of boxes, one pair at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from weft_testing.cases import Array, Case, Raw, uniform

NARROW = ("float16", "float32")
COUNT = 14
CENTERS = np.round(uniform(0, 1, COUNT, 2) * 8) / 8
EXTENTS = np.round(uniform(0.1, 0.6, COUNT, 2) * 8) / 8
BOXES = np.concatenate([CENTERS - EXTENTS / 2, CENTERS + EXTENTS / 2], 1)
BOXES[3] = BOXES[3, [2, 3, 0, 1]]
BOXES[5, 2:] = BOXES[5, :2]
SCORES = np.round(uniform(0, 1, COUNT) * 16) / 16


def _iou(a: Array, b: Array) -> float:
    sides = []
    for box in (a, b):
        y, x = sorted(box[::2].tolist()), sorted(box[1::2].tolist())
        sides.append((*y, *x))
    (t, b1, l1, r1), (t2, b2, l2, r2) = sides
    one, two = (b1 - t) * (r1 - l1), (b2 - t2) * (r2 - l2)
    if one <= 0 or two <= 0:
        return 0.0
    shared = max(min(b1, b2) - max(t, t2), 0) * max(min(r1, r2) - max(l1, l2), 0)
    return float(shared / (one + two - shared))


def _select(
    boxes: Array, scores: Array, most: int, iou: float, above: float = -math.inf, sigma: float = 0
) -> tuple[Array, Array]:
    left = {i: float(score) for i, score in enumerate(scores) if score > above}
    chosen: list[int] = []
    final: list[float] = []
    while left and len(chosen) < most:
        best = max(left, key=lambda i: (left[i], -i))
        chosen.append(best)
        final.append(left.pop(best))
        for i in list(left):
            overlap = _iou(boxes[best], boxes[i])
            left[i] *= math.exp(-(overlap**2) / (2 * sigma)) if sigma else 1.0
            if (overlap > iou and not sigma) or left[i] <= above:
                del left[i]
    return np.array(chosen, np.int32), np.array(final)


def _padded(values: Array, count: int) -> Array:
    return np.concatenate([values, np.zeros(count - len(values), values.dtype)])


def _number(value: float, dtype: str = "float32") -> Raw:
    return Raw(np.array(value, dtype))


def _plain() -> list[Case]:
    most, iou, above = _number(9, "int32"), _number(0.3), _number(0.25)
    common: dict[str, Any] = {"dtypes": NARROW, "static": False}
    return [
        Case(
            "NonMaxSuppression",
            [Raw(BOXES.astype(np.float32)), Raw(SCORES.astype(np.float32)), most],
            {"iou_threshold": 0.3},
            lambda b, s, m: _select(b, s, m, 0.3)[0],
            dtypes=("",),
            static=False,
        ),
        Case(
            "NonMaxSuppressionV2",
            [BOXES, SCORES, most, iou],
            {},
            lambda *a: _select(*a)[0],
            **common,
        ),
        Case(
            "NonMaxSuppressionV3",
            [BOXES, SCORES, most, iou, above],
            {},
            lambda *a: _select(*a)[0],
            **common,
        ),
        Case(
            "NonMaxSuppressionV4",
            [BOXES, SCORES, most, iou, above],
            {"pad_to_max_output_size": True},
            lambda *a: (_padded(_select(*a)[0], 9), np.array(len(_select(*a)[0]))),
            **common,
        ),
    ]


def _soft() -> list[Case]:
    scores = uniform(0, 1, COUNT, seed=2)

    def scored(*a: Any) -> Any:
        chosen, final = _select(*a)
        return _padded(chosen, 9), _padded(final, 9), np.array(len(chosen))

    return [
        Case(
            "NonMaxSuppressionV5",
            [BOXES, scores, _number(9, "int32"), np.array(0.8), np.array(0.1), np.array(sigma)],
            {"pad_to_max_output_size": True},
            scored,
            dtypes=("float32",),
            label=f"{sigma}",
        )
        for sigma in (0.0, 0.4)
    ]


def _overlaps() -> list[Case]:
    overlaps = uniform(0, 1, COUNT, COUNT).astype(np.float32)

    def select(overlaps: Array, scores: Array, most: int, threshold: float, above: float) -> Array:
        chosen: list[int] = []
        for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
            fits = all(overlaps[i, j] <= threshold for j in chosen)
            if fits and scores[i] > above and len(chosen) < most:
                chosen.append(i)
        return np.array(chosen, np.int32)

    numbers = [_number(9, "int32"), _number(0.7), _number(0.2)]
    inputs = [Raw(overlaps), Raw(SCORES.astype(np.float32)), *numbers]
    return [Case("NonMaxSuppressionWithOverlaps", inputs, {}, select, dtypes=("",), static=False)]


def _combined() -> list[Case]:
    boxes = uniform(-0.1, 0.6, 2, 8, 3, 4).astype(np.float32) + np.float32([0, 0, 0.5, 0.5])
    scores = uniform(0, 1, 2, 8, 3).astype(np.float32)
    cases = []
    for groups, total, pad, clip in ((3, 7, False, True), (1, 20, True, False)):

        def best(
            boxes: Array, scores: Array, each: Any, total: Any, iou: Any, above: Any,
            groups: int = groups, pad: bool = pad, clip: bool = clip,
        ) -> Any:  # fmt: skip
            size = min(int(total), int(each) * 3) if pad else int(total)
            result, counts = np.zeros((2, size, 6)), []
            for n in range(2):
                found = []
                for c in range(3):
                    own = boxes[n, :, min(c, groups - 1)]
                    for i in _select(own, scores[n, :, c], each, iou, above)[0]:
                        found.append((*own[i], scores[n, i, c], c))
                found = sorted(found, key=lambda row: -row[4])[:size]
                result[n, : len(found)] = found
                counts.append(len(found))
            kept = np.clip(result[..., :4], 0, 1) if clip else result[..., :4]
            return kept, result[..., 4], result[..., 5], np.array(counts)

        cases.append(
            Case(
                "CombinedNonMaxSuppression",
                [
                    Raw(boxes[:, :, :groups], constant=False),
                    Raw(scores, constant=False),
                    *(_number(4, "int32"), _number(total, "int32")),
                    *(_number(0.3), _number(0.2)),
                ],
                {"pad_per_class": pad, "clip_boxes": clip},
                best,
                dtypes=("",),
                label=f"{groups}",
            )
        )
    return cases


CASES = [*_plain(), *_soft(), *_overlaps(), *_combined()]
