"""Divisors that vectors of a loop of any length share: taken apart once, before the loop.

Before: ``while i < n - n % 32 { parts of z; … } while i < n - n % 16 { parts of z; … } rest: x / z``. LLVM moves the parts
in front of each loop, but not in front of them all.
After: ``parts of z; while i < n - n % 32 { … } …``, and what follows divides by them as well: the beginning of a row up to a
cache line, then lines of it.  In rows of a few hundred elements the parts are a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from polyc.codegen.emission.context import Context, State
from polyc.codegen.emission.expressions import certain_reads, eval_value
from polyc.codegen.emission.linear import index_names
from polyc.codegen.emission.predicates import eval_predicates
from polyc.codegen.emission.quotients import Parts, emit_parts
from polyc.codegen.emission.vector_loops import constant_trip
from polyc.ir.access import written_in
from polyc.ir.expr import Call, Const, Expr, Read, reads, type_of, walk
from polyc.ir.loops import Loop, Node, Prefetch, Store, Update


def split_divisors(state: State, ctx: Context, loop: Node) -> Mapping[Expr, Parts]:
    """The parts of what a vector loop of unknown length divides by, emitted here."""
    if not isinstance(loop, Loop) or loop.kind != "vector" or loop.is_expanded or constant_trip(loop) is not None:
        return {}
    if ctx.lane is not None or not state.target.has_fma or state.nest.exact_quotients or loop.lanes == 1:
        return {}
    found = [d for d in dict.fromkeys(_divisors(state, loop)) if d not in state.divisors and type_of(d, state.types).is_float]
    if not found or eval_predicates(state, ctx) != (None, None):
        return {}
    return {d: emit_parts(state.fn, state.fn.splat(eval_value(state, ctx, d), loop.lanes)) for d in found}


def drop_written(state: State, node: Node) -> None:
    """Behind `node`: what is divided by elements that it writes is taken apart anew."""
    if state.divisors:
        written = state.nest.memory_of(written_in((node,)))
        state.divisors = {d: parts for d, parts in state.divisors.items() if not any(r.tensor in written for r in reads(d))}


def _divisors(state: State, loop: Loop) -> Iterator[Expr]:
    """What all vectors of a loop divide by, whatever their values are."""
    nodes = [n for n in loop.body if isinstance(n, (Store, Update))]
    if any(not isinstance(n, (Store, Update, Prefetch)) for n in loop.body):
        return
    written = state.nest.memory_of(written_in(loop.body))
    for node in nodes:
        allowed = {r for r in certain_reads(node.value) if r.tensor not in written and _is_there(state, r)}
        for quotient in walk(node.value):
            if isinstance(quotient, Call) and quotient.op == "truediv" and not isinstance(quotient.args[1], Const):
                divisor = quotient.args[1]
                read = set(reads(divisor))
                if read and read <= allowed and loop.var not in index_names(divisor):
                    yield divisor


def _is_there(state: State, read: Read) -> bool:
    """Whether what is read may be read where no iteration runs: an array of the caller may be empty then."""
    return not read.subscripts or state.by_name[read.tensor].space != "argument"
