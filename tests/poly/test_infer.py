"""Range inference: the table of Tensor Comprehensions, the conformance programs, and the interpreter as a second opinion."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import polyc
from polyc.diagnostics import CompileBudgetError, PolycError, RangeError
from polyc.frontends.tc import read_tc
from polyc.ir.expr import evaluate, int_const
from polyc.ir.interpret import interpret
from polyc.ir.interpret_ranges import complete_sizes, solve_ranges
from polyc.ir.program import Program, specialize_sizes
from polyc.ir.sizes import define_sizes
from polyc.poly import infer
from polyc.poly.describe import print_expr
from polyc.poly.infer import concrete_shapes, infer_ranges
from polyc.poly.ranges import Ranges
from tests.property.strategies import Case, cases

DATA = Path(__file__).parents[2] / "../shared/conformance/tc_programs.json"


def _entries(section: str) -> list[Any]:
    if not DATA.exists():
        skip = pytest.mark.skip(reason=f"{DATA} is absent: the conformance programs are not part of this repository")
        return [pytest.param({}, id="absent", marks=skip)]
    return [pytest.param(e, id=e["id"]) for e in json.loads(DATA.read_text())[section]]


def read_program(text: str, entry: str | None = None) -> Program:
    programs = read_tc(text)
    return define_sizes(next(p for p in programs if entry is None or p.name == entry))


def infer_text(text: str) -> Ranges:
    return infer_ranges(read_program(text))


def intervals(ranges: Ranges, tensor: str) -> list[tuple[str, str]]:
    return [(print_expr(i.lower), print_expr(i.extent)) for i in ranges.tensors[tensor]]


def fits(ranges: Ranges, sizes: dict[str, int]) -> bool:
    return all(evaluate(check.condition, sizes) for check in ranges.checks)


def random_sizes(names: tuple[str, ...], number: int, largest: int = 40) -> list[dict[str, int]]:
    generator = random.Random(7)
    return [{n: generator.randint(0, largest) for n in names} for _ in range(number)]


# Parameters, statements, and the expected (lower, extent) of every dimension of O as they print.
TABLE = [
    ("float(N) I", "O(i) = I(i)", [("0", "N")]),
    ("float(N,M) I", "O(i,j) = I(j,i)", [("0", "M"), ("0", "N")]),
    ("float(N) I", "O(i) = I(123*i)", [("0", "(N + 122) // 123")]),
    ("float(N) I", "O(i) = I(i-1)", [("1", "N")]),
    ("float(N) I", "O(i) = I(i+5)", [("-5", "N")]),
    (
        "float(N,C,H,W) I, float(M,C,KH,KW) F",
        "O(n,m,h,w) +=! I(n,c,h+kh,w+kw) * F(m,c,kh,kw)",
        [("0", "N"), ("0", "M"), ("0", "H - KH + 1"), ("0", "W - KW + 1")],
    ),
    (
        "float(N,M,OH,OW) dO, float(M,C,KH,KW) F",
        "O(n,c,h,w) +=! dO(n,m,h-kh,w-kw) * F(m,c,kh,kw)",
        [("0", "N"), ("0", "C"), ("KH - 1", "OH - KH + 1"), ("KW - 1", "OW - KW + 1")],
    ),
    (
        "float(N,M,OH,OW) dO, float(N,C,H,W) I",
        "O(m,c,kh,kw) +=! dO(n,m,h-kh,w-kw) * I(n,c,h,w)",
        [("0", "M"), ("0", "C"), ("H - OH", "OH - H + 1"), ("W - OW", "OW - W + 1")],
    ),
    (
        "float(H) I, float(KH) F",
        "P(h) = I(h-5) O(h) +=! P(2*h+kh) * F(kh)",
        [("3", "(H - KH + 1) // 2")],
    ),
    ("float(A,B,C) I", "O(i) +=! I(j,i+j,k)", [("0", "B - A + 1")]),
    (
        "float(A,B,C) X, float(D,E,F) Y",
        "O(j,k,l) +=! X(j,k,l) + Y(i,j,k)",
        [("0", "min(A, E)"), ("0", "min(B, F)"), ("0", "C")],
    ),
    ("float(N,M) I", "O(i,j) = I(i,j) where i in 3:N-1", [("3", "N - 4"), ("0", "M")]),
    ("float(10,19,10) I", "O(i,j) = I(i,i+j,j)", [("0", "10"), ("0", "10")]),
    ("", "O(i,j) = 3 where i in 4:8, j in 3:20", [("4", "4"), ("3", "17")]),
    ("float(N) B", "O(i) = B(2*i) + B(2*i+1)", [("0", "N // 2")]),
    ("float(N) B", "O(i) max=! B(2*i+k) where k in 0:2", [("0", "N // 2")]),
    ("float(N) B", "O(i) = B(10-i)", [("11 - N", "N")]),
    ("float(N) B, int32(K) C", "O(i) = B(C(i))", [("0", "K")]),
    ("float(N) B", "O(i) = B(i/2)", [("0", "2 * N")]),
    ("float(N) B", "O(i) = B(min(i, N-1)) where i in 0:N+3", [("0", "N + 3")]),
    ("float(N) B", "O(i) +=! B(i%3 + j) where i in 0:9, j in 0:N-2", [("0", "9")]),
    ("float(N) B", "O(j) +=! B(i%3 + j) where i in 0:9", [("0", "N - 2")]),
    ("float(N) A, float(M) B", "O(i) = A(i) where exists B(i+1)", [("0", "min(N, M - 1)")]),
]


@pytest.mark.parametrize(("parameters", "body", "expected"), TABLE)
def test_table(parameters: str, body: str, expected: list[tuple[str, str]]) -> None:
    assert intervals(infer_text(f"def f({parameters}) -> (O) {{ {body} }}"), "O") == expected


STARTS = [
    ("O(0, j) = 0 O(i+1, j) = O(i, j) + x(i, j)", [("0", "N + 1"), ("0", "M")]),
    ("O(i+1, j) = O(i, j) + x(i, j) O(0, j) = 0 where j in 1:M O(0, 0) = 1", [("0", "N + 1"), ("0", "M")]),
    ("O(i, 0) = 0 O(0, j) = 0 O(i+1, j+1) = x(i, j) + O(i, j+1)", [("0", "N + 1"), ("0", "M + 1")]),
    (
        "O(0, k) = 1 where 2 <= k O(0, 0) = 3 O(0, 1) = 2 O(i, j) = x(i, j) where 1 <= i",
        [("0", "max(1, N)"), ("0", "max(2, M)")],
    ),
]


@pytest.mark.parametrize(("body", "expected"), STARTS)
def test_an_index_that_nothing_bounds_runs_over_what_other_statements_write(body: str, expected: list[tuple[str, str]]) -> None:
    (program,) = read_tc(f"def f(float(N,M) x) -> (O) {{ {body} }}")
    ranges = infer_ranges(program)
    assert intervals(ranges, "O") == expected
    assert dict(solve_ranges(program, {"N": 5, "M": 4}).tensors) == concrete_shapes(ranges, {"N": 5, "M": 4})


def test_an_index_that_nothing_bounds_runs_over_the_declared_extent() -> None:
    (program,) = read_tc("def f(float(N) x, int32(N) k) -> (float(7,N) O) { O(i,j) = 1.0 O(k(n),n) += x(n) }")
    assert intervals(infer_ranges(program), "O") == [("0", "7"), ("0", "N")]
    assert solve_ranges(program, {"N": 5}).statements["S0"] == {"i": (0, 7), "j": (0, 5)}


def test_windows_over_two_dimensions() -> None:
    ranges = infer_text(
        "def f(float(B,IP,H,W) I, float(OP,IP,KH,KW) F) -> (O) { O(b,op,h,w) +=! I(b,ip,2*h+3*w+kh,2*w+kw) * F(op,ip,kh,kw) }"
    )
    for sizes in random_sizes(ranges.parameters, 200):
        if fits(ranges, sizes):
            H, W, KH, KW = (sizes[n] for n in ("H", "W", "KH", "KW"))
            expected = ((0, sizes["B"]), (0, sizes["OP"]), (0, (H - KH - 3 * ((W - KW) // 2)) // 2 + 1), (0, (W - KW) // 2 + 1))
            assert concrete_shapes(ranges, sizes)["O"] == expected


def test_range_of_one_index_bounds_the_other() -> None:
    ranges = infer_text("def f(float(N,M) I) -> (O) { O(i,j) = I(10+i-j, i+j) where i in 0:10 }")
    for sizes in random_sizes(ranges.parameters, 200):
        if fits(ranges, sizes):
            N, M = sizes["N"], sizes["M"]
            j = (20 - min(N, 20), min(M - 10, 10) + min(N, 20) - 19)
            assert concrete_shapes(ranges, sizes)["O"] == ((0, 10), j)


UNSOLVED = [
    ("float(A,B,C) I", "O(i) +=! I(i+j,i+j,i+j)", {"i", "j"}, "bounded together with"),
    ("", "O(i) = 3", {"i"}, "stands in no subscript"),
    ("float(N,M) I", "O(i,j) = I(10+i-j,i+j)", {"i", "j"}, "bounded together with"),
    ("float(A,B) I", "O(i,j,m) = I(j,i)", {"m"}, "stands in no subscript"),
    ("float(N) B, int32(K) S", "O(i) = B(S(0)*i)", {"i"}, "depend on run-time data"),
    ("float(N) B", "O(i) = pad(B(i-1), 0)", {"i"}, "padded"),
    ("float(N) B", "O(i) = B(i%3)", {"i"}, "does not bound it"),
]


@pytest.mark.parametrize(("parameters", "body", "names", "reason"), UNSOLVED)
def test_unsolved_indices_are_all_reported(parameters: str, body: str, names: set[str], reason: str) -> None:
    with pytest.raises(RangeError) as caught:
        infer_text(f"def f({parameters}) -> (O) {{ {body} }}")
    assert {d.code for d in caught.value.diagnostics} == {"range-unsolved"}
    assert {d.message.split()[4] for d in caught.value.diagnostics} == names
    assert all(reason in d.message and d.span is not None and "where" in (d.help or "") for d in caught.value.diagnostics)


def test_errors_of_several_statements_come_together_and_only_once() -> None:
    text = "def f(float(N) A) -> (B, C, D) { B(i) = 1 C(i) = B(i) D(i) = A(i+1) where i in 0:N }"
    with pytest.raises(RangeError) as caught:
        infer_text(text)
    assert [d.code for d in caught.value.diagnostics] == ["range-unsolved", "range-out-of-bounds"]


def test_negative_ranges() -> None:
    with pytest.raises(RangeError, match="range-negative"):
        infer_text("def f() -> (O) { O(i,j) = 3 where i in 8:4, j in 0:2 }")
    with pytest.raises(RangeError, match="range-negative"):
        infer_text("def f(float(N) A) -> (O) { O(i) = 3 where i in N+1:N }")
    ranges = infer_text("def f(float(H) I, float(K) F) -> (O) { O(h) +=! I(h+k) * F(k) }")
    (check,) = ranges.checks
    assert check.code == "range-negative"
    assert check.message.format(H=3, K=9).endswith("(H = 3, K = 9)")
    assert [evaluate(check.condition, {"H": h, "K": 3}) for h in (1, 2, 3)] == [0, 1, 1]
    assert concrete_shapes(ranges, {"H": 2, "K": 3})["O"] == ((0, 0),)


def test_padded_and_guarded_reads_do_not_shrink_a_range() -> None:
    padded = infer_text("def f(float(N) A) -> (O) { O(i) = A(i) + pad(A(i-1), 0) }")
    guarded = infer_text("def f(float(N) A) -> (O) { O(i) = A(i) + (i >= 1 ? A(i-1) : 0.0) }")
    assert intervals(padded, "O") == intervals(guarded, "O") == [("0", "N")]
    assert not padded.checks
    assert not guarded.checks
    only = infer_text("def f(float(K) S) -> (O) { O(k) +=! (r < k) ? S(r) : 0.0 where k in 0:K+1 }")
    assert print_expr(only.statements["S0"].indices["r"].extent) == "K"


def test_declared_results() -> None:
    assert intervals(infer_text("def f(float(N) A) -> (float(N) O) { O(i) = A(i) }"), "O") == [("0", "N")]
    with pytest.raises(RangeError, match="range-declared-shape"):
        infer_text("def f(float(N) A) -> (float(N) O) { O(i) = A(i+1) }")
    ranges = infer_text("def f(float(N) A, float(M) B) -> (float(M) O) { O(i) = A(i) + B(i) }")
    assert [c.code for c in ranges.checks] == ["range-declared-shape"]
    assert [fits(ranges, {"N": n, "M": 5}) for n in (4, 5, 6)] == [False, True, True]


def test_accumulated_result_has_the_range_of_its_statement() -> None:
    ranges = infer_text("def f(float(M,N) A) -> (O) { O(i) += A(i+1,j) }")
    assert intervals(ranges, "O.in") == intervals(ranges, "O") == [("-1", "M")]


def test_domain_is_exact_in_the_coordinates_of_the_program() -> None:
    ranges = infer_text("def f(float(N) A) -> (O) { O(i) +=! A(i+k-2) where k in 1:3 }")
    domain = ranges.statements["S0"].domain
    assert domain.get_tuple_name() == "S0"
    assert str(domain) == "[N] -> { S0[i, k] : 0 < i < N and 0 < k <= 2 }"


def test_non_affine_sizes_are_symbols() -> None:
    ranges = infer_text("def f(float(N) b) -> (c) { c(i,j) = b(i) where j in 0:N*N }")
    (name,) = set(ranges.parameters) - {"N"}
    assert intervals(ranges, "c") == [("0", "N"), ("0", name)]


def test_quota_gives_a_named_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infer, "OPERATIONS_PER_STATEMENT", 50)
    with pytest.raises(CompileBudgetError, match="budget-isl"):
        infer_text("def f(float(N,M) A) -> (O) { O(i,j) = A(i+j,i-j+2) where i in 0:N }")
    monkeypatch.undo()
    infer_text("def f(float(N,M) A) -> (O) { O(i,j) = A(i,j) }")


@pytest.mark.parametrize("entry", _entries("inference"))
def test_conformance_inference(entry: dict[str, Any]) -> None:
    program = read_program(entry["text"], entry["entry"])
    ranges = infer_ranges(program)
    for sizes in [entry["sizes"], *random_sizes(program.sizes, 300)]:
        if not fits(ranges, sizes):
            continue
        shapes = concrete_shapes(ranges, sizes)
        for name, expected in entry["expect"].items():
            pairs = zip(expected["mins"], expected["extents"], strict=True)
            assert shapes[name] == tuple(tuple(eval(str(e), {"min": min}, dict(sizes)) for e in pair) for pair in pairs)
    assert fits(ranges, entry["sizes"])


@pytest.mark.parametrize("entry", _entries("kernels"))
def test_conformance_kernels_agree_with_the_interpreter(entry: dict[str, Any]) -> None:
    if entry["level"] not in ("core", "gather", "inplace"):
        pytest.skip(f"level {entry['level']} comes with the language issue")
    program = read_program(entry["text"], entry["entry"])
    ranges = infer_ranges(program)
    variants = [dict(entry["sizes"], **{n: v}) for n in entry["sizes"] for v in (0, 1, 7, 33)]
    assert fits(ranges, complete_sizes(program, entry["sizes"]))
    for sizes in [entry["sizes"], *variants]:
        compare_with_interpreter(program, ranges, sizes)


@pytest.mark.parametrize("entry", _entries("reject"))
def test_conformance_reject(entry: dict[str, Any]) -> None:
    if entry["level"] != "core" or "inputs" in entry:
        pytest.skip("not refused by ranges")
    if entry["id"] in ("bad_tensor_bound", "bad_tensor_bound_both"):
        pytest.skip("bounds may be integer arguments, which are sizes")
    try:
        program = read_program(entry["text"], entry.get("entry"))
    except PolycError:
        return  # refused by the front end
    try:
        ranges = infer_ranges(program)
    except RangeError:
        return
    assert "range-precondition" in {c.code for c in ranges.checks}
    assert ranges.warnings
    if "sizes" in entry:
        assert not fits(ranges, entry["sizes"])


def compare_with_interpreter(program: Program, ranges: Ranges, sizes: dict[str, int]) -> None:
    """Same ranges and shapes as the inference at concrete sizes, wherever the checks let the sizes pass."""
    values = complete_sizes(program, sizes)
    if not fits(ranges, values):
        return
    concrete = solve_ranges(program, sizes)
    assert concrete_shapes(ranges, values) == {
        name: tuple((low, up - low) for low, up in dims) for name, dims in concrete.tensors.items()
    }
    for name, box in concrete.statements.items():
        for index, (low, up) in box.items():
            interval = ranges.statements[name].indices[index]
            assert (evaluate(interval.lower, values), evaluate(interval.extent, values)) == (low, up - low), (name, index)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(cases(smallest_size=0))
def test_random_programs_agree_with_the_interpreter(case: Case) -> None:
    program = define_sizes(case.program)
    try:
        ranges = infer_ranges(program)
    except RangeError:
        with pytest.raises(PolycError):  # refused whatever the sizes are: the interpreter refuses these
            interpret(program, case.arrays, case.sizes, case.out)
        return
    compare_with_interpreter(program, ranges, case.sizes)
    constants = {n: int_const(v) for n, v in case.sizes.items()}
    if fits(ranges, complete_sizes(program, case.sizes)):
        fixed = define_sizes(specialize_sizes(case.program, constants))
        compare_with_interpreter(fixed, infer_ranges(fixed), case.sizes)


KEPT = [  # parameters, statement, sizes, ranges of the indices
    ("float(N) x", "O(l) +=! x(n) * x(n + l) where l in 0:N, n in 0:N-l", {"N": 9}, {"l": (0, 9), "n": (0, 9)}),
    ("float(N) x, float(K) w", "O(i) +=! x(i - k) * w(k) where i in 0:N, k <= i", {"N": 9, "K": 4}, {"i": (0, 9), "k": (0, 4)}),
    ("float(N) x, float(K) w", "O(i) +=! x(i + j) * w(k) where i in 0:N, k < N - i, j <= k", {"N": 9, "K": 4}, {"j": (0, 4)}),
    ("float(N) x", "T(i) = x(i)  O(l) +=! T(n + l) where l in 0:N, n + l < N", {"N": 5}, {"n": (0, 5)}),
    # the other number of elements may be larger or not: such a condition keeps nothing inside, whatever the sizes are
    ("float(N) x, float(M) y", "O(l) +=! x(n + l) * y(n) where l in 0:3, n + l < M", {"N": 9, "M": 5}, {"n": (0, 5)}),
    ("float(N) x, float(M) y", "O(l) +=! x(n + l) * y(n) where l in 0:3, n + l < M", {"N": 5, "M": 9}, {"n": (0, 3)}),
    ("float(N) x", "O(l) +=! x(n + l) where l in 0:3, n + l < N + 1", {"N": 5}, {"n": (0, 3)}),
    # what a read with one index asks for helps a condition: k >= 0 of x(k), and a floor division is multiplied out
    ("float(N) x", "O(i) +=! x(k) * x(i - k) where i in 0:N, 2 * k <= i", {"N": 9}, {"i": (0, 9), "k": (0, 9)}),
    ("float(N) x", "O(i) +=! x(k) * x(i - 1 - k) where i in 0:N, k < i / 2", {"N": 9}, {"i": (0, 9), "k": (0, 9)}),
    ("float(N) x", "O(i) +=! x(k) * x(i + k) where i in 0:N, i + 2 * k < N", {"N": 9}, {"i": (0, 9), "k": (0, 9)}),
    ("float(N) x, float(K) w", "O(i) +=! w(k) * x(i - k) where i in 0:N, 2 * k <= i", {"N": 9, "K": 3}, {"i": (0, 9)}),
    # as often as it takes, and of several indices
    ("float(N) x", "O(i) +=! x(k) * x(i - k) where i in 0:N, 5 * k <= i", {"N": 9}, {"i": (0, 9), "k": (0, 9)}),
    ("float(N) x", "O(i) +=! x(k) * x(i - k) where i in 0:N, 3 * k <= 2 * i", {"N": 9}, {"i": (0, 9), "k": (0, 9)}),
    (
        "float(N) x",
        "O(i) +=! x(k) * x(l) * x(i - k - l) where i in 0:N, 4 * k + 4 * l <= i",
        {"N": 9},
        {"k": (0, 9), "l": (0, 9)},
    ),
    ("float(N) x", "O(i) +=! x(k) * x(i + k) where i in 0:N, i + 5 * k < N", {"N": 9}, {"i": (0, 9), "k": (0, 9)}),
    # a given range says as much as a condition, and so does the smaller of two bounds
    ("float(N) x", "O(i) +=! x(i - t + k) where i in 0:N - 2, t <= i, k in 0:3, t >= 0", {"N": 9}, {"t": (0, 7)}),
    ("float(N) x, float(M) y", "O(i) +=! x(i - j - 1) where i < N, j in 0:M", {"N": 5, "M": 2}, {"i": (2, 5)}),
    ("float(N) x", "O(j) +=! x(j + i) where i in 0:3, j >= 0, j < min(N - i, 7)", {"N": 5}, {"j": (0, 5)}),
]


@pytest.mark.parametrize(("parameters", "statements", "sizes", "expected"), KEPT)
def test_conditions_that_keep_a_read_inside(
    parameters: str, statements: str, sizes: dict[str, int], expected: dict[str, tuple[int, int]]
) -> None:
    program = read_program(f"def f({parameters}) -> (O) {{ {statements} }}")
    ranges = infer_ranges(program)
    compare_with_interpreter(program, ranges, sizes)
    fixed = define_sizes(specialize_sizes(program, {n: int_const(v) for n, v in sizes.items()}))
    for found in (ranges, infer_ranges(fixed, lambda: program)):
        indices = found.statements[program.statements[-1].name].indices
        values = {i: evaluate(indices[i].lower, sizes) for i in expected}
        assert {i: (v, v + evaluate(indices[i].extent, sizes)) for i, v in values.items()} == expected


def test_an_error_in_one_part_of_a_recurrence_is_the_only_one() -> None:
    """Without the steps of that part, a read of the last step seemed to lie outside."""
    text = "def f(float(N) x) -> (y) { A(0, i) = x(i)  A(t, i) = A(t - 1, i) where t in 1:5, i in 3:2  y(i) = A(4, i) }"
    with pytest.raises(RangeError) as caught:
        infer_ranges(read_program(text))
    assert [d.code for d in caught.value.diagnostics] == ["range-negative"]


def test_a_part_without_steps_leaves_other_proofs_out() -> None:
    text = """def f(float(N) A, float(M) B) -> (T) {
      T(0) = pad(A(2), wrap)
      T(i) = T(i - 1) + B((i + 1) % M) where i in 1:N }"""
    program = define_sizes(specialize_sizes(read_program(text), {"N": int_const(0), "M": int_const(3)}))
    with pytest.raises(RangeError) as caught:
        infer_ranges(program)
    assert [d.code for d in caught.value.diagnostics] == ["range-negative"]


@pytest.mark.parametrize("n", [0, 1, 6, 8])
def test_left_sides_of_several_quotients_and_remainders_had_no_extent(n: int) -> None:
    """Even where the result is declared with its sizes, which the error asked for."""
    text = "def f(float(N) x) -> (y) { y(2 * (i / 2) + 1 - i % 2) = x(i) where i in 0:N }"
    x = np.arange(n, dtype=np.float32)
    expected = x.reshape(-1, 2)[:, ::-1].reshape(-1) if n != 1 else x
    np.testing.assert_array_equal(polyc.compile(text)(x), expected)
    scatter = "def f(float(N) x) -> (y) { y(k) = 0.0 where k in 0:N  y(3 * (i / 3) + i % 2) += x(i) where i in 0:N }"
    sums = np.zeros(n, np.float32)
    np.add.at(sums, [3 * (i // 3) + i % 2 for i in range(n)], x)
    np.testing.assert_array_equal(polyc.compile(scatter)(x), sums)
