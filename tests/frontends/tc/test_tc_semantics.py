"""Names, types, versions and reductions: what a definition means as a Program."""

from __future__ import annotations

import pytest

from polyc.diagnostics import SemanticError
from polyc.frontends.tc import read_tc, read_tc_with_warnings
from polyc.frontends.tc.builtins import BUILTIN_ARITY, BUILTIN_OPERATORS
from polyc.frontends.tc.types import promote_types
from polyc.ir.expr import Const, Index, Pad, Read, Size
from polyc.ir.program import Exists, RangeClause, Reduction, Return
from polyc.ir.text import format_program
from polyc.ir.types import BOOL, C128, DTYPES, F16, F32, F64, I32, I64, U8, U32, U64, DType
from polyc.ir.verify import verify_program
from tests.frontends.tc.rendering import conformance, read_program, read_statements, rename_indices, show_value

SOFTMAX = """
def softmax(float(N, D) X) -> (O) {
  M(n) max=! X(n, d)
  E(n, d) = exp(X(n, d) - M(n))
  Z(n) +=! E(n, d)
  O(n, d) = E(n, d) / Z(n)
}
"""


def test_softmax_with_temporaries() -> None:
    (program,) = read_tc(SOFTMAX)
    assert format_program(program) == (
        "program softmax(X: f32[N, D]) -> (O)\n"
        "  sizes N, D\n"
        "  temporary M: f32[?]\n"
        "  temporary E: f32[?, ?]\n"
        "  temporary Z: f32[?]\n"
        "  output O: f32[?, ?]\n"
        "  S0(n, d): M[n] max= X[n, d] init -inf\n"
        "  S1(n, d): E[n, d] = exp(X[n, d] - M[n])\n"
        "  S2(n, d): Z[n] += E[n, d] init 0.0\n"
        "  S3(n, d): O[n, d] = E[n, d] / Z[n]\n"
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("O(i) = 2", "2:i32"),
        ("O(i) = a(i) + 2", "a[i] + 2.0"),
        ("O(i) = D(i) * a(i)", "D[i] * f64(a[i])"),
        ("O(i) = U(i) == 1 ? a(i) : 0", "i32(U[i]) == 1:i32 ? a[i] : 0.0"),
        ("O(i) = i", "i32(i)"),
        ("O(i) = a(i) / N", "a[i] / f32(i32(N))"),
        ("O(i) = I(i) / 2 % n", "I[i] // 2:i32 % n[]"),
        ("O(i) = a(i) % 2", "a[i] % 2.0"),
        ("O(i) = a(I(i))", "a[i64(I[i])]"),
        ("O(i) = a(int32(D(i)) + i / 2)", "a[i64(i32(D[i])) + i // 2]"),
        ("O(i) = a(int32(i + 1))", "a[i + 1]"),
        ("O(i) = i < N - 1 ? a(i + 1) : s", "i < N - 1 ? a[i + 1] : s[]"),
        ("O(i) = sqrt(I(i))", "sqrt(f32(I[i]))"),
        ("O(i) = fmax(a(i), 0)", "max(a[i], 0.0)"),
        ("O(i) = max(I(i), 0)", "max(I[i], 0:i32)"),
        ("O(i) = fdivide(I(i), 2)", "f32(I[i]) / 2.0"),
        ("O(i) = fabs(D(i))", "abs(D[i])"),
        ("O(i) = pad(a(i - 1), 0)", "pad(a[i - 1], 0.0)"),
        ("O(i) = x * x where x = a(i) + 1", "(a[i] + 1.0) * (a[i] + 1.0)"),
        ("O(i) = a(k) where k = i - 1", "a[i - 1]"),
        ("O(i) = a(k) + k where k = i - 1", "a[i - 1] + f32(i32(i) - 1:i32)"),
        ("O(i) = a(i) * A.1", "a[i] * f32(i32(M))"),
        ("O(i) = a(i + A.1)", "a[i + M]"),
        ("O(i) = a(-2 + i)", "a[-2 + i]"),
        ("O(i) = P(i) && !(a(i) > 0.5)", "P[i] && !(a[i] > 0.5)"),
    ],
)
def test_values_are_explicitly_typed(body: str, expected: str) -> None:
    verify_program(read_program(body))
    assert show_value(body) == expected


