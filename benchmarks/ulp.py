"""Errors of the mathematical functions: ``python -m benchmarks.ulp [FUNCTION]…``.

float32: every argument there is (or every N-th with `--stride N`), against float64: NumPy's where it has it, otherwise
polyc's own.  float64: a sample over all exponents and near the ends of domains, against mpmath in 40 digits.  Errors are
in units in the last place of the exact value; NaN, infinities and the signs of zeros must be those of the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click
import numpy as np

import polyc
from polyc.codegen.functions.polynomials import INLINE
from polyc.machine import PINNED

FUNCTIONS = (*INLINE, "sqrt", "rsqrt", "lgamma", "tgamma", "pow", "atan2", "hypot")
TWO_ARGUMENTS = ("pow", "atan2", "hypot")
_CHUNK = 1 << 18
_PI = math.pi

_NUMPY: dict[str, Callable[..., Any]] = {
    **{n: getattr(np, n) for n in "exp exp2 expm1 sinh cosh tanh log log2 log10 log1p sin cos tan cbrt sqrt hypot".split()},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "exp10": lambda x: np.power(10.0, x),
}
"""References for float32; their own errors in float64 do not show."""


def kernel(name: str, dtype: str, target: str) -> Callable[..., Any]:
    """The function on vectors of float32 or float64."""
    type = {"float32": "f32", "float64": "f64"}[dtype]
    if name in TWO_ARGUMENTS:
        text = f'def f(X: "{type}[N]", Z: "{type}[N]"):\n    Y[i] = {name}(X[i], Z[i])\n    return Y\n'
    else:
        text = f'def f(X: "{type}[N]"):\n    Y[i] = {name}(X[i])\n    return Y\n'
    return polyc.op(text, target=target, parallel=False)


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """|got - exact| in units of the last place of `exact` (wider than `got`); infinite where kinds or signs of zeros differ."""
    info = np.finfo(got.dtype)
    rounded = exact.astype(got.dtype)
    exponent = np.maximum(np.frexp(np.abs(exact))[1] - 1, info.minexp)
    unit = np.ldexp(np.ones((), exact.dtype), exponent - info.nmant)
    error = np.abs(got.astype(exact.dtype) - exact) / unit
    # The largest finite number and infinity are neighbours, whatever the exact value is.
    near_overflow = np.isinf(rounded) & (np.abs(got) == info.max) & (np.sign(got) == np.sign(rounded))
    same = ((got == rounded) & ((got != 0) | (np.signbit(got) == np.signbit(rounded)))) | (np.isnan(got) & np.isnan(rounded))
    error = np.where(np.isfinite(got) & np.isfinite(rounded), error, np.inf)
    error = np.where((got == 0) & (rounded == 0) & ~same, np.inf, error)
    as_close_as_can_be = np.where(np.isfinite(rounded), np.minimum(error, 0.5), 0.0)
    return np.where(same, as_close_as_can_be, np.where(near_overflow, 1.0, error))


def worst_of_float32(name: str, stride: int, target: str) -> tuple[float, tuple[float, ...], int]:
    """The largest error, its arguments and the number of arguments tried."""
    function = kernel(name, "float32", target)
    reference = _NUMPY.get(name) or kernel(name, "float64", "host")
    worst, place, count = -1.0, (math.nan,), 0
    rng = np.random.default_rng(0)
    y = np.empty(_CHUNK, np.float32)
    offsets = np.arange(_CHUNK, dtype=np.uint64) * np.uint64(stride)
    step = _CHUNK * stride
    for first in range(0, 1 << 32, step):
        bits = (offsets + np.uint64(first)).astype(np.uint32)
        x: tuple[np.ndarray, ...] = (bits.view(np.float32),)
        if name in TWO_ARGUMENTS:
            x = (x[0], _second_argument(name, x[0], rng))
        function(*x, out=y)
        exact = reference(*(a.astype(np.float64) for a in x))
        count += y.size
        # Most arguments are done with here: |relative error| * 2^24 is at least the error in units.
        relative = np.abs((y - exact) / exact)
        unsure = ~(relative * 2.0**24 <= worst) & ~(np.isnan(y) & np.isnan(exact))
        unsure |= np.abs(exact) < 2.0**-126
        where = np.flatnonzero(unsure)
        if not where.size:
            continue
        error = ulps(y[where], exact[where])
        k = int(np.argmax(error))
        if error[k] > worst:
            worst, place = float(error[k]), tuple(float(a[where[k]]) for a in x)
    return worst, place, count


def _second_argument(name: str, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Any number; for powers mostly one that keeps the result in range."""
    anything = rng.integers(0, 1 << 32, x.size, dtype=np.uint32).view(np.float32)
    if name != "pow":
        return np.where(rng.random(x.size) < 0.5, anything, x * rng.uniform(-4, 4, x.size)).astype(np.float32)
    size = np.maximum(np.abs(np.log2(np.abs(x.astype(np.float64)))), 1e-30)
    return np.where(rng.random(x.size) < 0.1, anything, rng.uniform(-150, 150, x.size) / size).astype(np.float32)


