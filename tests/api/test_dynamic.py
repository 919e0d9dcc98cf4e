"""Which sizes become symbolic, when, and that nothing is compiled silently."""

import logging

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.api import kernels as kernels_module
from polyc.api.dynamic import MAX_COMBINATIONS, MAX_VALUES, DynamicSizes, _History, known_strides, see_sizes, typical_sizes
from polyc.diagnostics import Diagnostic, PolycError, UnsupportedError
from polyc.ir.expr import Const, Size
from polyc.ir.versions import take_version

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def check_mm(mm: polyc.Operator, m: int, k: int, n: int) -> None:
    a, b = draw(m, k), draw(k, n)
    np.testing.assert_allclose(mm(a, b), a @ b, rtol=1e-4, atol=1e-5)


def compilations(op: polyc.Operator) -> list[str]:
    return [r.message for r in op.remarks if r.pass_name == "dynamic" and ": kernel " in r.message]


def test_a_size_with_three_values_becomes_symbolic_and_the_others_stay():
    mm = polyc.compile(MM)
    for m in (2, 3, 4, 5, 6, 0, 1, 33, 2, 3):
        check_mm(mm, m, 8, 9)
    found = compilations(mm)
    assert found[0] == "mm: kernel 1, M=2, K=8, N=9 (new sizes)"
    assert found[2:] == ["mm: kernel 3, M any, K=8, N=9 (M has had 3 values while the others stayed)"]
    assert MAX_VALUES == 3
    # An old size is still served by the kernel of its own.
    assert mm.specialize(draw(2, 8), draw(8, 9)).fixed_sizes == {"M": 2, "K": 8, "N": 9}
    assert mm.specialize(draw(7, 8), draw(8, 9)).fixed_sizes == {"K": 8, "N": 9}
    assert mm.lower(draw(7, 8), draw(8, 9)).fixed_sizes == {"K": 8, "N": 9}
    assert len(compilations(mm)) == 3


def test_sizes_that_change_together_become_symbolic_after_some_combinations():
    mm = polyc.compile(MM)
    for m in range(1, 20):
        check_mm(mm, m, m + 1, 9)
    found = compilations(mm)
    assert len(found) == MAX_COMBINATIONS and "M any, K any, N=9" in found[-1]


def test_a_size_that_comes_back_to_few_values_keeps_its_kernels():
    mm = polyc.compile(MM)
    for _ in range(5):
        for m, n in ((1, 4), (1, 5), (2, 4), (2, 5)):
            check_mm(mm, m, 3, n)
    assert len(compilations(mm)) == 4 and not any("any" in c for c in compilations(mm))


def test_true_false_and_names():
    for dynamic, kernels in ((True, 1), (False, 4), ("M", 1), (("M",), 1), (("N",), 4), (("N", "M"), 1)):
        mm = polyc.compile(MM, dynamic=dynamic)
        for m in (2, 3, 4, 5):
            check_mm(mm, m, 8, 9)
        assert len(compilations(mm)) == kernels, dynamic


def test_decorated_functions_take_the_choice():
    source = 'def double(X: "f32[N]"):\n    Y[i] = X[i] + X[i]\n    return Y\n'
    for make in (lambda: polyc.op(source, dynamic=True), lambda: polyc.op(dynamic="N")(source)):
        double = make()
        for n in (0, 1, 5, 100):
            np.testing.assert_array_equal(double(draw(n)), draw(n) * 2)
        assert len(compilations(double)) == 1


@pytest.mark.parametrize(
    ("dynamic", "code", "help"),
    [
        ("rows", "argument-name", "its sizes are: M, K, N"),
        (("M", "k"), "argument-name", "did you mean K"),
        (3, "argument-option", 'dynamic=("B", "S")'),
        (None, "argument-option", 'dynamic=("B", "S")'),
        ((1, 2), "argument-option", "True, False"),
    ],
)
def test_what_is_no_choice_is_an_error(dynamic, code, help):
    with pytest.raises(polyc.ArgumentError) as caught:
        polyc.compile(MM, dynamic=dynamic)
    assert caught.value.diagnostics[0].code == code
    assert help in caught.value.diagnostics[0].help


