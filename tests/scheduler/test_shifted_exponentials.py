"""Sums of exponentials in blocks: what is recognised, and that every special value survives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import polyc
from polyc.ir.program import Program
from polyc.machine import X86_64_V4, RowBlocks
from polyc.scheduler.rewriting.rules.shifted_exponentials import block_exponentials
from tests.oracle.programs import agree, draw
from tests.scheduler.support import check, check_each, infer, lower, read

SOFTMAX = """
def softmax(float(N,D) X) -> (Y) {
  M(n) max=! X(n,d)
  E(n,d) = exp(X(n,d) - M(n))
  Z(n) +=! E(n,d)
  Y(n,d) = E(n,d) / Z(n)
}"""

ATTENTION = """
def attention(float(S,D) Q, float(T,D) K, float(T,E) V) -> (O) {
  P(s,t) +=! Q(s,d) * K(t,d)
  M(s) max=! P(s,t)
  W(s,t) = exp((P(s,t) - M(s)) * 0.125)
  L(s) +=! W(s,t)
  A(s,e) +=! W(s,t) * V(t,e)
  O(s,e) = A(s,e) / L(s)
}"""

PROGRAMS = {
    "softmax": SOFTMAX,
    "attention": ATTENTION,
    "scale distributed": ATTENTION.replace("(P(s,t) - M(s)) * 0.125", "P(s,t) * 0.125 - M(s) / 8.0"),
    "doubles": SOFTMAX.replace("float", "double"),
    "log of the sum": """
def f(float(N,D) X) -> (Y) {
  M(n) max=! X(n,d)
  Z(n) +=! exp(X(n,d) - M(n))
  Y(n) = log(Z(n)) + M(n)
}""",
    "scores that are computed first": """
def f(float(N,D) X, float(D) b) -> (M, Z) {
  P(n,d) = X(n,d) * 0.5 + b(d)
  M(n) max=! P(n,d)
  Z(n) +=! exp(P(n,d) - M(n))
}""",
    "scores that are stored": """
def f(float(N,D) X, float(D) b) -> (Z) {
  P(n,d) = tanh(X(n,d) + b(d))
  R(n,d) = tanh(P(n,d) * 3.0)
  M(n) max=! R(n,d)
  Z(n) +=! exp(R(n,d) - M(n))
}""",
    "products of exponentials that are stored": """
def f(float(N,D) X) -> (F, Z, Y) {
  M(n) max=! X(n,d)
  E(n,d) = exp(X(n,d) - M(n))
  F(n,d) = E(n,d) * exp(X(n,d) - M(n))
  Z(n) +=! E(n,d)
  Y(n) +=! F(n,d)
}""",
    "scores that begin with a bias": """
def f(float(S,D) Q, float(T,D) K, float(S,T) B) -> (L) {
  P(s,t) = B(s,t)
  P(s,t) += Q(s,d) * K(t,d)
  M(s) max=! P(s,t)
  L(s) +=! exp(P(s,t) - M(s))
}""",
    "only what came before": """
def f(float(S,D) Q, float(S,D) K, float(S,E) V) -> (O) {
  P(s,t) +=! Q(s,d) * K(t,d) where t in 0:S
  M(s) max=! P(s,t) where t <= s
  L(s) +=! exp(P(s,t) - M(s)) where t <= s
  A(s,e) +=! exp(P(s,t) - M(s)) * V(t,e) where t <= s
  O(s,e) = A(s,e) / L(s)
}""",
    "weights and counts": """
def f(float(N,D) X, float(D) w) -> (Z, C) {
  M(n) max=! X(n,d)
  Z(n) +=! -(exp(2.0 * (X(n,d) - M(n))) * w(d))
  C(n) += exp(X(n,d) - M(n)) / w(d)
}""",
    "a bias of each row behind the maximum": """
def f(float(N,D) X, float(N) b) -> (Z) {
  M(n) max=! X(n,d)
  Z(n) +=! exp(X(n,d) - M(n) + b(n))
}""",
    "one row": """
def f(float(D) X) -> (Y) {
  M max=! X(d)
  Z +=! exp(X(d) - M)
  Y(d) = exp(X(d) - M) / Z
}""",
}

OTHERS = {
    "a bias of each value behind the maximum": """
