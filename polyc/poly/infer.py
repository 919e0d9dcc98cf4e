"""Range inference: the ranges of all indices and the extents of all tensors, from what is read (or every error at once).

The method is that of Tensor Comprehensions (Vasilache et al. 2018, section 5.2) with symbolic sizes: `poly.solve` has the
rounds of one statement, `poly.bounds` proves afterwards that every read stays inside its tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

import islpy

from polyc.diagnostics import Diagnostic, RangeError, UnsupportedError, in_notation, merge_contexts
from polyc.ir.advice import help_start
from polyc.ir.expr import Call, Const, Expr, Index, Size, evaluate, ge, int_const, walk
from polyc.ir.magnitude import check_magnitudes
from polyc.ir.program import Program, Statement, Tensor, find_numbers, find_sizes, integer_parameters
from polyc.ir.read_sites import Bounding, collect_reads, find_bounding, is_data_dependent
from polyc.ir.signature import HostCheck
from polyc.poly import isl
from polyc.poly.bounds import prove_bounds, size_values, statement_domain
from polyc.poly.coverage import check_coverage
from polyc.poly.data_checks import find_computed_bounds, find_data_checks
from polyc.poly.delays import check_delays
from polyc.poly.describe import describe_expr, escape_format, print_expr
from polyc.poly.doubts import find_doubts, name_sizes
from polyc.poly.isl import NotAffine
from polyc.poly.linear import linear_form, scale_form, substitute_solved
from polyc.poly.order import find_open_subscripts, find_recurrences, order_statements
from polyc.poly.ranges import Interval, Ranges, StatementRanges
from polyc.poly.sizes import Bounds, Sizes
from polyc.poly.solve import BadRange, Side, StatementSolution, solve_statement
from polyc.poly.unsolved import help_number, unsolved_error, unstable_error

MAX_ROUNDS = 4
"""Rounds of a program whose recurrences bound each other's indices."""

OPERATIONS_PER_STATEMENT = 500_000
"""Usual statements take a few thousand isl operations; twenty different sizes in one minimum take a hundred thousand."""


@dataclass(eq=False, slots=True)
class _State:
    program: Program
    sizes: Sizes
    tensors: dict[str, tuple[Bounds, ...]] = field(default_factory=dict)
    solutions: dict[str, StatementSolution] = field(default_factory=dict)
    checks: list[HostCheck] = field(default_factory=list)
    errors: list[Diagnostic] = field(default_factory=list)
    unfinished: Counter[str] = field(default_factory=Counter)
    """Statements still to come, by the tensor version they write."""
    kept: dict[str, frozenset[Side]] = field(default_factory=dict)
    """By statement: bounds of reads that follow from its conditions."""
    generic: Callable[[], Program] | None = None
    """Makes the program before sizes became numbers; None where it is this one."""
    generic_kept: dict[str, frozenset[Side]] | None = None
    bounding: dict[str, list[Bounding]] = field(default_factory=dict)
    """How reads bound indices, by statement, where that does not follow from the statement itself."""
    provisional: set[str] = field(default_factory=set)
    """Tensor versions of recurrences whose ranges follow from a part of others."""
    unknown: set[str] = field(default_factory=set)
    """Tensor versions whose ranges an error keeps from being known: their readers report nothing of their own."""


def infer_ranges(program: Program, generic: Callable[[], Program] | None = None) -> Ranges:
    """Program → Ranges; raises RangeError (or UnsupportedError) with all errors of the program.

    `generic` makes the program before its sizes became numbers.  What conditions say of reads is judged by it, so that ranges
    do not depend on which sizes are symbolic."""
    check_magnitudes(program)
    with isl.operation_quota(OPERATIONS_PER_STATEMENT * (1 + len(program.statements)), f"range inference of {program.name}"):
        return _infer(program, generic)


def concrete_shapes(ranges: Ranges, sizes: Mapping[str, int]) -> dict[str, tuple[tuple[int, int], ...]]:
    """(lower, extent) of every dimension of every tensor version; `sizes` has a value for each of `ranges.parameters`."""
    return {
        name: tuple((evaluate(i.lower, sizes), evaluate(i.extent, sizes)) for i in dims)
        for name, dims in ranges.tensors.items()
    }


