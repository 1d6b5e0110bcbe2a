"""Recurrent networks with given weights: results and gradients.

Each case builds a network of a module that has TensorFlow 1.15's names; `results` sets its weights
and runs it.  `record.py` made `expected.json` with TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Build = Callable[[Any, list[Any]], Any]

STEPS, BATCH, INPUTS, UNITS = 3, 2, 2, 3

CASES: dict[str, Build] = {}


def case(build: Build) -> Build:
    CASES[build.__name__] = build
    return build


def unrolled(tf: Any, cell: Any, inputs: list[Any], **settings: Any) -> Any:
    dtype = None if "initial_state" in settings else inputs[0].dtype
    return tf.nn.static_rnn(cell, inputs, dtype=dtype, **settings)


def cell_case(name: str, make: Callable[[Any], Any]) -> None:
    """A case of one cell: `make` takes the module."""

    def build(tf: Any, inputs: list[Any]) -> Any:
        return unrolled(tf, make(tf), inputs)

    CASES[name] = build


# --------------------------------------------------------------------------------- the cells

cell_case("basic_rnn", lambda tf: tf.nn.rnn_cell.BasicRNNCell(UNITS))
cell_case("basic_rnn_relu", lambda tf: tf.nn.rnn_cell.BasicRNNCell(UNITS, activation=tf.nn.relu))
cell_case("gru", lambda tf: tf.nn.rnn_cell.GRUCell(UNITS))
cell_case("gru_relu", lambda tf: tf.nn.rnn_cell.GRUCell(UNITS, tf.nn.relu, name="named"))
cell_case("basic_lstm", lambda tf: tf.nn.rnn_cell.BasicLSTMCell(UNITS))
cell_case("basic_lstm_forget", lambda tf: tf.nn.rnn_cell.BasicLSTMCell(UNITS, forget_bias=0.3))
cell_case("basic_lstm_no_bias", lambda tf: tf.nn.rnn_cell.BasicLSTMCell(UNITS, forget_bias=0.0))
cell_case(
    "basic_lstm_one_tensor",
    lambda tf: tf.nn.rnn_cell.BasicLSTMCell(UNITS, state_is_tuple=False, activation=tf.sigmoid),
)
cell_case("lstm", lambda tf: tf.nn.rnn_cell.LSTMCell(UNITS))
cell_case(
    "lstm_peepholes", lambda tf: tf.nn.rnn_cell.LSTMCell(UNITS, use_peepholes=True, forget_bias=0.5)
)
cell_case("lstm_cell_clip", lambda tf: tf.nn.rnn_cell.LSTMCell(UNITS, cell_clip=0.15))
cell_case("lstm_projection", lambda tf: tf.nn.rnn_cell.LSTMCell(UNITS, num_proj=2))
cell_case(
    "lstm_projection_clip", lambda tf: tf.nn.rnn_cell.LSTMCell(UNITS, num_proj=4, proj_clip=0.05)
)
cell_case("lstm_activation", lambda tf: tf.nn.rnn_cell.LSTMCell(UNITS, activation=tf.nn.relu))
cell_case(
    "lstm_shards",
    lambda tf: tf.nn.rnn_cell.LSTMCell(UNITS, num_unit_shards=2, num_proj=2, num_proj_shards=3),
)
cell_case(
    "lstm_everything",
    lambda tf: tf.nn.rnn_cell.LSTMCell(
        UNITS,
        use_peepholes=True,
        cell_clip=0.4,
        num_proj=2,
        proj_clip=0.2,
        forget_bias=0.2,
        state_is_tuple=False,
        activation=tf.sigmoid,
    ),
)


@case
def lstm_float64(tf: Any, inputs: list[Any]) -> Any:
    wide = [tf.cast(each, tf.float64) for each in inputs]
    return unrolled(tf, tf.nn.rnn_cell.LSTMCell(UNITS, use_peepholes=True), wide)


# --------------------------------------------------------------------------------- made of cells

cell_case(
    "multi",
    lambda tf: tf.nn.rnn_cell.MultiRNNCell(
        [tf.nn.rnn_cell.LSTMCell(UNITS), tf.nn.rnn_cell.GRUCell(2)]
    ),
)
cell_case(
    "multi_one_tensor",
    lambda tf: tf.nn.rnn_cell.MultiRNNCell(
        [
            tf.nn.rnn_cell.BasicRNNCell(UNITS),
            tf.nn.rnn_cell.BasicLSTMCell(2, state_is_tuple=False),
        ],
        state_is_tuple=False,
    ),
)
cell_case(
    "wrapped",
    lambda tf: tf.nn.rnn_cell.MultiRNNCell(
        [
            tf.nn.rnn_cell.DropoutWrapper(tf.nn.rnn_cell.GRUCell(UNITS)),
            tf.nn.rnn_cell.ResidualWrapper(tf.nn.rnn_cell.BasicLSTMCell(UNITS)),
            tf.nn.rnn_cell.DeviceWrapper(tf.nn.rnn_cell.BasicRNNCell(2), "/cpu:0"),
        ]
    ),
)
cell_case(
    "residual_function",
    lambda tf: tf.nn.rnn_cell.ResidualWrapper(
        tf.nn.rnn_cell.GRUCell(INPUTS), residual_fn=lambda i, o: i * o
    ),
)


@case
def own_cell(tf: Any, inputs: list[Any]) -> Any:
    class Leaky(tf.nn.rnn_cell.RNNCell):  # type: ignore[misc, name-defined]
        @property
        def state_size(self) -> Any:
            return {"b": UNITS, "a": (2, UNITS)}

        @property
        def output_size(self) -> Any:
            return (2, UNITS)

        def call(self, inputs: Any, state: Any) -> Any:
            w = tf.get_variable("w", [INPUTS, UNITS])
            v = tf.get_variable("v", [INPUTS, 2])
            b = 0.5 * state["b"] + tf.matmul(inputs, w)
            first, second = state["a"]
            a = (tf.tanh(first + tf.matmul(inputs, v)), second * b)
            return (a[0], b + a[1]), {"b": b, "a": a}

    state = {"b": tf.ones([BATCH, UNITS]), "a": (tf.ones([BATCH, 2]), tf.ones([BATCH, UNITS]))}
    return unrolled(tf, Leaky(), inputs, initial_state=state)


# --------------------------------------------------------------------------------- networks


@case
def lengths(tf: Any, inputs: list[Any]) -> Any:
    return unrolled(tf, tf.nn.rnn_cell.BasicLSTMCell(UNITS), inputs, sequence_length=[1, 3])


@case
def lengths_of_nothing(tf: Any, inputs: list[Any]) -> Any:
    lengths = tf.constant([0, 2], tf.int64)
    cells = [tf.nn.rnn_cell.GRUCell(UNITS), tf.nn.rnn_cell.LSTMCell(UNITS, num_proj=2)]
    cell = tf.nn.rnn_cell.MultiRNNCell(cells)
    return unrolled(tf, cell, inputs, sequence_length=lengths, scope="short")


@case
def initial_state(tf: Any, inputs: list[Any]) -> Any:
    h = tf.tile(inputs[0][:, :1], [1, UNITS])
    state = tf.nn.rnn_cell.LSTMStateTuple(0.3 * h, h)
    return unrolled(tf, tf.nn.rnn_cell.LSTMCell(UNITS), inputs, initial_state=state)


@case
def bidirectional(tf: Any, inputs: list[Any]) -> Any:
    cells = tf.nn.rnn_cell.GRUCell(UNITS), tf.nn.rnn_cell.BasicLSTMCell(2)
    return tf.nn.static_bidirectional_rnn(*cells, inputs, dtype=tf.float32)


@case
def bidirectional_lengths(tf: Any, inputs: list[Any]) -> Any:
    cells = tf.nn.rnn_cell.GRUCell(UNITS), tf.nn.rnn_cell.BasicLSTMCell(2)
    return tf.nn.static_bidirectional_rnn(
        *cells, inputs, dtype=tf.float32, sequence_length=[2, 3], scope="both"
    )


# --------------------------------------------------------------------------------- running one


def results(tf: Any, name: str) -> dict[str, Any]:
    """The variables of a case, its outputs with its state, and the gradients of their sum.

    The sum is weighted, and goes by variables and inputs.
    """
    rng = np.random.RandomState(len(name))
    with tf.Graph().as_default():
        values = [rng.uniform(-1, 1, (BATCH, INPUTS)).astype(np.float32) for _ in range(STEPS)]
        inputs = [tf.constant(value) for value in values]
        outputs = tf.nest.flatten(CASES[name](tf, inputs))
        terms = [_weighted(tf, rng, output) for output in outputs]
        variables = tf.global_variables()
        gradients = tf.gradients(tf.add_n(terms), [*variables, *inputs])
        weights = [rng.uniform(-0.9, 0.9, v.shape.as_list()) for v in variables]
        loads = [
            tf.assign(v, w.astype(v.dtype.base_dtype.as_numpy_dtype))
            for v, w in zip(variables, weights, strict=True)
        ]
        with tf.Session() as session:
            session.run(loads)
            return {
                "variables": [f"{v.name} {v.shape.as_list()}" for v in variables],
                "outputs": session.run(outputs),
                "gradients": session.run(gradients),
            }


def _weighted(tf: Any, rng: np.random.RandomState, output: Any) -> Any:
    factor = rng.uniform(0.5, 1.5, output.shape.as_list()).astype(np.float32)
    return tf.reduce_sum(tf.cast(output, tf.float32) * factor)
