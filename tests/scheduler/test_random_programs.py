"""Random programs: both ways of finding rows agree, and what they find is legal, as are the lower rungs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from polyc.poly.dependences import compute_dependences
from polyc.poly.legality import prove_values
from polyc.poly.rows import format_rows, statements_of
from polyc.scheduler.rows.fallback import schedule_source_order, schedule_with_isl
from polyc.scheduler.rows.ilp import schedule_statements
from tests.poly.oracle import runs_by_value
from tests.poly.trees import build_tree, parse_tree
from tests.scheduler.integer_rows import integer_programs
from tests.scheduler.programs import Line, make_scop

INDICES = ("i", "j", "k")


@st.composite
def programs(draw: st.DrawFn) -> list[Line]:
    """Elementwise, broadcasts, transpositions, reductions, windows and strides over earlier tensors of rank 0 to 3."""
    ranks = {"x": 2, "v": 1}
    lines = []
    for n in range(draw(st.integers(2, 5))):
        indices = list(draw(st.permutations(INDICES)))[: draw(st.integers(1, 3))]
        n_left = draw(st.integers(0, len(indices)))
        left = indices[:n_left]
        reads, used = [], set()
        for tensor in draw(st.lists(st.sampled_from(sorted(ranks)), min_size=1, max_size=2)):
            subs = [draw(st.sampled_from(indices)) for _ in range(ranks[tensor])]
            if tensor in ("x", "v") and draw(st.integers(0, 4)) == 0:
                subs = [f"{s}+1" for s in subs]
            reads.append(f"{tensor}[{','.join(subs)}]" if subs else tensor)
            used |= {s[0] for s in subs}
        right = [i for i in indices[n_left:] if i in used]
        target = f"t{n}"
        write = f"{target}[{','.join(left)}]" if left else target
        lines.append(Line(f"S{n}", " ".join(f"{i}:N" for i in (*left, *right)), write, tuple(reads), bool(right)))
        ranks[target] = n_left
    return lines


@settings(max_examples=60, deadline=None)
@given(programs(), st.booleans())
def test_rows_agree_and_are_legal(lines: list[Line], symbolic: bool) -> None:
    scop = make_scop(lines, {"N": 4}, symbolic)
    dependences = compute_dependences(scop)
    text = format_rows(schedule_statements(scop, dependences), scop)
    assert format_rows(schedule_statements(scop, dependences, make_finder=integer_programs()), scop) == text
    initial = "".join(f"init_{s.name} ; " for s in scop.statements if s.is_reduction)
    assert prove_values(scop, dependences, build_tree(scop, initial + text)) is None


@settings(max_examples=25, deadline=None)
@given(programs())
def test_lower_rungs_are_legal(lines: list[Line]) -> None:
    scop = make_scop(lines, {"N": 2}, symbolic=False)
    dependences = compute_dependences(scop)
    initial = "".join(f"init_{s.name} ; " for s in scop.statements if s.is_reduction)
    for node in (schedule_source_order(scop, dependences), schedule_with_isl(scop, dependences)):
        if node is not None:
            assert sorted(statements_of(node)) == sorted(s.name for s in scop.statements)
            text = initial + format_rows(node, scop)
            assert prove_values(scop, dependences, build_tree(scop, text)) is None
            assert runs_by_value(scop, parse_tree(text))
