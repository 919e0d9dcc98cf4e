"""Leave out what recurrences compute and nothing reads.

Before: ``V[k+1, j, i] = 0 where j <= k`` beside a part for j > k, and ``Y[k, i] = i <= k ? … : 0``, of which only the elements
``j >= k`` and ``i <= k`` are ever read.  After: the first is gone, the second runs over ``i <= k``.  Every element of a tensor
has a definition in the source; those that only complete it would keep all steps of a recurrence alive.
Initial values of sums are given to elements that are read: in a band, not to the whole matrix around it.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.diagnostics import Remark
from polyc.ir.program import Program
from polyc.poly.domains import shift_domain
from polyc.poly.live import find_dead_instances, find_dead_starts
from polyc.poly.ranges import Ranges
from polyc.poly.scop import Scop


def drop_dead_instances(scop: Scop) -> tuple[Program, Ranges, list[Remark]]:
    """The program and the ranges of `scop` without the instances of recurrences and the initial values that no result needs;
    the same objects where there are none."""
    remarks: list[Remark] = []
    own, gone = dict(scop.ranges.statements), set[str]()
    for name, region in find_dead_starts(scop).items():
        s = scop.statement(name)
        lower = dict(zip(s.elements, (i.lower for i in scop.ranges.tensors[s.target]), strict=True))
        own[name] = replace(own[name], region=shift_domain(region, s.elements, lower))
        message = f"elements of {scop.tensors[s.target].base} that nothing reads have no start"
        remarks.append(Remark("passed", "dead", message, name))
    narrowed = find_dead_instances(scop)
    for s in (s for s in scop.statements if s.name in narrowed):
        domain, base = narrowed[s.name], scop.tensors[s.target].base
        message = f"elements of {base} that nothing reads are not computed"
        if domain is None:
            gone.add(s.name)
            del own[s.name]
            message = f"{base} is never read where this statement writes it"
        else:
            lower = {i: own[s.name].indices[i].lower for i in s.indices}
            own[s.name] = replace(own[s.name], domain=shift_domain(domain, s.indices, lower))
        remarks.append(Remark("passed", "dead", message, s.name))
    if not remarks:
        return scop.program, scop.ranges, remarks
    statements = tuple(s for s in scop.program.statements if s.name not in gone)
    return replace(scop.program, statements=statements), replace(scop.ranges, statements=own), remarks
