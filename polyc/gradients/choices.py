"""How values of a recurrence compare, in a byte for each point, where that is all its adjoint needs of its steps.

    before  ``P[k+1, i, j] = min(P[k, i, j], P[k, i, k] + P[k, k, j])``, whose adjoint asks at each step which of both is less
    after   that, and ``P.order[k, i, j] = (P[k, i, j] <= P[k, i, k] + P[k, k, j] ? 1 : 0) | (P[k, i, j] >= … ? 2 : 0)``

The adjoint reads bytes in the place of numbers, and of the recurrence the last steps are kept: the tape of branches of Griewank
and Walther, "Evaluating Derivatives" (2008), section 4.5.  Two bits say how numbers compare, NaN included, and one whether a
single comparison holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce

from polyc.gradients.adjoints import conditions_of
from polyc.gradients.inputs import Names
from polyc.gradients.sums import Part
from polyc.gradients.time_loops import find_axes
from polyc.ir.components import order_components
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Pad,
    Read,
    Select,
    any_holds,
    children,
    index_names,
    reads,
    replace_terms,
    type_of,
    walk,
)
from polyc.ir.program import Program, RangeClause, Statement, Tensor
from polyc.ir.segments import loaded_clauses
from polyc.ir.types import BOOL, U8
from polyc.poly.frames import Frame, kept_to, upper_end
from polyc.poly.ranges import Ranges
from polyc.records import replace

Parts = dict[str, list[Part]]

TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
"""Comparisons, and what they are of the same operands in the other order."""

ORDERS: Mapping[str, Sequence[int]] = {"lt": (1,), "gt": (2,), "eq": (3,), "le": (1, 3), "ge": (2, 3), "ne": (0, 1, 2)}
"""For which values of both bits a comparison holds: 1, less or equal; 2, greater or equal."""

BITS = 8


def store_choices(
    program: Program, ranges: Ranges, parts: Parts, others: Collection[str], names: Names
) -> tuple[Parts, list[Tensor], list[Statement]]:
    """The parts of adjoints, where they compare values of recurrences that are read for nothing else, with what is stored of
    the comparisons.  `others`: versions that others read."""
    recurrences = [c for c in order_components(program) if c.is_recurrence]
    steps = {v: n for n, c in enumerate(recurrences) for v in c.versions}
    axes = {v: d for c in recurrences for v, d in (find_axes(program, c.versions) or {}).items()}
    by_statement: dict[str, list[Part]] = {}
    for part in (p for some in parts.values() for p in some):
        by_statement.setdefault(part.statement.name, []).append(part)
    own = {s.name: s for s in program.statements if s.target in steps}
    found = {n: _find_tests(own[n], some, program, ranges, steps) for n, some in by_statement.items() if n in own}
    others_read = [r for n, some in by_statement.items() for p in some for r in _read_otherwise(p, found.get(n, ()))]
    # Of single steps none but these are kept.
    read = {r.tensor for r in others_read if r.tensor not in axes or index_names(r.subscripts[axes[r.tensor]])}
    made = {r.tensor for v in read - steps.keys() for s in program.writers().get(v, ()) for r in reads(s.value)}
    kept = read | made | {r.version for r in program.returns} | {*others}
    tensors, statements, stored = list[Tensor](), list[Statement](), dict[str, dict[Expr, Expr]]()
    for name, tests in found.items():
        s, box = own[name], ranges.statements[name].indices
        gone = {r.tensor for t in tests for r in reads(t) if r.tensor in steps} - kept
        if any(program.tensor(v).rank >= len(s.indices) for v in gone):
            version, element = names.add(f"{s.target}.order"), tuple(map(Index, s.indices))
            value, stored[name] = _encode(tests, Read(version, element, s.span))
            where = tuple(RangeClause(i, box[i].lower, upper_end(box[i])) for i in s.indices)
            base = program.tensor(s.target).base
            tensors.append(Tensor(version, U8, len(s.indices), None, "temporary", base, s.span))
            statements.append(Statement(names.add(f"S_{version}"), version, element, s.indices, value, None, where, s.span))
    changed = {v: [_replace_tests(p, stored.get(p.statement.name, {})) for p in some] for v, some in parts.items()}
    return changed, tensors, statements


def _find_tests(s: Statement, parts: Sequence[Part], program: Program, ranges: Ranges, steps: Mapping[str, int]) -> list[Call]:
    """The comparisons with values of its own recurrence in the contributions of a statement; none where not all can be made at
    every point of it, or where they are too many."""
    is_plain = s.reduction is None and not any(loaded_clauses(s.where)) and not any(conditions_of(s))
    if not is_plain or any(p.statement is not s for p in parts):
        return []
    frame = Frame(ranges, ranges.statements[s.name].indices)
    met = dict.fromkeys(t for p in parts for e in _expressions(p) for t in _outermost_tests(e))
    tests = [t for t in met if any(steps.get(r.tensor) == steps[s.target] for r in reads(t))]
    for test in tests:
        at = [(e, b) for r in reads(test) for e, b in zip(r.subscripts, ranges.tensors[r.tensor], strict=True)]
        is_inside = all(frame.implies(condition) for e, b in at for condition in kept_to(e, b))
        dtype = type_of(test.args[0], program.types)
        if not is_inside or any(isinstance(n, Pad) for n in walk(test)) or not (dtype.is_float or dtype.is_integer):
            return []
    return tests if sum(min(len(by_op), 2) for by_op in _group(tests).values()) <= BITS else []


def _expressions(part: Part) -> Iterator[Expr]:
    for value, conditions in part.terms:
        yield value
        yield from (c for c, _ in conditions)


def _outermost_tests(expr: Expr) -> Iterator[Call]:
    """The comparisons that read, those inside of others excepted."""
    if isinstance(expr, Call) and expr.op in TURNED and reads(expr):
        yield expr
    else:
        for e in children(expr):
            yield from _outermost_tests(e)


def _replace_tests(part: Part, new: Mapping[Expr, Expr]) -> Part:
    terms = ((replace_terms(v, new), tuple((replace_terms(c, new), holds) for c, holds in under)) for v, under in part.terms)
    return replace(part, terms=tuple(terms)) if new else part


def _read_otherwise(part: Part, tests: Collection[Expr]) -> Iterator[Read]:
    """What the contributions of a statement read beside these comparisons, and where it contributes."""
    left = _replace_tests(part, dict.fromkeys(tests, Const(False, BOOL)))
    for e in (*_expressions(left), *part.subscripts):
        yield from reads(e)


def _group(tests: Collection[Call]) -> dict[tuple[Expr, Expr], dict[str, list[Expr]]]:
    """Comparisons by their operands, in one order, and what they ask of these."""
    found: dict[tuple[Expr, Expr], dict[str, list[Expr]]] = {}
    for test in tests:
        a, b = test.args
        pair, op = ((b, a), TURNED[test.op]) if (b, a) in found else ((a, b), test.op)
        found.setdefault(pair, {}).setdefault(op, []).append(test)
    return found


def _encode(tests: Collection[Call], code: Read) -> tuple[Expr, dict[Expr, Expr]]:
    """The bits of comparisons as one number, and what each of them is, asked of that number in `code`."""
    bits: list[Expr] = []
    asked: dict[Expr, Expr] = {}
    groups = _group(tests)
    for (a, b), by_op in groups.items():
        shift, stored = len(bits), tuple(by_op) if len(by_op) == 1 else ("le", "ge")
        bits += [Call(op, (a, b)) for op in stored]
        mask = (1 << len(stored)) - 1 << shift
        own: Expr = code if len(groups) == 1 else Call("bitand", (code, Const(mask, U8)))
        for op, same in by_op.items():
            values = ORDERS[op] if len(by_op) > 1 else (1,)
            holds = [Call("eq", (own, Const(value << shift, U8))) for value in values]
            asked |= dict.fromkeys(same, any_holds(holds))
    numbers: list[Expr] = [Select(bit, Const(1 << n, U8), Const(0, U8)) for n, bit in enumerate(bits)]
    return reduce(lambda x, y: Call("bitor", (x, y)), numbers), asked
