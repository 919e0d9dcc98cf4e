"""Mean and variance in one pass: squared deviations from the means of blocks.

    before  ``s[i] += x[i,k];  v[i] += (x[i,k] - s[i]/N) ** 2``
    after   ``s'[c,i] += x[i,k];  v'[c,i] += (x[i,k] - s'[c,i]/n) ** 2``  over blocks c of n values, then
            ``s[i] += s'[c,i];  v[i] += v'[c,i] + n * (s'[c,i]/n - s[i]/N) ** 2``

The second pass over a block comes from the cache.  Deviations are taken from a mean as in the formula, never by subtracting
large squares, so the error is that of two passes, or less (Chan, Golub and LeVeque, "Algorithms for computing the sample
variance", 1983, equation 1.5b).  The forms are equal because deviations from a block's own mean sum to zero: the divisor of the
mean must be the count.  Where counts are symbolic that is tried with several numbers in their place: primes, so that products
of sizes and literals do not agree by chance.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import isclose, prod

from polyc.code_limits import WORD
from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Read,
    Size,
    evaluate,
    identity_of,
    index_names,
    int_const,
    mentions,
    minimum,
    reads,
    size_names,
    substitute,
    type_of,
    walk,
)
from polyc.ir.program import Program, Reduction, Statement
from polyc.ir.scales import find_scale, linear_in, literal
from polyc.ir.simplify import simplify_int
from polyc.ir.types import DType
from polyc.machine import Machine
from polyc.poly.domains import is_box
from polyc.poly.ranges import Ranges
from polyc.records import dataclass
from polyc.scheduler.rewriting.builder import Split, change_groups
from polyc.scheduler.rewriting.rules.analysis import find_chain, is_whole_box, replace_node
from polyc.scheduler.rewriting.rules.dependent_reductions import Dependence, Law, block_reductions, find_dependences, reduced_at


@dataclass(frozen=True, slots=True)
class _Squares:
    """``s += scale * (a * x + b * m) ** 2`` for the leader's result m, where ``-b * m / a`` is the mean of x."""

    sum: Dependence
    index: str
    x: Expr


def block_moments(program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, list[Remark]]:
    """Mean and squared deviations of long rows in one pass."""
    groups = ([s] for s in program.statements)
    return change_groups("single-pass-moments", _rewrite, groups, program, ranges, target)


def _rewrite(group: list[Statement], program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, str] | None:
    (leader,) = group
    dtype = program.tensor(leader.target).dtype
    is_sum = dtype.is_float and leader.reduction == Reduction("add", identity_of("add", dtype))
    if not is_sum or not is_whole_box(leader, program, ranges):
        return None
    extents = {i: ranges.statements[leader.name].indices[i].extent for i in leader.reduction_indices}
    counts = {i: n for i, n in ranges.trips(leader.name).items() if n and i in extents}
    if len(counts) != len(extents) or not counts:
        return None
    split = _choose_split(leader, counts, program, ranges, target)
    if split is None or find_chain(leader, split.index, {}, program, ranges) != {}:
        return None
    sums = find_dependences(leader, program, ranges)
    squares = [q for d in sums if (q := _find_squares(d, leader, split.index, extents, ranges)) is not None]
    if not squares:
        return None
    message = f"mean and squared deviations in one pass, by blocks of {split.size} of {split.index}"
    return *_build(leader, squares, split, extents, program, ranges), message


