"""The thread pool of a process: machine code that all compiled programs share.

A program offers the iterations of a loop in a slot, and runs chunks of them like each thread that
joins.  Each thread has its own part of the iterations, the same for each loop, so that it finds its
data in its own caches.  A thread that has finished its part steals chunks that others have not
started, except the last chunk of a thread that has joined.  So no program waits for a busy thread.

The shared memory is a pool: its fields, the handles of threads, and slots.  A slot has its fields,
then for each part a cache line with its next iteration and a flag that its thread has joined.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

from weft_compiler.codegen.targets import Target

MOST: Final = 64
"""Maximal number of threads that run a program."""
_LINE: Final = 64
"""Size of a cache line: data written by different threads is on different lines."""

_POOL: Final = {
    "made": 0,  # the number of threads
    "quit": 4,  # 1 if threads must exit
    "never": 8,  # 1 if no more can be created
    "busy": 64,  # programs that run without the GIL
    "helping": 128,  # threads that help
    "sleepers": 192,  # threads that sleep or are about to sleep
    "mutex": 256,
    "condition": 384,
    "handles": 512,  # thread handles; then the slots
}
"""Offsets of the fields of the pool."""
_SLOT: Final = {
    "owner": 64,  # 1 if in use
    "function": 72,  # the function over a range of iterations
    "frame": 80,  # the argument of the function
    "turns": 88,
    "chunk": 96,  # iterations of a chunk
    "most": 104,  # threads that may help
    "part": 112,  # iterations of a part
    "taken": 120,  # 1 if all iterations have been taken
    "wrong": 192,  # the result of a call that failed
    "parts": 256,
}
"""Offsets of the fields of a slot. The first is the offer, a word that is updated atomically."""
_PART_THERE: Final = 8
_OFFER: Final = {
    "joining": 1 << 16,
    "joined": 16,  # shift of the number of threads that joined
    "number": 32,  # shift of the number of offers, odd while one is open
    "closing": 1 << 32,
    "count": (1 << 16) - 1,  # mask of the number of threads that joined, and of those that are done
}
_SLOTS: Final = 8
_SLOT_BYTES: Final = _SLOT["parts"] + _LINE * MOST
_HEAD: Final = _POOL["handles"] + 8 * MOST

SHARE: Final = "weft.share"
BEGIN: Final = "weft.begin"
END: Final = "weft.end"
RESET: Final = "weft.reset"
STOP: Final = "weft.stop"
EXPORTS: Final = (SHARE, BEGIN, END, RESET, STOP)

SPINS: Final = 2000
"""Number of polls of a thread before it yields: some 20 µs."""
YIELDS: Final = 400
"""Number of yields before it sleeps: at least 0.1 ms."""

DECLARATION: Final = f"declare i32 @{SHARE}(ptr, ptr, i64, i64, i64, i64) nounwind\n"
"""`share(function, frame, turns, grain, chunks, threads)`: calls
`function(frame, thread, low, high)` for all iterations: each thread's part in about `chunks`
chunks, each a multiple of `grain`. The chunks do not depend on which threads join. Returns 0 if
all calls do, else the result of one that failed."""

_ALONE: Final = f"""
define i32 @{SHARE}(ptr %function, ptr %frame, i64 %turns, i64 %grain, i64 %chunks, i64 %threads) {{
  %found = call i32 %function(ptr %frame, i64 0, i64 0, i64 %turns)
  ret i32 %found
}}
define void @{BEGIN}(i64 %threads) {{
  ret void
}}
define void @{END}() {{
  ret void
}}
define void @{RESET}() {{
  ret void
}}
define void @{STOP}() {{
  ret void
}}
"""

_SHARE: Final = """
@pool = internal global [{pool} x i8] zeroinitializer, align 64
@signals = internal constant [32 x i32] [{signals}]
declare i32 @sched_yield()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
{pause_declared}

define i32 @{share}(
    ptr %function, ptr %frame, i64 %turns, i64 %grain, i64 %chunks, i64 %threads
) #0 {{
  %part = call i64 @divided(i64 %turns, i64 %threads, i64 %grain)
  %chunk = call i64 @divided(i64 %part, i64 %chunks, i64 %grain)
  %one = icmp sge i64 %part, %turns
  br i1 %one, label %alone, label %several
