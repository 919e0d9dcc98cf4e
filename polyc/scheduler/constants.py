"""Take out of a program what depends on constant inputs only: it is computed once, when the constants are bound.

Before: ``H[n, k] = W[n, k] * s[n] ; Y[m, n] += X[m, k] * H[n, k]`` with W and s constant.
After:  ``Y[m, n] += X[m, k] * H[n, k]`` where H is an input, and the first statement in a program of its own.

It is done twice: on the program before anything else, and on the refined rows, where the copies that packing made of
constants leave the tree (their loops go, their tensor becomes an argument in panels as wide as the register tile).
"""

from __future__ import annotations

from polyc.ir.expr import index_names
from polyc.ir.program import Program, RangeClause, Statement, statement_reads
from polyc.ir.segments import loaded_clauses
from polyc.ir.simplify import simplify_int
from polyc.ir.types import DType
from polyc.poly.domains import fills_box
from polyc.poly.extraction import extract_scop
from polyc.poly.ranges import Interval, Ranges
from polyc.poly.rows import Band, Leaf, Node, Sequence
from polyc.poly.scop import Scop
from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that was taken out, and the interval of each dimension of its target."""

    statement: Statement
    intervals: tuple[Interval, ...]
    dtype: DType


def split_constants(
    program: Program, ranges: Ranges, constants: frozenset[str]
) -> tuple[Program, Ranges, tuple[Prepared, ...]]:
    """Statements that read `constants` (tensor versions) only leave the program; what others read of them becomes input.

    A statement stays where it would make more elements than it reads (a broadcast is cheaper to read than to store), where
    its subscripts are checked at run time, and where its target is a result.
    """
    taken = _find_constant_statements(program, ranges, constants)
    if not taken:
        return program, ranges, ()
    gone = {s.target for s in taken}
    kept = tuple(s for s in program.statements if s.target not in gone)
    needed = {r.tensor for s in kept for r in statement_reads(s)}
    tensors, inputs = [], []
    for t in program.tensors:
        if t.name in gone and t.name in needed:
            inputs.append(t.name)
            tensors.append(replace(t, role="input", shape=tuple(i.extent for i in ranges.tensors[t.name])))
        elif t.name not in gone:
            tensors.append(t)
    new = replace(program, statements=kept, tensors=tuple(tensors), parameters=(*program.parameters, *inputs))
    names = {s.name for s in taken}
    unused = gone - set(inputs)
    new_ranges = replace(
        ranges,
        statements={n: r for n, r in ranges.statements.items() if n not in names},
        tensors={n: i for n, i in ranges.tensors.items() if n not in unused},
    )
    prepared = tuple(Prepared(_pin_ranges(s, ranges), ranges.tensors[s.target], program.types[s.target]) for s in taken)
    return new, new_ranges, prepared


def hoist_constants(scop: Scop, rows: Node, constants: frozenset[str]) -> tuple[Scop, Node, tuple[Prepared, ...]]:
    """As `split_constants`, for statements that have rows already."""
    program, ranges, prepared = split_constants(scop.program, scop.ranges, constants)
    kept = None if not prepared else _remove_leaves(rows, {p.statement.name for p in prepared})
    if kept is None:
        return scop, rows, ()
    return extract_scop(program, ranges, scop), kept, prepared


def _find_constant_statements(program: Program, ranges: Ranges, constants: frozenset[str]) -> list[Statement]:
    writers = program.writers()
    known, found = set(constants), {}
    progress = True
    while progress:
        progress = False
        for target, statements in writers.items():
            if target in known or program.tensor(target).role != "temporary":
                continue
            if all(_is_constant(s, ranges, known) for s in statements):
                known.add(target)
                found[target] = progress = True
    return [s for s in program.statements if s.target in found]


def _is_constant(s: Statement, ranges: Ranges, known: set[str]) -> bool:
    tensors = {r.tensor for r in statement_reads(s)}
    own = ranges.statements[s.name]
    if not tensors or not tensors <= known or own.guards:
        return False
    # Computed by itself, its ranges are told by clauses, and no reader asks for a part of it alone: only a box can be.
    if not (own.domain.is_box() and fills_box(own.domain, own.indices, s.indices)):
        return False
    return s.reduction is not None or any(set(s.left_indices) <= index_names(r) for r in statement_reads(s))


def _pin_ranges(s: Statement, ranges: Ranges) -> Statement:
    """`s` with a range clause for every index that has none: its ranges no longer follow from the program around it."""
    told = {c.index for c in s.where if isinstance(c, RangeClause) and c not in loaded_clauses(s.where)}
    clauses = []
    for name, interval in ranges.statements[s.name].indices.items():
        if name not in told:
            upper = simplify_int(interval.lower + interval.extent)
            clauses.append(RangeClause(name, interval.lower, upper, s.span))
    return replace(s, where=(*s.where, *clauses))


def _remove_leaves(node: Node, names: set[str]) -> Node | None:
    """The rows without some statements; None where nothing is left."""
    match node:
        case Leaf():
            return None if node.statement in names else node
        case Sequence():
            children = [c for c in (_remove_leaves(child, names) for child in node.children) if c is not None]
            return None if not children else children[0] if len(children) == 1 else Sequence(tuple(children))
        case Band():
            child = _remove_leaves(node.child, names)
            if child is None:
                return None
            members = (replace(m, rows={n: r for n, r in m.rows.items() if n not in names}) for m in node.members)
            return Band(tuple(members), child)