def test_literals() -> None:
    def value(text: str) -> Const:
        result = read_statements(f"O(i) = {text}")[0].value
        assert isinstance(result, Const)
        return result

    assert value("3") == Const(3, I32) and value("-2147483648") == Const(-(2**31), I32)
    assert value("3E5") == Const(3e5, F32) and value(".5") == Const(0.5, F32)
    assert value("double(0.1)") == Const(0.1, F64) and value("int64(3000000000)") == Const(3_000_000_000, I64)
    assert value("uint8(200)") == Const(200, U8) and value("float(2)") == Const(2.0, F32)
    # A float32 literal widened by promotion keeps its float32 value.
    widened = read_statements("O(i) = D(i) + 0.1")[0].value.args[1]
    assert widened == Const(0.10000000149011612, F64)


def test_promotion_is_symmetric_and_never_below_its_operands() -> None:
    for a in DTYPES.values():
        for b in DTYPES.values():
            result = promote_types(a, b)
            assert result == promote_types(b, a) and promote_types(result, a) == result
    assert promote_types(U8, U32) == U32 and promote_types(U64, I32) == I64
    assert promote_types(I64, F32) == F32 and promote_types(BOOL, U8) == U8


def test_a_second_assignment_makes_a_version() -> None:
    program = read_program("O(i) = a(i) O(i) = O(i) + 1 Q(i) = O(i) O(i) *= A(i, j)", "O, Q")
    assert [(s.target, s.indices) for s in program.statements] == [
        ("O", ("i",)),
        ("O.1", ("i",)),
        ("Q", ("i",)),
        ("O.2", ("i", "j")),
    ]
    assert [program.tensor(t).role for t in ("O", "O.1", "O.2", "Q")] == ["temporary", "temporary", "output", "output"]
    assert program.returns == (Return("O", "O.2"), Return("Q", "Q"))
    assert program.statements[3].reduction == Reduction("mul", Read("O.1", (Index("i"),)))
    verify_program(program)


def test_versions_may_differ_in_rank() -> None:
    program = read_program("O +=! a(i) O(i) = a(i) - O")
    assert [program.tensor(t).rank for t in ("O", "O.1")] == [0, 1]
    assert program.statements[1].value.args[1] == Read("O", ())


@pytest.mark.parametrize("op", ["+=", "*=", "min=", "max="])
def test_accumulating_into_the_callers_array(op: str) -> None:
    result = read_tc_with_warnings(f"def f(float(N, M) A) -> (O) {{ O(i) {op} A(i, j) }}")
    (program,) = result.programs
    assert program.returns == (Return("O", "O", "O.in"),)
    initial = program.tensor("O.in")
    assert (initial.role, initial.rank, initial.shape, initial.base) == ("accumulated", 1, None, "O")
    assert program.statements[0].reduction.init == Read("O.in", (Index("i"),))
    (warning,) = result.warnings
    assert (warning.code, warning.severity) == ("semantic-accumulate", "warning")
    assert f"accumulates into an output that was not initialized; {op}! was probably meant" in warning.message
    assert warning.span.source.text[warning.span.start : warning.span.end] == op
    verify_program(program)


def test_accumulating_twice_warns_once() -> None:
    result = read_tc_with_warnings("def f(float(N) A) -> (O) { O(i) += A(i) O(i) += A(i) }")
    assert len(result.warnings) == 1 and result.programs[0].returns == (Return("O", "O.1", "O.in"),)


def test_an_initialised_reduction_without_reduction_index_is_an_assignment() -> None:
    (statement,) = read_statements("O(i) +=! a(i)")
    assert statement.reduction is None


def test_continuing_without_reduction_index() -> None:
    program = read_program("O(i) = a(i) O(i) += a(i)")
    assert program.statements[1].reduction == Reduction("add", Read("O", (Index("i"),)))
    assert program.statements[1].indices == ("i",)


@pytest.mark.parametrize(
    ("op", "value", "init"),
    [
        ("+=!", "a(j)", Const(0.0, F32)),
        ("*=!", "D(j)", Const(1.0, F64)),
        ("max=!", "a(j)", Const(float("-inf"), F32)),
        ("min=!", "I(j)", Const(2**31 - 1, I32)),
        ("max=!", "U(j)", Const(0, U8)),
        ("max=!", "P(j)", Const(False, BOOL)),
    ],
)
def test_identities(op: str, value: str, init: Const) -> None:
    assert read_statements(f"O {op} {value}")[0].reduction.init == init


def test_annotated_results() -> None:
    program = read_program("O(i) +=! I(i) * A(i, j) Q(i) = I(i)", "double(N) O, int64(3) Q")
    assert program.tensor("O").dtype == F64 and program.tensor("O").shape == (Size("N"),)
    assert program.tensor("Q").dtype == I64 and program.tensor("Q").shape == (Const(3),)
    assert program.statements[0].reduction.init == Const(0.0, F64)
    verify_program(program)


