"""What a user's monoid promises, tried on a few values: that results do not depend on how values are grouped and ordered."""

from __future__ import annotations

import itertools

import numpy as np

from polyc.ir.interpret import combine_arrays
from polyc.ir.interpret_values import Scope
from polyc.ir.program import Monoid
from polyc.ir.types import DType

_TOLERANCE = 1e-4


def find_broken_law(monoid: Monoid) -> str | None:
    """A sentence with numbers that shows that `monoid` is not associative or commutative, or its identity none; else None.

    Numbers are positive, since components are often counts."""
    triples = list(itertools.product(range(3), repeat=3))

    def operand(which: int) -> list[np.ndarray]:
        return [
            np.array([_samples(c.dtype)[(t[which] + k) % 3] for t in triples], c.dtype.numpy)
            for k, c in enumerate(monoid.identity)
        ]

    scope = Scope({}, {}, {}, {}, {}, {}, None)

    def combine(x: list[np.ndarray], y: list[np.ndarray]) -> list[np.ndarray]:
        found = zip(combine_arrays(monoid, x, y, scope), monoid.identity, strict=True)
        return [v.astype(c.dtype.numpy) for v, c in found]

    a, b, c = (operand(k) for k in range(3))
    e = [np.full(len(triples), constant.value, constant.dtype.numpy) for constant in monoid.identity]
    with np.errstate(all="ignore"):
        ab, ba = combine(a, b), combine(b, a)
        left, right = combine(ab, c), combine(a, combine(b, c))
        laws = [
            ("is not associative", "(%s ∘ %s) ∘ %s is %s, and %s ∘ (%s ∘ %s) is %s", (a, b, c, left, a, b, c, right)),
            ("is not commutative", "%s ∘ %s is %s, and %s ∘ %s is %s", (a, b, ab, b, a, ba)),
            ("has another identity than %s", "%s ∘ %s is %s", (e, e, a, combine(e, a))),
        ]
        for law, example, values in laws:
            found, wanted = values[-1], values[3] if len(values) == 8 else values[2]
            for n in range(len(triples)):
                if not all(_same(f[n], w[n]) for f, w in zip(found, wanted, strict=True)):
                    shown = [_show([v[n] for v in tuple_]) for tuple_ in values]
                    text = f"{monoid.name} {law}: {example}"
                    return text % tuple(shown)
    return None


def _samples(dtype: DType) -> tuple[float, ...]:
    return (False, True, True) if dtype.kind == "b" else (1, 2, 5)


def _same(x: np.generic, y: np.generic) -> bool:
    return bool(x == y or np.isclose(x, y, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True))


def _show(values: list[np.generic]) -> str:
    texts = [f"{v:g}" if isinstance(v, np.floating) else str(v) for v in values]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
