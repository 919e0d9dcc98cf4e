"""Tiles along rows of a long result begin where its cache lines do: the first and the last one overlap their neighbours."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyc
from tests.codegen.test_streams import at_offset
from tests.machines import stream_all_results

BLUR = """
def blur(float(H, W) X) -> (Y) {
  R(y, x) = 0.25 * X(y, x) + 0.5 * X(y, x + 1) + 0.25 * X(y, x + 2)
  Y(y, x) = 0.25 * R(y, x) + 0.5 * R(y + 1, x) + 0.25 * R(y + 2, x)
}
"""
TWO_RESULTS = """
def edges(float(H, W) X) -> (Y, Z) {
  R(y, x) = X(y, x) + X(y, x + 1) + X(y, x + 2)
  Y(y, x) = R(y, x) + R(y + 1, x) + R(y + 2, x)
  Z(y, x) = R(y + 2, x) - R(y, x)
}
"""
HALVED = """
def halved(float(H, W) X) -> (Y) {
  R(y, x) = X(y, 2 * x) + X(y, 2 * x + 1) + X(y, 2 * x + 2)
  Y(y, x) = R(2 * y, x) + R(2 * y + 1, x) + R(2 * y + 2, x) where y in 0:H/2-1, x in 0:W/2-1
}
"""
GATHERED = """
def gathered(float(H, W) X, float(T) table, int32(H, W) I) -> (Y) {
  R(y, x) = X(y, x) + X(y, x + 1)
  Y(y, x) = table(I(y, x)) * (R(y, x) + R(y + 1, x))
}
"""


@pytest.fixture(autouse=True)
def long_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result is long, and tiles are worth it for small images."""
    stream_all_results(monkeypatch)
    monkeypatch.setattr("polyc.scheduler.rewriting.overlap.overlap.is_faster", lambda tiled, whole: True)
    monkeypatch.setattr("polyc.scheduler.rewriting.overlap.overlap.ROW_SIZES", ())
    monkeypatch.setenv("POLYC_CACHE", "0")


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-8, 9, shape).astype(np.float32)


def loops_of(op: polyc.Operator, *arrays: np.ndarray) -> str:
    text: str = op.lower(*arrays).as_text("loops")
    return text


def blur(x: np.ndarray) -> np.ndarray:
    r = 0.25 * x[:, :-2] + 0.5 * x[:, 1:-1] + 0.25 * x[:, 2:]
    return 0.25 * r[:-2] + 0.5 * r[1:-1] + 0.25 * r[2:]


@pytest.mark.parametrize("level", ["host", "x86-64-v3", "x86-64-v2"])
def test_short_rows_are_streamed_wherever_the_result_begins(level: str):
    x = image(34, 258)
    op = polyc.compile(BLUR, target=level)
    text = loops_of(op, x)
    assert re.search(r"for \(c1\.base_strip = 0; c1\.base_strip < Y\.offset % 64 // 4 \+ 256; c1\.base_strip \+= \d+\)", text)
    for offset in range(0, 64, 4):
        y = at_offset((32, 256), offset)
        op(x, out=y)
        np.testing.assert_array_equal(y, blur(x))


