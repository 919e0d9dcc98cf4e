"""isl AST → loop nest: folded subscripts, bounds, kinds of loops, guards, buffers and their layout."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.code_limits import MAX_OPERATIONS
from polyc.codegen.nests.buffers import row_major_strides
from polyc.codegen.nests.loops import Values, fold_index, values_of
from polyc.codegen.nests.size import check_code_size
from polyc.config import Options
from polyc.diagnostics import CompileBudgetError
from polyc.ir.expr import Call, Const, Expr, Index, Size, evaluate, int_const
from polyc.ir.loops import Guard, If, Loop, LoopNest, Node, Store, Update
from polyc.ir.types import F32
from polyc.machine import X86_64_V2, X86_64_V3, X86_64_V4
from tests.ir.nests import argument, loop, nest_of
from tests.scheduler.support import check, check_nest, lower

A, B, C = Index("a"), Index("b"), Index("c")


def plus(a: Expr, b: Expr | int) -> Expr:
    return Call("add", (a, int_const(b) if isinstance(b, int) else b))


def times(a: Expr, b: int) -> Expr:
    return Call("mul", (a, int_const(b)))


# --- folding ---------------------------------------------------------------------------------------------------------

RANGES = {
    "a": Values((0, None), 8),
    "b": Values((0, 7)),
    "c": Values((3, 35)),
    "d": Values((None, None)),
    "e": Values((0, 7)),  # from the border of a triangle on
    "f": Values((0, 4), 4),  # tiles of four in one of eight
    "g": Values((0, 3)),
}


@pytest.mark.parametrize(
    ("expr", "folded"),
    [
        (A, int_const(0)),
        (B, B),
        (plus(A, B), B),
        (plus(times(A, 2), B), B),
        (int_const(13), int_const(5)),
        (plus(plus(A, 5), 0), int_const(5)),
        (plus(A, Index("e")), Index("e")),
        (plus(B, 1), None),
        (plus(C, B), None),
        (plus(Index("d"), B), None),
        (times(B, 2), None),
        (plus(A, times(B, 8)), int_const(0)),
        (Call("floordiv", (A, int_const(2))), None),
        (plus(A, Size("N")), None),
        (plus(Index("f"), Index("g")), plus(Index("f"), Index("g"))),
        (plus(plus(A, Index("f")), Index("g")), plus(Index("f"), Index("g"))),
        (plus(plus(Index("f"), Index("g")), 1), None),
        (plus(Index("f"), times(Index("g"), -1)), None),
    ],
)
def test_folded_subscripts(expr, folded):
    found = fold_index(expr, 8, RANGES)
    if folded is not None:
        assert found == folded
    for a in (0, 8, 32):
        for b in range(8):
            for c in (3, 11):
                values = {"a": a, "b": b, "c": c, "d": a + 5, "e": b, "f": b // 4 * 4, "g": b % 4, "N": 21}
                assert evaluate(found, values) == evaluate(expr, values) % 8


def test_one_cell_is_always_cell_zero():
    assert fold_index(plus(C, Size("N")), 1, {}) == int_const(0)


def test_a_longer_loop_keeps_its_remainder():
    long = {"b": Values((0, 8)), "d": Values((-4, 7)), "e": Values((0, None))}
    for name in long:
        assert fold_index(Index(name), 8, long) == Call("mod", (Index(name), int_const(8)))


def test_a_start_in_nested_remainders_is_a_multiple_only_of_what_the_outer_one_keeps():
    whole = plus(A, times(Call("mod", (A, int_const(8))), -1))
    for modulus, multiple in ((16, 4), (6, 1)):
        start = Call("mod", (whole, int_const(modulus)))
        assert values_of(start, plus(start, 32), 4, {}).multiple == multiple
        assert all(evaluate(start, {"a": a}) % multiple == 0 for a in range(100))


@pytest.mark.parametrize(("size", "place"), [(8, B), (12, B), (16, Call("mod", (plus(B, C), int_const(16))))])
def test_a_tile_that_begins_where_one_of_a_multiple_of_its_size_does_needs_no_remainder(size: int, place: Expr):
    around = {"a": Values((0, 96), 24)}
    known = {**around, "b": Values((0, size - 1)), "c": values_of(A, int_const(96), size, around)}
    assert fold_index(plus(B, C), size, known) == place


def test_strides_are_in_c_order():
    shape = (Size("M"), int_const(3), Size("N"))
    strides = row_major_strides(shape, 4)
    assert [evaluate(s, {"M": 5, "N": 7}) for s in strides] == [84, 28, 4]
    assert row_major_strides((), 4) == ()


# --- kinds of loops --------------------------------------------------------------------------------------------------


def loops_of(body: tuple[Node, ...]) -> list[Loop]:
    found: list[Loop] = []
    for node in body:
        if isinstance(node, Loop):
            found += [node, *loops_of(node.body)]
        elif isinstance(node, If):
            found += loops_of(node.body + node.orelse)
    return found


def test_short_vector_loops_are_expanded_and_long_ones_interleaved():
    mixed = "def f(float(M,N) X) -> (O) { O(i,j) = X(j,i) + X(i,j) }"
    row = "def f(float(N) X) -> (O) { O(i) = X(i) + 1.0 }"
    (short,) = [v for v in loops_of(lower(row, {"N": 50}, target=X86_64_V3).nest.body) if v.kind == "vector"]
    assert (short.max_trip, short.lanes, short.interleave) == (50, 8, 1)
    (long,) = [v for v in loops_of(lower(row, {"N": 1000}, target=X86_64_V3).nest.body) if v.kind == "vector"]
    assert (long.max_trip, long.lanes, long.interleave) == (None, 8, 2)
    for n in (0, 1, 31, 32, 33, 65):
        check(mixed, {"M": n, "N": n})


@pytest.mark.parametrize(("n_reads", "most"), [(16, 50), (17, None)])
def test_short_rows_of_values_of_many_reads_are_loops(n_reads, most):
    """All vectors of a chain of stencils were written out, of 25 reads each: LLVM took most of the compile time."""
    text = f"def f(float(N) X) -> (O) {{ O(i) = {' + '.join(f'X(i+{k})' for k in range(n_reads))} where i in 0:50 }}"
    lowered = check(text, {"N": 70}, target=X86_64_V3)
    assert [v.max_trip for v in loops_of(lowered.nest.body) if v.kind == "vector"] == [most]


@pytest.mark.parametrize(("target", "lanes"), [(X86_64_V2, 4), (X86_64_V3, 8), (X86_64_V4, 16)])
def test_lanes_follow_the_machine(target, lanes):
    text = "def f(float(M,N) X) -> (O) { O(i) +=! sqrt(X(i,j)) }"
    lowered = lower(text, {"M": 7, "N": 1000}, target=target)
    check_nest(lowered, {"M": 7, "N": 1000})
    assert {v.lanes for v in loops_of(lowered.nest.body) if v.kind == "vector"} == {lanes}


@pytest.mark.parametrize(("target", "lanes"), [(X86_64_V2, 8), (X86_64_V3, 16), (X86_64_V4, 16)])
def test_functions_take_two_registers_where_their_chains_are_long(target, lanes):
    text = "def f(float(M,N) X) -> (O) { O(i,j) = exp(X(i,j)) }"
    loops = loops_of(lower(text, {"M": 7, "N": 1000}, target=target).nest.body)
    assert {v.lanes for v in loops if v.kind == "vector"} == {lanes}


@pytest.mark.pairs
@pytest.mark.parametrize("dtype", ["float", "double"])
@pytest.mark.parametrize("target", [X86_64_V2, X86_64_V3], ids=lambda t: t.name)
@pytest.mark.parametrize("dynamic", [False, True])
def test_vectors_of_two_registers_take_each_element_once(target, dtype, dynamic):
    text = f"def f({dtype}(M,N) X) -> (E, S, P) {{ E(i,j) = exp(X(i,j)) S(i) +=! exp(X(i,j) - 1) P(i) max=! tanh(X(i,j)) }}"
    f = polyc.compile(text, target=target.name, dynamic=dynamic)
    rng = np.random.default_rng(2)
    for n in (*range(1, 20), 24, 25, 31, 33, 40, 71, 200, 213) if dynamic else (9, 12, 20, 24, 213):
        x = rng.standard_normal((3, n)).astype("f4" if dtype == "float" else "f8")
        wanted = np.exp(x), np.exp(x.astype("f8") - 1).sum(axis=1), np.tanh(x).max(axis=1)
        for got, exact in zip(f(x), wanted, strict=True):
            np.testing.assert_allclose(got, exact, rtol=2e-6 if dtype == "float" else 1e-14)


def test_the_widest_type_decides_the_lanes():
    text = "def f(double(N) X, float(N) Y) -> (O) { O(i) = X(i) * Y(i) }"
    assert {v.lanes for v in loops_of(lower(text, {"N": 1000}, target=X86_64_V3).nest.body) if v.kind == "vector"} == {4}


def test_unrolled_loops_have_a_known_trip_from_zero():
    text = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    for sizes in ({"M": 7, "K": 5, "N": 33}, {"M": 48, "K": 16, "N": 64}, {"M": 1, "K": 1, "N": 1}):
        lowered = check(text, sizes)
        for node in loops_of(lowered.nest.body):
            if node.kind == "unroll":
                assert node.max_trip is not None and node.lower == int_const(0)


def test_nothing_is_marked_without_vectors_and_threads():
    text = "def f(float(M,N) X) -> (O) { O(i) +=! exp(X(i,j)) }"
    lowered = check(text, {"M": 300, "N": 400}, tile=False, vectorize=False, parallel=False)
    assert {node.kind for node in loops_of(lowered.nest.body)} == {"serial"}


def test_without_reassociation_sums_are_no_vectors():
    lowered = check("def f(float(N) X) -> (s) { s +=! X(i) }", {"N": 1 << 10}, reassociate=False)
    assert {node.kind for node in loops_of(lowered.nest.body)} == {"serial"}


# --- guards, buffers -------------------------------------------------------------------------------------------------


def test_guards_are_numbered_over_all_statements():
    text = """def f(float(N) X, int32(M) I, int32(M) J) -> (O, P) {
      O(i) = X(I(i))  P(i) = X(J(i)) * X(I(i)) }"""
    lowered = lower(text, {"N": 9, "M": 40})

    def guards(body: tuple[Node, ...]) -> list[Guard]:
        found = []
        for node in body:
            match node:
                case Guard():
                    found.append(node)
                case Loop():
                    found += guards(node.body)
                case If():
                    found += guards(node.body + node.orelse)
        return found

    assert sorted({g.check for g in guards(lowered.nest.body)}) == [0, 1, 2]
    assert len(lowered.nest.checks) == len(lowered.signature.guards) == 3
    check_nest(lowered, {"N": 9, "M": 40})


def test_arguments_come_first_and_may_alias_by_name():
    text = "def f(float(N) X, float(N) Y) -> (O) { O(i) = X(i) + Y(i) }"
    lowered = lower(text, {"N": 50}, aliases=(("O", "X"),))
    buffers = {b.name: b for b in lowered.nest.buffers}
    assert [b.name for b in lowered.nest.buffers if b.space == "argument"] == ["X", "Y", "O"]
    assert buffers["O"].may_alias == ("X",) and buffers["X"].may_alias == ("O",) and buffers["Y"].may_alias == ()
    check_nest(lowered, {"N": 50}, (("O", "X"),))


def test_fixed_strides_are_constants_and_free_ones_parameters():
    text = "def f(float(M,N) X) -> (O) { O(i) +=! X(i,j) }"
    assert lower(text, {"M": 4, "N": 6}).nest.buffer("X").strides == (int_const(24), int_const(4))
    assert lower(text, {"M": 4, "N": 6}, is_fixed=False).nest.buffer("X").strides == (Size("X.stride0"), Size("X.stride1"))


def test_accumulated_results_keep_what_out_holds():
    lowered = check("def f(float(M,N) X) -> (O) { O(i) += X(i,j) }", {"M": 5, "N": 40})
    assert [b.name for b in lowered.nest.buffers] == ["X", "O"]
    stores = [n for node in loops_of(lowered.nest.body) for n in node.body if isinstance(n, Store)]
    assert stores == []  # the initial value is in place already


def test_ranges_that_do_not_start_at_zero():
    check("def f(float(N) X) -> (O) { O(i) = X(i-1) + X(i+1) where i in 1:N-1 }", {"N": 20})
    check("def f(float(N) X) -> (O) { T(i) = exp(X(i)) where i in 3:N  O(i) = T(i) + T(i+1) where i in 3:N-1 }", {"N": 20})


def test_rank_zero():
    check("def f(float x, float y) -> (s) { s = x * y }", {})
    check("def f(float(N) X) -> (s, m) { s +=! X(i)  m max=! X(i) }", {"N": 37})
    check("def f(float(N) X) -> (s) { s +=! X(i) }", {"N": 0})


# --- size of the code ------------------------------------------------------------------------------------------------


def test_expanded_code_has_a_budget():
    store = Store("O", (A,), Const(0.0, F32))
    trip = MAX_OPERATIONS // 2
    buffers = (argument("O", (int_const(8),), 0),)

    def nest(n: int) -> LoopNest:
        return nest_of((loop("a", int_const(n), store, kind="unroll", max_trip=n),), buffers)

    check_code_size(nest(trip))
    with pytest.raises(CompileBudgetError, match="budget-code"):
        check_code_size(nest(trip + 1))


def test_the_budget_counts_every_copy():
    update = Update("O", (A,), "add", plus(A, 1))
    vector = loop("a", int_const(64), update, kind="vector", max_trip=64, lanes=16)
    rows = loop("b", int_const(30_000), vector, kind="unroll", max_trip=30_000)
    with pytest.raises(CompileBudgetError):
        check_code_size(nest_of((rows,), (argument("O", (int_const(64),), 0),)))
    serial = loop("b", int_const(30_000), vector)
    check_code_size(nest_of((serial,), (argument("O", (int_const(64),), 0),)))


def test_options_do_not_change_results():
    text = """def f(float(M,K) A, float(K,N) B, float(N) b) -> (C) {
      T(m,n) +=! A(m,k) * B(k,n)  C(m,n) = fmax(T(m,n) + b(n), 0.0) }"""
    for options in (Options(), Options(inline=False), Options(tile=False), Options(vectorize=False), Options(parallel=False)):
        lowered = lower(text, {"M": 37, "K": 19, "N": 45}, options=options)
        check_nest(lowered, {"M": 37, "K": 19, "N": 45})


def test_long_sums_are_not_written_out():
    """All 33 terms of two sums of complex exponentials were: 35,000 lines for LLVM, 10 s."""
    text = "def dft(complex64(N) x) -> (X) { X(k) +=! x(n) * exp(complex(0.0, float(k * n % N) / float(N))) where k in 0:N }"
    lowered = polyc.compile(text, target="x86-64-v3").lower(np.ones(33, np.complex64))
    assert lowered.as_text("ll").count("\n") < 10_000
