"""Sums over segments in vectors that load behind the end of their segment, on a machine where these are faster than strips."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import polyc
from polyc.machine import MACHINES, X86_64_V4, Machine
from polyc.machine.costs import LoopCosts
from tests.codegen.test_strips import SEGMENTS, VALUES, expected, inputs, text
from tests.property.guarded import place
from tests.property.pipeline import small_thresholds
from tests.scheduler.support import lower

READS_ON = replace(X86_64_V4, loops=LoopCosts(reads_on=True))
KINDS = [("+=", "float", False), ("+=", "double", True), ("max=", "float", True), ("min=", "double", False)]


def asm(z: int | None, target: Machine = READS_ON, value: str = VALUES["+="]) -> str:
    return lower(text("+=", value), {"Z": z or 0, "P": 41, "K": 50}, z is not None, target=target).as_text("ll")


def is_copied(code: str) -> bool:
    return "alloca [16384 x i8]" in code


def is_overread(code: str) -> bool:
    """Whether a vector of four is compared with what is left of a segment."""
    return "icmp slt <4 x i64> <i64 0, i64 1, i64 2, i64 3>" in code


@pytest.mark.parametrize("z", [1000, None])
def test_segments_are_read_on_or_their_terms_copied(z):
    for target in (READS_ON, X86_64_V4):
        code = asm(z, target)
        assert is_overread(code) == (not is_copied(code)) == target.loops.reads_on


def test_the_places_of_the_next_block_are_requested_and_loaded_in_pairs():
    """Two of 32 bits come in one load, and their addresses take no further operation: checked places are not negative."""
    code = asm(1000)
    asked = code.index("call void @llvm.prefetch")
    vector = code[code.index("icmp slt <4 x i64>", asked) : code.index("@llvm.fma.v4f32(", asked)]
    assert code.count("@llvm.prefetch") == 2  # its declaration, and one call: what the products read comes in time without
    assert [vector.count(op) for op in ("load i64", "lshr i64", "zext i32", "load i32", "sext")] == [2, 2, 4, 0, 0]


def test_what_is_not_there_for_every_element_is_not_read_on():
    assert not is_overread(asm(400, X86_64_V4))
    assert not is_overread(asm(400, value="v(p + 1) * x(c(p))"))
    assert is_overread(asm(400, value="x(c(p)) * x(d(p))"))


@pytest.mark.machine("zen4")
@pytest.mark.parametrize("op, dtype, dynamic", KINDS)
def test_sums_that_read_on_are_those_of_loops_at_the_end_of_memory(op, dtype, dynamic):
    assert MACHINES["zen4"].loops.reads_on
    operator, source = polyc.compile(text(op, VALUES[op], dtype), dynamic=dynamic), random.Random(2)
    for lengths in (SEGMENTS, [*SEGMENTS, 5], [3], [0], [], [4] * 9) if dynamic else (SEGMENTS,):
        a = inputs(lengths, np.float32 if dtype == "float" else np.float64)
        a = {n: place(e, source).array for n, e in a.items()}  # in some layout, against a page that may not be touched
        np.testing.assert_array_equal(operator(**a), expected(op, a))
    a = {n: np.array(e) for n, e in a.items()}
    for at in (0, a["c"].size - 1):
        wrong = a["c"].copy()
        wrong[at] = 50
        with pytest.raises(polyc.PolycError, match="50 of dimension 0 of"):
            operator(**{**a, "c": wrong})


@pytest.mark.machine("zen4")
def test_what_lies_behind_a_segment_is_left_out():
    lengths = [3, 5, 1, 6, 2]
    a = inputs(lengths, np.float32)
    a["v"][3:8] = a["v"][9:15] = np.nan
    for op in ("+=", "min="):
        np.testing.assert_array_equal(polyc.compile(text(op, VALUES[op]))(**a), expected(op, a))


@pytest.mark.machine("zen4")
def test_a_loop_beside_one_that_reads_on_ends_where_its_segment_does():
    parameters = "float(Z) v, float(W) w, int32(Z) c, int32(P) ptr, float(K) x"
    where = "where i in 0:P-1, p in ptr(i):ptr(i+1)"
    operator = polyc.compile(f"def f({parameters}) -> (y) {{ s(i) +=! w(p) {where} y(i) +=! v(p) * x(c(p)) * s(i) {where} }}")
    a, source = inputs([9, 17, 30], np.float32), random.Random(4)
    a["w"] = place(np.ones(56, np.float32), source).array
    del a["d"], a["k"]
    rows = [slice(*ends) for ends in zip(a["ptr"], a["ptr"][1:], strict=False)]
    wanted = [(a["v"][r] * a["x"][a["c"][r]]).sum() * (r.stop - r.start) for r in rows]
    np.testing.assert_array_equal(operator(**a), wanted)


@pytest.mark.machine("zen4")
def test_sums_that_read_on_are_the_same_for_any_number_of_threads():
    rng = np.random.default_rng(3)
    a = inputs([int(n) for n in rng.integers(0, 12, 300)], np.float32)
    a["v"], before = rng.standard_normal(a["v"].size).astype("f4"), polyc.get_num_threads()
    with small_thresholds():
        operator = polyc.compile(text("+=", VALUES["+="]))
        try:
            results = [(polyc.set_num_threads(n), operator(**a).tobytes())[1] for n in (1, 2, 3)]
        finally:
            polyc.set_num_threads(before)
    assert len(set(results)) == 1
