"""The Scop: zero-based coordinates, accesses under conditions, padding, guards and initial values."""

from __future__ import annotations

from dataclasses import replace

import islpy
import pytest

from polyc.ir.expr import Call, Index, Pad, Read, Select, evaluate, int_const, walk
from polyc.poly.domains import box_domain, is_box, map_domain, project_domain, stays_inside
from polyc.poly.extraction import extract_scop
from polyc.poly.scop import Scop, ScopStatement
from tests.scheduler.support import infer, read


def scop_of(text: str, **sizes: int) -> Scop:
    return extract_scop(*infer(read(text), **sizes))


def only(scop: Scop) -> ScopStatement:
    (s,) = scop.statements
    return s


def same(found: islpy.Map | islpy.Set | None, text: str) -> bool:
    assert found is not None
    expected = islpy.Map(text) if isinstance(found, islpy.Map) else islpy.Set(text)
    return bool(found.is_equal(expected))


def reached(s: ScopStatement, tensor: str) -> islpy.Map:
    """Everything that a statement reads of a tensor."""
    relations = [a.relation for a in s.accesses if a.tensor == tensor]
    result = relations[0]
    for relation in relations[1:]:
        result = result.union(relation)
    return result


# --- coordinates -----------------------------------------------------------------------------------------------------


def test_domains_and_accesses_of_a_sum():
    s = only(scop_of("def f(float(M,N) X) -> (O) { O(i) +=! X(i,j) }"))
    context = "[M, N] -> "
    assert same(s.domain, context + "{ S0[i, j] : 0 <= i < M and 0 <= j < N }")
    assert same(s.write, context + "{ S0[i, j] -> O[i] : 0 <= i < M and 0 <= j < N }")
    assert same(s.accesses[0].relation, context + "{ S0[i, j] -> X[i, j] : 0 <= i < M and 0 <= j < N }")
    assert same(s.init_domain, context + "{ init_S0[i] : 0 <= i < M and N >= 0 }")
    assert s.is_reduction and s.left == ("i",) and s.reduction_indices == ("j",)


def test_every_index_and_tensor_starts_at_zero():
    scop = scop_of("def f(float(N) X) -> (O) { O(i) = X(i-1) * 2.0 where i in 3:N }", N=10)
    s = only(scop)
    assert same(s.domain, "{ S0[i] : 0 <= i < 7 }")
    assert same(s.write, "{ S0[i] -> O[i] : 0 <= i < 7 }")
    assert same(s.accesses[0].relation, "{ S0[i] -> X[i + 2] : 0 <= i < 7 }")
    assert evaluate(scop.tensors["O"].lower[0], {}) == 3 and evaluate(scop.tensors["O"].shape[0], {}) == 7


def test_reads_of_a_tensor_that_starts_later_are_shifted_too():
    text = "def f(float(N) X) -> (O) { T(i) = X(i) where i in 3:N  O(i) = T(i+1) * 1.0 where i in 4:N-1 }"
    s = scop_of(text, N=10).statements[1]
    assert same(s.accesses[0].relation, "{ S1[i] -> T[i + 2] : 0 <= i < 5 }")


def test_initial_values_are_shifted_with_their_tensor():
    text = "def f(float(N) b, float(N,K) X) -> (O) { T(i) = exp(b(i)) where i in 2:N  T(i) += X(i,k)  O(i) = T(i) * 2.0 }"
    scop = scop_of(text, N=10, K=3)
    (reduction,) = [s for s in scop.statements if s.is_reduction]
    assert same(reduction.init_domain, "{ init_S1[i] : 0 <= i < 8 }")
    (access,) = reduction.init_accesses
    assert same(access.relation, "{ init_S1[i] -> T[i] : 0 <= i < 8 }")


def test_conditions_restrict_the_domain_and_not_the_initial_value():
    s = only(scop_of("def f(float(N,N) X) -> (O) { O(i) +=! X(i,j) where j < i }"))
    assert same(s.domain, "[N] -> { S0[i, j] : 0 <= j < i < N }")
    assert same(s.init_domain, "[N] -> { init_S0[i] : 0 <= i < N }")


# --- what is read ----------------------------------------------------------------------------------------------------


def test_selections_guard_their_arms():
    s = only(scop_of("def f(float(N) X, float(M) Y) -> (O) { O(i) = i < M ? Y(i) : X(i) where i in 0:N }"))
    bounds = "0 <= i < N and M >= 0"
    assert same(reached(s, "Y"), f"[N, M] -> {{ S0[i] -> Y[i] : {bounds} and i < M }}")
    assert same(reached(s, "X"), f"[N, M] -> {{ S0[i] -> X[i] : {bounds} and i >= M }}")
    assert all(a.is_exact for a in s.accesses)


