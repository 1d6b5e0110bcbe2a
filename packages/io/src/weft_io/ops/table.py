"""Ops of lookup tables; the public classes are in `weft_io.lookup`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import CREATES, READS, WAITS, WRITES, State, Traits
from weft_graph.ops.shape_rules import fixed_shape, merge_size, with_rank
from weft_tensor import errors
from weft_tensor.shape import Dims, compatible_dims, format_dims

# --------------------------------------------------------------------------- declarations

_RESOURCE_ATTRS: Final = {
    "container": "string = ''",
    "shared_name": "string = ''",
    "use_node_name_sharing": "bool = false",
}
_TYPES: Final = {"key_dtype": "type", "value_dtype": "type"}
_SHAPE: Final = {"value_shape": "shape = []"}
_INITIALIZES_FROM_FILES: Final = Traits(state=State.WRITES, reads_files=True, differentiable=False)


def value_dims(handle: Output) -> tuple[Dims, bool]:
    """Return the shape of a table's values, and whether the table's node determines it."""
    node = handle.node
    attrs = node.attrs
    if not {"key_dtype", "value_dtype"} <= attrs.keys():
        return None, False
    return attrs.get("value_shape", ()), True


def _key_dims(handle: Output) -> tuple[Dims, bool]:
    node = handle.node
    if not value_dims(handle)[1]:
        return None, False
    if node.type.startswith("MutableDenseHashTable"):
        return node.inputs[0].dims, node.inputs[0].dims is not None
    return (), True


def _no_outputs_shape(node: NodeSpec) -> Sequence[Dims]:
    return ()


def _find_shape(node: NodeSpec) -> Sequence[Dims]:
    handle, keys, default = node.inputs
    value, value_shape = value_dims(handle)
    key, key_known = _key_dims(handle)
    if not value_shape or not key_known or value is None or key is None or keys.dims is None:
        return (None,)
    rank = len(keys.dims) - len(key)
    if rank < 0 or not compatible_dims(keys.dims[rank:], key):
        raise errors.InvalidArgumentError(
            f"keys must have a shape that ends with {format_dims(key)}, got "
            f"{format_dims(keys.dims)}"
        )
    result = (*keys.dims[:rank], *value)
    if not compatible_dims(default.dims, value) and not compatible_dims(default.dims, result):
        raise errors.InvalidArgumentError(
            f"default_value must have shape {format_dims(value)} or {format_dims(result)}, got "
            f"{format_dims(default.dims)}"
        )
    return (result,)


def _pairs_shape(node: NodeSpec) -> Sequence[Dims]:
    handle, keys, values = node.inputs
    value, value_shape = value_dims(handle)
    key, key_known = _key_dims(handle)
    if (
        value_shape
        and key_known
        and value is not None
        and key is not None
        and keys.dims is not None
    ):
        expected = (*keys.dims[: len(keys.dims) - len(key)], *value)
        if not compatible_dims(values.dims, expected):
            raise errors.InvalidArgumentError(
                f"values must have shape {format_dims(expected)} for keys of shape "
                f"{format_dims(keys.dims)}, got {format_dims(values.dims)}"
            )
    return ()


def _initialize_shape(node: NodeSpec) -> Sequence[Dims]:
    (keys,) = with_rank(node.inputs[1].dims, 1, "keys")
    (values,) = with_rank(node.inputs[2].dims, 1, "values")
    merge_size(keys, values, "the number of keys and of values")
    return ()


def _file_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[1].dims, 0, "filename")
    for name in ("key_index", "value_index"):
        if node.attrs[name] < -2:
            raise errors.InvalidArgumentError(f"{name} must be at least -2, got {node.attrs[name]}")
    if node.attrs["vocab_size"] < -1:
        raise errors.InvalidArgumentError(
            f"vocab_size must be at least -1, got {node.attrs['vocab_size']}"
        )
    if len(node.attrs["delimiter"].encode()) != 1:
        raise errors.InvalidArgumentError(
            f"delimiter should be only 1 char, got {node.attrs['delimiter']!r}"
        )
    return ()


def _export_shape(node: NodeSpec) -> Sequence[Dims]:
    key, key_known = _key_dims(node.inputs[0])
    value, value_shape = value_dims(node.inputs[0])
    return (
        (None, *key) if key_known and key is not None else None,
        (None, *value) if value_shape and value is not None else None,
    )


def _declare(version: str, handle_type: str, of_handle: Dims) -> None:
    """Declare the ops that create tables, for one kind of handle."""
    handle = f"table_handle: {handle_type}"
    for op, inputs, attrs, doc in (
        ("HashTable", (), {}, "A table that is given its content once."),
        ("MutableHashTable", (), {}, "A table that can be changed."),
        ("MutableHashTableOfTensors", (), _SHAPE, "A table of tensors that can be changed."),
        (
            "MutableDenseHashTable",
            ("empty_key: key_dtype", "deleted_key: key_dtype"),
            {
                **_SHAPE,
                "initial_num_buckets": "int = 131072",
                "max_load_factor": "float = 0.8",
            },
            "A table that can be changed, in which two keys cannot be.",
        ),
    ):
        register_op(
            op + version,
            inputs,
            (handle,),
            {**_RESOURCE_ATTRS, **_TYPES, **attrs},
            fixed_shape(of_handle),
            traits=CREATES,
            doc=doc,
        )


def _declare_uses(version: str, handle_type: str) -> None:
    """Declare the ops that read and change tables, for one kind of handle."""
    handle = f"table_handle: {handle_type}"
    for op, doc in (
        ("Insert", "Give keys values."),
        ("Import", "Replace all that a table has."),
    ):
        register_op(
            f"LookupTable{op}{version}",
            (handle, "keys: Tin", "values: Tout"),
            (),
            {"Tin": "type", "Tout": "type"},
            _pairs_shape,
            traits=WRITES,
            doc=doc,
        )
    register_op(
        f"LookupTableFind{version}",
        (handle, "keys: Tin", "default_value: Tout"),
        ("values: Tout",),
        {"Tin": "type", "Tout": "type"},
        _find_shape,
        traits=READS,
        doc="The values of keys; the default where a key is not there.",
    )
    register_op(
        f"LookupTableSize{version}",
        (handle,),
        ("size: int64",),
        {},
        fixed_shape(()),
        traits=READS,
        doc="How many keys a table has.",
    )
    register_op(
        f"LookupTableExport{version}",
        (handle,),
        ("keys: Tkeys", "values: Tvalues"),
        {"Tkeys": "type", "Tvalues": "type"},
        _export_shape,
        traits=READS,
        doc="All keys of a table, and their values.",
    )


def _declare_initializers(version: str, handle_type: str) -> None:
    """Declare the ops that initialize static tables."""
    handle = f"table_handle: {handle_type}"
    register_op(
        f"InitializeTable{version}",
        (handle, "keys: Tkey", "values: Tval"),
        (),
        {"Tkey": "type", "Tval": "type"},
        _initialize_shape,
        traits=WRITES,
        doc="Give a table its content, of two tensors.",
    )
    register_op(
        f"InitializeTableFromTextFile{version}",
        (handle, "filename: string"),
        (),
        {
            "key_index": "int",
            "value_index": "int",
            "vocab_size": "int = -1",
            "delimiter": r"string = '\t'",
            "offset": "int = 0",
        },
        _file_shape,
        traits=_INITIALIZES_FROM_FILES,
        doc="Give a table its content, of the lines of a file.",
    )


_declare("", "Ref(string)", (2,))
_declare("V2", "resource", ())
for _version, _handle in (("", "Ref(string)"), ("V2", "resource")):
    _declare_uses(_version, _handle)
    _declare_initializers(_version, _handle)
register_op(
    "LookupTableRemoveV2",
    ("table_handle: resource", "keys: Tin"),
    (),
    {"Tin": "type"},
    _no_outputs_shape,
    traits=WRITES,
    doc="Take keys out of a table.",
)
register_op(
    "InitializeTableFromDataset",
    ("table_handle: resource", "dataset: variant"),
    (),
    {},
    _no_outputs_shape,
    traits=WAITS,
    doc="Give a table its content, of the pairs that a dataset has.",
)
