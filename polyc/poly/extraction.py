"""Program and Ranges → Scop: indices and tensors shifted to start at 0, conditions and paddings into domains and relations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import islpy

from polyc.ir.expr import (
    Const,
    Expr,
    Index,
    Pad,
    PadMode,
    Read,
    Select,
    all_hold,
    children,
    ge,
    int_const,
    lt,
    maximum,
    minimum,
    rewrite,
    substitute,
    walk,
    with_children,
)
from polyc.ir.loaded_ranges import needed_tests
from polyc.ir.program import Program, Statement, element_names
from polyc.ir.simplify import simplify
from polyc.poly import isl
from polyc.poly.isl import Affine, NotAffine
from polyc.poly.ranges import GuardedSubscript, Interval, Ranges, estimate_extent
from polyc.poly.scop import Access, Scop, ScopGuard, ScopStatement, ScopTensor

MAX_PIECES = 8
"""Convex parts of a domain up to which conditions inside of a value part it further."""


def extract_scop(program: Program, ranges: Ranges, earlier: Scop | None = None) -> Scop:
    """Program and Ranges → Scop.  What did not change since an `earlier` one is taken over from it."""
    tensors = {
        t.name: ScopTensor(
            t.name,
            t.dtype,
            tuple(simplify(i.extent) for i in ranges.tensors[t.name]),
            tuple(simplify(i.lower) for i in ranges.tensors[t.name]),
            t.role,
            t.base,
        )
        for t in program.tensors
        if t.name in ranges.tensors
    }
    writers = program.writers()
    kept = {} if earlier is None else _unchanged_statements(earlier, writers, tensors, ranges)
    statements = tuple(
        kept.get(s) or _extract_statement(s, tensors, ranges, len(writers[s.target]) == 1) for s in program.statements
    )
    return Scop(program, ranges, ranges.parameters, ranges.context, statements, tensors)


def _unchanged_statements(
    earlier: Scop, writers: Mapping[str, Sequence[Statement]], tensors: Mapping[str, ScopTensor], ranges: Ranges
) -> dict[Statement, ScopStatement]:
    """Statements of an earlier scop by their origin, where everything that an extraction looks at is still the same."""
    if (
        earlier.parameters != ranges.parameters
        or earlier.context is not ranges.context
        or earlier.ranges.typical != ranges.typical
    ):
        return {}
    same = {name for name, t in tensors.items() if earlier.tensors.get(name) == t}
    before = earlier.program.writers()
    return {
        s.origin: s
        for s in earlier.statements
        if ranges.statements.get(s.name) is earlier.ranges.statements[s.name]
        and {s.target, *(a.tensor for a in (*s.accesses, *s.init_accesses))} <= same
        and (len(writers.get(s.target, ())) == 1) == (len(before[s.target]) == 1)
    }


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Const) and expr.value == 0


def _minus(a: Expr, b: Expr) -> Expr:
    return a if _is_zero(b) else simplify(a - b)


def _extract_statement(s: Statement, tensors: dict[str, ScopTensor], ranges: Ranges, is_alone: bool) -> ScopStatement:
    own = ranges.statements[s.name]
    shift: dict[str, Expr] = {}
    for i in s.indices:
        if not _is_zero(own.indices[i].lower):
            shift[i] = Index(i) + own.indices[i].lower

    target = tensors[s.target]

    def zero_based_init(expr: Expr) -> Expr:
        names = zip(s.element_names, elements, target.lower, strict=True)
        return shift_reads(substitute(expr, {old: simplify(Index(new) + low) for old, new, low in names}))

    def zero_based(expr: Expr) -> Expr:
        return shift_reads(substitute(expr, shift))

    def shift_reads(expr: Expr) -> Expr:
        def rule(node: Expr) -> Expr | None:
            if isinstance(node, Read):
                lower = tensors[node.tensor].lower
                if all(_is_zero(l) for l in lower):
                    return None
                return Read(node.tensor, tuple(_minus(e, l) for e, l in zip(node.subscripts, lower, strict=True)), node.span)
            return None

        return rewrite(expr, rule)

    written = zero_based(Read(s.target, s.subscripts))
    assert isinstance(written, Read)
    subscripts = written.subscripts
    elements = element_names(s.target, subscripts)
    guards, clamp = _build_guards(own.guards, tensors, zero_based)
    value = clamp(zero_based(s.value))
    clamped = clamp(written)
    assert isinstance(clamped, Read)
    subscripts = clamped.subscripts
    reduction = None if s.reduction is None or (s.reduction.once and needed_tests(s.reduction.op, value)) else s.reduction
    init = None if reduction is None else zero_based_init(reduction.init)
    extents = {i: simplify(own.indices[i].extent) for i in s.indices}

    space = isl.set_space(ranges.parameters, s.name, s.indices)
    names = {i: n for n, i in enumerate(s.indices)}
    domain = _shift_domain(own.domain, s, own.indices, ranges).intersect_params(ranges.context)
    value = _expand_pads(value, tensors, Affine(space, names), domain)
    write, is_exact = _relation(Affine(space, names), domain, subscripts, target, ranges)
    accesses = tuple(
        access
        for expr in (value, *(() if is_exact else subscripts))
        for access in _accesses(expr, Affine(space, names), domain, tensors, ranges)
    )
    init_domain: islpy.Set | None = None
    init_accesses: tuple[Access, ...] = ()
    if init is not None:
        init_space = isl.set_space(ranges.parameters, f"init_{s.name}", elements)
        affine = Affine(init_space, {i: n for n, i in enumerate(elements)})
        init_domain = islpy.Set.universe(init_space).intersect_params(ranges.context)
        for n, i in enumerate(elements):
            init_domain = init_domain.intersect(_between(affine, Index(i), target.shape[n]))
        if own.region is not None:
            init_domain = init_domain.intersect(_shift_region(own.region, affine, elements, target.lower))
        if not is_alone:  # the rest of the tensor is for other statements to define
            box = islpy.Set.universe(space).intersect_params(ranges.context)
            for i in s.left_indices:
                box = box.intersect(_between(Affine(space, names), Index(i), extents[i]))
            region = _relation(Affine(space, names), box, subscripts, target, ranges)[0].range()
            init_domain = init_domain.intersect(region.set_tuple_name(f"init_{s.name}"))
        init = _expand_pads(init, tensors, affine, init_domain)
        init_accesses = tuple(_accesses(init, affine, init_domain, tensors, ranges))
    estimates = {i: estimate_extent(e, ranges.typical) for i, e in extents.items() if not isinstance(e, Const)}
    return ScopStatement(
        s.name,
        s.target,
        s.indices,
        subscripts,
        value,
        None if reduction is None else reduction.op,
        init,
        domain,
        write,
        is_exact,
        accesses,
        init_accesses,
        init_domain,
        extents,
        guards,
        s,
        {i: max(1, n) for i, n in estimates.items() if n is not None},
    )


def _between(affine: Affine, value: Expr, extent: Expr) -> islpy.Set:
    x, zero = affine.pw_aff(value), affine.constant(0)
    return x.ge_set(zero).intersect(x.lt_set(affine.pw_aff(extent)))


def _shift_domain(domain: islpy.Set, s: Statement, indices: dict[str, Interval], ranges: Ranges) -> islpy.Set:
    if all(_is_zero(indices[i].lower) for i in s.indices):
        return domain
    space = isl.set_space(ranges.parameters, s.name, s.indices)
    affine = Affine(space, {i: n for n, i in enumerate(s.indices)})
    multi = islpy.MultiPwAff.zero(space.map_from_set())
    for n, i in enumerate(s.indices):
        multi = multi.set_pw_aff(n, affine.pw_aff(Index(i) + indices[i].lower))
    return domain.preimage_multi_pw_aff(multi)


def _clamp_guarded(expr: Expr, dimensions: dict[Expr, set[int]], tensors: dict[str, ScopTensor]) -> Expr:
    """Clamp the guarded subscripts of reads into their tensor, so that nothing outside is touched."""
    new = tuple(_clamp_guarded(child, dimensions, tensors) for child in children(expr))
    if isinstance(expr, Read) and expr in dimensions:
        shape = tensors[expr.tensor].shape
        new = tuple(
            minimum(maximum(sub, 0), simplify(shape[d] - 1)) if d in dimensions[expr] else sub for d, sub in enumerate(new)
        )
    return with_children(expr, new) if new else expr


def _build_guards(
    guarded: tuple[GuardedSubscript, ...], tensors: dict[str, ScopTensor], zero_based: Callable[[Expr], Expr]
) -> tuple[tuple[ScopGuard, ...], Callable[[Expr], Expr]]:
    """Guards of data-dependent subscripts, and the function that clamps those subscripts in an expression."""
    dimensions: dict[Expr, set[int]] = {}
    for g in guarded:
        dimensions.setdefault(zero_based(g.read), set()).add(g.dimension)

    def clamp(expr: Expr) -> Expr:
        return _clamp_guarded(expr, dimensions, tensors) if dimensions else expr

    guards = []
    for g in guarded:
        read = zero_based(g.read)
        assert isinstance(read, Read)
        tensor, d = tensors[read.tensor], g.dimension
        condition = None if g.condition is None else clamp(zero_based(g.condition))
        base, shown = g.shown or (tensor.base, d)
        message = f"subscript {{value}} of dimension {shown} of {base} is outside 0 <= subscript < {{bound}}"
        span = g.read.subscripts[d].span or g.read.span
        guards.append(ScopGuard(clamp(read.subscripts[d]), tensor.shape[d], condition, message, span))
    return tuple(guards), clamp


def _expand_pads(expr: Expr, tensors: dict[str, ScopTensor], affine: Affine, domain: islpy.Set) -> Expr:
    """``pad(read, value)`` → ``inside ? read : value``, without the tests that the domain decides.

    With another mode the value is a read of the element that takes the place, so that the interior has plain subscripts."""

    def expand(node: Expr, domain: islpy.Set) -> Expr:
        if isinstance(node, Select):
            arms = _arms(node, affine, domain)
            condition = expand(node.condition, domain)
            return replace(node, condition=condition, then=expand(node.then, arms[0]), other=expand(node.other, arms[1]))
        node = with_children(node, tuple(expand(e, domain) for e in children(node)))
        return write_out(node, domain) if isinstance(node, Pad) else node

    def write_out(node: Pad, domain: islpy.Set) -> Expr:
        def holds(test: Expr) -> bool:
            try:
                return bool(domain.is_subset(affine.condition(test)))
            except NotAffine:
                return False

        return write_out_pad(node, [Interval(int_const(0), e) for e in tensors[node.read.tensor].shape], holds)

    return expand(expr, domain) if _has_pads(expr) else expr


def _arms(node: Select, affine: Affine, domain: islpy.Set) -> tuple[islpy.Set, islpy.Set]:
    """Where each arm with padded reads is taken, as far as indices and sizes say so."""
    if not (_has_pads(node.then) or _has_pads(node.other)) or domain.n_basic_set() > MAX_PIECES:
        return domain, domain
    try:
        holds = affine.condition(node.condition)
    except NotAffine:
        return domain, domain
    return domain.intersect(holds), domain.subtract(holds)


def _has_pads(expr: Expr) -> bool:
    return any(isinstance(n, Pad) for n in walk(expr))


def _shift_region(region: islpy.Set, affine: Affine, elements: tuple[str, ...], lower: tuple[Expr, ...]) -> islpy.Set:
    """A region in the program's coordinates → over elements that start at 0."""
    multi = islpy.MultiPwAff.zero(affine.space.map_from_domain_and_range(region.get_space()))
    for n, (e, low) in enumerate(zip(elements, lower, strict=True)):
        multi = multi.set_pw_aff(n, affine.pw_aff(Index(e) + low))
    return region.preimage_multi_pw_aff(multi)


