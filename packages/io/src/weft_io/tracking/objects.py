"""The objects that a checkpoint tracks, and the names of their variables.

Names and the description of the objects are TensorFlow's, so that each system can read the
checkpoints of the other: "encoder/kernel/.ATTRIBUTES/VARIABLE_VALUE".
"""

from __future__ import annotations

__all__ = ["PythonState"]

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from weft_autodiff.optimizers.optimizer import Optimizer
from weft_graph import proto
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Node, Output
from weft_graph.layers.base import Layer
from weft_graph.ops.control import no_op, py_func
from weft_graph.variables.base import Variable
from weft_graph.variables.partitioned import PartitionedVariable
from weft_io.saving.saveables import HasSaveable, SaveableObject, SaveSpec
from weft_tensor import dtypes, errors
from weft_tensor.nesting import format_value

COUNTER: Final = "save_counter"
"""The only variable that a checkpoint may lack, since `Checkpoint.write` and Savers do not count
saves.
"""

_VALUE: Final = "VARIABLE_VALUE"
_STATE: Final = "py_state"
_TABLE: Final = "table"


class PythonState:
    """Python state that object-based checkpoints save in a custom form.

    Subclasses convert it to a string and back.

    Examples:
      >>> class Epoch(wf.train.experimental.PythonState):
      ...     number = 0
      ...
      ...     def serialize(self):
      ...         return str(self.number)
      ...
      ...     def deserialize(self, string_value):
      ...         self.number = int(string_value)
      >>> epoch = Epoch()
      >>> checkpoint = wf.train.Checkpoint(epoch=epoch)
      >>> with wf.Session():
      ...     epoch.number = 3
      ...     prefix = checkpoint.save("./epoch")
      ...     epoch.number = 0
      ...     status = checkpoint.restore(prefix)
      >>> epoch.number
      3
    """

    def serialize(self) -> str | bytes:
        """Return the state as a string."""
        raise NotImplementedError

    def deserialize(self, string_value: Any) -> None:
        """Restore the state from the bytes of a result of `serialize`."""
        raise NotImplementedError


class StringSaveable(SaveableObject):
    """Saves a string, which Python reads during a restore.

    Args:
      make: function that creates the string's output in the current default graph.
    """

    def __init__(self, make: Callable[[], Output], key: str) -> None:
        self.graph = get_default_graph()
        super().__init__(self, [SaveSpec(make, "", key, dtypes.string)], key)

    def restore(self, restored_tensors: Any, restored_shapes: Any) -> Node:
        """Return a node that does nothing."""
        return no_op()


class Composite:
    """Base class of objects whose attributes are tracked.

    Attributes:
      tracked: the tracked objects, by attribute name.
    """

    tracked: dict[str, Any]


def check_trackable(value: Any, name: str) -> None:
    """Check that a checkpoint can track an object.

    Raises: InvalidTypeError: it cannot.
    """
    if not is_trackable(value) and not isinstance(value, list | tuple | Mapping):
        raise errors.InvalidTypeError(
            f"{name} must be a variable, a Checkpoint, an optimizer, a layer, a mutable table, a "
            "PythonState, a saveable object, or a list or dict of these, got "
            f"{format_value(value)}"
        )


def is_trackable(value: Any) -> bool:
    """Return True if a checkpoint can track an object."""
    if isinstance(value, list | tuple):
        return any(is_trackable(item) for item in value)
    if isinstance(value, Mapping):
        return any(is_trackable(item) for item in value.values())
    return isinstance(value, _KINDS)


_LEAVES: Final = (Variable, PartitionedVariable, SaveableObject, HasSaveable, PythonState)
_KINDS: Final = (*_LEAVES, Composite, Optimizer, Layer)


