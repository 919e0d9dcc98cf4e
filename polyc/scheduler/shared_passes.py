"""Say which independent statements share a pass over the same data (horizontal fusion), for `explain`."""

from __future__ import annotations

from polyc.diagnostics import Remark
from polyc.poly.rows import Band, Leaf, Node, all_leaves, statements_of
from polyc.poly.scop import Scop
from polyc.scheduler.accesses import access_motions


def describe_shared_passes(node: Node, scop: Scop) -> list[Remark]:
    """A remark for each innermost band whose statements read the same array, and none of them reads what another one writes."""
    if isinstance(node, Leaf):
        return []
    if not isinstance(node, Band) or not all_leaves(node.child):
        children = (node.child,) if isinstance(node, Band) else node.children
        return [remark for child in children for remark in describe_shared_passes(child, scop)]
    names = list(statements_of(node.child))
    read = {n: {m.tensor for m in access_motions(scop.statement(n)) if not m.is_write} for n in names}
    written = {scop.statement(n).target for n in names}
    free = [n for n in names if not read[n] & (written - {scop.statement(n).target})]
    shared = sorted(t for t in set().union(*read.values()) if t not in written and sum(t in read[n] for n in free) > 1)
    together = [n for n in free if read[n] & set(shared)]
    if len(together) < 2:
        return []
    return [Remark("passed", "share", f"{', '.join(together)} share a pass over {', '.join(shared)}", together[0])]
