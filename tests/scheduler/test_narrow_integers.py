"""Integer arithmetic in 16 bits: where every value fits, and that results are the same where some are at their limits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import polyc
from polyc.ir.types import I16, I32, U16
from polyc.scheduler.rewriting.narrow_integers import narrow_integers
from tests.scheduler.support import infer, read, statements

HEAD = "def f(uint8(H,W) X) -> (Y) { "

NARROW: dict[str, tuple[str, str, Callable[[np.ndarray], np.ndarray]]] = {
    "box filter": (
        HEAD + "S(h,w) +=! int32(X(h+a,w+b)) where a in 0:3, b in 0:3  Y(h,w) = uint8(S(h,w) / 9) }",
        "uint8",
        lambda x: sum(x[a : len(x) - 2 + a, b : x.shape[1] - 2 + b] for a in range(3) for b in range(3)) // 9,
    ),
    "luminance": (HEAD + "Y(h,w) = uint8((77*int32(X(h,w)) + 150*int32(X(h,w)) + 29*int32(X(h,w))) / 256) }", "uint8", np.copy),
    "below zero": (
        "def f(int8(H,W) X) -> (Y) { Y(h,w) = int8((int32(X(h,w)) * 3 - 100) / 5) }",
        "int8",
        lambda x: (x * 3 - 100) // 5,
    ),
    "remainder": (
        "def f(int8(H,W) X) -> (Y) { Y(h,w) = float((int32(X(h,w)) - 7) % 10) }",
        "int8",
        lambda x: (x - 7) % 10,
    ),
    "comparison": (HEAD + "Y(h,w) = int32(X(h,w)) * int32(X(h,w)) > 40000 ? 1 : 0 }", "uint8", lambda x: x * x > 40000),
    "difference": (
        HEAD + "d(h,w) = int32(X(h,w+1)) - int32(X(h,w))  Y(h,w) = uint8(max(d(h,w), 0 - d(h,w))) }",
        "uint8",
        lambda x: abs(x[:, 1:] - x[:, :-1]),
    ),
    "extrema": (
        HEAD + "S(h,w) max=! int32(X(h+a,w)) - 200 where a in 0:3  Y(h,w) = float(S(h,w) * 3) }",
        "uint8",
        lambda x: (np.maximum(np.maximum(x[:-2], x[1:-1]), x[2:]) - 200) * 3,
    ),
}

WIDE = {
    "two products of bytes": HEAD + "Y(h,w) = uint8((int32(X(h,w)) * int32(X(h,w)) + 2 * int32(X(h,w)) * 200) / 255) }",
    "a sum below zero on its way": HEAD + "Y(h,w) = uint8((255 * int32(X(h,w)) - 130 * int32(X(h,w)) + 10) / 256) }",
    "one more than 16 bits hold": HEAD + "Y(h,w) = uint8((int32(X(h,w)) * 257 + 1) / 512) }",
    "bytes that wrap around": HEAD + "Y(h,w) = uint8(int32(X(h,w) + X(h,w)) / 2) }",
    "sums of products": HEAD + "S(h) +=! int32(X(h,k)) * int32(X(h,k)) where k in 0:3  Y(h) = float(S(h)) }",
    "results of 32 bits": HEAD + "Y(h,w) = int32(X(h,w)) * 2 }",
    "many terms": "def f(uint8(H,100) X) -> (Y) { S(h) +=! int32(X(h,k))  Y(h) = float(S(h)) }",
    "sums that meet": HEAD + "S(h+w) +=! int32(X(h,w))  Y(i) = float(S(i)) }",
    "sums of many places": "def f(uint8(W) X) -> (Y) { S(w/300) +=! int32(X(w))  Y(i) = float(S(i)) }",
    "a product": HEAD + "S(h) *=! int32(X(h+a,0)) where a in 0:2  Y(h) = float(S(h)) }",
    "a divisor from data": HEAD + "Y(h,w) = uint8((int32(X(h,w)) + 9) / int32(X(0,w))) }",
    "16-bit sums": "def f(int16(H,W) X) -> (Y) { Y(h,w) = int16((int32(X(h,w)) + 1) / 2) }",
    "subscripts": HEAD + "k(h) = int32(X(h,0)) % 3  Y(h) = float(X(h, k(h))) where exists X(h,0) }",
}


def test_before_and_after():
    program, ranges = infer(read(NARROW["box filter"][0]), H=9, W=40)
    new, _, remarks = narrow_integers(program, ranges)
    assert statements(new) == [
        "S0(h, w, a, b): S[h, w] += u16(X[h + a, w + b]) init 0:u16",
        "where a in 0:3, b in 0:3",
        "S1(h, w): Y[h, w] = u8(S[h, w] // 9:u16)",
    ]
    assert (program.tensor("S").dtype, new.tensor("S").dtype) == (I32, U16)
    assert [r.pass_name for r in remarks] == ["narrow", "narrow"]
    assert narrow_integers(new, ranges)[0] == new


def test_values_below_zero_take_a_type_with_a_sign():
    program, ranges = infer(read(NARROW["extrema"][0]), H=9, W=40)
    assert narrow_integers(program, ranges)[0].tensor("S").dtype == I16


@pytest.mark.parametrize("name", NARROW)
def test_every_form(name: str):
    text, dtype, expect = NARROW[name]
    program, ranges = infer(read(text), H=9, W=70)
    assert narrow_integers(program, ranges)[2]
    limits = np.iinfo(dtype)
    for shape in ((3, 3), (9, 70), (40, 131)):
        x = np.random.default_rng(shape).integers(limits.min, limits.max, shape, np.dtype(dtype), endpoint=True)
        x.flat[:4] = limits.min, limits.max, limits.max, limits.min
        y = polyc.compile(text)(x)
        assert np.array_equal(y, expect(x.astype(int)).astype(y.dtype))


def test_borders_of_one_value_do_not_overflow():
    text = HEAD + "S(h,w) +=! int32(X(h+a,w+b)) where a in 0:8, b in 0:8  Y(h,w) = float(S(h,w)) }"
    x = np.full((20, 50), 255, np.uint8)
    assert np.all(polyc.compile(text)(x) == 64 * 255)


def test_sums_along_diagonals_and_in_bins_do_not_overflow():
    x = np.full((300, 300), 255, np.uint8)
    assert polyc.compile(WIDE["sums that meet"])(x).max() == 300 * 255
    assert polyc.compile(WIDE["sums of many places"])(x.reshape(-1)).max() == 300 * 255


@pytest.mark.parametrize("name", WIDE)
def test_what_stays(name: str):
    program, ranges = infer(read(WIDE[name]), H=9, W=70)
    assert narrow_integers(program, ranges) == (program, ranges, [])
