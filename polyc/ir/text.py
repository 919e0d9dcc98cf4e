"""Programs and expressions as text.

    program softmax(X: f32[N, D]) -> (O)
      sizes N, D
      temporary M: f32[?]
      output O: f32[?, ?]
      S0(n, d): M[n] max= X[n, d] init -inf
      S1(n, d): O[n, d] = exp(X[n, d] - M[n])

A statement names its indices in order, then reads as it would be written.  Plain integers are ``i64`` and plain numbers with a
fraction ``f32``; other literals carry their type (``0:i32``).  ``?`` is an extent that range inference finds.  The text of a
program reads back (`text_reader.parse_program`) to an equal program.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Set
from typing import assert_never

from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, Size
from polyc.ir.operators import OPERATORS
from polyc.ir.program import Condition, Exists, Program, RangeClause, Return, Role, Statement, Tensor, Where
from polyc.ir.types import BOOL, DTYPES, F32, I64
from polyc.records import dataclass

ROLES: dict[str, Role] = {"input": "input", "accumulated": "accumulated", "output": "output", "temporary": "temporary"}
RESERVED = (
    frozenset("program sizes define where exists in init of from pad index size true false inf nan max min".split())
    | ROLES.keys()
    | DTYPES.keys()
)
"""Words that cannot be bare names."""
ASSIGNMENT = {"add": "+=", "mul": "*=", "max": "max=", "min": "min=", "and": "&&=", "or": "||="}
_PRECEDENCE = {"or": 1, "and": 2, "lt": 3, "le": 3, "gt": 3, "ge": 3, "eq": 3, "ne": 3, "add": 4, "sub": 4}
_PRECEDENCE |= {"mul": 5, "truediv": 5, "floordiv": 5, "mod": 5, "neg": 6, "not": 6}
_INFIX = {"mod": "%"} | {op: o.infix for op, o in OPERATORS.items() if o.infix}


@dataclass(frozen=True, slots=True)
class _Names:
    """Bare names that are indices; every other bare name is a size.  None: nothing is ambiguous, print all bare."""

    indices: Set[str] | None


def format_name(name: str) -> str:
    """The name, in backquotes where it is no plain word or means something else."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name) and name not in RESERVED and name not in OPERATORS
    return name if plain else "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def format_expr(expr: Expr, is_operand: bool = False) -> str:
    """The expression in infix notation, indices and sizes by their names; `is_operand`: as that of a comparison."""
    return _expr(expr, _Names(None), _PRECEDENCE["add"] if is_operand else 0)


def _const(c: Const) -> str:
    if c.dtype == BOOL:
        return "true" if c.value else "false"
    if c.dtype.is_float or c.dtype.is_complex:
        value = float(c.value)
        text = "nan" if math.isnan(value) else ("-inf" if value < 0 else "inf") if math.isinf(value) else repr(value)
        return text if c.dtype == F32 else f"{text}:{c.dtype}"
    return str(int(c.value)) if c.dtype == I64 else f"{int(c.value)}:{c.dtype}"


def _expr(expr: Expr, names: _Names, outer: int) -> str:
    """`outer`: the precedence of the operator around it; looser expressions get parentheses."""
    match expr:
        case Const():
            return _const(expr)
        case Index():
            is_clear = names.indices is None or expr.name in names.indices
            return format_name(expr.name) if is_clear else f"index({format_name(expr.name)})"
        case Size():
            is_clear = names.indices is None or expr.name not in names.indices
            return format_name(expr.name) if is_clear else f"size({format_name(expr.name)})"
        case Read():
            return f"{format_name(expr.tensor)}[{_list(expr.subscripts, names)}]"
        case Pad() if expr.mode != "value":
            return f"pad_{expr.mode}({_expr(expr.read, names, 0)}, {_expr(expr.value, names, 0)})"
        case Pad():
            return f"pad({_expr(expr.read, names, 0)}, {_expr(expr.value, names, 0)})"
        case Cast():
            return f"{expr.dtype}({_expr(expr.value, names, 0)})"
        case Select():
            parts = f"{_expr(expr.condition, names, 1)} ? {_expr(expr.then, names, 1)} : {_expr(expr.other, names, 0)}"
            return f"({parts})" if outer else parts
        case Call():
            return _call(expr, names, outer)
        case _:
            assert_never(expr)