def test_conditions_on_data_are_over_approximated():
    s = only(scop_of("def f(float(N) X, float(N) Y) -> (O) { O(i) = X(i) > 0.0 ? Y(i) : 1.0 }"))
    assert same(reached(s, "Y"), "[N] -> { S0[i] -> Y[i] : 0 <= i < N }")
    assert not any(a.is_exact for a in s.accesses if a.tensor == "Y")


def test_data_dependent_places_reach_the_whole_dimension():
    s = only(scop_of("def f(float(N,K) X, int32(M) I) -> (O) { O(i,j) = X(I(i),j) }"))
    assert same(reached(s, "X"), "[N, K, M] -> { S0[i, j] -> X[e, j] : 0 <= i < M and 0 <= j < K and 0 <= e < N }")
    assert {a.tensor: a.is_exact for a in s.accesses} == {"X": False, "I": True}


def test_a_read_that_occurs_twice_is_one_access():
    assert len(only(scop_of("def f(float(N) X) -> (O) { O(i) = X(i) * X(i) }")).accesses) == 1
    assert len(only(scop_of("def f(float(N) X) -> (O) { O(i) = X(i) * X(N-1-i) }")).accesses) == 2


# --- padding ---------------------------------------------------------------------------------------------------------


def count_selections(s: ScopStatement) -> int:
    return sum(isinstance(node, Select) for node in walk(s.value))


@pytest.mark.parametrize("last, n_pieces", [(2, 1), (5, 2)])
def test_the_reads_of_a_stencil_are_one_relation_in_few_pieces(last: int, n_pieces: int):
    s = only(scop_of(f"def f(float(N) x, float(N) z) -> (y) {{ y(i) = x(i) + x(i+1) + x(i+{last}) + z(i) }}", N=20))
    assert s.read_relations.keys() == {"x", "z"} and not s.init_relations
    assert s.read_relations["x"].is_equal(reached(s, "x")) and s.read_relations["x"].n_basic_map() == n_pieces


def test_padding_becomes_a_selection():
    s = only(scop_of("def f(float(N) X) -> (O) { O(i) = pad(X(i-1), 0.0) where i in 0:N }"))
    assert count_selections(s) == 1 and not any(isinstance(node, Pad) for node in walk(s.value))
    assert same(reached(s, "X"), "[N] -> { S0[i] -> X[i - 1] : 1 <= i < N }")


def test_padding_that_is_never_needed_disappears():
    assert count_selections(only(scop_of("def f(float(N) X) -> (O) { O(i) = pad(X(i), 0.0) where i in 0:N }"))) == 0
    assert count_selections(only(scop_of("def f(float(N) X) -> (O) { O(i) = pad(X(i), 0.0) where i in 0:N+1 }"))) == 1


def test_padding_in_an_initial_value_becomes_a_selection():
    program, ranges = infer(read("def f(float(L) b, float(N,K) X) -> (O) { O(i) += X(i,k) * 1.0 }"))
    (s,) = program.statements
    assert s.reduction is not None and isinstance(s.reduction.init, Read)
    index = s.reduction.init.subscripts
    padded = Pad(Read("b", index), Read("O.in", index))
    changed = replace(program, statements=(replace(s, reduction=replace(s.reduction, init=padded)),))
    new = only(extract_scop(changed, ranges))
    assert isinstance(new.init, Select)
    found = {a.tensor: a.relation for a in new.init_accesses}
    assert same(found["b"].domain(), "[L, N, K] -> { init_S0[i] : 0 <= i < N and i < L and K >= 0 }")
    assert same(found["O.in"].domain(), "[L, N, K] -> { init_S0[i] : L <= i < N and L >= 0 and K >= 0 }")


# --- guards ----------------------------------------------------------------------------------------------------------


def test_guarded_subscripts_are_clamped_and_named():
    s = only(scop_of("def f(float(N) X, int32(M) I) -> (O) { O(i) = X(I(i)) }"))
    (guard,) = s.guards
    assert "dimension 0 of X" in guard.message and guard.condition is None
    (read_x,) = [n for n in walk(s.value) if isinstance(n, Read) and n.tensor == "X"]
    assert str(read_x).count("'max'") == str(read_x).count("'min'") == 1


def test_guards_hold_only_where_the_read_is_made():
    s = only(scop_of("def f(float(N) X, int32(M) I) -> (O) { O(i) = I(i) > 3 ? X(I(i)) : 0.0 }"))
    (guard,) = s.guards
    assert guard.condition is not None


# --- domains ---------------------------------------------------------------------------------------------------------


