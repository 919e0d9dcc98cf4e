"""Inline exp, exp2, log, log2, log10, tanh, sigmoid and erf: no branches, no tables, the same bits in scalar and vector form.

Bounds over all of float32, measured by `tests/codegen/test_math.py`: exp, exp2, log, pow 2 ULP, log2, log10 3, tanh, sigmoid,
erf 4 ULP; the float64 forms 4 ULP.  NaN, infinities, zeros and denormals come out as from NumPy.  Without fused multiply-add
the same code rounds twice, and the bounds hold too: constants are split so that the leading products are exact.

Sources: the range reduction of Cody and Waite; minimax coefficients by Remez exchange in 50 digits; the logarithm is that
of FreeBSD's msun (s = f/(2+f), an even polynomial in s), erf in float32 is N. Juffa's.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from polyc.codegen.builder import Function, Val, float_val, int_val
from polyc.target import Target


@dataclass(frozen=True, slots=True)
class _Format:
    """Constants of one floating-point type."""

    type: str
    bits: int
    mantissa: int
    magic: float
    """1.5 * 2^mantissa: adding it rounds to an integer and leaves that integer in the low bits."""
    exp_low: float
    exp_high: float
    tanh_high: float
    ln2_high: float
    ln2_low: float
    exp: tuple[float, ...]
    """(e^r - 1 - r) / r^2 on |r| <= ln(2)/2."""
    exp2: tuple[float, ...]
    """(2^r - 1) / r on |r| <= 1/2."""
    log: tuple[float, ...]
    """R(z)/z with z = s^2, s = f/(2+f) and log(1+f) = f - f^2/2 + s (f^2/2 + R(z))."""
    log10_2_high: float
    log10_2_low: float

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.mantissa - 2)) - 1

    @property
    def int_type(self) -> str:
        return f"i{self.bits}"


_F32 = _Format(
    type="float",
    bits=32,
    mantissa=23,
    magic=12582912.0,
    exp_low=-104.0,
    exp_high=89.0,
    tanh_high=10.0,
    ln2_high=0.693359375,
    ln2_low=-2.12194440e-4,
    exp=(0.4999999403953552, 0.166665181517601, 0.041668422520160675, 0.008369063958525658, 0.0013813917757943273),
    exp2=(
        0.6931472420692444,
        0.24022650718688965,
        0.05550296977162361,
        0.009618029929697514,
        0.0013410154497250915,
        0.0001546986459288746,
    ),
    log=(0.66666662693, 0.40000972152, 0.28498786688, 0.24279078841),
    log10_2_high=0.30102920532226562,
    log10_2_low=7.9034151668e-07,
)

_F64 = _Format(
    type="double",
    bits=64,
    mantissa=52,
    magic=6755399441055744.0,
    exp_low=-746.0,
    exp_high=710.0,
    tanh_high=20.0,
    ln2_high=6.93147180369123816490e-01,
    ln2_low=1.90821492927058770002e-10,
    exp=(
        0.5000000000000011,
        0.16666666666666674,
        0.04166666666651622,
        0.008333333333321763,
        0.001388888894957578,
        0.00019841269887940468,
        2.4801485350581318e-05,
        2.7557240817623696e-06,
        2.7633396727497763e-07,
        2.511061968031656e-08,
    ),
    exp2=(
        0.6931471805599453,
        0.24022650695910133,
        0.05550410866482007,
        0.009618129107593845,
        0.0013333558146777435,
        0.00015403530457495332,
        1.525273349123112e-05,
        1.321543507596449e-06,
        1.0178200035535694e-07,
        7.073821030356629e-09,
        4.4347486680854317e-10,
    ),
    log=(
        6.666666666666735130e-01,
        3.999999999940941908e-01,
        2.857142874366239149e-01,
        2.222219843214978396e-01,
        1.818357216161805012e-01,
        1.531383769920937332e-01,
        1.479819860511658591e-01,
    ),
    log10_2_high=3.01029995663611771306e-01,
    log10_2_low=3.69423907715893078616e-13,
)

_LOG2_E = 1.4426950408889634
_LOG10_E = 0.4342944819032518

_ERF_SMALL = (1.28379166e-1, -3.76125336e-1, 1.12819925e-1, -2.67681349e-2, 4.99119423e-3, -5.96761703e-4)
_ERF_LARGE = (
    -1.28717512e-1,
    -6.34846687e-1,
    -1.06777877e-1,
    2.42546219e-2,
    -3.88396438e-3,
    3.83197126e-4,
    -1.72853470e-5,
)

_ERF_SMALL_F64 = (
    0.12837916709551256,
    -0.3761263890318352,
    0.11283791670944185,
    -0.026866170643111482,
    0.005223977606118614,
    -0.000854832592932217,
    0.00012055293577152762,
    -1.4924712307185837e-05,
    1.6447131638251597e-06,
    -1.6206314289113782e-07,
    1.3710982748678367e-08,
    -7.779472948426816e-10,
)
"""(erf(x) - x) / x in s = x^2, |x| <= 1."""

_ERF_LARGE_F64 = (
    0.13699945762506138,
    -0.25906804876017553,
    0.21871967891826077,
    -0.16425781669609538,
    0.10896317740401076,
    -0.063107815732144,
    0.03129905588837775,
    -0.012843944564373426,
    0.004060286577888889,
    -0.0007990766964499699,
    -2.1927592461481e-05,
    7.787860206958902e-05,
    -2.5052408996661432e-05,
    -4.6036844646267324e-06,
    1.9034843273316524e-06,
)
"""erfc(t) e^(t^2) in z = (t - 4) / (t + 4), 1 <= t <= 5.95."""

INLINE = ("exp", "exp2", "log", "log2", "log10", "tanh", "sigmoid", "erf")


def emit_inline(fn: Function, target: Target, op: str, x: Val) -> Val:
    """`op` of `INLINE` on a scalar or vector."""
    m = _Math(fn, target, _F32 if x.type == "float" else _F64)
    match op:
        case "exp":
            return _exp(m, m.clamp(x, m.format.exp_low, m.format.exp_high))
        case "exp2":
            return _exp2(m, x)
        case "log" | "log2" | "log10":
            return _log(m, op, x)
        case "tanh":
            return _tanh(m, x)
        case "sigmoid":
            return _sigmoid(m, x)
        case "erf":
            return _erf(m, x)
        case _:
            raise AssertionError(f"{op} has no inline form")


@dataclass(frozen=True, slots=True)
class _Math:
    """Arithmetic shorthands; `Val | float` operands, constants rounded to the format."""

    fn: Function
    target: Target
    format: _Format

    def val(self, x: Val | float) -> Val:
        return x if isinstance(x, Val) else float_val(x, self.format.type)

    def add(self, a: Val | float, b: Val | float) -> Val:
        return self.fn.binary("fadd", self.val(a), self.val(b))

    def sub(self, a: Val | float, b: Val | float) -> Val:
        return self.fn.binary("fsub", self.val(a), self.val(b))

    def mul(self, a: Val | float, b: Val | float) -> Val:
        return self.fn.binary("fmul", self.val(a), self.val(b))

    def div(self, a: Val | float, b: Val | float) -> Val:
        return self.fn.binary("fdiv", self.val(a), self.val(b))

    def fma(self, a: Val | float, b: Val | float, c: Val | float) -> Val:
        """a*b + c, rounded once where the hardware can."""
        if self.target.has_fma:
            return self.fn.intrinsic("fma", self.val(a), self.val(b), self.val(c))
        return self.add(self.mul(a, b), c)

    def horner(self, x: Val, coefficients: Sequence[float]) -> Val:
        """The polynomial with `coefficients`, constant term first."""
        result: Val | float = coefficients[-1]
        for c in reversed(coefficients[:-1]):
            result = self.fma(result, x, c)
        return self.val(result)

    def at_most(self, x: Val, bound: float) -> Val:
        """min(x, bound); NaN stays (one minimum instruction: its second operand wins)."""
        b = self.val(bound)
        return self.fn.select(self.fn.compare("fcmp olt", b, x), b, x)

    def at_least(self, x: Val, bound: float) -> Val:
        b = self.val(bound)
        return self.fn.select(self.fn.compare("fcmp ogt", b, x), b, x)

    def clamp(self, x: Val, low: float, high: float) -> Val:
        return self.at_least(self.at_most(x, high), low)

    def abs(self, x: Val) -> Val:
        return self.fn.intrinsic("fabs", x)

    def copysign(self, x: Val, sign: Val) -> Val:
        return self.fn.intrinsic("copysign", x, sign)

    def ints(self, x: Val) -> Val:
        return self.fn.bitcast(x, self.format.int_type)

    def floats(self, x: Val) -> Val:
        return self.fn.bitcast(x, self.format.type)

    def int_op(self, op: str, a: Val, b: int) -> Val:
        return self.fn.binary(op, a, int_val(b, self.format.int_type))

    def power_of_two(self, n: Val) -> Val:
        """2^n for an integer vector inside the range of normal numbers."""
        return self.floats(self.int_op("shl", self.int_op("add", n, self.format.bias), self.format.mantissa))

    def magic_bits(self) -> int:
        return _bits(self.format.magic, self.format)


def _bits(value: float, format: _Format) -> int:
    return int.from_bytes(struct.pack(">f" if format.bits == 32 else ">d", value), "big")


def _reduce_exp(m: _Math, x: Val) -> tuple[Val, Val, Val]:
    """x = n ln 2 + r: the shifted sum that holds n in its low bits, n as a float, and r with |r| <= ln(2)/2."""
    shifted = m.fma(x, _LOG2_E, m.format.magic)
    n = m.sub(shifted, m.format.magic)
    r = m.fma(n, -m.format.ln2_low, m.fma(n, -m.format.ln2_high, x))
    return shifted, n, r


def _exp(m: _Math, x: Val) -> Val:
    """e^x for x between `exp_low` and `exp_high` or NaN: eleven or so instructions and the scaling."""
    shifted, n, r = _reduce_exp(m, x)
    return _scale(m, m.horner(r, (1.0, 1.0, *m.format.exp)), shifted, n)


def _exp2(m: _Math, x: Val) -> Val:
    x = m.clamp(x, m.format.exp_low * 1.5, m.format.exp_high * 1.5)
    shifted = m.add(x, m.format.magic)
    n = m.sub(shifted, m.format.magic)
    return _scale(m, m.horner(m.sub(x, n), (1.0, *m.format.exp2)), shifted, n)


def _scale(m: _Math, p: Val, shifted: Val, n: Val) -> Val:
    """p * 2^n, rounded once, over the whole range: overflow to infinity, gradual underflow."""
    total = p.lanes * m.format.bits
    if m.target.has_masks and total in (128, 256, 512, 1024, 2048, 4096):
        return _scalef(m, p, n)
    integer = m.fn.binary("sub", m.ints(shifted), int_val(m.magic_bits(), m.format.int_type))
    # Two factors of half the exponent each; the first product is exact, the second rounds.  The offset keeps the shift logical.
    offset = 4 * (m.format.bias + 1)
    half = m.int_op("lshr", m.int_op("add", integer, offset), 1)
    first = m.power_of_two(m.int_op("sub", half, offset // 2))
    second = m.power_of_two(m.int_op("add", m.fn.binary("sub", integer, half), offset // 2))
    return m.mul(m.mul(p, first), second)


def _scalef(m: _Math, p: Val, n: Val) -> Val:
    """AVX-512's scalef, 512 bits at a time."""
    width = min(512, p.lanes * m.format.bits) // m.format.bits
    bits = width * m.format.bits
    full, mask = f"<{width} x {p.type}>", f"i{max(8, width)}"
    name = f"llvm.x86.avx512.mask.scalef.p{'s' if m.format.bits == 32 else 'd'}.{bits}"
    rounding = (["i32"], ", i32 4") if bits == 512 else ([], "")
    callee = m.fn.module.declare(name, full, [full, full, full, mask, *rounding[0]])

    def scale(v: list[Val]) -> Val:
        text = f"call {full} {callee}({v[0]}, {v[1]}, {full} zeroinitializer, {mask} -1{rounding[1]})"
        return m.fn.pure(text, p.type, width)

    return m.fn.map_registers(scale, width, p, n)


