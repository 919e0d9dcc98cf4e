"""Mean and squared deviations in one pass: what is recognised, and how exact it is on data made to be hard."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.ir.expr import int_const
from polyc.ir.program import specialize_sizes
from polyc.machine import X86_64_V4, RowBlocks
from polyc.poly.ranges import assume_sizes
from polyc.scheduler.rewriting.rules.moments import block_moments
from tests.oracle.programs import agree, draw
from tests.scheduler.support import check, check_each, check_nest, infer, read

VARIANCE = """
def variance(float(N,D) X) -> (S, V) {
  S(n) +=! X(n,d)
  V(n) +=! (X(n,d) - S(n) / D) * (X(n,d) - S(n) / D)
}"""

PROGRAMS = {
    "variance": VARIANCE,
    "doubles": VARIANCE.replace("float", "double"),
    "columns": VARIANCE.replace("float(N,D)", "float(D,N)").replace("X(n,d)", "X(d,n)"),
    "the mean itself": """
def f(float(N,D) X) -> (M, V) {
  M(n) +=! X(n,d) / D
  V(n) +=! (M(n) - X(n,d)) * (M(n) - X(n,d)) / D
}""",
    "deviations that are stored": """
def f(float(N,D) X) -> (Y, V) {
  S(n) +=! X(n,d)
  Y(n,d) = X(n,d) - S(n) / D
  V(n) +=! Y(n,d) * Y(n,d)
}""",
    "layer normalisation": """
def f(float(N,D) X, float(D) G) -> (Y) {
  S(n) +=! X(n,d)
  C(n,d) = X(n,d) - S(n) / D
  V(n) +=! 0.5 * (C(n,d) * C(n,d))
  Y(n,d) = C(n,d) * rsqrt(V(n) / D + 0.00001) * G(d)
}""",
    "of every channel": """
def f(float(B,N,D) X) -> (V) {
  S(n) +=! X(b,n,d)
  V(n) += (X(b,n,d) - S(n) / (B * D)) * (X(b,n,d) - S(n) / (B * D))
}""",
    "of a product": """
def f(float(N,D) X, float(D) w) -> (V) {
  S(n) +=! 2.0 * (X(n,d) * w(d))
  V(n) +=! (X(n,d) * w(d) - S(n) * 0.5 / D) * (X(n,d) * w(d) - S(n) * 0.5 / D)
}""",
}

OTHERS = {
    "another divisor": VARIANCE.replace("/ D", "/ (D - 1)"),
    "around something else": VARIANCE.replace("S(n) / D)", "S(n) / D + 1.0)"),
    "no squares": VARIANCE.replace("* (X(n,d) - S(n) / D)", ""),
    "different factors": VARIANCE.replace("* (X(n,d) -", "* (X(n,d) +"),
    "fewer points": VARIANCE.replace("S(n) +=! X(n,d)", "S(n) +=! X(n,d) where d in 0:7"),
    "a triangle": VARIANCE.replace("S(n) +=! X(n,d)", "S(n) +=! X(n,d) where d <= n + 2"),
    "an initial value": VARIANCE.replace("S(n) +=!", "S(n) +="),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks of a few values, however short the rows."""
    for name, value in {"read": 4, "columns": 4, "held": 0, "held_across": 0}.items():
        monkeypatch.setattr(RowBlocks, name, value)
    yield


def is_blocked(lowered: object) -> bool:
    return any(r.pass_name == "single-pass-moments" for r in lowered.remarks)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_form_in_blocks_of_four(name: str):
    program = read(PROGRAMS[name])
    sizes = [{n: {"D": d, "B": 3}.get(n, 5) for n in program.sizes} for d in (1, 8, 13, 0, 7)]
    found = check_each(PROGRAMS[name], sizes[:3], others=sizes[3:])
    assert set(map(is_blocked, found)) == {False, True}


@pytest.mark.parametrize("name", OTHERS)
def test_what_looks_alike_stays(name: str):
    program, ranges = infer(read(OTHERS[name]), N=5, D=16)
    assert block_moments(program, ranges, X86_64_V4) == (program, ranges, [])