def test_tiles_are_one_more_where_the_result_begins_off_a_line_only():
    text = loops_of(polyc.compile(BLUR, target="x86-64-v3"), image(34, 258))
    base = re.search(r"for \(c1\.base = (max\(0, min\(.*?, \d+\)\)); ", text)
    assert base is not None and "c1.base_strip < Y.offset % 64 // 4 + 256; c1.base_strip += 64)" in text
    begin = base[1].replace("Y.offset", "offset").replace("c1.base_strip", "strip")
    for offset in range(0, 64, 4):
        columns: set[int] = set()
        begins = []
        for strip in range(0, offset // 4 + 256, 64):
            begins.append(eval(begin, {"offset": offset, "strip": strip}))
            columns |= set(range(begins[-1], begins[-1] + 64))
        assert columns == set(range(256)), "each column once at least, none outside"
        assert len(begins) == 4 + (offset > 0)
        assert all((offset + 4 * b) % 64 == 0 for b in begins[1:-1])


@pytest.mark.parametrize(("height", "width"), [(18, 66), (34, 130), (34, 194), (10, 1026)])
def test_images_of_few_and_of_many_tiles(height: int, width: int):
    x = image(height, width)
    op = polyc.compile(BLUR)
    for offset in (0, 4, 60):
        y = at_offset((height - 2, width - 2), offset)
        op(x, out=y)
        np.testing.assert_array_equal(y, blur(x))


@pytest.mark.parametrize("width", [257, 259, 262, 300])
def test_rows_that_are_no_whole_lines_stay_where_they_are(width: int):
    x = image(34, width)
    op = polyc.compile(BLUR)
    assert ".base" not in loops_of(op, x)
    y = at_offset((32, width - 2), 16)
    op(x, out=y)
    np.testing.assert_array_equal(y, blur(x))


def test_two_results_that_begin_differently():
    x = image(34, 258)
    r = x[:, :-2] + x[:, 1:-1] + x[:, 2:]
    op = polyc.compile(TWO_RESULTS)
    for first, second in ((0, 0), (16, 16), (16, 0), (4, 60)):
        y, z = at_offset((32, 256), first), at_offset((32, 256), second)
        op(x, out=(y, z))
        np.testing.assert_array_equal(y, r[:-2] + r[1:-1] + r[2:])
        np.testing.assert_array_equal(z, r[2:] - r[:-2])


def test_columns_in_steps_of_two():
    x = image(66, 514)
    op = polyc.compile(HALVED)
    r = x[:, 0:-2:2] + x[:, 1:-1:2] + x[:, 2::2]
    expected = r[0:-2:2] + r[1:-1:2] + r[2::2]
    for offset in (0, 16, 44):
        y = at_offset(expected.shape, offset)
        op(x, out=y)
        np.testing.assert_array_equal(y, expected)


def test_data_says_where_to_read_in_tiles_that_overlap():
    x, table = image(33, 257), image(100)
    index = np.random.default_rng(1).integers(0, 100, (33, 257)).astype(np.int32)
    op = polyc.compile(GATHERED)
    r = x[:, :-1] + x[:, 1:]
    for offset in (0, 20):
        y = at_offset((32, 256), offset)
        op(x, table, index, out=y)
        np.testing.assert_array_equal(y, table[index[:32, :256]] * (r[:-1] + r[1:]))
    index[31, 255] = 100
    with pytest.raises(polyc.PolycError, match="table"):
        op(x, table, index, out=y)


@pytest.mark.parametrize(("value", "apart"), [("X(128 * t + j)", 128), ("X(64 * t + j)", 64), ("X(64 * t + j) + A(t)", 64)])
def test_blocks_that_the_user_wrote_are_not_moved(value: str, apart: int):
    # What is stored in a block may depend on its number.
    text = f"def blocks(float(N) X, float(M) A) -> (Y) {{ Y(64 * t + j) = {value} where t in 0:M, j in 0:64 }}"
    x, a = image(128 * 64), image(64)
    t, j = np.divmod(np.arange(64 * 64), 64)
    expected = x[apart * t + j] + (a[t] if "A(t)" in value else 0)
    op = polyc.compile(text)
    for offset in (0, 16):
        y = at_offset(expected.shape, offset)
        op(x, a, out=y)
        np.testing.assert_array_equal(y, expected)


def test_blocks_that_the_user_wrote_and_computed_in_two_steps_are_not_moved():
    text = """def blocks(float(N) X, float(M) A) -> (Y) {
      R(t,j) max=! X(128 * t + j + r) where t in 0:M, j in 0:64, r in 0:3
      Y(64 * t + j) = R(t,j) * 2.0 where t in 0:M, j in 0:64 }"""
    x, a = image(128 * 64 + 2), image(64)
    t, j = np.divmod(np.arange(64 * 64), 64)
    expected = 2 * np.maximum.reduce([x[128 * t + j + r] for r in range(3)])
    op = polyc.compile(text)
    for offset in (0, 16):
        y = at_offset(expected.shape, offset)
        op(x, a, out=y)
        np.testing.assert_array_equal(y, expected)


def test_threads_share_rows_of_tiles_that_begin_at_lines():
    x = image(258, 258)
    op = polyc.compile(BLUR)
    y = at_offset((256, 256), 16)
    op(x, out=y)
    np.testing.assert_array_equal(y, blur(x))
