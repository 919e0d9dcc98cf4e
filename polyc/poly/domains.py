"""Domains of statements that a rewriting of the program makes from other statements, and where their loops begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

import islpy

from polyc.ir.expr import Const, Expr, Index, eq
from polyc.ir.read_sites import ReadSite
from polyc.ir.types import BOOL
from polyc.poly import isl
from polyc.poly.ranges import Interval


def project_domain(domain: islpy.Set, indices: Sequence[str], name: str, kept: Sequence[str]) -> islpy.Set:
    """``{ name[kept] : exists the other indices with S[indices] in domain }``, in the order of `kept`."""
    space = isl.set_space(parameter_names(domain), name, kept)
    projection = islpy.Map.universe(domain.get_space().map_from_domain_and_range(space))
    for n, index in enumerate(kept):
        projection = projection.equate(islpy.dim_type.in_, list(indices).index(index), islpy.dim_type.out, n)
    return domain.apply(projection)


def map_domain(
    domain: islpy.Set, name: str, indices: Sequence[str], values: Sequence[Expr], conditions: Sequence[Expr]
) -> islpy.Set:
    """``{ name[indices] : S[values] in domain, conditions }``: `values` are affine in `indices`, one per dimension of S."""
    affine = isl.Affine(isl.set_space(parameter_names(domain), name, indices), {i: n for n, i in enumerate(indices)})
    multi = islpy.MultiPwAff.zero(affine.space.map_from_domain_and_range(domain.get_space()))
    for n, value in enumerate(values):
        multi = multi.set_pw_aff(n, affine.pw_aff(value))
    result = domain.preimage_multi_pw_aff(multi)
    for condition in conditions:
        result = result.intersect(affine.condition(condition))
    return result


def extend_domain(
    domain: islpy.Set, indices: Sequence[str], name: str, kept: Sequence[str], new: str, value: Expr
) -> islpy.Set:
    """``{ name[kept] : exists the other indices with S[indices] in domain, new = value }``; `new` is one of `kept`."""
    with_new = (*indices, new)
    points = map_domain(domain, name, with_new, [Index(i) for i in indices], [eq(Index(new), value)])
    return project_domain(points, with_new, name, kept)


def shift_domain(domain: islpy.Set, indices: Sequence[str], lower: Mapping[str, Expr]) -> islpy.Set:
    """The zero-based `domain` with every index counted from `lower` on."""
    affine = isl.Affine(domain.get_space(), {i: n for n, i in enumerate(indices)})
    multi = islpy.MultiPwAff.zero(domain.get_space().map_from_set())
    for n, i in enumerate(indices):
        multi = multi.set_pw_aff(n, affine.pw_aff(Index(i) - lower[i]))
    return domain.preimage_multi_pw_aff(multi)


def find_start_steps(domain: islpy.Set) -> dict[int, int]:
    """By dimension whose begin moves with others, in which steps: ``{ S[b, i] : 8 b + 8 <= i < N }`` has ``{1: 8}``."""
    found: dict[int, int] = {}
    pieces = domain.remove_divs().remove_redundancies().get_basic_set_list()
    for constraint in (c for n in range(pieces.n_basic_set()) for c in pieces.get_at(n).get_constraints()):
        dims = range(constraint.dim(islpy.dim_type.set))
        moving = {d: c for d in dims if (c := constraint.get_coefficient_val(islpy.dim_type.set, d).to_python())}
        for d in (d for d, c in moving.items() if c == 1 and len(moving) > 1 and not constraint.is_equality()):
            found[d] = gcd(found.get(d, 0), *(c for other, c in moving.items() if other != d))
    return found


def parameter_names(domain: islpy.Set) -> list[str]:
    """Sizes that a set may mention."""
    return [str(domain.get_dim_name(islpy.dim_type.param, n)) for n in range(domain.dim(islpy.dim_type.param))]


def box_domain(name: str, indices: Sequence[str], intervals: Mapping[str, Interval], parameters: Sequence[str]) -> islpy.Set:
    """``{ name[indices] : lower <= i < lower + extent for every index }``."""
    affine = isl.Affine(isl.set_space(parameters, name, indices), {i: n for n, i in enumerate(indices)})
    result = islpy.Set.universe(affine.space)
    for n, i in enumerate(indices):
        first, extent = intervals[i].lower, intervals[i].extent
        if isinstance(first, Const) and isinstance(extent, Const):
            result = result.lower_bound_val(islpy.dim_type.set, n, isl.big_val(int(first.value)))
            result = result.upper_bound_val(islpy.dim_type.set, n, isl.big_val(int(first.value) + int(extent.value) - 1))
            continue
        x, lower = affine.pw_aff(Index(i)), affine.pw_aff(intervals[i].lower)
        upper = lower.add(affine.pw_aff(intervals[i].extent))
        result = result.intersect(x.ge_set(lower)).intersect(x.lt_set(upper))
    return result


def is_box(domain: islpy.Set, intervals: Mapping[str, Interval], indices: Sequence[str]) -> bool:
    """Whether a domain is just the box of its intervals."""
    return bool(box_domain(str(domain.get_tuple_name()), indices, intervals, parameter_names(domain)).is_subset(domain))


def fills_box(domain: islpy.Set, intervals: Mapping[str, Interval], indices: Sequence[str]) -> bool:
    """As `is_box`, for the sizes only at which a domain has points."""
    box = box_domain(str(domain.get_tuple_name()), indices, intervals, parameter_names(domain))
    return bool(box.intersect_params(domain.params()).is_subset(domain))


def stays_inside(domain: islpy.Set, indices: Sequence[str], subscripts: Sequence[Expr], shape: Sequence[Expr]) -> bool:
    """Whether ``0 <= subscripts < shape`` at every point of `domain`; False where that is not affine."""
    affine = isl.Affine(domain.get_space(), {i: n for n, i in enumerate(indices)})
    try:
        for subscript, extent in zip(subscripts, shape, strict=True):
            x = affine.pw_aff(subscript)
            inside = x.ge_set(affine.constant(0)).intersect(x.lt_set(affine.pw_aff(extent)))
            if not domain.is_subset(inside):
                return False
    except isl.NotAffine:
        return False
    return True


def is_product(domain: islpy.Set, positions: Sequence[int]) -> bool:
    """Whether the dimensions at `positions` and the others are independent: as many points for every value of the former."""
    n = domain.dim(islpy.dim_type.set)
    others = [d for d in range(n) if d not in positions]
    if not positions or not others:
        return True
    free = domain
    for d in positions:
        free = free.eliminate(islpy.dim_type.set, d, 1)
    own = domain
    for d in others:
        own = own.eliminate(islpy.dim_type.set, d, 1)
    return bool(free.intersect(own).is_subset(domain))


def bound_together(domain: islpy.Set, positions: Sequence[int]) -> set[int]:
    """The other dimensions that stand in a constraint of `domain` together with one of those at `positions`."""
    found: set[int] = set()
    for basic in domain.get_basic_sets():
        for constraint in basic.get_constraints():
            used = {d for d in range(domain.dim(islpy.dim_type.set)) if constraint.involves_dims(islpy.dim_type.set, d, 1)}
            found |= set() if used.isdisjoint(positions) else used.difference(positions)
    return found


def reads_within(site: ReadSite, domain: islpy.Set, indices: Sequence[str], written: islpy.Set) -> bool:
    """Whether a read touches only elements of ``{ T[e] }`` at the points of `domain` where it is made."""
    touched, anywhere = touched_elements(site, domain, indices, written.get_space())
    for d in anywhere:
        written = written.eliminate(islpy.dim_type.set, d, 1)
    return bool(touched.is_subset(written))


def touched_elements(
    site: ReadSite, domain: islpy.Set, indices: Sequence[str], space: islpy.Space
) -> tuple[islpy.Set, list[int]]:
    """The elements ``{ T[e] }`` of `space` that a read may touch at the points of `domain`, and the dimensions that it reaches
    all of, because the subscript depends on data."""
    relation, anywhere = read_relation(site, domain, indices, space)
    touched = relation.range()
    for d in anywhere:
        touched = touched.eliminate(islpy.dim_type.set, d, 1)
    return touched, anywhere


def read_relation(site: ReadSite, domain: islpy.Set, indices: Sequence[str], space: islpy.Space) -> tuple[islpy.Map, list[int]]:
    """``{ S[i] -> T[e] }``: the elements of `space` that a read may touch; 0 in the dimensions that depend on data, which are
    told."""
    affine = isl.Affine(domain.get_space(), {i: n for n, i in enumerate(indices)})
    for condition, holds in site.conditions:
        domain = domain.intersect(affine.may_hold(condition, holds)[0])
    multi = islpy.MultiPwAff.zero(affine.space.map_from_domain_and_range(space))
    anywhere = []
    for d, subscript in enumerate(site.read.subscripts):
        try:
            multi = multi.set_pw_aff(d, affine.pw_aff(subscript))
        except isl.NotAffine:
            anywhere.append(d)  # in the range that a guard or a condition gives it, which is the whole dimension
    return islpy.Map.from_multi_pw_aff(multi).intersect_domain(domain), anywhere


def points_up_to(points: islpy.Set, dimension: int) -> islpy.Set:
    """``{ x : some point agrees with x but for this dimension, in which x is not greater }``."""
    earlier = islpy.Map.universe(points.get_space().map_from_set())
    for n in range(points.dim(islpy.dim_type.set)):
        kinds = (islpy.dim_type.in_, n, islpy.dim_type.out, n)
        earlier = earlier.order_ge(*kinds) if n == dimension else earlier.equate(*kinds)
    return points.apply(earlier)


def unite_domains(domains: Sequence[islpy.Set], context: islpy.Set) -> islpy.Set | None:
    """The union of domains of one space, for sizes of the context, where that is a convex piece without holes; else None."""
    whole = domains[0]
    for domain in domains[1:]:
        whole = whole.union(domain)
    whole = whole.intersect_params(context).coalesce()
    if whole.n_basic_set() != 1:  # pieces that touch at some sizes only do not coalesce
        hull = islpy.Set.from_basic_set(whole.simple_hull()).intersect_params(context)
        if not hull.is_subset(whole):
            return None
        whole = hull
    return None if has_divs(whole) else whole


def condition_inside(domain: islpy.Set, within: islpy.Set, indices: Sequence[str]) -> Expr:
    """A boolean expression over `indices` and sizes that holds in `within` exactly on `domain`."""
    simple = domain.gist(within).coalesce()
    n, n_sizes = len(indices), simple.dim(islpy.dim_type.param)
    for d, index in enumerate(indices):
        simple = simple.set_dim_name(islpy.dim_type.set, d, index)
    simple = simple.reset_tuple_id().move_dims(islpy.dim_type.param, n_sizes, islpy.dim_type.set, 0, n).params()
    build = islpy.AstBuild.from_context(islpy.Set.universe(simple.get_space()))
    condition = isl.expr_of_ast(build.expr_from_set(simple), set(indices))
    return Const(bool(condition.value), BOOL) if isinstance(condition, Const) else condition  # isl writes 1 and 0


def subtract_domain(domain: islpy.Set, other: islpy.Set) -> islpy.Set:
    """The points of `domain` that are not in `other`."""
    return domain.subtract(other).coalesce()


def convex_pieces(domain: islpy.Set) -> list[islpy.Set]:
    """Convex sets that share no point, and together are `domain`."""
    pieces = domain.coalesce().make_disjoint().get_basic_set_list()
    return [islpy.Set.from_basic_set(pieces.get_at(n)) for n in range(pieces.n_basic_set())]


def longest_run(domain: islpy.Set, dimension: int) -> int | None:
    """How far apart points may lie that differ in one dimension only, and one more; None where nothing bounds that."""
    if domain.is_empty():
        return 0
    pairs = islpy.Map.from_domain_and_range(domain, domain)
    for d in range(domain.dim(islpy.dim_type.set)):
        if d != dimension:
            pairs = pairs.equate(islpy.dim_type.in_, d, islpy.dim_type.out, d)
    longest = pairs.deltas().dim_max_val(dimension)
    return int(longest.to_python()) + 1 if longest.is_int() else None


def has_divs(domain: islpy.Set) -> bool:
    """Whether a domain has holes: constraints with remainders."""
    pieces = domain.get_basic_set_list()
    return any(pieces.get_at(n).dim(islpy.dim_type.div) > 0 for n in range(pieces.n_basic_set()))
