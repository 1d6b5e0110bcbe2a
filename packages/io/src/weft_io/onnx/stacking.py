"""Export of loops that write arrays row by row as stacked results, or as Scan.

In the graph, an array is a loop variable, and each iteration writes one element. The direct ONNX
equivalent is a sequence, which most runtimes copy in each iteration, and some do not support. If
the elements are written in order, a Loop returns them stacked instead. If it also iterates over the
rows that it reads, and its state keeps its shapes, it becomes a Scan. Runtimes do not support a
Scan over no rows, so if the number of rows is unknown, the Scan is in a branch of an If.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from weft_graph.ir.node import Node
from weft_io.onnx.export_graph import ExportedNode, Filling, Subgraph, Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.symbolic_integers import Number, number, size
from weft_tensor import dtypes

Dims = Sequence[int | None] | None

_SCAN: Final = 9
"""The first version in which Scan has no batch axis."""

_FAR: Final = 2**62


@dataclass
class State:
    """A variable of a loop.

    Attributes:
      node: its Merge in the graph.
      first: its initial value.
      filling: the initial writes of an array; None for other variables.
      value: its value in the body.
      new: its next value, computed by the body.
      result: its final value.
    """

    node: Node
    first: Value
    filling: Filling | None
    value: Value
    new: Value
    result: Value


@dataclass
class _Array:
    """An array whose elements are written in order, one per iteration.

    Attributes:
      state: its loop variable.
      element: the element that an iteration writes.
      step: 1 for rows from the first one on, -1 from the last one.
      full: True if all rows are written when the loop ends.
      dims: the shape of its elements.
    """

    state: State
    element: Value
    step: int
    full: bool
    dims: Dims


class Stacking:
    """A loop whose body has been exported.

    Args:
      name: name of the loop.
      goes_on: value that is true if there is a first iteration.
      body: graph from the iteration number, the condition and the state to the next condition and
        state.
      states: the loop variables.
      opset: the version of the ONNX ops to write.
    """

    def __init__(
        self, name: str, goes_on: Value, body: Subgraph, states: Sequence[State], opset: int
    ) -> None:
        self._name, self._goes_on, self._body, self._opset = name, goes_on, body, opset
        self._states = states
        self._uses = Counter(_used(body))
        self._steps = {item.value: step for item in states if (step := _step(item))}
        self._firsts = {item.value: item.first for item in states}
        self._range_end = self._bound()
        self._arrays = [result for item in states if (result := self._array(item)) is not None]
        self._body_values = {value for node in body.nodes for value in node.outputs} | {
            *body.inputs
        }

    def add(self, export: NodeExport) -> None:
        """Add the loop, and set the final values of its variables."""
        arrays = [item.state for item in self._arrays]
        carried = [item for item in self._states if item not in arrays]
        rows = self._rows(carried)
        stacks = [Value(item.element.dtype) for item in self._arrays]
        with export.in_subgraph(self._body):
            elements = [export.add("Identity", item.element) for item in self._arrays]
        for array, element in zip(self._arrays, elements, strict=True):
            element.dims = array.dims
        results = [*(item.result for item in carried), *stacks]
        body, values = self._body, [item.value for item in carried]
        new = [*(item.new for item in carried), *elements]
        if rows:
            body.nodes = [item for item in body.nodes if item not in rows]
            body.inputs, body.outputs = [*values, *(item.outputs[0] for item in rows)], new
            self._add_scan(export, carried, rows, results)
        else:
            body.inputs, body.outputs = [*body.inputs[:2], *values], [body.outputs[0], *new]
            inputs = [None, self._goes_on, *(item.first for item in carried)]
            export.append(ExportedNode("Loop", inputs, results, {"body": body}, self._name))
        for item, stack in zip(self._arrays, stacks, strict=True):
            item.state.result.rows = self._all_rows(export, item, stack, not rows)

    # --------------------------------------------------------------------------- arrays

    def _array(self, state: State) -> _Array | None:
        """Return the array that a loop variable is; None if its rows are not written in order."""
        filling = state.filling
        write = _skip_copies(state.new).producer
        if filling is None or write is None:
            return None
        if filling.count is not None:  # the previous element is removed first
            if write.op != "SequenceErase" or self._uses[write.outputs[0]] != 1:
                return None
            assert write.inputs[0] is not None
            write = write.inputs[0].producer
        if write is None or write.op != "SequenceInsert" or write.inputs[0] is not state.value:
            return None
        if self._uses[state.value] != 1 or self._uses[write.outputs[0]] != 1:
            return None
        element, (counter, offset) = write.inputs[1], number(write.inputs[2])
        step = 0 if counter is None or offset else self._steps.get(counter, 0)
        if element is None or not step or not self._begins(filling, counter, step):
            return None
        full = filling.count is None or self._range_end == (counter, *self._end(filling, step))
        if not full and step != 1:
            return None
        return _Array(
            state, element, step, full, _merge_known_dims(filling.dims, _skip_copies(element).dims)
        )

    def _begins(self, filling: Filling, counter: Value, step: int) -> bool:
        """Return True if the first iteration writes the row after those already written."""
        indices = [number(index) for index, _ in filling.writes]
        indices.append(number(self._firsts[counter]))
        if step == 1:
            return indices == [(None, i) for i in range(len(indices))]
        if step != -1 or filling.count is None:
            return False
        base, count = number(filling.count)
        return indices == [(base, count - 1 - i) for i in range(len(indices))]

    def _end(self, filling: Filling, step: int) -> Number:
        """Return the final counter of a loop over all rows."""
        return number(filling.count) if step == 1 else (None, 0)

    def _bound(self) -> tuple[Value, Any, int] | None:
        """Return the counter that alone determines the trip count, and its end.

        For an ascending counter, the end is the first value that is too large; for a descending
        one, the last value.
        """
        test = _skip_copies(self._body.outputs[0]).producer
        if test is None or test.op not in ("Less", "GreaterOrEqual"):
            return None
        (counter, moved), end = number(test.inputs[0]), number(test.inputs[1])
        step = 1 if test.op == "Less" else -1
        if counter is None or self._steps.get(counter) != step or moved != step:
            return None
        return (counter, *end)

    def _all_rows(self, export: NodeExport, array: _Array, stack: Value, is_loop: bool) -> Value:
        """Return all rows of an array, although the loop computed only a part of them."""
        filling = array.state.filling
        assert filling is not None
        first_rows = [export.add("Unsqueeze", item, export.ints([0])) for _, item in filling.writes]
        if array.step == -1:
            if is_loop:
                bounds = (export.ints([item]) for item in (-1, -_FAR, 0, -1))
                stack = export.add("Slice", stack, *bounds)
            parts = [stack, *reversed(first_rows)]
        else:
            parts = [*first_rows, stack]
        if not array.full:
            parts.append(self._zeros_for_unwritten(export, filling, stack))
        return parts[0] if len(parts) == 1 else export.add("Concat", *parts, axis=0)

    def _zeros_for_unwritten(self, export: NodeExport, filling: Filling, stack: Value) -> Value:
        """Return zeros for the rows of an array that the loop does not write."""
        assert filling.count is not None
        sizes = export.add("Shape", stack, dtype=dtypes.int64)
        if filling.dims is None:
            inner = export.add("Slice", sizes, export.ints([1]), export.ints([_FAR]))
        else:  # ONNX's shape inference assumes all sizes for a slice after a Loop
            indices = export.ints(range(1, 1 + len(filling.dims)))
            inner = export.add("Gather", sizes, indices, axis=0)
        first_size = export.add("Slice", sizes, export.ints([0]), export.ints([1]))
        first_size = export.add("Add", first_size, export.ints([len(filling.writes)]))
        missing = export.add("Sub", export.vector(filling.count), first_size)
        return export.filled(0, export.add("Concat", missing, inner, axis=0), stack.dtype)

    # ----------------------------------------------------------------------------- Scan

    def _add_scan(
        self,
        export: NodeExport,
        carried: Sequence[State],
        rows: Sequence[ExportedNode],
        results: list[Value],
    ) -> None:
        """Add a Scan; if it may have no rows, in a branch of an If."""
        for state in carried:  # which ONNX Runtime must know
            state.new.dims = state.node.outputs[0].dims
        attributes: dict[str, Any] = {"body": self._body, "num_scan_inputs": len(rows)}
        if self._backwards():
            attributes["scan_input_directions"] = [1] * len(rows)
            # Arrays of another counter may be written from the first row on all the same.
            attributes["scan_output_directions"] = [int(a.step < 0) for a in self._arrays]
        first = [item.first for item in carried]
        if self._has_iterations():
            read_rows = [self._take_rows_of(export, item) for item in rows]
            export.append(
                ExportedNode("Scan", [*first, *read_rows], results, attributes, self._name)
            )
            return
        nonempty, none = Subgraph("then"), Subgraph("else")
        with export.in_subgraph(nonempty):
            read_rows = [self._take_rows_of(export, item) for item in rows]
            nonempty.outputs = [Value(item.dtype) for item in results]
            export.append(
                ExportedNode("Scan", [*first, *read_rows], nonempty.outputs, attributes, self._name)
            )
        with export.in_subgraph(none):
            copies = [export.add("Identity", item) for item in first]
            none.outputs = [*copies, *(self._empty_array(export, item) for item in self._arrays)]
        branches = {"then_branch": nonempty, "else_branch": none}
        export.append(ExportedNode("If", [self._goes_on], results, branches, self._name))

    def _empty_array(self, export: NodeExport, array: _Array) -> Value:
        """Return an array without rows; the shape of its elements must be known."""
        assert array.dims is not None
        sizes = export.ints([0, *array.dims])
        return export.filled(0, sizes, array.element.dtype)

    def _backwards(self) -> bool:
        return self._range_end is not None and self._steps[self._range_end[0]] == -1

    def _range(self) -> tuple[Number, Number]:
        """Return the lowest counter of an iteration, and the highest plus 1."""
        assert self._range_end is not None
        counter, *end = self._range_end
        (base, first), (last_base, last) = number(self._firsts[counter]), end
        return (
            ((last_base, last), (base, first + 1))
            if self._backwards()
            else ((base, first), (last_base, last))
        )

    def _has_iterations(self) -> bool:
        """Return True if the trip count is known to be at least 1, as Scan requires."""
        (base, first), (last_base, last) = self._range()
        return base is None and last_base is None and first < last

    def _rows(self, carried: Sequence[State]) -> list[ExportedNode]:
        """Return the nodes that read one row per iteration; empty if the loop cannot be a Scan."""
        if (
            self._range_end is None
            or self._opset < _SCAN
            or any(item.value.sequence for item in carried)
        ):
            return []
        shapes: list[Dims] = [
            item.node.outputs[0].dims for item in carried
        ]  # a state of a Scan keeps its shape
        (base, first), (last_base, last) = self._range()
        if base is not None or first < 0 or (last_base is None and first >= last):
            return []
        if not self._has_iterations():  # another node must define the shape of an empty result
            shapes += [item.dims for item in self._arrays]
        if any(dims is None or None in dims for dims in shapes):
            return []
        return [node for node in self._body.nodes if self._is_row(node)]

    def _is_row(self, node: ExportedNode) -> bool:
        """Return True if a node reads the iteration's row of a tensor that has all rows."""
        assert self._range_end is not None
        if node.op != "Gather" or node.attributes.get("axis", 0) or len(node.inputs) != 2:
            return False
        rows = node.inputs[0]
        if rows is None or rows in self._body_values:
            return False
        if number(node.inputs[1]) != (self._range_end[0], 0):
            return False
        (base, count), (last_base, last) = size(rows, 0), self._range()[1]
        return base == last_base and last <= count

    def _take_rows_of(self, export: NodeExport, node: ExportedNode) -> Value:
        """Return the rows that the iterations read."""
        rows, ((_, first), last) = node.inputs[0], self._range()
        assert rows is not None
        is_complete = last == size(rows, 0)
        if is_complete and first == 0:
            return rows
        # A bound below a computed size is counted from the end.
        bounds = (first, _FAR if is_complete else last[1], 0)
        return export.add("Slice", rows, *(export.ints([item]) for item in bounds))


def _used(graph: Subgraph) -> Iterator[Value]:
    """Yield the inputs of nodes, and the outputs of their subgraphs."""
    for node in graph.nodes:
        yield from (item for item in node.inputs if item is not None)
        for inner in node.subgraphs():
            yield from _used(inner)
            yield from inner.outputs


def _skip_copies(value: Value) -> Value:
    """Return the original of a value that is a copy."""
    while value.producer is not None and value.producer.op == "Identity":
        (source,) = value.producer.inputs
        assert source is not None
        value = source
    return value


def _merge_known_dims(dims: Dims, other_dims: Dims) -> Dims:
    """Merge two partially known shapes of a value."""
    if dims is None or other_dims is None or len(dims) != len(other_dims):
        return other_dims if dims is None else dims
    return [b if a is None else a for a, b in zip(dims, other_dims, strict=True)]


def _step(state: State) -> int:
    """Return 1 or -1 for a counter, otherwise 0."""
    base, moved = number(state.new)
    return moved if base is state.value and moved in (1, -1) else 0
