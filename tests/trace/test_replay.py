"""Predictions for synthetic clusters agree with simulations of the changed cluster."""

from dataclasses import replace

import pytest
from weft_testing.synthetic_trace import Cluster, random_settings, write_cluster

from weft_trace import TraceError, load
from weft_trace.analysis.changes import Change, check_matches, parse_change
from weft_trace.analysis.replay import Replay
from weft_trace.analysis.steps import StepIndex

SEEDS = [pytest.param(s, marks=[] if s < 6 else [pytest.mark.long]) for s in range(100)]


def cluster(path, seed, **changes):
    settings = replace(random_settings(seed), clock_offset=0, **changes)
    truth = write_cluster(path, Cluster(settings, seed), 3)
    return StepIndex(load(path)), truth


@pytest.mark.parametrize("seed", SEEDS)
def test_replay_without_changes_is_what_was_recorded(tmp_path, seed):
    index, _ = cluster(tmp_path / "a", seed)
    for span in index.spans():
        prediction = Replay(index, span).predict(())
        assert prediction.recorded == prediction.predicted == span.duration
        assert prediction.replayed == pytest.approx(span.duration, rel=1e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_changed_kernel_is_predicted(tmp_path, seed):
    op = ("Conv2D", "MatMul", "Mul", "AddV2")[seed % 4]
    factor = (0.25, 0.5, 2.0)[seed % 3]
    index, _ = cluster(tmp_path / "a", seed)
    _, truth = cluster(tmp_path / "b", seed, scales={op: factor})
    for span, true in zip(index.spans(), truth.step_ns, strict=True):
        predicted = Replay(index, span).predict([Change("op", op, factor)]).predicted
        assert predicted == pytest.approx(true, rel=0.05)


@pytest.mark.parametrize("seed", SEEDS)
def test_slower_links_are_predicted(tmp_path, seed):
    factor = (3.0, 30.0, 300.0)[seed % 3]
    index, _ = cluster(tmp_path / "a", seed)
    _, truth = cluster(tmp_path / "b", seed, scales={"_Transfer": factor})
    for span, true in zip(index.spans(), truth.step_ns, strict=True):
        predicted = Replay(index, span).predict([Change("link", "*", factor)]).predicted
        assert predicted == pytest.approx(true, rel=0.05)


@pytest.mark.parametrize("seed", SEEDS)
def test_straggler_made_as_fast_as_others_is_predicted(tmp_path, seed):
    index, truth = cluster(tmp_path / "a", seed)
    _, repaired = cluster(tmp_path / "b", seed, straggler=1.0)
    change = Change("task", f"worker{truth.straggler}", 1 / random_settings(seed).straggler)
    for span, true in zip(index.spans(), repaired.step_ns, strict=True):
        predicted = Replay(index, span).predict([change]).predicted
        assert predicted == pytest.approx(true, rel=0.05)


@pytest.mark.parametrize(
    ("target", "text", "change"),
    [
        ("op", "Conv2D=0.5", Change("op", "Conv2D", 0.5)),
        ("node", "a=b=2", Change("node", "a=b", 2.0)),
        ("link", "ps0=10Gbit", Change("link", "ps0", bandwidth=1.25e9)),
        ("link", "ps0=100MB/s", Change("link", "ps0", bandwidth=1e8)),
        ("link", "ps0=0.5", Change("link", "ps0", 0.5)),
        ("wait", "input=0", Change("wait", "input", 0.0)),
    ],
)
def test_options_are_parsed(target, text, change):
    assert parse_change(target, text) == change


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("op", "Conv2D"), ("op", "=1"), ("op", "a=fast"), ("op", "a=-1"), ("op", "a=inf"),
        ("op", "a=nan"), ("op", "a=10Gbit"), ("link", "a=0Gbit"), ("link", "a=Gbit"),
    ],
)  # fmt: skip
def test_other_options_are_errors(target, text):
    with pytest.raises(ValueError, match="expect"):
        parse_change(target, text)


def test_pattern_without_match_is_an_error_that_says_what_is_similar(tmp_path):
    index, _ = cluster(tmp_path / "a", 1)
    with pytest.raises(TraceError, match=r"--op Conv2d matches nothing.*Conv2D"):
        check_matches(index, [Change("op", "Conv2d", 0.5)])
    with pytest.raises(TraceError, match=r"--link ps9 matches nothing.*ps0"):
        check_matches(index, [Change("link", "ps9", 0.5)])
