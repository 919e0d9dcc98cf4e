"""Sparse and ragged workloads: operators and loops against NumPy at small sizes, and the groups."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from benchmarks import coordinator, sides
from benchmarks.worker import largest_error, result_type
from benchmarks.workload import Workload, as_tuple
from benchmarks.workloads import BOARD, GROUPS, WORKLOADS, ragged, sparse
from benchmarks.workloads.patterns import PATTERNS, Pattern, draw_segments, reduce_segments

ENTRIES, ELEMENTS = 2000, 400
SPARSE = [sparse.make_workload(kind, "uniform", "tiny", entries=ENTRIES) for kind in sparse.KINDS]
RAGGED = [ragged.make_workload(kind, str(sum(ragged.LENGTHS) if kind == "attention" else ELEMENTS)) for kind in ragged.KINDS]
SMALL = {w.name: w for w in (*SPARSE, *RAGGED)}
LOOPS = [n for n, w in SMALL.items() if "numba" in w.peers and not n.startswith(("spmm1", "spmm32"))]
"""Of products with matrices, whose loops are the same, one."""


def check(workload: Workload, found: Any) -> None:
    exact = list(coordinator.exact_results(workload))
    assert [f.dtype for f in as_tuple(found)] == [result_type(e.dtype, workload) for e in exact]
    assert largest_error(list(as_tuple(found)), exact) <= workload.tolerance


@pytest.mark.parametrize("name", SMALL)
def test_operator_computes_what_numpy_does(name: str) -> None:
    workload = SMALL[name]
    inputs = workload.inputs()
    found = as_tuple(sides.make_operator(workload)(*inputs.values()))
    check(workload, found)
    assert sum(f.nbytes for f in found) == workload.bytes_written
    table = inputs["E"].nbytes - ELEMENTS * ragged.CHANNELS * 4 if "E" in inputs else 0  # more rows than are read
    assert sum(a.nbytes for a in inputs.values()) - table == workload.bytes_read


@pytest.mark.each
@pytest.mark.parametrize("name", LOOPS)
def test_loops_for_numba_compute_what_numpy_does(name: str, loops: None) -> None:
    workload = SMALL[name]
    found = workload.peers["numba"](None, None, **workload.inputs())
    check(workload, found)
    check(workload, workload.peers["numba"](None, found, **workload.inputs()))  # with results and temporaries used before


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_pattern_is_right_in_both_precisions(pattern: str) -> None:
    for dtype in ("float32", "float64"):
        workload = sparse.make_workload("spmm8", pattern, "tiny", dtype, ENTRIES)  # type: ignore[arg-type]
        check(workload, sides.make_operator(workload)(*workload.inputs().values()))


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("entries", [1000, 4321])
def test_patterns_are_square_matrices_of_as_many_entries(pattern: Pattern, entries: int) -> None:
    ptr, column = pattern.make(np.random.default_rng(1), entries)
    rows = pattern.rows(entries)
    assert (ptr.size, ptr[0], ptr[-1], column.size) == (rows + 1, 0, entries, entries)
    assert (np.diff(ptr) >= 0).all() and column.min() >= 0 and column.max() < rows
    assert all((np.diff(column[i:j]) >= 0).all() for i, j in pairwise(ptr))


def test_patterns_are_what_their_names_say() -> None:
    lengths = {n: np.diff(p.make(np.random.default_rng(1), 10_000)[0]) for n, p in PATTERNS.items()}
    assert (lengths["empty_rows"] == 0).sum() >= 500 and lengths["giant_row"].max() >= 1000
    assert set(lengths["banded"]) == {10} and set(lengths["grid"]) == {5}
    assert lengths["power_law"].max() > 200 > 40 > lengths["uniform"].max()
    assert lengths["triangle"][:500].sum() < 0.3 * 10_000


def test_segments_have_the_least_length_and_sums_of_empty_ones_are_empty() -> None:
    ptr = draw_segments(np.random.default_rng(1), 50, 500, least=3)
    assert ptr[-1] == 500 and np.diff(ptr).min() >= 3
    values = np.arange(4.0)
    np.testing.assert_array_equal(reduce_segments(np.add, values, np.array([0, 0, 3, 3, 4, 4])), [0, 3, 0, 3, 0])


def test_groups_leave_out_what_is_asked_for_by_name_only() -> None:
    assert len(GROUPS["sparse"]) == 2 * 3 * len(sparse.KINDS) * len(PATTERNS) and "spmv_uniform_1e7" in WORKLOADS
    assert not any("1e7" in n for names in GROUPS.values() for n in names)
    assert set(GROUPS["sparse"]) == {n for size in ("1e4", "1e5", "1e6") for n in GROUPS[f"sparse_{size}"]}
    assert set(GROUPS["ragged"]) == {w.name for w in ragged.WORKLOADS}
    assert not set(BOARD) & {*GROUPS["sparse"], *GROUPS["ragged"]}


def test_signatures_are_those_of_the_inputs() -> None:
    for workload in (*SMALL.values(), *(replace(w, dtype="float64") for w in SPARSE)):
        assert workload.signature() == {n: (a.dtype, a.shape) for n, a in workload.inputs().items()}
