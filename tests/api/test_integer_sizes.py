"""Scalar integer parameters that bound ranges: one kernel for all values, checked at the call, and no meaning but its own."""

# ruff: noqa: F821, UP037
from __future__ import annotations

import inspect
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.api.dynamic import typical_sizes
from polyc.diagnostics import PolycError
from polyc.ir.components import find_step_counts
from polyc.ir.expr import evaluate
from polyc.ir.interpret import interpret
from polyc.ir.program import integer_parameters
from polyc.ir.text_reader import parse_program

Array = np.ndarray[Any, Any]

HEAT = """def heat(float(N) x, int64 T) -> (Y) {
  A(0, i) = x(i)
  A(t, i) = i == 0 || i == N-1 ? A(t-1, i) : (A(t-1, i-1) + A(t-1, i) + A(t-1, i+1)) / 3.0 where t in 1:T+1, i in 0:N
  Y(i) = A(T, i) / float(T + 1)
}"""
SOURCES = """def sources(int32 T, float(T) s, float(N) x, int64 B, int32(N) bin) -> (float(B) H, Z, W) {
  H(b) = 0.0 where b in 0:B
  H(bin(i)) += x(i)
  Z(t, i) = s(t) * x(i) / double(T)
  W(T + i) = x(i)
  W(i) = 2.0 where i in 0:T
}"""


def heat(x: Array, steps: int) -> Array:
    a = x.copy()
    for _ in range(steps):
        a[1:-1] = (a[:-2] + a[1:-1] + a[2:]) / np.float32(3)
    return a / np.float32(steps + 1)


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def kernels(op: polyc.Operator) -> list[str]:
    return [r.message for r in op.remarks if r.pass_name == "dynamic" and ": kernel " in r.message]


def refuse(call: Any, code: str, *fragments: str) -> None:
    with pytest.raises(PolycError) as caught:
        call()
    assert caught.value.code == code, str(caught.value)
    for fragment in fragments:
        assert fragment in str(caught.value), str(caught.value)


@pytest.fixture(scope="module")
def symbolic() -> polyc.Operator:
    return polyc.compile(HEAT, dynamic=True)


@pytest.fixture(scope="module")
def mixed() -> polyc.Operator:
    return polyc.compile(SOURCES, dynamic=True)