def test_fixed_and_bound_sizes_are_never_symbolic():
    mm = polyc.compile(MM, sizes={"N": 9}, dynamic=True)
    check_mm(mm, 3, 4, 9)
    assert compilations(mm) == ["mm: kernel 1, M any, K any, N=9 (dynamic=True)"]
    b = draw(64, 80)
    for dynamic in (True, "auto"):
        layer = polyc.compile(MM, dynamic=dynamic).bind(B=b)
        for m in (3, 64, 17, 1, 0, 100):
            np.testing.assert_allclose(layer(draw(m, 64)), draw(m, 64) @ b, rtol=1e-4, atol=1e-4)
        assert "M any, K=64, N=80" in compilations(layer)[-1]
        assert len(compilations(layer)) == (1 if dynamic is True else 3)


def test_other_layouts_of_the_same_sizes_are_told_apart():
    mm = polyc.compile(MM, dynamic=True)
    a, b = draw(6, 8), draw(8, 9)
    for left in (a, np.asfortranarray(a), a[::-1], np.repeat(a, 2, axis=0)[::2]):
        np.testing.assert_allclose(mm(left, b), left @ b, rtol=1e-4, atol=1e-5)
    # The last stride is one element or anything: no more is known where sizes are symbolic.
    assert len(compilations(mm)) == 2


def test_every_compilation_is_in_the_log(caplog):
    with caplog.at_level(logging.INFO, "polyc"):
        mm = polyc.compile(MM)
        for m in (2, 3, 4, 5):
            check_mm(mm, m, 8, 9)
    lines = [r.getMessage() for r in caplog.records if ": kernel " in r.getMessage()]
    assert lines == compilations(mm) and len(lines) == 3


def test_forgotten_kernels_are_remarks(monkeypatch):
    monkeypatch.setattr(kernels_module, "MAX_KERNELS", 2)
    mm = polyc.compile(MM, dynamic=False)
    for m in (2, 3, 4, 2):
        check_mm(mm, m, 8, 9)
    forgotten = [r.message for r in mm.remarks if "forgotten" in r.message]
    assert len(compilations(mm)) == 4 and len(forgotten) == 2 and "M=2" in forgotten[0]


def test_where_no_kernel_serves_all_values_each_gets_its_own(monkeypatch):
    original = driver.lower

    def lower(program, *, typical=None, **named):
        if typical:
            raise UnsupportedError(Diagnostic("unsupported-test", "not for any value"))
        return original(program, **named)

    monkeypatch.setattr(driver, "lower", lower)
    mm = polyc.compile(MM)
    for m in (2, 3, 4, 5):
        check_mm(mm, m, 8, 9)
    assert len(compilations(mm)) == 4
    assert [r.message for r in mm.remarks if r.kind == "missed" and r.pass_name == "dynamic"] == [
        "no kernel for any M: not for any value"
    ]
    with pytest.raises(UnsupportedError, match="not for any value"):
        check_mm(polyc.compile(MM, dynamic=True), 2, 8, 9)


def test_computed_sizes_follow_those_they_are_computed_from():
    op = polyc.compile("def f(float(N,M) X) -> (Y) { Y(k) = X(k / M, k % M) where k in 0:N*M }", dynamic=True)
    for n, m in ((3, 4), (1, 1), (0, 5), (17, 33)):
        out = np.empty(n * m, np.float32)
        np.testing.assert_array_equal(op(draw(n, m), out=out), draw(n, m).ravel())
    assert len(compilations(op)) == 1


def test_the_rule_itself():
    history = _History(None)
    for m in (1, 2, 3):
        assert see_sizes(history, {"M": m, "N": 7})
        assert not see_sizes(history, {"M": m, "N": 7})
    assert history.symbolic == {"M"} and "3 values" in history.reason
    for n in (8, 9):
        see_sizes(history, {"M": 1, "N": n})
    assert history.symbolic == {"M", "N"}
    assert not see_sizes(history, {"M": 100, "N": 200})


