"""Take a fused band apart where the fusion would stream a large operand once per iteration.

Before: ``[P:m]{ [P:n]{ [R:k] H0 ; R0 } ; [P:n]{ [R:k] H1 ; R1 } }`` (every row of m reads all weights of both layers).
After: ``[P:m]{ [P:n]{ … } } ; [P:m]{ [P:n]{ … } }``.  Always legal: the rows have distance zero on every dependence between
the statements of a band, so running all of one part first keeps each source before its sinks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import prod

from polyc.code_limits import ENOUGH_TASKS, MINIMUM_ITERATIONS, TILE_ROWS
from polyc.ir.expr import Expr, Index
from polyc.ir.simplify import linear_form
from polyc.machine import Level, Machine
from polyc.poly.rows import Band, Leaf, Member, Node, Sequence, statements_of
from polyc.poly.scop import Scop, ScopStatement
from polyc.scheduler.accesses import access_motions, index_trips, statement_work
from polyc.scheduler.contractions.choice import choose
from polyc.scheduler.contractions.contraction import find_contraction
from polyc.scheduler.misfits import bytes_between, groups_across, narrows_tiles, passed_bytes, scattered_parts
from polyc.scheduler.rewriting.split import TILE_TASK
from polyc.scheduler.traffic import find_level, pass_cycles, stream


def distribute_bands(node: Node, scop: Scop, target: Machine, depth: int = 0, is_inside: bool = False) -> Node:
    """Separate the parts of a sequence under a band that each reread an operand that the second-level cache does not hold.

    A band of few tasks that reduces in some parts only is separated as well: the others have more tasks alone.  Not so
    a single loop inside of other bands: its statements pass over a row together (``e = exp(x - m) ; z += e``).
    `depth` is the number of bands around; `is_inside`: the node is the only one in its band."""
    match node:
        case Leaf():
            return node
        case Sequence():
            return Sequence(tuple(distribute_bands(c, scop, target, depth) for c in node.children))
        case Band():
            child = distribute_bands(node.child, scop, target, depth + 1, True)
            if not isinstance(child, Sequence) or any(m.kind == "S" for m in node.members):
                return Band(node.members, child)
            across = groups_across(node.members, child, scop)
            if len(across) > 1:
                return Sequence(tuple(_band_over(node.members, g, scop) for g in across))
            if (scattered := scattered_parts(node.members, child, scop, target)) is not None:
                kept, groups = scattered
                parts = Sequence(tuple(_join_bands(_band_over(node.members[kept:], g, scop)) for g in groups))
                return Band(node.members[:kept], parts) if kept else parts
            child = _open_parts(node.members, child, scop, target)
            is_row = depth > 0 and len(node.members) == 1 and all(isinstance(part, Leaf) for part in child.children)
            reduces = any(m.kind == "R" for m in node.members)
            if not is_inside and not is_row and reduces and _tasks(node, scop) < ENOUGH_TASKS:
                parallel = _free_parallel_parts(node.members, child, scop, target)
                if parallel is not None:
                    return distribute_bands(parallel, scop, target, depth)
            if not is_inside and _starves(node.members, child, scop, target):
                return Sequence(tuple(_band_over(node.members, [part], scop) for part in child.children))
            if reduces and _holds_contraction(child, scop, target):
                return Sequence(tuple(_band_over(node.members, [part], scop) for part in child.children))
            is_free = not is_inside and depth == 0 and not reduces
            if is_free and narrows_tiles(node.members, child, bytes_between(child, scop), scop, target):
                return Sequence(tuple(_band_over(node.members, [part], scop) for part in child.children))
            groups = _groups_of_streams(node.members, child, scop, target)
            if len(groups) == 1:
                return Band(node.members, child)
            return Sequence(tuple(_band_over(node.members, g, scop) for g in groups))


def _open_parts(members: tuple[Member, ...], child: Sequence, scop: Scop, target: Machine) -> Sequence:
    """Parts that were taken apart inside, as parts of the band, where a contraction among them rereads a large operand and
    would keep panels of it that no member of the band moves: alone it reads them once, if nothing shares its rows."""
    parts: list[Node] = []
    for part in child.children:
        inner = part.children if isinstance(part, Sequence) else (part,)
        rereads = (n for p in inner for n in statements_of(p) if _reread_cycles(members, scop.statement(n), scop, target))
        opens = len(inner) > 1 and any(_panels_lie_across(members, scop.statement(n), scop, target) for n in rereads)
        parts += inner if opens else (part,)
    return Sequence(tuple(parts))


def _panels_lie_across(members: tuple[Member, ...], s: ScopStatement, scop: Scop, target: Machine) -> bool:
    """Whether the register tile of a contraction has its vectors along an index that is no member of the band."""
    contraction = find_contraction(s, scop, target)
    choice = None if contraction is None else choose(contraction, target)
    rows = [m.rows[s.name].unit_index() for m in members]
    return choice is not None and choice.way.vector not in {s.indices[p] for p in rows if p is not None}


def _groups_of_streams(members: tuple[Member, ...], child: Sequence, scop: Scop, target: Machine) -> list[list[Node]]:
    """The parts of a band in groups of which at most one rereads a large operand; that one is alone where reading its operand
    for every few iterations moves more than what it is given and gives."""
    reread = [
        0
        if isinstance(part, Leaf)
        else max(_reread_cycles(members, scop.statement(n), scop, target) for n in statements_of(part))
        for part in child.children
    ]
    groups: list[list[Node]] = [[]]
    streams = is_alone = False
    for part, again in zip(child.children, reread, strict=True):
        others = {n for other in child.children if other is not part for n in statements_of(other)}
        passed = passed_bytes(set(statements_of(part)), others, scop)
        is_split = again > pass_cycles(passed, passed, target)
        if groups[-1] and (is_alone or (again and (streams or is_split))):
            groups.append([])
            streams = False
        streams, is_alone = streams or again > 0, again > 0 and is_split
        groups[-1].append(part)
    return groups


def _starves(members: tuple[Member, ...], child: Sequence, scop: Scop, target: Machine) -> bool:
    """Whether the band has too few iterations for threads while what its parts pass on does not fit the cache anyway."""
    iterations, passed = 1, 0
    names = list(statements_of(child))
    first = scop.statement(names[0])
    fixed = [first.indices[p] for m in members if (p := m.rows[first.name].unit_index()) is not None]
    for i in fixed:
        iterations *= index_trips(first)[i]
    if iterations >= MINIMUM_ITERATIONS or any(isinstance(part, Leaf) for part in child.children):
        return False
    read = {m.tensor for n in names for m in access_motions(scop.statement(n)) if not m.is_write}
    for name in names:
        s = scop.statement(name)
        if s.target in read:
            volume = scop.tensors[s.target].dtype.itemsize
            for i in s.left:
                volume *= index_trips(s)[i]
            passed += volume // max(iterations, 1)
    return find_level(passed, target) > Level.L2


def _holds_contraction(child: Sequence, scop: Scop, target: Machine) -> bool:
    """Whether some part is a contraction over the band: alone, its register tile can stay in registers while the band runs."""
    for name in statements_of(child):
        contraction = find_contraction(scop.statement(name), scop, target)
        if contraction is not None and contraction.lanes > 1 and choose(contraction, target) is not None:
            return True
    return False


def _tasks(band: Band, scop: Scop) -> int:
    """Pieces of the parallel members of a band that are worth a thread each: register tiles, or single iterations."""
    first = scop.statement(next(iter(statements_of(band))))
    trips, iterations, n = index_trips(first), 1, 0
    for m in band.members:
        position = m.rows[first.name].unit_index()
        if m.kind == "P" and position is not None:
            iterations *= trips[first.indices[position]]
            n += 1
    return iterations if n < 2 else iterations // TILE_TASK


def _free_parallel_parts(members: tuple[Member, ...], child: Sequence, scop: Scop, target: Machine) -> Node | None:
    """Runs of parts that reduce along the band, and runs that do not; None if all are alike or there is little work."""
    work = sum(statement_work(scop.statement(n)) for n in statements_of(child))
    reduces = [any(_reduces(m, scop.statement(n)) for m in members for n in statements_of(part)) for part in child.children]
    if all(reduces) or work < target.threads.least_work:
        return None
    runs: list[tuple[bool, list[Node]]] = []
    for part, reducing in zip(child.children, reduces, strict=True):
        if not runs or runs[-1][0] != reducing:
            runs.append((reducing, []))
        runs[-1][1].append(part)
    bands = []
    for reducing, parts in runs:
        band = _band_over(members, parts, scop)
        if not reducing:  # what was a reduction is parallel here, and goes outside: each of its iterations has data of its own
            freed = tuple(m for m, was in zip(band.members, members, strict=True) if was.kind == "R")
            band = Band((*freed, *(m for m in band.members if m not in freed)), band.child)
        bands.append(band)
    return Sequence(tuple(bands))


def _reduces(member: Member, s: ScopStatement) -> bool:
    """Whether instances that differ in the member alone may add to one element: a place that data names is any."""
    row = member.rows[s.name]
    own = {i for e in s.subscripts if (i := _only_index(e)) is not None}
    return s.is_reduction and any(c and s.indices[n] not in own for n, c in enumerate(row.coefficients))


def _only_index(subscript: Expr) -> str | None:
    """The index that alone moves an affine subscript."""
    form = linear_form(subscript)
    terms = [] if form is None else [term for term in form if term != 1]
    return terms[0].name if len(terms) == 1 and isinstance(terms[0], Index) else None


def _band_over(members: tuple[Member, ...], parts: list[Node], scop: Scop) -> Band:
    """The band around these parts alone: where none of them reduces along a member, it is parallel."""
    child = parts[0] if len(parts) == 1 else Sequence(tuple(parts))
    names = list(statements_of(child))
    own = [replace(m, rows={n: m.rows[n] for n in names}) for m in members]
    return Band(tuple(replace(m, kind="P") if m.kind == "R" and not _any_reduces(m, names, scop) else m for m in own), child)


def _join_bands(band: Node) -> Node:
    """Two parallel bands around one statement as one."""
    match band:
        case Band(members, Band(inner, Leaf() as leaf)) if all(m.kind == "P" for m in (*members, *inner)):
            return Band((*members, *inner), leaf)
    return band


def _any_reduces(member: Member, names: list[str], scop: Scop) -> bool:
    return any(_reduces(member, scop.statement(n)) for n in names)


def _reread_cycles(members: tuple[Member, ...], s: ScopStatement, scop: Scop, target: Machine) -> float:
    return reread_cycles([s.indices[p] for m in members if (p := m.rows[s.name].unit_index()) is not None], s, scop, target)


def reread_cycles(fixed: Collection[str], s: ScopStatement, scop: Scop, target: Machine) -> float:
    """What it costs `s` to read a large operand that no index of a band (`fixed`) moves, once for each tile of a few of the
    band's iterations."""
    if not s.is_reduction:
        return 0.0
    trips = index_trips(s)
    largest = 0.0
    for access in access_motions(s):
        if access.is_write or any(access.motion(i) != "invariant" for i in fixed):
            continue
        footprint = scop.tensors[access.tensor].dtype.itemsize
        for i in s.indices:
            if access.motion(i) != "invariant":
                footprint *= trips[i]
        if find_level(footprint, target) > Level.L2:
            largest = max(largest, stream(footprint, footprint, target).cycles)
    return largest * max(1, prod(trips[i] for i in fixed) // TILE_ROWS)