def write_out_pad(node: Pad, box: Sequence[Interval], holds: Callable[[Expr], bool], is_in_tile: bool = False) -> Expr:
    """What a padded read of a tensor over `box` reads or chooses, without the tests that hold anyway.

    `is_in_tile`: dimensions that are never left are read as they are: statements of a tile share loops over them."""
    tests: list[Expr] = []
    leaves: set[int] = set()  # dimensions in which the subscript may lie outside
    places = [e if i.lower == int_const(0) else simplify(e - i.lower) for e, i in zip(node.read.subscripts, box, strict=True)]
    for d, place in enumerate(places):
        found: list[Expr] = [test for test in (ge(place, 0), lt(place, box[d].extent)) if not holds(test)]
        tests, leaves = tests + found, leaves | ({d} if found else set())
    if not tests:
        return node.read
    if node.mode == "value":
        return Select(all_hold(tests), node.read, node.value, node.span)
    # Clamping is affine at any sizes, and reads of one form over all dimensions keep the stages of an image in one loop.
    inside = list(node.read.subscripts)
    for d in range(len(box)) if node.mode == "clamp" and not is_in_tile else sorted(leaves):
        inside[d] = place_inside(places[d], box[d].extent, node.mode)
        inside[d] = inside[d] if box[d].lower == int_const(0) else simplify(inside[d] + box[d].lower)
    return Select(all_hold(tests), node.read, Read(node.read.tensor, tuple(inside), node.read.span), node.span)


