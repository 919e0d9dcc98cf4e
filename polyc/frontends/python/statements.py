"""Assignments of a decorated function to statements and tensor versions."""

from __future__ import annotations

import ast

from polyc.diagnostics import Diagnostic, Span, suggest_name
from polyc.frontends.python.attributes import count_dimensions
from polyc.frontends.python.element_functions import read_elements
from polyc.frontends.python.expressions import help_subscript, inline_numbers, read_expression
from polyc.frontends.python.functions import REDUCERS
from polyc.frontends.python.operators import binary, negate, require_bool
from polyc.frontends.python.scope import Clauses, Retyped, Scope, Version
from polyc.frontends.python.source import make_nesting_error
from polyc.frontends.python.syntax import call_name, find_outer_names
from polyc.frontends.python.values import (
    POISON,
    Fault,
    Value,
    common_type,
    convert,
    convert_weakly,
    make_literal,
    require_integer,
)
from polyc.ir.expr import Expr, Index, Pad, Read, children, identity_of, reads, walk
from polyc.ir.program import Condition, RangeClause, Reduction, Statement, Tensor, Where, element_names
from polyc.ir.read_sites import keep_reads
from polyc.ir.types import BOOL, I64, DType, can_cast, promote_types
from polyc.records import dataclass, replace

_MONOIDS: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "add", ast.Mult: "mul", ast.BitOr: "or", ast.BitAnd: "and"}


_MAX_DEPTH = 200
"""Levels of a finished expression: everything after the front ends is recursive."""


@dataclass(frozen=True, slots=True)
class Target:
    """The left side ``T[i, 2 * j]`` (or ``s``): the tensor's name, and i64 expressions."""

    name: str
    subscripts: tuple[Expr, ...]
    span: Span


def read_assignment(node: ast.Assign | ast.AugAssign, left: ast.expr, clauses: Clauses, scope: Scope) -> list[Statement]:
    """The statement of ``T[i] = e`` or ``T[i] += e``; none after reports.  Adds the new version of T to the scope."""
    target = read_target(left, scope)
    op = _MONOIDS.get(type(node.op)) if isinstance(node, ast.AugAssign) else None
    if isinstance(node, ast.AugAssign) and op is None:
        scope.report(
            "semantic-statement", "this operator cannot accumulate", node, "use += -= *= |= &=, or write T[i] = T[i] / x"
        )
    value_node, reducer = node.value, None
    if isinstance(node, ast.Assign) and (reducer := _find_reducer(node.value)) is not None:
        assert isinstance(node.value, ast.Call)
        op, value_node = REDUCERS[reducer], node.value.args[0]
    scope.target, scope.clauses = target_name(left), clauses
    scope.outer_names = find_outer_names([left, value_node], scope)
    value = read_expression(value_node, scope)
    scope.target, scope.outer_names = None, None
    if _measure_depth(value.expr) > _MAX_DEPTH:
        nesting = make_nesting_error(scope.text.span(value_node))
        scope.report(nesting.code, nesting.message, value_node, nesting.help or "")
        value = POISON
    statement = None
    if target is not None and value is not POISON and not (isinstance(node, ast.AugAssign) and op is None):
        try:
            statement = make_statement(node, target, op, reducer, value, clauses, scope)
        except Fault as fault:
            scope.report(fault.code, fault.message, node, fault.help)
    if statement is None and (name := target_name(left)) is not None and not _is_taken(name, scope):
        scope.tensors[name] = Version(name, None, None)
    return [statement] if statement is not None else []