def f(float(N,D) X, float(D) b) -> (Z) {
  M(n) max=! X(n,d)
  Z(n) +=! exp(X(n,d) - M(n) + b(d))
}""",
    "exponentials that stay, of scores that are computed first": """
def f(float(S,D) Q, float(T,D) K, float(S,T) B) -> (O) {
  P(s,t) +=! Q(s,d) * K(t,d)
  R(s,t) = B(s,t) > 0.0 ? P(s,t) : -1e4
  M(s) max=! R(s,t)
  E(s,t) = exp(R(s,t) - M(s))
  Z(s) +=! E(s,t)
  O(s,t) = E(s,t) / Z(s)
}""",
    "columns": SOFTMAX.replace("float(N,D)", "float(D,N)").replace("X(n,d)", "X(d,n)"),
    "another maximum": PROGRAMS["log of the sum"].replace("M(n) max=! X(n,d)", "M(n) max=! X(n,d) * 2.0"),
    "another scale": PROGRAMS["log of the sum"].replace("X(n,d) - M(n)", "X(n,d) - 2.0 * M(n)"),
    "growing": PROGRAMS["log of the sum"].replace("X(n,d) - M(n)", "M(n) - X(n,d)"),
    "a minimum": PROGRAMS["log of the sum"].replace("max=!", "min=!"),
    "a square of exponentials": SOFTMAX.replace("+=! E(n,d)", "+=! E(n,d) * E(n,d)"),
    "a sum with something else": SOFTMAX.replace("+=! E(n,d)", "+=! E(n,d) + X(n,d)"),
    "the maximum elsewhere": SOFTMAX.replace("+=! E(n,d)", "+=! E(n,d) * M(n)"),
    "more than the maximum has seen": """
def f(float(N,D) X) -> (Z) {
  M(n) max=! X(n,d) where d in 0:3
  Z(n) +=! exp(X(n,d) - M(n))
}""",
    "an initial value": SOFTMAX.replace("max=!", "max=").replace("-> (Y)", "-> (M, Y)"),
    "scores that are needed whole": PROGRAMS["scores that are stored"]
    .replace("-> (Z)", "-> (Z, Y)")
    .replace("M(n) max=!", "Y(d) +=! R(n,d)\n  M(n) max=!"),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks of a few values, however short the rows."""
    for name, value in {"read": 4, "computed": 4, "held_read": 0, "held_computed": 0}.items():
        monkeypatch.setattr(RowBlocks, name, value)
    yield


def is_blocked(lowered: object) -> bool:
    return any(r.pass_name == "online-softmax" and r.kind == "passed" for r in lowered.remarks)  # type: ignore[attr-defined]


def sizes_of(program: Program, **sizes: int) -> dict[str, int]:
    return {n: sizes.get(n, 5) for n in program.sizes}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_form_in_blocks_of_four(name: str):
    program = read(PROGRAMS[name])
    size = "T" if "T" in program.sizes else "D" if "Q" not in program.parameters else "S"
    extents, *others = ([sizes_of(program, **{size: n}) for n in each] for each in ((1, 11), (0, 4, 5)))
    found = check_each(PROGRAMS[name], extents, others=others[0])
    assert [is_blocked(lowered) for lowered in found] == [sizes[size] > 1 for sizes in extents]


@pytest.mark.parametrize("name", OTHERS)
def test_what_looks_alike_stays(name: str):
    program, ranges = infer(read(OTHERS[name]))
    assert block_exponentials(program, ranges, X86_64_V4) == (program, ranges, [])


def test_small_scores_with_a_large_bias_do_not_overflow():
    """Under the maximum of its own block, e ** (x - m + b) is infinite where b makes up for x."""
    x, b = np.zeros((1, 12), np.float32), np.zeros(12, np.float32)
    x[:, :4], b[:4] = -100, 95
    got = polyc.compile(OTHERS["a bias of each value behind the maximum"])(x, b)
    np.testing.assert_allclose(got, 8 + 4 * np.exp(-5.0), rtol=1e-6)