def _sigmoid(m: _Math, x: Val) -> Val:
    """1/(1+e^-x), as e/(1+e) with e = e^-|x| where x < 0: no overflow, denormal results are right."""
    e = _exp(m, m.at_least(m.fn.pure(f"fneg {m.abs(x)}", x.type, x.lanes), m.format.exp_low))
    top = m.fn.select(m.fn.compare("fcmp olt", x, m.val(0.0)), e, m.val(1.0))
    return m.div(top, m.add(e, 1.0))


def _tanh(m: _Math, x: Val) -> Val:
    """u/(u+2) with u = e^(2|x|) - 1 = 2^n (e^r - 1) + (2^n - 1), which is accurate near 0 too."""
    doubled = m.mul(m.at_most(m.abs(x), m.format.tanh_high), 2.0)
    shifted, _, r = _reduce_exp(m, doubled)
    below = m.fma(m.mul(r, r), m.horner(r, m.format.exp), r)
    scale = m.power_of_two(m.fn.binary("sub", m.ints(shifted), int_val(m.magic_bits(), m.format.int_type)))
    u = m.fma(scale, below, m.sub(scale, 1.0))
    return m.copysign(m.div(u, m.add(u, 2.0)), x)


def _log(m: _Math, op: str, x: Val) -> Val:
    f, k, lost = m.format, m.format.mantissa, 25 if m.format.bits == 32 else 54
    smallest = 2.0 ** (1 - f.bias)
    tiny = m.fn.compare("fcmp olt", x, m.val(smallest))
    normal = m.fn.select(tiny, m.mul(x, 2.0**lost), x)
    # The mantissa is brought to [sqrt(1/2), sqrt(2)).
    root = 0x3F3504F3 if f.bits == 32 else 0x3FE6A09E667F3BCD
    one = f.bias << k
    moved = m.int_op("add", m.ints(normal), one - root)
    mantissa = m.int_op("add", m.int_op("and", moved, (1 << k) - 1), root)
    # The biased exponent as a float: in the low bits of 2^mantissa.
    base = _bits(2.0**k, f)
    biased = m.floats(m.int_op("or", m.int_op("lshr", moved, k), base))
    less = m.fn.select(tiny, m.val(2.0**k + f.bias + lost), m.val(2.0**k + f.bias))
    e = m.sub(biased, less)
    d = m.sub(m.floats(mantissa), 1.0)
    s = m.div(d, m.add(d, 2.0))
    z = m.mul(s, s)
    rest = m.mul(z, m.horner(z, f.log))
    half = m.mul(m.mul(d, d), 0.5)
    match op:
        case "log":
            low = m.fma(s, m.add(half, rest), m.mul(e, f.ln2_low))
            result = m.fma(e, f.ln2_high, m.sub(d, m.sub(half, low)))
        case "log2":
            result = m.fma(m.sub(d, m.sub(half, m.mul(s, m.add(half, rest)))), _LOG2_E, e)
        case _:
            mantissa_log = m.sub(d, m.sub(half, m.mul(s, m.add(half, rest))))
            result = m.fma(mantissa_log, _LOG10_E, m.mul(e, f.log10_2_low))
            result = m.fma(e, f.log10_2_high, result)
    infinity = m.val(float("inf"))
    result = m.fn.select(m.fn.compare("fcmp oeq", x, infinity), infinity, result)
    result = m.fn.select(m.fn.compare("fcmp ogt", x, m.val(0.0)), result, m.val(float("nan")))
    return m.fn.select(m.fn.compare("fcmp oeq", x, m.val(0.0)), m.val(float("-inf")), result)


