"""Block LSTMs and block gated recurrent units against their formulas, step by step.

Gradients are those of two outputs alone, and are held against differences by
tests/autodiff/grads/test_block_rnn.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import FLOATS, Array, Case, Raw, normal

ORDER = {"LSTMBlockCell": "icfo", "BlockLSTM": "icfo", "BlockLSTMV2": "ifco"}
LOOSE = {"float16": (1e-2, 1e-2), "bfloat16": (6e-2, 6e-2), "float32": (2e-5, 2e-5)}
STEPS, BATCH, DEPTH, WIDTH = 4, 2, 3, 2


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _step(
    op: str, attrs: dict[str, Any], x: Array, cs: Array, h: Array, weights: tuple[Array, ...]
) -> tuple[Array, ...]:
    """i, cs, f, o, ci, co, h."""
    w, wci, wcf, wco, b = weights
    if not attrs["use_peephole"]:
        wci = wcf = wco = np.zeros_like(wci)
    columns = np.split(np.concatenate([x, h], 1) @ w + b, 4, axis=1)
    gates = dict(zip(ORDER[op], columns, strict=True))
    i, ci = _sigmoid(gates["i"] + wci * cs), np.tanh(gates["c"])
    f = _sigmoid(gates["f"] + attrs.get("forget_bias", 0) + wcf * cs)
    cs = ci * i + cs * f
    if attrs["cell_clip"] > 0:
        cs = np.clip(cs, -attrs["cell_clip"], attrs["cell_clip"])
    o, co = _sigmoid(gates["o"] + wco * cs), np.tanh(cs)
    return i, cs, f, o, ci, co, co * o


def _layer(op: str, attrs: dict[str, Any]) -> Any:
    def expected(count: Array, x: Array, cs: Array, h: Array, *weights: Array) -> Any:
        outputs = np.zeros((7, *x.shape[:2], h.shape[1]))
        for at in range(int(count)):
            outputs[:, at] = _step(op, attrs, x[at], cs, h, weights)
            cs, h = outputs[1, at], outputs[6, at]
        return tuple(outputs)

    return expected


def _cell_back(
    op: str, attrs: dict[str, Any], cs_prev: Array, weights: tuple[Array, ...], values: Any
) -> tuple[Array, dict[str, Array]]:
    """Return the gradients of the previous cell state and of the gates."""
    _, wci, wcf, wco, _ = weights
    i, _, f, o, ci, co, cs_grad, h_grad = values
    if not attrs["use_peephole"]:
        wci = wcf = wco = np.zeros_like(wci)
    to_o = h_grad * co * o * (1 - o)
    to_cs = cs_grad + h_grad * o * (1 - co**2) + to_o * wco
    gates = {
        "i": to_cs * ci * i * (1 - i),
        "c": to_cs * i * (1 - ci**2),
        "f": to_cs * cs_prev * f * (1 - f),
        "o": to_o,
    }
    return to_cs * f + gates["i"] * wci + gates["f"] * wcf, gates


def _peepholes(attrs: dict[str, Any], gates: Any, before: Array, cs: Array) -> list[Array]:
    if not attrs["use_peephole"]:
        return [np.zeros(cs.shape[-1])] * 3
    return [(gates[k] * v).sum(0) for k, v in (("i", before), ("f", before), ("o", cs))]


def _cell_grad(attrs: dict[str, Any]) -> Any:
    op = "LSTMBlockCell"

    def expected(x: Array, cs_prev: Array, h: Array, *rest: Array) -> Any:
        by_cs, gates = _cell_back(op, attrs, cs_prev, rest[:5], rest[5:])
        joined = np.concatenate([gates[k] for k in ORDER[op]], 1)
        return by_cs, joined, *_peepholes(attrs, gates, cs_prev, rest[6])

    return expected


def _layer_grad(op: str, attrs: dict[str, Any]) -> Any:
    def expected(count: Array, x: Array, cs_prev: Array, h_prev: Array, *rest: Array) -> Any:
        weights, values, (cs_grad, h_grad) = rest[:5], rest[5:12], rest[12:]
        w, depth = weights[0], x.shape[2]
        totals = [np.zeros_like(each) for each in weights]
        by_x, by_cs, by_h = np.zeros_like(x), np.zeros_like(cs_prev), np.zeros_like(h_prev)
        for at in reversed(range(int(count))):
            cs, h = (values[1][at - 1], values[6][at - 1]) if at else (cs_prev, h_prev)
            flowing = [cs_grad[at] + by_cs, h_grad[at] + by_h]
            now = [value[at] for value in values[:6]]
            by_cs, gates = _cell_back(op, attrs, cs, weights, [*now, *flowing])
            rows = np.concatenate([gates[k] for k in ORDER[op]], 1)
            by_x[at], by_h = np.split(rows @ w.T, [depth], axis=1)
            parts = [np.concatenate([x[at], h], 1).T @ rows]
            parts += [*_peepholes(attrs, gates, cs, now[1]), rows.sum(0)]
            totals = [total + part for total, part in zip(totals, parts, strict=True)]
        return by_x, by_cs, by_h, *totals

    return expected


def _lstm_inputs() -> list[Array]:
    vectors = [normal(WIDTH, seed=seed) for seed in (4, 5, 6)]
    weights = normal(DEPTH + WIDTH, 4 * WIDTH, seed=3)
    states = [normal(BATCH, WIDTH, seed=1), normal(BATCH, WIDTH, seed=2)]
    return [normal(STEPS, BATCH, DEPTH), *states, weights, *vectors, normal(4 * WIDTH, seed=7)]


def _case(op: str, inputs: list[Any], attrs: dict[str, Any], expected: Any, label: str) -> Case:
    return Case(
        op, inputs, attrs, expected, dtypes=FLOATS, grad=False, tolerance=LOOSE, label=label
    )


def _lstm(op: str, peephole: bool, clip: float, count: int = STEPS) -> list[Case]:
    attrs: dict[str, Any] = {"cell_clip": clip, "use_peephole": peephole}
    if op != "BlockLSTMV2":
        attrs["forget_bias"] = 0.5
    label = f"{'peephole' if peephole else 'plain'}-{clip}-{count}"
    backward = {"use_peephole": peephole}
    x, *rest = _lstm_inputs()
    if op == "LSTMBlockCell":
        one = [x[0], *rest]
        forward = _layer(op, attrs)
        wanted = [value[0] for value in forward(1, x, *rest)]
        slopes = [normal(BATCH, WIDTH, seed=8), normal(BATCH, WIDTH, seed=9)]

        def step(*given: Array) -> Any:
            return tuple(value[0] for value in forward(1, given[0][None], *given[1:]))

        return [
            _case(op, one, attrs, step, label),
            _case(f"{op}Grad", [*one, *wanted[:6], *slopes], backward, _cell_grad(attrs), label),
        ]
    steps = Raw(np.int64(count), constant=False)
    outputs = _layer(op, attrs)(count, x, *rest)
    slopes = [normal(STEPS, BATCH, WIDTH, seed=8), normal(STEPS, BATCH, WIDTH, seed=9)]
    given = [steps, x, *rest, *outputs, *slopes]
    name = op.replace("LSTM", "LSTMGrad")
    return [
        _case(op, [steps, x, *rest], attrs, _layer(op, attrs), label),
        _case(name, given, backward, _layer_grad(op, attrs), label),
    ]


def _gru(x: Array, h: Array, w_ru: Array, w_c: Array, b_ru: Array, b_c: Array) -> Any:
    r, u = np.split(_sigmoid(np.concatenate([x, h], 1) @ w_ru + b_ru), 2, axis=1)
    c = np.tanh(np.concatenate([x, h * r], 1) @ w_c + b_c)
    return r, u, c, (1 - u) * c + u * h


def _gru_grad(
    x: Array, h: Array, w_ru: Array, w_c: Array, b_ru: Array, b_c: Array,
    r: Array, u: Array, c: Array, grad: Array,
) -> Any:  # fmt: skip
    by_c = grad * (1 - u) * (1 - c**2)
    by_u = grad * (h - c) * u * (1 - u)
    to_x, to_reset = np.split(by_c @ w_c.T, [x.shape[1]], axis=1)
    gates = np.concatenate([to_reset * h * r * (1 - r), by_u], 1)
    x_part, h_part = np.split(gates @ w_ru.T, [x.shape[1]], axis=1)
    return to_x + x_part, grad * u + to_reset * r + h_part, by_c, gates


def _gru_cases() -> list[Case]:
    rows = DEPTH + WIDTH
    inputs = [normal(BATCH, DEPTH), normal(BATCH, WIDTH, seed=1)]
    inputs += [normal(rows, 2 * WIDTH, seed=2), normal(rows, WIDTH, seed=3)]
    inputs += [normal(2 * WIDTH, seed=4), normal(WIDTH, seed=5)]
    values = [*_gru(*inputs)[:3], normal(BATCH, WIDTH, seed=6)]
    return [
        _case("GRUBlockCell", inputs, {}, _gru, ""),
        _case("GRUBlockCellGrad", [*inputs, *values], {}, _gru_grad, ""),
    ]


CASES = [
    *[
        case
        for op in ORDER
        for peephole, clip in ((False, -1.0), (True, 0.4))
        for case in _lstm(op, peephole, clip)
    ],
    *_lstm("BlockLSTM", True, -1.0, STEPS - 2),
    *_lstm("BlockLSTMV2", False, 0.0, 0),
    *_gru_cases(),
]
