"""Programs whose names or shapes are unusual: nothing a user may call something gets in the compiler's way."""

import numpy as np
import pytest

import polyc
from tests.oracle.programs import agree, draw, for_any_sizes, operator

ENTRIES = (
    "main sin sinf pow memcpy malloc int struct free printf GOMP_parallel omp_get_thread_num report _start S0 c0 é".split()
)


@pytest.mark.parametrize("name", ENTRIES)
def test_entry_named_like_a_library_function_or_keyword(name):
    text = f"def {name}(X: 'f32[N]'):\n    O += np.sin(X[i]) * 2 + np.fmod(X[i], 3)\n    return O"
    op = polyc.op(text.replace("np.", ""))
    assert op.__name__ == name
    for n in (5, 40_000):
        x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        np.testing.assert_allclose(op(x), np.sum(np.sin(x) * 2 + np.fmod(x, 3), dtype=np.float64), rtol=1e-3, atol=1e-2)


NAMES = "c0 c1 c12 init_S0 S0 S1 data sizes workspace error threads entry lane O_part e0 i0 p0 M0 fe and or mod".split()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("role", ["index", "size", "tensor", "result"])
def test_names_that_the_compiler_makes_up(name, role):
    names = {"index": "i", "size": "N", "tensor": "X", "result": "O"} | {role: name}
    i, n, x, o = names.values()
    op = operator(f"def f(float(M,{n}) {x}) -> ({o}, Q) {{ {o}(m) +=! {x}(m,{i})  Q(m,{i}) = {o}(m) * {x}(m,{i}) }}")
    sizes = {"M": 9, n: 20} if role == "size" else {"M": 9, "N": 20}
    arrays = draw(op, sizes)
    program = op.program
    agree(op, arrays, sizes)
    assert program.parameters == (x,)


def test_names_shared_between_indices_sizes_and_tensors():
    op = operator("def N(float(N) M, float(N) K) -> (O) { O(i) = M(i) + K(i) }")
    agree(op, draw(op, {"N": 21}), {"N": 21})


def test_long_names():
    long = "x" * 3000
    op = operator(f"def e{long}(float(N{long}) A{long}) -> (O) {{ O(j) = A{long}(j) * 2.0 + A{long}(j) }}")
    agree(op, draw(op, {f"N{long}": 20}), {f"N{long}": 20})
    op = operator(f"def f(float(M,N) A) -> (O) {{ O({long}) +=! A({long}, k{long}) }}")
    agree(op, draw(op, {"M": 6, "N": 20}), {"M": 6, "N": 20})


def test_eight_dimensions():
    op = operator(
        """def f(float(A,B,C,D,E,F,G,H) X) -> (O, R) {
        O(a,c,e,g,h,f,d,b) = X(a,b,c,d,e,f,g,h) + 1.0  R(a,h) +=! X(a,b,c,d,e,f,g,h) }"""
    )
    sizes = dict(zip("ABCDEFGH", (2, 3, 1, 2, 3, 2, 2, 5), strict=True))
    agree(op, draw(op, sizes), sizes)
    agree(op, draw(op, sizes), sizes, call=for_any_sizes(op))


def test_scalars():
    op = operator("def f(float X, float Y) -> (O, P) { O = X * Y  P = O + 1.0 }")
    agree(op, [np.array(3.0, np.float32), np.array(2.0, np.float32)], {})
    op = operator("def f(float(N) X, float A) -> (O) { O(i) = X(i) * A }")
    agree(op, draw(op, {"N": 33}), {"N": 33})


def test_no_inputs():
    op = operator("def f() -> (O) { O(i) = float(i * i) where i in 0:20 }")
    np.testing.assert_array_equal(op(), np.arange(20, dtype=np.float32) ** 2)
    op = operator("def f() -> (O) { O = 3.0 }")
    assert op() == 3.0


def test_result_that_depends_on_no_input():
    op = operator("def f(float(N) X) -> (O, C) { O(i) = X(i)  C(i) = 1.0 where i in 0:N }")
    o, c = op(np.zeros(17, np.float32))
    assert (c == 1).all() and not o.any()


def test_one_array_as_two_inputs():
    op = operator("def f(float(N,N) A, float(N,N) B) -> (C) { C(i,j) +=! A(i,k) * B(j,k) }")
    x = draw(op, {"N": 19})[0]
    agree(op, [x, x], {"N": 19})
    agree(op, [x, x.T], {"N": 19})


def test_chain_of_a_hundred_statements():
    lines = ["T0(i) = X(i) + 1.0"] + [f"T{k}(i) = T{k - 1}(i) * 0.5 + X(i)" for k in range(1, 100)]
    op = operator(f"def f(float(N) X) -> (T99) {{ {' '.join(lines)} }}")
    agree(op, draw(op, {"N": 50}), {"N": 50})


def test_unused_input_and_unused_statement():
    op = operator("def f(float(N) X, float(M) Y) -> (O) { T(j) = Y(j) * 2.0  O(i) = X(i) }")
    agree(op, draw(op, {"N": 5, "M": 3}), {"N": 5, "M": 3})


def test_input_returned_under_another_name():
    op = operator("def f(float(N) X) -> (O, P) { O(i) = X(i)  P(i) = O(i) }")
    agree(op, draw(op, {"N": 5}), {"N": 5})
