"""Sums between ends that data gives: loops run from one end to the other, inside of the loops over what names the ends."""

from itertools import pairwise

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.codegen.emission.unrolling import count_unrolled
from polyc.codegen.objects.host import host_target
from polyc.config import Options
from polyc.ir.access import expressions_in
from polyc.ir.expr import Select, reads
from polyc.ir.loaded_ranges import LoadedRange, expected_trips, find_loaded_ranges
from polyc.ir.loops import Loop, Store, Update
from polyc.ir.text_reader import parse_program
from polyc.ir.walk import Fact, loops_in, nodes_in
from polyc.machine import X86_64_V2, X86_64_V3, X86_64_V4
from polyc.poly.exclusive import find_parts
from tests.property.pipeline import small_thresholds
from tests.scheduler.support import check, infer, lower, read, run_pass

ROWS = """def f(float(Z) v, int32(Z) c, int32(P) ptr, float(K,N) X) -> (Y) {
  Y(i,n) +=! v(p) * X(c(p),n) where i in 0:P-1, p in ptr(i):ptr(i+1) }"""
VECTOR = """def f(float(Z) v, int32(Z) c, int32(P) ptr, float(K) x) -> (y) {
  y(i) +=! v(p) * x(c(p)) where i in 0:P-1, p in ptr(i):ptr(i+1) }"""
LENGTHS = "def f(float(B,L,D) X, int32(B) n) -> (Y) { Y(b,d) max=! X(b,k,d) where k in 0:n(b) }"
TOTAL = "def f(float(Z) v, int32(P) ptr, float(P) w) -> (s) { s +=! v(p) * w(i) where i in 0:P-1, p in ptr(i):ptr(i+1) }"
SOFTMAX = """def f(float(Z) x, int32(P) ptr) -> (w) {
  m(i) max=! x(p) where i in 0:P-1, p in ptr(i):ptr(i+1)
  s(i) +=! exp(x(p) - m(i)) where i in 0:P-1, p in ptr(i):ptr(i+1)
  w(p) = exp(x(p) - m(i)) / s(i) where i in 0:P-1, p in ptr(i):ptr(i+1) }"""
TESTED = "def f(float(B,L) X, int32(B) n) -> (Y) { Y(b) +=! (k < n(b)) ? X(b,k) : 0.0 }"


def ranges_of(text: str) -> dict[str, LoadedRange]:
    program, _, _ = run_pass("loaded-bounds", *infer(read(text)))
    (s,) = program.statements
    assert s.reduction is not None
    return find_loaded_ranges(s.reduction.op, s.value, s.indices, s.reduction_indices)


def test_ends_are_named_by_other_indices():
    assert ranges_of(ROWS) == {"p": LoadedRange(frozenset("i"), True)}
    assert ranges_of(LENGTHS) == {"k": LoadedRange(frozenset("b"), False)}
    assert expected_trips(ranges_of(ROWS), {"i": 100, "p": 1000, "n": 8}) == {"i": 100, "p": 10, "n": 8}
    assert expected_trips(ranges_of(LENGTHS), {"b": 100, "k": 1000, "d": 8})["k"] == 1000


def test_of_two_indices_that_bound_each_other_one_stays_under_a_test():
    text = "def f(int32(N) a, int32(N) b, float(N) x) -> (s) { s +=! (i < a(j) && j < b(i)) ? x(i) : 0.0 }"
    (found,) = ranges_of(text).values()
    assert not found.is_partition
    check(text, {"N": 5})


def test_a_loop_over_the_one_value_that_data_gives_is_no_vector():
    text = "def f(int32(P) a, float(P) x) -> (S) { S(k) +=! a(p) == k ? x(p) : 0.0 where k in 0:600, p in 0:P }"
    lowered = check(text, {"P": 40})
    found = [loop for loop in loops_in(lowered.nest.body) if any(True for _ in reads(loop.lower))]
    assert [loop.kind for loop in found] == ["serial"]


@pytest.mark.parametrize("test", ["a(p) == k", "k < a(p)", "a(p) > k"])
def test_sums_by_class_keep_their_results_in_registers(test):
    text = f"def f(int32(P) a, float(P) x) -> (S) {{ S(k) +=! ({test}) ? x(p) : 0.0 where k in 0:6, p in 0:P }}"
    assert ranges_of(text) == {}
    check(text, {"P": 40})


