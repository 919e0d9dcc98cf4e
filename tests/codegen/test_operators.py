"""Every operator and cast on every element type, scalar and vector, against the loop interpreter (NumPy's arithmetic)."""

from __future__ import annotations

import numpy as np
import pytest

from polyc.ir.expr import Cast, Const, Select
from polyc.ir.loops import Loop, LoopNest, Store
from polyc.ir.operators import OPERATORS
from polyc.ir.types import BF16, BOOL, DTYPES, F16, F32, F64, I32, DType

from .support import LEVELS, argument, c, check_with_interpreter, compiled, i, n, op, random_array, rd, strides_of

pytestmark = pytest.mark.optimised

RNG = np.random.default_rng(5)
NAMES = sorted(name for name, t in DTYPES.items() if not t.is_complex)
"""Element types of loops: complex numbers are pairs of real ones by then."""
COMPUTED = sorted(name for name in NAMES if DTYPES[name] not in (F16, BF16))
"""Types that code computes in; the 16-bit floats are only stored and converted."""

ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod", "max", "min", "fmax", "fmin")
BITS = ("bitand", "bitor", "bitxor")
SHIFTS = ("shl", "shr")
COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")


def values(dtype: DType) -> np.ndarray:
    """All pairs of awkward values and some ordinary ones."""
    if dtype.is_float:
        special = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, -7.0, 1e-3, 1e30, np.inf, -np.inf, np.nan]
        return np.array(special, dtype.numpy)
    if dtype == BOOL:
        return np.array([False, True])
    info = np.iinfo(dtype.numpy)
    ordinary = [0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1]
    return np.array(ordinary + ([-1, -2, -7] if dtype.kind == "i" else []), dtype.numpy)


def pairs(dtype):
    v = values(dtype)
    a, b = np.meshgrid(v, v)
    return a.ravel().copy(), b.ravel().copy()


def nest(value, source: DType, result: DType, kind: str, lanes: int = 16) -> LoopNest:
    arguments = [argument(a, source, (n("N"),), k) for k, a in enumerate("XZ")]
    y = argument("Y", result, (n("N"),), 2)
    loop = Loop("i", c(0), n("N"), 1, kind, (Store("Y", (i("i"),), value),), lanes=lanes)
    return LoopNest("f", ("N", *strides_of(*arguments, y)), (*arguments, y), (loop,))


def operators_of(dtype: DType):
    if dtype == BOOL:
        return ("add", "mul", "max", "min", *BITS, *COMPARE, "and", "or")
    return (*ARITHMETIC, *COMPARE, *(("truediv", "fdim", "copysign") if dtype.is_float else (*BITS, *SHIFTS)))


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize("kind", ["serial", "vector"])
def test_binary_operators(name, kind):
    dtype = DTYPES[name]
    a, b = pairs(dtype)
    for operator in operators_of(dtype):
        result = BOOL if OPERATORS[operator].result == "bool" else dtype
        code = nest(op(operator, rd("X", i("i")), rd("Z", i("i"))), dtype, result, kind)
        check_with_interpreter(code, {"X": a, "Z": b, "Y": np.zeros(a.size, result.numpy)}, {"N": a.size}, rtol=1e-6)


@pytest.mark.parametrize("level", ["host", *LEVELS])
@pytest.mark.parametrize("kind", ["serial", "vector"])
def test_byte_products_on_every_instruction_set(kind, level):
    ends = np.array([0x80FF7F01, 0xFFFFFFFF, 0x80808080, 0x7F7F7F7F, 0], np.uint32).view(np.int32)
    a, b = (np.concatenate([v.ravel(), RNG.integers(-(2**31), 2**31, 50, np.int32)]) for v in np.meshgrid(ends, ends))
    code = nest(op("dot4u8s8", rd("X", i("i")), rd("Z", i("i"))), I32, I32, kind)
    check_with_interpreter(code, {"X": a, "Z": b, "Y": np.zeros_like(a)}, {"N": a.size}, level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["i8", "u16", "i32", "i64", "f32"])
def test_division_on_every_instruction_set(name, level):
    dtype = DTYPES[name]
    a, b = pairs(dtype)
    for operator in ("floordiv", "mod", "max", "fmin"):
        code = nest(op(operator, rd("X", i("i")), rd("Z", i("i"))), dtype, dtype, "vector")
        check_with_interpreter(code, {"X": a, "Z": b, "Y": np.zeros_like(a)}, {"N": a.size}, level, rtol=1e-6)


@pytest.mark.parametrize("name", ["i8", "u8", "i32", "u32", "i64", "u64"])
def test_division_by_constants(name):
    dtype = DTYPES[name]
    a, _ = pairs(dtype)
    for divisor in (1, 2, 3, 7, 8, 64, 100):
        for operator in ("floordiv", "mod"):
            code = nest(op(operator, rd("X", i("i")), Const(divisor, dtype)), dtype, dtype, "vector")
            check_with_interpreter(code, {"X": a, "Z": a, "Y": np.zeros_like(a)}, {"N": a.size})


