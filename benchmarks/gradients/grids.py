"""Sums along rows, filters, and the adjoint of a wave equation."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.gradients.gradient import Row
from benchmarks.workload import example, normal

STEPS, GRID, IMAGE = 100, 512, 2048

INSIDE = "i >= 1 && i < N - 1 && j >= 1 && j < M - 1"
RANGE = "i in 0:N, j in 0:M"
WAVE = f"""
def wave(float(N, M) P, float(N, M) Q) -> (Y) {{
  U(0, i, j) = P(i, j) where {RANGE}
  U(1, i, j) = Q(i, j) where {RANGE}
  U(t, i, j) = {INSIDE} ? 2.0 * U(t-1, i, j) - U(t-2, i, j)
      + 0.1 * (U(t-1, i-1, j) + U(t-1, i+1, j) + U(t-1, i, j-1) + U(t-1, i, j+1) - 4.0 * U(t-1, i, j)) : U(t-1, i, j)
    where t in 2:{STEPS}+2, {RANGE}
  Y(i, j) = U({STEPS}+1, i, j) where {RANGE}
}}
"""

BLUR = """
def blur(float(H, W) X) -> (Y) {
  R(h, w) = (X(h, w) + X(h, w + 1) + X(h, w + 2)) / 3.0
  Y(h, w) = (R(h, w) + R(h + 1, w) + R(h + 2, w)) / 3.0
}
"""


def exact_cumsum(X: Any, d_S: Any) -> Any:
    return np.cumsum(d_S[:, ::-1], 1)[:, ::-1]


def exact_wave(P: Any, Q: Any, d_Y: Any) -> Any:
    """The steps are linear, and so is what goes back through them; elements at the border are only copied."""
    d_before, d_now = np.zeros_like(P), d_Y
    for _ in range(STEPS):
        inner = np.zeros_like(d_now)
        inner[1:-1, 1:-1] = d_now[1:-1, 1:-1]
        edge = d_now - inner
        around = np.zeros_like(inner)
        around[1:, :] += inner[:-1, :]
        around[:-1, :] += inner[1:, :]
        around[:, 1:] += inner[:, :-1]
        around[:, :-1] += inner[:, 1:]
        d_before, d_now = -inner, edge + 2 * inner + 0.1 * (around - 4 * inner) + d_before
    return d_before, d_now


def exact_blur(X: Any, d_Y: Any) -> Any:
    d_r = np.zeros((X.shape[0], d_Y.shape[1]))
    d_x = np.zeros_like(X)
    for k in range(3):
        d_r[k : k + len(d_Y)] += d_Y / 3
    for k in range(3):
        d_x[:, k : k + d_Y.shape[1]] += d_r / 3
    return d_x


def neighbours(a: Any) -> Any:
    """The sum of the four neighbours of every inner element."""
    return a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]


def wave_step(pad: Any, before: Any, now: Any) -> Any:
    inner = now[1:-1, 1:-1]
    return now + pad(inner - before[1:-1, 1:-1] + 0.1 * (neighbours(now) - 4 * inner))


def torch_wave(torch: Any, P: Any, Q: Any) -> Any:
    before, now = P, Q
    for _ in range(STEPS):
        before, now = now, wave_step(lambda a: torch.nn.functional.pad(a, (1, 1, 1, 1)), before, now)
    return now


def jax_wave(jax: Any, P: Any, Q: Any) -> Any:
    def step(state: Any, _: Any) -> Any:
        before, now = state
        return (now, wave_step(lambda a: jax.numpy.pad(a, 1), before, now)), None

    return jax.lax.scan(step, (P, Q), None, STEPS)[0][1]


def blur(_: Any, X: Any) -> Any:
    """The same lines in PyTorch and JAX."""
    r = (X[:, :-2] + X[:, 1:-1] + X[:, 2:]) / 3
    return (r[:-2] + r[1:-1] + r[2:]) / 3


ROWS = (
    Row(
        "cumsum",
        "running sums of the rows of 4096×1024",
        example("prefix_sum"),
        lambda rng: {"X": normal(rng, 4096, 1024)},
        {"S": (4096, 1024)},
        ("X",),
        lambda torch, X: torch.cumsum(X, 1),
        lambda jax, X: jax.numpy.cumsum(X, 1),
        exact_cumsum,
        4096.0 * 1024,
        tolerance=2e-4,
    ),
    Row(
        "wave",
        f"a wave equation on {GRID}×{GRID}, {STEPS} steps, by both initial states",
        WAVE,
        lambda rng: {"P": normal(rng, GRID, GRID), "Q": normal(rng, GRID, GRID)},
        {"Y": (GRID, GRID)},
        ("P", "Q"),
        torch_wave,
        jax_wave,
        exact_wave,
        9.0 * STEPS * GRID * GRID,
        is_compiled=False,
        tolerance=2e-4,
    ),
    Row(
        "blur",
        f"a 3×3 blur of {IMAGE}×{IMAGE}, in two sweeps",
        BLUR,
        lambda rng: {"X": normal(rng, IMAGE, IMAGE)},
        {"Y": (IMAGE - 2, IMAGE - 2)},
        ("X",),
        blur,
        blur,
        exact_blur,
        6.0 * IMAGE * IMAGE,
    ),
)
