"""Gradients of simulated quantization with respect to each input, and of second order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf

X = np.array([[-4.0, -0.5, 0.0], [0.7, 1.9, 5.0]], np.float32)
SLOPE = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)
INSIDE = np.array([[0, 1, 1], [1, 1, 0]], np.float32)
LOW, HIGH = -1.0, 2.0


def _args(x: Any, low: Any, high: Any) -> Any:
    return wf.quantization.fake_quant_with_min_max_args(x, LOW, HIGH, 16)


def _vars(x: Any, low: Any, high: Any) -> Any:
    return wf.quantization.fake_quant_with_min_max_vars(x, low[0], high[0], 16)


def _per_channel(x: Any, low: Any, high: Any) -> Any:
    return wf.quantization.fake_quant_with_min_max_vars_per_channel(x, low, high, 16)


def _clipped(x: Any, low: Any, high: Any) -> Any:
    return wf.quantization.quantize_and_dequantize_v2(x, LOW, HIGH, range_given=True)


@pytest.mark.parametrize("quantized", [_args, _vars, _per_channel, _clipped])
def test_gradients_of_what_is_inside(quantized: Any) -> None:
    """The gradient is linear in the incoming gradient, so its adjoint is its transpose."""
    with wf.Graph().as_default(), wf.Session() as session:
        x, low, high = wf.constant(X), wf.fill([3], LOW), wf.fill([3], HIGH)
        slope = wf.constant(SLOPE)
        found = wf.gradients(quantized(x, low, high), [x, low, high], slope)
        by_x, *by_ends = session.run([g for g in found if g is not None])
        np.testing.assert_array_equal(by_x, SLOPE * INSIDE)
        if by_ends:
            assert by_ends[0].sum() == 1 and by_ends[1].sum() == 6
        seeds = [wf.random_normal(g.shape, seed=i) for i, g in enumerate(found) if g is not None]
        there = [g for g in found if g is not None]
        (back,) = wf.gradients(there, [slope], seeds)
        forward = wf.add_n([wf.reduce_sum(g * s) for g, s in zip(there, seeds, strict=True)])
        left, right = session.run([forward, wf.reduce_sum(back * slope)])
        assert left == pytest.approx(right, rel=1e-5)


@pytest.mark.parametrize("quantize", ["quantize_and_dequantize"])
def test_rounding_passes_all_gradients_on(quantize: str) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.constant(X)
        y = getattr(wf.quantization, quantize)(x, LOW, HIGH, range_given=True)
        (found,) = wf.gradients(y, [x], wf.constant(SLOPE))
        np.testing.assert_array_equal(session.run(found), SLOPE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda x: wf.quantization.fake_quant_with_min_max_args(x, 2.0, 1.0),
            "min < max, got 2.0 and 1.0",
        ),
        (
            lambda x: wf.quantization.fake_quant_with_min_max_vars(x, 0.0, 1.0, num_bits=17),
            "from 2 to 16, got 17",
        ),
        (
            lambda x: wf.quantization.fake_quant_with_min_max_vars_per_channel(x, [0.0], [1.0]),
            "channels and size of min",
        ),
        (
            lambda x: wf.quantization.quantize(x, 0.0, 1.0, wf.quint8, round_mode="HALF_TO_EVEN"),
            "requires mode 'SCALED'",
        ),
        (lambda x: wf.quantization.quantize(x, [0.0], [1.0], wf.quint8, axis=0), "axis 0"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with wf.Graph().as_default(), pytest.raises(wf.errors.InvalidArgumentError, match=message):
        make(wf.constant(X))
