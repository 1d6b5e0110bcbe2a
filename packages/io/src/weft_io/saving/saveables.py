"""Saveable objects: named variables, parts of variables, and other state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from weft_graph.ir import builder
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.ops import resource_state, state
from weft_graph.variables.base import SaveSliceInfo, Variable
from weft_graph.variables.partitioned import PartitionedVariable, checkpoint_name, group_parts
from weft_graph.variables.resource import ResourceVariable
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.nesting import format_value
from weft_tensor.shape import is_fully_defined


class SaveSpec:
    """One tensor of a saveable object.

    Attributes:
      tensor: the output to save, or a function without arguments that creates it.
      slice_spec: the shape of the whole, then start and length of the part on each axis: "10 20
        0,5:-" is the first five rows of shape (10, 20); "" for the whole.
      name: the tensor's name in the checkpoint.
      dtype: element type.
      device: its device.
    """

    def __init__(
        self,
        tensor: Output | Callable[[], Output],
        slice_spec: str,
        name: str,
        dtype: Any = None,
        device: str | None = None,
    ) -> None:
        self._tensor = tensor
        self.slice_spec = slice_spec
        self.name = name
        if isinstance(tensor, Output):
            dtype = tensor.dtype if dtype is None else dtype
            device = tensor.device if device is None else device
        self.dtype: DType = dtype
        self.device = device or ""

    @property
    def tensor(self) -> Output:
        """The output to save."""
        return self._tensor if isinstance(self._tensor, Output) else self._tensor()


class SaveableObject:
    """State that can be saved and restored as one or more tensors.

    Attributes:
      op: the node or object that has the state.
      specs: its tensors.
      name: name in messages and node names.
      optional_restore: True if a checkpoint may lack its strings, which are then restored as empty
        strings.
    """

    optional_restore = False

    def __init__(self, op: Any, specs: Sequence[SaveSpec], name: str) -> None:
        self.op = op
        self.specs = list(specs)
        self.name = name

    @property
    def device(self) -> str:
        """The device of the first tensor."""
        return self.specs[0].device

    def restore(self, restored_tensors: Sequence[Output], restored_shapes: Any) -> Any:
        """Add and return a node that restores the tensors.

        Args:
          restored_tensors: one per spec.
          restored_shapes: their shapes if they were reshaped, else None.
        """
        raise NotImplementedError


class HasSaveable:
    """An object other than a variable that can be saved, such as a table."""

    def saveable(self, name: str | None = None) -> SaveableObject:
        """Return the saveable object, under `name` or the object's own name."""
        raise NotImplementedError


class ReferenceVariableSaveable(SaveableObject):
    """Saves a reference variable, or the output of its node."""

    def __init__(self, ref: Output, slice_spec: str, name: str) -> None:
        self.ref = ref
        super().__init__(ref, [SaveSpec(ref, slice_spec, name, ref.dtype.base_dtype)], name)

    def restore(self, restored_tensors: Sequence[Output], restored_shapes: Any) -> Any:
        """Add and return the node that assigns the value."""
        is_static = is_fully_defined(self.ref.dims)
        validate = restored_shapes is None and is_static
        return state.assign(self.ref, restored_tensors[0], validate_shape=validate).node


class ResourceVariableSaveable(SaveableObject):
    """Saves a resource variable, or its handle."""

    def __init__(self, handle: Output, dtype: DType, slice_spec: str, name: str) -> None:
        self.handle = handle
        spec = SaveSpec(self._read, slice_spec, name, dtype, handle.device)
        super().__init__(handle, [spec], name)

    def _read(self) -> Output:
        with self.handle.graph.colocate_with(self.handle.node):
            return resource_state.read_variable_op(self.handle, self.specs[0].dtype)

    def restore(self, restored_tensors: Sequence[Output], restored_shapes: Any) -> Any:
        """Add and return the node that assigns the value."""
        with self.handle.graph.colocate_with(self.handle.node):
            return resource_state.assign_variable_op(self.handle, restored_tensors[0])


def static_dims(saveable: SaveableObject) -> Any:
    """Return the static shape of a variable; None for other state and for unknown shapes."""
    if isinstance(saveable, ReferenceVariableSaveable):
        return saveable.ref.dims
    if isinstance(saveable, ResourceVariableSaveable):
        return resource_state.handle_dims(saveable.handle)
    return None


# --------------------------------------------------------------------------- from var_list


def all_saveable_objects(graph: Any, scope: str | None = None) -> list[Any]:
    """Return the variables and other saveable objects of a graph."""
    return [
        *graph.get_collection(GraphKeys.GLOBAL_VARIABLES, scope),
        *graph.get_collection(GraphKeys.SAVEABLE_OBJECTS, scope),
    ]


