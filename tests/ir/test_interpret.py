"""The reference interpreter against NumPy written by hand, and its errors."""

import numpy as np
import pytest

from polyc.diagnostics import ArgumentError, ArgumentTypeError, BoundsError, PolycError, RangeError
from polyc.ir import interpret_values
from polyc.ir.interpret import interpret
from polyc.ir.text_reader import parse_program


def run(text: str, sizes: dict[str, int] | None = None, out: dict[str, np.ndarray] | None = None, **arrays: np.ndarray):
    return interpret(parse_program(text), arrays, sizes, out)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_softmax() -> None:
    x = normal(5, 7)
    results = run(
        """program softmax(X: f32[N, D]) -> (O)
             sizes N, D
             temporary M: f32[?]
             temporary E: f32[?, ?]
             temporary Z: f32[?]
             output O: f32[?, ?]
             S0(n, d): M[n] max= X[n, d] init -inf
             S1(n, d): E[n, d] = exp(X[n, d] - M[n])
             S2(n, d): Z[n] += E[n, d] init 0.0
             S3(n, d): O[n, d] = E[n, d] / Z[n]""",
        X=x,
    )
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(results["O"], e / e.sum(1, keepdims=True), rtol=1e-6)
    assert results["O"].dtype == np.float32


MATMUL = """program matmul(A: f32[M, K], B: f32[K, N]) -> (C)
              sizes M, K, N
              output C: f32[?, ?]
              S0(m, n, k): C[m, n] += A[m, k] * B[k, n] init 0.0"""


def test_matmul_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpret_values, "POINTS_AT_ONCE", 50)
    a, b = normal(9, 11), normal(11, 13, seed=1)
    expected = a.astype(np.float64) @ b
    np.testing.assert_allclose(run(MATMUL, A=a, B=b)["C"], expected, rtol=1e-5, atol=1e-5)


def test_empty_reduction_gives_the_initial_value() -> None:
    result = run(MATMUL, A=np.zeros((2, 0), np.float32), B=np.zeros((0, 3), np.float32))["C"]
    np.testing.assert_array_equal(result, np.zeros((2, 3), np.float32))


def test_float_as_evaluates_f32_in_f64() -> None:
    program = parse_program(MATMUL)
    a, b = normal(3, 1000), normal(1000, 2, seed=1)
    wide = interpret(program, {"A": a, "B": b}, float_as=np.float64)["C"]
    assert wide.dtype == np.float64
    np.testing.assert_allclose(wide, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-13)


def test_origins_carry_through_temporaries() -> None:
    text = """program shift(A: f32[N]) -> (O)
                sizes N
                temporary T: f32[?]
                output O: f32[?]
                S0(i): T[i] = A[i - 3]
                S1(i): O[i] = T[2 * i]"""
    a = np.arange(9, dtype=np.float32)  # T covers 3 to 11, so O covers 2 to 5
    np.testing.assert_array_equal(run(text, A=a)["O"], a[[1, 3, 5, 7]])


def test_pad_and_select_guard_reads() -> None:
    text = """program guarded(A: f32[N]) -> (P, S)
                sizes N
                output P: f32[?]
                output S: f32[?]
                S0(i): P[i] = pad(A[i - 1], 7.0)
                  where i in 0:N + 2
                S1(i): S[i] = i < N - 1 ? A[i + 1] : -1.0
                  where i in 0:N"""
    results = run(text, A=np.array([1, 2, 3], np.float32))
    np.testing.assert_array_equal(results["P"], np.array([7, 1, 2, 3, 7], np.float32))
    np.testing.assert_array_equal(results["S"], np.array([2, 3, -1], np.float32))


def test_accumulated_output_reads_out_and_leaves_it_alone() -> None:
    text = """program accumulate(A: i32[N, M]) -> (O from O.in)
                sizes N, M
                accumulated O.in: i32[?] of O
                output O: i32[?]
                S0(i, j): O[i] += A[i, j] init O.in[i]"""
    out = np.array([10, 20], np.int32)
    result = run(text, out={"O": out}, A=np.array([[1, 2, 3], [4, 5, 6]], np.int32))
    np.testing.assert_array_equal(result["O"], [16, 35])
    np.testing.assert_array_equal(out, [10, 20])
    with pytest.raises(ArgumentError) as error:
        run(text, A=np.zeros((2, 3), np.int32))
    assert error.value.code == "argument-missing-out"


def test_conditions_restrict_reductions() -> None:
    text = """program lower(A: f32[N, N]) -> (O)
                sizes N
                output O: f32[?]
                S0(i, j): O[i] max= A[i, j] init -inf
                  where j < i"""
    a = normal(4, 4)
    expected = [a[i, :i].max(initial=-np.inf) for i in range(4)]
    np.testing.assert_array_equal(run(text, A=a)["O"], np.array(expected, np.float32))


def test_a_bound_on_another_index_restricts_reductions() -> None:
    text = """program lower(A: f32[N, N]) -> (O)
                sizes N
                output O: f32[?]
                S0(i, j): O[i] += A[i, j] init 0.0
                  where j in 0:i + 1"""
    a = normal(4, 4)
    np.testing.assert_allclose(run(text, A=a)["O"], np.tril(a).sum(1), rtol=1e-6)


def test_scatter_combines_all_instances() -> None:
    text = """program histogram(A: i32[N]) -> (H)
                sizes N
                output H: i32[4]
                S0(i): H[i % 4] += A[i] init 0:i32"""
    a = np.arange(10, dtype=np.int32)
    np.testing.assert_array_equal(run(text, A=a)["H"], [a[k::4].sum() for k in range(4)])


