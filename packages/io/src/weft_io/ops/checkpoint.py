"""The ops that save and restore variables (paper, section 3.3).

SaveV2 and RestoreV2 are TensorFlow's. HoldForSave, which TensorFlow lacks, is the first half of an
asynchronous save: it collects the tensors, and the saver writes them later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import create
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import State, Traits
from weft_graph.ops.shape_rules import with_rank
from weft_io.checkpoint.regions import parse_spec
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims


def _check_lists(node: NodeSpec, op: str, first: int = 1) -> None:
    number = len(node.attrs["dtypes"])
    for i, label in enumerate(("tensor_names", "shape_and_slices"), first):
        dims = with_rank(node.inputs[i].dims, 1, f"{op}: {label}")
        if dims is not None and dims[0] not in (None, number):
            raise errors.InvalidArgumentError(
                f"{op}: {label} must have shape [{number}], one per tensor, got [{dims[0]}]"
            )


def _save_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "SaveV2: prefix")
    _check_lists(node, "SaveV2")
    return ()


def _hold_shape(node: NodeSpec) -> Sequence[Dims]:
    _check_lists(node, "HoldForSave", 0)
    return [()]


def _restore_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "RestoreV2: prefix")
    _check_lists(node, "RestoreV2")
    specs = constant_value(node.inputs[2])
    if specs is None:
        return [None] * len(node.attrs["dtypes"])
    return [_dims_of(spec.decode()) for spec in specs]


def _dims_of(spec: str) -> Dims:
    parsed = parse_spec(spec)
    return None if parsed is None else parsed[1].shape


register_op(
    "SaveV2",
    ("prefix: string", "tensor_names: string", "shape_and_slices: string", "tensors: dtypes"),
    (),
    {"dtypes": "list(type) >= 1"},
    _save_shape,
    traits=Traits(state=State.WRITES, differentiable=False, writes_files=True),
    doc="Saves tensors as one checkpoint, which replaces what was there, or is not there at all.",
)
register_op(
    "HoldForSave",
    ("tensor_names: string", "shape_and_slices: string", "tensors: dtypes"),
    ("held: string",),
    {"dtypes": "list(type) >= 1"},
    _hold_shape,
    traits=Traits(state=State.WRITES, differentiable=False, writes_files=True),
    doc="Holds tensors as they are now, for a save that is written while the program goes on.",
)
register_op(
    "RestoreV2",
    ("prefix: string", "tensor_names: string", "shape_and_slices: string"),
    ("tensors: dtypes",),
    {"dtypes": "list(type) >= 1"},
    _restore_shape,
    traits=Traits(state=State.READS, differentiable=False, reads_files=True),
    doc="Tensors of a checkpoint, after all of them were verified.",
)


def save_v2(
    prefix: Any,
    tensor_names: Sequence[str],
    shape_and_slices: Sequence[str],
    tensors: Sequence[Any],
    shards: Sequence[int] | None = None,
    name: str | None = None,
) -> Node:
    """Save tensors as one checkpoint.

    Args:
      prefix: string, shape (): path of the checkpoint.
      tensor_names: a name per tensor.
      shape_and_slices: per tensor "", or the slice of the whole that it is: "10 20 0,5:-".
      tensors: tensors of any type except handles.
      shards: per tensor the number of its file; one file by default.
    """
    attrs = {} if shards is None else {"_shards": tuple(shards)}
    inputs = [prefix, _strings(tensor_names), _strings(shape_and_slices), list(tensors)]
    return create("SaveV2", inputs, attrs, name)


def hold_for_save(
    tensor_names: Any,
    shape_and_slices: Any,
    tensors: Sequence[Any],
    shards: Sequence[int] | None = None,
    name: str | None = None,
) -> Output:
    """Hold the current values of tensors; `weft_io.checkpoint.held_tensors.take` returns them.

    Variables are not copied unless they are updated before they are written.

    Args:
      tensor_names, shape_and_slices, tensors, shards: as for `save_v2`.
    Returns: string, shape (): the name under which they are held, until the node runs again.
    """
    attrs = {} if shards is None else {"_shards": tuple(shards)}
    inputs = [tensor_names, shape_and_slices, list(tensors)]
    return create("HoldForSave", inputs, attrs, name).outputs[0]


def restore_v2(
    prefix: Any,
    tensor_names: Sequence[str],
    shape_and_slices: Sequence[str],
    types: Sequence[Any],
    name: str | None = None,
    optional: Sequence[int] = (),
) -> tuple[Output, ...]:
    """Read tensors from a checkpoint.

    The static shapes of the outputs, which may be refined, are compared with the checkpoint's too.

    Args:
      prefix: string, shape (): path of the checkpoint.
      tensor_names: names of the tensors.
      shape_and_slices: per tensor "", or the requested slice of the whole.
      types: their element types.
      optional: whether each may be missing; a missing one is an empty string.
    Raises (when it runs): NotFoundError, InvalidArgumentError, DataLossError: a tensor is missing,
      has another type or shape, or is damaged; no tensor is returned.
    """
    inputs = [prefix, _strings(tensor_names), _strings(shape_and_slices)]
    expected = tuple([dtypes.as_dtype(dtype).base_dtype for dtype in types])
    attrs = {"dtypes": expected, **({"_optional": tuple(optional)} if optional else {})}
    return create("RestoreV2", inputs, attrs, name).outputs


def _strings(values: Sequence[str]) -> list[bytes]:
    return [value.encode() for value in values]
