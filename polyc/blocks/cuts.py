"""Reductions over chunked axes: partial results for the parts of the axis, and the program that goes on with their total.

A reduction ``T[i] op= f(i, r)`` whose index r moves along the chunks of an input is planned as ``Q[r, i] = f(i, r)``, a result
like any other, so that regions, borders and what cannot be cut are known (`plan`).  In the program of a block Q is then summed
up along r again (`restriction.sum_out`); what remains to be done with the partial results is the monoid's own operator.

What an extremum selects (`selections`) is reduced in the same pass, by the extremum of the block alone, and so are sums of
exponentials under a maximum and products of deviations from a mean (`laws`).  A user's monoid has a result for each of its
components.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from polyc.blocks.chunks import propose_chunks
from polyc.blocks.plan import BlockPlan, Chunks, NotPlanned, plan_cuttable
from polyc.blocks.programs import keep_results, needed_tensors
from polyc.blocks.selections import Combined, find_selections
from polyc.diagnostics import PolycError
from polyc.ir.components import order_components
from polyc.ir.expr import (
    MONOIDS,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Read,
    Select,
    eq,
    evaluate,
    identity_of,
    index_names,
    int_const,
    rewrite,
    substitute,
)
from polyc.ir.program import Program, RangeClause, Reduction, Return, Statement, Tensor, tuple_components
from polyc.ir.program import order_components as order_values
from polyc.ir.read_sites import is_data_dependent
from polyc.ir.simplify import simplify
from polyc.ir.types import DType
from polyc.poly.infer import infer_ranges
from polyc.poly.ranges import Ranges
from polyc.records import replace

Found = tuple[Program, Ranges, Sequence[tuple[Statement, Combined]]]
"""The program with what is reduced beside a statement, which is in it then, and how partial results of that are combined."""
Follow = Callable[[Program, Ranges, Statement, Mapping[str, int]], Found]
"""Finds sums that blocks make with their own result of a statement, with all that is computed of that in their values."""


@dataclass(frozen=True)
class Cut:
    """One reduction that is computed in parts, and what it selects.

    `results` are the names of what is reduced.  `plan` is of partial results, which are `combined` each by its own operator,
    with `n_cut` dimensions more in its chunks and places than in its blocks: the first ones, along which the blocks are
    combined.  `rest` is the program with the totals as its inputs `totals`: one for each of the `combined`, None where it is
    not needed any more.
    """

    results: tuple[str, ...]
    plan: BlockPlan
    n_cut: int
    combined: tuple[Combined, ...]
    rest: Program
    rest_ranges: Ranges
    totals: tuple[str | None, ...]


def find_cut(
    program: Program,
    ranges: Ranges,
    sizes: Mapping[str, int],
    inputs: Mapping[str, Chunks],
    reassociate: bool = True,
    follow: Follow | None = None,
) -> Cut | None:
    """The first reduction with an index that moves, alone, along a dimension of an input that is in several chunks; without
    `reassociate` none whose rounding depends on the order.  `follow` finds sums that go in the pass of another reduction."""
    if not any(len(c) > 1 for chunks in inputs.values() for c in chunks):
        return None
    for component in order_components(program):
        if component.is_recurrence or len(component.statements) != 1:
            continue
        (s,) = component.statements
        if s.reduction is None or s.reduction.op not in (*MONOIDS, "combine"):
            continue
        dtype = program.tensor(s.target).dtype
        if not reassociate and s.reduction.op in ("add", "mul", "combine") and (dtype.is_float or dtype.is_complex):
            continue
        found = _cut_statement(program, ranges, s, sizes, inputs, follow)
        if found is not None:
            return found
    return None


def _cut_statement(
    program: Program,
    ranges: Ranges,
    s: Statement,
    sizes: Mapping[str, int],
    inputs: Mapping[str, Chunks],
    follow: Follow | None,
) -> Cut | None:
    assert s.reduction is not None
    plain = [e.name for e in s.subscripts if isinstance(e, Index)]
    if len(set(plain)) < len(plain) or not all(isinstance(e, Index) or is_data_dependent(e) for e in s.subscripts):
        return None
    own = ranges.statements[s.name].indices
    candidates = [i for i in s.indices if i not in plain and evaluate(own[i].extent, sizes) > 1]
    lowers = [*(own[i].lower for i in candidates), *(i.lower for i in ranges.tensors[s.target])]
    if len(plain) < len(s.subscripts) and any(low != int_const(0) for low in lowers):
        return None  # declared shapes begin at 0 (`_terms`)
    if not candidates or any(evaluate(i.extent, sizes) == 0 for i in ranges.tensors[s.target]):
        return None
    terms, term_ranges, names = _all_terms(program, ranges, [s], candidates)
    if term_ranges is None:
        return None
    shape = [evaluate(i.extent, sizes) for i in term_ranges.tensors[names[0]]]
    try:
        chunks, _ = propose_chunks(terms, term_ranges, sizes, names, shape, inputs, len(candidates))
    except PolycError:
        return None
    kept = [i for i, c in zip(candidates, chunks, strict=False) if len(c) > 1]
    if not kept:
        return None
    chunks = tuple(c for n, c in enumerate(chunks) if n >= len(candidates) or len(c) > 1)
    groups: list[tuple[Program, Ranges, list[Statement], tuple[Combined, ...]]] = []
    if s.reduction.monoid is not None:
        program, ranges, members = _add_components(program, ranges, s)
        own_way = Combined(s.reduction.monoid.name, monoid=s.reduction.monoid)
        groups.append((program, ranges, members, (own_way,) * len(members)))
    else:
        own_way = Combined(s.reduction.op)
        none: Found = program, ranges, []
        selections: Found = program, ranges, find_selections(program, ranges, s)
        for more, more_ranges, found in (none if follow is None else follow(program, ranges, s, sizes), selections):
            if found:
                groups.append((more, more_ranges, [s, *(x for x, _ in found)], (own_way, *(c for _, c in found))))
        groups.append((program, ranges, [s], (own_way,)))
    for own_program, own_ranges, statements, combined in groups:
        terms, term_ranges, names = _all_terms(own_program, own_ranges, statements, kept)
        if term_ranges is None:
            continue
        try:
            is_whole = any(c.law is not None and c.law.needs_whole for c in combined)
            own_chunks = tuple((sum(c),) if is_whole and n >= len(kept) else c for n, c in enumerate(chunks))
            plan, refused, _ = plan_cuttable(terms, term_ranges, sizes, names, own_chunks, len(kept))
            rest, totals = _rest(own_program, own_ranges, statements, combined)
            rest_ranges = infer_ranges(rest)
        except (NotPlanned, PolycError):
            continue
        if all(axis >= len(kept) for axis in refused):
            bases = dict.fromkeys(own_program.tensor(x.target).base for x in statements)
            return Cut(tuple(bases), plan, len(kept), combined, rest, rest_ranges, totals)
    return None


def _add_components(program: Program, ranges: Ranges, s: Statement) -> tuple[Program, Ranges, list[Statement]]:
    """The statements that make all components of a user's monoid, those that the program lacks added to it."""
    assert s.reduction is not None
    assert s.reduction.monoid is not None
    values, members = tuple_components(s), list[Statement]()
    for k, identity in enumerate(s.reduction.monoid.identity):
        alike = replace(
            s,
            target="",
            name="",
            value=Call("tuple", order_values(values, k)),
            reduction=replace(s.reduction, component=k, init=identity),
        )
        known = next((x for x in program.statements if replace(x, target="", name="") == alike), None)
        if known is None:
            target = program.tensor(s.target)
            name = program.free_name(f"{target.base}_{k}")
            known = replace(alike, target=name, name=name)
            tensor = replace(target, name=name, base=name, dtype=identity.dtype, role="temporary")
            program = replace(program, tensors=(*program.tensors, tensor), statements=(*program.statements, known))
            ranges = replace(
                ranges,
                tensors={**ranges.tensors, name: ranges.tensors[s.target]},
                statements={**ranges.statements, name: ranges.statements[s.name]},
            )
        members.append(known)
    return program, ranges, members


