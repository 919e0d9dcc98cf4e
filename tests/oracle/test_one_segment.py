"""Products of matrices in segments, computed segment by segment, against NumPy; and what is still computed at once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from polyc.ir.expr import Size, walk
from polyc.ir.loops import Loop
from polyc.machine import X86_64_V4
from polyc.runtime.threads import limited_to
from tests.scheduler.support import lower

Array = np.ndarray[Any, Any]
BOTH = "where i in ptr(b):ptr(b+1), j in ptr(b):ptr(b+1)"
ATTENTION = """def f({t}(T, H, D) Q, {t}(T, H, D) K, {t}(T, H, D) V, int32(P) ptr) -> (Y) {{
  S(h, i, j) +=! Q(i, h, d) * K(j, h, d) {both}
  M(h, i) max=! S(h, i, j) {both}
  L(h, i) +=! exp(S(h, i, j) - M(h, i)) {both}
  Y(i, h, d) +=! exp(S(h, i, j) - M(h, i)) / L(h, i) * V(j, h, d) {both}
}}"""
POOLED = f"""def f(float(T, D) X, int32(P) ptr) -> (G, trace) {{
  S(i, j) +=! X(i, d) * X(j, d) {BOTH}
  R(i) +=! S(i, j) {BOTH}
  G(b, d, e) +=! R(p) * X(p, d) * X(p, e) where p in ptr(b):ptr(b+1)
  trace(b) +=! G(b, d, d)
}}"""
NORMALISED = f"""def f(float(T, D) X, float(D, D) U, int32(P) ptr) -> (Z) {{
  Q(t, e) +=! X(t, d) * U(d, e)
  S(i, j) +=! Q(i, d) * Q(j, d) {BOTH}
  N(j) +=! S(i, j) * S(i, j) {BOTH}
  Z(i, d) +=! S(i, j) / (1.0 + N(j)) * Q(j, d) {BOTH}
}}"""
SOFTMAX = f"""def f(float(T, D) X, int32(P) ptr) -> (w) {{
  S(i, j) +=! X(i, d) * X(j, d) {BOTH}
  r(i) max=! S(i, j) {BOTH}
  m(b) max=! r(i) where i in ptr(b):ptr(b+1)
  s(b) +=! exp(r(i) - m(b)) where i in ptr(b):ptr(b+1)
  w(i) = exp(r(i) - m(b)) / s(b) where i in ptr(b):ptr(b+1)
}}"""
RAGGED = """def f(ragged float(B, L*, D) Q, ragged float(B, L*, D) K) -> (ragged float(B, L*, D) Y) {
  S(b, l, m) +=! Q(b, l, d) * K(b, m, d) where m <= l
  Y(b, l, d) +=! S(b, l, m) * K(b, m, d) where m <= l
}"""

T = 67
ENDS = ([0, 13, 13, 14, 67], [5, 21, 38, 59, 60], [0, 67, 67, 67, 67], [9, 9, 9, 9, 9], [0, 1, 2, 3, 64])
"""Of four segments: empty ones, lengths of one, elements outside of all of them, one giant one."""


def attend(q: Array, k: Array, v: Array, ends: list[int], causal: bool) -> Array:
    y = np.zeros(q.shape)
    for i, j in pairwise(ends):
        if i < j:
            s = np.einsum("ihd,jhd->hij", q[i:j], k[i:j])
            s = np.where(np.tri(j - i, dtype=bool), s, -np.inf) if causal else s
            s = np.exp(s - s.max(axis=2, keepdims=True))
            y[i:j] = np.einsum("hij,jhd->ihd", s / s.sum(axis=2, keepdims=True), v[i:j])
    return y


def draw(*shape: int, dtype: Any = np.float32) -> Array:
    return (np.random.default_rng([*shape]).standard_normal(shape) / 2).astype(dtype)


def is_by_segments(operator: Any, *arrays: Any) -> bool:
    return any(r.pass_name == "one-segment" and r.kind == "passed" for r in operator.lower(*arrays).remarks)


def draw_ends(seed: int) -> list[int]:
    """Of 17 segments, some of them empty, of 300 elements, some of them in none."""
    return np.sort(np.random.default_rng(seed).integers(0, 301, 18)).tolist()


@pytest.mark.parametrize(("causal", "dtype", "n"), [(False, "float", 300), (True, "double", T)])
def test_attention_over_packed_sequences(causal: bool, dtype: str, n: int) -> None:
    text = ATTENTION.format(t=dtype, both=BOTH + (", j <= i" if causal else ""))
    f = polyc.compile(text, dynamic=not causal)
    q, k, v = (draw(n, 2, d, dtype=np.dtype(dtype.replace("float", "float32")))[:, :, :5] for d in (5, 6, 7))
    cases = ENDS if n == T else [draw_ends(1), [0, *draw_ends(2)[1:-1], 300], [7] * 18]
    for ends in cases:
        results = []
        for threads in (1, 2, 3):
            with limited_to(threads):
                results.append(f(q, k, v, np.array(ends, np.int32)))
        np.testing.assert_allclose(results[0], attend(q, k, v, ends, causal), rtol=1e-4, atol=1e-5)
        assert all(np.array_equal(results[0], r) for r in results[1:])


def loop_over(X: Array, ends: list[int], compute: Callable[[Array], Array], *shape: int) -> Array:
    y = np.zeros(shape)
    for i, j in pairwise(ends):
        y[i:j] = compute(X[i:j])
    return y


def normalise(x: Array) -> Array:
    s = x @ x.T
    return s / (1 + (s * s).sum(axis=0)) @ x


@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_pairs_that_are_all_kept_and_results_of_segments(ends: list[int]) -> None:
    X, U, ptr = draw(T, 6), draw(6, 6), np.array(ends, np.int32)
    np.testing.assert_allclose(NORMALISING(X, U, ptr), loop_over(X @ U, ends, normalise, T, 6), rtol=1e-4, atol=1e-5)
    G, trace = POOLING(X, ptr)
    parts = [X[i:j] for i, j in pairwise(ends)]
    grams = [(x.T * (x @ x.T).sum(axis=1)) @ x for x in parts]
    np.testing.assert_allclose(G, grams, rtol=1e-4, atol=1e-3)
    traces = np.array([np.trace(g) for g in grams])
    np.testing.assert_allclose(trace, traces, rtol=1e-4, atol=1e-3)


NORMALISING, POOLING = (polyc.compile(text, dynamic=True) for text in (NORMALISED, POOLED))


LAST = "* V(j, h, d) {both}\n  Z(i, h, d) = float16(Y(i, h, d) / L(h, i))"
DIVIDED = ATTENTION.replace("/ L(h, i) * V(j, h, d) {both}", LAST).replace("-> (Y)", "-> (Z)")


def test_what_follows_at_each_position_is_computed_in_no_segment_too() -> None:
    f = polyc.compile(DIVIDED.format(t="float", both=BOTH))
    q, k, v = (draw(T, 1, n)[:, :, :4] for n in (4, 5, 6))
    for ends in (ENDS[0], ENDS[1]):
        result, expected = f(q, k, v, np.array(ends, np.int32)), attend(q, k, v, ends, False)
        expected[: ends[0]] = expected[ends[-1] :] = np.nan
        np.testing.assert_allclose(result, expected, rtol=1e-2, atol=1e-2)


def test_results_that_segments_have_to_cover() -> None:
    f, X, ends = polyc.compile(SOFTMAX), draw(T, 4), [0, 40, 40, 67]

    def compute(x: Array) -> Array:
        w = np.exp((x @ x.T).max(axis=1, initial=-np.inf))
        return w / w.sum()

    np.testing.assert_allclose(f(X, np.array(ends, np.int32)), loop_over(X, ends, compute, T), rtol=1e-4)
    out = np.full(T, 7, np.float32)
    for bad in ([0, 40, 41, 66], [0, 40, 39, 67], [0, 40, 40, 68]):
        with pytest.raises(PolycError) as error:
            f(X, np.array(bad, np.int32), out=out)
        assert error.value.diagnostics[0].code == "argument-segments"
        assert (out == 7).all()


def test_ragged_sequences() -> None:
    f = polyc.compile(RAGGED, dynamic=True)
    offsets = np.array([0, 30, 30, 67], np.int32)
    q, k = draw(T, 3), draw(T, 4)[:, :3]
    assert is_by_segments(f, (q, offsets), (k, offsets))
    result = f((q, offsets), (k, offsets))
    expected = [np.tril(q[i:j] @ k[i:j].T) @ k[i:j] for i, j in pairwise(offsets)]
    np.testing.assert_allclose(result.values, np.concatenate(expected), rtol=1e-4, atol=1e-5)


def test_a_result_does_not_overwrite_an_argument_of_which_other_segments_are_read() -> None:
    f, X, U, ends = polyc.compile(NORMALISED), draw(T, 6), draw(6, 6), ENDS[1]
    expected = loop_over(X @ U, ends, normalise, T, 6)
    np.testing.assert_allclose(f(X, U, np.array(ends, np.int32), out=X), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("n", "count", "shared"), [(300, 17, "segments"), (T, 4, "the work on each segment")])
def test_what_threads_share(n: int, count: int, shared: str) -> None:
    lowered = lower(ATTENTION.format(t="float", both=BOTH), {"T": n, "H": 2, "D": 5, "P": count + 1})
    (told,) = (r.message for r in lowered.remarks if r.pass_name == "one-segment")
    assert told.endswith(f"threads share {shared}")


def test_segments_run_in_parallel_and_nothing_is_as_long_as_pairs_of_all_tokens() -> None:
    lowered = lower(ATTENTION.format(t="float", both=BOTH), {"T": 4096, "H": 4, "D": 64, "P": 33}, target=X86_64_V4)
    (segments,) = (n for n in lowered.nest.body if isinstance(n, Loop))
    assert segments.kind == "parallel"
    assert not lowered.nest.segments
    sizes = [[e.value for e in b.shape] for b in lowered.nest.buffers if b.space != "argument"]
    assert sizes
    assert max(map(np.prod, sizes)) <= 4096 * 64
    assert not any(isinstance(e, Size) for b in lowered.nest.buffers for shape in b.shape for e in walk(shape))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"S(i, j) +=! X(i, d) * X(j, d) {BOTH}", "pairs in different segments"),
        (f"S(i, j) +=! X(i, d) * X(j, d) {BOTH}\nY(i) max=! S(i, j)", "not computed in segments"),
        (f"S(i, j) +=! X(i, d) * X(j, d) {BOTH}\nY(d) +=! S(i, j) * X(j, d) {BOTH}", "accumulated over segments"),
        (f"S(i, j) +=! X(i, d) * X(j, d) {BOTH}\nY(i) +=! pad(S(i, j - 1), 0) * X(j, 0) {BOTH}", "beyond a border"),
        (f"S(i, j) +=! X(i, d) * X(j, d) {BOTH}\nY(i) +=! S(i, j) {BOTH.replace('ptr', 'other')}", "several partitions"),
        (f"S(i, j) +=! X(i, d) * X(j, d) {BOTH}\nY(i) +=! S(i, j) * X(c(j), 0) {BOTH}", "only data tells whether X has"),
        (f"S(i, j) +=! X(i, d) * X(j, d) {BOTH}\nY(i) +=! S(i, 0) * X(j, 0) {BOTH}", "reads S at other positions"),
        (f"S(i, j) +=! X(i, d) * X(j, d) {BOTH}\nR(i) max=! S(i, j) {BOTH}\nY(i) = R(i) * X(i, 0)", "in no segment, too"),
        (f"S(i, j) +=! X(i, d) * X(j, d) {BOTH}\nR(b) +=! S(i, j) {BOTH}\nY(b) = R(b) where b in 0:1", "for other segments"),
        (f"S(i, j) +=! X(i, d) * X(j, d) {BOTH}\nY(i) +=! S(i, j) {BOTH}, b in 1:2", "several partitions"),
        (f"S(i, j) +=! X(i, d) * X(j, d) {BOTH}\nY(i) +=! S(i, j) {BOTH}\nY(i) += S(i, j) * X(j, 0) {BOTH}", "starts from"),
    ],
)
def test_why_all_segments_are_computed_at_once(text: str, reason: str) -> None:
    result = "Y" if "Y" in text else "S"
    program = f"def f(float(T, D) X, int32(P) ptr, int32(P) other, int32(T) c) -> ({result}) {{\n{text}\n}}"
    lowered = lower(program, {"T": 40, "D": 3, "P": 3})
    (told,) = (r.message for r in lowered.remarks if r.pass_name == "one-segment")
    assert reason in told


def test_a_number_as_subscript_of_any_size_is_not_called_a_position_that_data_gives() -> None:
    text = f"S(i, j) +=! X(i, d) * X(j, d) {BOTH}\nY(i) +=! S(i, j) * u(0) {BOTH}"
    f = polyc.compile(f"def f(float(T, D) X, float(D) u, int32(P) ptr) -> (Y) {{\n{text}\n}}", dynamic=True)
    lowered = f.lower(draw(9, 3), draw(3), np.array([0, 9], np.int32))
    (told,) = (r.message for r in lowered.remarks if r.pass_name == "one-segment")
    assert told.endswith("only data tells whether u has what Y reads")
