"""Blocks of transposes cover runs of memory in both accesses."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from polyc.machine import X86_64_V3, X86_64_V4, Machine
from polyc.scheduler.accesses import access_motions, index_trips
from polyc.scheduler.loops.crossing import choose_block
from tests.scheduler.support import check, lower

FIVE = {"A": 16, "B": 24, "C": 16, "D": 40, "E": 48}


def block(
    left: str, sizes: dict[str, int], l3: int = 1 << 40, l2: int = 1 << 20, model: Machine = X86_64_V4
) -> tuple[dict[str, int], list[str]]:
    names = [n.lower() for n in sizes]
    text = f"def f(float({', '.join(sizes)}) X) -> (Y) {{ Y({', '.join(left)}) = X({', '.join(names)}) }}"
    (s,) = lower(text, sizes).scop.statements
    write, read = access_motions(s)
    found = choose_block(read, write, index_trips(s), 4, replace(model, l2=l2, l3=l3))
    assert found is not None
    return found


def test_blocks_cover_a_run_of_each_array():
    assert block("ba", {"A": 4096, "B": 4096}) == ({"b": 256, "a": 256}, ["b", "a"])
    sizes, order = block("dbeac", FIVE)
    assert sizes["c"] == 16 and sizes["a"] == 16 and sizes["e"] == 48 and sizes["d"] in (5, 6)
    assert order == ["d", "b", "e", "a", "c"]


def test_short_blocks_leave_tasks_for_threads():
    for n in (300, 700, 1000, 1024):
        sizes, order = block("ba", {"A": n, "B": n})
        assert order == ["b", "a"] and max(-(-n // sizes[i]) for i in "ab") >= 8
    assert min(block("ba", {"A": 64, "B": 64})[0].values()) == 32


def test_blocks_stay_in_the_cache():
    for l2 in (1 << 15, 1 << 17, 1 << 20):
        sizes, _ = block("ba", {"A": 4096, "B": 4096}, l2=l2)
        assert math.prod(sizes.values()) * 4 <= max(l2 // 4, 16 * 16 * 4)


def test_streamed_results_are_written_in_the_order_of_memory():
    assert block("ba", {"A": 4096, "B": 4096}, l3=1) == ({"b": 512, "a": 64}, ["a", "b"])
    assert block("ba", {"A": 4096, "B": 2048}, l3=1) == ({"b": 512, "a": 64}, ["b", "a"])
    # Rows that are no whole number of lines carry parts of them from block to block.
    assert block("ba", {"A": 4093, "B": 4096}, l3=1) == ({"b": 128, "a": 32}, ["b", "a"])


@pytest.mark.parametrize(("channels", "whole"), [(64, True), (512, True), (56, False), (16, False), (528, False)])
def test_as_few_rows_as_fill_lines_of_the_result_are_read_whole(channels: int, whole: bool):
    sizes, order = block("acb", {"A": 32, "B": 3136, "C": channels}, l3=1)
    assert order == (["a", "b", "c"] if whole else ["a", "c", "b"])
    assert (sizes == {"b": 16, "c": channels}) == whole


@pytest.mark.parametrize(
    ("model", "pixels", "lines"), [(X86_64_V3, 64 * 64, 8), (X86_64_V3, 56 * 56, 1), (X86_64_V4, 64 * 64, 1)]
)
def test_rows_of_a_result_that_meet_are_written_several_lines_at_a_time(model: Machine, pixels: int, lines: int):
    sizes, _ = block("acb", {"A": 32, "B": pixels, "C": 64}, l3=1, model=model)
    assert sizes == {"b": 16 * lines, "c": 64}


@pytest.mark.parametrize(("channels", "whole"), [(80, True), (512, True), (576, False)])
def test_rows_that_follow_each_other_are_taken_whole_up_to_two_kilobytes(channels: int, whole: bool):
    sizes, _ = block("acb", {"A": 32, "B": channels, "C": 784}, l3=1)
    assert (sizes.get("b") == channels and sizes["c"] == 16) == whole


def test_rows_that_are_read_from_few_sets_of_a_cache_are_not_taken_whole():
    sizes, _ = block("acb", {"A": 32, "B": 128, "C": 1024}, l3=1)
    assert sizes["c"] > 16


@pytest.mark.parametrize(("rows", "run"), [(80, 320), (160, 5120)])
def test_rows_of_whole_lines_that_no_block_ends_at_are_joined_or_put_together(rows: int, run: int):
    sizes, _ = block("caebd", {**FIVE, "D": rows}, l3=1)
    assert sizes["d"] == rows and (sizes.get("b", 1) > 1) == (run > 320)


def test_short_rows_that_follow_each_other_are_whole_lines_together():
    assert block("caebd", FIVE, l3=1) == ({"e": 48, "d": 40, "b": 2}, ["a", "c", "e", "b", "d"])
    sizes, _ = block("caebd", {**FIVE, "B": 3}, l3=1)
    assert sizes["b"] == 3  # too short to go on with


def test_rows_of_whole_lines_that_follow_each_other_are_put_together_in_the_order_of_reading():
    # One d at a time, and the next one of the same b after it: the pieces of both have lines in common.
    order = ["b", "d", "e", "a", "c"]
    assert block("dbeac", FIVE, l3=1) == ({"e": 48, "c": 16, "a": 4}, order)
    # Runs that are read are longer where half of the first-level cache holds the block.
    assert block("dbeac", {**FIVE, "E": 32}, l3=1) == ({"e": 32, "c": 16, "a": 4, "d": 2}, order)


def test_blocks_stay_wide_where_something_else_is_read_along_the_rows():
    text = "def f(float(A,B) X, float(B,A) Z) -> (Y) { Y(b,a) = X(a,b) + Z(b,a) }"
    (s,) = lower(text, {"A": 4093, "B": 4096}).scop.statements
    write, read = access_motions(s)[:2]
    found = choose_block(read, write, index_trips(s), 4, replace(X86_64_V4, l3=1), is_alone=False)
    assert found is not None and found[0] == {"b": 256, "a": 256}


@pytest.mark.parametrize("left", ["edcba", "caebd", "dbeac", "abced"])
def test_permutations_agree_with_the_interpreter(left: str):
    sizes = {"A": 3, "B": 5, "C": 2, "D": 7, "E": 19}
    check(f"def f(float(A,B,C,D,E) X) -> (Y) {{ Y({','.join(left)}) = X(a,b,c,d,e) }}", sizes)