alone:
  %own = call i32 %function(ptr %frame, i64 0, i64 0, i64 %turns)
  ret i32 %own
several:
  %helpers = sub i64 %threads, 1
  call void @make(i64 %helpers)
  br label %look
look:
  %at = phi i64 [ 0, %several ], [ %at.next, %taken ]
  %offset = mul i64 %at, {slot}
  %place = add i64 %offset, {head}
  %slot = getelementptr i8, ptr @pool, i64 %place
  %owner = getelementptr i8, ptr %slot, i64 {slot_owner}
  %tried = cmpxchg ptr %owner, i32 0, i32 1 acquire monotonic
  %free = extractvalue {{ i32, i1 }} %tried, 1
  br i1 %free, label %offer, label %taken
taken:
  %at.next = add i64 %at, 1
  %none = icmp eq i64 %at.next, {slots}
  br i1 %none, label %serial, label %look
serial:
  ; in the same parts, which decide the bits of a product by BLAS
  %low = phi i64 [ 0, %taken ], [ %high, %next ]
  %sum = add i64 %low, %part
  %end.part = call i64 @llvm.smin.i64(i64 %sum, i64 %turns)
  br label %serial.chunk
serial.chunk:
  %from = phi i64 [ %low, %serial ], [ %high, %next.chunk ]
  %sum.chunk = add i64 %from, %chunk
  %high = call i64 @llvm.smin.i64(i64 %sum.chunk, i64 %end.part)
  %r = call i32 %function(ptr %frame, i64 0, i64 %from, i64 %high)
  %bad = icmp ne i32 %r, 0
  br i1 %bad, label %left.serial, label %next.chunk
next.chunk:
  %ended = icmp eq i64 %high, %end.part
  br i1 %ended, label %next, label %serial.chunk
next:
  %last = icmp eq i64 %high, %turns
  br i1 %last, label %left.serial, label %serial
left.serial:
  ret i32 %r
offer:
  %function.at = getelementptr i8, ptr %slot, i64 {slot_function}
  %frame.at = getelementptr i8, ptr %slot, i64 {slot_frame}
  %turns.at = getelementptr i8, ptr %slot, i64 {slot_turns}
  %chunk.at = getelementptr i8, ptr %slot, i64 {slot_chunk}
  %most.at = getelementptr i8, ptr %slot, i64 {slot_most}
  %part.at = getelementptr i8, ptr %slot, i64 {slot_part}
  %taken.at = getelementptr i8, ptr %slot, i64 {slot_taken}
  %wrong.at = getelementptr i8, ptr %slot, i64 {slot_wrong}
  store ptr %function, ptr %function.at
  store ptr %frame, ptr %frame.at
  store atomic i64 %turns, ptr %turns.at monotonic, align 8
  store i64 %chunk, ptr %chunk.at
  store atomic i64 %helpers, ptr %most.at monotonic, align 8
  store i64 %part, ptr %part.at
  store atomic i64 0, ptr %taken.at monotonic, align 8
  store atomic i32 0, ptr %wrong.at monotonic, align 4
  br label %begin
begin:
  %p = phi i64 [ 0, %offer ], [ %p.next, %begin ]
  %p.line = mul i64 %p, {line}
  %p.offset = add i64 %p.line, {slot_parts}
  %p.place = getelementptr i8, ptr %slot, i64 %p.offset
  %p.there = getelementptr i8, ptr %p.place, i64 {part_there}
  %p.first = mul i64 %p, %part
  store atomic i64 %p.first, ptr %p.place monotonic, align 8
  store atomic i64 0, ptr %p.there monotonic, align 8
  %p.next = add i64 %p, 1
  %p.all = icmp eq i64 %p.next, %threads
  br i1 %p.all, label %open.it, label %begin