def emit_power(fn: Function, target: Target, x: Val, y: Val) -> Val:
    """x to the power y in float32, as 2^(y log2 |x|) in float64: 1 ULP, with every special case of C99."""
    wide = _Math(fn, target, _F64)
    x, y = fn.unify(fn.convert("fpext", x, "double"), fn.convert("fpext", y, "double"))
    one, nan = wide.val(1.0), wide.val(float("nan"))
    logarithm = _log(wide, "log2", wide.abs(x))
    is_unit = fn.compare("fcmp oeq", logarithm, wide.val(0.0))
    power = _exp2(wide, fn.select(is_unit, wide.val(0.0), wide.mul(y, logarithm)))
    integral = fn.compare("fcmp oeq", fn.intrinsic("rint", y), y)
    half = wide.mul(y, 0.5)
    odd = fn.binary("and", integral, fn.compare("fcmp une", fn.intrinsic("rint", half), half))
    power = fn.select(odd, wide.copysign(power, x), power)
    undefined = fn.binary("and", fn.compare("fcmp olt", x, wide.val(0.0)), fn.not_(integral))
    # (-inf)^y and (-0)^y have values for every y.
    undefined = fn.binary("and", undefined, fn.compare("fcmp une", x, wide.val(float("-inf"))))
    power = fn.select(undefined, nan, power)
    unordered = fn.binary("and", fn.compare("fcmp uno", y, y), fn.compare("fcmp une", x, one))
    power = fn.select(unordered, nan, power)
    power = fn.select(fn.compare("fcmp oeq", y, wide.val(0.0)), one, power)
    return fn.convert("fptrunc", power, "float")


