"""The trial run after a conversion: a file with different results is rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite.convert import Converter
from weft_lite.convert.agreement import difference
from weft_lite.convert.rules import matmul
from weft_lite.interpreter import Interpreter


def product() -> Converter:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2, 3], name="x")
        y = wf.matmul(x, np.full([3, 4], 0.5, "float32"), name="y")
        return Converter.from_session(session, [x], [y])


@pytest.mark.parametrize("lost", [0.0, np.nan])
def test_a_file_that_lost_its_weights_is_refused(
    lost: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = matmul.panels
    monkeypatch.setattr(matmul, "panels", lambda matrix: real(matrix) * np.float32(lost))
    with pytest.raises(
        wf.errors.DataLossError, match=r"output y:0 .* differs .* 0\.001 is allowed"
    ):
        product().convert()
    if lost == 0.0:
        assert product().convert(limit=1.5)
        assert product().convert({"x": np.zeros([2, 3])})  # where nothing can be seen
    else:
        with pytest.raises(wf.errors.DataLossError, match="by inf"):
            product().convert(limit=1e30)


def test_samples_are_of_inputs_and_fit_them() -> None:
    with pytest.raises(wf.errors.InvalidArgumentError, match=r"names that are not inputs: \['z'\]"):
        product().convert({"z": 1.0})
    with pytest.raises(
        wf.errors.InvalidArgumentError, match=r"shape \(3,\), but the input requires \(2, 3\)$"
    ):
        product().convert({"x": np.zeros(3)})


def test_a_graph_that_refuses_zeros_takes_samples() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.int32, [2], name="x")
        converter = Converter.from_session(session, [x], [7 // x])
    with pytest.raises(wf.errors.InvalidArgumentError, match="pass other samples with samples="):
        converter.convert()
    assert converter.convert({"x": [2, 3]})


def test_a_sample_may_be_smaller_than_the_bound() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [None, 2], name="x")
        converter = Converter.from_session(session, [x], [x + 1.0], {"x": [4, 2]})
    assert converter.convert({"x": np.ones([3, 2])})
    with pytest.raises(wf.errors.InvalidArgumentError, match="the sample of x"):
        converter.convert({"x": np.ones([5, 2])})


def test_what_makes_no_sense_is_refused() -> None:
    for limit in (-1.0, np.nan):
        with pytest.raises(wf.errors.InvalidArgumentError, match="limit must be at least 0"):
            product().convert(limit=limit)
    with pytest.raises(wf.errors.InvalidArgumentError, match="keep_float requires calibration"):
        product().convert(keep_float=["y"])


@pytest.mark.parametrize("dtype", [wf.string, wf.float64])
def test_an_input_of_another_type_is_named(dtype: wf.DType) -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(dtype, [2], name="x")
        with pytest.raises(
            wf.errors.UnimplementedError, match="input x:0: lite does not support the type"
        ):
            Converter(x.graph, [x], [x]).convert()


def test_one_error_lists_inputs_and_nodes_with_what_to_do() -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float64, [2], name="x")
        z = wf.placeholder(wf.float32, [2, 2], name="z")
        outputs = [wf.cast(x, wf.float32), wf.linalg.inv(z, name="inverse")]
        with pytest.raises(wf.errors.UnimplementedError) as caught:
            Converter(x.graph, [x, z], outputs).convert()
    text = str(caught.value)
    assert "input x:0: lite does not support the type float64; cast to float32" in text
    assert "inverse (MatrixInverse): lite does not support the op: convert the parts" in text


@pytest.mark.parametrize(
    ("got", "wanted", "apart"),
    [
        ([1.0, 2.0], [1.0, 4.0], 0.5),
        ([np.nan, np.inf], [np.nan, np.inf], 0.0),
        ([-np.inf], [np.inf], np.inf),
        ([np.nan], [1.0], np.inf),
        ([1e-9], [-1e-9], 2e-6),
        ([1, 2, 3, 4], [1, 2, 3, 5], 0.25),
        ([True], [False], 1.0),
        ([], [], 0.0),
        ([1.0], [1.0, 1.0], np.inf),
    ],
)
def test_difference(got: Any, wanted: Any, apart: float) -> None:
    assert difference([np.asarray(got)], [np.asarray(wanted)]) == pytest.approx(apart)


def test_differences_are_relative_to_the_largest_value_of_all_samples() -> None:
    expected = [np.float32([0.01, 0.0]), np.float32([1.0])]
    assert difference([np.float32([0.02, 0.0]), np.float32([1.0])], expected) == pytest.approx(0.01)


def test_an_int8_graph_is_checked_on_several_samples() -> None:
    samples = [{"x": np.full([1], value, np.float32)} for value in np.linspace(1e-3, 1.0, 40)]
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [1], name="x")
        converter = Converter.from_session(session, [x], [wf.tanh(x) * 3.0])
        assert converter.convert(calibration=samples)
        with pytest.raises(wf.errors.DataLossError, match="its largest value"):
            converter.convert(samples[0], calibration=samples)


def test_outputs_have_the_names_of_the_fetches() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2, 3], name="x")
        scores = wf.identity(wf.nn.relu(x) + 1.0, name="scores")
        steps = wf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * 2.0), [0, x])
        last = wf.identity(steps[1], name="last")
        content = Converter.from_session(session, [x], [scores, last, x]).convert()
    details = Interpreter(model_content=content).get_output_details()
    assert [detail["name"] for detail in details[:2]] == ["scores", "last"]
