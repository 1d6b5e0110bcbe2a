"""Variables in parts, and the functions that say how many parts to make."""

from __future__ import annotations

__all__ = [
    "create_partitioned_variables",
    "fixed_size_partitioner",
    "min_max_variable_partitioner",
    "variable_axis_size_partitioner",
]

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from weft_graph.ir import builder
from weft_graph.ir.node import Node, Output
from weft_graph.ir.symbolic import GraphElement
from weft_graph.variables import reads
from weft_graph.variables.base import SaveSliceInfo, Variable
from weft_graph.variables.reference import variables_initializer
from weft_graph.variables.store import VariableStore
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import TensorShape, as_dims, is_fully_defined

Partitioner = Callable[..., Sequence[int]]


class PartitionInfo:
    """The position of a part, for its initializer.

    Attributes:
      full_shape: shape of the whole.
      var_offset: where the part starts.
    """

    def __init__(self, full_shape: Sequence[int], var_offset: Sequence[int]) -> None:
        self.full_shape = list(full_shape)
        self.var_offset = list(var_offset)

    def single_offset(self, shape: Sequence[int]) -> int:
        """Return the start of a part on its partitioned axis; 0 for the whole variable."""
        axis = self.single_slice_dim(shape)
        return 0 if axis is None else self.var_offset[axis]

    def single_slice_dim(self, shape: Sequence[int]) -> int | None:
        """The axis that is cut, None for the whole."""
        cut = [i for i, (a, b) in enumerate(zip(shape, self.full_shape, strict=True)) if a != b]
        return cut[0] if cut else None


