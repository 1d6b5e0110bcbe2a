"""Train word vectors by skip-gram with noise-contrastive estimation or a sampled softmax.

The text is the manual that ships with Python. The tables of vectors are partitioned; in a cluster
each of two parameter servers has a half, and receives only the rows that a step changes.

The reference result is that of a factorization of the words' pointwise mutual information (Levy and
Goldberg 2014): from the same pairs, vectors of 64 numbers reach an AUC of 0.674, and the smoothed
counts themselves 0.711.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from journey import Answers, Feeds, Journey, Serving, Training, main
from journey.text import Words, load_words

import weft as wf

BATCH = 512
WIDTH = 64
WINDOW = 3
"""Largest distance of a context word."""
NUM_SAMPLED = 64
SUBSAMPLING = 2e-3
"""Words that are more frequent than this are skipped at random (Mikolov et al. 2013)."""
SHUFFLE = 4096
"""Pairs of the shuffle buffer, which is a part of each checkpoint; all pairs are permuted once."""
NUM_QUESTIONS, NUM_SHORT_QUESTIONS = 5000, 1000
PROBES = ("string", "list", "integer", "exception", "import", "class")
"""Words whose neighbors are printed."""


class Tables(NamedTuple):
    """Partitioned variables: vectors of words and of contexts, and the biases of contexts."""

    words: Any
    contexts: Any
    biases: Any


def make_tables(num_words: int) -> Tables:
    """Return the variables, each in two parts."""
    partitioner = wf.fixed_size_partitioner(2)
    with wf.variable_scope("skip_gram", reuse=wf.AUTO_REUSE, partitioner=partitioner):
        uniform = wf.random_uniform_initializer(-0.2, 0.2)
        zeros = wf.zeros_initializer()
        equal = wf.constant_initializer(-np.log(num_words))  # all contexts are equally probable
        return Tables(
            wf.get_variable("words", [num_words, WIDTH], initializer=uniform),
            wf.get_variable("contexts", [num_words, WIDTH], initializer=zeros),
            wf.get_variable("biases", [num_words], initializer=equal),
        )


def draw_pairs(words: np.ndarray, seed: int) -> np.ndarray:
    """Return words and words near them, int32 (n, 2), without many of the frequent words."""
    rng = np.random.default_rng(seed)
    share = np.bincount(words)[words] / len(words)
    kept = words[rng.random(len(words)) < np.sqrt(SUBSAMPLING / share)]
    shifts = [np.stack([kept[:-d], kept[d:]], 1) for d in range(1, WINDOW + 1)]
    pairs = np.concatenate(shifts)
    return np.concatenate([pairs, pairs[:, ::-1]])


class Word2Vec(Journey):
    """Skip-gram."""

    name = "word2vec"
    steps, short_steps = 3000, 200
    metric = "AUC"
    goal, short_goal = 0.67, 0.54
    variants = ("nce", "softmax")
    jobs: ClassVar = {"ps": 2, "worker": 2}

    @cached_property
    def words(self) -> Words:
        """The text; the short form has less of it."""
        return load_words(size=100_000 if self.is_short else 1_000_000)

    def training(self) -> Training:
        """Read shuffled pairs; the negative samples of a step are those of all replicas."""
        pairs, num_words = draw_pairs(self.words.training, self.seed), len(self.words.words)
        pairs = np.random.default_rng(self.seed).permutation(pairs)
        dataset = wf.data.Dataset.from_tensor_slices(pairs).shuffle(SHUFFLE, seed=self.seed)
        batch = dataset.repeat().batch(BATCH, drop_remainder=True).prefetch(2)
        batch = batch.make_one_shot_iterator().get_next()
        labels = wf.cast(batch[:, 1:], wf.int64)
        sampled, expected, expected_sampled = wf.nn.log_uniform_candidate_sampler(
            labels, 1, NUM_SAMPLED, True, num_words
        )
        function = {"nce": wf.nn.nce_loss, "softmax": wf.nn.sampled_softmax_loss}[self.variant]

        def loss_of(words: wf.Tensor, labels: wf.Tensor, expected: wf.Tensor) -> list[wf.Tensor]:
            tables = make_tables(num_words)
            losses = function(
                tables.contexts,
                tables.biases,
                labels,
                wf.nn.embedding_lookup(tables.words, words, partition_strategy="div"),
                NUM_SAMPLED,
                num_words,
                sampled_values=(sampled, expected, expected_sampled),
                partition_strategy="div",
            )
            return [wf.reduce_mean(losses)]

        (loss,) = self.replicas.apply(loss_of, batch[:, 0], labels, expected)
        step = wf.train.get_or_create_global_step()
        optimizer = wf.train.AdagradOptimizer(wf.train.polynomial_decay(0.2, step, self.num_steps))
        total = loss * BATCH  # a row has the gradients of its own pairs, whatever the batch
        train = optimizer.minimize(total, global_step=step, colocate_gradients_with_ops=True)
        return Training(train, loss)

    def serving(self) -> Serving:
        """Return how much more probable each context is near a word, and its similar words.

        The scores are estimates of pointwise mutual information: the logarithm of the probability
        of a context near the word, less that of its probability anywhere.
        """
        counts = np.bincount(self.words.training, minlength=len(self.words.words))
        log_shares = np.log((counts + 1) / counts.sum()).astype(np.float32)
        tables = make_tables(len(self.words.words))
        vectors = wf.convert_to_tensor(tables.words)
        word = wf.placeholder(wf.int32, [1], name="word")
        vector = wf.gather(vectors, word)
        contexts = wf.convert_to_tensor(tables.contexts)
        biases = wf.convert_to_tensor(tables.biases)
        products = wf.matmul(vector, contexts, transpose_b=True)
        scores = wf.add(products, biases - log_shares, name="scores")
        similarity = wf.matmul(
            wf.nn.l2_normalize(vector, 1),
            wf.nn.l2_normalize(vectors, 1),
            transpose_b=True,
            name="similarity",
        )
        return Serving([word], {"scores": scores, "similarity": similarity})

    def report(self, serving: Serving, session: wf.Session) -> str:
        """Return the nearest neighbors of some words; write the files of the projector."""
        words = self.words.words
        write_projector(self, session.run(wf.convert_to_tensor(make_tables(len(words)).words)))
        lines = ["nearest neighbors:"]
        for probe in [probe for probe in PROBES if probe in words]:
            number = words.index(probe)
            values = session.run(serving.outputs["similarity"], {serving.inputs[0]: [number]})
            nearest = [words[i] for i in np.argsort(-values[0])[1:6]]
            lines.append(f"  {probe}: {', '.join(nearest)}")
        return "\n".join(lines)

    def calibration(self) -> Sequence[Feeds]:
        """Return words of the training text."""
        return [{"word": word.reshape(1)} for word in self.words.training[:200]]

    @cached_property
    def _held_out(self) -> np.ndarray:
        """Pairs of the held-out text, each with a word of that text at random."""
        rng = np.random.default_rng(1)
        count = NUM_SHORT_QUESTIONS if self.is_short else NUM_QUESTIONS
        pairs = rng.permutation(draw_pairs(self.words.held_out, 1))[:count]
        return np.column_stack([pairs, rng.permutation(pairs[:, 1])])

    def questions(self) -> Sequence[Feeds]:
        """Return words of the held-out text."""
        return [{"word": word.reshape(1)} for word in self._held_out[:, 0]]

    def score(self, answers: Answers) -> float:
        """Return how often a context word of the held-out text is above a word at random."""
        scores = np.concatenate(list(answers))
        rows = np.arange(len(scores))
        above = scores[rows, self._held_out[:, 1]] - scores[rows, self._held_out[:, 2]]
        return float(np.mean((above > 0) + 0.5 * (above == 0)))


def write_projector(journey: Word2Vec, vectors: np.ndarray) -> None:
    """Write the vectors and their words for the projector of TensorBoard."""
    directory = journey.directory
    np.savetxt(directory / "vectors.tsv", vectors, "%.5f", "\t")
    (directory / "words.tsv").write_text("\n".join(journey.words.words) + "\n")
    config = 'tensor_name: "words" tensor_path: "vectors.tsv" metadata_path: "words.tsv"'
    (directory / "projector_config.pbtxt").write_text(f"embeddings {{ {config} }}\n")


if __name__ == "__main__":
    sys.exit(main(Word2Vec))
