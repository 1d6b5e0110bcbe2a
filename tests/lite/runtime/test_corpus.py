"""Inputs for which fuzzing found new code paths: each file is opened and run without harm."""

from __future__ import annotations

from pathlib import Path

from weft_testing.loading import load

from weft_lite import Interpreter, errors

seeds = load(Path(__file__).parents[1] / "fuzz" / "seeds.py")


def test_the_corpus_does_no_harm() -> None:
    ran = refused = 0
    for data in seeds.kept(seeds.CORPUS):
        try:
            Interpreter(model_content=data, work_limit=20_000).invoke()
            ran += 1
        except errors.LiteError as error:
            assert str(error)
            refused += 1
    assert ran > 100
    assert refused > 100
