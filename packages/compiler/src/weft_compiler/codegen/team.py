"""Threads that run a program together: how the first hands parallel loops to the others.

A team's memory, zeros before a run: the number of the hand-over (byte 0), the loop (4) and its
turns (8), in a line of their own how many threads are not done (64) and what went wrong (68), then
what the loop sees of the first thread's values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_compiler.codegen.kernel import FRAME, Region
from weft_compiler.codegen.targets import Target

_REST: Final = "ptr %arena, ptr %interrupt, ptr %team, i64 %thread, i64 %threads"
SPINS: Final = 4000
"""How often a waiting thread looks before it lets others run."""


def team_bytes(regions: Sequence[Region]) -> int:
    """How much memory a team has."""
    return FRAME + 8 * max((len(region.captured) for region in regions), default=0)


def entry(buffers: Sequence[str], arguments: str, name: str) -> str:
    """The function that all threads enter."""
    loads = "\n".join(
        f"  %p{at} = getelementptr ptr, ptr %buffers, i64 {at}\n"
        f"  %buffer.{buffer} = load ptr, ptr %p{at}"
        for at, buffer in enumerate(buffers)
    )
    return f"""
define i32 @{name}(ptr %buffers, {_REST}) #0 {{
{loads}
  %first = icmp eq i64 %thread, 0
  br i1 %first, label %main, label %worker
main:
  %result = call i32 @weft.main({arguments})
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %done, label %dismiss
dismiss:
  %region = getelementptr i8, ptr %team, i64 4
  store i32 0, ptr %region
  %old = atomicrmw add ptr %team, i32 1 release
  br label %done
done:
  ret i32 %result
worker:
  call void @weft.work({arguments})
  ret i32 0
}}
"""


def alone(parameters: str) -> str:
    """What workers do in a program without parallel loops: nothing."""
    return f"define internal void @weft.work({parameters}) #0 {{\n  ret void\n}}\n"


_TURNS = """
define internal i32 @weft.turns(i32 %region, i64 %count, {parameters}) #0 {{
  %before = mul i64 %count, %thread
  %low = udiv i64 %before, %threads
  %next = add i64 %thread, 1
  %until = mul i64 %count, %next
  %high = udiv i64 %until, %threads
  switch i32 %region, label %none [
{cases}
  ]
{calls}
none:
  ret i32 0
}}
"""
_SHARE = """
define internal i32 @weft.share(i32 %region, i64 %given, {parameters}) noinline #0 {{
  %count = call i64 @llvm.smax.i64(i64 %given, i64 0)
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %one, label %many
one:
  %own = call i32 @weft.turns(i32 %region, i64 %count, {arguments})
  ret i32 %own
many:
  %p4 = getelementptr i8, ptr %team, i64 4
  %p8 = getelementptr i8, ptr %team, i64 8
  %p64 = getelementptr i8, ptr %team, i64 64
  %p68 = getelementptr i8, ptr %team, i64 68
  store i32 %region, ptr %p4
  store i64 %count, ptr %p8
  store i32 0, ptr %p68
  %all = trunc i64 %threads to i32
  %others = sub i32 %all, 1
  store i32 %others, ptr %p64
  %old = atomicrmw add ptr %team, i32 1 release
  %mine = call i32 @weft.turns(i32 %region, i64 %count, {arguments})
  br label %wait
wait:
  %left = load atomic i32, ptr %p64 acquire, align 4
  %ended = icmp eq i32 %left, 0
  br i1 %ended, label %done, label %still
still:
  call void @weft.wait(ptr %p64, i32 %left)
  br label %wait
done:
  %theirs = load i32, ptr %p68
  %fine = icmp eq i32 %mine, 0
  %result = select i1 %fine, i32 %theirs, i32 %mine
  ret i32 %result
}}
"""
_WORK = """
define internal void @weft.work({parameters}) #0 {{
  %p4 = getelementptr i8, ptr %team, i64 4
  %p8 = getelementptr i8, ptr %team, i64 8
  %p64 = getelementptr i8, ptr %team, i64 64
  %p68 = getelementptr i8, ptr %team, i64 68
  br label %wait
wait:
  %seen = phi i32 [ 0, %0 ], [ %seen, %still ], [ %now, %finished ]
  %now = load atomic i32, ptr %team acquire, align 4
  %same = icmp eq i32 %now, %seen
  br i1 %same, label %still, label %called
still:
  call void @weft.wait(ptr %team, i32 %seen)
  br label %wait
called:
  %region = load i32, ptr %p4
  %dismissed = icmp eq i32 %region, 0
  br i1 %dismissed, label %leave, label %run
run:
  %count = load i64, ptr %p8
  %result = call i32 @weft.turns(i32 %region, i64 %count, {arguments})
  %fine = icmp eq i32 %result, 0
  br i1 %fine, label %finished, label %failed
failed:
  store atomic i32 %result, ptr %p68 monotonic, align 4
  br label %finished
finished:
  %done = atomicrmw sub ptr %p64, i32 1 release
  br label %wait
leave:
  ret void
}}
"""


def together(regions: Sequence[Region], parameters: str, arguments: str, target: Target) -> str:
    """The functions that hand loops over, and those that take them."""
    cases = "\n".join(f"    i32 {n}, label %region{n}" for n in range(1, len(regions) + 1))
    calls = "\n".join(
        f"region{n}:\n  %r{n} = call i32 @{region.name}(i64 %low, i64 %high, {arguments})\n"
        f"  ret i32 %r{n}"
        for n, region in enumerate(regions, 1)
    )
    words = {"parameters": parameters, "arguments": arguments}
    turns = _TURNS.format(cases=cases, calls=calls, **words)
    return turns + _SHARE.format(**words) + _WORK.format(**words) + _wait(target)


def _wait(target: Target) -> str:
    """Wait until a number changes, or for a while."""
    pause = "call void @llvm.x86.sse2.pause()" if target.x86 else ""
    declared = "declare void @llvm.x86.sse2.pause()\n" if target.x86 else ""
    return f"""
define internal void @weft.wait(ptr %place, i32 %seen) noinline #0 {{
  br label %look
look:
  %spins = phi i32 [ 0, %0 ], [ %more, %again ]
  %now = load atomic i32, ptr %place monotonic, align 4
  %same = icmp eq i32 %now, %seen
  br i1 %same, label %again, label %leave
again:
  {pause}
  %more = add i32 %spins, 1
  %long = icmp eq i32 %more, {SPINS}
  br i1 %long, label %yield, label %look
yield:
  %ignored = call i32 @sched_yield()
  br label %leave
leave:
  ret void
}}
{declared}declare i32 @sched_yield()
"""
