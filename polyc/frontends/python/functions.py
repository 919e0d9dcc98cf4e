"""Functions a decorated body may call, by their NumPy (or math, or bare) names."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from polyc.diagnostics import Span, suggest_name
from polyc.frontends.core.reductions import SELECTIONS
from polyc.frontends.core.values import LONG_NAMES, Fault, Value
from polyc.frontends.python.operators import binary, combine, keep, logical, negate, select
from polyc.frontends.python.values import POISON, call, common_type, convert, convert_weakly, float_type, make_literal, unify
from polyc.ir.expr import Const
from polyc.ir.halves import narrow, widen
from polyc.ir.operators import OPERATORS
from polyc.ir.types import BOOL, C128, DTYPES, F16, F32, F64, I64, DType
from polyc.records import replace

TYPE_NAMES: dict[str, DType] = {**DTYPES, **LONG_NAMES, "half": F16, "bool_": BOOL}
"""Element types by name, in annotations and as casts."""

UNSUPPORTED_TYPES = frozenset("longdouble f128 float128 clongdouble c256 complex256".split())

CAST_NAMES: dict[str, DType] = {**TYPE_NAMES, "int": I64, "float": F64}

REDUCERS = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}
"""Functions that reduce when called with one argument, with their monoids."""

_FLOAT_1: dict[str, str] = {
    **{name: name for name, op in OPERATORS.items() if (op.arity, op.result) == (1, "float") and name != "exp_below"},
    **{f"arc{name}": f"a{name}" for name in "sin cos tan sinh cosh tanh".split()},
    "gammaln": "lgamma",
    "gamma": "tgamma",
    "expit": "sigmoid",
}
_FLOAT_2 = {name: name for name in "atan2 copysign fdim hypot rhypot nextafter".split()} | {"arctan2": "atan2"}
_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "fix": "trunc", "round": "rint", "around": "rint"}
_BINARY = {
    "maximum": "max",
    "minimum": "min",
    "fmax": "fmax",
    "fmin": "fmin",
    "power": "pow",
    "pow": "pow",
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "truediv",
    "true_divide": "truediv",
    "floor_divide": "floordiv",
    "mod": "mod",
    "remainder": "mod",
    "bitwise_and": "bitand",
    "bitwise_or": "bitor",
    "bitwise_xor": "bitxor",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "equal": "eq",
    "not_equal": "ne",
}
_FOLD_MATH: dict[str, Callable[[float], float]] = {
    **{n: getattr(np, n) for n in "exp exp2 expm1 log log2 log10 log1p sqrt cbrt sin cos tan sinh cosh tanh rint".split()},
    **{n: getattr(np, f"arc{n[1:]}") for n in "asin acos atan asinh acosh atanh".split()},
    **{n: getattr(np, n) for n in ("floor", "ceil", "trunc")},
    "erf": math.erf,
    "erfc": math.erfc,
}


def unary_float(op: str, x: Value, span: Span | None) -> Value:
    """A floating-point function of one operand, by its operator; of a literal it is computed at once."""
    if x.constant is not None and op in _FOLD_MATH:
        try:
            with np.errstate(all="ignore"):
                return make_literal(float(_FOLD_MATH[op](float(x.constant))), span).made_of(x)
        except OverflowError:
            raise Fault("type-literal", "this integer is too large", "write a smaller number") from None
    y = convert_weakly(x, F64) if x.weak else convert(x, float_type(x.dtype))
    return call(op, (y,), span)


def _rounding(op: str, x: Value, span: Span | None) -> Value:
    return (
        unary_float(op, x, span) if x.dtype.is_float or x.dtype.is_complex else x
    )  # integers are what they are, as in NumPy 2


def _parts(x: Value, span: Span | None) -> tuple[Value, Value]:
    """Real and imaginary part of a complex value."""
    return call("real", (x,), span), call("imag", (x,), span)


def take_part(name: str, x: Value, span: Span | None) -> Value:
    """``z.real`` or ``z.imag``; of real numbers as well."""
    if x is POISON or x.dtype.is_complex:
        return x if x is POISON else call(name, (x,), span)
    return x if name == "real" else convert(make_literal(0, span), x.dtype).instead_of(x)


def _conjugate(x: Value, span: Span | None) -> Value:
    return call("conj", (x,), span) if x.dtype.is_complex else x


def _angle(x: Value, span: Span | None) -> Value:
    y = x if x.dtype.is_complex else convert(x, float_type(x.dtype))
    return call("atan2", (take_part("imag", y, span), take_part("real", y, span)), span)


def _make_complex(x: Value, y: Value, span: Span | None) -> Value:
    if x.dtype.is_complex or y.dtype.is_complex:
        raise Fault("type-complex", "complex takes two real numbers", "write z + 1j * w")
    dtype, weak = common_type((x, y))
    part = F32 if dtype.is_float and dtype.bits <= 32 and not weak else F64
    return call("complex", unify((x, y), part, False), span)


def _absolute(x: Value, span: Span | None) -> Value:
    if x.dtype.is_complex:
        return call("hypot", _parts(x, span), span)
    if x.constant is not None:
        return make_literal(x.constant if isinstance(x.constant, bool) else abs(x.constant), span).made_of(x)
    return call("abs", (x,), span) if x.dtype.is_signed else x


def _sign(x: Value, span: Span | None) -> Value:
    if x.dtype == BOOL:
        raise Fault("type-operands", "a boolean has no sign", "cast it with i32(...)")
    zero, one = make_literal(0), make_literal(1)
    negative = select(binary("lt", x, zero), negate(one), x if x.dtype.is_float else zero, span)
    if x.dtype.is_float:  # NaN stays NaN, and -0.0 gives 0.0
        negative = select(binary("eq", x, zero), zero, negative, span)
    return unify((select(binary("gt", x, zero), one, negative, span), x))[0]


def _reciprocal(x: Value, span: Span | None) -> Value:
    if not x.dtype.is_float and not x.dtype.is_complex:
        raise Fault("type-operands", f"reciprocal of {x.dtype} would round to zero", "write 1 / x")
    return binary("truediv", make_literal(1), x, span)


def _infinite(op: str, x: Value, span: Span | None) -> Value:
    if x.dtype.is_complex:
        return logical("or" if op == "eq" else "and", tuple(_infinite(op, part, span) for part in _parts(x, span)), span)
    if not x.dtype.is_float:
        return convert(make_literal(op == "lt", span), BOOL).instead_of(x)
    return binary(op, _absolute(x, span), make_literal(math.inf), span)


def _float_all(op: str, args: tuple[Value, ...], span: Span | None) -> Value:
    dtype, weak = common_type(args)
    return call(op, unify(args, float_type(dtype), weak), span)


def _truth(x: Value, span: Span | None) -> Value:
    return x if x.dtype == BOOL else binary("ne", x, make_literal(0), span)


def invert(x: Value, span: Span | None = None) -> Value:
    """``~x``: the bits of an integer, the opposite of a boolean."""
    if x is POISON:
        return POISON
    if x.dtype == BOOL:
        return logical("not", (x,), span)
    if x.constant is not None and isinstance(x.constant, int):
        return make_literal(~x.constant, span).made_of(x)
    ones = -1 if x.dtype.is_signed else (1 << x.dtype.bits) - 1
    return binary("bitxor", x, make_literal(ones), span)


def _fmod(a: Value, b: Value, span: Span | None) -> Value:
    x, y = unify((a, b))
    if x.dtype.is_float:
        return call("fmod", (x, y), span)
    if x.dtype.kind == "u":
        return binary("mod", x, y, span)
    raise Fault("type-operands", "fmod needs floating-point operands", "cast with f64(...), or use %")


def _where(condition: Value, x: Value, y: Value, span: Span | None) -> Value:
    then, other = unify((x, y))  # also where the condition is known: the type depends on both
    return select(condition, then, other, span)


_UNARY: dict[str, Callable[[Value, Span | None], Value]] = {
    "abs": _absolute,
    "absolute": _absolute,
    "fabs": lambda x, s: _absolute(convert_weakly(x, F64) if x.weak else convert(x, float_type(x.dtype)), s),
    "conj": _conjugate,
    "conjugate": _conjugate,
    "real": lambda x, s: take_part("real", x, s),
    "imag": lambda x, s: take_part("imag", x, s),
    "angle": _angle,
    "square": lambda x, s: binary("pow", x, make_literal(2), s),
    "sign": _sign,
    "reciprocal": _reciprocal,
    "negative": negate,
    "positive": lambda x, s: keep(x),
    "stop_gradient": lambda x, s: x if x.constant is not None else call("stop_gradient", (x,), s),
    "isnan": lambda x, s: binary("ne", x, x, s),
    "isinf": lambda x, s: _infinite("eq", x, s),
    "isfinite": lambda x, s: _infinite("lt", x, s),
    "logical_not": lambda x, s: logical("not", (_truth(x, s),), s),
    "deg2rad": lambda x, s: binary("mul", x, make_literal(math.pi / 180), s),
    "radians": lambda x, s: binary("mul", x, make_literal(math.pi / 180), s),
    "rad2deg": lambda x, s: binary("mul", x, make_literal(180 / math.pi), s),
    "degrees": lambda x, s: binary("mul", x, make_literal(180 / math.pi), s),
    "invert": invert,
    "bitwise_not": invert,
}

FUNCTIONS: dict[str, tuple[int, Callable[..., Value]]] = {
    **{name: (1, f) for name, f in _UNARY.items()},
    **{name: (1, partial(unary_float, op)) for name, op in _FLOAT_1.items()},
    **{name: (1, partial(_rounding, op)) for name, op in _ROUNDING.items()},
    **{name: (2, partial(binary, op)) for name, op in _BINARY.items()},
    **{name: (2, lambda x, y, s, op=op: _float_all(op, (x, y), s)) for name, op in _FLOAT_2.items()},
    "logical_xor": (2, lambda x, y, s: binary("ne", _truth(x, s), _truth(y, s), s)),
    "logical_and": (2, lambda x, y, s: logical("and", (_truth(x, s), _truth(y, s)), s)),
    "logical_or": (2, lambda x, y, s: logical("or", (_truth(x, s), _truth(y, s)), s)),
    "float_power": (2, lambda x, y, s: binary("pow", convert(x, F64), convert(y, F64), s)),
    "fmod": (2, _fmod),
    "math.remainder": (2, lambda x, y, s: _float_all("remainder", (x, y), s)),  # IEEE's, not NumPy's
    "complex": (2, _make_complex),
    "fma": (3, lambda x, y, z, s: _float_all("fma", (x, y, z), s)),
    "clip": (3, lambda x, low, high, s: binary("min", binary("max", x, low, s), high, s)),
    "where": (3, _where),
}
"""Functions by name: the number of their arguments, and what they give for these and a place."""

KNOWN = sorted({*FUNCTIONS, *CAST_NAMES, *REDUCERS, *SELECTIONS, "pad", "len"} - {"math.remainder"})


def cast(x: Value, dtype: DType, span: Span | None) -> Value:
    """``f32(x)``: a strong value.  A cast to bool tests against zero."""
    if dtype == BOOL and x.dtype != BOOL:
        return binary("ne", x, make_literal(0), span)
    y = convert(x, dtype, span)
    if dtype.is_storage and isinstance(y.expr, Const):  # what is cast explicitly is rounded
        return replace(y, expr=replace(y.expr, value=float(widen(narrow(y.expr.value, dtype))[()])))
    return y


def apply_function(module: str | None, name: str, args: tuple[Value, ...], span: Span | None) -> Value:
    """The value of ``module.name(*args)``; raises Fault for unknown names, wrong counts and wrong types."""
    if any(a is POISON for a in args):
        return POISON
    if name in CAST_NAMES:
        (x,) = _expect(name, args, 1)
        if name in ("int", "float", "bool") and x.constant is not None:
            return _cast_python(name, x.constant, span).made_of(x)
        return cast(x, CAST_NAMES[name], span)
    if name in UNSUPPORTED_TYPES:
        raise Fault("unsupported-type", f"the element type {name} is not supported", f"use one of {', '.join(DTYPES)}")
    if name == "complex" and len(args) == 1:
        return cast(args[0], C128, span)
    found = FUNCTIONS.get(f"{module}.{name}") or FUNCTIONS.get(name)
    if found is not None:
        return found[1](*_expect(name, args, found[0]), span)
    if name in ("max", "min") and len(args) > 1:
        return combine(lambda x, y: binary(name, x, y, span), args)
    if name in REDUCERS:
        _expect(name, args, 2 if name in ("max", "min") else 1)
    if name in INSTEAD:
        raise Fault("unsupported-call", f"{name} is not a function of elements that polyc has", INSTEAD[name])
    hint = suggest_name(name, KNOWN) or "the language reference lists the functions"
    raise Fault("semantic-function", f"unknown function {name!r}", hint)


INSTEAD = {
    "divmod": "it gives two values, which are assigned: q[i], r[i] = divmod(X[i], 3); or write X[i] // 3 and X[i] % 3",
    "reduce": "reduce with sum, prod, max, min, any or all, over the indices that are not on the left: s[i] = max(X[i, j])",
    **dict.fromkeys(
        ("rand", "randn", "random", "normal", "uniform", "randint", "default_rng", "standard_normal"),
        "random numbers come from outside: make an array of them a parameter",
    ),
    "heaviside": "write 1.0 if x > 0 else 0.5 if x == 0 else 0.0",
    "nan_to_num": "write 0 if x != x else x",
    **dict.fromkeys(("isclose", "allclose"), "write abs(x - y) <= tolerance"),
    **dict.fromkeys(("bincount", "histogram"), "add to what data chooses: H[key[i]] += 1, for an H that is assigned above"),
    **dict.fromkeys(("convolve", "correlate"), "write the sum: Y[i] += X[i + k] * W[k]"),
    "diff": "write X[i + 1] - X[i]",
    **dict.fromkeys(("tril", "triu"), "select by the indices: X[i, j] if j <= i else 0"),
    **dict.fromkeys(
        ("eye", "identity"), "select by the indices: 1.0 if i == j else 0.0, in with polyc.where(0 <= i < N, 0 <= j < N)"
    ),
    **dict.fromkeys(("diag", "diagonal"), "read one index twice: D[i] = X[i, i]"),
    "trace": "read one index twice: t += X[i, i]",
    **dict.fromkeys(("take", "take_along_axis", "gather"), "read by a subscript that is data: Y[i] = X[index[i]]"),
    **dict.fromkeys(("repeat", "tile"), "write the subscript: X[i // 2], or X[i % N]"),
    **dict.fromkeys(
        ("fft", "rfft", "ifft", "irfft", "solve", "inv", "svd", "eig", "eigh", "qr", "det"),
        "compute it outside of the operator",
    ),
    "logsumexp": "write it out: M[i] = max(X[i, j]), S[i] += exp(X[i, j] - M[i]), Y[i] = M[i] + log(S[i])",
    **dict.fromkeys(("silu", "swish"), "write x * sigmoid(x)"),
    "softplus": "write log1p(exp(-abs(x))) + max(x, 0)",
    "leaky_relu": "write x if x >= 0 else 0.01 * x",
    "elu": "write x if x > 0 else exp(x) - 1",
    "relu6": "write min(max(x, 0), 6)",
    "lerp": "write a + t * (b - a)",
    "softmax": "write it out: M[i] = max(X[i, j]), E[i, j] = exp(X[i, j] - M[i]), S[i] += E[i, j], Y[i, j] = E[i, j] / S[i]",
    "relu": "write max(x, 0)",
    "gelu": "write 0.5 * x * (1 + erf(x * 0.7071067811865476))",
    **dict.fromkeys(("mean", "average"), "sum into a tensor, then divide: S[i] += X[i, j], M[i] = S[i] / X.shape[1]"),
    **dict.fromkeys(
        ("var", "std"), "sum the squares of what is left of the mean: V[i] += (X[i, j] - M[i]) ** 2, then V[i] / X.shape[1]"
    ),
    **dict.fromkeys(("dot", "matmul", "inner", "outer", "einsum", "tensordot"), "write the sum: T[i, j] += A[i, k] * B[k, j]"),
    **dict.fromkeys(SELECTIONS, "it takes one expression: p[i] = argmax(X[i, j]), or v[i], p[i] = argmax(X[i, j])"),
    **dict.fromkeys(("sort", "sorted", "argsort", "median", "unique"), "compute it outside of the operator"),
    **dict.fromkeys(
        ("cumsum", "cumprod"),
        "write the recurrence: S[0] = X[0], and with polyc.where(1 <= i < N): S[i] = S[i - 1] + X[i]",
    ),
    **dict.fromkeys(
        ("zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like"),
        "tensors need no allocation: an assignment makes them, and a sum starts at zero; "
        "a constant one is with polyc.where(0 <= i < N): T[i] = 0",
    ),
    **dict.fromkeys(("arange", "linspace"), "an index is a value: T[i] = i"),
    **dict.fromkeys(("transpose", "swapaxes", "moveaxis"), "write the subscripts in the order you want: X[j, i]"),
    **dict.fromkeys(("concatenate", "stack", "hstack", "vstack"), "assign the parts: C[i] = A[i], then C[N + j] = B[j]"),
    **dict.fromkeys(("reshape", "ravel", "flatten"), "split or join the index: X[i // 4, i % 4]"),
    "roll": "write the remainder: X[(i - 1) % N]",
    **dict.fromkeys(("flip", "fliplr", "flipud"), "write the subscript: X[N - 1 - i]"),
    "sigmoid": "write 1 / (1 + exp(-x))",
    "norm": "write the sum of squares S[i] += X[i, j] * X[i, j], then sqrt(S[i])",
}


def _cast_python(name: str, number: int | float | bool, span: Span | None) -> Value:
    try:
        return make_literal(int(number) if name == "int" else float(number) if name == "float" else bool(number), span)
    except (OverflowError, ValueError):
        raise Fault("type-literal", f"{number} has no {name}", "write another number") from None


def _expect(name: str, args: tuple[Value, ...], count: int) -> tuple[Value, ...]:
    if len(args) != count:
        wanted = f"{count} argument{'s' if count != 1 else ''}"
        raise Fault("semantic-arity", f"{name} takes {wanted}, not {len(args)}", f"call {name} with {wanted}")
    return args
