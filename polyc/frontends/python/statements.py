"""Assignments of a decorated function to statements and tensor versions."""

from __future__ import annotations

import ast

from polyc.diagnostics import Span, suggest_name
from polyc.frontends.core.builder import Assignment, Target, Version, count_dimensions, reduced_indices
from polyc.frontends.core.values import Fault, Reported, Value, measure_expr
from polyc.frontends.python.element_functions import read_elements
from polyc.frontends.python.expressions import read_expression, read_subscript
from polyc.frontends.python.functions import REDUCERS
from polyc.frontends.python.operators import binary, negate, require_bool
from polyc.frontends.python.scope import Clauses, Retyped, Scope
from polyc.frontends.python.source import make_nesting_error
from polyc.frontends.python.syntax import call_name, find_outer_names, is_reduction
from polyc.frontends.python.values import POISON, common_type, convert, convert_weakly, make_literal
from polyc.ir.expr import Expr, Index, Read, reads, walk
from polyc.ir.program import RangeClause, Where
from polyc.ir.types import BOOL, I64, can_cast, promote_types
from polyc.records import replace

_MONOIDS: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "add", ast.Mult: "mul", ast.BitOr: "or", ast.BitAnd: "and"}


_MAX_DEPTH = 200
"""Levels of a finished expression: everything after the front ends is recursive."""


def read_assignment(node: ast.Assign | ast.AugAssign, clauses: Clauses, scope: Scope) -> None:
    """Add the statements of ``T[i] = e``, ``T[i] += e`` or ``a[i], b[i] = e, f``: first all values are read, then they are
    assigned, as Python does it.  Nothing is assigned after reports."""
    left = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
    lefts = left.elts if isinstance(left, ast.Tuple) else [left]
    augmented = node.op if isinstance(node, ast.AugAssign) else None
    op, value_node, reducer = None, node.value, None
    n_errors = scope.reporter.n_errors
    if augmented is not None:
        op = _MONOIDS.get(type(augmented))
        if op is None:
            help = "use += -= *= |= &=, or write T[i] = T[i] / x"
            scope.report("semantic-statement", "this operator cannot accumulate", node, help)
    elif left is lefts[0] and (reducer := _find_reducer(node.value)) is not None:
        assert isinstance(node.value, ast.Call)
        op, value_node = REDUCERS[reducer], node.value.args[0]
    targets = [read_target(e, scope) for e in lefts]
    scope.target, scope.clauses = next((name for e in lefts if (name := target_name(e)) is not None), None), clauses
    scope.outer_names = find_outer_names([*lefts, value_node], scope)
    values = [read_expression(value_node, scope)] if left is lefts[0] else read_elements(value_node, scope)
    scope.target, scope.outer_names = None, None
    for n, value in enumerate(values):
        if measure_expr(value.expr)[1] > _MAX_DEPTH:
            nesting = make_nesting_error(scope.text.span(value_node))
            scope.report(nesting.code, nesting.message, value_node, nesting.help or "")
            values[n] = POISON
    names = [t.name for t in targets if t is not None]
    if len(values) != len(lefts) and scope.reporter.n_errors == n_errors:
        message = f"{len(lefts)} elements are assigned, and {len(values)} value{'s are' if len(values) != 1 else ' is'} given"
        scope.report("semantic-left-side", message, node, "write as many on both sides, as in a[i], b[i] = x[i], y[i]")
    if len(set(names)) < len(names):
        scope.report("semantic-left-side", "a tensor is assigned twice in one statement", node, "write two statements")
    has_errors = scope.reporter.n_errors > n_errors or any(v is POISON for v in values)
    for e, target, value in zip(lefts, targets, values if not has_errors else [POISON] * len(lefts), strict=True):
        with scope.reporter.catching(scope.text.span(node), is_whole=True):
            if target is not None and value is not POISON:
                value = negate(value, value.expr.span) if isinstance(augmented, ast.Sub) else value
                make_statement(scope.text.span(node), target, op, value, clauses, scope, reducer, augmented)
                continue
        scope.define_unknown(target_name(e))


def target_name(left: ast.expr) -> str | None:
    """The tensor's name in ``T[i]`` or ``s``."""
    match left:
        case ast.Name(name) | ast.Subscript(ast.Name(name)):
            return name
    return None


def _find_reducer(node: ast.expr) -> str | None:
    """The name of the reduction that a whole right side ``max(e)`` is."""
    found = call_name(node.func) if isinstance(node, ast.Call) and is_reduction(node) else None
    return found[1] if found is not None and found[1] in REDUCERS else None


