"""Batches whose size varies share the code of compiled regions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_compiler.codegen.kernel import Kernel
from weft_compiler.native import cache, code_index


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the programs that LLVM is given."""
    found: list[str] = []
    write = Kernel.write

    def note(self: Any) -> None:
        found.append(self.program.name)
        write(self)

    monkeypatch.setattr(Kernel, "write", note)
    monkeypatch.setattr(cache, "directory", lambda: None)
    monkeypatch.setattr(code_index, "_here", {})
    return found


def trained(sizes: list[int], monkeypatch: pytest.MonkeyPatch, said: str) -> list[Any]:
    """Losses, accuracies and weights of a training step for each size."""
    monkeypatch.setenv("WEFT_JIT", said)
    rng = np.random.default_rng(0)
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float64, [None, 8])
        y = wf.placeholder(wf.int32, [None])
        w = wf.Variable(rng.normal(size=(8, 16)))
        v = wf.Variable(rng.normal(size=(16, 3)))
        h = wf.nn.dropout(wf.nn.relu(wf.matmul(x, w)), rate=0.25, seed=1)
        mean, variance = wf.nn.moments(h, [0])
        logits = wf.matmul((h - mean) * wf.rsqrt(variance + 0.1), v)
        losses = wf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
        loss = wf.reduce_mean(losses)
        right = wf.reduce_mean(
            wf.cast(wf.equal(wf.argmax(logits, 1, output_type=wf.int32), y), wf.float64)
        )
        step = wf.train.AdamOptimizer(0.01).minimize(loss)
        with wf.Session() as session:
            session.run(wf.global_variables_initializer())
            found: list[Any] = []
            for size in sizes:
                feeds = {x: rng.normal(size=(size, 8)), y: rng.integers(0, 3, size)}
                found += session.run([loss, right, logits, step], feeds)[:3]
            return [*found, *session.run([w, v])]


def test_a_training_step_is_compiled_for_two_sizes_at_most(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    two, many = [9, 12], [9, 12, 3, 40, 17, 2, 30, 5, 48, 25, 12, 11]
    trained(two, monkeypatch, "now")
    once = len(compiled)

    found = trained(many, monkeypatch, "now")

    assert once
    assert len(compiled) <= 2 * once
    for value, want in zip(found, trained(many, monkeypatch, "off"), strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-9, atol=1e-12)


def of_lengths(lengths: list[int], monkeypatch: pytest.MonkeyPatch, said: str) -> list[Any]:
    """Losses and weights of a recurrent layer and attention, for batches of sequences."""
    monkeypatch.setenv("WEFT_JIT", said)
    rng = np.random.default_rng(0)
    with wf.Graph().as_default():
        ids = wf.placeholder(wf.int32, [4, None])
        table = wf.Variable(rng.normal(size=(20, 8)))
        with wf.variable_scope("rnn", initializer=wf.constant_initializer(0.1)):
            cell = wf.nn.rnn_cell.LSTMCell(8, dtype=wf.float64)
            h, _ = wf.nn.dynamic_rnn(cell, wf.gather(table, ids), dtype=wf.float64)
        scores = wf.nn.softmax(wf.matmul(h, h, transpose_b=True) * 0.3)
        flat = wf.reshape(wf.matmul(scores, h), [-1, 8])
        logits = wf.reshape(wf.matmul(flat, table, transpose_b=True), [4, wf.shape(ids)[1], 20])
        losses = wf.nn.sparse_softmax_cross_entropy_with_logits(labels=ids, logits=logits)
        loss = wf.reduce_mean(losses)
        step = wf.train.GradientDescentOptimizer(0.5).minimize(loss)
        with wf.Session() as session:
            session.run(wf.global_variables_initializer())
            found: list[Any] = []
            for length in lengths:
                found += session.run([loss, logits, step], {ids: rng.integers(0, 20, (4, length))})[
                    :2
                ]
            return [*found, *session.run(wf.trainable_variables())]


def test_sequences_are_compiled_for_two_lengths_at_most(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    two, many = [9, 12], [9, 12, 5, 18, 7, 2, 30, 3, 12, 1]
    of_lengths(two, monkeypatch, "now")
    once = len(compiled)

    found = of_lengths(many[:-1], monkeypatch, "now")

    assert once
    assert len(compiled) <= 2 * once
    found = of_lengths(many, monkeypatch, "now")
    for value, want in zip(found, of_lengths(many, monkeypatch, "off"), strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-9, atol=1e-12)


def test_sizes_of_one_and_none_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [4, 1, 6, 1, 0, 5]
    found, wanted = (trained(sizes, monkeypatch, said) for said in ("now", "off"))
    for value, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-9, atol=1e-12)


def test_many_sizes_of_what_moves_elements(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reductions, scans, gathers, margins and the like, over and along the axis that varies."""
    x = wf.placeholder(wf.float64, [None, 6])
    rows = wf.placeholder(wf.int64, [None])
    y = wf.tanh(x)
    slope = wf.gradients(wf.reduce_sum(wf.square(wf.reduce_mean(y, 0))), x)[0]
    fetches = [
        wf.nn.softmax(y) + wf.reduce_sum(y, 0),
        wf.cumsum(y, 0) * 2.0,
        wf.cumsum(y, 1, reverse=True) * 2.0,
        wf.reduce_mean(wf.exp(y), keepdims=True),
        wf.gather(y, rows) - 1.0,
        wf.pad(y, [[1, 2], [0, 1]]) + 1.0,
        wf.concat([y, y * 2.0], 0) + 1.0,
        wf.concat([y, y * 2.0], 1) + 1.0,
        wf.reverse(y, [0]) * 3.0,
        wf.one_hot(rows, 4) * 2.0,
        wf.unsorted_segment_sum(y, rows, 3) + 1.0,
        wf.reduce_max(y, 0) - wf.reduce_min(y, 0),
        wf.convert_to_tensor(slope) * 1.5,
        wf.transpose(y) * 0.5,
        wf.cast(wf.argmax(y, 0), wf.float64) * 0.5,
    ]
    found: dict[str, list[Any]] = {}
    for said in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", said)
        rng = np.random.default_rng(3)
        with wf.Session() as session:
            found[said] = [
                session.run(
                    fetches, {x: rng.normal(size=(n, 6)), rows: rng.integers(0, min(n, 3), n)}
                )
                for n in (7, 4, 12, 2, 31, 1, 3)
            ]
    assert compiled
    for values, wanted in zip(found["now"], found["off"], strict=True):
        for value, want in zip(values, wanted, strict=True):
            np.testing.assert_allclose(value, want, rtol=1e-12, atol=1e-14)
