"""Pipelines: columns of tiles that follow each other at a distance, each on one thread, without barriers.

Before: ``parallel (in columns along i) for t { for j { for i { tile } } }``, whose tiles need what lies before them in any of
the three.  After: all threads walk through the columns (t, j), and take the next one that nobody has.  Before a tile a thread
waits until the column before its own has left that i behind; behind it, it says how far it came.  So all tiles that come
before in both orders are done, and threads follow each other at the distance of a tile (Wellein et al., "Efficient temporal
blocking for stencil computations by multicore-aware wavefront parallelization", 2009).

Columns end in order: the one that is taken last is at most a team behind the first that is not complete, so `PLACES` places
for how far columns are serve all of them, turn by turn.
"""

from __future__ import annotations

from collections.abc import Callable

from polyc.codegen.emission.context import Columns, State
from polyc.codegen.emission.parts import PLACES
from polyc.codegen.writer.builder import Function, Module, Val, int_val
from polyc.codegen.writer.words import PAUSES
from polyc.ir.expr import Expr, reads
from polyc.ir.loops import If, Loop, Node
from polyc.ir.types import I64
from polyc.machine import Machine
from polyc.machine.memory import LINE_PAIR as LINE

SIZE = LINE * PLACES + LINE

_LEAST, _MOST = I64.limits


def is_pipeline(loop: Loop) -> bool:
    """Whether each thread can find the columns of a parallel loop for itself: loops and tests around them read no memory, and
    everything that is done stands in a column."""

    def is_known(*expressions: Expr) -> bool:
        return not any(reads(e) for e in expressions)

    def check(node: Node) -> bool:
        match node:
            case Loop():
                if node.registers or node.initial or not is_known(node.lower, node.upper):
                    return False
                return node.var == loop.stream or (node.kind in ("serial", "parallel") and all(map(check, node.body)))
            case If():
                return is_known(node.condition) and all(map(check, node.body + node.orelse))
        return False

    return loop.stream is not None and check(loop)


def make_places(fn: Function) -> Val:
    """Stack memory of a pipeline that has not begun."""
    places = fn.shared_slot(f"[{SIZE} x i8]", LINE)
    callee = fn.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1 immarg"])
    fn.effect(f"call void {callee}({places}, i8 -1, i64 {SIZE}, i1 false)")
    fn.effect(f"store i64 0, {places}, align 8")
    # The first column finds the place before its own beyond any that it would wait for.
    last = fn.effect_value(f"getelementptr i8, {places}, i64 {LINE * PLACES}", "ptr")
    fn.effect(f"store i64 0, {last}, align 8")
    return places


def begin_columns(fn: Function, stream: str, places: Val) -> Columns:
    """At the beginning of what each thread runs."""
    count, own = fn.alloca("i64", 8), fn.alloca("i64", 8)
    fn.effect(f"store i64 0, {count}, align 8")
    columns = Columns(stream, places, count, own)
    _take_next(fn, columns)
    return columns


def emit_column(state: State, columns: Columns, lower: Val, upper: Val, step: int, run_tile: Callable[[Val], None]) -> None:
    """The loop over the tiles of one column, where there are any and the thread has taken it."""
    fn = state.fn
    _declare_wait(fn.module, state.target)
    with fn.when(fn.compare("icmp slt", lower, upper)):
        number = fn.effect_value(f"load i64, {columns.count}, align 8", "i64")
        fn.effect(f"store {fn.binary('add', number, int_val(1))}, {columns.count}, align 8")
        own = fn.effect_value(f"load i64, {columns.own}, align 8", "i64")
        with fn.when(fn.compare("icmp eq", number, own)):
            before = fn.binary("sub", number, int_val(1))
            ahead, here = _place(fn, columns, before), _place(fn, columns, number)
            far = fn.pure(f"getelementptr i8, {here}, i64 8", "ptr")
            fn.effect(f"store atomic i64 {_LEAST}, {far} release, align 8")
            fn.effect(f"store atomic {number}, {here} release, align 8")

            def run(i: Val) -> None:
                fn.effect(f"call void @polyc.wait({ahead}, {before}, {i})")
                run_tile(i)
                fn.effect(f"store atomic {fn.binary('add', i, int_val(step))}, {far} release, align 8")

            fn.counted_loop(lower, upper, step, run)
            fn.effect(f"call void @polyc.wait({ahead}, {before}, i64 {_MOST - 1})")
            fn.effect(f"store atomic i64 {_MOST}, {far} release, align 8")
            _take_next(fn, columns)


def _place(fn: Function, columns: Columns, number: Val) -> Val:
    turn = fn.binary("and", number, int_val(PLACES - 1))
    offset = fn.binary("add", fn.binary("mul", turn, int_val(LINE)), int_val(LINE))
    return fn.pure(f"getelementptr i8, {columns.places}, {offset}", "ptr")


def _take_next(fn: Function, columns: Columns) -> None:
    taken = fn.effect_value(f"atomicrmw add {columns.places}, i64 1 acq_rel, align 8", "i64")
    fn.effect(f"store {taken}, {columns.own}, align 8")


def _declare_wait(module: Module, target: Machine) -> None:
    """``wait(place, column, value)``: until the column, or a later one in the same place, has left the value behind."""
    pause = ""
    if target.architecture in PAUSES:
        name, types, operands = PAUSES[target.architecture]
        pause = f"call void {module.declare(name, 'void', types)}({operands})"
    module.declare("sched_yield", "i32", [])
    module.extra["polyc.wait"] = f"""
define internal void @polyc.wait(ptr %place, i64 %column, i64 %value) noinline {{
begin:
  br label %look
look:
  %n = phi i64 [ 0, %begin ], [ %n1, %again ], [ 0, %rest ]
  %found = load atomic i64, ptr %place acquire, align 8
  %is_later = icmp sgt i64 %found, %column
  br i1 %is_later, label %done, label %compare
compare:
  %far = getelementptr i8, ptr %place, i64 8
  %left = load atomic i64, ptr %far acquire, align 8
  %is_left = icmp sgt i64 %left, %value
  %is_column = icmp eq i64 %found, %column
  %is_behind = and i1 %is_left, %is_column
  br i1 %is_behind, label %done, label %again
again:
  {pause}
  %n1 = add i64 %n, 1
  %is_long = icmp eq i64 %n1, {target.threads.spins}
  br i1 %is_long, label %rest, label %look
rest:
  %ignored = call i32 @sched_yield()
  br label %look
done:
  ret void
}}"""
