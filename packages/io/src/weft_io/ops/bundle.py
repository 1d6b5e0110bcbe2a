"""Ops, in addition to SaveV2, that TensorFlow's savers use to write a bundle in several files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import create, out
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE, WRITES, State, Traits
from weft_graph.ops.shape_rules import with_rank
from weft_tensor.shape import Dims


def _scalars(node: NodeSpec) -> Sequence[Dims]:
    for source in node.inputs:
        with_rank(source.dims, 0, "a file's name and numbers")
    return [()]


def _merge_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 1, "MergeV2Checkpoints: checkpoint_prefixes")
    with_rank(node.inputs[1].dims, 0, "MergeV2Checkpoints: destination_prefix")
    return ()


# Declared as stateful, though it has no state, so that it is never folded: a SaveV2 whose prefix
# comes from such a node writes a bundle (`weft_io.kernels.bundle`).
register_op(
    "ShardedFilename",
    ("basename: string", "shard: int32", "num_shards: int32"),
    ("filename: string",),
    shape=_scalars,
    traits=WRITES,
    doc="<basename>-<shard>-of-<num_shards>, each number with five digits.",
)
register_op(
    "ShardedFilespec",
    ("basename: string", "num_shards: int32"),
    ("filename: string",),
    shape=_scalars,
    traits=NOT_DIFFERENTIABLE,
    doc="A pattern for the names of all shards: <basename>-?????-of-<num_shards>.",
)
register_op(
    "MergeV2Checkpoints",
    ("checkpoint_prefixes: string", "destination_prefix: string"),
    (),
    {"delete_old_dirs": "bool = true", "allow_missing_files": "bool = false"},
    _merge_shape,
    traits=Traits(state=State.WRITES, differentiable=False, reads_files=True, writes_files=True),
    doc="Makes one bundle of several, which are gone afterwards.",
)


def sharded_filename(basename: Any, shard: Any, num_shards: Any, name: str | None = None) -> Output:
    """Return the name of a shard.

    Args:
      basename: string, rank 0.
      shard, num_shards: int32, rank 0.
    Returns: string, rank 0.
    """
    return out("ShardedFilename", [basename, shard, num_shards], name=name)


def sharded_filespec(basename: Any, num_shards: Any, name: str | None = None) -> Output:
    """Return the file pattern that matches all shards.

    Args:
      basename: string, rank 0.
      num_shards: int32, rank 0.
    Returns: string, rank 0.
    """
    return out("ShardedFilespec", [basename, num_shards], name=name)


def merge_v2_checkpoints(
    checkpoint_prefixes: Any,
    destination_prefix: Any,
    delete_old_dirs: bool = True,
    allow_missing_files: bool = False,
    name: str | None = None,
) -> Node:
    """Merge several bundles into one; the originals no longer exist.

    Args:
      checkpoint_prefixes: string, rank 1; in one file system with the destination.
      destination_prefix: string, rank 0.
      delete_old_dirs: remove the directories of the originals if they are then empty.
      allow_missing_files: skip prefixes without a bundle.
    """
    attrs = {"delete_old_dirs": delete_old_dirs, "allow_missing_files": allow_missing_files}
    return create("MergeV2Checkpoints", [checkpoint_prefixes, destination_prefix], attrs, name)
