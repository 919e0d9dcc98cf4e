"""The points of a statement are those of its text, whatever an operand's type or a constant leaves of it.

Each form is read for each element type and reduction, and compared with loops in Python over the elements that the text reads.
All combinations: ``POLYC_TEST_COMBINATIONS=all pytest tests/oracle/test_domains.py``.
"""

from __future__ import annotations

import linecache
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError, RangeError
from polyc.frontends.python import read_function
from polyc.ir.interpret import interpret
from polyc.ir.text import format_program
from polyc.ir.text_reader import parse_program
from polyc.ir.types import DTYPES

FORMS = [
    *("x[r, k]", "x[r, k + 1]", "np.isfinite(x[r, k])", "np.isinf(x[r, k])", "np.isnan(x[r, k])", "np.isfinite(x[r, k + 1])"),
    *("x[r, k].real", "x[r, k].imag", "np.imag(x[r, k + 1])", "np.conj(x[r, k])", "np.angle(x[r, k])", "abs(x[r, k])"),
    *("np.sign(x[r, k])", "np.floor(x[r, k])", "np.round(x[r, k + 1])", "np.square(x[r, k])", "np.sqrt(x[r, k])"),
    *("np.exp(x[r, k])", "np.positive(x[r, k])", "np.logical_not(x[r, k])", "np.maximum(x[r, k], 1)", "np.fmin(x[r, k], 1)"),
    *("x[r, k] == x[r, k]", "x[r, k] < 1000", "x[r, k] * 0", "x[r, k] ** 0", "x[r, k] // 2", "x[r, k] % 2"),
    *("bool(x[r, k])", "f32(x[r, k].imag)", "np.where(np.isfinite(x[r, k]), 1, 0)", "1 if np.isfinite(x[r, k]) else 0"),
    *(
        "x[r, k] if np.isnan(x[r, k]) else 2",
        "x[r, k] if on else 1",
        "1 if on else x[r, k]",
        "(x[r, k + 1] if on else 1) * w[r]",
    ),
    *("first(w[r], x[r, k])", "chosen(x[r, k], on)", "first(w[r], x[r, k + 1].imag)", "np.where(on, x[r, k], 1)"),
]
TYPES = "bool i8 u8 i32 u32 i64 f16 f32 f64 c64".split()
REDUCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "s[r] += 1 + ({})": sum,
    "s[r] *= 1 + ({})": math.prod,
    "s[r] = max(1 + ({}))": max,
    "s[r] = min(1 + ({}))": min,
    "s[r] = any(({}) == 0)": lambda values: any(v == 1 for v in values),
    "s[r] = all(({}) == 0)": lambda values: all(v == 1 for v in values),
}
HEADER = """
import numpy as np
def first(a, b):
    return a * 1
def chosen(a, on):
    if on:
        return a
    return 1
def f(w, x, *, on):
    {}
    return s
"""
IS_ALL = os.environ.get("POLYC_TEST_COMBINATIONS") == "all"


def define(body: str) -> Callable[..., Any]:
    """The function `f` of `HEADER`, whose source Python finds."""
    text, name = HEADER.format(body), f"<domains {body}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names: dict[str, Any] = {"__name__": "domains"}
    exec(compile(text, name, "exec"), names)
    made: Callable[..., Any] = names["f"]
    return made


