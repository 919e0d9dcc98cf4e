"""Flow dependences against a brute-force walk over all instances, and the shapes that schedulers rely on."""

from __future__ import annotations

from dataclasses import replace

import islpy as isl
import pytest

from polyc.poly.dependences import Dependences, Flow, compute_dependences
from polyc.poly.scop import Scop
from tests.poly.oracle import flow_pairs
from tests.scheduler.corpus import EXAMPLES, Example, parse_line
from tests.scheduler.programs import make_scop


def scop_of(*lines: str, init: dict[str, str] | None = None, symbolic: bool = True, **sizes: int) -> Scop:
    parsed = [parse_line(line) for line in lines]
    return make_scop([replace(line, init=(init or {}).get(line.name)) for line in parsed], sizes, symbolic)


def flow_of(dependences: Dependences, source: str, sink: str) -> Flow:
    found = [f for f in (*dependences.flows, *dependences.init_flows) if (f.source, f.sink) == (source, sink)]
    assert len(found) == 1, (source, sink)
    return found[0]


def test_a_consumer_depends_on_every_instance_of_a_sum() -> None:
    scop = scop_of("S: i:N j:K -> s[i] += x[i,j]", "T: i:N -> t[i] = s[i]", N=8, K=4)
    flow = flow_of(compute_dependences(scop), "S", "T")
    assert flow.relation.is_equal(isl.Map("[N, K] -> { S[i, j] -> T[i] : N >= 4 and K >= 4 and 0 <= i < N and 0 <= j < K }"))


def test_the_initial_value_precedes_all_instances_of_its_element() -> None:
    scop = scop_of("S: i:N j:K -> s[i] += x[i,j]", N=8, K=4, symbolic=False)
    dependences = compute_dependences(scop)
    flow = flow_of(dependences, "init_S", "S")
    assert flow.relation.is_equal(isl.Map("{ init_S[i] -> S[i, j] : 0 <= i < 8 and 0 <= j < 4 }"))
    assert dependences.same_element["S"].is_equal(isl.Map("{ S[i, j] -> S[i, k] : 0 <= i < 8 and 0 <= j < 4 and 0 <= k < 4 }"))


def test_reads_of_an_initial_value_reach_every_instance() -> None:
    scop = scop_of("B: i:N -> b[i] = x[i]", "S: i:N j:K -> s[i] += y[i,j]", init={"S": "b[i]"}, N=8, K=4, symbolic=False)
    dependences = compute_dependences(scop)
    to_init = flow_of(dependences, "B", "init_S").relation
    assert to_init.is_equal(isl.Map("{ B[i] -> init_S[i] : 0 <= i < 8 }"))
    to_instances = flow_of(dependences, "B", "S").relation
    assert to_instances.is_equal(isl.Map("{ B[i] -> S[i, j] : 0 <= i < 8 and 0 <= j < 4 }"))


def test_an_empty_sum_hands_its_initial_value_to_the_reader() -> None:
    scop = make_scop([parse_line("S: i:N j:K -> s[i] += x[i,j]"), parse_line("T: i:N -> t[i] = s[i]")], {"N": 3, "K": 0}, False)
    dependences = compute_dependences(scop)
    assert not dependences.flows
    assert flow_of(dependences, "init_S", "T").relation.is_equal(isl.Map("{ init_S[i] -> T[i] : 0 <= i < 3 }"))


def test_recurrences_are_represented() -> None:
    scan = compute_dependences(scop_of("S: j:K -> s[j] = x[j] s[j-1]", K=8, symbolic=False))
    assert scan.has_recurrence()
    assert [(f.source, f.sink) for f in scan.flows] == [("S", "S")]
    cycle = compute_dependences(scop_of("A: j:K -> a[j] = b[j-1]", "B: j:K -> b[j] = a[j]", K=8))
    assert cycle.has_recurrence()
    diamond = scop_of("A: j:K -> a[j] = x[j]", "B: j:K -> b[j] = a[j]", "C: j:K -> c[j] = a[j] b[j]", K=8)
    assert not compute_dependences(diamond).has_recurrence()


def test_flows_are_sorted_by_the_source_text() -> None:
    scop = scop_of("A: i:N -> a[i] = x[i]", "B: i:N -> b[i] = a[i]", "C: i:N -> c[i] = b[i] a[i]", N=4)
    assert [(f.source, f.sink) for f in compute_dependences(scop).flows] == [("A", "B"), ("A", "C"), ("B", "C")]


SMALL = {
    "softmax": {"N": 2, "K": 3},
    "layernorm": {"N": 2, "K": 3},
    "transposed_chain": {"N": 2, "M": 3},
    "gemver": {"N": 3},
    "bias_prep_mm": {"M": 2, "N": 2, "K": 3},
    "harris": {"H": 6, "W": 6},
    "unsharp": {"C": 1, "H": 5, "W": 5},
    "conv_maxpool": {"N": 1, "C": 1, "O": 1, "H": 1, "W": 1},
}


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.name in SMALL], ids=lambda e: e.name)
def test_flows_match_a_walk_over_all_instances(example: Example) -> None:
    small = Example(example.name, SMALL[example.name], example.lines, "")
    scop = small.scop(symbolic=False)
    dependences = compute_dependences(scop)
    found = set()
    for flow in (*dependences.flows, *dependences.init_flows):
        points: list[isl.Point] = []
        flow.relation.wrap().foreach_point(points.append)
        n = flow.relation.dim(isl.dim_type.in_)
        for point in points:
            values = [
                int(point.get_coordinate_val(isl.dim_type.set, d).to_python())
                for d in range(flow.relation.wrap().dim(isl.dim_type.set))
            ]
            found.add(((flow.source, *values[:n]), (flow.sink, *values[n:])))
    assert found == flow_pairs(scop)
