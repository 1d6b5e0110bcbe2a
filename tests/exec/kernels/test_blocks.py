"""Kernels that process blocks return the same as for each part alone."""

import numpy as np
import pytest

import weft as wf

RNG = np.random.default_rng(5)
ROWS, CHANNELS = 12_001, 3  # three blocks, the last one shorter
X = (RNG.standard_normal((ROWS, CHANNELS)) * 2).astype(np.float32)
LOW = np.array([-1, -0.5, -2], np.float32)
HIGH = np.array([1.5, 0.25, 3], np.float32)


def _run(*fetches):
    with wf.Session() as session:
        return session.run(list(fetches))


@pytest.fixture(autouse=True)
def _graph():
    with wf.Graph().as_default():
        yield


def test_fake_quantization_of_channels():
    whole = wf.raw_ops.FakeQuantWithMinMaxVarsPerChannel(inputs=X, min=LOW, max=HIGH)
    parts = [
        wf.raw_ops.FakeQuantWithMinMaxVars(inputs=X[:40, c], min=LOW[c], max=HIGH[c])
        for c in range(CHANNELS)
    ]
    ends = [
        wf.raw_ops.FakeQuantWithMinMaxVars(inputs=X[-40:, c], min=LOW[c], max=HIGH[c])
        for c in range(CHANNELS)
    ]
    found, *columns = _run(whole, *parts, *ends)
    np.testing.assert_array_equal(found[:40], np.stack(columns[:CHANNELS], 1))
    np.testing.assert_array_equal(found[-40:], np.stack(columns[CHANNELS:], 1))


def test_gradients_of_ends_are_sums_over_all_blocks():
    inside, below, above = _run(
        *wf.raw_ops.FakeQuantWithMinMaxVarsPerChannelGradient(
            gradients=np.ones_like(X), inputs=X, min=LOW, max=HIGH
        )
    )
    assert (inside.sum(0) + below + above).tolist() == [ROWS] * CHANNELS
    assert below.min() > 1000


@pytest.mark.parametrize("mode", ["MIN_COMBINED", "MIN_FIRST", "SCALED"])
def test_integers(mode):
    options = {"min_range": -1.0, "max_range": 1.5, "T": wf.qint8, "mode": mode}
    whole, *_ = wf.raw_ops.QuantizeV2(input=X, **options)
    last, *_ = wf.raw_ops.QuantizeV2(input=X[-40:], **options)
    found, alone = _run(whole, last)
    np.testing.assert_array_equal(found[-40:], alone)


def test_halves_are_rounded_away_from_zero():
    x = np.array([0.49999997, -0.49999997, 0.5, -0.5, 1.4999999, 1.5, 8388607.0], np.float32)
    found, _, _ = _run(
        *wf.raw_ops.QuantizeV2(
            input=x, min_range=-128.0, max_range=127.0, T=wf.qint8, mode="SCALED",
            round_mode="HALF_AWAY_FROM_ZERO",
        )
    )  # fmt: skip
    assert found.astype(int).tolist() == [0, 0, 1, -1, 1, 2, 127]


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("width", [1, 2, 7, 8])
def test_places_in_many_rows(right, width):
    keys = np.sort(RNG.integers(0, 9, (3000, width)), 1).astype(np.float32)
    values = RNG.integers(-1, 10, (3000, 5)).astype(np.float32)
    op = wf.raw_ops.UpperBound if right else wf.raw_ops.LowerBound
    (found,) = _run(op(sorted_inputs=keys, values=values))
    before = keys[:, None] <= values[..., None] if right else keys[:, None] < values[..., None]
    np.testing.assert_array_equal(found, before.sum(2))