def place_inside(subscript: Expr, extent: Expr, mode: PadMode) -> Expr:
    """A subscript that is never outside; `extent` is at least 1."""
    if extent == int_const(1):
        return int_const(0)
    last = simplify(extent - 1)
    if mode == "clamp":
        return minimum(maximum(subscript, 0), last)
    if mode == "wrap":
        return subscript % extent
    if mode == "symmetric":
        period = simplify(2 * extent)
        folded = subscript % period
        return minimum(folded, period - 1 - folded)
    period = simplify(2 * last)
    folded = subscript % period  # by 0 where there is one element, which gives 0
    return minimum(folded, period - folded)


def _relation(
    affine: Affine, domain: islpy.Set, subscripts: tuple[Expr, ...], tensor: ScopTensor, ranges: Ranges
) -> tuple[islpy.Map, bool]:
    """``{ S[i] -> T[e] }`` restricted to `domain` and the tensor; a data-dependent subscript reaches its whole dimension."""
    box = _tensor_box(ranges.parameters, tensor.name, tensor.shape)
    space = affine.space.map_from_domain_and_range(_tensor_space(ranges.parameters, tensor.name, len(subscripts)))
    multi, unknown = islpy.MultiPwAff.zero(space), []
    for d, sub in enumerate(subscripts):
        try:
            multi = multi.set_pw_aff(d, affine.pw_aff(sub))
        except NotAffine:
            unknown.append(d)
    relation = islpy.Map.from_multi_pw_aff(multi)
    for d in unknown:
        relation = relation.eliminate(islpy.dim_type.out, d, 1)
    return relation.intersect_domain(domain).intersect_range(box), not unknown


