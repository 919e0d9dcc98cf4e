"""Iterations until they are good enough, one operator each: conjugate gradients, power iteration, k-means, Newton's method.

The number of steps is a result, so that every side has to take as many as the loop in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Results, Workload, call_loops

CONJUGATE_GRADIENTS = """def conjugate_gradients({matrix}, double(N) b, int64 T, double eps) -> (y, n) {{
  x(0, i) = 0.0 * b(i)
  r(0, i) = b(i)
  p(0, i) = b(i)
  done(0) = rr(0) < eps
  rr(t) +=! r(t, i) * r(t, i) where t in 0:T
  {product}
  pq(t) +=! p(t, i) * q(t, i) where t in 0:T
  x(t, i) = done(t-1) ? x(t-1, i) : x(t-1, i) + rr(t-1) / pq(t-1) * p(t-1, i) where t in 1:T
  r(t, i) = done(t-1) ? r(t-1, i) : r(t-1, i) - rr(t-1) / pq(t-1) * q(t-1, i) where t in 1:T
  p(t, i) = done(t-1) ? p(t-1, i) : r(t, i) + rr(t) / rr(t-1) * p(t-1, i) where t in 1:T
  done(t) = done(t-1) || rr(t) < eps where t in 1:T
  y(i) = x(T-1, i)
  n +=! done(t) ? 0 : 1 where t in 0:T-1
}}"""
DENSE_GRADIENTS = CONJUGATE_GRADIENTS.format(matrix="double(N, N) A", product="q(t, i) +=! A(i, j) * p(t, j) where t in 0:T")
SPARSE_GRADIENTS = CONJUGATE_GRADIENTS.format(
    matrix="double(Z) v, int32(Z) c, int32(P) ptr",
    product="q(t, i) +=! v(k) * p(t, c(k)) where t in 0:T, i in 0:N, k in ptr(i):ptr(i+1)",
)

POWER = """def power(double(N, N) A, double(N) b, int64 T, double eps) -> (y, l, n) {
  v(0, i) = b(i)
  done(0) = bool(0)
  w(t, i) +=! A(i, j) * v(t, j) where t in 0:T
  m(t) max=! fabs(w(t, i)) where t in 0:T
  e(t) max=! fabs(w(t, i) / m(t) - v(t, i)) where t in 0:T
  done(t) = done(t-1) || e(t-1) < eps where t in 1:T
  v(t, i) = done(t) ? v(t-1, i) : w(t-1, i) / m(t-1) where t in 1:T
  g(0) = double(0)
  g(t) = done(t) ? g(t-1) : m(t-1) where t in 1:T
  n +=! done(t) ? 0 : 1 where t in 1:T
  y(i) = v(T-1, i)
  l = g(T-1)
}"""

MEANS = """def means(double(N, D) X, double(K, D) start, int64 T) -> (y, a, n) {
  C(0, k, d) = start(k, d)
  done(0) = bool(0)
  dist(t, i, k) +=! (X(i, d) - C(t, k, d)) * (X(i, d) - C(t, k, d)) where t in 0:T, i in 0:N, k in 0:K
  A(t, i) argmin=! dist(t, i, k) where t in 0:T
  moved(t) +=! A(t, i) == A(t-1, i) ? 0 : 1 where t in 1:T
  size(t, k) +=! A(t, i) == k ? 1.0 : 0.0 where t in 0:T-1, k in 0:K, i in 0:N
  S(t, k, d) +=! A(t, i) == k ? X(i, d) : double(0) where t in 0:T-1, k in 0:K, i in 0:N, d in 0:D
  C(t, k, d) = done(t-1) || size(t-1, k) == 0.0 ? C(t-1, k, d) : S(t-1, k, d) / size(t-1, k) where t in 1:T
  B(0, i) = A(0, i)
  B(t, i) = done(t-1) ? B(t-1, i) : A(t, i) where t in 1:T
  done(t) = done(t-1) || moved(t) == 0 where t in 1:T
  n +=! done(t) ? 0 : 1 where t in 1:T
  y(k, d) = C(T-1, k, d)
  a(i) = B(T-1, i)
}"""

NEWTON = """def newton(double(N, N) A, double(N) b, int64 T, double eps) -> (y, n) {
  x(0, i) = b(i)
  done(0) = bool(0)
  f(t, i) +=! A(i, j) * x(t, j) where t in 0:T
  g(t, i) = f(t, i) + x(t, i) * x(t, i) * x(t, i) - b(i) where t in 0:T
  e(t) max=! fabs(g(t, i)) where t in 0:T
  B(t, 0, i, j) = i == j ? A(i, j) + 3.0 * x(t, i) * x(t, i) : A(i, j) where t in 0:T, i in 0:N, j in 0:N
  c(t, 0, i) = g(t, i) where t in 0:T
  B(t, k+1, i, j) = B(t, k, i, j) - B(t, k, i, k) / B(t, k, k, k) * B(t, k, k, j)
    where i > k, j > k, t in 0:T, k in 0:N, i in 0:N, j in 0:N
  c(t, k+1, i) = c(t, k, i) - B(t, k, i, k) / B(t, k, k, k) * c(t, k, k) where i > k, t in 0:T, k in 0:N, i in 0:N
  z(t, i) +=! B(t, i, i, j) * s(t, j) where j > i, t in 0:T, i in 0:N, j in 0:N
  s(t, i) = (c(t, i, i) - z(t, i)) / B(t, i, i, i) where t in 0:T, i in 0:N
  done(t) = done(t-1) || e(t-1) < eps where t in 1:T
  x(t, i) = done(t) ? x(t-1, i) : x(t-1, i) - s(t-1, i) where t in 1:T
  n +=! done(t) ? 0 : 1 where t in 1:T
  y(i) = x(T-1, i)
}"""
"""Each step eliminates, and substitutes backwards."""


def iterate_gradients(multiply: Callable[[np.ndarray], np.ndarray], b: np.ndarray, limit: int, eps: float) -> tuple[Any, ...]:
    x, r, p = 0 * b, b, b
    for step in range(limit - 1):
        if r @ r < eps:
            return x, np.int32(step)
        q = multiply(p)
        alpha = r @ r / (p @ q)
        x, new = x + alpha * p, r - alpha * q
        r, p = new, new + new @ new / (r @ r) * p
    return x, np.int32(limit - 1)


def solve_dense(A: np.ndarray, b: np.ndarray, T: int, eps: float) -> tuple[Any, ...]:
    return iterate_gradients(lambda p: A @ p, b, T, eps)


def solve_sparse(v: np.ndarray, c: np.ndarray, ptr: np.ndarray, b: np.ndarray, T: int, eps: float) -> tuple[Any, ...]:
    return iterate_gradients(lambda p: np.add.reduceat(v * p[c], ptr[:-1]), b, T, eps)


def find_eigenvector(A: np.ndarray, b: np.ndarray, T: int, eps: float) -> tuple[Any, ...]:
    v, largest = b, 0.0
    for step in range(T - 1):
        w = A @ v
        if np.abs(w / np.abs(w).max() - v).max() < eps:
            return v, largest, np.int32(step)
        largest = np.abs(w).max()
        v = w / largest
    return v, largest, np.int32(T - 1)


def find_means(X: np.ndarray, start: np.ndarray, T: int) -> tuple[Any, ...]:
    def nearest() -> np.ndarray:
        return np.stack([((X - c) ** 2).sum(-1) for c in centres], axis=1).argmin(axis=1)

    centres = start.copy()
    a = nearest()
    for step in range(T - 1):
        for k in set(a):
            centres[k] = X[a == k].mean(0)
        before, a = a, nearest()
        if (a == before).all():
            return centres, a, np.int32(step)
    return centres, a, np.int32(T - 1)


def find_root(A: np.ndarray, b: np.ndarray, T: int, eps: float) -> tuple[Any, ...]:
    x = b
    for step in range(T - 1):
        g = A @ x + x**3 - b
        if np.abs(g).max() < eps:
            return x, np.int32(step)
        x = x - np.linalg.solve(A + np.diag(3 * x * x), g)
    return x, np.int32(T - 1)


def numbers(limit: int, eps: float) -> Arrays:
    return {"T": np.array(limit), "eps": np.array(eps)}


def make_positive(rng: np.random.Generator, n: int, limit: int) -> Arrays:
    """A symmetric positive definite matrix, of which conjugate gradients need about a hundred steps."""
    factor = rng.standard_normal((n, n))
    return {"A": factor @ factor.T / n + 0.01 * np.eye(n), "b": rng.standard_normal(n)} | numbers(limit, 1e-8)


def make_poisson(rng: np.random.Generator, side: int, limit: int) -> Arrays:
    """The five-point stencil on a grid of `side` × `side`, with columns in order."""
    place = np.arange(side * side).reshape(side, side)
    entries = [(place, place, 4.0)]
    for a, b in ((place[1:], place[:-1]), (place[:, 1:], place[:, :-1])):
        entries += [(a, b, -1.0), (b, a, -1.0)]
    row, column = (np.concatenate([entry[side].ravel() for entry in entries]) for side in (0, 1))
    value = np.concatenate([np.full(r.size, v) for r, _, v in entries])
    order = np.lexsort((column, row))
    ptr = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=side * side))))
    matrix = {"v": value[order], "c": column[order].astype(np.int32), "ptr": ptr.astype(np.int32)}
    return matrix | {"b": rng.standard_normal(side * side)} | numbers(limit, 1e-8)


def make_dominant(rng: np.random.Generator, n: int, limit: int) -> Arrays:
    """A symmetric matrix whose largest eigenvalue is 1 and the next one 0.9."""
    basis, _ = np.linalg.qr(rng.standard_normal((n, n)))
    values = np.linspace(0.1, 0.9, n)
    values[0] = 1.0
    return {"A": basis * values @ basis.T, "b": rng.standard_normal(n)} | numbers(limit, 1e-10)


def make_points(rng: np.random.Generator, n: int, d: int, k: int, limit: int) -> Arrays:
    X = rng.random((n, d))
    return {"X": X, "start": X[:k].copy(), "T": np.array(limit)}


def make_equations(rng: np.random.Generator, n: int, limit: int) -> Arrays:
    """Diagonally dominant, so that elimination needs no pivots."""
    return {"A": rng.random((n, n)) + n * np.eye(n), "b": n * rng.random(n)} | numbers(limit, 1e-9)


@dataclass(frozen=True, slots=True)
class Solver:
    """`loops`: the function of `benchmarks.numba_solvers`; `sizes`: arguments of `make` by the name's last part."""

    what: str
    source: str
    solve: Callable[..., Results]
    loops: str
    make: Callable[..., Arrays]
    sizes: Mapping[str, tuple[int, ...]]


