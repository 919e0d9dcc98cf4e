"""What rules ask of statements and expressions: whether they can be split, what they reach, what they are products of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from polyc.ir.expr import (
    Expr,
    Index,
    Read,
    index_names,
    int_const,
    mentions,
    padded_reads,
    reads,
    rewrite,
    substitute,
    walk,
)
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement, all_reads
from polyc.ir.simplify import constant_of, difference, simplify
from polyc.poly.domains import is_box, project_domain
from polyc.poly.ranges import Interval, Ranges
from polyc.scheduler.rewriting.builder import Split


def is_simple(s: Statement, ranges: Ranges) -> bool:
    """Whether a statement can be cut: a plain left side, no guards at run time, no elements of its own that it reads, and as a
    sum none that it leaves at the initial value."""
    if not s.has_plain_left or ranges.statements[s.name].guards or any(r.tensor == s.target for r in reads(s.value)):
        return False
    return s.reduction is None or writes_whole(s, ranges)


def is_whole_box(s: Statement, program: Program, ranges: Ranges) -> bool:
    """Whether a statement that can be cut runs over a box, and alone writes its target."""
    own = ranges.statements[s.name]
    if own.region is not None or not is_simple(s, ranges) or len(program.writers()[s.target]) != 1:
        return False
    return is_box(own.domain, own.indices, s.indices)


def writes_whole(s: Statement, ranges: Ranges) -> bool:
    """Whether the indices of a statement reach every element of its target: a sum gives the others the initial value, which an
    assignment in its place would not do."""
    return _reach_whole(s.subscripts, tuple(ranges.statements[s.name].indices.items()), tuple(ranges.tensors[s.target]))


@lru_cache(maxsize=256)  # every rule asks
def _reach_whole(subscripts: tuple[Expr, ...], indices: tuple[tuple[str, Interval], ...], region: tuple[Interval, ...]) -> bool:
    own, found = dict(indices), list[str]()
    for subscript, whole in zip(subscripts, region, strict=True):
        steps, reach = _steps(subscript, own)
        if reach is None or any(abs(c) > 1 and (n is None or abs(c) > n + 1) for c, n in steps.values()):
            return False
        least = {i: own[i].lower if c > 0 else own[i].lower + (own[i].extent - 1) for i, (c, _) in steps.items()}
        if difference(substitute(subscript, least), whole.lower) != 0 or difference(reach, whole.extent) != -1:
            return False
        found += steps
    return len(found) == len(set(found))


def has_own_elements(s: Statement, ranges: Ranges) -> bool:
    """Whether different values of the left indices are different elements: each stands in one subscript, by a multiple greater
    than all that smaller ones there add up to."""
    found: list[str] = []
    for subscript in s.subscripts:
        steps, reach = _steps(subscript, ranges.statements[s.name].indices)
        if reach is None or any(n is None or abs(c) <= n for c, n in steps.values()):
            return False
        found += steps
    return len(found) == len(s.left_indices)


def _steps(subscript: Expr, intervals: Mapping[str, Interval]) -> tuple[dict[str, tuple[int, int | None]], Expr | None]:
    """The coefficients of a linear subscript, each with what smaller ones add up to, if that is a number, and what all do."""
    steps, reach, found = index_coefficients(subscript), simplify(int_const(0)), dict[str, tuple[int, int | None]]()
    for i, c in sorted((steps or {}).items(), key=lambda step: abs(step[1])):
        found[i] = c, constant_of(reach)
        reach = simplify(reach + abs(c) * (intervals[i].extent - 1))
    return found, None if steps is None else reach


def covers(inside: Statement, outside: Statement, place: Mapping[str, str], ranges: Ranges) -> bool:
    """Whether every point of `inside`, seen through `place` (index of `outside` → index of `inside`), is one of `outside`."""
    kept = [place[i] for i in outside.indices]
    domain = project_domain(ranges.statements[inside.name].domain, inside.indices, outside.name, kept)
    own = ranges.statements[outside.name].domain
    return bool(domain.align_params(own.get_space()).is_subset(own.align_params(domain.get_space())))


def plain_place(read: Read, element: tuple[Expr, ...]) -> dict[str, str] | None:
    """Index of a writer's left side `element` → index at the same place of `read`; None where the read is not plain."""
    names = [e.name for e in read.subscripts if isinstance(e, Index)]
    if len(names) != len(read.subscripts) or len(set(names)) != len(names):
        return None
    return {e.name: n for e, n in zip(element, names, strict=True) if isinstance(e, Index)}


