"""Programs whose elements are computed one by one."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.program import Program, text

LOOPS = "benchmarks.npbench.numba_elements"


def arc_distance(theta_1, phi_1, theta_2, phi_2):
    half = np.sin((theta_2 - theta_1) / 2) ** 2 + np.cos(theta_1) * np.cos(theta_2) * np.sin((phi_2 - phi_1) / 2) ** 2
    return 2 * np.arctan2(np.sqrt(half), np.sqrt(1 - half))


PROGRAMS = (
    Program(
        "arc_distance",
        "distances of pairs of points on a sphere",
        text("arc_distance"),
        {"N": (37, 100_000, 1_000_000)},
        lambda rng, N: {name: rng.random(N) for name in ("theta_1", "phi_1", "theta_2", "phi_2")},
        arc_distance,
        f"{LOOPS}.arc_distance",
    ),
    Program(
        "compute",
        "an expression over two matrices of int64",
        text("compute"),
        {"M": (9, 2000, 5000), "N": (11, 2000, 5000)},
        lambda rng, M, N: (
            {name: rng.integers(0, 1000, (M, N)) for name in ("array_1", "array_2")}
            | {name: np.array(value) for name, value in (("a", 4), ("b", 3), ("c", 9))}
        ),
        lambda array_1, array_2, a, b, c: np.clip(array_1, 2, 10) * a + array_2 * b + c,
        f"{LOOPS}.compute",
    ),
    Program(
        "go_fast",
        "the sum of hyperbolic tangents of a diagonal, added to a matrix",
        text("go_fast"),
        {"N": (13, 2000, 6000)},
        lambda rng, N: {"a": rng.random((N, N))},
        lambda a: a + np.tanh(np.diagonal(a)).sum(),
        f"{LOOPS}.go_fast",
    ),
)
