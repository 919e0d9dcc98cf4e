"""Texts of programs, expressions and loop nests."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyc.diagnostics import SyntaxErrorInSource
from polyc.ir.expr import MONOIDS, Call, Cast, Const, Expr, Index, Pad, Read, Select, Size
from polyc.ir.loops_text import format_loops
from polyc.ir.operators import OPERATORS
from polyc.ir.program import Condition, Exists, Program, RangeClause, Reduction, Return, Statement, Tensor
from polyc.ir.text import format_expr, format_program
from polyc.ir.text_reader import parse_program
from polyc.ir.types import BOOL, DTYPES, F32, F64, I32, U8
from tests.ir.nests import matmul_nest

SOFTMAX = """program softmax(X: f32[N, D]) -> (O)
  sizes N, D
  temporary M: f32[?]
  output O: f32[?, ?]
  S0(n, d): M[n] max= X[n, d] init -inf
  S1(n, d): O[n, d] = exp(X[n, d] - M[n])
"""


def test_a_program_prints_as_it_reads() -> None:
    assert format_program(parse_program(SOFTMAX)) == SOFTMAX


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Call("sub", (Index("i"), Call("sub", (Index("j"), Index("k"))))), "i - (j - k)"),
        (Call("mul", (Call("add", (Index("i"), Const(1))), Size("N"))), "(i + 1) * N"),
        (Call("neg", (Const(1),)), "-(1)"),
        (Call("add", (Const(-1), Call("neg", (Index("i"),)))), "-1 + -i"),
        (Call("lt", (Call("lt", (Index("i"), Index("j"))), Const(True, BOOL))), "(i < j) < true"),
        (Cast(Const(3, I32), F64), "f64(3:i32)"),
        (Call("max", (Read("A", ()), Const(0.5, F32))), "max(A[], 0.5)"),
        (Pad(Read("A", (Index("i"),)), Const(float("-inf"), F64)), "pad(A[i], -inf:f64)"),
        (Call("add", (Select(Const(True, BOOL), Const(1), Const(2)), Const(3))), "(true ? 1 : 2) + 3"),
    ],
)
def test_expressions(expr: Expr, text: str) -> None:
    assert format_expr(expr) == text


_NAMES = st.sampled_from(["i", "j", "N", "max", "pad", "size", "O.in", "exp", "f32", "a b`\\", "inf"])
_CONSTS = st.sampled_from([1.5, -0.25, 1e20, 1e-5, float("inf"), float("-inf")]).flatmap(
    lambda v: st.sampled_from([Const(v, F32), Const(v, F64)])
) | st.integers(-200, 200).flatmap(lambda v: st.sampled_from([Const(v), Const(v, I32), Const(v, U8), Const(v > 0, BOOL)]))
_LEAVES = _CONSTS | st.builds(Index, _NAMES) | st.builds(Size, _NAMES) | st.builds(lambda n: Read(n, ()), _NAMES)


def _calls(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    def build(op: str) -> st.SearchStrategy[Expr]:
        return st.builds(
            lambda args: Call(op, tuple(args)), st.lists(inner, min_size=OPERATORS[op].arity, max_size=OPERATORS[op].arity)
        )

    reads = st.builds(lambda n, s: Read(n, tuple(s)), _NAMES, st.lists(inner, max_size=2))
    return (
        st.sampled_from(sorted(OPERATORS)).flatmap(build)
        | st.sampled_from(sorted(op for op in OPERATORS if OPERATORS[op].infix)).flatmap(build)
        | reads
        | st.builds(Pad, reads, inner)
        | st.builds(Select, inner, inner, inner)
        | st.builds(Cast, inner, st.sampled_from(list(DTYPES.values())))
    )


_EXPRS = st.recursive(_LEAVES, _calls, max_leaves=8)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    _EXPRS,
    _EXPRS,
    st.none() | st.builds(Reduction, st.sampled_from(MONOIDS), _EXPRS),
    st.lists(
        st.builds(RangeClause, _NAMES, _EXPRS, _EXPRS) | st.builds(Condition, _EXPRS) | st.builds(Exists, _EXPRS), max_size=3
    ),
    st.sampled_from(["input", "accumulated", "output", "temporary"]),
    st.sampled_from([None, ()]),
)
def test_any_tree_reads_back(value: Expr, other: Expr, reduction: Reduction | None, where: list, role, shape) -> None:
    """Well-formed or not: what a pass got wrong must be printable too."""
    program = Program(
        "p",
        ("N",),
        (Tensor("O.1", F32, 0, shape, role, "O"), Tensor("A", I32, 1, (other,), "input", "A")),
        ("A",),
        (Return("O", "O.1", "O.in"), Return("A", "A")),
        (Statement("S0", "O.1", (other,), ("i", "size"), value, reduction, tuple(where)),),
        (("K", other),),
    )
    assert parse_program(format_program(program)) == program


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("program p() -> (O", 18),
        ("program p() -> () S0(i): O[i] = ", 33),
        ("program p() -> () S0(i): O[i] = foo(1)", 33),
        ("§", 1),
    ],
)
def test_reading_errors_have_a_place(text: str, column: int) -> None:
    with pytest.raises(SyntaxErrorInSource) as caught:
        parse_program(text)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "syntax-program-text"
    assert diagnostic.span is not None and diagnostic.span.line_column() == (1, column)


def test_loop_nests_print_as_pseudo_c() -> None:
    assert format_loops(matmul_nest()) == MATMUL


MATMUL = """nest matmul(M, N, K, A.stride0, A.stride1, B.stride0, B.stride1, C.stride0, C.stride1)
  argument A: f32[M, K] strides (A.stride0, A.stride1) at data[0]
  argument B: f32[K, N] strides (B.stride0, B.stride1) at data[1]
  argument C: f32[M, N] strides (C.stride0, C.stride1) at data[2]
  thread acc: f32[N] strides (4)
  parallel(if M > 4) for (m = 0; m < M; m++) {
    vector(lanes 8) for (n = 0; n < N; n++) {
      acc[n] = 0.0;
    }
    for (k = 0; k < K; k++) {
      vector(lanes 8 x 2) for (n = 0; n < N; n++) {
        acc[n] += A[m, k] * B[k, n];  // S0
      }
    }
    for (n = 0; n < N; n++) {
      C[m, n] = acc[n];
    }
  }
"""