def test_index_order_is_left_then_first_appearance() -> None:
    (statement,) = read_statements("O(i, j) +=! a(l) * A(k, j) * a(i) where k in 0:3")
    assert statement.indices == ("i", "j", "l", "k")
    assert statement.reduction_indices == ("l", "k")


def test_where_clauses_become_clauses() -> None:
    (statement,) = read_statements("O(i) = 1 where i in 0:N*N+1, i in x:9, x = M / 2, exists a(i + 1)")
    first, second, third = statement.where
    assert isinstance(first, RangeClause) and isinstance(second, RangeClause) and isinstance(third, Exists)
    assert (first.index, second.index) == ("i", "i")
    assert third.value.tensor == "a"


def test_sizes_by_first_appearance_and_extents() -> None:
    (program,) = read_tc("def f(float(M, 3) A, float(K, M) B) -> (O) { O(i) +=! A(i, j) * B(k, i) }")
    assert program.sizes == ("M", "K") and program.tensor("A").shape == (Size("M"), Const(3))


def test_a_left_index_hides_a_scalar() -> None:
    (statement,) = read_statements("O(n) = I(n)")
    assert statement.value == Read("I", (Index("n"),))


@pytest.mark.parametrize(
    ("dtype", "value"), [("int8", "0"), ("int8", "-128"), ("uint8", "255"), ("float16", "0.0"), ("bfloat16", "-1.5")]
)
def test_literals_around_narrow_tensors_need_no_conversion(dtype: str, value: str) -> None:
    (program,) = read_tc(f"def f({dtype}(N) A) -> (O) {{ O(i) = pad(A(i - 1), {value}) where i in 0:N }}")
    pad = program.statements[0].value
    assert isinstance(pad, Pad) and isinstance(pad.value, Const)
    assert pad.value.value == float(value)


@pytest.mark.parametrize(
    ("x", "value", "found"),
    [
        ("float", "0.5 * pad(y(i - 1), 0.0)", F32),
        ("double", "pad(z(i), double(1.5))", F64),
        ("float16", "pad(y(i - 1), 1.5)", F16),
    ],
)
def test_a_recurrence_that_only_values_of_pad_begin_has_the_type_of_its_terms(x: str, value: str, found: DType) -> None:
    body = f"y(i) = max(x(i), {value}) where i in 0:N  z(i) = pad(y(i - 1), {x}(0.5))"
    (program,) = read_tc(f"def f({x}(N) x) -> (y) {{ {body} }}")
    assert {t.dtype for t in program.tensors if t.name == "y"} == {found}


@pytest.mark.parametrize(
    ("x", "start", "found"),
    [("double", "0.0", F64), ("float", "-1", F32), ("int64", "0", I64), ("double", "1", F64), ("complex128", "0", C128)],
)
def test_a_literal_that_starts_a_tensor_has_the_type_of_the_other_parts(x: str, start: str, found: DType) -> None:
    body = f"S(0) = {start} S(i + 1) = S(i) + x(i) T(i) = S(i)"
    (program,) = read_tc(f"def f({x}(N) x) -> (T) {{ {body} }}")
    assert {t.dtype for t in program.tensors} == {found}


def test_a_literal_that_starts_doubles_is_warned_of_where_it_is_rounded() -> None:
    result = read_tc_with_warnings("def f(double(N) x) -> (S) { S(0) = 0.1 S(i + 1) = S(i) + x(i) }")
    assert [w.code for w in result.warnings] == ["type-rounded-literal"]


def test_what_a_recurrence_is_told_does_not_come_from_a_guessed_type() -> None:
    with pytest.raises(SemanticError) as caught:
        read_tc("def f(float(N) x) -> (y) { y(i) = x(i) + pad(y(i - 1), 0.5) + q(i) + pad(r(i), 0.0) where i in 0:N }")
    assert [f.message for f in caught.value.diagnostics] == [f"undefined variable {n} used here" for n in "qr"]


@pytest.mark.parametrize(("dtype", "value"), [("int8", "128"), ("uint8", "-1"), ("float16", "0.1"), ("int8", "0.0")])
def test_literals_that_narrow_tensors_cannot_hold(dtype: str, value: str) -> None:
    with pytest.raises(SemanticError, match="type-narrowing"):
        read_tc(f"def f({dtype}(N) A) -> (O) {{ O(i) = pad(A(i - 1), {value}) where i in 0:N }}")


