"""Estimated cycles of register tiles: what bounds a step, and which tiles that prefers."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from polyc.machine import X86_64_V3, X86_64_V4, Machine
from polyc.scheduler.contractions import costs
from tests.scheduler.support import lower

MATMUL_NT = "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
MATMUL_NN = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"

STEPS_OF_TWO = "def f(float(N,C,H,W) I, float(K,C,3,3) F) -> (O) { O(n,k,h,w) +=! I(n,c,2*h+r,2*w+s) * F(k,c,r,s) }"
LONG_STEPS = "def f(float(N,C,L) I, float(K,C,9) F) -> (O) { O(n,k,l) +=! I(n,c,4*l+r) * F(k,c,r) }"
CHANNELS_LAST = "def f(float(N,H,W,C) I, float(3,3,C,K) F) -> (O) { O(n,h,w,k) +=! I(n,h+r,w+s,c) * F(r,s,c,k) }"


def peak(rows: int, vectors: int, target: Machine) -> float:
    """Part of the peak that a tile reaches whose operands are in the first-level cache."""
    return rows * vectors / target.fma_per_cycle / costs.step_cycles(rows, vectors, rows, vectors, target, False)


def accumulators(size: int, target: Machine) -> int:
    """Of the tile that is chosen for a product of square matrices."""
    (choice,) = lower(MATMUL_NT, {"M": size, "N": size, "K": size}, target=target).choices.values()
    return math.prod(choice.way.tile.values()) // choice.way.lanes


@pytest.mark.parametrize(
    ("rows", "vectors", "measured"),
    [(3, 2, 0.75), (4, 2, 0.91), (3, 3, 0.92), (5, 2, 0.94), (4, 3, 0.98), (6, 2, 0.98), (8, 1, 0.80), (12, 1, 0.87)],
)
def test_tiles_reach_the_part_of_the_peak_that_was_measured(rows, vectors, measured):
    assert peak(rows, vectors, X86_64_V3) == pytest.approx(measured, rel=0.06)


def test_accumulators_that_just_cover_the_latency_are_too_few():
    assert peak(4, 2, X86_64_V3) < 0.93 < 0.95 < peak(6, 2, X86_64_V3)
    assert peak(4, 4, X86_64_V4) < peak(6, 4, X86_64_V4)


def test_tiles_have_accumulators_to_spare_where_few_just_cover_the_latency():
    """With 4 x 2 vectors, which divide 512 rows, a product of 512 took 2.61 ms with AVX2, with 6 x 2 2.45."""
    assert accumulators(512, X86_64_V3) == 12


def test_rows_that_are_left_cost_no_more_than_a_tile_where_they_run_at_once():
    """Of 100 rows tiles of 6 leave 4: two after two, which waited for each other's results, they lost to tiles of 5."""
    (choice,) = lower(MATMUL_NN, dict.fromkeys("MNK", 100), target=replace(X86_64_V3, l1=32 << 10)).choices.values()
    rows = [n for i, n in choice.way.tile.items() if i != choice.way.vector]
    assert rows == [6]


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (STEPS_OF_TWO, {"N": 1, "C": 16, "H": 369, "W": 369, "K": 64}),
        (STEPS_OF_TWO, {"N": 1, "C": 128, "H": 289, "W": 289, "K": 32}),
        (LONG_STEPS, {"N": 1, "C": 64, "L": 4000, "K": 64}),
    ],
)
def test_windows_that_move_by_several_elements_are_no_vectors(text, sizes):
    """Their lanes lie apart in a copy as in the array: the first took 11.5 ms with AVX2, the last 3.4, and 8.7 and 0.8
    with k."""
    (choice,) = lower(text, sizes, target=X86_64_V3).choices.values()
    assert choice.way.vector == "k"
    assert not choice.way.packs_rows, "a copy of windows has the layout of the array"


def test_images_that_may_be_one_at_other_calls_share_no_tile():
    """Half of the tile was empty for calls with one image: 3 channels of 426x426 took 3.3 times as long."""
    sizes = {"N": 2, "C": 3, "H": 454, "W": 472, "K": 64}
    (choice,) = lower(CHANNELS_LAST, sizes, is_fixed=False, target=X86_64_V3).choices.values()
    assert list(choice.way.tile) == ["w", "k"] and not choice.way.packs_rows


@pytest.mark.parametrize("size", [1000, 1024, 333])
def test_tiles_of_bound_panels_leave_a_register_to_the_mask(size):
    """Tiles of 4 x 24 have none with AVX2: products took twice as long bound as unbound."""
    sizes = {"M": 512, "N": size, "K": 1024}
    (choice,) = lower(MATMUL_NN, sizes, target=X86_64_V3, constants=("B",)).choices.values()
    accumulators = math.prod(choice.way.tile.values()) // choice.way.lanes
    registers = accumulators + choice.way.vectors + 1
    assert (choice.way.packs_vector and registers < 16) or size % (8 * choice.way.vectors) == 0


@pytest.mark.parametrize("target", [X86_64_V3, X86_64_V4])
@pytest.mark.parametrize(
    "text",
    [
        "def f(double(N,N) L, double(N,M) B) -> (Y) { Y(i,j) +=! L(i,k) * B(k,j) where k <= i }",
        "def f(double(N,N) L, double(N,M) B) -> (Y) { Y(i,j) +=! L(k,i) * B(k,j) where k > i }",
        "def f(double(N,N) L, double(M,N) B) -> (Y) { Y(j,i) +=! B(j,k) * L(k,i) where k >= i }",
    ],
)
def test_the_border_of_a_triangle_cuts_few_rows_of_tiles_and_no_vectors(text, target):
    """Vectors along i, which divide 240 and not 200, took up to four times as long; in tiles of 12 rows a tenth longer."""
    (choice,) = lower(text, {"N": 240, "M": 200}, target=target).choices.values()
    assert choice.way.vector == "j" and choice.way.n_rows <= 6


def test_a_sum_that_is_cut_into_blocks_runs_along_the_memory_of_its_row_operand():
    """The part of the index that is cut was innermost whatever the order: rows 64 KiB apart met in few sets of the cache."""
    text = "def f(float(T,B,K) Z, float(T,C,I) X) -> (W) { W(k,i) +=! Z(t,b,k) * X(t,b,i) where b in 0:B }"
    lowered = lower(text, {"T": 100, "B": 32, "C": 33, "K": 528, "I": 128})
    (choice,) = lowered.choices.values()
    assert choice.way.order == ("t", "b") and choice.way.block == ("t", 64)
    loops = lowered.as_text("loops")
    assert re.search(r"\(registers W\) for \(c3 = 0; c3 < min\(100 - c1, 64\); c3\+\+\) {\s+for \(c4 = 0; c4 < 32", loops)