def test_what_is_not_the_identity_is_no_range():
    assert list(ranges_of(TESTED)) == ["k"]
    assert ranges_of(TESTED.replace(": 0.0", ": 1.0")) == {}
    check(TESTED.replace(": 0.0", ": 1.0"), {"B": 3, "L": 5})


def segment_loops(lowered: driver.Lowered) -> list[Loop]:
    """The loops between loaded ends; several where tiles differ."""
    return [loop for loop in loops_in(lowered.nest.body) if reads(loop.lower) and reads(loop.upper)]


@pytest.mark.parametrize("target", [X86_64_V2, X86_64_V3, X86_64_V4], ids=lambda target: target.name)
def test_sums_of_rows_stay_in_registers_from_end_to_end(target):
    lowered = lower(ROWS, {"Z": 5000, "P": 501, "K": 300, "N": 24}, target=target)
    loops = segment_loops(lowered)
    assert loops
    for loop in loops:
        assert loop.kind == "serial" and loop.registers == ("Y",)
        (columns,) = (inner for inner in loops_in(loop.body) if inner.kind == "vector")
        assert columns.is_expanded
    assert not any(isinstance(e, Select) for loop in loops for e in expressions_in(loop.body))


def test_elements_of_short_segments_are_taken_one_by_one():
    """Rows of two on the average: an odd element before pairs is a branch that goes either way."""
    text = (
        "def f(float(Z) v, int32(Z) c, int64(P) ptr, float(N) x) -> (y) {"
        " y(i) +=! v(p) * x(c(p)) where i in 0:P-1, p in ptr(i):ptr(i+1) }"
    )
    (loop,) = segment_loops(lower(text, {"Z": 1000, "P": 501, "N": 300}, target=X86_64_V4))
    assert (loop.kind, loop.lanes, loop.interleave) == ("vector", 1, 1) and count_unrolled(loop, X86_64_V4) == 1


def test_threads_share_rows_whose_lengths_differ():
    lowered = lower(ROWS, {"Z": 50000, "P": 5001, "K": 300, "N": 24})
    (outer,) = (loop for loop in loops_in(lowered.nest.body) if loop.kind == "parallel")
    assert outer.is_uneven and outer.least_part
    assert "1200000 operations" not in lowered.summary()  # of the points that there are, not of all pairs


def test_a_sum_over_all_segments_goes_through_them_in_order():
    lowered = lower(TOTAL, {"Z": 500, "P": 51})
    assert segment_loops(lowered)


@pytest.mark.parametrize(("text", "sizes"), [(LENGTHS, {"B": 3, "L": 5, "D": 17}), (TESTED, {"B": 3, "L": 40})])
def test_loops_mean_what_the_program_says(text, sizes):
    check(text, sizes)


@pytest.mark.parametrize("ends", ["int32", "int64"])
def test_elements_of_segments_are_reached_by_their_segments(ends):
    lowered = lower(SOFTMAX.replace("int32", ends), {"Z": 50000, "P": 5001})
    (segments,) = lowered.nest.body
    assert isinstance(segments, Loop) and segments.kind == "parallel"
    assert segment_loops(lowered) == list(segments.body) and all(loop.lanes == 16 for loop in segments.body)
    (stored,) = segments.body[-1].body
    assert isinstance(stored, Store) and stored.buffer == "w"  # once, and nothing before it
    counts = np.array([0, 1, 3, 40, 0, 16, 7, 0])
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(ends)
    x = np.random.default_rng(1).standard_normal(ptr[-1]).astype(np.float32)
    parts = [np.exp(part - part.max()) for part in np.split(x, ptr[1:-1]) if part.size]
    expected = np.concatenate([part / part.sum() for part in parts])
    np.testing.assert_allclose(polyc.compile(SOFTMAX.replace("int32", ends))(x, ptr), expected, rtol=1e-5)


def test_elements_that_nothing_says_to_be_in_one_segment_may_be_in_several():
    tested = """def f(float(Z) x, int32(P) ptr) -> (s) {
  s(i) +=! (p >= ptr(i) && p < ptr(i+1)) ? x(p) : 0.0 where i in 0:P-1, p in 0:Z }"""
    found = [find_parts(lower(text, {"Z": 500, "P": 51}).scop) for text in (SOFTMAX, tested)]
    assert [sorted(parts) for parts in found] == [["S0", "S1", "S2"], []]


PACKED = """def f(float(T,D) q, float(T,D) k, int32(B) seq) -> (S) {
  S(i,j) +=! q(i,d) * k(j,d) where b in 1:B, i in seq(b-1):seq(b), j in seq(b-1):seq(b) }"""