SOLVERS: Mapping[str, Solver] = {
    "gradients": Solver(
        "conjugate gradients",
        DENSE_GRADIENTS,
        solve_dense,
        "solve_dense",
        make_positive,
        {"200": (200, 400), "1000": (1000, 400)},
    ),
    "poisson": Solver(
        "conjugate gradients with a five-point stencil in CSR",
        SPARSE_GRADIENTS,
        solve_sparse,
        "solve_sparse",
        make_poisson,
        {"900": (30, 1000), "40000": (200, 2000)},
    ),
    "power": Solver(
        "power iteration",
        POWER,
        find_eigenvector,
        "find_eigenvector",
        make_dominant,
        {"200": (200, 400), "1000": (1000, 400)},
    ),
    "means": Solver(
        "k-means",
        MEANS,
        find_means,
        "find_means",
        make_points,
        {"2d": (10000, 2, 8, 200), "8d": (10000, 8, 12, 200), "32d": (5000, 32, 16, 200)},
    ),
    "newton": Solver(
        "Newton's method with elimination",
        NEWTON,
        find_root,
        "find_root",
        make_equations,
        {"20": (20, 50), "100": (100, 50), "300": (300, 50)},
    ),
}


def make_workload(name: str, size: str) -> Workload:
    """``solver_<name>_<size>``, which says nothing about flops and bytes: data decides the number of steps."""
    solver = SOLVERS[name]

    def make_results(inputs: Arrays) -> list[np.ndarray]:
        return [np.empty_like(np.asarray(r)) for r in solver.solve(**inputs)]

    return Workload(
        f"solver_{name}_{size}",
        f"{solver.what}, {size}",
        "tc",
        solver.source,
        lambda rng: solver.make(rng, *solver.sizes[size]),
        solver.solve,
        0.0,
        0.0,
        0.0,
        {
            "numpy": lambda module, out, **arrays: solver.solve(**arrays),
            "numba": call_loops(f"benchmarks.numba_solvers.{solver.loops}", {}, make_results),
        },
        tolerance=1e-7,
        dtype="float64",
    )


WORKLOADS = tuple(make_workload(name, size) for name, solver in SOLVERS.items() for size in solver.sizes)
GROUPS = {"solvers": tuple(w.name for w in WORKLOADS)}
