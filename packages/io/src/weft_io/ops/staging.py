"""Ops of staging areas, which store tensors of one step for a later one, in order or by key.

As in TensorFlow, an area has no handle: nodes with the same `shared_name` share an area.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import create, out
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import READS, WAITS, WRITES, Traits
from weft_graph.ops.shape_rules import fixed_shape, scalar, with_rank
from weft_tensor.shape import Dims

_LIMITS = {"capacity": "int >= 0 = 0", "memory_limit": "int >= 0 = 0"}
_RESOURCE_ATTRS = {"container": "string = ''", "shared_name": "string = ''"}
_TYPED_ATTRS = _LIMITS | {"dtypes": "list(type) >= 1"} | _RESOURCE_ATTRS
_ANY = _LIMITS | {"dtypes": "list(type)"} | _RESOURCE_ATTRS


def _unknown(node: NodeSpec) -> Sequence[Dims]:
    return [None] * len(node.attrs["dtypes"])


def _keyed_shape(node: NodeSpec) -> Sequence[Dims]:
    return [(), *_unknown(node)]


def _map_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "key")
    with_rank(node.inputs[1].dims, 1, "indices")
    return _unknown(node)


def _map_stage_shape(node: NodeSpec) -> Sequence[Dims]:
    _map_shape(node)
    return ()


def _declare(name: str, *signature: Any, attrs: Any, rule: Any, doc: str, traits: Traits) -> None:
    inputs, outputs = signature
    register_op(name, inputs, outputs, attrs, rule, traits=traits, doc=doc)


_declare(
    "Stage",
    ("values: dtypes",),
    (),
    attrs=_TYPED_ATTRS,
    rule=fixed_shape(),
    traits=WAITS,
    doc="Put a tuple in; wait for space.",
)
_declare(
    "Unstage",
    (),
    ("values: dtypes",),
    attrs=_TYPED_ATTRS,
    rule=_unknown,
    traits=WAITS,
    doc="Take the first tuple out.",
)
_declare(
    "StagePeek",
    ("index: int32",),
    ("values: dtypes",),
    attrs=_TYPED_ATTRS,
    rule=_unknown,
    traits=WAITS,
    doc="Look at the tuple at a place; wait for it.",
)
_declare(
    "StageSize",
    (),
    ("size: int32",),
    attrs=_ANY,
    rule=scalar,
    traits=READS,
    doc="The number of tuples.",
)
_declare(
    "StageClear", (), (), attrs=_ANY, rule=fixed_shape(), traits=WRITES, doc="Remove everything."
)
for _prefix in ("Map", "OrderedMap"):
    _declare(
        f"{_prefix}Stage",
        ("key: int64", "indices: int32", "values: fake_dtypes"),
        (),
        attrs=_LIMITS
        | {"dtypes": "list(type)", "fake_dtypes": "list(type) >= 1"}
        | _RESOURCE_ATTRS,
        rule=_map_stage_shape,
        traits=WAITS,
        doc="Put components of a key in; wait for space.",
    )
    _declare(
        f"{_prefix}Unstage",
        ("key: int64", "indices: int32"),
        ("values: dtypes",),
        attrs=_TYPED_ATTRS,
        rule=_map_shape,
        traits=WAITS,
        doc="Take components of a key out; wait until it is complete.",
    )
    _declare(
        f"{_prefix}Peek",
        ("key: int64", "indices: int32"),
        ("values: dtypes",),
        attrs=_TYPED_ATTRS,
        rule=_map_shape,
        traits=WAITS,
        doc="Look at components of a key; wait until it is complete.",
    )
    _declare(
        f"{_prefix}UnstageNoKey",
        ("indices: int32",),
        ("key: int64", "values: dtypes"),
        attrs=_TYPED_ATTRS,
        rule=_keyed_shape,
        traits=WAITS,
        doc="Take components of the first key out; wait for one.",
    )
    _declare(
        f"{_prefix}Size",
        (),
        ("size: int32",),
        attrs=_ANY,
        rule=scalar,
        traits=READS,
        doc="The number of complete keys.",
    )
    _declare(
        f"{_prefix}IncompleteSize",
        (),
        ("size: int32",),
        attrs=_ANY,
        rule=scalar,
        traits=READS,
        doc="The number of keys that lack a component.",
    )
    _declare(
        f"{_prefix}Clear",
        (),
        (),
        attrs=_ANY,
        rule=fixed_shape(),
        traits=WRITES,
        doc="Remove everything.",
    )


class AreaAttrs(dict[str, Any]):
    """The attributes that all nodes of one staging area share.

    Args:
      dtypes: element type of each component.
      shared_name: the name of the area.
      capacity, memory_limit: maximum number of tuples and of bytes; 0 for no limit.
    """

    def __init__(
        self, dtypes: Sequence[Any], shared_name: str, capacity: int = 0, memory_limit: int = 0
    ) -> None:
        super().__init__(
            dtypes=tuple(dtypes),
            shared_name=shared_name,
            capacity=capacity,
            memory_limit=memory_limit,
        )


def stage(values: Sequence[Any], area: AreaAttrs, name: str | None = None) -> Node:
    """Add a tuple of tensors."""
    return create("Stage", [list(values)], area, name)


def unstage(area: AreaAttrs, name: str | None = None) -> tuple[Output, ...]:
    """Remove and return the first tuple."""
    return create("Unstage", (), area, name).outputs


def stage_peek(index: Any, area: AreaAttrs, name: str | None = None) -> tuple[Output, ...]:
    """Read the tuple at an index without removing it: int32, shape ()."""
    return create("StagePeek", [index], area, name).outputs


def area_size(op: str, area: AreaAttrs, name: str | None = None) -> Output:
    """Return the result of one of the counting ops: int32, shape ()."""
    return out(op, (), area, name)


def area_clear(op: str, area: AreaAttrs, name: str | None = None) -> Node:
    """Remove all elements, with the op for that kind of area."""
    return create(op, (), area, name)


def map_stage(
    op: str, key: Any, indices: Any, values: Sequence[Any], area: AreaAttrs, name: str | None = None
) -> Node:
    """Add components to a key.

    Args:
      op: MapStage or OrderedMapStage.
      key: int64, shape ().
      indices: int32, shape (n,): the indices of the components.
      values: n tensors.
    """
    return create(op, [key, indices, list(values)], area, name)


def map_unstage(
    op: str, key: Any, indices: Any, dtypes: Sequence[Any], area: AreaAttrs, name: str | None = None
) -> tuple[Output, ...]:
    """Remove or read components of a key.

    Args:
      op: MapUnstage, MapPeek, or their ordered forms.
      key: int64, shape ().
      indices: int32, shape (n,): the indices of the components.
      dtypes: their types.
    """
    return create(op, [key, indices], {**area, "dtypes": tuple(dtypes)}, name).outputs


def map_unstage_no_key(
    op: str, indices: Any, dtypes: Sequence[Any], area: AreaAttrs, name: str | None = None
) -> tuple[Output, ...]:
    """Remove components of the first key; the first result is the key: int64, shape ().

    Args:
      op: MapUnstageNoKey or OrderedMapUnstageNoKey.
      indices: int32, shape (n,): the indices of the components.
      dtypes: their types.
    """
    return create(op, [indices], {**area, "dtypes": tuple(dtypes)}, name).outputs
