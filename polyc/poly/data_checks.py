"""What ranges that data bounds ask of the data: checks at the call, in the user's names.

A bound that reads may not leave the range that its index has without it: sizes say what memory there is, and nothing is cut
off silently.  Segments (`ir.segments`) have to lie side by side, so that each element is in one at most; where a statement
assigns their elements they have to cover all of them, which makes it write each element once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polyc.diagnostics import Diagnostic, in_notation
from polyc.ir.expr import Const, Expr, Read, Size, all_hold, index_names, lt, minimum, ne, reads, walk
from polyc.ir.program import Compressed, Condition, Program, RangeClause, Statement
from polyc.ir.segments import FARTHEST, fixed_indices, is_loaded, is_segmented, loaded_clauses, segment_reads, too_large_terms
from polyc.ir.signature import HostCheck
from polyc.ir.simplify import simplify
from polyc.ir.types import U64
from polyc.poly.bounds import negate_condition, size_values
from polyc.poly.describe import describe_expr, escape_format, print_expr
from polyc.poly.ranges import DataCheck, Interval
from polyc.poly.sizes import Sizes
from polyc.poly.solve import StatementSolution
from polyc.records import dataclass

Box = dict[str, Interval]


def find_data_checks(program: Program, solutions: Sequence[StatementSolution], sizes: Sizes) -> tuple[DataCheck, ...]:
    """The checks of all statements, each once, those of one box side by side."""
    found: dict[DataCheck, None] = {}
    for solution in solutions:
        for clause in loaded_clauses(solution.statement.where):
            found.update(dict.fromkeys(_check_clause(program, solution, clause, sizes)))
    boxes = list(dict.fromkeys(check.box for check in found))
    return tuple(sorted(found, key=lambda check: boxes.index(check.box)))


def find_computed_bounds(program: Program) -> Iterator[Diagnostic]:
    """An error where bounds read a tensor that is no argument: nothing could be checked before something is written."""
    for s in program.statements:
        for clause in loaded_clauses(s.where):
            for read in (n for e in (clause.lower, clause.upper) for n in walk(e) if isinstance(n, Read)):
                if program.tensor(read.tensor).role != "input":
                    base = program.tensor(read.tensor).base
                    message = f"the range of {clause.index} is bounded by {base}, which is computed here"
                    help = f"bounds are read from arguments: compute {base} in an operator of its own, and give it to this one"
                    yield Diagnostic("unsupported-computed-bound", message, read.span or clause.span, help)
                    return
                if program.tensor(read.tensor).dtype == U64:
                    message = f"the range of {clause.index} is bounded by {read.tensor}, of type uint64, and indices are int64"
                    help = "declare it int64, and convert the array"
                    yield Diagnostic("type-not-integral", message, read.span or clause.span, help)
                    return


def check_segments(program: Program, solution: StatementSolution, sizes: Sizes) -> tuple[list[Diagnostic], list[HostCheck]]:
    """Whether an assignment with bounds that read writes each element of its tensor once: errors, and conditions on sizes."""
    s = solution.statement
    base = program.tensor(s.target).base
    fixed = fixed_indices(s.subscripts, s.where)
    plain = [c for c in s.where if isinstance(c, Condition) or (isinstance(c, RangeClause) and not _says_box(c))]
    segments = [(c, found) for c in loaded_clauses(s.where) if (found := segment_reads(c)) is not None]
    counted = {along for _, (_, _, along) in segments} - set(s.left_indices)
    is_whole = all(c in [clause for clause, _ in segments] for c in plain) and len(counted) == len(segments)
    if not s.has_plain_left or not is_whole or not set(s.indices) <= fixed:
        message = f"which elements of {base} this statement writes depends on data"
        whole = in_notation(s.span, "+=!", "+=")
        help = f"reduce with {whole} (or another operator): elements that no point reaches hold the starting value"
        return [Diagnostic("range-unwritten", message, s.span, help)], []
    checks: list[HostCheck] = []
    for clause, (_, _, along) in segments:
        bare = sizes.extent_set(solution.indices[clause.index], 1).subtract(sizes.extent_set(solution.indices[along], 1))
        violated = bare.intersect(sizes.context)
        if violated.is_empty():
            continue
        text = f"there are elements of {base}, and no segment that they could be in: {along} has no value"
        if sizes.holds_widely(violated):
            help = f"give {along} a range with values, or reduce with {in_notation(s.span, '+=!', '+=')}"
            return [Diagnostic("range-unwritten", text, s.span, help)], []
        condition = negate_condition(sizes.condition_expr(violated))
        message = escape_format(text) + size_values(program, sizes.sizes_in(violated))
        checks.append(HostCheck(condition, "argument-segments", message, clause.span))
        sizes.assume(violated.complement())
    return [], checks


def _says_box(clause: RangeClause) -> bool:
    """Whether both bounds are over sizes alone."""
    return not index_names(clause.lower, clause.upper) and not is_loaded(clause.lower) and not is_loaded(clause.upper)


@dataclass(frozen=True, slots=True)
class _Clause:
    """A clause, the static range of its index, and the ranges of what its bounds name."""

    clause: RangeClause
    box: Box
    first: Expr
    end: Expr
    names: dict[str, str]
    sizes: str
    """The sizes of the range, for messages."""
    matrix: str = ""
    """The sparse matrix whose entries it runs over."""

    def check(
        self, violated: Expr, shown: Expr, text: str, code: str, help: str, at: tuple[str, Interval] | None = None
    ) -> DataCheck:
        """`text` gets the place behind it; `at`: an index of the box, and another interval for it."""
        box = self.box if at is None else {**self.box, at[0]: at[1]}
        place = ", ".join(f"{name} = {{at{n}}}" for n, name in enumerate(box))
        message = text + (f" (at {place})" if place else "") + self.sizes
        return DataCheck(tuple(box.items()), violated, shown, code, message, help, self.clause.span)

    def tell(self, expr: Expr) -> str:
        return escape_format(describe_expr(expr, self.names))

    @property
    def before(self) -> str:
        return f"{self.tell(self.clause.lower)} is {{value}}, before the beginning of the range {self._range}"

    @property
    def behind(self) -> str:
        return f"{self.tell(self.clause.upper)} is {{value}}, beyond the end of the range {self._range}"

    @property
    def _range(self) -> str:
        entries = f"the entries of {self.matrix}" if self.matrix else self.clause.index
        return escape_format(f"{print_expr(self.first)}:{print_expr(self.end)} of {entries}")

    @property
    def help_matrix(self) -> str:
        return f"{self.matrix}.indptr holds where the entries of each row end: it never decreases, and goes on to their number"

    def uncovered(self, base: str, bound: Expr, limit: Expr, where: str) -> str:
        return f"{base} has elements {where} segment: {self.tell(bound)} is {{value}}, not {escape_format(print_expr(limit))}"


def _check_clause(program: Program, solution: StatementSolution, clause: RangeClause, sizes: Sizes) -> Iterator[DataCheck]:
    named = [n for n in solution.statement.indices if n in index_names(clause.lower, clause.upper)]
    box = {n: Interval(sizes.lower_expr(b), sizes.extent_expr(b)) for n in named for b in (solution.indices[n],)}
    bounds = solution.indices[clause.index]
    first, end = sizes.lower_expr(bounds), sizes.upper_expr(bounds)
    involved = [n.name for e in (first, end) for n in walk(e) if isinstance(n, Size)]
    names = {t.name: t.base for t in program.tensors}
    segments = segment_reads(clause)
    bounding = {r.tensor for e in (clause.lower, clause.upper) for r in reads(e)}
    matrix = next((m.name for m in program.compressed if isinstance(m, Compressed) and m.indptr in bounding), "")
    c = _Clause(clause, box, first, end, names, size_values(program, list(dict.fromkeys(involved))), matrix)
    if segments is not None:
        yield from _check_segments(c, solution.statement, names, segments)
        return
    help = f"give numbers up to {FARTHEST} where a bound calculates with them"
    for violated, shown, read in (found for e in (clause.lower, clause.upper) for found in too_large_terms(e, program.types)):
        text = f"{c.tell(read)} is {{value}}, too large for the bounds of {clause.index}"
        yield c.check(violated, shown, text, "argument-range", help)
    yield from _check_bounds(c)


def _check_bounds(c: _Clause) -> Iterator[DataCheck]:
    """Where the range is not empty, the bounds that read lie inside of the range of the index."""
    lower, upper = c.clause.lower, c.clause.upper
    cut = f"min({describe_expr(upper, c.names)}, {print_expr(c.end)})"
    help = f"give data that stays inside; to leave out what lies behind, write the bound {cut}"
    help = c.help_matrix if c.matrix else help
    for bound, is_outside, text in ((lower, lt(lower, c.first), c.before), (upper, lt(c.end, upper), c.behind)):
        told = simplify(is_outside)
        if is_loaded(bound) or not isinstance(told, Const) or told.value:
            yield c.check(all_hold([lt(lower, upper), is_outside]), bound, text, "argument-range", help)


def _check_segments(c: _Clause, s: Statement, names: dict[str, str], segments: tuple[Read, Read, str]) -> Iterator[DataCheck]:
    """Each segment ends behind its beginning; so the others lie inside of the range if the first begins there and the last one
    ends there.  Where elements of segments are assigned these are its ends."""
    lower, upper = c.clause.lower, c.clause.upper
    tensor, along, code = names[segments[0].tensor], segments[2], "argument-segments"
    help = f"{tensor} holds where segments begin and end: its elements never decrease, and lie in the range of {c.clause.index}"
    help = c.help_matrix if c.matrix else help
    text = f"{tensor} decreases: {c.tell(upper)} is {{value}}, less than {c.tell(lower)}"
    yield c.check(lt(upper, lower), upper, text, code, help)
    interval = c.box[along]
    once = simplify(minimum(interval.extent, 1))
    first, last = Interval(interval.lower, once), Interval(simplify(interval.lower + interval.extent - 1), once)
    yield c.check(lt(lower, c.first), lower, c.before, code, help, (along, first))
    yield c.check(lt(c.end, upper), upper, c.behind, code, help, (along, last))
    if is_segmented(s) and along not in s.left_indices:
        base = names[s.target]
        help = f"segments have to cover all of {base}; to leave elements out reduce with {in_notation(s.span, '+=!', '+=')}"
        help = f"leave out the entries behind the last row: {c.matrix}.prune() of SciPy does" if c.matrix else help
        yield c.check(
            ne(lower, c.first), lower, c.uncovered(base, lower, c.first, "before the first"), code, help, (along, first)
        )
        yield c.check(ne(upper, c.end), upper, c.uncovered(base, upper, c.end, "behind the last"), code, help, (along, last))
