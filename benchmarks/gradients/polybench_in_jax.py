"""PolyBench's kernels in JAX, as they are written there to be differentiated: whole arrays at a time where they can be, and
`fori_loop` and `scan` over what depends on the step before.  Each takes `jax` and the kernel's inputs by name.

A loop of JAX keeps what it carries at every step for the way back, so that what is carried is as little as can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.polybench import KERNELS

AS_IN_NUMPY = ("2mm", "3mm", "atax", "bicg", "covariance", "doitgen", "gemm", "gesummv", "mvt")
"""Kernels whose reference has operators only, which arrays of JAX have as well."""


# -- products


def correlation(jax: Any, D: Any) -> Any:
    jnp = jax.numpy
    dev = jnp.std(D, 0)
    X = (D - D.mean(0)) / (jnp.sqrt(1.0 * len(D)) * jnp.where(dev <= 0.1, 1.0, dev))
    return jnp.fill_diagonal(X.T @ X, 1.0, inplace=False)


def gemver(jax: Any, alpha: Any, beta: Any, A: Any, u1: Any, v1: Any, u2: Any, v2: Any, y: Any, z: Any) -> Any:
    B = A + jax.numpy.outer(u1, v1) + jax.numpy.outer(u2, v2)
    return alpha * (B @ (beta * (y @ B) + z))


def symm(jax: Any, alpha: Any, beta: Any, C: Any, A: Any, B: Any) -> Any:
    jnp = jax.numpy
    return alpha * ((jnp.tril(A) + jnp.tril(A, -1).T) @ B) + beta * C


def syr2k(jax: Any, alpha: Any, beta: Any, C: Any, A: Any, B: Any) -> Any:
    jnp = jax.numpy
    return jnp.where(jnp.tri(len(C), dtype=bool), alpha * (A @ B.T + B @ A.T) + beta * C, C)


def syrk(jax: Any, alpha: Any, beta: Any, C: Any, A: Any) -> Any:
    jnp = jax.numpy
    return jnp.where(jnp.tri(len(C), dtype=bool), alpha * (A @ A.T) + beta * C, C)


def trmm(jax: Any, alpha: Any, A: Any, B: Any) -> Any:
    return alpha * (B + jax.numpy.tril(A, -1).T @ B)


# -- factorisations, solvers, and dynamic programming


def cholesky(jax: Any, A: Any) -> Any:
    """Column by column."""
    jnp, at = jax.numpy, jax.numpy.arange(len(A))

    def column(j: Any, L: Any) -> Any:
        left = A[:, j] - L @ L[j]
        return L.at[:, j].set(jnp.where(at < j, 0.0, left / jnp.sqrt(left[j])))

    return jax.lax.fori_loop(0, len(A), column, jnp.zeros_like(A))


def durbin(jax: Any, r: Any) -> Any:
    jnp, at = jax.numpy, jax.numpy.arange(len(r))
    backwards = r[::-1]

    def step(k: Any, state: Any) -> Any:
        y, alpha, beta = state
        beta = (1 - alpha * alpha) * beta
        products = jnp.where(at < k, jnp.roll(backwards, k) * y, 0.0)
        alpha = -(r[k] + products.sum()) / beta
        moved = y + alpha * jnp.roll(y[::-1], k)
        return jnp.where(at < k, moved, jnp.where(at == k, alpha, y)), alpha, beta

    first = jnp.zeros_like(r).at[0].set(-r[0]), -r[0], jnp.ones_like(r[0])
    return jax.lax.fori_loop(1, len(r), step, first)[0]


def lu(jax: Any, A: Any) -> Any:
    jnp, at = jax.numpy, jax.numpy.arange(len(A))

    def eliminate(k: Any, F: Any) -> Any:
        column = jnp.where(at > k, F[:, k] / F[k, k], 0.0)
        row = jnp.where(at > k, F[k], 0.0)
        return (F - jnp.outer(column, row)).at[:, k].set(jnp.where(at > k, column, F[:, k]))

    return jax.lax.fori_loop(0, len(A), eliminate, A)


def ludcmp(jax: Any, A: Any, b: Any) -> Any:
    jnp, n = jax.numpy, len(A)
    at, F = jnp.arange(n), lu(jax, A)

    def forward(i: Any, y: Any) -> Any:
        return y.at[i].set(b[i] - F[i] @ y)

    y = jax.lax.fori_loop(0, n, forward, jnp.zeros_like(b))

    def back(k: Any, x: Any) -> Any:
        i = n - 1 - k
        return x.at[i].set((y[i] - jnp.where(at > i, F[i], 0.0) @ x) / F[i, i])

    return jax.lax.fori_loop(0, n, back, jnp.zeros_like(b))


def trisolv(jax: Any, L: Any, b: Any) -> Any:
    def solve(i: Any, x: Any) -> Any:
        return x.at[i].set((b[i] - L[i] @ x) / L[i, i])

    return jax.lax.fori_loop(0, len(b), solve, jax.numpy.zeros_like(b))


def gramschmidt(jax: Any, A: Any) -> Any:
    jnp, at = jax.numpy, jax.numpy.arange(A.shape[1])

    def step(V: Any, k: Any) -> Any:
        length = jnp.sqrt(V[:, k] @ V[:, k])
        q = V[:, k] / length
        p = jnp.where(at > k, q @ V, 0.0)
        return V - jnp.outer(q, p), (q, jnp.where(at == k, length, p))

    _, (Q, R) = jax.lax.scan(step, A, at)
    return Q.T, R


def floyd_warshall(jax: Any, A: Any) -> Any:
    def step(k: Any, D: Any) -> Any:
        return jax.numpy.minimum(D, D[:, k][:, None] + D[k])

    return jax.lax.fori_loop(0, len(A), step, A)


# -- grids


def adi(jax: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, X: Any, steps: Any) -> Any:
    """The factors of the sweeps once, then sweep by sweep, all rows or columns at a time."""
    jnp, scan, n = jax.numpy, jax.lax.scan, len(X)

    def factors(low: Any, middle: Any, high: Any) -> Any:
        """p of ``p[j] = -high / (low p[j-1] + middle)`` for j in 1:n-1, and the divisors."""

        def step(p: Any, _: Any) -> Any:
            below = low * p + middle
            return -high / below, (-high / below, below)

        return scan(step, jnp.zeros_like(low), None, n - 2)[1]

    def sweep(low: Any, factor: Any, rows: Any) -> Any:
        """There and back; between rows of ones."""
        p, below = factor

        def there(q: Any, given: Any) -> Any:
            row, divisor = given
            q = (row - low * q) / divisor
            return q, q

        ones = jnp.ones_like(rows[0])
        q = scan(there, ones, (rows, below))[1]

        def back(v: Any, given: Any) -> Any:
            v = given[0] * v + given[1]
            return v, v

        return jnp.vstack((ones, scan(back, ones, (p, q), reverse=True)[1], ones))

    columns, rows = factors(a, b, c), factors(d, e, f)

    def step(_: Any, U: Any) -> Any:
        inner = U[1:-1]
        V = sweep(a, columns, -d * inner[:, :-2] + (1 + 2 * d) * inner[:, 1:-1] - f * inner[:, 2:]).T
        W = sweep(d, rows, -a * V[:, :-2] + (1 + 2 * a) * V[:, 1:-1] - c * V[:, 2:])
        return U.at[1:-1].set(W.T)

    return jax.lax.fori_loop(0, len(steps), step, X)


def deriche(
    jax: Any,
    a1: Any,
    a2: Any,
    a3: Any,
    a4: Any,
    a5: Any,
    a6: Any,
    a7: Any,
    a8: Any,
    b1: Any,
    b2: Any,
    X: Any,
) -> Any:
    def both_ways(X: Any, a1: Any, a2: Any, a3: Any, a4: Any) -> Any:
        zero = jax.numpy.zeros_like(X[0])

        def down(state: Any, x: Any) -> Any:
            above, p1, p2 = state
            p = a1 * x + a2 * above + b1 * p1 + b2 * p2
            return (x, p, p1), p

        def up(state: Any, x: Any) -> Any:
            x1, x2, q1, q2 = state
            q = a3 * x1 + a4 * x2 + b1 * q1 + b2 * q2
            return (x, x1, q, q1), q

        p = jax.lax.scan(down, (zero,) * 3, X)[1]
        return p + jax.lax.scan(up, (zero,) * 4, X, reverse=True)[1]

    return both_ways(both_ways(X.T, a1, a2, a3, a4).T, a5, a6, a7, a8)


def fdtd_2d(jax: Any, ex: Any, ey: Any, hz: Any, source: Any) -> Any:
    def step(state: Any, strength: Any) -> Any:
        ex, ey, hz = state
        ey = ey.at[1:].add(-0.5 * (hz[1:] - hz[:-1])).at[0].set(strength)
        ex = ex.at[:, 1:].add(-0.5 * (hz[:, 1:] - hz[:, :-1]))
        hz = hz.at[:-1, :-1].add(-0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]))
        return (ex, ey, hz), None

    return jax.lax.scan(step, (ex, ey, hz), source)[0]


def heat_3d(jax: Any, X: Any, steps: Any) -> Any:
    inner = slice(1, -1)

    def step(_: Any, a: Any) -> Any:
        m = a[inner, inner, inner]
        moved = (
            0.125 * (a[2:, inner, inner] - 2 * m + a[:-2, inner, inner])
            + 0.125 * (a[inner, 2:, inner] - 2 * m + a[inner, :-2, inner])
            + 0.125 * (a[inner, inner, 2:] - 2 * m + a[inner, inner, :-2])
        )
        return a.at[inner, inner, inner].set(moved + m)

    return jax.lax.fori_loop(0, 2 * len(steps), step, X)


def jacobi_1d(jax: Any, X: Any, steps: Any) -> Any:
    def step(_: Any, a: Any) -> Any:
        return a.at[1:-1].set(0.33333 * (a[:-2] + a[1:-1] + a[2:]))

    return jax.lax.fori_loop(0, 2 * len(steps), step, X)


def jacobi_2d(jax: Any, X: Any, steps: Any) -> Any:
    def step(_: Any, a: Any) -> Any:
        means = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        return a.at[1:-1, 1:-1].set(means)

    return jax.lax.fori_loop(0, 2 * len(steps), step, X)


def seidel_2d(jax: Any, X: Any, steps: Any) -> Any:
    """Row by row: what rows above, below and to the right give, and then along the row, which is a recurrence."""

    def row(above: Any, given: Any) -> Any:
        now, below = given
        others = above[:-2] + above[1:-1] + above[2:] + now[1:-1] + now[2:] + below[:-2] + below[1:-1] + below[2:]

        def along(left: Any, sum_of_others: Any) -> Any:
            left = (left + sum_of_others) / 9.0
            return left, left

        inner = jax.lax.scan(along, now[0], others)[1]
        made = now.at[1:-1].set(inner)
        return made, made

    def step(_: Any, a: Any) -> Any:
        return a.at[1:-1].set(jax.lax.scan(row, a[0], (a[1:-1], a[2:]))[1])

    return jax.lax.fori_loop(0, len(steps), step, X)


_WRITTEN = (
    adi,
    cholesky,
    correlation,
    deriche,
    durbin,
    fdtd_2d,
    floyd_warshall,
    gemver,
    gramschmidt,
    heat_3d,
    jacobi_1d,
    jacobi_2d,
    lu,
    ludcmp,
    seidel_2d,
    symm,
    syr2k,
    syrk,
    trisolv,
    trmm,
)


def _as_in_numpy(reference: Callable[..., Any]) -> Callable[..., Any]:
    return lambda jax, **inputs: reference(**inputs)


FORWARD: Mapping[str, Callable[..., Any]] = {n: _as_in_numpy(KERNELS[n].reference) for n in AS_IN_NUMPY} | {
    f.__name__.replace("_", "-"): f for f in _WRITTEN
}
"""``FORWARD[kernel](jax, **inputs)``: its results.  There is none of nussinov, which has integers only."""
