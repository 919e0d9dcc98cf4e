"""Parse tree -> syntax tree.  One function per grammar rule, called bottom-up with the results of its children."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from polyc.diagnostics import Source, Span
from polyc.frontends.tc.syntax import (
    Apply,
    Binary,
    ConditionSyntax,
    Convert,
    ExistsSyntax,
    Extent,
    LetSyntax,
    Name,
    NamedValue,
    Number,
    Parameter,
    RangeSyntax,
    SyntaxCall,
    SyntaxCombination,
    SyntaxDef,
    SyntaxExpr,
    SyntaxMonoid,
    SyntaxSelection,
    SyntaxStatement,
    SyntaxTarget,
    Ternary,
    TypeSyntax,
    Unary,
)


def build_syntax(tree: Any, source: Source) -> Any:
    """The syntax tree of a lark tree; iterative, so that depth is no matter."""
    builder = _Builder(source)
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
            rule: Callable[[list[Any]], Any] = getattr(builder, node.data)
            results.append(rule(children))
        else:
            todo.append((node, True))
            todo.extend((child, False) for child in reversed(node.children))
    return results[0]


class _Builder:
    """Grammar rule -> method; tokens are lark's (a `str` with `start_pos` and `end_pos`)."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def _of(self, token: Any) -> Span:
        return Span(self.source, token.start_pos, token.end_pos)

    def start(self, c: list[Any]) -> tuple[SyntaxDef, ...]:
        monoids = tuple(d for d in c if isinstance(d, SyntaxMonoid))
        return tuple(replace(d, monoids=monoids) for d in c if isinstance(d, SyntaxDef))

    def monoid(self, c: list[Any]) -> SyntaxMonoid:
        keyword, name, _, parameters, *rest = c
        named = [p for p in rest if isinstance(p, tuple)]
        identity = tuple(p for is_part, p in named if not is_part)
        parts = tuple(p for is_part, p in named if is_part)
        return SyntaxMonoid(str(name), parameters, identity, parts, self._of(name), self._of(keyword).join(self._of(rest[-1])))

    def component(self, c: list[Any]) -> tuple[bool, NamedValue]:
        return False, NamedValue(str(c[0]), c[2], self._of(c[0]))

    def part(self, c: list[Any]) -> tuple[bool, NamedValue]:
        return True, NamedValue(str(c[0]), c[2], self._of(c[0]))

    def definition(self, c: list[Any]) -> SyntaxDef:
        keyword, name, _, parameters, _, _, returns, _, _, *statements, end = c
        span = self._of(keyword).join(self._of(end))
        return SyntaxDef(str(name), parameters, returns, tuple(statements), self.source, self._of(name), span)

    def parameters(self, c: list[Any]) -> tuple[Parameter, ...]:
        return tuple(c)

    def bare_parameter(self, c: list[Any]) -> Parameter:
        return Parameter(str(c[0]), None, self._of(c[0]))

    def typed_parameter(self, c: list[Any]) -> Parameter:
        return Parameter(str(c[1]), c[0], self._of(c[1]))

    def scalar_type(self, c: list[Any]) -> TypeSyntax:
        return TypeSyntax(str(c[0]), (), self._of(c[0]))

    def tensor_type(self, c: list[Any]) -> TypeSyntax:
        name, _, *dimensions, end = c
        nodes = tuple((Number if d.type == "NUMBER" else Name)(str(d), self._of(d)) for d in dimensions)
        return TypeSyntax(str(name), nodes, self._of(name).join(self._of(end)))

    def assignment(self, c: list[Any]) -> SyntaxStatement:
        (name, subscripts, target_span), op, value, *rest = c
        span = target_span.join(value.span)
        where: tuple[Any, ...] = ()
        for part in rest:  # an equivalent annotation, clauses, or both
            if isinstance(part, tuple):
                where = part
                span = span.join(part[-1].span)
            else:
                span = span.join(part)
        return SyntaxStatement(str(name), subscripts, str(op), value, where, self._of(name), self._of(op), span)

    def call(self, c: list[Any]) -> SyntaxCall:
        end = next(n for n, part in enumerate(c) if getattr(part, "type", None) == "RPAR")
        targets = tuple(Name(str(t), self._of(t)) for t in c[:end])
        value, where = c[end + 2], c[end + 3] if len(c) > end + 3 else ()
        span = targets[0].span.join(where[-1].span if where else value.span)
        return SyntaxCall(targets, value, where, span)

    def selection(self, c: list[Any]) -> SyntaxSelection:
        at = next(n for n, part in enumerate(c) if getattr(part, "type", None) == "SELECT")
        targets = tuple(SyntaxTarget(str(t[0]), t[1], t[2]) for t in c[:at] if isinstance(t, list))
        op, value, where = c[at], c[at + 1], c[at + 2] if len(c) > at + 2 else ()
        span = targets[0].span.join(where[-1].span if where else value.span)
        return SyntaxSelection(targets, str(op), value, where, self._of(op), span)

    def combination(self, c: list[Any]) -> SyntaxCombination:
        at = next(n for n, part in enumerate(c) if getattr(part, "type", None) == "COMBINE")
        targets = tuple(SyntaxTarget(str(t[0]), t[1], t[2]) for t in c[:at] if isinstance(t, list))
        op, values, where = c[at], c[at + 1], c[at + 2] if len(c) > at + 2 else ()
        span = targets[0].span.join(where[-1].span if where else values[-1].span)
        return SyntaxCombination(targets, str(op).removesuffix("=!"), values, where, self._of(op), span)

    def combined(self, c: list[Any]) -> tuple[SyntaxExpr, ...]:
        return tuple(e for e in c if not hasattr(e, "type") or not isinstance(e, str))

    def scalar_target(self, c: list[Any]) -> Any:
        return [c[0], (), self._of(c[0])]

    def tensor_target(self, c: list[Any]) -> Any:
        return [c[0], c[2], self._of(c[0]).join(self._of(c[3]))]

    def equivalent(self, c: list[Any]) -> Span:
        return self._of(c[0]).join(self._of(c[3]))

    def where(self, c: list[Any]) -> tuple[Any, ...]:
        return tuple(c)

    def range_clause(self, c: list[Any]) -> RangeSyntax:
        name, lower, _, upper = c
        return RangeSyntax(str(name), lower, upper, self._of(name), self._of(name).join(upper.span))

    def let_clause(self, c: list[Any]) -> LetSyntax:
        return LetSyntax(str(c[0]), c[2], self._of(c[0]), self._of(c[0]).join(c[2].span))

    def exists_clause(self, c: list[Any]) -> ExistsSyntax:
        return ExistsSyntax(c[1], self._of(c[0]).join(c[1].span))

    def condition_clause(self, c: list[Any]) -> ConditionSyntax:
        return ConditionSyntax(c[0], c[0].span)

    def exprs(self, c: list[Any]) -> tuple[SyntaxExpr, ...]:
        return tuple(c)

    def ternary(self, c: list[Any]) -> Ternary:
        return Ternary(c[0], c[2], c[4], c[0].span.join(c[4].span))

    def binary(self, c: list[Any]) -> Binary:
        return Binary(str(c[1]), c[0], c[2], self._of(c[1]), c[0].span.join(c[2].span))

    def prefix(self, c: list[Any]) -> Unary:
        return Unary(str(c[0]), c[1], self._of(c[0]).join(c[1].span))

    def number(self, c: list[Any]) -> Number:
        return Number(str(c[0]), self._of(c[0]))

    def name(self, c: list[Any]) -> Name:
        return Name(str(c[0]), self._of(c[0]))

    def extent(self, c: list[Any]) -> Extent:
        tensor, dimension = str(c[0]).split(".")
        return Extent(tensor, int(dimension), self._of(c[0]))

    def group(self, c: list[Any]) -> SyntaxExpr:
        expr: SyntaxExpr = c[1]
        return replace(expr, span=self._of(c[0]).join(self._of(c[2])))

    def cast(self, c: list[Any]) -> Convert:
        return Convert(str(c[0]), c[2], self._of(c[0]).join(self._of(c[3])))

    def apply(self, c: list[Any]) -> Apply:
        return Apply(str(c[0]), c[2], self._of(c[0]), self._of(c[0]).join(self._of(c[3])))
