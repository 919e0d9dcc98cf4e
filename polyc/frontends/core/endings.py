"""Recurrences that end where a condition on their data holds: ``until e(t) < eps where t in lo:hi``, and loops that break.

Both notations give a condition over an index, and the statements that step over it.  With them these are written:

    ended(lo) = false
    ended(t + 1) = ended(t) || e(t) < eps where t in lo:hi
    x(t, i) = ended(t) ? x(t - 1, i) : value        instead of  ``x(t, i) = value``
    n +=! ended(t) ? 0 : 1 where t in lo:hi         from lo - 1 on: the step that ended it, or the last one

so that elements behind step n hold what the last step has left.  That makes ``x(n, i)`` the same as ``x(hi - 1, i)``, which
keeps no other steps.  All else is as for any program; `polyc.codegen.nests.finished_steps` leaves out what is behind the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.diagnostics import Span, in_notation
from polyc.frontends.core.builder import Assignment, ProgramBuilder, Target
from polyc.frontends.core.values import Fault, Value
from polyc.ir.components import is_recurrence, reachable
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    Select,
    index_names,
    mentions,
    reads,
)
from polyc.ir.graphs import find_components
from polyc.ir.program import (
    Condition,
    RangeClause,
    Reduction,
    Statement,
    statement_reads,
)
from polyc.ir.simplify import difference, simplify
from polyc.ir.types import BOOL, I64, DType
from polyc.records import dataclass, replace

CODE = "semantic-until"


@dataclass(frozen=True, slots=True)
class Step:
    """A statement of a recurrence over t, which is left out where the recurrence ends before step ``t + ahead``."""

    statement: Statement
    ahead: int


@dataclass(frozen=True, slots=True)
class Ending:
    """Where a recurrence ends: at the first ``lower <= index < upper`` whose condition holds, or at the last one."""

    index: str
    lower: Expr
    upper: Expr
    steps: tuple[Step, ...]
    flag: str
    count: str
    span: Span

    def reach(self, version: str) -> int:
        """By how much the last element of a tensor lies ahead of t, where the condition of t is asked."""
        own = [step for step in self.steps if step.statement.target == version]
        return max(step_offset(step.statement, self.index, 0) - step.ahead for step in own)


def step_offset(s: Statement, index: str, otherwise: int) -> int:
    """c of a left side ``X(t + c, …)``."""
    found = difference(s.subscripts[0], Index(index)) if s.subscripts else None
    return otherwise if found is None else found


def steps_over(s: Statement, index: str) -> bool:
    """Whether the first subscript of a left side is an index, or differs from it by a number."""
    return bool(s.subscripts) and difference(s.subscripts[0], Index(index)) is not None


def ranges_of(s: Statement, index: str) -> list[RangeClause]:
    """The ranges that a statement gives an index, those that data bounds aside."""
    own = [w for w in s.where if isinstance(w, RangeClause) and w.index == index]
    return [w for w in own if not (reads(w.lower) or reads(w.upper))]


def is_start(s: Statement, last: Expr) -> bool:
    """Whether a statement writes nothing behind one step."""
    names = index_names(s.subscripts[0]) if s.subscripts else set()
    if not names:
        apart = difference(s.subscripts[0], last) if s.subscripts else 0
        return apart is not None and apart <= 0
    for name in names:
        ahead = step_offset(s, name, 0)
        ends = [difference(w.upper + ahead, last + 1) for w in ranges_of(s, name)] if steps_over(s, name) else []
        if not any(end is not None and end <= 0 for end in ends):
            return False
    return True


# --- The statements of a recurrence ----------------------------------------------------------------------------------


def find_steps(b: ProgramBuilder, condition: Assignment) -> list[Step]:
    """The statements above a condition that step over its index, need each other, and are needed for it, with those that are
    made of them; all that need each other, where it needs none.  None of their elements behind the step that ends the
    recurrence is computed.  Raises `Fault`."""
    (index,), clause = condition.left, read_range(condition)
    flags = {e.flag for e in b.endings}
    over = [s for s in b.statements if steps_over(s, index) and s.target not in flags and not is_start(s, clause.lower)]
    needs = find_needs(over, index)
    asked = {r.tensor for r in reads(condition.values[0].expr) if r.tensor in needs}
    wanted = asked.union(*(reachable(name, needs) for name in asked))
    every = {v for versions in find_cycles(needs) for v in versions}
    cyclic = every & wanted or every
    taken = {id(step.statement): e for e in b.endings for step in e.steps}
    made = {name for name in needs if name in cyclic or not cyclic.isdisjoint(reachable(name, needs))}
    found = [s for s in over if s.target in made]
    free = [Step(s, step_offset(s, index, 0)) for s in found if id(s) not in taken]
    if found and not free:
        row, _ = taken[id(found[0])].span.line_column()
        message = f"the recurrence over {index} ends already by the until clause in line {row}"
        raise Fault(CODE, message, "give it one clause: until a(t) || b(t)", condition.span)
    turned = next((s for s in b.statements if index in s.left_indices and not steps_over(s, index)), None)
    if not free and turned is not None:
        name = b.tensors[turned.target].base
        message = f"{index} is not the first index of {name}, and so its steps are none that end"
        raise Fault(CODE, message, f"give {name} {index} as its first dimension: {name}({index}, …)", turned.span)
    check_recurrence(free, index, condition.span)
    return free


def check_recurrence(steps: Sequence[Step], index: str, span: Span) -> None:
    """Raise `Fault` where no statement needs what an earlier step has left."""
    if find_cycles(find_needs([step.statement for step in steps], None)):
        return
    message = in_notation(
        span,
        f"the condition is of no recurrence over {index} that stands above",
        f"no round of this loop over {index} needs one before it",
    )
    first = in_notation(
        span,
        f"put it below the recurrence, which has {index} as first index: X({index}, i) = f(X({index} - 1, i))",
        f"a recurrence reads what rounds before have left, as in X[{index}, i] = f(X[{index} - 1, i])",
    )
    raise Fault(CODE, message, f"{first}; the first place where something holds is found with argmax", span)


def find_needs(statements: Sequence[Statement], index: str | None) -> dict[str, set[str]]:
    """By version that statements write, those of them that it is made of; reads without `index`, and without indices
    whose ranges it bounds, are of no step."""
    needs: dict[str, set[str]] = {s.target: set() for s in statements}
    for s in statements:
        ranges = [w for w in s.where if isinstance(w, RangeClause)]
        moving = {index, *(w.index for w in ranges if index and (mentions(w.lower, index) or mentions(w.upper, index)))}
        found = (r for r in statement_reads(s) if index is None or not moving.isdisjoint(index_names(*r.subscripts)))
        needs[s.target].update(r.tensor for r in found if r.tensor in needs)
    return needs


def find_cycles(needs: dict[str, set[str]]) -> list[list[str]]:
    """Versions that need themselves, those together that need each other."""
    components = find_components(list(needs), [(u, v) for v, group in needs.items() for u in group])
    return [versions for versions in components if is_recurrence(versions, needs)]


# --- The condition ---------------------------------------------------------------------------------------------------


def read_range(condition: Assignment) -> RangeClause:
    """The steps for which a condition is asked.  Raises `Fault`."""
    (index,) = condition.left
    own = [w for w in condition.where if isinstance(w, RangeClause) and w.index == index]
    if len(own) != 1 or any(isinstance(w, Condition) for w in condition.where):
        message = f"an until clause has one range, that of its index {index}" if own else f"{index} has no range here"
        help = f"write until e({index}) < eps where {index} in 0:T; other conditions are joined with &&"
        raise Fault(CODE, message, help, condition.span)
    if any(reads(e) or index_names(e) for e in (own[0].lower, own[0].upper)):
        message = "how many steps there are at most depends on data"
        raise Fault(CODE, message, "bound them by sizes and integer parameters", own[0].span)
    return own[0]


def end_recurrence(
    b: ProgramBuilder, condition: Assignment, steps: Sequence[Step], count: Target, dtype: DType, is_weak: bool = False
) -> None:
    """Let a recurrence end where `condition`, a truth value for each step, first holds, and `count` name that step, in `dtype`.

    The steps keep their values when the program is built (`last_steps`).  Raises `Fault`."""
    (index,), (asked,), clause = condition.left, condition.values, read_range(condition)
    lower, upper = clause.lower, clause.upper
    if condition.others:
        name = condition.others[0]
        place = next((n.span for n in asked.nodes if isinstance(n, Index) and n.name == name), None)
        message = f"the condition is one for each {index}, and does not say which {name} it is about"
        way = f"reduce over {name} above: e({index}) max=! …", f"reduce over {name}: max(...), any(...)"
        help = in_notation(condition.span, *way)
        raise Fault(CODE, message, help, place or condition.span)
    version = b.define(count.name, 0, count.span, dtype, is_weak)
    ending = Ending(index, lower, upper, tuple(steps), f"{version}.ended", version, condition.span)
    _check_reads(ending, asked.expr)
    t, span = Index(index, condition.targets[0].span), condition.span
    draft = condition.draft(asked.expr)
    ended = Read(ending.flag, (t,), span)
    asks = Select(ended, Const(False, BOOL), draft.value, span) if looks_up(draft) else draft.value
    left_out = Select(ended, Const(0, dtype), Const(1, dtype), span)
    first = b.notation.convert(Value(simplify(lower - 1), I64), dtype)
    b.add_tensor(ending.flag, BOOL, 1, count.name, span)
    b.add(
        Statement("", ending.flag, (lower,), (), Const(False, BOOL, span), None, (), span),
        replace(draft, target=ending.flag, subscripts=(simplify(t + 1),), value=Call("or", (ended, asks), span)),
        Statement("", version, (), (index,), left_out, Reduction("add", first), (clause,), span),
    )
    b.endings.append(ending)


def _check_reads(e: Ending, asked: Expr) -> None:
    own = {step.statement.target for step in e.steps}
    for read in reads(asked):
        ahead = difference(read.subscripts[0], Index(e.index)) if read.tensor in own else None
        if ahead is not None and ahead > e.reach(read.tensor):
            place = read.span or e.span
            shown = place.source.text[place.start : place.end]
            message = f"{shown} is not there yet where the condition is asked for {e.index}"
            way = "ask for elements of this step or of earlier ones", "ask below the assignment, or for an earlier round"
            raise Fault(CODE, message, in_notation(place, *way), place)


def looks_up(s: Statement) -> bool:
    """Whether a statement touches elements that data chooses."""
    return any(reads(e) for r in statement_reads(s) for e in r.subscripts) or any(map(reads, s.subscripts))
