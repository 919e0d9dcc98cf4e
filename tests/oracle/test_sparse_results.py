"""Results with the pattern of a sparse operand, statements over its entries alone, and compressed columns."""

# ruff: noqa: F821, UP037
from __future__ import annotations

import functools
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import polyc
from polyc.cli import main
from polyc.diagnostics import PolycError
from polyc.ir.interpret import interpret
from polyc.runtime.compressed import Rows

Array = np.ndarray[Any, Any]


@functools.cache
def operator(text: str, entry: str | None = None) -> Any:
    return polyc.compile(text, entry, dynamic=True)


def draw(m: int, n: int, dtype: Any = "f4", subscripts: Any = "i4") -> Rows:
    """A matrix with empty rows, duplicates and columns in any order."""
    rng = np.random.default_rng([m, n])
    counts = rng.integers(0, 5, m) * (rng.random(m) < 0.7) if n else np.zeros(m, int)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(subscripts)
    indices = rng.integers(0, max(n, 1), indptr[-1]).astype(subscripts)
    return Rows(rng.integers(-4, 5, indptr[-1]).astype(dtype), indices, indptr, (m, n))


def turn(matrix: Rows) -> Rows:
    """The transpose, in compressed columns."""
    return Rows(matrix.data, matrix.indices, matrix.indptr, matrix.shape[::-1])  # type: ignore[arg-type]


def places(matrix: Rows) -> tuple[Array, Array]:
    return np.repeat(np.arange(len(matrix.indptr) - 1), np.diff(matrix.indptr)), matrix.indices


def to_dense(matrix: Rows, data: Array | None = None) -> Array:
    dense = np.zeros(matrix.shape, matrix.data.dtype if data is None else data.dtype)
    np.add.at(dense, places(matrix), matrix.data if data is None else data)
    return dense


def integers(dtype: Any, *shape: int) -> Array:
    return np.random.default_rng(shape).integers(-3, 4, shape).astype(dtype)


SAMPLED = """def sampled({f} {t}({s}) A, {t}(M, K) X, {t}(N, K) Y) -> ({f} S, T, d, {f} {t}({s}) U) {{
  S({i}) +=! A({i}) * X(i, k) * Y(j, k)
  U({i}) = -(A({i}) * X(i, 0)) / {t}(2)
  U({i}) += S({i}) - A({i})
  T({i}) = (S({i}) > {t}(0) ? S({i}) * A({i}) : {t}(j)) where exists A({i})
  d(i) +=! T({i}) * {t}(2)
}}"""


@pytest.mark.each
@pytest.mark.parametrize(("name", "dtype", "subscripts"), [("float", "f4", "i4"), ("double", "f8", "i8")])
@pytest.mark.parametrize("format", ["csr", "csc"])
def test_results_with_the_pattern_of_an_operand_are_those_of_its_entries(
    name: str, dtype: str, subscripts: str, format: str
) -> None:
    is_csr = format == "csr"
    text = SAMPLED.format(f=format, t=name, s="M, N" if is_csr else "N, M", i="i, j" if is_csr else "j, i")
    op = operator(text)
    for m, n in [(6, 9), (40, 5), (1, 1), (4, 0), (0, 3)]:
        matrix = draw(m, n, dtype, subscripts)
        given = matrix if is_csr else turn(matrix)
        x, y = integers(dtype, m, 3), integers(dtype, n, 3)
        i, j = places(matrix)
        s = matrix.data * (x[i] * y[j]).sum(1)
        t = np.where(s > 0, s * matrix.data, j).astype(dtype)
        d = np.zeros(m, dtype)
        np.add.at(d, i, 2 * t)
        expected = s, t, d, s - matrix.data - matrix.data * x[i, 0] / 2
        for _ in range(2):  # planned calls, too
            found = op(given, x, y)
            for k, (value, wanted) in enumerate(zip(found, expected, strict=True)):
                np.testing.assert_array_equal(value if k == 2 else value.data, wanted)
                assert k == 2 or (value.indices is given.indices and value.shape == given.shape)
    flat = {"A.data": matrix.data, "A.indices": matrix.indices.astype("i4"), "A.indptr": matrix.indptr.astype("i4")}
    read = interpret(op.program, {**flat, "X": x, "Y": y}, {"M": m, "N": n, "K": 3, "A.nnz": len(matrix.data)})
    np.testing.assert_array_equal(read["S"], s)


