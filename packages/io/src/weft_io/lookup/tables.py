"""Lookup tables, static and mutable."""

from __future__ import annotations

__all__ = ["StaticHashTable"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.indexed_slices import SparseTensor, SparseTensorValue
from weft_graph.ir.node import Node, Output
from weft_graph.ops.resource_state import current_container
from weft_io.arguments import scalar
from weft_io.lookup.initializers import TableInitializerBase, outermost_graph
from weft_io.saving.saveables import HasSaveable, SaveableObject, SaveSpec
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer
from weft_tensor.dtypes import DType


class LookupInterface:
    """A table that maps keys of a fixed type and shape to values.

    Args:
      key_dtype, value_dtype: element types.
    """

    def __init__(self, key_dtype: Any, value_dtype: Any) -> None:
        self._key_dtype: DType = dtypes.as_dtype(key_dtype).base_dtype
        self._value_dtype: DType = dtypes.as_dtype(value_dtype).base_dtype

    @property
    def key_dtype(self) -> DType:
        """Element type of the keys."""
        return self._key_dtype

    @property
    def value_dtype(self) -> DType:
        """Element type of the values."""
        return self._value_dtype

    def _key_tensor(self, keys: Any) -> Output:
        """Convert keys to a tensor.

        Raises: InvalidTypeError: they are of another type.
        """
        if isinstance(keys, Output) and keys.dtype.base_dtype is not self._key_dtype:
            raise errors.InvalidTypeError(
                f"Dtype of argument `keys` must be {self._key_dtype.name}, got "
                f"{keys.dtype.base_dtype.name}"
            )
        return convert_to_tensor(keys, self._key_dtype)


def apply_to_values(keys: Any, lookup: Any) -> Any:
    """Apply a function to keys, or to the values of a sparse tensor of keys."""
    if isinstance(keys, SparseTensorValue):
        keys = SparseTensor.from_value(keys)
    if isinstance(keys, SparseTensor):
        return SparseTensor(keys.indices, lookup(keys.values), keys.dense_shape)
    return lookup(keys)


class _ResourceTable(LookupInterface):
    """A table with a resource handle.

    Args:
      default_value: the value of missing keys.
    """

    def __init__(
        self, key_dtype: Any, value_dtype: Any, default_value: Any, op: str, inputs: Sequence[Any],
        attrs: dict[str, Any], shared_name: str | None, name: str,
    ) -> None:  # fmt: skip
        super().__init__(key_dtype, value_dtype)
        with outermost_graph():
            self._default_value = self._default(default_value)
            attrs = {
                "key_dtype": self._key_dtype,
                "value_dtype": self._value_dtype,
                "container": current_container(),
                "shared_name": shared_name or "",
                **attrs,
            }
            if "value_shape" in attrs:
                attrs["value_shape"] = self._default_value.dims
            self._resource_handle = out(op, inputs, attrs, name)

    def _default(self, value: Any) -> Output:
        return convert_to_tensor(value, self._value_dtype)

    @property
    def resource_handle(self) -> Output:
        """The table's handle: resource, shape ()."""
        return self._resource_handle

    @property
    def name(self) -> str:
        """The last component of the name of the table's node."""
        return self._resource_handle.op.name.rpartition("/")[2]

    def size(self, name: str | None = None) -> Output:
        """Return the number of keys: int64, shape ().

        Args:
          name: name of the node.
        """
        return out(
            "LookupTableSizeV2", [self._resource_handle], name=self._select_named(name, "Size")
        )

    def export(self, name: str | None = None) -> tuple[Output, Output]:
        """Return all keys, shape (n, K), and their values, shape (n, V), in unspecified order.

        Args:
          name: name of the node.
        """
        attrs = {"Tkeys": self._key_dtype, "Tvalues": self._value_dtype}
        handle, result = self._resource_handle, self._select_named(name, "Export")
        keys, values = create("LookupTableExportV2", [handle], attrs, result).outputs
        return keys, values

    def _find(self, keys: Any, default: Output, name: str | None) -> Output:
        inputs = [self._resource_handle, self._key_tensor(keys), default]
        result = out("LookupTableFindV2", inputs, name=self._select_named(name, "Lookup"))
        if result.dims is None and default.dims == () and not self._key_rank():
            result.set_shape(inputs[1].shape)  # in a function, where the handle has no shape
        return result

    def _key_rank(self) -> int:
        return 0

    def _select_named(self, name: str | None, label: str) -> str:
        return name or f"{self.name}_{label}"


class StaticHashTable(_ResourceTable):
    """A table that its initializer fills once.

    `wf.tables_initializer()` and `MonitoredTrainingSession` run the initializers of all tables. A
    second run with the same content does nothing.

    Args:
      initializer: the source of the content, such as a `KeyValueTensorInitializer`.
      default_value: the value of missing keys: the type of the values, shape ().
      name: name of its node.
    Raises: InvalidTypeError: `initializer` is not an initializer; when it is used:
      FailedPreconditionError: it was not initialized.

    Examples:
      >>> colors = wf.lookup.KeyValueTensorInitializer([1, 2], ["red", "green"])
      >>> table = wf.lookup.StaticHashTable(colors, default_value="none")
      >>> with wf.Session() as session:
      ...     session.run(table.initializer)
      ...     session.run(table[wf.constant([[2, 3]])])
      array([[b'green', b'none']], dtype=object)
    """

    def __init__(
        self,
        initializer: Any,
        default_value: Any,
        name: str | None = None,
        *,
        shared_name: str | None = None,
    ) -> None:
        if not isinstance(initializer, TableInitializerBase):
            raise errors.InvalidTypeError(
                f"a StaticHashTable requires an initializer of a table, got {initializer!r}"
            )
        super().__init__(
            initializer.key_dtype,
            initializer.value_dtype,
            default_value,
            "HashTableV2",
            (),
            {},
            shared_name,
            name or "hash_table",
        )
        with outermost_graph():
            self._initializer = initializer.initialize(self)

    def _default(self, value: Any) -> Output:
        return scalar(value, self._value_dtype, "default_value")

    @property
    def default_value(self) -> Output:
        """The value of missing keys."""
        return self._default_value

    @property
    def initializer(self) -> Node:
        """The node that fills the table."""
        return self._initializer

    @property
    def init(self) -> Node:
        """The initializer, under its deprecated name."""
        return self._initializer

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Return the values of keys.

        Args:
          keys: keys of the table's type, any shape; or a sparse tensor.
          name: name of the node.
        Returns: the values, shape of `keys`; sparse if `keys` is.
        Raises: InvalidTypeError: the keys are of another type.
        """
        return apply_to_values(keys, lambda dense: self._find(dense, self._default_value, name))

    def __getitem__(self, keys: Any) -> Any:
        return self.lookup(keys)


# ---------------------------------------------------------------------------- mutable


class _TableSaveable(SaveableObject):
    """Saves and restores the keys and values of a table as `<name>-keys` and `<name>-values`."""

    def __init__(self, table: _MutableTable, name: str) -> None:
        handle = table.resource_handle
        exported: list[tuple[Output, Output]] = []

        def part(i: int) -> Output:
            if not exported:
                with handle.graph.colocate_with(handle.node):
                    exported.append(table.export())
            return exported[0][i]

        specs = [
            SaveSpec(lambda: part(0), "", f"{name}-keys", table.key_dtype, handle.device),
            SaveSpec(lambda: part(1), "", f"{name}-values", table.value_dtype, handle.device),
        ]
        super().__init__(handle, specs, name)

    def restore(self, restored_tensors: Sequence[Output], restored_shapes: Any) -> Node:
        """Return the node that restores keys and values, replacing the current ones."""
        with self.op.graph.colocate_with(self.op.node):
            return create("LookupTableImportV2", [self.op, *restored_tensors])


class _MutableTable(_ResourceTable, HasSaveable):
    """A table that can be modified."""

    def _keep_in_checkpoints(self, checkpoint: bool, name: str) -> None:
        graph = self._resource_handle.graph
        names = {item.name for item in graph.get_collection(GraphKeys.SAVEABLE_OBJECTS)}
        self._saved_name = name if name not in names else self._resource_handle.op.name
        if checkpoint:
            graph.add_to_collection(GraphKeys.SAVEABLE_OBJECTS, self.saveable())

    def saveable(self, name: str | None = None) -> SaveableObject:
        """Return an object that saves all keys and values, under `name` or the table's name."""
        return _TableSaveable(self, name or self._saved_name)

    def lookup(self, keys: Any, dynamic_default_values: Any = None, name: str | None = None) -> Any:
        """Return the values of keys.

        Args:
          keys: keys of the table's type, shape (S, K), K being the shape of a key; or a sparse
            tensor.
          dynamic_default_values: the value of missing keys, instead of the table's default: one
            value, shape (V), or one for each key, shape (S, V).
          name: name of the node.
        Returns: the values, shape (S, V).
        Raises: InvalidTypeError: the keys are of another type; InvalidArgumentError: a shape is
          incompatible.
        """
        if isinstance(dynamic_default_values, str):  # 1.15: the name is second
            dynamic_default_values, name = None, dynamic_default_values
        default = self._default_value
        if dynamic_default_values is not None:
            default = convert_to_tensor(dynamic_default_values, self._value_dtype)
        return apply_to_values(keys, lambda dense: self._find(dense, default, name))

    def __getitem__(self, keys: Any) -> Any:
        return self.lookup(keys)

    def insert(self, keys: Any, values: Any, name: str | None = None) -> Node:
        """Return a node that inserts keys and values; the last of repeated keys wins.

        Args:
          keys: keys of the table's type, shape (S, K).
          values: values of the table's type, shape (S, V).
          name: name of the node.
        """
        pairs = [self._key_tensor(keys), convert_to_tensor(values, self._value_dtype)]
        result = self._select_named(name, "Insert")
        return create("LookupTableInsertV2", [self._resource_handle, *pairs], name=result)

    def insert_or_assign(self, keys: Any, values: Any, name: str | None = None) -> Node:
        """Insert keys and values; an alias of `insert`."""
        return self.insert(keys, values, name)

    def remove(self, keys: Any, name: str | None = None) -> Node:
        """Return a node that removes keys; missing ones are ignored.

        Args:
          keys: keys of the table's type, shape (S, K).
          name: name of the node.
        """
        inputs = [self._resource_handle, self._key_tensor(keys)]
        return create("LookupTableRemoveV2", inputs, name=self._select_named(name, "Remove"))

    def erase(self, keys: Any, name: str | None = None) -> Node:
        """Remove keys; an alias of `remove`."""
        return self.remove(keys, name)


class MutableHashTable(_MutableTable):
    """A mutable table, whose content is saved in checkpoints.

    Args:
      key_dtype, value_dtype: element types.
      default_value: the value of missing keys; all values have its shape.
      name: name of its node, and of its content in checkpoints.
      checkpoint: True if Savers save it.

    Examples:
      >>> counts = wf.lookup.experimental.MutableHashTable(wf.string, wf.int64, default_value=0)
      >>> add = counts.insert(["a", "b"], [3, 4])
      >>> with wf.Session() as session:
      ...     session.run(add)
      ...     session.run(counts.lookup(["b", "c"]))
      array([4, 0])
    """

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        name: str = "MutableHashTable",
        checkpoint: bool = True,
        *,
        shared_name: str | None = None,
    ) -> None:
        default = convert_to_tensor(default_value, dtypes.as_dtype(value_dtype))
        is_scalar = default.dims == ()
        op = "MutableHashTableV2" if is_scalar else "MutableHashTableOfTensorsV2"
        # As others must find a table that is in a checkpoint.
        attrs: dict[str, Any] = {"use_node_name_sharing": checkpoint and not shared_name}
        attrs |= {} if is_scalar else {"value_shape": None}
        super().__init__(key_dtype, value_dtype, default, op, (), attrs, shared_name, name)
        self._keep_in_checkpoints(checkpoint, name)


