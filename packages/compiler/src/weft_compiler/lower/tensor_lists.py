"""TensorArrays and stacks in loops: a buffer of elements, with marks or a count."""

from __future__ import annotations

from collections.abc import Sequence

from weft_compiler.ir.expressions import (
    INDEX,
    Expr,
    Load,
    Variable,
    apply,
    cast,
    index,
    number,
    where,
)
from weft_compiler.ir.indices import clamp_index, is_inside, minus, plus
from weft_compiler.ir.program import Check, Let, Store
from weft_compiler.lower.iteration import Effect, Emitter, LoopBody, Path
from weft_compiler.lower.registry import require
from weft_compiler.lower.values import Requirement, Value, compute_value, move_elements
from weft_graph.ir.node import Node
from weft_graph.passes.whole_loops import Extent, LoopStorage, Use
from weft_tensor import dtypes

_MARK = dtypes.uint8
_READABLE, _READ = 1, 2


class TensorListLowering:
    """The lowering of a TensorArray or a stack to buffers of a program.

    Attributes:
      storage: the operations on the TensorArray or stack.
      extent: its size and element shape.
      inputs, outputs: its inputs and outputs of the program, other than loop variables.
      copies: outputs that are initialized from an input, or with zeros.
    """

    def __init__(self, storage: LoopStorage, extent: Extent) -> None:
        self.storage = storage
        self.extent = extent
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.copies: list[tuple[Value, Value | None]] = []
        self._data: Value | None = None
        self._state: Value | None = None
        self._last: Value | None = None
        self._levels = {node: level for level, node in enumerate(storage.nodes)}
        self._counts: list[Value] = []
        self._ends: list[Value] = []
        self._spans: list[tuple[Value, Value]] = []
        node = storage.nodes[-1]
        size = extent.shape[0]
        name = node.name
        if storage.use in (Use.PUSH, Use.POP):
            self._begin_stack(name)
        elif storage.use is Use.READ:
            self._data = Value(name, node.outputs[0].dtype, extent.shape)
            marks = Value(f"{name}_there", _MARK, (size,))
            self.inputs = [self._data, marks]
            self._state = Value(f"{name}_marks", _MARK, (size,))
            self.outputs = [self._state]
            self.copies = [(self._state, marks)]
        else:
            value = Value(f"{name}_taken", _MARK, (size,)) if extent.begun else None
            self.inputs = [] if value is None else [value]
            self._state = Value(f"{name}_marks", _MARK, (size,))
            self.copies = [(self._state, value)]
            if extent.grows:
                self._last = Value(f"{name}_last", INDEX, ())
                self.copies.append((self._last, None))

    def _begin_stack(self, name: str) -> None:
        """Declare the memory of a stack: counts of handles and values, and ends of inner stacks."""
        storage, extent = self.storage, self.extent
        self._counts = [Value(f"{name}_count", INDEX, ()) for _ in storage.nodes]
        self._ends = [Value(f"{name}_ends", INDEX, (size,)) for size in extent.above]
        if storage.use is Use.PUSH:
            self.copies = [(count, None) for count in self._counts]
            return
        self._data = Value(name, storage.nodes[-1].outputs[0].dtype, extent.shape)
        self.inputs = [self._data, Value(f"{name}_given", INDEX, ()), *self._ends]
        self._spans = [(self.inputs[1], self.inputs[1])]  # the first begins at 0

    def require_known(self) -> None:
        """Raise if the element shape is unknown because no element is ever written.

        Raises: Unsupported: nothing is written.
        """
        require(self._data is not None, f"{self.storage.nodes[0].name} has no known element shape")

    def done(
        self, node: Node, operands: Sequence[Value], path: Path, loop_body: LoopBody
    ) -> Sequence[Value]:
        """Lower an operation.

        Return its values, with the node's result first, and add its side effects.

        Args:
          operands: its inputs without the handle.
        """
        use = self.storage.use
        if use is Use.READ:
            return [self._read(node, operands[0], path, loop_body)]
        if use is Use.WRITE:
            self._write(node, operands[0], operands[1], path, loop_body)
            return [operands[2]]
        require(loop_body.test is not None, f"{node.name} is in the condition of a loop")
        level = self._levels[node]
        if use is Use.POP:
            return self._pop(node, level, path, loop_body)
        if level < len(self._ends):
            self._push_handle(level, path, loop_body)
            return []
        self._push(node, operands[0], path, loop_body)
        return [operands[0]]

    def _memory(self, name: str, element: Value) -> Value:
        """Declare the buffer of the elements."""
        if self._data is None:
            self._data = Value(name, element.dtype, (self.extent.shape[0], *element.shape))
            if self.storage.use is Use.PUSH:
                outer_counts = [
                    v for pair in zip(self._ends, self._counts, strict=False) for v in pair
                ]
                self.outputs = [self._data, self._counts[-1], *outer_counts]
            else:
                assert self._state is not None
                self.outputs = [self._data, self._state, *([self._last] if self._last else [])]
        require(
            self._data.shape[1:] == element.shape,
            f"{name} has elements of shapes {self._data.shape[1:]} and {element.shape}",
        )
        return self._data

    def _read(self, node: Node, position: Value, path: Path, loop_body: LoopBody) -> Value:
        data, marks, size = self._data, self._state, self.extent.shape[0]
        assert data is not None and marks is not None
        require(
            position.shape == () and size > 0,
            f"{node.name} reads an empty TensorArray, or at a non-scalar index",
        )

        def place() -> Expr:
            return clamp_index(cast(position.at(), INDEX), size)

        result = move_elements(node.name, data, data.shape[1:], lambda *i: (place(), *i))

        def is_there() -> Expr:
            readable = number(_READABLE, _MARK)
            is_written = apply("equal", marks.at(place()), readable)
            if not self.extent.clear:
                is_written = apply("not_equal", marks.at(place()), number(0, _MARK))
            return apply("bit_and", is_inside(cast(position.at(), INDEX), size), is_written)

        result.requires = (Requirement((), is_there, "an element that can be read was required"),)

        def write(out: Emitter) -> None:
            def mark() -> None:
                out.emit(
                    Store(
                        out.name_of(marks), (out.resolve_expression(place()),), number(_READ, _MARK)
                    )
                )

            out.nest((), mark)

        loop_body.add_effect(Effect([position], path, write))
        return result

    def _write(
        self, node: Node, position: Value, value: Value, path: Path, loop_body: LoopBody
    ) -> None:
        data, marks, size = self._memory(node.name, value), self._state, self.extent.shape[0]
        assert marks is not None
        require(
            position.shape == () and size > 0,
            f"{node.name} writes to an empty TensorArray, or at a non-scalar index",
        )

        def write(out: Emitter) -> None:
            target, marked = out.name_of(data), out.name_of(marks)
            variable = Variable(INDEX, out.unique("place"))
            out.nest(
                (),
                lambda: out.emit(
                    Let(variable.name, out.resolve_expression(cast(position.at(), INDEX)))
                ),
            )
            place = self._place(variable, out)
            mark = Load(_MARK, marked, (place,))
            fresh = apply("equal", mark, number(0, _MARK))
            new_mark: Expr = number(1, _MARK)
            free = fresh
            if self.extent.grows:
                has_room = apply("equal", variable, place)
                new_mark = apply("where", has_room, new_mark, mark)
                free = apply("bit_or", fresh, apply("invert", has_room))
            if not self.extent.adds:
                message = "an element that was not written yet was required"
                out.emit(Check(free, message))

            def store(*i: Expr) -> None:
                new = out.resolve_expression(value.at(*i))
                if self.extent.adds:
                    old = Load(data.dtype, target, (place, *i))
                    new = apply("where", fresh, new, apply("add", old, new))
                out.emit(Store(target, (place, *i), new))

            out.nest(value.shape, store)
            out.emit(Store(marked, (place,), new_mark))

        loop_body.add_effect(Effect([position, value], path, write))

    def _place(self, variable: Variable, out: Emitter) -> Variable:
        """Return the index at which to write an element; the last index if it does not fit."""
        size = self.extent.shape[0]
        if self._last is None:
            message = f"an index in [0, {size}) was required"
            out.emit(Check(is_inside(variable, size), message))
            return variable
        out.emit(Check(apply("greater_equal", variable, index(0)), "indices must be at least 0"))
        last = out.name_of(self._last)
        out.emit(Store(last, (), apply("maximum", Load(INDEX, last, ()), variable)))
        position = Variable(INDEX, out.unique("place"))
        out.emit(Let(position.name, clamp_index(variable, size)))
        return position

    def _pop(self, node: Node, level: int, path: Path, loop_body: LoopBody) -> list[Value]:
        """Pop the top of a stack: a value, or the range of another stack's elements."""
        count, (base, first) = self._counts[level], self._spans[level]
        base_value = Value(f"{node.name}_base", INDEX, ())
        if level:
            loop_body.captures.append((base, base_value))
        popped = self._below(node, count, level) if level < len(self._ends) else [self._top(node)]

        def is_there() -> Expr:
            return apply("greater", count.at(), base_value.at() if level else index(0))

        for item in popped:
            item.requires = (Requirement((), is_there, "a value on the stack was required"),)

        def remaining_count() -> Expr:
            fewer: Expr = minus(count.at(), 1)
            for predicate, side in path:
                pair = (fewer, count.at()) if side else (count.at(), fewer)
                fewer = where(predicate.at(), *pair)
            return fewer

        # The top stays valid until the end of the iteration, like a loop-carried value.
        loop_body.variables.append(count)
        loop_body.initial.append(first)
        loop_body.next_values.append(compute_value(f"{node.name}_left", INDEX, (), remaining_count))
        return popped

    def _top(self, node: Node) -> Value:
        data, count, size = self._data, self._counts[-1], self.extent.shape[0]
        assert data is not None

        def place() -> Expr:
            return clamp_index(minus(count.at(), 1), size)

        return move_elements(node.name, data, data.shape[1:], lambda *i: (place(), *i))

    def _below(self, node: Node, count: Value, level: int) -> list[Value]:
        """Return the range of the values on the inner stack whose handle is on top."""
        ends, size = self._ends[level], self.extent.above[level]

        def end() -> Expr:
            return ends.at(clamp_index(minus(count.at(), 1), size))

        def base() -> Expr:
            previous_end = ends.at(clamp_index(minus(count.at(), 2), size))
            return where(apply("greater", count.at(), index(1)), previous_end, index(0))

        result = [compute_value(f"{node.name}_base", INDEX, (), base)]
        result.append(compute_value(f"{node.name}_end", INDEX, (), end))
        del self._spans[level + 1 :]
        self._spans.append((result[0], result[1]))
        return result

    def _push_handle(self, level: int, path: Path, loop_body: LoopBody) -> None:
        """Push the end of the inner stack that an iteration created, when the iteration ends."""
        ends, size = self._ends[level], self.extent.above[level]
        count, inner = self._counts[level : level + 2]

        def write(out: Emitter) -> None:
            name = out.name_of(count)
            pushed = Variable(INDEX, out.unique("pushed"))
            out.emit(Let(pushed.name, Load(INDEX, name, ())))
            end_of_values = Load(INDEX, out.name_of(inner), ())
            out.emit(Store(out.name_of(ends), (clamp_index(pushed, size),), end_of_values))
            out.emit(Store(name, (), plus(pushed, 1)))

        loop_body.add_effect(Effect((), path, write))

    def _push(self, node: Node, value: Value, path: Path, loop_body: LoopBody) -> None:
        data, count, size = self._memory(node.name, value), self._counts[-1], self.extent.shape[0]

        def write(out: Emitter) -> None:
            name, target = out.name_of(count), out.name_of(data)
            pushed = Variable(INDEX, out.unique("pushed"))
            position = Variable(INDEX, out.unique("place"))
            out.emit(Let(pushed.name, Load(INDEX, name, ())))
            out.emit(Let(position.name, clamp_index(pushed, size)))
            out.nest(
                value.shape,
                lambda *i: out.emit(
                    Store(target, (position, *i), out.resolve_expression(value.at(*i)))
                ),
            )
            out.emit(Store(name, (), plus(pushed, 1)))

        loop_body.add_effect(Effect([value], path, write))
