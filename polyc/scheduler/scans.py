"""Scans: loops that carry one value from each iteration to the next through an associative operation.

Such a loop runs in order, but its values may be grouped: in the lanes of a register (`scan_lanes`), where the order of the
source is not asked for or any grouping gives the same bits.
"""

from __future__ import annotations

from polyc.config import Options
from polyc.ir.expr import Call, Expr, Index, int_const, reads, substitute
from polyc.ir.linear import index_coefficients
from polyc.ir.scans import Scan, match_scan
from polyc.ir.simplify import simplify
from polyc.ir.types import DType
from polyc.poly.rows import Member
from polyc.poly.scop import Scop, ScopStatement

MINIMUM_ITEMSIZE = 4
"""Bytes of the narrowest element whose lanes are worth moving about."""


def find_scan(target: str, subscripts: tuple[Expr, ...], value: Expr, index: str, step: int, dtype: DType) -> Scan | None:
    """The scan that ``target[subscripts] = value`` is along `index`, which moves by `step` (1 or -1) from point to point."""
    own = [r for r in dict.fromkeys(reads(value)) if r.tensor == target]
    if len(own) != 1:
        return None
    before: Expr = Call("sub", (Index(index), int_const(step)))
    for read, write in zip(own[0].subscripts, subscripts, strict=True):
        if simplify(Call("sub", (read, substitute(write, {index: before})))) != int_const(0):
            return None
    return match_scan(value, own[0], dtype)


def may_regroup(scan: Scan, dtype: DType, options: Options) -> bool:
    """Whether values of the scan may be combined in another order than that of the source."""
    return options.reassociate or dtype.is_integer or scan.is_exact


def scan_lanes(s: ScopStatement, member: Member, scop: Scop, lanes: int, options: Options) -> int:
    """Lanes for the loop of `member` around `s` alone, where it is a scan along consecutive memory; else 0."""
    moving = [n for n, c in enumerate(member.rows[s.name].coefficients) if c]
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