def _choose_split(leader: Statement, counts: dict[str, int], program: Program, ranges: Ranges, target: Machine) -> Split | None:
    """Blocks of the outermost index of the sum, where all of its values are too many for a cache."""
    source = reads(leader.value)
    if not source or not source[0].subscripts:
        return None
    order = [e.name for e in source[0].subscripts if isinstance(e, Index)]
    inside = [i for i in order if i in counts]
    if len(inside) != len(counts):
        return None
    itemsize, total = program.tensor(leader.target).dtype.itemsize, prod(counts.values())
    is_row, blocks = order[-1] in counts, target.rows
    n_bytes, held = (itemsize, blocks.held * target.l1) if is_row else (blocks.columns * WORD, blocks.held_across * target.l2)
    if total * n_bytes <= held:
        return None
    index = inside[0]
    others = total // counts[index]
    size = max(1, (blocks.read if is_row else blocks.columns) // others)
    position = len(leader.left_indices) if is_row else 0
    if 2 * size > counts[index]:
        return None
    return Split(index, size, ranges.statements[leader.name].indices[index], position)


def _find_squares(d: Dependence, leader: Statement, index: str, extents: dict[str, Expr], ranges: Ranges) -> _Squares | None:
    """What a statement sums, if that is squares of deviations from the leader's mean at the leader's points."""
    s, own, theirs = d.statement, ranges.statements[d.statement.name], ranges.statements[leader.name].indices
    if len(s.reduction_indices) != len(extents) or not is_box(own.domain, own.indices, s.indices):
        return None
    if _may_wrap(d.value) or _may_wrap(leader.value):
        return None
    trials = _trials(extents, s.value, leader.value, d.value)
    for order in permutations(s.reduction_indices):
        whole = {**d.place, **dict(zip(leader.reduction_indices, order, strict=True))}
        if any(own.indices[n] != theirs[i] for i, n in whole.items()):
            continue
        base = reduced_at(leader, whole)
        x = without_factors(base)
        rest = replace_node(d.value, x, int_const(0))
        if not mentions(rest, *s.reduction_indices) and all(has_mean(d, base, x, extents, sizes) for sizes in trials):
            return _Squares(d, whole[index], x)
    return None


def _trials(extents: dict[str, Expr], *values: Expr) -> list[dict[str, Expr]]:
    """Numbers to try in the place of symbolic sizes; one trial where there are none."""
    names = sorted(size_names(*extents.values(), *values))
    return [{name: int_const(p) for name, p in zip(names, primes, strict=False)} for primes in _PRIMES] if names else [{}]


_PRIMES = ((101, 211, 307, 401, 503, 601), (131, 233, 331, 431, 541, 631), (151, 251, 353, 457, 563, 661))


def _may_wrap(value: Expr) -> bool:
    """Whether sizes are multiplied as numbers of a type that may not hold the product."""
    products = (n for n in walk(value) if isinstance(n, Call) and n.op == "mul" and any(isinstance(a, Cast) for a in n.args))
    return any(sum(isinstance(leaf, Size) for leaf in walk(n)) > 1 and not reads(n) for n in products)


def has_mean(d: Dependence, base: Expr, x: Expr, extents: dict[str, Expr], sizes: dict[str, Expr]) -> bool:
    """Whether, for these sizes, squares of ``a * x + b * m`` are summed, where m, the sum of `base`, is ``-a / b`` times the
    mean of x."""
    value, base, x, use = (substitute(e, {}, sizes) for e in (d.value, base, x, d.use))
    count = prod(evaluate(substitute(e, {}, sizes), {}) for e in extents.values())
    root = _square_root(value)
    form = None if root is None else linear_in(root, x, use, with_rest=False)
    weight = linear_in(base, x, use, with_rest=False)
    return form is not None and weight is not None and isclose(form[1] * weight[0] * count, -form[0], rel_tol=1e-6)


def _square_root(expr: Expr) -> Expr | None:
    """d, where `expr` is a literal times ``d * d``."""
    match expr:
        case Call(op="mul", args=(a, b)) if a == b:
            return a
        case Call(op="pow", args=(a, b)) if literal(b) == 2:
            return a
    scaled = find_scale(expr)
    return scaled and _square_root(scaled[1])


def without_factors(expr: Expr) -> Expr:
    """A product or quotient without what reads nothing in it."""
    match expr:
        case Call("neg", (a,)):
            return without_factors(a)
        case Call("mul" | "truediv", (a, b)) if not index_names(b) and not reads(b):
            return without_factors(a)
        case Call("mul", (a, b)) if not index_names(a) and not reads(a):
            return without_factors(b)
    return expr


def _build(
    leader: Statement, squares: list[_Squares], split: Split, extents: dict[str, Expr], program: Program, ranges: Ranges
) -> tuple[Program, Ranges]:
    dtype = program.tensor(leader.target).dtype
    extent, others = extents[split.index], prod((e for i, e in extents.items() if i != split.index), start=int_const(1))
    total = _as_number(extent * others, dtype)
    in_block: Expr = int_const(split.size)
    if not isinstance(extent, Const) or int(extent.value) % split.size:  # the last block has fewer
        in_block = minimum(split.size, extent - Index(split.block) * split.size)
    count = _as_number(in_block * others, dtype)
    by_name = {q.sum.statement.name: q for q in squares}

    def refer(result: Read) -> Expr:
        """The sum of the whole if all blocks were like this one."""
        return result * Call("truediv", (total, count))

    def combine(name: str, part: Read, read: Callable[[str, Read], Read]) -> Expr:
        """With the difference of both means for each value of the block: that of a block whose values are 0, where the mean is
        that far away."""
        q = by_name[name]
        zero = identity_of("add", type_of(q.x, program.types))
        apart = replace_node(q.sum.value, q.sum.use, read("shift", q.sum.use) - q.sum.use)
        return part + count * replace_node(apart, q.x, zero)

    cut = {leader.name: split.index} | {name: q.index for name, q in by_name.items()}
    values = {name: q.sum.value for name, q in by_name.items()}
    return block_reductions(leader, split, cut, {}, Law(refer, {}, combine), program, ranges, values)


def _as_number(count: Expr, dtype: DType) -> Expr:
    count = simplify_int(count)
    return Const(float(count.value), dtype) if isinstance(count, Const) else Cast(count, dtype)
