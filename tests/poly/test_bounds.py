"""Bounds: every read is proved inside, checked at the call, guarded at run time, or refused."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from polyc.diagnostics import RangeError, UnsupportedError
from polyc.frontends.tc import read_tc
from polyc.ir.expr import Call, Const, Expr, Index, Pad, Read, Select, Size, evaluate, int_const, reads, type_of
from polyc.ir.program import Condition, Program, RangeClause, specialize_sizes
from polyc.ir.sizes import define_sizes
from polyc.ir.text_reader import parse_program
from polyc.ir.types import BOOL
from polyc.poly.bounds import negate_condition
from polyc.poly.describe import print_expr
from polyc.poly.infer import concrete_shapes, infer_ranges
from polyc.poly.ranges import Ranges


def read_program(text: str) -> Program:
    return define_sizes(read_tc(text)[0])


def infer_text(text: str) -> Ranges:
    return infer_ranges(read_program(text))


def guards(ranges: Ranges) -> list[tuple[str, int, str | None]]:
    return [
        (print_expr(g.read), g.dimension, None if g.condition is None else print_expr(g.condition))
        for s in ranges.statements.values()
        for g in s.guards
    ]


def test_precondition_over_sizes() -> None:
    text = "def f(float(N,NM,M) I) -> (O) { O(i,j) = I(i,i+j,j) }"
    ranges = infer_text(text)
    (check,) = ranges.checks
    assert check.code == "range-precondition"
    assert check.message.startswith("I(i, i+j, j): subscript i+j of dimension 1 runs from 0 to N + M - 2, but must be in 0:NM")
    assert "(N = 4, NM = 5, M = 3)" in check.message.format(N=4, NM=5, M=3)
    for n, nm, m in itertools.product(range(5), repeat=3):
        inside = all(i + j < nm for i in range(n) for j in range(m))
        assert bool(evaluate(check.condition, {"N": n, "NM": nm, "M": m})) == inside
    (warning,) = ranges.warnings
    assert (warning.code, warning.severity) == ("range-precondition", "warning")
    assert warning.message.startswith("Required precondition")
    assert warning.span is not None


def test_constant_sizes_decide_when_compiling() -> None:
    program = read_program("def f(float(N,NM,M) I) -> (O) { O(i,j) = I(i,i+j,j) }")
    fixed = {"N": int_const(10), "M": int_const(10)}
    ranges = infer_ranges(specialize_sizes(program, {**fixed, "NM": int_const(19)}))
    assert not ranges.checks
    with pytest.raises(RangeError, match="range-out-of-bounds"):
        infer_ranges(specialize_sizes(program, {**fixed, "NM": int_const(18)}))


def test_read_that_always_leaves_is_refused() -> None:
    with pytest.raises(RangeError) as caught:
        infer_text("def f(float(N) A) -> (O) { O(i) = A(i+1) where i in 0:N }")
    (error,) = caught.value.diagnostics
    assert error.code == "range-out-of-bounds"
    assert "A(i+1): subscript i+1 of dimension 0 runs from 1 to N, but must be in 0:N" in error.message
    assert error.help is not None


def test_conditions_of_selections_count() -> None:
    text = "def f(float(C,R) A, float(D) L) -> (O) {{ O(r) +=! A(c,r) + (({}) ? A(c,r-D) : 0.0) where r in 0:R }}"
    assert not infer_text(text.format("r - D >= 0")).checks
    assert not infer_text(text.format("!(r < D)")).checks
    assert not infer_text(text.format("r >= D && r < 2*R")).checks
    assert [c.code for c in infer_text(text.format("r - D >= -1")).checks] == ["range-precondition"]
    with pytest.raises(RangeError, match="range-out-of-bounds"):
        infer_text(text.format("r < D"))
    assert [c.code for c in infer_text(text.format("c > 0")).checks] == ["range-precondition"]
    other_arm = "def f(float(N) A) -> (O) { O(i) = A(i) + (i == 0 ? 0.0 : A(i-1)) }"
    assert not infer_text(other_arm).checks


def test_condition_on_data_turns_a_violation_into_a_guard() -> None:
    ranges = infer_text("def f(float(N) A, int32(N) M) -> (O) { O(i) = M(i) > 0 ? A(i+1) : 0.0 where i in 0:N }")
    assert guards(ranges) == [("A(i + 1)", 0, "M(i) > 0")]


def test_gather_is_guarded_unless_proved() -> None:
    gather = "def f(float(E,D) T, {}(B,L) I) -> (O) {{ O(b,d) +=! T({},d) where l in 0:L }}"
    assert guards(infer_text(gather.format("int32", "I(b,l)"))) == [("T(I(b, l), d)", 0, None)]
    assert guards(infer_text(gather.format("uint8", "I(b,l)"))) == [("T(I(b, l), d)", 0, None)]
    for clamped in ("min(max(I(b,l),0),E-1)", "max(min(I(b,l),E-1),0)", "I(b,l) % E"):
        ranges = infer_text(gather.format("int32", clamped))
        assert guards(ranges) == []
        assert not ranges.warnings
        (check,) = ranges.checks  # no element to read where E is 0
        for e, b, l, d in itertools.product((0, 1, 2), repeat=4):
            assert bool(evaluate(check.condition, {"E": e, "B": b, "L": l, "D": d})) == (e > 0 or not (b and l and d))
    table = "def f(float(256) T, {}(B) I) -> (O) {{ O(b) = T({}) }}"
    assert guards(infer_text(table.format("uint8", "I(b)"))) == []
    assert guards(infer_text(table.format("uint8", "int32(I(b))"))) == []
    assert guards(infer_text(table.format("int8", "I(b)+128"))) == []
    assert guards(infer_text(table.format("uint8", "I(b)+1"))) == [("T(I(b) + 1)", 0, None)]
    assert guards(infer_text(table.format("uint16", "int32(I(b)/256)"))) == []
    assert guards(infer_text(table.format("int32", "uint8(I(b))"))) == []


def test_conditions_of_several_occurrences_are_joined() -> None:
    ranges = infer_text(
        "def f(float(N) A, int32(K) I) -> (O) { O(i) = (i > 2 ? A(I(i)) : 0.0) + (i < 1 ? A(I(i)) : 1.0) where i in 0:K }"
    )
    assert guards(ranges) == [("A(I(i))", 0, "i > 2 || i < 1")]
    ranges = infer_text("def f(float(N) A, int32(K) I) -> (O) { O(i) = (i > 2 ? A(I(i)) : 0.0) + A(I(i)) where i in 0:K }")
    assert guards(ranges) == [("A(I(i))", 0, None)]


def test_subscripts_that_are_not_affine_are_proved_or_guarded() -> None:
    ranges = infer_text("def f(float(C,H) I, float(K) W) -> (O) { O(h) +=! I(k % c, h) * W(k) where c in 1:C }")
    assert guards(ranges) == []
    assert [c.code for c in ranges.checks] == ["range-negative"]
    ranges = infer_text("def f(float(N) A) -> (O) { O(i,j) = A(i*j) where i in 0:3, j in 0:4 }")
    assert guards(ranges) == [("A(i * j)", 0, None)]


def test_remainder_is_proved_exactly() -> None:
    assert not infer_text("def f(float(N) a) -> (b) { b(i) = a(i % 3) where i in 0:N }").checks


def with_value(program: Program, value: Expr, *where: Condition) -> Program:
    s = program.statements[0]
    return replace(program, statements=(replace(s, value=value, where=(*s.where, *where)), *program.statements[1:]))


def test_padded_reads_are_always_inside() -> None:
    program = read_program("def f(float(N) A) -> (O) { O(i) = A(i) where i in 0:N+5 }")
    (read,) = reads(program.statements[0].value)
    zero = Const(0.0, type_of(read, program.types))
    assert not infer_ranges(with_value(program, Pad(read, zero))).checks
    selected = Select(Call("lt", (Index("i"), int_const(4))), read, zero)
    assert [c.code for c in infer_ranges(with_value(program, selected)).checks] == ["range-precondition"]


def test_conditions_on_the_domain() -> None:
    program = read_program("def f(float(N) A) -> (O) { O(i) +=! A(i-j) where i in 0:N, j in 0:N }")
    assert [print_expr(c.condition) for c in infer_ranges(program).checks] == ["N <= 1"]
    value = program.statements[0].value
    triangle = Condition(Call("le", (Index("j"), Index("i"))))
    ranges = infer_ranges(with_value(program, value, triangle))
    assert not ranges.checks
    assert str(ranges.statements["S0"].domain.remove_redundancies()) == "[N] -> { S0[i, j] : i < N and 0 <= j <= i }"
    never = Condition(Const(False, BOOL))
    assert infer_ranges(with_value(program, value, never)).statements["S0"].domain.is_empty()
    data = Condition(Call("gt", (value, Const(0.0, type_of(value, program.types)))))
    with pytest.raises(UnsupportedError, match="unsupported-condition"):
        infer_ranges(with_value(program, Read("A", (Index("i"),)), data))


def test_initial_values_are_read_for_every_element() -> None:
    text = "def f(float(N) A, float(M) B) -> (float(N) O) { O(i) = A(i) O(i) += B(i) where i in 0:4 }"
    ranges = infer_text(text)
    shapes = concrete_shapes(ranges, {"N": 9, "M": 5})
    assert shapes["O"] == ((0, 9),)


def test_negation_reads_well() -> None:
    a, b = Call("ge", (Index("a"), int_const(1))), Call("eq", (Index("b"), int_const(2)))
    assert print_expr(negate_condition(Call("and", (a, b)))) == "a <= 0 || b != 2"
    assert print_expr(negate_condition(Call("not", (a,)))) == "a >= 1"


def _draw_program(r: random.Random) -> str:
    """Random windows, strides and shifts over a chain of reductions."""
    extents = lambda n: ", ".join(r.choice(["N", "M", "K", str(r.randint(1, 9))]) for _ in range(n))  # noqa: E731
    ranks = {f"A{n}": r.randint(1, 3) for n in range(2)}
    parameters = ", ".join(f"float({extents(rank)}) {name}" for name, rank in ranks.items())
    lines = []
    for k in range(2):
        live = "ijkl"[: r.randint(1, 4)]
        factors = []
        for name in r.choices(list(ranks), k=r.randint(1, 3)):
            subscripts = []
            for _ in range(ranks[name]):
                i, j = r.choice(live), r.choice(live)
                plain = [i] * 5
                terms = [
                    f"{i}+{j}",
                    f"2*{i}+{j}",
                    f"{i}-{j}",
                    f"{i}+2",
                    f"{i}-1",
                    f"3*{i}+1",
                    f"N-1-{i}",
                    f"{i}/2+{j}",
                    f"{i}%3",
                ]
                subscripts.append(r.choice(plain + terms))
            factors.append(f"{name}({', '.join(subscripts)})")
        left = r.sample(live, r.randint(1, len(live)))
        where = [f"{i} in {r.choice('01')}:{r.choice(['N', '4', 'K-1', 'min(N,M)'])}" for i in live if r.random() < 0.25]
        clauses = f" where {', '.join(where)}" if where else ""
        lines.append(f"O{k}({', '.join(left)}) +=! {' * '.join(factors)}{clauses}")
        ranks[f"O{k}"] = len(left)
    return f"def f(float(N,M,K) Z, {parameters}) -> (O0, O1) {{ {' '.join(lines)} }}"


def _is_inside(program: Program, ranges: Ranges, sizes: dict[str, int]) -> bool | None:
    """Every instance, one after the other; None: too many."""
    shapes = concrete_shapes(ranges, sizes)
    for s in program.statements:
        own = ranges.statements[s.name].indices
        lowers = [evaluate(own[i].lower, sizes) for i in s.indices]
        axes = [range(low, low + evaluate(own[i].extent, sizes)) for low, i in zip(lowers, s.indices, strict=True)]
        if sum(len(a) for a in axes) > 40:
            return None
        for point in itertools.product(*axes):
            values = {**sizes, **dict(zip(s.indices, point, strict=True))}
            for read in reads(s.value):
                for sub, (low, extent) in zip(read.subscripts, shapes[read.tensor], strict=True):
                    if not low <= evaluate(sub, values) < low + extent:
                        return False
    return True


def test_checks_hold_exactly_where_all_instances_are_inside() -> None:
    r = random.Random(11)
    decided = {True: 0, False: 0}
    for _ in range(250):
        try:
            program = read_program(_draw_program(r))
            ranges = infer_ranges(program)
        except (RangeError, ValueError):
            continue
        sizes = {n: r.randint(0, 7) for n in program.sizes}
        failed = {c.code for c in ranges.checks if not evaluate(c.condition, sizes)}
        if "range-negative" in failed:
            continue
        inside = _is_inside(program, ranges, sizes)
        if inside is not None:
            assert inside == (not failed), (program, sizes)
            decided[inside] += 1
    assert min(decided.values()) > 5, decided


def test_ranges_that_depend_on_other_indices_become_conditions() -> None:
    program = read_program("def lu(float(M,M) L, float(M,M) U) -> (LU) { LU(a,b) +=! L(a,k) * U(k,b) }")
    (s,) = program.statements
    above = RangeClause("k", Index("a"), Size("M"))
    below = RangeClause("k", int_const(0), Call("add", (Index("b"), int_const(1))))
    ranges = infer_ranges(replace(program, statements=(replace(s, where=(above, below)),)))
    assert not ranges.checks
    domain = ranges.statements["S0"].domain.remove_redundancies()
    assert str(domain) == "[M] -> { S0[a, b, k] : a >= 0 and b < M and a <= k <= b }"


def test_messages_hold_for_any_format() -> None:
    ranges = infer_text("def f(float(N) A, float(K) B) -> (O) { O(i) = A(i+1) where i in 0:K }")
    for check in ranges.checks:
        assert check.message.format(N=3, K=4).count("{") == 0
    (warning,) = ranges.warnings
    assert "N >= K + 1" in warning.message or "K < N" in warning.message


def test_initial_values_at_places_that_data_chooses_are_refused() -> None:
    """No front end makes one; the text of a Program may."""
    program = parse_program(
        """program p(A: f32[N], B: f32[N, N], I: i64[N]) -> (O)
             sizes N
             output O: f32[?]
             S0(i, k): O[i] += B[i, k] init A[I[i]]"""
    )
    with pytest.raises(UnsupportedError, match="unsupported-init-subscript"):
        infer_ranges(program)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_elements_of_temporaries_are_what_is_assigned_to_them(dtype: str) -> None:
    def found(statements: str) -> int:
        return len(guards(infer_text(f"def f(float(4) T, {dtype}(B) I) -> (O) {{ {statements}  O(b) = T(k(b)) }}")))

    for proved in (
        "min(max(I(b),0),3)",
        "max(min(I(b),3),0)",
        "I(b) % 4",
        "(I(b)>7 ? 1 : I(b)%3) + 1",
        "max(I(b)%7 - 3,0)",
    ):
        assert found(f"k(b) = {proved}") == 0, proved
    # Sums wrap around.
    for guarded in ("I(b)", "min(I(b),3)", "min(max(I(b),0),4)", "min(max(I(b),0) + 1,3)"):
        assert found(f"k(b) = {guarded}") == 1, guarded
    assert found("k(0) = 3  k(b) = min(max(k(b-1) + I(b),0),3) where b in 1:B") == 0
    assert found("k(0) = I(0)  k(b) = min(max(I(b),0),3) where b in 1:B") == 1
    assert found("k(b) max=! min(max(I(b),0),3) * r where r in 0:2") == 1


def test_subscripts_that_wrap_around_are_guarded() -> None:
    temporaries = "k(i) = min(max(x(i),0),6)  j(i) = min(max(z(i),0), int64(2147483647)*int64(2147483647))"

    def found(subscript: str) -> int:
        text = f"def f(int32(N) x, int64(N) z, float(7) L) -> (y) {{ {temporaries}  y(i) = L({subscript}) where i in 0:N }}"
        return len(guards(infer_text(text)))

    # What a cast converts is computed in its own type, and the rest in 64 bits.
    for guarded in ("int32(k(i)*2000000000)/2000000000", "min(k(i)*2000000000*2000000000,6)", "min(j(i)*3,6)"):
        assert found(guarded) == 1, guarded
    for proved in ("int32(k(i)*200000000)/200000000", "k(i)*1000000000/1000000000", "min(j(i)*2,6)"):
        assert found(proved) == 0, proved