def test_known_strides_end_at_the_last_symbolic_extent():
    n, c = Size("N"), Const(3)
    assert known_strides((48, 16, 4), (n, c, Const(4)), frozenset("N")) == (48, 16, 4)
    assert known_strides((48, 16, 4), (c, n, Const(4)), frozenset("N")) == (None, 16, 4)
    assert known_strides((48, 16, 4), (c, c, n), frozenset("N")) == (None, None, 4)
    assert known_strides((None, 4), (n, n), frozenset("N")) == (None, 4)
    assert known_strides(None, (n, n), frozenset("N")) is None


def test_typical_sizes_are_the_same_for_similar_ones():
    assert typical_sizes({"A": 320}, "A") == typical_sizes({"A": 383}, "A") != typical_sizes({"A": 384}, "A")
    found = typical_sizes({"A": 3, "B": 17, "C": 28, "D": 1000, "E": 0, "F": 333}, "ABCEF")
    assert found == {"A": 3, "B": 17, "C": 28, "E": 0, "F": 351}  # small ones are what they are: 30 is no 28


def test_estimates_of_symbolic_extents_come_from_the_first_sizes():
    conv = polyc.compile("def c(float(H,W) X, float(R,S) F) -> (Y) { Y(h,w) +=! X(h+r, w+s) * F(r,s) }", dynamic=True)
    sizes = {"H": 101, "W": 90, "R": 3, "S": 5}
    lowered = conv.lower(draw(101, 90), draw(3, 5))
    version = (lowered, *lowered.others)[take_version(lowered.costs, sizes)]
    (statement, *_) = version.scop.statements  # the windows are written out
    assert version.ranges.typical == sizes and statement.trips == {"h": 101 - 3 + 1, "w": 90 - 5 + 1}
    (statement, *_) = polyc.compile(MM).lower().scop.statements
    assert statement.trips == {}


def views(a: np.ndarray) -> list[np.ndarray]:
    """The same values in memory of all kinds."""
    wide = np.repeat(np.repeat(a, 2, axis=0), 3, axis=1)
    return [
        a,
        np.ascontiguousarray(a[::-1])[::-1],
        np.ascontiguousarray(a[:, ::-1])[:, ::-1],
        np.asfortranarray(a),
        wide[::2, ::3],
        np.ascontiguousarray(wide[::-2][:, ::-3])[::-1, ::-1],
    ]


@pytest.mark.parametrize("dynamic", [True, "M", ("N", "K")])
def test_equal_sizes_ones_and_zeros_in_all_kinds_of_memory(dynamic):
    mm = polyc.compile(MM, dynamic=dynamic)
    for m, k, n in ((5, 5, 5), (1, 1, 1), (0, 0, 0), (1, 7, 1), (64, 64, 64), (40, 0, 3)):
        a, b = draw(m, k), draw(k, n)
        for number, left in enumerate(views(a)):
            for right in views(b)[::2] if dynamic is True else [views(b)[number]]:
                np.testing.assert_allclose(mm(left, right), a @ b, rtol=1e-4, atol=1e-4)
        out = np.zeros((2 * n, m), np.float32)[::-2].T
        mm(a, b, out=out)
        np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)


def test_dimensions_that_are_tied_are_checked_at_every_call():
    op = polyc.compile("def f(float(N,N) A, float(N) x) -> (y) { y(i) +=! A(i,j) * x(j) }", dynamic="N")
    for n in (3, 1, 0, 100):
        np.testing.assert_allclose(op(draw(n, n), draw(n)), draw(n, n) @ draw(n), rtol=1e-4, atol=1e-4)
    for a, x in ((draw(3, 4), draw(4)), (draw(4, 4), draw(5))):
        with pytest.raises(polyc.PolycError, match="N") as caught:
            op(a, x)
        assert caught.value.diagnostics[0].help
    assert len(compilations(op)) == 1


def test_extents_that_are_expressions_over_symbolic_sizes():
    source = 'def f(X: "f32[N]", Z: "f32[2*N+1]"):\n    Y[i] = X[i // 2] + Z[i + 1]\n    return Y\n'
    op = polyc.op(source, dynamic=True)
    for n in (1, 5, 0, 64, 333):
        x, z = draw(n), draw(2 * n + 1)
        np.testing.assert_array_equal(op(x, z), np.repeat(x, 2) + z[1:])
    with pytest.raises(polyc.PolycError) as caught:
        op(draw(5), draw(12))
    assert "12" in str(caught.value) and len(compilations(op)) == 1


