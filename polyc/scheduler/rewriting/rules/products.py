"""Sums of products by algebra: operands in the order of fewest terms, factors outside of their sum, products one by one.

    before  ``y[i,l] += a[i,j] * b[j,k] * c[k,l]``                       over J * K terms      `order_products`
    after   ``t[i,k] += a[i,j] * b[j,k]  ;  y[i,l] += t[i,k] * c[k,l]``  with sums of J and of K terms

    before  ``c[i,j] += 0.5 * a[i,k] * b[k,j] * s[i]``                                         `factor_sums`
    after   ``t[i,j] += a[i,k] * b[k,j]  ;  c[i,j] = t[i,j] * 0.5 * s[i]``

    before  ``c[i,j] += a[i,k] * b[j,k] + b[i,k] * a[j,k]``                                    `separate_products`
    after   ``t[i,j] += a[i,k] * b[j,k]  ;  c[i,j] += b[i,k] * a[j,k]``, from t on

What is left has two factors, which is what the loops of contractions are made for: two operands that are copied into panels,
and results that stay in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from math import prod

from polyc.code_limits import MAX_PARTS, MINIMUM_REUSE, SMALL_WORK, UNKNOWN_EXTENT
from polyc.ir.contraction_paths import find_path
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Read, identity_of, index_names, mentions, operands_of, reads, type_of
from polyc.ir.program import Program, Reduction, Statement
from polyc.ir.read_sites import collect_reads
from polyc.poly.domains import fills_box, is_box, is_product, project_domain, reads_within
from polyc.poly.ranges import Ranges, StatementRanges
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import trip_count
from polyc.scheduler.rewriting.builder import Change, ProgramBuilder
from polyc.scheduler.rewriting.rules.analysis import is_matrix_product, is_simple, writes_whole

DISTRIBUTIVE = {"add": "mul", "max": "add", "min": "add", "or": "and"}
"""The product that distributes over a sum."""


def _may_split(s: Statement, builder: ProgramBuilder) -> bool:
    """Whether a statement is a sum that alone writes its target, whole, and may become several."""
    is_sum = s.reduction is not None and s.reduction.op in DISTRIBUTIVE and builder.own[s.name].region is None
    return is_sum and is_simple(s, builder.ranges) and len(builder.program.writers()[s.target]) == 1


def _with_start(s: Statement, total: Expr) -> Expr:
    """What the reduction `s` gives whose terms make `total`."""
    assert s.reduction is not None
    is_plain = isinstance(s.reduction.init, Const) and s.reduction.init == identity_of(s.reduction.op, s.reduction.init.dtype)
    return total if is_plain else Call(s.reduction.op, (s.reduction.init, total))


# -- the order of products: any expression may be an operand, what counts are its indices; the order comes from opt_einsum

GAIN = 1.5
"""Terms as written over those of all steps, from which on these are worth their temporaries."""

ELEMENT_COST = 8
"""Terms that count for an element of a temporary: it is written, and read again."""


@dataclass(frozen=True, slots=True)
class _Step:
    """`operands` are multiplied and summed over what is not in `kept`."""

    operands: tuple[int, ...]
    """Positions: those of the statement first, then the results of the steps before."""
    indices: frozenset[str]
    kept: frozenset[str]


def order_products(s: Statement, builder: ProgramBuilder) -> Change | None:
    """Products of several operands are summed a few at a time."""
    if s.reduction is None or not _may_split(s, builder):
        return None
    dtype, own = type_of(s.value, builder.program.types), builder.own[s.name]
    # Integers wrap around: what is added to the largest one need not be the largest, and a sum of no terms is the least number.
    if s.reduction.op in ("max", "min") and not dtype.is_float:
        return None
    factors = operands_of(s.value, DISTRIBUTIVE[s.reduction.op])
    operands = [f for f in factors if mentions(f, *s.reduction_indices)]
    fixed = [f for f in factors if not mentions(f, *s.reduction_indices)]
    whole = frozenset(index_names(*operands))
    if len(operands) < 2 or any(index_names(o) == whole for o in operands) or not is_box(own.domain, own.indices, s.indices):
        return None
    trips = {i: UNKNOWN_EXTENT if n is None else n for i, n in builder.ranges.trips(s.name).items()}
    if 0 in trips.values():
        return None
    steps = _order([frozenset(index_names(o)) for o in operands], whole - {*s.reduction_indices}, trips)
    cost = sum(_points(step.indices, trips) for step in steps)
    cost += ELEMENT_COST * sum(_points(step.kept, trips) for step in steps[:-1])
    if len(steps) == 1 or GAIN * cost > _points(whole, trips):
        return None
    message = f"the product of {len(operands)} operands in {s.target} is summed in {len(steps)} steps"
    return _take_steps(s, operands, fixed, steps, builder), message


def _points(indices: frozenset[str], trips: Mapping[str, int]) -> int:
    return prod(trips[i] for i in indices)


def _order(operands: Sequence[frozenset[str]], left: frozenset[str], trips: Mapping[str, int]) -> list[_Step]:
    """Operands with indices of their own are summed over these first; then the path of opt_einsum."""
    steps: list[_Step] = []
    first = list(range(len(operands)))  # of the operands behind each position
    remaining: list[tuple[int, frozenset[str]]] = []
    for n, own in enumerate(operands):
        others = left.union(*(p for m, p in enumerate(operands) if m != n))
        if own <= others:
            remaining.append((n, own))
            continue
        remaining.append((len(first), own & others))
        first.append(n)
        steps.append(_Step((n,), own, own & others))
    for used in find_path([sorted(indices) for _, indices in remaining], sorted(left), trips):
        group = [remaining[p] for p in used]
        remaining = [r for p, r in enumerate(remaining) if p not in used]
        needed = left.union(*(indices for _, indices in remaining))
        seen = frozenset().union(*(indices for _, indices in group))
        remaining.append((len(first), seen & needed))
        positions = sorted((n for n, _ in group), key=first.__getitem__)
        first.append(first[positions[0]])
        steps.append(_Step(tuple(positions), seen, seen & needed))
    return steps


def _take_steps(
    s: Statement, operands: list[Expr], fixed: list[Expr], steps: list[_Step], builder: ProgramBuilder
) -> list[Statement]:
    """One statement a step; the last is `s`, with what does not move along the sum."""
    assert s.reduction is not None
    combine, dtype = DISTRIBUTIVE[s.reduction.op], type_of(s.value, builder.program.types).computed
    start = Reduction(s.reduction.op, identity_of(s.reduction.op, dtype))
    values, orders = list(operands), [[i for i in s.indices if mentions(o, i)] for o in operands]

    def product(factors: Sequence[Expr]) -> Expr:
        return reduce(lambda a, b: Call(combine, (a, b)), factors)

    statements = []
    for number, step in enumerate(steps[:-1]):
        used = dict.fromkeys(i for n in step.operands for i in orders[n])
        kept, summed = [i for i in used if i in step.kept], [i for i in used if i not in step.kept]
        value = product([values[n] for n in step.operands])
        made = builder.define(s, f"product{number}", kept, value, summed, start if summed else None, dtype=dtype)
        statements.append(made)
        values.append(Read(made.target, made.subscripts))
        orders.append(kept)
    gone = frozenset().union(*(step.indices - step.kept for step in steps[:-1]))
    value, points = product([*(values[n] for n in steps[-1].operands), *fixed]), builder.points(s)
    last = builder.change(s, points.project(i for i in s.indices if i not in gone), value=value)
    if not last.reduction_indices:
        result, storage = _with_start(last, value), builder.tensor(s.target).dtype
        last = replace(last, value=Cast(result, storage) if storage.is_storage else result, reduction=None)
    return [*statements, last]


# -- factors: what a sum of products of two operands does not sum over is work per result instead of work per term.  Sums of one
# factor stay: a mean written as a sum of ``x / N`` must not overflow, and gains nothing


def factor_sums(s: Statement, builder: ProgramBuilder) -> Change | None:
    """Distributivity: factors that do not change along a sum leave it."""
    if s.reduction is None or not _may_factor(s, builder.program, builder.ranges):
        return None
    factors, divisors = flatten_product(s.value)
    summed = [f for f in factors if mentions(f, *s.reduction_indices)]
    kept = [f for f in factors if not mentions(f, *s.reduction_indices)]
    if len(summed) != 2 or not all(isinstance(f.value if isinstance(f, Cast) else f, Read) for f in summed):
        return None
    n = len(kept) + len(divisors)
    if n == 0 or any(mentions(d, *s.reduction_indices) for d in divisors):
        return None
    start = Reduction("add", identity_of("add", builder.tensor(s.target).dtype))
    left = s.element_names
    total = builder.define(s, "sum", left, Call("mul", tuple(summed)), s.reduction_indices, start)
    value: Expr = Read(total.target, s.subscripts)
    for factor in kept:
        value = value * factor
    value = _with_start(s, reduce(lambda a, divisor: Call("truediv", (a, divisor)), divisors, value))
    message = f"{n} factor{'s' if n > 1 else ''} of {s.target} applied to the sum instead of to its terms"
    return (total, builder.change(s, builder.points(s).project(left), value=value, reduction=None)), message


def _may_factor(s: Statement, program: Program, ranges: Ranges) -> bool:
    own = ranges.statements[s.name]
    if s.reduction is None or s.reduction.op != "add" or not program.tensor(s.target).dtype.is_float:
        return False
    if own.guards or not s.has_plain_left or any(r.tensor == s.target for r in reads(s.value)):
        return False
    if len(program.writers()[s.target]) != 1 or not _has_same_terms(s, own):
        return False
    is_whole = is_box(own.domain, own.indices, s.indices) and writes_whole(s, ranges)
    if not is_whole and not _is_read_inside(s, own, program, ranges):
        return False
    extents = [own.indices[i].extent for i in s.reduction_indices]
    # A sum of no terms is 0 whatever its factors are, infinite ones too.
    return all(isinstance(e, Const) for e in extents) and prod(map(trip_count, extents)) >= MINIMUM_REUSE // 2


def _has_same_terms(s: Statement, own: StatementRanges) -> bool:
    """Whether the sum runs over the same points, a box, for every result."""
    summed = [n for n, i in enumerate(s.indices) if i in s.reduction_indices]
    points = project_domain(own.domain, s.indices, s.name, s.reduction_indices)
    return is_product(own.domain, summed) and fills_box(points, own.indices, s.reduction_indices)


def _is_read_inside(s: Statement, own: StatementRanges, program: Program, ranges: Ranges) -> bool:
    """Whether nothing reads the initial values of elements that get no sum."""
    if program.tensor(s.target).role != "temporary":
        return False
    written = project_domain(own.domain, s.indices, s.target, [e.name for e in s.subscripts if isinstance(e, Index)])
    for reader in program.statements:
        domain = ranges.statements[reader.name].domain.intersect_params(ranges.context)
        for site in collect_reads(reader):
            if site.read.tensor == s.target and not reads_within(site, domain, reader.indices, written):
                return False
    return True


def flatten_product(expr: Expr) -> tuple[list[Expr], list[Expr]]:
    """Factors and divisors of a product."""
    match expr:
        case Call("mul", (a, b)):
            (left, over), (right, under) = flatten_product(a), flatten_product(b)
            return left + right, over + under
        case Call("truediv", (a, b)):
            left, over = flatten_product(a)
            return left, [*over, b]
    return [expr], []


# -- products one by one: results are written and read once more for each further product, which is little beside a long sum


def separate_products(s: Statement, builder: ProgramBuilder) -> Change | None:
    """Loop fission: each product of a sum is a contraction."""
    if s.reduction is None or s.reduction.op != "add" or not _may_split(s, builder):
        return None
    terms, trips = list(_addends(s.value, False)), builder.ranges.trips(s.name)
    if not 2 <= len(terms) <= MAX_PARTS or not all(_is_contraction(t, s, builder.ranges) for t in terms):
        return None
    if builder.tensor(s.target).dtype.is_complex or len({frozenset(reads(t)) for t in terms}) < len(terms):
        return None  # the same operands in other functions: one pass over them
    known = [n for n in trips.values() if n is not None]
    length = trips[s.reduction_indices[0]]
    if (length is not None and length < MINIMUM_REUSE) or (len(known) == len(trips) and prod(known) < SMALL_WORK):
        return None
    init, made = s.reduction.init, list[Statement]()
    for n, term in enumerate(terms[:-1]):  # each begins with what the one before has summed
        made.append(builder.define(s, f"product{n}", s.element_names, term, s.reduction_indices, Reduction("add", init)))
        init = Read(made[-1].target, s.subscripts)
    last = replace(s, value=terms[-1], reduction=replace(s.reduction, init=init), where=())
    return [*made, last], f"{len(terms)} products are summed one after the other"


def _addends(expr: Expr, is_negative: bool) -> Iterator[Expr]:
    match expr:
        case Call("add" | "sub" as op, (a, b)):
            yield from _addends(a, is_negative)
            yield from _addends(b, is_negative != (op == "sub"))
        case Call("neg", (a,)):
            yield from _addends(a, not is_negative)
        case Call("mul", (a, b)) if is_negative:
            yield a * -b
        case _:
            yield -expr if is_negative else expr


def _is_contraction(term: Expr, s: Statement, ranges: Ranges) -> bool:
    """Whether a term is a product of two operands, each with left indices that leave the other one alone."""
    factors = term.args if isinstance(term, Call) and term.op == "mul" else ()
    return is_matrix_product(s, [read for f in factors if (read := _operand(f)) is not None], ranges)


def _operand(expr: Expr) -> Read | None:
    """The read that is negated, converted or multiplied by a number."""
    match expr:
        case Read():
            return expr
        case Cast(Read() as read) | Call("neg", (Read() as read,)) | Call("neg", (Cast(Read() as read),)):
            return read
        case Call("mul", (Const(), inner) | (inner, Const())):
            return _operand(inner)
    return None