SAMPLED = """def f(float(Z) v, int32(Z) c, int32(P) ptr, float(R,K) U, float(N,K) V) -> (d, best, s) {
  d(p) +=! U(i,k) * V(c(p),k) where i in 0:R, p in ptr(i):ptr(i+1)
  best(p) max=! U(i,k) + V(c(p),k) where i in 0:R, p in ptr(i):ptr(i+1)
  s(i) +=! d(p) * v(p) where i in 0:R, p in ptr(i):ptr(i+1) }"""


def test_threads_share_segments_of_elements_that_are_sums():
    lowered = lower(SAMPLED, {"Z": 5000, "P": 401, "R": 400, "N": 300, "K": 24})
    segments = lowered.nest.body[-1]
    assert isinstance(segments, Loop) and segments.kind == "parallel" and segments.is_uneven


def test_sums_over_pairs_in_segments_are_those_of_dense_products():
    seq = np.array([0, 3, 3, 9, 10], np.int32)
    q, k = np.random.default_rng(1).integers(-4, 5, (2, 10, 7)).astype(np.float32)
    number = np.repeat(np.arange(4), np.diff(seq))
    expected = np.where(number[:, None] == number, q @ k.T, 0)
    np.testing.assert_array_equal(polyc.compile(PACKED)(q, k, seq), expected)


@pytest.mark.parametrize("is_cut", [True, False])
def test_sums_touch_no_elements_of_other_segments(is_cut):
    """Where their loop is not cut to the segment they would add the identity to elements that another thread is at."""
    options = Options(disable=() if is_cut else ("tighten-bounds",))
    lowered = lower(SAMPLED, {"Z": 5000, "P": 401, "R": 400, "N": 300, "K": 24}, options=options)
    found = [(n, scope) for n, scope in nodes_in(lowered.nest.body) if isinstance(n, Update) and n.buffer in ("d", "best")]
    tested = [
        any(isinstance(step, Fact) and any(True for _ in reads(step.condition)) for step in scope.path) for _, scope in found
    ]
    assert len(found) == 2 and tested == [not is_cut] * 2
    assert not any(isinstance(n.value, Select) for n, _ in found)


UNCOVERED = {
    "random": [3, 0, 1, 17, 0, 40, 5],
    "one giant": [1, 0, 900, 2],
    "all empty": [0, 0, 0],
    "none": [],
}


@pytest.mark.parametrize("target", [X86_64_V3, X86_64_V4])
def test_sums_into_elements_of_segments_are_those_of_loops(target):
    """Elements in no segment, in front of the first and behind the last one, have the initial value; threads change no bit."""
    if target.vector_bits > host_target().vector_bits:
        pytest.skip("the host has shorter vectors")
    rng = np.random.default_rng(3)
    for dynamic in (False, True):
        op = polyc.compile(SAMPLED, target=target.name, dynamic=dynamic)
        for what, counts in UNCOVERED.items():
            ptr = (4 + np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])).astype(np.int32)
            z, rows = int(ptr[-1]) + 6, len(counts)
            u, x = rng.standard_normal((rows, 5), np.float32), rng.standard_normal((9, 5), np.float32)
            v, c = rng.standard_normal(z, np.float32), rng.integers(0, 9, z).astype(np.int32)
            d, best, s = np.zeros(z, np.float32), np.full(z, -np.inf, np.float32), np.zeros(rows, np.float32)
            for i, (a, b) in enumerate(pairwise(ptr)):
                d[a:b], best[a:b] = x[c[a:b]] @ u[i], (x[c[a:b]] + u[i]).max(1)
                s[i] = d[a:b] @ v[a:b]
            try:
                results = []
                with small_thresholds():
                    for n in (1, 2, 3):
                        polyc.set_num_threads(n)
                        results.append(op(v, c, ptr, u, x))
            finally:
                polyc.set_num_threads(None)
            for got in results:
                for one, wanted, first in zip(got, (d, best, s), results[0], strict=True):
                    np.testing.assert_allclose(one, wanted, rtol=2e-4, atol=2e-4, err_msg=what)
                    assert one.tobytes() == first.tobytes(), what


def test_an_element_gets_one_value_in_text_too():
    program, _, _ = run_pass("loaded-bounds", *infer(read(SOFTMAX)))
    assert " once" in str(program) and parse_program(str(program)) == program


