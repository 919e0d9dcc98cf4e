"""Every operator on every element type at the values where hardware, C and NumPy part ways."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from polyc import driver
from polyc.ir.expr import Call, Const, Expr, Index, Read, Size
from polyc.ir.halves import is_bfloat16, widen
from polyc.ir.interpret import interpret
from polyc.ir.operators import OPERATORS
from polyc.ir.program import Program, Return, Statement, Tensor
from polyc.ir.types import BOOL, DTYPES, DType
from tests.property.pipeline import LEVELS, pinned

pytestmark = pytest.mark.optimised

N = Size("N")
LOGICAL = ("and", "or", "not")
CONVERTED = "add sub mul truediv floordiv mod pow min fmax neg abs lt eq exp sqrt rint sigmoid fma".split()
"""Operators on 16-bit floats that stand for all: these are numbers of float32 but for their conversions."""
LESS_EXACT = {"pow": 1e-4, "lgamma": 1e-3, "tgamma": 1e-3}
"""Relative error allowed at these extreme values; 64 units in the last place for the rest."""


def make_program(dtype: DType) -> Program:
    """One statement and result per operator that takes `dtype`."""
    parameters = tuple(Tensor(n, dtype, 1, (N,), "input", n) for n in "ABC")
    reads = tuple(Read(n, (Index("i"),)) for n in "ABC")
    tensors, statements, returns = [], [], []
    for op, entry in OPERATORS.items():
        if dtype.is_storage and op not in CONVERTED:
            continue
        if op in ("complex", "conj", "real", "imag"):
            continue  # of complex numbers only: tests/oracle/test_complex.py
        if (op in LOGICAL and dtype != BOOL) or (entry.result == "float" and not dtype.is_float):
            continue
        if dtype == BOOL and op not in (*LOGICAL, "eq", "ne", "bitand", "bitor", "bitxor", "max", "min"):
            continue
        if dtype.is_float and op in ("bitand", "bitor", "bitxor", "shl", "shr"):
            continue
        if dtype.name != "i32" and op == "dot4u8s8":
            continue
        value: Expr = Call(op, reads[: entry.arity])
        if op == "exp_below":
            value = Call(op, (Call("min", (reads[0], Const(40.0, dtype))),))
        tensors.append(Tensor(f"O{op}", BOOL if entry.result == "bool" else dtype, 1, None, "output", f"O{op}"))
        statements.append(Statement(f"S{len(statements)}", f"O{op}", (Index("i"),), ("i",), value))
        returns.append(Return(f"O{op}", f"O{op}"))
    return Program("f", ("N",), (*parameters, *tensors), ("A", "B", "C"), tuple(returns), tuple(statements))


def special_values(dtype: DType) -> list[float | int | bool]:
    if dtype == BOOL:
        return [False, True]
    if dtype.is_float:
        info = ml_dtypes.finfo(dtype.numpy)
        values = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -2.5, 3.0, -7.0, 1e-3, 30.25, 88.5, -104.0, 1e9]
        return [*values, np.nan, np.inf, -np.inf, float(info.max), -float(info.max), float(info.tiny), float(info.tiny) / 8]
    info = np.iinfo(dtype.numpy)
    return sorted(
        {info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 100} | ({-1, -2, -3, -7} if info.min else set())
    )


def levels_of(dtype: DType) -> list[str]:
    """Signed and unsigned integers, whose code is the same but for comparisons and quotients, take turns on narrow machines."""
    narrow, wide = LEVELS[:2], LEVELS[2:]
    return list(narrow if dtype.is_storage else LEVELS if not dtype.is_integer else [narrow[-int(dtype.kind == "u")], *wide])


@pytest.mark.parametrize(
    ("dtype", "level"),
    [(n, level) for n, t in DTYPES.items() if not t.is_complex for level in levels_of(t)],
)
@pytest.mark.filterwarnings("ignore")
def test_operators_at_special_values(dtype, level):
    program = make_program(DTYPES[dtype])
    values = special_values(DTYPES[dtype])
    pairs = list(itertools.product(values, values))
    with np.errstate(all="ignore"):
        arrays = {n: np.array(x, DTYPES[dtype].numpy) for n, x in zip("AB", zip(*pairs, strict=True), strict=True)}
    arrays["C"] = np.roll(arrays["A"], 5)
    expected = interpret(program, arrays)
    strides = tuple((program.types[name].itemsize,) for name in (*program.parameters, *(r.version for r in program.returns)))
    # Tails for any number of elements are the most code by far, and the same for all elements of as many bits.
    is_for_any = level == LEVELS[-1] and dtype in ("f32", "u8", "i16", "i64", "bool")
    sizes = None if is_for_any else {"N": len(pairs)}
    lowered = driver.lower(program, sizes=sizes, strides=strides, target=pinned(level))
    results = dict(zip((r.name for r in program.returns), lowered.compile()(*arrays.values()), strict=True))
    wrong = []
    for name, want in expected.items():
        got, op = results[name], name[1:]
        if op == "pow" and want.dtype.kind in "iu":
            keep = arrays["B"] >= 0  # NumPy refuses negative exponents
            got, want = got[keep], want[keep]
        if want.dtype.kind == "f" or is_bfloat16(want.dtype):
            info = ml_dtypes.finfo(want.dtype)
            # elements of 16 bits are rounded f32 values: at most one unit apart
            tolerance = float(info.eps) if DTYPES[dtype].is_storage else LESS_EXACT.get(op, 64 * float(info.eps))
            tiny = 8 * float(info.tiny)
            got, want = widen(got), widen(want)
            with np.errstate(all="ignore"):
                good = (
                    (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= tolerance * np.abs(want) + tiny)
                )
        else:
            good = got == want
        for k in np.flatnonzero(~good)[:3]:
            wrong.append(
                f"{op}({arrays['A'][k]!r}, {arrays['B'][k]!r}, {arrays['C'][k]!r}) is {got[k]!r}, expected {want[k]!r}"
            )
    assert not wrong, "\n".join(wrong)