def _solve(program: Program, generic: Callable[[], Program] | None) -> _State:
    """Ranges of all statements.  Where a part of a tensor bounds an index of one that writes another part (a recurrence without
    ranges), all that is written then has to bound it to the same range: rounds go on until it does."""
    state = _solve_in_order(program, generic, {})
    for _ in range(MAX_ROUNDS):
        provisional = [s for s in state.solutions.values() if s.is_provisional]
        if not provisional or state.errors:
            return state
        again = _solve_in_order(program, generic, state.tensors)
        if again.errors or _intervals_of(again) == _intervals_of(state):
            return again
        state = again
    state.errors += [unstable_error(program, solution) for solution in provisional]
    return state


def _intervals_of(state: _State) -> dict[str, dict[str, Interval]]:
    return {n: {i: _interval(state.sizes, b) for i, b in s.indices.items()} for n, s in state.solutions.items()}


def _solve_in_order(program: Program, generic: Callable[[], Program] | None, whole: Mapping[str, tuple[Bounds, ...]]) -> _State:
    """One round; `whole`: all that the round before found to be written of each tensor."""
    used = find_sizes(program.statements, program.tensors)  # those that are numbers now would only be in isl's way
    names = (*program.sizes, *(name for name, _ in program.defined_sizes))
    state = _State(program, Sizes([n for n in names if n in used]), generic=generic, bounding=_find_bounding(program, generic))
    state.unfinished = Counter(s.target for s in program.statements)
    _assume_sizes(state)
    for tensor in program.tensors:
        if tensor.shape is not None:
            _declare_tensor(state, tensor, tensor.shape)
    _infer_statements(state, order_statements(program), whole)
    return state


def _find_bounding(program: Program, generic: Callable[[], Program] | None) -> dict[str, list[Bounding]]:
    """By statement, where numbers that a call gives are sizes: ranges do not depend on which of them are symbolic."""
    if not integer_parameters(program):
        return {}
    said = program if generic is None else generic()
    numbers = find_numbers(said)
    return {s.name: find_bounding(collect_reads(s), numbers) for s in said.statements}


def _infer_statements(state: _State, statements: list[Statement], whole: Mapping[str, tuple[Bounds, ...]]) -> None:
    """Statements in their order; one of a recurrence that needs the range of what its others write comes after them."""
    recurrences = find_recurrences(state.program)

    def is_ready(s: Statement) -> bool:
        own = recurrences.get(s.target, frozenset())
        return not any(site.read.tensor in state.unfinished and site.read.tensor not in own for site in collect_reads(s))

    while statements:
        left: list[Statement] = []
        for s in statements:
            own = recurrences.get(s.target, frozenset())
            if (left and not is_ready(s)) or not _infer_statement(state, s, whole, own):
                left.append(s)
        if len(left) == len(statements):
            s = next((s for s in left if s.target in state.tensors and find_open_subscripts(s)), left[0])
            left.remove(s)
            _infer_statement(state, s, whole, frozenset(), is_last=True)
        statements = left


def _may_keep(state: _State, statement: str, side: Side) -> bool:
    """Whether the conditions keep a read inside at any sizes, not only at these."""
    if state.generic is None:
        return True
    if state.generic_kept is None:
        state.generic_kept = _solve(state.generic(), None).kept
    return side in state.generic_kept.get(statement, ())


def _infer(program: Program, generic: Callable[[], Program] | None) -> Ranges:
    state = _solve(program, generic)
    parameters = state.sizes.parameters
    solutions = list(state.solutions.values())
    unknown = {name for name in state.unknown if program.tensor(name).shape is None}
    known = {name: bounds for name, bounds in state.tensors.items() if name not in unknown}
    uncovered, conditions = check_coverage(program, solutions, known, state.sizes)
    state.checks += [*conditions, *check_delays(program, solutions, state.sizes)]
    report = prove_bounds(program, solutions, known, state.sizes)
    uncovered += find_computed_bounds(program)
    errors = sorted([*state.errors, *uncovered, *(d for d in report.diagnostics if d.severity == "error")], key=_position)
    if errors:
        only_unsupported = all(d.code.startswith("unsupported-") for d in errors)
        if any(d.code == "range-unwritten" for d in errors):  # by a range that was cut, perhaps
            errors += find_doubts(program, solutions, state.sizes)
        raise (UnsupportedError if only_unsupported else RangeError)(*name_sizes(errors, generic() if generic else program))
    warnings = tuple(d for d in report.diagnostics if d.severity == "warning")
    warnings = merge_contexts((*warnings, *find_doubts(program, solutions, state.sizes)))
    sizes = state.sizes
    statements = {
        s.name: StatementRanges(
            {i: _interval(sizes, b) for i, b in state.solutions[s.name].indices.items()},
            statement_domain(state.solutions[s.name]),
            report.guards.get(s.name, ()),
        )
        for s in program.statements
    }
    tensors = {t.name: _tensor_intervals(state, t) for t in program.tensors if t.name in state.tensors}
    data_checks = find_data_checks(program, solutions, sizes)
    checks = (*state.checks, *report.checks)
    return Ranges(parameters, sizes.context, statements, tensors, checks, warnings, data_checks=data_checks)


