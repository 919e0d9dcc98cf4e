"""Neighbouring dimensions that every statement walks together become one: tensors of a model lie in memory without gaps.

before::

    y[n, k, h, w] += x[n, c, h, w] * f[k, c]        for h in 0:H, w in 0:W

after::

    y[n, k, p] += x[n, c, p] * f[k, c]              for p in 0:H*W

For known numbers the scheduler does the same (`scheduler/rewriting/merge_indices.py`).  Where shapes keep changing, ``H*W``
becomes one symbol instead of two: one long row has one remainder for its vectors, and the choice of tiles sees its length.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from polyc.ir.expr import Const, Expr, Index, Pad, Read, index_names, int_const, reads, rewrite, walk
from polyc.ir.program import Program, RangeClause, Statement, Tensor
from polyc.ir.simplify import simplify_int
from polyc.ir.traced import plain, whole

Place = tuple[str, int]
"""A dimension of a tensor, which is joined with the next one."""
Pair = tuple[int, str, str]
"""Of the statement with this number: two indices that are joined."""


def flatten_dimensions(program: Program, fixed: Collection[str]) -> Program:
    """`program` with dimensions joined; those of the tensors `fixed` stay."""
    given, program = program, replace(program, statements=tuple(map(_simplify, program.statements)))
    tried: set[Place] = set()
    while True:
        tensors = {t.name: t for t in program.tensors}
        seeds = ((t.name, d) for t in program.tensors for d in range(t.rank - 1))
        found = None
        for seed in seeds:
            if seed not in tried:
                found = _close(program, tensors, fixed, seed)
                if found is not None:
                    break
                tried.add(seed)
        if found is None:
            return given
        given = program = _join(program, *found)
        tried.clear()


def _simplify(s: Statement) -> Statement:
    """Without the zeros that are left of dimensions of one element (``i + 0``)."""

    def rule(node: Expr) -> Expr | None:
        return replace(node, subscripts=tuple(map(simplify_int, node.subscripts))) if isinstance(node, Read) else None

    return replace(s, value=rewrite(s.value, rule))


def _close(
    program: Program, tensors: dict[str, Tensor], fixed: Collection[str], seed: Place
) -> tuple[set[Place], set[Pair]] | None:
    """All that has to be joined with `seed`; None where something speaks against it."""
    places, pairs = {seed}, set[Pair]()
    open_places = [seed]
    while open_places:
        tensor, d = open_places.pop()
        if tensor in fixed or (tensor, d - 1) in places or (tensor, d + 1) in places:
            return None
        for k, s in enumerate(program.statements):
            for access in _accesses(s):
                if access.tensor != tensor:
                    continue
                a, b = access.subscripts[d : d + 2]
                if not (isinstance(a, Index) and isinstance(b, Index)) or not _spans(s, tensors[tensor], d, a.name, b.name):
                    return None
                if (k, a.name, b.name) in pairs:
                    continue
                more = _uses_together(s, a.name, b.name)
                if more is None or any(n == k and {a.name, b.name} & {x, y} for n, x, y in pairs):
                    return None
                pairs.add((k, a.name, b.name))
                for place in more - places:
                    places.add(place)
                    open_places.append(place)
    return (places, pairs) if pairs else None


def _accesses(s: Statement) -> Iterator[Read]:
    yield Read(s.target, s.subscripts)
    for e in (s.value, *s.subscripts, *(() if s.reduction is None else (s.reduction.init,))):
        yield from reads(e)


def _spans(s: Statement, tensor: Tensor, d: int, first: str, second: str) -> bool:
    """Whether the two indices have the ranges of dimension d and the next one."""
    found = {w.index: w for w in s.where if isinstance(w, RangeClause)}
    if tensor.shape is None or len(found) != len(s.where) or first == second:
        return False
    for name, extent in ((first, tensor.shape[d]), (second, tensor.shape[d + 1])):
        clause = found.get(name)
        if clause is None or clause.lower != int_const(0) or not _is_same(clause.upper, extent):
            return False
    return True


def _is_same(a: Expr, b: Expr) -> bool:
    """Whether two numbers are the same, of traced ones at all sizes."""
    if not (isinstance(a, Const) and isinstance(b, Const)) or plain(a.value) != plain(b.value):
        return False
    polynomials = [getattr(v, "polynomial", None) for v in (a.value, b.value)]
    return polynomials[0] == polynomials[1]


def _uses_together(s: Statement, first: str, second: str) -> set[Place] | None:
    """Where the two indices of a statement stand side by side; None where they stand anywhere else."""
    own = {first, second}
    left = index_names(*s.subscripts)
    if s.reduction is not None and (not s.has_plain_left or len(own & left) == 1):
        return None
    if any(isinstance(n, Pad) for e in (s.value, *(() if s.reduction is None else (s.reduction.init,))) for n in walk(e)):
        return None
    places: set[Place] = set()
    n_paired = 0
    for access in _accesses(s):
        for d, e in enumerate(access.subscripts[:-1]):
            if e == Index(first) and access.subscripts[d + 1] == Index(second):
                places.add((access.tensor, d))
                n_paired += 2
    every = (s.value, *s.subscripts, *(() if s.reduction is None else (s.reduction.init,)))
    n_all = sum(1 for e in every for n in walk(e) if isinstance(n, Index) and n.name in own)
    return places if n_all == n_paired else None


def _join(program: Program, places: set[Place], pairs: set[Pair]) -> Program:
    def shape(t: Tensor) -> Tensor:
        joined = sorted((d for name, d in places if name == t.name), reverse=True)
        extents = list(t.shape or ())
        for d in joined:
            extents[d : d + 2] = [_product(extents[d], extents[d + 1])]
        return replace(t, rank=len(extents), shape=tuple(extents)) if joined else t

    def subscripts(tensor: str, given: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(e for d, e in enumerate(given) if (tensor, d - 1) not in places)

    def rule(node: Expr) -> Expr | None:
        return replace(node, subscripts=subscripts(node.tensor, node.subscripts)) if isinstance(node, Read) else None

    def change(k: int, s: Statement) -> Statement:
        gone = {second: first for n, first, second in pairs if n == k}
        ranges = {w.index: w for w in s.where if isinstance(w, RangeClause)}
        for second, first in gone.items():
            ranges[first] = replace(ranges[first], upper=_product(ranges[first].upper, ranges[second].upper))
        reduction = s.reduction if s.reduction is None else replace(s.reduction, init=rewrite(s.reduction.init, rule))
        own = tuple(rewrite(e, rule) for e in s.subscripts)
        return replace(
            s,
            subscripts=subscripts(s.target, own),
            indices=tuple(i for i in s.indices if i not in gone),
            value=rewrite(s.value, rule),
            reduction=reduction,
            where=tuple(ranges[i] for i in ranges if i not in gone),
        )

    return replace(
        program,
        tensors=tuple(map(shape, program.tensors)),
        statements=tuple(change(k, s) for k, s in enumerate(program.statements)),
    )


def _product(a: Expr, b: Expr) -> Expr:
    assert isinstance(a, Const) and isinstance(b, Const)
    return int_const(whole(a.value) * whole(b.value))
