"""Statements that the loops they share with others do not suit: they cost more there than what sharing saves.

Before: ``[P:h]{ [P:c, P:w]{ [R:r, R:s] S0 } ; [P:k, P:w, R:c] S1 }``, where each row of an image has too few columns for the
register tile that S0 wants.  After: ``[P:h]{ … S0 } ; [P:h]{ … S1 }``, and each has its own tiles.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from polyc.code_limits import CLOSE, MINIMUM_ITERATIONS
from polyc.machine import Level, Machine
from polyc.poly.rows import Band, Leaf, Member, Node, Sequence, statements_of
from polyc.poly.scop import Scop, ScopStatement
from polyc.scheduler.accesses import AccessMotion, access_motions, index_trips, statement_work
from polyc.scheduler.contractions.choice import Choice, choose, estimate_cycles
from polyc.scheduler.contractions.contraction import Contraction, find_contraction
from polyc.scheduler.traffic import find_level, pass_cycles, write_cycles


def narrows_tiles(members: tuple[Member, ...], child: Sequence, passed: int, scop: Scop, target: Machine) -> bool:
    """Whether contractions take longer in the tiles that a shared band leaves them than what passes between its parts.

    One of them cuts the band; the others have as many iterations of it in a tile as that leaves them.  `passed`: bytes that
    parts give to later ones.  Those of one part stay together either way."""
    found = _contractions(child, scop, target)
    is_apart = len(found) > 1 and not any(len(_contractions(part, scop, target)) == len(found) for part in _parts(child))
    return is_apart and _find_cut(members, found, passed, target, Level.MEMORY) is None


def find_cutting(node: Node, scop: Scop, target: Machine) -> frozenset[str]:
    """The contractions whose tiles are to cut the bands that they share with others, where these are not the heaviest."""
    match node:
        case Sequence():
            return frozenset().union(*(find_cutting(part, scop, target) for part in node.children))
        case Band(members, Sequence() as child) if all(m.kind == "P" for m in members):
            bands = [part for part in _parts(child) if isinstance(part, Band) and _contractions(part, scop, target)]
            if len(bands) == 1:  # with loops of their own around all contractions: these share them
                return find_cutting(Band((*members, *bands[0].members), bands[0].child), scop, target)
            passed = bytes_between(child, scop)
            found = _contractions(child, scop, target) if find_level(passed, target) > Level.L2 else []
            cut = _find_cut(members, found, passed, target, Level.L3) if len(found) > 1 else None
            return frozenset() if cut is None or cut is found[0] else frozenset({cut[0].s.name})
    return frozenset()


def _parts(node: Node) -> list[Node]:
    """The parts of a sequence, those of sequences inside of it one by one."""
    return [p for child in node.children for p in _parts(child)] if isinstance(node, Sequence) else [node]


def _contractions(child: Node, scop: Scop, target: Machine) -> list[tuple[Contraction, Choice]]:
    """The contractions below a node that have register tiles, and how each is computed best alone; the heaviest first."""
    found: list[tuple[Contraction, Choice]] = []
    for name in statements_of(child):
        contraction = find_contraction(scop.statement(name), scop, target)
        choice = None if contraction is None or contraction.lanes == 1 else choose(contraction, target)
        if contraction is not None and choice is not None:
            found.append((contraction, choice))
    return sorted(found, key=lambda f: -statement_work(f[0].s))


def _find_cut(
    members: tuple[Member, ...], found: list[tuple[Contraction, Choice]], passed: int, target: Machine, level: Level
) -> tuple[Contraction, Choice] | None:
    """The heaviest contraction, if its tile leaves the others enough of the band, or another one whose tile does, where what
    passes between the parts would go as far as `level`: None where they are better apart."""
    tried = found if find_level(passed, target) >= level else found[:1]
    return next((cut for cut in tried if not _is_narrow(members, found, cut, passed, target)), None)


def _is_narrow(
    members: tuple[Member, ...],
    found: list[tuple[Contraction, Choice]],
    cut: tuple[Contraction, Choice],
    passed: int,
    target: Machine,
) -> bool:
    """Whether the tile of `cut` costs the others more than taking the parts of the band apart."""
    apart = together = 0.0
    for contraction, choice in found:
        pieces, repeated, within = dict(contraction.trips), 1, {}
        for m in members:
            own, theirs = (_index_of(m, c.s) for c in (contraction, cut[0]))
            if own is None:
                return False
            size = within[own] = min(pieces[own], cut[1].way.tile.get(theirs or "", 1))
            repeated *= -(-pieces[own] // size)
            pieces[own] = size
        if contraction is cut[0]:
            continue
        piece = replace(contraction, trips=pieces)
        inside = choose(piece, target)
        whole = choose(contraction, target, within=within) if inside is None else None
        if whole is not None:
            # Copies that no piece is worth are made for all of them, outside of the loops that cut these.
            piece, inside, repeated = contraction, whole, 1
        copies = 0.0 if inside is None else inside.cycles.get("copies", 0.0)
        # What it writes is counted below where it passes to other parts, and is the same either way where it does not.
        results = contraction.itemsize * prod(contraction.trips[i] for i in contraction.left)
        apart += choice.total - choice.cycles.get("copies", 0.0) - write_cycles(results, results, target)
        together += (estimate_cycles(piece, inside, target) - copies) * repeated
    return apart + pass_cycles(passed, passed, target) + target.threads.fork < CLOSE * together


def passed_bytes(part: set[str], others: set[str], scop: Scop) -> int:
    """Bytes of the tensors that one set of statements writes and the other reads."""

    def tensors(names: set[str], is_write: bool) -> set[str]:
        return {m.tensor for n in names for m in access_motions(scop.statement(n)) if m.is_write == is_write}

    passed = (tensors(part, True) & tensors(others, False)) | (tensors(others, True) & tensors(part, False))
    total = 0
    for name in passed:
        writer = next(s for n in part | others if (s := scop.statement(n)).target == name)
        total += scop.tensors[name].dtype.itemsize * prod(index_trips(writer)[i] for i in writer.left)
    return total


def bytes_between(child: Sequence, scop: Scop) -> int:
    """Bytes that the parts of a sequence give to later ones."""
    parts = [set(statements_of(part)) for part in child.children]
    return sum(passed_bytes(part, set().union(*parts[n:]), scop) for n, part in enumerate(parts[:-1], 1))


def scattered_parts(
    members: tuple[Member, ...], child: Sequence, scop: Scop, target: Machine
) -> tuple[int, list[list[Node]]] | None:
    """Parts of a band in groups, so that those that move elements across memory are alone, and how many members go on around
    all of them; None where that gains nothing.

    Before: ``[P:n]{ [P:d]{ E } ; [P:d]{ Y(d, n) = E(n, d) } }``, where each element of a row goes to a line of its own.
    After: ``[P:n]{ [P:d]{ E } } ; [P:n, P:d]{ Y }``, where blocks are turned in registers."""
    if any(m.kind != "P" for m in members):
        return None
    found = [_scattered(members, part, scop) for part in child.children]
    scattered = [f for f in found if f is not None]
    if not scattered or len(scattered) == len(found):
        return None
    kept = min(position for position, _ in scattered)
    groups: list[list[Node]] = []
    for n, part in enumerate(child.children):
        if not groups or found[n] is not None or found[n - 1] is not None:
            groups.append([])
        groups[-1].append(part)
    repeated = max(1, prod(_trips_of(m, scop) for m in members[:kept]))
    together = apart = 0.0
    for _, s in scattered:
        write = next(m for m in access_motions(s) if m.is_write)
        trips, itemsize = index_trips(s), scop.tensors[s.target].dtype.itemsize
        lines = prod(trips[i] for i in s.left if write.motion(i) == "strided") // repeated
        pitch = itemsize * prod(trips[i] for i in s.left if write.motion(i) == "unit")
        points = prod(trips.values())
        together += points * target.memory.scattered[find_level(lines * target.cache_line, target, pitch, itemsize)]
        read = sum(scop.tensors[m.tensor].dtype.itemsize * points for m in access_motions(s) if _moves(m, s))
        apart += points * target.copies.transposed + repeated * pass_cycles(read / repeated, read / repeated, target)
    forks = repeated if kept and repeated < MINIMUM_ITERATIONS else 1
    return (kept, groups) if apart + forks * target.threads.fork < CLOSE * together else None


def _scattered(members: tuple[Member, ...], part: Node, scop: Scop) -> tuple[int, ScopStatement] | None:
    """The statement that a part consists of and the member along which it writes, if it reads across that: along an index of
    its own."""
    names = list(statements_of(part))
    s = scop.statement(names[0])
    if len(names) > 1 or s.is_reduction or not isinstance(part, Band) or not isinstance(part.child, Leaf):
        return None
    if any(m.kind != "P" for m in part.members):
        return None
    write, *read = access_motions(s)
    for position, member in enumerate(members):
        along = _index_of(member, s)
        if along is not None and write.motion(along) == "unit":
            own = {_index_of(m, s) for m in part.members}
            crosses = any(m.motion(along) == "strided" and any(i and m.motion(i) == "unit" for i in own) for m in read)
            return (position, s) if crosses else None
    return None


def _moves(access: AccessMotion, s: ScopStatement) -> bool:
    """Whether an access reads another element at each instance."""
    return not access.is_write and all(access.motion(i) != "invariant" for i in s.left)


def _trips_of(member: Member, scop: Scop) -> int:
    name = next(iter(member.rows))
    index = _index_of(member, scop.statement(name))
    return index_trips(scop.statement(name))[index] if index is not None else 1


def _index_of(member: Member, s: ScopStatement) -> str | None:
    position = member.rows[s.name].unit_index()
    return None if position is None else s.indices[position]


def groups_across(members: tuple[Member, ...], child: Sequence, scop: Scop) -> list[list[Node]]:
    """Statements of an innermost band in groups, so that one that moves elements across memory is alone.

    It is done in blocks that are turned in registers, which statements along memory beside it would make impossible.  One
    group where temporaries pass between the statements."""
    parts = list(child.children)
    names = [part.statement for part in parts if isinstance(part, Leaf)]
    if len(names) < len(parts) or any(m.kind != "P" for m in members) or len(members) < 2:
        return [parts]
    crosses = [_lies_across(members, scop.statement(n)) for n in names]
    read = {m.tensor for n in names for m in access_motions(scop.statement(n)) if not m.is_write}
    passed = {scop.statement(n).target for n in names} & read
    if all(crosses) or not any(crosses) or any(scop.program.tensor(t).role == "temporary" for t in passed):
        return [parts]
    groups: list[list[Node]] = []
    for n, part in enumerate(parts):
        if not groups or crosses[n] or crosses[n - 1]:
            groups.append([])
        groups[-1].append(part)
    return groups


def _lies_across(members: tuple[Member, ...], s: ScopStatement) -> bool:
    """Whether a statement writes along memory with one member of a band, and reads only along memory with another one."""
    write, *read = access_motions(s)
    indices = [s.indices[p] for m in members if (p := m.rows[s.name].unit_index()) is not None]
    along = [i for i in indices if write.motion(i) == "unit"]
    if len(along) != 1:
        return False
    moving = [m for m in read if any(m.motion(i) != "invariant" for i in indices)]
    crossing = [m for m in moving if m.motion(along[0]) == "strided" and any(m.motion(i) == "unit" for i in indices)]
    return bool(crossing) and len(crossing) == len([m for m in moving if m.motion(along[0]) != "invariant"])