def _position(d: Diagnostic) -> tuple[bool, int]:
    return (d.span is None, d.span.start if d.span is not None else 0)


def _interval(sizes: Sizes, bounds: Bounds) -> Interval:
    return Interval(sizes.lower_expr(bounds), sizes.extent_expr(bounds))


def _tensor_intervals(state: _State, tensor: Tensor) -> tuple[Interval, ...]:
    if tensor.shape is not None:
        return tuple(Interval(int_const(0), extent) for extent in tensor.shape)
    return tuple(_interval(state.sizes, b) for b in state.tensors[tensor.name])


def _assume_sizes(state: _State) -> None:
    """Sizes are not negative; nor are defined symbols that are sums, products and the like of sizes."""
    sizes, program = state.sizes, state.program
    known = set(program.sizes)
    for name, expr in program.defined_sizes:
        operators = {node.op for node in walk(expr) if isinstance(node, Call)}
        names = {node.name for node in walk(expr) if isinstance(node, Size)}
        literals = [node for node in walk(expr) if not isinstance(node, (Call, Size))]
        positive = all(getattr(node, "value", -1) >= 0 for node in literals)
        if operators <= {"add", "mul", "max", "min", "floordiv", "mod"} and names <= known and positive:
            known.add(name)
    for name in sizes.parameters:
        if name in known:
            sizes.assume(sizes.value(Size(name)).ge_set(sizes.constant(0)))


def _declare_tensor(state: _State, tensor: Tensor, shape: tuple[Expr, ...]) -> None:
    try:
        state.tensors[tensor.name] = tuple(state.sizes.declared(extent) for extent in shape)
    except NotAffine:
        message = f"an extent of {tensor.base} is no affine function of sizes"
        state.errors.append(Diagnostic("range-not-affine", message, tensor.span, "use sums and differences of sizes"))
        state.unknown.add(tensor.name)
        return
    for bounds in state.tensors[tensor.name]:
        fits = state.sizes.extent_set(bounds, 0)
        if tensor.role in ("input", "accumulated"):
            state.sizes.assume(fits)  # the array that the caller gives has this shape, so no extent is negative


