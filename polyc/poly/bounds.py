"""Proofs that every read stays inside its tensor; what depends on sizes or data becomes a check.

For each read and dimension the violating instances are projected on the sizes.  None: proved.  All sizes for which the
read is made at all: an error.  Otherwise a condition on sizes, tested when the kernel is called.  Subscripts that depend on
data are proved by interval arithmetic or guarded in the generated code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import islpy

from polyc.diagnostics import Diagnostic
from polyc.ir.advice import help_continued, help_outside, help_range, help_safe
from polyc.ir.expr import Call, Const, Expr, Index, Read, Size, index_names, le, reads, walk
from polyc.ir.program import Compressed, Program, Statement
from polyc.ir.read_sites import ReadSite, is_data_dependent, join_conditions
from polyc.ir.segments import loaded_clauses, loaded_conditions
from polyc.ir.signature import HostCheck
from polyc.ir.simplify import simplify_int
from polyc.poly import isl
from polyc.poly.describe import describe_expr, escape_format, print_expr
from polyc.poly.intervals import Values
from polyc.poly.isl import Affine, NotAffine
from polyc.poly.linear import Linear, linear_form, scale_form, subscript_inequalities, substitute_solved
from polyc.poly.ranges import GuardedSubscript
from polyc.poly.sizes import Bounds, Sizes
from polyc.poly.solve import StatementSolution
from polyc.records import dataclass


@dataclass(eq=False, slots=True)
class BoundsReport:
    """`guards` by statement name; `diagnostics` are errors, and a warning for every check."""

    checks: list[HostCheck] = field(default_factory=list)
    guards: dict[str, tuple[GuardedSubscript, ...]] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)


@dataclass(frozen=True, eq=False, slots=True)
class _Frame:
    """Where a read is made: the instances of the statement, or the elements of its target for an initial value."""

    statement: StatementSolution
    affine: Affine
    indices: dict[str, Bounds]
    conditions: tuple[islpy.Set, ...]
    live: islpy.Set  # [sizes] -> { : }, the sizes of the context with at least one instance; exact for boxes


def statement_domain(solution: StatementSolution) -> islpy.Set:
    """``[sizes] -> { S[indices] }``, exact: the box of the ranges and the affine conditions."""
    return make_box(solution.affine, solution.indices, solution.conditions)


def make_box(affine: Affine, indices: Mapping[str, Bounds], conditions: Sequence[islpy.Set]) -> islpy.Set:
    domain = islpy.Set.universe(affine.space)
    for name, bounds in indices.items():
        index = affine.pw_aff(Index(name))
        for low in bounds.lowers:
            domain = domain.intersect(index.ge_set(low.insert_domain(affine.space)))
        for up in bounds.uppers:
            domain = domain.intersect(index.le_set(up.insert_domain(affine.space)))
    for condition in conditions:
        domain = domain.intersect(condition)
    return domain


def prove_bounds(
    program: Program, solutions: Sequence[StatementSolution], tensors: Mapping[str, tuple[Bounds, ...]], sizes: Sizes
) -> BoundsReport:
    """Prove, check or refuse every read of the solved statements; `sizes.context` is narrowed by what is checked."""
    report, values = BoundsReport(), Values(program, solutions, sizes)
    for solution in solutions:
        if solution.statement.target not in tensors:
            continue  # its extents are wrong, which is told elsewhere
        _prove_statement(program, solution, tensors, sizes, values, report)
    return report


def _prove_statement(
    program: Program,
    solution: StatementSolution,
    tensors: Mapping[str, tuple[Bounds, ...]],
    sizes: Sizes,
    values: Values,
    report: BoundsReport,
) -> None:
    s = solution.statement
    frames: dict[str, _Frame] = {}
    guarded: dict[tuple[Read, int], list[Expr | None]] = {}
    seen: dict[tuple[Read, int, str], list[set[tuple[Expr, bool]]]] = {}
    for site in solution.sites:
        if site.read.tensor not in tensors:
            continue
        if site.is_padded:
            if site.mode != "value":
                if site.place not in frames:
                    frames[site.place] = make_frame(solution, site.place, tensors[s.target], sizes)
                bounds_of_read = tensors[site.read.tensor]
                for d in _prove_nonempty(program, frames[site.place], site, bounds_of_read, sizes, report):
                    guarded.setdefault((_first_element(site.read, bounds_of_read, sizes), d), []).append(
                        join_conditions(site.conditions)
                    )
            continue
        # An initial value is also read for elements that no instance writes, so its reads are proved for the whole target.
        follows = program.tensor(s.target).shape is None and not s.writes_part
        by_ranges = site.place not in ("init", "bound") or (site.place == "init" and follows)
        for d, bounds in enumerate(tensors[site.read.tensor]):
            if by_ranges and (site.read, d) in solution.implied:
                continue
            # What holds under fewer conditions holds here: a read in an arm needs no guard if the condition made it before.
            settled = seen.setdefault((site.read, d, site.place), [])
            if any(earlier <= set(site.conditions) for earlier in settled):
                continue
            if site.place not in frames:
                frames[site.place] = make_frame(solution, site.place, tensors[s.target], sizes)
            outcome = _prove_subscript(program, frames[site.place], site, d, bounds, sizes, values, report)
            if outcome != "guard":
                settled.append(set(site.conditions))
            else:
                place = site.read.span or s.span
                if site.place == "init":
                    message = f"the initial value of {program.tensor(s.target).base} has a subscript that depends on data"
                    help_text = "read it into a tensor of its own first, and start from that"
                    report.diagnostics.append(Diagnostic("unsupported-init-subscript", message, place, help_text))
                    continue
                if site.place == "bound":
                    base = program.tensor(site.read.tensor).base
                    message = f"only data tells whether {base} has the element that bounds this range"
                    help_text = "bounds of ranges are read at sums and differences of indices, sizes and numbers"
                    report.diagnostics.append(
                        Diagnostic("semantic-read-in-bound", message, site.read.span or s.span, help_text)
                    )
                    continue
                guarded.setdefault((site.read, d), []).append(join_conditions(site.conditions))
    for d, sub in enumerate(s.subscripts):
        if s.target not in tensors or isinstance(sub, Index):
            continue
        if "value" not in frames:
            frames["value"] = make_frame(solution, "value", tensors[s.target], sizes)
        if _form_of(sub, frames["value"], sizes) is None:
            inside = tuple((condition, True) for condition in loaded_conditions(s.where))
            written = ReadSite(Read(s.target, s.subscripts, s.span), inside, "value", False)
            outcome = _prove_subscript(program, frames["value"], written, d, tensors[s.target][d], sizes, values, report)
            if outcome == "guard":
                guarded.setdefault((written.read, d), []).append(join_conditions(inside))
    if guarded:
        report.guards[s.name] = tuple(GuardedSubscript(r, d, _any_of(conditions)) for (r, d), conditions in guarded.items())


def _prove_nonempty(
    program: Program, frame: _Frame, site: ReadSite, dimensions: tuple[Bounds, ...], sizes: Sizes, report: BoundsReport
) -> list[int]:
    """A read that is padded by other elements needs one in every dimension; those where only data tells whether it is made."""
    holding = [frame.affine.may_hold(c, holds) for c, holds in site.conditions]
    conditions = (*frame.conditions, *(where for where, _ in holding))
    depends_on_data = site.place != "init" and not all(is_exact for _, is_exact in holding)
    made = make_box(frame.affine, frame.indices, conditions).params() if conditions else frame.live
    guards: list[int] = []
    for d, bounds in enumerate(dimensions):
        live = made.intersect(sizes.context)
        violated = live.subtract(sizes.extent_set(bounds, 1))
        if violated.is_empty():
            continue
        if depends_on_data:
            guards.append(d)
        else:
            _report_violation(program, frame, site, d, bounds, None, violated, live, sizes, report)
    return guards


def _first_element(read: Read, dimensions: tuple[Bounds, ...], sizes: Sizes) -> Read:
    """The element of the tensor of `read` that is there unless it has none."""
    return Read(read.tensor, tuple(sizes.lower_expr(bounds) for bounds in dimensions), read.span)


def _any_of(conditions: list[Expr | None]) -> Expr | None:
    result: Expr | None = None
    for condition in dict.fromkeys(conditions):
        if condition is None:
            return None
        result = condition if result is None else Call("or", (result, condition))
    return result


def make_frame(solution: StatementSolution, place: str, target: tuple[Bounds, ...], sizes: Sizes) -> _Frame:
    affine, indices, conditions = solution.affine, solution.indices, solution.conditions
    if place == "init":
        left = solution.statement.element_names
        affine = Affine(
            isl.set_space(sizes.parameters, f"init_{solution.statement.name}", left), {i: n for n, i in enumerate(left)}
        )
        indices, conditions = dict(zip(left, target, strict=True)), ()
    needed = set(indices)
    if place == "bound":  # the check at the call reads them for the whole box of what they name
        conditions = ()
        needed = {
            name for clause in loaded_clauses(solution.statement.where) for name in index_names(clause.lower, clause.upper)
        }
    live = sizes.context
    for name, bounds in indices.items():
        live = live.intersect(sizes.extent_set(bounds, 1)) if name in needed else live
    return _Frame(solution, affine, indices, conditions, live)


def _prove_subscript(
    program: Program,
    frame: _Frame,
    site: ReadSite,
    d: int,
    bounds: Bounds,
    sizes: Sizes,
    values: Values,
    report: BoundsReport,
) -> str:
    sub = site.read.subscripts[d]
    form = _form_of(sub, frame, sizes)
    if form is None:
        live = frame.live.intersect(sizes.context)
        possible = live.subtract(_values_inside(values, frame, sub, bounds, sizes))
        if possible.is_empty():
            return "proved"
        if not possible.is_subset(sizes.extent_set(bounds, 1).complement()) or frame.conditions or site.conditions:
            return "guard"
        # Only where the dimension is empty, and there every value is outside: a condition on sizes after all.
        _report_violation(program, frame, site, d, bounds, None, possible, live, sizes, report)
        return "checked"
    affine_conditions: list[islpy.Set] = []
    depends_on_data = False
    for condition, holds in site.conditions:
        where, is_exact = frame.affine.may_hold(condition, holds)
        affine_conditions.append(where)
        depends_on_data |= not is_exact
    if isinstance(form, Linear) and form.atom is None and not affine_conditions and not frame.conditions:
        live = frame.live.intersect(sizes.context)
        violated = live.subtract(_box_condition(form, bounds, frame, sizes))
    else:
        instances = make_box(frame.affine, frame.indices, (*frame.conditions, *affine_conditions)).intersect_params(
            sizes.context
        )
        value = frame.affine.pw_aff(sub) if isinstance(form, Linear) else form
        outside = islpy.Set.empty(frame.affine.space)
        for low in bounds.lowers:
            outside = outside.union(value.lt_set(low.insert_domain(frame.affine.space)))
        for up in bounds.uppers:
            outside = outside.union(value.gt_set(up.insert_domain(frame.affine.space)))
        violated = instances.intersect(outside).params()
        if violated.is_empty():
            return "proved"
        live = instances.params()
    if violated.is_empty():
        return "proved"
    if depends_on_data:
        return "guard"
    linear = form if isinstance(form, Linear) and form.atom is None else None
    _report_violation(program, frame, site, d, bounds, linear, violated, live, sizes, report)
    return "checked"


def _form_of(sub: Expr, frame: _Frame, sizes: Sizes) -> Linear | islpy.PwAff | None:
    """A subscript as a linear form, else as a quasi-affine function of the indices, else (it depends on data) None."""
    if is_data_dependent(sub):
        return None
    try:
        return linear_form(sub, sizes)
    except NotAffine:
        pass
    try:
        return frame.affine.pw_aff(sub)
    except NotAffine:
        return None


def _box_condition(form: Linear, bounds: Bounds, frame: _Frame, sizes: Sizes) -> islpy.Set:
    """Sizes for which a linear subscript is inside over the whole box: its extremes are at corners."""
    result: islpy.Set | None = None
    for inequality in subscript_inequalities(form, bounds):
        for corner in substitute_solved(inequality, frame.indices, sizes):
            inside = corner.rest.ge_set(sizes.constant(0))
            result = inside if result is None else result.intersect(inside)
    assert result is not None
    return result


def _values_inside(values: Values, frame: _Frame, sub: Expr, bounds: Bounds, sizes: Sizes) -> islpy.Set:
    """Sizes for which interval arithmetic shows the subscript inside, whatever the data is."""
    interval = values.subscript(sub, frame.indices)
    if interval.lower is None or interval.upper is None:
        return islpy.Set.empty(sizes.context.get_space())
    return interval.lower.ge_set(bounds.lower).intersect(interval.upper.le_set(bounds.upper))


def _report_violation(
    program: Program,
    frame: _Frame,
    site: ReadSite,
    d: int,
    bounds: Bounds,
    form: Linear | None,
    violated: islpy.Set,
    live: islpy.Set,
    sizes: Sizes,
    report: BoundsReport,
) -> None:
    s = frame.statement.statement
    names = {t.name: t.base for t in program.tensors}
    read = f"{names[site.read.tensor]}({', '.join(describe_expr(e, names) for e in site.read.subscripts)})"
    reach = ""
    if form is not None:
        low, up = (substitute_solved(scale_form(form, f), frame.indices, sizes)[0].rest for f in (1, -1))
        if low.n_piece() + up.n_piece() <= 4:
            reach = f" runs from {print_expr(sizes.expr(low))} to {print_expr(sizes.expr(up.neg()))}"
    used = index_names(site.read.subscripts[d])
    ranges = "; ".join(f"{i} in {_range_text(b, sizes)}" for i, b in frame.indices.items() if i in used)
    sub = describe_expr(site.read.subscripts[d], names)
    text = (
        f"{read}: subscript {sub} of dimension {d}{reach or ' leaves the tensor'}, but must be in {_range_text(bounds, sizes)}"
    )
    row = _find_row(program, site.read, s)
    if row is not None:
        matrix, place = row
        last = print_expr(simplify_int(sizes.upper_expr(bounds) - 1))
        text = f"{('row', 'column')[matrix.axis]} {describe_expr(place)} of {matrix.name} is outside of 0:{last}"
    text += f" (with {ranges})" if ranges else ""
    if row is not None and any(found.message == text for found in report.diagnostics):
        return  # both ends of its entries are read
    span = site.read.subscripts[d].span or site.read.span or s.span
    if live.is_subset(violated) and not sizes.is_bounded(live):
        is_own = names[site.read.tensor] == names[s.target]
        continues = is_own and s.reduction is not None and bool(reads(s.reduction.init))
        help_text = help_continued(s.span) if continues else _help_outside(site.read, d, is_own)
        help_text = help_outside(span, can_pad=False) if row is not None else help_text
        report.diagnostics.append(Diagnostic("range-out-of-bounds", text, span, help_text))
        return
    condition = negate_condition(sizes.condition_expr(violated))
    if not violated.is_subset(sizes.extent_set(bounds, 1).complement()):  # reading an empty tensor is not worth a warning
        warning = f"Required precondition {print_expr(condition)} is checked when the kernel is called: {text}"
        help_text = help_safe(span)
        report.diagnostics.append(Diagnostic("range-precondition", warning, span, help_text, "warning"))
    message = escape_format(text) + size_values(program, sizes.sizes_in(violated))
    report.checks.append(HostCheck(condition, "range-precondition", message, span))
    sizes.assume(violated.complement())


def _find_row(program: Program, read: Read, s: Statement) -> tuple[Compressed, Expr] | None:
    """The matrix and its row (column), where `read` is of an end of its entries."""
    matrix = next((m for m in program.compressed if isinstance(m, Compressed) and m.indptr == read.tensor), None)
    if matrix is None:
        return None
    ends = ((reads(c.lower), reads(c.upper)) for c in loaded_clauses(s.where))
    row = next((lower[0] for lower, upper in ends if read in (*lower, *upper)), None)
    return None if row is None else (matrix, row.subscripts[0])


def _help_outside(read: Read, d: int, is_own: bool) -> str:
    """What to do about a read that leaves its tensor at every size; `is_own`: the statement assigns that tensor."""
    subscript = simplify_int(read.subscripts[d])
    if isinstance(subscript, Const) and subscript.value < 0:
        return "subscripts run from 0: of N elements the last is number N - 1"
    shift = subscript.args[-1] if isinstance(subscript, Call) and subscript.op == "add" else None
    if is_own and not (isinstance(shift, Const) and shift.value > 0):
        start = "a recurrence begins with a statement for its first elements; give the others a range"
        return f"{start}: {help_range(read.span, 'i', '1')}"
    return help_outside(read.span)


def _range_text(bounds: Bounds, sizes: Sizes) -> str:
    return f"{print_expr(sizes.lower_expr(bounds))}:{print_expr(sizes.upper_expr(bounds))}"


_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq", "and": "or", "or": "and"}


def negate_condition(condition: Expr) -> Expr:
    """The negation with `not` pushed inwards; it reads better than isl's disjoint pieces of a complement.

    Of data it stays outside: no comparison with NaN holds, and sums of numbers are not exact."""
    if reads(condition):
        return Call("not", (condition,))
    if isinstance(condition, Call) and condition.op in _NEGATED:
        inner = condition.op in ("and", "or")
        args = tuple(negate_condition(a) for a in condition.args) if inner else condition.args
        return _tighten(Call(_NEGATED[condition.op], args))
    if isinstance(condition, Call) and condition.op == "not":
        return condition.args[0]
    return Call("not", (condition,))


def _tighten(condition: Call) -> Call:
    """``a < b + 1`` as ``a <= b``."""
    match condition:
        case Call("lt", (a, Const() as bound)):
            return le(a, int(bound.value) - 1)
        case Call("lt", (a, Call("add", (b, Const() as bound)))) if int(bound.value) > 0:
            return le(a, simplify_int(b + (int(bound.value) - 1)))
    return condition


def size_values(program: Program, names: list[str]) -> str:
    """`` (N = {N}, M = {M})``: the sizes behind a check, filled in at the call."""
    defined = dict(program.defined_sizes)
    plain: list[str] = []
    for name in names:
        sources = [n.name for n in walk(defined[name]) if isinstance(n, Size)] if name in defined else [name]
        plain += [n for n in sources if n in program.sizes and n not in plain]
    return f" ({', '.join(f'{n} = {{{n}}}' for n in plain)})" if plain else ""
