"""Connectionist temporal classification against sums over all paths, one by one."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import groupby, product
from typing import Any

import numpy as np
from weft_testing.cases import WIDE_FLOATS, Array, Case, Raw, normal

LOGITS = normal(4, 3, 3)
LENGTHS = np.array([4, 2, 3], np.int32)
LABELS: list[list[int]] = [[0, 1], [1], [1, 1]]


def _entries(labels: list[list[int]]) -> tuple[Raw, Raw]:
    places = [(b, i) for b, row in enumerate(labels) for i in range(len(row))]
    values = [label for row in labels for label in row]
    indices = np.array(places, np.int64).reshape(-1, 2)
    return Raw(indices, constant=False), Raw(np.array(values, np.int32), constant=False)


def _log_softmax(x: Array) -> Array:
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


def _written(x: Array, length: int, blank: int, merge: bool) -> dict[tuple[int, ...], float]:
    """The probability of each sequence of labels, x being the logits of one sequence."""
    chance = np.exp(_log_softmax(x[:length]))
    found: dict[tuple[int, ...], float] = defaultdict(float)
    for path in product(range(x.shape[1]), repeat=length):
        seen = [label for label, _ in groupby(path)] if merge else list(path)
        labels = tuple(label for label in seen if label != blank)
        found[labels] += float(np.prod([chance[t, label] for t, label in enumerate(path)]))
    return found


def _loss(
    x: Array, *_: Any, labels: list[list[int]], lengths: Any = LENGTHS, merge: bool = True,
    collapse: bool = False, blank: int = 2,
) -> tuple[Array, Array]:  # fmt: skip
    """The loss, and its gradient by differences."""

    def losses(x: Array) -> Array:
        result = np.zeros(len(labels))
        for b, row in enumerate(labels):
            wanted = [label for label, _ in groupby(row)] if collapse else row
            if lengths[b] and len(wanted) <= lengths[b]:
                found = _written(x[:, b], int(lengths[b]), blank, merge)
                result[b] = -np.log(found[tuple(wanted)])
        return result

    grad = np.zeros(x.shape)
    step = 1e-5
    for t, c in product(range(x.shape[0]), range(x.shape[2])):
        moved = np.zeros(x.shape)
        moved[t, :, c] = step
        grad[t, :, c] = (losses(x + moved) - losses(x - moved)) / (2 * step)
    return losses(x), grad


def _rows(found: list[list[int]]) -> tuple[Array, Array, Array]:
    indices = [(b, i) for b, row in enumerate(found) for i in range(len(row))]
    values = np.array([label for row in found for label in row], np.int64)
    size = np.array([len(found), max(map(len, found), default=0)])
    return np.array(indices, np.int64).reshape(-1, 2), values, size


def _greedy(x: Array, lengths: Array, merge: bool, blank: int) -> tuple[Any, ...]:
    found, score = [], []
    for b, length in enumerate(lengths):
        best = x[:length, b].argmax(-1).tolist()
        seen = [label for label, _ in groupby(best)] if merge else best
        found.append([label for label in seen if label != blank])
        score.append([-x[:length, b].max(-1).sum()])
    return (*_rows(found), np.array(score))


def _best(x: Array, lengths: Array, paths: int, merge: bool) -> tuple[Any, ...]:
    ranked = []
    for b, length in enumerate(lengths):
        found = _written(x[:, b], int(length), x.shape[2] - 1, True)
        ranked.append(sorted(found.items(), key=lambda item: -item[1])[:paths])
    tables = []
    for p in range(paths):
        rows = [list(found[p][0]) for found in ranked]
        tables.append(_rows([[k for k, _ in groupby(row)] if merge else row for row in rows]))
    score = np.log([[chance for _, chance in found] for found in ranked])
    return (*[table[i] for i in range(3) for table in tables], score)


FED = Raw(LENGTHS, constant=False)
NEAR = {"float32": (1e-4, 1e-4), "float64": (1e-6, 1e-8)}


def _case(op: str, labels: list[list[int]], label: str = "", **options: Any) -> Case:
    attrs = {"ctc_merge_repeated": options.get("merge", True)}
    if "collapse" in options:
        attrs["preprocess_collapse_repeated"] = True
    attrs |= options.pop("attrs", {})
    lengths = options.get("lengths", LENGTHS)
    return Case(
        op,
        [LOGITS, *_entries(labels), Raw(lengths, constant=False)],
        attrs,
        partial(_loss, labels=labels, **options),
        dtypes=WIDE_FLOATS if op == "CTCLoss" else ("float32",),
        type_attr="T" if op == "CTCLoss" else "",
        grad=False,  # the second output has none, and no gradient has a gradient
        tolerance=NEAR,
        label=label,
    )


CASES = [
    _case("CTCLoss", LABELS),
    _case("CTCLoss", [[], [0, 1], []], "empty", lengths=np.array([3, 2, 0], np.int32)),
    _case("CTCLoss", LABELS, "unmerged", merge=False),
    _case("CTCLoss", [[0, 0, 1, 1], [1, 1, 1], [0]], "collapsed", collapse=True),
    _case(
        "CTCLoss",
        [[0, 1], [0, 1, 0], [1]],
        "ignored",
        attrs={"ignore_longer_outputs_than_inputs": True},
    ),
    _case("CTCLossV2", [[1, 2], [2], [1, 1]], blank=0),
    *[
        Case(
            "CTCGreedyDecoder",
            [normal(6, 4, 3, seed=4), Raw(np.array([6, 4, 0, 5], np.int32), constant=False)],
            {"merge_repeated": merge, "blank_index": blank},
            partial(_greedy, merge=merge, blank=blank % 3),
            dtypes=WIDE_FLOATS,
            static=False,
            label=f"{merge}{blank}",
        )
        for merge, blank in ((True, -1), (False, -1), (True, 1))
    ],
    *[
        Case(
            "CTCBeamSearchDecoder",
            [LOGITS, FED],
            {"beam_width": 40, "top_paths": 3, "merge_repeated": merge},
            partial(_best, paths=3, merge=merge),
            dtypes=WIDE_FLOATS,
            static=False,
            tolerance=NEAR,
            label=str(merge),
        )
        for merge in (True, False)
    ],
]
