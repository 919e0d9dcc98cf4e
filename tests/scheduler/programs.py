"""Scops made by hand, from statements written as ``e[i,j] = x[i,j] m[i]`` over boxes of indices.

The text of one statement is that of the conformance file: domain ``i:N j:K c:3``, write, reads, reduction or not, and an
optional condition ``1<=i<H-1 and …`` for indices without extent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import islpy as isl

from polyc.ir.expr import Call, Const, Expr, Index, Read, Size, evaluate, identity_of, int_const
from polyc.ir.program import Program, Reduction, Statement, Tensor
from polyc.ir.simplify import simplify_int
from polyc.ir.types import F32
from polyc.poly.extraction import extract_scop
from polyc.poly.ranges import Interval, Ranges, StatementRanges
from polyc.poly.scop import Scop


@dataclass(frozen=True)
class Line:
    """One statement: ``Line("Z", "i:N j:K", "z[i]", ("e[i,j]",), True)``."""

    name: str
    domain: str
    write: str
    reads: tuple[str, ...]
    reduction: bool = False
    condition: str | None = None
    init: str | None = None


def parse_affine(text: str, names: set[str]) -> Expr:
    """``2h+r-1`` with the names in `names` as indices, others as sizes."""
    total: Expr = int_const(0)
    for sign, factor, name, number in re.findall(r"([+-]?)\s*(?:(\d*)\*?([A-Za-z]\w*)|(\d+))", text):
        if name:
            term: Expr = Index(name) if name in names else Size(name)
            if factor:
                term = Call("mul", (int_const(int(factor)), term))
        else:
            term = int_const(int(number))
        total = simplify_int(Call("sub" if sign == "-" else "add", (total, term)))
    return total


def _parse_access(text: str, names: set[str]) -> tuple[str, tuple[Expr, ...]]:
    match = re.fullmatch(r"(\w+)(?:\[(.*)\])?", text.replace(" ", ""))
    assert match, text
    name, subscripts = match.groups()
    return name, tuple(parse_affine(s, names) for s in subscripts.split(",")) if subscripts else ()


def _linear(expr: Expr, values: dict[str, Interval], high: bool) -> Expr:
    """Smallest (or largest) value of an affine subscript with positive coefficients over a box."""
    match expr:
        case Index():
            interval = values[expr.name]
            top = Call("sub", (Call("add", (interval.lower, interval.extent)), int_const(1)))
            return simplify_int(top if high else interval.lower)
        case Call():
            return simplify_int(Call(expr.op, tuple(_linear(a, values, high) for a in expr.args)))
    return expr


def make_scop(lines: list[Line], sizes: dict[str, int], symbolic: bool = True) -> Scop:
    """The Scop of `lines`; with `symbolic` False, sizes are replaced by their numbers."""
    parameters = tuple(sizes) if symbolic else ()
    statements: list[Statement] = []
    ranges: dict[str, StatementRanges] = {}
    lows: dict[str, list[tuple[Expr, ...]]] = {}
    highs: dict[str, list[tuple[Expr, ...]]] = {}
    ranks: dict[str, int] = {}
    order: list[str] = []

    def number(expr: Expr) -> Expr:
        if symbolic:
            return expr
        return int_const(evaluate(expr, sizes))

    for line in lines:
        indices = [part.split(":")[0] for part in line.domain.split()]
        names = set(indices)
        boxes: dict[str, Interval] = {}
        conditions: list[str] = []
        for part in line.domain.split():
            if ":" in part:
                index, extent = part.split(":")
                boxes[index] = Interval(int_const(0), number(parse_affine(extent, set())))
        for clause in (line.condition or "").split(" and "):
            found = re.fullmatch(r"(.+?)(<=?)(\w+)(<=?)(.+)", clause.strip())
            if not found:
                continue
            index, ends = found[3], (found[1], found[5])
            if found[2] != "<=" or found[4] != "<" or any(name in boxes and name in names for name in ends):
                shown = clause if symbolic else re.sub(r"\b[A-Z]\w*\b", lambda m: str(sizes[m[0]]), clause)
                conditions.append(shown)  # a triangle: the box is that of the index it is compared with
            low = int_const(0) if ends[0] in names else parse_affine(ends[0], set())
            high = _end(boxes[ends[1]]) if ends[1] in names else parse_affine(ends[1], set())
            boxes[index] = Interval(number(low), number(_flatten(Call("sub", (high, low)))))
        target, subscripts = _parse_access(line.write, names)
        reads = [_parse_access(r, names) for r in line.reads]
        value: Expr = Const(1.0, F32)
        for name, subs in reads:
            value = Call("add", (value, Read(name, subs)))
        init: Expr = identity_of("add", F32)
        init_reads: list[tuple[str, tuple[Expr, ...]]] = []
        if line.init:
            init_reads = [_parse_access(line.init, names)]
            init = Read(*init_reads[0])
        used = {n for s in subscripts for n in re.findall(r"Index\(name='(\w+)'", repr(s))}
        ordered = tuple([i for i in indices if i in used] + [i for i in indices if i not in used])
        statements.append(
            Statement(line.name, target, subscripts, ordered, value, Reduction("add", init) if line.reduction else None)
        )
        text = " and ".join(
            f"{_text(boxes[i].lower)} <= {i} < {_text(boxes[i].lower)} + {_text(boxes[i].extent)}" for i in ordered
        )
        text = " and ".join([text, *conditions]) if text else text
        domain = isl.Set(f"[{', '.join(parameters)}] -> {{ {line.name}[{', '.join(ordered)}] : {text or 'true'} }}")
        ranges[line.name] = StatementRanges(boxes, domain)
        for name, subs in [(target, subscripts), *reads, *init_reads]:
            if name not in order:
                order.append(name)
            ranks[name] = len(subs)
            lows.setdefault(name, []).append(tuple(_linear(s, boxes, False) for s in subs))
            highs.setdefault(name, []).append(tuple(_linear(s, boxes, True) for s in subs))

    written = {s.target for s in statements}
    read = {name for s in statements for name in _read_names(s)}

    def role(name: str) -> str:
        return "input" if name not in written else "temporary" if name in read else "output"

    tensors = tuple(Tensor(n, F32, ranks[n], None, role(n), n) for n in order)  # type: ignore[arg-type]
    boxes_of: dict[str, tuple[Interval, ...]] = {}
    for name in order:
        intervals = []
        for d in range(ranks[name]):
            low = min((l[d] for l in lows[name]), key=lambda e: evaluate(e, sizes))
            high = max((h[d] for h in highs[name]), key=lambda e: evaluate(e, sizes))
            extent = Call("sub", (Call("add", (high, int_const(1))), low))
            intervals.append(Interval(number(low), number(_flatten(extent))))
        boxes_of[name] = tuple(intervals)
    program = Program(
        "test",
        parameters,
        tensors,
        tuple(t.name for t in tensors if t.role == "input"),
        (),
        tuple(statements),
    )
    context = isl.Set(f"[{', '.join(parameters)}] -> {{ : {' and '.join(f'{p} >= 4' for p in parameters) or 'true'} }}")
    return extract_scop(program, Ranges(parameters, context, ranges, boxes_of))


def _end(interval: Interval) -> Expr:
    return _flatten(Call("add", (interval.lower, interval.extent)))


def _read_names(s: Statement) -> set[str]:
    from polyc.ir.expr import reads

    found = {r.tensor for r in reads(s.value)}
    return found | ({r.tensor for r in reads(s.reduction.init)} if s.reduction else set())


def _flatten(expr: Expr) -> Expr:
    """A sum of sizes and constants with its constants folded."""
    terms: dict[str, int] = {}

    def visit(e: Expr, factor: int) -> None:
        match e:
            case Const():
                terms[""] = terms.get("", 0) + factor * int(e.value)
            case Size():
                terms[e.name] = terms.get(e.name, 0) + factor
            case Call("add", (a, b)):
                visit(a, factor)
                visit(b, factor)
            case Call("sub", (a, b)):
                visit(a, factor)
                visit(b, -factor)
            case Call("mul", (Const() as a, b)):
                visit(b, factor * int(a.value))
            case _:
                raise ValueError(e)

    visit(expr, 1)
    result: Expr = int_const(terms.pop("", 0))
    for name, factor in terms.items():
        if factor:
            result = Call("add", (Call("mul", (int_const(factor), Size(name))), result))
    return simplify_int(result)


def _text(expr: Expr) -> str:
    match expr:
        case Const():
            return str(int(expr.value))
        case Size() | Index():
            return expr.name
        case Call("add", (a, b)):
            return f"({_text(a)} + {_text(b)})"
        case Call("sub", (a, b)):
            return f"({_text(a)} - {_text(b)})"
        case Call("mul", (a, b)):
            return f"({_text(a)} * {_text(b)})"
    raise ValueError(expr)
