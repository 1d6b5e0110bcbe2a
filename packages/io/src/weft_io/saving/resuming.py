"""State besides variables that a checkpoint needs to resume training exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft_graph.functions.state import uses_rng
from weft_graph.ir.builder import create, out
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.device_spec import DeviceSpec
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_io.ops.dataset import is_serialized, iterators_of
from weft_io.saving.saveables import SaveableObject, SaveSpec
from weft_tensor import dtypes


class _IteratorSaveable(SaveableObject):
    def __init__(self, resource: Output, optional: bool) -> None:
        name = resource.op.name
        self.optional_restore = optional
        spec = SaveSpec(self._state, "", name, dtypes.string, resource.device)
        self._resource = resource
        super().__init__(resource, [spec], name)

    def _state(self) -> Output:
        with self._resource.graph.colocate_with(self._resource.node):
            return out("IteratorSerializeState", [self._resource])

    def restore(self, restored_tensors: Sequence[Output], restored_shapes: Any) -> Node:
        """Return the node that restores the state."""
        with self._resource.graph.colocate_with(self._resource.node):
            return create("IteratorRestoreState", [self._resource, restored_tensors[0]])


class _StreamSaveable(SaveableObject):
    """Saves the position of a random op in its random stream."""

    optional_restore = True

    def __init__(self, node: Node) -> None:
        name = f"_random/{node.name}"
        # Streams are a task's, whichever of its devices draws.
        task = DeviceSpec(*DeviceSpec.from_string(node.device).parts[:3])
        self._host_device = task.replace(device_type="CPU", device_index=0).to_string()
        self._stream = node.name
        spec = SaveSpec(self._state, "", name, dtypes.string, self._host_device)
        super().__init__(node, [spec], name)

    def _state(self) -> Output:
        with self.op.graph.device(self._host_device):
            return out("RandomStreamState", [], {"stream": self._stream})

    def restore(self, restored_tensors: Sequence[Output], restored_shapes: Any) -> Node:
        """Return the node that restores the position."""
        with self.op.graph.device(self._host_device):
            return create("RestoreRandomStream", [restored_tensors[0]], {"stream": self._stream})


def state_of_run(graph: Graph) -> list[SaveableObject]:
    """Return the positions of a graph's random ops and iterators, as saveable objects.

    Random ops used only by initializers, and iterators that are already saved, are left out.
    """
    iterators = [
        saveable_of(handle, optional=True)
        for handle in iterators_of(graph)
        if not is_serialized(handle)
    ]
    return [*map(_StreamSaveable, _rng_nodes(graph)), *iterators]


def _rng_nodes(graph: Graph) -> Iterator[Node]:
    initial = _before_initializers(graph)
    for node in graph.nodes:
        if uses_rng(node) and (
            node not in initial
            or any(user not in initial for output in node.outputs for user in output.consumers())
        ):
            yield node


def _before_initializers(graph: Graph) -> set[Node]:
    """Return the nodes that the initializers of variables depend on."""
    nodes: set[Node] = set()
    pending: list[Node] = [
        variable.initializer
        for key in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.LOCAL_VARIABLES)
        for variable in graph.get_collection(key)
    ]
    while pending:
        node = pending.pop()
        if node not in nodes:
            nodes.add(node)
            pending += [source.node for source in node.inputs]
            pending += node.controls
    return nodes


def saveable_of(resource: Output, optional: bool = False) -> SaveableObject:
    """Return the saveable object for the iterator of a handle.

    Args:
      optional: True if a checkpoint may lack it; the iterator then starts at the beginning.
    """
    return _IteratorSaveable(resource, optional)
