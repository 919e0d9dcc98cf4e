"""Random expressions against NumPy's own evaluation of the same text: values and element types."""

import random

import numpy as np
import pytest

from polyc.diagnostics import PolycError
from polyc.frontends.python import read_function
from polyc.frontends.tc import read_tc
from polyc.ir.interpret import interpret
from polyc.ir.verify import verify_program

ARRAYS = {
    "a": np.array([1, -2, 0.5, 3, 0, 7, -1], np.float32),
    "b": np.array([2, -1, 0.25, 4, 1, 0, 3], np.float64),
    "n": np.array([3, -7, 2, 1, 5, 0, 4], np.int32),
    "u": np.array([1, 200, 3, 0, 7, 255, 9], np.uint8),
    "w": np.array([3, 2**40, 2, 1, 5, 0, 4], np.uint64),
    "t": np.array([1, 0, 1, 1, 0, 0, 1], np.bool_),
}
HEAD = 'def f(a: "f32[7]", b: "f64[7]", n: "i32[7]", u: "u8[7]", w: "u64[7]", t: "bool[7]"):\n'
OPERATORS = "+ - * / // % ** & | ^ < <= == != > >=".split()
PAIRS = "maximum minimum fmax fmin power floor_divide mod greater equal logical_and logical_or logical_xor bitwise_xor".split()
FLOATS = "exp sqrt tanh log1p arctan rint sin expm1 cbrt".split()
SINGLES = "abs sign square negative isnan isfinite logical_not invert".split()
SINGLES += ["floor"] if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else []  # of integers a float before


def make_expression(chance, depth):
    """An expression with at least one array in it (functions of literals alone are typed differently in NumPy)."""
    if depth == 0 or chance.random() < 0.1:
        return chance.choice([f"{name}[i]" for name in ARRAYS] + ["i"])
    x, y = (make_expression(chance, depth - 1) for _ in range(2))
    match chance.randrange(8):
        case 0 | 1:
            return f"({x} {chance.choice(OPERATORS)} {y})"
        case 2:
            return f"({x} {chance.choice(OPERATORS)} {chance.choice(['1', '2.5', '3', 'True', '-1', '300'])})"
        case 3:
            return f"({chance.choice(['1', '2.5', '3', '-2'])} {chance.choice(OPERATORS)} {x})"
        case 4:
            return f"np.{chance.choice(PAIRS)}({x}, {y})"
        case 5:
            return f"np.{chance.choice(FLOATS)}(a[i] + {x})"  # never of small integers, where NumPy gives float16
        case 6:
            return f"np.{chance.choice(SINGLES)}({x})"
        case _:
            return f"np.where({x} < 1, {y}, {make_expression(chance, depth - 1)})"


@pytest.mark.parametrize("seed", range(3))
def test_random_expressions_agree_with_numpy(seed):
    chance = random.Random(seed)
    n_compared = 0
    for _ in range(150):
        text = make_expression(chance, chance.randint(1, 3))
        with np.errstate(all="ignore"):
            try:
                expected = np.asarray(eval(text.replace("[i]", ""), {**ARRAYS, "np": np, "i": np.arange(7)}))
            except (TypeError, ValueError, OverflowError):
                continue  # NumPy refuses some at run time (negative powers of integers), polyc before
        if expected.dtype == np.float16:
            continue
        program = read_function(f"{HEAD}    with where(i < 7):\n        R[i] = {text}\n    return R\n").program
        verify_program(program)
        got = interpret(program, ARRAYS)["R"]
        assert got.dtype == expected.dtype, text
        np.testing.assert_allclose(got, np.broadcast_to(expected, (7,)), rtol=1e-5, err_msg=text)
        n_compared += 1
    assert n_compared > 80


def test_two_notations_give_the_same_program():
    text = """
def linear_relu(float(M,K) X, float(N,K) W, float(N) b) -> (Y) {
  H(m,n) +=! X(m,k) * W(n,k)
  Y(m,n) = fmax(H(m,n) + b(n), 0) where m in 0:M
}
"""
    function = """
def linear_relu(X: "f32[M, K]", W: "f32[N, K]", b: "f32[N]"):
    H[m, n] += X[m, k] * W[n, k]
    with polyc.where(0 <= m < M):
        Y[m, n] = max(H[m, n] + b[n], 0)
    return Y
"""
    assert read_tc(text)[0] == read_function(function).program


def test_random_bodies_give_valid_programs_or_named_errors():
    chance = random.Random(11)
    for _ in range(300):
        first, second, third = (make_expression(chance, 2) for _ in range(3))
        op = chance.choice(
            ["R[i] = {}", "R[i] += {}", "R = sum({})", "R[i] = max({})", "R *= {}", "R[i] |= {}", "R[i] = any({})"]
        )
        again = chance.choice(["R[i] += {}", "R[i] = {}", "R[i] *= s + {}", "R += {}", "R[i] -= R[i] + {}"])
        scalar = chance.choice(["1", "0.5", "True", second])
        body = f"{op.format(first)}\n    s = {scalar}\n    {again.format(third)}\n    return R, s\n"
        try:
            verify_program(read_function(f"{HEAD}    {body}").program)
        except PolycError as error:
            assert not error.code.startswith("internal"), body