class PartitionedVariable(GraphElement):
    """Variables that together hold one tensor, cut along one axis.

    Args:
      name: of the whole.
      shape: of the whole.
      dtype: element type.
      variable_list: the parts in order; each has its SaveSliceInfo.
      partitions: number of parts per axis.
    """

    def __init__(
        self,
        name: str,
        shape: Any,
        dtype: Any,
        variable_list: Sequence[Variable],
        partitions: Sequence[int],
    ) -> None:
        if not variable_list:
            raise errors.InvalidArgumentError("a partitioned variable needs at least one part")
        self._name = name
        self._shape = TensorShape(shape)
        self._dtype: DType = dtypes.as_dtype(dtype)
        self._parts = list(variable_list)
        self._partitions = list(partitions)
        self._whole: Output | None = None

    @property
    def name(self) -> str:
        """The name of the whole."""
        return self._name

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        """Shape of the whole."""
        return self._shape

    @property
    def graph(self) -> Any:
        """The graph it belongs to."""
        return self._parts[0].graph

    def get_shape(self) -> TensorShape:
        """Shape of the whole."""
        return self._shape

    def _axis(self) -> int:
        return next((i for i, count in enumerate(self._partitions) if count > 1), 0)

    def as_tensor(self) -> Output:
        """The whole, as one tensor."""
        return self._as_output()

    def _as_output(self, as_ref: bool = False) -> Output:
        if self._is_read_here():
            return self._concatenated()
        if self._whole is None:
            graph = self.graph
            with graph.as_default(), graph.control_dependencies(None):
                self._whole = self._concatenated()
        return self._whole

    def _is_read_here(self) -> bool:
        """Return True if the parts may have other values here than the shared concatenation."""
        scopes = self.graph.scopes
        if any(scope.nodes for scope in scopes.controls):
            return True
        return scopes.context is not None and any(
            node is not part.initializer
            for part in self._parts
            for node in reads.updates(part.handle)
        )

    def _concatenated(self) -> Output:
        name = f"{self._name}/ConcatPartitions/"
        with self.graph.name_scope(name):
            values = [part.value() for part in self._parts]
            if len(values) == 1:
                concatenated = builder.out("Identity", values, None, "concat")
            else:
                concatenated = builder.out("ConcatV2", [values, self._axis()], None, "concat")
        with self.graph.name_scope(None):
            return builder.out("Identity", [concatenated], None, self._name)

    def _as_graph_element(self) -> Output:
        return self._as_output()

    @property
    def initializer(self) -> Node:
        """A node that initializes all parts."""
        return variables_initializer(self._parts)

    def _get_variable_list(self) -> list[Variable]:
        return self._parts

    def _get_partitions(self) -> list[int]:
        return self._partitions

    def assign(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> list[Any]:
        """Replace the value; returns what `assign` of each part returns."""
        return self._each("assign", value, name, read_value)

    def assign_add(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> list[Any]:
        """Add `value`; returns what `assign_add` of each part returns."""
        return self._each("assign_add", value, name, read_value)

    def assign_sub(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> list[Any]:
        """Subtract `value`; returns what `assign_sub` of each part returns."""
        return self._each("assign_sub", value, name, read_value)

    def _each(self, method: str, value: Any, name: str | None, read_value: bool) -> list[Any]:
        if isinstance(value, PartitionedVariable):
            pieces: Sequence[Any] = value._parts
        elif isinstance(value, list | tuple):
            pieces = value
        else:
            axis = self._axis()
            sizes = [part.shape.as_list()[axis] for part in self._parts]
            full_value = builder.convert_to_tensor(value, self._dtype)
            attrs = {"num_split": len(sizes)}
            pieces = builder.create("SplitV", [full_value, sizes, axis], attrs).outputs
        return [
            getattr(part, method)(piece, name=name, read_value=read_value)
            for part, piece in zip(self._parts, pieces, strict=True)
        ]

    def __iter__(self) -> Iterator[Variable]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __repr__(self) -> str:
        return (
            f"<weft.PartitionedVariable '{self._name}' shape={self._shape} "
            f"dtype={self._dtype.name} parts={len(self._parts)}>"
        )


# --------------------------------------------------------------------------- names in checkpoints


def checkpoint_name(variable: Any) -> str:
    """The name of a variable in a checkpoint: that of the whole for a part and for the whole."""
    if isinstance(variable, PartitionedVariable):
        return variable.name
    part = variable._get_save_slice_info() if isinstance(variable, Variable) else None
    return str(variable.op.name if part is None else part.full_name or "")


def group_parts(
    variables: Iterable[Any], name_of: Callable[[Any], str] = checkpoint_name
) -> dict[str, Any]:
    """Variables by their names in a checkpoint; the parts of one variable as a list.

    Args:
      variables: in any order; that of the parts of a variable is kept.
      name_of: returns the name of one of them.
    Raises: InvalidArgumentError: two of them have one name.
    """
    groups: dict[str, Any] = {}
    for variable in variables:
        name = name_of(variable)
        is_part = isinstance(variable, Variable) and variable._get_save_slice_info() is not None
        if is_part and isinstance(groups.get(name, []), list):
            groups.setdefault(name, []).append(variable)
        elif name in groups:
            raise errors.InvalidArgumentError(f"two of the variables to save are called {name!r}")
        else:
            groups[name] = variable
    return groups


# --------------------------------------------------------------------------- get_variable


def get_partitioned_variable(
    store: VariableStore,
    name: str,
    shape: Any,
    dtype: Any,
    initializer: Any,
    regularizer: Any,
    reuse: Any,
    partitioner: Partitioner,
    **settings: Any,
) -> Any:
    """The partitioned variable of that full name: made, or reused.

    Raises: InvalidArgumentError: the shape is not known, or as `VariableStore.single`.
    """
    name = name.removesuffix("/")  # of a variable that has the name of its scope
    full_shape = _whole_shape(name, shape, initializer)
    if not full_shape:
        return store.single(name, shape, dtype, initializer, regularizer, reuse, **settings)
    if name in store.variables:
        raise errors.InvalidArgumentError(
            f"variable {name} is not partitioned; get it without a partitioner"
        )
    base = _element_type(dtype, initializer)
    partitions = list(partitioner(shape=TensorShape(full_shape), dtype=base))
    _check_partitions(name, partitions, full_shape)
    existing = store.partitioned.get(name)
    if existing is not None:
        _check_same(name, existing, reuse, partitions, full_shape)
        return existing
    parts = []
    for i, (offset, sizes) in enumerate(slices(full_shape, partitions)):
        part = store.single(
            f"{name}/part_{i}",
            *_part_arguments(sizes, offset, base, initializer),
            regularizer,
            reuse,
            partition_info=PartitionInfo(full_shape, offset),
            **settings,
        )
        part._set_save_slice_info(SaveSliceInfo(name, full_shape, offset, sizes))
        parts.append(part)
    result = PartitionedVariable(name, full_shape, base, parts, partitions)
    store.partitioned[name] = result
    return result


def _whole_shape(name: str, shape: Any, initializer: Any) -> list[int]:
    if initializer is not None and not callable(initializer) and shape is None:
        shape = builder.convert_to_tensor(initializer).dims
    dims = as_dims(shape)
    if dims is None or not is_fully_defined(dims):
        raise errors.InvalidArgumentError(
            f"the shape of the partitioned variable {name} must be fully known, got {shape}"
        )
    return [size for size in dims if size is not None]


def _element_type(dtype: Any, initializer: Any) -> DType:
    if dtype is None:
        return builder.convert_to_tensor(initializer).dtype.base_dtype
    return dtypes.as_dtype(dtype).base_dtype


def _part_arguments(
    sizes: list[int], offset: list[int], dtype: DType, initializer: Any
) -> tuple[Any, Any, Any]:
    if initializer is None or callable(initializer):
        return sizes, dtype, initializer
    value = builder.convert_to_tensor(initializer, dtype)
    return None, dtype, builder.out("Slice", [value, offset, sizes])


def _check_partitions(name: str, partitions: list[int], full_shape: list[int]) -> None:
    if len(partitions) != len(full_shape) or min(partitions) < 1:
        raise errors.InvalidArgumentError(
            f"the partitioner of {name} must give one positive count for each of {len(full_shape)} "
            f"axes, got {partitions}"
        )
    if sum(count > 1 for count in partitions) > 1:
        raise errors.InvalidArgumentError(
            f"{name} can be cut along one axis only, got the partitions {partitions}"
        )


def _check_same(
    name: str,
    existing: PartitionedVariable,
    reuse: Any,
    partitions: list[int],
    full_shape: list[int],
) -> None:
    if not reuse:
        raise errors.InvalidArgumentError(
            f"Partitioned variable {name} already exists, disallowed. Did you mean to set "
            "reuse=True or reuse=AUTO_REUSE in variable_scope? Originally defined at "
            f"{existing._get_variable_list()[0].op.line}"
        )
    if existing._get_partitions() != partitions or existing.shape.as_list() != full_shape:
        raise errors.InvalidArgumentError(
            f"Trying to share partitioned variable {name}, but specified shape {full_shape} in "
            f"{partitions} parts and found shape {existing.shape.as_list()} in "
            f"{existing._get_partitions()} parts"
        )


def slices(
    full_shape: Sequence[int], partitions: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    """(offset, sizes) of each part; the first ones take what does not divide evenly."""
    axis = next((i for i, count in enumerate(partitions) if count > 1), 0)
    count = partitions[axis]
    size, extra = divmod(full_shape[axis], count)
    result: list[tuple[list[int], list[int]]] = []
    start = 0
    for i in range(count):
        length = size + (i < extra)
        offset, sizes = [0] * len(full_shape), list(full_shape)
        offset[axis], sizes[axis] = start, length
        result.append((offset, sizes))
        start += length
    return result


def create_partitioned_variables(
    shape: Sequence[int],
    slicing: Sequence[int],
    initializer: Any,
    dtype: Any = dtypes.float32,
    trainable: bool = True,
    collections: Sequence[str] | None = None,
    name: str | None = None,
    reuse: Any = None,
) -> list[Any]:
    """The parts of a partitioned variable, cut as `slicing` says: the number of parts per axis.

    Args:
      shape: list of ints, of the whole.
      slicing: list of ints of the same length, only one of them more than 1.
      initializer: an initializer, or a value of shape `shape`.
      dtype: element type; that of `initializer` where it is a value.
      trainable, collections, reuse: as for `get_variable`.
      name: of the whole; "PartitionedVariable" by default, made unique.
    Returns: the parts, in order.
    Raises: InvalidArgumentError: an axis is to be cut into more parts than it has elements.

    Examples:
      >>> parts = wf.create_partitioned_variables([6, 2], [3, 1], wf.zeros_initializer())
      >>> [part.shape.as_list() for part in parts]
      [[2, 2], [2, 2], [2, 2]]
    """
    from weft_graph.variables.scope import get_variable, variable_scope

    sizes = list(shape)
    if any([count > size for count, size in zip(slicing, sizes, strict=False)]):
        raise errors.InvalidArgumentError(
            f"slicing must leave every part an element of the shape {sizes}, got {list(slicing)}"
        )
    if not callable(initializer):
        initializer = builder.convert_to_tensor(initializer)
        dtype = initializer.dtype.base_dtype
    with variable_scope(name, "PartitionedVariable", reuse=reuse):
        variable = get_variable(
            "",
            sizes,
            dtype,
            initializer,
            trainable=trainable,
            collections=collections,
            partitioner=lambda **_: slicing,
        )
    return list(variable)


# --------------------------------------------------------------------------- partitioners


def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Partitioner:
    """A partitioner that makes `num_shards` parts along `axis`.

    Args:
      num_shards: how many parts.
      axis: which axis is cut.

    Examples:
      >>> table = wf.get_variable("table", [6, 2], partitioner=wf.fixed_size_partitioner(3))
      >>> len(list(table))
      3
    """

    def partitioner(shape: TensorShape, **_: Any) -> list[int]:
        sizes = _known(shape)
        partitions = [1] * len(sizes)
        partitions[axis] = min(num_shards, sizes[axis])
        return partitions

    return partitioner


def variable_axis_size_partitioner(
    max_shard_bytes: int,
    axis: int = 0,
    bytes_per_string_element: int = 16,
    max_shards: int | None = None,
) -> Partitioner:
    """A partitioner that makes parts of at most `max_shard_bytes`, as few as will do.

    Args:
      max_shard_bytes: bytes.
      axis: which axis is cut.
      bytes_per_string_element: bytes that a string counts for.
      max_shards: parts at the most; as many as it takes by default.
    Raises: InvalidArgumentError: an argument is less than 1.

    Examples:
      >>> partitioner = wf.variable_axis_size_partitioner(16)
      >>> len(list(wf.get_variable("table", [6, 2], partitioner=partitioner)))  # 8 bytes a row
      3
    """
    if max_shard_bytes < 1 or bytes_per_string_element < 1 or (max_shards or 1) < 1:
        raise errors.InvalidArgumentError("sizes and numbers of parts must be positive")

    def partitioner(shape: TensorShape, dtype: Any, **_: Any) -> list[int]:
        sizes = _known(shape)
        partitions = [1] * len(sizes)
        per_slice = _bytes(sizes, dtype, bytes_per_string_element) / max(sizes[axis], 1)
        slices_per_part = max(1, math.floor(max_shard_bytes / max(per_slice, 1e-9)))
        count = max(1, math.ceil(sizes[axis] / slices_per_part))
        partitions[axis] = count if max_shards is None else min(max_shards, count)
        return partitions

    return partitioner


def min_max_variable_partitioner(
    max_partitions: int = 1,
    axis: int = 0,
    min_slice_size: int = 256 << 10,
    bytes_per_string_element: int = 16,
) -> Partitioner:
    """A partitioner that makes up to `max_partitions` parts of at least `min_slice_size` bytes.

    Args:
      max_partitions: parts at the most.
      axis: which axis is cut.
      min_slice_size: bytes.
      bytes_per_string_element: bytes that a string counts for.
    Raises: InvalidArgumentError: an argument is less than 1.

    Examples:
      >>> partitioner = wf.min_max_variable_partitioner(4, min_slice_size=24)
      >>> len(list(wf.get_variable("table", [6, 2], partitioner=partitioner)))  # 48 bytes
      2
    """
    if max_partitions < 1 or min_slice_size < 1 or bytes_per_string_element < 1:
        raise errors.InvalidArgumentError("sizes and numbers of parts must be positive")

    def partitioner(shape: TensorShape, dtype: Any, **_: Any) -> list[int]:
        sizes = _known(shape)
        partitions = [1] * len(sizes)
        total = _bytes(sizes, dtype, bytes_per_string_element)
        num_parts = max(1, total // min_slice_size)
        partitions[axis] = max(1, min(sizes[axis], max_partitions, num_parts))
        return partitions

    return partitioner


def _known(shape: Any) -> list[int]:
    dims = as_dims(shape)
    if dims is None or not is_fully_defined(dims):
        raise errors.InvalidArgumentError(f"the shape must be fully known, got {shape}")
    return [size for size in dims if size is not None]


def _bytes(sizes: Sequence[int], dtype: Any, per_string: int) -> int:
    base = dtypes.as_dtype(dtype).base_dtype
    return math.prod(sizes) * (per_string if base is dtypes.string else base.size)
