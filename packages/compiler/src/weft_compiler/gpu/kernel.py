"""The LLVM function of a launch, which all of its threads run.

Each function returns immediately if the flag is set, which means that a check has failed. A thread
whose check fails sets the flag to the number of the check. No block waits for another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from weft_compiler.codegen.kernel import Function, Kernel
from weft_compiler.codegen.memory import round_up
from weft_compiler.codegen.routine import Operands
from weft_compiler.codegen.writer import literal, memory_type, register_type
from weft_compiler.gpu.launches import (
    BLOCK_BYTES,
    WARP,
    Launch,
    LaunchKind,
    PerfectNest,
    is_atomic,
    static_extent,
)
from weft_compiler.ir.expressions import Load, walk as parts
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Call,
    For,
    If,
    Let,
    Statement,
    Store,
    Var,
    While,
    expressions,
    walk,
)
from weft_compiler.routines.philox import Philox
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

_THREAD_BYTES: Final = 4096
"""Maximum size of a thread's private memory, in bytes."""

THREAD: Final = "llvm.nvvm.read.ptx.sreg.tid.x"
BLOCK: Final = "llvm.nvvm.read.ptx.sreg.ctaid.x"
BLOCKS: Final = "llvm.nvvm.read.ptx.sreg.nctaid.x"
BARRIER: Final = "llvm.nvvm.barrier.cta.sync.aligned.all"
SHUFFLE: Final = "llvm.nvvm.shfl.sync.bfly.i32"

DECLARATIONS: Final = f"""
declare i32 @{THREAD}()
declare i32 @{BLOCK}()
declare i32 @{BLOCKS}()
declare void @{BARRIER}(i32) convergent
declare i32 @{SHUFFLE}(i32, i32, i32, i32) convergent
"""

_ATOMIC: Final = {"add": "add", "bit_and": "and", "bit_or": "or", "bit_xor": "xor"}


