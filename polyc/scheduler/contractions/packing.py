"""Packing as copy statements: a Scop → Scop rewrite that gives a contraction the layout its register tile wants.

Before: ``[P:i, P:j]{ [R:k] S }`` where S reads ``B[j, k]`` along a strided vector index j.
After:  ``[P:j]{ [P:k] pack ; [P:i]{ [R:k] S } }`` where ``pack: B.packed[k, j] = B[j, k]`` and S reads ``B.packed[k, j]``.

The copy is an ordinary statement: its storage is folded to the panel of one tile of j like that of any other temporary, and
the proofs see it.  A copy has one dimension per linear form of the operand's subscripts (`operands`): windows that overlap
are stored once, with the border that padding adds and with elementwise functions computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import gcd

from polyc.code_limits import MINIMUM_ITERATIONS
from polyc.config import Options
from polyc.diagnostics import Remark
from polyc.ir.expr import Index, Read, rewrite, type_of
from polyc.ir.program import Statement, Tensor
from polyc.machine import Level, Machine, Share
from polyc.poly.domains import box_domain, project_domain, stays_inside
from polyc.poly.extraction import extract_scop
from polyc.poly.ranges import StatementRanges
from polyc.poly.rows import Band, Leaf, Member, Node, Row, Sequence, statements_of
from polyc.poly.scop import Scop, ScopStatement
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import index_trips, statement_work
from polyc.scheduler.contractions.choice import Choice, choose, describe
from polyc.scheduler.contractions.contraction import find_contraction
from polyc.scheduler.contractions.operands import Form, Operand, form_expr, form_interval, form_name, over_forms
from polyc.scheduler.tiling import RegisterTile


@dataclass(frozen=True, slots=True)
class Packed:
    """The program with its copies, and the register tiles that were chosen with them, by statement."""

    scop: Scop
    rows: Node
    tiles: dict[str, RegisterTile] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)
    """How each contraction is computed, by statement."""
    remarks: list[Remark] = field(default_factory=list)


def pack_operands(
    scop: Scop,
    rows: Node,
    target: Machine,
    options: Options,
    constants: frozenset[str] = frozenset(),
    cutting: frozenset[str] = frozenset(),
) -> Packed:
    """Choose how to compute each contraction, and add a copy statement for each operand that is worth one.

    `constants` are inputs whose copies will not be made at each call; `cutting`: statements that choose their tiles before
    heavier ones that share their loops."""
    result = Packed(scop, rows)
    if not options.tile or not options.vectorize:
        return result
    for leaf in _in_order(rows, scop, cutting):
        contraction = find_contraction(result.scop.statement(leaf), result.scop, target, _sequential_indices(rows, leaf, scop))
        if contraction is None or contraction.lanes == 1:
            continue
        in_place: set[Read] = set()
        within = _shared_tiles(rows, leaf, result.choices, scop)
        while (choice := choose(contraction, target, constants, in_place, within)) is not None:
            applied = _apply(result, leaf, choice, target)
            if isinstance(applied, Packed):
                result = applied
                break
            in_place.add(applied.read)  # its copy has no place: choose again without it
    return result


def choose_together(rows: Node, scop: Scop, target: Machine, cutting: frozenset[str]) -> dict[str, Choice]:
    """How `pack_operands` will compute the contractions that share loops, by statement, where all copies have a place."""
    found: dict[str, Choice] = {}
    for leaf in _in_order(rows, scop, cutting):
        contraction = find_contraction(scop.statement(leaf), scop, target, _sequential_indices(rows, leaf, scop))
        if contraction is not None and contraction.lanes > 1:
            choice = choose(contraction, target, within=_shared_tiles(rows, leaf, found, scop))
            found |= {} if choice is None else {leaf: choice}
    return found


def _in_order(rows: Node, scop: Scop, cutting: frozenset[str]) -> list[str]:
    """Statements alone in their bands, the heaviest first, as a rule: its tile cuts the loops that it shares, and the tiles of
    others have to fit in there."""
    return sorted(_single_leaves(rows), key=lambda n: (n not in cutting, -statement_work(scop.statement(n))))


def _single_leaves(node: Node) -> list[str]:
    """Every statement that is alone in its innermost band."""
    match node:
        case Leaf():
            return [node.statement]
        case Sequence():
            return [leaf for child in node.children if not isinstance(child, Leaf) for leaf in _single_leaves(child)]
        case Band():
            return _single_leaves(node.child)


def _shared_tiles(node: Node, name: str, choices: Mapping[str, Choice], scop: Scop) -> dict[str, int]:
    """Indices of a statement that run over the same loops as indices of contractions before it, and how these cut them; and
    those whose loops begin at a multiple of others, where a tile that does not divide their steps would be cut short."""
    s = scop.statement(name)
    found = dict(s.start_steps)
    while not isinstance(node, Leaf):
        if isinstance(node, Sequence):
            node = next(child for child in node.children if name in statements_of(child))
            continue
        for m in node.members if choices else ():
            own = m.rows[name].unit_index()
            for other, choice in choices.items():
                position = m.rows[other].unit_index() if other in m.rows else None
                if own is None or position is None or m.kind != "P":
                    continue
                size = choice.way.tile.get(scop.statement(other).indices[position], 1)
                if size > 1:
                    found[s.indices[own]] = gcd(found.get(s.indices[own], size), size)
        node = node.child
    return found


def _sequential_indices(node: Node, name: str, scop: Scop) -> frozenset[str]:
    """Indices of a statement along which its band walks in order, up or down: no register tile can hold several of their
    values."""
    s = scop.statement(name)
    found: set[str] = set()
    while not isinstance(node, Leaf):
        if isinstance(node, Sequence):
            node = next(child for child in node.children if name in statements_of(child))
            continue
        for m in node.members:
            moving = [i for i, c in zip(s.indices, m.rows[name].coefficients, strict=True) if c]
            if m.kind == "S" and len(moving) == 1:
                found.update(moving)
        node = node.child
    return frozenset(found)


def _apply(before: Packed, name: str, choice: Choice, target: Machine) -> Packed | Operand:
    """The program with the copies of a choice; or the operand that cannot be copied."""
    result = before
    s = before.scop.statement(name)
    # The row operand first: its copy is made outside of everything that repeats it.
    for operand, is_vector in ((choice.row_operand, False), (choice.vector_operand, True)):
        if not (choice.way.packs_vector if is_vector else choice.way.packs_rows):
            continue
        copy = _make_copy(result.scop, s, operand, _order_forms(operand, choice, is_vector))
        placed = None if copy is None else _place(result.rows, copy, choice, is_vector, target)
        if copy is None or placed is None:
            return operand
        vector = form_name(copy.forms[-1])
        tiles = {**result.tiles, copy.name: RegisterTile(vector, choice.way.lanes, {})}
        reuse = f"each element is used {_reuse(s, copy.forms)} times"
        text = f"{operand.read.tensor} by {vector}: {reuse}"
        remark = Remark("passed", "pack", text, name)
        result = replace(result, scop=copy.scop, rows=placed, tiles=tiles, remarks=[*result.remarks, remark])
    sizes = dict(choice.way.tile)
    if choice.way.block is not None:
        sizes[choice.way.block[0]] = choice.way.block[1]
    tile = RegisterTile(choice.way.vector, choice.way.lanes, sizes, order=choice.way.order)
    remarks = [*result.remarks, Remark("analysis", "contraction", describe(choice), name)]
    tiles, choices = {**result.tiles, name: tile}, {**result.choices, name: choice}
    return replace(result, tiles=tiles, choices=choices, remarks=remarks)


def _reuse(s: ScopStatement, forms: tuple[Form, ...]) -> int:
    trips = index_trips(s)
    moving = {i for form in forms for i, _ in form}
    result = 1
    for i in s.indices:
        result *= 1 if i in moving else trips[i]
    return result


def _order_forms(operand: Operand, choice: Choice, is_vector: bool) -> tuple[Form, ...]:
    """Dimensions of the copy: for a vector operand its vector index last, for rows the reduction along memory."""
    depth = {i: n for n, i in enumerate(choice.way.order)}

    def key(form: Form) -> tuple[int, int]:
        if is_vector and any(i == choice.way.vector for i, _ in form):
            return 2, 0
        reduced = [depth[i] for i, _ in form if i in depth]
        plain = bool(reduced) and len(form) == 1
        return (1, max(reduced)) if plain and (is_vector or not _has_windows(operand)) else (0, operand.forms.index(form))

    return tuple(sorted(operand.forms, key=key))


def _has_windows(operand: Operand) -> bool:
    return any(len(form) > 1 for form in operand.forms)


# -- the statement


@dataclass(frozen=True, slots=True)
class _Copy:
    name: str
    statement: str
    """The statement that reads the copy."""
    forms: tuple[Form, ...]
    source: str
    scop: Scop
    """With the copy in it."""

    @property
    def indices(self) -> tuple[str, ...]:
        return tuple(map(form_name, self.forms))


def _make_copy(scop: Scop, s: ScopStatement, operand: Operand, forms: tuple[Form, ...]) -> _Copy | None:
    """The program with a copy of an operand of `s`, extracted again; None where it might read outside of an array."""
    program, ranges = scop.program, scop.ranges
    original = next(st for st in program.statements if st.name == s.name)
    indices = tuple(map(form_name, forms))
    if len(set(indices)) < len(indices):
        return None
    source = program.tensor(operand.read.tensor)
    name, copy_name = f"{source.name}.packed.{s.name}", f"{s.name}_pack"
    if any(t.name == name for t in program.tensors):
        name = f"{name}.rows"
    if any(x.name == copy_name for x in program.statements):
        copy_name = f"{copy_name}_rows"
    own = ranges.statements[s.name]
    intervals = {i: form_interval(form, own.indices) for i, form in zip(indices, forms, strict=True)}
    if all(len(form) == 1 for form in forms) and set(indices) <= set(s.indices):
        domain = project_domain(own.domain, s.indices, copy_name, indices)
    else:
        domain = box_domain(copy_name, indices, intervals, ranges.parameters)
    dtype = type_of(operand.expr, program.types)
    tensor = Tensor(name, dtype, len(forms), None, "temporary", f"{source.base}.packed", source.span)
    copy = Statement(copy_name, name, tuple(map(Index, indices)), indices, over_forms(operand), None, (), original.span)
    read = Read(name, tuple(map(form_expr, forms)), operand.read.span)
    redirected = replace(original, value=rewrite(original.value, lambda e: read if e == operand.expr else None))
    new_program = replace(
        program,
        statements=tuple(x for st in program.statements for x in ((copy, redirected) if st is original else (st,))),
        tensors=(*program.tensors, tensor),
    )
    new_ranges = replace(
        ranges,
        statements={**ranges.statements, copy_name: StatementRanges(intervals, domain)},
        tensors={**ranges.tensors, name: tuple(intervals[i] for i in indices)},
    )
    new_scop = extract_scop(new_program, new_ranges, scop)
    made = new_scop.statement(copy_name)
    shape = new_scop.tensors[operand.read.tensor].shape
    if not operand.is_padded:  # what a selection guards in the statement, the copy would read
        for access in made.accesses:
            if not stays_inside(made.domain, made.indices, access.read.subscripts, shape):
                return None
    return _Copy(copy_name, s.name, forms, operand.read.tensor, new_scop)


# -- its place


def _place(node: Node, copy: _Copy, choice: Choice, is_vector: bool, target: Machine) -> Node | None:
    """The rows with the copy under the loops that its elements move with: for a vector operand those of its columns, for a
    row operand only those that move both operands, so that no other loop repeats it."""
    plain = {form[0][0] for form in copy.forms if form[0][1] == 1 and len(form) == 1}
    other = choice.row_operand if is_vector else choice.vector_operand
    s = copy.scop.statement(copy.statement)
    plain &= set(s.left)
    block = choice.way.block[0] if choice.way.block and is_vector and choice.way.vector in plain else None
    shared = frozenset(plain & other.indices)
    if not is_vector:
        return _place_at(node, copy, shared, None)
    at_once = choice.way.is_whole or _is_small(copy, choice, target)
    whole = _place_at(node, copy, shared, None) if at_once else None
    return whole or _place_at(node, copy, frozenset(plain), block)


def _is_small(copy: _Copy, choice: Choice, target: Machine) -> bool:
    """Whether a copy fits a quarter of the second-level cache and its tiles are too few to share among threads."""
    if choice.way.block is not None:
        return False
    made = copy.scop.statement(copy.name)
    size = copy.scop.tensors[made.target].dtype.itemsize
    trips = index_trips(made)
    for i in made.indices:
        size *= trips[i]
    tiles = -(-trips[copy.indices[-1]] // choice.way.tile[choice.way.vector])
    return target.fits(size, Level.L2, Share.QUARTER) and tiles < MINIMUM_ITERATIONS


def _place_at(node: Node, copy: _Copy, levels: frozenset[str], block: str | None) -> Node | None:
    match node:
        case Leaf():
            return None
        case Sequence():
            for n, child in enumerate(node.children):
                if copy.statement in statements_of(child):
                    placed = _place_at(child, copy, levels, block)
                    return None if placed is None else Sequence((*node.children[:n], placed, *node.children[n + 1 :]))
            return None
        case Band():
            return _place_in_band(node, copy, levels, block)


def _place_in_band(band: Band, copy: _Copy, levels: frozenset[str], block: str | None) -> Node | None:
    s = copy.scop.statement(copy.statement)
    above: list[tuple[Member, str]] = []
    rest: list[Member] = []
    for m in band.members:
        position = m.rows[s.name].unit_index()
        index = None if position is None else s.indices[position]
        if m.kind == "P" and index in levels:
            above.append((m, index))
        else:
            rest.append(m)
    used = {i for _, i in above}
    if levels - used and not rest and not isinstance(band.child, Leaf):
        inner = _place_at(band.child, copy, levels - used, block)
        if inner is not None:
            return Band(tuple(_with_row(m, i, copy) for m, i in above), inner)
    producers = {x.name for x in copy.scop.statements if x.target == copy.source} & set(statements_of(band))
    if producers and not isinstance(band.child, Leaf):
        # Steps of a recurrence that the copy moves with: each step copies what it reads, which earlier ones have made.
        found = [(m, s.indices[p]) for m in band.members if (p := m.rows[s.name].unit_index()) is not None]
        follows = len(found) == len(band.members) and all(i in copy.indices for _, i in found)
        is_step = follows and any(m.kind == "S" for m, _ in found)
        inner = _place_at(band.child, copy, levels - {i for _, i in found}, block) if is_step else None
        if inner is not None:
            return Band(tuple(_with_row(m, i, copy) for m, i in found), inner)
    if producers and (rest or not above):
        # What is copied is made inside the loops that the copy would have to stay above.
        return None
    own = _copy_nest(copy, tuple(i for i in copy.indices if i not in used))
    if not above:
        return Sequence((own, band))
    members = tuple(_with_row(m, i, copy) for m, i in above)
    if block is not None and not producers:
        blocked = _block_below(rest, band.child, copy, block, used)
        if blocked is not None:
            return Band(members, blocked)
    below: Node = Band(tuple(rest), band.child) if rest else band.child
    children = below.children if isinstance(below, Sequence) else (below,)
    first = next((n for n, child in enumerate(children) if s.name in statements_of(child)), 0) if producers else 0
    if producers & set(statements_of(children[first])):
        return None
    return Band(members, Sequence((*children[:first], own, *children[first:])))


def _block_below(rest: list[Member], child: Node, copy: _Copy, block: str, used: set[str]) -> Node | None:
    """Before: ``[rest]{ A ; [R:k, …] S ; B }``.  After: ``[rest] A ; [R:k]{ pack ; [rest]{ […] S } } ; [rest] B``.

    Members of `rest` that reduce stay with S; None where k is not the member of a band of S alone."""
    s = copy.scop.statement(copy.statement)
    position = s.indices.index(block)
    parallel = [m for m in rest if m.kind == "P"]
    reducing = [m for m in rest if m.kind != "P"]
    parts = list(child.children) if isinstance(child, Sequence) else [child]
    n = next((n for n, part in enumerate(parts) if s.name in statements_of(part)), None)
    if n is None or (reducing and len(parts) > 1):
        return None
    part = parts[n]
    if isinstance(part, Band) and isinstance(part.child, Leaf):
        reducing += part.members
        part = part.child
    if not isinstance(part, Leaf):
        return None
    cut = next((m for m in reducing if m.kind == "R" and m.rows[s.name].unit_index() == position), None)
    if cut is None:
        return None
    body: Node = part
    for inside in (tuple(m for m in reducing if m is not cut), tuple(parallel)):
        if inside:
            body = Band(tuple(_restrict(m, part) for m in inside), body)
    own = _copy_nest(copy, tuple(i for i in copy.indices if i not in used and i != block))
    blocks = Band((_with_row(_restrict(cut, part), block, copy),), Sequence((own, body)))
    around = [Band(tuple(_restrict(m, p) for m in parallel), p) if parallel else p for p in parts]
    around[n] = blocks
    return around[0] if len(around) == 1 else Sequence(tuple(around))


def _restrict(member: Member, node: Node) -> Member:
    return replace(member, rows={name: member.rows[name] for name in statements_of(node)})


def _copy_nest(copy: _Copy, indices: tuple[str, ...]) -> Node:
    members = tuple(Member("P", {copy.name: Row(tuple(int(i == j) for j in copy.indices))}) for i in indices)
    return Band(members, Leaf(copy.name)) if members else Leaf(copy.name)


def _with_row(member: Member, index: str, copy: _Copy) -> Member:
    return replace(member, rows={**member.rows, copy.name: Row(tuple(int(index == j) for j in copy.indices))})
