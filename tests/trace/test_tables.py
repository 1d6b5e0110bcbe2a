"""Events as tables of Arrow and pandas have names instead of ids."""

import numpy as np
import pytest
from weft_testing.synthetic_trace import Cluster, random_settings, write_cluster

from weft_trace import NO_STEP, Writer, load


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "a"
    write_cluster(path, Cluster(random_settings(3), 3), 2)
    return load(path)


def rows_of(trace):
    """Some columns of the events, looked up one by one."""
    return [
        (
            trace.nodes[e["node"]].name,
            trace.nodes[e["node"]].op,
            trace.lanes[e["lane"]].name,
            trace.processes[trace.lanes[e["lane"]].process].name,
            -1 if e["step"] == NO_STEP else int(e["step"]),
            trace.iterations[e["iteration"]].frame,
            trace.iterations[e["iteration"]].number,
            int(e["start"]),
        )
        for e in trace.events
    ]


COLUMNS = ["name", "op", "lane", "process", "step", "frame", "iteration", "start"]


def test_arrow(trace):
    pytest.importorskip("pyarrow")
    table = trace.to_arrow()
    columns = [table[name].to_pylist() for name in COLUMNS]
    assert list(zip(*columns, strict=True)) == rows_of(trace)
    assert set(table["kind"].to_pylist()) >= {"STEP", "KERNEL", "TRANSFER"}


def test_pandas(trace):
    pytest.importorskip("pandas")
    table = trace.to_pandas()
    assert list(table[COLUMNS].itertuples(index=False, name=None)) == rows_of(trace)
    np.testing.assert_array_equal(table["is_estimated"], trace.events["flags"] & 1 != 0)


def test_empty_trace(tmp_path):
    pytest.importorskip("pyarrow")
    with Writer(tmp_path / "a"):
        pass
    assert load(tmp_path / "a").to_arrow().num_rows == 0
