"""Block LSTMs of one unit, whose gates are columns side by side."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf

STEPS, BATCH, DEPTH = 3, 5, 2


def sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


@pytest.mark.parametrize(("op", "order"), [("BlockLSTM", "icfo"), ("BlockLSTMV2", "ifco")])
def test_a_layer_of_one_unit(op: str, order: str) -> None:
    random = np.random.default_rng(0)
    sizes: list[tuple[int, ...]] = [(STEPS, BATCH, DEPTH), (BATCH, 1), (BATCH, 1)]
    sizes += [(DEPTH + 1, 4), (4,)]
    x, h, c, w, b = (random.normal(size=size).astype(np.float32) for size in sizes)
    zero = np.zeros(1, np.float32)
    made = getattr(wf.raw_ops, op)(
        seq_len_max=wf.constant(STEPS, wf.int64), x=x, cs_prev=c, h_prev=h, w=w,
        wci=zero, wcf=zero, wco=zero, b=b, cell_clip=-1.0,
        **({"forget_bias": 0.0} if op == "BlockLSTM" else {}),
    )  # fmt: skip
    with wf.Session() as session:
        found = session.run(made.h)
    for row in range(BATCH):
        cell, state = c[row, 0], h[row, 0]
        for at in range(STEPS):
            gates = dict(zip(order, np.append(x[at, row], state) @ w + b, strict=True))
            cell = np.tanh(gates["c"]) * sigmoid(gates["i"]) + cell * sigmoid(gates["f"])
            state = np.tanh(cell) * sigmoid(gates["o"])
            np.testing.assert_allclose(found[at, row, 0], state, 1e-5)