def _call(expr: Call, names: _Names, outer: int) -> str:
    symbol, level = _INFIX.get(expr.op), _PRECEDENCE.get(expr.op, 0)
    if symbol is None or len(expr.args) != OPERATORS[expr.op].arity:
        return f"{expr.op}({_list(expr.args, names)})"
    if len(expr.args) == 1:
        (operand,) = expr.args
        inner = _expr(operand, names, level)
        text = f"{symbol}({inner})" if isinstance(operand, Const) else f"{symbol}{inner}"
    else:
        left, right = expr.args
        # comparisons do not chain; everything else associates to the left
        text = f"{_expr(left, names, level + (level == 3))} {symbol} {_expr(right, names, level + 1)}"
    return f"({text})" if level < outer else text


def _list(exprs: Iterable[Expr], names: _Names) -> str:
    return ", ".join(_expr(e, names, 0) for e in exprs)


# --- Programs --------------------------------------------------------------------------------------------------------


def format_statement(s: Statement) -> str:
    """One line, and one more for its where clauses."""
    names = _Names(set(s.indices))
    indices = ", ".join(format_name(i) for i in s.indices)
    monoid = None if s.reduction is None else s.reduction.monoid
    operator = "=" if s.reduction is None else "combine=" if monoid is not None else ASSIGNMENT[s.reduction.op]
    text = f"{format_name(s.name)}({indices}): {format_name(s.target)}[{_list(s.subscripts, names)}] {operator} "
    text += _expr(s.value, names, 0)
    if s.reduction is not None:
        text += f" init {_expr(s.reduction.init, names, 0)}"
        text += " once" if s.reduction.once else ""
        if monoid is not None:
            text += f" component {s.reduction.component} of {format_name(monoid.name)}"
            text += f"({_list(monoid.identity, names)})({_list(monoid.results, names)})"
    if s.where:
        text += "\n    where " + ", ".join(_where(w, names) for w in s.where)
    return text


def _where(clause: Where, names: _Names) -> str:
    match clause:
        case RangeClause():
            return f"{format_name(clause.index)} in {_expr(clause.lower, names, 1)}:{_expr(clause.upper, names, 1)}"
        case Condition():
            return _expr(clause.condition, names, 0)
        case Exists():
            return f"exists {_expr(clause.value, names, 0)}"
        case _:
            assert_never(clause)


def _type(t: Tensor) -> str:
    extents = ", ".join("?" for _ in range(t.rank)) if t.shape is None else _list(t.shape, _Names(frozenset()))
    # scalars: a parameter is declared as one, any other is left to inference, unless a mark says the opposite
    inferred = "" if t.rank or (t.shape is None) == (t.role != "input") else "?" if t.shape is None else "!"
    return f"{t.dtype}[{extents}]{inferred}" + (f" of {format_name(t.base)}" if t.base != t.name else "")


def _return(r: Return) -> str:
    text = format_name(r.name)
    if r.version != r.name:
        text += f" = {format_name(r.version)}"
    return text if r.initial is None else f"{text} from {format_name(r.initial)}"


def format_program(program: Program) -> str:
    """The text of the stage ``.program``; `parse_program` gives an equal program back."""
    n = len(program.parameters)
    leading = program.tensors[:n]
    in_header = tuple(t.name for t in leading) == program.parameters and all(t.role == "input" for t in leading)
    parameters = (
        [f"{format_name(t.name)}: {_type(t)}" for t in leading] if in_header else [format_name(p) for p in program.parameters]
    )
    returns = ", ".join(_return(r) for r in program.returns)
    lines = [f"program {format_name(program.name)}({', '.join(parameters)}) -> ({returns})"]
    if program.sizes:
        lines.append("  sizes " + ", ".join(format_name(s) for s in program.sizes))
    lines += [f"  define {format_name(n)} = {_expr(e, _Names(frozenset()), 0)}" for n, e in program.defined_sizes]
    lines += [f"  {t.role} {format_name(t.name)}: {_type(t)}" for t in program.tensors[n if in_header else 0 :]]
    lines += ["  " + format_statement(s) for s in program.statements]
    return "\n".join(lines) + "\n"
