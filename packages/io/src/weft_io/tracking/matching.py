"""Matching of a program's objects with a checkpoint's."""

from __future__ import annotations

from typing import Any

from weft_graph import proto
from weft_graph.variables.base import Variable
from weft_graph.variables.partitioned import PartitionedVariable
from weft_io.saving.saveables import HasSaveable, SaveableObject
from weft_io.tracking.objects import COUNTER, ObjectGraph, PythonState
from weft_tensor import errors


class Matches:
    """Objects of a program matched to objects of a checkpoint, by local names from the root.

    Attributes:
      values: objects to restore, by names in the checkpoint.
      states: Python states to restore, by names in the checkpoint.
      unused: paths in the checkpoint that the program lacks.
      missing: names of the variables and states that the checkpoint lacks.
      lacking: the variables among them.
    """

    def __init__(self, root: Any, message: proto.TrackableObjectGraph) -> None:
        self._message = message
        self._objects = ObjectGraph(root)
        self._numbers: dict[int, int] = {0: 0}  # ours to the checkpoint's
        self.values: dict[str, Any] = {}
        self.states: dict[str, PythonState] = {}
        self._pair()
        self._pair_slots()
        for key, other in self._numbers.items():
            self._take(key, message.nodes[other])
        self.unused = self._unused_paths()
        self.lacking = [
            result.value
            for number, result in enumerate(self._objects.objects)
            if isinstance(result.value, Variable | PartitionedVariable)
            and not self._has_values(number)
        ]
        self.missing = [
            result.path or "(root)"
            for number, result in enumerate(self._objects.objects)
            if isinstance(result.value, Variable | PartitionedVariable | PythonState)
            and not self._has_values(number)
            and result.path != COUNTER
        ]

    @property
    def trivial(self) -> bool:
        """True if only the root matches."""
        return len(self._numbers) == 1

    def _pair(self) -> None:
        stack = [0]
        while stack:
            number = stack.pop()
            names = {c.local_name: c.node_id for c in self._node(self._numbers[number]).children}
            for name, child in self._objects.objects[number].children:
                if name in names and child not in self._numbers:
                    self._numbers[child] = names[name]
                    stack.append(child)

    def _pair_slots(self) -> None:
        for slot in self._objects.slots:
            optimizer, original = map(self._numbers.get, (slot.optimizer, slot.original))
            if optimizer is None or original is None:
                continue
            for slot_variable in self._node(optimizer).slot_variables:
                if (slot_variable.original_variable_node_id, slot_variable.slot_name) == (
                    original,
                    slot.name,
                ):
                    self._numbers[slot.variable] = slot_variable.slot_variable_node_id

    def _node(self, number: int) -> Any:
        try:
            return self._message.nodes[number]
        except IndexError:
            raise errors.DataLossError(
                f"the checkpoint's objects are damaged: there is no object {number}"
            ) from None

    def _has_values(self, number: int) -> bool:
        matched_number = self._numbers.get(number)
        return matched_number is not None and bool(self._node(matched_number).attributes)

    def _take(self, number: int, node: Any) -> None:
        value = self._objects.objects[number].value
        for attribute in node.attributes:
            if isinstance(value, PythonState):
                self.states[attribute.checkpoint_key] = value
            elif isinstance(value, SaveableObject):
                self.values[value.name] = value
            elif isinstance(value, HasSaveable):
                self.values[attribute.checkpoint_key] = value.saveable(attribute.checkpoint_key)
            elif isinstance(value, Variable | PartitionedVariable):
                self.values[attribute.checkpoint_key] = value

    def _unused_paths(self) -> list[str]:
        values = set(self._numbers.values())
        paths = {0: "(root)"}
        stack = [0]
        while stack:
            index = stack.pop()
            for child in self._node(index).children:
                if child.node_id not in paths:
                    paths[child.node_id] = f"{paths[index]}.{child.local_name}"
                    stack.append(child.node_id)
        for index in list(paths):
            for slot in self._node(index).slot_variables:
                original = paths.get(slot.original_variable_node_id, "?")
                name = f"{paths[index]}'s slot {slot.slot_name} of {original}"
                paths.setdefault(slot.slot_variable_node_id, name)
        return [path for number, path in sorted(paths.items()) if number not in values]
