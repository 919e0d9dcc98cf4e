"""The builtin functions of `.tc`: arity, and the operator of the IR that computes each."""

from __future__ import annotations

from polyc.ir.operators import OPERATORS

_NAMES: dict[int, str] = {
    1: "acos acosh asin asinh atan atanh cbrt ceil cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc erfcinv erfcx "
    "erfinv exp exp10 exp2 expm1 fabs floor j0 j1 lgamma log log10 log1p log2 logb normcdf normcdfinv rcbrt rint round rsqrt "
    "sin sinh sinpi sqrt stop_gradient tan tanh tgamma trunc y0 y1",
    2: "atan2 copysign fdim fdivide fmax fmin fmod hypot nextafter pow remainder rhypot",
    3: "fma norm3d rnorm3d",
    4: "norm4d rnorm4d",
}

# `fmax` and `fmin` propagate NaN in .tc, as `max` and `min` do; the IR's own fmax ignores it.
_RENAMED = {"fabs": "abs", "fdivide": "truediv", "fmax": "max", "fmin": "min"}

BUILTIN_ARITY: dict[str, int] = {name: arity for arity, names in _NAMES.items() for name in names.split()}
"""Every builtin name of the language and its number of arguments."""

BUILTIN_OPERATORS: dict[str, str] = {
    name: _RENAMED.get(name, name) for name in BUILTIN_ARITY if _RENAMED.get(name, name) in OPERATORS
}
"""Builtin -> operator of `polyc.ir.operators.OPERATORS`, for those that have one."""

EXPANSIONS: dict[str, str] = {
    "rcbrt": "1.0 / cbrt(x)",
    "norm3d": "sqrt(x * x + y * y + z * z)",
    "rnorm3d": "rsqrt(x * x + y * y + z * z)",
    "norm4d": "sqrt(x * x + y * y + z * z + w * w)",
    "rnorm4d": "rsqrt(x * x + y * y + z * z + w * w)",
    "normcdf": "0.5 * erfc(-x * 0.70710678)",
    "erfcx": "exp(x * x) * erfc(x)",
}
"""What to write instead of a builtin that has no operator."""

ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "floordiv", "%": "mod"}
"""Arithmetic operator as written -> operator on integers (``/`` on floats is ``truediv``)."""

COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
LOGICAL = {"&&": "and", "||": "or"}
