"""Partitioned variables, and the names of their parts in checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from weft_graph.ir import builder
from weft_graph.ir.node import Node, Output
from weft_graph.ir.symbolic import GraphElement
from weft_graph.variables import reads
from weft_graph.variables.base import Variable
from weft_graph.variables.reference import variables_initializer
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import TensorShape


class PartitionInfo:
    """The position of a part, for its initializer.

    Attributes:
      full_shape: shape of the partitioned variable.
      var_offset: offset of the part along each axis.
    """

    def __init__(self, full_shape: Sequence[int], var_offset: Sequence[int]) -> None:
        self.full_shape = list(full_shape)
        self.var_offset = list(var_offset)

    def single_offset(self, shape: Sequence[int]) -> int:
        """Return the offset of a part along the partitioned axis; 0 for the whole variable."""
        axis = self.single_slice_dim(shape)
        return 0 if axis is None else self.var_offset[axis]

    def single_slice_dim(self, shape: Sequence[int]) -> int | None:
        """Return the partitioned axis; None for the whole variable."""
        cut = [i for i, (a, b) in enumerate(zip(shape, self.full_shape, strict=True)) if a != b]
        return cut[0] if cut else None


class PartitionedVariable(GraphElement):
    """One logical variable that is stored as several variables, partitioned along one axis.

    Args:
      name: name of the whole variable.
      shape: shape of the whole variable.
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
        self._joined: Output | None = None

    @property
    def name(self) -> str:
        """The name of the whole variable."""
        return self._name

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        """Shape of the whole variable."""
        return self._shape

    @property
    def graph(self) -> Any:
        """The graph of the variable."""
        return self._parts[0].graph

    def get_shape(self) -> TensorShape:
        """Shape of the whole variable."""
        return self._shape

    def _axis(self) -> int:
        return next((i for i, count in enumerate(self._partitions) if count > 1), 0)

    def as_tensor(self) -> Output:
        """Return the value of the whole variable as one tensor."""
        return self._as_output()

    def _as_output(self, as_ref: bool = False) -> Output:
        if self._is_read_here():
            return self._concat_parts()
        if self._joined is None:
            graph = self.graph
            with graph.as_default(), graph.control_dependencies(None):
                self._joined = self._concat_parts()
        return self._joined

    def _is_read_here(self) -> bool:
        """Return True if the parts may have other values here than in the shared concatenation."""
        scopes = self.graph.scopes
        if any(scope.nodes for scope in scopes.controls):
            return True
        return scopes.context is not None and any(
            node is not part.initializer
            for part in self._parts
            for node in reads.updates(part.handle)
        )

    def _concat_parts(self) -> Output:
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
        """The node that initializes all parts."""
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
        """Replace the value; return the results of `assign` of the parts."""
        return self._map_parts("assign", value, name, read_value)

    def assign_add(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> list[Any]:
        """Add `value`; return the results of `assign_add` of the parts."""
        return self._map_parts("assign_add", value, name, read_value)

    def assign_sub(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> list[Any]:
        """Subtract `value`; return the results of `assign_sub` of the parts."""
        return self._map_parts("assign_sub", value, name, read_value)

    def _map_parts(self, method: str, value: Any, name: str | None, read_value: bool) -> list[Any]:
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
    """Return the name of a variable in a checkpoint; parts have the name of the whole variable."""
    if isinstance(variable, PartitionedVariable):
        return variable.name
    part = variable._get_save_slice_info() if isinstance(variable, Variable) else None
    return str(variable.op.name if part is None else part.full_name or "")


def group_parts(
    variables: Iterable[Any], name_of: Callable[[Any], str] = checkpoint_name
) -> dict[str, Any]:
    """Group variables by name in a checkpoint; the parts of one variable become a list.

    Args:
      variables: variables in any order; parts keep their order.
      name_of: function that returns the name of a variable.
    Raises: InvalidArgumentError: two variables have the same name.
    """
    groups: dict[str, Any] = {}
    for variable in variables:
        name = name_of(variable)
        is_part = isinstance(variable, Variable) and variable._get_save_slice_info() is not None
        if is_part and isinstance(groups.get(name, []), list):
            groups.setdefault(name, []).append(variable)
        elif name in groups:
            raise errors.InvalidArgumentError(
                f"two of the variables to save have the name {name!r}"
            )
        else:
            groups[name] = variable
    return groups
