"""Token-level fuzzing of both languages through the whole compiler: a result that the interpreter confirms, or a named error.

``POLYC_EXAMPLES=10`` runs ten times as many mutants, drawn with other seeds.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest

import polyc
from tests.negative.mutation import mutate, run_mutant, vary

EXAMPLES = float(os.environ.get("POLYC_EXAMPLES", "1"))

TC_SEEDS = (
    """def softmax(float(N, D) X) -> (O) {
  M(n) max=! X(n, d)
  E(n, d) = exp(X(n, d) - M(n))
  Z(n) +=! E(n, d)
  O(n, d) = E(n, d) / Z(n)
}""",
    """def layer(float(M, K) X, float(N, K) W, float(N) b, int32(M) I) -> (H, Y, s) {
  H(m, n) = b(n)
  H(m, n) += X(m, k) * W(n, k)
  Y(m, n) = fmax(H(I(m), n) * 2.0, 0) where m in 0:M
  s +=! Y(m, n) * Y(m, n)
}""",
    """def stencil(float(H, W) A, double(3) k, uint8(H) S) -> (O, P) {
  O(y, x) +=! pad(A(y + j - 1, 2 * x), 0.5) * k(j) where y in 0:H
  P(y) = S(y) > 3 ? int32(A(y, 0)) / 3 : y % 2
}""",
    """def pool(int32(B, H, W) A) -> (O, T) {
  O(b, h, w) max=! A(b, 2 * h + kh, 2 * w + kw) where kh in 0:2, kw in 0:2
  T(w, h) +=! O(b, h, w) - A(b, h, w)
}""",
)
TC_EXTRA = [
    *"( ) { } [ ] , : ? ! - + * / % = < > . ; # 0 1 -1 2 3. .5 7 1e9".split(),
    *"+= +=! max= max=! min=! *=! *= && || == != <= >= where in exists def min max pad float int8 uint64 double bool".split(),
    *"exp pow fmax fmin sqrt tanh log X W A I O M N K H T S m n k i y x Ω \x00".split(),
    " ",
    "\n",
]

TC_GROUPS = [
    "+ - * / %".split(),
    "+=! max=! min=! *=! = +=".split(),
    "X W A H I K S b k E Z M".split(),
    "n d m i h w kh kw x y j".split(),
    "0 1 2 3 2.0 0.5 -1".split(),
    "exp fmax fmin sqrt tanh log pow min max fabs floor".split(),
    "float double int32 uint8 int64".split(),
    "< <= > >= == !=".split(),
]

PY_SEEDS = (
    """def softmax(X: "f32[N, D]"):
    M[n] = max(X[n, d])
    E[n, d] = np.exp(X[n, d] - M[n])
    Z[n] += E[n, d]
    O[n, d] = E[n, d] / Z[n]
    return O, M
""",
    """def layer(X: "f32[M, K]", W: "f64[N, K]", b: "f32[N]", I: "i32[M]", *, scale=2):
    with polyc.where(0 <= m < M):
        H[m, n] = b[n] / scale
        H[m, n] += X[m, k] * f32(W[n, k])
        Y[m, n] = maximum(H[I[m], n], 0) if n > 1 else -1
    return H, Y
""",
    """def stencil(A: "i32[H, W]", t: "bool[H]", u: "u8[H]"):
    with polyc.where(0 <= y < H, 0 <= j < 3, 0 <= x < 4):
        O[y, x] += pad(A[y + j - 1, 2 * x], 1) * u[y]
    P[y] = A[y, 0] // 3 % 5 if t[y] and u[y] != 2 else y ** 2
    c, d = 0.5, 2
    Q = min(abs(A[y, x]) * c) + max(A[y // d, x])
    return O, P, Q
""",
)
PY_EXTRA = [
    *"( ) [ ] , : - + * / // % ** = < > <= == != += *= . @ & | ~ 0 1 -1 2 0.5 1e9 3j True None 'a' ...".split(),
    *"if else and or not in is for with return lambda def max min sum prod any np exp sqrt maximum where polyc pad".split(),
    *"f32 f64 i32 u8 bool abs X W A I O M N K H T m n k i y x scale ω \x00".split(),
    " ",
    "\n",
    "\n    ",
]


PY_GROUPS = [
    "+ - * / // % **".split(),
    "+= = *=".split(),
    "X W A H I b t u E Z M".split(),
    "n d m k y x j".split(),
    "0 1 2 3 2.5 -1".split(),
    "max min maximum minimum sqrt tanh abs sum prod exp".split(),
    "f32 f64 i32 u8 bool".split(),
    "< <= > >= == !=".split(),
    "and or".split(),
]


def make_tc(text: str) -> Callable[[], polyc.Operator]:
    return lambda: polyc.compile(text + "\n", verify=True)


def make_function(text: str) -> Callable[[], polyc.Operator]:
    return lambda: polyc.op(text, verify=True)


@dataclass(frozen=True, slots=True)
class Language:
    """What to mutate, with what, and how to read the mutants."""

    seeds: tuple[str, ...]
    extra: list[str]
    groups: list[list[str]]
    make: Callable[[str], Callable[[], polyc.Operator]]


TC = Language(TC_SEEDS, TC_EXTRA, TC_GROUPS, make_tc)
PYTHON = Language(PY_SEEDS, PY_EXTRA, PY_GROUPS, make_function)


def draw(rng: random.Random, language: Language) -> str:
    text = rng.choice(language.seeds)
    return mutate(rng, text, language.extra) if rng.random() < 0.3 else vary(rng, text, language.groups)


def fuzz(language: Language, seed: int) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    rng = random.Random(seed)
    for _ in range(int(90 * EXAMPLES)):
        text = draw(rng, language)
        try:
            outcomes[run_mutant(language.make(text), rng)] += 1
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}\n{text}") from error
    return outcomes


SEEDS = range(2) if EXAMPLES <= 1 else range(100, 102)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("language", [TC, PYTHON], ids=["tc", "python"])
def test_mutants_run_as_the_interpreter_says_or_are_refused_by_name(language, seed):
    outcomes = fuzz(language, seed)
    assert outcomes["ran"] >= 3 and len(outcomes) >= 5, outcomes
