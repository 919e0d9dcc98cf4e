"""Sums that go in order along with what they add up, where that costs less than storing it.

Before: ``i { w[i, y, x] = f } ; y, x { i { S[y, x] += w[i, y, x] * X[i + y, x] } ; i { Z[y, x] += w[i, y, x] } }``.
After:  ``i { w[y, x] = f ; S[y, x] += w[y, x] * X[i + y, x] ; Z[y, x] += w[y, x] }``, where a window keeps w from sharing y.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from polyc.machine import Machine
from polyc.scheduler.rows.groups import IN_ORDER, Group, Used
from polyc.scheduler.rows.model import Model
from polyc.scheduler.traffic import carries_sums


def passed_tensors(a: Group, b: Group, model: Model) -> set[str]:
    """Temporaries that only statements of `a` write, and some of `b` read."""
    first, second = {*a.names}, {*b.names}
    given = {t for t, names in model.writers.items() if names <= first} - model.outputs
    return {t for t in given if model.readers.get(t, frozenset()) & second}


def has_no_more_sums(joined: Group, a: Group, b: Group, model: Model) -> bool:
    """Whether one of two groups goes in order already, and the other one brings no sum along the row of both `joined`."""
    in_order = {n for g in (a, b) if g.choice is not None and g.choice.tier == IN_ORDER for n in g.names}
    row = {} if joined.choice is None else joined.choice.row
    return bool(in_order) and all(d in model.statements[n].fixed for n, d in row.items() if n not in in_order)


def is_carried(group: Group, passed: Collection[str], used: Used, model: Model, target: Machine) -> bool:
    """Whether sums along the row of a group go in order with the tensors `passed`, which they add up, inside of `used`.

    Inside of rows that go so already, sums pass through memory anyway."""
    row = {} if group.choice is None else group.choice.row
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
