"""Neighbourhood computations: one Jacobi sweep, unsharp mask of a photograph."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Workload, example, nbytes, normal


def numpy_jacobi(np: Any, out: Any, A: Any) -> Any:
    b = np.add(A[1:-1, 1:-1], A[:-2, 1:-1], out=out)
    b += A[2:, 1:-1]
    b += A[1:-1, :-2]
    b += A[1:-1, 2:]
    b *= np.float32(0.2)
    return b


def torch_jacobi(torch: Any, out: Any, A: Any) -> Any:
    b = torch.add(A[1:-1, 1:-1], A[:-2, 1:-1], out=out)
    b += A[2:, 1:-1]
    b += A[1:-1, :-2]
    b += A[1:-1, 2:]
    b *= 0.2
    return b


def exact_jacobi(A: np.ndarray) -> np.ndarray:
    return 0.2 * (A[1:-1, 1:-1] + A[:-2, 1:-1] + A[2:, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:])


def blur(X: Any) -> Any:
    """Five-tap binomial blur along x, then y, in the type of `X`."""
    n = X.shape[2] - 4
    r = (X[:, :, :n] + 4 * X[:, :, 1 : n + 1] + 6 * X[:, :, 2 : n + 2] + 4 * X[:, :, 3 : n + 3] + X[:, :, 4:]) * 0.0625
    m = X.shape[1] - 4
    return (r[:, :m] + 4 * r[:, 1 : m + 1] + 6 * r[:, 2 : m + 2] + 4 * r[:, 3 : m + 3] + r[:, 4:]) * 0.0625


def unsharp(module: Any, out: Any, X: Any) -> Any:
    """The same lines in NumPy and PyTorch."""
    return module.clip(4 * X[:, 2:-2, 2:-2] - 3 * blur(X), 0, 1, out=out)


WORKLOADS = (
    Workload(
        "jacobi",
        "one five-point sweep over 4096×4096",
        "tc",
        example("jacobi"),
        lambda rng: {"A": normal(rng, 4096, 4096)},
        exact_jacobi,
        5.0 * 4094 * 4094,
        nbytes((4096, 4096)),
        nbytes((4094, 4094)),
        {"numpy": numpy_jacobi, "torch": torch_jacobi},
    ),
    Workload(
        "unsharp",
        "unsharp mask of a 4000×3000 picture, three planes",
        "tc",
        example("unsharp"),
        lambda rng: {"X": rng.random((3, 3004, 4004), dtype=np.float32)},
        lambda X: unsharp(np, None, X),
        18.0 * 3 * 3000 * 4000,
        nbytes((3, 3004, 4004)),
        nbytes((3, 3000, 4000)),
        {"numpy": unsharp, "torch": unsharp},
    ),
)