class DenseHashTable(_MutableTable):
    """A mutable table with open addressing and two reserved keys.

    Args:
      key_dtype, value_dtype: element types.
      default_value: the value of missing keys; all values have its shape.
      empty_key, deleted_key: two keys that are never used: shape () or (k,), like all keys.
      initial_num_buckets: initial capacity, a power of 2.
      name: name of its node, and of its content in checkpoints.
      checkpoint: True if Savers save it.
    Raises (when it runs): InvalidArgumentError: one of the two keys is used, or they are equal.

    Examples:
      >>> table = wf.lookup.experimental.DenseHashTable(
      ...     wf.int64, wf.float32, default_value=0.0, empty_key=-1, deleted_key=-2
      ... )
      >>> change = table.insert([7, 8], [0.5, 1.5])
      >>> with wf.Session() as session:
      ...     session.run(change)
      ...     session.run(table.remove([7]))
      ...     session.run([table.lookup([7, 8]), table.size()])
      [array([0. , 1.5], dtype=float32), np.int64(1)]
    """

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        empty_key: Any,
        deleted_key: Any,
        initial_num_buckets: int | None = None,
        name: str = "MutableDenseHashTable",
        checkpoint: bool = True,
        *,
        shared_name: str | None = None,
    ) -> None:
        dtype = dtypes.as_dtype(key_dtype)
        with outermost_graph():
            unused = [
                convert_to_tensor(empty_key, dtype, name="empty_key"),
                convert_to_tensor(deleted_key, dtype, name="deleted_key"),
            ]
        buckets = 1 << 17 if initial_num_buckets is None else initial_num_buckets
        attrs = {
            "value_shape": None,
            "initial_num_buckets": check_integer(buckets, "initial_num_buckets", 1),
            "use_node_name_sharing": checkpoint and not shared_name,
        }
        self._unused = unused
        super().__init__(
            dtype, value_dtype, default_value, "MutableDenseHashTableV2", unused, attrs,
            shared_name, name,
        )  # fmt: skip
        self._keep_in_checkpoints(checkpoint, name)

    def _key_rank(self) -> int:
        return len(self._unused[0].dims or ())
