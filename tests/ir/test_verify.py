"""Well-formedness: every fault is found and named."""

from dataclasses import replace

import pytest

from polyc.diagnostics import InternalError
from polyc.ir.expr import Call, Const, Expr, Index, Read, Size, int_const
from polyc.ir.loops import Buffer, Loop, LoopNest, Store, Update
from polyc.ir.text_reader import parse_program
from polyc.ir.types import F32
from polyc.ir.verify import verify_program
from polyc.ir.verify_loops import verify_loops
from tests.ir.nests import argument, loop, matmul_nest, nest_of

GOOD = """program p(A: f32[N, M], I: i64[M]) -> (O from O.in)
  sizes N, M
  accumulated O.in: f32[?] of O
  temporary T: f32[?, ?]
  output O: f32[?]
  S0(i, j): T[i, j] = i < j && j < 3 ? exp(A[i, j]) : pad(A[i - 1, I[j]], 0.0)
    where j in 0:M
  S1(i, j): O[i] += T[i, j] init O.in[i]
"""


def test_a_good_program_passes() -> None:
    verify_program(parse_program(GOOD))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sizes N, M", "sizes N, M, N", "size N is declared twice"),
        ("S1(i, j)", "S0(i, j)", "statement S0 is declared twice"),
        ("temporary T: f32[?, ?]", "temporary T: f64[?, ?]", "S0: the value is f32 where f64 is needed"),
        ("O: f32[?]\n", "O: f64[?]\n", "S1: the value is f32 where f64 is needed"),
        ("T[i, j] init", "T[i] init", "S1: the value reads T of rank 2 with 1 subscripts"),
        ("T[i, j] init", "U[i] init", "S1: the value reads the unknown tensor U"),
        ("T[i, j] init", "T[i, k] init", "S1: the value has the unknown size k"),
        ("S1(i, j)", "S1(j, i)", "S1: indices of the left side do not come first"),
        ("init O.in[i]", "init O.in[j]", "S1: the initial value has j, which is no index that may stand there"),
        ("O[i] += T[i, j] init O.in[i]", "O[i] = T[i, j]", "S1: j is not on the left and there is no reduction"),
        ("S1(i, j)", "S1(i, j, j)", "S1: index j is listed twice"),
        ("exp(A[i, j])", "exp(i)", "S0: exp has operands of type i64"),
        ("exp(A[i, j])", "A[i, j] + 1", "S0: add mixes f32 and i64"),
        ("I[j]]", "A[i, j]]", "S0: a subscript of A is f32"),
        (", 0.0)", ", 0)", "S0: pad gives i64 around f32"),
        ("i < j &&", "A[i, j] &&", "S0: and mixes f32 and bool"),
        ("where j in 0:M", "where k in 0:M", "S0: a range is given for k"),
        ("where j in 0:M", "where j in 0:I[I[0]]", "S0: a range bound reads where data says"),
        ("where j in 0:M", "where i + j", "S0: a condition is i64 where bool is needed"),
        ("output O", "temporary O", "return O needs O to have the role output"),
        ("O from O.in", "O from T", "return O needs T to have the role accumulated"),
        ("A: f32[N, M]", "A: f32[N, Q]", "an extent of A has the unknown size Q"),
        ("O[i] +=", "A[i, i] +=", "input tensor A is written"),
        ("exp(A[i, j])", "(300:i8 < 2:i8 ? A[i, j] : 0.0)", "S0: the constant 300 is no value of i8"),
    ],
)
def test_faults_of_programs(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(InternalError) as caught:
        verify_program(parse_program(GOOD.replace(old, new)))
    assert message in str(caught.value)
    assert caught.value.code == "internal-invalid-program"


def test_an_unrounded_value_is_stored_to_16_bits_by_sums_only() -> None:
    """What codegen stored was as wide as the value: twice what the tensor has."""
    good = """program p(A: f16[N]) -> (O)
  sizes N
  temporary T: f16[?]
  output O: f16[]
  S0(i): T[i] = f16(exp(f32(A[i])))
  S1(i): O[] += f32(T[i]) init 0.0:f16
"""
    verify_program(parse_program(good))
    with pytest.raises(InternalError, match="S0: the value is f32"):
        verify_program(parse_program(good.replace("f16(exp(f32(A[i])))", "exp(f32(A[i]))")))


def test_a_good_nest_passes() -> None:
    verify_loops(matmul_nest())


def _with_body(*nodes: Loop | Store | Update) -> LoopNest:
    return nest_of(tuple(nodes), (argument("A", (Size("N"),), 0),), ("N",))


def _store(sub: Expr, value: Expr | None = None) -> Store:
    return Store("A", (sub,), value if value is not None else Const(0.0, F32))


I, N = Index("i"), Size("N")


@pytest.mark.parametrize(
    ("nest", "message"),
    [
        (_with_body(_store(I)), "has i, which is no loop variable around it"),
        (_with_body(_store(Size("K"))), "unknown parameter K"),
        (_with_body(loop("i", N, loop("i", N))), "loop i hides another variable"),
        (_with_body(loop("i", N, loop("j", N, kind="parallel"), kind="parallel")), "inside another parallel loop"),
        (_with_body(loop("i", N, kind="unroll")), "needs a known trip count"),
        (_with_body(loop("i", N, kind="vector", lanes=0)), "0 lanes"),
        (_with_body(loop("i", N, _store(I, Const(0)))), "is i64 where f32 is needed"),
        (_with_body(loop("i", N, _store(I, Read("A", ())))), "reads A with 0 subscripts"),
        (_with_body(loop("i", N, Update("A", (I,), "sub", Const(0.0, F32)))), "which is no monoid"),
        (_with_body(loop("i", N, registers=("r",))), "unknown buffer r in registers"),
        (_with_body(loop("i", Call("lt", (N, N)))), "is bool where i64 is needed"),
        (replace(_with_body(), buffers=(Buffer("r", F32, (N,), (int_const(4),), "register"),)), "not constant"),
        (replace(_with_body(), buffers=(replace(argument("A", (N,), 0), position=1),)), "argument positions are [1]"),
    ],
)
def test_faults_of_nests(nest: LoopNest, message: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify_loops(nest)
    assert message in str(caught.value)
    assert caught.value.code == "internal-invalid-loops"
