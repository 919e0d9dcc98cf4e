"""Matrices in compressed rows (``csr``): sums over their entries against dense products, and what is refused and where."""

# ruff: noqa: F821, UP037
from __future__ import annotations

import functools
import inspect
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import polyc
from polyc.cache import SourcePlaces, decode, encode
from polyc.cli import main
from polyc.diagnostics import PolycError
from polyc.ir.compressed import retype_subscripts
from polyc.ir.interpret import interpret
from polyc.ir.text import format_program
from polyc.ir.types import from_numpy
from polyc.runtime.compressed import Rows

Array = np.ndarray[Any, Any]

SUMS = """def sums(csr {t}(M, N) A, {t}(N, K) X, {t}(M) u, {t}(N) w)
    -> (Y, {t}(N) back, {t}(M, N) dense, low, y, total, part) {{
  Y(i, n) +=! A(i, j) * X(j, n)
  back(j) +=! A(i, j) * u(i)
  dense(i, j) +=! A(i, j)
  low(i) +=! A(i, j) * w(j) where j < i
  y(i) = u(i)
  y(i) += w(j) * A(i, j) - (-A(i, j)) * w(j)
  total +=! A(i, j) * {t}(j)
  part(i) +=! (i > 1 ? A(i, j) * w(j) : {t}(0)) where j in 1:N
}}"""


@functools.cache
def operator(text: str, dynamic: bool = True) -> Any:
    return polyc.compile(text, dynamic=dynamic)


def draw(m: int, n: int, dtype: Any, subscripts: Any = np.int32) -> tuple[Rows, Array]:
    """A matrix with empty rows, duplicates and columns in any order, and the same with all its zeros."""
    rng = np.random.default_rng([m, n])
    counts = rng.integers(0, 5, m) * (rng.random(m) < 0.7) if n else np.zeros(m, int)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(subscripts)
    indices = rng.integers(0, max(n, 1), indptr[-1]).astype(subscripts)
    data = rng.integers(-4, 5, indptr[-1]).astype(dtype)
    dense = np.zeros((m, n), dtype)
    np.add.at(dense, (np.repeat(np.arange(m), counts), indices), data)
    return Rows(data, indices, indptr, (m, n)), dense


def integers(dtype: Any, *shape: int) -> Array:
    return np.random.default_rng(shape).integers(-3, 4, shape).astype(dtype)


def expect(dense: Array, x: Array, u: Array, w: Array) -> tuple[Any, ...]:
    m, n = dense.shape
    below = np.arange(n)[None] < np.arange(m)[:, None]
    part = np.where(np.arange(m) > 1, dense[:, 1:] @ w[1:], 0)
    total = (dense * np.arange(n)).sum()
    return dense @ x, dense.T @ u, dense, (dense * below) @ w, u + 2 * (dense @ w), total, part


@pytest.mark.parametrize(
    ("name", "dtype", "subscripts"), [("float", "f4", "i4"), ("double", "f8", "i8"), ("int32", "i4", "i4")]
)
def test_sums_over_entries_are_those_of_dense_matrices(name: str, dtype: str, subscripts: str) -> None:
    op = operator(SUMS.format(t=name))
    for m, n in [(6, 9), (40, 5), (1, 1), (4, 0), (0, 3)]:
        matrix, dense = draw(m, n, dtype, subscripts)
        others = integers(dtype, n, 3), integers(dtype, m), integers(dtype, n)
        for found, expected in zip(op(matrix, *others), expect(dense, *others), strict=True):
            np.testing.assert_array_equal(found, expected)
    program = retype_subscripts(
        op.program, dict.fromkeys(op.program.compressed[0].subscripts, from_numpy(np.dtype(subscripts)))
    )
    flat = dict(zip(program.parameters, (matrix.data, matrix.indices, matrix.indptr, *others), strict=True))
    read = interpret(program, flat, {"M": m, "N": n, "K": 3, "A.nnz": len(matrix.data)})
    for r, expected in zip(program.returns, expect(dense, *others), strict=True):
        np.testing.assert_array_equal(read[r.name], expected)


