"""Domains of sums that are made of whole tiles, where nothing reads what is computed beside the part that is asked for."""

from __future__ import annotations

from collections.abc import Mapping

import islpy

from polyc.ir.expr import Const, Expr, Index, Pad, Read, Select, int_const, reads, walk
from polyc.ir.read_sites import ReadSite
from polyc.poly import isl
from polyc.poly.domains import (
    box_domain,
    condition_inside,
    extend_domain,
    has_divs,
    is_product,
    map_domain,
    parameter_names,
    project_domain,
    reads_within,
    shift_domain,
    stays_inside,
)
from polyc.poly.live import read_elements
from polyc.poly.ranges import Interval, StatementRanges
from polyc.poly.scop import Scop, ScopStatement
from polyc.records import dataclass, replace

SAMPLES = 8
"""Rows in which points are counted."""


@dataclass(frozen=True, eq=False, slots=True)
class WholeTiles:
    """`own`: the ranges of the statement with the points of whole tiles; `condition`: what says which these are, None where it
    is all of the box; `growth`: how many points there are for each of before, by samples."""

    own: StatementRanges
    condition: Expr | None
    growth: float


def has_unread_parts(s: ScopStatement, scop: Scop) -> bool:
    """Whether a sum of known extents computes a convex part of a temporary, for each element over the same indices, and nothing
    reads the rest of it, or makes an operand of the sum out of it."""
    if s.init is None or not isinstance(s.init, Const) or scop.tensors[s.target].role != "temporary":
        return False
    if s.guards or not s.writes_exactly or not s.origin.has_plain_left:
        return False
    if any(isinstance(e, (Pad, Select)) for e in walk(s.value)):
        return False
    if sum(w.target == s.target for w in scop.statements) > 1 or not all(isinstance(e, Const) for e in s.extents.values()):
        return False
    if s.domain.n_basic_set() != 1 or has_divs(s.domain) or _box(s).is_subset(s.domain):
        return False
    if not is_product(s.domain, [s.indices.index(i) for i in s.left]) or _feeds_itself(s, scop):
        return False
    read = read_elements(s.target, scop)
    return read is not None and bool(read.is_subset(s.write.range()))


def _box(s: ScopStatement) -> islpy.Set:
    intervals = {i: Interval(int_const(0), e) for i, e in s.extents.items()}
    return box_domain(s.name, s.indices, intervals, parameter_names(s.domain))


def _feeds_itself(s: ScopStatement, scop: Scop) -> bool:
    """Whether what the sum gives goes into one of its operands."""
    sources = {s.target}
    size = 0
    while size < len(sources):
        size = len(sources)
        sources |= {w.target for w in scop.statements if any(a.tensor in sources for a in (*w.accesses, *w.init_accesses))}
    return any(a.tensor in sources for a in s.accesses)


def make_whole_tiles(s: ScopStatement, scop: Scop, tile: Mapping[str, int], along: str) -> WholeTiles | None:
    """`s`, of which parts are read by nothing, over all points of those tiles that it has a point of; `along` is the index of
    vectors.  None where its operands might have no values there."""
    box = _box(s).intersect_params(scop.context)
    blocks, names = s.domain, list(s.indices)
    for i, size in tile.items():
        kept = [f"{k}.block" if k == i else k for k in names]
        blocks = extend_domain(blocks, names, s.name, kept, f"{i}.block", _block(i, size))
        names = kept
    places = [_block(i, tile[i]) if i in tile else Index(i) for i in s.indices]
    whole = map_domain(blocks, s.name, s.indices, places, ()).intersect(box).coalesce()
    whole = box if box.is_subset(whole) else whole
    if not all(_finds_values(r, whole, s, scop) for r in reads(s.value)):
        return None
    own = scop.ranges.statements[s.name]
    domain = shift_domain(whole, s.indices, {i: own.indices[i].lower for i in s.indices})
    region = project_domain(domain, s.indices, f"init_{s.name}", s.elements)
    condition = None
    if whole is not box:
        lower = {i: own.indices[i].lower for i in s.indices}
        condition = condition_inside(domain, shift_domain(box, s.indices, lower), s.indices)
    growth = _count(whole, s, along) / max(1, _count(s.domain, s, along))
    return WholeTiles(replace(own, domain=domain, region=region), condition, growth)


def _block(index: str, size: int) -> Expr:
    return Index(index) // size


def _finds_values(read: Read, whole: islpy.Set, s: ScopStatement, scop: Scop) -> bool:
    """Whether `read` finds values at the points of `whole`: any element of an input, of other tensors what is read anyway."""
    tensor = scop.tensors[read.tensor]
    if tensor.role == "input":
        return stays_inside(whole, s.indices, read.subscripts, tensor.shape)
    known = read_elements(read.tensor, scop)
    return known is not None and reads_within(ReadSite(read, (), "value", is_padded=False), whole, s.indices, known)


def _count(domain: islpy.Set, s: ScopStatement, along: str) -> int:
    """Points in rows along an index, of some rows that lie across the domain from its first to its last corner."""
    rows = project_domain(domain, s.indices, s.name, s.left).project_out_all_params()
    extents = {i: int(e.value) for i, e in s.extents.items() if isinstance(e, Const)}
    d_along, n = list(s.left).index(along), 0
    for k in range(SAMPLES):
        row = rows
        for d, i in enumerate(s.left):
            if i != along:
                row = row.fix_val(islpy.dim_type.set, d, isl.big_val((2 * k + 1) * extents[i] // (2 * SAMPLES)))
        if not row.is_empty():
            n += 1 + int(row.dim_max_val(d_along).to_python()) - int(row.dim_min_val(d_along).to_python())
    return n
