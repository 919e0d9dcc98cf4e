"""Columns of tiles that wait for each other: the same results in any team, and loops that are no pipeline in order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from polyc.codegen.emission.parts import PLACES
from polyc.codegen.emission.pipelines import is_pipeline
from polyc.ir.expr import Read
from polyc.ir.loops import If, Loop, LoopNest, Store
from polyc.ir.types import I64

from .support import argument, c, compiled, i, n, op, rd, strides_of

pytestmark = pytest.mark.optimised

BELOW = op("sub", i("j"), c(1))
CELL = Store("Y", (i("t"), i("j")), op("add", rd("Y", op("sub", i("t"), c(1)), BELOW), op("mul", c(3), rd("Y", i("t"), BELOW))))


def staircase(lower=None, parts=1, step=2):
    """Each element from the one before it and its left neighbour above: rows are columns of the pipeline."""
    y = argument("Y", I64, (n("T"), n("N")), 0)
    tile = Loop("j", i("s"), op("min", op("add", i("s"), c(step)), n("N")), 1, "serial", (CELL,))
    bounds = [lower or c(1), n("N")] if parts == 1 else [c(1), op("min", c(7), n("N")), n("N")]
    streams = tuple(Loop("s", a, b, step, "serial", (tile,)) for a, b in pairwise(bounds))
    rows = Loop("t", c(1), n("T"), 1, "parallel", streams, stream="s")
    return LoopNest("f", ("T", "N", *strides_of(y)), (y,), (rows,))


def expect(y, lower=lambda t: 1):
    with np.errstate(over="ignore"):
        for t in range(1, len(y)):
            for j in range(lower(t), y.shape[1]):
                y[t, j] = y[t - 1, j - 1] + 3 * y[t, j - 1]
    return y


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_each_column_waits_for_the_one_before(threads):
    code = compiled(staircase())
    for rows, width in ((0, 5), (1, 5), (2, 1), (2, 2), (3, 40), (PLACES * 2 + 3, 33), (40, 900)):
        y = np.random.default_rng(rows).integers(-9, 9, (rows, width))
        want = expect(y.copy())
        code.run({"Y": y}, {"T": rows, "N": width}, threads)
        np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("threads", [1, 3])
def test_columns_of_several_parts_and_of_any_beginning(threads):
    y = np.random.default_rng(3).integers(-9, 9, (50, 300))
    want = expect(y.copy())
    compiled(staircase(parts=2)).run({"Y": y}, {"T": 50, "N": 300}, threads)
    np.testing.assert_array_equal(y, want)
    # Later columns begin before those that they wait for, the last ones are empty.
    lower = op("sub", c(99), op("mul", c(2), i("t")))
    y = np.random.default_rng(4).integers(-9, 9, (40, 97))
    want = expect(y.copy(), lambda t: 99 - 2 * t)
    compiled(staircase(lower)).run({"Y": y}, {"T": 40, "N": 97}, threads)
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("fault", ["a store outside of columns", "a test that reads memory", "a bound that reads memory"])
def test_what_threads_cannot_find_for_themselves_runs_in_order(fault):
    nest = staircase()
    (rows,) = nest.body
    (stream,) = rows.body
    flag = Read("Y", (c(0), c(0)))
    match fault:
        case "a store outside of columns":
            body = (stream, Store("Y", (i("t"), c(0)), rd("Y", op("sub", i("t"), c(1)), c(0))))
        case "a test that reads memory":
            body = (If(op("lt", flag, c(100)), (stream,)),)
        case _:
            body = (replace(stream, upper=op("min", n("N"), op("add", flag, c(1000)))),)
    changed = replace(rows, body=body)
    assert is_pipeline(rows) and not is_pipeline(changed)
    code = compiled(replace(nest, body=(changed,)))
    assert "polyc.wait" not in code.text
    results = []
    for threads in (1, 3):
        y = np.random.default_rng(5).integers(-9, 9, (30, 50))
        code.run({"Y": y}, {"T": 30, "N": 50}, threads)
        results.append(y)
    np.testing.assert_array_equal(*results)
