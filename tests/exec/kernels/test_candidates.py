"""Candidate samplers: the file with the counts of classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft_exec import Session
from weft_graph import Graph, nn
from weft_graph.ir.builder import constant
from weft_tensor import errors


def sample(file: Path) -> None:
    with Graph().as_default(), Session() as session:
        true = constant([[0]], "int64")
        sampled = nn.fixed_unigram_candidate_sampler(true, 1, 2, False, 3, vocab_file=str(file))
        session.run(sampled[0])


def test_the_last_column_is_the_count(tmp_path: Path) -> None:
    (tmp_path / "counts").write_text("a,1\nb,0\nc,2\n")
    sample(tmp_path / "counts")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match=r"reading vocab_file .*counts failed"):
        sample(tmp_path / "counts")
    with pytest.raises(errors.FailedPreconditionError, match="directory"):
        sample(tmp_path)


def test_a_column_without_a_number(tmp_path: Path) -> None:
    (tmp_path / "counts").write_text("a,1\nb\n")
    with pytest.raises(errors.InvalidArgumentError, match="number in the last column"):
        sample(tmp_path / "counts")


@pytest.mark.parametrize("rows", [3, 9000])
def test_hits_of_few_and_of_many_rows(rows: int) -> None:
    random = np.random.default_rng(1)
    true, sampled = random.integers(0, 30, (rows, 2)), random.integers(0, 30, 9)
    with Graph().as_default(), Session() as session:
        found = session.run(
            nn.compute_accidental_hits(constant(true), constant(sampled), num_true=2)
        )
    wanted = [
        (row, place)
        for row in range(rows)
        for column in range(2)
        for place in range(9)
        if true[row, column] == sampled[place]
    ]
    assert list(zip(found[0].tolist(), found[1].tolist(), strict=True)) == wanted
    assert len(found[2]) == len(wanted)
