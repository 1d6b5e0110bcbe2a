"""A graph compared with recorded activations: the node with the fault is named, not its users."""

import numpy as np
import pytest

import weft as wf
from weft_io.porting import compare_activations, record_activations

IMAGE = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)


def network(padding="SAME", epsilon=1e-3, slope=0.2, axis=-1):
    rng = np.random.default_rng(1)

    def weights(*shape):
        return wf.constant(rng.normal(size=shape).astype(np.float32))

    x = wf.placeholder(wf.float32, [None, 8, 8, 3], name="x")
    conv = wf.nn.conv2d(x, weights(3, 3, 3, 4), [1, 2, 2, 1], padding, name="conv")
    normal, *_ = wf.nn.fused_batch_norm(
        conv, weights(4), weights(4), wf.zeros([4]), wf.ones([4]), epsilon, is_training=False,
        name="normal",
    )  # fmt: skip
    active = wf.nn.leaky_relu(normal, slope, name="active")
    pooled = wf.reduce_mean(active, [1, 2], name="pooled")
    logits = wf.matmul(pooled, weights(4, 4), name="logits")
    return wf.nn.softmax(logits, axis, name="answer")


def recorded(**arguments):
    with wf.Graph().as_default(), wf.Session() as session:
        answer = network(**arguments)
        values = record_activations(session, {"x:0": IMAGE}, [answer])
        kept = ("x:0", "conv:0", "normal:0", "active:0", "pooled:0", "logits:0", "answer:0")
        return {name: values[name] for name in kept}


def compare(theirs, names=None, layout="NHWC", **arguments):
    with wf.Graph().as_default(), wf.Session() as session:
        network(**arguments)
        return compare_activations(session, theirs, names, layout=layout)


def test_equal_networks_agree():
    result = compare(recorded())
    assert result.agrees, str(result)
    assert len(result.matches) == 6


@pytest.mark.parametrize(
    ("fault", "node"),
    [
        ({"padding": "VALID"}, "conv:0"),
        ({"epsilon": 1e-2}, "normal:0"),
        ({"slope": 0.3}, "active:0"),
        ({"axis": 0}, "answer:0"),
    ],
)
def test_only_the_node_with_the_fault_is_named(fault, node):
    differing = compare(recorded(), **fault).differences
    assert [match.tensor.name for match in differing] == [node]
    assert node in str(compare(recorded(), **fault))


def test_recorded_values_in_another_layout_are_transposed():
    theirs = recorded()
    for name in ("x:0", "conv:0", "normal:0", "active:0"):
        theirs[name] = theirs[name].transpose(0, 3, 1, 2)
    result = compare(theirs, layout="NCHW")
    assert result.agrees, str(result)
    assert {m.axes for m in result.matches if m.tensor.name == "conv:0"} == {(0, 2, 3, 1)}
    assert not compare(theirs).agrees
    with pytest.raises(wf.errors.InvalidArgumentError, match="'CHW'"):
        compare(theirs, layout="CHW")


def test_unrecorded_nodes_are_computed_between():
    theirs = recorded()
    for name in ("normal:0", "pooled:0"):
        del theirs[name]
    assert compare(theirs).agrees
    differing = compare(theirs, epsilon=1e-2).differences
    assert [match.tensor.name for match in differing] == ["active:0"]


def test_names_of_another_system(tmp_path):
    ours = recorded()
    names = {name: f"layer_{i}" for i, name in enumerate(ours)}
    np.savez(tmp_path / "theirs.npz", **{names[name]: value for name, value in ours.items()})
    result = compare(tmp_path / "theirs.npz", names)
    assert result.agrees and len(result.matches) == 6
    with pytest.raises(wf.errors.InvalidArgumentError, match="no recorded value"):
        compare(tmp_path / "theirs.npz")
    with pytest.raises(wf.errors.NotFoundError, match="'lost'"):
        compare(tmp_path / "theirs.npz", {"conv:0": "lost"})


def test_values_that_depend_on_feeds_are_recorded():
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [], name="x")
        wf.add(x, 1.0, name="y")
        wf.constant(3.0, name="c")
        assert record_activations(session, {x: 2.0}) == {"x:0": 2.0, "y:0": 3.0}