def test_scores_of_a_row_are_never_stored(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(RowBlocks, "computed", 256)
    lowered = lower(ATTENTION, {"S": 128, "T": 4096, "D": 64, "E": 64})
    scores = {b.name: b for b in lowered.nest.buffers if b.name in ("P", "W", "P.block", "W.block")}
    assert set(scores) == {"P.block", "W.block"}
    for buffer in scores.values():
        assert [e.value for e in buffer.shape][::2] == [1, 256]  # type: ignore[union-attr]


def test_switches():
    sizes = {"N": 3, "D": 9}
    assert not is_blocked(check(SOFTMAX, sizes, disable="online-softmax"))
    assert not is_blocked(check(SOFTMAX, sizes, reassociate=False))


def test_short_rows_stay(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    for text, short, long in ((SOFTMAX, {"N": 64, "D": 1024}, {"N": 64, "D": 1 << 20}),):
        for sizes, expected in ((short, False), (long, True)):
            program, ranges = infer(read(text), **sizes)
            assert bool(block_exponentials(program, ranges, X86_64_V4)[2]) == expected
    for t, expected in ((1024, False), (1 << 16, True)):
        program, ranges = infer(read(ATTENTION), S=128, T=t, D=64, E=64)
        assert bool(block_exponentials(program, ranges, X86_64_V4)[2]) == expected


def test_rows_of_unknown_length_go_in_blocks_where_they_are_typically_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    rng = np.random.default_rng(0)
    for first, expected in ((1000, False), (1 << 20, True)):
        op = polyc.compile(SOFTMAX, dynamic=True)
        for columns in (first, 1, 511, 512, 513, 3000):
            x = rng.standard_normal((2, columns), dtype=np.float32)
            e = np.exp(x - x.max(axis=1, keepdims=True))
            np.testing.assert_allclose(op(x), e / e.sum(axis=1, keepdims=True), rtol=2e-5, atol=1e-12)
        assert any(r.pass_name == "online-softmax" for r in op.remarks) == expected


SPECIAL = {
    "leading -inf": lambda x: x.__setitem__((slice(None), slice(0, 6)), -np.inf),
    "nothing but -inf": lambda x: x.__setitem__(1, -np.inf),
    "one +inf": lambda x: x.__setitem__((1, 7), np.inf),
    "NaN": lambda x: x.__setitem__((2, 3), np.nan),
    "NaN among -inf": lambda x: (x.__setitem__(1, -np.inf), x.__setitem__((1, 5), np.nan)),
    "far apart": lambda x: x.__setitem__((0, slice(4, 8)), 3e38),
    "far below": lambda x: x.__setitem__((0, slice(0, 10)), -3e38),
    "one value": lambda x: x.__setitem__(0, 7.0),
}


@pytest.mark.each
@pytest.mark.parametrize("case", SPECIAL)
@pytest.mark.parametrize("name", ["softmax", "log of the sum"])
def test_special_values_come_out_as_in_two_passes(name: str, case: str):
    op = polyc.compile(PROGRAMS[name])
    (x,) = draw(op, {"N": 3, "D": 11})
    SPECIAL[case](x)
    with np.errstate(all="ignore"):
        got = agree(op, [x], {"N": 3, "D": 11})["Y"]
        m = x.max(axis=1, keepdims=True)
        e = np.exp(x.astype(np.float64) - m)
        z = e.sum(axis=1, keepdims=True)
        expected = e / z if name == "softmax" else (np.log(z) + m)[:, 0]
    np.testing.assert_allclose(got, expected, rtol=3e-6, atol=1e-30)


def test_masked_keys_have_no_weight():
    op = polyc.compile("""
def f(float(S,D) Q, float(T,D) K, float(T,E) V, float(S,T) B) -> (O) {
  P(s,t) +=! Q(s,d) * K(t,d)
  R(s,t) = P(s,t) + B(s,t)
  M(s) max=! R(s,t)
  W(s,t) = exp(R(s,t) - M(s))
  L(s) +=! W(s,t)
  A(s,e) +=! W(s,t) * V(t,e)
  O(s,e) = A(s,e) / L(s)
}""")
    sizes = {"S": 6, "T": 17, "D": 3, "E": 5}
    q, k, v, b = draw(op, sizes)
    b[:] = np.where(np.arange(17) > np.arange(6)[:, None] * 3 + 4, -np.inf, 0)
    b[5] = -np.inf  # a row that may look at nothing
    lowered = op.lower(q, k, v, b)
    assert is_blocked(lowered)
    with np.errstate(all="ignore"):
        got = agree(op, [q, k, v, b], sizes)["O"]
    assert np.isnan(got[5]).all() and np.isfinite(got[:5]).all()
