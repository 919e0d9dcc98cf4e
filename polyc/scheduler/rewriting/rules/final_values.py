"""Steps that add to a matrix, as sums: what is read of it is only what no later step changes.

before  ``B[0, i, j] = A[i, j]``, ``B[k + 1, i, j] = B[k, i, j] - f(k, i, j)``, read as ``B[k, i, k]``, ``B[k, k, j]``
after   ``B.sum[i, j] += -f(k, i, j)``, ``B.last[i, j] = A[i, j] + B.sum[i, j]``, read as ``B.last[i, k]``, ``B.last[k, j]``

Steps may be counted either way (``B[k] = B[k - 1] - f(k)``).
Gaussian elimination and its relatives are written this way ("right-looking").  As sums they need no steps in memory, and
`block_recurrences` computes them in blocks.
"""

from __future__ import annotations

from typing import TypeVar

from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Const, Expr, Index, Pad, Read, Select, identity_of, int_const, substitute, walk
from polyc.ir.program import Program, Reduction, Statement
from polyc.ir.read_sites import collect_reads
from polyc.ir.simplify import simplify
from polyc.poly.domains import points_up_to, project_domain, reads_within
from polyc.poly.points import Points, points_of
from polyc.poly.ranges import Interval, Ranges
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.builder import ProgramBuilder
from polyc.scheduler.rewriting.reindexing import map_reads, simplify_subscripts

_T = TypeVar("_T")