COUNTS = {
    "even": [4] * 40,
    "uneven": [0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 64, 65, 0, 0, 1],
    "one giant": [1, 1, 700, 1],
    "all empty": [0, 0, 0],
}


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_kernels_sum_segments_of_any_length(counts, dynamic):
    rng = np.random.default_rng(1)
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    columns = rng.integers(0, 50, max(1, ptr[-1])).astype(np.int32)
    v = rng.integers(-4, 5, columns.size).astype(np.float32)  # sums of whole numbers are exact in any order
    for text, shape in ((VECTOR, (50,)), (ROWS, (50, 19))):
        x = rng.integers(-4, 5, shape).astype(np.float32)
        got = polyc.compile(text, dynamic=dynamic)(v, columns, ptr, x)
        expected = np.zeros((len(counts), *shape[1:]), np.float32)
        for i in range(len(counts)):
            for p in range(ptr[i], ptr[i + 1]):
                expected[i] += v[p] * x[columns[p]]
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("text", [VECTOR, ROWS])
@pytest.mark.parametrize("bad", [-1, 50, 1 << 30])
def test_positions_outside_are_found_in_whatever_segment_they_are(text, bad):
    rng = np.random.default_rng(1)
    ptr = np.arange(0, 401, 4, dtype=np.int32)
    columns, v = rng.integers(0, 50, 400).astype(np.int32), rng.standard_normal(400).astype(np.float32)
    x = rng.standard_normal((50, 19)[: 2 if text is ROWS else 1]).astype(np.float32)
    operator = polyc.compile(text)
    for place in (0, 127, 128, 399):
        wrong = columns.copy()
        wrong[place] = bad
        with pytest.raises(IndexError, match=str(bad)):
            operator(v, wrong, ptr, x)
    operator(v, columns, ptr, x)
    short = ptr[:50]  # what no segment holds is not looked at
    wrong = columns.copy()
    wrong[200] = bad
    operator(v, wrong, short, x)


def test_sums_have_the_same_bits_for_any_number_of_threads():
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 60, 400)
    counts[17] = 9000  # nearly half of the work in one segment
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    columns, v = rng.integers(0, 50, ptr[-1]).astype(np.int32), rng.standard_normal(ptr[-1]).astype(np.float32)
    x = rng.standard_normal((50, 19)).astype(np.float32)
    operator = polyc.compile(ROWS)
    try:
        results = []
        for n in (1, 2, 3):
            polyc.set_num_threads(n)
            results.append(operator(v, columns, ptr, x))
    finally:
        polyc.set_num_threads(None)
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()


OVERLAPPING = {
    "ends beyond": ("p in ptr(i):min(ptr(i+1)+3, Z)", "v(p)", "w(p)"),
    "tests": ("p in 0:Z", "v(p)", "ptr(i) <= p && p < ptr(i+1) + 3 ? w(p) : 0.0"),
}


@pytest.mark.parametrize(("span", "value", "term"), OVERLAPPING.values(), ids=OVERLAPPING)
def test_ranges_that_overlap_are_no_segments(span, value, term):
    """What a range read beyond its segment was not computed yet."""
    text = f"""def f(float(Z) v, int32(P) ptr, float(R) x) -> (w, y) {{
      w(p) = {value} * x(i) where i in 0:R, p in ptr(i):ptr(i+1)
      y(i) +=! {term} where i in 0:R, {span} }}"""
    counts = np.array([0, 3, 1, 9, 0, 7, 20])
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    v, x = (np.random.default_rng(2).integers(-4, 5, n).astype(np.float32) for n in (ptr[-1], counts.size))
    expected = v * np.repeat(x, counts)
    w, y = polyc.compile(text)(v, ptr, x)
    np.testing.assert_array_equal(w, expected)
    np.testing.assert_array_equal(y, [expected[a : min(b + 3, ptr[-1])].sum() for a, b in pairwise(ptr)])


@pytest.mark.parametrize("value", [2**63 - 1, 2**63 - 2, -(2**63), 3])
@pytest.mark.parametrize(("test", "holds"), [("k <= n(0)", np.less_equal), ("k > n(0)", np.greater)])
def test_no_end_of_a_loop_is_beyond_the_integers(test, holds, value):
    operator = polyc.compile(f"def f(float(300, 9) x, int64(1) n) -> (y) {{ y(d) +=! {test} ? x(k, d) : 0.0 }}")
    found = operator(np.ones((300, 9), np.float32), np.array([value]))
    np.testing.assert_array_equal(found, np.full(9, holds(np.arange(300), value).sum()))
