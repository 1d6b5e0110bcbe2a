"""Cells, sequence to sequence, random fields and hyperparameters."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft_contrib import crf, cudnn_rnn, learn, legacy_seq2seq, rnn, seq2seq, training


def names() -> list[str]:
    return [variable.op.name for variable in wf.global_variables()]


def run(fetches: Any) -> Any:
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        return session.run(fetches)


def test_cells_and_the_names_of_their_variables() -> None:
    cells = {
        "a": (rnn.LayerNormBasicLSTMCell(4), "layer_norm_basic_lstm_cell/kernel", 4),
        "b": (rnn.OutputProjectionWrapper(rnn.GRUCell(4), 7), "output_projection_wrapper/bias", 7),
        "c": (rnn.InputProjectionWrapper(rnn.GRUCell(4), 3), "input_projection_wrapper/kernel", 4),
        "d": (rnn.LSTMBlockCell(4), "lstm_cell/kernel", 4),
        "e": (rnn.GRUBlockCell(4), "gru_cell/w_ru", 4),
        "f": (cudnn_rnn.CudnnCompatibleGRUCell(4), "cudnn_compatible_gru_cell/gates/kernel", 4),
    }
    x = wf.ones([2, 3, 5])
    outputs = [
        wf.nn.dynamic_rnn(cell, x, dtype=wf.float32, scope=scope)[0]
        for scope, (cell, _, _) in cells.items()
    ]
    two = [[rnn.GRUCell(2), rnn.GRUCell(3)] for _ in range(2)]
    outputs.append(rnn.stack_bidirectional_dynamic_rnn(*two, x, dtype=wf.float32)[0])
    sizes = [size for _, _, size in cells.values()]
    assert [value.shape for value in run(outputs)] == [(2, 3, size) for size in [*sizes, 6]]
    made = names()
    assert all(f"{scope}/{name}" in made for scope, (_, name, _) in cells.items())
    assert "stack_bidirectional_rnn/cell_1/bidirectional_rnn/bw/gru_cell/gates/kernel" in made


def test_attention_of_legacy_decoders_sees_all_parts_of_a_state() -> None:
    cell = wf.nn.rnn_cell.LSTMCell(4)
    legacy_seq2seq.attention_decoder(
        [wf.ones([2, 3])], cell.zero_state(2, wf.float32), wf.ones([2, 5, 6]), cell
    )
    shapes = {v.op.name: v.shape.as_list() for v in wf.global_variables()}
    (query,) = [shape for name, shape in shapes.items() if "Attention_0/kernel" in name]
    assert query == [4 + 4, 6]


def test_legacy_networks() -> None:
    encoder, decoder = [wf.constant([1, 2])] * 3, [wf.constant([1, 2])] * 2
    outputs, _ = legacy_seq2seq.embedding_attention_seq2seq(
        encoder, decoder, rnn.GRUCell(4), 9, 11, 5, feed_previous=wf.constant(True)
    )
    weights = [wf.ones([2])] * 2
    loss = legacy_seq2seq.sequence_loss(outputs, decoder, weights)
    (slope,) = wf.gradients(loss, [wf.trainable_variables()[1]])
    found, value, slope = run([outputs, loss, slope])
    logits = np.stack(found)
    chances = np.log(np.exp(logits).sum(-1)) - logits[:, [0, 1], [1, 2]]
    np.testing.assert_allclose(value, chances.mean(), rtol=1e-5)
    assert np.abs(slope).max() > 0
    assert (
        "embedding_attention_seq2seq/embedding_attention_decoder/attention_decoder/AttnW_0"
        in names()
    )


@pytest.mark.parametrize("mechanism", ["LuongAttention", "BahdanauAttention"])
def test_a_decoder_with_attention(mechanism: str) -> None:
    table = wf.get_variable("table", [11, 3])
    memory = getattr(seq2seq, mechanism)(8, wf.ones([2, 5, 6]), memory_sequence_length=[5, 3])
    cell = seq2seq.AttentionWrapper(rnn.BasicLSTMCell(8), memory, 7, alignment_history=True)
    layer = wf.layers.Dense(11, name="projection")

    def decoded(helper: Any, reuse: bool, **options: Any) -> Any:
        with wf.variable_scope("decoder", reuse=reuse) as scope:
            start = cell.zero_state(2, wf.float32)
            decoder = seq2seq.BasicDecoder(cell, helper, start, layer)
            return seq2seq.dynamic_decode(decoder, scope=scope, **options)

    rows = wf.nn.embedding_lookup(table, [[1, 2, 3], [4, 5, 6]])
    given = seq2seq.TrainingHelper(rows, [3, 2])
    outputs, state, lengths = decoded(given, False, impute_finished=True)
    greedy = seq2seq.GreedyEmbeddingHelper(table, [1, 1], 2)
    free = decoded(greedy, True, maximum_iterations=4)
    mask = wf.sequence_mask([3, 2], 3, dtype=wf.float32)
    loss = seq2seq.sequence_loss(outputs.rnn_output, [[1, 2, 3], [4, 5, 6]], mask)
    slopes = wf.gradients(loss, wf.trainable_variables())
    found, shares, ends, ids = run(
        [outputs.rnn_output, state.alignment_history.stack(), lengths, free[0].sample_id]
    )
    assert found.shape == (2, 3, 11) and not found[1, 2].any() and ends.tolist() == [3, 2]
    np.testing.assert_allclose(shares[0, 1], [1 / 3, 1 / 3, 1 / 3, 0, 0], rtol=1e-5)
    assert ids.shape[0] == 2 and ids.shape[1] <= 4
    assert all(slope is not None for slope in slopes)
    assert {"memory_layer/kernel", "decoder/attention_wrapper/attention_layer/kernel"} <= {*names()}


class _ByTheLastSymbol(rnn.RNNCell):
    state_size, output_size = 2, 4

    def __init__(self, logits: Any) -> None:
        super().__init__()
        self._logits = logits

    def call(self, inputs: Any, state: Any) -> Any:
        return wf.matmul(inputs, self._logits), state + 1.0


def test_beams_are_the_best_of_all_beginnings() -> None:
    logits = np.random.default_rng(0).normal(size=(4, 4)).astype("f") * 2
    cell, width = _ByTheLastSymbol(logits), 3
    start = seq2seq.tile_batch(wf.zeros([2, 2]), width)
    decoder = seq2seq.BeamSearchDecoder(cell, np.eye(4, dtype="f"), [1, 2], 0, start, width)
    outputs, state, _ = seq2seq.dynamic_decode(decoder, maximum_iterations=4)
    ids, chances = run([outputs.predicted_ids, state.log_probs])
    steps = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    for example, first in enumerate([1, 2]):
        beams = [((), 0.0)]
        for _ in range(4):
            beams = sorted(
                (
                    ((*symbols, w), chance + (0 if over else steps[last, w]))
                    for symbols, chance in beams
                    for last, over in [((first, *symbols)[-1], 0 in symbols)]
                    for w in (range(1) if over else range(4))
                ),
                key=lambda beam: -beam[1],
            )[:width]
        assert ids[example].T.tolist() == [list(symbols) for symbols, _ in beams]
        np.testing.assert_allclose(chances[example], [c for _, c in beams], rtol=1e-5)


def test_random_fields_against_all_tags() -> None:
    rng = np.random.default_rng(0)
    scores, table = rng.normal(size=(3, 4, 3)).astype("f"), rng.normal(size=(3, 3)).astype("f")
    tags, lengths = rng.integers(0, 3, (3, 4)), [4, 2, 1]
    likelihood, _ = crf.crf_log_likelihood(scores, tags, lengths, table)
    chances, (best, top) = run([likelihood, crf.crf_decode(scores, table, lengths)])
    for i, length in enumerate(lengths):

        def score(path: Any, i: int = i) -> float:
            moves = itertools.pairwise(path)
            return sum(scores[i, t, p] for t, p in enumerate(path)) + sum(table[m] for m in moves)

        paths = list(itertools.product(range(3), repeat=length))
        every = [score(path) for path in paths]
        own = score(tuple(tags[i, :length]))
        np.testing.assert_allclose(chances[i], own - np.logaddexp.reduce(every), rtol=1e-4)
        assert (
            tuple(best[i, :length]) == paths[int(np.argmax(every))] and not best[i, length:].any()
        )
        np.testing.assert_allclose(top[i], max(every), rtol=1e-5)
    assert crf.viterbi_decode(scores[0], table)[0] == best[0].tolist()


def test_hyperparameters() -> None:
    params = training.HParams(rate=0.1, layers=[32, 16], name="x", on=True)
    params.parse("rate=1,layers[1]=8,on=false").override_from_dict({"name": "y"})
    assert params.values() == {"rate": 1.0, "layers": [32, 8], "name": "y", "on": False}
    assert params.parse("layers=[1,2,3]").layers == [1, 2, 3] and "rate" in params
    assert training.HParams(rate=0.5).parse_json(params.to_json()[:12] + "}").rate == 1.0
    for wrong in ("rate=x", "nothing=1", "rate", "layers=1"):
        with pytest.raises(errors.InvalidArgumentError):
            params.parse(wrong)


def test_texts_become_rows_of_ids(tmp_path: Any) -> None:
    preprocessing = learn.preprocessing
    texts = ["a b a", "b c-d e", "It's a TESTCase"]
    processor = preprocessing.VocabularyProcessor(3)
    rows = np.array(list(processor.fit_transform(iter(texts))))
    assert rows.tolist() == [[1, 2, 1], [2, 3, 4], [5, 1, 6]]
    assert next(iter(processor.transform(["a z"]))).tolist() == [1, 0, 0]
    processor.save(str(tmp_path / "vocabulary"))
    again = preprocessing.VocabularyProcessor.restore(str(tmp_path / "vocabulary"))
    assert list(again.reverse(again.transform(["e b q"]))) == ["e b <UNK>"]
    frequent = preprocessing.VocabularyProcessor(3, min_frequency=1).fit(texts)
    assert len(frequent.vocabulary_) == 3
    (tmp_path / "vocabulary").write_text("[]")
    with pytest.raises(errors.DataLossError, match="no vocabulary"):
        preprocessing.VocabularyProcessor.restore(str(tmp_path / "vocabulary"))


def test_beams_with_attention_are_scored_as_their_symbols_are_in_training() -> None:
    rng = np.random.default_rng(3)
    memory = rng.normal(size=(2, 4, 6)).astype("f")
    lengths, width, symbols = np.array([4, 2]), 3, 5
    embedding = wf.constant(rng.normal(size=(symbols, 4)).astype("f"))
    project = wf.layers.Dense(symbols, use_bias=False, name="project")

    def attentive(values: Any, sizes: Any) -> Any:
        attention = seq2seq.LuongAttention(6, values, sizes)
        return seq2seq.AttentionWrapper(rnn.LSTMCell(6), attention, 6, name="attend")

    found = wf.placeholder(wf.int32, [2, None])
    inputs = wf.concat([wf.ones([2, 1], wf.int32), found[:, :-1]], 1)
    helper = seq2seq.TrainingHelper(wf.nn.embedding_lookup(embedding, inputs), [3, 3])
    with wf.variable_scope("decode"):
        cell = attentive(memory, lengths)
        zero = cell.zero_state(2, wf.float32)
        teaching = seq2seq.BasicDecoder(cell, helper, zero, output_layer=project)
        taught, _, _ = seq2seq.dynamic_decode(teaching)
    with wf.variable_scope("decode", reuse=True):
        cell = attentive(*(seq2seq.tile_batch(part, width) for part in (memory, lengths)))
        start = cell.zero_state(2 * width, wf.float32)
        decoder = seq2seq.BeamSearchDecoder(
            cell, embedding, [1, 1], 0, start, width, output_layer=project
        )
        outputs, state, _ = seq2seq.dynamic_decode(decoder, maximum_iterations=3)
    chances = wf.nn.log_softmax(taught.rnn_output)
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        ids, sums = session.run([outputs.predicted_ids, state.log_probs])
        for beam in range(width):
            each = session.run(chances, {found: ids[:, :, beam]})
            for example in range(2):
                path = ids[example, :, beam].tolist()
                path = path[: path.index(0) + 1] if 0 in path else path
                total = sum(each[example, i, symbol] for i, symbol in enumerate(path))
                np.testing.assert_allclose(total, sums[example, beam], rtol=1e-4)


def test_layers_of_one_op_are_loops_over_cells() -> None:
    """LSTMBlockFusedCell, LSTMBlockCell and LSTMCell from one checkpoint's variables."""
    x, lengths = wf.placeholder(wf.float32, [4, 3, 5]), [4, 2, 0]
    options: dict[str, Any] = {"use_peephole": True, "cell_clip": 0.3}
    fused = rnn.LSTMBlockFusedCell(6, **options)
    outputs, state = fused(x, dtype=wf.float32, sequence_length=lengths)
    assert names() == [
        f"lstm_fused_cell/{n}" for n in ("kernel", "bias", "w_i_diag", "w_f_diag", "w_o_diag")
    ]
    cells = {
        "block": rnn.LSTMBlockCell(6, **options),
        "plain": rnn.LSTMCell(6, use_peepholes=True, cell_clip=0.3),
    }
    found = {
        scope: wf.nn.dynamic_rnn(cell, x, lengths, dtype=wf.float32, time_major=True, scope=scope)
        for scope, cell in cells.items()
    }
    listed, _ = fused(wf.unstack(x), initial_state=(state.c, state.h))
    assert [value.shape.as_list() for value in listed] == [[3, 6]] * 4
    first = {v.op.name.split("/")[-1]: v for v in fused.variables}
    copies = [
        v.assign(first[v.op.name.split("/")[-1]]) for v in wf.global_variables() if "cell" in v.name
    ]
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        session.run(copies)
        fed = {x: np.random.default_rng(0).normal(size=(4, 3, 5))}
        wanted = session.run([outputs, state], fed)
        assert not wanted[0][2:, 1].any() and not wanted[0][:, 2].any()
        for pair in found.values():
            for a, b in zip(wanted[1], session.run(pair[1], fed), strict=True):
                np.testing.assert_allclose(a, b, atol=1e-6)
            np.testing.assert_allclose(wanted[0], session.run(pair[0], fed), atol=1e-6)


