"""Sums whose results lie across their vectors: which are computed in another order, and that the results stay."""

from __future__ import annotations

import pytest

import polyc
from polyc.machine import X86_64_V2, X86_64_V3, X86_64_V4, Machine
from polyc.poly.rows import statements_of
from polyc.scheduler.rewriting.rules import turned_results
from polyc.scheduler.rewriting.rules.turned_results import turn_results
from tests.oracle.programs import agree, draw
from tests.scheduler.support import check, check_nest, infer, lower, read, statements

HEAD = "def f(float(A,D,B) X, float(A,D,C) Y, float(B) g) -> (Z) { "
SIZES = {"A": 20, "B": 37, "C": 21, "D": 5}

TURNED = {
    "batch along memory": HEAD + "Z(c,b,a) +=! X(a,d,b) * Y(a,d,c) }",
    "what is made of it": HEAD + "S(c,b,a) +=! X(a,d,b) * Y(a,d,c)  Z(c,b,a) = fmax(S(c,b,a) + g(b), 0.0) }",
    "doubles": (HEAD + "Z(c,b,a) +=! X(a,d,b) * Y(a,d,c) }").replace("float", "double"),
    "two batch indices": "def f(float(A,E,D,B) X, float(E,A,C,D) Y) -> (Z) { Z(c,e,b,a) +=! X(a,e,d,b) * Y(e,a,c,d) }",
    "where each begins": HEAD + "Z(c,b,a) +=! X(a,d,b) * Y(a,d,c) where a in 2:A, b in 1:B-1 }",
}

OTHERS = {
    "in order": HEAD + "Z(a,c,b) +=! X(a,d,b) * Y(a,d,c) }",
    "a column along memory": HEAD + "Z(a,b,c) +=! X(a,d,b) * Y(a,d,c) }",
    "a maximum": HEAD + "Z(c,b,a) max=! X(a,d,b) * Y(a,d,c) }",
    "from a value on": HEAD + "Z(c,b,a) = g(b) where c in 0:C, a in 0:A  Z(c,b,a) += X(a,d,b) * Y(a,d,c) }",
    "a triangle": HEAD + "Z(c,b,a) +=! X(a,d,b) * Y(a,d,c) where b <= c, b in 0:20 }",
    "read again": HEAD.replace("(Z)", "(Z, W)") + "Z(c,b,a) +=! X(a,d,b) * Y(a,d,c)  W(c) +=! Z(c,b,a) }",
    "summed up after": HEAD + "S(c,b,a) +=! X(a,d,b) * Y(a,d,c)  Z(c,b) +=! S(c,b,a) }",
}


def test_before_and_after():
    program, ranges = infer(read(TURNED["batch along memory"]), **SIZES)
    new, _, remarks = turn_results(program, ranges, X86_64_V4)
    assert statements(new) == [
        "S0_turned(c, b, a, d): Z.turned[a, c, b] += X[a, d, b] * Y[a, d, c] init 0.0",
        "S0(c, b, a): Z[c, b, a] = Z.turned[a, c, b]",
    ]
    assert [r.pass_name for r in remarks] == ["transpose-results"]


def test_what_is_made_of_the_sum_reads_it_as_it_was_computed():
    program, ranges = infer(read(TURNED["what is made of it"]), **SIZES)
    new, _, _ = turn_results(program, ranges, X86_64_V4)
    assert statements(new)[1] == "S1(c, b, a): Z[c, b, a] = max(S.turned[a, c, b] + g[b], 0.0)"


@pytest.mark.each
@pytest.mark.parametrize("target", [X86_64_V2, X86_64_V3, X86_64_V4], ids=lambda t: t.name)
@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("a", [16, 21])
def test_every_form(name: str, target: Machine, a: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turned_results, "CLEARLY", 9.0)  # sums as short as these are not worth it with narrow vectors
    sizes = {**SIZES, "A": a, "E": 2}
    lowered = lower(TURNED[name], sizes, target=target)  # for any sizes there is nothing to turn
    check_nest(lowered, sizes)
    assert any(r.pass_name == "transpose-results" for r in lowered.remarks)


@pytest.mark.parametrize("name", OTHERS)
def test_what_stays(name: str):
    program, ranges = infer(read(OTHERS[name]), **SIZES)
    assert turn_results(program, ranges, X86_64_V4) == (program, ranges, [])


def test_few_elements_along_memory_stay():
    program, ranges = infer(read(TURNED["batch along memory"]), **{**SIZES, "A": 4})
    assert turn_results(program, ranges, X86_64_V4)[2] == []


def test_a_line_of_results_is_made_in_one_tile():
    """Lines along `a` are put together from as many tiles of the sum, of which no more is stored."""
    lowered = check(TURNED["batch along memory"], SIZES, target=X86_64_V4)
    (folding,) = (f for name, f in lowered.storage.items() if name == "Z.turned")
    assert folding.moduli is not None and folding.moduli[0] == 16
    assert set(statements_of(lowered.rows)) >= {"S0", "S0_turned"}


@pytest.mark.parametrize("name", TURNED)
def test_compiled(name: str):
    before = polyc.get_num_threads()
    try:
        op = polyc.compile(TURNED[name])
        for a in (16, 19):
            known = {**SIZES, "A": a, "E": 3}
            sizes = {n: known[n] for n in op.program.sizes}
            for threads in (1, 2):
                polyc.set_num_threads(threads)
                agree(op, draw(op, sizes), sizes)
    finally:
        polyc.set_num_threads(before)
