"""Programs as LLVM functions: one for the program and one for each of its parallel loops.

Outermost parallel loops become functions that run the iterations from `low` to `high`. If a program
may use several threads, it writes the values that such a loop captures to a frame and offers the
iterations to other threads (`weft_compiler.codegen.runtime`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from weft_compiler.codegen import blas, interrupt_checks
from weft_compiler.codegen.float16 import half_from_bits, half_to_bits
from weft_compiler.codegen.frames import (
    CHUNKS,
    Capture,
    parallel_grain,
)
from weft_compiler.codegen.mathematics.library import ITERATED
from weft_compiler.codegen.memory import Plan
from weft_compiler.codegen.options import Options
from weft_compiler.codegen.parallel_loops import emit_parallel_loop, find_captures
from weft_compiler.codegen.parallel_split import cut_of
from weft_compiler.codegen.routine import Operands, ParallelSplit, Routine
from weft_compiler.codegen.scalars import Scalars
from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.writer import (
    HALVES,
    Metadata,
    Writer,
    literal,
    memory_type,
    register_type,
)
from weft_compiler.ir.expressions import Apply, Constant, Expr, Load, Variable, walk as parts
from weft_compiler.ir.loops import num_iterations
from weft_compiler.ir.nests import nests_of
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Call,
    Check,
    For,
    If,
    Let,
    Order,
    Program,
    Statement,
    Store,
    Var,
    While,
    expressions,
    walk,
)
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

INTERRUPTED: Final = -1
OUT_OF_BOUNDS: Final = -2
TIME: Final = 16
"""The size of a timestamp in bytes: seconds and nanoseconds, 64 bits each."""

_DIVISIONS: Final = {"floor_div", "floor_mod", "trunc_mod"}
_FEWEST_LANES: Final = 4
"""Minimum trip count for which loops are marked for vectorization."""


class Kernel:
    """Writer of the functions of a program.

    Attributes:
      functions: the texts of the functions.
      regions: the number of parallel loops that became functions.
      routines: the declarations of the called routines of libraries, by name and type.
      blas: the called BLAS functions.
      definitions: texts of the functions that calls of routines need in the module, by name.
    """

    def __init__(self, program: Program, plan: Plan, scalars: Scalars, options: Options) -> None:
        self.program = program
        self.plan = plan
        self.scalars = scalars
        self.options = options
        self.metadata = Metadata()
        self.functions: list[str] = []
        self.regions = 0
        self.routines: dict[tuple[str, DType], str] = {}
        self.blas: set[str] = set()
        self.definitions: dict[str, str] = {}
        self.checks = {
            id(check): number
            for number, check in enumerate(
                (statement for statement in walk(program.body) if isinstance(statement, Check)), 1
            )
        }
        self.immediate = {
            name: value.reshape(-1)[0]
            for name, value in program.constants.items()
            if value.size == 1
        }
        self.buffers = program.buffers
        self._scopes = self._alias_scopes()

    @property
    def parameters(self) -> str:
        """The leading parameters of each function, as LLVM text."""
        arguments = ", ".join(
            f"ptr noalias nonnull %buffer.{b.name}"
            for b in (*self.program.inputs, *self.program.outputs)
        )
        remainder = "ptr noalias %arena, ptr %interrupt, ptr %times, i64 %thread, i64 %threads"
        return f"{arguments}, {remainder}" if arguments else remainder

    @property
    def arguments(self) -> str:
        """The same parameters as arguments of a call."""
        return self.parameters.replace("noalias nonnull ", "").replace("noalias ", "")

    def write(self) -> None:
        """Write all functions."""
        function = Function(self)
        if self.options.clocks:
            function.emit_clocked(nests_of(self.program))
        else:
            function.body(self.program.body)
        function.finish("weft.main", self.parameters)

    def _alias_scopes(self) -> dict[str, str]:
        """Return the alias metadata of arena buffers that are live at the same time."""
        arena = {n: p for n, p in self.plan.places.items() if p.region != "stack" and p.rivals}
        if not arena:
            return {}
        domain = self.metadata.add_self_reference("")
        scopes = {name: self.metadata.add_self_reference(f", {domain}") for name in arena}
        names = {}
        for name, address in arena.items():
            own_scope = self.metadata.add(scopes[name])
            other_scopes = self.metadata.add(", ".join(scopes[rival] for rival in address.rivals))
            names[name] = f", !alias.scope {own_scope}, !noalias {other_scopes}"
        return names

    def note(self, buffer: str) -> str:
        """Return the alias metadata of accesses to a buffer."""
        return self._scopes.get(buffer, "")


class Function:
    """Writer of one function: that of the program, or that of a parallel loop."""

    def __init__(self, kernel: Kernel, parallel: bool = False) -> None:
        self.kernel = kernel
        self.w = Writer()
        self.parallel = parallel
        self.slots: list[str] = []
        self.names: dict[str, tuple[str, DType]] = {}
        self.variables: dict[str, tuple[str, DType]] = {}
        self.pointers: dict[str, str] = {
            b.name: f"%buffer.{b.name}" for b in (*kernel.program.inputs, *kernel.program.outputs)
        }
        self.groups: list[str] = []
        # By buffer, the number of these loops that it outlives.
        self.num_outlived: dict[str, int] = {}
        self.arena, self.interrupt = "%arena", "%interrupt"
        # The approximate number of statements since the last poll.
        self.statements_slot = ""

    def finish(self, name: str, parameters: str) -> None:
        """End the function and give it a name and parameters."""
        self.w.do("ret i32 0")
        self.kernel.functions.append(
            f"define internal i32 @{name}({parameters}) noinline #0 {{\nentry:\n"
            + "\n".join([*self.slots, *self.w.lines, "}", ""])
        )

    # ---------------------------------------------------------------------------- statements

    def body(self, body: Body) -> None:
        """Emit statements in order."""
        for statement in body:
            self._statement(statement)

    def emit_clocked(self, nests: Sequence[Body]) -> None:
        """Emit the statements of a program, recording timestamps before and after each nest."""
        for statement in self.kernel.program.body:
            if isinstance(statement, Allocate):
                self._allocate(statement.buffer)
        for index, nest in enumerate(nests):
            self._note_time(index)
            self.body(nest)
        self._note_time(len(nests))

    def _note_time(self, index: int) -> None:
        address = self.w.put(f"getelementptr i8, ptr %times, i64 {TIME * index}")
        self.w.do(f"call i32 @clock_gettime(i32 {time.CLOCK_MONOTONIC}, ptr {address})")

    def _statement(self, statement: Statement) -> None:
        match statement:
            case For():
                self.emit_loop(statement)
            case While():
                self._while(statement)
            case If():
                self._if(statement)
            case Let(name=name, value=value):
                self.names[name] = (self.value(value), value.dtype)
            case Var(name=name, value=value):
                self._variable(name, value)
            case Assign(name=name, value=value, combine=combine):
                self._assign(name, self.value(value), combine)
            case Store():
                self._store(statement)
            case Allocate(buffer=buffer):
                self._allocate(buffer)
            case Check(condition=condition):
                self._leave_unless(self.value(condition), str(self.kernel.checks[id(statement)]))
            case Call():
                self._call(statement)

    def emit_loop(self, loop: For) -> None:
        """Emit a loop, divided among threads if it is parallel."""
        shared = self.kernel.options.threads and not self.parallel
        if shared and loop.order is Order.PARALLEL:
            self._share(loop)
            return
        high = self.value(loop.extent)
        if loop.start is None and high.isdigit():
            self._emit_in_blocks(loop, "0", high, int(high))
        else:
            self.loop(loop, "0" if loop.start is None else self.value(loop.start), high)

    def _emit_in_blocks(self, loop: For, first: str, high: str, maximum: int | None) -> None:
        """Emit the iterations of a loop.

        A long loop of short iterations polls before each block of them.

        Args:
          maximum: the maximal trip count; None if unknown.
        """
        block = interrupt_checks.iterations_between_polls(loop)
        if interrupt_checks.has_poll(loop) or (maximum is not None and maximum <= block):
            self.loop(loop, first, high)
            return
        w = self.w
        preheader, head, end = w.block, w.label(), w.label()
        w.go(head)
        w.begin(head)
        low = w.name()
        line_index = len(w.lines)
        w.do("")  # the phi
        self._poll()
        ended = w.put(f"add nuw nsw i64 {low}, {block}")
        ended = w.call("llvm.smin.i64", "i64", ended, high)
        self.loop(loop, low, ended)
        w.lines[line_index] = (
            f"  {low} = phi i64 [ {first}, %{preheader} ], [ {ended}, %{w.block} ]"
        )
        w.branch(w.put(f"icmp eq i64 {ended}, {high}"), end, head)
        w.begin(end)

    def loop(self, loop: For, low: str, high: str) -> None:
        """Emit the iterations of a loop in [low, high)."""
        w = self.w
        preheader, head, end = w.block, w.label(), w.label()
        if low == "0" and high.lstrip("-").isdigit():
            if int(high) <= 0:
                return
            w.go(head)
        else:
            w.branch(w.put(f"icmp slt i64 {low}, {high}"), head, end)
        w.begin(head)
        turn = w.name()
        line_index = len(w.lines)
        w.do("")  # the phi, whose second operand is not known yet
        self.names[loop.variable] = (turn, dtypes.int64)
        free = loop.order is not Order.SERIAL
        innermost = interrupt_checks.is_innermost(loop)
        if interrupt_checks.has_poll(loop):
            self._poll()
        if free:
            self.groups.append(self.kernel.metadata.add("", distinct=True))
        self.body(loop.body)
        notes = self._loop_metadata(free, innermost and self._can_vectorize(loop))
        following = w.put(f"add nuw nsw i64 {turn}, 1")
        w.lines[line_index] = (
            f"  {turn} = phi i64 [ {low}, %{preheader} ], [ {following}, %{w.block} ]"
        )
        ended = w.put(f"icmp eq i64 {following}, {high}")
        w.branch(ended, end, head, notes)
        w.begin(end)

    def _can_vectorize(self, loop: For) -> bool:
        """Return True if an innermost loop is marked for vectorization by LLVM.

        LLVM warns on stderr about marked loops that it cannot vectorize. It cannot if an iteration
        may leave the loop, as with bounds checks and other checks. It often cannot with divisions
        that are loops themselves: those of integers, and of floats if no library is available. The
        same holds for iterated functions. A min or max of few constants becomes a select, which it
        does not recognize as a reduction. A loop of two or three iterations may be unrolled first.
        """
        count = num_iterations(loop)
        if count is not None and count < _FEWEST_LANES:
            return False
        statements = list(walk(loop.body))
        if self.kernel.options.bounds_checks or any(
            isinstance(statement, Check) for statement in statements
        ):
            return False
        if any(
            isinstance(statement, Assign) and _is_constant_extremum(statement)
            for statement in statements
        ):
            return False
        return not any(
            isinstance(part, Apply)
            and (part.primitive in ITERATED or self._is_divided_by_loop(part))
            for statement in statements
            for expression in expressions(statement)
            for part in parts(expression)
        )

    def _is_divided_by_loop(self, part: Apply) -> bool:
        is_freestanding = self.kernel.scalars.target.freestanding
        return part.primitive in _DIVISIONS and (part.dtype.is_integer or is_freestanding)

    def _loop_metadata(self, free: bool, vectorized: bool) -> str:
        """Return the metadata of a loop whose iterations are independent."""
        if not free:
            return ""
        metadata = self.kernel.metadata
        group = self.groups.pop()
        accesses = metadata.add(f'!"llvm.loop.parallel_accesses", {group}')
        remainder = f", {accesses}"
        if vectorized:
            remainder += ", " + metadata.add('!"llvm.loop.vectorize.enable", i1 true')
        return f", !llvm.loop {metadata.add_self_reference(remainder)}"

    def _while(self, loop: While) -> None:
        w = self.w
        head, body, end = w.label(), w.label(), w.label()
        w.go(head)
        w.begin(head)
        self._poll_at_times(interrupt_checks.statements(loop.body))
        w.branch(self.value(loop.condition), body, end)
        w.begin(body)
        self.body(loop.body)
        w.go(head)
        w.begin(end)

    def _if(self, statement: If) -> None:
        w = self.w
        then, otherwise, end = w.label(), w.label(), w.label()
        last = otherwise if statement.otherwise else end
        w.branch(self.value(statement.condition), then, last)
        w.begin(then)
        self.body(statement.then)
        w.go(end)
        if statement.otherwise:
            w.begin(otherwise)
            self.body(statement.otherwise)
            w.go(end)
        w.begin(end)

    def _variable(self, name: str, value: Expr) -> None:
        kind = register_type(value.dtype)
        first = self.value(value)
        slot = self.slot(kind)
        self.variables[name] = (slot, value.dtype)
        self.w.do(f"store {kind} {first}, ptr {slot}")

    def slot(self, kind: str, alignment: str = "") -> str:
        """Return the address of stack memory, allocated on function entry."""
        slot = f"%s{len(self.slots)}"
        self.slots.append(f"  {slot} = alloca {kind}{alignment}")
        return slot

    def _assign(self, name: str, value: str, combine: str | None) -> None:
        slot, dtype = self.variables[name]
        kind = register_type(dtype)
        if combine:
            old = self.w.put(f"load {kind}, ptr {slot}")
            value = self.kernel.scalars.combine(self.w, combine, old, value, dtype)
        self.w.do(f"store {kind} {value}, ptr {slot}")

    def _store(self, store: Store) -> None:
        dtype = self.kernel.buffers[store.buffer].dtype
        value = self.value(store.value)
        address = self.address(store.buffer, store.indices)
        if store.combine:
            old = self._load(address, store.buffer)
            value = self.kernel.scalars.combine(self.w, store.combine, old, value, dtype)
        kind = memory_type(dtype)
        if dtype.is_bool:
            value = self.w.put(f"zext i1 {value} to i8")
        elif dtype in HALVES:
            value = half_to_bits(self.w, value, dtype, self.kernel.scalars.target)
        notes = self._access_metadata(store.buffer)
        self.w.do(f"store {kind} {value}, ptr {address}, align {dtype.size}{notes}")

    def _access_metadata(self, buffer: str) -> str:
        """Return the metadata of an access: the loops whose iterations do not alias in the buffer.

        Iterations alias in a buffer that each of them allocates, because all use the same memory.
        """
        notes = self.kernel.note(buffer)
        groups = self.groups[self.num_outlived.get(buffer, 0) :]
        if not groups:
            return notes
        group = groups[0] if len(groups) == 1 else self.kernel.metadata.add(", ".join(groups))
        return f"{notes}, !llvm.access.group {group}"

    def _allocate(self, buffer: Buffer) -> None:
        address = self.kernel.plan.places[buffer.name]
        self.num_outlived[buffer.name] = len(self.groups)
        if address.region == "stack":
            kind = f"[{max(1, buffer.bytes)} x i8]"
            self.pointers[buffer.name] = self.slot(kind, ", align 64")
            return
        offset = str(address.offset)
        if address.region == "thread":
            own_base = self.w.put(f"mul i64 %thread, {self.kernel.plan.thread}")
            offset = self.w.put(f"add i64 {own_base}, {address.offset + self.kernel.plan.shared}")
        self.pointers[buffer.name] = self.w.put(f"getelementptr i8, ptr {self.arena}, i64 {offset}")

    def _leave_unless(self, condition: str, code: str) -> None:
        leaving, going_on = self.w.label(), self.w.label()
        self.w.branch(condition, going_on, leaving)
        self.w.begin(leaving)
        self.w.do(f"ret i32 {code}")
        self.w.begin(going_on)

    def _poll(self) -> None:
        """Leave the function if the interrupt flag is set."""
        flag = self.w.put(f"load atomic i32, ptr {self.interrupt} monotonic, align 4")
        self._leave_unless(self.w.put(f"icmp eq i32 {flag}, 0"), str(INTERRUPTED))

    def _poll_at_times(self, statements: int) -> None:
        """Add to the statement count, and poll when it reaches `interrupt_checks.LONG`."""
        w = self.w
        if not self.statements_slot:
            self.statements_slot = "%statements"
            self.slots.append(
                f"  {self.statements_slot} = alloca i64\n  store i64 0, ptr {self.statements_slot}"
            )
        noted = w.put(f"add i64 {w.put(f'load i64, ptr {self.statements_slot}')}, {statements}")
        looking, going_on = w.label(), w.label()
        w.do(f"store i64 {noted}, ptr {self.statements_slot}")
        w.branch(w.put(f"icmp ult i64 {noted}, {interrupt_checks.LONG}"), going_on, looking)
        w.begin(looking)
        self._poll()
        w.do(f"store i64 0, ptr {self.statements_slot}")
        w.go(going_on)
        w.begin(going_on)

    def _call(self, call: Call) -> None:
        """Emit a call, run by this thread or divided among several."""
        assert isinstance(call, Routine)
        views = [self.address(view.buffer, view.indices) for view in call.views]
        sizes = {name: self.value(size) for name, size in call.sizes}
        numbers = [self.value(number) for number in call.numbers]
        cut = None
        if self.kernel.options.threads and not self.parallel and not sizes:
            cut = cut_of(call)
        if cut is None:
            call.emit(self, Operands(self._dtype_of(call), views, sizes, numbers))
        else:
            self._emit_parallel_call(call, cut, views, numbers)

    def _emit_parallel_call(
        self, call: Routine, cut: ParallelSplit, views: list[str], numbers: list[str]
    ) -> None:
        """Emit a call that threads run in parts."""
        inner = Function(self.kernel, parallel=True)
        captures = [Capture("ptr noalias", "%arena"), *[Capture("ptr", view) for view in views]]
        captures += [Capture("i64", number) for number in numbers]
        inner.arena = "%capture0"
        w = inner.w
        first, last = (w.put(f"mul nsw i64 {end}, {cut.unit}") for end in ("%low", "%high"))
        last = w.select(w.put(f"icmp eq i64 %high, {cut.units}"), "i64", str(cut.count), last)
        arguments = [f"%capture{index + 1}" for index in range(len(views))]
        for index, step in cut.steps.items():
            offset = w.put(f"mul nsw i64 {first}, {step}")
            kind = memory_type(call.views[index].dtype)
            arguments[index] = w.put(f"getelementptr {kind}, ptr {arguments[index]}, i64 {offset}")
        scalars = [f"%capture{index + 1 + len(views)}" for index in range(len(numbers))]
        if cut.rows:
            scalars[0] = w.put(f"add nsw i64 {scalars[0]}, {first}")
        sizes = {cut.size: w.put(f"sub i64 {last}, {first}")} if cut.size else {}
        indices = (first, last)
        call.emit(inner, Operands(self._dtype_of(call), arguments, sizes, scalars, indices))
        is_blas_parallel = (
            blas.uses_many_threads(self.w, self.kernel.blas) if call.uses_blas else ""
        )
        emit_parallel_loop(self, inner, captures, str(cut.units), 1, cut.chunks, is_blas_parallel)

    def _dtype_of(self, call: Routine) -> DType:
        """Return the element type for which a routine is called."""
        return self.kernel.buffers[call.views[0].buffer].dtype

    @property
    def target(self) -> Target:
        """The target processor."""
        return self.kernel.scalars.target

    def workspace(self) -> str:
        """Return the address of this thread's workspace for routines."""
        own_base = self.w.put(f"mul i64 %thread, {self.kernel.plan.thread}")
        offset = self.w.put(f"add i64 {own_base}, {self.kernel.plan.shared}")
        return self.w.put(f"getelementptr i8, ptr {self.arena}, i64 {offset}")

    def declare(self, routine: type[Routine], dtype: DType) -> None:
        """Declare a routine of a library."""
        self.kernel.routines[routine.routine, dtype] = routine.declaration(dtype)

    def require_blas(self, function: str) -> None:
        """Declare a BLAS function."""
        self.kernel.blas.add(function)

    def define(self, name: str, text: Callable[[], str]) -> None:
        """Define a function in the module unless it is defined already."""
        if name not in self.kernel.definitions:
            self.kernel.definitions[name] = text()

    # ---------------------------------------------------------------------------- threads

    def _share(self, loop: For) -> None:
        """Emit a parallel loop as a separate function."""
        high = self.value(loop.extent)
        inner = Function(self.kernel, parallel=True)
        captures = find_captures(self, loop, inner)
        inner._emit_in_blocks(loop, "%low", "%high", int(high) if high.isdigit() else None)
        emit_parallel_loop(
            self,
            inner,
            captures,
            high,
            parallel_grain(loop, interrupt_checks.is_innermost(loop)),
            CHUNKS,
        )

    # ---------------------------------------------------------------------------- expressions

    def value(self, expression: Expr) -> str:
        """Emit an expression and return its operand."""
        match expression:
            case Constant(value=value, dtype=dtype):
                return literal(value, dtype)
            case Variable(name=name):
                return self._lookup(name)
            case Load(buffer=buffer, indices=indices):
                if buffer in self.kernel.immediate:
                    return literal(self.kernel.immediate[buffer], expression.dtype)
                return self._load(self.address(buffer, indices), buffer)
        assert isinstance(expression, Apply)
        operands = [self.value(operand) for operand in expression.operands]
        source_dtype = expression.operands[-1].dtype
        if expression.primitive == "cast":
            return self.kernel.scalars.cast(self.w, operands[0], source_dtype, expression.dtype)
        return self.kernel.scalars.apply(self.w, expression.primitive, operands, source_dtype)

    def _lookup(self, name: str) -> str:
        if name in self.names:
            return self.names[name][0]
        slot, dtype = self.variables[name]
        return self.w.put(f"load {register_type(dtype)}, ptr {slot}")

    def _load(self, address: str, buffer: str) -> str:
        dtype = self.kernel.buffers[buffer].dtype
        kind = memory_type(dtype)
        result = self.w.put(
            f"load {kind}, ptr {address}, align {dtype.size}{self._access_metadata(buffer)}"
        )
        if dtype.is_bool:
            return self.w.put(f"icmp ne i8 {result}, 0")
        if dtype in HALVES:
            return half_from_bits(self.w, result, dtype, self.kernel.scalars.target)
        return result

    def address(self, name: str, indices: Sequence[Expr]) -> str:
        """Return the address of an element of a buffer."""
        buffer = self.kernel.buffers[name]
        terms = []
        offset = 0
        for index, size, stride in zip(indices, buffer.shape, buffer.strides, strict=True):
            if isinstance(index, Constant) and not self.kernel.options.bounds_checks:
                offset += int(index.value) * stride
                continue
            result = self.value(index)
            if self.kernel.options.bounds_checks:
                in_bounds = self.w.put(f"icmp ult i64 {result}, {size}")
                self._leave_unless(in_bounds, str(OUT_OF_BOUNDS))
            terms.append(self.w.put(f"mul nsw i64 {result}, {stride}") if stride != 1 else result)
        address = str(offset)
        for position, term in enumerate(terms):
            skip = position == 0 and offset == 0
            address = term if skip else self.w.put(f"add nsw i64 {address}, {term}")
        pointer = self.pointers[name]
        if address == "0":
            return pointer
        kind = memory_type(buffer.dtype)
        return self.w.put(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {address}")


def _is_constant_extremum(assign: Assign) -> bool:
    """Return True if a variable accumulates the min or max of constants."""
    return (
        assign.combine in ("maximum", "minimum")
        and assign.value.dtype.is_floating
        and not any(
            isinstance(part, Load | Variable) and part.dtype.is_floating
            for part in parts(assign.value)
        )
    )