def read_target(left: ast.expr, scope: Scope) -> Target | None:
    """A left side; None after a report."""
    name = target_name(left)
    if name is None:
        scope.report("semantic-left-side", "only T[i, j] or a name can be assigned", left, "assign one tensor per statement")
        return None
    span = scope.text.span(left)
    version = scope.current.get(name)
    if version is not None and version.is_parameter:
        help = "inputs are never changed: give the result a name of its own"
        scope.report("semantic-immutable-input", f"{name} is a parameter and cannot be assigned", left, help)
        return None
    if scope.is_taken(name) or name in scope.used_indices:
        kind = "size" if name in scope.sizes else "compile-time constant" if name in scope.constants else "index"
        scope.report(
            "semantic-already-defined", f"{name} is a {kind} and cannot be assigned", left, "give the tensor another name"
        )
        return None
    parts: list[ast.expr] = []
    if isinstance(left, ast.Subscript):
        parts = left.slice.elts if isinstance(left.slice, ast.Tuple) else [left.slice]
    subscripts: list[Expr] = []
    for part in parts:
        subscript = _read_left_subscript(part, scope)
        if subscript is not None:
            subscripts.append(subscript)
    return Target(name, tuple(subscripts), span) if len(subscripts) == len(parts) else None


def _read_left_subscript(part: ast.expr, scope: Scope) -> Expr | None:
    if isinstance(part, (ast.Slice, ast.Starred)) or (isinstance(part, ast.Constant) and not isinstance(part.value, int)):
        scope.report("semantic-left-side", "slices, ... and None are not subscripts here", part, "write an index: T[i, j]")
        return None
    if isinstance(part, ast.Name) and (part.id in scope.assigned_names or part.id in scope.current):
        version = scope.current.get(part.id)
        if version is None or version.rank != 0:
            help = "left of the assignment stand indices: T[i, j]"
            scope.report("semantic-left-side", f"{part.id} is a tensor here, not an index", part, help)
            return None
    value = read_subscript(part, scope)
    return None if value is None else value.expr


def bound_indices(clause: RangeClause) -> set[str]:
    """The index of a range, and those that its bounds name."""
    return {clause.index, *index_names(clause.lower, clause.upper)}


def make_assignment(targets: list[Target], values: list[Value], op: str, clauses: Clauses, span: Span) -> Assignment:
    """Both sides of a statement, with what the blocks around it say of its indices."""
    left = tuple(dict.fromkeys(name for e in targets[0].subscripts for name in index_names(e)))
    others = reduced_indices(values, left)
    for clause in (c for _ in clauses.loaded for c in clauses.loaded if c.index in left or c.index in others):
        others = tuple(dict.fromkeys((*others, *(n for n in index_names(clause.lower, clause.upper) if n not in left))))
    indices = (*left, *others)
    where: list[Where] = [clauses.ranges[i] for i in indices if i in clauses.ranges]
    where += [c for c in clauses.loaded if bound_indices(c) <= set(indices)]
    where += [c for c in clauses.conditions if set(index_names(c.condition)) <= set(indices)]
    where += [c for c in clauses.entries if set(index_names(c.value)) <= set(indices)]
    return Assignment(tuple(targets), tuple(values), left, others, tuple(where), op, span)


def make_statement(
    span: Span,
    target: Target,
    op: str | None,
    value: Value,
    clauses: Clauses,
    scope: Scope,
    reducer: str | None = None,
    augmented: ast.operator | None = None,
) -> None:
    """Add ``T[i] = e``, reduced with `op`; `augmented` is the operator of ``T[i] += e``, `reducer` the function of ``max(e)``.

    Raises `Fault`, or `Reported`."""
    previous = scope.current.get(target.name)
    if previous is not None and previous.dtype is None and augmented is not None:
        raise Reported  # what it accumulates onto has an error of its own
    assignment = make_assignment([target], [value], "", clauses, span)
    if op is None and assignment.loose:
        _report_reduction_missing(value, assignment, scope)
        raise Reported
    if op is None and any(map(reads, target.subscripts)):
        target = replace(target, subscripts=tuple(map(scope.as_size, target.subscripts)))
        assignment = replace(assignment, targets=(target,))
        if any(map(reads, target.subscripts)):
            message = f"which elements of {target.name} are written depends on data, and two values may meet in one"
            raise Fault("semantic-scatter", message, f"say how they combine: {target.name}[...] += value, or = max(value)")
    draft = assignment.draft(value.expr)
    onto = previous if augmented is not None and not scope.continues_recurrence(target, draft) else None
    joins = onto is None and scope.joins_version(target, draft)
    if not joins:
        _check_own_reads(value, target, previous, augmented, scope)
    if op in ("max", "min") and value.dtype.is_complex:
        raise Fault("type-complex", f"complex numbers have no {op}", f"reduce a part, or the size: {op}(abs(z[i]))")
    if op in ("or", "and"):
        value = _as_logic(value, reducer)
    elif op is not None and value.dtype == BOOL:  # NumPy's sum counts, its max is 'any'
        value, op = (value, "or" if op == "max" else "and") if op in ("max", "min") else (_count(value), op)
    elif reducer in ("sum", "prod"):
        _warn_of_narrow(reducer, value, scope)
    init: Expr | None = None
    if onto is not None and augmented is not None:
        value, init = _accumulate(value, onto, target, augmented, scope)
    elif joins:
        value = _fit_version(value, scope.current[target.name], target)
    else:
        value = _settle_type(value, scope.next_version(target.name), scope)
    scope.add_assignment(draft, target, value, op, init, joins)