def read_assignments(node: ast.Assign, lefts: list[ast.expr], clauses: Clauses, scope: Scope) -> list[Statement]:
    """The statements of ``a[i], b[i] = e, f``, or of a function of elements that returns several: first all values, then the
    assignments, as Python does it."""
    scope.clauses = clauses
    scope.target = next((name for left in lefts if (name := target_name(left)) is not None), None)
    scope.outer_names = find_outer_names([*lefts, node.value], scope)
    n_errors = len(scope.errors)
    values = read_elements(node.value, scope)
    scope.target, scope.outer_names = None, None
    statements: list[Statement] = []
    if len(values) != len(lefts) and len(scope.errors) == n_errors:
        message = f"{len(lefts)} elements are assigned, and {len(values)} value{'s are' if len(values) != 1 else ' is'} given"
        scope.report("semantic-left-side", message, node, "write as many on both sides, as in a[i], b[i] = x[i], y[i]")
    targets = [read_target(left, scope) for left in lefts]
    names = [t.name for t in targets if t is not None]
    if len(set(names)) < len(names):
        scope.report("semantic-left-side", "a tensor is assigned twice in one statement", node, "write two statements")
    for left, target, value in zip(lefts, targets, values, strict=len(scope.errors) == n_errors):
        statement = None
        if target is not None and value is not POISON and len(scope.errors) == n_errors:
            try:
                statement = make_statement(node, target, None, None, value, clauses, scope)
            except Fault as fault:
                scope.report(fault.code, fault.message, node, fault.help)
        statements += [statement] if statement is not None else []
        if statement is None and (name := target_name(left)) is not None and not _is_taken(name, scope):
            scope.tensors[name] = Version(name, None, None)
    if len(scope.errors) > n_errors:
        for left in lefts:
            if (name := target_name(left)) is not None and not _is_taken(name, scope) and name not in scope.tensors:
                scope.tensors[name] = Version(name, None, None)
    return statements


def _measure_depth(expr: Expr) -> int:
    level, depth = [expr], 0
    while level:
        level = [child for node in level for child in children(node)]
        depth += 1
    return depth


def target_name(left: ast.expr) -> str | None:
    """The tensor's name in ``T[i]`` or ``s``."""
    match left:
        case ast.Name(name) | ast.Subscript(ast.Name(name)):
            return name
    return None


def _is_taken(name: str, scope: Scope) -> bool:
    version = scope.tensors.get(name)
    return name in scope.sizes or name in scope.constants or (version is not None and version.is_parameter)