class LaunchFunction(Function):
    """Writer of the function of a launch.

    Args:
      number: the number of the launch, which is part of the function's name.
    """

    def __init__(self, kernel: Kernel, launch: Launch, number: int) -> None:
        super().__init__(kernel, parallel=True)
        self.launch = launch
        self.name = f"weft_{number}"
        self.buffers = sorted(_touched_buffers(launch.body) & self.pointers.keys())
        self._bound: set[int] = set()
        self._by_rows = launch.way is LaunchKind.ROWS
        self._shared = {id(chain[0]): chain for chain in launch.shared}
        self._leave = ""
        self._read: set[str] = set()
        self._written: set[str] = set()
        self._block_bytes = 0
        self._thread_bytes = 0
        self._thread = ""
        self._scratch = False

    def write(self) -> str:
        """Return the function and the shared memory of its blocks."""
        w, kernel = self.w, self.kernel
        flag = w.put("load i32, ptr %flag, align 4")
        begin, leave = w.label(), w.label()
        w.branch(w.put(f"icmp eq i32 {flag}, 0"), begin, leave)
        w.begin(leave)
        w.do("ret void")
        w.begin(begin)
        self._thread = w.put(f"call i32 @{THREAD}()")
        for name in sorted(_touched_buffers(self.launch.body) & kernel.plan.places.keys()):
            offset = kernel.plan.places[name].offset
            self.pointers[name] = w.put(f"getelementptr i8, ptr %arena, i64 {offset}")
        (self._emit_by_rows if self.launch.way is LaunchKind.ROWS else self._emit_by_threads)()
        w.do("ret void")
        arguments = "".join(f", ptr noalias nonnull %buffer.{name}" for name in self.buffers)
        head = (
            f"define ptx_kernel void @{self.name}(ptr noalias %arena, ptr noalias %flag{arguments})"
        )
        lines = [*self._memory(), f"{head} #1 {{", "entry:", *self.slots, *w.lines, "}", ""]
        return "\n".join(lines).replace("#1 {", f'#0 "nvvm.maxntid"="{self.launch.threads}" {{')

    def _memory(self) -> Iterator[str]:
        """Yield the definitions of the shared memory of a block."""
        if self._block_bytes:
            kind = f"[{self._block_bytes} x i8]"
            yield f"@{self.name}.own = internal addrspace(3) global {kind} undef, align 16"
        if self._scratch:
            kind = f"[{WARP} x i64]"
            yield f"@{self.name}.warps = internal addrspace(3) global {kind} undef, align 8"

    # ---------------------------------------------------------------------------- turns

    def _emit_by_threads(self) -> None:
        """Emit the iteration of this thread, if the thread has one."""
        launch, w = self.launch, self.w
        wide = "i32" if launch.count + launch.threads < 1 << 31 else "i64"
        block, thread = w.put(f"call i32 @{BLOCK}()"), self._thread
        if wide == "i64":
            block, thread = (w.put(f"zext i32 {number} to i64") for number in (block, thread))
        first = w.put(f"mul {wide} {block}, {launch.threads}")
        iteration = w.put(f"add {wide} {first}, {thread}")
        body, end = w.label(), w.label()
        w.branch(w.put(f"icmp ult {wide} {iteration}, {launch.count}"), body, end)
        w.begin(end)
        w.do("ret void")
        w.begin(body)
        if len(launch.body) == 1 and isinstance(launch.body[0], Call):
            self._emit_part(launch.body[0], iteration, wide)
            return
        self._bind(launch.loops, iteration, wide)
        self.body(launch.body)

    def _emit_part(self, call: Call, iteration: str, wide: str) -> None:
        """Emit this thread's part of a routine."""
        position = iteration if wide == "i64" else self.w.put(f"zext i32 {iteration} to i64")
        self._philox(call, (position, self.w.put(f"add i64 {position}, 1")))

    def _emit_by_rows(self) -> None:
        """Emit the iterations of this block; all threads run each iteration together."""
        w, launch = self.w, self.launch
        if not launch.loops:
            self.body(launch.body)
            return
        step = w.put(f"zext i32 {w.put(f'call i32 @{BLOCKS}()')} to i64")
        first = w.put(f"zext i32 {w.put(f'call i32 @{BLOCK}()')} to i64")
        with self._strided_loop(first, step, launch.count) as row:
            self._bind(launch.loops, row, "i64")
            self.body(launch.body)
            if launch.blocks < launch.count:
                self._barrier()

    @contextmanager
    def _strided_loop(self, first: str, step: str, count: int) -> Iterator[str]:
        """Loop from `first` to `count` in steps of `step`."""
        w = self.w
        slot = self.slot("i64")
        w.do(f"store i64 {first}, ptr {slot}")
        head, body, following, end = w.label(), w.label(), w.label(), w.label()
        w.go(head)
        w.begin(head)
        position = w.put(f"load i64, ptr {slot}")
        w.branch(w.put(f"icmp slt i64 {position}, {count}"), body, end)
        w.begin(body)
        self._leave, saved_label = following if not self._by_rows else "", self._leave
        yield position
        self._leave = saved_label
        w.go(following)
        w.begin(following)
        w.do(f"store i64 {w.put(f'add nsw i64 {position}, {step}')}, ptr {slot}")
        w.go(head)
        w.begin(end)

    def _bind(self, loops: PerfectNest, iteration: str, wide: str) -> None:
        """Compute the variables of loops from the number of an iteration of the whole nest."""
        w = self.w
        for position, loop in reversed(list(enumerate(loops))):
            extent = static_extent(loop)
            loop_index = iteration
            if position:
                loop_index = w.put(f"urem {wide} {iteration}, {extent}")
                iteration = w.put(f"udiv {wide} {iteration}, {extent}")
            index = loop_index if wide == "i64" else w.put(f"zext nneg i32 {loop_index} to i64")
            self.names[loop.variable] = (index, dtypes.int64)
            self._bound.add(id(loop))

    def emit_loop(self, loop: For) -> None:
        """Emit a loop; if its iterations are already distributed, emit only its body."""
        chain = self._shared.get(id(loop)) if self._by_rows else None
        if id(loop) in self._bound:
            self.body(loop.body)
        elif chain is not None:
            self._share_iterations(chain)
        else:
            if self._by_rows:
                self._barrier()
            high = self.value(loop.extent)
            effects_before = self._read | self._written
            self.loop(loop, "0", high)
            self._note(effects_before)

    def _note(self, touched_names: set[str]) -> None:
        """Record buffers that may have been accessed since the last barrier on some path."""
        if self._by_rows:
            self._read |= touched_names
            self._written |= touched_names

    def body(self, body: Body) -> None:
        """Emit statements in order."""
        for statement in body:
            if self._by_rows:
                self._wait_for(statement)
            self._statement(statement)

    def loop(self, loop: For, low: str, high: str) -> None:
        """Emit the iterations of a loop, by each thread or by all threads of a block together."""
        if self._by_rows and any(
            isinstance(statement, For | Store) for statement in walk(loop.body)
        ):
            inner = loop.body
            loop = For(loop.variable, loop.extent, (_Barrier(), *inner), loop.order)
        super().loop(loop, low, high)

    def _statement(self, statement: Statement) -> None:
        if isinstance(statement, _Barrier):
            self._barrier()
        else:
            super()._statement(statement)

    def _while(self, loop: While) -> None:
        if self._by_rows:
            loop = While(loop.condition, (_Barrier(), *loop.body))
        super()._while(loop)

    def _if(self, statement: If) -> None:
        super()._if(statement)
        if self._by_rows:
            self._note(_touched_buffers((statement,)))

    def _poll(self) -> None:
        """Emit nothing: a GPU kernel cannot be interrupted."""

    # ---------------------------------------------------------------------------- blocks

    def _wait_for(self, statement: Statement) -> None:
        """Emit a barrier if a statement reads or overwrites data of other threads of the block."""
        if isinstance(statement, Allocate):
            return
        shared = isinstance(statement, For) and id(statement) in self._shared
        if not shared and isinstance(statement, For | While | If):
            read = _read_by((statement,), deep=False)
            wrote: set[str] = set()
        else:
            read, wrote = _read_by((statement,)), _written_buffers((statement,))
        if read & self._written or wrote & (self._read | self._written):
            self._barrier()
        self._read |= read
        self._written |= wrote

    def _barrier(self) -> None:
        self.w.do(f"call void @{BARRIER}(i32 0) convergent")
        self._read, self._written = set(), set()

    def _share_iterations(self, chain: PerfectNest) -> None:
        """Distribute the iterations of loops over the threads of the block."""
        own_names = {
            statement.name for statement in walk(chain[0].body) if isinstance(statement, Let | Var)
        }
        combined: dict[str, str] = {}
        for statement in walk(chain[0].body):
            if isinstance(statement, Assign) and statement.name not in own_names:
                assert statement.combine is not None
                combined[statement.name] = statement.combine
        full_count = {name: self.variables[name] for name in combined}
        for name, combine in combined.items():
            dtype = full_count[name][1]
            kind = register_type(dtype)
            slot = self.slot(kind)
            self.w.do(f"store {kind} {identity_element(combine, dtype)}, ptr {slot}")
            self.variables[name] = (slot, dtype)
        first = self.w.put(f"zext i32 {self._thread} to i64")
        count = 1
        for loop in chain:
            count *= static_extent(loop) or 0
        self._by_rows = False
        with self._strided_loop(first, str(self.launch.threads), count) as iteration:
            self._bind(chain, iteration, "i64")
            self.emit_loop(chain[0])
        self._by_rows = True
        for name, combine in combined.items():
            slot, dtype = self.variables[name]
            part = self.w.put(f"load {register_type(dtype)}, ptr {slot}")
            self.variables[name] = full_count[name]
            self._assign(name, self._reduce_over_block(part, combine, dtype), combine)

    def _reduce_over_block(self, value: str, combine: str, dtype: DType) -> str:
        """Reduce a value over all threads of a block; each thread gets the same bits."""
        w, warps = self.w, self.launch.threads // WARP
        value = self._butterfly(value, combine, dtype, WARP)
        if warps == 1:
            return value
        self._scratch = True
        kind = "i8" if dtype.is_bool else register_type(dtype)
        stored = w.put(f"zext i1 {value} to i8") if dtype.is_bool else value
        lane = w.put(f"and i32 {self._thread}, {WARP - 1}")
        first, end = w.label(), w.label()
        w.branch(w.put(f"icmp eq i32 {lane}, 0"), first, end)
        w.begin(first)
        w.do(
            f"store {kind} {stored}, ptr addrspace(3) "
            f"{self._warp_slot(f'lshr i32 {self._thread}, 5')}"
        )
        w.go(end)
        w.begin(end)
        self._barrier()
        address = self._warp_slot(f"and i32 {self._thread}, {warps - 1}")
        value = w.put(f"load {kind}, ptr addrspace(3) {address}")
        if dtype.is_bool:
            value = w.put(f"trunc i8 {value} to i1")
        value = self._butterfly(value, combine, dtype, warps)
        self._barrier()
        return value

    def _warp_slot(self, number: str) -> str:
        position = self.w.put(number)
        return self.w.put(f"getelementptr i64, ptr addrspace(3) @{self.name}.warps, i32 {position}")

    def _butterfly(self, value: str, combine: str, dtype: DType, lanes: int) -> str:
        """Reduce a value over adjacent lanes by a butterfly exchange."""
        scalars = self.kernel.scalars
        distance = lanes // 2
        while distance:
            partner = self._shuffle(value, distance, dtype)
            value = scalars.combine(self.w, combine, value, partner, dtype)
            distance //= 2
        return value

    def _shuffle(self, value: str, distance: int, dtype: DType) -> str:
        """Return the value of the lane whose number differs in one bit."""
        w, kind = self.w, register_type(dtype)
        bits = {"float": "i32", "double": "i64"}.get(kind, kind)
        if bits != kind:
            value = w.put(f"bitcast {kind} {value} to {bits}")
        if bits == "i64":
            low = self._exchange(w.put(f"trunc i64 {value} to i32"), distance)
            high = w.put(f"trunc i64 {w.put(f'lshr i64 {value}, 32')} to i32")
            high = w.put(f"zext i32 {self._exchange(high, distance)} to i64")
            low = w.put(f"zext i32 {low} to i64")
            value = w.put(f"or i64 {w.put(f'shl i64 {high}, 32')}, {low}")
        elif bits == "i32":
            value = self._exchange(value, distance)
        else:
            wide = self._exchange(w.put(f"zext {bits} {value} to i32"), distance)
            value = w.put(f"trunc i32 {wide} to {bits}")
        return w.put(f"bitcast {bits} {value} to {kind}") if bits != kind else value

    def _exchange(self, value: str, distance: int) -> str:
        arguments = f"i32 -1, i32 {value}, i32 {distance}, i32 {WARP - 1}"
        return self.w.put(f"call i32 @{SHUFFLE}({arguments}) convergent")

    # ---------------------------------------------------------------------------- memory

    def _store(self, store: Store) -> None:
        if not self._by_rows:
            if store.buffer in self.launch.atomic:
                self._store_at_once(store)
            else:
                super()._store(store)
            return
        w = self.w
        first, end = w.label(), w.label()
        w.branch(w.put(f"icmp eq i32 {self._thread}, 0"), first, end)
        w.begin(first)
        super()._store(store)
        w.go(end)
        w.begin(end)

    def _store_at_once(self, store: Store) -> None:
        dtype = self.kernel.buffers[store.buffer].dtype
        assert store.combine is not None and is_atomic(store.combine, dtype)
        value = self.value(store.value)
        address = self.address(store.buffer, store.indices)
        instruction = _ATOMIC.get(store.combine)
        if dtype.is_floating:
            instruction = "fadd"
        elif instruction is None:
            instruction = store.combine[:3] if not dtype.is_unsigned else f"u{store.combine[:3]}"
        self.w.do(f"atomicrmw {instruction} ptr {address}, {memory_type(dtype)} {value} monotonic")

    def _allocate(self, buffer: Buffer) -> None:
        size = max(1, buffer.bytes)
        if not self._by_rows:
            self._thread_bytes += size
            if self._thread_bytes > _THREAD_BYTES:
                raise errors.UnimplementedError(
                    f"a thread would need {self._thread_bytes} bytes for {buffer.name}"
                )
            self.pointers[buffer.name] = self.slot(f"[{size} x i8]", ", align 16")
            return
        position = self._block_bytes
        self._block_bytes += round_up(size)
        if self._block_bytes > BLOCK_BYTES:
            raise errors.UnimplementedError(
                f"a block would need {self._block_bytes} bytes for {buffer.name}"
            )
        address = f"getelementptr (i8, ptr addrspace(3) @{self.name}.own, i32 {position})"
        self.pointers[buffer.name] = self.w.put(f"addrspacecast ptr addrspace(3) {address} to ptr")

    def _leave_unless(self, condition: str, code: str) -> None:
        w = self.w
        leaving, going_on = w.label(), w.label()
        w.branch(condition, going_on, leaving)
        w.begin(leaving)
        w.put(f"cmpxchg ptr %flag, i32 0, i32 {code} monotonic monotonic")
        if self._leave:
            w.go(self._leave)
        else:
            w.do("ret void")
        w.begin(going_on)

    def _call(self, call: Call) -> None:
        self._philox(call)

    def _philox(self, call: Call, indices: tuple[str, str] | None = None) -> None:
        """Emit blocks of random words; the only routine with code for GPUs."""
        if not isinstance(call, Philox) or call.sizes:
            raise errors.UnimplementedError(f"{call.routine} has no implementation for GPUs")
        views = [self.address(view.buffer, view.indices) for view in call.views]
        call.emit(self, Operands(call.words.dtype, views, places=indices))