def test_statements_run_in_the_order_of_their_reads() -> None:
    text = """program reversed(A: f32[N]) -> (O)
                sizes N
                output O: f32[?]
                temporary T: f32[?]
                S0(i): O[i] = T[i] + 1.0
                S1(i): T[i] = A[i] * 2.0"""
    with pytest.raises(RangeError):  # what nobody reads bounds nothing
        run(text.replace("A[i] * 2.0", "2.0"), A=np.ones(3, np.float32))
    np.testing.assert_array_equal(run(text, A=np.ones(3, np.float32))["O"], [3, 3, 3])


def test_nan_and_integer_rules() -> None:
    text = """program rules(A: f32[N], B: i32[N]) -> (X, F, D, M, W)
                sizes N
                output X: f32[?]
                output F: f32[?]
                output D: i32[?]
                output M: i32[?]
                output W: i32[?]
                S0(i): X[i] = max(A[i], 0.0)
                S1(i): F[i] = fmax(A[i], 0.0)
                S2(i): D[i] = B[i] // 0:i32
                S3(i): M[i] = B[i] % -3:i32
                S4(i): W[i] = B[i] * 2000000000:i32"""
    with np.errstate(all="raise"):  # nothing leaks from inside
        r = run(text, A=np.array([np.nan, -1], np.float32), B=np.array([7, -7], np.int32))
    assert np.isnan(r["X"][0]) and r["F"][0] == 0
    np.testing.assert_array_equal(r["D"], [0, 0])
    np.testing.assert_array_equal(r["M"], [-2, -1])
    np.testing.assert_array_equal(r["W"], (np.array([7, -7], np.int64) * 2000000000).astype(np.int32))


READ = """program read(A: f32[N], I: i32[M]) -> (O)
            sizes N, M
            output O: f32[?]
            S0(i): O[i] = A[SUB]
              where i in 0:M, exists I[i]"""


@pytest.mark.parametrize(
    ("subscript", "error", "code"),
    [("i + 1", RangeError, "range-out-of-bounds"), ("i64(I[i])", BoundsError, "bounds-subscript")],
)
def test_reads_outside_name_tensor_dimension_and_value(subscript: str, error: type[PolycError], code: str) -> None:
    arrays = {"A": np.zeros(3, np.float32), "I": np.array([0, 2, 3], np.int32)}
    with pytest.raises(error, match=r"subscript 0 of A is 3, outside its range 0 to 2, at i = 2") as caught:
        run(READ.replace("SUB", subscript), **arrays)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("text", "error", "code"),
    [
        ("O[i] = A[i + j]", RangeError, "range-unsolved"),
        ("O[i] = A[i] + O[i]", RangeError, "range-circular"),
        ("O[i] = A[i] where i in 4:2", RangeError, "range-negative"),
        ("O[i] = A[i] where i < 2", RangeError, "range-unwritten"),
    ],
)
def test_named_errors(text: str, error: type[PolycError], code: str) -> None:
    header = "program p(A: f32[N]) -> (O) sizes N output O: f32[?] S0(i%s): " % (", j" if "j" in text else "")
    with pytest.raises(error) as caught:
        run(header + text, A=np.zeros(5, np.float32))
    assert caught.value.code == code


@pytest.mark.parametrize(("extent", "ok"), [("N", True), ("N + 1", False), ("N - 1", False)])
def test_declared_shapes_must_be_covered(extent: str, ok: bool) -> None:
    text = f"program p(A: f32[N]) -> (O) sizes N output O: f32[{extent}] S0(i): O[i] = A[i]"
    if ok:
        run(text, A=np.zeros(5, np.float32))
    else:
        with pytest.raises(RangeError):
            run(text, A=np.zeros(5, np.float32))


def test_a_reduction_fills_the_rest_of_a_declared_shape_with_its_initial_value() -> None:
    text = "program p(A: f32[N]) -> (O) sizes N output O: f32[N + 2] S0(i): O[i] += A[i] init 5.0"
    np.testing.assert_array_equal(run(text, A=np.ones(2, np.float32))["O"], [6, 6, 5, 5])


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [("i < N - 1", [3, 1, 2, 0]), ("sqrt(f64(i)) > 1.5:f64", [3, 0, 0, 3]), ("f64(i) * 0.5:f64 > 0.75:f64", [1, 0, 2, 3])],
)
def test_left_subscripts_that_sizes_or_real_numbers_choose(chosen: str, expected: list[int]) -> None:
    """The range of what is written does not follow from whole numbers alone."""
    text = f"program p(A: f64[N]) -> (O) sizes N output O: f64[N] S0(i): O[{chosen} ? i : 0] += A[i] init 0.0 where i in 0:N"
    np.testing.assert_array_equal(run(text, A=np.arange(4.0))["O"], expected)


def test_arguments_are_checked() -> None:
    good = np.zeros((2, 3), np.float32)
    for arrays, kind in (
        ({"A": good}, "argument-missing"),
        ({"A": good, "B": np.zeros((4, 2), np.float32)}, "argument-shape"),
        ({"A": good, "B": np.zeros(3, np.float32)}, "argument-rank"),
    ):
        with pytest.raises(ArgumentError) as caught:
            run(MATMUL, **arrays)
        assert caught.value.code == kind
    with pytest.raises(ArgumentTypeError):
        run(MATMUL, A=good, B=np.zeros((3, 4)))


def test_defined_sizes_are_evaluated() -> None:
    text = """program flatten(A: f32[N, M]) -> (O)
                sizes N, M
                define NM = N * M
                output O: f32[NM]
                S0(i): O[i] = A[i // 3, i % 3]
                  where i in 0:NM"""
    a = normal(2, 3)
    np.testing.assert_array_equal(run(text, A=a)["O"], a.ravel())
