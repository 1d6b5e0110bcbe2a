"""Train an LSTM on English text by truncated backpropagation, sample from it, and run it in int8.

The text is the manual that ships with Python. The state of the cells is carried from batch to batch
in the graph, and from call to call on the device.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from journey import Answers, Feeds, Journey, Serving, Training, main
from journey.text import Text, load_text, perplexity, sample_text

import weft as wf

BATCH = 32
NUM_STEPS = 32
"""Characters through which the gradient flows."""
WIDTH = 128
NUM_LAYERS = 2
NUM_QUESTIONS = 500
PROMPT = "The "
NUM_SAMPLED = 200
"""Characters of the sampled text."""


def network(tokens: wf.Tensor, state: Any, num_characters: int) -> tuple[wf.Tensor, Any]:
    """Return logits, (batch, time, characters), and the state after the last step."""
    embedding = wf.get_variable("embedding", [num_characters, 64])
    cells = [wf.nn.rnn_cell.BasicLSTMCell(WIDTH) for _ in range(NUM_LAYERS)]
    outputs, state = wf.nn.dynamic_rnn(
        wf.nn.rnn_cell.MultiRNNCell(cells),
        wf.nn.embedding_lookup(embedding, tokens),
        initial_state=state,
    )
    return wf.layers.dense(outputs, num_characters, name="logits"), state


class Language(Journey):
    """A character model of two LSTM layers."""

    name = "language"
    steps, short_steps = 3000, 45
    metric = "perplexity"
    goal, short_goal = 4.5, 35.0
    is_better_high = False
    jobs: ClassVar = {"ps": 1, "worker": 2}

    @cached_property
    def text(self) -> Text:
        """The text; the short form has less of it."""
        return load_text(100_000 if self.is_short else 400_000)

    def training(self) -> Training:
        """Feed consecutive pieces of the text; variables carry the state between them."""
        tokens = wf.placeholder(wf.int32, [BATCH, NUM_STEPS + 1])
        carried = [
            [
                wf.get_variable(f"carried_{name}{i}", [BATCH, WIDTH], trainable=False,
                                initializer=wf.zeros_initializer())
                for name in "ch"
            ]
            for i in range(NUM_LAYERS)
        ]  # fmt: skip

        def replica(tokens: wf.Tensor, *values: wf.Tensor) -> list[wf.Tensor]:
            pairs = zip(values[::2], values[1::2], strict=True)
            begin = tuple(wf.nn.rnn_cell.LSTMStateTuple(*pair) for pair in pairs)
            logits, end = network(tokens[:, :-1], begin, self.text.num_characters)
            loss = wf.losses.sparse_softmax_cross_entropy(tokens[:, 1:], logits)
            return [loss, *(value for pair in end for value in pair)]

        flat = [variable for pair in carried for variable in pair]
        loss, *end = self.replicas.apply(replica, tokens, *map(wf.identity, flat))
        variables = wf.trainable_variables()
        gradients = wf.gradients(loss, variables, colocate_gradients_with_ops=True)
        gradients, _ = wf.clip_by_global_norm(gradients, 5.0)
        step = wf.train.get_or_create_global_step()
        rate = wf.train.cosine_decay(4e-3, step, self.num_steps)
        pairs = zip(gradients, variables, strict=True)
        with wf.control_dependencies([loss]):
            saves = [variable.assign(value) for variable, value in zip(flat, end, strict=True)]
        with wf.control_dependencies(saves):
            train = wf.train.AdamOptimizer(rate).apply_gradients(pairs, global_step=step)
        return Training(train, loss, lambda _: self._feeds(tokens))

    def _feeds(self, tokens: wf.Tensor) -> Iterator[Mapping[wf.Tensor, Any]]:
        rows = self.text.training
        rows = rows[: len(rows) // BATCH * BATCH].reshape(BATCH, -1)
        while True:
            for start in range(0, rows.shape[1] - NUM_STEPS, NUM_STEPS):
                yield {tokens: rows[:, start : start + NUM_STEPS + 1]}

    def serving(self) -> Serving:
        """Return the logits of the next character; the state goes in and out."""
        token = wf.placeholder(wf.int32, [1, 1], name="token")
        state = [
            [wf.placeholder(wf.float32, [1, WIDTH], name=f"{name}{i}") for name in "ch"]
            for i in range(NUM_LAYERS)
        ]
        begin = tuple(wf.nn.rnn_cell.LSTMStateTuple(*pair) for pair in state)
        logits, end = network(token, begin, self.text.num_characters)
        outputs = {"scores": wf.identity(logits, name="scores")}
        for i, pair in enumerate(end):
            for name, value in zip("ch", pair, strict=True):
                outputs[f"{name}{i}_out"] = wf.identity(value, name=f"{name}{i}_out")
        inputs = [token, *(tensor for pair in state for tensor in pair)]
        fed_back = {tensor.op.name: f"{tensor.op.name}_out" for tensor in inputs[1:]}
        return Serving(inputs, outputs, state=fed_back)

    def report(self, serving: Serving, session: wf.Session) -> str:
        """Return a text that continues the prompt."""
        token, *carried = serving.inputs
        state = {tensor: np.zeros([1, WIDTH], np.float32) for tensor in carried}

        def next_logits(number: int) -> np.ndarray:
            values = session.run(dict(serving.outputs), {token: [[number]], **state})
            state.update((tensor, values[serving.state[tensor.op.name]]) for tensor in carried)
            return values["scores"][0, 0]

        return f"a sample:\n{sample_text(next_logits, self.text, PROMPT, NUM_SAMPLED)}"

    def calibration(self) -> Sequence[Feeds]:
        """Return the beginning of the training text."""
        return [{"token": token.reshape(1, 1)} for token in self.text.training[:200]]

    def questions(self) -> Sequence[Feeds]:
        """Return the beginning of the held-out text."""
        return [{"token": token.reshape(1, 1)} for token in self.text.held_out[:NUM_QUESTIONS]]

    def score(self, answers: Answers) -> float:
        """Return the perplexity of the held-out text."""
        logits = np.concatenate([answer[0] for answer in answers])
        return perplexity(logits[:-1], self.text.held_out[1 : len(logits)])


if __name__ == "__main__":
    sys.exit(main(Language))
