"""Programs, expressions and loop nests as text.

    program softmax(X: f32[N, D]) -> (O)
      sizes N, D
      temporary M: f32[?]
      output O: f32[?, ?]
      S0(n, d): M[n] max= X[n, d] init -inf
      S1(n, d): O[n, d] = exp(X[n, d] - M[n])

A statement names its indices in order, then reads as it would be written.  Plain integers are ``i64`` and plain numbers with a
fraction ``f32``; other literals carry their type (``0:i32``).  ``?`` is an extent that range inference finds.  The text of a
program reads back (`text_reader.parse_program`) to an equal program; loop nests print as pseudo-C, to be read by people.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import assert_never

from polyc.ir.expr import OPERATORS, Call, Cast, Const, Expr, Index, Pad, Read, Select, Size
from polyc.ir.loops import Buffer, Guard, If, Loop, LoopNest, Node, Prefetch, Store, Update
from polyc.ir.program import Condition, Exists, Program, RangeClause, Return, Statement, Tensor, Where
from polyc.ir.text_reader import RESERVED, parse_program
from polyc.ir.types import BOOL, F32, I64
from polyc.ir.versions import VERSION

__all__ = ["format_expr", "format_loops", "format_name", "format_program", "format_statement", "parse_program"]

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


def format_expr(expr: Expr) -> str:
    """The expression in infix notation, indices and sizes by their names."""
    return _expr(expr, _Names(None), 0)


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


# --- Loop nests ------------------------------------------------------------------------------------------------------


def format_loops(nest: LoopNest) -> str:
    """The text of the stage ``.loops``: indented pseudo-C."""
    lines = [f"nest {nest.name}({', '.join(nest.parameters)})"]
    for fold in nest.folds:
        tests = " and ".join(f"{a} == {fold.second} * {format_expr(b)}" for a, b in fold.strides)
        tests += " and there is one thread" if fold.alone else ""
        lines.append(f"  {fold.first}, {fold.second} = 1, {fold.first} * {fold.second} if {tests}")
    if nest.version is not None:
        lines.append(f"  {VERSION} = {format_expr(nest.version)}")
    lines += ["  " + _buffer(b) for b in nest.buffers]
    for node in nest.body:
        lines += _node(node, 1)
    return "\n".join(lines) + "\n"


def _buffer(b: Buffer) -> str:
    shape, strides = (", ".join(format_expr(e) for e in part) for part in (b.shape, b.strides))
    place = "" if b.position is None else f" at data[{b.position}]"
    alias = f" may alias {', '.join(b.may_alias)}" if b.may_alias else ""
    return f"{b.space} {b.name}: {b.dtype}[{shape}] strides ({strides}){place}{alias}"


def _node(node: Node, depth: int) -> list[str]:
    pad = "  " * depth
    match node:
        case Store() | Update():
            operator = "=" if isinstance(node, Store) else ASSIGNMENT[node.op]
            target = f"{node.buffer}[{', '.join(format_expr(e) for e in node.subscripts)}]"
            comment = f"  // {node.statement}" if node.statement else ""
            hint = "stream " if isinstance(node, Store) and node.streamed else ""
            return [f"{pad}{hint}{target} {operator} {format_expr(node.value)};{comment}"]
        case Guard():
            under = "" if node.condition is None else f" if {format_expr(node.condition)}"
            return [f"{pad}check {node.check}: 0 <= {format_expr(node.value)} < {format_expr(node.bound)}{under};"]
        case Prefetch():
            place = f"{node.buffer}[{', '.join(format_expr(e) for e in node.subscripts)}]"
            return [f"{pad}prefetch {place}, {node.size} bytes{' to L2' if node.level == 2 else ''};"]
        case If():
            lines = [f"{pad}if ({format_expr(node.condition)}) {{", *_body(node.body, depth)]
            if node.orelse:
                lines += [f"{pad}}} else {{", *_body(node.orelse, depth)]
            return [*lines, f"{pad}}}"]
        case Loop():
            return [f"{pad}{_loop_head(node)} {{", *_body(node.body, depth), f"{pad}}}"]
        case _:
            assert_never(node)


def _body(nodes: tuple[Node, ...], depth: int) -> list[str]:
    return [line for node in nodes for line in _node(node, depth + 1)]


def _loop_head(loop: Loop) -> str:
    step = f"{loop.var}++" if loop.step == 1 else f"{loop.var} += {loop.step}"
    kind: str = "" if loop.kind == "serial" else loop.kind
    details = []
    if loop.kind == "vector":
        details.append(f"lanes {loop.lanes}" + (f" x {loop.interleave}" if loop.interleave > 1 else ""))
    if loop.kind == "scan":
        details.append(f"lanes {loop.lanes}")
    if loop.max_trip is not None:
        details.append(f"at most {loop.max_trip}")
    if loop.tile is not None:
        details.append(f"of {loop.tile}")
    if loop.registers:
        starts = {i.buffer: f" from {format_expr(i.value)}" for i in loop.initial}
        details.append("registers " + " ".join(name + starts.get(name, "") for name in loop.registers))
    if loop.stream is not None:
        details.append(f"in columns along {loop.stream}")
    if loop.rounds > 1:
        details.append(f"{loop.rounds} rounds")
    if loop.parallel_if is not None:
        details.append(f"if {format_expr(loop.parallel_if)}")
    kind += f"({', '.join(details)}) " if details else (" " if kind else "")
    return f"{kind}for ({loop.var} = {format_expr(loop.lower)}; {loop.var} < {format_expr(loop.upper)}; {step})"
