"""Sums over everything up to an index are made from the one before: what is recognised, and that the results are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc

ROWS = "def f(float(N, D) X) -> (Y) {{ Y(n, d) {op}=! X(n, e) where e {relation} d, d in 0:D }}"
AREA = "def f(float(N, D) X) -> (Y) {{ Y(a, d) +=! X(b, e) where e {one} d, b {other} a, d in 0:D+1, a in 0:N }}"


def remarks(text: str, *arrays: Any, **options: Any) -> list[str]:
    lowered = polyc.compile(text, **options).lower(*arrays)
    return [r.message for r in lowered.remarks if r.pass_name == "running-sums"]


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 10, shape).astype("f4")  # sums of whole numbers are exact


def reduce_by(op: np.ufunc, x: np.ndarray, relation: str) -> np.ndarray:
    """Along the last axis, point by point."""
    keeps = {"<=": np.less_equal, "<": np.less, ">=": np.greater_equal, ">": np.greater}[relation]
    place = np.arange(x.shape[-1])
    start = {np.add: 0.0, np.maximum: -np.inf, np.minimum: np.inf}[op]
    columns = [op.reduce(x, axis=-1, where=keeps(place, d), initial=start) for d in place]
    return np.stack(columns, axis=-1) if columns else x


@pytest.mark.pairs
@pytest.mark.parametrize("relation", ["<=", "<", ">=", ">"])
@pytest.mark.parametrize(("op", "function"), [("+", np.add), ("max", np.maximum)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_rows(op: str, function: np.ufunc, relation: str, dynamic: bool) -> None:
    text = ROWS.format(op=op, relation=relation)
    (message,) = remarks(text, array(5, 40), dynamic=dynamic)
    assert ("before" if relation[0] == "<" else "behind") in message
    operator = polyc.compile(text, dynamic=dynamic)
    for shape in [(5, 40), (1, 301)] + [(3, 2), (3, 1), (0, 20), (4, 0)] * dynamic:
        x = array(*shape)
        np.testing.assert_array_equal(operator(x), reduce_by(function, x, relation))


@pytest.mark.parametrize(("one", "other"), [("<=", "<="), ("<", "<="), ("<", "<")])
def test_sums_over_rectangles_from_a_corner_go_along_both_indices(one: str, other: str) -> None:
    text, x = AREA.format(one=one, other=other), array(37, 29)
    message = "each result is made from the one before along a, and from the one before along d"
    found = remarks(text.replace("D+1", "D"), x)
    assert [m.partition(": ")[2] for m in found] == [message]
    down = np.cumsum(np.pad(x, ((1, 0), (1, 0))), axis=0).cumsum(axis=1)  # [a, d] sums what is before both
    want = down[1:, :] if other == "<=" else down[:-1, :]
    want = want[:, 1:] if one == "<=" else want[:, :-1]
    np.testing.assert_array_equal(polyc.compile(text.replace("D+1", "D"))(x), want)


def test_one_more_result_than_terms() -> None:
    """Beginnings of groups, from their sizes: the first one is 0, the last one the number of all."""
    text = "def f(int32(N) S) -> (B) { B(i) +=! S(j) where j < i, i in 0:N+1 }"
    sizes = np.arange(30, dtype=np.int32) % 7
    assert remarks(text, sizes)
    np.testing.assert_array_equal(polyc.compile(text)(sizes), np.concatenate([[0], np.cumsum(sizes)]))


def test_terms_over_more_indices_are_summed_up_first() -> None:
    text = "def f(float(T, K) A, float(T, K, M) B) -> (Y) { Y(t, m) +=! A(s, k) * B(s, k, m) where s <= t, t in 0:T }"
    a, b = array(33, 4), array(33, 4, 6)
    assert remarks(text, a, b)
    np.testing.assert_array_equal(polyc.compile(text)(a, b), np.einsum("sk,skm->sm", a, b).cumsum(axis=0))


def test_a_start_other_than_the_identity_counts_once() -> None:
    text = "def f(float(N) X) -> (Y) { Y(i) = 5.0 where i in 0:N  Y(i) += X(j) where j <= i, i in 0:N }"
    x = array(50)
    np.testing.assert_array_equal(polyc.compile(text)(x), 5 + np.cumsum(x))


@pytest.mark.parametrize(
    "body",
    [
        "Y(i) +=! X(i) * X(j) where j <= i",  # another term for each result
        "Y(i) +=! X(j) where j <= 2*i, i in 0:20",  # two more terms each
        "Y(i) +=! X(j) where i <= j, j <= i + 3, i in 0:20",  # a window
        "Y(i) +=! X(j) where i in 0:40",  # the same for all
    ],
)
def test_what_does_not_grow_by_one_term_is_left_alone(body: str) -> None:
    assert remarks(f"def f(float(N) X) -> (Y) {{ {body} }}", array(40)) == []


def test_options_that_keep_sums_as_written() -> None:
    text = ROWS.format(op="+", relation="<=")
    for options in ({"reassociate": False}, {"disable": "running-sums"}):
        assert remarks(text, array(5, 40), **options) == []


def test_sums_of_halves_are_rounded_once() -> None:
    text = ROWS.format(op="+", relation="<=").replace("float", "float16")
    x = (np.arange(3 * 600).reshape(3, 600) % 50 / 16).astype("f2")
    assert remarks(text, x)
    np.testing.assert_array_equal(polyc.compile(text)(x), np.cumsum(x, axis=1, dtype="f4").astype("f2"))
