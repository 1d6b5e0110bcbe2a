"""The page of `weft-lite report`."""

from __future__ import annotations

import html.parser
import re
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft_lite.commands import main

HOSTILE = "<script>alert(1)</script>"


class Page(html.parser.HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network in float and in int8."""
    folder = tmp_path_factory.mktemp("report")
    draw = np.random.default_rng(0)
    with wf.Graph().as_default(), wf.Session() as session:
        wf.set_random_seed(1)
        x = wf.placeholder(wf.float32, [None, 8, 8, 3], name="image")
        h = wf.layers.conv2d(x, 8, 3, padding="same", activation=wf.nn.relu, name="first")
        h = wf.layers.conv2d(h, 8, 3, padding="same", activation=wf.nn.relu, name="second") + h
        y = wf.nn.softmax(wf.layers.dense(wf.reshape(h, [-1, 512]), 4, name="last"), name="y")
        session.run(wf.global_variables_initializer())
        converter = wf.lite.Converter.from_session(session, [x], [y], {"image": [2, 8, 8, 3]})
        samples = [{"image": draw.standard_normal((2, 8, 8, 3)).astype("f")} for _ in range(4)]
        (folder / "float.weftlite").write_bytes(converter.convert())
        (folder / "int8.weftlite").write_bytes(converter.convert(calibration=samples))
    return folder


def test_a_report_has_ops_memory_weights_and_errors(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, reference = str(files / "int8.weftlite"), str(files / "float.weftlite")
    command = ["report", model, "--reference", reference, "--runs", "3", "-s", "image=1,8,8,3"]
    assert main(command) == 0
    path = files / "int8.html"
    assert str(path) in capsys.readouterr().out
    page = Page(path.read_text("utf-8"))
    assert not {"script", "img", "link", "iframe"} & set(page.tags)
    for part in ("Conv2D", "first/kernel", "int8 1×8×8×8", "Quantization error", "dB", "ops 0 to"):
        assert part in page.text, part
    assert "path" in page.tags  # the arc from the first convolution to the sum
    decibels = [float(text) for text in re.findall(r"([\d.]+) dB", page.text)]
    assert decibels == sorted(decibels) and decibels[0] > 15


def test_without_a_reference_there_are_no_errors(files: Path) -> None:
    assert main(["report", str(files / "float.weftlite"), "-o", str(files / "page.html")]) == 0
    page = Page((files / "page.html").read_text("utf-8"))
    assert "Memory" in page.text and "Quantization error" not in page.text


def test_names_of_a_file_are_text(tmp_path: Path) -> None:
    from weft_lite.schema import codec

    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [4], name="x")
        content = wf.lite.Converter.from_session(session, [x], [wf.tanh(x, name="y")]).convert()
    model, weights = codec.decode(content)
    model.ops[0].name = HOSTILE
    for tensor in model.tensors:
        tensor.name = HOSTILE
    path = tmp_path / f"{'<b>' * 3}.weftlite"
    path.write_bytes(codec.encode(model, bytes(weights)))
    assert main(["report", str(path), "-o", str(tmp_path / "page.html")]) == 0
    page = Page((tmp_path / "page.html").read_text("utf-8"))
    assert "script" not in page.tags and "b" not in page.tags
    assert HOSTILE in page.text


def test_a_reference_with_other_inputs_is_refused(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [4], name="x")
        content = wf.lite.Converter.from_session(session, [x], [wf.tanh(x)]).convert()
    (tmp_path / "other.weftlite").write_bytes(content)
    model = str(files / "float.weftlite")
    assert main(["report", model, "--reference", str(tmp_path / "other.weftlite")]) == 2
    assert "the reference has no input 'image'; it has ['x']" in capsys.readouterr().err
    assert main(["report", model, "--runs", "0"]) == 2
