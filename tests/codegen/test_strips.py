"""Sums over segments of elements that data names: these are copied side by side before vectors of them are added up."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.codegen.emission import statements
from polyc.config import Options
from polyc.machine import X86_64_V3, X86_64_V4, Machine
from tests.codegen.support import LEVELS
from tests.property.pipeline import small_thresholds
from tests.scheduler.support import lower

PARAMETERS = "{t}(Z) v, int32(Z) c, int64(Z) d, int32(P) ptr, {t}(K) x, int32(K) k"
VALUES = {
    "+=": "v(p) * x(c(p))",
    "max=": "x(c(p)) * x(d(p))",
    "min=": "x(k(c(p))) + v(p)",
}
WHERE = "where i in 0:P-1, p in ptr(i):ptr(i+1)"
CHOSEN = "v(p) > 0.0 ? x(c(p)) : v(p)"
SEGMENTS = [0, 1, 2, 3, 15, 16, 17, 0, 0, 31, 32, 33, 47, 48, 49, 100, 5, 5, 5, 4999, 0, *range(20), 16, 16, 1, 0]
"""How long segments are: in the first block of them is one that no strip has room for."""


def text(op: str, value: str, dtype: str = "float") -> str:
    return f"def f({PARAMETERS.format(t=dtype)}) -> (y) {{ y(i) {op}! {value} {WHERE} }}"


def inputs(lengths: list[int], dtype: Any, elements: int = 50) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(len(lengths))
    ptr = np.cumsum([0, *lengths], dtype="i4")
    number = lambda size: rng.integers(-8, 9, size)  # noqa: E731
    place = lambda size: rng.integers(0, elements, size)  # noqa: E731
    z = int(ptr[-1])
    return {
        "v": number(z).astype(dtype),
        "c": place(z).astype("i4"),
        "d": place(z),
        "ptr": ptr,
        "x": number(elements).astype(dtype),
        "k": place(elements).astype("i4"),
    }


def expected(op: str, a: dict[str, np.ndarray]) -> np.ndarray:
    v, c, x = a["v"], a["c"], a["x"]
    terms = {"+=": v * x[c], "max=": x[c] * x[a["d"]], "min=": x[a["k"][c]] + v}[op]
    reduce = {"+=": np.sum, "max=": np.max, "min=": np.min}[op]
    nothing = {"+=": 0, "max=": -np.inf, "min=": np.inf}[op]
    return np.array([reduce(terms[i:j]) if i < j else nothing for i, j in pairwise(a["ptr"])], v.dtype)


@pytest.mark.parametrize(
    "op, dtype, dynamic", [("+=", "float", False), ("+=", "double", True), ("max=", "float", True), ("min=", "double", False)]
)
@pytest.mark.parametrize("level", LEVELS[-1:])
def test_sums_over_segments_of_every_length_are_those_of_loops(op, dtype, dynamic, level):
    operator = polyc.compile(text(op, VALUES[op], dtype), target=level, dynamic=dynamic)
    for lengths in (SEGMENTS, [3], [0], [0, 0, 7]) if dynamic else (SEGMENTS,):
        a = inputs(lengths, np.float32 if dtype == "float" else np.float64)
        np.testing.assert_array_equal(operator(**a), expected(op, a))
    a["c"][-1] = 50
    with pytest.raises(polyc.PolycError, match="50 of dimension 0 of"):
        operator(**a)


def test_a_not_a_number_stays_in_its_segment():
    a = inputs(SEGMENTS, np.float32)
    a["x"][7] = np.nan
    np.testing.assert_array_equal(polyc.compile(text("max=", VALUES["max="]))(**a), expected("max=", a))


def test_sums_are_the_same_for_any_number_of_threads():
    rng = np.random.default_rng(3)
    lengths = [int(n) for n in rng.integers(0, 40, 300)]
    lengths[::70] = [5001] * 5
    a = inputs(lengths, np.float32)
    a["v"], before = rng.standard_normal(a["v"].size).astype("f4"), polyc.get_num_threads()
    with small_thresholds():
        operator = polyc.compile(text("+=", VALUES["+="]), target=LEVELS[-1])
        try:
            results = [(polyc.set_num_threads(n), operator(**a).tobytes())[1] for n in (1, 2, 3)]
        finally:
            polyc.set_num_threads(before)
    assert len(set(results)) == 1


def is_copied(source: str, target: Machine = X86_64_V4, z: int | None = 400, reassociate: bool = True) -> bool:
    """`z`: elements of all segments; None: the code is for any sizes."""
    sizes, options = {"Z": z or 0, "P": 41, "K": 50}, Options(reassociate=reassociate)
    lowered = lower(source, sizes, z is not None, options, target)
    return "alloca [16384 x i8]" in lowered.as_text("ll")


@pytest.mark.parametrize("z", [100, 400, None])
def test_elements_that_data_names_are_copied_where_gathers_are_slow(z):
    source = text("+=", VALUES["+="])
    assert is_copied(source, z=z)
    assert not is_copied(source, X86_64_V3, z)
    assert not is_copied(source, replace(X86_64_V4, gather=0.5), z)


def test_conditions_on_sizes_do_not_hide_segments():
    parameters = PARAMETERS.format(t="float")
    source = f"def f({parameters}, int64 T) -> (y) {{ y(i) +=! {VALUES['+=']} {WHERE}, T > 3 }}"
    assert is_copied(source, z=None)
    operator = polyc.compile(source, target=LEVELS[-1], dynamic=True)
    for lengths, t in ((SEGMENTS, 4), (SEGMENTS, 3), ([0], 4)):
        a = inputs(lengths, np.float32)
        np.testing.assert_array_equal(operator(**a, T=t), expected("+=", a) * (t > 3))


def test_what_a_condition_stands_around_is_not_copied_and_orders_are_kept():
    assert not is_copied(text("+=", CHOSEN))
    assert not is_copied(text("+=", VALUES["+="]), reassociate=False)
    a = inputs(SEGMENTS, np.float32)
    terms = np.where(a["v"] > 0, a["x"][a["c"]], a["v"])
    y = polyc.compile(text("+=", CHOSEN))(**a)
    np.testing.assert_array_equal(y, [terms[i:j].sum() for i, j in pairwise(a["ptr"])])


def test_tiles_of_columns_do_not_hide_segments(monkeypatch):
    source = f"""def f(float(Z) v, int32(Z) c, int32(P) ptr, float(K, N) X) -> (Y) {{
      Y(i, n) +=! v(p) * X(c(p), n) {WHERE} }}"""
    found: list[int] = []
    check = statements.segment_checks
    monkeypatch.setattr(statements, "segment_checks", lambda *args: found.append(len(sums := check(*args))) or sums)
    lower(source, {}, False).as_text("ll")
    assert max(found) == 4  # of whole tiles, and the last one in parts of three sizes
    operator = polyc.compile(source, target=LEVELS[-1], dynamic=True)
    for lengths, columns in ((SEGMENTS, 1), (SEGMENTS, 8), (SEGMENTS, 70), (SEGMENTS, 0), ([0], 8), ([3], 33)):
        a = {n: e for n, e in inputs(lengths, np.float32).items() if n in ("v", "c", "ptr")}
        a["X"] = np.random.default_rng(columns).integers(-8, 9, (50, columns)).astype("f4")
        rows = [slice(*ends) for ends in pairwise(a["ptr"])]
        np.testing.assert_array_equal(operator(**a), [a["v"][r] @ a["X"][a["c"][r]] for r in rows])
    for place in (0, 40):
        a = {n: e for n, e in inputs(SEGMENTS, np.float32).items() if n in ("v", "c", "ptr")}
        a["c"][place] = -1
        with pytest.raises(polyc.PolycError, match="-1 of dimension 0 of"):
            operator(**a, X=np.ones((50, 70), "f4"))