def _all_terms(
    program: Program, ranges: Ranges, reductions: Sequence[Statement], cut: Sequence[str]
) -> tuple[Program, Ranges | None, list[str]]:
    """The program whose results are the terms of some reductions over the same points, later ones of earlier ones; their
    names."""
    results: list[str] = []
    terms: dict[str, tuple[str, DType]] = {}  # of a target, and its type

    def read_terms(e: Expr) -> Expr | None:
        if not isinstance(e, Read) or e.tensor not in terms:
            return None
        name, dtype = terms[e.tensor]
        element = Read(name, (*(Index(i) for i in cut), *(rewrite(x, read_terms) for x in e.subscripts)))
        return element if dtype == dtype.computed else Cast(element, dtype)

    for s in reductions:
        program, name = _add_terms(program, ranges, replace(s, value=rewrite(s.value, read_terms)), cut)
        terms[s.target] = name, program.types[s.target]
        results.append(name)
    found = keep_results(program, results)
    try:
        return found, infer_ranges(found), results
    except PolycError:
        return found, None, results


def _add_terms(program: Program, ranges: Ranges, s: Statement, cut: Sequence[str]) -> tuple[Program, str]:
    """The program with one more result: the target with the indices in `cut` as dimensions before its own ones."""
    assert s.reduction is not None
    target = program.tensor(s.target)
    name = program.free_name(f"{target.base}_terms")
    dtype = target.dtype if s.reduction.monoid is not None else target.dtype.computed
    value = s.value if dtype == target.dtype else Cast(s.value, dtype)
    reduction = s.reduction
    if reduction.monoid is None:
        reduction = Reduction(reduction.op, identity_of(reduction.op, dtype))
    own = ranges.statements[s.name].indices
    # Ranges as they were found, as reads alone may say something else where others have bounded an index.
    clauses = [RangeClause(i, own[i].lower, simplify(own[i].lower + own[i].extent), s.span) for i in s.indices]
    kept = [w for w in s.where if not isinstance(w, RangeClause) or w.index not in s.indices or index_names(*w.expressions)]
    subscripts = (*(Index(i) for i in cut), *s.subscripts)
    order = (*cut, *(i for i in s.indices if i not in cut))
    terms = Statement(
        program.free_name(f"{s.name}_terms"),
        name,
        subscripts,
        order,
        value,
        reduction,
        (*clauses, *kept),
        s.span,
    )
    extents = (*(own[i].extent for i in cut), *(i.extent for i in ranges.tensors[s.target]))
    # Elements that data chooses have the range that is declared.
    shape = extents if any(is_data_dependent(e) for e in s.subscripts) else None
    tensor = Tensor(name, dtype, len(subscripts), shape, "output", name, target.span)
    whole = replace(
        program,
        tensors=(*program.tensors, tensor),
        returns=(*program.returns, Return(name, name)),
        statements=(*program.statements, terms),
        rules=(),
    )
    return whole, name