def _exact(name: str) -> Callable[..., Any]:
    """`name` of mpmath, in 40 digits."""
    import mpmath as mp

    mp.mp.dps = 40
    special: dict[str, Callable[..., Any]] = {
        "exp2": lambda x: mp.mpf(2) ** x,
        "exp10": lambda x: mp.mpf(10) ** x,
        "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
        "rsqrt": lambda x: 1 / mp.sqrt(x),
        "log2": lambda x: mp.log(x, 2),
        "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
        "log1p": lambda x: mp.log1p(x) if abs(x) < 1 else mp.log(1 + x),
        "pow": lambda x, y: mp.power(abs(x), y),
        "lgamma": lambda x: mp.log(abs(mp.gamma(x))),
        "tgamma": mp.gamma,
    }
    return special.get(name) or getattr(mp, name)


def worst_of_float64(name: str, count: int, target: str) -> tuple[float, tuple[float, ...], int]:
    """As `worst_of_float32`, over a sample of about `count` arguments where the function is finite."""
    import mpmath as mp

    rng = np.random.default_rng(1)
    n = count // 4
    spread = rng.standard_normal(n) * 10.0 ** rng.uniform(-300, 300, n)
    x = np.concatenate([spread, rng.uniform(-1.2, 1.2, n), rng.uniform(-750, 720, n), rng.standard_normal(n) * 4])
    arguments: tuple[np.ndarray, ...] = (x,)
    if name == "pow":
        arguments = (np.abs(x), rng.uniform(-1000, 1000, x.size) / np.maximum(np.abs(np.log2(np.abs(x))), 1e-30))
    elif name in TWO_ARGUMENTS:
        arguments = (x, x * rng.uniform(-4, 4, x.size))
    got = np.asarray(kernel(name, "float64", target)(*arguments))
    exact = _exact(name)
    worst, place, tried = -1.0, (math.nan,), 0
    for k in np.flatnonzero(np.isfinite(got)):
        values = tuple(float(a[k]) for a in arguments)
        try:
            want = exact(*map(mp.mpf, values))
        except (ValueError, ZeroDivisionError, OverflowError):
            continue
        if not want or mp.im(want) or abs(want) < mp.mpf(2) ** -1100:
            continue
        unit = mp.mpf(2) ** (max(mp.floor(mp.log(abs(want), 2)), -1022) - 52)
        error = float(abs(mp.mpf(float(got[k])) - want) / unit)
        tried += 1
        if error > worst:
            worst, place = error, values
    return worst, place, tried


@click.command()
@click.argument("names", nargs=-1, metavar="[FUNCTION]...", type=click.Choice(FUNCTIONS))
@click.option("--stride", default=1, type=click.IntRange(min=1), help="Only every N-th float32.", show_default=True)
@click.option("--sample", default=20000, type=click.IntRange(min=8), help="Float64 arguments.", show_default=True)
@click.option("--target", default="host", type=click.Choice(["host", *PINNED]), help="Instruction set.", show_default=True)
@click.option("--dtype", type=click.Choice(["float32", "float64"]), help="Only this type.")
def main(names: tuple[str, ...], stride: int, sample: int, target: str, dtype: str | None) -> None:
    """The largest error of each FUNCTION (default: all), the arguments where it is, and how many were tried."""
    for name in names or FUNCTIONS:
        with np.errstate(all="ignore"):
            found = {}
            if dtype != "float64":
                found["float32"] = worst_of_float32(name, stride, target)
            if dtype != "float32":
                found["float64"] = worst_of_float64(name, sample, target)
        for type, (worst, place, count) in found.items():
            at = ", ".join(repr(v) for v in place)
            click.echo(f"{name:8} {type} {worst:6.3f} ULP at {at} ({count} arguments)")


if __name__ == "__main__":
    main()
