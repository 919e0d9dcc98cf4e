"""Grids over a few steps of time: Jacobi, the wave equation, and two fields that react and diffuse (Gray and Scott)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Peer, Workload, nbytes, normal

INSIDE = "i >= 1 && i < N-1 && j >= 1 && j < M-1"
RANGE = "i in 0:N, j in 0:M"

JACOBI = f"""
def jacobi(float(N, M) X{{count}}) -> (Y) {{{{
  A(0,i,j) = X(i,j) where {RANGE}
  A(t,i,j) = {INSIDE} ? 0.2 * (A(t-1,i,j) + A(t-1,i-1,j) + A(t-1,i+1,j) + A(t-1,i,j-1) + A(t-1,i,j+1)) : A(t-1,i,j)
    where t in 1:{{T}}+1, {RANGE}
  Y(i,j) = A({{T}},i,j) where {RANGE}
}}}}
"""

WAVE = f"""
def wave(float(N, M) P, float(N, M) Q{{count}}) -> (Y) {{{{
  U(0,i,j) = P(i,j) where {RANGE}
  U(1,i,j) = Q(i,j) where {RANGE}
  U(t,i,j) = {INSIDE} ? 2.0 * U(t-1,i,j) - U(t-2,i,j)
      + 0.1 * (U(t-1,i-1,j) + U(t-1,i+1,j) + U(t-1,i,j-1) + U(t-1,i,j+1) - 4.0 * U(t-1,i,j)) : U(t-1,i,j)
    where t in 2:{{T}}+2, {RANGE}
  Y(i,j) = U({{T}}+1,i,j) where {RANGE}
}}}}
"""

GRAY_SCOTT = f"""
def gray_scott(float(N, M) P, float(N, M) Q{{count}}) -> (Y, Z) {{{{
  U(0,i,j) = P(i,j) where {RANGE}
  V(0,i,j) = Q(i,j) where {RANGE}
  U(t,i,j) = {INSIDE} ? U(t-1,i,j) - U(t-1,i,j) * V(t-1,i,j) * V(t-1,i,j) + 0.04 * (1.0 - U(t-1,i,j))
      + 0.16 * (U(t-1,i-1,j) + U(t-1,i+1,j) + U(t-1,i,j-1) + U(t-1,i,j+1) - 4.0 * U(t-1,i,j)) : U(t-1,i,j)
    where t in 1:{{T}}+1, {RANGE}
  V(t,i,j) = {INSIDE} ? V(t-1,i,j) + U(t-1,i,j) * V(t-1,i,j) * V(t-1,i,j) - 0.1 * V(t-1,i,j)
      + 0.08 * (V(t-1,i-1,j) + V(t-1,i+1,j) + V(t-1,i,j-1) + V(t-1,i,j+1) - 4.0 * V(t-1,i,j)) : V(t-1,i,j)
    where t in 1:{{T}}+1, {RANGE}
  Y(i,j) = U({{T}},i,j) where {RANGE}
  Z(i,j) = V({{T}},i,j) where {RANGE}
}}}}
"""


def neighbours(a: np.ndarray) -> np.ndarray:
    """The sum of the four neighbours of every inner element."""
    return a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]


def run_jacobi(steps: int, X: np.ndarray) -> np.ndarray:
    a = X
    for _ in range(steps):
        b = a.copy()
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + neighbours(a))
        a = b
    return a


def run_wave(steps: int, P: np.ndarray, Q: np.ndarray) -> np.ndarray:
    before, now = P, Q
    for _ in range(steps):
        inner = now[1:-1, 1:-1]
        after = now.copy()
        after[1:-1, 1:-1] = 2 * inner - before[1:-1, 1:-1] + 0.1 * (neighbours(now) - 4 * inner)
        before, now = now, after
    return now


def run_gray_scott(steps: int, P: np.ndarray, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    u, v = P, Q
    for _ in range(steps):
        a, b = u[1:-1, 1:-1], v[1:-1, 1:-1]
        u1, v1 = u.copy(), v.copy()
        u1[1:-1, 1:-1] = a - a * b * b + 0.04 * (1 - a) + 0.16 * (neighbours(u) - 4 * a)
        v1[1:-1, 1:-1] = b + a * b * b - 0.1 * b + 0.08 * (neighbours(v) - 4 * b)
        u, v = u1, v1
    return u, v


def run_numba(name: str, steps: int) -> Peer:
    """Loops in numba, with temporaries that are made at the first call and stay."""
    made: list[np.ndarray] = []

    def peer(numba: Any, out: Any, **inputs: Any) -> Any:
        from benchmarks import numba_recurrences as loops  # needs numba

        given = list(inputs.values())
        if not made:
            made.extend(np.zeros_like(given[0]) for _ in range(loops.SCRATCH[name]))
        if out is None:
            out = tuple(np.empty_like(given[0]) for _ in range(loops.RESULTS[name]))
        results = out if isinstance(out, tuple) else (out,)
        getattr(loops, name)(steps, *given, *results, *made)
        return results if len(results) > 1 else results[0]

    return peer


KERNELS: dict[str, tuple[str, Callable[..., Any], tuple[str, ...], int, float]] = {
    "jacobi": (JACOBI, run_jacobi, ("X",), 1, 5.0),
    "wave": (WAVE, run_wave, ("P", "Q"), 1, 9.0),
    "gray_scott": (GRAY_SCOTT, run_gray_scott, ("P", "Q"), 2, 25.0),
}
"""By name: text, reference, inputs, number of results, operations per element and step."""


def text_for_any_count(name: str) -> str:
    """The text with the number of steps as an argument ``T`` behind the inputs."""
    return KERNELS[name][0].format(T="T", count=", int64 T")


SIZES, STEPS = (512, 1500, 4096), (1, 5)


def make_workload(name: str, n: int, steps: int) -> Workload:
    """``recurrence_<name>_<n>_<steps>``: so many steps of a square grid."""
    text, reference, inputs, results, flops = KERNELS[name]

    def make_inputs(rng: np.random.Generator) -> Arrays:
        return {x: 0.5 + 0.1 * normal(rng, n, n) for x in inputs}

    return Workload(
        f"recurrence_{name}_{n}_{steps}",
        f"{name.replace('_', ' ')} on {n}×{n}, steps: {steps}",
        "tc",
        text.format(T=steps, count=""),
        make_inputs,
        lambda **arrays: reference(steps, **arrays),
        flops * steps * n * n,
        nbytes((n, n)) * len(inputs),
        nbytes((n, n)) * results,
        {"numpy": lambda module, out, **arrays: reference(steps, **arrays), "numba": run_numba(name, steps)},
    )


WORKLOADS = tuple(make_workload(name, n, steps) for name in KERNELS for n in SIZES for steps in STEPS)
GROUPS = {"recurrences": tuple(w.name for w in WORKLOADS)}
