"""Loops that write an array row by row give its rows stacked; those over known rows become Scan.

A loop of the graph hands an array on and writes one element of it in each turn. In ONNX that is a
sequence, which most runtimes copy in each turn, and some do not have. Where the elements are
written in order, a Loop gives them stacked instead; and where its turns are those of the rows that
it reads, whose number is known, and its state keeps its shapes, it is a Scan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from weft_graph.ir.node import Node
from weft_io.onnx.node_export import Filling, Made, NodeExport, Subgraph, Value
from weft_tensor import dtypes

Number = tuple[Any, int]
"""What is not known, as `_key` gives it, and what is added to it; or None and a known number."""

_OF_SHAPES: Final = frozenset(
    {"Cast", "Gather", "Identity", "Reshape", "Shape", "Slice", "Squeeze"}
)
_DEEP: Final = 8
"""Nodes from a shape to one size of it, at the most."""

_SCAN: Final = 9
"""The first version whose Scan has no batches."""

_FAR: Final = 2**62


@dataclass
class State:
    """A variable of a loop.

    Attributes:
      node: the merge that it is in the graph.
      first: its value before the first turn.
      filling: how an array has been written until then, None of anything else.
      value: it in the body.
      new: what the body gives for it.
      result: it after the last turn.
    """

    node: Node
    first: Value
    filling: Filling | None
    value: Value
    new: Value
    result: Value


@dataclass
class _Array:
    """An array that the turns write in order.

    Attributes:
      state: the variable that it is.
      element: what a turn writes.
      step: 1 for rows from the first one on, -1 from the last one.
      full: whether all rows are written when the loop ends.
    """

    state: State
    element: Value
    step: int
    full: bool


class Stacking:
    """A loop whose body has been written.

    Args:
      name: of the loop.
      goes_on: whether there is a first turn.
      body: its inputs are the turn, whether it goes on, and the state; its results the latter two.
      states: its variables.
      opset: the version of the ONNX ops that are written.
    """

    def __init__(
        self, name: str, goes_on: Value, body: Subgraph, states: Sequence[State], opset: int
    ) -> None:
        self._name, self._goes_on, self._body, self._opset = name, goes_on, body, opset
        self._states = states
        self._uses = Counter(_used(body))
        self._steps = {each.value: step for each in states if (step := _step(each))}
        self._firsts = {each.value: each.first for each in states}
        self._turns = self._bound()
        self._arrays = [found for each in states if (found := self._array(each)) is not None]
        self._inside = {value for made in body.nodes for value in made.outputs} | {*body.inputs}

    def add(self, export: NodeExport) -> None:
        """Add the loop, and give its variables their results."""
        arrays = [each.state for each in self._arrays]
        kept = [each for each in self._states if each not in arrays]
        rows = self._rows(kept)
        stacks = [Value(each.element.dtype) for each in self._arrays]
        with export.into(self._body):
            elements = [export.add("Identity", each.element) for each in self._arrays]
        for array, element in zip(self._arrays, elements, strict=True):
            element.dims = array.state.filling.dims if array.state.filling else None
        results = [*(each.result for each in kept), *stacks]
        first, new = [each.first for each in kept], [each.new for each in kept]
        body, values = self._body, [each.value for each in kept]
        if rows:
            taken = [self._taken(export, each) for each in rows]
            body.nodes = [each for each in body.nodes if each not in rows]
            body.inputs = [*values, *(each.outputs[0] for each in rows)]
            body.outputs = [*new, *elements]
            for state in kept:  # which ONNX Runtime must know
                state.new.dims = state.node.outputs[0].dims
            attributes: dict[str, Any] = {"body": body, "num_scan_inputs": len(rows)}
            if self._backwards():
                attributes["scan_input_directions"] = [1] * len(rows)
                # Arrays of another counter may be written from the first row on all the same.
                attributes["scan_output_directions"] = [int(a.step < 0) for a in self._arrays]
            export.append(Made("Scan", [*first, *taken], results, attributes, self._name))
        else:
            body.inputs = [*body.inputs[:2], *values]
            body.outputs = [body.outputs[0], *new, *elements]
            inputs = [None, self._goes_on, *first]
            export.append(Made("Loop", inputs, results, {"body": body}, self._name))
        for each, stack in zip(self._arrays, stacks, strict=True):
            each.state.result.rows = self._whole(export, each, stack, not rows)

    # --------------------------------------------------------------------------- arrays

    def _array(self, state: State) -> _Array | None:
        """What a turn writes to an array, None where that is no plain sequence of rows."""
        filling = state.filling
        write = _plain(state.new).made
        if filling is None or write is None:
            return None
        if filling.count is not None:  # what had been there is taken out
            if write.op != "SequenceErase" or self._uses[write.outputs[0]] != 1:
                return None
            assert write.inputs[0] is not None
            write = write.inputs[0].made
        if write is None or write.op != "SequenceInsert" or write.inputs[0] is not state.value:
            return None
        if self._uses[state.value] != 1 or self._uses[write.outputs[0]] != 1:
            return None
        element, (counter, offset) = write.inputs[1], _number(write.inputs[2])
        step = 0 if counter is None or offset else self._steps.get(counter, 0)
        if element is None or not step or not self._begins(filling, counter, step):
            return None
        full = filling.count is None or self._turns == (counter, *self._end(filling, step))
        return _Array(state, element, step, full) if full or step == 1 else None

    def _begins(self, filling: Filling, counter: Value, step: int) -> bool:
        """Whether the first turn writes the row after those that are written."""
        places = [_number(index) for index, _ in filling.writes]
        places.append(_number(self._firsts[counter]))
        if step == 1:
            return places == [(None, at) for at in range(len(places))]
        if step != -1 or filling.count is None:
            return False
        base, count = _number(filling.count)
        return places == [(base, count - 1 - at) for at in range(len(places))]

    def _end(self, filling: Filling, step: int) -> Number:
        """The counter with which a loop over all rows ends."""
        return _number(filling.count) if step == 1 else (None, 0)

    def _bound(self) -> tuple[Value, Any, int] | None:
        """The counter that alone decides how long the loop goes on, and its end.

        Upwards that is the first one that is too large, downwards the last one.
        """
        test = _plain(self._body.outputs[0]).made
        if test is None or test.op not in ("Less", "GreaterOrEqual"):
            return None
        (counter, moved), end = _number(test.inputs[0]), _number(test.inputs[1])
        step = 1 if test.op == "Less" else -1
        if counter is None or self._steps.get(counter) != step or moved != step:
            return None
        return (counter, *end)

    def _whole(self, export: NodeExport, array: _Array, stack: Value, is_loop: bool) -> Value:
        """All rows of an array, of which the loop gave some."""
        filling = array.state.filling
        assert filling is not None
        before = [export.add("Unsqueeze", each, export.ints([0])) for _, each in filling.writes]
        if array.step == -1:
            if is_loop:
                bounds = (export.ints([each]) for each in (-1, -_FAR, 0, -1))
                stack = export.add("Slice", stack, *bounds)
            parts = [stack, *reversed(before)]
        else:
            parts = [*before, stack]
        if not array.full:
            parts.append(self._rest(export, filling, stack))
        return parts[0] if len(parts) == 1 else export.add("Concat", *parts, axis=0)

    def _rest(self, export: NodeExport, filling: Filling, stack: Value) -> Value:
        """Zeros for the rows of an array that the loop may not have written."""
        assert filling.count is not None
        sizes = export.add("Shape", stack, dtype=dtypes.int64)
        if filling.dims is None:
            inner = export.add("Slice", sizes, export.ints([1]), export.ints([_FAR]))
        else:  # ONNX's inference of shapes takes a slice behind a Loop for one of all sizes
            places = export.ints(range(1, 1 + len(filling.dims)))
            inner = export.add("Gather", sizes, places, axis=0)
        there = export.add("Slice", sizes, export.ints([0]), export.ints([1]))
        there = export.add("Add", there, export.ints([len(filling.writes)]))
        missing = export.add("Sub", export.vector(filling.count), there)
        return export.filled(0, export.add("Concat", missing, inner, axis=0), stack.dtype)

    # ----------------------------------------------------------------------------- Scan

    def _backwards(self) -> bool:
        return self._turns is not None and self._steps[self._turns[0]] == -1

    def _rows(self, kept: Sequence[State]) -> list[Made]:
        """The nodes that read the row of each turn, none if this cannot be a Scan."""
        shapes = [each.node.outputs[0].dims for each in kept]
        if self._turns is None or self._opset < _SCAN or any(each.value.sequence for each in kept):
            return []
        if any(dims is None or None in dims for dims in shapes):
            return []  # a state of a Scan keeps its shape
        return [made for made in self._body.nodes if self._is_row(made)]

    def _is_row(self, made: Made) -> bool:
        """Whether a node reads, turn by turn, as many rows as there are turns.

        They must be known to be one at least: ONNX Runtime has no Scan over nothing.
        """
        assert self._turns is not None
        counter, base, end = self._turns
        if made.op != "Gather" or made.attributes.get("axis", 0) or len(made.inputs) != 2:
            return False
        rows, first = made.inputs[0], _number(self._firsts[counter])
        if rows is None or rows in self._inside or rows.array is not None:
            return False
        if _number(made.inputs[1]) != (counter, 0):
            return False
        if base is not None or first[0] is not None or not rows.dims:
            return False
        count = rows.dims[0]
        if self._backwards():  # from the last row, or one before it, to the first one
            return count is not None and end == 0 <= first[1] < count
        return count == end and 0 <= first[1] < end

    def _taken(self, export: NodeExport, made: Made) -> Value:
        """The rows that the turns read, of all that there are."""
        assert self._turns is not None and made.inputs[0] is not None
        rows, (_, at) = made.inputs[0], _number(self._firsts[self._turns[0]])
        assert rows.dims and rows.dims[0] is not None
        low, high = (0, at + 1) if self._backwards() else (at, rows.dims[0])
        if (low, high) == (0, rows.dims[0]):
            return rows
        return export.add("Slice", rows, *(export.ints([each]) for each in (low, high, 0)))


# ------------------------------------------------------------------------------- numbers


def _used(graph: Subgraph) -> Iterator[Value]:
    """What nodes take, and the graphs in them give."""
    for made in graph.nodes:
        yield from (each for each in made.inputs if each is not None)
        for inner in made.subgraphs():
            yield from _used(inner)
            yield from inner.outputs


def _plain(value: Value) -> Value:
    """What a value is a copy of."""
    while value.made is not None and value.made.op == "Identity":
        (source,) = value.made.inputs
        assert source is not None
        value = source
    return value


def _number(value: Value | None) -> Number:
    """A single integer as what it is counted from."""
    total = 0
    while value is not None and value.array is None and (made := value.made) is not None:
        first = made.inputs[0] if made.inputs else None
        second = made.inputs[1] if len(made.inputs) > 1 else None
        known = None if second is None else _known(second)
        if made.op in ("Add", "Sub") and known is not None:
            total += known if made.op == "Add" else -known
        elif made.op not in ("Identity", "Reshape", "Cast") or not _is_integer(first):
            break
        value = first
    known = None if value is None else _known(value)
    return (_key(value), total) if known is None else (None, total + known)


def _key(value: Value | None, depth: int = _DEEP) -> Any:
    """What is equal for sizes that are computed in the same way, else the value itself."""
    made = None if value is None else value.made
    if value is not None and value.array is not None:
        return value.dtype.name, value.array.shape, value.array.tobytes()
    if made is None or made.op not in _OF_SHAPES or not depth:
        return value
    attributes = tuple((name, repr(each)) for name, each in sorted(made.attributes.items()))
    return made.op, attributes, *(_key(each, depth - 1) for each in made.inputs)


def _is_integer(value: Value | None) -> bool:
    return value is not None and value.dtype.is_integer


def _known(value: Value) -> int | None:
    """A single integer that is known."""
    found = value.array
    return (
        int(found.item()) if found is not None and found.size == 1 and _is_integer(value) else None
    )


def _step(state: State) -> int:
    """1 or -1 for a counter, else 0."""
    base, moved = _number(state.new)
    return moved if base is state.value and moved in (1, -1) else 0