open.it:
  %before = load atomic i64, ptr %slot monotonic, align 8
  %number = lshr i64 %before, {number}
  %odd = or i64 %number, 1
  %open = shl i64 %odd, {number}
  store atomic i64 %open, ptr %slot seq_cst, align 8
  call void @wake()
  call void @take(ptr %slot, i64 0, i64 0)
  %closed = atomicrmw add ptr %slot, i64 {closing} acq_rel
  %joined16 = lshr i64 %closed, {joined}
  %joined = and i64 %joined16, {count}
  br label %wait
wait:
  %spins = phi i64 [ 0, %open.it ], [ %spins.next, %again ]
  %now = load atomic i64, ptr %slot acquire, align 8
  %done = and i64 %now, {count}
  %all = icmp eq i64 %done, %joined
  br i1 %all, label %end, label %still
still:
  %spins.next = add i64 %spins, 1
  %long = icmp ugt i64 %spins, {spins}
  br i1 %long, label %yield, label %spin
spin:
  {pause}
  br label %again
yield:
  %y = call i32 @sched_yield()
  br label %again
again:
  br label %wait
end:
  %wrong = load atomic i32, ptr %wrong.at monotonic, align 4
  store atomic i32 0, ptr %owner release, align 4
  ret i32 %wrong
}}

define internal i64 @divided(i64 %turns, i64 %parts, i64 %grain) #0 {{
  ; turns of a part, a multiple of the grain
  %c1 = add i64 %turns, %parts
  %c2 = sub i64 %c1, 1
  %c3 = sdiv i64 %c2, %parts
  %c4 = add i64 %c3, %grain
  %c5 = sub i64 %c4, 1
  %c6 = sdiv i64 %c5, %grain
  %part = mul i64 %c6, %grain
  ret i64 %part
}}

define internal void @take(ptr %slot, i64 %thread, i64 %own) noinline #0 {{
  %function.at = getelementptr i8, ptr %slot, i64 {slot_function}
  %frame.at = getelementptr i8, ptr %slot, i64 {slot_frame}
  %turns.at = getelementptr i8, ptr %slot, i64 {slot_turns}
  %chunk.at = getelementptr i8, ptr %slot, i64 {slot_chunk}
  %most.at = getelementptr i8, ptr %slot, i64 {slot_most}
  %part.at = getelementptr i8, ptr %slot, i64 {slot_part}
  %taken.at = getelementptr i8, ptr %slot, i64 {slot_taken}
  %wrong.at = getelementptr i8, ptr %slot, i64 {slot_wrong}
  %function = load ptr, ptr %function.at
  %frame = load ptr, ptr %frame.at
  %turns = load atomic i64, ptr %turns.at monotonic, align 8
  %chunk = load i64, ptr %chunk.at
  %helpers = load atomic i64, ptr %most.at monotonic, align 8
  %threads = add i64 %helpers, 1
  %size = load i64, ptr %part.at
  br label %part
part:
  %k = phi i64 [ 0, %0 ], [ %k.next, %other ]
  %sum.own = add i64 %own, %k
  %p = urem i64 %sum.own, %threads
  %line = mul i64 %p, {line}
  %offset = add i64 %line, {slot_parts}
  %next = getelementptr i8, ptr %slot, i64 %offset
  %there = getelementptr i8, ptr %next, i64 {part_there}
  %first = mul i64 %p, %size
  %until = add i64 %first, %size
  %end = call i64 @llvm.smin.i64(i64 %until, i64 %turns)
  %mine = icmp eq i64 %k, 0
  br i1 %mine, label %come, label %more
come:
  store atomic i64 1, ptr %there monotonic, align 8
  br label %more
more:
  br i1 %mine, label %get, label %look
look:
  %now = load atomic i64, ptr %next monotonic, align 8
  %after = add i64 %now, %chunk
  %is.last = icmp sge i64 %after, %end
  %is.there = load atomic i64, ptr %there monotonic, align 8
  %attended = icmp ne i64 %is.there, 0
  %leaves = and i1 %is.last, %attended
  %empty = icmp sge i64 %now, %end
  %skips = or i1 %leaves, %empty
  br i1 %skips, label %other, label %get
get:
  %low = atomicrmw add ptr %next, i64 %chunk monotonic
  %some = icmp slt i64 %low, %end
  br i1 %some, label %run, label %other
