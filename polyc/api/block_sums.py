"""Sums that go in the pass of another reduction, for arrays in chunks: which they are, and what a block has in its place.

Exponentials under their maximum: a block has ``s = sum of exp(a * (x - t)) * f`` with its own maximum t in the place of the
maximum m; the whole sum is that of ``s * exp(a * (t - m))`` over blocks (`shifted_exponentials` in
`polyc.scheduler.rewriting.rules` does so for parts of rows).

Products of deviations from means: a block of n points has them from its own means; the whole sum is that of
``s + n * (a - mean a) * (b - mean b)`` over blocks, where a and b are the block's means (Chan, Golub and LeVeque, "Algorithms
for computing the sample variance", 1983, equation 1.5b; `moments` does so for squares in rows).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import permutations
from math import prod

from polyc.blocks.laws import deviation_law, exponential_law, refer_to_maximum
from polyc.blocks.programs import needed_tensors
from polyc.blocks.selections import Combined
from polyc.ir.expr import (
    Call,
    Cast,
    Expr,
    Index,
    Read,
    evaluate,
    identity_of,
    int_const,
    reads,
    rewrite,
    substitute,
)
from polyc.ir.program import Program, Reduction, Statement
from polyc.ir.scales import find_scale, linear_in, literal
from polyc.ir.simplify import simplify_int
from polyc.ir.types import I64
from polyc.poly.ranges import Ranges
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.rules.analysis import is_simple, is_whole_box, plain_place
from polyc.scheduler.rewriting.rules.dependent_reductions import (
    Dependence,
    find_dependences,
    is_maximum,
    reduced_at,
    write_out,
)
from polyc.scheduler.rewriting.rules.moments import has_mean, without_factors
from polyc.scheduler.rewriting.rules.shifted_exponentials import find_exponential

Found = tuple[Program, Ranges, list[tuple[Statement, Combined]]]
"""The program with what is reduced beside the leader, which is there now, and how partial results of that are combined."""


def find_sums(program: Program, ranges: Ranges, leader: Statement, sizes: Mapping[str, int]) -> Found:
    """The sums that can be made with the block's own result of `leader`, over its points; in their values all that is computed
    of that is written out."""
    if is_maximum(leader, program):
        return program, ranges, _find_exponentials(program, ranges, leader)
    return _find_deviations(program, ranges, leader, sizes)


def _find_exponentials(program: Program, ranges: Ranges, leader: Statement) -> list[tuple[Statement, Combined]]:
    if len(leader.reduction_indices) != 1 or not is_simple(leader, ranges):
        return []
    own, rank = ranges.statements, len(leader.subscripts)
    found: list[tuple[Statement, Combined]] = []
    for d in find_dependences(leader, program, ranges):
        e, s = find_exponential(d, leader, program, ranges), d.statement
        if e is None or e.index not in leader.reduction_indices or s.subscripts[:rank] != leader.subscripts:
            continue
        if any(own[s.name].indices[i] != own[leader.name].indices[i] for i in leader.indices):
            continue
        if not _is_known(leader, d.value, program):
            continue
        dtype = program.types[leader.target]
        rule = partial(_replace, {d.use: refer_to_maximum(d.use, dtype)})
        found.append((replace(s, value=rewrite(d.value, rule)), Combined("add", law=exponential_law(e.scale, rank, dtype))))
    return found


def _is_known(leader: Statement, value: Expr, program: Program) -> bool:
    """Whether of what the leader is the result in, nothing is needed for a value but the result itself: the rest is of a whole
    sum, which there is after this pass alone."""
    others = {r.tensor for r in reads(value)} - {leader.target}
    return leader.target not in needed_tensors(program, sorted(others))


def _replace(by: Mapping[Expr, Expr], node: Expr) -> Expr | None:
    return by.get(node)


def _find_deviations(program: Program, ranges: Ranges, leader: Statement, sizes: Mapping[str, int]) -> Found:
    """Sums of products of two deviations from the mean that the leader is the sum of, and first the number of points."""
    target, own = program.tensor(leader.target), ranges.statements
    none: Found = program, ranges, []
    if target.dtype.is_storage or not _is_sum(leader, program, ranges):
        return none
    extents = {i: own[leader.name].indices[i].extent for i in leader.reduction_indices}
    n = prod(evaluate(e, sizes) for e in extents.values())
    whole = Cast(simplify_int(prod(extents.values(), start=int_const(1))), target.dtype)
    count = program.free_name(f"{target.base}_count")
    found: list[tuple[Statement, Combined]] = []
    for s in program.statements[program.statements.index(leader) + 1 :]:
        product = _find_product(s, leader, program, ranges, sizes) if _is_sum(s, program, ranges) else None
        if product is None:
            continue
        by: dict[Expr, Expr] = {}
        for use in product.uses:  # the sum of all points if they were like those of the block
            in_block = Cast(Read(count, use.subscripts), target.dtype)
            by[use] = Call("mul", (use, Call("truediv", (whole, in_block))))
        place = {i: Index(k) for i, k in product.names.items()}
        value = substitute(rewrite(product.value, partial(_replace, by)), place)
        subscripts = tuple(substitute(e, place) for e in s.subscripts)
        dims = [tuple(s.subscripts.index(e) for e in use.subscripts) for use in product.uses]
        law = deviation_law(product.scale, n, dims, target.dtype)
        renamed = {product.names.get(i, i): interval for i, interval in own[s.name].indices.items()}
        ranges = replace(ranges, statements={**ranges.statements, s.name: replace(own[s.name], indices=renamed)})
        moved = replace(s, subscripts=subscripts, indices=tuple(renamed), value=value, where=())
        found.append((moved, Combined("add", law=law)))
    if not found:
        return none
    points = replace(leader, name=count, target=count, value=int_const(1), reduction=Reduction("add", identity_of("add", I64)))
    tensor = replace(target, name=count, base=count, dtype=I64, role="temporary")
    program = replace(program, tensors=(*program.tensors, tensor), statements=(*program.statements, points))
    ranges = replace(
        ranges,
        tensors={**ranges.tensors, count: ranges.tensors[leader.target]},
        statements={**ranges.statements, count: own[leader.name]},
    )
    return program, ranges, [(points, Combined("add")), *found]


def _is_sum(s: Statement, program: Program, ranges: Ranges) -> bool:
    """Whether a statement alone makes its target, of floats that are added up over a box."""
    dtype = program.types[s.target]
    is_sum = s.reduction == Reduction("add", identity_of("add", dtype))
    return dtype.is_float and is_sum and is_whole_box(s, program, ranges)


@dataclass(frozen=True, slots=True)
class _Product:
    """``scale * (x - mean x) * (y - mean y)``, up to factors of the deviations that `scale` has as well."""

    value: Expr
    scale: float
    uses: tuple[Read, Read]
    """The leader's result in both factors."""
    names: dict[str, str]
    """Indices of the sum, and what they are called to have the leader's names."""


