"""Recurrences along an axis in chunks: a chain of programs that go on where the one before ended.

``S[t, i] = f(S[t-1, i], …)`` for the t of one chunk is a program with the state before it as its input ``S₀[i]``: all of its
states are results, and the last ones are inputs of the next program.  The bits are those of the whole recurrence, but where
kernels reassociate a linear one by its length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from polyc.blocks.steps import Part, State, TimeLoop
from polyc.blocks.tensors import copy_tensor, free, read_shifted
from polyc.ir.expr import Expr, Index, Read, Size, int_const
from polyc.ir.program import Program, RangeClause, Return, Statement
from polyc.ir.simplify import simplify
from polyc.poly.frames import upper_end
from polyc.poly.ranges import Interval, Ranges
from polyc.records import replace


def roll_steps(loop: TimeLoop) -> Part:
    """Any number of steps.  Results, at time 0 each, are the states of these steps along dimension `loop.axis`, of the tensors
    that later steps or the rest of the program read."""
    return loop.remember("roll", lambda: _roll(loop))


def step_terms(loop: TimeLoop) -> tuple[Program, Ranges, str]:
    """What the steps compute of inputs alone, as a program without recurrence, and its first result: states that they read are
    inputs of their own.  Chunks of the recurrence are proposed by it."""
    program, taken = loop.program, loop.names()
    before = {v: free(f"{program.tensor(v).base}_read", taken) for v in loop.component.versions}
    made = {v: free(f"{program.tensor(v).base}_terms", taken) for v in loop.component.versions}

    def read(v: str, _: int, others: Sequence[Expr], when: Expr) -> Expr:
        return read_shifted(before[v], _with_time(loop, others, when), loop.ranges.tensors[v])

    statements = [replace(_place(loop, s, None, read), target=made[s.target]) for s in loop.moving]
    tensors = [replace(program.tensor(v), name=name, shape=None, role="output") for v, name in made.items()]
    for v, name in before.items():
        shape = tuple(i.extent for i in loop.ranges.tensors[v])
        tensors.append(replace(program.tensor(v), name=name, base=name, shape=shape, role="input"))
    first = made[loop.moving[0].target]
    found, ranges = loop.finish(statements, tensors, list(before.values()), [Return(first, first)], loop.given)
    return found, ranges, first


def _roll(loop: TimeLoop) -> Part:
    program, taken = loop.program, loop.names()
    start, count = free("step", taken), free("n_steps", taken)
    times = Interval(Size(start), Size(count))
    tensors = [replace(program.tensor(v), shape=None, role="temporary") for v in loop.component.versions]
    statements: list[Statement] = []
    inputs: dict[State, str] = {}
    results: dict[State, str] = {}

    def fill(target: str, v: str, when: Interval, read: Callable[[Sequence[Expr]], Expr]) -> None:
        copied = copy_tensor(target, _with_time(loop, loop.box(v), when), read)
        statements.append(replace(copied, name=free(copied.name, taken)))

    for v, time in loop.before:
        name = inputs[v, time] = free(f"{program.tensor(v).base}_before{-time}", taken)
        tensors.append(loop.input(v, name))
        moment = Interval(simplify(Size(start) + time), int_const(1))
        fill(v, v, moment, partial(_read_state, loop, v, name))
    statements += [_place(loop, s, times, partial(_read_all, loop)) for s in loop.moving]
    for v in sorted({*loop.kept, *loop.depths, *(v for v, _ in loop.needed)}):
        name = results[v, 0] = free(f"{program.tensor(v).base}_steps", taken)
        tensors.append(replace(program.tensor(v), name=name, shape=None, role="output"))
        fill(name, v, times, partial(_read_whole, v))
    returns = [Return(n, n) for n in results.values()]
    made = loop.finish(statements, tensors, list(inputs.values()), returns, loop.given, [start, count])
    return Part(*made, results, inputs, start, count)


def _read_state(loop: TimeLoop, v: str, name: str, places: Sequence[Expr]) -> Expr:
    return loop.read_input(v, name, loop.others(places))


def _read_whole(v: str, places: Sequence[Expr]) -> Expr:
    return Read(v, tuple(places))


def _read_all(loop: TimeLoop, v: str, _: int, others: Sequence[Expr], when: Expr) -> Expr:
    return Read(v, tuple(_with_time(loop, others, when)))


def _place(
    loop: TimeLoop, s: Statement, times: Interval | None, read: Callable[[str, int, Sequence[Expr], Expr], Expr]
) -> Statement:
    """A statement of a step at `times` (None: at all times of the loop)."""
    t = s.subscripts[loop.axis]
    assert isinstance(t, Index)
    if times is None:
        whole, span = loop.ranges.statements[s.name].indices[t.name], loop.spans[s.name]
        lower = simplify(whole.lower + (loop.steps.start - span.start))
        times = Interval(lower, simplify(whole.extent + (len(loop.steps) - len(span))))
    placed = loop.place(s, 0, None, t, s.target, read, set())
    assert placed is not None
    clause = RangeClause(t.name, times.lower, upper_end(times), s.span)
    reduction = placed.reduction
    return replace(
        placed, name=s.name, subscripts=s.subscripts, indices=s.indices, where=(clause, *placed.where), reduction=reduction
    )


T = TypeVar("T")


def _with_time(loop: TimeLoop, others: Sequence[T], when: T) -> list[T]:
    return [*others[: loop.axis], when, *others[loop.axis :]]
