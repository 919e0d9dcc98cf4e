"""Tolerances and the comparison of results."""

import re

import numpy as np
import pytest

from polyc.ir.text_reader import parse_program
from polyc.ir.tolerance import check_results, compare_results, expect_results, operation_count, tolerance
from polyc.ir.types import F32, F64, I32

MEAN = parse_program(
    """program variance(A: f32[N, K]) -> (V)
         sizes N, K
         temporary S: f32[?]
         temporary Q: f32[?]
         output V: f32[?]
         S0(i, k): S[i] += A[i + 1, k] init 0.0
         S1(i, k): Q[i] += A[i + 1, k] * A[i + 1, k] init 0.0
         S2(i): V[i] = Q[i] - S[i] * S[i]"""
)


def test_operations_are_counted_along_the_longest_path() -> None:
    counts = operation_count(MEAN, {"N": 3, "K": 10})
    assert counts == {"A": 0, "S": 10, "Q": 11, "V": 13}
    assert tolerance(MEAN, {"N": 3, "K": 10}, I32) == (0.0, 0.0)
    narrow, wide = tolerance(MEAN, {"N": 3, "K": 10}, F32)[0], tolerance(MEAN, {"N": 3, "K": 10}, F64)[0]
    assert wide < 1e-14 < narrow < 1e-5
    assert narrow < tolerance(MEAN, {"N": 3, "K": 1000}, F32)[0] < 1e-3


@pytest.mark.parametrize(
    ("got", "message"),
    [
        ([1.0, np.nan, np.inf], None),
        ([1.0 + 1e-6, np.nan, np.inf], None),
        ([1.5, np.nan, np.inf], r"O\[5\] is 1.5, expected 1.0$"),
        ([1.0, 2.0, np.inf], r"O\[6\] is 2.0, expected nan$"),
        ([1.0, np.nan, -np.inf], r"O\[7\] is -inf, expected inf$"),
        ([np.nan, np.nan, 1.0], r"O\[5\] is nan, expected 1.0 \(2 of 3 elements differ\)$"),
        ([1.0], r"O has the shape \(1,\), expected \(3,\)"),
    ],
)
def test_comparison_names_the_element(got: list[float], message: str | None) -> None:
    expected = {"O": np.array([1.0, np.nan, np.inf])}
    found = compare_results({"O": np.array(got, np.float32)}, expected, (1e-5, 1e-5), {"O": (5,)})
    if message is None:
        assert found is None
    else:
        assert found is not None
        assert re.search(message, found), found


def test_integers_must_be_equal() -> None:
    one, two = {"O": np.array([1, 2], np.int32)}, {"O": np.array([1, 3], np.int32)}
    assert compare_results(one, one, (0.0, 0.0)) is None
    assert compare_results(one, two, (0.5, 0.5)) == "O[1] is 2, expected 3"


def test_cancellation_widens_the_tolerance() -> None:
    """The variance of a large constant is rounding error alone; a kernel that sums in another order must still pass."""
    a = np.full((2, 1000), 1000.0, np.float32) + np.random.default_rng(0).standard_normal((2, 1000)).astype(np.float32)
    expected = expect_results(MEAN, {"A": a})
    assert expected.origins == {"V": (-1,)}
    s = a[:, ::-1].cumsum(1, dtype=np.float32)[:, -1]
    q = (a * a)[:, ::-1].cumsum(1, dtype=np.float32)[:, -1]
    assert check_results({"V": q - s * s}, expected) is None
    assert check_results({"V": 2 * (q - s * s)}, expected) is not None


def test_results_that_overflow_only_in_f32_are_unsure() -> None:
    program = parse_program("program p(A: f32[N]) -> (O) sizes N output O: f32[?] S0(i): O[i] = A[i] * 1e30 / 1e30")
    expected = expect_results(program, {"A": np.array([1e20, 1.0, 1.0], np.float32)})
    assert check_results({"O": np.array([np.inf, 1.0, 1.0], np.float32)}, expected) is None
    assert check_results({"O": np.array([1e20, 1.001, 1.0], np.float32)}, expected) is not None


def test_a_clamp_at_zero_leaves_room_for_the_sums_behind_it() -> None:
    """Half of the results are exactly 0: the median element says nothing about the size of the sums."""
    program = parse_program(
        "program p(A: f32[M, N]) -> (O) sizes M, N temporary S: f32[?] output O: f32[?]"
        " S0(i, k): S[i] += A[i, k] init 0.0:f32 S1(i): O[i] = max(S[i] - 1.0:f32, 0.0:f32)"
    )
    a = np.random.default_rng(0).standard_normal((64, 4000)).astype(np.float32)
    a[0] -= a[0].mean()
    a[0, 0] += 1.00001  # a sum next to 1: what is left behind the subtraction is mostly rounding
    a[1:40] = -1
    expected = expect_results(program, {"A": a})
    sums = a[:, ::-1].cumsum(1, dtype=np.float32)[:, -1]
    assert check_results({"O": np.maximum(sums - 1, np.float32(0))}, expected) is None
    assert check_results({"O": np.maximum(sums * np.float32(1.01) - 1, np.float32(0))}, expected) is not None


def test_a_sum_that_cancels_to_almost_nothing_may_keep_its_rounding_errors() -> None:
    program = parse_program("program p(A: f32[N]) -> (S) sizes N output S: f32[] S0(i): S[] += A[i] init 0.0:f32")
    a = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    a = np.concatenate([a, -a[::-1], np.float32([1e-3])])
    expected = expect_results(program, {"A": a})
    sums = np.array([a[np.random.default_rng(k).permutation(a.size)].cumsum(dtype=np.float32)[-1] for k in range(5)])
    assert (np.abs(sums - 1e-3) > 1e-6).any()
    for total in sums:
        assert check_results({"S": total}, expected) is None
    assert check_results({"S": np.float32(0.5)}, expected) is not None


def test_an_element_that_cancels_far_above_the_others_may_keep_its_rounding_errors() -> None:
    """The reference may happen to be right to the last bit there; the typical element is a thousand times smaller."""
    program = parse_program(
        "program p(P: f32[M, N], Q: f32[M, N]) -> (O) sizes M, N temporary S: f32[?] temporary T: f32[?] output O: f32[?]"
        " S0(i, k): S[i] *= P[i, k] init 1.0:f32 S1(i, k): T[i] *= Q[i, k] init 1.0:f32 S2(i): O[i] = S[i] - T[i]"
    )
    rng = np.random.default_rng(6)
    p = rng.uniform(0.1, 0.5, (9, 30)).astype(np.float32)
    q = (p * 0.9).astype(np.float32)
    p[8] *= np.float32(1.5)
    q[8] = rng.permutation(p[8])
    q[8, 0] *= np.float32(1.0001)
    expected, product = expect_results(program, {"P": p, "Q": q}), q.cumprod(1, dtype=np.float32)[:, -1]
    for k in range(50):
        order = np.random.default_rng(k).permutation(30)
        got = p[:, order].cumprod(1, dtype=np.float32)[:, -1] - product
        assert check_results({"O": got}, expected) is None, k
    got[8] *= np.float32(1.2)
    assert check_results({"O": got}, expected) is not None
