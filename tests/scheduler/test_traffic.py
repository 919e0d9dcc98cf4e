"""The model of memory traffic: footprints, levels and what moving bytes costs."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from polyc.machine import X86_64_V4, Level
from polyc.scheduler.traffic import find_level, holds_rows, pass_cycles, stream, write_cycles

TARGET = replace(X86_64_V4, l1=32 << 10, l2=1 << 20, l3=32 << 20)


@pytest.mark.parametrize(
    ("footprint", "level"),
    [
        (0, Level.L1),
        (16 << 10, Level.L1),
        (32 << 10, Level.L2),
        (700 << 10, Level.L2),
        (1 << 20, Level.L3),
        (40 << 20, Level.MEMORY),
    ],
)
def test_the_nearest_level_with_room_holds_what_is_used_again(footprint, level):
    assert find_level(footprint, TARGET) is level


def test_lines_that_fall_into_few_sets_leave_the_near_caches():
    rows, stride = 128, 64 << 10
    assert find_level(64 * rows, TARGET) is Level.L1
    assert find_level(64 * rows, TARGET, stride, 64) is Level.L3


def test_rows_meet_in_a_set_where_they_lie_whole_pages_apart():
    assert not holds_rows(14, [12288], TARGET) and not holds_rows(12, [8192, 4096], TARGET)
    assert holds_rows(14, [3072], TARGET) and holds_rows(14, [4], TARGET) and holds_rows(8, [12288], TARGET)


@pytest.mark.parametrize("rows", [(9,), (12,), (14,), (5, 2), (3, 4), (2, 7)])
def test_rows_that_fit_their_sets_are_those_of_which_few_lines_are_in_one(rows):
    """Counted one by one, for rows that share no lines."""
    for strides in itertools.product((4, 12, 64, 100, 1024, 2048, 3072, 4096, 4100, 4160, 6144, 8192, 12288), repeat=len(rows)):
        starts = [sum(a * b for a, b in zip(at, strides, strict=True)) for at in itertools.product(*map(range, rows))]
        lines = Counter(line % 64 for line in {start // 64 for start in starts})
        if len({start // 64 for start in starts}) == len(starts):
            assert holds_rows(len(starts), strides, TARGET) == (max(lines.values()) <= 8), strides


def test_a_machine_that_reports_a_huge_last_level_cache_is_not_believed():
    assert find_level(100 << 20, replace(TARGET, l3=1 << 30)) is Level.MEMORY


@pytest.mark.parametrize("cost", [pass_cycles, lambda size, footprint, target: stream(size, footprint, target).cycles])
def test_farther_is_never_cheaper(cost):
    cycles = [cost(1024, footprint, TARGET) for footprint in (1 << 10, 1 << 19, 1 << 23, 1 << 26)]
    assert cycles == sorted(cycles) and cycles[0] == 0 < cycles[1]


def test_passing_costs_more_than_reading():
    for footprint in (1 << 19, 1 << 23, 1 << 26):
        assert pass_cycles(1024, footprint, TARGET) > stream(1024, footprint, TARGET).cycles


def test_results_in_short_runs_move_lines_more_often():
    assert write_cycles(8 << 20, 64, TARGET) > write_cycles(8 << 20, 4096, TARGET) > 0
    assert write_cycles(64 << 10, 64, TARGET) == 0