def _find_product(
    s: Statement, leader: Statement, program: Program, ranges: Ranges, sizes: Mapping[str, int]
) -> _Product | None:
    """What a statement sums, if that is products of two deviations from the leader's mean at the leader's points."""
    value, _ = write_out(s.value, leader, program, ranges)
    numbers: dict[str, Expr] = {name: int_const(v) for name, v in sizes.items()}
    split = _split_product(substitute(value, {}, numbers))
    if split is None or not _is_known(leader, value, program):
        return None
    own, theirs, rank = ranges.statements[s.name].indices, ranges.statements[leader.name].indices, len(leader.subscripts)
    extents = {i: theirs[i].extent for i in leader.reduction_indices}
    for order in permutations(s.reduction_indices):
        points = dict(zip(leader.reduction_indices, order, strict=False))
        names = {s_index: i for i, s_index in points.items()}
        for mine, its in zip(_names(s.subscripts), _names(leader.subscripts), strict=False):
            names[mine] = its
        if len(names) != len(leader.indices) or len(points) != len(order) or len(s.subscripts) < rank:
            return None
        if any(own[mine] != theirs[i] for mine, i in names.items()):
            continue
        scale, uses = split[0], list[Read]()
        for factor in split[1:]:
            read = list(dict.fromkeys(r for r in reads(factor) if r.tensor == leader.target))
            at = plain_place(read[0], leader.subscripts) if len(read) == 1 else None
            if at is None or any(Index(n) not in s.subscripts or own[n] != theirs[i] for i, n in at.items()):
                return None
            base = reduced_at(leader, {**at, **points})
            x = without_factors(base)
            d = Dependence(s, Call("mul", (factor, factor)), read[0], at, {})
            form = linear_in(factor, substitute(x, {}, numbers), read[0], with_rest=False)
            if form is None or not has_mean(d, base, x, extents, numbers):
                break
            scale, uses = scale * form[1], [*uses, read[0]]
        if len(uses) == 2:
            free = _free_names([i for i in own if i not in names], set(names.values()))
            return _Product(value, scale, (uses[0], uses[1]), names | free)
    return None


def _split_product(expr: Expr) -> tuple[float, Expr, Expr] | None:
    """A literal and two factors that an expression is the product of."""
    scaled = find_scale(expr)
    if scaled is not None:
        inner = _split_product(scaled[1])
        return inner and (scaled[0] * inner[0], *inner[1:])
    match expr:
        case Call("mul", (a, b)):
            return 1.0, a, b
        case Call("pow", (a, b)) if literal(b) == 2:
            return 1.0, a, a
    return None


def _names(subscripts: Sequence[Expr]) -> list[str]:
    return [e.name for e in subscripts if isinstance(e, Index)]


def _free_names(names: Sequence[str], taken: set[str]) -> dict[str, str]:
    """A name for each that none of the others is."""
    found: dict[str, str] = {}
    for name in names:
        free = name
        while free in taken:
            free += "_"
        taken.add(free)
        found[name] = free
    return found