run:
  %sum = add i64 %low, %chunk
  %high = call i64 @llvm.smin.i64(i64 %sum, i64 %end)
  %found = call i32 %function(ptr %frame, i64 %thread, i64 %low, i64 %high)
  %fine = icmp eq i32 %found, 0
  br i1 %fine, label %more, label %failed
other:
  %k.next = add i64 %k, 1
  %all = icmp eq i64 %k.next, %threads
  br i1 %all, label %done, label %part
failed:
  store atomic i32 %found, ptr %wrong.at monotonic, align 4
  br label %stop
stop:
  %q = phi i64 [ 0, %failed ], [ %q.next, %stop ]
  %q.line = mul i64 %q, {line}
  %q.offset = add i64 %q.line, {slot_parts}
  %q.next.turn = getelementptr i8, ptr %slot, i64 %q.offset
  store atomic i64 %turns, ptr %q.next.turn monotonic, align 8
  %q.next = add i64 %q, 1
  %q.all = icmp eq i64 %q.next, %threads
  br i1 %q.all, label %done, label %stop
done:
  store atomic i64 1, ptr %taken.at monotonic, align 8
  ret void
}}
"""

_WORK: Final = """
define internal i64 @offered(ptr %slot) #0 {{
  ; the offer, if one more thread may join it, else 0
  %most.at = getelementptr i8, ptr %slot, i64 {slot_most}
  %taken.at = getelementptr i8, ptr %slot, i64 {slot_taken}
  %offer = load atomic i64, ptr %slot acquire, align 8
  %bit = and i64 %offer, {closing}
  %open = icmp ne i64 %bit, 0
  br i1 %open, label %look, label %no
look:
  %taken = load atomic i64, ptr %taken.at monotonic, align 8
  %more = icmp eq i64 %taken, 0
  %most = load atomic i64, ptr %most.at monotonic, align 8
  %joined16 = lshr i64 %offer, {joined}
  %joined = and i64 %joined16, {count}
  %room = icmp slt i64 %joined, %most
  %busy = load atomic i32, ptr {busy} monotonic, align 4
  %helping = load atomic i32, ptr {helping} monotonic, align 4
  %made = load atomic i32, ptr {made} monotonic, align 4
  %used = add i32 %busy, %helping
  %fits = icmp sle i32 %used, %made
  %a = and i1 %more, %room
  %b = and i1 %a, %fits
  br i1 %b, label %yes, label %no
yes:
  ret i64 %offer
no:
  ret i64 0
}}

define internal i1 @any() #0 {{
  br label %look
look:
  %at = phi i64 [ 0, %0 ], [ %at.next, %not ]
  %offset = mul i64 %at, {slot}
  %place = add i64 %offset, {head}
  %slot = getelementptr i8, ptr @pool, i64 %place
  %offer = call i64 @offered(ptr %slot)
  %there = icmp ne i64 %offer, 0
  br i1 %there, label %leave, label %not
not:
  %at.next = add i64 %at, 1
  %none = icmp eq i64 %at.next, {slots}
  br i1 %none, label %leave, label %look
leave:
  ret i1 %there
}}

define internal i1 @help(i64 %number) #0 {{
  ; join what is offered, and tell whether anything was done
  br label %look
look:
  %at = phi i64 [ 0, %0 ], [ %at.next, %not ]
  %offset = mul i64 %at, {slot}
  %place = add i64 %offset, {head}
  %slot = getelementptr i8, ptr @pool, i64 %place
  %offer = call i64 @offered(ptr %slot)
  %there = icmp ne i64 %offer, 0
  br i1 %there, label %join, label %not
not:
  %at.next = add i64 %at, 1
  %none = icmp eq i64 %at.next, {slots}
  br i1 %none, label %leave, label %look
leave:
  ret i1 false
join:
  %h = atomicrmw add ptr {helping}, i32 1 monotonic
  %more = add i64 %offer, {joining}
  %tried = cmpxchg ptr %slot, i64 %offer, i64 %more acq_rel monotonic
  %joins = extractvalue {{ i64, i1 }} %tried, 1
  br i1 %joins, label %run, label %gone
