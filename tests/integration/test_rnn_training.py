"""Recurrent networks that learn: to add two marked numbers, and a sentence by heart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_graph.rnn.dynamic import dynamic_rnn, raw_rnn


@pytest.fixture(autouse=True)
def graph() -> Iterator[None]:
    with wf.Graph().as_default():
        wf.set_random_seed(7)
        yield


def additions(rng: np.random.RandomState, batch: int, steps: int) -> tuple[Any, Any, Any]:
    """Sequences of (number, mark), their lengths, and the sum of the two numbers marked."""
    numbers, marks = rng.rand(batch, steps), np.zeros((batch, steps))
    lengths = rng.randint(steps // 2, steps + 1, batch)
    for row, length in enumerate(lengths):
        marks[row, rng.choice(length, 2, replace=False)] = 1
    return np.stack([numbers, marks], 2), lengths, (numbers * marks).sum(1)


def test_a_gated_network_learns_to_add() -> None:
    x, lengths = wf.placeholder(wf.float32, [None, None, 2]), wf.placeholder(wf.int32, [None])
    wanted = wf.placeholder(wf.float32, [None])
    _, state = dynamic_rnn(wf.nn.rnn_cell.GRUCell(24), x, lengths, dtype=wf.float32)
    found = wf.squeeze(wf.layers.dense(state, 1), 1)
    loss = wf.reduce_mean(wf.squared_difference(found, wanted))
    optimizer = wf.train.AdamOptimizer(0.02)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    clipped, _ = wf.clip_by_global_norm(gradients, 1.0)
    train = optimizer.apply_gradients(zip(clipped, variables, strict=True))
    rng = np.random.RandomState(1)
    test = dict(zip((x, lengths, wanted), additions(rng, 200, 16), strict=True))
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        before = session.run(loss, test)
        for _ in range(150):
            batch = additions(rng, 64, rng.randint(6, 13))
            session.run(train, dict(zip((x, lengths, wanted), batch, strict=True)))
        after = session.run(loss, test)
    constant = test[wanted].var()
    assert before > constant / 2
    assert after < constant / 10


TEXT = "Row, row, row your boat, gently down. "
LETTERS = sorted(set(TEXT))


def test_a_stack_of_cells_learns_a_sentence_and_recites_it() -> None:
    codes = np.array([LETTERS.index(letter) for letter in TEXT])
    given = wf.placeholder(wf.int32, [None, None])
    cell = wf.nn.rnn_cell.MultiRNNCell([wf.nn.rnn_cell.BasicLSTMCell(48) for _ in range(2)])
    table = wf.get_variable("table", [len(LETTERS), 16])
    head = wf.get_variable("head", [48, len(LETTERS)])
    with wf.variable_scope("net"):
        rows = wf.nn.embedding_lookup(table, given[:, :-1])
        outputs, _ = dynamic_rnn(cell, rows, dtype=wf.float32)
    logits = wf.tensordot(outputs, head, [[2], [0]])
    losses = wf.nn.sparse_softmax_cross_entropy_with_logits(labels=given[:, 1:], logits=logits)
    train = wf.train.AdamOptimizer(0.02).minimize(wf.reduce_mean(losses))

    def recite(time: Any, output: Any, state: Any, letters: Any) -> Any:
        """Generate text from the first letter, always choosing the most likely next one."""
        if output is None:
            letter = wf.constant(codes[:1], wf.int32)
            state, letters = cell.zero_state(1, wf.float32), wf.fill([len(TEXT)], 0)
        else:
            letter = wf.argmax(wf.matmul(output, head), 1, output_type=wf.int32)
        here = wf.one_hot(time, len(TEXT), dtype=wf.int32)
        done = wf.fill([1], time >= len(TEXT) - 1)
        row = wf.nn.embedding_lookup(table, letter)
        return done, row, state, output, letters + here * letter

    with wf.variable_scope("net", reuse=True):
        _, _, spoken = raw_rnn(cell, recite)
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        for _ in range(80):
            session.run(train, {given: codes[None]})
        text = "".join(LETTERS[code] for code in session.run(spoken))
    assert text == TEXT
