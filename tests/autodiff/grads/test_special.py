"""Gradients of special functions that end somewhere."""

from __future__ import annotations

import pytest

import weft as wf
from weft_tensor import errors


def test_the_second_derivative_of_igamma_is_refused() -> None:
    with wf.Graph().as_default():
        a = wf.constant(1.5)
        slope = wf.gradients(wf.igamma(a, 2.0), [a])[0]
        with pytest.raises(errors.UnimplementedError, match="derivative of igamma for a"):
            wf.gradients(slope, [a])