def test_a_tensor_named_pad() -> None:
    (program,) = read_tc("def f(float(N) I) -> (pad, O) { pad(i) = I(i - 1) O(i) = pad(i) + 1 }")
    assert program.statements[1].value.args[0] == Read("pad", (Index("i"),))


def test_every_builtin_is_known() -> None:
    expected = conformance()["syntax"]["builtins"]
    assert {name: BUILTIN_ARITY[name] for name in expected} == expected
    assert set(expected) <= set(BUILTIN_OPERATORS)
    for name, arity in expected.items():
        program = read_program(f"O(i) = {name}({', '.join(['I(i)'] * arity)})")
        assert program.tensor("O").dtype == F32
        verify_program(program)


def test_alpha_equivalent_programs() -> None:
    data = conformance()
    texts = {}
    for kernel in data["kernels"]:
        for name in (kernel["id"], *(a if isinstance(a, str) else a["id"] for a in kernel.get("also", ()))):
            texts[name] = kernel["text"]
    for pair in data["syntax"]["alpha_equivalent"]:
        programs = [rename_indices(read_tc(texts[name])[0]) for name in pair if name in texts]
        assert all(p == programs[0] for p in programs)
    first, second = (
        read_tc(f"def f(float(B, N, M) X, float(B, M, K) Y) -> (Z) {{ Z({left}) +=! X({x}) * Y({y}) }}")[0]
        for left, x, y in (("b, i, j", "b, i, k", "b, k, j"), ("p, q, r", "p, q, s", "p, s, r"))
    )
    assert first != second and rename_indices(first) == rename_indices(second)


def test_conformance_kernels_become_well_formed_programs() -> None:
    for kernel in conformance()["kernels"]:
        result = read_tc_with_warnings(kernel["text"])
        program = next(p for p in result.programs if p.name == kernel["entry"])
        verify_program(program)
        accumulates = any(r.initial for r in program.returns)
        assert accumulates == bool(kernel.get("inout")) or kernel["level"] == "inplace", kernel["id"]


def test_conformance_warnings() -> None:
    data = conformance()
    for entry in data["warn"]:
        (warning,) = read_tc_with_warnings(entry["text"]).warnings
        assert entry["warning"] in warning.message
    for entry in (*data["quiet"], *data["inference"]):
        assert not read_tc_with_warnings(entry["text"]).warnings


@pytest.mark.parametrize(
    ("value", "shown"), [("1/2 * A(i)", "1/2 divides integers: it is 0"), ("4/2 * A(i)", None), ("A(3/2)", None)]
)
def test_quotient_of_whole_numbers_that_is_rounded_is_warned_of(value: str, shown: str | None) -> None:
    result = read_tc_with_warnings(f"def f(float(N) A) -> (O) {{ O(i) = {value} where i in 0:2 }}")
    assert [w.message for w in result.warnings if w.code == "type-integer-division"] == ([shown] if shown else [])


@pytest.mark.parametrize(
    ("value", "type_name", "n_warned"),
    [
        ("A(i) * 0.1", "double", 1),
        ("fmax(A(i), -0.1) > 0.3 ? 1.0 : 0.0", "double", 2),
        ("A(i) * 0.1", "float", 0),
        ("A(i) * double(0.1) + 0.5", "double", 0),
    ],
)
def test_literal_that_is_rounded_beside_a_double_is_warned_of(value: str, type_name: str, n_warned: int) -> None:
    result = read_tc_with_warnings(f"def f({type_name}(N) A) -> (O) {{ O(i) = {value} }}")
    found = [w.message for w in result.warnings if w.code == "type-rounded-literal"]
    assert len(found) == n_warned
    assert not found or "0.1" in found[0]


def test_parentheses_in_comments_do_not_hide_what_selects() -> None:
    text = "def f(float(M, N) A) -> (v, p) {{ {} (v(i), p(i){}) {} argmax=! A(i, j) }}"
    plain, commented = (read_tc(text.format(*c)) for c in (("", "", ""), ("# ) ((\n", " # )\n", "# ( argmax=!\n")))
    assert format_program(commented[0]) == format_program(plain[0])


def test_names_of_functions_that_are_missing_are_free() -> None:
    """Images have an y0 and an y1, which are Bessel functions elsewhere."""
    (program,) = read_tc("def f(float(N) j0) -> (y1) { y1(i) = y0 + rint(y0) where y0 = j0(i) }")
    assert "y1[i] = j0[i] + rint(j0[i])" in format_program(program)
