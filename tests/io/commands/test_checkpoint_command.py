"""`weft checkpoint`, as it is called."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from weft_testing.recorded import BUNDLES

from weft._commands import main
from weft_exec import Session
from weft_graph import Graph, proto
from weft_graph.variables.reference import Variable
from weft_io import Saver
from weft_io.checkpoint.save_items import Item
from weft_io.checkpoint.writer import write_checkpoint
from weft_io.files.message_files import write_message
from weft_tensor import dtypes

Run = Callable[..., tuple[int, list[list[str]], str]]
BUNDLE = BUNDLES / "model-3"
EVIL = "\x1b]0;evil\x07\u202e[red]name\n"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `weft checkpoint ...`: exit code, rows of fields, and the last line."""

    def call(*arguments: object) -> tuple[int, list[list[str]], str]:
        code = main(["checkpoint", *map(str, arguments)])
        out = capsys.readouterr().out
        *rows, last = out.splitlines() or [""]
        return code, [row.split("\t") for row in rows], last

    return call


def save(prefix: Path, change: bool = False) -> Path:
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    if change:
        w[1, 2] += 0.5
    items = [
        Item("dense/w", dtypes.float32, w),
        Item("dense/b", dtypes.float64, np.zeros(4)),
        Item("step", dtypes.int64, np.int64(7 + 3 * change)),
        Item("parts", dtypes.int32, np.arange(4, dtype=np.int32), "6 0,4"),
        Item("parts", dtypes.int32, np.arange(4, 6, dtype=np.int32), "6 4,2", 1),
        Item("words", dtypes.string, np.array([b"a", b"new" if change else b"old"], object)),
        Item("new" if change else "gone", dtypes.bool_, np.array([True])),
        Item("kind", *((dtypes.int8, np.int8(1)) if change else (dtypes.uint8, np.uint8(1)))),
        Item("size", dtypes.uint8, np.zeros(4 + change, np.uint8)),
    ]
    write_checkpoint(str(prefix), items)
    return prefix


class TestInspect:
    def test_names_types_shapes_and_sizes(self, tmp_path: Path, run: Run) -> None:
        prefix = save(tmp_path / "m")
        code, rows, last = run("inspect", prefix)
        assert code == 0 and last == f"# {prefix}: 8 tensors, 138 bytes, 2 files, format weft"
        assert rows == [
            ["dense/b", "float64[4]", "32", "1"],
            ["dense/w", "float32[3,4]", "48", "1"],
            ["gone", "bool[1]", "1", "1"],
            ["kind", "uint8[]", "1", "1"],
            ["parts", "int32[6]", "24", "2"],
            ["size", "uint8[4]", "4", "1"],
            ["step", "int64[]", "8", "1"],
            ["words", "string[2]", "20", "1"],
        ]

    def test_statistics_of_some(self, tmp_path: Path, run: Run) -> None:
        prefix = save(tmp_path / "m")
        code, rows, _ = run("inspect", "-s", "--names", "*s*e*", prefix)
        assert code == 0
        assert [(row[0], row[4:]) for row in rows] == [
            ("dense/b", ["0", "0", "0", "0", "4", "0"]),
            ("dense/w", ["0", "11", "5.5", "3.4521", "1", "0"]),
            ("size", ["0", "0", "0", "0", "4", "0"]),
            ("step", ["7", "7", "7", "0", "0", "0"]),
        ]

    def test_the_latest_of_a_directory(self, tmp_path: Path, run: Run) -> None:
        with Graph().as_default(), Session() as session:
            v = Variable(1.0, name="v")
            session.run(v.initializer)
            saver = Saver()
            for step in range(2):
                saver.save(session, str(tmp_path / "m"), step)
        for path in (tmp_path, tmp_path / "m-1", tmp_path / "m-1.index"):
            code, rows, last = run("inspect", path)
            assert code == 0 and rows == [["v", "float32[]", "4", "1"]]
            assert last.startswith(f"# {tmp_path / 'm-1'}: ")

    def test_tensorflows_format(self, run: Run) -> None:
        code, rows, last = run("inspect", "-s", BUNDLE)
        assert code == 0 and rows and last.endswith("format TensorFlow")

    def test_what_is_printed_commands_no_terminal(self, tmp_path: Path, run: Run) -> None:
        write_checkpoint(str(tmp_path / "m"), [Item(EVIL, dtypes.int8, np.int8(1))])
        write_checkpoint(str(tmp_path / "n"), [])
        escaped = r"\x1b]0;evil\x07\u202e[red]name\n"
        assert run("inspect", tmp_path / "m")[1] == [[escaped, "int8[]", "1", "1"]]
        assert run("compare", tmp_path / "m", tmp_path / "n")[1][0][:2] == ["removed", escaped]
        (shard,) = tmp_path.glob("m.*.safetensors")
        shard.unlink()
        code, rows, _ = run("verify", tmp_path / "m")
        assert code == 1 and rows[0][1] == escaped and "\x1b" not in rows[0][2]


