"""Both sides of a statement: what they say, and which names can be assigned, alone and beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.diagnostics import Span
from polyc.frontends.core.builder import Assignment, Target, reduced_indices
from polyc.frontends.core.values import Value
from polyc.frontends.tc.definition import Definition
from polyc.frontends.tc.scope import Scope, check_not_builtin
from polyc.frontends.tc.subscripts import find_access
from polyc.frontends.tc.syntax import LetSyntax, Name, RangeSyntax, SyntaxExpr, SyntaxStatement, SyntaxTarget, walk_syntax
from polyc.frontends.tc.values import build_subscript
from polyc.frontends.tc.where import build_sized, build_where, define_lets
from polyc.ir.expr import Expr, Pad, Read, walk
from polyc.ir.program import Tensor

MONOIDS = {"+": "add", "*": "mul", "min": "min", "max": "max", "&&": "and", "||": "or"}


def read_sides(d: Definition, s: SyntaxStatement) -> tuple[Scope, tuple[Value, ...] | None, Assignment | None]:
    """The names of a statement, its values, and all of it; None for what has an error, which is reported."""
    scope = d.scope()
    left = _find_left_indices(scope, s)
    scope.left = frozenset(left)
    define_lets(scope, s.where)
    lefts = [_build_left(scope, s, target) for target in s.targets]
    values = tuple(v for v in [build_sized(scope, value) for value in s.values] if v is not None)
    has_all = len(values) == len(s.values)
    others = reduced_indices(values, left)
    others = (*others, *_bounding_indices(scope, s, {*left, *others}))
    where = build_where(scope, s.where, frozenset([*left, *others]) if has_all else None)
    targets = tuple(Target(t.name, e, t.span) for t, e in zip(s.targets, lefts, strict=True) if e is not None)
    if not has_all or len(targets) < len(lefts):
        return scope, values if has_all else None, None
    return scope, values, Assignment(targets, values, left, others, tuple(where), s.op, s.span, s.op_span)


def _bounding_indices(scope: Scope, s: SyntaxStatement, used: set[str]) -> tuple[str, ...]:
    """Indices that stand nowhere but in bounds that read, of ranges of the `used` ones or of each other."""
    found: dict[str, None] = {}
    ranges = [clause for clause in s.where if isinstance(clause, RangeSyntax)]
    for clause in (c for _ in ranges for c in ranges if c.index in used or c.index in found):
        for bound in (clause.lower, clause.upper):
            names = _names_in(scope, bound) if find_access(scope, bound) is not None else []
            found.update(dict.fromkeys(n for n in names if n not in used and n not in scope.lets))
    return tuple(found)


def _names_in(scope: Scope, syntax: SyntaxExpr) -> list[str]:
    """Names that stand for indices, or for lets."""
    names = [n.name for n in walk_syntax(syntax) if isinstance(n, Name)]
    return [n for n in names if n not in scope.sizes and n not in scope.tensors and n not in scope.definition_tensors]


def _find_left_indices(scope: Scope, s: SyntaxStatement) -> tuple[str, ...]:
    """Names of the indices on the left side in order."""
    names: dict[str, None] = {}
    lets = {clause.name for clause in s.where if isinstance(clause, LetSyntax)}
    for syntax in s.subscripts:
        if not isinstance(syntax, Name):
            names.update(dict.fromkeys(n for n in _names_in(scope, syntax) if n not in lets))
            continue
        check_not_builtin(scope.reporter, syntax.name, syntax.span)
        if syntax.name not in scope.sizes:
            names[syntax.name] = None
    return tuple(names)


def _build_left(scope: Scope, s: SyntaxStatement, target: SyntaxTarget) -> tuple[Expr, ...] | None:
    """Left subscripts; None after an error.  Only a reduction may write where data says."""
    subscripts: list[Expr] = []
    for syntax in target.subscripts:
        subscript = build_subscript(scope, syntax)
        if subscript is None:
            return None
        if s.op == "=":
            subscript = scope.as_size(subscript)
        subscripts.append(subscript)
        if s.op == "=" and any(isinstance(node, (Read, Pad)) for node in walk(subscript)):
            message = f"which elements of {target.name} are written depends on data, and two values may meet in one"
            help = "say how they combine: +=! (or *=! min=! max=!)"
            scope.reporter.error("semantic-scatter", message, syntax.span, help)
    return tuple(subscripts)


def check_target(d: Definition, name: str, span: Span, rank: int | None) -> bool:
    """Whether a name may be assigned; `rank` None where that is not known yet."""
    if not check_not_builtin(d.reporter, name, span):
        return False
    if name in d.parameters:
        message = f"TC inputs are immutable: {name} is a parameter"
        d.reporter.error("semantic-immutable-input", message, span, f"assign another name and return it, such as {name}_out")
        return False
    if name in d.sizes:
        d.reporter.error("semantic-already-defined", f"{name} is already defined as a size", span, "choose another name")
        return False
    annotation = d.returns.get(name)
    if annotation is not None and rank is not None and len(annotation.shape) != rank:
        wanted = len(annotation.shape)
        message = f"tensor defined with {rank} dimensions but declared as an output with {wanted} dimensions"
        d.reporter.error("semantic-rank", message, span, "make the annotation and the left side agree")
    return True


def check_targets(d: Definition, s: SyntaxStatement, results: Sequence[Tensor | None] = ()) -> list[bool]:
    """For each target of a statement whether it may be assigned; `results` are those of a call."""
    good: list[bool] = []
    names: set[str] = set()
    for position, target in enumerate(s.targets):
        result = results[position] if s.is_call else None
        rank = None if s.is_call and result is None else len(target.subscripts) if result is None else result.rank
        if target.name in names:
            message = f"{target.name} is assigned twice by this {'call' if s.is_call else 'statement'}"
            d.reporter.error("semantic-already-defined", message, target.span, "give each result a name of its own")
        names.add(target.name)
        good.append(check_target(d, target.name, target.span, rank))
    return good


def define_unknown(d: Definition, s: SyntaxStatement) -> None:
    """After an error: the results have names all the same, so that what reads them is no error too."""
    for target in s.targets:
        if target.name not in d.parameters and target.name not in d.sizes:
            d.define(target.name, len(target.subscripts), target.span, None)