def _infer_statement(
    state: _State, s: Statement, whole: Mapping[str, tuple[Bounds, ...]], own: frozenset[str], is_last: bool = False
) -> bool:
    """The ranges of one statement, or its errors; False where it waits for those of others of its recurrence, `own`, or of
    others that write its tensor (`is_last`: they wait themselves)."""
    program, sizes = state.program, state.sizes
    base = program.tensor(s.target).base
    try:
        is_last = is_last or state.unfinished[s.target] == 1
        solution = _solve_among(state, s, whole, own, state.tensors.get(s.target, ()) if is_last else ())
    except BadRange as bad:
        message = f"the range of {bad.clause.index} is no affine function of sizes and indices"
        help = "bounds are sums and differences of them, times or divided by numbers; choose by other conditions in the value"
        help = help_number(program, bad.clause.lower, bad.clause.upper) or help
        state.errors.append(Diagnostic("range-not-affine", message, bad.clause.span, help))
        state.unknown.add(s.target)
        return True
    unsolved = [i for i in s.indices if i not in solution.indices]
    if unsolved and any(t in own and t not in state.tensors and t not in whole for t in _tensors_read(solution)):
        return False
    if not is_last and any(index.name in unsolved for index in find_open_subscripts(s).values()):
        return False
    state.kept[s.name] = solution.kept
    if solution.is_provisional:
        state.provisional.add(s.target)
    for clause in solution.non_affine:
        message = "this condition on the iteration space is not affine in indices and sizes"
        help = help_number(program, clause.condition) or in_notation(
            clause.span, "select with ?: in the value instead", "select with a if c else b in the value instead"
        )
        state.errors.append(Diagnostic("unsupported-condition", message, clause.span, help))
    if unsolved:
        if state.unknown.isdisjoint(_tensors_read(solution)):
            state.errors += [unsolved_error(program, s, i) for i in unsolved]
        state.unknown.add(s.target)
        return True
    if not _check_extents(state, s, solution):
        state.unknown.add(s.target)
        return True
    state.solutions[s.name] = solution
    known = state.tensors.get(s.target) or _initial_bounds(state, s)
    written: list[Bounds] = []
    for d, sub in enumerate(s.subscripts):
        bounds = None if is_data_dependent(sub) else _written_bounds(sub, solution, sizes)
        is_declared = s.reduction is not None and program.tensor(s.target).shape is not None
        if bounds is None and known and (is_data_dependent(sub) or is_declared):
            bounds = known[d]
        if bounds is None:
            data = is_data_dependent(sub)
            what = "depends on data" if data else "does not follow from its subscript"
            message = f"the extent of dimension {d} of {base} {what}"
            begin = help_start(s.span, base)
            is_result = any(r.version == s.target for r in program.returns)
            help = f"declare {base} among the results with its sizes, or {begin}" if is_result else begin
            help = help_number(program, sub) or help
            state.errors.append(Diagnostic("range-unsolved", message, sub.span or s.span, help))
            state.unknown.add(s.target)
            return True
        written.append(bounds)
    if program.tensor(s.target).shape is not None:
        for d, (bounds, declared) in enumerate(zip(written, state.tensors[s.target], strict=True)):
            _check_declared(state, s, d, bounds, declared)
    elif known is None:
        state.tensors[s.target] = tuple(written)
    else:
        state.tensors[s.target] = tuple(sizes.hull(a, b) for a, b in zip(known, written, strict=True))
    state.unfinished[s.target] -= 1
    if not state.unfinished[s.target]:
        del state.unfinished[s.target]
    for site in solution.sites:
        tensor = site.read.tensor
        if site.place == "init" and tensor not in state.tensors and program.tensor(tensor).role == "accumulated":
            both = Bounds([sizes.constant(0)], [sizes.constant(1)])  # where the parts of complex numbers lie side by side
            extra = program.tensor(tensor).rank - program.tensor(s.target).rank
            state.tensors[tensor] = (*state.tensors[s.target], *(both,) * extra)
    return True


def _tensors_read(solution: StatementSolution) -> set[str]:
    return {site.read.tensor for site in solution.sites}


def _solve_among(
    state: _State,
    s: Statement,
    whole: Mapping[str, tuple[Bounds, ...]],
    own: frozenset[str],
    written: tuple[Bounds, ...],
) -> StatementSolution:
    """The solution of a statement.  What it reads of its recurrence bounds little while ranges there follow from a part of
    others, unless nothing else does: the part that comes first must not bound all.  `written`: what others write of it."""
    partial = state.unfinished.keys()
    tensors = {**state.tensors, **{t: bounds for t, bounds in whole.items() if t in partial}} if whole else state.tensors

    def solve(partial: Set[str]) -> StatementSolution:
        bounding = state.bounding.get(s.name)
        return solve_statement(s, tensors, state.sizes, partial, lambda side: _may_keep(state, s.name, side), written, bounding)

    weak = state.provisional & own
    solution = solve(partial | weak if weak else partial)
    if weak and any(i not in solution.indices for i in s.indices):
        return solve(partial)
    return solution


def _initial_bounds(state: _State, s: Statement) -> tuple[Bounds, ...] | None:
    """The elements of the version that a reduction over a part of the tensor continues from."""
    if s.reduction is None or not s.writes_part:
        return None
    for site in collect_reads(s):
        if site.place == "init" and list(site.read.subscripts) == [Index(n) for n in s.element_names]:
            return state.tensors.get(site.read.tensor)
    return None


def _written_bounds(sub: Expr, solution: StatementSolution, sizes: Sizes) -> Bounds | None:
    """The least and the largest value of a left subscript over the ranges; None where it is not quasi-affine."""
    if isinstance(sub, Index):
        return solution.indices[sub.name]
    try:
        form = linear_form(sub, sizes)
        ends = [substitute_solved(scale_form(form, sign), solution.indices, sizes) for sign in (1, -1)]
    except NotAffine:  # several quotients and remainders, perhaps
        return _written_exactly(sub, solution, sizes)
    if any(len(end) != 1 or end[0].coefficients or end[0].atom is not None for end in ends):
        return None
    return Bounds([ends[0][0].rest], [ends[1][0].rest.neg()])