ROWS = "def rows(csr double(M, N) A, double s) -> (y) { y(i) +=! s * A(i, j) / double(N) }"


def test_a_number_of_columns_that_no_array_has_is_that_of_the_matrix() -> None:
    op = operator(ROWS)
    matrix, dense = draw(5, 4, "f8")
    wide = Rows(matrix.data, matrix.indices, matrix.indptr, (5, 8))
    for _ in range(2):  # planned calls, too
        np.testing.assert_array_equal(op(matrix, 2.0), 2.0 * dense.sum(1) / 4)
        np.testing.assert_array_equal(op(wide, s=4.0), 4.0 * dense.sum(1) / 8)
    bound = pickle.loads(pickle.dumps(op.bind(A=wide)))
    assert repr(bound) == "<polyc operator rows(s: f64) -> (y) with A 5×8>"
    np.testing.assert_array_equal(bound(4.0), 4.0 * dense.sum(1) / 8)
    other = op.bind(s=2.0)
    np.testing.assert_array_equal(other(A=matrix), 2.0 * dense.sum(1) / 4)
    for call, code in ((lambda: bound(4.0, A=wide), "argument-bound"), (lambda: bound.bind(A=wide), "argument-bound")):
        with pytest.raises(PolycError) as caught:
            call()
        assert caught.value.code == code


def test_results_are_added_to_and_written_where_the_call_says() -> None:
    op = operator("def more(csr float(M, N) A, float(N) x, float(M) b) -> (y) { y(i) = b(i)  y(i) += A(i, j) * x(j) }", False)
    matrix, dense = draw(6, 6, "f4")
    x, out = integers("f4", 6), np.empty(6, np.float32)
    assert op(matrix, x, x, out=out) is out
    np.testing.assert_array_equal(out, x + dense @ x)


def test_an_operator_shows_the_matrix_as_one_input() -> None:
    op = operator(ROWS)
    assert repr(op) == "<polyc operator rows(A: csr f64[M, N], s: f64) -> (y)>"
    assert [*inspect.signature(op).parameters][:3] == ["A", "s", "out"]


def test_packages_are_known_by_the_attributes_of_their_matrices() -> None:
    op, (matrix, dense) = operator(ROWS), draw(5, 4, "f8")
    given = SimpleNamespace(layout="torch.sparse_csr", shape=matrix.shape, values=lambda: matrix.data)
    given.col_indices, given.crow_indices = lambda: matrix.indices, lambda: matrix.indptr
    scipy = SimpleNamespace(**{n: getattr(matrix, n) for n in ("data", "indices", "indptr", "shape")}, format="csr")
    compressed = SimpleNamespace(**{**vars(scipy), "format": "gcxs"}, compressed_axes=(0,))
    for value in (given, scipy, compressed):
        np.testing.assert_array_equal(op(value, 4.0), dense.sum(1))


def test_both_notations_give_one_program() -> None:
    @polyc.op
    def f(A: "csr[f32[M, N]]", X: "f32[N, K]", u: "f32[M]") -> ("f32[M, K]", "f32[N]"):
        Y[i, n] = sum(A[i, j] * X[j, n])
        b[j] += A[i, j] * u[i]
        return Y, b

    text = """def f(csr float(M, N) A, float(N, K) X, float(M) u) -> (float(M, K) Y, float(N) b) {
      Y(i, n) +=! A(i, j) * X(j, n)  b(j) +=! A(i, j) * u(i) }"""
    program = polyc.compile(text).program
    assert format_program(f.program) == format_program(program)
    places = SourcePlaces()
    plain = encode(program, places)
    assert decode(plain, SourcePlaces(places.plain_sources())).compressed == program.compressed


