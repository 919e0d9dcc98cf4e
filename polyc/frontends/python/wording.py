"""How decorated functions word what `polyc.frontends.core` refuses."""

from __future__ import annotations

from polyc.frontends.core.builder import Notation
from polyc.frontends.python.values import convert

NOTATION = Notation(
    str,
    lambda value, dtype: convert(value, dtype).expr,
    {
        "part-rank": "{name} has {rank} here",
        "part-rank-help": "assign a part of it with one subscript per dimension, or use a new name",
        "part-of-result": "make a new tensor of it, as in T[i] = 1 if i == 0 else {name}[i]",
        "selection-left": "write for example v[i], p[i] = {op}(X[i, j])",
        "selection-complex": "complex numbers have no order",
        "selection-complex-help": "compare a part, or the size: {op}(abs(z[i]))",
        "combination-left": "write for example re[i], im[i] = product(a[i, k], b[i, k])",
    },
)