def test_projections_and_substitutions():
    _, ranges = infer(read("def f(float(N,N) X) -> (O) { O(i) +=! X(i,j) where j <= i }"))
    domain = ranges.statements["S0"].domain
    assert same(project_domain(domain, ("i", "j"), "T", ("j",)), "[N] -> { T[j] : 0 <= j < N }")
    assert same(project_domain(domain, ("i", "j"), "T", ("j", "i")), "[N] -> { T[j, i] : 0 <= j <= i < N }")
    value = Call("add", (Call("mul", (Index("c"), int_const(4))), Index("t")))
    inside = [Call("ge", (Index("t"), int_const(0))), Call("lt", (Index("t"), int_const(4)))]
    mapped = map_domain(domain, "P", ("i", "c", "t"), [Index("i"), value], inside)
    assert same(mapped, "[N] -> { P[i, c, t] : 0 <= 4c + t <= i < N and 0 <= t < 4 }")


@pytest.mark.parametrize(("where", "expected"), [("", True), ("where j <= i", False), ("where i in 1:N", True)])
def test_boxes(where, expected):
    _, ranges = infer(read(f"def f(float(N,N) X) -> (O) {{ O(i) +=! X(i,j) {where} }}"))
    own = ranges.statements["S0"]
    assert is_box(own.domain, own.indices, ("i", "j")) is expected
    box = box_domain("S0", ("i", "j"), own.indices, ranges.parameters)
    assert bool(own.domain.is_subset(box))


def test_places_that_stay_inside():
    scop = scop_of("def f(float(N) X, float(M) Y, int32(N) I) -> (O) { O(i) = i < M ? Y(i) : X(i) * X(I(i)) where i in 0:N }")
    s = only(scop)

    def inside(tensor: str) -> list[bool]:
        reads = [n for n in walk(s.value) if isinstance(n, Read) and n.tensor == tensor]
        return [stays_inside(s.domain, s.indices, r.subscripts, scop.tensors[tensor].shape) for r in reads]

    assert inside("X") == [True, False] and inside("Y") == [False] and inside("I") == [True]


# --- what an earlier scop knows --------------------------------------------------------------------------------------


CHAIN = "def f(float(M,N) X) -> (Z) { Y(i,j) = X(i,j) + 1.0\n s(i) +=! Y(i,j)\n Z(i) = s(i) * 2.0 }"


def test_what_did_not_change_is_taken_over():
    program, ranges = infer(read(CHAIN))
    earlier = extract_scop(program, ranges)
    first, *others = program.statements
    changed = replace(first, value=Call("neg", (first.value,)))
    new = extract_scop(replace(program, statements=(changed, *others)), ranges, earlier)
    assert [a is b for a, b in zip(new.statements, earlier.statements, strict=True)] == [False, True, True]
    assert new.statements[0].value == changed.value


def test_statements_over_a_tensor_of_another_shape_are_extracted_again():
    program, ranges = infer(read(CHAIN))
    earlier = extract_scop(program, ranges)
    rows, columns = ranges.tensors["Y"]
    other = replace(ranges, tensors={**ranges.tensors, "Y": (rows, replace(columns, extent=int_const(7)))})
    new = extract_scop(program, other, earlier)
    assert [a is b for a, b in zip(new.statements, earlier.statements, strict=True)] == [False, False, True]
    assert same(reached(new.statements[1], "Y"), "[M, N] -> { S1[i, j] -> Y[i, j] : 0 <= i < M and 0 <= j < N and j < 7 }")


def test_initial_values_are_extracted_again_where_another_statement_writes_too():
    text = "def f(float(N,N) X) -> (Z) { Z(0) = 1.0\n Z(i) +=! X(i,j) * Z(i-1) where i in 1:N, j in 0:N }"
    program, ranges = infer(read(text))
    total = next(s for s in program.statements if s.reduction is not None)
    earlier = extract_scop(replace(program, statements=(total,)), ranges)
    new = extract_scop(program, ranges, earlier).statement(total.name)
    assert new is not only(earlier)
    anew = extract_scop(program, ranges).statement(total.name)
    assert new.init_domain is not None and new.init_domain.is_equal(anew.init_domain)
    assert not new.init_domain.is_equal(only(earlier).init_domain)


def test_another_range_or_context_is_extracted_again():
    program, ranges = infer(read(CHAIN))
    earlier = extract_scop(program, ranges)
    own = replace(ranges.statements["S2"])
    new = extract_scop(program, replace(ranges, statements={**ranges.statements, "S2": own}), earlier)
    assert [a is b for a, b in zip(new.statements, earlier.statements, strict=True)] == [True, True, False]
    assumed = replace(ranges, context=islpy.Set("[M, N] -> { : M = 3 and N >= 0 }"))
    assert not set(extract_scop(program, assumed, earlier).statements) & set(earlier.statements)