def _settle_type(value: Value, version: str, scope: Scope) -> Value:
    """The value in the type that an earlier reading of the function found for the version; raises `Retyped` where there is
    more to find, because a recurrence has read the version before."""
    hint, is_weak = scope.type_hints.get(version, (None, True))
    if version in scope.forward and value.weak and is_weak:  # it was read as the weak integers that forward reads are at first
        number = Value(value.expr, hint or I64, True)
        if (dtype := common_type((number, value))[0]) != number.dtype:
            raise Retyped(version, dtype, True)
    if hint is not None and value.weak:
        return convert_weakly(value, hint) if is_weak else convert(value, hint)
    if version in scope.forward and not value.weak and (is_weak or hint != value.dtype):
        raise Retyped(version, value.dtype if hint is None or is_weak else promote_types(hint, value.dtype))
    return value


def _fit_version(value: Value, previous: Version, target: Target) -> Value:
    """The value in the element type of the version that it joins; raises `Retyped` where that one came from literals only."""
    assert previous.dtype is not None
    if previous.is_weak and (not value.weak or value.dtype != previous.dtype):
        dtype, is_weak = common_type((Value(value.expr, previous.dtype, True), value))
        if is_weak and dtype == previous.dtype:
            return convert_weakly(value, dtype)
        raise Retyped(previous.name, dtype, is_weak)
    needed = previous.dtype if value.weak and value.dtype.kind in "iu" else value.dtype
    if not can_cast(needed, previous.dtype):
        message = f"{target.name} holds {previous.dtype}, and a part of it cannot be {needed}"
        raise Fault("type-accumulate", message, f"cast the value: {target.name}[...] = {previous.dtype}(...)")
    return convert(value, previous.dtype)


def _report_reduction_missing(value: Value, assignment: Assignment, scope: Scope) -> None:
    (target,) = assignment.targets
    indices = (*assignment.left, *assignment.others)
    for name in assignment.loose:
        place = next((n.span for n in walk(value.expr) if isinstance(n, Index) and n.name == name), None)
        written = scope.text.source.text[target.span.start : target.span.end]
        help = f"to sum over {name} write {written} += ..., or {written} = max(...) for another reduction"
        if target.name != written.partition("[")[0].strip():  # what is returned is assigned here
            elements = f"{target.name}[{', '.join(indices)}]"
            help = f"assign it above, {elements} = {written}, and return {target.name}; or reduce over {name}, as sum(...) does"
        message = f"the index {name} is not on the left side, and = does not say how to reduce over it"
        if not any(name in index_names(s) for r in reads(value.expr) for s in r.subscripts):
            message = f"{name} is taken for an index: it is no parameter, assigned name or size"
            known = [*scope.current, *scope.sizes, *scope.constants]
            number = "write np.pi" if name.lower() == "pi" else f"a number is a keyword-only parameter: (..., *, {name}=0.5)"
            help = suggest_name(name, known) or number
        scope.report("semantic-missing-reduction", message, place or target.span, help)


def index_names(*exprs: Expr) -> list[str]:
    """Indices of expressions, as often as they stand in them."""
    return [n.name for expr in exprs for n in walk(expr) if isinstance(n, Index)]


def _count(value: Value) -> Value:
    """Sums and products of booleans count in i64, as NumPy's do."""
    number = value.constant
    return make_literal(int(number), value.expr.span).made_of(value) if number is not None else convert(value, I64)


