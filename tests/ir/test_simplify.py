"""Canonical integer expressions: same value, one form, and symbols for sizes that are not affine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyc.ir.expr import Call, Const, Expr, Index, Read, Select, Size, evaluate, int_const
from polyc.ir.simplify import linear_form, simplify
from polyc.ir.sizes import define_sizes
from polyc.ir.text import format_expr, format_program
from polyc.ir.text_reader import parse_program
from polyc.ir.types import F32
from polyc.ir.verify import verify_program


def read(text: str) -> Expr:
    """An expression over the indices i, j, k and the sizes N, M, K."""
    header = "program p() -> (O) sizes N, M, K output O: i64[?] S0(i, j, k): O[i] = "
    return parse_program(header + text).statements[0].value


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(i + 1) * 2 - i", "i + 2"),
        ("N * M - M * N", "0"),
        ("(N + 1) * M - M", "M * N"),
        ("-i + 10", "10 - i"),
        ("3 + j * 2 - N + i", "i + 2 * j - N + 3"),
        ("(4 * i + 6) // 4", "i + 1"),
        ("(4 * i + 6 * j + 3) // 4", "i + (3 * j + 1) // 2"),
        ("(i // 3) // 4", "i // 12"),
        ("(8 * i + j) % 4", "j % 4"),
        ("(6 * i) % 4", "2 * (i % 2)"),
        ("min(N + 1, N)", "N"),
        ("max(i, max(j, i + 2))", "max(j, i + 2)"),
        ("i // 0", "0"),
        ("i < i + 1 ? j : k", "j"),
        ("i - i < N ? j : k", "0 < N ? j : k"),
        ("32 * (i // 32) + i % 32 - i % 32", "32 * (i // 32)"),
    ],
)
def test_rules(before: str, after: str) -> None:
    assert format_expr(simplify(read(before))) == after


def test_linear_form() -> None:
    i, n = Index("i"), Size("N")
    assert linear_form(read("2 * (i - N) + 3 - i")) == {i: 1, n: -2, 1: 3}
    assert linear_form(read("i - i")) == {}
    assert linear_form(Const(1.0, F32)) is None
    assert linear_form(Read("A", (i,))) is None
    assert linear_form(Call("add", (Read("A", (i,)), n))) == {Read("A", (i,)): 1, n: 1}
    assert linear_form(Call("lt", (i, n))) is None


_LEAVES = st.sampled_from([Index("i"), Index("j"), Size("N"), Size("M")]) | st.integers(-5, 7).map(int_const)


def _grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    two = st.sampled_from(["add", "sub", "mul", "floordiv", "mod", "max", "min"])
    divide = st.sampled_from(["floordiv", "mod"])
    compare = st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"])
    return (
        st.builds(lambda op, a, b: Call(op, (a, b)), two, inner, inner)
        | st.builds(lambda op, a: Call(op, (a,)), st.sampled_from(["neg", "abs"]), inner)
        | st.builds(lambda op, a, b, c, d: Select(Call(op, (a, b)), c, d), compare, inner, inner, inner, inner)
        | st.builds(lambda op, a, k: Call(op, (a, int_const(k))), divide, inner, st.integers(-4, 6))
    )


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.recursive(_LEAVES, _grow, max_leaves=12), st.lists(st.integers(-9, 9), min_size=4, max_size=4))
def test_value_stays_and_the_form_is_final(expr: Expr, numbers: list[int]) -> None:
    values = dict(zip(("i", "j", "N", "M"), numbers, strict=True))
    short = simplify(expr)
    assert evaluate(short, values) == evaluate(expr, values)
    assert simplify(short) == short


def test_define_sizes() -> None:
    program = define_sizes(
        parse_program(
            """program p(A: f32[N, M], B: f32[N * M + 1]) -> (O)
                 sizes N, M
                 output O: f32[?]
                 S0(i): O[i] = A[i // M, i % M] + B[i + M * N] + f32(i64(3) * (N * M))
                   where i in 0:(N + 1) * M - M, i * N < 3 * N * M"""
        )
    )
    verify_program(program)
    text = format_program(program)
    assert program.defined_sizes == (("M_x_N", read("M * N")),)
    assert "B: f32[M_x_N + 1]" in text
    assert "B[i + M_x_N]" in text
    assert "i in 0:M_x_N" in text
    assert "3 * M_x_N" in text
    assert "A[i // M, i % M]" in text  # an index by a size: no size expression
    assert "f32(i64(3) * (N * M))" in text  # an element value stays as it was written
    assert define_sizes(program) == program


def test_define_sizes_keeps_affine_programs() -> None:
    program = parse_program("program p(A: f32[2 * N + 3, N // 2]) -> (O) sizes N output O: f32[?] S0(i): O[i] = A[i, 0]")
    assert define_sizes(program) == program