def _find_reducer(node: ast.expr) -> str | None:
    """The name of the reduction that a whole right side ``max(e)`` is."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.Starred):
        found = call_name(node.func)
        if found is not None and found[1] in REDUCERS:
            return found[1]
    return None


def read_target(left: ast.expr, scope: Scope) -> Target | None:
    """A left side; None after a report."""
    name = target_name(left)
    if name is None:
        scope.report("semantic-left-side", "only T[i, j] or a name can be assigned", left, "assign one tensor per statement")
        return None
    span = scope.text.span(left)
    version = scope.tensors.get(name)
    if version is not None and version.is_parameter:
        help = "inputs are never changed: give the result a name of its own"
        scope.report("semantic-immutable-input", f"{name} is a parameter and cannot be assigned", left, help)
        return None
    if _is_taken(name, scope) or name in scope.used_indices:
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
    if isinstance(part, ast.Name) and (part.id in scope.assigned_names or part.id in scope.tensors):
        version = scope.tensors.get(part.id)
        if version is None or version.rank != 0:
            help = "left of the assignment stand indices: T[i, j]"
            scope.report("semantic-left-side", f"{part.id} is a tensor here, not an index", part, help)
            return None
    value = read_expression(part, scope)
    if value is POISON:
        return None
    try:
        return inline_numbers(require_integer(value, "a subscript"), scope)
    except Fault as fault:
        scope.report(fault.code, fault.message, part, help_subscript(part, fault))
        return None


def make_statement(
    node: ast.Assign | ast.AugAssign,
    target: Target,
    op: str | None,
    reducer: str | None,
    value: Value,
    clauses: Clauses,
    scope: Scope,
) -> Statement | None:
    previous = scope.tensors.get(target.name)
    if previous is not None and previous.dtype is None and isinstance(node, ast.AugAssign):
        return None  # what it accumulates onto has an error of its own
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Sub):
        value = negate(value, value.expr.span)
    left = tuple(dict.fromkeys(name for e in target.subscripts for name in index_names(e)))
    indices = tuple(dict.fromkeys((*left, *value.index_names)))
    if op is None and len(indices) > len(left):
        _report_reduction_missing(value, left, indices, target, scope)
        return None
    _check_scatter(op, target)
    where: list[Where] = [clauses.ranges[i].as_range() for i in indices if i in clauses.ranges]
    where += [c for c in clauses.conditions if set(index_names(c.condition)) <= set(indices)]
    draft = Statement("", "", target.subscripts, indices, value.expr, None, tuple(where), scope.text.span(node))
    draft = keep_reads(draft, value.unread)
    accumulates = isinstance(node, ast.AugAssign) and previous is not None
    joins = not accumulates and _joins_version(previous, draft, target.name, scope)
    if not joins and not _check_own_reads(value, target, previous, scope):
        return None
    if op in ("max", "min") and value.dtype.is_complex:
        raise Fault("type-complex", f"complex numbers have no {op}", f"reduce a part, or the size: {op}(abs(z[i]))")
    if op in ("or", "and"):
        value = _as_logic(value, reducer)
    elif op is not None and value.dtype == BOOL:  # NumPy's sum counts, its max is 'any'
        value, op = (value, "or" if op == "max" else "and") if op in ("max", "min") else (_count(value), op)
    elif reducer in ("sum", "prod"):
        _warn_of_narrow(reducer, value, scope)
    init: Expr | None = None
    if accumulates:
        assert previous is not None
        assert isinstance(node, ast.AugAssign)
        value, init = _accumulate(value, previous, target, node.op, scope)
    elif joins:
        assert previous is not None
        value = _fit_version(value, previous, target)
    else:
        value = _settle_type(value, scope.next_version(target.name), target, scope)
    is_weak, dtype = value.weak, value.dtype
    expr = convert(value, dtype).expr
    reduction = None
    restricted = any(isinstance(c, Condition) for c in where) or not draft.has_plain_left
    if op is not None and (accumulates or restricted or len(indices) > len(left)):
        reduction = Reduction(op, init if init is not None else identity_of(op, dtype))
    done = replace(draft, value=expr, reduction=reduction)
    if joins:
        assert previous is not None
        previous.writers.append(done)
        return replace(done, target=previous.name)
    return replace(done, target=add_version(target, dtype, is_weak, done, scope))


def _settle_type(value: Value, version: str, target: Target, scope: Scope) -> Value:
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


def _check_scatter(op: str | None, target: Target) -> None:
    if op is None and any(isinstance(n, (Read, Pad)) for e in target.subscripts for n in walk(e)):
        message = f"which elements of {target.name} are written depends on data, and two values may meet in one"
        raise Fault("semantic-scatter", message, f"say how they combine: {target.name}[...] += value, or = max(value)")


def _joins_version(previous: Version | None, draft: Statement, name: str, scope: Scope) -> bool:
    """Whether an assignment to a part of a tensor belongs to the version that the statements above write."""
    if previous is None or not previous.writers:
        return False
    if not draft.writes_part and (previous.name in scope.call_versions or not _recurs(previous, draft)):
        return False
    (first, *others) = previous.writers
    if previous.name in scope.intervals:
        if previous.name in scope.call_versions:
            message = f"{name} is the result of a call, which has assigned all of it"
            help = f"make a new tensor of it, as in T[i] = 1 if i == 0 else {name}[i]"
        else:
            message = f"{name} is given to a call above, and this assigns another part of it"
            help = f"assign all parts of {name} above the call"
        raise Fault("semantic-call-part", message, help)
    is_same = not others and first.subscripts == draft.subscripts and _left_clauses(first) == _left_clauses(draft)
    return not is_same


def _recurs(previous: Version, draft: Statement) -> bool:
    """Whether a statement continues a tensor of which only a part is assigned so far: it reads other elements of it."""
    if not all(w.writes_part for w in previous.writers):
        return False
    return any(r.tensor == previous.name and r.subscripts != draft.subscripts for r in reads(draft.value))


def _left_clauses(s: Statement) -> list[Where]:
    left = set(s.left_indices)
    return [w for w in s.where if isinstance(w, Condition) or (isinstance(w, RangeClause) and w.index in left)]


def _fit_version(value: Value, previous: Version, target: Target) -> Value:
    """The value in the element type of the version that it joins; raises `Retyped` where that one came from literals only."""
    assert previous.dtype is not None
    if previous.rank != len(target.subscripts):
        message = f"{target.name} has {count_dimensions(previous.rank or 0)} here"
        raise Fault("semantic-rank", message, "assign a part of it with one subscript per dimension, or use a new name")
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


def _report_reduction_missing(
    value: Value, left: tuple[str, ...], indices: tuple[str, ...], target: Target, scope: Scope
) -> None:
    for name in indices[len(left) :]:
        place = next((n.span for n in walk(value.expr) if isinstance(n, Index) and n.name == name), None)
        written = scope.text.source.text[target.span.start : target.span.end]
        help = f"to sum over {name} write {written} += ..., or {written} = max(...) for another reduction"
        if target.name != written.partition("[")[0].strip():  # what is returned is assigned here
            elements = f"{target.name}[{', '.join(indices)}]"
            help = f"assign it above, {elements} = {written}, and return {target.name}; or reduce over {name}, as sum(...) does"
        message = f"the index {name} is not on the left side, and = does not say how to reduce over it"
        if not any(name in index_names(s) for r in reads(value.expr) for s in r.subscripts):
            message = f"{name} is taken for an index: it is no parameter, assigned name or size"
            known = [*scope.tensors, *scope.sizes, *scope.constants]
            number = "write np.pi" if name.lower() == "pi" else f"a number is a keyword-only parameter: (..., *, {name}=0.5)"
            help = suggest_name(name, known) or number
        scope.report("semantic-missing-reduction", message, place or target.span, help)


def index_names(expr: Expr) -> list[str]:
    """Indices of an expression, as often as they stand in it."""
    return [n.name for n in walk(expr) if isinstance(n, Index)]


def _count(value: Value) -> Value:
    """Sums and products of booleans count in i64, as NumPy's do."""
    number = value.constant
    return make_literal(int(number), value.expr.span).made_of(value) if number is not None else convert(value, I64)


