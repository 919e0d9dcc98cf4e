"""From planned loops to the isl tree: what tiles, points, periods, sequences and marks become."""

from __future__ import annotations

import islpy
import pytest

from polyc.poly.extraction import extract_scop
from polyc.poly.legality import instance_domains
from polyc.poly.rows import Row
from polyc.poly.scop import Scop
from polyc.poly.tree import (
    Mark,
    Plan,
    PlanLeaf,
    PlanLoop,
    PlanSequence,
    build_schedule,
    format_tree,
    make_sequence,
    parse_mark,
    plan_statements,
    row_function,
    statement_domains,
)
from tests.scheduler.support import infer, read


def scop_of(text: str, **sizes: int) -> Scop:
    return extract_scop(*infer(read(text), **sizes))


COPY = "def f(float(M,N) X) -> (O) { O(i,j) = X(i,j) }"
SUM = "def f(float(M,N) X) -> (O) { O(i) +=! X(i,j) }"
LEAF = PlanLeaf("S0")


def loop(position: int, child: Plan, part: str = "whole", size: int = 0, mark: Mark | None = None, period: int = 0) -> PlanLoop:
    rows = {
        n: Row((1,) if n.startswith("init_") else tuple(int(k == position) for k in range(2))) for n in plan_statements(child)
    }
    return PlanLoop(rows, "P", child, part, size, mark, period)  # type: ignore[arg-type]


def times(scop: Scop, plan: Plan, name: str = "S0") -> islpy.Map:
    """Where the schedule puts the instances of a statement."""
    found = build_schedule(scop, plan).get_map().intersect_domain(islpy.UnionSet.from_set(statement_domains(scop)[name]))
    return found.as_map()


def is_same(found: islpy.Map, text: str) -> bool:
    expected = islpy.Map(text)
    return bool(found.reset_tuple_id(islpy.dim_type.out).is_equal(expected.intersect_domain(found.domain())))


def test_whole_loops_are_rows():
    scop = scop_of(COPY)
    assert is_same(times(scop, loop(0, loop(1, LEAF))), "[M, N] -> { S0[i, j] -> [i, j] }")
    assert is_same(times(scop, loop(1, loop(0, LEAF))), "[M, N] -> { S0[i, j] -> [j, i] }")


def test_tiles_keep_absolute_origins_and_points_count_from_them():
    found = times(scop_of(COPY), loop(0, loop(1, loop(0, LEAF, "point", 8)), "tile", 8))
    assert is_same(found, "[M, N] -> { S0[i, j] -> [i - i mod 8, j, i mod 8] }")


def test_a_period_puts_tiles_inside_of_a_block():
    inner = loop(0, loop(0, LEAF, "point", 4), "tile", 4, period=16)
    found = times(scop_of(COPY), loop(0, inner, "tile", 16))
    assert is_same(found, "[M, N] -> { S0[i, j] -> [i - i mod 16, (i mod 16) - (i mod 4), i mod 4] }")
    assert bool(times(scop_of(COPY), loop(0, loop(1, inner), "tile", 16)).is_injective())


def test_rows_with_several_coefficients_and_a_constant():
    rows = {"S0": Row((2, 1), 3)}
    assert is_same(times(scop_of(COPY), PlanLoop(rows, "S", LEAF)), "[M, N] -> { S0[i, j] -> [2i + j + 3] }")
    domain = scop_of(COPY).statements[0].domain
    assert row_function(Row((0, -1), 5), domain).is_equal(islpy.PwAff("[M, N] -> { S0[i, j] -> [(5 - j)] }"))


def test_initial_values_have_instances_of_their_own():
    scop = scop_of(SUM)
    assert set(statement_domains(scop)) == set(instance_domains(scop)) == {"S0", "init_S0"}
    plan = loop(0, PlanSequence((PlanLeaf("init_S0"), loop(1, LEAF))))
    assert is_same(times(scop, plan, "init_S0"), "[M, N] -> { init_S0[i] -> [i, 0, 0] }")
    assert is_same(times(scop, plan), "[M, N] -> { S0[i, j] -> [i, 1, j] }")


def test_only_parallel_members_are_coincident():
    scop, tree = scop_of(COPY), ""
    for kind, flag in (("P", "1"), ("R", "0"), ("S", "0")):
        tree = format_tree(build_schedule(scop, PlanLoop({"S0": Row((1, 0))}, kind, LEAF)))  # type: ignore[arg-type]
        assert ("coincident: [ 1 ]" in tree) == (flag == "1")
    assert "permutable: 1" in tree


def test_the_text_reads_back():
    scop = scop_of(SUM)
    plan = loop(0, PlanSequence((PlanLeaf("init_S0"), loop(1, LEAF, mark=Mark("vector", 16, 4)))), mark=Mark("parallel"))
    schedule = build_schedule(scop, plan)
    again = islpy.Schedule.read_from_str(islpy.DEFAULT_CONTEXT, format_tree(schedule))
    assert again.get_map().is_equal(schedule.get_map())
    assert format_tree(again).count("mark:") == 2
    assert "parallel c0" in format_tree(schedule) and "vector c1 16 4" in format_tree(schedule)


@pytest.mark.parametrize(("n", "division"), [(4, False), (5, True), (None, True)])
def test_a_tile_that_holds_all_needs_no_division(n, division):
    scop = scop_of(COPY) if n is None else scop_of(COPY, M=n, N=n)
    plan = loop(1, loop(1, loop(0, LEAF), "point", 4, period=4), "tile", 4)
    assert ("mod" in format_tree(build_schedule(scop, plan))) == division
    assert is_same(times(scop, plan), "[M, N] -> { S0[i, j] -> [j - (j mod 4), j mod 4, i] }")


def test_marks_name_the_loop_at_their_depth():
    scop = scop_of(COPY)
    text = format_tree(build_schedule(scop, loop(0, loop(1, loop(1, LEAF, "point", 4, Mark("unroll")), "tile", 4))))
    assert "unroll c2" in text


@pytest.mark.parametrize(
    "mark", [Mark("parallel"), Mark("pipeline", columns=2), Mark("unroll"), Mark("vector", 16, 2), Mark("vector", 1, 1)]
)
def test_marks_say_what_they_mean(mark):
    assert parse_mark(mark.text("c3")) == ("c3", mark)


@pytest.mark.parametrize("text", ["", "vector", "local A", "kernel c0"])
def test_other_marks_mean_nothing(text):
    assert parse_mark(text) is None


def test_sequences_are_flat():
    a, b, c = PlanLeaf("a"), PlanLeaf("b"), PlanLeaf("c")
    assert make_sequence([a]) == a
    assert make_sequence([PlanSequence((a, b)), c]) == PlanSequence((a, b, c))
    assert list(plan_statements(make_sequence([PlanSequence((a, b)), c]))) == ["a", "b", "c"]
