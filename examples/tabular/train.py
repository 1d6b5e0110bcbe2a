"""Train a wide-and-deep network on tables in CSV files, read through queues.

The tables are generated: `draw_people` is the whole recipe. Whether a person earns much depends on
the age, the hours of work, the job, the town, and on the pair of job and sector.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from journey import Answers, Feeds, Journey, Serving, Training, main

import weft as wf

BATCH = 64
NUM_JOBS, NUM_SECTORS, NUM_TOWNS = 20, 8, 300
TOWN_BUCKETS, CROSS_BUCKETS = 500, 1000
JOBS = [f"job{i}" for i in range(NUM_JOBS)]
SECTORS = [f"sector{i}" for i in range(NUM_SECTORS)]
NUM_QUESTIONS = 1000


class Table(NamedTuple):
    """Rows of a table, by column."""

    age: np.ndarray
    hours: np.ndarray
    job: np.ndarray
    sector: np.ndarray
    town: np.ndarray
    earns_much: np.ndarray


class Row(NamedTuple):
    """Features of a batch, as numbers: a float of (n, 2), and integers of (n,)."""

    numbers: wf.Tensor
    job: wf.Tensor
    sector: wf.Tensor
    town: wf.Tensor
    cross: wf.Tensor


def draw_people(seed: int, count: int) -> Table:
    """Return a table; the weights of the recipe do not depend on the seed."""
    recipe, rng = np.random.default_rng(0), np.random.default_rng([1, seed])
    job_weights, town_weights = recipe.normal(size=NUM_JOBS), recipe.normal(size=NUM_TOWNS)
    pair_weights = 1.5 * recipe.normal(size=(NUM_JOBS, NUM_SECTORS))
    age, hours = rng.integers(18, 80, count), rng.integers(0, 80, count)
    job, sector = rng.integers(NUM_JOBS, size=count), rng.integers(NUM_SECTORS, size=count)
    town = rng.integers(NUM_TOWNS, size=count)
    score = (age - 40) / 40 + (hours - 40) / 20
    score = score + job_weights[job] + town_weights[town] + pair_weights[job, sector]
    earns_much = rng.random(count) < 1 / (1 + np.exp(-2 * score))
    return Table(age, hours, job, sector, town, earns_much.astype(np.int32))


def write_tables(directory: Path, count: int) -> list[str]:
    """Write the training table as four CSV files with a header; return their paths."""
    directory.mkdir(exist_ok=True)
    paths = [directory / f"people-{part}.csv" for part in range(4)]
    for part, path in enumerate(paths):
        if path.exists():
            continue
        table = draw_people(part, count // 4)
        temporary = path.with_suffix(".new")
        with temporary.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(Table._fields)
            for age, hours, job, sector, town, earns in zip(*table, strict=True):
                writer.writerow([age, hours, JOBS[job], SECTORS[sector], f"town{town}", earns])
        temporary.replace(path)
    return [str(path) for path in paths]


def normalize(age: Any, hours: Any) -> Any:
    """Return both columns with mean 0 and deviation 1, about."""
    return (age - 49) / 18, (hours - 40) / 23


def logits_of(row: Row) -> wf.Tensor:
    """Return logits (n,): linear in sparse features, plus a network of embeddings."""
    with wf.variable_scope("wide"):
        sizes = {
            "job": NUM_JOBS,
            "sector": NUM_SECTORS,
            "town": TOWN_BUCKETS,
            "cross": CROSS_BUCKETS,
        }
        parts = []
        for name, size in sizes.items():
            weights = wf.get_variable(name, [size, 1], initializer=wf.zeros_initializer())
            parts.append(wf.nn.embedding_lookup(weights, getattr(row, name)))
        wide = wf.add_n(parts)
    with wf.variable_scope("deep"):
        partitioner = wf.fixed_size_partitioner(2)
        towns = wf.get_variable("towns", [TOWN_BUCKETS, 8], partitioner=partitioner)
        features = [
            row.numbers,
            wf.nn.embedding_lookup(wf.get_variable("jobs", [NUM_JOBS, 4]), row.job),
            wf.nn.embedding_lookup(wf.get_variable("sectors", [NUM_SECTORS, 4]), row.sector),
            wf.nn.embedding_lookup(towns, row.town, partition_strategy="div"),
        ]
        hidden = wf.concat(features, 1)
        for units in (32, 16):
            hidden = wf.layers.dense(hidden, units, activation=wf.nn.relu)
        deep = wf.layers.dense(hidden, 1)
    return wf.squeeze(wide + deep, 1)


def number_table(words: Sequence[str]) -> Any:
    """Return a hash table of the places of words in a sequence."""
    places = wf.range(len(words), dtype=wf.int64)
    entries = wf.lookup.KeyValueTensorInitializer(wf.constant(words), places)
    return wf.lookup.StaticHashTable(entries, default_value=-1)


class Tabular(Journey):
    """Wide-and-deep."""

    name = "tabular"
    steps, short_steps = 3000, 400
    metric = "AUC"
    goal, short_goal = 0.90, 0.80
    jobs: ClassVar = {"ps": 1, "worker": 2}

    def training(self) -> Training:
        """Read lines of shuffled files through queues, and look up words in a hash table."""
        paths = write_tables(self.directory / "tables", 8000 if self.is_short else 40000)
        files = wf.train.string_input_producer(paths, seed=self.seed)
        _, lines = wf.TextLineReader(skip_header_lines=1).read_up_to(files, BATCH)
        lines = wf.train.shuffle_batch(
            [lines], BATCH, capacity=4000, min_after_dequeue=1000, enqueue_many=True, seed=self.seed
        )
        defaults = [[0.0], [0.0], [""], [""], [""], [0]]
        age, hours, job, sector, town, earns_much = wf.decode_csv(lines, defaults)
        jobs, sectors = number_table(JOBS), number_table(SECTORS)
        row = Row(
            wf.stack(normalize(age, hours), 1),
            wf.cast(jobs.lookup(job), wf.int32),
            wf.cast(sectors.lookup(sector), wf.int32),
            wf.cast(wf.string_to_hash_bucket_fast(town, TOWN_BUCKETS), wf.int32),
            wf.cast(
                wf.string_to_hash_bucket_fast(wf.string_join([job, sector], "×"), CROSS_BUCKETS),
                wf.int32,
            ),
        )
        labels = wf.cast(earns_much, wf.float32)

        def replica(labels: wf.Tensor, *columns: wf.Tensor) -> list[wf.Tensor]:
            logits = logits_of(Row(*columns))
            return [wf.losses.sigmoid_cross_entropy(labels, logits), wf.sigmoid(logits)]

        loss, probabilities = self.replicas.apply(replica, labels, *row)
        auc, update_auc = wf.metrics.auc(labels, probabilities)
        wf.summary.scalar("auc", auc)
        step = wf.train.get_or_create_global_step()
        wide = wf.train.FtrlOptimizer(0.1, l1_regularization_strength=1e-3).minimize(
            loss, var_list=wf.trainable_variables("wide"), colocate_gradients_with_ops=True
        )
        deep = wf.train.AdagradOptimizer(0.1).minimize(
            loss, var_list=wf.trainable_variables("deep"), colocate_gradients_with_ops=True
        )
        with wf.control_dependencies([wide, deep, update_auc]):
            return Training(wf.assign_add(step, 1).op, loss)

    def serving(self) -> Serving:
        """Return the probability for a batch of one, from features as numbers."""
        row = Row(
            wf.placeholder(wf.float32, [1, 2], name="numbers"),
            *(wf.placeholder(wf.int32, [1], name=name) for name in Row._fields[1:]),
        )
        return Serving(list(row), {"probability": wf.sigmoid(logits_of(row), name="probability")})

    def calibration(self) -> Sequence[Feeds]:
        """Return rows of the training table."""
        return self._features(draw_people(0, 200))

    def questions(self) -> Sequence[Feeds]:
        """Return rows of a table that was not trained on."""
        return self._features(draw_people(9, NUM_QUESTIONS))

    def _features(self, table: Table) -> list[Feeds]:
        """Return rows as numbers, with the words hashed by the graph's own ops."""
        pairs = [JOBS[j] + "×" + SECTORS[s] for j, s in zip(table.job, table.sector, strict=True)]
        with wf.Graph().as_default(), wf.Session() as session:
            towns, crosses = session.run(
                [
                    wf.string_to_hash_bucket_fast([f"town{i}" for i in table.town], TOWN_BUCKETS),
                    wf.string_to_hash_bucket_fast(pairs, CROSS_BUCKETS),
                ]
            )
        numbers = np.stack(normalize(table.age, table.hours), 1).astype(np.float32)
        columns = [table.job, table.sector, towns, crosses]
        rows = zip(*(column.astype(np.int32) for column in columns), strict=True)
        return [
            dict(
                zip(Row._fields, (number[None], *(value.reshape(1) for value in row)), strict=True)
            )
            for number, row in zip(numbers, rows, strict=True)
        ]

    def score(self, answers: Answers) -> float:
        """Return the area under the ROC curve: how often a positive row is above a negative one."""
        labels = draw_people(9, NUM_QUESTIONS).earns_much.astype(bool)
        values = np.concatenate(list(answers))
        above = values[labels][:, None] - values[~labels][None]
        return float(np.mean((above > 0) + 0.5 * (above == 0)))


if __name__ == "__main__":
    sys.exit(main(Tabular))