def is_matrix_product(s: Statement, factors: Sequence[Expr], ranges: Ranges) -> bool:
    """Whether two factors are summed over, and each moves with left indices that leave the other one alone: rows and columns
    of register tiles."""
    if len(factors) != 2:
        return False
    (a, b), summed, extents = (index_names(f) for f in factors), set(s.reduction_indices), ranges.statements[s.name].indices
    left = {i for i in s.left_indices if extents[i].extent != int_const(1)}
    return all((a & summed, b & summed, left & (a - b), left & (b - a)))


def find_elementwise_reader(s: Statement, program: Program, ranges: Ranges) -> tuple[Statement, dict[str, str]] | None:
    """The one statement that reads the temporary that `s` writes, if it makes each of its elements of the same element there,
    and its index for each of the left side of `s`."""
    readers = program.readers(s.target)
    if len(readers) != 1 or readers[0].reduction is not None or program.tensor(s.target).role != "temporary":
        return None
    (reader,) = readers
    found = {r for r in reads(reader.value) if r.tensor == s.target}
    if len(found) != 1 or not found.isdisjoint(padded_reads(reader.value)) or not is_whole_box(reader, program, ranges):
        return None
    place, (own, theirs) = plain_place(found.pop(), s.subscripts), (ranges.statements[n.name].indices for n in (reader, s))
    is_same = place is not None and {*place.values()} == own.keys() and all(own[n] == theirs[i] for i, n in place.items())
    return (reader, place) if place is not None and is_same else None


def find_chain(
    first: Statement, index: str, members: dict[str, str], program: Program, ranges: Ranges
) -> dict[str, int] | None:
    """Temporaries behind `first` that only `members` read, each at its index, so that they are cut too: the dimension each.

    None where `first` reads a temporary along `index` that others want whole."""
    writers = program.writers()
    found: dict[str, int] = {}
    pending = [(first, index)]
    inside = dict(members)
    while pending:
        s, k = pending.pop()
        for read in dict.fromkeys(reads(s.value)):
            moving = [d for d, e in enumerate(read.subscripts) if mentions(e, k)]
            if not moving or program.tensor(read.tensor).role != "temporary" or read.tensor in found:
                continue
            (writer, *more) = writers[read.tensor]
            users = [u for u in program.statements if any(r.tensor == read.tensor for r in all_reads(u))]
            can = not more and is_simple(writer, ranges) and len(moving) == 1
            if not can or not all(_reads_at(u, read.tensor, moving[0], inside) for u in users):
                return None
            if any(r.tensor == read.tensor for u in users for r in padded_reads(u.value)):
                return None
            interval = ranges.statements[first.name].indices[index]
            own = writer.subscripts[moving[0]]
            if not isinstance(own, Index) or ranges.statements[writer.name].indices[own.name] != interval:
                return None
            found[read.tensor] = moving[0]
            inside[writer.name] = own.name
            pending.append((writer, own.name))
    return found


def _reads_at(s: Statement, tensor: str, dimension: int, inside: Mapping[str, str]) -> bool:
    """Whether `s` is one of those `inside`, and reads `tensor` in its value at its own index only."""
    mine = [r for r in all_reads(s) if r.tensor == tensor]
    if s.name not in inside or len(mine) != sum(r.tensor == tensor for r in reads(s.value)):
        return False
    return all(r.subscripts[dimension] == Index(inside[s.name]) for r in mine)


def redirect(expr: Expr, chain: Mapping[str, int], index: str, split: Split) -> Expr:
    """Reads of tensors in `chain` at the point of `index`, in the blocks of `split`; those of other points stay."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Read) or node.tensor not in chain or node.subscripts[chain[node.tensor]] != Index(index):
            return None
        if sum(n == Index(index) for e in node.subscripts for n in walk(e)) > 1:
            return None
        return Read(f"{node.tensor}.block", split.element(node.subscripts, index), node.span)

    return rewrite(expr, rule)


def replace_node(expr: Expr, old: Expr, new: Expr) -> Expr:
    return rewrite(expr, lambda node: new if node == old else None)