def _warn_of_narrow(reducer: str, value: Value, scope: Scope) -> None:
    """Warn where NumPy's function of this name would count in 64 bits, and values of 8 or 16 bits soon wrap around."""
    if not value.dtype.is_integer or value.dtype.bits > 16 or value.weak:
        return
    message = f"this {reducer} of {value.dtype} is {value.dtype} and wraps around, where np.{reducer} counts in 64 bits"
    help = f"convert what is reduced: {reducer}({I64}(...)); to keep {value.dtype}, "
    continues = scope.target in scope.current or scope.text.context  # += would add to what is there, as in rounds of a loop
    help += f"cast the result to {value.dtype}" if continues else f"write {'+=' if reducer == 'sum' else '*='}"
    scope.reporter.warn("type-narrow-sum", message, value.expr.span, help)


def _as_logic(value: Value, reducer: str | None) -> Value:
    if reducer is None:
        require_bool(value)
    elif value.dtype != BOOL:  # any and all take the truth of numbers
        value = binary("ne", value, make_literal(0), value.expr.span)
    return value


def _accumulate(value: Value, previous: Version, target: Target, op: ast.operator, scope: Scope) -> tuple[Value, Expr]:
    """The value in the element type of the tensor it accumulates onto, and the read of the previous version.

    As NumPy's ``+=`` the tensor keeps its type, and a value of a higher kind is an error; a tensor assigned from literals
    only has no type yet and takes the value's.
    """
    assert previous.dtype is not None
    if previous.rank != len(target.subscripts):
        message = f"{target.name} has {count_dimensions(previous.rank or 0)} here"
        raise Fault("semantic-rank", message, "accumulate with one index per dimension, or use a new name")
    if isinstance(op, (ast.BitOr, ast.BitAnd)) and previous.dtype != BOOL:
        message = f"{target.name} holds {previous.dtype}, and |= and &= combine booleans"
        raise Fault("type-accumulate", message, "compare with a number first, as in x != 0")
    old = scope.read_previous(target, previous)
    if previous.is_weak:
        dtype, weak = common_type((old, value))
    else:
        dtype, weak = previous.dtype, False
        if value.weak:
            needed, _ = common_type((old, value))
        else:
            needed = promote_types(dtype, value.dtype)
        if not can_cast(needed, dtype):
            message = f"{target.name} holds {dtype}, and cannot accumulate {value.dtype}"
            raise Fault("type-accumulate", message, f"cast one of them: {target.name}[...] += {dtype}(...)")
    if weak:
        return Value(convert(value, dtype).expr, dtype, True), convert(old, dtype).expr
    is_unrounded = dtype.is_storage and not value.weak and value.dtype == dtype.computed  # the sum is rounded, not its terms
    return value if is_unrounded else convert(value, dtype), convert(old, dtype).expr


def _check_own_reads(
    value: Value, target: Target, previous: Version | None, augmented: ast.operator | None, scope: Scope
) -> None:
    """A statement may read its own target at the element it writes (the previous version), not at others."""
    if previous is None or previous.rank != len(target.subscripts):
        return
    bad = [n for n in value.nodes if isinstance(n, Read) and n.tensor == previous.name and n.subscripts != target.subscripts]
    for read in bad:
        message = f"{target.name} is read at another element than the one that is written"
        help = "to read the values from before, use a new name; a recurrence assigns a part: with polyc.where(1 <= i < N)"
        if augmented is not None:
            help = _spell_recurrence(value, target, augmented, scope)
        elif (variable := scope.text.loop_variable) is not None:
            element = f"{target.name}[{variable}, {_written_subscripts(target.span)}]"
            help = f"give each round a place and a range of its own: {element} = ..., which reads what is at {variable} - 1"
        scope.report("unsupported-recurrence", message, read.span or target.span, help)
    if bad:
        raise Reported


def _written_subscripts(span: Span) -> str:
    """What stands in the brackets of a left side."""
    return span.source.text[span.start : span.end].partition("[")[2].rpartition("]")[0]


def _spell_recurrence(value: Value, target: Target, op: ast.operator, scope: Scope) -> str:
    """How ``x[i] -= L[i, j] * x[j]`` is written as a recurrence."""
    text, span = scope.text.source.text, value.expr.span
    written, term = text[target.span.start : target.span.end], "..." if span is None else text[span.start : span.end]
    sign = {ast.Add: "+", ast.Sub: "-"}.get(type(op), "*")
    left = {name for e in target.subscripts for name in index_names(e)}
    if not left.issuperset(value.index_names):
        term = f"{'prod' if sign == '*' else 'sum'}({term})"
    start = f"b{written[len(target.name) :]}"
    return (
        f"a recurrence gives each element in one statement, {written} = {start} {sign} {term}, with the values from before "
        f"in b; to read what {target.name} was before instead, give the result another name"
    )
