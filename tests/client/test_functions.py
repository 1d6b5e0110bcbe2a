"""Functions that languages exchange, and items of other graphs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from tests.client.conftest import command, run


def decay(x: Any, rate: Any) -> Any:
    return x * wf.exp(-rate * x)


def write_defun(path: Path) -> None:
    """Write the function as one of `wf.Defun`."""
    with wf.Graph().as_default() as graph:
        wf.Defun(wf.float32, wf.float32, func_name="decay")(decay).add_to_graph(graph)
        path.write_bytes(graph.as_graph_def().SerializeToString())


def write_traced(path: Path) -> None:
    """Write the function as `wf.function` traces it."""
    with wf.Graph().as_default() as graph:
        scalar = wf.placeholder(wf.float32, [])
        wf.function(decay)(scalar, scalar)
        path.write_bytes(wf.GraphDef(library=graph.as_graph_def().library).SerializeToString())


@pytest.mark.parametrize("write", [write_defun, write_traced])
@pytest.mark.parametrize("language", ["cpp", "js"])
def test_functions_are_shared_with_python(
    request: pytest.FixtureRequest, language: str, write: Any, target: str, tmp_path: Path
) -> None:
    program = command(request, language, "suite")
    write(tmp_path / "theirs")
    printed = run(*program, "functions", target, tmp_path / "theirs", tmp_path / "own")
    twice, is_trained, chosen = printed.split()
    once = 2 * np.exp(-6.0)
    assert float(twice) == pytest.approx(once * np.exp(-3 * once), rel=1e-4)
    assert (is_trained, chosen) == ("1", "384")
    with wf.Graph().as_default(), wf.Session() as session:
        definition = wf.GraphDef.FromString((tmp_path / "own").read_bytes())
        wf.import_graph_def(definition, name="")
        length, unit = session.run(wf.call_function("Normalize", [[3.0, 4.0]]))
        assert length == 5.0 and unit.tolist() == [0.6, 0.8]


def test_items_of_another_graph_are_refused(build: Path, target: str) -> None:
    *refused, value = run(build / "lines_cpp", "graphs", target).splitlines()
    assert len(refused) == 7
    for line in refused:
        assert re.match(r"INVALID_ARGUMENT: 'x(:0)?' belongs to another graph", line), line
    assert value == "50"
