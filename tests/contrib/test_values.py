"""Values that contrib computes with other functions: losses, model sizes, beam scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_contrib import layers, legacy_seq2seq, losses, rnn, seq2seq, slim, training
from weft_contrib.seq2seq import tile_batch


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield


def run(fetches: Any) -> Any:
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        return session.run(fetches)


X = np.array([[0.2, 0.7, 0.4], [0.9, 0.3, 0.1]], np.float32)
Y = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], np.float32)
WEIGHTS = np.array([[2.0], [0.5]], np.float32)


@pytest.mark.parametrize(
    ("name", "labels", "options"),
    [
        ("absolute_difference", Y, {}),
        ("mean_squared_error", Y, {}),
        ("mean_pairwise_squared_error", Y, {}),
        ("log_loss", Y, {"epsilon": 0.1}),
        ("cosine_distance", Y, {"axis": 1}),
        ("sigmoid_cross_entropy", Y, {"label_smoothing": 0.2}),
        ("softmax_cross_entropy", Y, {"label_smoothing": 0.2}),
        ("sparse_softmax_cross_entropy", np.array([1, 0]), {}),
    ],
)
def test_losses_take_predictions_first(name: str, labels: Any, options: dict[str, Any]) -> None:
    weights = WEIGHTS[:, 0] if "softmax" in name else WEIGHTS
    older = getattr(losses, name)(X, labels, weights=weights, **options)
    newer = getattr(wf.losses, name)(labels, X, weights=weights, **options)
    got, expected = run([older, newer])
    assert got == expected != 0


def test_the_hinge_is_of_each_element() -> None:
    got = run(losses.hinge_loss(X, Y))
    np.testing.assert_allclose(got, np.maximum(0, 1 - (2 * Y - 1) * X), rtol=1e-6)
    assert not wf.losses.get_losses()


def test_sizes_of_models(capsys: pytest.CaptureFixture[str]) -> None:
    analyzer = slim.model_analyzer
    x = wf.placeholder(wf.float32, [None, 3], name="x")
    v = wf.get_variable("v", [2, 3], wf.float64)
    w = wf.get_variable("w", [], wf.float32)
    assert analyzer.tensor_description(x) == "float32 ?x3"
    assert analyzer.tensor_description(w) == "float32"
    assert analyzer.analyze_vars([v, w]) == (7, 52)
    assert capsys.readouterr().out == ""
    assert analyzer.analyze_vars([v, w], print_info=True) == (7, 52)
    lines = capsys.readouterr().out.splitlines()
    assert lines[3:] == [
        "v:0 (float64 2x3) [6, bytes: 48]",
        "w:0 (float32) [1, bytes: 4]",
        "Total size of variables: 7",
        "Total bytes of variables: 52",
    ]
    with wf.Graph().as_default() as graph:
        wf.ones([2, 3], name="ones")
        wf.placeholder(wf.float32, [None, 4], name="open")
        assert analyzer.analyze_ops(graph) == 6
        assert capsys.readouterr().out == ""
        assert analyzer.analyze_ops(graph, print_info=True) == 6
    assert capsys.readouterr().out == "ones:0 (float32 2x3) [6]\nopen:0 (float32 ?x4) [0]\n"


class _Fixed(rnn.RNNCell):
    """A cell whose logits are the same in each step."""

    state_size, output_size = 1, 3

    def call(self, inputs: Any, state: Any) -> Any:
        logits = wf.constant([[0.3, 0.5, 0.2]])
        return wf.log(logits) + 0.0 * inputs[:, :1], state


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_long_beams_are_scored_by_the_length_penalty(penalty: float) -> None:
    decoder = seq2seq.BeamSearchDecoder(
        _Fixed(), np.eye(3, dtype="f"), [1], 0, tile_batch(wf.zeros([1, 1]), 2), 2,
        length_penalty_weight=penalty,
    )  # fmt: skip
    outputs, state, _ = seq2seq.dynamic_decode(decoder, maximum_iterations=2)
    scores, chances, sizes = run(
        [outputs.beam_search_decoder_output.scores, state.log_probs, state.lengths]
    )
    np.testing.assert_allclose(scores[0, -1], chances[0] / ((5 + sizes[0]) / 6) ** penalty, 1e-5)
    assert sizes.max() == 2


def test_hyperparameters_are_of_their_types() -> None:
    made = training.HParams(rate=0.5, steps=3, name="a", flag=True, sizes=[1, 2])
    made.parse("rate=1,steps=4,name=b,flag=false,sizes=[3,4,5]")
    assert made.values() == {
        "rate": 1.0,
        "steps": 4,
        "name": "b",
        "flag": False,
        "sizes": [3, 4, 5],
    }
    made.parse("sizes[1]=7")
    assert made.sizes == [3, 7, 5]
    made.override_from_dict({"rate": 2, "flag": 1})
    assert (made.rate, made.flag, type(made.rate)) == (2.0, True, float)
    again = training.HParams(rate=0.0, steps=0).parse_json('{"rate": 3, "steps": 9}')
    assert again.to_json(sort_keys=True) == '{"rate": 3.0, "steps": 9}'
    assert "rate" in made and "other" not in made
    assert made.get("rate") == 2.0 and made.get("other", 5) == 5
    made.del_hparam("rate")
    assert "rate" not in made


def test_gradients_are_scaled_and_clipped() -> None:
    v = wf.Variable([3.0, 4.0])
    pairs = [(wf.constant([3.0, 4.0]), v)]
    scaled = slim.learning.multiply_gradients(pairs, {v.op.name: 2.0})
    (clipped,) = slim.learning.clip_gradient_norms(pairs, 1.0)
    found = run([scaled[0][0], clipped[0]])
    np.testing.assert_allclose(found, [[6, 8], [0.6, 0.8]], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "step"),
    [
        ({}, 0.4),
        ({"clip_gradients": 2.0}, 0.2),
        ({"clip_gradients": lambda pairs: [(g * 0.5, v) for g, v in pairs]}, 0.2),
        ({"gradient_multipliers": {"v:0": 3.0}}, 1.2),
        ({"learning_rate_decay_fn": lambda rate, step: rate / 2.0}, 0.2),
        ({"optimizer": wf.train.GradientDescentOptimizer(0.2)}, 0.8),
        ({"optimizer": wf.train.GradientDescentOptimizer}, 0.4),
        ({"optimizer": lambda: wf.train.GradientDescentOptimizer(0.2), "learning_rate": None}, 0.8),
    ],
)
def test_steps_of_optimize_loss(options: dict[str, Any], step: float) -> None:
    v = wf.Variable(2.0, name="v")
    given = {"learning_rate": 0.1, "optimizer": "SGD"} | options
    update = layers.optimize_loss(wf.square(v), wf.train.get_or_create_global_step(), **given)
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        session.run(update)
        np.testing.assert_allclose(session.run(v), 2.0 - step, rtol=1e-6)


@pytest.mark.parametrize("attention", [False, True])
def test_outputs_are_fed_to_the_next_step(attention: bool) -> None:
    fed: list[tuple[Any, int]] = []

    def loop_function(output: Any, step: int) -> Any:
        fed.append((output, step))
        return output[:, :3] * 2.0

    inputs, state = [wf.ones([2, 3])] * 3, wf.zeros([2, 4])
    if attention:
        memory = wf.ones([2, 5, 6])
        outputs, _ = legacy_seq2seq.attention_decoder(
            inputs, state, memory, rnn.GRUCell(4), loop_function=loop_function
        )
    else:
        outputs, _ = legacy_seq2seq.rnn_decoder(inputs, state, rnn.GRUCell(4), loop_function)
    assert len(outputs) == 3 and fed == [(outputs[0], 1), (outputs[1], 2)]
