"""Initializers of static tables: sources of their contents."""

from __future__ import annotations

__all__ = ["KeyValueTensorInitializer", "TextFileIndex", "TextFileInitializer"]

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from weft_graph.functions.body import FunctionGraph
from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Node, Output
from weft_io import arguments
from weft_io.records.vocabulary import LINE_NUMBER, WHOLE_LINE
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer
from weft_tensor.dtypes import DType


@contextmanager
def outermost_graph() -> Iterator[None]:
    """Enter the outermost graph, outside functions, branches and loops, to create tables."""
    graph = get_default_graph()
    outermost = graph.outermost if isinstance(graph, FunctionGraph) else graph
    with outermost.as_default(), outermost.control_dependencies(None):
        yield


class InitializedTable(Protocol):
    """A table that an initializer fills.

    Attributes:
      key_dtype, value_dtype: element types.
      resource_handle: the handle of the table.
    """

    @property
    def key_dtype(self) -> DType:
        """Element type of the keys."""

    @property
    def value_dtype(self) -> DType:
        """Element type of the values."""

    @property
    def resource_handle(self) -> Output:
        """The handle of the table."""


class TableInitializerBase:
    """Base class of initializers of static tables.

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

    def initialize(self, table: InitializedTable) -> Node:
        """Add the node that initializes a table, and record it in TABLE_INITIALIZERS.

        Args:
          table: a table with the same key and value types.
        Raises: InvalidTypeError: the types differ.
        """
        types, table_types = (
            (self.key_dtype, self.value_dtype),
            (table.key_dtype, table.value_dtype),
        )
        if types != table_types:
            raise errors.InvalidTypeError(
                f"Invalid dtypes: the initializer maps {types[0].name} to {types[1].name}, "
                "the table "
                f"{table_types[0].name} to {table_types[1].name}"
            )
        node = self._add_records(table.resource_handle)
        node.graph.add_to_collection(GraphKeys.TABLE_INITIALIZERS, node)
        return node

    def _add_records(self, handle: Output) -> Node:
        raise NotImplementedError


class KeyValueTensorInitializer(TableInitializerBase):
    """An initializer with the keys and values in two tensors.

    Args:
      keys: any type that keys can have, shape (n,).
      values: any type, shape (n,).
      key_dtype, value_dtype: element types, if `keys` and `values` do not have them.
      name: name of the node.
    Raises: InvalidTypeError: the tensors have other types; InvalidArgumentError: the shapes differ;
      when it runs: FailedPreconditionError: a key has two values.

    Examples:
      >>> pairs = wf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2], value_dtype=wf.int64)
      >>> table = wf.lookup.StaticHashTable(pairs, default_value=-1)
      >>> with wf.Session() as session:
      ...     session.run(wf.tables_initializer())
      ...     session.run(table.lookup(["b", "x"]))
      array([ 2, -1])
    """

    def __init__(
        self,
        keys: Any,
        values: Any,
        key_dtype: Any = None,
        value_dtype: Any = None,
        name: str | None = None,
    ) -> None:
        with outermost_graph():
            self._keys = convert_to_tensor(keys, key_dtype, name="keys")
            self._values = convert_to_tensor(values, value_dtype, name="values")
        self._name = name or "key_value_init"
        super().__init__(self._keys.dtype, self._values.dtype)

    def _add_records(self, handle: Output) -> Node:
        return create("InitializeTableV2", [handle, self._keys, self._values], name=self._name)


class TextFileIndex:
    """Parts of a line, other than columns, that can be keys or values.

    Attributes:
      WHOLE_LINE: the whole line: any type.
      LINE_NUMBER: the line number, counted from 0: int64.

    Examples:
      >>> wf.lookup.TextFileIndex.WHOLE_LINE, wf.lookup.TextFileIndex.LINE_NUMBER
      (-2, -1)
    """

    WHOLE_LINE = WHOLE_LINE
    LINE_NUMBER = LINE_NUMBER


class TextFileInitializer(TableInitializerBase):
    r"""An initializer with the pairs in a text file, one per line.

    SavedModels include the file as an asset, because its name is in the collection ASSET_FILEPATHS.

    Args:
      filename: string, shape (); a path, or a URL that fsspec knows.
      key_dtype, value_dtype: element types: string, or the type to parse the texts as.
      key_index, value_index: column of the lines, or a `TextFileIndex`.
      vocab_size: number of lines to read; None for all.
      delimiter: one byte, between columns.
      name: name of the node.
      value_index_offset: added to the number of a line.
    Raises: InvalidArgumentError: an argument is out of range; when it runs: NotFoundError: the file
      does not exist; InvalidArgumentError: a line is empty, or a column is missing or is not a
      number, or there are fewer lines than `vocab_size`; FailedPreconditionError: a key has two
      values.

    Examples:
      >>> wf.Session().run(wf.write_file("ages.tsv", "ann\t30\nbob\t25\n"))
      >>> ages = wf.lookup.TextFileInitializer("ages.tsv", wf.string, 0, wf.int64, 1)
      >>> table = wf.lookup.StaticHashTable(ages, default_value=0)
      >>> with wf.Session() as session:
      ...     session.run(wf.tables_initializer())
      ...     session.run(table.lookup(["bob"]))
      array([25])
    """

    def __init__(
        self,
        filename: Any,
        key_dtype: Any,
        key_index: Any,
        value_dtype: Any,
        value_index: Any,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = None,
        value_index_offset: int = 0,
    ) -> None:
        super().__init__(key_dtype, value_dtype)
        if not isinstance(filename, Output) and not filename:
            raise errors.InvalidArgumentError(
                f"`filename` argument required for tf.lookup.TextFileInitializer, got {filename!r}"
            )
        sides = (("key", key_index, self.key_dtype), ("value", value_index, self.value_dtype))
        for side, index, dtype in sides:
            if (
                check_integer(index, f"{side}_index", WHOLE_LINE) == LINE_NUMBER
                and not dtype.is_integer
            ):
                raise errors.InvalidArgumentError(
                    f"`{side}_dtype` must be int64 if `{side}_index` is {LINE_NUMBER}, got "
                    f"{dtype.name}"
                )
        if vocab_size is not None:
            vocab_size = check_integer(vocab_size, "vocab_size", 1)
        if len(delimiter.encode()) != 1:
            raise errors.InvalidArgumentError(f"delimiter must be one byte, got {delimiter!r}")
        self._attrs = {
            "key_index": int(key_index),
            "value_index": int(value_index),
            "vocab_size": -1 if vocab_size is None else vocab_size,
            "delimiter": delimiter,
            "offset": value_index_offset,
        }
        self._filename = filename
        self._name = name or "text_file_init"

    def _add_records(self, handle: Output) -> Node:
        filename = arguments.scalar(
            arguments.encode_paths(self._filename), dtypes.string, "filename"
        )
        filename.graph.add_to_collection(GraphKeys.ASSET_FILEPATHS, filename)
        return create("InitializeTableFromTextFileV2", [handle, filename], self._attrs, self._name)


class TextFileStringTableInitializer(TextFileInitializer):
    r"""An initializer from line numbers to the lines of a file: int64 to string.

    Args:
      filename: string, shape ().
      key_column_index, value_column_index: as for `TextFileInitializer`.
      vocab_size, delimiter, name: as for `TextFileInitializer`.
    """

    def __init__(
        self,
        filename: Any,
        key_column_index: Any = LINE_NUMBER,
        value_column_index: Any = WHOLE_LINE,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = "text_file_string_table_init",
    ) -> None:
        super().__init__(
            filename,
            dtypes.int64,
            key_column_index,
            dtypes.string,
            value_column_index,
            vocab_size,
            delimiter,
            name,
        )


class TextFileIdTableInitializer(TextFileInitializer):
    r"""An initializer from the lines of a file to their numbers: string to int64.

    Args:
      filename: string, shape ().
      key_column_index, value_column_index: as for `TextFileInitializer`.
      vocab_size, delimiter, name: as for `TextFileInitializer`.
      key_dtype: string, or an integer type to parse the texts as.
    """

    def __init__(
        self,
        filename: Any,
        key_column_index: Any = WHOLE_LINE,
        value_column_index: Any = LINE_NUMBER,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = "text_file_id_table_init",
        key_dtype: Any = dtypes.string,
    ) -> None:
        super().__init__(
            filename,
            key_dtype,
            key_column_index,
            dtypes.int64,
            value_column_index,
            vocab_size,
            delimiter,
            name,
        )
