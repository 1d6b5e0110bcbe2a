"""Errors of contrib: each invalid argument, and the message about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from weft_testing.parts import Parts

import weft as wf
from weft_contrib import (
    framework,
    layers,
    legacy_seq2seq,
    opt,
    rnn,
    seq2seq,
    slim,
    training,
)
from weft_contrib.slim import nets
from weft_tensor import errors

Table = dict[str, tuple[str, Callable[[], Any]]]
"""What the error says and what raises it, by a title."""


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield


def of_unknown(*sizes: int | None) -> Any:
    return wf.placeholder(wf.float32, list(sizes) or None)


def attention() -> Any:
    return seq2seq.LuongAttention(8, wf.ones([2, 5, 6]))


def wrapper(**options: Any) -> Any:
    return seq2seq.AttentionWrapper(rnn.GRUCell(8), attention(), **options)


def beams(**options: Any) -> Any:
    given = {"start_tokens": [1], "end_token": 0, "beam_width": 2} | options
    return seq2seq.BeamSearchDecoder(
        rnn.GRUCell(4), wf.ones([5, 4]), initial_state=wf.zeros([2, 4]), **given
    )


def optimized(optimizer: Any = "SGD", rate: Any = 0.1, step: Any = None, **options: Any) -> Any:
    loss = wf.square(wf.Variable(2.0))
    return layers.optimize_loss(loss, step, rate, optimizer, **options)


def hparams(**values: Any) -> Any:
    return training.HParams(**values)


SEQUENCES: Table = {
    "lengths of rank 2": (
        "sequence_length to be a vector",
        lambda: seq2seq.TrainingHelper(wf.ones([1, 2, 1]), [[2]]),
    ),
    "tokens of rank 2": (
        "start_tokens must be a vector",
        lambda: seq2seq.GreedyEmbeddingHelper(wf.ones([3, 2]), [[1]], 0),
    ),
    "an end of rank 1": (
        "end_token must be a scalar",
        lambda: seq2seq.GreedyEmbeddingHelper(wf.ones([3, 2]), [1], [0]),
    ),
    "an early batch size": (
        "before initialize",
        lambda: seq2seq.CustomHelper(len, len, len).batch_size,
    ),
    "no decoder": ("to be type Decoder", lambda: seq2seq.dynamic_decode(3)),
    "coverage": ("coverage penalty", lambda: beams(coverage_penalty_weight=0.5)),
    "beams of rank 2": ("start_tokens", lambda: beams(start_tokens=[[1]])),
    "beams that end twice": ("end_token", lambda: beams(end_token=[0, 1])),
    "two kinds of layers": (
        "Only one of attention_layer_size",
        lambda: wrapper(attention_layer_size=4, attention_layer=wf.layers.Dense(4)),
    ),
    "layers for each": ("got 2 for 1", lambda: wrapper(attention_layer_size=[4, 4])),
    "another cell's state": (
        "AttentionWrapperState is required",
        lambda: wrapper()(wf.ones([2, 3]), wf.zeros([2, 8])),
    ),
    "a query of another depth": (
        "depth|units",
        lambda: attention()(wf.ones([2, 7]), wf.ones([2, 5])),
    ),
    "tiles of an unknown rank": ("known rank", lambda: seq2seq.tile_batch(of_unknown(), 2)),
    "logits of rank 2": (
        "logits must have rank 3",
        lambda: seq2seq.sequence_loss(wf.ones([2, 3]), [[1, 1]], [[1.0, 1.0]]),
    ),
    "targets of rank 1": (
        "targets must have rank 2",
        lambda: seq2seq.sequence_loss(wf.ones([1, 2, 3]), [1, 1], [[1.0, 1.0]]),
    ),
    "weights of rank 1": (
        "weights must have rank 2",
        lambda: seq2seq.sequence_loss(wf.ones([1, 2, 3]), [[1, 1]], [1.0, 1.0]),
    ),
    "no inputs": (
        "at least one input and one attention head",
        lambda: legacy_seq2seq.attention_decoder([], wf.ones([1, 2]), wf.ones([1, 2, 3]), None),
    ),
    "no heads": (
        "at least one input and one attention head",
        lambda: legacy_seq2seq.attention_decoder(
            [wf.ones([1, 2])], wf.ones([1, 2]), wf.ones([1, 2, 3]), rnn.GRUCell(2), num_heads=0
        ),
    ),
    "an unknown width": (
        "must be known",
        lambda: legacy_seq2seq.attention_decoder(
            [wf.ones([1, 2])], wf.ones([1, 2]), of_unknown(1, 2, None), rnn.GRUCell(2)
        ),
    ),
    "lists of several lengths": (
        "must be the same 1, 1, 2",
        lambda: legacy_seq2seq.sequence_loss([wf.ones([1, 2])], [[1], [1]], [[1.0]]),
    ),
    "weights for each logit": (
        "must be the same 1, 0, 1",
        lambda: legacy_seq2seq.sequence_loss([wf.ones([1, 2])], [[1]], []),
    ),
    "too few inputs for a bucket": (
        "last bucket",
        lambda: legacy_seq2seq.model_with_buckets([1], [1, 2], [1, 2], [1, 2], [(2, 2)], len),
    ),
    "too few targets for a bucket": (
        "got 2, 1 and 2",
        lambda: legacy_seq2seq.model_with_buckets([1, 2], [1, 2], [1], [1, 2], [(2, 2)], len),
    ),
}
CELLS: Table = {
    "fewer backward cells": (
        "got 1 and 0",
        lambda: rnn.stack_bidirectional_dynamic_rnn([rnn.GRUCell(2)], [], of_unknown(1, 2, 3)),
    ),
    "no cells": (
        "got 0 and 0",
        lambda: rnn.stack_bidirectional_dynamic_rnn([], [], of_unknown(1, 2, 3)),
    ),
    "states for each": (
        "1 states are required, got 2",
        lambda: rnn.stack_bidirectional_dynamic_rnn(
            [rnn.GRUCell(2)], [rnn.GRUCell(2)], of_unknown(1, 2, 3), [None, None]
        ),
    ),
    "no cell": ("must be an RNNCell", lambda: rnn.AttentionCellWrapper(len, 3)),
    "a pair as one tensor": (
        "state_is_tuple=False requires",
        lambda: rnn.AttentionCellWrapper(rnn.BasicLSTMCell(4), 3, state_is_tuple=False),
    ),
    "attention to nothing": (
        "above 0, got 0",
        lambda: rnn.AttentionCellWrapper(rnn.GRUCell(4), 0),
    ),
    "a highway of another width": (
        "as wide as the output",
        lambda: rnn.HighwayWrapper(rnn.GRUCell(4))(wf.ones([2, 3]), wf.zeros([2, 4])),
    ),
    "a state that is no pair": (
        "must be a pair",
        lambda: rnn.LSTMBlockCell(4)(wf.ones([2, 3]), wf.zeros([2, 4])),
    ),
    "a state of three": (
        "must be a pair",
        lambda: rnn.LSTMBlockCell(4)(wf.ones([2, 3]), [wf.zeros([2, 4])] * 3),
    ),
    "no state and no dtype": (
        "initial_state or dtype",
        lambda: rnn.LSTMBlockFusedCell(4)(wf.ones([5, 2, 3])),
    ),
    "an unknown width": ("last size is known", lambda: rnn.LSTMBlockCell(4).build([None, None])),
    "no number of units": ("got None and None", lambda: rnn.GRUBlockCell()),
    "two numbers of units": ("got 4 and 4", lambda: rnn.GRUBlockCell(4, cell_size=4)),
}
LAYERS: Table = {
    "a format of images": (
        "data_format",
        lambda: layers.conv2d(wf.ones([1, 4, 4, 3]), 2, 3, data_format="NWC"),
    ),
    "a rank of images": ("rank 4", lambda: layers.conv2d(wf.ones([1, 4, 3]), 2, 3)),
    "words without a size": ("embed_dim", lambda: layers.embed_sequence([[1]], 3)),
    "words without a count": ("vocab_size", lambda: layers.embed_sequence([[1]], None, 3)),
    "weights of a batch": (
        "batch_norm does not support batch_weights",
        lambda: layers.batch_norm(wf.ones([2, 3]), batch_weights=[1.0, 2.0]),
    ),
    "a layer of an unknown rank": ("known rank", lambda: layers.layer_norm(of_unknown())),
    "a first axis too high": (
        "begin_norm_axis",
        lambda: layers.layer_norm(wf.ones([2, 3]), begin_norm_axis=2),
    ),
    "parameters of an axis too high": (
        "begin_params_axis",
        lambda: layers.layer_norm(wf.ones([2, 3]), begin_params_axis=2),
    ),
    "an unknown size": ("must be known", lambda: layers.layer_norm(of_unknown(2, None))),
    "channels of an instance": (
        "number of channels",
        lambda: layers.instance_norm(of_unknown(2, 3, None)),
    ),
    "channels of an instance, first": (
        "number of channels",
        lambda: layers.instance_norm(of_unknown(2, None, 3), data_format="NCHW"),
    ),
    "an instance of an unknown rank": (
        "number of channels",
        lambda: layers.instance_norm(of_unknown()),
    ),
    "groups of an unknown rank": ("known rank", lambda: layers.group_norm(of_unknown(), 3)),
    "groups of an unknown size": (
        "multiple of groups=3",
        lambda: layers.group_norm(of_unknown(2, 3, 3, None), 3),
    ),
    "integers at random": (
        "non-floating",
        lambda: layers.variance_scaling_initializer(dtype=wf.int32),
    ),
    "integers at random, later": (
        "non-floating",
        lambda: layers.variance_scaling_initializer()([2, 2], wf.int32),
    ),
    "a mode": ("FAN_IN", lambda: layers.variance_scaling_initializer(mode="FAN")),
    "a summary": (r"unknown summaries: .*nope", lambda: optimized(summaries=["loss", "nope"])),
    "a decay without a step": (
        "global_step is required",
        lambda: optimized(learning_rate_decay_fn=lambda rate, step: rate),
    ),
    "an optimizer's name": ("you provided Nope", lambda: optimized("Nope")),
    "no rate": ("Learning rate is None", lambda: optimized("SGD", None)),
    "no optimizer": ("Unrecognized optimizer", lambda: optimized(lambda rate: rate)),
    "a limit": ("Unknown type", lambda: optimized(clip_gradients="1")),
    "a multiple of nothing": (
        "`None` gradient",
        lambda: slim.learning.multiply_gradients([(None, v := wf.Variable(1.0))], {v: 2.0}),
    ),
    "a trust ratio": ("got -1.0 and 0.0", lambda: opt.LARSOptimizer(0.1, eeta=-1.0)),
    "an epsilon": ("and -1.0", lambda: opt.LARSOptimizer(0.1, epsilon=-1.0)),
    "an unfinished network": (
        "final_endpoint",
        lambda: nets.inception.inception_v3_base(wf.ones([1, 99, 99, 3]), "Nope"),
    ),
    "a depth of 0": (
        "depth_multiplier",
        lambda: nets.inception.inception_v3(wf.ones([1, 99, 99, 3]), depth_multiplier=0),
    ),
    "a variable of no name": ("nope", lambda: framework.get_unique_variable("nope")),
    "a scope that is no list": (
        "include must be a list",
        lambda: framework.get_variables_to_restore(include="scope"),
    ),
    "excluded that is no list": (
        "exclude must be a list",
        lambda: framework.get_variables_to_restore(exclude="scope"),
    ),
    "a value of another shape": (
        "has the shape",
        lambda: framework.assign_from_values({wf.Variable([1.0], name="v").op.name: [1.0, 2.0]}),
    ),
    "nothing to assign": (
        "cannot be empty",
        lambda: framework.assign_from_checkpoint_fn("path", []),
    ),
}
PARAMETERS: Table = {
    "a message": ("does not support hparam_def", lambda: training.HParams(hparam_def=b"")),
    "a name twice": ("is reserved: a", lambda: hparams(a=1).add_hparam("a", 2)),
    "a method's name": ("is reserved", lambda: hparams(values=1)),
    "no values of a list": ("cannot be empty: a", lambda: hparams(a=[])),
    "an unknown name": ("Unknown hyperparameter: b", lambda: hparams(a=1).set_hparam("b", 1)),
    "a number for a list": ("a", lambda: hparams(a=[1]).set_hparam("a", 1)),
    "a list for a number": ("a", lambda: hparams(a=1).set_hparam("a", [1])),
    "a bool for an int": ("a is an int", lambda: hparams(a=1).set_hparam("a", True)),
    "a half for an int": ("a", lambda: hparams(a=1).set_hparam("a", 0.5)),
    "a text for a float": ("a", lambda: hparams(a=1.0).set_hparam("a", "1")),
    "text that is no assignment": ("Malformed", lambda: hparams(a=1).parse("a 1")),
    "an assignment to no name": ("type for b", lambda: hparams(a=1).parse("b=1")),
    "two assignments": ("Multiple assignments", lambda: hparams(a=1).parse("a=1,a=2")),
    "text that is no number": ("Could not parse", lambda: hparams(a=1).parse("a=x")),
}


@pytest.mark.parametrize("table", [SEQUENCES, CELLS, LAYERS, PARAMETERS])
def test_refusals(table: Table) -> None:
    refused = (
        errors.InvalidArgumentError,
        errors.InvalidTypeError,
        errors.UnimplementedError,
        errors.FailedPreconditionError,
    )
    with Parts() as parts:
        for title, (words, make) in table.items():
            with parts.part(title), wf.Graph().as_default(), pytest.raises(refused, match=words):
                make()