def attend(matrix: Rows, q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """Softmax over the entries of each row, and the means of `v` with it as weights."""
    i, j = places(matrix)
    scores = matrix.data * (q[i] * k[j]).sum(1)
    weights, means = np.zeros(len(i)), np.zeros((len(q), v.shape[1]))
    for row in range(len(q)):
        own = i == row
        if own.any():
            e = np.exp(scores[own] - scores[own].max())
            weights[own] = e / e.sum()
            means[row] = weights[own] @ v[j[own]]
    return weights, means


def test_attention_over_the_entries_of_a_matrix_is_one_operator_in_both_notations() -> None:
    text = """def attend(csr float(M, N) A, float(M, K) Q, float(N, K) X, float(N, D) V) -> (csr W, Y) {
      S(i, j) +=! A(i, j) * Q(i, k) * X(j, k) where exists A(i, j)
      m(i) max=! S(i, j) where exists S(i, j)
      E(i, j) = exp(S(i, j) - m(i)) where exists A(i, j)
      z(i) +=! E(i, j)
      W(i, j) = E(i, j) / z(i)
      Y(i, d) +=! W(i, j) * V(j, d)
    }"""

    @polyc.op(dynamic=True)
    def attended(A: "csr[f32[M, N]]", Q: "f32[M, K]", X: "f32[N, K]", V: "f32[N, D]") -> ("csr[f32[M, N]]", "f32[M, D]"):
        with polyc.where((i, j) in A):
            S[i, j] = A[i, j] * sum(Q[i, k] * X[j, k])
            m[i] = max(S[i, j])
            E[i, j] = exp(S[i, j] - m[i])
        z[i] += E[i, j]
        W[i, j] = E[i, j] / z[i]
        Y[i, d] += W[i, j] * V[j, d]
        return W, Y

    for m, n in [(12, 7), (3, 0)]:
        matrix = draw(m, n)
        q, k, v = (integers("f4", *shape) / 4 for shape in ((m, 4), (n, 4), (n, 5)))
        for op in (operator(text), attended):
            found, means = op(matrix, q, k, v)
            weights, expected = attend(matrix, q, k, v)
            np.testing.assert_allclose(found.data, weights, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(means, expected, rtol=1e-5, atol=1e-6)


ENTRIES = """def entries(csr float(M, N) A, float(N) x) -> (n, most, float(N) back, first, float(M, N) D) {
  n(i) +=! 1 where exists A(i, j)
  most(i) max=! A(i, j) * A(i, j) * x(j) where exists A(i, j), j in 1:N, j > i
  back(j) min=! A(i, j) where exists A(i, j)
  first +=! exp(A(1, j)) * x(j) where exists A(1, j)
  D(i, j) max=! fabs(A(i, j)) where exists A(i, j)
}"""


def test_where_exists_makes_every_stored_entry_a_point() -> None:
    matrix = draw(6, 9)
    x = integers("f4", 9)
    (i, j), a = places(matrix), matrix.data
    n, most, back, dense = np.zeros(6, int), np.full(6, -np.inf), np.full(9, np.inf), np.full((6, 9), -np.inf)
    np.add.at(n, i, 1)
    np.maximum.at(most, i[(j > i) & (j > 0)], (a * a * x[j])[(j > i) & (j > 0)])
    np.minimum.at(back, j, a)
    np.maximum.at(dense, (i, j), abs(a))
    found = operator(ENTRIES)(matrix, x)
    for value, expected in zip(found, (n, most, back, (np.exp(a) * x[j])[i == 1].sum(), dense), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-6)


SCALED = "def scaled(csr float(M, N) A, float(M) u) -> (csr S) { S(i, j) = A(i, j) * u(i) }"


def test_out_takes_entries_or_a_matrix_with_the_same_pattern_and_gives_it_back() -> None:
    op, matrix, u = operator(SCALED), draw(6, 9), integers("f4", 6)
    expected = matrix.data * u[places(matrix)[0]]
    array, same = np.empty_like(matrix.data), Rows(np.empty_like(matrix.data), matrix.indices.copy(), matrix.indptr, (6, 9))
    for _ in range(2):
        for out in (array, same, {"S": array}, (same,)):
            array[...] = same.data[...] = 7
            found = op(matrix, u, out=out)
            assert found is (out if isinstance(out, (np.ndarray, Rows)) else array if isinstance(out, dict) else same)
            np.testing.assert_array_equal(found if found is array else found.data, expected)
    other = Rows(same.data, (matrix.indices + 1) % 9, matrix.indptr, (6, 9))
    array[...] = other.data[...] = 7
    wider = Rows(same.data, matrix.indices, matrix.indptr, (6, 10))
    wrong = {"argument-out-csr": (other, wider), "argument-size": (array[1:],), "argument-type": (matrix.data.astype("f8"),)}
    for code, out in ((code, out) for code, group in wrong.items() for out in group):
        with pytest.raises(PolycError) as caught:
            op(matrix, u, out=out)
        assert caught.value.code.startswith(code)
    assert (other.data == 7).all()


def test_a_sparse_result_that_is_added_to_reads_the_entries_of_out() -> None:
    with pytest.warns(polyc.PolycWarning):
        op = operator(SCALED.replace(" = ", " += "))
    matrix, u = draw(6, 9), integers("f4", 6)
    out = np.ones_like(matrix.data)
    assert op(matrix, u, out=out) is out
    np.testing.assert_array_equal(out, 1 + matrix.data * u[places(matrix)[0]])


def test_bound_operands_give_results_with_subscripts_of_their_own() -> None:
    matrix, u = draw(6, 9), integers("f4", 6)
    expected = matrix.data * u[places(matrix)[0]]
    bound = operator(SCALED).bind(A=SimpleNamespace(**{n: getattr(matrix, n) for n in Rows.__slots__}, name="mine"))
    for op in (bound, pickle.loads(pickle.dumps(bound))):
        for _ in range(3):
            found = op(u)
            np.testing.assert_array_equal(found.data, expected)
            np.testing.assert_array_equal(found.indices, matrix.indices)
            assert found.name == "mine" and found.shape == (6, 9) and found.indices is not matrix.indices
    named = operator(SCALED).bind(u=u)(A=matrix)
    np.testing.assert_array_equal(named.data, expected)


def test_results_are_of_the_kind_of_the_operand() -> None:
    matrix, u = draw(6, 9), integers("f4", 6)
    torch = SimpleNamespace(layout="torch.sparse_csr", shape=matrix.shape, values=lambda: matrix.data)
    torch.col_indices, torch.crow_indices = lambda: matrix.indices, lambda: matrix.indptr
    kept = SimpleNamespace(**{n: getattr(matrix, n) for n in Rows.__slots__}, format="csr", has_sorted_indices=False)
    for value in (kept, matrix, torch):
        found = operator(SCALED)(value, u)
        np.testing.assert_array_equal(found.data, matrix.data * u[places(matrix)[0]])
        assert found.indices is matrix.indices and found.indptr is matrix.indptr and tuple(found.shape) == (6, 9)
    assert vars(operator(SCALED)(kept, u)).keys() == vars(kept).keys() and kept.data is matrix.data


CALLED = (
    SCALED
    + """def sums(csr float(M, N) A) -> (y) { y(i) +=! A(i, j) }
def columns(csc float(M, N) A) -> (y) { y(j) +=! A(i, j) }
def chain(csr float(P, Q) B, float(P) u) -> (csr T, y) { H = scaled(B, u)  T = scaled(H, u)  y = sums(T) }
"""
)


def test_definitions_give_and_take_sparse_results() -> None:
    matrix, u = draw(6, 9), integers("f4", 6)
    found, y = operator(CALLED, "chain")(matrix, u)
    expected = matrix.data * u[places(matrix)[0]] ** 2
    np.testing.assert_array_equal(found.data, expected)
    np.testing.assert_array_equal(y, to_dense(matrix, expected).sum(1))


@pytest.mark.parametrize(
    ("body", "place", "fragment"),
    [
        ("S(i, j) = exp(A(i, j))", "exp(A(i, j))", "add where exists A(i, j)"),
        ("S(i, j) = u(i)", "S", "add where exists A(i, j), or leave out csr"),
        ("S(i, j) = A(j, i)", "S", "S(i, j) … A(i, j)"),
        ("S(i, j) = A(i, j) where j < i", "S", "j < i ? A(i, j) : 0"),
        ("S(i, j) max=! A(i, j) * u(k)", "A(i, j)", "where exists A(i, j)"),
        ("S(i, j) = A(i, j) * A(i, j)", "A(i, j) * A(i, j)", "add where exists A(i, j)"),
        ("T(i, j) = -A(i, j) where exists A(i, j)  S(i, j) = T(i, j) * A(i, j)", "T(i, j) * A(i, j)", "where exists T(i, j)"),
        ("T(i, j) = -A(i, j) where exists A(i, j)  T(i, j) += u(i)  S(i, j) = T(i, j)", "T", "add where exists A(i, j)"),
        ("S(i, j) = B(i, j) where exists A(i, j)", "B(i, j)", "D(i, j) +=! B(i, j)"),
        ("S(i, j) = B(i, j)  S(i, j) += A(i, j)", "S", "a name of its own"),
        ("S(i, j) = C(i, j)", "S", "declare it csc"),
        ("S = dense(u)", "S", "leave out csr"),
        ("S = columns(A)", "A", "A of columns is csc, and A is csr"),
    ],
)
def test_what_has_no_pattern_or_another_one_is_refused_at_its_place(body: str, place: str, fragment: str) -> None:
    head = "csr float(M, M) A, csr float(M, M) B, csc float(M, M) C, float(M) u"
    text = f"{CALLED}def dense(float(M) u) -> (T) {{ T(i, j) = u(i) * u(j) }}\ndef f({head}) -> (csr S) {{ {body} }}"
    with pytest.raises(PolycError) as caught:
        polyc.compile(text, "f")
    (found,) = caught.value.diagnostics
    assert found.span is not None and place in text[found.span.start : found.span.end], str(caught.value)
    assert fragment in str(caught.value), str(caught.value)


def test_commands_and_headers_give_the_entries_of_sparse_results(tmp_path: Any) -> None:
    (tmp_path / "p.tc").write_text(SCALED)
    path = str(tmp_path / "p.tc")
    ran = CliRunner().invoke(main, ["run", path, "--size", "M=9,N=7,A.nnz=20", "--verify", "--output", str(tmp_path)])
    assert ran.exit_code == 0 and "verified" in ran.output and np.load(tmp_path / "S.npy").shape == (20,), ran.output
    assert CliRunner().invoke(main, ["compile", path]).exit_code == 0
    assert "float S[A.nnz]: written" in (tmp_path / "p.h").read_text()


def test_a_comprehension_over_a_row_is_refused_without_a_crash() -> None:
    def largest(A: "csr[f32[M, N]]") -> Any:
        m[i] = max(A[i, j] for j in range(N))
        return m

    with pytest.raises(PolycError) as caught:
        polyc.op(largest)
    assert caught.value.diagnostics[0].code == "semantic-csr"


def test_a_second_matrix_is_made_dense_by_a_sum_without_declaring_its_sizes() -> None:
    text = """def f(csr float(M, N) A, csr float(M, N) B) -> (y, n) {
      D(i, j) +=! B(i, j)
      y(i) +=! A(i, j) * D(i, j)
      n(j) +=! 1 where exists A(i, j)
    }"""
    for m, n in [(6, 9), (1, 1), (0, 3)]:
        a, other = draw(m, n), draw(m, n)
        b = Rows(other.data + 1, other.indices[::-1].copy(), other.indptr, other.shape)
        y, counts = operator(text)(a, b)
        np.testing.assert_array_equal(y, (to_dense(a) * to_dense(b)).sum(1))
        np.testing.assert_array_equal(counts, np.bincount(a.indices, minlength=n))
    short = "def f(csr float(M, N) A, float(K) c) -> (D) { D(i, j) +=! A(i, j) * c(i) }"
    with pytest.raises(PolycError, match="range-unsolved"):  # c bounds rows as well
        operator(short)(draw(6, 9), np.ones(3, np.float32))


def test_compressed_columns_are_told_from_rows() -> None:
    op = operator("def f(csc float(M, N) A, float(M) u) -> (y, z) { y(j) +=! A(i, j) * u(i)  z +=! A(i, 1) }")
    matrix, u = turn(draw(9, 6)), integers("f4", 6)
    y, z = op(matrix, u)
    np.testing.assert_array_equal(y, to_dense(draw(9, 6)) @ u)
    assert z == to_dense(draw(9, 6))[1].sum() and repr(op) == "<polyc operator f(A: csc f32[M, N], u: f32[M]) -> (y, z)>"
    parts = {n: getattr(matrix, n) for n in Rows.__slots__}
    for change, fragment in (({"format": "csr"}, "pass A.tocsc()"), ({"layout": "torch.sparse_csr"}, "to_sparse_csc")):
        with pytest.raises(PolycError, match=r"in compressed columns \(csc\)") as caught:
            op(SimpleNamespace(**parts, **change), u)
        assert fragment in str(caught.value)


def test_another_number_of_entries_compiles_nothing_and_costs_no_loop() -> None:
    text = "def f(csr float(M, N) A, float(N, K) X) -> (Y) { Y(i, n) +=! A(i, j) * X(j, n) }"
    op = polyc.compile(text)
    x = integers("f4", 9, 3)
    for n_entries in (4, 0, 11):
        matrix = Rows(np.ones(n_entries, "f4"), np.zeros(n_entries, "i4"), np.int32([0, 0, n_entries]), (2, 9))
        np.testing.assert_array_equal(op(matrix, x), to_dense(matrix) @ x)
    assert sum("kernel" in r.message for r in op.remarks if r.pass_name == "dynamic") == 1
    loops = polyc.compile(text, target="x86-64-v4").lower(M=64, N=64, K=8).as_text("loops")
    assert "init_S0" not in loops and "registers Y from 0.0" in loops, loops


def test_a_vector_that_has_fewer_elements_than_rows_blamed_the_matrix() -> None:
    op = operator("def f(csr float(M, N) A, float(K) c) -> (csr S) { S(i, j) = A(i, j) * c(i) }")
    matrix = draw(6, 9)
    np.testing.assert_array_equal(op(matrix, np.ones(7, "f4")).data, matrix.data)
    with pytest.raises(PolycError, match="of c is outside"):
        op(Rows(np.ones(6, "f4"), np.zeros(6, "i4"), np.arange(7, dtype="i4"), (6, 9)), np.ones(4, "f4"))
