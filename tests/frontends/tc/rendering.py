"""Helpers of these tests: syntax with all parentheses, programs with canonical index names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from polyc.frontends.tc import parse_tc, read_tc
from polyc.frontends.tc.syntax import Apply, Extent, Name, Number, SyntaxExpr
from polyc.ir.expr import Index, substitute
from polyc.ir.program import Program, Statement
from polyc.ir.text import format_expr

DATA = Path(__file__).parents[3] / "../shared/conformance/tc_programs.json"


def conformance() -> dict[str, Any]:
    """The conformance programs, or a skip that says why."""
    if not DATA.exists():
        pytest.skip(f"{DATA} is absent: the conformance programs are not part of this repository")
    return json.loads(DATA.read_text())


def parse_expression(text: str) -> SyntaxExpr:
    return parse_tc(f"def f(float a) -> (O) {{ O = {text} }}")[0].statements[0].value


def show(expr: SyntaxExpr) -> str:
    """`expr` with a pair of parentheses around every operator."""
    match expr:
        case Number():
            return expr.text
        case Name():
            return expr.name
        case Extent():
            return f"{expr.tensor}.{expr.dimension}"
        case Apply("?:", (condition, then, other)):
            return f"({show(condition)} ? {show(then)} : {show(other)})"
        case Apply(op, (operand,)) if expr.is_operator:
            return f"({op}{show(operand)})"
        case Apply(op, (left, right)) if expr.is_operator:
            return f"({show(left)} {op} {show(right)})"
        case Apply():
            return f"{expr.name}({', '.join(show(a) for a in expr.args)})"


PARAMETERS = "float(N, M) A, float(N) a, int32(N) I, uint8(N) U, double(N) D, float s, int32 n, bool(N) P"


def read_statements(body: str, returns: str = "O") -> tuple[Statement, ...]:
    return read_program(body, returns).statements


def read_program(body: str, returns: str = "O") -> Program:
    return read_tc(f"def f({PARAMETERS}) -> ({returns}) {{ {body} }}")[0]


def show_value(body: str) -> str:
    """The value of a single statement, as IR text."""
    (statement,) = read_statements(body)
    return format_expr(statement.value)


def rename_indices(program: Program) -> Program:
    """Indices numbered by place, so that programs equal up to their names compare equal."""
    statements = []
    for s in program.statements:
        names = {name: Index(f"i{k}") for k, name in enumerate(s.indices)}
        statements.append(
            replace(
                s,
                indices=tuple(n.name for n in names.values()),
                subscripts=tuple(substitute(e, names) for e in s.subscripts),
                value=substitute(s.value, names),
                reduction=None if s.reduction is None else replace(s.reduction, init=substitute(s.reduction.init, names)),
            )
        )
    return replace(program, statements=tuple(statements))
