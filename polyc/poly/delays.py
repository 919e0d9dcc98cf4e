"""Recurrences whose distance is a size: ``c(n) = x(n) + (n >= D ? c(n - D) : 0.0)`` needs its own value where D is 0.

An element that needs itself at most sizes is an error of the program, which the scheduler tells; at some sizes only it is a
condition that is checked at the call, as with what `poly.coverage` finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import islpy

from polyc.ir.expr import Size, walk
from polyc.ir.program import Program
from polyc.ir.read_sites import is_data_dependent
from polyc.ir.signature import HostCheck
from polyc.poly.bounds import negate_condition, size_values, statement_domain
from polyc.poly.coverage import write_relation
from polyc.poly.describe import escape_format
from polyc.poly.domains import has_divs, read_relation
from polyc.poly.isl import NotAffine, set_space
from polyc.poly.order import find_recurrences
from polyc.poly.sizes import Sizes
from polyc.poly.solve import StatementSolution

LONGEST = 3
"""Statements of a circle that is looked for."""
MAX_STATEMENTS = 8
"""Statements of a recurrence in which circles of several are looked for."""


def check_delays(program: Program, solutions: Sequence[StatementSolution], sizes: Sizes) -> list[HostCheck]:
    """Conditions for the call, which narrow `sizes.context`."""
    checks: list[HostCheck] = []
    for versions in dict.fromkeys(find_recurrences(program).values()) if sizes.parameters else ():
        group = [s for s in solutions if s.statement.target in versions]
        if not any(_has_size(s) for s in group):
            continue
        found = [(s, _sizes_at_fault(s, relation, sizes)) for s, relation in _circles(program, group, sizes)]
        if any(not at.is_empty() and (has_divs(at) or sizes.holds_widely(at)) for _, at in found):
            continue
        for solution, at in found:
            if not at.is_disjoint(sizes.context):
                base = program.tensor(solution.statement.target).base
                message = escape_format(f"an element of {base} needs its own value at these sizes")
                message += size_values(program, sizes.sizes_in(at))
                condition = negate_condition(sizes.condition_expr(at))
                checks.append(HostCheck(condition, "range-circular", message, solution.statement.span))
                sizes.assume(at.complement())
    return checks


def _has_size(solution: StatementSolution) -> bool:
    """Whether subscripts of a statement, or of what it reads, depend on sizes."""
    subscripts = [*solution.statement.subscripts, *(sub for site in solution.sites for sub in site.read.subscripts)]
    return any(isinstance(node, Size) for sub in subscripts for node in walk(sub))


def _sizes_at_fault(solution: StatementSolution, relation: islpy.Map, sizes: Sizes) -> islpy.Set:
    """The sizes at which instances need themselves, without those that leave the statement no points."""
    same = relation.intersect(islpy.Map.identity(relation.get_space())).domain()
    live = sizes.context
    for bounds in solution.indices.values():
        live = live.intersect(sizes.extent_set(bounds, 1))
    return same.params().intersect(live).gist_params(live).intersect(sizes.context)


def _circles(program: Program, group: list[StatementSolution], sizes: Sizes) -> Iterator[tuple[StatementSolution, islpy.Map]]:
    """The first statement of every way of reads that comes back to it, and the relation from its instances to those that
    these need along the way."""
    longest = LONGEST if len(group) <= MAX_STATEMENTS else 1
    steps: dict[int, list[tuple[int, islpy.Map]]] = {}
    for n, reader in enumerate(group):
        for m, writer in enumerate(group):
            steps.setdefault(n, []).extend((m, needs) for needs in _needs(program, reader, writer, sizes))

    def extend(path: list[int], relation: islpy.Map) -> Iterator[tuple[StatementSolution, islpy.Map]]:
        for m, needs in steps[path[-1]]:
            made = relation.apply_range(needs)
            if m == path[0]:
                yield group[m], made
            elif len(path) < longest and m > path[0] and m not in path and not made.is_empty():
                yield from extend([*path, m], made)

    for n, solution in enumerate(group):
        domain = statement_domain(solution)
        yield from extend([n], islpy.Map.identity(domain.get_space().map_from_set()).intersect_domain(domain))


def _needs(program: Program, reader: StatementSolution, writer: StatementSolution, sizes: Sizes) -> Iterator[islpy.Map]:
    """``[sizes] -> { R[i] -> W[j] }`` for each read of what the writer writes."""
    target = writer.statement.target
    sites = [site for site in reader.sites if site.read.tensor == target and site.place == "value"]
    sites = [site for site in sites if not any(is_data_dependent(sub) for sub in site.read.subscripts)]
    if not sites:
        return
    space = set_space(sizes.parameters, target, [f"e{d}" for d in range(program.tensor(target).rank)])
    try:
        written = write_relation(writer.affine, statement_domain(writer), writer, space)
        for site in sites:
            read, _ = read_relation(site, statement_domain(reader), list(reader.indices), space)
            yield read.apply_range(written.reverse()).intersect_params(sizes.context)
    except NotAffine:
        return
