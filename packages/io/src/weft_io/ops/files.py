"""Ops that read, write and list whole files."""

from __future__ import annotations

__all__ = ["matching_files", "read_file", "write_file"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import create, out
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import State, Traits
from weft_graph.ops.shape_rules import with_rank
from weft_tensor import errors
from weft_tensor.shape import Dims, format_dims

# --------------------------------------------------------------------------- declarations


def _read_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "ReadFile: filename")
    return ((),)


def _write_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "WriteFile: filename")
    with_rank(node.inputs[1].dims, 0, "WriteFile: contents")
    return ()


def _matching_files_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    if dims is not None and len(dims) > 1:
        raise errors.InvalidArgumentError(
            f"MatchingFiles: pattern must have rank 0 or 1, got shape {format_dims(dims)}"
        )
    return ((None,),)


# Files change, so that these are stateful: never folded, never merged.
register_op(
    "ReadFile",
    ("filename: string",),
    ("contents: string",),
    shape=_read_shape,
    traits=Traits(state=State.READS, differentiable=False, reads_files=True),
    doc="All bytes of a file.",
)
register_op(
    "WriteFile",
    ("filename: string", "contents: string"),
    (),
    shape=_write_shape,
    traits=Traits(state=State.WRITES, differentiable=False, writes_files=True),
    doc="Writes a file, with the directories above it.",
)
register_op(
    "MatchingFiles",
    ("pattern: string",),
    ("filenames: string",),
    shape=_matching_files_shape,
    traits=Traits(state=State.READS, differentiable=False, reads_files=True),
    doc="The files whose names match a pattern.",
)

# --------------------------------------------------------------------------- functions


def read_file(filename: Any, name: str | None = None) -> Output:
    """Return all bytes of a file: string, shape ().

    Args:
      filename: string, shape (); a path, or a URL that fsspec knows.
    Raises (when it runs): NotFoundError, PermissionDeniedError, ...

    Examples:
      >>> session = wf.Session()
      >>> session.run(wf.write_file("note.txt", "hello"))
      >>> session.run(wf.read_file("note.txt"))
      b'hello'
    """
    return out("ReadFile", [filename], None, name)


def write_file(filename: Any, contents: Any, name: str | None = None) -> Node:
    """Write a file, replacing an existing one and creating missing directories.

    Args:
      filename: string, shape (); a path, or a URL that fsspec knows.
      contents: string, shape ().
    Raises (when it runs): PermissionDeniedError, ResourceExhaustedError (a full disk), ...

    Examples:
      >>> wf.Session().run(wf.write_file("written.txt", "hello"))
      >>> wf.gfile.Exists("written.txt")
      True
    """
    return create("WriteFile", [filename, contents], None, name)


def matching_files(pattern: Any, name: str | None = None) -> Output:
    """Return the files whose names match a pattern: string, shape (n,), sorted.

    Args:
      pattern: string, shape () or (k,): see `weft_io.files.gfile.glob`.

    Examples:
      >>> wf.Session().run(wf.matching_files("nothing*.here"))
      array([], dtype=object)
    """
    return out("MatchingFiles", [pattern], None, name)