def test_a_function_with_open_types_and_constants_takes_matrices() -> None:
    @polyc.op
    def f(A: "csr[f64[M, N]]", x, *, scale=2):
        with polyc.where(0 <= j < 3):
            y[i] += scale * A[i, j] * x[j]
        return y

    matrix, dense = draw(5, 4, "f8", "i8")
    x = integers("f8", 4)
    np.testing.assert_array_equal(f(matrix, x, scale=3), 3 * (dense[:, :3] @ x[:3]))
    assert repr(f) == "<polyc operator f(A: csr f64[M, N], x)>"


TERMS = "csr float(M, N) A, csr float(M, N) B, csr uint8(M, N) C, float(N) x, int32(M) k"


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("Y(i) max=! A(i, j)", "A(i, j)"),
        ("Y(i) argmax=! A(i, j)", "A(i, j)"),
        ("Y(i, j) = A(i, j)", "A(i, j)"),
        ("Y(i) +=! A(i, j) * A(i, j)", "A(i, j) * A(i, j)"),
        ("Y(i) +=! z * z where z = A(i, j)", "z * z"),
        ("Y(i) +=! exp(A(i, j))", "exp(A(i, j))"),
        ("Y(i) +=! x(j) / A(i, j)", "x(j) / A(i, j)"),
        ("Y(i) +=! int32(A(i, j))", "A(i, j)"),
        ("Y(i) +=! A(i, j) > 0.0 ? x(j) : 0.0", "A(i, j) > 0.0"),
        ("Y(i) +=! x(int32(A(i, j)))", "int32(A(i, j))"),
        ("Y(i) +=! pad(A(i, j), 0.0)", "pad(A(i, j), 0.0)"),
        ("Y(i) +=! A(i, j) + x(j)", "x(j)"),
        ("Y(i) +=! i > 1 ? A(i, j) : 1.0", "1.0"),
        ("Y(i) +=! x(j) where exists 2.0 * A(i, j)", "exists 2.0 * A(i, j)"),
        ("Y(i) argmax=! A(i, j) where exists A(i, j)", "A(i, j)"),
        ("Y(i) +=! A(i, j) * B(i, j)", "B(i, j)"),
        ("Y(i) +=! A(i, j) * x(j) + A(j, i)", "A(j, i)"),
        ("Y(i) +=! A(i, j + 1)", "A(i, j + 1)"),
        ("Y(i) +=! A(i, i)", "A(i, i)"),
        ("Y(i) +=! A(k(i), j)", "A(k(i), j)"),
        ("Y(i) +=! int32(-C(i, j))", "-C(i, j)"),
        ("Y(i) +=! -C(i, j) * x(j)", "-C(i, j)"),
    ],
)
def test_what_is_no_sum_of_terms_linear_in_the_entries_is_refused_at_its_place(statement: str, place: str) -> None:
    text = f"def f({TERMS}) -> (Y) {{ {statement} }}"
    with pytest.raises(PolycError) as caught:
        polyc.compile(text)
    (found,) = caught.value.diagnostics
    assert found.code == "semantic-csr" and found.span is not None
    assert found.help and place in text[found.span.start : found.span.end], str(caught.value)


@pytest.mark.parametrize(
    ("text", "code", "fragment"),
    [
        ("def f(csr float(M) A) -> (y) { y(i) +=! A(i, j) }", "semantic-csr", "1 dimension"),
        ("def f(csr bool(M, N) A) -> (y) { y(i) +=! A(i, j) }", "semantic-csr", "astype('int8')"),
        ("def f(float(N) x) -> (csr float(N, N) y) { y(i, j) = x(i) * x(j) }", "semantic-csr", "dense"),
        ("def f(bsr float(M, N) A) -> (y) { y = 1.0 }", "syntax-unexpected", "csr float(M, N) A"),
        ("def f(csr A) -> (y) { y(i) +=! A(i, j) }", "semantic-parameter-type", "write csr float(M, N) A"),
        ("def f(csc csc float(M, N) A) -> (y) { y(i) +=! A(i, j) }", "syntax-unexpected", "write csc once: csc float(M, N) A"),
        ("def f(csr(M, N) A) -> (y) { y(i) +=! A(i, j) }", "syntax-unexpected", "type of its entries: csr float(M, N) A"),
    ],
)
def test_a_matrix_is_a_parameter_of_numbers(text: str, code: str, fragment: str) -> None:
    with pytest.raises(PolycError) as caught:
        polyc.compile(text)
    assert caught.value.code == code and fragment in str(caught.value) and len(caught.value.diagnostics) == 1


