"""The contract of passes, their remarks, dumps of programs, and the command line."""

from __future__ import annotations

import io
import logging
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft_compiler.ir.expressions import index
from weft_compiler.ir.mutator import Mutator, Substitution, with_body
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import For, Program
from weft_compiler.ir.visitor import Visitor
from weft_compiler.passes.command import run_command
from weft_compiler.passes.framework import Context, Pass, Pipeline
from weft_compiler.passes.pipeline import CONTRACT, FUSE, PIPELINE, SIMPLIFY
from weft_tensor import errors

TEXT = """\
program two_loops(x: float32[8]) -> (y: float32[8]):
  alloc t: float32[8]
  for i in 8:
    t[i] = x[i] * 2.0
  for j in 8:
    y[j] = t[j]
"""


def test_a_mutator_that_changes_nothing_returns_the_same_objects() -> None:
    program = parse(TEXT)
    assert Mutator().rewrite_body(program.body) is program.body
    assert with_body(program, tuple(program.body)) is program
    assert Substitution({"other": index(1)}).rewrite_body(program.body) is program.body


def test_a_mutator_keeps_the_parts_that_stay() -> None:
    program = parse(TEXT)
    allocate, first, second = Substitution({"j": index(3)}).rewrite_body(program.body)
    assert (allocate, first) == program.body[:2]
    assert str(second) == "for j in 8:\n  y[3] = t[3]"


def test_a_visitor_sees_statements_in_order() -> None:
    class Loops(Visitor):
        def __init__(self) -> None:
            self.found: list[str] = []

        def visit_statement(self, statement: object) -> None:
            if isinstance(statement, For):
                self.found.append(statement.variable)
                super().visit_statement(statement)

    loops = Loops()
    loops.visit_body(parse(TEXT).body)
    assert loops.found == ["i", "j"]


def test_a_pass_comes_after_those_that_it_requires() -> None:
    with pytest.raises(errors.InternalError, match=r"contract_buffers must come after \['fuse'\]"):
        Pipeline(CONTRACT, FUSE)


def test_a_pipeline_collects_remarks_and_logs_them(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="weft"):
        result = Pipeline(SIMPLIFY, FUSE, CONTRACT).run(parse(TEXT))
    assert result.modified
    texts = [
        "fuse: j: merged into the loop over i",
        "contract_buffers: t: moved into the loop over i, without axis 0",
        "contract_buffers: t: contracted to a scalar",
    ]
    assert [str(each) for each in result.remarks] == texts
    assert caplog.messages == [f"two_loops: {text}" for text in texts]


def test_a_pass_that_breaks_a_program_is_found() -> None:
    def drop_allocations(program: Program, context: Context) -> Program:
        context.record_missed("t", "%s %d", "no", 1)
        return with_body(program, program.body[1:])

    broken = Pass("broken", "Break a program.", drop_allocations)
    assert str(broken(parse(TEXT)).remarks[0]) == "broken: t: not applied, no 1"
    with pytest.raises(errors.InternalError, match="'t' must be an output"):
        Pipeline(broken).run(parse(TEXT), check=True)


# ------------------------------------------------------------------------------ dumps


def test_programs_are_dumped_after_each_pass_that_changed_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new" / "dumps"
    monkeypatch.setenv("WEFT_JIT_DUMP", str(folder))
    program = parse(TEXT)
    result = PIPELINE.run(program)
    PIPELINE.run(program)
    first, second = sorted(folder.iterdir())
    assert [first.name, second.name] == ["0001-two_loops", "0002-two_loops"]
    files = sorted(first.iterdir())
    assert [file.name for file in files] == [
        "00-lowered.txt",
        "06-fuse.txt",
        "07-contract_buffers.txt",
        "15-parallelize.txt",
    ]
    assert files[0].read_text() == TEXT
    assert files[-1].read_text() == str(result.program)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, first, files[0])]
    assert modes == [0o700, 0o700, 0o600]


@pytest.mark.parametrize("name", ["../../outside", "/etc/x", ".hidden", "", "a b\n" + 90 * "c"])
def test_names_of_dumps_stay_in_their_directory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT_DUMP", str(tmp_path / "dumps"))
    program = parse(TEXT)
    Pipeline().run(Program(name, program.inputs, program.outputs, program.body))
    (folder,) = (tmp_path / "dumps").iterdir()
    assert [file.name for file in folder.iterdir()] == ["00-lowered.txt"]
    assert [path.name for path in tmp_path.iterdir()] == ["dumps"]
    assert len(folder.name) < 80 and not {" ", "\n"} & set(folder.name)


def test_a_directory_that_others_can_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("WEFT_JIT_DUMP", str(tmp_path))
    with pytest.raises(errors.InvalidArgumentError, match="other users can write to it"):
        PIPELINE.run(parse(TEXT))


def test_a_file_is_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("WEFT_JIT_DUMP", str(file))
    with pytest.raises(errors.InvalidArgumentError, match="WEFT_JIT_DUMP must name a directory"):
        PIPELINE.run(parse(TEXT))


@pytest.mark.parametrize("mode", ["now", "on"])
def test_a_step_says_that_the_directory_cannot_be_written(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("WEFT_JIT", mode)
    monkeypatch.setenv("WEFT_JIT_DUMP", str(file))
    config = wf.ConfigProto()
    config.experimental.deterministic = True  # compiled in the first run
    x = wf.placeholder(wf.float32, [2])
    with wf.Session(config=config) as session:
        step = session.make_callable(wf.tanh(x) * 2.0, feed_list=[x])
        if mode == "now":
            with pytest.raises(errors.InvalidArgumentError) as raised:
                step([0.0, 0.0])
            assert str(raised.value).startswith("WEFT_JIT_DUMP must name a directory")
            return
        for _ in range(2):
            np.testing.assert_array_equal(step([0.0, 0.0]), [0.0, 0.0])
    (record,) = [each for each in caplog.records if "WEFT_JIT_DUMP" in each.getMessage()]
    assert record.levelname == "WARNING" and record.exc_info is None


# ------------------------------------------------------------------------------ command line


def run(monkeypatch: pytest.MonkeyPatch, text: str, *arguments: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return run_command(PIPELINE, "weft_compiler.passes", arguments)


def test_a_pass_runs_from_text_to_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "# A comment.\n" + TEXT, "fuse", "contract_buffers") == 0
    printed = capsys.readouterr()
    assert printed.out == TEXT.splitlines(keepends=True)[0] + (
        "  for i in 8:\n    let t = x[i] * 2.0\n    y[i] = t\n"
    )
    assert printed.err.splitlines()[0] == "fuse: j: merged into the loop over i"


def test_passes_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "", "--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [each.name for each in PIPELINE]
    assert lines[0].endswith(SIMPLIFY.summary)


@pytest.mark.parametrize("module", ["weft_compiler.passes", "weft_compiler.gpu"])
def test_a_pass_runs_in_a_process(module: str) -> None:
    command = [sys.executable, "-m", module, "fuse"]
    done = subprocess.run(command, input=TEXT, capture_output=True, text=True, check=True)
    assert parse(done.stdout).name == "two_loops"
    assert done.stderr == "fuse: j: merged into the loop over i\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("program p(", "line 1 of the program"),
        (TEXT.replace("t[j]", "t[j + 1]"), "but the dimension has 8 elements"),
    ],
)
def test_a_wrong_program_is_refused(
    text: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, text, "fuse") == 1
    assert message in capsys.readouterr().err


def test_an_unknown_pass_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, TEXT, "fuze")
    assert "got fuze; --list shows them" in capsys.readouterr().err