def test_one_kernel_serves_all_values(symbolic: polyc.Operator) -> None:
    x = draw(37)
    for steps in (0, 1, 2, 3, 7, 8, 9, 31, 2, 0, 40):
        given = (steps, np.int64(steps), np.array(steps))[steps % 3]
        np.testing.assert_allclose(symbolic(x, given), heat(x, steps), rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(symbolic(x, T=steps), heat(x, steps), rtol=2e-5, atol=1e-6)
    assert len(kernels(symbolic)) == 1


def test_the_policy_is_that_of_sizes() -> None:
    op = polyc.compile(HEAT)
    x = draw(12)
    for steps in (1, 2, 3, 4, 5, 1, 2):
        np.testing.assert_allclose(op(x, steps), heat(x, steps), rtol=2e-5, atol=1e-6)
    assert [m.partition(" (")[0] for m in kernels(op)] == [
        "heat: kernel 1, N=12, T=1",
        "heat: kernel 2, N=12, T=2",
        "heat: kernel 3, N=12, T any",
    ]


def test_counts_of_steps_are_taken_for_many_and_others_for_what_they_are(
    symbolic: polyc.Operator, mixed: polyc.Operator
) -> None:
    assert find_step_counts(symbolic.program) == {"T"} and not find_step_counts(mixed.program)
    few, many = (typical_sizes({"T": n, "B": n}, "TB", {"T"}) for n in (2, 128))
    assert few["T"] == many["T"] and few["B"] == 2


def test_extents_scatter_and_parts_agree_with_the_interpreter(mixed: polyc.Operator) -> None:
    assert set(integer_parameters(mixed.program)) == {"T", "B"}
    for steps, bins, n in ((3, 4, 9), (0, 1, 5), (17, 30, 16), (1, 9, 0)):
        s, x = draw(steps), draw(n)
        bin = np.arange(n, dtype=np.int32) % bins
        got = mixed(steps, s, x, bins, bin)
        arrays = {"T": np.array(steps, np.int32), "s": s, "x": x, "B": np.array(bins), "bin": bin}
        for name, result, expected in zip("HZW", got, interpret(mixed.program, arrays).values(), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6, err_msg=name)
        assert got[1].dtype == np.float64


def test_what_does_not_fit_is_named(symbolic: polyc.Operator, mixed: polyc.Operator) -> None:
    x = draw(37)
    refuse(lambda: symbolic(x, -1), "argument-size", "size T must not be negative or beyond 2**62, but is -1", "int64 T", "^")
    refuse(lambda: symbolic(x, 2**62), "argument-size", "T")
    refuse(lambda: symbolic(x, 2.5), "argument-type-dtype", "T")
    refuse(lambda: symbolic(x, 2**70), "argument-type-dtype", "T holds a number that int64 cannot hold")
    refuse(lambda: symbolic(x), "argument-count", "T missing")
    bins = np.zeros(4, np.int32)
    refuse(lambda: mixed(2, draw(3), draw(4), 5, bins), "argument-size", "s has 3 elements (dimension 0), but T is 2")
    refuse(lambda: mixed(2, draw(2), draw(4), 2**55, bins), "argument-too-large", "does not fit into memory")


def test_a_kernel_for_one_value_takes_no_other(symbolic: polyc.Operator) -> None:
    x = draw(9)
    kernel = polyc.compile(HEAT).specialize(x, 4)
    assert kernel.fixed_sizes == {"N": 9, "T": 4}
    for _ in range(3):
        np.testing.assert_allclose(kernel(x, 4), heat(x, 4), rtol=2e-5, atol=1e-6)
        refuse(lambda: kernel(x, 5), "argument-size", "T=5 was given")
    any_value = symbolic.specialize(x, ("int64", ()))
    for steps in (4, 5, 4, 6):
        np.testing.assert_allclose(any_value(x, steps), heat(x, steps), rtol=2e-5, atol=1e-6)


def test_bound_fixed_pickled_and_verified(symbolic: polyc.Operator) -> None:
    x = draw(21)
    expected = heat(x, 6)
    bound = symbolic.bind(T=6)
    for _ in range(2):
        np.testing.assert_allclose(bound(x), expected, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(bound))(x), expected, rtol=2e-5, atol=1e-6)
    fixed = polyc.compile(HEAT, sizes={"T": 6}, verify=True)
    np.testing.assert_allclose(fixed(x), expected, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(fixed(x, 6), expected, rtol=2e-5, atol=1e-6)
    refuse(lambda: fixed(x, 7), "argument-size", "T=7 was given, but T=6 was fixed")
    assert list(inspect.signature(symbolic).parameters)[:2] == ["x", "T"]
    assert "T: i64" in repr(symbolic)


def test_threads_with_values_of_their_own(symbolic: polyc.Operator) -> None:
    x, wrong = draw(30), []

    def work(first: int) -> None:
        for k in range(30):
            steps = first + k % 4
            if not np.allclose(symbolic(x, steps), heat(x, steps), rtol=2e-5, atol=1e-6):
                wrong.append(steps)

    workers = [threading.Thread(target=work, args=(n,)) for n in (1, 3, 5)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_functions_with_and_without_annotations() -> None:
    @polyc.op(dynamic=True)
    def decay(x, T, factor=0.5):
        a[0, i] = x[i]
        last = T - 1
        with polyc.where(1 <= t <= last + 1):
            a[t, i] = a[t - 1, i] * factor
        y[i] = a[last + 1, i]
        return y

    x = draw(11)
    for steps in (0, 3, 1, 3, 8):
        np.testing.assert_allclose(decay(x, steps), x * np.float32(0.5) ** steps, rtol=1e-6)
        np.testing.assert_allclose(decay(x, np.int32(steps)), x * np.float32(0.5) ** steps, rtol=1e-6)
    refuse(lambda: decay(x, -2), "argument-size", "T")
    refuse(lambda: decay(x, 2.0), "type-not-integral")


def test_sizes_of_a_decorated_function_are_fixed_by_its_options() -> None:
    @polyc.op(sizes={"T": 2, "N": 4})
    def steps(x: "f32[N]", T: "i32", s: "f32[T]") -> "f32[T, N]":
        y[t, i] = x[i] * s[t]
        return y

    x, s = draw(4), draw(2)
    assert np.array_equal(steps(x, 2, s), np.outer(s, x)) and np.array_equal(steps(x, s=s), np.outer(s, x))
    refuse(lambda: steps(draw(5), 2, s), "argument-size", "N is 4 since N=4 was fixed")
    refuse(lambda: polyc.op(sizes={"K": 2})(steps.__wrapped__), "argument-name", "no size named K", "N, T")


# body (float(N) x, float(M) z, int32 T), and the extent of y at N = 12, M = 7, T = 3
RANGES = {
    "subscript alone": ("y(i) = x(i + T) * z(i)", 7),
    "guarded by it": ("y(i) = (i < T ? x(i) : 0.0) + z(i)", 7),
    "gathered": ("y(i) = x(T) + z(i)", 7),
}


@pytest.mark.parametrize("case", RANGES)
def test_another_use_changes_no_range(case: str) -> None:
    body, extent = RANGES[case]
    for rest in ("", "  w(t) = z(0) where t in 0:T"):
        (program,) = driver.read_tc(f"def f(float(N) x, float(M) z, int32 T) -> (y{', w' if rest else ''}) {{ {body}{rest} }}")
        assert integer_parameters(program) == (("T",) if rest else ())
        arrays = {"x": draw(12), "z": draw(7), "T": np.array(3, np.int32)}
        assert interpret(program, arrays)["y"].shape == (extent,)
        sizes = {"N": 12, "M": 7, "T": 3}
        assert driver.infer_shapes(program, sizes)["y"][1] == (extent,)  # of numbers
        extents, _ = driver.infer_extents(program)  # of symbols
        assert evaluate(extents["y"][0], sizes) == extent


def test_an_integer_that_bounds_nothing_may_be_negative() -> None:
    shift = polyc.compile("def f(float(N) x, int64 k) -> (y) { y(i) = x(i + k) where i in 3:N-3 }")
    x = draw(12)
    for k in (-3, 0, 2):
        assert np.array_equal(shift(x, k), x[3 + k : 9 + k])
    assert shift.program.sizes == ("N",) and len(kernels(shift)) == 1
    refuse(lambda: shift(x, 4), "bounds-index")


def test_calls_take_numbers_sizes_and_integers() -> None:
    text = f"""{HEAT}
    def twice(float(N) x, int64 S) -> (y, z) {{
      y = heat(x, S + 1)
      z = heat(x, int64(2))
    }}"""
    op = polyc.compile(text, entry="twice", dynamic=True)
    x = draw(15)
    for steps in (0, 3):
        y, z = op(x, steps)
        np.testing.assert_allclose(y, heat(x, steps + 1), rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(z, heat(x, 2), rtol=2e-5, atol=1e-6)
    by_data = text.replace("S + 1", "k").replace("int64 S", "int64(2) S").replace("y = heat", "k = S(0)  y = heat")
    refuse(lambda: polyc.compile(by_data, entry="twice"), "semantic-call", "which depends on data", "^")


def test_stages_and_headers_say_where_the_number_goes(symbolic: polyc.Operator) -> None:
    lowered = symbolic.lower()
    assert parse_program(lowered.as_text("program")) == symbolic.program
    header = symbolic.compiled().c_header()
    assert "const int64_t T: read" in header and "T: the number that data[1] holds, 0 or more" in header


TEXTS = {
    "of floats": ("float(N) x, float T", "y(i) = x(i) where i in 0:T", "type-not-integral"),
    "converted": ("float(N) x, int32 T", "y(i) = x(i) where i in 0:int32(float(T))", "range-unwritten"),
    "an extent of floats": ("float(T) x, float T", "y(i) = x(i)", "semantic-already-defined"),
    "of an element": ("float(N) x, int32(N) T", "y(i) = x(i) where i in 0:T(0)", "range-unwritten"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_what_is_no_integer_bounds_nothing(case: str) -> None:
    parameters, body, code = TEXTS[case]
    refuse(lambda: polyc.compile(f"def f({parameters}) -> (y) {{ {body} }}").lower(), code, "^")


def test_sizes_that_are_none_are_refused_at_the_call() -> None:
    @polyc.op(sizes={"f": 3})
    def scale(x, f):
        y[i] = x[i] * f
        return y

    with pytest.raises(polyc.PolycError, match="f, which sizes= fixes, is no size"):
        scale(np.ones(4), 5)