def _rest(
    program: Program, ranges: Ranges, reductions: Sequence[Statement], combined: Sequence[Combined]
) -> tuple[Program, tuple[str | None, ...]]:
    """The program in which the totals of some reductions are inputs, where it still needs them; their names."""
    totals: list[str] = []
    for s, how in zip(reductions, combined, strict=True):
        (leader, *_) = reductions
        is_under_maximum = how.law is not None and leader.reduction is not None and leader.reduction.op == "max"
        program, total = _put_total(program, ranges, s, leader.target if is_under_maximum else None)
        totals.append(total)
    results = list(dict.fromkeys(r.version for r in program.returns))
    needed = needed_tensors(program, results)
    left = tuple(p for p in program.parameters if p not in totals or p in needed)
    program = keep_results(replace(program, parameters=left), results)
    return program, tuple(t if t in needed else None for t in totals)


def _put_total(program: Program, ranges: Ranges, s: Statement, maximum: str | None) -> tuple[Program, str]:
    """The program in which the total of a reduction is an input: its target, once the initial value is in it.

    Sums of exponentials under a `maximum` of -inf are NaN, as they would be if they were computed by it."""
    assert s.reduction is not None
    target, box = program.tensor(s.target), ranges.tensors[s.target]
    total = program.free_name(f"{target.base}_total")
    taken = {*program.sizes, *(n for n, _ in program.defined_sizes), *(t.name for t in program.tensors)}
    names: list[str] = []
    for d in range(target.rank):
        names.append(next(n for k in count() if (n := f"e{d}{'_' * k}") not in taken))
    places: list[Expr] = [Index(n) for n in names]
    dtype = target.dtype if s.reduction.monoid is not None else target.dtype.computed
    read: Expr = Read(total, tuple(simplify(p - i.lower) for p, i in zip(places, box, strict=True)))
    init = substitute(s.reduction.init, dict(zip(s.element_names, places, strict=True)))
    if s.reduction.monoid is None and init != identity_of(s.reduction.op, target.dtype):
        started = init if dtype == target.dtype else Cast(init, dtype)
        read = Call(s.reduction.op, (started, read))
    value = read if dtype == target.dtype else Cast(read, target.dtype)
    if maximum is not None:
        m = Read(maximum, tuple(places[: program.tensor(maximum).rank]))
        never = eq(m, Const(float("-inf"), program.types[maximum]))
        value = Select(never, Const(float("nan"), target.dtype), value)
    clauses = [RangeClause(n, i.lower, simplify(i.lower + i.extent), s.span) for n, i in zip(names, box, strict=True)]
    finished = replace(s, subscripts=tuple(places), indices=tuple(names), value=value, reduction=None, where=tuple(clauses))
    tensor = Tensor(total, dtype, target.rank, tuple(i.extent for i in box), "input", total, target.span)
    whole = replace(
        program,
        tensors=(*program.tensors, tensor),
        parameters=(*program.parameters, total),
        statements=tuple(finished if x.name == s.name else x for x in program.statements),
        rules=(),
    )
    return whole, total