class TestCompare:
    def test_all_kinds_of_differences(self, tmp_path: Path, run: Run) -> None:
        one, two = save(tmp_path / "one"), save(tmp_path / "two", change=True)
        code, rows, last = run("compare", one, two)
        assert code == 1 and last == f"# {one} and {two}: 1 added, 1 removed, 5 changed, of 9"
        assert rows == [
            ["changed", "dense/w", "float32[3,4]", "1", "0.5", "0.076923"],
            ["removed", "gone", "bool[1]", "", "", ""],
            ["changed", "kind", "uint8[] -> int8[]", "", "", ""],
            ["added", "new", "bool[1]", "", "", ""],
            ["changed", "size", "uint8[4] -> uint8[5]", "", "", ""],
            ["changed", "step", "int64[]", "1", "3", "0.3"],
            ["changed", "words", "string[2]", "1", "", ""],
        ]

    def test_equal_ones(self, tmp_path: Path, run: Run) -> None:
        one, two = save(tmp_path / "one"), save(tmp_path / "two")
        assert run("compare", one, two) == (
            0, [], f"# {one} and {two}: 0 added, 0 removed, 0 changed, of 8"
        )  # fmt: skip

    def test_small_differences_may_be_passed_over(self, tmp_path: Path, run: Run) -> None:
        one, two = save(tmp_path / "one"), save(tmp_path / "two", change=True)
        assert run("compare", "-n", "dense/*", one, two)[0] == 1
        for option, enough, too_little in (("--atol", 0.5, 0.4), ("--rtol", 0.08, 0.07)):
            assert run("compare", "-n", "dense/*", option, enough, one, two)[0] == 0
            assert run("compare", "-n", "dense/*", option, too_little, one, two)[0] == 1
            assert run("compare", "-n", "words", option, 100, one, two)[0] == 1

    def test_with_tensorflows_format(self, tmp_path: Path, run: Run) -> None:
        assert run("compare", BUNDLE, BUNDLE)[0] == 0
        code, rows, _ = run("compare", BUNDLE, save(tmp_path / "m"))
        assert code == 1 and {row[0] for row in rows} >= {"added", "removed"}