def _erf(m: _Math, x: Val) -> Val:
    return _erf32(m, x) if m.format is _F32 else _erf64(m, x)


def _erf64(m: _Math, x: Val) -> Val:
    t = m.at_most(m.abs(x), 6.0)  # erf(6) rounds to 1
    small = m.fma(m.horner(m.mul(x, x), _ERF_SMALL_F64), x, x)
    z = m.div(m.sub(t, 4.0), m.add(t, 4.0))
    scaled = m.horner(z, _ERF_LARGE_F64)
    e = _exp(m, m.fn.pure(f"fneg {m.mul(t, t)}", x.type, x.lanes))
    large = m.copysign(m.sub(1.0, m.mul(e, scaled)), x)
    return m.fn.select(m.fn.compare("fcmp ogt", t, m.val(1.0)), large, small)


def _erf32(m: _Math, x: Val) -> Val:
    t = m.at_most(m.abs(x), 4.0)  # erf(4) rounds to 1
    s = m.mul(x, x)
    small = m.fma(m.horner(s, _ERF_SMALL), x, x)
    exponent = m.fma(m.horner(t, _ERF_LARGE), t, m.fn.pure(f"fneg {t}", t.type, t.lanes))
    large = m.copysign(m.sub(1.0, _exp(m, exponent)), x)
    return m.fn.select(m.fn.compare("fcmp ogt", t, m.val(0.927734375)), large, small)