def _warn_of_narrow(reducer: str, value: Value, scope: Scope) -> None:
    """Warn where NumPy's function of this name would count in 64 bits, and values of 8 or 16 bits soon wrap around."""
    if not value.dtype.is_integer or value.dtype.bits > 16 or value.weak:
        return
    message = f"this {reducer} of {value.dtype} is {value.dtype} and wraps around, where np.{reducer} counts in 64 bits"
    help = f"convert what is reduced: {reducer}({I64}(...)); to keep {value.dtype}, write {'+=' if reducer == 'sum' else '*='}"
    found = Diagnostic("type-narrow-sum", message, value.expr.span, help, "warning")
    if found not in scope.warnings:
        scope.warnings.append(found)


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
    names = element_names(scope.next_version(target.name), target.subscripts)
    element = tuple(Index(n, e.span) for n, e in zip(names, target.subscripts, strict=True))
    old = Value(Read(previous.name, element, target.span), previous.dtype, previous.is_weak)
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


def _check_own_reads(value: Value, target: Target, previous: Version | None, scope: Scope) -> bool:
    """A statement may read its own target at the element it writes (the previous version), not at others."""
    if previous is None or previous.rank != len(target.subscripts):
        return True
    good = True
    for read in (n for n in value.nodes if isinstance(n, Read)):
        if read.tensor == previous.name and read.subscripts != target.subscripts:
            message = f"{target.name} is read at another element than the one that is written"
            help = "to read the values from before, use a new name; a recurrence assigns a part: with polyc.where(1 <= i < N)"
            scope.report("unsupported-recurrence", message, read.span or target.span, help)
            good = False
    return good


def add_version(target: Target, dtype: DType, is_weak: bool, writer: Statement, scope: Scope) -> str:
    """A new version of the target, now the current one of its name."""
    name = scope.next_version(target.name)
    scope.n_versions[target.name] = scope.n_versions.get(target.name, 0) + 1
    rank = len(target.subscripts)
    scope.versions.append(Tensor(name, dtype, rank, None, "temporary", target.name, target.span))
    scope.tensors[target.name] = Version(name, dtype, rank, is_weak, None, False, target.span, [writer])
    return name
