"""Passes over rows: bands apart, bands merged, initial values above the outermost reduction member."""

from __future__ import annotations

import pytest

from polyc.machine import X86_64_V3
from polyc.poly.dependences import compute_dependences
from polyc.poly.extraction import extract_scop
from polyc.poly.rows import Band, Leaf, Member, Node, Row, Sequence, format_rows, statements_of
from polyc.poly.scop import Scop
from polyc.scheduler.distribute import distribute_bands
from polyc.scheduler.initial import init_row, place_initial_values
from polyc.scheduler.loops.plan import merge_bands
from polyc.scheduler.rows.ilp import schedule_statements
from tests.scheduler.support import check, infer, read

SOFTMAX = """
def softmax(float(N,D) X) -> (Y) {
  M(n) max=! X(n,d)
  E(n,d) = exp(X(n,d) - M(n))
  Z(n) +=! E(n,d)
  Y(n,d) = E(n,d) / Z(n)
}"""


def rows_of(text: str, **sizes: int) -> tuple[Node, Scop]:
    program, ranges = infer(read(text), **sizes)
    scop = extract_scop(program, ranges)
    node = schedule_statements(scop, compute_dependences(scop))
    assert node is not None
    return node, scop


def initial(text: str, **sizes: int) -> str:
    """The text form after merging bands and placing initial values; those of an element are written ``init_S(element)``."""
    node, scop = rows_of(text, **sizes)

    def visit(node: Node) -> str:
        match node:
            case Leaf():
                return node.statement
            case Sequence():
                return " ; ".join(map(visit, node.children))
            case Band():
                kinds = ",".join(m.kind for m in node.members)
                assert all(set(m.rows) == set(statements_of(node)) for m in node.members)
                return f"[{kinds}]{{ {visit(node.child)} }}"

    return visit(place_initial_values(merge_bands(node), scop))


# --- initial values --------------------------------------------------------------------------------------------------


def test_above_the_reduction_and_below_the_rest():
    assert initial("def f(float(M,N) X) -> (O) { O(i) +=! X(i,j) }") == "[P]{ init_S0 ; [R]{ S0 } }"


def test_over_the_elements_that_no_outer_member_fixes():
    text = "def f(float(M,N) X) -> (O) { O(j) +=! X(i,j) }"
    assert initial(text) == "[P]{ init_S0 ; [R]{ S0 } }"


def test_several_reductions_of_one_band_each_have_their_own():
    found = initial("def f(float(M,N) X) -> (O, P) { O(i) +=! X(i,j)  P(i) max=! X(i,j) }")
    assert found.index("init_S0") < found.index("init_S1") < found.index("{ S0")


def test_a_sum_over_everything_starts_outside():
    assert initial("def f(float(M,N) X) -> (s) { s +=! X(i,j) }") == "init_S0 ; [R,R]{ S0 }"


def test_statements_without_a_reduction_are_left_alone():
    assert initial("def f(float(M,N) X) -> (O) { O(i,j) = X(i,j) }") == "[P,P]{ S0 }"


def test_a_reduction_over_nothing_but_its_element():
    # O[i] += x[i] has no reduction index: the initial value stands right before the update.
    assert initial("def f(float(M) X) -> (O) { O(i) += X(i) }") == "[P]{ init_S0 ; S0 }"
    check("def f(float(M) X) -> (O) { O(i) += X(i) }", {"M": 40})


def test_rows_of_initial_values_drop_the_reduction_indices():
    _, scop = rows_of("def f(float(M,N,K) X) -> (O) { O(i,j) +=! X(i,j,k) }")
    (s,) = scop.statements
    assert init_row(Row((1, 2, 0), 3), s) == Row((1, 2), 3)


def test_members_that_are_shifted_fix_no_element():
    _, scop = rows_of("def f(float(M,N) X) -> (O) { O(i) +=! X(i,j) }")
    shifted = Band((Member("P", {"S0": Row((1, 0), 2)}), Member("R", {"S0": Row((0, 1))})), Leaf("S0"))
    placed = place_initial_values(shifted, scop)
    assert isinstance(placed, Band) and placed.members[0].rows["init_S0"] == Row((1,), 2)
    assert isinstance(placed.child, Sequence) and isinstance(placed.child.children[0], Band)


# --- bands -----------------------------------------------------------------------------------------------------------


def band(kind: str, position: int, child: Node) -> Band:
    rows = {n: Row(tuple(int(k == position) for k in range(2))) for n in statements_of(child)}
    return Band((Member(kind, rows),), child)  # type: ignore[arg-type]


def test_nested_bands_become_one_unless_they_carry_dependences():
    inner = band("P", 1, Leaf("S0"))
    merged = merge_bands(band("P", 0, inner))
    assert isinstance(merged, Band) and len(merged.members) == 2 and merged.child == Leaf("S0")
    for outer, below in (("S", "P"), ("P", "S")):
        kept = merge_bands(band(outer, 0, band(below, 1, Leaf("S0"))))
        assert isinstance(kept, Band) and len(kept.members) == 1


LAYERS = """def f(float(M,K) X, float(N,K) A, float(P,N) B) -> (Y) {
  H(m,n) +=! X(m,k) * A(n,k)  R(m,n) = fmax(H(m,n), 0.0)  Y(m,p) +=! R(m,n) * B(p,n) }"""


def test_layers_with_large_weights_come_apart_and_small_ones_stay():
    small, scop = rows_of(LAYERS, M=64, K=16, N=16, P=16)
    assert format_rows(distribute_bands(small, scop, X86_64_V3), scop) == format_rows(small, scop)
    large, scop = rows_of(LAYERS, M=64, K=1024, N=1024, P=1024)
    apart = distribute_bands(large, scop, X86_64_V3)
    assert isinstance(apart, Sequence) and list(statements_of(apart)) == list(statements_of(large))
    assert isinstance(large, Band)


def test_parts_that_do_not_reduce_along_the_band_are_parallel_on_their_own():
    text = "def f(float(M,N) X) -> (U, O) { U(j) +=! X(i,j)  O(i,j) = X(i,j) * 2.0 }"
    node, scop = rows_of(text, M=1000, N=1000)
    apart = distribute_bands(node, scop, X86_64_V3)
    assert list(statements_of(apart)) == ["S0", "S1"]
    check(text, {"M": 100, "N": 70})


@pytest.mark.parametrize("size", [1, 3, 40])
def test_chains_of_layers_are_right(size):
    check(LAYERS, {"M": size, "K": 33, "N": 40, "P": 17})


def test_exponentials_and_their_sum_pass_over_a_row_together():
    node, scop = rows_of(SOFTMAX, N=4096, D=1024)
    assert format_rows(distribute_bands(node, scop, X86_64_V3), scop) == "[P:n]{ [R:d] S0 ; [R:d]{ S1 ; S2 } ; [P:d] S3 }"


@pytest.mark.each
@pytest.mark.parametrize("n", [0, 1, 7, 16, 33, 100])
@pytest.mark.parametrize("text", ["softmax", "columns"])
def test_rows_that_are_passed_over_together_are_right(text: str, n: int):
    source = SOFTMAX if text == "softmax" else SOFTMAX.replace("(n,d)", "(d,n)").replace("float(N,D)", "float(D,N)")
    check(source, {"N": 5, "D": n})