def children_of(value: Any, graph: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that an object refers to, by local names.

    Args:
      graph: selects the variables of an optimizer.
    """
    items: Any = ()
    if isinstance(value, Composite):
        items = value.tracked.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    elif isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, Optimizer):
        items = _non_slots(value, graph)
    elif isinstance(value, Layer):
        items = value._trackable_items()
    for name, child in items:
        if is_trackable(child):
            yield str(name), child


def _non_slots(optimizer: Optimizer, graph: Any) -> list[tuple[str, Any]]:
    variables = optimizer._non_slot_dict
    return [
        (name, v)
        for (name, owner_graph), v in sorted(variables.items(), key=_item_name)
        if graph in (None, owner_graph)
    ]


def _slot(optimizer: Optimizer, variable: Any, name: str) -> Any:
    """Return the slot of a variable, with the same number of parts; None if it does not exist."""
    if isinstance(variable, Variable):
        return optimizer.get_slot(variable, name)
    parts = [optimizer.get_slot(part, name) for part in variable]
    if None in parts:
        return None
    info = parts[0]._get_save_slice_info()
    rank = len(info.full_shape)
    return PartitionedVariable(
        info.full_name,
        info.full_shape,
        parts[0].dtype.base_dtype,
        parts,
        variable._get_partitions()[:rank],
    )


def _item_name(item: Any) -> str:
    name: str = item[0][0]
    return name


def _escape(name: str) -> str:
    return name.replace(".", "..").replace("/", ".S")


class TrackedObject(NamedTuple):
    """An object and its location.

    Attributes:
      value: the object.
      path: local names from the root, joined by "/"; "" for the root.
      children: local name and number of each object that it refers to.
    """

    value: Any
    path: str
    children: list[tuple[str, int]]


class Slot(NamedTuple):
    """A slot variable, with its optimizer and variable as object numbers."""

    optimizer: int
    original: int
    name: str
    variable: int


class ObjectGraph:
    """The objects reachable from a root, in breadth-first order.

    Attributes:
      objects: the objects by number; the root is 0, and slot variables are the last.
      slots: the slot variables.
    """

    def __init__(self, root: Any) -> None:
        self.graph = _graph_of(root)
        self.objects: list[TrackedObject] = []
        self._numbers: dict[int, int] = {}
        self._add(root, "")
        queue = deque([0])
        while queue:
            index = queue.popleft()
            result = self.objects[index]
            for name, child in children_of(result.value, self.graph):
                number = self._numbers.get(id(child))
                if number is None:
                    prefix = f"{result.path}/" if result.path else ""
                    number = self._add(child, prefix + _escape(name))
                    queue.append(number)
                result.children.append((name, number))
        self.slots = list(self._slots())

    def _add(self, value: Any, path: str) -> int:
        number = self._numbers[id(value)] = len(self.objects)
        self.objects.append(TrackedObject(value, path, []))
        return number

    def _slots(self) -> Iterator[Slot]:
        for index, (optimizer, path, _) in enumerate(list(self.objects)):
            if not isinstance(optimizer, Optimizer):
                continue
            for name in optimizer.get_slot_names():
                for original, (variable, node, _) in enumerate(list(self.objects)):
                    if not isinstance(variable, Variable | PartitionedVariable):
                        continue
                    slot = _slot(optimizer, variable, name)
                    if slot is None or id(slot) in self._numbers:
                        continue
                    key = f"{node}/.OPTIMIZER_SLOT/{path}/{_escape(name)}"
                    yield Slot(index, original, name, self._add(slot, key))

    def saved(self) -> dict[str, Any]:
        """Return the objects to save, by names in the checkpoint."""
        result: dict[str, Any] = {}
        for value, path, _ in self.objects:
            if isinstance(value, Variable | PartitionedVariable):
                result[f"{path}/.ATTRIBUTES/{_VALUE}"] = value
            elif isinstance(value, SaveableObject):
                result[value.name] = value
            elif isinstance(value, HasSaveable):
                key = f"{path}/.ATTRIBUTES/{_TABLE}"
                result[key] = value.saveable(key)
            elif isinstance(value, PythonState):
                key = f"{path}/.ATTRIBUTES/{_STATE}"
                result[key] = StringSaveable(partial(_serialize, value), key)
        return result

    def message(self) -> proto.TrackableObjectGraph:
        """Return the message that describes the objects."""
        message = proto.TrackableObjectGraph()
        for value, path, children in self.objects:
            node = message.nodes.add()
            for name, number in children:
                node.children.add(node_id=number, local_name=name)
            for name, full_name, key in _attributes(value, path):
                node.attributes.add(name=name, full_name=full_name, checkpoint_key=key)
        for slot in self.slots:
            message.nodes[slot.optimizer].slot_variables.add(
                original_variable_node_id=slot.original,
                slot_name=slot.name,
                slot_variable_node_id=slot.variable,
            )
        return message


def _serialize(state: PythonState) -> Output:
    output: Output = py_func(state.serialize, [], dtypes.string)
    output.set_shape([])
    return output


def _attributes(value: Any, path: str) -> list[tuple[str, str, str]]:
    if isinstance(value, Variable | PartitionedVariable):
        name = value.name if isinstance(value, PartitionedVariable) else value.op.name
        return [(_VALUE, name, f"{path}/.ATTRIBUTES/{_VALUE}")]
    if isinstance(value, PythonState):
        return [(_STATE, "", f"{path}/.ATTRIBUTES/{_STATE}")]
    if isinstance(value, HasSaveable):
        return [(_TABLE, "", f"{path}/.ATTRIBUTES/{_TABLE}")]
    if isinstance(value, SaveableObject):
        return [(str(i), spec.name, spec.name) for i, spec in enumerate(value.specs)]
    return []


def _graph_of(root: Any) -> Any:
    """Return the graph of the variables reachable from a root; None if there are none."""
    visited = {id(root)}
    queue = deque([root])
    while queue:
        value = queue.popleft()
        if isinstance(value, Variable):
            return value.graph
        if isinstance(value, PartitionedVariable):
            return value.as_tensor().graph
        if isinstance(value, HasSaveable):
            return value.saveable().op.graph
        for _, child in children_of(value, None):
            if id(child) not in visited:
                visited.add(id(child))
                queue.append(child)
    return None
