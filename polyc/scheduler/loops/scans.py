"""Scans: loops that carry one value from each iteration to the next through an associative operation.

Such a loop runs in order, but its values may be grouped: in the lanes of a register (`scan_lanes`), where the order of the
source is not asked for or any grouping gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.code_limits import WORD
from polyc.config import Options
from polyc.ir.linear import index_coefficients
from polyc.ir.scans import Scan, find_scan
from polyc.ir.types import DType
from polyc.poly.rows import Member, free_positions
from polyc.poly.scop import Scop, ScopStatement


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
    if abs(step) != 1 or dtype.itemsize < WORD or not s.subscripts:
        return 0
    *outer, last = (index_coefficients(e) for e in s.subscripts)
    if last is None or abs(last.get(index, 0)) != 1 or any(c is None or index in c for c in outer):
        return 0
    scan = find_scan(s.target, s.subscripts, s.value, index, step, dtype)
    return lanes if scan is not None and may_regroup(scan, dtype, options) else 0