def _written_exactly(sub: Expr, solution: StatementSolution, sizes: Sizes) -> Bounds | None:
    """The same of a subscript with any quotients and remainders, over the points of the statement."""
    try:
        value = solution.affine.pw_aff(sub)
    except NotAffine:
        return None
    written = islpy.Map.from_pw_aff(value).intersect_domain(statement_domain(solution)).range()
    ends = []
    for end, where_empty in ((written.dim_min(0), 0), (written.dim_max(0), -1)):
        ends.append(end.union_add(sizes.constant(where_empty).intersect_domain(end.domain().complement())))
    return Bounds(ends[:1], ends[1:])


_MAX_EXTENT = 1 << 62


def _check_extents(state: _State, s: Statement, solution: StatementSolution) -> bool:
    """No range may have a negative extent: proved, checked at the call, or (False) an error.

    Between conditions alone (``j in i+1:N`` where there is no ``i``) it is an empty one."""
    sizes, base = state.sizes, state.program.tensor(s.target).base
    for index, bounds in list(solution.indices.items()):
        extent = sizes.extent_expr(bounds)
        if isinstance(extent, Const) and extent.value >= _MAX_EXTENT:
            text = f"the range of index {index} of {base} has {extent.value} values, and an array at most 2**62 elements"
            state.errors.append(Diagnostic("range-too-large", text, s.span, "give a smaller range in the where clause"))
            return False
        fits = sizes.extent_set(bounds, 0)
        if sizes.always(fits):
            continue
        lower, upper = print_expr(sizes.lower_expr(bounds)), print_expr(sizes.upper_expr(bounds))
        text = f"the range of index {index} of {base} is negative: it starts at {lower} and ends before {upper}"
        side = next((side for side in (1, 0) if (index, side) in solution.reached), None)
        if side is not None and sizes.never(fits):  # no point at all: the side that is given stays
            end = bounds.lower if side else bounds.upper
            one = sizes.constant(1)
            solution.indices[index] = Bounds([end], [end.sub(one)]) if side else Bounds([end.add(one)], [end])
            continue
        if sizes.never(fits):
            help_text = "the end of a range may not lie before its start: change the where clause, or the sizes"
            state.errors.append(Diagnostic("range-negative", text, s.span, help_text))
            return False
        condition = ge(sizes.extent_expr(bounds), 0)
        message = escape_format(text) + size_values(state.program, sizes.sizes_in(fits))
        state.checks.append(HostCheck(condition, "range-negative", message, s.span))
        sizes.assume(fits)
    return True


def _check_declared(state: _State, s: Statement, d: int, written: Bounds, declared: Bounds) -> None:
    """A declared shape must be what is computed; a reduction may leave elements, which keep its initial value, and so may a
    statement that writes a part (what no statement writes is found by `coverage`)."""
    sizes, base = state.sizes, state.program.tensor(s.target).base
    if s.reduction is None and s.has_plain_left and len(state.program.writers()[s.target]) == 1:
        fits = written.lower.eq_set(declared.lower).intersect(written.upper.eq_set(declared.upper))
    else:
        fits = written.lower.ge_set(declared.lower).intersect(written.upper.le_set(declared.upper))
    if sizes.always(fits):
        return
    extent = print_expr(sizes.extent_expr(declared))
    lower, upper = print_expr(sizes.lower_expr(written)), print_expr(sizes.upper_expr(written))
    index = describe_expr(s.subscripts[d])
    kind = "index" if isinstance(s.subscripts[d], Index) else "subscript"
    text = f"dimension {d} of {base} is declared as {extent}, but {kind} {index} runs from {lower} to before {upper}"
    help_text = "declare the extent that is computed, or give the index that range in a where clause"
    _, _, callee = base.partition(" of ")
    if callee:  # the copy of an argument, which no user has written
        given = print_expr(sizes.extent_expr(written))
        text = f"dimension {d} of {base} has extent {extent}, and what is given for it has {given} there"
        help_text = f"a size that {callee} names twice is the same in all that it is given: give tensors that agree"
    if sizes.never(fits):
        state.errors.append(Diagnostic("range-declared-shape", text, s.span, help_text))
        return
    message = escape_format(text) + size_values(state.program, sizes.sizes_in(fits))
    state.checks.append(HostCheck(sizes.condition_expr(fits), "range-declared-shape", message, s.span))
    sizes.assume(fits)