@pytest.mark.parametrize(
    ("annotation", "code"),
    [
        ("csr[f32]", "semantic-csr"),
        ("csr[bool[M, N]]", "semantic-csr"),
        ("csr[M, N]", "semantic-annotation"),
        ("csr", "semantic-annotation"),
    ],
)
def test_annotations_that_are_no_matrices_are_refused_where_they_stand(annotation: str, code: str) -> None:
    with pytest.raises(PolycError) as caught:
        polyc.op(f"def f(A: '{annotation}', x):\n    y[i] += A[i, j] * x[j]\n    return y\n")
    assert caught.value.code == code and len(caught.value.diagnostics) == 1


CALLED = """def product(csr float(M, N) A, float(N, K) X) -> (Y) { Y(i, n) +=! A(i, j) * X(j, n) }
def back(csr float(R, C) B, float(R, K) X) -> (float(C, K) Y, width) { Y(j, n) +=! B(i, j) * X(i, n)  width = float(C) }
def dense(float(M, N) A) -> (y) { y(i) +=! A(i, j) }
def wider(csr double(M, N) A) -> (y) { y(i) +=! A(i, j) }
def both(csr float(M, N) A, csr float(M, N) B) -> (y) { y(i) +=! A(i, j)  y(i) += B(i, j) }
"""


def test_definitions_are_called_with_matrices() -> None:
    text = f"{CALLED} def f(csr float(V, U) A, float(U, K) X) -> (Y, w) {{ H = product(A, X)  (Y, w) = back(A, H) }}"
    matrix, dense = draw(5, 7, "f4")
    x = integers("f4", 7, 2)
    found, width = polyc.compile(text, "f")(matrix, x)
    np.testing.assert_array_equal(found, dense.T @ (dense @ x))
    assert width == 7
    product = polyc.compile(CALLED, "product")

    @polyc.op
    def f(A: "csr[f32[V, U]]", X: "f32[U, K]"):
        H = product(A, X)
        return H

    assert "A.data[A.entry] * X[i64(A.indices[A.entry]), n]" in format_program(f.program)
    with pytest.raises(PolycError, match="A of product is csr, and A is a dense tensor"):

        @polyc.op
        def g(A: "f32[V, U]", X: "f32[U, K]"):
            H = product(A, X)
            return H


@pytest.mark.parametrize(
    ("call", "fragment"),
    [
        ("dense(A)", "A is csr, and A of dense is a dense tensor"),
        ("product(D, X)", "A of product is csr, and D is a dense tensor"),
        ("product(2, X)", "must be the name of a tensor"),
        ("product(A)", "its parameters are: A, X"),
        ("wider(A)", "A of wider is float64, and A is float32"),
        ("both(A, B)", "B has the extent P where B of both has N"),
    ],
)
def test_arguments_for_matrices_are_matrices_of_the_same_type_and_sizes(call: str, fragment: str) -> None:
    text = f"{CALLED} def f(csr float(M, N) A, csr float(M, P) B, float(M, N) D, float(N, K) X) -> (Y) {{ Y = {call} }}"
    with pytest.raises(PolycError) as caught:
        polyc.compile(text, "f")
    assert fragment in str(caught.value)


PRODUCT = "def product(csr float(M, N) A, float(N) x) -> (y) { y(i) +=! A(i, j) * x(j) }"