SYMBOLIC = {n: p for n, p in PROGRAMS.items() if n != "of every channel"}
"""A product of symbolic sizes may wrap around in the type of a divisor: that form stays."""


@pytest.mark.parametrize("name", SYMBOLIC)
def test_counts_of_the_call(name: str):
    program = read(SYMBOLIC[name])
    lowered = driver.lower(program, typical={"N": 5, "D": 64}, target=X86_64_V4)
    assert is_blocked(lowered)
    for d in (0, 1, 3, 4, 5, 8, 13):
        check_nest(lowered, {n: {"D": d}.get(n, 5) for n in program.sizes})


def test_some_counts_of_the_call():
    text = PROGRAMS["of every channel"]
    sized = specialize_sizes(read(text), {"D": int_const(6)})
    lowered = driver.lower(sized, typical={"N": 5, "B": 64}, target=X86_64_V4)
    assert is_blocked(lowered)
    for b in (0, 1, 3, 9):
        check_nest(lowered, {"B": b, "N": 5, "D": 6})


def test_unknown_counts_stay():
    program, ranges = infer(read(VARIANCE))
    assert block_moments(program, ranges, X86_64_V4) == (program, ranges, [])


@pytest.mark.parametrize("name", OTHERS)
def test_what_looks_alike_stays_for_any_size(name: str):
    program, ranges = infer(read(OTHERS[name]))
    ranges = assume_sizes(ranges, (), {"N": 5, "D": 16})
    assert block_moments(program, ranges, X86_64_V4) == (program, ranges, [])


def test_products_of_sizes_that_may_wrap_stay():
    program, ranges = infer(read(PROGRAMS["of every channel"]))
    ranges = assume_sizes(ranges, (), {"N": 5, "D": 16, "B": 7})
    assert block_moments(program, ranges, X86_64_V4) == (program, ranges, [])


def test_short_rows_stay(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    for d, expected in ((1024, False), (1 << 18, True)):
        program, ranges = infer(read(VARIANCE), N=64, D=d)
        assert bool(block_moments(program, ranges, X86_64_V4)[2]) == expected


def test_switches():
    sizes = {"N": 3, "D": 17}
    assert not is_blocked(check(VARIANCE, sizes, disable="single-pass-moments"))
    assert not is_blocked(check(VARIANCE, sizes, reassociate=False))


ADVERSE = {
    "a large mean": lambda rng, shape: 1e6 + rng.standard_normal(shape),
    "a drift": lambda rng, shape: np.linspace(-1e4, 1e4, shape[1]) + rng.standard_normal(shape),
    "two levels": lambda rng, shape: np.where(np.arange(shape[1]) < shape[1] // 2, 1e5, -1e5) + rng.standard_normal(shape),
    "constant": lambda rng, shape: np.full(shape, 12345.678),
    "one outlier": lambda rng, shape: rng.standard_normal(shape) + 1e6 * (np.arange(shape[1]) == 17),
    "tiny": lambda rng, shape: 1e-15 * rng.standard_normal(shape),
}


@pytest.mark.parametrize("case", ADVERSE)
def test_as_exact_as_two_passes(case: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(RowBlocks, "read", 512)
    x = ADVERSE[case](np.random.default_rng(3), (3, 10_007)).astype(np.float32)
    wide = x.astype(np.float64)
    expected = ((wide - wide.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    # A mean that is wrong by an ulp or two of the largest value adds its square to every deviation.
    slack = x.shape[1] * (2 * np.spacing(np.abs(x).max().astype(np.float32)).astype(np.float64)) ** 2
    op = polyc.compile(VARIANCE)
    assert is_blocked(op.lower(x))
    _, v = op(x)
    np.testing.assert_allclose(v, expected, rtol=2e-5, atol=slack)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_special_values_spread_over_their_row(special: float):
    op = polyc.compile(VARIANCE)
    (x,) = draw(op, {"N": 3, "D": 19})
    x[1, 6] = special
    with np.errstate(all="ignore"):
        got = agree(op, [x], {"N": 3, "D": 19})
    assert np.isnan(got["V"][1]) and np.isfinite(got["V"][[0, 2]]).all()