class TestVerify:
    def test_whole(self, tmp_path: Path, run: Run) -> None:
        prefix = save(tmp_path / "m")
        assert run("verify", prefix) == (0, [], f"# {prefix}: whole, 138 bytes")
        assert run("verify", BUNDLE)[0] == 0

    def test_all_that_is_damaged(self, tmp_path: Path, run: Run) -> None:
        prefix = save(tmp_path / "m")
        shard, other = sorted(tmp_path.glob("*.safetensors"))
        data = bytearray(shard.read_bytes())
        data[-1] ^= 1
        data[-60] ^= 1
        shard.write_bytes(data)
        other.unlink()
        code, rows, last = run("verify", prefix)
        assert code == 1 and last == f"# {prefix}: 3 of 8 tensors are damaged, 138 bytes"
        assert sorted(row[0] for row in rows) == ["damaged", "damaged", "missing"]
        for kind, name, what in rows:
            assert (str(shard) in what and repr(name) in what) or (kind, name) == (
                "missing", "parts"
            )  # fmt: skip

    def test_a_file_that_was_cut(self, tmp_path: Path, run: Run) -> None:
        prefix = save(tmp_path / "m")
        shard = min(tmp_path.glob("*.safetensors"))
        os.truncate(shard, shard.stat().st_size - 1)
        code, rows, last = run("verify", prefix)
        assert code == 1 and "8 of 8 tensors are damaged" in last
        (row,) = rows
        assert row[:2] == ["damaged", "*"] and "must have" in row[2]

    def test_the_graph_beside_it(self, tmp_path: Path, run: Run) -> None:
        prefix = save(tmp_path / "m")
        graph = tmp_path / "m.meta"
        write_message(str(graph), proto.MetaGraphDef(graph_def=proto.GraphDef()))
        assert run("verify", prefix) == (0, [], f"# {prefix}: whole, 138 bytes")
        graph.write_bytes(graph.read_bytes() + b"!")
        code, rows, last = run("verify", prefix)
        assert code == 1 and last == f"# {prefix}: the graph is damaged, 138 bytes"
        (row,) = rows
        assert row[:2] == ["damaged", ""] and f"{graph} is damaged: the checksum" in row[2]

    def test_every_byte_of_the_shards_counts(self, tmp_path: Path, run: Run) -> None:
        prefix = save(tmp_path / "m")
        for shard in sorted(tmp_path.glob("*.safetensors")):
            data = shard.read_bytes()
            for position in range(0, len(data), 17):
                shard.write_bytes(
                    data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :]
                )
                assert run("verify", prefix)[0] == 1, position
            shard.write_bytes(data)
        assert run("verify", prefix)[0] == 0


class TestTrouble:
    @pytest.mark.parametrize("action", ["inspect", "verify"])
    def test_what_is_not_there(
        self, tmp_path: Path, action: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for path in (tmp_path, tmp_path / "none"):
            assert main(["checkpoint", action, str(path)]) == 2
            assert str(path) in capsys.readouterr().err

    @pytest.mark.parametrize(
        "data",
        [b"", b"\x00" * 100, random.Random(1).randbytes(5000), b"{" * 10**6],
        ids=["nothing", "zeros", "noise", "braces"],
    )
    def test_a_hostile_index(
        self, tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "m.index").write_bytes(data)
        for action in ("inspect", "verify"):
            assert main(["checkpoint", action, str(tmp_path / "m")]) == 2
            assert "m.index" in capsys.readouterr().err

    def test_wrong_arguments(self, capsys: pytest.CaptureFixture[str]) -> None:
        for wrong in ([], ["inspect"], ["mend", "m"], ["compare", "m"]):
            with pytest.raises(SystemExit) as caught:
                main(["checkpoint", *wrong])
            assert caught.value.code == 2
        assert "usage: weft checkpoint" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("plain", [False, True])
def test_on_a_terminal(tmp_path: Path, plain: bool) -> None:
    pytest.importorskip("rich")
    import pty

    prefix = save(tmp_path / "m")
    write_checkpoint(str(prefix), [Item(EVIL, dtypes.int8, np.int8(1))])
    for action in ("inspect", "verify"):
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "weft", "checkpoint", action, str(prefix)]
        with subprocess.Popen(command + ["--plain"] * plain, stdout=theirs) as process:
            os.close(theirs)
            said = b""
            while chunk := read_terminal(ours):
                said += chunk
        os.close(ours)
        assert process.returncode == 0
        assert b"\x1b]0;" not in said and "\u202e".encode() not in said
        assert (b"\x1b[" in said) != plain
        if action == "inspect":
            assert rb"\x1b]0;evil" in said
            assert (b"\t" in said) == plain and (b"parts" in said) != plain


def read_terminal(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""


def test_without_rich_it_is_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    _, rows, _ = run("inspect", save(tmp_path / "m"))
    assert rows[0] == ["dense/b", "float64[4]", "32", "1"]


def test_whoever_reads_may_stop(tmp_path: Path) -> None:
    names = [f"{'long' * 30}/{i}" for i in range(3000)]
    write_checkpoint(str(tmp_path / "m"), [Item(n, dtypes.int8, np.int8(1)) for n in names])
    command = [sys.executable, "-m", "weft", "checkpoint", "inspect", str(tmp_path / "m")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith(b"longlong")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
