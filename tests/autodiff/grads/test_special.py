"""Gradients of special functions that end somewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_tensor import errors


def test_the_second_derivative_of_igamma_is_refused() -> None:
    with wf.Graph().as_default():
        a = wf.constant(1.5)
        slope = wf.gradients(wf.igamma(a, 2.0), [a])[0]
        with pytest.raises(
            errors.UnimplementedError, match="derivative of igamma with respect to a"
        ):
            wf.gradients(slope, [a])


@pytest.mark.parametrize(
    "function",
    [
        wf.sqrt,
        wf.rsqrt,
        wf.reciprocal,
        lambda x: wf.norm(wf.stack([x, wf.zeros_like(x)]), axis=0),
    ],
)
def test_what_a_choice_masks_away_has_no_gradient(function: Any) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.constant([0.0, 4.0], wf.float64)
        y = wf.where(x > 0, function(x), wf.zeros_like(x))
        slope = wf.gradients(y, [x])[0]
        curve = wf.gradients(slope, [x])[0]
        first, second = session.run([slope, curve])
    assert first[0] == 0 and first[1] != 0
    assert second[0] == 0 and np.isfinite(second[1])


@pytest.mark.parametrize(("op", "slope"), [(wf.abs, np.nan), (wf.sign, None)])
def test_nan_stays_nan(op: Any, slope: float | None) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.constant([np.nan, -2.0])
        y = op(x)
        assert np.isnan(session.run(y)[0])
        if slope is not None:
            np.testing.assert_equal(session.run(wf.gradients(y, [x])[0]), [np.nan, -1])
