"""Nests that are a single routine call: one function for all sizes, driven by a table of numbers.

Layers of different sizes have products and convolutions of different sizes, which also determine
how threads divide them. Compiling separate code for each would take 10 ms.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from weft_compiler.codegen import blas, runtime
from weft_compiler.codegen.memory import round_up
from weft_compiler.codegen.module import ENTRY, Module, attributes
from weft_compiler.codegen.options import Options
from weft_compiler.codegen.parallel_split import cut_of
from weft_compiler.codegen.routine import ParallelSplit, Routine
from weft_compiler.codegen.targets import target_of
from weft_compiler.codegen.writer import Loops
from weft_compiler.ir.expressions import Constant
from weft_compiler.ir.program import Buffer, operand_names
from weft_compiler.ir.program_splitting import Piece
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_UNITS, _UNIT, _COUNT, _CHUNKS, _THREAD, _CUT, _MOVES = range(7)
"""Words of a table: the number of parts of a `Cut`, its unit, its count and its chunks; the
workspace of each thread in bytes; the position of the parameter that is split, or -1; and 1 if the
first row advances with the part. Three words follow for each view: its slot, its offset and its
advance per part, both in bytes. The parameters and the numbers of the call come last."""
_HEAD: Final = 7


def find_call(piece: Piece) -> Routine | None:
    """Return the only call of a piece, or None if its sizes cannot be stored in a table."""
    body = piece.program.body
    if len(body) != 1 or not isinstance(body[0], Routine) or piece.numbers:
        return None
    call = body[0]
    indices = [*call.numbers, *[index for view in call.views for index in view.indices]]
    if call.sizes or not all(isinstance(address, Constant) for address in indices):
        return None
    return call if call.has_table(routine_dtype(piece, call)) else None


def routine_dtype(piece: Piece, call: Routine) -> DType:
    """Return the element type for which a routine is called."""
    return piece.program.buffers[call.views[0].buffer].dtype


def with_size_table(piece: Piece, call: Routine, options: Options) -> Piece:
    """Return a piece that calls the function for all sizes, with its sizes in a table."""
    cut = cut_of(call) if options.threads else None
    cut = cut or ParallelSplit("", call.num_places, 0, {})
    units = cut.units if cut.unit else 1
    arguments = call.table()
    position = list(arguments).index(cut.size) if cut.size else -1
    workspace = round_up(call.workspace_bytes(routine_dtype(piece, call), target_of(options)))
    words = [units, cut.unit, cut.count, cut.chunks, workspace, position, int(cut.rows)]
    buffers = (*piece.program.inputs, *piece.program.outputs)
    slots = {buffer_of_slot.name: 1 + number for number, buffer_of_slot in enumerate(buffers)}
    for number, view in enumerate(call.views):
        buffer = buffers[slots[view.buffer] - 1]
        indices = [
            int(coordinate.value) for coordinate in view.indices if isinstance(coordinate, Constant)
        ]
        offset = sum(address * step for address, step in zip(indices, buffer.strides, strict=True))
        size = buffer.dtype.size
        words += [slots[view.buffer], offset * size, cut.steps.get(number, 0) * size]
    words += arguments.values()
    words += [int(argument.value) for argument in call.numbers if isinstance(argument, Constant)]
    table = Buffer("table", dtypes.int64, (len(words),))
    program = replace(piece.program, inputs=(table,), outputs=buffers)
    numbers = (np.array(words, np.int64),)
    return piece._replace(program=program, numbers=numbers, thread=workspace)


def module_of_call(routine: type[Routine], dtype: DType, options: Options) -> Module:
    """Return the module of the function that calls a routine with sizes from a table."""
    target = target_of(options)
    called = routine.functions(dtype)
    declarations = list(map(blas.declaration, called))
    texts = [
        f'target triple = "{target.triple}"\n; {routine.routine} of {dtype.name}',
        _part_function(routine, dtype),
        *([_SHARED, runtime.PARALLEL_FOR_DECLARATION] if options.threads else []),
        _run(options.threads, routine.uses_blas),
        *(declarations or [routine.declaration(dtype)]),
        attributes(target),
    ]
    routines = () if called else ((routine.routine, dtype),)
    return Module("\n".join(texts), 0, 0, 0, options.threads, routines, called)


_PARAMETERS: Final = "ptr %buffers, ptr %arena, ptr %table"


def _word(w: Loops, index: int) -> str:
    """Emit the load of a word of the table."""
    return w.put(f"load i64, ptr {w.put(f'getelementptr i64, ptr %table, i64 {index}')}")


def _part_function(routine: type[Routine], dtype: DType) -> str:
    """Return the function that computes the parts in [low, high)."""
    names, w = operand_names(routine), Loops()
    unit, count = _word(w, _UNIT), _word(w, _COUNT)
    first = w.put(f"mul nsw i64 %low, {unit}")
    is_last = w.put(f"icmp eq i64 %high, {_word(w, _UNITS)}")
    last = w.select(is_last, "i64", count, w.put(f"mul nsw i64 %high, {unit}"))
    size, cut = w.put(f"sub nsw i64 {last}, {first}"), _word(w, _CUT)
    views = []
    for index in range(_HEAD, _HEAD + 3 * len(names.views), 3):
        slot = w.put(f"getelementptr ptr, ptr %buffers, i64 {_word(w, index)}")
        moved = w.put(f"mul nsw i64 {first}, {_word(w, index + 2)}")
        offset = w.put(f"add nsw i64 {moved}, {_word(w, index + 1)}")
        views.append(w.put(f"getelementptr i8, ptr {w.put(f'load ptr, ptr {slot}')}, i64 {offset}"))
    numbers = []
    begin = _HEAD + 3 * len(names.views)
    count_of_parameters = len(routine.table_names())
    for index in range(count_of_parameters):
        is_cut = w.put(f"icmp eq i64 {cut}, {index}")
        numbers.append(w.select(is_cut, "i64", size, _word(w, begin + index)))
    for index in range(len(names.numbers)):
        moved = w.put(f"mul nsw i64 {first}, {_word(w, _MOVES)}")
        word = _word(w, begin + count_of_parameters + index)
        numbers.append(w.put(f"add nsw i64 {word}, {moved}"))

    def workspace() -> str:
        own_base = w.put(f"mul nsw i64 %thread, {_word(w, _THREAD)}")
        return w.put(f"getelementptr i8, ptr %arena, i64 {own_base}")

    routine.emit_from_table(w, dtype, views, numbers, (first, last), workspace)
    lines = "\n".join(w.lines)
    head = f"define internal i32 @part(i64 %thread, i64 %low, i64 %high, {_PARAMETERS}) noinline #0"
    return f"{head} {{\nentry:\n{lines}\n  ret i32 0\n}}\n"


_SHARED: Final = """
define internal i32 @shared(ptr %frame, i64 %thread, i64 %low, i64 %high) #0 {
entry:
  %frame1 = getelementptr ptr, ptr %frame, i64 1
  %frame2 = getelementptr ptr, ptr %frame, i64 2
  %buffers = load ptr, ptr %frame
  %arena = load ptr, ptr %frame1
  %table = load ptr, ptr %frame2
  %result = call i32 @part(i64 %thread, i64 %low, i64 %high, ptr %buffers, ptr %arena, ptr %table)
  ret i32 %result
}
"""
"""The same function with its arguments in a frame, for helper threads."""


def _run(shares: bool, is_product: bool) -> str:
    """Return the entry function."""
    w = Loops()
    table = w.put("load ptr, ptr %buffers")
    w.lines[-1] = w.lines[-1].replace(table, "%table")
    units = _word(w, _UNITS)
    if shares:
        single = w.put(f"icmp eq i64 {units}, 1")
        single = w.put(f"or i1 {single}, {w.put('icmp eq i64 %threads, 1')}")
        if is_product:
            single = w.put(f"or i1 {single}, {blas.uses_many_threads(w, set())}")
        serial, parallel = w.label(), w.label()
        w.branch(single, serial, parallel)
        w.begin(parallel)
        for index, value in enumerate(("%buffers", "%arena", "%table")):
            address = w.put(f"getelementptr ptr, ptr %frame, i64 {index}")
            w.do(f"store ptr {value}, ptr {address}")
        numbers = f"i64 {units}, i64 1, i64 {_word(w, _CHUNKS)}, i64 %threads"
        call = f"call i32 @{runtime.PARALLEL_FOR}(ptr @shared, ptr %frame, {numbers})"
        w.do(f"ret i32 {w.put(call)}")
        w.begin(serial)
    arguments = _PARAMETERS
    w.do(f"ret i32 {w.put(f'call i32 @part(i64 0, i64 0, i64 {units}, {arguments})')}")
    lines = "\n".join(w.lines)
    remainder = "ptr %arena, ptr %interrupt, ptr %times, i64 %threads"
    head = f"define i32 @{ENTRY}(ptr %buffers, {remainder}) #0"
    return f"{head} {{\nentry:\n  %frame = alloca [3 x ptr]\n{lines}\n}}\n"
