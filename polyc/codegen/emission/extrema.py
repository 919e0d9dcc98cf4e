"""Maxima and minima of several values at once: one test for NaN behind them instead of one at each.

Before: ``min(max(a, b), c)``, each a minimum or maximum instruction, a comparison and a choice.  After: the instructions alone,
then NaN where any of a, b and c is one.  Every operand of a NaN-propagating maximum or minimum passes its NaN on, so that is
what the whole gives; values without NaN are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from polyc.codegen.emission.arithmetic import emit_plain_extremum
from polyc.codegen.writer.builder import Function, Val, float_val
from polyc.ir.expr import Call, Const, Expr
from polyc.machine import Machine


def find_operands(expr: Call) -> list[Expr] | None:
    """What the maxima and minima from `expr` downwards are taken of, each once; None where a test at each is as good."""
    operands: dict[Expr, None] = {}
    steps: set[Expr] = set()

    def visit(node: Expr) -> None:
        if isinstance(node, Call) and node.op in ("max", "min"):
            if node not in steps:
                steps.add(node)
                for a in node.args:
                    visit(a)
        else:
            operands[node] = None

    visit(expr)
    tests = (sum(not isinstance(node, Const) for node in operands) + 1) // 2
    # One step with a constant needs no test: of `a` and a number the instruction can give `a` where that is NaN.
    tested = sum(not any(isinstance(a, Const) for a in node.args) for node in steps if isinstance(node, Call))
    return list(operands) if 0 < tests < tested else None


def emit_extrema(fn: Function, target: Machine, expr: Call, values: Mapping[Expr, Val]) -> Val:
    """The value of maxima and minima of `values`, which are those of `find_operands`."""
    done = dict(values)

    def visit(node: Expr) -> Val:
        if node not in done:
            assert isinstance(node, Call)
            a, b = fn.unify(*(visit(arg) for arg in node.args))
            done[node] = emit_plain_extremum(fn, target, node.op, a, b)
        return done[node]

    plain = visit(expr)
    own = [v for node, v in values.items() if not isinstance(node, Const)]
    pairs = [fn.unify(own[n], own[min(n + 1, len(own) - 1)]) for n in range(0, len(own), 2)]
    unordered = [fn.compare("fcmp uno", a, b) for a, b in pairs]
    is_nan, nan, plain = fn.unify(
        reduce(lambda a, b: fn.binary("or", *fn.unify(a, b)), unordered), float_val(float("nan"), plain.type), plain
    )
    return fn.select(is_nan, nan, plain)