def summed(form: str, w: np.ndarray, x: np.ndarray, on: bool) -> list[list[Any]]:
    """By row 1 + the form at each k whose elements the text reads."""
    shift = -1 if "k + 1" in form else 0
    helpers = {"first": lambda a, b: a * 1, "chosen": lambda a, on: a if on else 1, "f32": np.float32, "np": np}
    rows = []
    if x.dtype.kind in "iu":  # NumPy 1 compares elements with no number beyond their type
        w, x = w.astype(object), x.astype(object)
    with np.errstate(all="ignore"):
        for r in range(x.shape[0]):
            points = [{**helpers, "w": w, "x": x, "on": on, "r": r, "k": k} for k in range(shift, x.shape[1] + shift)]
            values = [np.asarray(eval(form, names)) for names in points]
            rows.append([1 + complex(v) if np.iscomplexobj(v) else 1 + float(v) for v in values])
    return rows


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_points_are_those_of_the_text(dtype: str, reduction: str) -> None:
    number = TYPES.index(dtype) + list(REDUCTIONS).index(reduction)
    chosen = [(form, on) for n, form in enumerate(FORMS) for on in (True, False) if IS_ALL or (n + number) % 12 == 6 * on]
    x = np.array([[1, 0, 1], [1, 1, 1]]).astype(polyc_type(dtype))
    w = np.ones(2, x.dtype)
    n_run = 0
    for form, on in chosen:
        function = define(reduction.format(form))
        try:
            read = read_function(function, {"w": (DTYPES[dtype], 1), "x": (DTYPES[dtype], 2)}, {"on": on})
        except PolycError as error:
            assert all(d.code.startswith("type-") for d in error.diagnostics), str(error)
            continue  # no meaning for this type
        n_run += 1
        program = parse_program(format_program(read.program))
        (got,) = interpret(program, {"w": w, "x": x}).values()
        values = [REDUCTIONS[reduction](row) for row in summed(form, w, x, on)]
        assert got.shape == (2,), (form, on)
        np.testing.assert_allclose(got.astype(complex), np.array(values).astype(complex), rtol=3e-3, err_msg=f"{form}, on={on}")
    assert n_run or dtype == "c64" or dtype == "bool"


def polyc_type(name: str) -> np.dtype:
    return DTYPES[name].numpy


@pytest.mark.parametrize("dtype", ["i32", "f32"])
def test_compiled_sums_have_the_points_of_the_text(dtype: str) -> None:
    function = define("s[r] += 1 if np.isfinite(x[r, k + 1]) else 0")
    x = np.ones((3, 5), polyc_type(dtype))
    assert polyc.op(function)(np.ones(3, x.dtype), x, on=True).tolist() == [5] * 3


def test_imaginary_parts_of_real_numbers_have_an_index_in_text() -> None:
    f = polyc.compile("def f(float(R,K) x, float(R) w) -> (s) { s +=! w(r) * (imag(x(r,k)) + 1.0) }")
    assert f(np.ones((3, 5), np.float32), np.ones(3, np.float32)) == 15


@pytest.mark.parametrize("dtype", ["i32", "f32", "c64"])
@pytest.mark.parametrize("form", ["np.isfinite(x[r, 7])", "x[r, 7].imag", "x[r, 0] if on else x[r, 7].real"])
def test_subscripts_out_of_range_are_refused_whatever_is_left_of_them(dtype: str, form: str) -> None:
    x = np.ones((2, 3), polyc_type(dtype))
    if "on" in form:
        form = form.replace("x[r, 0]", "w[r]")
    with pytest.raises(RangeError, match="subscript 7"):
        polyc.op(define(f"s[r] = {form}"))(np.ones(2, x.dtype), x, on=True)


@pytest.mark.parametrize("dtype", ["i32", "f32"])
def test_subscripts_that_are_data_are_checked_whatever_is_left_of_them(dtype: str) -> None:
    x = np.ones((2, 3), polyc_type(dtype))
    with pytest.raises(PolycError, match="subscript 9 of dimension 1"):
        polyc.op(define("s[r] = np.isfinite(x[r, w[r]])"))(np.array([0, 9]), x, on=True)


@pytest.mark.parametrize("is_turned", [True, False])
def test_a_constant_chooses_between_elements_of_one_tensor(is_turned: bool) -> None:
    function = define("s[m, n] += x[m, k] * (w[n, k] if on else w[k, n])")
    x, w = np.ones((2, 3)), np.ones((5, 3) if is_turned else (3, 5))
    np.testing.assert_array_equal(polyc.op(function)(w, x, on=is_turned), np.full((2, 5), 3))
