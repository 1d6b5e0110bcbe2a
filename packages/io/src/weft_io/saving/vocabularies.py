"""Initialization from a checkpoint whose vocabularies differ from the program's."""

from __future__ import annotations

__all__ = ["VocabInfo", "warm_start"]

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft_graph.ir.builder import constant, out
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.variables.base import Variable
from weft_graph.variables.initializers import zeros_initializer
from weft_graph.variables.partitioned import PartitionedVariable, group_parts
from weft_io.checkpoint.state import latest_in, load_checkpoint
from weft_io.files import paths
from weft_io.ops.checkpoint import restore_v2
from weft_io.saving.saveables import saveables_for
from weft_io.saving.warm_start import init_from_checkpoint
from weft_tensor import errors


class VocabInfo(NamedTuple):
    """The current and the previous vocabulary of a variable with one row or column per word.

    Attributes:
      new_vocab: file of the program's words, one per line.
      new_vocab_size: number of words to use.
      num_oov_buckets: number of additional rows for unknown words, which are initialized anew.
      old_vocab: file of the checkpoint's words.
      old_vocab_size: number of words to use; -1 for all.
      backup_initializer: initializes rows that the checkpoint lacks; zeros by default.
      axis: 0 if rows are words, 1 if columns are.

    Args:
      new_vocab, new_vocab_size, num_oov_buckets, old_vocab, old_vocab_size, backup_initializer,
        axis: the attributes.

    Examples:
      >>> info = wf.train.VocabInfo("new.txt", 3, num_oov_buckets=1, old_vocab="old.txt")
      >>> info.old_vocab_size, info.axis
      (-1, 0)
    """

    new_vocab: str
    new_vocab_size: int
    num_oov_buckets: int
    old_vocab: str
    old_vocab_size: int = -1
    backup_initializer: Callable[..., Any] | None = None
    axis: int = 0


def warm_start(
    ckpt_to_initialize_from: str,
    vars_to_warm_start: Any = ".*",
    var_name_to_vocab_info: Mapping[str, VocabInfo] | None = None,
    var_name_to_prev_var_name: Mapping[str, str] | None = None,
) -> None:
    """Initialize variables of the default graph from a checkpoint.

    Call it before the initializers run.

    Args:
      ckpt_to_initialize_from: a checkpoint, or a directory with a latest one.
      vars_to_warm_start: a regular expression for the beginning of names of trainable variables, a
        list of such expressions for any variables, a list of variables, or None for only the
        variables of `var_name_to_vocab_info`.
      var_name_to_vocab_info: vocabularies by variable name, for vocabularies that differ from the
        checkpoint's; rows move to the new positions of their words.
      var_name_to_prev_var_name: names in the checkpoint, by variable name.
    Raises:
      NotFoundError: the checkpoint does not exist, or lacks a variable.
      InvalidArgumentError: a shape or type differs, or a name is not that of an initialized
        variable.

    Examples:
      >>> old = wf.get_variable("old", initializer=[1.0, 2.0])
      >>> with wf.Session() as session:
      ...     session.run(old.initializer)
      ...     prefix = wf.train.Saver().save(session, "./warm")
      >>> with wf.Graph().as_default(), wf.Session() as session:
      ...     new = wf.get_variable("new", [2])
      ...     wf.train.warm_start(prefix, "new", var_name_to_prev_var_name={"new": "old"})
      ...     session.run(new.initializer)
      ...     session.run(new)
      array([1., 2.], dtype=float32)
    """
    vocabularies = dict(var_name_to_vocab_info or {})
    former = dict(var_name_to_prev_var_name or {})
    for name, variable in _variables_to_initialize(vars_to_warm_start, vocabularies).items():
        expected = former.pop(name, name)
        info = vocabularies.pop(name, None)
        if info is None:
            init_from_checkpoint(ckpt_to_initialize_from, {expected: variable})
        else:
            _begin_with_words(ckpt_to_initialize_from, expected, variable, info)
    unused = [*former, *vocabularies]
    if unused:
        raise errors.InvalidArgumentError(
            f"not among the warm-started variables: {', '.join(unused)}"
        )


def _variables_to_initialize(
    expected: Any, vocabularies: Mapping[str, VocabInfo]
) -> dict[str, Any]:
    """Return the variables to initialize, by name; the parts of a variable are a list."""
    graph = get_default_graph()
    collection = graph.get_collection(GraphKeys.GLOBAL_VARIABLES)
    if expected is None:
        selected = []
    elif isinstance(expected, str):
        selected = graph.get_collection(GraphKeys.TRAINABLE_VARIABLES, expected)
    elif all(isinstance(item, str) for item in expected):
        selected = [v for v in collection if any(re.match(p, v.op.name) for p in expected)]
    else:
        selected = list(expected)
    for variable in selected:
        if not isinstance(variable, Variable | PartitionedVariable):
            raise errors.InvalidTypeError(f"a variable or a pattern is required, got {variable!r}")
    named = {v.op.name: v for v in collection if v.op.name in vocabularies}
    return group_parts(selected) | named


def _begin_with_words(source: str, name: str, variable: Any, info: VocabInfo) -> None:
    if not isinstance(variable, Variable):
        raise errors.InvalidArgumentError(
            f"{name!r} is partitioned; warm-starting with a vocabulary requires a whole variable"
        )
    if info.axis not in (0, 1):
        raise errors.InvalidArgumentError(f"axis of a VocabInfo must be 0 or 1, got {info.axis}")
    path = latest_in(paths.as_path(source))
    words = _words(info.new_vocab, info.new_vocab_size)
    old_words = {word: i for i, word in enumerate(_words(info.old_vocab, info.old_vocab_size))}
    rows = [old_words.get(word, -1) for word in words] + [-1] * info.num_oov_buckets
    old = load_checkpoint(path).get_variable_to_shape_map().get(name)
    shape = variable.shape.as_list()
    if old is None:
        raise errors.NotFoundError(f"{path} has no tensor {name!r}")
    if len(old) != len(shape) or shape[info.axis] != len(rows) or len(old_words) > old[info.axis]:
        raise errors.InvalidArgumentError(
            f"{variable.name} of shape {shape} must have {len(rows)} words along axis {info.axis}, "
            f"and {name!r} of shape {old} at least {len(old_words)}"
        )
    _assign_words(path, name, variable, info, rows)


def _assign_words(
    path: str, name: str, variable: Variable, info: VocabInfo, rows: Sequence[int]
) -> None:
    make = info.backup_initializer or zeros_initializer()
    selected = np.array(rows, np.int64)
    is_found = np.expand_dims(
        selected >= 0, [i for i in range(variable.shape.ndims or 0) if i != info.axis]
    )
    (saveable,) = saveables_for([variable])
    dtype = variable.dtype.base_dtype
    graph = variable.graph
    with graph.as_default(), graph.control_dependencies(None), graph.device(variable.device):
        (stored,) = restore_v2(path, [name], [""], [dtype], name="checkpoint_initializer")
        old_rows = out("GatherV2", [stored, constant(np.maximum(selected, 0)), info.axis])
        anew = make(variable.shape.as_list(), dtype=dtype)
        value = out("SelectV2", [constant(is_found), old_rows, anew])
        value.set_shape(variable.shape)
        restore = saveable.restore([value], None)
    variable.replace_initializer(restore.node if isinstance(restore, Output) else restore, value)


def _words(path: str, size: int) -> list[bytes]:
    words = paths.read_bytes(paths.as_path(path)).splitlines()
    if size > len(words):
        raise errors.InvalidArgumentError(f"{path} has {len(words)} words, but {size} are required")
    return words if size < 0 else words[:size]