@lru_cache(maxsize=256)
def _tensor_space(parameters: tuple[str, ...], name: str, rank: int) -> islpy.Space:
    """``[sizes] -> { T[e] }``, the dimensions without names: those of relations are shown by what they are equal to."""
    space = isl.set_space(parameters, None, ()).add_dims(islpy.dim_type.set, rank)
    return space.set_tuple_name(islpy.dim_type.set, name)


@lru_cache(maxsize=256)
def _tensor_box(parameters: tuple[str, ...], name: str, shape: tuple[Expr, ...]) -> islpy.Set:
    """``[sizes] -> { T[e] }``: the elements of a tensor."""
    dims = [f"e{d}" for d in range(len(shape))]
    space = isl.set_space(parameters, name, dims)
    element = Affine(space, {n: d for d, n in enumerate(dims)})
    box = islpy.Set.universe(space)
    for dim, extent in zip(dims, shape, strict=True):
        box = box.intersect(_between(element, Index(dim), extent))
    return box


def _accesses(value: Expr, affine: Affine, domain: islpy.Set, tensors: dict[str, ScopTensor], ranges: Ranges) -> list[Access]:
    found: list[Access] = []

    def visit(expr: Expr, inside: islpy.Set, exact: bool) -> None:
        if isinstance(expr, Select):
            visit(expr.condition, inside, exact)
            for arm, holds in ((expr.then, True), (expr.other, False)):
                chosen, is_affine = affine.may_hold(expr.condition, holds)
                visit(arm, inside.intersect(chosen), exact and is_affine)
            return
        if isinstance(expr, Read):
            relation, affine_read = _relation(affine, inside, expr.subscripts, tensors[expr.tensor], ranges)
            if not any(a.read == expr and a.relation.is_equal(relation) for a in found):
                found.append(Access(expr, expr.tensor, relation, exact and affine_read))
        for child in children(expr):
            visit(child, inside, exact)

    visit(value, domain, True)
    return found
