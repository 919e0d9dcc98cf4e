"""Scans: loops that carry one value from each iteration to the next through an associative operation.

Such a loop runs in order, but its values may be grouped: in the lanes of a register (`scan_lanes`), where the order of the
source is not asked for or any grouping gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.config import Options
from polyc.ir.expr import Call, Const, Expr, Index, Read, Select, int_const, reads, rewrite, substitute, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.scans import Scan, match_scan, match_second_order
from polyc.ir.simplify import simplify
from polyc.ir.types import DType
from polyc.poly.rows import Member, free_positions
from polyc.poly.scop import Scop, ScopStatement

MINIMUM_ITEMSIZE = 4
"""Bytes of the narrowest element whose lanes are worth moving about."""


def find_scan(target: str, subscripts: tuple[Expr, ...], value: Expr, index: str, step: int, dtype: DType) -> Scan | None:
    """The scan that ``target[subscripts] = value`` is along `index`, which moves by `step` (1 or -1) from point to point."""

    def is_behind(read: Read, distance: int) -> bool:
        before: Expr = Call("sub", (Index(index), int_const(distance * step)))
        pairs = ((r, substitute(e, {index: before})) for r, e in zip(read.subscripts, subscripts, strict=True))
        return read.tensor == target and all(simplify(Call("sub", pair)) == int_const(0) for pair in pairs)

    def is_previous(read: Read) -> bool:
        return is_behind(read, 1)

    def inside(e: Expr) -> Expr | None:
        """Borders are taken out of the loop; only one of the arms goes on from the iteration before, or reads at all."""
        if not isinstance(e, Select) or reads(e.condition):
            return None
        for is_wanted in (is_previous, bool):
            arms = [a for a in (e.then, e.other) if any(map(is_wanted, reads(a)))]
            if len(arms) == 1:
                return arms[0]
        return None

    value = rewrite(value, inside)
    own = [r for r in dict.fromkeys(reads(value)) if r.tensor == target]
    found = [next((r for r in own if is_behind(r, distance)), None) for distance in (1, 2)]
    first, second = found
    if first is None or not all(_is_elsewhere(r, subscripts, index) for r in own if r not in found):
        return None
    if second is None:
        return match_scan(value, first, dtype)
    scan = match_second_order(value, first, second, dtype)
    factors = () if scan is None else (scan.factor, scan.second)
    return None if any(e == Index(index) for f in factors if f is not None for e in walk(f)) else scan


def _is_elsewhere(read: Read, subscripts: tuple[Expr, ...], index: str) -> bool:
    """Whether the loop over `index` never writes what `read` reads: they differ where the loop does not move."""
    for own, other in zip(subscripts, read.subscripts, strict=True):
        difference = simplify(Call("sub", (other, own)))
        if isinstance(difference, Const) and difference.value != 0 and index not in (index_coefficients(own) or {index: 1}):
            return True
    return False


def may_regroup(scan: Scan, dtype: DType, options: Options) -> bool:
    """Whether values of the scan may be combined in another order than that of the source."""
    return options.reassociate or dtype.is_integer or scan.is_exact


def scan_lanes(s: ScopStatement, member: Member, around: Sequence[Member], scop: Scop, lanes: int, options: Options) -> int:
    """Lanes for the loop of `member` around `s` alone, inside those of `around`, where it is a scan along consecutive memory;
    else 0."""
    others = [m.rows[s.name] for m in around if m is not member and s.name in m.rows]
    moving = free_positions(member.rows[s.name], others)
    if lanes < 2 or s.is_reduction or len(moving) != 1:
        return 0
    index, step = s.indices[moving[0]], member.rows[s.name].coefficients[moving[0]]
    dtype = scop.tensors[s.target].dtype
    if abs(step) != 1 or dtype.itemsize < MINIMUM_ITEMSIZE or not s.subscripts:
        return 0
    *outer, last = (index_coefficients(e) for e in s.subscripts)
    if last is None or abs(last.get(index, 0)) != 1 or any(c is None or index in c for c in outer):
        return 0
    scan = find_scan(s.target, s.subscripts, s.value, index, step, dtype)
    return lanes if scan is not None and may_regroup(scan, dtype, options) else 0