run:
  %joined16 = lshr i64 %more, {joined}
  %thread = and i64 %joined16, {count}
  %most.at = getelementptr i8, ptr %slot, i64 {slot_most}
  %helpers = load atomic i64, ptr %most.at monotonic, align 8
  %few = icmp sgt i64 %number, %helpers
  %own = select i1 %few, i64 %thread, i64 %number
  call void @take(ptr %slot, i64 %thread, i64 %own)
  %l1 = atomicrmw sub ptr {helping}, i32 1 monotonic
  %l2 = atomicrmw add ptr %slot, i64 1 release
  ret i1 true
gone:
  %l3 = atomicrmw sub ptr {helping}, i32 1 monotonic
  ret i1 true
}}

define internal ptr @work(ptr %numbered) #0 {{
  %number = ptrtoint ptr %numbered to i64
  br label %look
look:
  %idle = phi i64 [ 0, %0 ], [ 0, %helped ], [ %more, %spin ], [ %more, %yield ], [ 0, %woken ]
  %quit = load atomic i32, ptr {quit} acquire, align 4
  %ends = icmp ne i32 %quit, 0
  br i1 %ends, label %leave, label %try
try:
  %did = call i1 @help(i64 %number)
  br i1 %did, label %helped, label %wait
helped:
  br label %look
wait:
  %more = add i64 %idle, 1
  %long = icmp ugt i64 %idle, {spins}
  br i1 %long, label %longer, label %spin
spin:
  {pause}
  br label %look
longer:
  %very = icmp ugt i64 %idle, {sleeps}
  br i1 %very, label %sleep, label %yield
yield:
  %y = call i32 @sched_yield()
  br label %look
sleep:
  %m1 = call i32 @pthread_mutex_lock(ptr {mutex})
  %s1 = atomicrmw add ptr {sleepers}, i32 1 seq_cst
  fence seq_cst
  %something = call i1 @any()
  %quit2 = load atomic i32, ptr {quit} acquire, align 4
  %ends2 = icmp ne i32 %quit2, 0
  %stays = or i1 %something, %ends2
  br i1 %stays, label %woken, label %sleeps
sleeps:
  %c = call i32 @pthread_cond_wait(ptr {condition},
      ptr {mutex})
  br label %woken
woken:
  %s2 = atomicrmw sub ptr {sleepers}, i32 1 seq_cst
  %m2 = call i32 @pthread_mutex_unlock(ptr {mutex})
  br label %look
leave:
  ret ptr null
}}
"""

_LIFE: Final = """
define internal void @wake() #0 {{
  fence seq_cst
  %sleepers = load atomic i32, ptr {sleepers} seq_cst, align 4
  %some = icmp ne i32 %sleepers, 0
  br i1 %some, label %call, label %leave
call:
  call void @wake_all()
  br label %leave
leave:
  ret void
}}

define internal void @wake_all() noinline #0 {{
  %m1 = call i32 @pthread_mutex_lock(ptr {mutex})
  %c = call i32 @pthread_cond_broadcast(ptr {condition})
  %m2 = call i32 @pthread_mutex_unlock(ptr {mutex})
  ret void
}}

define internal void @make(i64 %wanted) #0 {{
  %all = trunc i64 %wanted to i32
  br label %look
look:
  %have = load atomic i32, ptr {made} monotonic, align 4
  %enough = icmp sge i32 %have, %all
  %no = load atomic i32, ptr {never} monotonic, align 4
  %never = icmp ne i32 %no, 0
  %leaves = or i1 %enough, %never
  br i1 %leaves, label %leave, label %one
one:
  call void @make_one(i32 %have)
  br label %look
leave:
  ret void
}}

define internal void @make_one(i32 %have) noinline #0 {{
  %old = alloca [128 x i8], align 16
  %m1 = call i32 @pthread_mutex_lock(ptr {mutex})
  %now = load atomic i32, ptr {made} monotonic, align 4
  %mine = icmp eq i32 %now, %have
  br i1 %mine, label %create, label %leave
