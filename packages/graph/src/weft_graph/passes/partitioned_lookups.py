"""Joining of lookups in partitioned tables, for models that run on one device.

    parts = dynamic_partition(rows, owner)
    stitch(dynamic_partition(range(n), owner), [gather(table, part) for table, part in parts])
        →   gather(concat(tables), first_row[owner] + rows)

`embedding_lookup` builds this pattern so that each parameter server gathers its own rows. Exchange
formats and small devices have no ops like DynamicPartition, whose output sizes depend on values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.step_graph import StepGraph
from weft_tensor import dtypes
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims

_REASON: Final = "partitioned lookup"
_STITCHES: Final = frozenset({"DynamicStitch", "ParallelDynamicStitch"})
_GATHERS: Final = frozenset({"Gather", "GatherV2", "ResourceGather"})


class _Lookup(NamedTuple):
    """A lookup in a partitioned table.

    Attributes:
      stitch: the node whose output has the rows.
      gathers: the nodes that gather rows from the parts of the table, by owner.
      shapes: the shapes of the parts; their first axes are static.
      owner: the part of each id, int32, shape (n,).
      rows: the row of each id in its part, shape (n,).
    """

    stitch: Node
    gathers: list[Node]
    shapes: list[tuple[int | None, ...]]
    owner: Output
    rows: Output


def join_partitioned_lookups(step: StepGraph) -> int:
    """Replace lookups in the parts of a table by one lookup in the whole table.

    Returns: the number of replaced lookups.
    """
    lookups = [lookup for node in step.graph.nodes if (lookup := _match(node)) is not None]
    for lookup in lookups:
        step.replace(lookup.stitch.outputs[0], _add_joined_lookup(step, lookup), reason=_REASON)
    if lookups:
        step.remove_unreachable(reason=_REASON)
    return len(lookups)


def is_partitioned_lookup(node: Node) -> bool:
    """Return True if a node is the last one of a lookup in a partitioned table."""
    return _match(node) is not None


def _match(stitch: Node) -> _Lookup | None:
    """Return the lookup whose last node is `node`, or None."""
    if stitch.type not in _STITCHES:
        return None
    count = len(stitch.inputs) // 2
    positions = stitch.inputs[:count]
    gathers = [_skip_identities(rows).node for rows in stitch.inputs[count:]]
    if not all(node.type in _GATHERS and _is_by_rows(node) for node in gathers):
        return None
    ids, shapes = [node.inputs[1] for node in gathers], [_table_dims(node) for node in gathers]
    split_ids, split_positions = _partition(ids), _partition(positions)
    if split_ids is None or split_positions is None or split_ids[1] is not split_positions[1]:
        return None
    static = [dims for dims in shapes if dims and dims[0] is not None]
    if len(static) < count:
        return None
    if not _counts_up(split_positions[0]):
        return None
    return _Lookup(stitch, gathers, static, split_ids[1], split_ids[0])


def _skip_identities(output: Output) -> Output:
    while output.node.traits.identity:
        output = output.node.inputs[0]
    return output


def _table_dims(gather: Node) -> Dims:
    """Return the static shape of the table that a node reads, from its value or its handle."""
    source = gather.inputs[0]
    if gather.type != "ResourceGather":
        return source.dims
    dims: Dims = source.node.attrs.get("shape")
    return dims


def _is_by_rows(gather: Node) -> bool:
    if gather.type != "GatherV2":
        return not gather.attrs.get("batch_dims")
    axis = constant_value(gather.inputs[2])
    return axis is not None and int(axis) == 0 and not gather.attrs["batch_dims"]


def _partition(parts: Sequence[Output]) -> tuple[Output, Output] | None:
    """Return the data and the owners of a DynamicPartition whose outputs are `parts`, or None."""
    node = parts[0].node
    if node.type != "DynamicPartition" or list(node.outputs) != list(parts):
        return None
    return node.inputs[0], node.inputs[1]


def _counts_up(positions: Output) -> bool:
    """Return True if values are 0, 1, 2, …."""
    value = constant_value(positions)
    if value is not None:
        return np.array_equal(value, np.arange(np.size(value)))
    if positions.node.type != "Range":
        return False
    start, _, delta = (constant_value(source) for source in positions.node.inputs)
    return start is not None and delta is not None and int(start) == 0 and int(delta) == 1


def _add_joined_lookup(step: StepGraph, lookup: _Lookup) -> Output:
    """Add the lookup in the whole table."""
    sizes = [dims[0] or 0 for dims in lookup.shapes]
    inner = lookup.shapes[0][1:]
    first_rows = np.cumsum([0, *sizes[:-1]]).astype(lookup.rows.dtype.as_numpy_dtype)
    build = _Builder(step, lookup.stitch)
    axis = build.constant(np.int32(0))
    tables = [
        build.table(gather, dims)
        for gather, dims in zip(lookup.gathers, lookup.shapes, strict=True)
    ]
    attrs = {"N": len(tables), "T": tables[0].dtype.base_dtype, "Tidx": dtypes.int32}
    table = build.add("ConcatV2", [*tables, axis], attrs, (sum(sizes), *inner))
    shift = build.gather(build.constant(first_rows), lookup.owner, axis, lookup.owner.dims)
    dtype = lookup.rows.dtype
    row = build.add("AddV2", [shift, lookup.rows], {"T": dtype}, lookup.rows.dims)
    count = lookup.rows.dims[0] if lookup.rows.dims else None
    return build.gather(table, row, axis, (count, *inner))


class _Builder:
    """Builder of nodes that replace another node."""

    def __init__(self, step: StepGraph, origin: Node) -> None:
        self._graph = step.graph
        self._origin = origin

    def add(self, op: str, inputs: Sequence[Output], attrs: dict[str, Any], dims: Dims) -> Output:
        """Return the only output of a new node; its type is that of the first input."""
        name = self._graph.unique_name(f"{self._origin.name}/{op}")
        return self._create(op, name, inputs, attrs, inputs[0].dtype.base_dtype, dims)

    def table(self, gather: Node, dims: Dims) -> Output:
        """Return the table from which a node gathers rows."""
        source = gather.inputs[0]
        if gather.type != "ResourceGather":
            return source
        dtype = gather.outputs[0].dtype
        name = self._graph.unique_name(f"{self._origin.name}/ReadVariableOp")
        return self._create("ReadVariableOp", name, (source,), {"dtype": dtype}, dtype, dims)

    def gather(self, table: Output, rows: Output, axis: Output, dims: Dims) -> Output:
        """Return rows of a table."""
        attrs = {
            "Tparams": table.dtype.base_dtype,
            "Tindices": rows.dtype,
            "Taxis": axis.dtype,
            "batch_dims": 0,
        }
        return self.add("GatherV2", [table, rows, axis], attrs, dims)

    def constant(self, value: np.ndarray[Any, Any] | np.generic) -> Output:
        """Return a constant."""
        dtype = dtypes.as_dtype(value.dtype)
        name = self._graph.unique_name(f"{self._origin.name}/constant")
        return self._create(
            "Const", name, (), {"value": np.asarray(value), "dtype": dtype}, dtype, value.shape
        )

    def _create(
        self,
        op: str,
        name: str,
        inputs: Sequence[Output],
        attrs: dict[str, Any],
        dtype: DType,
        dims: Dims,
    ) -> Output:
        node = self._graph.add_derived(
            self._origin, lookup_op(op), name, tuple(inputs), attrs, [dtype], [dims]
        )
        return node.outputs[0]
