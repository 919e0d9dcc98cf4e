"""What recurrences that end (`polyc.frontends.core.endings`) leave behind their last step.

What only serves its own step (a residual, a norm) stays as it is, unless a statement that is not of the recurrence reads it, or
it chooses elements: a subscript that no step should have had may lie outside.  A reduction is then computed under another name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from polyc.diagnostics import in_notation
from polyc.frontends.core.builder import ProgramBuilder
from polyc.frontends.core.endings import CODE, Ending, find_cycles, find_needs, is_start, looks_up, ranges_of, step_offset
from polyc.ir.expr import (
    Call,
    Cast,
    Expr,
    Index,
    Read,
    Select,
    index_names,
    int_const,
    reads,
    rewrite,
    substitute,
)
from polyc.ir.loaded_bounds import combine_where
from polyc.ir.program import (
    RangeClause,
    Statement,
    Tensor,
    element_names,
    map_statement,
    statement_reads,
)
from polyc.ir.simplify import difference, simplify
from polyc.records import replace


def keep_last_steps(b: ProgramBuilder, returned: Collection[str]) -> tuple[list[Statement], dict[str, Tensor]]:
    """All statements and tensors, with those of recurrences that end as they are then; what is wrong with them is reported."""
    owners = {id(step.statement): (e, step.ahead) for e in b.endings for step in e.steps}
    placed = [(_read_last(s, b), owners.get(id(s))) for s in b.statements]
    tensors = dict(b.tensors)
    statements: list[Statement] = []
    for e in b.endings:
        _check_others(b, e, [s for s, own in placed if own is None or own[0] is not e])
    kept = {id(e): _find_kept(e, placed, returned) for e in b.endings}
    for s, own in placed:
        if own is None:
            statements.append(s)
        else:
            e, ahead = own
            writers = [o for w, o in placed if w.target == s.target]
            has_start = any(o is None for o in writers)
            needs_itself = s.reduction is None and any(r.tensor == s.target for r in reads(s.value))
            is_kept = s.target in kept[id(e)] or (s.reduction is None and (has_start or needs_itself or looks_up(s)))
            if s.reduction is not None and looks_up(s):
                s = _look_nothing_up(b, e, s, ahead)
            statements += _keep(b, tensors, e, s, ahead, has_start, len(writers) == 1) if is_kept else [s]
    needed = {r.tensor for s in statements for r in statement_reads(s)} | set(returned)
    unused = {e.count for e in b.endings} - needed
    return [s for s in statements if s.target not in unused], {n: t for n, t in tensors.items() if n not in unused}


def _read_last(s: Statement, b: ProgramBuilder) -> Statement:
    """``x(hi - 1)`` for ``x(n)``, as nothing changes behind step n: reads of the last step keep no others."""
    for e in b.endings:

        def rule(node: Expr, e: Ending = e) -> Expr | None:
            own = [step.statement for step in e.steps if isinstance(node, Read) and step.statement.target == node.tensor]
            if not isinstance(node, Read) or not own:
                return None
            behind = difference(rewrite(node.subscripts[0], lambda n: _number_of(n, e.count)), Index(e.count))
            if behind is None or behind < e.reach(node.tensor):
                return None
            last = simplify(e.upper + (behind - 1))
            has_last = all(
                any((difference(w.upper + step_offset(s, e.index, 0), last) or 0) > 0 for w in ranges_of(s, e.index))
                for s in own
            )
            return replace(node, subscripts=(last, *node.subscripts[1:])) if has_last else None

        if any(r.tensor == e.count for r in statement_reads(s)):
            s = map_statement(s, lambda expr, rule=rule: rewrite(expr, rule))  # type: ignore[misc]
    return s


def _number_of(node: Expr, count: str) -> Expr | None:
    """The number of the last step as an index, so that what differs from it by a number is seen."""
    match node:
        case Read(name, ()) if name == count:
            return Index(count)
        case Cast(Index(name), _) if name == count:
            return Index(count)
    return None


Placed = Sequence[tuple[Statement, tuple[Ending, int] | None]]


def _find_kept(e: Ending, placed: Placed, returned: Collection[str]) -> set[str]:
    """Versions of which elements behind the end matter: results, what others read, and what chooses elements."""
    found = set(returned)
    for s, own in placed:
        is_inside = s.target == e.flag or (own is not None and own[0] is e)
        found |= {r.tensor for r in (_reads_for_places(s) if is_inside else statement_reads(s))}
    return found


def _reads_for_places(s: Statement) -> Iterator[Read]:
    for e in s.subscripts:
        yield from reads(e)
    for w in s.where:
        if isinstance(w, RangeClause):
            yield from (*reads(w.lower), *reads(w.upper))
    for r in statement_reads(s):
        for e in r.subscripts:
            yield from reads(e)


def _look_nothing_up(b: ProgramBuilder, e: Ending, s: Statement, ahead: int) -> Statement:
    """A reduction that combines its identity behind the end, where a place may be none, as nobody has seen it."""
    if _find_range(b, e, s, ahead) is None:
        return s
    ended = _ask(e, ahead)
    subscripts = (Select(ended, int_const(0), i) if reads(i) else i for i in s.subscripts)
    return combine_where(
        replace(s, subscripts=tuple(subscripts)), Call("not", (ended,), e.span), {t.name: t.dtype for t in b.tensors.values()}
    )


def _ask(e: Ending, ahead: int) -> Read:
    """Whether a recurrence has ended before step ``t + ahead``."""
    return Read(e.flag, (simplify(Index(e.index) + ahead),), e.span)


def _check_others(b: ProgramBuilder, e: Ending, others: Sequence[Statement]) -> None:
    """Report statements that the steps of a recurrence need, and that need them, but are not among these."""
    steps = [step.statement for step in e.steps]
    others = [s for s in others if s.target not in (e.flag, e.count)]
    own = {s.target for s in steps}
    cycles = find_cycles(find_needs([*steps, *others], None))
    ring = own | {v for versions in cycles if not own.isdisjoint(versions) for v in versions}
    for s in others:
        if s.target in ring and not is_start(s, simplify(e.lower + (e.reach(s.target) if s.target in own else 0))):
            name = b.tensors[s.target].base
            message = f"{name} is part of the recurrence over {e.index}, and does not end with it"
            way = f"put this above the until clause, and name its first index {e.index}"
            help = in_notation(e.span, way, f"assign it in the loop: {name}[{e.index}, ...]")
            if not index_names(s.subscripts[0]):
                message = f"{name} starts here at a step before which the recurrence over {e.index} may have ended"
                help = in_notation(e.span, "let the range of the until clause begin there", "let the loop begin there")
            b.reporter.error(CODE, message, s.span, help)


def _keep(
    b: ProgramBuilder,
    tensors: dict[str, Tensor],
    e: Ending,
    s: Statement,
    ahead: int,
    has_start: bool,
    is_alone: bool,
) -> list[Statement]:
    """A statement of a recurrence whose elements behind the end hold those of the last step."""
    clause = _find_range(b, e, s, ahead)
    if clause is None:
        return [s]
    above: list[Statement] = []
    if s.reduction is not None:
        step, s = _copy_reduction(tensors, s, is_alone)
        above.append(step)
    before = (simplify(s.subscripts[0] - 1), *s.subscripts[1:])
    kept = replace(s, value=Select(_ask(e, ahead), Read(s.target, before, s.span), s.value, s.span))
    if has_start:
        return [*above, kept]
    second = simplify(clause.lower + 1)

    def within(t: Statement, **bounds: Expr) -> Statement:
        return replace(t, where=tuple(replace(w, **bounds) if w == clause else w for w in t.where))  # type: ignore[arg-type]

    return [*above, within(s, upper=second), within(kept, lower=second)]


def _find_range(b: ProgramBuilder, e: Ending, s: Statement, ahead: int) -> RangeClause | None:
    """The steps of a statement; None after a report."""
    own = ranges_of(s, e.index)
    name = b.tensors[s.target].base
    if len(own) != 1:
        message = f"{name} keeps its last step, and its range of {e.index} is not known"
        b.reporter.error(CODE, message, s.span, f"give {e.index} a range: where {e.index} in 1:T")
        return None
    low, high = difference(own[0].lower + ahead, e.lower), difference(e.upper + 1, own[0].upper + ahead)
    if low is None or high is None or low < 0 or high < 0:
        message = f"{name} has other steps than the condition that ends the recurrence over {e.index}"
        help = in_notation(e.span, f"give the until clause the range that {name} has", "give the range to the loop")
        b.reporter.error(CODE, message, own[0].span or s.span, help)
        return None
    return own[0]


def _copy_reduction(tensors: dict[str, Tensor], s: Statement, is_alone: bool) -> tuple[Statement, Statement]:
    """A reduction under another name, and the assignment of what it gives to the elements that it has written."""
    count = sum(name.startswith(f"{s.target}.step") for name in tensors)
    version = f"{s.target}.step{count or ''}"
    chosen = any(map(reads, s.subscripts))
    whole = tensors[s.target]
    tensors[version] = replace(whole, name=version, role="temporary", shape=whole.shape if chosen else None)
    assert s.reduction is not None
    names = zip(s.element_names, element_names(version, s.subscripts), strict=True)
    init = substitute(s.reduction.init, {old: Index(new) for old, new in names})
    step = replace(s, target=version, reduction=replace(s.reduction, init=init))
    subscripts = s.subscripts
    is_plain = len({e for e in subscripts[1:] if isinstance(e, Index)}) == len(subscripts) - 1
    if chosen or (is_alone and not is_plain):  # all of the tensor that it makes
        fresh = (Index(f"{s.target}.i{d}") for d in range(1, len(subscripts)))
        subscripts = (subscripts[0], *fresh)
    indices = tuple(dict.fromkeys(i for e in subscripts for i in sorted(index_names(e))))
    ranges = [w for w in s.where if isinstance(w, RangeClause) and w.index in indices and w in ranges_of(s, w.index)]
    where = tuple(w for w in ranges if index_names(w.lower, w.upper) <= set(indices))
    value = Read(version, subscripts, s.span)
    return step, Statement("", s.target, subscripts, indices, value, None, where, s.span)