def saveables_for(var_list: Any) -> list[SaveableObject]:
    """Return the objects that a Saver's `var_list` denotes, sorted by name.

    Args:
      var_list: variables, partitioned variables, outputs of variable nodes, tables that change and
        SaveableObjects; or a mapping from names to these, or to a list of the parts of one
        variable. A part with its own name in a mapping is saved as a separate tensor.
    Raises:
      InvalidTypeError: an item is something else.
      InvalidArgumentError: a name or a variable occurs twice.
    """
    saveable_objects: list[SaveableObject] = []
    names_by_variable: dict[Any, str] = {}
    for name, value in sorted(by_name(var_list).items()):
        if not isinstance(name, str):
            raise errors.InvalidTypeError(f"var_list maps names to variables, got the key {name!r}")
        for saveable in _saveables(name, value):
            key = _identity(saveable)
            if key in names_by_variable:
                raise errors.InvalidArgumentError(
                    f"the same variable is saved as {names_by_variable[key]!r} and as {name!r}"
                )
            names_by_variable[key] = name
            saveable_objects.append(saveable)
    return saveable_objects


def _identity(saveable: SaveableObject) -> Any:
    op = saveable.op
    return op.node if isinstance(op, Output) else id(op)


def by_name(var_list: Any) -> Mapping[str, Any]:
    """Return the items of a Saver's `var_list` by name; the parts of a variable are a list.

    Raises: as `saveables_for`.
    """
    if isinstance(var_list, Mapping):
        return var_list
    if isinstance(var_list, str | bytes) or not isinstance(var_list, Iterable):
        raise errors.InvalidTypeError(
            f"var_list must be a list of variables or a dict from names to them, got {var_list!r}"
        )
    items = [item.saveable() if isinstance(item, HasSaveable) else item for item in var_list]
    return group_parts(items, _saved_name)


def _saved_name(item: Any) -> str:
    if isinstance(item, SaveableObject):
        return item.name
    if isinstance(item, Variable | PartitionedVariable | Output):
        return checkpoint_name(item)
    raise errors.InvalidTypeError(f"a variable is required, got {format_value(item)}")


def _saveables(name: str, value: Any) -> list[SaveableObject]:
    if isinstance(value, HasSaveable):
        value = value.saveable(name)
    if isinstance(value, SaveableObject):
        return [value]
    if isinstance(value, PartitionedVariable):
        value = value._get_variable_list()
    if not isinstance(value, list | tuple):
        return [_single(name, value, "")]
    return [_single(name, part, info.spec) for part, info in _slices(name, value)]


def _slices(name: str, parts: Sequence[Any]) -> list[tuple[Variable, SaveSliceInfo]]:
    """Return the parts of one variable with their slices."""
    slices = []
    for part in parts:
        info = part._get_save_slice_info() if isinstance(part, Variable) else None
        if info is None:
            raise errors.InvalidTypeError(
                f"a list under one name must hold the parts of one variable; {name!r} has {part!r}"
            )
        slices.append((part, info))
    wholes = {info.full_name for _, info in slices}
    if len(wholes) > 1:
        raise errors.InvalidArgumentError(
            f"{name!r} has parts of different variables: {', '.join(sorted(map(str, wholes)))}"
        )
    return slices


def _single(name: str, value: Any, spec: str) -> SaveableObject:
    if isinstance(value, ResourceVariable):
        return ResourceVariableSaveable(value.handle, value.dtype, spec, name)
    if isinstance(value, Variable):
        return ReferenceVariableSaveable(value.handle, spec, name)
    if isinstance(value, Output):
        if value.dtype.is_ref:
            return ReferenceVariableSaveable(value, spec, name)
        source = resource_state.handle_source(value)
        if source is not None:
            return ResourceVariableSaveable(value, source.attrs["dtype"], spec, name)
        if value.node.role is Role.READ:
            return ResourceVariableSaveable(value.node.inputs[0], value.dtype, spec, name)
    raise errors.InvalidTypeError(
        f"a variable is required to save as {name!r}, got {format_value(value)}"
    )


# --------------------------------------------------------------------------- restoring


def reshape_restored(
    tensors: Sequence[Output], saveable: SaveableObject
) -> tuple[list[Output], Any]:
    """Reshape the tensors to the shape of the variable; also return that shape."""
    dims = static_dims(saveable)
    if not is_fully_defined(dims):
        dims = None
    if dims is None:
        return list(tensors), None
    return [builder.out("Reshape", [tensors[0], list(dims)])], [dims]


def restore_nodes(
    saveables: Sequence[SaveableObject],
    tensors: Sequence[Output],
    reshape: bool,
    sequentially: bool,
) -> list[Node]:
    """Add the nodes that restore tensors.

    Args:
      tensors: one for each spec, in order.
      reshape: reshape each to the shape of its variable.
      sequentially: restore one after the other.
    """
    graph = tensors[0].graph
    groups: list[tuple[SaveableObject, list[Output], Any]] = []
    position = 0
    for saveable in saveables:
        number = len(saveable.specs)
        group, shapes = list(tensors[position : position + number]), None
        position += number
        if reshape:
            group, shapes = reshape_restored(group, saveable)
        groups.append((saveable, group, shapes))
    # A tensor that cannot be reshaped must stop all assignments, not only its own.
    ready = [output.node for _, group, _ in groups for output in group] if reshape else []
    nodes: list[Node] = []
    for saveable, group, shapes in groups:
        previous = nodes[-1:] if sequentially else []
        with graph.control_dependencies([*ready, *previous]):
            restore = saveable.restore(group, shapes)
        nodes.append(restore.node if isinstance(restore, Output) else restore)
    return nodes