@pytest.mark.parametrize(
    ("block", "kernel"), [("GRUBlockCell", "w_ru"), ("GRUBlockCellV2", "gates/kernel")]
)
def test_block_gated_recurrent_units(block: str, kernel: str) -> None:
    x, h = wf.random_normal([3, 4], seed=1), wf.ones([3, 2])
    cell, plain = getattr(rnn, block)(2), rnn.GRUCell(2, name="plain")
    values = wf.stack([cell(x, h)[0], plain(x, h)[0]])
    assert cell.variables[0].op.name == f"gru_cell/{kernel}"
    order = [0, 2, 1, 3]  # its kernels come first
    copies = [v.assign(cell.variables[at]) for v, at in zip(plain.variables, order, strict=True)]
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        session.run(copies)
        one, other = session.run(values)
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_block_cells_say_what_they_need() -> None:
    fused = rnn.LSTMBlockFusedCell(2)
    with pytest.raises(errors.InvalidArgumentError, match="initial_state or dtype"):
        fused(wf.ones([2, 3, 4]))
    with pytest.raises(errors.InvalidArgumentError, match=r"must be a pair \(c, h\)"):
        rnn.LSTMBlockCell(2)(wf.ones([3, 4]), wf.ones([3, 4]))
    with pytest.raises(errors.InvalidArgumentError, match="last size is known"):
        rnn.LSTMBlockFusedCell(2)(wf.placeholder(wf.float32, [2, 3, None]), dtype=wf.float32)
    with pytest.raises(errors.InvalidArgumentError, match="num_units or its deprecated name"):
        rnn.GRUBlockCell()