def test_one_size_symbolic_in_a_decorated_function_with_strided_arrays():
    source = 'def f(Q: "f32[B, S, D]", K: "f32[B, T, D]"):\n    P[b, s, t] += Q[b, s, d] * K[b, t, d]\n    return P\n'
    scores = polyc.op(source, dynamic=("S",))
    for s in (1, 2, 16, 0, 130):
        q, k = draw(2, s, 8), draw(2, 9, 8)
        for own in (q, np.ascontiguousarray(q[:, ::-1])[:, ::-1], np.asfortranarray(q)):
            np.testing.assert_allclose(scores(own, k), np.einsum("bsd,btd->bst", q, k), rtol=1e-4, atol=1e-4)
    assert all("S any" in c and "T=9" in c for c in compilations(scores))


FACTORS = {
    "a left side": ("C(K * i + k) = B(i, k)", lambda b: b.ravel()),
    "a part that is added to": ("C(k) = 0.0 where k in 0:N*K  C(K * i + k) += B(i, k)", lambda b: b.ravel()),
    "a quotient": (
        "C(j) = 0.0 where j in 0:N*K  C((K * i + k) / K) += B(i, k)",
        lambda b: np.pad(b.sum(1), (0, b.size - len(b))),
    ),
    "a range": (
        "C(i) +=! B(i, k) where i in 0:N, k in 0:K, K * i + k < N",
        lambda b: folded(b, lambda i, k, n, m: m * i + k < n),
    ),
    "a bound": ("C(i) +=! x(j) * B(i, 0) where i in 0:N, j in i*K:N*K", lambda b: np.arange(b.size, 0, -b.shape[1]) * b[:, 0]),
}


def folded(b: np.ndarray, test) -> np.ndarray:
    n, m = b.shape
    return np.where(np.fromfunction(lambda i, k: test(i, k, n, m), b.shape), b, 0).sum(1)


@pytest.mark.each
@pytest.mark.parametrize("dynamic", [True, ("K",), ("N", "K"), "auto"])
@pytest.mark.parametrize("name", FACTORS)
def test_a_size_that_multiplies_an_index_stays_a_number(name, dynamic):
    body, wanted = FACTORS[name]
    operator = polyc.compile(f"def f(float(N, K) B, float(L) x) -> (C) {{ {body} }}", dynamic=dynamic)
    for n, k in ((3, 4), (5, 4), (2, 7), (9, 2), (4, 4), (7, 4), (1, 1)):
        b = draw(n, k)
        np.testing.assert_allclose(operator(b, np.ones(n * k, np.float32)), wanted(b), rtol=1e-5, atol=1e-5)
    if dynamic != "auto":
        assert any(r.kind == "missed" and r.message.startswith("no kernel for any K: ") for r in operator.remarks)
    if dynamic is True:  # N stays open: one kernel for each K
        assert len(compilations(operator)) == 4
        assert operator.lower(draw(8, 4), np.ones(32, np.float32)).fixed_sizes == {"K": 4}


def test_a_size_that_multiplies_an_index_is_named_where_no_number_is_known():
    operator = polyc.compile("def f(float(N, K) B) -> (C) { C(K * i + k) = B(i, k) }", dynamic=True)
    with pytest.raises(polyc.PolycError, match=r"K multiplies an index: compile for numbers, with sizes=\{'K': 64\}"):
        operator.lower()


def test_other_sizes_are_counted_after_one_was_refused_that_multiplies_an_index() -> None:
    program = polyc.compile("def f(float(A) a, float(B) b, float(C) c) -> (y) { y(B * i + j) +=! a(i) * b(j) * c(k) }").program
    choice = DynamicSizes("auto", ())
    for b in (3, 4, 5):
        symbolic, _ = choice.choose(program, {"A": 2, "B": b, "C": 4})
    assert symbolic == {"B"}
    assert choice.refuse(program, symbolic, PolycError(Diagnostic("range-unsolved", "B multiplies an index")))
    for n in range(12):
        symbolic, _ = choice.choose(program, {"A": 2 + n, "B": 6 + n, "C": 5 + n})
    assert symbolic == {"A", "C"}
