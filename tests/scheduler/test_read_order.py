"""Rows that are moved as they are go in the order in which they are read, unless they are few streams."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.codegen.objects.host import host_target
from polyc.config import default_options

HEADS = "def f(float(A, B, C, D) X) -> (Y) { Y(a, c, b, d) = X(a, b, c, d) }"


def loop_order(text: str, l2: int = 16 << 10, **sizes: int) -> list[int]:
    """Extents of the loops, outermost first, on a machine with a small second-level cache."""
    target = replace(host_target(), l2=l2)
    lowered = driver.lower(polyc.compile(text).program, sizes=sizes, options=default_options(), target=target)
    x = np.random.default_rng(0).random(tuple(sizes[n] for n in "ABCD")).astype(np.float32)
    np.testing.assert_array_equal(lowered.compile()(x), x.transpose(0, 2, 1, 3))
    lines = [line.split("; ")[1] for line in lowered.as_text("loops").splitlines() if "for (" in line]
    return [int(line.split(" < ")[1]) for line in lines]


@pytest.mark.parametrize("d", [16, 20, 64, 500])
def test_reads_follow_memory_where_rows_would_be_gathered(d: int) -> None:
    assert loop_order(HEADS, A=8, B=40, C=12, D=d)[:3] == [8, 40, 12]


def test_few_streams_are_read_side_by_side() -> None:
    assert loop_order(HEADS, A=8, B=12, C=40, D=68)[:3] == [8, 40, 12]


def test_few_streams_that_meet_in_a_cache_are_read_one_after_the_other() -> None:
    assert loop_order(HEADS, A=8, B=14, C=64, D=64)[:3] == [8, 14, 64]


def test_short_rows_keep_the_order_of_the_result() -> None:
    assert loop_order(HEADS, A=8, B=400, C=12, D=8)[:3] == [8, 12, 400]


def test_what_stays_in_the_cache_keeps_the_order_of_the_result() -> None:
    assert loop_order(HEADS, l2=1 << 20, A=8, B=20, C=12, D=64)[:3] == [8, 12, 20]
