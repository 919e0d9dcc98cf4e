"""Sums that go in order along with what they add up, where that costs less than storing it.

Before: ``i { w[i, y, x] = f } ; y, x { i { S[y, x] += w[i, y, x] * X[i + y, x] } ; i { Z[y, x] += w[i, y, x] } }``.
After:  ``i { w[y, x] = f ; S[y, x] += w[y, x] * X[i + y, x] ; Z[y, x] += w[y, x] }``, where a window keeps w from sharing y.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from polyc.machine import Machine
from polyc.scheduler.rows.groups import Used
from polyc.scheduler.rows.model import Model
from polyc.scheduler.rows.objective import UnitRow
from polyc.scheduler.traffic import carries_sums


def is_carried(row: UnitRow, passed: Collection[str], used: Used, model: Model, target: Machine) -> bool:
    """Whether sums along `row` go in order with the tensors `passed`, which they add up, inside of the rows `used`.

    Inside of rows that go so already, sums pass through memory anyway."""
    statements = model.statements
    sums = {name for name, d in row.items() if d not in statements[name].fixed}
    if any(used[name] - statements[name].fixed for name in sums):
        return True

    def size(name: str) -> int:
        s = statements[name]
        return prod(s.extents[d] for d in s.fixed - used[name]) * s.itemsize

    whole, read, n_steps = 0, 0, 1
    for writer in {name for tensor in passed for name in model.writers[tensor]}:
        edges = [e for e in model.edges if e.source == writer and e.sink in sums]
        steps = {a for e in edges for a, b in e.unit_pairs if b not in statements[e.sink].fixed} - used[writer]
        n_steps = max(n_steps, prod(statements[writer].extents[d] for d in steps))
        whole, read = whole + size(writer), read + size(writer) * len(edges)
    return carries_sums(whole, read, n_steps, sum(map(size, sums)), target)
