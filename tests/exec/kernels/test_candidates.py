"""Candidate samplers: the file with the counts of classes."""

from __future__ import annotations

from pathlib import Path

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