def test_buckets_share_a_cell_that_was_used() -> None:
    def cell() -> Any:
        return rnn.MultiRNNCell([rnn.GRUCell(4), rnn.DropoutWrapper(rnn.GRUCell(4), 1.0)])

    def outputs_with(cell_of_bucket: Callable[[], Any]) -> tuple[list[str], Any]:
        with wf.Graph().as_default(), wf.Session() as session:
            encoded, decoded = [wf.constant([1, 2])] * 2, [wf.constant([3, 0])] * 3
            outputs, _ = legacy_seq2seq.model_with_buckets(
                encoded,
                decoded,
                decoded,
                [wf.ones([2])] * 3,
                [(1, 2), (2, 3)],
                lambda e, d: legacy_seq2seq.embedding_rnn_seq2seq(e, d, cell_of_bucket(), 5, 5, 3),
            )
            variables = sorted(wf.global_variables(), key=lambda v: v.op.name)
            for seed, variable in enumerate(variables):
                shape = variable.shape.as_list()
                variable.load(np.random.default_rng(seed).standard_normal(shape), session)
            return [v.op.name for v in variables], session.run(outputs)

    shared = cell()
    (own_names, own), (shared_names, found) = outputs_with(cell), outputs_with(lambda: shared)
    assert shared_names == own_names
    for a, b in zip(wf.nest.flatten(found), wf.nest.flatten(own), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
