"""Sizes that are not affine (``N*M``, ``N // K``) as symbols of their own."""

from __future__ import annotations

import re
from collections.abc import Callable

from polyc.ir.expr import Call, Const, Expr, Index, Read, Select, Size, children, rewrite, walk, with_children
from polyc.ir.program import Condition, Exists, Program, RangeClause, Statement, Where
from polyc.ir.simplify import factors_of, is_i64, simplify
from polyc.records import replace


def define_sizes(program: Program) -> Program:
    """Give every size expression that is not affine (``N*M``, ``N // K``) a symbol of its own.

    Extents, range bounds, conditions and subscripts then hold affine expressions (with floor division, remainder by constants,
    minimum and maximum) over indices and symbols; `Program.defined_sizes` says how the host computes the new ones.
    """
    taken = {*program.sizes, *(t.name for t in program.tensors), *(t.base for t in program.tensors)}
    taken |= {index for s in program.statements for index in s.indices}
    known = {expr: name for name, expr in program.defined_sizes}
    taken |= set(known.values())
    defined = list(program.defined_sizes)

    def define(expr: Expr) -> Expr:
        if expr not in known:
            name = _name_product(expr, len(defined))
            while name in taken:
                name += "_"
            taken.add(name)
            known[expr] = name
            defined.append((name, expr))
        return Size(known[expr])

    def affine(expr: Expr) -> Expr:
        if not any(_is_non_affine_size(node) for node in walk(expr)):
            return expr  # left as the user wrote it, spans included
        return _define_within(simplify(expr), define)

    def in_value(expr: Expr) -> Expr:
        def rule(node: Expr) -> Expr | None:
            match node:
                case Read():
                    return replace(node, subscripts=tuple(affine(e) for e in node.subscripts))
                case Select():
                    return replace(node, condition=affine(node.condition))
            return None

        return rewrite(expr, rule)

    def in_where(clause: Where) -> Where:
        match clause:
            case RangeClause():
                return replace(clause, lower=affine(clause.lower), upper=affine(clause.upper))
            case Condition():
                return replace(clause, condition=affine(in_value(clause.condition)))
            case Exists():
                return replace(clause, value=in_value(clause.value))

    def in_statement(s: Statement) -> Statement:
        return replace(
            s,
            subscripts=tuple(affine(e) for e in s.subscripts),
            value=in_value(s.value),
            reduction=None if s.reduction is None else replace(s.reduction, init=in_value(s.reduction.init)),
            where=tuple(in_where(w) for w in s.where),
        )

    tensors = tuple(replace(t, shape=None if t.shape is None else tuple(affine(e) for e in t.shape)) for t in program.tensors)
    statements = tuple(in_statement(s) for s in program.statements)
    return replace(program, tensors=tensors, statements=statements, defined_sizes=tuple(defined))


def _is_size_only(expr: Expr) -> bool:
    nodes = list(walk(expr))
    return not any(isinstance(n, (Index, Read)) for n in nodes) and any(isinstance(n, Size) for n in nodes)


def _is_non_affine_size(expr: Expr) -> bool:
    match expr:
        case Call("mul", (a, b)):
            return is_i64(expr) and _is_size_only(a) and _is_size_only(b)
        case Call("floordiv" | "mod", (_, b)):
            return is_i64(expr) and _is_size_only(expr) and not isinstance(b, Const) and _is_size_only(b)
    return False


def _define_within(expr: Expr, define: Callable[[Expr], Expr]) -> Expr:
    """Outermost non-affine size expressions replaced; those inside a product with an index as far as they stand together."""
    if _is_non_affine_size(expr):
        factors = factors_of(expr)
        return define(expr) if not isinstance(factors[0], Const) else _scale(factors, define)
    return with_children(expr, tuple(_define_within(child, define) for child in children(expr)))


def _scale(factors: list[Expr], define: Callable[[Expr], Expr]) -> Expr:
    rest = factors[1]
    for factor in factors[2:]:
        rest = rest * factor
    return factors[0] * define(rest)


def _name_product(expr: Expr, number: int) -> str:
    factors = factors_of(expr)
    if all(isinstance(f, Size) and re.fullmatch(r"\w+", f.name) for f in factors):
        return "_x_".join(f.name for f in factors if isinstance(f, Size))
    return f"size{number}"
