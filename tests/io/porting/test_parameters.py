"""Parameters of two implementations: missing, extra, transposed or different ones."""

import numpy as np
import pytest
from safetensors.numpy import save_file

import weft as wf
from weft_io.porting import Status, compare_parameters, read_parameters

RNG = np.random.default_rng(0)
OURS = {
    "conv/kernel": RNG.normal(size=(3, 3, 5, 6)).astype(np.float32),
    "conv/bias": RNG.normal(size=6).astype(np.float32),
    "dense/kernel": RNG.normal(size=(4, 4)).astype(np.float32),
    "dense/bias": RNG.normal(size=4).astype(np.float32),
}
THEIRS = {
    "conv.weight": OURS["conv/kernel"].transpose(3, 2, 0, 1).copy(),
    "conv.bias": OURS["conv/bias"],
    "dense.weight": OURS["dense/kernel"].T.copy(),
    "dense.bias": OURS["dense/bias"],
}


def statuses(comparison):
    return {(match.ours or match.theirs).name: match.status for match in comparison.matches}


def build(values):
    for name, value in values.items():
        wf.get_variable(name, initializer=value)


def graph_def(path, values):
    with wf.Graph().as_default() as graph:
        for name, value in values.items():
            wf.constant(value, name=name)
        wf.constant([3, 4], name="shape")  # not a parameter
        wf.io.write_graph(graph, str(path.parent), path.name, as_text=path.suffix == ".pbtxt")


def onnx_model(path, values):
    from onnx import helper, numpy_helper

    tensors = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph([], "model", [], [], tensors)
    path.write_bytes(helper.make_model(graph).SerializeToString())


def checkpoint(path, values):
    with wf.Graph().as_default(), wf.Session() as session:
        build(values)
        session.run(wf.global_variables_initializer())
        wf.train.Saver().save(session, str(path))


FILES = {
    "model.npz": lambda path, values: np.savez(path, **values),
    "model.safetensors": lambda path, values: save_file(values, path),
    "model.onnx": onnx_model,
    "model.pb": graph_def,
    "model.pbtxt": graph_def,
    "model": checkpoint,
}


@pytest.mark.parametrize("name", FILES)
def test_each_kind_of_file_gives_names_shapes_and_values(tmp_path, name):
    FILES[name](tmp_path / name, OURS)
    read = read_parameters(tmp_path / name)
    assert {name: (p.shape, p.dtype) for name, p in read.items()} == {
        name: (value.shape, "float32") for name, value in OURS.items()
    }
    for key, parameter in read.items():
        np.testing.assert_array_equal(parameter.read(), OURS[key])
    assert compare_parameters(OURS, tmp_path / name).agrees


def test_graph_is_compared_with_the_values_of_a_session(tmp_path):
    save_file(THEIRS, tmp_path / "model.safetensors")
    with wf.Graph().as_default() as graph, wf.Session() as session:
        build(OURS)
        by_shape = compare_parameters(graph, tmp_path / "model.safetensors")
        assert statuses(by_shape)["dense/kernel"] is Status.EQUAL  # square: shapes cannot tell
        session.run(wf.global_variables_initializer())
        by_value = compare_parameters(graph, tmp_path / "model.safetensors", session=session)
    assert statuses(by_value) == {
        "conv/kernel": Status.TRANSPOSED,
        "conv/bias": Status.EQUAL,
        "dense/kernel": Status.TRANSPOSED,
        "dense/bias": Status.EQUAL,
    }
    assert by_value.matches[0].axes == (2, 3, 1, 0)
    assert by_value.agrees


def test_missing_extra_and_different_parameters_are_named():
    theirs = {key: value for key, value in THEIRS.items() if key != "conv.bias"}
    theirs["dense.bias"] = theirs["dense.bias"] + 0.5
    theirs["head.weight"] = np.zeros([7, 9], np.float32)
    comparison = compare_parameters(OURS, theirs)
    assert not comparison.agrees
    assert [m.ours.name for m in comparison.of(Status.EXTRA)] == ["conv/bias"]
    assert [m.theirs.name for m in comparison.of(Status.MISSING)] == ["head.weight"]
    (different,) = comparison.of(Status.VALUES)
    assert different.ours.name == "dense/bias" and different.error == pytest.approx(0.5)
    text = str(comparison)
    assert "transpose theirs by [2, 3, 1, 0]" in text and "differ by up to 0.5" in text


def test_counts_are_by_scope():
    comparison = compare_parameters(OURS, {k: v for k, v in THEIRS.items() if k != "conv.bias"})
    assert comparison.counts() == {"conv": (276, 270), "dense": (20, 20)}


def test_unrelated_names_are_matched_by_value_then_by_order():
    theirs = {f"arr_{i}": value for i, value in enumerate(reversed(THEIRS.values()))}
    assert compare_parameters(OURS, theirs).agrees
    shapes = {"a": np.ones([2, 3]), "b": np.ones([2, 3])}
    others = {"p": np.zeros([2, 3]), "q": np.zeros([2, 3])}
    matches = compare_parameters(shapes, others).matches
    assert [(m.ours.name, m.theirs.name) for m in matches] == [("a", "p"), ("b", "q")]


def test_names_pair_what_nothing_else_would():
    names = {"b": "p", "a": "q"}
    pair = {"a": np.ones(3), "b": np.ones(3)}, {"p": np.zeros(3), "q": np.zeros(3)}
    matches = compare_parameters(*pair, names=names).matches
    assert [(m.ours.name, m.theirs.name) for m in matches] == [("a", "q"), ("b", "p")]
    with pytest.raises(wf.errors.NotFoundError, match="names has z, which our 2 parameters lack"):
        compare_parameters(*pair, names={"z": "p"})


def test_shapes_that_are_not_permutations_are_reported():
    comparison = compare_parameters({"a/kernel": np.ones([2, 3])}, {"a.kernel": np.ones([2, 4])})
    assert statuses(comparison) == {"a/kernel": Status.EXTRA, "a.kernel": Status.MISSING}
    named = compare_parameters({"a": np.ones([2, 3])}, {"b": np.ones([2, 4])}, names={"a": "b"})
    assert statuses(named) == {"a": Status.SHAPE}


@pytest.mark.parametrize("name", ["model.npz", "model.safetensors", "model.onnx", "model.pb"])
def test_files_that_are_missing_or_damaged_are_named(tmp_path, name):
    with pytest.raises(wf.errors.NotFoundError, match=name):
        read_parameters(tmp_path / name)
    (tmp_path / name).write_bytes(b"\xff" * 40)
    with pytest.raises((wf.errors.DataLossError, wf.errors.InvalidArgumentError), match=name):
        read_parameters(tmp_path / name)


def test_other_sources_are_refused():
    with pytest.raises(wf.errors.InvalidArgumentError, match="got int"):
        read_parameters(3)


def test_many_parameters_without_common_names_are_matched_by_value():
    ours = {f"ours_{i}": RNG.normal(size=(32, 48)) for i in range(60)}
    order = RNG.permutation(60)
    theirs = {f"theirs_{i}": ours[f"ours_{i}"].T.copy() for i in order}
    matches = compare_parameters(ours, theirs).matches
    assert all(match.status is Status.TRANSPOSED for match in matches)
    assert [m.theirs.name for m in matches] == [f"theirs_{i}" for i in range(60)]
