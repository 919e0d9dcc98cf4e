"""Parse tree -> syntax tree: one rule per grammar rule, applied bottom-up to the results of its children."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyc.diagnostics import Source, Span
from polyc.frontends.tc.syntax import (
    Apply,
    ConditionSyntax,
    ExistsSyntax,
    Extent,
    LetSyntax,
    Name,
    Number,
    Parameter,
    RangeSyntax,
    SyntaxDef,
    SyntaxMonoid,
    SyntaxStatement,
    SyntaxTarget,
    TypeSyntax,
)
from polyc.records import replace

At = Callable[..., Span]
"""The place of a token or a node, or of all from the first to the last of several."""


def build_syntax(tree: Any, source: Source) -> Any:
    """The syntax tree of a lark tree; iterative, so that depth is no matter.  Tokens have `start_pos` and `end_pos`."""

    def at(first: Any, *others: Any) -> Span:
        span: Span = first.span if hasattr(first, "span") else Span(source, first.start_pos, first.end_pos)
        return span.join(at(others[-1])) if others else span

    results: list[Any] = []
    todo: list[tuple[Any, bool]] = [(tree, False)]
    while todo:
        node, ready = todo.pop()
        if not hasattr(node, "children"):
            results.append(node)
        elif ready:
            first = len(results) - len(node.children)
            children = results[first:]
            del results[first:]
            results.append(_RULES[node.data](children, at))
        else:
            todo.append((node, True))
            todo.extend((child, False) for child in reversed(node.children))
    return results[0]


def _is_token(part: Any) -> bool:
    return isinstance(part, str)


def _start(c: list[Any], at: At) -> tuple[SyntaxDef, ...]:
    monoids = tuple(d for d in c if isinstance(d, SyntaxMonoid))
    return tuple(replace(d, monoids=monoids) for d in c if isinstance(d, SyntaxDef))


def _monoid(c: list[Any], at: At) -> SyntaxMonoid:
    keyword, name, _, parameters, *rest, end = c
    identity = tuple(p for rule, p in (r for r in rest if not _is_token(r)) if rule == "component")
    parts = tuple(p for rule, p in (r for r in rest if not _is_token(r)) if rule == "part")
    return SyntaxMonoid(str(name), parameters, identity, parts, at(name), at(keyword, end))


def _definition(c: list[Any], at: At) -> SyntaxDef:
    keyword, name, _, parameters, _, _, returns, _, _, *statements, end = c
    return SyntaxDef(str(name), parameters, returns, tuple(statements), at(name).source, at(name), at(keyword, end))


def _tensor_type(c: list[Any], at: At) -> TypeSyntax:
    name, _, *dimensions, end = c
    nodes = tuple((Number if d.type == "NUMBER" else Name)(str(d), at(d)) if _is_token(d) else d for d in dimensions)
    return TypeSyntax(str(name), nodes, at(name, end))


def _statement(c: list[Any], at: At, is_call: bool = False) -> SyntaxStatement:
    """Targets, an operator, a value or several; then an equivalent annotation, clauses, or both."""
    k = next(n for n, part in enumerate(c) if _is_token(part) and part.type.endswith(("ASSIGN", "SELECT", "COMBINE")))
    op, value, *rest = c[k:]
    values = value if isinstance(value, tuple) else (value,)
    where = rest[-1] if rest and isinstance(rest[-1], tuple) else ()
    last = where[-1] if where else rest[-1] if rest else values[-1]
    targets = tuple(t for t in c[:k] if isinstance(t, SyntaxTarget))
    if is_call:
        targets = tuple(SyntaxTarget(str(t), (), at(t)) for t in c[:k] if t.type == "NAME")
    span = at(targets[0], last)
    if op.type.endswith("ASSIGN") and not is_call:
        name = targets[0].name
        targets = (replace(targets[0], span=Span(span.source, span.start, span.start + len(name))),)
    return SyntaxStatement(targets, str(op), values, where, at(op), span, is_call)


def _until(c: list[Any], at: At) -> SyntaxStatement:
    """The name of the last step, where it has one, a condition, and clauses."""
    word, value, *rest = c[2:] if isinstance(c[0], SyntaxTarget) else c
    where = rest[0] if rest else ()
    target = c[0] if isinstance(c[0], SyntaxTarget) else SyntaxTarget("", (), at(word))
    return SyntaxStatement((target,), str(word), (value,), where, at(word), at(word, where[-1] if where else value))


def _extent(c: list[Any], at: At) -> Extent:
    tensor, dimension = str(c[0]).split(".")
    return Extent(tensor, int(dimension), at(c[0]))


_RULES: dict[str, Callable[[list[Any], At], Any]] = {
    "start": _start,
    "monoid": _monoid,
    "component": lambda c, at: ("component", LetSyntax(str(c[0]), c[2], at(c[0]), at(c[0], c[2]))),
    "part": lambda c, at: ("part", LetSyntax(str(c[0]), c[2], at(c[0]), at(c[0], c[2]))),
    "definition": _definition,
    "parameters": lambda c, at: tuple(c),
    "bare_parameter": lambda c, at: Parameter(str(c[0]), None, at(c[0])),
    "typed_parameter": lambda c, at: Parameter(str(c[1]), c[0], at(c[1])),
    "sparse_parameter": lambda c, at: Parameter(str(c[-1]), c[1] if len(c) > 2 else None, at(c[-1]), str(c[0])),
    "scalar_type": lambda c, at: TypeSyntax(str(c[0]), (), at(c[0])),
    "tensor_type": _tensor_type,
    "varying": lambda c, at: Name(f"{c[0]}*", at(c[0], c[1])),
    "assignment": _statement,
    "selection": _statement,
    "combination": _statement,
    "call": lambda c, at: _statement(c, at, is_call=True),
    "until": _until,
    "combined": lambda c, at: tuple(e for e in c if not _is_token(e)),
    "scalar_target": lambda c, at: SyntaxTarget(str(c[0]), (), at(c[0])),
    "tensor_target": lambda c, at: SyntaxTarget(str(c[0]), c[2], at(c[0], c[3])),
    "equivalent": lambda c, at: Name(str(c[0]), at(c[0], c[3])),
    "where": lambda c, at: tuple(c),
    "range_clause": lambda c, at: RangeSyntax(str(c[0]), c[1], c[3], at(c[0]), at(c[0], c[3])),
    "let_clause": lambda c, at: LetSyntax(str(c[0]), c[2], at(c[0]), at(c[0], c[2])),
    "exists_clause": lambda c, at: ExistsSyntax(c[1], at(c[0], c[1])),
    "condition_clause": lambda c, at: ConditionSyntax(c[0], at(c[0])),
    "exprs": lambda c, at: tuple(c),
    "ternary": lambda c, at: Apply("?:", (c[0], c[2], c[4]), at(c[1]), at(c[0], c[4])),
    "binary": lambda c, at: Apply(str(c[1]), (c[0], c[2]), at(c[1]), at(c[0], c[2])),
    "prefix": lambda c, at: Apply(str(c[0]), (c[1],), at(c[0]), at(c[0], c[1])),
    "number": lambda c, at: Number(str(c[0]), at(c[0])),
    "name": lambda c, at: Name(str(c[0]), at(c[0])),
    "extent": _extent,
    "group": lambda c, at: replace(c[1], span=at(c[0], c[2])),
    "cast": lambda c, at: Apply(str(c[0]), (c[2],), at(c[0]), at(c[0], c[3])),
    "apply": lambda c, at: Apply(str(c[0]), c[2], at(c[0]), at(c[0], c[3])),
}
