"""Give elements of segments their initial values where they are summed: those that lie in no segment need none.

Before: ``for i, j: S[i, j] = 0 ; for b { for i, j in ptr[b]:ptr[b + 1] { for k: S[i, j] += … } }``, as all reads of S.
After: ``for b { for i, j in ptr[b]:ptr[b + 1] { S[i, j] = 0 ; for k: S[i, j] += … } }``.
"""

from __future__ import annotations

from functools import reduce

from polyc.codegen.nests.scalars import is_initial
from polyc.ir.expr import Const
from polyc.ir.loops import LoopNest, Store
from polyc.ir.segment_loops import count_accesses, find_segment_sum
from polyc.ir.walk import Body, make_nest, map_bodies, perfect_nest
from polyc.records import replace


def start_segments(nest: LoopNest) -> LoopNest:
    """The nest with initial values of temporaries inside of loops over segments, where only such loops touch these."""
    own = [b.name for b in nest.buffers if b.space in ("shared", "thread") and not b.may_alias and not b.memory]

    def change(body: Body) -> Body:
        return reduce(start, own if body else (), tuple(map_bodies(node, change) for node in body))

    def start(body: Body, buffer: str) -> Body:
        first, *others = [n for n in body if count_accesses((n,), buffer)] or body
        _, (store, *_) = perfect_nest(first)
        if not others or not is_initial(first, {buffer}) or not (isinstance(store, Store) and isinstance(store.value, Const)):
            return body
        found = find_segment_sum(others, buffer, nest.body, nest.preconditions)
        if found is None:
            return body
        loops, update, depth = found
        made = make_nest(loops[:depth], (replace(store, subscripts=update.subscripts), loops[depth]))
        return tuple(m for n in body if n is not first for m in (made if n is others[0] else (n,)))

    return replace(nest, body=change(nest.body)) if nest.preconditions else nest