create:
  ; signals are for those who know of them
  %b = call i32 @pthread_sigmask(i32 {set_mask}, ptr @signals, ptr %old)
  %at = sext i32 %have to i64
  %one.more = add i64 %at, 1
  %number = inttoptr i64 %one.more to ptr
  %thread = getelementptr i64, ptr {handles}, i64 %at
  %c = call i32 @pthread_create(ptr %thread, ptr null, ptr @work, ptr %number)
  %u = call i32 @pthread_sigmask(i32 {set_mask}, ptr %old, ptr null)
  %fine = icmp eq i32 %c, 0
  br i1 %fine, label %made, label %failed
made:
  %more = add i32 %have, 1
  store atomic i32 %more, ptr {made} release, align 4
  br label %leave
failed:
  store atomic i32 1, ptr {never} monotonic, align 4
  br label %leave
leave:
  %m2 = call i32 @pthread_mutex_unlock(ptr {mutex})
  ret void
}}

define void @{begin}(i64 %threads) #0 {{
  %b = atomicrmw add ptr {busy}, i32 1 monotonic
  %many = icmp sgt i64 %threads, 1
  br i1 %many, label %call, label %leave
call:
  call void @wake()
  br label %leave
leave:
  ret void
}}

define void @{end}() #0 {{
  %b = atomicrmw sub ptr {busy}, i32 1 monotonic
  ret void
}}

define void @{reset}() #0 {{
  call void @llvm.memset.p0.i64(ptr @pool, i8 0, i64 {pool}, i1 false)
  %m = call i32 @pthread_mutex_init(ptr {mutex}, ptr null)
  %c = call i32 @pthread_cond_init(ptr {condition}, ptr null)
  ret void
}}

define void @{stop}() #0 {{
  store atomic i32 1, ptr {never} seq_cst, align 4
  store atomic i32 1, ptr {quit} seq_cst, align 4
  call void @wake_all()
  %made = load atomic i32, ptr {made} acquire, align 4
  br label %look
look:
  %at = phi i32 [ 0, %0 ], [ %next, %join ]
  %more = icmp slt i32 %at, %made
  br i1 %more, label %join, label %leave
join:
  %index = sext i32 %at to i64
  %place = getelementptr i64, ptr {handles}, i64 %index
  %thread = load i64, ptr %place
  %j = call i32 @pthread_join(i64 %thread, ptr null)
  %next = add i32 %at, 1
  br label %look
leave:
  store atomic i32 0, ptr {made} release, align 4
  ret void
}}
attributes #0 = {{ nounwind }}
"""


def supported() -> bool:
    """Return True if helper threads are supported on this system: it has POSIX threads."""
    return os.name == "posix"


def text(target: Target) -> str:
    """Return the module."""
    triple = f'target triple = "{target.triple}"\n'
    if not supported():
        return triple + _ALONE
    values = {
        **{name: f"getelementptr (i8, ptr @pool, i64 {at})" for name, at in _POOL.items()},
        **{f"slot_{name}": at for name, at in _SLOT.items()},
        **_OFFER,
        "part_there": _PART_THERE,
        "line": _LINE,
        "pool": _HEAD + _SLOTS * _SLOT_BYTES,
        "slots": _SLOTS,
        "slot": _SLOT_BYTES,
        "head": _HEAD,
        "spins": SPINS,
        "sleeps": SPINS + YIELDS,
        "set_mask": signal.SIG_SETMASK.value,
        "signals": _blocked(),
        "pause": "call void @llvm.x86.sse2.pause()" if target.x86 else "",
        "pause_declared": "declare void @llvm.x86.sse2.pause()" if target.x86 else "",
        "share": SHARE,
        "begin": BEGIN,
        "end": END,
        "reset": RESET,
        "stop": STOP,
    }
    return triple + "".join(part.format(**values) for part in (_SHARE, _WORK, _LIFE))


def _blocked() -> str:
    """Return the set of all signals except those that a thread raises by a fault."""
    faults = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP")
    numbers = {getattr(signal, name) for name in faults}
    # Linux has longs of 64 bits each, little-endian; others 32 bits.
    most = 1024 if sys.platform == "linux" else 32
    words = [0] * 32
    for number in range(1, most + 1):
        if number not in numbers:
            words[(number - 1) // 32] |= 1 << (number - 1) % 32
    return ", ".join(f"i32 {word}" for word in words)