@pytest.mark.parametrize(
    ("change", "code", "fragment"),
    [
        ({"indices": np.int32([0, 4, 1])}, "bounds-index", "subscript 4 of dimension 0 of x"),
        ({"indices": np.int32([0, -1, 1])}, "bounds-index", "subscript -1"),
        ({"indptr": np.int32([0, 2, 1, 3])}, "argument-segments", "A.indptr(i) (at i = 1) (A.nnz = 3)"),
        ({"indptr": np.int32([1, 1, 1, 3])}, "argument-segments", "A.indptr begins with 1"),
        ({"indptr": np.zeros(0, np.int32)}, "argument-size", "A"),
        ({"indptr": np.int32([0, 1, 2, 4])}, "argument-segments", "A.indptr(i + 1) is 4"),
        ({"indptr": np.int32([0, 1, 3])}, "argument-size", "A's dimension 0 is 3"),
        ({"indices": np.int32([0, 1])}, "argument-size", "A.data's dimension 0 is 3"),
        ({"shape": (3, 5)}, "argument-size", "x has 4 elements (dimension 0), but N is 5 since A's dimension 1 is 5"),
        ({"shape": (3,)}, "argument-rank", "1 dimension,"),
        ({"shape": (3, -4)}, "argument-size", "A.shape[1] must not be negative"),
        ({"shape": (3, 2**64 + 4)}, "argument-size", "beyond 2**62"),
        ({"shape": (3, 4.5)}, "argument-type-size", "A.shape[1] must be an integer"),
        ({"fill_value": 1.5}, "argument-type-csr", "A is 1.5 beside its entries"),
        ({"shape": None}, "argument-type-csr", "whose shape is None"),
        ({"compressed_axes": 5}, "argument-type-csr", "compressed along 5"),
        ({"data": np.float64([1, 2, 3])}, "argument-type-dtype", "A.data"),
        ({"indices": np.uint16([0, 1, 2])}, "argument-type-csr", "int32 or int64"),
        ({"format": "csc"}, "argument-type-csr", "pass A.tocsr()"),
        ({"format": "gcxs", "compressed_axes": (1,)}, "argument-type-csr", "change_compressed_axes"),
        ({"layout": "torch.strided"}, "argument-type-csr", "to_sparse_csr"),
    ],
)
def test_what_a_call_gives_wrong_is_named_and_nothing_is_written(change: dict[str, Any], code: str, fragment: str) -> None:
    good = {"data": np.float32([1, 2, 3]), "indices": np.int32([0, 3, 1]), "indptr": np.int32([0, 1, 1, 3]), "shape": (3, 4)}
    out = np.full(3, 7, np.float32)
    with pytest.raises(PolycError) as caught:
        operator(PRODUCT)(SimpleNamespace(**{**good, **change}), np.ones(4, np.float32), out=out)
    assert caught.value.code == code and fragment in str(caught.value), str(caught.value)
    if not code.startswith("bounds"):  # columns are checked as they are read
        np.testing.assert_array_equal(out, 7)


def test_entries_are_added_up_in_the_type_that_they_are_converted_to() -> None:
    matrix = Rows(np.uint8([200, 100]), np.int32([0, 0]), np.int32([0, 2]), (1, 1))
    assert operator("def f(csr uint8(M, N) A) -> (y) { y(i) +=! int32(A(i, j)) }")(matrix) == 300


def test_bound_subscripts_are_of_the_types_that_calls_give() -> None:
    matrix = Rows(np.float64([1.0]), np.uint32([0]), np.int32([0, 1]), (1, 1))
    with pytest.raises(PolycError, match=r"A\.indices is uint32"):
        operator(ROWS).bind(A=matrix)


def test_a_row_that_a_matrix_does_not_have_is_told_once_and_as_a_row() -> None:
    matrix, _ = draw(3, 4, "f4")
    for row, told in [("7", "row 7 of A is outside of 0:3"), ("i + 1", "row i + 1 of A is outside of 0:3 (with i in 0:3)")]:
        op = operator(f"def f(csr float(3, N) A, float(3) u) -> (y) {{ y +=! A({row}, j) * u(i) where i in 0:3 }}", False)
        with pytest.raises(PolycError) as caught:
            op(matrix, np.ones(3, np.float32))
        assert told in str(caught.value) and len(caught.value.diagnostics) == 1 and "pad" not in str(caught.value)


