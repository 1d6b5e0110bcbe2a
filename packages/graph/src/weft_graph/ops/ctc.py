"""Connectionist temporal classification (Graves et al. 2006): the loss and decoders."""

from __future__ import annotations

__all__ = ["ctc_beam_search_decoder", "ctc_beam_search_decoder_v2", "ctc_greedy_decoder"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import create
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, ShapeRule, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import cost_rules
from weft_graph.ops.shape_rules import merge_size, with_rank
from weft_tensor import errors
from weft_tensor.shape import Dims

# ------------------------------------------------------------------------- shape rules


def _batch(op: str, node: NodeSpec) -> tuple[tuple[int | None, ...], int | None]:
    """Return the shape of the inputs and the batch size."""
    x = with_rank(node.inputs[0].dims, 3, f"{op}: inputs")
    (count,) = with_rank(node.inputs[-1].dims, 1, f"{op}: sequence_length")
    return x, merge_size(x[1], count, f"{op}: batch and size of sequence_length")


def _loss_rule(op: str) -> ShapeRule:
    def rule(node: NodeSpec) -> Sequence[Dims]:
        x, batch = _batch(op, node)
        rows, pair = with_rank(node.inputs[1].dims, 2, f"{op}: labels_indices")
        merge_size(pair, 2, f"{op}: second size of labels_indices")
        (count,) = with_rank(node.inputs[2].dims, 1, f"{op}: labels_values")
        merge_size(rows, count, f"{op}: sizes of labels_indices and labels_values")
        return (batch,), (x[0], batch, x[2])

    return rule


def _greedy_rule(node: NodeSpec) -> Sequence[Dims]:
    _, batch = _batch("CTCGreedyDecoder", node)
    return (None, 2), (None,), (2,), (batch, 1)


def _beam_rule(node: NodeSpec) -> Sequence[Dims]:
    _, batch = _batch("CTCBeamSearchDecoder", node)
    paths, width = node.attrs["top_paths"], node.attrs["beam_width"]
    if paths > width:
        raise errors.InvalidArgumentError(
            f"CTCBeamSearchDecoder requires top_paths up to beam_width, got {paths} and {width}"
        )
    return *[(None, 2)] * paths, *[(None,)] * paths, *[(2,)] * paths, (batch, paths)


# ------------------------------------------------------------------------ declarations

_T = {"T": "{float32, float64} = float32"}
_FLAGS = {
    "preprocess_collapse_repeated": "bool = false",
    "ctc_merge_repeated": "bool = true",
    "ignore_longer_outputs_than_inputs": "bool = false",
}

for _op, _kind, _types in (("CTCLoss", "T", _T), ("CTCLossV2", "float32", {})):
    register_op(
        _op,
        (
            f"inputs: {_kind}",
            "labels_indices: int64",
            "labels_values: int32",
            "sequence_length: int32",
        ),
        (f"loss: {_kind}", f"gradient: {_kind}"),
        _FLAGS | _types,
        _loss_rule(_op),
        traits=Traits(cost=cost_rules.per_input(60)),
        doc="-log of the probability of the labels, and its gradient with respect to the logits.",
    )
register_op(
    "CTCGreedyDecoder",
    ("inputs: T", "sequence_length: int32"),
    (
        "decoded_indices: int64",
        "decoded_values: int64",
        "decoded_shape: int64",
        "log_probability: T",
    ),
    {"merge_repeated": "bool = false", "blank_index": "int = -1", **_T},
    _greedy_rule,
    traits=Traits(differentiable=False),
    doc="The most probable class at each time.",
)
register_op(
    "CTCBeamSearchDecoder",
    ("inputs: T", "sequence_length: int32"),
    (
        "decoded_indices: top_paths * int64",
        "decoded_values: top_paths * int64",
        "decoded_shape: top_paths * int64",
        "log_probability: T",
    ),
    {
        "beam_width": "int >= 1",
        "top_paths": "int >= 1",
        "merge_repeated": "bool = true",
        **_T,
    },
    _beam_rule,
    traits=Traits(cost=cost_rules.per_input(400), differentiable=False),
    doc="The most probable sequences of labels, by a search over prefixes.",
)

# --------------------------------------------------------------------------- functions


def ctc_greedy_decoder(
    inputs: Any,
    sequence_length: Any,
    merge_repeated: bool = True,
    blank_index: int | None = None,
    name: str | None = None,
) -> tuple[list[SparseTensor], Output]:
    """Return the most probable class at each time, without blanks.

    Args:
      inputs: float32 or float64, shape (T, B, C): logits, time first.
      sequence_length: int32, shape (B,), 0 to T.
      merge_repeated: treat consecutive equal classes as one label.
      blank_index: the blank class; negative values count from the end; C - 1 by default.
    Returns: a list of one sparse int64 matrix of labels, dense shape (B, longest), and the negative
      sum of the largest logits, shape (B, 1).
    Raises: InvalidArgumentError: the shapes do not match, or a length is too large.

    Examples:
      >>> logits = wf.one_hot([[0], [0], [2], [1]], 3)
      >>> (decoded,), _ = wf.nn.ctc_greedy_decoder(logits, [4])
      >>> wf.Session().run(decoded.values)
      array([0, 1])
    """
    attrs = {
        "merge_repeated": merge_repeated,
        "blank_index": -1 if blank_index is None else blank_index,
    }
    node = create("CTCGreedyDecoder", [inputs, sequence_length], attrs, name)
    indices, values, shape, score = node.outputs
    return [SparseTensor(indices, values, shape)], score


def ctc_beam_search_decoder(
    inputs: Any,
    sequence_length: Any,
    beam_width: int = 100,
    top_paths: int = 1,
    merge_repeated: bool = True,
    name: str | None = None,
) -> tuple[list[SparseTensor], Output]:
    """Return the most probable label sequences, summed over their alignments.

    Args:
      inputs: float32 or float64, shape (T, B, C): logits, time first; the blank is class C - 1.
      sequence_length: int32, shape (B,), 0 to T.
      beam_width: number of prefixes kept at each time step.
      top_paths: number of sequences to return, up to beam_width.
      merge_repeated: drop a label that equals the previous one, even if a blank separates them;
        `ctc_beam_search_decoder_v2` does not.
    Returns: top_paths sparse int64 matrices of labels, dense shape (B, longest), and the logarithms
      of their probabilities, shape (B, top_paths).
    Raises: InvalidArgumentError: the shapes do not match, a length is too large, or there are fewer
      sequences than `top_paths`.

    Examples:
      >>> logits = wf.math.log([[[0.4, 0.1, 0.5]], [[0.4, 0.1, 0.5]]])
      >>> (decoded,), score = wf.nn.ctc_beam_search_decoder(logits, [2])
      >>> labels, probability = wf.Session().run([decoded.values, wf.exp(score)])
      >>> labels, probability.round(2)
      (array([0]), array([[0.56]], dtype=float32))
    """
    attrs = {"beam_width": beam_width, "top_paths": top_paths, "merge_repeated": merge_repeated}
    node = create("CTCBeamSearchDecoder", [inputs, sequence_length], attrs, name)
    *parts, score = node.outputs
    lists = (parts[:top_paths], parts[top_paths : 2 * top_paths], parts[2 * top_paths :])
    return [SparseTensor(*parts) for parts in zip(*lists, strict=True)], score


def ctc_beam_search_decoder_v2(
    inputs: Any,
    sequence_length: Any,
    beam_width: int = 100,
    top_paths: int = 1,
    name: str | None = None,
) -> tuple[list[SparseTensor], Output]:
    """Decode like `ctc_beam_search_decoder`, keeping repeated labels.

    Args:
      inputs, sequence_length, beam_width, top_paths: as for `ctc_beam_search_decoder`.
    Returns: as `ctc_beam_search_decoder`.
    Raises: InvalidArgumentError: as for `ctc_beam_search_decoder`.

    Examples:
      >>> logits = 9.0 * wf.one_hot([[0], [2], [0]], 3)
      >>> (decoded,), _ = wf.nn.ctc_beam_search_decoder_v2(logits, [3])
      >>> wf.Session().run(decoded.values)
      array([0, 0])
    """
    return ctc_beam_search_decoder(inputs, sequence_length, beam_width, top_paths, False, name)