@pytest.mark.parametrize("name", ["i8", "u8", "i32", "u64"])
def test_integer_powers(name):
    dtype = DTYPES[name]
    a, _ = pairs(dtype)
    for exponent in (0, 1, 2, 3, 10):
        code = nest(op("pow", rd("X", i("i")), Const(exponent, dtype)), dtype, dtype, "vector")
        check_with_interpreter(code, {"X": a, "Z": a, "Y": np.zeros_like(a)}, {"N": a.size})
    code = nest(op("pow", rd("X", i("i")), rd("Z", i("i"))), dtype, dtype, "vector")
    b = (np.arange(a.size) % 9).astype(dtype.numpy)
    check_with_interpreter(code, {"X": a, "Z": b, "Y": np.zeros_like(a)}, {"N": a.size})


@pytest.mark.parametrize("name", COMPUTED)
def test_unary_operators(name):
    dtype = DTYPES[name]
    a, _ = pairs(dtype)
    names = ("not",) if dtype == BOOL else ("neg", "abs")
    for operator in names:
        for kind in ("serial", "vector"):
            code = nest(op(operator, rd("X", i("i"))), dtype, dtype, kind)
            check_with_interpreter(code, {"X": a, "Z": a, "Y": np.zeros_like(a)}, {"N": a.size})


@pytest.mark.parametrize("target_name", NAMES)
@pytest.mark.parametrize("name", COMPUTED)
def test_casts(name, target_name):
    source, result = DTYPES[name], DTYPES[target_name]
    a, _ = pairs(source)
    if source.is_float and result.is_integer:
        low, high = (0, 100) if result.kind == "u" else (-100, 100)
        a = np.concatenate([np.linspace(low, high, 97), [-0.5, 0.5, 1.999]]).astype(source.numpy)
    for kind in ("serial", "vector"):
        code = nest(Cast(rd("X", i("i")), result), source, result, kind)
        check_with_interpreter(code, {"X": a, "Z": a, "Y": np.zeros(a.size, result.numpy)}, {"N": a.size})


@pytest.mark.parametrize("level", LEVELS)
def test_casts_out_of_range_give_some_value(level):
    """No trap, no undefined behaviour: what comes out is a value of the type, the same in every run."""
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9] * 5, "f4")
    for result in (I32, DTYPES["u8"], DTYPES["u64"], DTYPES["i16"]):
        code = compiled(nest(Cast(rd("X", i("i")), result), F32, result, "vector"), level)
        outputs = []
        for _ in range(2):
            y = np.zeros(x.size, result.numpy)
            code.run({"X": x, "Z": x, "Y": y}, {"N": x.size})
            outputs.append(y)
        np.testing.assert_array_equal(*outputs)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_remainders_of_ordinary_numbers(dtype):
    rng = np.random.default_rng(2)
    a, b = (random_array(rng, dtype, (500,)) * 100 for _ in range(2))
    for operator in ("floordiv", "mod", "fmod", "remainder"):
        code = nest(op(operator, rd("X", i("i")), rd("Z", i("i"))), dtype, dtype, "vector")
        check_with_interpreter(code, {"X": a, "Z": b, "Y": np.zeros_like(a)}, {"N": a.size}, rtol=1e-5)


@pytest.mark.parametrize("kind", ["serial", "vector"])
@pytest.mark.parametrize("name", ["i32", "u16", "i64"])
def test_values_that_a_choice_changes_by_a_number(name, kind):
    """``x & 1 ? x ^ 40 : x``, either way round: one by one it is a choice of the number, for which no chain waits."""
    dtype = DTYPES[name]
    x, number, one = rd("X", i("i")), Const(40, dtype), Const(1, dtype)
    test = op("eq", op("bitand", x, one), one)
    arms = [(op(name, x, number), x) for name in ("add", "sub", "bitor", "bitxor")]
    chosen = [Select(test, *pair) for arm in arms for pair in (arm, arm[::-1])]
    arrays = argument("X", dtype, (n("N"),), 0), argument("Y", dtype, (c(len(chosen)), n("N")), 1)
    body = tuple(Store("Y", (c(k), i("i")), value) for k, value in enumerate(chosen))
    loop = Loop("i", c(0), n("N"), 1, kind, body, lanes=8 if kind == "vector" else 1, interleave=1)
    code = compiled(LoopNest("f", ("N", *strides_of(*arrays)), arrays, (loop,)))
    if kind == "serial":
        bits = f"i{dtype.bits}"
        assert code.text.count(f"{bits} 40, {bits} 0") == code.text.count(f"{bits} 0, {bits} 40") == 1  # for all four
    data = {"X": random_array(RNG, dtype, (21,)), "Y": np.zeros((len(chosen), 21), dtype.numpy)}
    check_with_interpreter(code.nest, data, {"N": 21}, code=code)
