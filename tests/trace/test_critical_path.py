"""The critical paths of synthetic clusters are those that their scheduler followed."""

from dataclasses import replace

import numpy as np
import pytest
from weft_testing.synthetic_trace import Cluster, random_settings, write_cluster

from weft_trace import load
from weft_trace.analysis.critical_path import find_critical_path
from weft_trace.analysis.steps import StepIndex

SEEDS = [pytest.param(s, marks=[] if s < 8 else [pytest.mark.long]) for s in range(100)]


def cluster_trace(path, seed, steps=4):
    settings = replace(random_settings(seed), clock_offset=0)
    truth = write_cluster(path, Cluster(settings, seed), steps)
    return load(path), truth


@pytest.mark.parametrize("seed", SEEDS)
def test_critical_path_is_found(tmp_path, seed):
    trace, truth = cluster_trace(tmp_path / "a", seed)
    index = StepIndex(trace)
    for span, expected in zip(index.spans(), truth.paths, strict=True):
        path = find_critical_path(index, span)
        events = trace.events[np.array(path.events)]
        found = [(int(e["iteration"]), int(e["node"])) for e in events]
        assert found == list(expected)
        assert path.segments[0].start == span.start and path.segments[-1].end == span.end
        for a, b in zip(path.segments, path.segments[1:], strict=False):
            assert a.end == b.start
        assert sum(path.by_category().values()) == span.duration