def sum_final_values(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """The program with every temporary of which only final values are read as a sum over the steps that make it."""
    remarks: list[Remark] = []
    for tensor in program.tensors:
        if tensor.role != "temporary" or tensor.dtype.is_complex or tensor.dtype.is_storage or tensor.dtype.kind == "b":
            continue
        found = _find(tensor.name, program, ranges)
        if found is not None and _reads_final_values(found, program, ranges):
            program, ranges = _write(found, program, ranges)
            message = f"steps of {tensor.base} are a sum: only its final values are read"
            remarks.append(Remark("passed", "final-values", message, found.update.name, found.update.span))
    return program, ranges, remarks


@dataclass(frozen=True, eq=False, slots=True)
class _Steps:
    update: Statement
    former: Read
    """The element that it adds to."""
    dimension: int
    """Of the tensor: the one that counts steps."""
    terms: Expr
    """What a step adds, at `points`."""
    points: Points
    """The indices that are kept, and the step as the last one: where something is added to that step."""
    starts: list[Statement]


def _find(tensor: str, program: Program, ranges: Ranges) -> _Steps | None:
    writers = program.writers().get(tensor, [])
    if any(s.reduction is not None or ranges.statements[s.name].guards for s in writers):
        return None
    formers = {s.name: [r.read for r in collect_reads(s) if _is_former(r.read, s)] for s in writers}
    updates, starts = [s for s in writers if formers[s.name]], [s for s in writers if not formers[s.name]]
    if len(updates) != 1 or not starts:
        return None
    (update,) = updates
    former = formers[update.name][0]
    (d,) = (n for n, (a, b) in enumerate(zip(update.subscripts, former.subscripts, strict=True)) if a != b)
    others = [e.name for n, e in enumerate(update.subscripts) if n != d and isinstance(e, Index)]
    if len(others) + 1 != len(update.subscripts) or len(set(others)) + 1 != len(update.indices):
        return None
    (step,) = set(update.indices) - set(others)
    if any(s.subscripts[d] != starts[0].subscripts[d] or not isinstance(s.subscripts[d], Const) for s in starts):
        return None
    if not all(_is_plain(s, d) for s in starts):
        return None
    if any(isinstance(n, Pad) and n.read.tensor == tensor for s in program.statements for n in walk(s.value)):
        return None
    offset = simplify(former.subscripts[d] - Index(step))
    if not isinstance(offset, Const):
        return None
    # Steps are counted by what they add to, as ``B[k + 1] = f(B[k])`` does and ``B[k] = f(B[k - 1])`` does not.
    place, points = {step: simplify(Index(step) - offset)}, points_of(update, ranges.statements[update.name])
    own = points.indices[step]
    points = points.move((*others, step), {step: Interval(simplify(own.lower + offset), own.extent)}, place)
    moved = replace(former, subscripts=tuple(Index(step) if n == d else e for n, e in enumerate(former.subscripts)))
    value = simplify_subscripts(substitute(update.value, place))
    while isinstance(value, Select) and moved in (value.then, value.other):
        adds = value.other == moved
        there = points.where(value.condition, adds)
        if there is None:
            return None
        points, value = there, value.then if adds else value.other
    terms = _without(value, moved)
    if terms is None or any(node == moved for node in walk(terms)):
        return None
    return _Steps(update, former, d, terms, points, starts)


def _is_former(read: Read, s: Statement) -> bool:
    """Whether a read is of what the statement writes, one step earlier."""
    if read.tensor != s.target:
        return False
    differ = [simplify(a - b) for a, b in zip(s.subscripts, read.subscripts, strict=True) if a != b]
    return differ == [int_const(1)]


def _is_plain(s: Statement, dimension: int) -> bool:
    rest = _without_dimension(s.subscripts, dimension)
    return all(isinstance(e, Index) for e in rest) and len(set(rest)) == len(rest) == len(s.indices)


def _without(value: Expr, former: Read) -> Expr | None:
    """`value` less `former`, which is a term of it."""
    match value:
        case Call("add" | "sub" as op, (a, b)):
            if a == former:
                return b if op == "add" else -b
            if b == former and op == "add":
                return a
            for x, y in ((a, b), (b, a)) if op == "add" else ((a, b),):
                rest = _without(x, former)
                if rest is not None:
                    return Call(op, (rest, y))
    return None


def _reads_final_values(found: _Steps, program: Program, ranges: Ranges) -> bool:
    """Whether nothing but the next step reads an element that some later step adds to."""
    *order, step = found.points.indices
    order.insert(found.dimension, step)
    added = project_domain(found.points.domain, tuple(found.points.indices), found.update.target, order)
    final = points_up_to(added, found.dimension).complement()
    for reader in program.statements:
        own = ranges.statements[reader.name]
        for site in collect_reads(reader):
            if site.read.tensor != found.update.target or (reader is found.update and site.read == found.former):
                continue
            if site.place != "value" or own.guards or not reads_within(site, own.domain, reader.indices, final):
                return False
    return True


def _write(found: _Steps, program: Program, ranges: Ranges) -> tuple[Program, Ranges]:
    s, d = found.update, found.dimension
    like, builder = program.tensor(s.target), ProgramBuilder(program, ranges)
    box = _without_dimension(ranges.tensors[s.target], d)
    sum_name, last = (builder.temporary(f"{s.target}.{suffix}", box, like) for suffix in ("sum", "last"))

    def at_last(read: Read) -> Read:
        return Read(last, _without_dimension(read.subscripts, d), read.span) if read.tensor == s.target else read

    for old in program.statements:
        value = map_reads(old.value if old is not s else found.terms, at_last)
        if old is s:
            *left, _ = map(Index, found.points.indices)
            reduction = Reduction("add", identity_of("add", like.dtype))
            changes = {"target": sum_name, "subscripts": tuple(left), "reduction": reduction}
            builder.statements.append(builder.change(s, found.points, value=value, **changes))
        elif old in found.starts:
            element = _without_dimension(old.subscripts, d)
            value = value + Read(sum_name, element)
            builder.statements.append(replace(old, target=last, subscripts=element, value=value, where=()))
        else:
            builder.statements.append(replace(old, value=value))
    return builder.finish()


def _without_dimension(subscripts: tuple[_T, ...], d: int) -> tuple[_T, ...]:
    return subscripts[:d] + subscripts[d + 1 :]
