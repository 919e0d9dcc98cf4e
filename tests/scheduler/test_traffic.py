"""The model of memory traffic: footprints, levels and what moving bytes costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polyc.scheduler.traffic import Level, find_level, lines_in_a_set, pass_cycles, stream, write_cycles
from polyc.target import X86_64_V4

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


def test_lines_meet_in_a_set_where_they_lie_whole_pages_apart():
    assert lines_in_a_set(range(0, 14 * 12288, 12288), TARGET) == 14
    assert lines_in_a_set(range(0, 14 * 3072, 3072), TARGET) == 4
    assert lines_in_a_set([0, 4, 60, 4096], TARGET) == 2


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
