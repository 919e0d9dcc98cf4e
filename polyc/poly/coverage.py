"""Which elements of a tensor version its statements define: each exactly once, found exactly, with an example where not.

Every writer has a region (`ir.program`): the elements of its points for an assignment, of the whole box of its indices for a
reduction, the whole version for a reduction that writes it alone.  What is missing, or there twice, for all large sizes is an
error; what happens at some sizes only (``O(0)`` and ``O(N-1)`` at ``N = 1``) is a condition that is checked at the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import islpy

from polyc.diagnostics import Diagnostic, Span, in_notation
from polyc.ir.advice import help_joined, help_range, help_repeated, help_twice, help_unwritten
from polyc.ir.expr import Index, index_names
from polyc.ir.factors import number_help, statement_factors, with_definitions
from polyc.ir.program import Condition, Program, Statement
from polyc.ir.read_sites import own_distances
from polyc.ir.segments import loaded_clauses
from polyc.ir.signature import HostCheck
from polyc.poly import isl
from polyc.poly.bounds import make_box, make_frame, negate_condition, size_values, statement_domain
from polyc.poly.data_checks import check_segments
from polyc.poly.describe import escape_format
from polyc.poly.domains import touched_elements
from polyc.poly.isl import Affine, NotAffine
from polyc.poly.sizes import Bounds, Sizes
from polyc.poly.solve import StatementSolution


@dataclass(eq=False, slots=True)
class _Report:
    program: Program
    solutions: Sequence[StatementSolution]
    tensors: Mapping[str, tuple[Bounds, ...]]
    sizes: Sizes
    errors: list[Diagnostic]
    checks: list[HostCheck]


def check_coverage(
    program: Program, solutions: Sequence[StatementSolution], tensors: Mapping[str, tuple[Bounds, ...]], sizes: Sizes
) -> tuple[list[Diagnostic], list[HostCheck]]:
    """Errors, and conditions for the call (which narrow `sizes.context`)."""
    report = _Report(program, solutions, tensors, sizes, [], [])
    writers: dict[str, list[StatementSolution]] = {}
    for solution in solutions:
        writers.setdefault(solution.statement.target, []).append(solution)
    complete = {version: len(statements) for version, statements in program.writers().items()}
    for version, group in writers.items():
        if version in tensors and len(group) == complete[version]:
            _check_version(version, group, tensors[version], report)
    return report.errors, report.checks


def _check_version(version: str, group: list[StatementSolution], bounds: tuple[Bounds, ...], report: _Report) -> None:
    is_alone = len(group) == 1
    first = group[0]
    if any(s.statement.reduction is None and any(loaded_clauses(s.statement.where)) for s in group):
        _check_loaded(group, report)
        return
    if is_alone and first.statement.has_plain_left and (first.is_box or first.statement.reduction is not None):
        return  # the version is the box of these indices, or the reduction gives the rest its initial value
    names = [f"e{d}" for d in range(len(bounds))]
    space = isl.set_space(report.sizes.parameters, version, names)
    covered: islpy.Set | None = None
    base = report.program.tensor(version).base
    for solution in group:
        s = solution.statement
        if is_alone and s.reduction is not None:
            return
        domain = statement_domain(solution) if s.reduction is None else make_box(solution.affine, solution.indices, ())
        try:
            write = write_relation(solution.affine, domain, solution, space)
        except NotAffine:
            factors = sorted(with_definitions(report.program, statement_factors(s)))
            message = f"which elements of {base} this statement writes depends on {'sizes' if factors else 'data'}"
            help = "reduce with {} (or another operator) in a tensor that no other statement writes"
            help = help.format(in_notation(s.span, "+=!", "+="))
            help = number_help(factors) if factors else help
            report.errors.append(Diagnostic("range-written-twice", message, s.span, help))
            return
        region = write.range().intersect_params(report.sizes.context)
        if s.reduction is None:
            pairs = write.apply_range(write.reverse())
            repeated = pairs.subtract(islpy.Map.identity(pairs.get_space())).domain().apply(write)
            what = "is written by several points of this statement"
            _report(repeated, what, "range-written-twice", help_repeated(s.span), s.span, report)
        if covered is not None:
            twice = covered.intersect(region)
            _report(
                twice,
                "is written by this statement and by one above",
                "range-written-twice",
                help_joined(s.span) if s.reduction is not None and own_distances(s) else help_twice(s.span),
                s.span,
                report,
            )
        covered = region if covered is None else covered.union(region).coalesce()
    assert covered is not None
    whole = islpy.Set.universe(space)
    element = Affine(space, {n: d for d, n in enumerate(names)})
    for name, b in zip(names, bounds, strict=True):
        x = element.pw_aff(Index(name))
        whole = whole.intersect(x.ge_set(b.lower.insert_domain(space))).intersect(x.le_set(b.upper.insert_domain(space)))
    unwritten = whole.subtract(covered)
    what, last = "is never written", group[-1].statement.span
    help = help_unwritten(last)
    if is_alone and first.statement.reduction is None and first.statement.has_plain_left:
        alone = [c for c in _conditions(first.statement) if len(c) == 1]
        help = f"give the index a range instead: {help_range(last, min(alone[0]))}" if alone else help
    if report.program.tensor(version).role == "temporary" and not unwritten.is_empty():
        readers = [(name, unwritten.intersect(read)) for name, read in _read_elements(version, space, bounds, report)]
        unwritten = reduce(islpy.Set.union, (read for _, read in readers), islpy.Set.empty(space))
        named = next((name for name, read in readers if name != base and not read.is_empty()), None)
        if named is not None:
            what += f", but {named} reads it"
            help += f"; or restrict the indices of {named}"
    _report(unwritten, what, "range-unwritten", help, last, report)


def _check_loaded(group: list[StatementSolution], report: _Report) -> None:
    """A version of which a statement assigns elements that data chooses: segments that are all of it, or an error."""
    program = report.program
    for solution in group:
        s = solution.statement
        if s.reduction is not None or not any(loaded_clauses(s.where)):
            continue
        if len(group) > 1:
            message = f"which elements of {program.tensor(s.target).base} this statement writes depends on data"
            help = "other statements write this tensor as well: assign one of its own so, and copy its elements here"
            report.errors.append(Diagnostic("range-unwritten", message, s.span, help))
            return
        errors, checks = check_segments(program, solution, report.sizes)
        report.errors += errors
        report.checks += checks


def _conditions(s: Statement) -> list[set[str]]:
    """The indices of each condition of a statement."""
    return [index_names(clause.condition) for clause in s.where if isinstance(clause, Condition)]


def _read_elements(
    version: str, space: islpy.Space, bounds: tuple[Bounds, ...], report: _Report
) -> Iterator[tuple[str, islpy.Set]]:
    """The elements of a version that statements read, or more, and the tensors that these write: of what nobody sees nothing
    needs to be written."""
    for solution in report.solutions:
        reader = report.program.tensor(solution.statement.target).base
        for site in solution.sites:
            if site.read.tensor != version or site.place == "exists":
                continue
            if site.is_padded and site.mode != "value":
                yield reader, islpy.Set.universe(space)
                return
            target = report.tensors.get(solution.statement.target, bounds)
            frame = make_frame(solution, site.place, target, report.sizes)
            points = make_box(frame.affine, frame.indices, frame.conditions).intersect_params(report.sizes.context)
            yield reader, touched_elements(site, points, list(frame.indices), space)[0]


def write_relation(affine: Affine, domain: islpy.Set, solution: StatementSolution, space: islpy.Space) -> islpy.Map:
    """``[sizes] -> { S[i] -> T[e] }``; raises `NotAffine` for subscripts that depend on data."""
    multi = islpy.MultiPwAff.zero(affine.space.map_from_domain_and_range(space))
    for d, subscript in enumerate(solution.statement.subscripts):
        multi = multi.set_pw_aff(d, affine.pw_aff(subscript))
    return islpy.Map.from_multi_pw_aff(multi).intersect_domain(domain)


def _report(bad: islpy.Set, what: str, code: str, help: str, span: Span | None, report: _Report) -> None:
    sizes = report.sizes
    bad = bad.intersect_params(sizes.context)
    if bad.is_empty():
        return
    base = report.program.tensor(str(bad.get_tuple_name())).base
    violated = bad.params()
    if sizes.holds_widely(violated):
        report.errors.append(Diagnostic(code, f"{_describe_element(bad, base, sizes)} {what}", span, help))
        return
    condition = negate_condition(sizes.condition_expr(violated))
    message = escape_format(f"an element of {base} {what} at these sizes") + size_values(
        report.program, sizes.sizes_in(violated)
    )
    report.checks.append(HostCheck(condition, code, message, span))
    sizes.assume(violated.complement())


def _describe_element(elements: islpy.Set, base: str, sizes: Sizes) -> str:
    """``O(3)``, and the sizes of the example where they are not fixed."""
    n_sizes, rank = elements.dim(islpy.dim_type.param), elements.dim(islpy.dim_type.set)
    told = elements.gist_params(sizes.context)
    involved = [p for p in range(n_sizes) if told.involves_dims(islpy.dim_type.param, p, 1)]
    # A point does not tell its parameters: they become coordinates.
    point = elements.move_dims(islpy.dim_type.set, rank, islpy.dim_type.param, 0, n_sizes).sample_point()
    place = [_coordinate(point, d) for d in range(rank)]
    given = [f"{elements.get_dim_name(islpy.dim_type.param, p)} = {_coordinate(point, rank + p)}" for p in involved]
    text = f"{base}({', '.join(map(str, place))})" if place else base
    return text + (f" (for {', '.join(given)})" if given else "")


def _coordinate(point: islpy.Point, position: int) -> int:
    return int(point.get_coordinate_val(islpy.dim_type.set, position).to_python())
