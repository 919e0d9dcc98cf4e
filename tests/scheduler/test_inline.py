"""Inlining: what disappears, what stays and why, and that nothing changes its value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyc
from polyc.ir.expr import Call, Const, Index, Pad, Read, int_const, reads
from polyc.ir.interpret import interpret
from polyc.ir.program import Program, Statement
from polyc.ir.types import F32
from polyc.ir.verify import verify_program
from polyc.machine import X86_64_V2, X86_64_V4, Machine
from polyc.poly.ranges import Ranges
from polyc.scheduler.rewriting.inline import inline_producers
from tests.scheduler.support import check, infer, read, statements


def inline(text: str, target: Machine = X86_64_V4, **sizes: int) -> tuple[Program, Ranges, list[str]]:
    """The rewritten program, its ranges and what was said."""
    program, ranges = infer(read(text), **sizes)
    new, new_ranges, remarks = inline_producers(program, ranges, target)
    return new, new_ranges, [r.message for r in remarks]


def same(text: str, arrays: dict[str, np.ndarray]) -> Program:
    """Inline, and interpret both programs."""
    program = read(text)
    new, _, _ = inline(text)
    old_results, new_results = interpret(program, arrays), interpret(new, arrays)
    for name, old in old_results.items():
        np.testing.assert_array_equal(new_results[name], old)
    return new


X = np.arange(12, dtype=np.float32) - 5


def test_what_is_checked_at_run_time_is_stored():
    text = "def f(float(N) A, float(M) B) -> (Y) { T(i) = 2.0 * A(i+1)  Y(i) = B(i) > 0.0 ? T(i + 3) : B(i) where i in 0:M }"
    _, _, messages = inline(text)
    assert any("checks at run time" in m for m in messages)
    check(text, {"N": 9, "M": 5})


def test_before_and_after():
    new = same("def f(float(N) X) -> (Y) { T(i) = X(i) * 2.0  Y(i) = T(i) + 1.0 }", {"X": X})
    assert statements(new) == ["S1(i): Y[i] = X[i] * 2.0 + 1.0"]
    assert [t.name for t in new.tensors] == ["X", "Y"]


def test_the_places_of_the_reader_take_the_place_of_the_indices():
    new = same("def f(float(N) X) -> (Y) { T(i) = X(i) + 1.0  Y(i) = T(i) * T(i+2) }", {"X": X})
    assert statements(new) == ["S1(i): Y[i] = (X[i] + 1.0) * (X[i + 2] + 1.0)"]


def test_indices_that_change_places_are_replaced_at_once():
    square = np.arange(9, dtype=np.float32).reshape(3, 3)
    new = same("def f(float(N,N) X) -> (Y) { T(i,j) = X(i,j) + i  Y(i,j) = T(j,i) }", {"X": square})
    assert len(new.statements) == 1


def test_chains_disappear():
    new = same("def f(float(N) X) -> (Y) { A(i) = X(i)+1.0  B(i) = A(i)*2.0  C(i) = B(i)-3.0  Y(i) = C(i) }", {"X": X})
    assert len(new.statements) == 1


def test_results_and_reductions_stay():
    text = "def f(float(N) X) -> (A, s) { A(i) = X(i) * 2.0  s +=! A(i) }"
    assert len(inline(text)[0].statements) == 2
    text = "def f(float(N,M) X) -> (Y) { Z(i) +=! X(i,j)  Y(i) = Z(i) * 2.0 }"
    assert len(inline(text)[0].statements) == 2


def test_expensive_values_are_stored_when_they_are_read_twice():
    once = "def f(float(N) X) -> (Y) { T(i) = exp(X(i))  Y(i) = T(i) + 1.0 }"
    twice = "def f(float(N) X) -> (Y) { T(i) = exp(X(i))  Y(i) = T(i) + T(i+1) }"
    assert len(inline(once)[0].statements) == 1
    new, _, messages = inline(twice)
    assert len(new.statements) == 2 and messages == ["T is stored: 12 operations would be computed 2 times"]


@pytest.mark.parametrize(
    ("value", "is_stored"),
    [
        ("T(min(max(X(i), 0), 255), 0)", True),  # subscripts were beside the arithmetic, and a look-up was a copy
        ("T(int32(B(i)), 0)", True),
        ("T(int32(B(0)), i)", False),  # a row that data names is read as any other
    ],
)
def test_look_ups_of_a_window_are_not_made_for_each_of_its_readers(value, is_stored):
    text = f"""def f(int32(N) X, uint8(N) B, float(256,N) T) -> (Y) {{
      V(i) = {value} where i in 0:N
      Y(i) = V(i) - V(i+1) * V(i+2) }}"""
    new, _, _ = inline(text, N=9)
    assert [s.name for s in new.statements] == (["S0", "S1"] if is_stored else ["S1"])
    check(text, {"N": 9})


def test_a_value_that_a_loop_would_repeat_is_stored_but_a_copy_never():
    text = "def f(float(N) X, float(M,N) Y) -> (Z) {{ T(i) = {}  Z(j,i) = T(i) * Y(j,i) }}"
    assert len(inline(text.format("X(i) * 2.0 + 1.0"), M=1000, N=8)[0].statements) == 2
    assert len(inline(text.format("X(i)"), M=1000, N=8)[0].statements) == 1
    assert len(inline(text.format("X(i) * 2.0 + 1.0"), M=2, N=8)[0].statements) == 1


RANK_TWO = """def f(double(N,N) A, double(N,N) C, double(N) u, double(N) v) -> (p, q, r) {{
  B(i,j) = {} + u(i) * v(j) + v(i) * u(j)
  p(i) +=! B({}) * u(j)  q(i) +=! B(i,j) * v(j)  r(i) +=! B(i,j) * (u(j) + v(j)) }}"""


@pytest.mark.parametrize(
    ("value", "columns", "n", "is_stored"),
    [
        ("A(i,j)", "j,i", 2000, False),
        ("A(i,j)", "j,i", 200, True),  # stays in the second-level cache
        ("A(i,j)", "i,j", 2000, True),  # rows are shared: one of them is stored at a time
        ("A(i,j) * C(i,j)", "j,i", 2000, True),  # two arrays would be read instead of one
        ("A(j,i)", "j,i", 2000, True),  # each sum would read columns
        ("exp(A(i,j))", "j,i", 2000, True),
    ],
)
def test_what_would_leave_the_caches_between_sums_in_two_directions_is_computed_again(value, columns, n, is_stored):
    text = RANK_TWO.format(value, columns)
    new, _, _ = inline(text, N=n)
    assert ("B" in {s.target for s in new.statements}) == is_stored
    check(text, {"N": 19})


def test_a_value_used_in_a_sum_and_in_its_initial_value():
    text = "def f(float(N) b, float(N,K) X) -> (Y) { T(i) = b(i)  Y(i) = T(i) where i in 0:N  Y(i) += X(i,k) }"
    rng = np.random.default_rng(0)
    arrays = {"b": X[:4], "X": rng.integers(0, 9, (4, 5)).astype(np.float32)}
    new = same(text, arrays)
    assert [s for s in statements(new) if s.startswith("S")] == ["S2(i, k): Y.1[i] += X[i, k] init b[i]"]
    check(text, {"N": 40, "K": 30})


def test_padded_reads_keep_their_tensor():
    text = "def f(float(N) X) -> (Y) { T(i) = X(i) + 1.0  Y(i) = pad(T(i-1), 0.0) where i in 0:N }"
    new, _, messages = inline(text)
    assert len(new.statements) == 2 and messages == ["T is stored: it is read with padding"]
    check(text, {"N": 20})


def test_a_padded_value_may_move_into_an_initial_value():
    text = """def f(float(L) b, float(N,K) X) -> (Y) {
      T(i) = pad(b(i), 3.0) where i in 0:N  Y(i) = T(i) where i in 0:N  Y(i) += X(i,k) }"""
    for length in (0, 7, 40, 50):
        check(text, {"L": length, "N": 40, "K": 30})


CHOSEN = """def f(float(5,H,W) X, int32(H,W) p) -> (Y) {
  T(k,y,x) = 2.0 * X(k,y,x) + float(k) * pad(X(k,y-1,x), clamp) where y in 0:H
  Y(y,x) = T(p(y,x), y, x) + 0.5 * T(p(y,x) + 1, y, x) }"""


def test_what_data_chooses_of_few_planes_is_computed_where_it_is_read():
    rng = np.random.default_rng(1)
    arrays = {"X": rng.integers(0, 9, (5, 3, 4)).astype(np.float32), "p": rng.integers(0, 4, (3, 4), np.int32)}
    new = same(CHOSEN, arrays)
    assert [s.target for s in new.statements] == ["Y"]
    check(CHOSEN, {"H": 6, "W": 19})
    check(CHOSEN, {"H": 0, "W": 3})


def test_planes_that_numbers_name_are_computed_once_each():
    text = """def f(uint8(3,N) X) -> (Y) {
      F(c,i) = float(X(c,i)) / 3.0
      G(i) = exp(F(0,i) + F(1,i) + F(2,i))
      Y(c,i) = G(i) * F(c,i) }"""
    new, _, _ = inline(text, N=40)
    assert [s.target for s in new.statements] == ["G", "Y"]  # twice in all, not four times
    check(text, {"N": 40})


def test_a_plane_that_each_of_the_others_reads_is_stored():
    text = """def f(float(4,N) X) -> (Y) {
      I(c,i) = (X(c,i) + 1.0) * (X(3,i) + 2.0) - X(c,i) * X(c,i)
      Y(c,i) = I(c,i) / I(3,i) where c in 0:3 }"""
    assert "I" in {s.target for s in inline(text, N=40)[0].statements}


TABLE = """def f(int32(N) K, float a) -> (Y) {
  m(i) = a * exp(float(i) / 8.0) / (1.0 + float(i)) where i in 0:64
  Y(j) = VALUE where j in 0:N }"""
LOOK_UP = "m(min(max(K(j), 0), 63))"


@pytest.mark.parametrize(
    ("value", "target", "is_stored"),
    [
        (LOOK_UP, X86_64_V4, False),
        (f"{LOOK_UP} + m(min(max(K(j) - 5, 0), 63))", X86_64_V4, False),
        (LOOK_UP, replace(X86_64_V4, gather=0.5), True),  # one instruction looks all lanes up
        (LOOK_UP, X86_64_V2, True),  # the lanes of a vector are fewer than the operations
        (f"{LOOK_UP} + m(3)", X86_64_V4, True),
        (f"j > 0 ? 0.5 * Y(j-1) + {LOOK_UP} : a", X86_64_V4, True),  # one after the other
    ],
)
def test_tables_of_few_operations_are_computed_where_vectors_look_them_up(value, target, is_stored):
    text = TABLE.replace("VALUE", value)
    new, _, _ = inline(text, target, N=4000)
    assert ("m" in {s.target for s in new.statements}) == is_stored
    for n in (0, 1, 37):
        check(text, {"N": n})


def test_rows_that_data_names_are_no_look_ups_of_lanes():
    text = """def f(int32(N) K, float(M) w) -> (Y) {
      T(p,j) = sin(float(p) * w(j)) where p in 0:64
      Y(i,j) = T(min(max(K(i), 0), 63), j) }"""
    assert "T" in {s.target for s in inline(text, N=4000, M=64)[0].statements}
    check(text, {"N": 9, "M": 20})


def test_the_check_of_a_chosen_plane_moves_on_and_names_what_the_user_wrote():
    kernel = polyc.compile(CHOSEN)
    x, p = np.ones((5, 4, 20), np.float32), np.full((4, 20), 3, np.int32)
    np.testing.assert_array_equal(kernel(x, p), np.full((4, 20), 5 + 0.5 * 6, np.float32))
    for wrong, shown in ((4, 5), (-1, -1)):
        p[2, 17] = wrong
        with pytest.raises(IndexError, match=f"subscript {shown} of dimension 0 of T is outside 0 <= subscript < 5"):
            kernel(x, p)


def test_all_planes_are_stored_for_those_alone_who_read_all():
    text = """def f(float(8,H,W) X, int32(H,W) p) -> (Y, Z) {
      T(k,y,x) = 2.0 * X(k,y,x) + 1.0
      Z(k,y,x) = pad(T(k,y-1,x), 0.0) + pad(T(k,y+1,x), 0.0) where y in 0:H
      Y(y,x) = T(min(max(p(y,x), 0), 7), y, x) }"""
    new, _, messages = inline(text)
    (y,) = (s for s in new.statements if s.target == "Y")
    assert "X" in {r.tensor for r in reads(y.value)} and "T" not in {r.tensor for r in reads(y.value)}
    assert "T is computed by S2, and stored for others: it is read with padding" in messages
    check(text, {"H": 7, "W": 18})


@pytest.mark.parametrize(
    "text",
    [
        # a table of a function that is read often, what moves with the choice made under a condition on it, a sum of two
        "def f(float(9) X, int32(M) I) -> (Y) { T(i) = X(i) + 1.0  Y(i) = T(I(i)) }",
        "def f(float(N) X, int32(M) I) -> (Y) { T(i) = i > 0 ? X(i-1) : 0.0 where i in 0:N  Y(i) = T(I(i)) }",
        "def f(float(N) X, int32(M) I) -> (Y) { T(i) = X(i) + X(i+1)  Y(i) = T(I(i)) }",
        "def f(float(N) X, int32(M) I) -> (Y) { T(i) = pad(X(i-1), 0.0) where i in 0:N  Y(i) = T(I(i)) }",
    ],
)
def test_data_dependent_places_keep_their_tensor(text):
    assert inline(text)[2] == ["T is stored: S1 reads it at data-dependent places"]
    check(text, {n: size for n, size in {"N": 9, "M": 20}.items() if f"({n})" in text})


def test_numbers_of_chosen_places_are_whole_numbers_of_64_bits():
    text = """def f(float(N) X, uint8(M) I) -> (Y) {
      T(i) = 2.0 * X(i) + float(int64(i) * int64(100000000000) / int64(3))  Y(j) = T(I(j)) }"""
    x, i = np.arange(300, dtype=np.float32), np.arange(200, 256, dtype=np.uint8)
    assert len(inline(text)[0].statements) == 1
    expected = np.float32(2) * x[i] + (i.astype(np.int64) * 100000000000 // 3).astype(np.float32)
    np.testing.assert_allclose(polyc.compile(text)(x, i), expected, rtol=1e-6)


def test_subscripts_move_into_the_guards():
    text = "def f(float(N) X, int32(M) I) -> (Y) { J(i) = I(i) + 1  Y(i) = X(J(i)) }"
    new, ranges, _ = inline(text)
    (guard,) = ranges.statements["S1"].guards
    assert len(new.statements) == 1
    assert guard.read.tensor == "X" and "J" not in str(guard)
    check(text, {"N": 9, "M": 20})


def test_producers_with_guards_stay():
    text = "def f(float(N) X, int32(M) I) -> (Y) { T(i) = X(I(i))  Y(i) = T(i) * 2.0 }"
    assert inline(text)[2] == ["T is stored: it has run-time guards"]


def test_a_value_read_under_a_condition():
    text = "def f(float(N) X, float(M) Z) -> (Y) { T(i) = Z(i) * 2.0  Y(i) = i < M ? T(i) : X(i) }"
    assert len(inline(text)[0].statements) == 1
    check(text, {"N": 30, "M": 12})


def test_selections_are_inlined_with_their_guarded_reads():
    text = "def f(float(N) X, float(M) Z) -> (Y) { T(i) = i < M ? Z(i) : X(i)  Y(i) = T(i) + X(i) }"
    assert len(inline(text)[0].statements) == 1
    for m in (0, 12, 30):
        check(text, {"N": 30, "M": m})


def test_growth_is_limited():
    doubled = "".join(f"T{n + 1}(i) = T{n}(i) * T{n}(i)  " for n in range(9))
    text = f"def f(float(N) X) -> (Y) {{ T0(i) = X(i)  {doubled} Y(i) = T9(i) }}"
    new, _, messages = inline(text)
    assert 1 < len(new.statements) < 10 and any("nodes" in m or "computed" in m for m in messages)


def test_computed_left_sides_stay():
    # No front end writes T[i + 1] alone; a program may.
    program, ranges = infer(read("def f(float(N) X) -> (Y) { T(i) = X(i)  Y(i) = T(i) }"))
    first, second = program.statements
    moved: Statement = replace(first, subscripts=(Call("add", (Index("i"), int_const(1))),))
    reader = replace(second, value=Read("T", (Call("add", (Index("i"), int_const(1))),)))
    new, _, remarks = inline_producers(replace(program, statements=(moved, reader)), ranges, X86_64_V4)
    assert len(new.statements) == 2 and "its left side is computed" in remarks[0].message


@pytest.mark.parametrize("n", [0, 1, 2, 17])
def test_empty_and_short_ranges(n):
    check("def f(float(N) X) -> (Y, s) { T(i) = X(i) + 1.0  Y(i) = T(i) * 2.0  s max=! T(i) }", {"N": n})


def test_rank_zero():
    check("def f(float x, float(N) Y) -> (Z) { t = x * 2.0  Z(i) = Y(i) + t }", {"N": 20})


def test_an_exists_clause_follows():
    text = "def f(float(N) A, float(N) B) -> (O) { T(i) = A(i) * 2.0  O(j) = B(j) + T(j) where exists T(j) }"
    new, _, _ = inline(text)
    verify_program(new)
    assert len(new.statements) == 1
    check(text, {"N": 20})


def test_a_padded_temporary_in_an_initial_value_keeps_its_border():
    text = """def f(float(L) b, float(N,K) X) -> (Y) {
      E(i) = exp(b(i))  T(i) = pad(E(i), 3.0) where i in 0:N  Y(i) = T(i) where i in 0:N  Y(i) += X(i,k) }"""
    for length in (0, 7, 40):
        check(text, {"L": length, "N": 40, "K": 30})


def test_a_copy_of_a_part_keeps_its_border():
    text = """def f(float(N) X, float(M) Z) -> (Y) {
      T(i) = X(i) where i in 0:M  Y(i) = pad(T(i+1), 0.0) + Z(i) where i in 0:M }"""
    assert len(inline(text)[0].statements) == 2
    check(text, {"N": 20, "M": 12})


def test_what_two_statements_write_stays():
    same("def f(float(N) X) -> (Y) { T(0) = 7.0  T(i) = X(i - 1) * 2.0 where i in 1:N  Y(i) = T(i) + 1.0 }", {"X": X})


def test_recurrences_stay():
    # T[i] = X[i] + T[i - 1]: its value cannot be computed where it is read.
    program, ranges = infer(read("def f(float(N) X) -> (Y) { T(i) = X(i)  Y(i) = T(i) * 2.0 }"))
    first, second = program.statements
    before = Pad(Read("T", (Call("sub", (Index("i"), int_const(1))),)), Const(0.0, F32))
    for own in (before, before.read):
        scan = replace(first, value=Call("add", (first.value, own)))
        new, _, remarks = inline_producers(replace(program, statements=(scan, second)), ranges, X86_64_V4)
        assert new.statements == (scan, second) and "own elements" in remarks[0].message


def test_of_a_circle_of_statements_one_stays():
    # T[i] = U[i - 1] * 2, U[i] = T[i] + X[i]: T may be computed in U, which then reads itself.
    program, ranges = infer(read("def f(float(N) X) -> (Y) { T(i) = X(i)  U(i) = T(i) + X(i)  Y(i) = U(i) * 2.0 }"))
    t, u, y = program.statements
    t = replace(t, value=Call("mul", (Read("U", (Call("sub", (Index("i"), int_const(1))),)), Const(2.0, F32))))
    new, _, _ = inline_producers(replace(program, statements=(t, u, y)), ranges, X86_64_V4)
    assert [s.target for s in new.statements] == ["U", "Y"]
    assert {r.tensor for s in new.statements for r in reads(s.value)} == {"U", "X"}
