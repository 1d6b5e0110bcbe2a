"""What programs may notice, by name; docs/differences.md has the same table."""

from __future__ import annotations

from typing import Final

DIFFERENT: Final = {
    "assign": "a value that was read before stays what it was",
    "assign_add": "a value that was read before stays what it was",
    "constant": "arrays of another kind of numbers are converted, and it is said what that loses",
    "app.run": "flags that nobody defined are left to `main`",
    "gather": "constant indices out of range are refused where the node is made",
    "layers.dense": "a number of units with a fraction is refused",
    "nn.fused_batch_norm": "gradients of the mean and variance flow to x",
    "random_uniform": "the streams differ from TensorFlow's for the same seed",
    "random_normal": "the streams differ from TensorFlow's for the same seed",
    "truncated_normal": "the streams differ from TensorFlow's for the same seed",
    "random_shuffle": "the streams differ from TensorFlow's for the same seed",
    "set_random_seed": "the streams differ from TensorFlow's for the same seed",
    "nn.dropout": "the streams differ from TensorFlow's for the same seed",
    "multinomial": "the streams differ from TensorFlow's for the same seed",
    "train.Saver": "the format of checkpoints is weft's own, and TensorFlow's are read, too",
    "train.SummarySaverHook": "it writes at exact multiples of its steps from the first one on",
    "train.StopAtStepHook": "a session that begins at the last step makes no step more",
    "while_loop": "gradients of any order; variables are read in each iteration that updates them",
    "cond": "variables are read again after updates before it",
    "Defun": "it is at the top, with `Declare`",
    "function": "`if` and `while` of Python are not rewritten",
}
