"""The code on the pages and in docstrings runs as written, with the results shown."""

from __future__ import annotations

import doctest
import importlib
import pathlib
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import numpy as np
import pytest

import weft as wf

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/tutorial.md",
    "docs/control-flow.md",
    "docs/functions.md",
    "docs/input.md",
    "docs/datasets.md",
    "docs/ragged.md",
    "docs/queues.md",
    "docs/checkpoints.md",
    "docs/ahead.md",
    "docs/compiler.md",
    "docs/internals/compiler.md",
    "docs/untrusted.md",
    "docs/summaries.md",
    "docs/devices.md",
    "docs/cluster.md",
    "docs/security.md",
    "docs/launch.md",
    "docs/replicas.md",
    "docs/training.md",
    "docs/porting.md",
    "docs/porting-examples.md",
    "docs/models.md",
    "docs/onnx.md",
    "docs/api/index.md",
    "docs/attention.md",
    "docs/debugging.md",
    "docs/differences.md",
    "docs/evaluation.md",
    "docs/examples.md",
    "docs/faq.md",
    "docs/feature-columns.md",
    "docs/images.md",
    "docs/migrating.md",
    "docs/mixed-precision.md",
    "docs/text.md",
    "docs/tracing.md",
]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("page", PAGES)
def test_the_code_on_a_page_runs(page: str, tmp_path: pathlib.Path) -> None:
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^( *)```python\n(.*?)^\1```", text, re.DOTALL | re.M)
    assert blocks
    program = tmp_path / "page.py"
    program.write_text("\n".join(textwrap.dedent(block) for _, block in blocks))
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr


def examples(source: pathlib.Path) -> Iterator[doctest.DocTest]:
    """The docstrings of a package that have examples; these see `wf` and `np`."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    for path in sorted(source.rglob("*.py")):
        if ">>>" in path.read_text(encoding="utf-8"):
            name = ".".join(path.relative_to(source).with_suffix("").parts)
            module = importlib.import_module(name.removesuffix(".__init__"))
            yield from finder.find(module, globs={"wf": wf, "np": np})


def failures(test: doctest.DocTest) -> str:
    """Return the failures of the examples of a docstring, each run in a new graph."""
    said: list[str] = []
    wf.reset_default_graph()
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    return "".join(said)


@pytest.mark.parametrize(
    "package", ["tensor", "graph", "autodiff", "exec", "io", "contrib", "lite", "weft"]
)
def test_the_examples_of_the_api_run(
    package: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = [failures(test) for test in examples(ROOT / "packages" / package / "src")]
    assert said
    assert not any(said), "\n".join(filter(None, said))


def test_a_wrong_example_is_seen() -> None:
    parse = doctest.DocTestParser().get_doctest
    assert "Expected:\n    3" in failures(parse(">>> 1 + 1\n3\n", {}, "wrong", None, 0))
    assert "NameError" in failures(parse(">>> nothing\n", {}, "wrong", None, 0))
    assert failures(parse(">>> 1 + 1\n2\n", {}, "right", None, 0)) == ""
