"""Look-ups in tables that registers hold: permutations instead of loads for each lane, with the same elements and errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import polyc
from polyc import BoundsError, driver
from polyc.machine import PINNED

TYPES = {"float": "f4", "double": "f8", "int32": "i4", "int64": "i8", "uint32": "u4"}
LEVELS = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]


def operators(text: str, level: str) -> list[tuple[polyc.Operator, tuple[int, ...]]]:
    """A kernel for any number of codes, and one for a number that is no whole number of vectors, with numbers to try."""
    return [(polyc.compile(text, target=level, dynamic="N"), (1, 7, 16, 200)), (polyc.compile(text, target=level), (37,))]


@pytest.mark.parametrize(
    ("type", "size", "level"),  # integers are moved as floats of their width are: each size of one type at one level only
    [
        (type, size, level)
        for n, (type, size) in enumerate(itertools.product(TYPES, (1, 3, 4, 8, 11, 16, 24, 32, 33)))
        for level in (LEVELS if type in ("float", "double") else [LEVELS[n % 3]] if (n + n // 9) % 3 == 0 else [])
    ],
)
def test_tables_of_every_size_give_the_elements_that_data_names(type: str, size: int, level: str) -> None:
    text = f"def f(uint8(N) c, {type}(M, {size}) T) -> (Y) {{ Y(m, n) = T(m, c(n)) }}"
    rng = np.random.default_rng(size)
    table = rng.integers(0, 99, (3, size)).astype(TYPES[type])
    for operator, numbers in operators(text, level):
        for n in numbers:
            codes = rng.integers(0, size, n).astype(np.uint8)
            np.testing.assert_array_equal(operator(codes, table), table[:, codes])


@pytest.mark.pairs
@pytest.mark.parametrize("level", [*LEVELS, "host"])
@pytest.mark.parametrize("size", [1, 4, 13, 16, 17, 64, 65, 128, 129, 200, 256])
@pytest.mark.parametrize("type", ["uint8", "int8"])
def test_tables_of_bytes(type: str, size: int, level: str) -> None:
    parameters, clipped = f"uint8(N) c, uint8(N) d, {type}(M, {size}) T", f"min(int32(d(n)), {size - 1})"
    text = f"def f({parameters}) -> (Y, Z) {{ Y(m, n) = T(m, c(n))  Z(m, n) = T(m, {clipped}) }}"
    rng = np.random.default_rng(size)
    table = rng.integers(-128, 128, (2, size)).astype(type)
    for operator, numbers in operators(text, level):
        for n in numbers:
            codes, any_codes = rng.integers(0, size, n).astype(np.uint8), rng.integers(0, 256, n).astype(np.uint8)
            y, z = operator(codes, any_codes, table)
            np.testing.assert_array_equal(y, table[:, codes])
            np.testing.assert_array_equal(z, table[:, np.minimum(any_codes, size - 1)])


@pytest.mark.parametrize("level", LEVELS)
def test_rows_that_data_names_once_for_all_lanes(level: str) -> None:
    operator = polyc.compile("def f(int32(M) a, int32(N) b, float(24, 24) S) -> (D) { D(i, j) = S(a(i), b(j)) }", target=level)
    rng = np.random.default_rng(1)
    a, b, s = rng.integers(0, 24, 9).astype("i4"), rng.integers(0, 24, 50).astype("i4"), rng.standard_normal((24, 24), "f")
    np.testing.assert_array_equal(operator(a, b, s), s[a[:, None], b])


@pytest.mark.parametrize("level", LEVELS)
def test_places_held_inside_or_read_where_a_condition_holds_only(level: str) -> None:
    rng = np.random.default_rng(2)
    places, table = rng.integers(-9, 20, 100).astype("i8"), rng.standard_normal(6)
    held = polyc.compile("def f(int64(N) p, double(6) T) -> (y) { y(i) = T(min(max(p(i), 0), 5)) }", target=level)
    np.testing.assert_array_equal(held(places, table), table[np.clip(places, 0, 5)])
    padded = polyc.compile("def f(int64(N) p, double(6) T) -> (y) { y(i) = pad(T(p(i)), double(2)) }", target=level)
    inside = (places >= 0) & (places < 6)
    np.testing.assert_array_equal(padded(places, table), np.where(inside, table[np.clip(places, 0, 5)], 2))
    text = """def f(int64(N) p, double(K, 6) T) -> (y) {
      y(k, i) = k > 0 && p(i) >= 0 ? T(k-1, p(i) % 6) : double(1) where k in 0:K+1 }"""
    rows = np.stack([table, -table])
    expected = np.ones((3, 100))
    expected[1:, places >= 0] = rows[:, places[places >= 0] % 6]
    np.testing.assert_array_equal(polyc.compile(text, target=level)(places, rows), expected)


@pytest.mark.parametrize("level", LEVELS)
def test_a_place_outside_is_an_error(level: str) -> None:
    operator = polyc.compile("def f(int32(N) p, float(5) T) -> (y) { y(i) = T(p(i)) }", target=level)
    places, table = np.zeros(40, "i4"), np.arange(5, dtype="f")
    operator(places, table)
    for place in (5, -1, 2**31 - 1, -(2**31)):
        places[33] = place
        with pytest.raises(BoundsError):
            operator(places, table)


def test_tables_not_along_memory_and_transposed_ones() -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 7, 60).astype("i4")
    table = rng.standard_normal((7, 7), "f")
    columns = polyc.compile("def f(int32(N) c, float(7, 7) T) -> (y) { y(m, n) = T(c(n), m) }")
    np.testing.assert_array_equal(columns(codes, table), table[codes].T)
    np.testing.assert_array_equal(columns(codes, table.T), table.T[codes].T)


@pytest.mark.parametrize(
    ("level", "instruction"), [("x86-64-v2", "pshufb"), ("x86-64-v3", "vpshufb"), ("x86-64-v4", "vpshufb")]
)
def test_sixteen_bytes_are_chosen_from_by_one_instruction(level: str, instruction: str) -> None:
    operator = polyc.compile("def f(uint8(N) c, uint8(16) T) -> (Y) { Y(n) = T(c(n) % uint8(16)) }", target=level)
    assert instruction in operator.lower(("u1", (1000,)), ("u1", (16,))).as_text("s")


@pytest.mark.parametrize(
    ("level", "size", "instructions"),
    [
        ("x86-64-v3", 8, ("vpermps", "vpermd")),
        ("x86-64-v4", 16, ("vpermps", "vpermd")),
        ("x86-64-v4", 24, ("vpermt2", "vpermi2")),
    ],
)
def test_registers_are_permuted(level: str, size: int, instructions: tuple[str, ...]) -> None:
    operator = polyc.compile(f"def f(uint8(N) c, float({size}) T) -> (Y) {{ Y(n) = T(c(n)) }}")
    text = driver.lower(operator.program, sizes={"N": 1000}, strides=((1,), (4,), (4,)), target=PINNED[level]).as_text("s")
    assert any(instruction in text for instruction in instructions)


ROWS = "def f(int32(M, N) k, {type}({size}, M, N) T) -> (Y) {{ Y(m, n) = T(k(m, n), m, n) }}"


@pytest.mark.pairs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [1, 2, 5, 8, 9, 17])
@pytest.mark.parametrize("type", [*TYPES, "uint8"])
def test_lanes_that_choose_among_rows_side_by_side(type: str, size: int, level: str) -> None:
    rng, dtype = np.random.default_rng(size), TYPES.get(type, "u1")
    for operator, numbers in operators(ROWS.format(type=type, size=size), level):
        for n in numbers:
            rows, k = rng.integers(0, 99, (size, 3, n)).astype(dtype), rng.integers(0, size, (3, n)).astype("i4")
            np.testing.assert_array_equal(operator(k, rows), np.take_along_axis(rows, k[None], 0)[0])


@pytest.mark.parametrize("level", LEVELS)
def test_rows_that_lanes_choose_among_beyond_borders_or_where_a_condition_holds_only(level: str) -> None:
    rng = np.random.default_rng(3)
    rows, k = rng.standard_normal((4, 5, 37), np.float32), rng.integers(-3, 7, (5, 37)).astype("i4")
    inside, held = (k >= 0) & (k < 4), np.clip(k, 0, 3)
    chosen = np.take_along_axis(rows, held[None], 0)[0]
    start = "def f(int32(M, N) k, float(4, M, N) T) -> (Y) "
    padded = polyc.compile(start + "{ Y(m, n) = pad(T(k(m, n), m, n), 2.0) }", target=level)
    np.testing.assert_array_equal(padded(k, rows), np.where(inside, chosen, np.float32(2)))
    guarded = polyc.compile(start + "{ Y(m, n) = k(m, n) >= 0 && k(m, n) < 4 ? T(k(m, n), m, n) : 1.0 }", target=level)
    np.testing.assert_array_equal(guarded(k, rows), np.where(inside, chosen, np.float32(1)))
    beside = start + "{ Y(m, n) = pad(T(min(max(k(m, n), 0), 3), m, n + 2), clamp) }"
    moved = rows[:, :, np.minimum(np.arange(37) + 2, 36)]
    expected = np.take_along_axis(moved, held[None], 0)[0]
    np.testing.assert_array_equal(polyc.compile(beside, target=level)(k, rows), expected)
    with pytest.raises(BoundsError, match="T"):
        polyc.compile(start + "{ Y(m, n) = T(k(m, n), m, n) }", target=level)(k, rows)


def test_rows_that_lanes_choose_among_are_loaded_as_vectors() -> None:
    x = np.zeros((8, 40, 512), np.float32)
    text = ROWS.format(type="float", size=8).replace("T(k(m, n), m, n)", "T(min(max(k(m, n), 0), 7), m, n)")
    llvm = polyc.compile(text, target="x86-64-v4").lower(np.zeros((40, 512), "i4"), x).as_text("ll")
    assert "select <16 x i1>" in llvm and "gather" not in llvm and "insertelement" not in llvm
