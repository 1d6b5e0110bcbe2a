"""Loops with given inputs and weights: results and gradients.

Each case builds a graph of a module that has TensorFlow 1.15's names; `results` sets its weights
and runs it.  `record.py` made `expected.json` with TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

STEPS, BATCH, INPUTS, UNITS = 5, 4, 3, 2


class Case:
    """A graph and its feeds.

    Attributes:
      build: takes the module and one tensor per feed, and returns a structure of tensors.
      feeds: shape and element type of each input, and the static shape it is declared with.
    """

    def __init__(self, build: Callable[..., Any], feeds: Sequence[tuple[Any, str, Any]]) -> None:
        self.build = build
        self.feeds = feeds


CASES: dict[str, Case] = {}


def case(*feeds: tuple[Any, str, Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(build: Callable[..., Any]) -> Callable[..., Any]:
        CASES[build.__name__] = Case(build, feeds)
        return build

    return register


def known(*shape: int, dtype: str = "float32") -> tuple[Any, str, Any]:
    return shape, dtype, shape


def sized(shape: Sequence[int], static: Sequence[int | None] | None, dtype: str = "float32") -> Any:
    """An input of which less is known while the graph is built."""
    return tuple(shape), dtype, static


BATCH_MAJOR = sized((BATCH, STEPS, INPUTS), (None, None, INPUTS))
TIME_MAJOR = known(STEPS, BATCH, INPUTS)
WIDE = sized((STEPS, BATCH, INPUTS), (None, BATCH, INPUTS), "float64")


# ------------------------------------------------------------------------------- dynamic_rnn


@case(BATCH_MAJOR)
def lstm(tf: Any, x: Any) -> Any:
    return tf.nn.dynamic_rnn(tf.nn.rnn_cell.BasicLSTMCell(UNITS), x, dtype=tf.float32)


@case(TIME_MAJOR)
def lstm_time_major(tf: Any, x: Any) -> Any:
    cell = tf.nn.rnn_cell.LSTMCell(UNITS, use_peepholes=True, num_proj=3)
    return tf.nn.dynamic_rnn(cell, x, dtype=tf.float32, time_major=True, scope="net")


@case(BATCH_MAJOR)
def lengths_none_to_all(tf: Any, x: Any) -> Any:
    """Lengths: no step, some, all, and more than exist."""
    lengths = tf.constant([0, 3, STEPS, STEPS + 2])
    return tf.nn.dynamic_rnn(
        tf.nn.rnn_cell.BasicLSTMCell(UNITS), x, sequence_length=lengths, dtype=tf.float32
    )


@case(known(BATCH, STEPS, INPUTS))
def lengths_short(tf: Any, x: Any) -> Any:
    """Lengths of which none reaches the last step."""
    lengths = tf.constant([1, 0, 3, 2], tf.int64)
    return tf.nn.dynamic_rnn(
        tf.nn.rnn_cell.GRUCell(UNITS), x, sequence_length=lengths, dtype=tf.float32
    )


@case(sized((BATCH, STEPS, INPUTS), (None, STEPS, INPUTS)))
def lengths_of_nothing(tf: Any, x: Any) -> Any:
    lengths = tf.zeros([BATCH], tf.int32)
    return tf.nn.dynamic_rnn(
        tf.nn.rnn_cell.BasicRNNCell(UNITS), x, sequence_length=lengths, dtype=tf.float32
    )


@case(WIDE)
def lengths_wide(tf: Any, x: Any) -> Any:
    cell = tf.nn.rnn_cell.LSTMCell(UNITS, cell_clip=0.3, num_proj=2)
    return tf.nn.dynamic_rnn(
        cell, x, sequence_length=[2, 5, 0, 4], dtype=tf.float64, time_major=True
    )


@case(TIME_MAJOR, known(BATCH, UNITS))
def initial_state(tf: Any, x: Any, h: Any) -> Any:
    cells = [tf.nn.rnn_cell.LSTMCell(UNITS), tf.nn.rnn_cell.GRUCell(UNITS)]
    state = (tf.nn.rnn_cell.LSTMStateTuple(0.3 * h, h), tf.tanh(h))
    cell = tf.nn.rnn_cell.MultiRNNCell(cells)
    return tf.nn.dynamic_rnn(
        cell, x, sequence_length=[5, 1, 0, 3], initial_state=state, time_major=True
    )


@case(BATCH_MAJOR)
def multi(tf: Any, x: Any) -> Any:
    cells = [
        tf.nn.rnn_cell.DropoutWrapper(tf.nn.rnn_cell.GRUCell(INPUTS)),
        tf.nn.rnn_cell.ResidualWrapper(tf.nn.rnn_cell.BasicLSTMCell(INPUTS)),
        tf.nn.rnn_cell.BasicLSTMCell(UNITS, state_is_tuple=False),
    ]
    cell = tf.nn.rnn_cell.MultiRNNCell(cells)
    return tf.nn.dynamic_rnn(cell, x, dtype=tf.float32, parallel_iterations=1, swap_memory=True)


@case(known(BATCH, STEPS, INPUTS), known(BATCH, STEPS, 2, INPUTS))
def own_cell(tf: Any, x: Any, y: Any) -> Any:
    """Structures of inputs, outputs and states, one of which is of no example."""

    class Leaky(tf.nn.rnn_cell.RNNCell):  # type: ignore[misc, name-defined]
        @property
        def state_size(self) -> Any:
            return {"steps": tf.TensorShape([]), "sum": (UNITS, tf.TensorShape([2, INPUTS]))}

        @property
        def output_size(self) -> Any:
            return (UNITS, tf.TensorShape([2, INPUTS]))

        def zero_state(self, batch_size: Any, dtype: Any) -> Any:
            zeros = (tf.zeros([batch_size, UNITS]), tf.zeros([batch_size, 2, INPUTS]))
            return {"steps": tf.zeros([]), "sum": zeros}

        def call(self, inputs: Any, state: Any) -> Any:
            w = tf.get_variable("w", [INPUTS, UNITS])
            first, second = state["sum"]
            first = 0.5 * first + tf.matmul(inputs["x"], w)
            second = tf.tanh(second + inputs["y"])
            after = {"steps": state["steps"] + 1.0, "sum": (first, second)}
            return (tf.sigmoid(first), second * second), after

    return tf.nn.dynamic_rnn(
        Leaky(), {"x": x, "y": y}, sequence_length=[0, 2, 5, 4], dtype=tf.float32
    )


@case(BATCH_MAJOR)
def bidirectional(tf: Any, x: Any) -> Any:
    cells = tf.nn.rnn_cell.GRUCell(UNITS), tf.nn.rnn_cell.BasicLSTMCell(3)
    return tf.nn.bidirectional_dynamic_rnn(*cells, x, dtype=tf.float32)


@case(BATCH_MAJOR)
def bidirectional_lengths(tf: Any, x: Any) -> Any:
    cells = tf.nn.rnn_cell.GRUCell(UNITS), tf.nn.rnn_cell.BasicLSTMCell(3)
    return tf.nn.bidirectional_dynamic_rnn(
        *cells, x, sequence_length=[2, 5, 0, 3], dtype=tf.float32, scope="both"
    )


@case(TIME_MAJOR, known(BATCH, UNITS))
def bidirectional_time_major(tf: Any, x: Any, h: Any) -> Any:
    cells = tf.nn.rnn_cell.BasicRNNCell(UNITS), tf.nn.rnn_cell.GRUCell(UNITS)
    return tf.nn.bidirectional_dynamic_rnn(
        *cells,
        x,
        sequence_length=[1, 5, 0, 3],
        initial_state_fw=h,
        initial_state_bw=0.5 * h,
        time_major=True,
    )


@case(known(BATCH, STEPS, dtype="int32"), known(BATCH, STEPS, UNITS))
def embedded_words(tf: Any, words: Any, targets: Any) -> Any:
    """Words that are looked up outside of one loop, and inside of another."""
    table = tf.get_variable("table", [5, INPUTS])
    inputs = tf.nn.embedding_lookup(table, words)
    lengths = tf.constant([1, STEPS, 0, 3])
    outputs, _ = tf.nn.dynamic_rnn(
        tf.nn.rnn_cell.BasicLSTMCell(UNITS), inputs, sequence_length=lengths, dtype=tf.float32
    )
    sums = tf.scan(
        lambda a, i: tf.tanh(a + tf.nn.embedding_lookup(table, i)),
        words[0],
        initializer=tf.zeros([INPUTS]),
    )
    return tf.reduce_sum((outputs - targets) ** 2, [1, 2]), sums


# ----------------------------------------------------------------------------------- raw_rnn


@case(TIME_MAJOR)
def raw_as_dynamic(tf: Any, x: Any) -> Any:
    lengths = tf.constant([2, 0, 4, 1])
    rows = tf.TensorArray(tf.float32, size=STEPS, clear_after_read=False).unstack(x)
    cell = tf.nn.rnn_cell.LSTMCell(UNITS)

    def loop_fn(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        following = cell.zero_state(BATCH, tf.float32) if output is None else state
        finished = time >= lengths
        given = tf.cond(
            tf.reduce_all(finished),
            lambda: tf.zeros([BATCH, INPUTS]),
            lambda: rows.read(time),
        )
        return finished, given, following, output, None

    arrays, state, loop_state = tf.nn.raw_rnn(cell, loop_fn)
    assert loop_state is None
    return arrays.stack(), state


@case(known(BATCH, UNITS))
def raw_decoder(tf: Any, h: Any) -> Any:
    """Feed outputs back until a sum is large, with a loop state in several parts."""
    cell = tf.nn.rnn_cell.GRUCell(UNITS)

    def loop_fn(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        if output is None:
            emitted = {"h": tf.zeros([UNITS]), "word": tf.constant(0)}
            kept = (tf.constant(1.0), tf.TensorArray(tf.float32, 0, dynamic_size=True))
            return tf.zeros([BATCH], tf.bool), tf.ones([BATCH, UNITS]), h, emitted, kept
        total, array = loop_state
        finished = tf.logical_or(time >= 6, tf.reduce_sum(state, 1) > 0.9)
        emitted = {"h": 2.0 * output, "word": tf.cast(tf.argmax(output, 1), tf.int32)}
        kept = (total * 1.5, array.write(time - 1, tf.reduce_sum(output)))
        return finished, tf.tanh(output), state, emitted, kept

    arrays, state, (total, array) = tf.nn.raw_rnn(cell, loop_fn, scope="decoder")
    return {key: each.stack() for key, each in arrays.items()}, state, total, array.stack()


# -------------------------------------------------------------------------- rows of tensors


@case(sized((4, 3), (None, 3)))
def rows_map(tf: Any, x: Any) -> Any:
    scale = tf.get_variable("scale", [3])
    return tf.map_fn(lambda row: tf.tanh(row * scale), x)


@case(sized((4, 3), None), known(4, dtype="int32"))
def rows_map_structure(tf: Any, x: Any, n: Any) -> Any:
    return tf.map_fn(
        lambda row: {"a": tf.reduce_sum(row["x"][:, None], 0), "b": (row["n"] * 2, row["x"] ** 2)},
        {"x": x, "n": n},
        dtype={"a": tf.float32, "b": (tf.int32, tf.float32)},
        parallel_iterations=2,
    )


@case(known(5, 2, dtype="float64"))
def rows_map_nested(tf: Any, x: Any) -> Any:
    return tf.map_fn(lambda row: tf.map_fn(lambda v: v * v * row[0], row), x, name="outer")


@case(sized((4, 3), (None, None)))
def rows_folds(tf: Any, x: Any) -> Any:
    w = tf.get_variable("w", [])
    return [
        tf.foldl(lambda a, row: tf.sin(a) + row * w, x),
        tf.foldr(lambda a, row: tf.sin(a) + row * w, x),
        tf.foldl(lambda a, row: a * 0.5 + tf.reduce_sum(row), x, initializer=w),
        tf.foldr(lambda a, row: a * 0.5 + tf.reduce_sum(row), x, initializer=1.5),
    ]


@case(known(4, 3), known(4, dtype="int32"))
def rows_folds_structure(tf: Any, x: Any, n: Any) -> Any:
    def step(a: Any, row: Any) -> Any:
        return {"sum": a["sum"] * 0.5 + row[0], "n": (a["n"][0] - row[1],)}

    first = {"sum": tf.ones([3]), "n": (tf.constant(7),)}
    return [
        tf.foldl(step, (x, n), initializer=first),
        tf.foldr(step, (x, n), initializer=first),
        tf.foldl(lambda a, row: (a[0] * row[0], a[1] + row[1]), (x, n)),
    ]


@case(sized((4, 3), (4, None)))
def rows_scan(tf: Any, x: Any) -> Any:
    w = tf.get_variable("w", [])
    return [
        tf.scan(lambda a, row: tf.sin(a) + row * w, x),
        tf.scan(lambda a, row: tf.sin(a) + row * w, x, reverse=True),
        tf.scan(lambda a, row: a * 0.5 + tf.reduce_sum(row), x, initializer=w),
        tf.scan(lambda a, row: a * 0.5 + tf.reduce_sum(row), x, initializer=w, reverse=True),
    ]


@case(known(4, 3), known(4, 2))
def rows_scan_structure(tf: Any, x: Any, y: Any) -> Any:
    def step(a: Any, row: Any) -> Any:
        h, (c,) = a
        return tf.tanh(h + row["y"]), (c * 0.5 + tf.reduce_sum(row["x"]) * tf.reduce_sum(h),)

    first = (tf.zeros([2]), (tf.constant(1.0),))
    rows = {"x": x, "y": y}
    return [
        tf.scan(step, rows, initializer=first, infer_shape=False),
        tf.scan(step, rows, initializer=first, reverse=True),
        tf.scan(lambda a, row: [a[0] + row[1][0], a[1] * row[0][0]], [x, y]),
    ]


# ----------------------------------------------------------------------------- whole programs


@case(known(INPUTS, 6))
def beam_search(tf: Any, table: Any) -> Any:
    """The best sequences of words under a table of log probabilities, which grow in the loop."""
    width, words, end = 3, 6, 0
    scores_of = tf.nn.log_softmax(tf.get_variable("between", [words, words]) + 2.0 * table[0])

    def go_on(time: Any, sequences: Any, scores: Any) -> Any:
        alive = tf.reduce_any(tf.not_equal(sequences[:, -1], end))
        return tf.logical_and(time < 7, alive)

    def extend(time: Any, sequences: Any, scores: Any) -> Any:
        last = sequences[:, -1]
        following = tf.gather(scores_of, last)
        stay = tf.one_hot(end, words, on_value=0.0, off_value=-1e3)
        ended = tf.tile(tf.equal(last, end)[:, None], [1, words])
        following = tf.where(ended, tf.tile(stay[None], [width, 1]), following)
        every = tf.reshape(scores[:, None] + following, [-1])
        best, chosen = tf.nn.top_k(every, k=width)
        parents = chosen // words
        grown = tf.concat([tf.gather(sequences, parents), (chosen % words)[:, None]], 1)
        return time + 1, grown, best

    return tf.while_loop(
        go_on,
        extend,
        (tf.constant(0), tf.constant([[1], [2], [3]]), tf.constant([0.0, -0.1, -0.2])),
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([width, None]),
            tf.TensorShape([width]),
        ),
    )


@case(BATCH_MAJOR)
def attention(tf: Any, x: Any) -> Any:
    """A decoder that looks at all outputs of an encoder, and at its own so far."""
    memory, state = tf.nn.dynamic_rnn(
        tf.nn.rnn_cell.GRUCell(UNITS), x, sequence_length=[3, 5, 1, 4], dtype=tf.float32
    )
    cell = tf.nn.rnn_cell.GRUCell(UNITS, name="decoder")

    def step(time: Any, state: Any, seen: Any) -> Any:
        keys = tf.concat([memory, seen], 1)
        weights = tf.nn.softmax(tf.reduce_sum(keys * state[:, None], 2))
        context = tf.reduce_sum(weights[:, :, None] * keys, 1)
        output, state = cell(context, state)
        return time + 1, state, tf.concat([seen, output[:, None]], 1)

    return tf.while_loop(
        lambda time, *_: time < 4,
        step,
        (tf.constant(0), state, tf.zeros([BATCH, 1, UNITS])),
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([None, UNITS]),
            tf.TensorShape([None, None, UNITS]),
        ),
    )


# -------------------------------------------------------------------------------- running one


def results(tf: Any, name: str) -> dict[str, Any]:
    """The variables of a case, its outputs, and the gradients of their sum.

    The sum is weighted, and goes by variables and floating inputs.
    """
    rng = np.random.RandomState(len(name))
    chosen = CASES[name]
    with tf.Graph().as_default():
        feeds = {
            tf.placeholder(dtype, static): _value(rng, shape, dtype)
            for shape, dtype, static in chosen.feeds
        }
        outputs = tf.nest.flatten(chosen.build(tf, *feeds))
        floats = [each for each in outputs if each.dtype.is_floating]
        variables = tf.global_variables()
        sources = [*variables, *[x for x in feeds if x.dtype.is_floating]]
        total = tf.add_n([_weighted(tf, each) for each in floats])
        gradients = [tf.convert_to_tensor(each) for each in tf.gradients(total, sources)]
        kinds = [(v.shape.as_list(), v.dtype.base_dtype.name) for v in variables]
        loads = [tf.assign(v, _value(rng, *kind)) for v, kind in zip(variables, kinds, strict=True)]
        with tf.Session() as session:
            session.run(loads)
            values = session.run([outputs, gradients], feeds)
        return {
            "variables": [f"{v.name} {v.shape.as_list()}" for v in variables],
            "shapes": [_sizes(each.shape) for each in outputs],
            "types": [each.dtype.name for each in outputs],
            "outputs": [np.asarray(value) for value in values[0]],
            "gradients": [np.asarray(value) for value in values[1]],
        }


def _sizes(shape: Any) -> Any:
    return None if shape.rank is None else shape.as_list()


def _value(rng: np.random.RandomState, shape: Any, dtype: str) -> Any:
    if dtype.startswith("float"):
        return rng.uniform(-0.9, 0.9, shape).astype(dtype)
    return rng.randint(5, size=shape).astype(dtype)


def _weighted(tf: Any, output: Any) -> Any:
    """A sum whose gradient is another one for every element."""
    wide = tf.cast(output, tf.float64)
    return tf.reduce_sum(wide * (1.0 + wide))
