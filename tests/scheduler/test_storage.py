"""Array contraction: each temporary as small as the loops around all its accesses allow."""

from __future__ import annotations

import pytest

from polyc.poly.storage import Folding
from tests.property.pipeline import small_thresholds
from tests.scheduler.support import check, lower

SOFTMAX = """def softmax(float(N, D) X) -> (O) {
  M(n) max=! X(n, d)  E(n, d) = exp(X(n, d) - M(n))  Z(n) +=! E(n, d)  O(n, d) = E(n, d) / Z(n) }"""


def storage(text: str, sizes: dict[str, int]) -> dict[str, Folding]:
    return dict(check(text, sizes).storage)


def test_one_row_at_a_time_for_each_thread():
    found = storage(SOFTMAX, {"N": 100, "D": 90})
    assert found["E"] == Folding("E", (1, None), "thread")
    assert found["M"].moduli == found["Z"].moduli == (1,)
    assert found["X"].space == found["O"].space == "argument" and found["O"].moduli == (None, None)


def test_one_copy_for_all_where_there_is_no_parallel_loop():
    assert storage(SOFTMAX, {"N": 4, "D": 4})["E"].space == "shared"


def test_tensors_between_nests_are_whole_and_shared():
    text = "def f(float(M,N) X) -> (O) { U(j) +=! X(i,j)  O(i,j) = X(i,j) - U(j) }"
    assert storage(text, {"M": 300, "N": 250})["U"] == Folding("U", (None,), "shared")


def test_a_tile_of_an_epilogue():
    text = """def f(float(M,K) A, float(K,N) B, float(N) b) -> (C) {
      T(m,n) +=! A(m,k) * B(k,n)  C(m,n) = fmax(T(m,n) + b(n), 0.0) }"""
    found = storage(text, {"M": 100, "K": 9, "N": 300})["T"]
    assert found.space == "thread" and all(m is not None and m <= 300 for m in found.moduli)


def test_neighbours_are_alive_together():
    # Two rows are read for each row: no single row would do.
    text = "def f(float(M,N) X) -> (O) { T(i,j) = exp(X(i,j))  O(i,j) = T(i,j) + T(i+1,j) }"
    found = storage(text, {"M": 20, "N": 40})["T"]
    assert found.moduli[0] != 1


def test_reads_across_a_row_keep_the_row():
    text = "def f(float(M,N) X) -> (O) { T(i,j) = exp(X(i,j))  O(i,j) = T(i,j) + T(i,N-1-j) }"
    assert storage(text, {"M": 20, "N": 40})["T"].moduli[1] is None


def test_a_transposed_reader_keeps_the_whole():
    text = "def f(float(N,N) X) -> (O) { T(i,j) = exp(X(i,j))  O(i,j) = T(i,j) + T(j,i) }"
    assert storage(text, {"N": 33})["T"].moduli == (None, None)


def test_gathered_tensors_are_whole():
    text = "def f(float(N,M) X, int32(N) I) -> (O) { T(i) +=! X(i,j)  O(i) = T(I(i)) }"
    assert storage(text, {"N": 33, "M": 4})["T"].moduli == (None,)


def test_accumulated_results_share_the_memory_of_the_result():
    lowered = lower("def f(float(M,N) X) -> (O) { O(i) += X(i,j)  O(i) += X(i,j) * 2.0 }", {"M": 5, "N": 40})
    assert lowered.storage["O.in"].buffer == lowered.storage[lowered.scop.program.returns[0].version].buffer
    check("def f(float(M,N) X) -> (O) { O(i) += X(i,j)  O(i) += X(i,j) * 2.0 }", {"M": 5, "N": 40})


def test_vectors_and_blocks_keep_their_lanes_apart():
    text = "def f(float(N) X) -> (O) { T(i) = exp(X(i))  U(i) = T(i) * T(i)  O(i) = U(i) + T(i) }"
    with small_thresholds():
        for n in (0, 1, 8, 9, 33):
            check(text, {"N": n})
    blocked = """def f(float(M,K) A, float(K,N) B) -> (C) {
      W(k,n) = exp(B(k,n))  T(m,n) +=! A(m,k) * W(k,n)  C(m,n) = T(m,n) / 2.0 }"""
    for sizes in ({"M": 130, "K": 9, "N": 200}, {"M": 13, "K": 1, "N": 65}):
        check(blocked, sizes)


def test_state_that_steps_pass_on_is_kept_for_all_batches_and_units():
    # Folded to one batch's row inside a step, the next step would find the last row only.
    text = """def f(float(T,B,H) G, float(B) w) -> (Y) {
      M(t) +=! Y(t-1,b,h) where t in 1:T, b in 0:B, h in 0:H
      C(t,b,h) = G(t,b,h) * w(b) + (t == 0 ? 0.0 : 0.5 * C(t-1,b,h) + M(t)) where t in 0:T
      Y(t,b,h) = exp(C(t,b,h) - 9.0) * C(t,b,h) where t in 0:T }"""
    assert storage(text, {"T": 9, "B": 13, "H": 16})["C"].moduli == (1, None, None)


@pytest.mark.parametrize(("last", "kept"), [("Y(4, i)", 2), ("Y(4, i) + Y(1, i)", 4)])
def test_steps_that_are_written_out_keep_as_many_as_are_alive(last: str, kept: int):
    steps = "".join(f"Y({t + 1}, i) = {t}.5 * Y({t}, i) + Y({t}, N - 1 - i) where i in 0:N " for t in range(4))
    text = f"def f(float(N) X) -> (O) {{ Y(0, i) = X(i) {steps} O(i) = {last} where i in 0:N }}"
    found = check(text, {"N": 40}, disable=("short-recurrences",)).storage
    assert found["Y"].moduli == (kept, None)
    assert "Y" not in check(text, {"N": 40}).storage  # else its steps are tensors of their own


@pytest.mark.parametrize("sizes", [{"N": 0, "D": 5}, {"N": 5, "D": 0}, {"N": 1, "D": 1}])
def test_empty_ranges(sizes):
    check(SOFTMAX, sizes)
