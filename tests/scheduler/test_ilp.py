"""The scheduler's rows: the golden schedules, both ways of finding rows, limits and budgets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from polyc.diagnostics import UnsupportedError
from polyc.poly.dependences import compute_dependences
from polyc.poly.legality import prove_values
from polyc.poly.rows import format_rows, statements_of
from polyc.poly.scop import Scop
from polyc.scheduler.rows import solver
from polyc.scheduler.rows.groups import RowFinder
from polyc.scheduler.rows.ilp import schedule_statements
from polyc.scheduler.rows.model import Model
from polyc.scheduler.rows.solver import Budget
from polyc.scheduler.rows.union_find import ClassFinder
from tests.poly.trees import build_tree
from tests.scheduler.corpus import EXAMPLES, Example, parse_line
from tests.scheduler.integer_rows import integer_programs
from tests.scheduler.programs import Line, make_scop

CONFORMANCE = Path(__file__).parents[3] / "shared" / "conformance" / "schedules.json"


def text_of(scop: Scop, make_finder: Callable[[Model], RowFinder] = ClassFinder) -> str:
    node = schedule_statements(scop, compute_dependences(scop), make_finder=make_finder)
    return format_rows(node, scop)


def scop_of(*lines: str, **sizes: int) -> Scop:
    return make_scop([parse_line(line) for line in lines], sizes)


@pytest.mark.parametrize("symbolic", [True, False], ids=["symbolic", "constant"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_golden_schedules(example: Example, symbolic: bool) -> None:
    assert text_of(example.scop(symbolic)) == example.schedule


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_the_integer_programs_find_the_same_rows_as_the_classes(example: Example) -> None:
    assert text_of(example.scop(), integer_programs()) == example.schedule


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_golden_schedules_are_proved_by_value(example: Example) -> None:
    scop = example.scop()
    initial = [f"init_{s.name} ; " for s in scop.statements if s.is_reduction]
    schedule = build_tree(scop, "".join(initial) + example.schedule)
    assert prove_values(scop, compute_dependences(scop), schedule) is None


REWRITTEN = ("jacobi1d_inplace", "jacobi2d", "fdtd2d", "lu", "cholesky", "floyd")
"""Programs that overwrite arrays in place, in single assignment: the step is a dimension."""
BETTER = ("lstm", "covariance")
"""Schedules other than the reference, for the reasons in docs/decisions/0210-recurrences-in-single-assignment.md."""


@pytest.mark.skipif(not CONFORMANCE.exists(), reason=f"{CONFORMANCE} is absent")
def test_golden_files_are_the_conformance_programs() -> None:
    programs = {p["program"]: p for p in json.loads(CONFORMANCE.read_text())["programs"]}
    assert {e.name for e in EXAMPLES} == programs.keys() and len(programs) == 28
    for e in EXAMPLES:
        statements = programs[e.name]["statements"]
        if e.name in REWRITTEN:
            assert [line.name for line in e.lines] == [s["name"] for s in statements]
            continue
        if e.name in BETTER:
            assert e.schedule != programs[e.name]["schedule"]
            continue
        assert e.schedule == programs[e.name]["schedule"]
        assert e.lines == tuple(
            Line(s["name"], s["domain"], s["write"], tuple(s["reads"]), s["reduction"], s.get("condition")) for s in statements
        )


@pytest.mark.parametrize(
    ("lines", "sizes", "expected"),
    [
        # One row only: the pass over the row is shared, the reductions keep their order.
        (
            ["M: j:K -> m += x[j]", "E: j:K -> e[j] = x[j] m", "Z: j:K -> z += e[j]", "O: j:K -> o[j] = e[j] z"],
            {"K": 64},
            "[R:j] M ; [R:j]{ E ; Z } ; [P:j] O",
        ),
        (["P: j:K -> p[j] = x[j] y[j]", "D: j:K -> d += p[j]", "F: -> f = d"], {"K": 64}, "[R:j]{ P ; D } ; F"),
        # MTTKRP: truly parallel members first, both reductions in the same band.
        (
            ["A: i:N j:M k:K l:L -> a[i,j] += b[i,k,l] c[k,j] d[l,j]"],
            {"N": 8, "M": 8, "K": 8, "L": 8},
            "[P:i, P:j, R:k, R:l] A",
        ),
        # A reduction that is read by a strided consumer is never fused at the strided index.
        (["A: i:N -> a[i] = x[i]", "B: i:M -> b[i] = a[2i]"], {"N": 16, "M": 8}, "[P:i] A ; [P:i] B"),
        # Rows of one band may carry different indices of their statements.
        (["A: i:N -> a[i] = x[i]", "B: q:N -> b[q] = a[q]"], {"N": 16}, "[P:{A: i, B: q}]{ A ; B }"),
        # The diagonal of a matrix: distance 0 needs i = j, which no single index of A gives.
        (["A: i:N j:N -> a[i,j] = x[i,j]", "B: i:N -> b[i] = a[i,i]"], {"N": 16}, "[P:i]{ [P:j] A ; B }"),
    ],
)
def test_small_programs(lines: list[str], sizes: dict[str, int], expected: str) -> None:
    assert text_of(scop_of(*lines, **sizes)) == expected
    assert text_of(scop_of(*lines, **sizes), integer_programs()) == expected


BATCHED = [e for e in EXAMPLES if e.name not in ("gemver", "harris", "unsharp")]


@pytest.mark.parametrize("example", BATCHED, ids=lambda e: e.name)
def test_extents_of_one_do_not_split_loops(example: Example) -> None:
    """A batch of one gives the structure of any other batch."""
    first = next(iter(example.sizes))
    ones = Example(example.name, {**example.sizes, first: 1}, example.lines, example.schedule)
    statements = [s.name for s in ones.scop(False).statements]
    node = schedule_statements(ones.scop(False), compute_dependences(ones.scop(False)))
    assert sorted(statements_of(node)) == sorted(statements)
    assert text_of(ones.scop(False)).count("{") <= example.schedule.count("{") + 1


def chain(n: int) -> list[Line]:
    """Elementwise, contraction, transposition, broadcast and window in turns."""
    lines: list[Line] = []
    before = "x"
    for k in range(n):
        name, box = f"t{k}", "i:N j:N k:N l:N"
        match k % 5:
            case 0:
                lines.append(Line(f"S{k}", box, f"{name}[i,j,k,l]", (f"{before}[i,j,k,l]",)))
            case 1:
                lines.append(Line(f"S{k}", box + " p:N", f"{name}[i,j,k,l]", (f"{before}[i,j,k,p]", f"w{k}[l,p]"), True))
            case 2:
                lines.append(Line(f"S{k}", box, f"{name}[i,j,k,l]", (f"{before}[i,j,l,k]",)))
            case 3:
                lines.append(Line(f"S{k}", box, f"{name}[i,j,k,l]", (f"{before}[i,j,k,l]", f"b{k}[l]")))
            case _:
                reads = (f"{before}[i,c,k+r,l+s]", f"w{k}[j,c,r,s]")
                lines.append(Line(f"S{k}", box + " c:N r:3 s:3", f"{name}[i,j,k,l]", reads, True))
        before = name
    return lines


def test_both_ways_agree_on_a_chain_and_stay_in_the_budget() -> None:
    scop = make_scop(chain(60), {"N": 32})
    budget = Budget()
    assert text_of(scop, integer_programs(budget)) == text_of(scop)
    assert budget.n_solves <= 15 * 60


def test_over_budget_means_less_fusion_never_failure() -> None:
    scop = make_scop(chain(20), {"N": 32})
    node = schedule_statements(scop, compute_dependences(scop), make_finder=integer_programs(Budget(max_solves=30)))
    assert sorted(statements_of(node)) == sorted(s.name for s in scop.statements)


def test_twenty_statements_of_eight_dimensions() -> None:
    indices = "abcdefgh"
    box, subs = " ".join(f"{i}:N" for i in indices), ",".join(indices)
    lines = [Line(f"S{k}", box, f"t{k}[{subs}]", (f"{f't{k - 1}' if k else 'x'}[{subs}]",)) for k in range(20)]
    scop = make_scop(lines, {"N": 16})
    assert text_of(scop) == f"[{', '.join(f'P:{i}' for i in indices)}]{{ {' ; '.join(f'S{k}' for k in range(20))} }}"


@pytest.mark.parametrize(
    "lines",
    [
        ["A: i:N -> a[i] = b[i]", "B: i:N -> b[i] = a[i]"],
        ["A: i:N -> a[i] = x[i] a[i]"],
        ["A: i:N -> a[i] += x[i,j] a[j]".replace("i:N ->", "i:N j:N ->")],
    ],
)
def test_values_that_need_themselves_are_refused_by_name(lines: list[str]) -> None:
    scop = scop_of(*lines, N=16)
    with pytest.raises(UnsupportedError, match=r"computes every element of a.* before it is read"):
        schedule_statements(scop, compute_dependences(scop))


def test_equal_problems_are_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def problem(cost: float) -> solver.Problem:
        made = solver.Problem()
        made.add_row(3, 99, [(made.add_variable(cost, 0, 9), 1.0)])
        return made

    asked, real = [], solver._ask_highs
    monkeypatch.setattr(solver, "_solved", {})
    monkeypatch.setattr(solver, "_ask_highs", lambda *given: asked.append(given) or real(*given))
    found = [solver.solve(problem(cost), solver.Budget()) for cost in (1.0, 1.0, -1.0, 1.0)]
    assert found == [[3], [3], [9], [3]] and len(asked) == 2
    assert solver.solve(problem(1.0), solver.Budget(max_solves=0)) is None