@pytest.mark.parametrize("dynamic", [True, False])
def test_rows_that_an_empty_matrix_does_not_have_are_refused(dynamic: bool) -> None:
    matrix = Rows(np.zeros(0, np.float32), np.zeros(0, np.int32), np.int32([0, 2])[:1], (0, 6))
    with pytest.raises(PolycError) as caught:
        operator("def f(csr float(M, N) A) -> (y) { y +=! A(0, j) }", dynamic)(matrix)
    assert caught.value.code in ("range-out-of-bounds", "range-precondition"), str(caught.value)


def test_arrays_and_numbers_are_no_matrices() -> None:
    for value in (np.eye(4, dtype=np.float32), [[1.0]], 3.0, None):
        with pytest.raises(PolycError) as caught:
            operator(PRODUCT)(value, np.ones(4, np.float32))
        assert caught.value.code == "argument-type-csr" and "csr_array(A)" in str(caught.value)


def test_commands_take_matrices_as_three_arrays(tmp_path: Any) -> None:
    (tmp_path / "p.tc").write_text(PRODUCT)
    path = str(tmp_path / "p.tc")
    ran = CliRunner().invoke(main, ["run", path, "--size", "M=9,N=7,A.nnz=20", "--verify"])
    assert ran.exit_code == 0 and "verified" in ran.output, ran.output
    assert CliRunner().invoke(main, ["compile", path]).exit_code == 0
    header = (tmp_path / "p.h").read_text()
    assert "const float A.data[A.nnz]: read" in header and "const int32_t A.indptr[(M + 1)]: read" in header


def draw_statement(rng: np.random.Generator) -> str:
    """A sum over the entries of A (M by N), at random."""
    row = rng.choice(["i", "i + 1", "M - 1 - i", "1"])
    entry = f"A({row}, j)"
    factors = ["x(j)", "u(i)", "2.0", "float(j)", "W(i, j)", "(j < i ? 3.0 : -1.0)", "x((j + 1) % N)", "exp(x(j))"]

    def term(depth: int) -> str:
        form = rng.integers(0, 7 if depth else 2)
        inner, factor = (term(depth - 1) if depth else entry), rng.choice(factors)
        forms = [f"{factor} * {inner}", f"{inner} / 4.0", f"-({inner})", f"({inner} - {term(depth - 1) if depth else entry})"]
        forms += [f"(i + j > 3 ? {inner} : 0.0)", f"({factor} > 0.0 ? {inner} : {inner} * 2.0)", f"double({inner})"]
        return forms[form]

    left = rng.choice(["Y(i)", "Z(j)", "T(i, j)", "S"])  # r: so that all of them reduce
    clauses = rng.choice(["", ", j < i", ", j in 1:N-1", ", j >= 1, j + i < 5", ", j in 0:N"])
    return f"{left} +=! v(r) * u(i) * {term(2)} where i in 0:M-1{clauses}"


@pytest.mark.parametrize("seed", range(30))
def test_random_sums_are_those_of_the_same_text_with_a_dense_matrix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    statement, (matrix, dense) = draw_statement(rng), draw(4, 6, "f4")
    results = {"Y": "Y", "Z": "double(N) Z", "T": "double(M, N) T", "S": "S"}[statement[0]]
    text = f"def f({{}}float(M, N) A, float(N) x, float(M) u, float(2) v, float(M, N) W) -> ({results}) {{{{ {statement} }}}}"
    others = {"x": integers("f4", 6) / 2, "u": integers("f4", 4), "v": np.ones(2), "W": integers("f4", 4, 6)}
    others = {n: a.astype("f4") for n, a in others.items()}
    flat = {"A.data": matrix.data, "A.indices": matrix.indices, "A.indptr": matrix.indptr, **others}
    sizes = {"M": 4, "N": 6, "A.nnz": len(matrix.data)}
    expected = interpret(polyc.compile(text.format("")).program, {"A": dense, **others}, sizes)
    found = interpret(polyc.compile(text.format("csr ")).program, flat, sizes)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5, err_msg=statement)
