"""Symbolic sizes of dimensions that always walk contiguous memory together: at a call they may be one row.

A kernel for any H and W computes ``Y[n, k, h, w] += X[n, c, h, w] * F[k, c]`` of images without gaps in memory as well when it
is told that they are one row high and ``H*W`` wide: one long row has one remainder for its vectors, not one for each row.
`merge_indices` does the same where the second size is known; a product of two symbols is no affine extent.  Here nothing
is rewritten: the entry point looks at the strides of the call, and takes other sizes (`ir.loops.Fold`).
"""

from __future__ import annotations

from itertools import pairwise

from polyc.ir.expr import Call, Cast, Expr, Size, children, int_const, operands_of, size_names
from polyc.ir.loops import Fold, Loop, LoopNest
from polyc.ir.program import Program, Statement, statement_expressions
from polyc.ir.signature import Signature
from polyc.ir.walk import walk_nodes
from polyc.poly.domains import is_box
from polyc.poly.ranges import Interval, Ranges
from polyc.scheduler.rewriting.merge_indices import Pair, accesses_of, uses_of_pairs


def find_folds(program: Program, ranges: Ranges, signature: Signature, nest: LoopNest) -> tuple[Fold, ...]:
    """Pairs of sizes that may be 1 and their product instead, with the strides under which they may."""
    found: list[Fold] = []
    parallel = [node for node in walk_nodes(nest.body) if isinstance(node, Loop) and node.kind == "parallel"]
    for first, second in foldable_sizes(program, ranges):
        is_shared = any(first in size_names(loop.lower, loop.upper) for loop in parallel)
        extents = (e for b in nest.buffers if b.space != "argument" for e in b.shape)
        if is_shared and {first, second} & size_names(*extents):
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
    whole, pairs = (Interval(int_const(0), Size(first)), Interval(int_const(0), Size(second))), set[Pair]()
    others = [*(e for _, e in program.defined_sizes), *(check.condition for check in ranges.checks)]
    for t in program.tensors:
        if t.name not in ranges.tensors:
            return False
        intervals = ranges.tensors[t.name]
        own = {d for d in range(t.rank - 1) if intervals[d : d + 2] == whole}
        others += (e for d, i in enumerate(intervals) if not {d, d - 1} & own for e in (i.lower, i.extent))
        pairs |= {(t.name, d) for d in own}
    if not size_names(*others).isdisjoint((first, second)):
        return False
    return all(_keeps_together(s, ranges, whole, pairs, {first, second}) for s in program.statements)


def _keeps_together(s: Statement, ranges: Ranges, whole: tuple[Interval, Interval], pairs: set[Pair], sizes: set[str]) -> bool:
    """Whether a statement uses indices over the two sizes side by side, in the two dimensions, and nowhere else."""
    own = ranges.statements[s.name]
    if own.guards or own.region is not None or s.where or not is_box(own.domain, own.indices, s.indices):
        return False
    others = {i: interval for i, interval in own.indices.items() if interval not in whole}
    if sizes & size_names(*(e for interval in others.values() for e in (interval.lower, interval.extent))):
        return False
    if any(_tells_apart(e, (whole[0].extent, whole[1].extent)) for e in statement_expressions(s)):
        return False
    together, misused = uses_of_pairs(s, own, accesses_of(s), pairs, ranges)
    return not misused and {i for pair in together for i in pair} == own.indices.keys() - others.keys()


def _tells_apart(expr: Expr, sizes: tuple[Expr, Expr]) -> bool:
    """Whether the value of `expr` depends on the two sizes otherwise than through their product, whose bits integers keep."""
    match expr:
        case Size():
            return expr in sizes
        case Call("mul"):
            # Sizes are factors of integers as they are, or converted.
            factors = [
                f.value if isinstance(f, Cast) and isinstance(f.value, Size) and f.dtype.is_integer else f
                for f in operands_of(expr, "mul")
            ]
            counts = [factors.count(size) for size in sizes]
            return counts[0] != counts[1] or any(_tells_apart(f, sizes) for f in factors if f not in sizes)
        case _:
            return any(_tells_apart(e, sizes) for e in children(expr))
