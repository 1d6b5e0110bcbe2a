"""What fuzzing found to reach something new: each file is opened and run, and does no harm."""

from __future__ import annotations

import zipfile
from pathlib import Path

from weft_lite import Interpreter, errors

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus.zip"


def test_the_corpus_does_no_harm() -> None:
    ran = refused = 0
    with zipfile.ZipFile(CORPUS) as file:
        for name in file.namelist():
            try:
                Interpreter(model_content=file.read(name), work_limit=20_000).invoke()
                ran += 1
            except errors.LiteError as error:
                assert str(error), name
                refused += 1
    assert ran > 100
    assert refused > 100
