"""Symbolic sizes of dimensions that always walk contiguous memory together: at a call they may be one row.

A kernel for any H and W computes ``Y[n, k, h, w] += X[n, c, h, w] * F[k, c]`` of images without gaps in memory as well when it
is told that they are one row high and ``H*W`` wide: one long row has one remainder for its vectors, not one for each row.
`merge_indices` does the same where the second size is known; a product of two symbols is no affine extent.  Here nothing
is rewritten: the entry point looks at the strides of the call, and takes other sizes (`ir.loops.Fold`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from polyc.ir.expr import Call, Cast, Expr, Index, Pad, Read, Size, children, int_const, walk
from polyc.ir.loops import Fold, If, Loop, LoopNest, Node
from polyc.ir.program import Program, Statement
from polyc.ir.signature import Signature
from polyc.poly.domains import is_box
from polyc.poly.ranges import Interval, Ranges
from polyc.scheduler.accesses import loose_indices


def find_folds(program: Program, ranges: Ranges, signature: Signature, nest: LoopNest) -> tuple[Fold, ...]:
    """Pairs of sizes that may be 1 and their product instead, with the strides under which they may."""
    found: list[Fold] = []
    for first, second in foldable_sizes(program, ranges):
        is_shared = any(_mentions_size(bound, {first}) for bound in _parallel_bounds(nest.body))
        extents = (e for b in nest.buffers if b.space != "argument" for e in b.shape)
        if is_shared and any(_mentions_size(e, {first, second}) for e in extents):
            continue
        strides: list[tuple[str, Expr]] = []
        for array in (a.memory for a in signature.arrays):
            for d in range(len(array.shape) - 1):
                if array.shape[d] == Size(first):
                    known = None if array.strides is None else array.strides[d + 1]
                    inner = Size(f"{array.name}.stride{d + 1}") if known is None else int_const(known)
                    strides.append((f"{array.name}.stride{d}", inner))
        found.append(Fold(first, second, tuple(strides), is_shared))
    return tuple(found)


def foldable_sizes(program: Program, ranges: Ranges) -> list[tuple[str, str]]:
    """Pairs of sizes, none in two of them, whose dimensions run together in the whole program."""
    found: list[tuple[str, str]] = []
    for pair in _candidates(program, ranges):
        if not any({*pair} & {*other} for other in found) and _is_foldable(program, ranges, *pair):
            found.append(pair)
    return found


def _candidates(program: Program, ranges: Ranges) -> list[tuple[str, str]]:
    """Neighbouring dimensions of two symbols, those that are nearest to each other in memory first."""
    found: dict[tuple[str, str], int] = {}
    for name in (t.name for t in program.tensors if t.name in ranges.tensors):
        extents = [i.extent for i in ranges.tensors[name]]
        for d, (a, b) in enumerate(pairwise(extents)):
            if isinstance(a, Size) and isinstance(b, Size) and a != b:
                found[a.name, b.name] = min(found.get((a.name, b.name), 99), len(extents) - d)
    return sorted(found, key=lambda pair: (found[pair], pair))


def _is_foldable(program: Program, ranges: Ranges, first: str, second: str) -> bool:
    sizes = {first, second}
    whole = Interval(int_const(0), Size(first)), Interval(int_const(0), Size(second))
    if any(_mentions_size(e, sizes) for _, e in program.defined_sizes):
        return False
    if any(_mentions_size(check.condition, sizes) for check in ranges.checks):
        return False
    pairs: dict[str, set[int]] = {}
    for t in program.tensors:
        if t.name not in ranges.tensors:
            return False
        intervals, own = ranges.tensors[t.name], set[int]()
        for d, interval in enumerate(intervals):
            if d - 1 in own:
                continue
            if tuple(intervals[d : d + 2]) == whole:
                own.add(d)
            elif _mentions_size(interval.lower, sizes) or _mentions_size(interval.extent, sizes):
                return False
        pairs[t.name] = own
    return all(_keeps_together(s, ranges, whole, pairs, sizes) for s in program.statements)


def _keeps_together(
    s: Statement, ranges: Ranges, whole: tuple[Interval, Interval], pairs: dict[str, set[int]], sizes: set[str]
) -> bool:
    """Whether a statement uses indices over the two sizes side by side, in the two dimensions, and nowhere else."""
    own = ranges.statements[s.name]
    if own.guards or own.region is not None or s.where or not is_box(own.domain, own.indices, s.indices):
        return False
    left = set(s.left_indices)
    outer, inner = ({i for i, interval in own.indices.items() if interval == w} for w in whole)
    others = (i for i in own.indices if i not in outer | inner)
    if any(_mentions_size(e, sizes) for i in others for e in (own.indices[i].lower, own.indices[i].extent)):
        return False
    partner: dict[str, str] = {}
    exprs = [s.value, *s.subscripts, *(() if s.reduction is None else (s.reduction.init,))]
    accesses = [Read(s.target, s.subscripts), *(n for e in exprs for n in walk(e) if isinstance(n, Read))]
    if any(isinstance(n, Pad) for e in exprs for n in walk(e)) or any(
        _tells_apart(e, (whole[0].extent, whole[1].extent)) for e in exprs
    ):
        return False
    if any(name in outer | inner for e in (exprs[0], *exprs[1 + len(s.subscripts) :]) for name in loose_indices(e)):
        return False
    for access in accesses:
        for d, subscript in enumerate(access.subscripts):
            if d in pairs[access.tensor]:
                a, b = subscript, access.subscripts[d + 1]
                if not (isinstance(a, Index) and isinstance(b, Index) and a.name in outer and b.name in inner):
                    return False
                if partner.setdefault(a.name, b.name) != b.name or partner.setdefault(b.name, a.name) != a.name:
                    return False
            elif d - 1 not in pairs[access.tensor] and any(
                isinstance(n, Index) and n.name in outer | inner for n in walk(subscript)
            ):
                return False
    return (outer | inner) == partner.keys() and all((a in left) == (b in left) for a, b in partner.items())


def _tells_apart(expr: Expr, sizes: tuple[Expr, Expr]) -> bool:
    """Whether the value of `expr` depends on the two sizes otherwise than through their product, whose bits integers keep."""
    match expr:
        case Size():
            return expr in sizes
        case Call("mul"):
            factors = list(_factors(expr))
            counts = [factors.count(size) for size in sizes]
            return counts[0] != counts[1] or any(_tells_apart(f, sizes) for f in factors if f not in sizes)
        case _:
            return any(_tells_apart(e, sizes) for e in children(expr))


def _factors(expr: Expr) -> Iterator[Expr]:
    """Factors of a product; sizes as they are where they are factors of integers."""
    match expr:
        case Call("mul", args):
            for a in args:
                yield from _factors(a)
        case Cast(Size() as size, dtype) if dtype.is_integer:
            yield size
        case _:
            yield expr


def _mentions_size(expr: Expr, sizes: set[str]) -> bool:
    return any(isinstance(n, Size) and n.name in sizes for n in walk(expr))


def _parallel_bounds(body: tuple[Node, ...]) -> Iterator[Expr]:
    for node in body:
        match node:
            case If():
                yield from _parallel_bounds(node.body + node.orelse)
            case Loop():
                if node.kind == "parallel":
                    yield from (node.lower, node.upper)
                yield from _parallel_bounds(node.body)
