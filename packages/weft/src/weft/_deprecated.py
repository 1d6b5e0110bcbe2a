"""Names of TensorFlow before 1.0 or after 1.15, with their equivalents in weft.

The module is imported only when a name does not exist, for the error message.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

RENAMED: Final = {
    "weft": {
        "audio_summary": "summary.audio",
        "complex_abs": "abs",
        "histogram_summary": "summary.histogram",
        "image_summary": "summary.image",
        "inv": "reciprocal",
        "listdiff": "setdiff1d",
        "merge_all_summaries": "summary.merge_all",
        "merge_summary": "summary.merge",
        "mul": "multiply",
        "neg": "negative",
        "pack": "stack",
        "scalar_summary": "summary.scalar",
        "select": "where",
        "sub": "subtract",
        "unpack": "unstack",
    },
    "weft.nn": {
        "bidirectional_rnn": "nn.static_bidirectional_rnn",
        "rnn": "nn.static_rnn",
        "state_saving_rnn": "nn.static_state_saving_rnn",
    },
    "weft.train": {
        "Adam": "train.AdamOptimizer",
        "SGD": "train.GradientDescentOptimizer",
        "SummaryWriter": "summary.FileWriter",
    },
    "weft.losses": {
        "mae": "losses.absolute_difference",
        "mse": "losses.mean_squared_error",
    },
    "weft.random": {"set_seed": "random.set_random_seed"},
}
"""Old names by namespace, with their current path below `weft`."""

_CELLS: Final = "use the cells in nn.rnn_cell, or subclass RNNCell and define call()"

ELSEWHERE: Final = {
    "weft": {
        "GradientTape": "gradients(ys, xs) gives gradients of nodes in a graph",
        "estimator": "estimators are not supported; use train.MonitoredTrainingSession",
        "keras": "Keras is not supported; use layers, losses, metrics and train",
        "models": "cells are in nn.rnn_cell",
        "optimizers": "optimizers are in train, as train.AdamOptimizer",
        "python": "public names are in weft and its namespaces",
        "user_ops": "packages register custom ops; see CONTRIBUTING",
    },
    "weft.nn": {
        "seq2seq": "write decoders as loops: nn.static_rnn, nn.dynamic_rnn or while_loop",
    },
    "weft.nn.rnn_cell": {
        "AttentionCellWrapper": _CELLS,
        "CoupledInputForgetGateLSTMCell": _CELLS,
        "EmbeddingWrapper": "apply nn.embedding_lookup before the cell",
        "InputProjectionWrapper": "apply layers.dense before the cell",
        "LSTMBlockCell": "use contrib.rnn.LSTMBlockCell of the package weftml-contrib",
        "LayerNormBasicLSTMCell": _CELLS,
        "OutputProjectionWrapper": "apply layers.dense after the cell",
        "linear": "apply layers.dense to concat(inputs, 1)",
    },
}
"""Names without a one-to-one replacement by namespace, with a hint where to look."""


def advice(module: ModuleType, name: str) -> str:
    """Return the advice for a missing name, or ""."""
    present = RENAMED.get(module.__name__, {}).get(name)
    unbatched = name.removeprefix("batch_")
    if present is None and unbatched != name and hasattr(module, unbatched):
        present = unbatched  # since TensorFlow 1.0 such functions take batches themselves
    if present is not None:
        return f"; use {present}"
    replacement = ELSEWHERE.get(module.__name__, {}).get(name)
    return "" if replacement is None else f"; {replacement}"
