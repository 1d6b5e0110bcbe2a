"""CTC losses with dense labels and another blank, their gradients, and a narrow beam."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.cases import normal

import weft as wf

LABELS = np.array([[3, 1, 3, 0], [1, 1, 2, 2]], np.int32)
COUNTS, LENGTHS = [3, 2], np.array([6, 5], np.int32)
LOGITS = normal(6, 2, 4)


def _sparse_labels() -> wf.SparseTensor:
    return wf.SparseTensor([[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]], [2, 0, 2, 0, 0], [2, 3])


def test_dense_labels_and_blanks_agree_with_sparse_ones() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        logits = wf.constant(LOGITS)
        last = wf.concat([logits[..., 1:], logits[..., :1]], 2)
        wanted = wf.nn.ctc_loss(_sparse_labels(), last, LENGTHS)
        batch_major = wf.transpose(logits, [1, 0, 2])
        losses = [
            wf.nn.ctc_loss_v2(LABELS, logits, COUNTS, LENGTHS),
            wf.nn.ctc_loss_v2(LABELS, batch_major, COUNTS, LENGTHS, logits_time_major=False),
            wf.nn.ctc_loss_v2(LABELS - 1, last, COUNTS, LENGTHS, blank_index=-1),
            wf.nn.ctc_loss_v2(_sparse_labels(), last, None, LENGTHS, blank_index=3),
        ]
        slopes = [wf.gradients(loss, logits)[0] for loss in [wanted, *losses]]
        first, *others = session.run([wanted, *losses])
        by_first, *by_others = session.run(slopes)
    for found, slope in zip(others, by_others, strict=True):
        np.testing.assert_allclose(found, first, rtol=1e-12)
        np.testing.assert_allclose(slope, by_first, rtol=1e-9, atol=1e-12)


def test_gradient_against_differences_and_of_half_precision() -> None:
    direction = normal(*LOGITS.shape, seed=3)
    with wf.Graph().as_default(), wf.Session() as session:
        step = wf.placeholder(wf.float64, [])
        loss = wf.reduce_sum(
            wf.nn.ctc_loss_v2(LABELS, LOGITS + step * direction, COUNTS, LENGTHS) * [1.0, 2.0]
        )
        (slope,) = wf.gradients(loss, step)
        found = session.run(slope, {step: 0.0})
        ends = [session.run(loss, {step: h}) for h in (1e-5, -1e-5)]
        half = wf.nn.ctc_loss_v2(LABELS, wf.cast(LOGITS, wf.float16), COUNTS, LENGTHS)
        assert half.dtype is wf.float16
        with pytest.raises(LookupError, match="is not differentiable"):
            wf.gradients(slope, step)
    assert found == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)


def test_labels_that_cannot_be_written() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        logits = wf.zeros([2, 1, 3])
        equal = wf.SparseTensor([[0, 0], [0, 1]], [1, 1], [1, 2])
        assert session.run(wf.nn.ctc_loss(equal, logits, [2])) == [np.inf]
        with pytest.raises(wf.errors.InvalidArgumentError, match=r"of 2 or more .* sequence 0"):
            session.run(wf.nn.ctc_loss(equal, logits, [1]))
        with pytest.raises(wf.errors.InvalidArgumentError, match="from 0 to max_time 2"):
            session.run(wf.nn.ctc_loss(equal, logits, [3]))
        odd = wf.SparseTensor([[0, 0], [0, 1]], [2, 1], [1, 2])
        with pytest.raises(wf.errors.InvalidArgumentError, match="got 2 before 1 in sequence 0"):
            session.run(wf.nn.ctc_loss(odd, logits, [2]))


@pytest.mark.parametrize("classes", [3, 40])
def test_a_beam_that_is_wide_enough_finds_what_a_wider_one_does(classes: int) -> None:
    """With many classes only the likely ones are tried for each prefix."""
    logits = 3 * normal(12, 3, classes)
    with wf.Graph().as_default(), wf.Session() as session:

        def best(width: int) -> Any:
            (found,), score = wf.nn.ctc_beam_search_decoder_v2(logits, [12, 9, 1], width)
            return session.run([found.values, score])

        narrow, wide = best(12), best(400)
    np.testing.assert_array_equal(narrow[0], wide[0])
    assert (narrow[1] <= wide[1] + 1e-12).all()
    np.testing.assert_allclose(narrow[1], wide[1], atol=0.3)


def test_steps_after_the_longest_sequence_are_not_looked_at() -> None:
    behind = np.full((3, 2, 4), np.nan)
    with wf.Graph().as_default(), wf.Session() as session:
        found = []
        for logits in (wf.constant(LOGITS), wf.constant(np.concatenate([LOGITS, behind]))):
            loss = wf.nn.ctc_loss(_sparse_labels(), logits, LENGTHS)
            (greedy,), low = wf.nn.ctc_greedy_decoder(logits, LENGTHS)
            (beam,), high = wf.nn.ctc_beam_search_decoder(logits, LENGTHS, beam_width=5)
            slope = wf.gradients(loss, logits)[0]
            found.append([loss, slope[:6], greedy.values, low, beam.values, high])
            behind_last = slope[6:]
        short, long, nothing = session.run([*found, behind_last])
    for first, second in zip(short, long, strict=True):
        np.testing.assert_array_equal(first, second)
    assert not nothing.any()
