"""The lower rungs: isl's scheduler and the order of the source, proved like any other."""

from __future__ import annotations

import pytest

from polyc.ir.graphs import find_components
from polyc.poly.dependences import compute_dependences
from polyc.poly.legality import prove_values
from polyc.poly.rows import Node, format_rows
from polyc.poly.scop import Scop
from polyc.scheduler.rows.fallback import schedule_source_order, schedule_with_isl
from tests.poly.trees import build_tree
from tests.scheduler.corpus import EXAMPLES, Example, example, parse_line
from tests.scheduler.programs import make_scop


def is_proved(scop: Scop, node: Node) -> bool:
    initial = [f"init_{s.name} ; " for s in scop.statements if s.is_reduction]
    schedule = build_tree(scop, "".join(initial) + format_rows(node, scop))
    return prove_values(scop, compute_dependences(scop), schedule) is None


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_source_order_is_legal(example: Example) -> None:
    scop = example.scop()
    dependences = compute_dependences(scop)
    names = [s.name for s in scop.statements]
    components = find_components(names, [(flow.source, flow.sink) for flow in dependences.flows])
    # Statements that need each other share a loop, which the order of the source has not: that rung is refused.
    needs_shared_loop = any(len(component) > 1 for component in components)
    assert is_proved(scop, schedule_source_order(scop, dependences)) is not needs_shared_loop


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_isl_schedules_constant_sizes(example: Example) -> None:
    scop = example.scop(symbolic=False)
    node = schedule_with_isl(scop, compute_dependences(scop))
    assert node is not None and is_proved(scop, node)


def test_isl_calls_reductions_by_their_name() -> None:
    scop = example("mlp3").scop(symbolic=False)
    node = schedule_with_isl(scop, compute_dependences(scop))
    assert node is not None
    assert format_rows(node, scop).startswith("[P:m, P:n]{ [R:k] H0 ; B0 ; R0 } ; ")


def test_source_order_text() -> None:
    scop = example("softmax").scop()
    text = format_rows(schedule_source_order(scop, compute_dependences(scop)), scop)
    assert text == "[P:i]{ [R:j] M } ; [P:i, P:j] E ; [P:i]{ [R:j] Z } ; [P:i, P:j] O"


def test_a_reader_above_its_writer_runs_after_it() -> None:
    lines = ["B: i:N -> b[i] = a[i]", "A: i:N -> a[i] = x[i]"]
    scop = make_scop([parse_line(line) for line in lines], {"N": 8})
    assert format_rows(schedule_source_order(scop, compute_dependences(scop)), scop) == "[P:i] A ; [P:i] B"


def test_a_scan_keeps_the_order_of_the_source() -> None:
    scop = make_scop([parse_line("S: i:N j:K -> s[i,j] = x[i,j] s[i,j-1]")], {"N": 8, "K": 8})
    node = schedule_source_order(scop, compute_dependences(scop))
    assert format_rows(node, scop) == "[S:i]{ [S:j] S }"
    assert is_proved(scop, node)


def test_components_in_topological_order() -> None:
    edges = [("d", "a"), ("a", "b"), ("b", "a"), ("b", "c"), ("x", "a")]
    assert find_components(["a", "b", "c", "d", "e"], edges) == [["d"], ["a", "b"], ["c"], ["e"]]
    assert find_components(list("cba"), []) == [["c"], ["b"], ["a"]]
