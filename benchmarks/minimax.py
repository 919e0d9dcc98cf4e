"""Coefficients of `polyc/codegen/functions/coefficients.py`: ``python -m benchmarks.minimax [NAME]…`` prints them, with errors.

Remez exchange in 60 digits (needs mpmath).  Coefficients of float32 are rounded one after the other, constant term first,
each time fitting those that are left to what the rounding left over; where that is closer; all others are rounded at once.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from mpmath import (
    asin,
    atan,
    atanh,
    erfc,
    exp,
    expm1,
    fsum,
    inf,
    linspace,
    log,
    log1p,
    lu_solve,
    matrix,
    mp,
    mpf,
    pi,
    sin,
    sinh,
    sqrt,
    tan,
)

mp.dps = 60

Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """The polynomial in x closest to `f` between `low` and `high`, errors times `weight`; terms of float32 and float64."""

    f: Function
    weight: Function
    low: mpf
    high: mpf
    terms: tuple[int, int]


def remez(f: Function, weight: Function, low: mpf, high: mpf, n: int) -> tuple[list[mpf], mpf]:
    """`n` coefficients, constant term first, and the largest weighted error."""
    points = [(low + high) / 2 - (high - low) / 2 * mp.cos(pi * i / n) for i in range(n + 1)]
    grid = linspace(low, high, 40 * n + 1)
    values = [(x, f(x), weight(x)) for x in grid]
    coefficients: list[mpf] = []
    worst = mpf(inf)
    for _ in range(12):
        a = matrix(n + 1, n + 1)
        b = matrix(n + 1, 1)
        for i, x in enumerate(points):
            for j in range(n):
                a[i, j] = x**j
            a[i, n] = (-1) ** i / weight(x)
            b[i] = f(x)
        solution = lu_solve(a, b)
        coefficients = [solution[j] for j in range(n)]
        errors = [(w * (mp.polyval(coefficients[::-1], x) - y), x) for x, y, w in values]
        worst = max(abs(e) for e, _ in errors)
        extrema: list[tuple[mpf, mpf]] = []
        for e, x in errors:
            if extrema and (e > 0) == (extrema[-1][0] > 0):
                if abs(e) > abs(extrema[-1][0]):
                    extrema[-1] = (e, x)
            else:
                extrema.append((e, x))
        while len(extrema) > n + 1:
            extrema.pop(0 if abs(extrema[0][0]) < abs(extrema[-1][0]) else -1)
        if len(extrema) < n + 1 or worst < abs(solution[n]) * mpf("1.0001"):
            break
        points = [x for _, x in extrema]
    return coefficients, worst


def rounded(value: mpf, bits: int) -> float:
    return struct.unpack("f", struct.pack("f", float(value)))[0] if bits == 32 else float(value)


def fit(one: Fit, bits: int) -> list[float]:
    """Coefficients in the format."""
    n = one.terms[bits == 64]
    plain = [rounded(c, bits) for c in remez(one.f, one.weight, one.low, one.high, n)[0]]
    if bits == 64 or one.low <= 0:
        return plain
    result: list[float] = []
    f, weight = one.f, one.weight
    for left in range(n, 0, -1):
        first = rounded(remez(f, weight, one.low, one.high, left)[0][0], bits)
        result.append(first)
        f = lambda x, f=f, c=first: (f(x) - c) / x  # noqa: E731
        weight = lambda x, w=weight: w(x) * x  # noqa: E731
    return min(plain, result, key=lambda c: _error(one, c))


def _error(one: Fit, coefficients: list[float]) -> mpf:
    grid = linspace(one.low, one.high, 1500)
    return max(abs(one.weight(x) * (fsum(c * x**k for k, c in enumerate(coefficients)) - one.f(x))) for x in grid)


def _odd(f: Function) -> tuple[Function, Function]:
    """(f(r) - r) / r^3 in z = r^2, and the weight that makes errors relative to f(r)."""
    return (lambda z: (f(sqrt(z)) - sqrt(z)) / sqrt(z) ** 3), (lambda z: sqrt(z) ** 3 / f(sqrt(z)))


_TINY = mpf(2) ** -20
_HALF_LN2 = log(2) / 2
_CENTRE = 4
"""(1 + 2t) erfc(t) e^(t^2) is a polynomial in (t - 4) / (t + 4)."""


def _scaled_erfc(z: mpf) -> mpf:
    t = _CENTRE * (1 + z) / (1 - z)
    return (1 + 2 * t) * erfc(t) * exp(t * t)


def _centred(t: float) -> mpf:
    return (mpf(t) - _CENTRE) / (mpf(t) + _CENTRE)


def _near(r: mpf) -> mpf:
    return r if r else _TINY


FITS = {
    "exp": Fit(
        lambda r: (expm1(_near(r)) - r) / _near(r) ** 2,
        lambda r: _near(r) ** 2 / exp(r),
        -_HALF_LN2,
        _HALF_LN2 * mpf("1.0001"),
        (5, 10),
    ),
    "exp_fine": Fit(
        lambda r: expm1(_near(r)) / _near(r), lambda r: _near(r), -_HALF_LN2 / 32, _HALF_LN2 / 32 * mpf("1.0001"), (2, 5)
    ),
    "exp_eighth": Fit(
        lambda r: expm1(_near(r)) / _near(r), lambda r: abs(_near(r)), -_HALF_LN2 / 8, _HALF_LN2 / 8 * mpf("1.0001"), (3, 6)
    ),
    "pow_ratio": Fit(
        lambda z: (atanh(sqrt(z)) / sqrt(z) - 1 - z / 3) / z**2, lambda z: z**2, mpf(2) ** -12, mpf("0.0401"), (3, 7)
    ),
    "sin": Fit(*_odd(sin), _TINY, (pi / 2) ** 2 * mpf("1.0001"), (4, 9)),
    "sin_quarter": Fit(*_odd(sin), _TINY, (pi / 4) ** 2 * mpf("1.0001"), (3, 6)),
    "cos_quarter": Fit(
        lambda z: (mp.cos(sqrt(z)) - 1 + z / 2) / z**2, lambda z: z**2, mpf(2) ** -30, (pi / 4) ** 2 * mpf("1.0001"), (3, 6)
    ),
    "sinh": Fit(*_odd(sinh), _TINY, mpf(1), (3, 8)),
    "atan": Fit(*_odd(atan), _TINY, tan(pi / 8) ** 2 * mpf("1.0001"), (4, 11)),
    "asin": Fit(*_odd(asin), _TINY, mpf("0.25"), (5, 12)),
    "log_ratio": Fit(
        lambda z: (log((1 + sqrt(z)) / (1 - sqrt(z))) - 2 * sqrt(z)) / sqrt(z) ** 3,
        lambda z: sqrt(z) ** 2,
        _TINY,
        mpf("0.0401"),
        (4, 8),
    ),
    "log": Fit(
        lambda f: (log1p(_near(f)) - f + f * f / 2) / _near(f) ** 3,
        lambda f: abs(_near(f) ** 3 / log1p(_near(f))),
        mpf("-0.25"),
        mpf("0.5"),
        (8, 20),
    ),
    "erfc": Fit(_scaled_erfc, lambda z: 1 / _scaled_erfc(z), _centred(0.65), _centred(27.3), (10, 24)),
}


def main() -> None:
    for name in sys.argv[1:] or FITS:
        for bits in (32, 64):
            one = FITS[name]
            if name == "erfc" and bits == 32:
                one = replace(one, high=_centred(10.1))
            coefficients = fit(one, bits)
            print(f"{name} float{bits}: weighted error {float(_error(one, coefficients)):.3g}", flush=True)
            print("    (" + ", ".join(repr(c) for c in coefficients) + ")", flush=True)


if __name__ == "__main__":
    main()
