"""Inline mathematical functions: no tables in memory, the same bits in scalar and vector form.

The errors over all of float32, and over samples of float64, are those of the table in docs/functions.md, which
`python -m benchmarks.ulp` measures; `tests/codegen/test_math.py` holds every function to its bound.  NaN, infinities, zeros and
denormals come out as from NumPy.  Without fused multiply-add the same code rounds twice, and the bounds hold too.
"""

from __future__ import annotations

from collections.abc import Callable

from polyc.codegen.functions import circular, erf, exponentials, gamma, logarithms, neighbours, powers, remainders, roots
from polyc.codegen.functions.floats import F32, F64, Math
from polyc.codegen.writer.builder import Function, Val
from polyc.machine import Machine

_ONE: dict[str, Callable[[Math, Val], Val]] = {
    "exp": exponentials.emit_exp,
    "exp2": exponentials.emit_exp2,
    "exp10": exponentials.emit_exp10,
    "expm1": exponentials.emit_expm1,
    "sinh": exponentials.emit_sinh,
    "cosh": exponentials.emit_cosh,
    "tanh": exponentials.emit_tanh,
    "sigmoid": exponentials.emit_sigmoid,
    "log": logarithms.emit_log,
    "log2": logarithms.emit_log2,
    "log10": logarithms.emit_log10,
    "log1p": logarithms.emit_log1p,
    "asinh": logarithms.emit_asinh,
    "acosh": logarithms.emit_acosh,
    "atanh": logarithms.emit_atanh,
    "sin": circular.emit_sin,
    "cos": circular.emit_cos,
    "tan": circular.emit_tan,
    "sinpi": circular.emit_sinpi,
    "cospi": circular.emit_cospi,
    "asin": circular.emit_asin,
    "acos": circular.emit_acos,
    "atan": circular.emit_atan,
    "cbrt": roots.emit_cbrt,
    "erf": erf.emit_erf,
    "erfc": erf.emit_erfc,
}

INLINE = tuple(_ONE)
"""Functions of one argument that need no library, and that users may call."""


def emit_inline(fn: Function, target: Machine, op: str, args: list[Val]) -> Val | None:
    """`op` on scalars or vectors of one type; None where it has no inline form."""
    m = Math(fn, target, F32 if args[0].type == "float" else F64)
    if op in _ONE:
        return _ONE[op](m, args[0])
    match op:
        case "exp_below":
            return exponentials.emit_exp(m, args[0], is_bounded=True)
        case "atan2":
            return circular.emit_atan2(m, *args)
        case "hypot" | "rhypot":
            return roots.emit_hypot(m, op, *args)
        case "lgamma" if m.is_f32:
            return gamma.emit_lgamma(m, *args)
        case "tgamma" if m.is_f32:
            return gamma.emit_tgamma(m, *args)
        case "logb":
            return neighbours.emit_logb(m, *args)
        case "nextafter":
            return neighbours.emit_nextafter(m, *args)
        case "fmod" | "remainder":
            return remainders.emit_remainder(m, op, *args)
        case "pow":
            return powers.emit_power(m, *args)
        case _:
            return None