class _Barrier(Statement):
    """A barrier of the threads of a block, as a statement."""


def identity_element(combine: str, dtype: DType) -> str:
    """Return the identity element of a combiner, as an operand."""
    if combine in ("add", "bit_or", "bit_xor"):
        return literal(-0.0 if dtype.is_floating else 0, dtype)
    if combine == "mul":
        return literal(1, dtype)
    if combine == "bit_and":
        return literal(True, dtype) if dtype.is_bool else "-1"
    is_maximum = combine == "maximum"
    if dtype.is_floating:
        return literal(float("-inf" if is_maximum else "inf"), dtype)
    bits = 8 * dtype.size
    if dtype.is_unsigned:
        return "0" if is_maximum else str((1 << bits) - 1)
    return str(-(1 << (bits - 1)) if is_maximum else (1 << (bits - 1)) - 1)


def _touched_buffers(body: Sequence[Statement]) -> set[str]:
    """Return the buffers that statements read or write."""
    return _read_by(body) | _written_buffers(body)


def _read_by(body: Sequence[Statement], deep: bool = True) -> set[str]:
    """Return the buffers that statements load from.

    Args:
      deep: True to include nested statements.
    """
    names = {
        part.buffer
        for statement in (walk(tuple(body)) if deep else body)
        for expression in expressions(statement)
        for part in parts(expression)
        if isinstance(part, Load)
    }
    if deep:
        names |= {e.buffer for e in walk(tuple(body)) if isinstance(e, Store) and e.combine}
    return names


def _written_buffers(body: Sequence[Statement]) -> set[str]:
    """Return the buffers that statements store to."""
    names = {statement.buffer for statement in walk(tuple(body)) if isinstance(statement, Store)}
    calls = [statement for statement in walk(tuple(body)) if isinstance(statement, Call)]
    return names | {view.buffer for call in calls for view in call.views}
