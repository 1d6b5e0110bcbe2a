"""Differences in behavior by name; docs/differences.md has the same table."""

from __future__ import annotations

from typing import Final

DIFFERENT: Final = {
    "assign": "values read before the update keep the old value",
    "assign_add": "values read before the update keep the old value",
    "constant": "arrays of another numeric kind are converted, and a warning states what is lost",
    "app.run": "undefined flags are passed on to `main`",
    "gather": "constant indices out of range are rejected at construction",
    "layers.dense": "a fractional number of units is rejected",
    "nn.fused_batch_norm": "gradients of the mean and variance flow to x",
    "random_uniform": "the streams differ from TensorFlow's for the same seed",
    "random_normal": "the streams differ from TensorFlow's for the same seed",
    "truncated_normal": "the streams differ from TensorFlow's for the same seed",
    "random_shuffle": "the streams differ from TensorFlow's for the same seed",
    "set_random_seed": "the streams differ from TensorFlow's for the same seed",
    "nn.dropout": "the streams differ from TensorFlow's for the same seed",
    "multinomial": "the streams differ from TensorFlow's for the same seed",
    "train.Saver": "checkpoints have weft's own format; TensorFlow's can be read too",
    "train.SummarySaverHook": "it writes at exact multiples of its steps from the first one on",
    "train.StopAtStepHook": "a session that starts at the last step runs no further step",
    "while_loop": "gradients of any order; variables are read in each iteration that updates them",
    "cond": "variables are read again after updates before it",
    "Defun": "it is at the top, with `Declare`",
    "function": "`if` and `while` of Python are not rewritten",
}
