"""Packing as copy statements: a Scop → Scop rewrite that gives a reduction the layout its register tile wants.

Before: ``[P:i, P:j]{ [R:k] S }`` where S reads ``B[j, k]`` along a strided vector index j.
After:  ``[P:j]{ [P:k] pack ; [P:i]{ [R:k] S } }`` where ``pack: B.packed[k, j] = B[j, k]`` and S reads ``B.packed[k, j]``.

The copy is an ordinary statement: its storage is folded to the panel of one tile of j like that of any other temporary, and
the proofs see it.  What is packed is the operand that moves with the vector index; the other one is broadcast from its
place (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS 2008; here with one pack).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyc.config import Options
from polyc.diagnostics import Remark
from polyc.ir.expr import Const, Expr, Index, Read, reads, rewrite
from polyc.ir.program import Statement, Tensor
from polyc.poly.domains import project_domain, stays_inside
from polyc.poly.ranges import StatementRanges
from polyc.poly.rows import Band, Leaf, Member, Node, Row, Sequence, statements_of
from polyc.poly.scop import Scop, ScopStatement, extract_scop
from polyc.scheduler.accesses import AccessMotion, access_motions, index_trips
from polyc.scheduler.costs import cycles_along, cycles_along_reduction
from polyc.scheduler.parallel import MINIMUM_ITERATIONS
from polyc.target import Target

MINIMUM_REUSE = 16
"""Rows that must share a packed element before the copy of a strided operand is considered."""

MINIMUM_UNIT_REUSE = 96
"""The same for an operand that could be read in place."""


MINIMUM_CONSTANT_REUSE = 2
"""The same for an operand that never changes: its copy is made once, so it costs nothing at a call."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """Pack `read` of statement `s` so that `order` (original indices, the vector index last) is its layout."""

    s: ScopStatement
    read: Read
    vector: str
    order: tuple[str, ...]
    reason: str


def pack_operands(
    scop: Scop, rows: Node, target: Target, options: Options, constants: frozenset[str] = frozenset()
) -> tuple[Scop, Node, list[Remark]]:
    """Add a copy statement for each operand that is worth packing, under the loops that its elements move with.

    `constants` are inputs whose copies will not be made at each call."""
    remarks: list[Remark] = []
    for leaf, bands in list(_leaves(rows, ())):
        s = scop.statement(leaf)
        choice = _choose(s, bands, scop, target, options, constants)
        if choice is None:
            continue
        packed = _add_copy(scop, choice)
        if packed is None:
            continue
        copy, new_scop = packed
        placed = _place_copy(rows, choice, copy, new_scop, target)
        if placed is None:
            continue
        scop, rows = new_scop, placed
        remarks.append(Remark("passed", "pack", f"{choice.read.tensor} by {choice.vector}: {choice.reason}", s.name))
    return scop, rows, remarks


def _leaves(node: Node, path: tuple[Band, ...]) -> list[tuple[str, tuple[Band, ...]]]:
    """Every leaf alone in its innermost band, with the bands around it."""
    match node:
        case Leaf():
            return [(node.statement, path)]
        case Sequence():
            return [leaf for child in node.children if not isinstance(child, Leaf) for leaf in _leaves(child, path)]
        case Band():
            return _leaves(node.child, (*path, node))


def _choose(
    s: ScopStatement, bands: tuple[Band, ...], scop: Scop, target: Target, options: Options, constants: frozenset[str]
) -> _Choice | None:
    """The operand to pack: the one that moves with the best vector index, unless it is read well from its place."""
    if s.op != "add" or not s.left or not options.tile or not options.vectorize:
        return None
    motions, trips = access_motions(s), index_trips(s)
    operands = [m for m in motions if not m.is_write]
    if len(operands) != 2 or any(_has_none(m) for m in operands):
        return None
    itemsize = scop.tensors[s.target].dtype.itemsize
    lanes = max(1, target.lanes(itemsize))
    best: tuple[float, _Choice | None] = (cycles_along_reduction(s, motions, lanes), None)
    for vector in s.left:
        moving = [m for m in operands if m.motion(vector) != "invariant"]
        if len(moving) != 1 or trips[vector] < lanes // 2:
            continue
        other = next(m for m in operands if m is not moving[0])
        is_unit = moving[0].motion(vector) == "unit"
        layout = _plain_indices(moving[0])
        if not _is_dense(other, s) or (not is_unit and (layout is None or vector not in layout)):
            continue
        is_constant = moving[0].tensor in constants
        choice = (
            None
            if layout is None or vector not in layout
            else _make_choice(s, bands, moving[0], vector, layout, target, scop.tensors[moving[0].tensor].shape, is_constant)
        )
        if choice is None and not is_unit:
            continue
        cycles = cycles_along(s, motions, moving[0], vector, lanes, itemsize, choice is not None and not is_constant)
        if cycles < best[0]:
            best = (cycles, choice)
    return best[1]


def _make_choice(
    s: ScopStatement,
    bands: tuple[Band, ...],
    operand: AccessMotion,
    vector: str,
    layout: tuple[str, ...],
    target: Target,
    shape: tuple[Expr, ...],
    is_constant: bool,
) -> _Choice | None:
    """How to pack `operand`, of extents `shape`, for `vector`; None if too few rows share its elements."""
    trips = index_trips(s)
    reuse, depth = 1, 1
    for i in s.left:
        reuse *= 1 if i in layout else trips[i]
    for i in s.reduction_indices:
        depth *= trips[i] if i in layout else 1
    is_unit = operand.motion(vector) == "unit"
    is_read_well = is_unit and target.vector_bits >= 512  # narrow tiles take one cache line of a row, wide ones several
    minimum = MINIMUM_CONSTANT_REUSE if is_constant else MINIMUM_UNIT_REUSE if is_read_well else MINIMUM_REUSE
    if depth < 8 or reuse < minimum:
        return None
    if is_unit and depth * target.vector_bits // 8 * 4 <= target.l1:
        return None
    kept = tuple(i for i in s.left if i in layout and i != vector)
    order = (*kept, *_reduction_order(s, bands, layout), vector)
    reason = f"read along a {'unit' if is_unit else 'longer'} stride, each element by {reuse} rows"
    read = next((r for r in reads(s.value) if r.tensor == operand.tensor and _layout(r) == layout), None)
    if read is None:  # a constant is added to a subscript
        return None
    if not stays_inside(s.domain, s.indices, read.subscripts, shape):
        return None  # a selection guards the read (the border of a padded one): the copy would read outside of the array
    return _Choice(s, read, vector, order, reason)


def _has_none(m: AccessMotion) -> bool:
    return any(c is None for c in m.coefficients)


def _is_dense(m: AccessMotion, s: ScopStatement) -> bool:
    """Whether the broadcast operand can be read in place: affine in every dimension."""
    return not _has_none(m) and any(m.motion(i) != "invariant" for i in s.indices)


def _plain_indices(m: AccessMotion) -> tuple[str, ...] | None:
    """The indices of the dimensions if every subscript is one index alone, all different, or a constant."""
    names: list[str] = []
    for c in m.coefficients:
        if c is not None and not c:
            continue
        if c is None or len(c) != 1 or set(c.values()) != {1}:
            return None
        names.append(next(iter(c)))
    return tuple(names) if len(set(names)) == len(names) else None


def _layout(read: Read) -> tuple[str, ...] | None:
    if not all(isinstance(sub, Index | Const) for sub in read.subscripts):
        return None
    return tuple(sub.name for sub in read.subscripts if isinstance(sub, Index))


def _reduction_order(s: ScopStatement, bands: tuple[Band, ...], layout: tuple[str, ...]) -> list[str]:
    """Reduction indices of the operand in the order of the loops."""
    found = []
    for band in bands:
        for m in band.members:
            position = m.rows[s.name].unit_index()
            if position is not None and s.indices[position] in s.reduction_indices and s.indices[position] in layout:
                found.append(s.indices[position])
    return found


def _add_copy(scop: Scop, choice: _Choice) -> tuple[str, Scop] | None:
    """The program with the copy statement and the redirected read, extracted again."""
    program, ranges, s = scop.program, scop.ranges, choice.s
    original = next(st for st in program.statements if st.name == s.name)
    # The program's own read (before shifting to zero): same tensor, same indices.
    candidates = [r for r in reads(original.value) if r.tensor == choice.read.tensor and _layout(r) is not None]
    match = next((r for r in candidates if set(_layout(r) or ()) == set(choice.order)), None)
    if match is None:
        return None
    tensor = program.tensor(match.tensor)
    name = f"{tensor.name}.packed.{s.name}"
    copy_name = f"{s.name}_pack"
    own = ranges.statements[s.name]
    packed = Tensor(name, tensor.dtype, len(choice.order), None, "temporary", f"{tensor.base}.packed", tensor.span)
    copy = Statement(copy_name, name, tuple(Index(i) for i in choice.order), choice.order, match, None, (), original.span)
    new_read = Read(name, tuple(Index(i) for i in choice.order), match.span)
    redirected = replace(original, value=rewrite(original.value, lambda e: new_read if e == match else None))
    new_program = replace(
        program,
        statements=tuple(x for st in program.statements for x in ((copy, redirected) if st is original else (st,))),
        tensors=(*program.tensors, packed),
    )
    intervals = {i: own.indices[i] for i in choice.order}
    copy_ranges = StatementRanges(intervals, project_domain(own.domain, s.indices, copy_name, choice.order))
    new_ranges = replace(
        ranges,
        statements={**ranges.statements, copy_name: copy_ranges},
        tensors={**ranges.tensors, name: tuple(intervals[i] for i in choice.order)},
    )
    return copy_name, extract_scop(new_program, new_ranges)


def _place_copy(node: Node, choice: _Choice, copy: str, scop: Scop, target: Target) -> Node | None:
    """Put the copy under the members that its elements move with and the statement runs coincidentally."""
    match node:
        case Leaf():
            return None
        case Sequence():
            for n, child in enumerate(node.children):
                if choice.s.name in statements_of(child):
                    placed = _place_copy(child, choice, copy, scop, target)
                    if placed is None:
                        return None
                    return Sequence((*node.children[:n], placed, *node.children[n + 1 :]))
            return None
        case Band():
            return _place_in_band(node, choice, copy, scop, target)


def _place_in_band(band: Band, choice: _Choice, copy: str, scop: Scop, target: Target) -> Node | None:
    s = choice.s
    above: list[tuple[Member, str]] = []
    rest: list[Member] = []
    for m in band.members:
        position = m.rows[s.name].unit_index()
        index = None if position is None else s.indices[position]
        if m.kind == "P" and index in choice.order:
            above.append((m, index))
        else:
            rest.append(m)
    vector_here = any(i == choice.vector for _, i in above)
    if not vector_here:
        inner = _place_copy(band.child, choice, copy, scop, target)
        if inner is None or rest or not above:
            # The vector loop sits deeper: the loops above it must carry the copy along.
            return None
        return Band(tuple(_with_row(m, i, choice, copy) for m, i in above), inner)
    used = {i for _, i in above}
    producers = {x.name for x in scop.statements if x.target == choice.read.tensor} & set(statements_of(band))
    if producers and rest:
        # What is copied is made inside the loops that the copy would have to stay above.
        return None
    if rest and _is_small(choice, scop, target):
        # The whole copy stays in the cache: make it once, and leave the loops below whole for threads.
        own = Band(_copy_members(choice, copy, choice.order), Leaf(copy))
        return Sequence((own, band))
    free = tuple(i for i in choice.order if i not in used)
    own = Band(_copy_members(choice, copy, free), Leaf(copy))
    below: Node = Band(tuple(rest), band.child) if rest else band.child
    children = below.children if isinstance(below, Sequence) else (below,)
    first = next((n for n, child in enumerate(children) if s.name in statements_of(child)), 0) if producers else 0
    if producers & set(statements_of(children[first])):
        return None
    parts = (*children[:first], own, *children[first:])
    return Band(tuple(_with_row(m, i, choice, copy) for m, i in above), Sequence(parts))


def _copy_members(choice: _Choice, copy: str, indices: tuple[str, ...]) -> tuple[Member, ...]:
    return tuple(Member("P", {copy: Row(tuple(int(i == j) for j in choice.order))}) for i in indices)


def _is_small(choice: _Choice, scop: Scop, target: Target) -> bool:
    """Whether the copy fits a quarter of the second-level cache and its tiles are too few to share among threads."""
    trips = index_trips(choice.s)
    size = scop.tensors[choice.read.tensor].dtype.itemsize
    for i in choice.order:
        size *= trips[i]
    tiles = -(-trips[choice.vector] // (target.vector_bits // 8))
    return size <= target.l2 // 4 and tiles < MINIMUM_ITERATIONS


def _with_row(member: Member, index: str, choice: _Choice, copy: str) -> Member:
    return replace(member, rows={**member.rows, copy: Row(tuple(int(index == j) for j in choice.order))})
