"""Steps that add to a matrix, as sums: what is read of it is only what no later step changes.

before  ``B[0, i, j] = A[i, j]``, ``B[k + 1, i, j] = B[k, i, j] - f(k, i, j)``, read as ``B[k, i, k]``, ``B[k, k, j]``
after   ``B.sum[i, j] += -f(k, i, j)``, ``B.last[i, j] = A[i, j] + B.sum[i, j]``, read as ``B.last[i, k]``, ``B.last[k, j]``

Steps may be counted either way (``B[k] = B[k - 1] - f(k)``).
Gaussian elimination and its relatives are written this way ("right-looking").  As sums they need no steps in memory, and
`block_recurrences` computes them in blocks.
"""

from __future__ import annotations

from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Const, Expr, Index, Pad, Read, Select, identity_of, int_const, substitute, walk
from polyc.ir.program import Program, Reduction, Statement
from polyc.ir.read_sites import collect_reads
from polyc.ir.simplify import simplify
from polyc.poly import isl
from polyc.poly.domains import points_up_to, project_domain, reads_within
from polyc.poly.points import Points, points_of
from polyc.poly.ranges import Interval, Ranges
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.builder import ProgramBuilder
from polyc.scheduler.rewriting.reindexing import map_reads, simplify_subscripts


def sum_final_values(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """The program with every temporary of which only final values are read as a sum over the steps that make it."""
    remarks: list[Remark] = []
    for tensor in program.tensors:
        if tensor.role != "temporary" or tensor.dtype.is_complex or tensor.dtype.is_storage or tensor.dtype.kind == "b":
            continue
        for counted in ((program, ranges), _count_from_former(tensor.name, program, ranges)):
            found = None if counted is None else _find(tensor.name, *counted)
            if counted is not None and found is not None:
                program, ranges = counted
                break
        if found is None:
            continue
        program, ranges = _write(found, program, ranges)
        message = f"steps of {tensor.base} are a sum: only its final values are read"
        remarks.append(Remark("passed", "final-values", message, found.update.name, found.update.span))
    return program, ranges, remarks


@dataclass(frozen=True, eq=False, slots=True)
class _Steps:
    update: Statement
    dimension: int
    """Of the tensor: the one that counts steps, which are the values of index `step`."""
    step: str
    terms: Expr
    """What a step adds."""
    domain: isl.Set  # the `Points` of `update` where it adds something
    starts: tuple[Statement, ...]


def _count_from_former(tensor: str, program: Program, ranges: Ranges) -> tuple[Program, Ranges] | None:
    """The program with steps that are counted from the one before: ``B[k] = f(B[k - 1])`` becomes ``B[k + 1] = f(B[k])``."""
    for s in program.writers().get(tensor, []):
        steps = [_moved(s, site.read) for site in collect_reads(s) if _is_former(site.read, s)]
        own = ranges.statements[s.name]
        if not steps or steps[0] is None or steps.count(steps[0]) != len(steps) or own.guards:
            continue
        (step,) = {steps[0]}
        later: dict[str, Expr] = {step: Index(step) + 1}
        interval, builder = own.indices[step], ProgramBuilder(program, ranges)
        earlier = {step: Interval(simplify(interval.lower - 1), interval.extent)}
        points = builder.points(s).move(s.indices, earlier, later)
        subscripts = tuple(simplify(substitute(e, later)) for e in s.subscripts)
        value = simplify_subscripts(substitute(s.value, later))
        return builder.replace([s], [builder.change(s, points, subscripts=subscripts, value=value)])
    return None


def _moved(s: Statement, read: Read) -> str | None:
    """The index that alone is the subscript in which a read of a former step differs from what is written."""
    (moved,) = (a for a, b in zip(s.subscripts, read.subscripts, strict=True) if a != b)
    return moved.name if isinstance(moved, Index) else None


def _find(tensor: str, program: Program, ranges: Ranges) -> _Steps | None:
    writers = program.writers().get(tensor, [])
    updates = [s for s in writers if any(r.read.tensor == tensor and _is_former(r.read, s) for r in collect_reads(s))]
    if len(updates) != 1 or any(s.reduction is not None for s in writers):
        return None
    (update,) = updates
    own = ranges.statements[update.name]
    starts = tuple(s for s in writers if s is not update)
    steps = [d for d, e in enumerate(update.subscripts) if not isinstance(e, Index)]
    if len(steps) != 1 or not starts or own.guards or len(update.subscripts) != len(update.indices):
        return None
    (d,) = steps
    (step,) = set(update.indices) - {e.name for e in update.subscripts if isinstance(e, Index)} or {""}
    if any(s.subscripts[d] != starts[0].subscripts[d] or not isinstance(s.subscripts[d], Const) for s in starts):
        return None
    if any(ranges.statements[s.name].guards or not _is_plain(s, d) for s in starts):
        return None
    if any(isinstance(n, Pad) and n.read.tensor == tensor for s in program.statements for n in walk(s.value)):
        return None
    points, value = points_of(update, own), update.value
    former = Read(tensor, tuple(Index(step) if e == d else sub for e, sub in enumerate(update.subscripts)))
    while isinstance(value, Select) and former in (value.then, value.other):
        adds = value.other == former
        there = points.where(value.condition, adds)
        if there is None:
            return None
        points, value = there, value.then if adds else value.other
    terms = _without(value, former)
    if terms is None or any(node == former for node in walk(terms)):
        return None
    found = _Steps(update, d, step, terms, points.domain, starts)
    return found if _reads_final_values(found, program, ranges) else None


def _is_former(read: Read, s: Statement) -> bool:
    """Whether a read is of what the statement writes, one step earlier."""
    if read.tensor != s.target:
        return False
    differ = [simplify(a - b) for a, b in zip(s.subscripts, read.subscripts, strict=True) if a != b]
    return differ == [int_const(1)]


def _is_plain(s: Statement, dimension: int) -> bool:
    rest = [e for d, e in enumerate(s.subscripts) if d != dimension]
    return all(isinstance(e, Index) for e in rest) and len(set(rest)) == len(rest) == len(s.indices)


def _without(value: Expr, former: Read) -> Expr | None:
    """`value` less `former`, which is a term of it."""
    match value:
        case Call(op="add", args=(a, b)):
            if former in (a, b):
                return b if a == former else a
            for x, y in ((a, b), (b, a)):
                rest = _without(x, former)
                if rest is not None:
                    return rest + y
        case Call(op="sub", args=(a, b)):
            if a == former:
                return -b
            rest = _without(a, former)
            return None if rest is None else rest - b
    return None


def _reads_final_values(found: _Steps, program: Program, ranges: Ranges) -> bool:
    """Whether nothing but the next step reads an element that some later step adds to."""
    s, d = found.update, found.dimension
    order = [e.name if isinstance(e, Index) else found.step for e in s.subscripts]
    added = project_domain(found.domain, s.indices, s.target, order)
    final = points_up_to(added, d).complement()
    for reader in program.statements:
        own = ranges.statements[reader.name]
        for site in collect_reads(reader):
            if site.read.tensor != s.target or (reader is s and _is_former(site.read, s)):
                continue
            if site.place != "value" or own.guards or not reads_within(site, own.domain, reader.indices, final):
                return False
    return True


def _write(found: _Steps, program: Program, ranges: Ranges) -> tuple[Program, Ranges]:
    s, d = found.update, found.dimension
    like, builder = program.tensor(s.target), ProgramBuilder(program, ranges)
    others = tuple(e.name for e in s.subscripts if isinstance(e, Index))
    box = [interval for n, interval in enumerate(ranges.tensors[s.target]) if n != d]
    sum_name, last = (builder.temporary(f"{s.target}.{suffix}", box, like) for suffix in ("sum", "last"))

    def at_last(read: Read) -> Read:
        return Read(last, _without_dimension(read.subscripts, d), read.span) if read.tensor == s.target else read

    for old in program.statements:
        value = map_reads(old.value if old is not s else found.terms, at_last)
        if old is s:
            points = Points(builder.points(s).indices, found.domain).project((*others, found.step))
            reduction = Reduction("add", identity_of("add", like.dtype))
            changes = {"target": sum_name, "subscripts": tuple(map(Index, others)), "reduction": reduction}
            builder.statements.append(builder.change(s, points, value=value, **changes))
        elif old in found.starts:
            left = _without_dimension(old.subscripts, d)
            value = value + Read(sum_name, left)
            builder.statements.append(replace(old, target=last, subscripts=left, value=value, where=()))
        else:
            builder.statements.append(replace(old, value=value))
    return builder.finish()


def _without_dimension(subscripts: tuple[Expr, ...], d: int) -> tuple[Expr, ...]:
    return subscripts[:d] + subscripts[d + 1 :]
