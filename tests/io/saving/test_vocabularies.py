"""Variables that begin with a checkpoint, also where vocabularies have changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_tensor import errors

OLD = np.arange(6.0, dtype=np.float32).reshape(3, 2)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    (tmp_path / "old.txt").write_text("a\nb\nc\n")
    (tmp_path / "new.txt").write_text("c\nx\na\nunused\n")
    with wf.Graph().as_default(), wf.Session() as session:
        wf.get_variable("rows", initializer=OLD)
        wf.get_variable("columns", initializer=OLD.T.copy())
        wf.get_variable("plain", initializer=np.float32(7.0))
        session.run(wf.global_variables_initializer())
        path: str = wf.train.Saver().save(session, str(tmp_path / "model"))
    return path


def _info(tmp_path: Path, **more: Any) -> wf.train.VocabInfo:
    return wf.train.VocabInfo(str(tmp_path / "new.txt"), 3, 1, str(tmp_path / "old.txt"), **more)


@pytest.mark.parametrize("resource", [False, True])
def test_words_go_where_they_are_now(checkpoint: str, tmp_path: Path, resource: bool) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        rows = wf.get_variable("rows", [4, 2], use_resource=resource)
        columns = wf.get_variable("columns", [2, 4], use_resource=resource)
        plain = wf.get_variable("plain", [])
        fives = wf.constant_initializer(5.0)
        infos = {
            "rows": _info(tmp_path),
            "columns": _info(tmp_path, backup_initializer=fives, axis=1),
        }
        wf.train.warm_start(checkpoint, var_name_to_vocab_info=infos)
        session.run(wf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(rows), [[4, 5], [0, 0], [0, 1], [0, 0]])
        np.testing.assert_array_equal(session.run(columns), [[4, 5, 0, 5], [5, 5, 1, 5]])
        assert session.run(plain) == 7.0


def test_which_variables_begin_with_it(checkpoint: str) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        plain = wf.get_variable("plain", [], initializer=wf.zeros_initializer())
        other = wf.get_variable("other", [], initializer=wf.zeros_initializer(), trainable=False)
        wf.train.warm_start(checkpoint, [r"oth.*"], var_name_to_prev_var_name={"other": "plain"})
        session.run(wf.global_variables_initializer())
        assert session.run([plain, other]) == [0.0, 7.0]
        wf.train.warm_start(str(Path(checkpoint).parent), [plain])
        session.run(plain.initializer)
        assert session.run(plain) == 7.0


def test_what_does_not_fit(checkpoint: str, tmp_path: Path) -> None:
    with wf.Graph().as_default():
        rows = wf.get_variable("rows", [3, 2])
        for infos, former, words in (
            ({"rows": _info(tmp_path)}, {}, "must have 4 words along axis 0"),
            ({"rows": _info(tmp_path, axis=2)}, {}, "must be 0 or 1"),
            ({"rows": _info(tmp_path)._replace(new_vocab_size=9)}, {}, "has 4 words, but 9"),
            ({"rows": _info(tmp_path)}, {"rows": "gone"}, "no tensor 'gone'"),
            ({"absent": _info(tmp_path)}, {}, "not among the warm-started variables: absent"),
        ):
            with pytest.raises(errors.OpError, match=words):
                wf.train.warm_start(checkpoint, None, infos, former)
        with pytest.raises(errors.InvalidTypeError, match="a variable or a pattern"):
            wf.train.warm_start(checkpoint, [rows, 3])
