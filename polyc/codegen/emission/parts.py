"""Parts of parallel loops: each thread goes through parts of its own, and then through those that others have not begun.

A loop of enough work is cut into up to `MOST_PARTS` parts per thread of the team that came.  First every thread takes those
that are its own, always the same ones, whose data its caches may hold from the kernel before; one that has done them helps
the next ones (Markatos and LeBlanc, "Using processor affinity in loop scheduling on shared-memory multiprocessors", 1994).
So a thread that another process holds up, a core that is slower than the others, or one that wakes up late does not keep the
whole team waiting.  Which thread computes a part changes nothing of what it computes.

A thread's own parts follow each other, or, where the work of an iteration grows or shrinks along the loop, they lie a team
apart, every second time in the opposite order of threads.
"""

from __future__ import annotations

from collections.abc import Callable

from polyc.codegen.writer.builder import Function, Module, Val, int_val
from polyc.machine.memory import LINE_PAIR as LINE

MOST_PARTS = 8
"""Parts per thread: what is left to one thread at the end is a small part of the work."""

PLACES = 128
"""Threads that help each other (of larger teams each one does its own parts), and columns of a pipeline that are under way."""

TAKE = "polyc.part"


def make_counts(fn: Function, threads: Val) -> Val:
    """Stack memory for how many parts of each thread have been begun: none."""
    counts = fn.shared_slot(f"[{LINE * PLACES} x i8]", LINE)
    used = fn.intrinsic("umin", fn.convert("zext", threads, "i64"), int_val(PLACES))
    size = fn.binary("mul", used, int_val(LINE))
    callee = fn.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1 immarg"])
    fn.effect(f"call void {callee}({counts}, i8 0, {size}, i1 false)")
    return counts


def count_parts(fn: Function, trips: Val, team: Val, least: int) -> Val:
    """Parts per thread, of `least` iterations or more."""
    whole = fn.binary("sdiv", trips, fn.binary("mul", team, int_val(least)))
    return fn.intrinsic("smin", fn.intrinsic("smax", whole, int_val(1)), int_val(MOST_PARTS))


def take_parts(
    fn: Function, counts: Val, thread: Val, team: Val, parts: Val, is_uneven: bool, run: Callable[[Val], None]
) -> None:
    """Write the loop over the parts that a thread finds left; `run` writes what it does with the one of a number."""
    _declare_take(fn.module)
    turn = fn.alloca("i64", 8)
    fn.effect(f"store i64 0, {turn}, align 8")
    look, found, done = fn.new_block("look"), fn.new_block("part"), fn.new_block("done")
    fn.branch(look)
    fn.place(look)
    with fn.scope():
        flag = int_val(int(is_uneven), "i1")
        part = fn.effect_value(f"call i64 @{TAKE}({counts}, {turn}, {thread}, {team}, {parts}, {flag})", "i64")
        fn.branch_if(fn.compare("icmp sge", part, int_val(0)), found, done)
        fn.place(found)
        run(part)
        fn.branch(look)
    fn.place(done)


def _declare_take(module: Module) -> None:
    """``part(counts, turn, thread, team, parts, is_uneven)``: the number of a part that the thread has taken, -1 where none is
    left.

    `turn` counts the threads that have nothing left; in a team of more than `PLACES` the thread's own parts that are done."""
    module.extra[TAKE] = f"""
define internal i64 @{TAKE}(ptr %counts, ptr %turn, i64 %thread, i64 %team, i64 %parts, i1 %is_uneven) noinline {{
begin:
  %first = load i64, ptr %turn, align 8
  %is_one = icmp eq i64 %parts, 1
  %is_large = icmp ugt i64 %team, {PLACES}
  %is_alone = or i1 %is_one, %is_large
  br i1 %is_alone, label %own, label %look
own:
  %first1 = add i64 %first, 1
  store i64 %first1, ptr %turn, align 8
  %is_own = icmp slt i64 %first, %parts
  br i1 %is_own, label %found, label %none
look:
  %n = phi i64 [ %first, %begin ], [ %n1, %next ]
  %is_round = icmp slt i64 %n, %team
  br i1 %is_round, label %ask, label %none
ask:
  %sum = add i64 %thread, %n
  %other = sub i64 %sum, %team
  %is_inside = icmp slt i64 %sum, %team
  %whose = select i1 %is_inside, i64 %sum, i64 %other
  %offset = mul i64 %whose, {LINE}
  %count = getelementptr i8, ptr %counts, i64 %offset
  %begun = load atomic i64, ptr %count monotonic, align 8
  %is_left = icmp slt i64 %begun, %parts
  br i1 %is_left, label %take, label %next
take:
  %taken = atomicrmw add ptr %count, i64 1 monotonic, align 8
  %is_taken = icmp slt i64 %taken, %parts
  br i1 %is_taken, label %found, label %next
next:
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %turn, align 8
  br label %look
found:
  %number = phi i64 [ %first, %own ], [ %taken, %take ]
  %owner = phi i64 [ %thread, %own ], [ %whose, %take ]
  %begins = mul i64 %owner, %parts
  %following = add i64 %begins, %number
  %round = mul i64 %number, %team
  %odd = trunc i64 %number to i1
  %last = sub i64 %team, 1
  %mirrored = sub i64 %last, %owner
  %place = select i1 %odd, i64 %mirrored, i64 %owner
  %turned = add i64 %round, %place
  %part = select i1 %is_uneven, i64 %turned, i64 %following
  ret i64 %part
none:
  ret i64 -1
}}"""
