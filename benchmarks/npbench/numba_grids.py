"""Flows and stencils in numba, as in `benchmarks.polybench.numba_loops`: imported where numba is.

Grids of two steps take turns; columns at the ends of the ring are computed apart, so that inner loops go along memory.
"""

from __future__ import annotations

from numba import prange

from benchmarks.polybench.numba_loops import inline, parallel

SCRATCH = {
    "cavity_flow": lambda ny, nx, **_: ((ny, nx),) * 4,
    "channel_flow": lambda ny, nx, **_: ((ny, nx),) * 4,
    "hdiff": lambda I, J, K: ((I + 2, J + 2, K),),
}


@inline
def find_divergence(u, v, j, w, i, e, dt, dx, dy, rho):
    """At row `j` and column `i`, between columns `w` and `e`."""
    ux, uy = (u[j, e] - u[j, w]) / (2 * dx), (u[j + 1, i] - u[j - 1, i]) / (2 * dy)
    vx, vy = (v[j, e] - v[j, w]) / (2 * dx), (v[j + 1, i] - v[j - 1, i]) / (2 * dy)
    return rho * ((ux + vy) / dt - ux * ux - 2 * uy * vx - vy * vy)


@inline
def relax(p, b, j, w, i, e, fx, fy, fb):
    return (p[j, e] + p[j, w]) * fx + (p[j + 1, i] + p[j - 1, i]) * fy - fb * b[j, i]


@inline
def advance(a, u, v, j, w, i, e, dt, dx, dy, nu):
    """A component of the velocity after a step, but for the pressure's part."""
    m = a[j, i]
    return (
        m
        - u[j, i] * dt / dx * (m - a[j, w])
        - v[j, i] * dt / dy * (m - a[j - 1, i])
        + nu * dt / dx**2 * (a[j, e] - 2 * m + a[j, w])
        + nu * dt / dy**2 * (a[j + 1, i] - 2 * m + a[j - 1, i])
    )


@inline
def copy(a, b):
    for j in range(a.shape[0]):
        for i in range(a.shape[1]):
            b[j, i] = a[j, i]


@inline
def find_factors(dx, dy):
    below = 2 * (dx**2 + dy**2)
    return dy**2 / below, dx**2 / below, dx**2 * dy**2 / below


@parallel
def cavity_flow(u0, v0, p0, dt, dx, dy, rho, nu, nt, nit, u1, v1, p1, u2, v2, p2, b):
    ny, nx = u0.shape
    fx, fy, fb = find_factors(dx, dy)
    # The last step of each writes the results.
    u, v, u_next, v_next = (u1, v1, u2, v2) if nt % 2 == 0 else (u2, v2, u1, v1)
    p, p_next = (p1, p2) if nt * nit % 2 == 0 else (p2, p1)
    copy(u0, u)
    copy(v0, v)
    copy(p0, p)
    for _ in range(nt):
        for j in prange(1, ny - 1):
            for i in range(1, nx - 1):
                b[j, i] = find_divergence(u, v, j, i - 1, i, i + 1, dt, dx, dy, rho)
        for _ in range(nit):
            for j in prange(1, ny - 1):
                for i in range(1, nx - 1):
                    p_next[j, i] = relax(p, b, j, i - 1, i, i + 1, fx, fy, fb)
                p_next[j, 0] = p_next[j, 1]
                p_next[j, nx - 1] = p_next[j, nx - 2]
            for i in range(nx):
                p_next[0, i] = p_next[1, i]
                p_next[ny - 1, i] = 0.0
            p, p_next = p_next, p
        for j in prange(1, ny - 1):
            for i in range(1, nx - 1):
                slope_x = dt / (2 * rho * dx) * (p[j, i + 1] - p[j, i - 1])
                slope_y = dt / (2 * rho * dy) * (p[j + 1, i] - p[j - 1, i])
                u_next[j, i] = advance(u, u, v, j, i - 1, i, i + 1, dt, dx, dy, nu) - slope_x
                v_next[j, i] = advance(v, u, v, j, i - 1, i, i + 1, dt, dx, dy, nu) - slope_y
            u_next[j, 0] = u_next[j, nx - 1] = v_next[j, 0] = v_next[j, nx - 1] = 0.0
        for i in range(nx):
            u_next[0, i] = v_next[0, i] = v_next[ny - 1, i] = 0.0
            u_next[ny - 1, i] = 1.0
        u, u_next = u_next, u
        v, v_next = v_next, v


@inline
def advance_both(u, v, p, j, w, i, e, dt, dx, dy, rho, nu, F, u_next, v_next):
    slope_x = dt / (2 * rho * dx) * (p[j, e] - p[j, w])
    slope_y = dt / (2 * rho * dy) * (p[j + 1, i] - p[j - 1, i])
    u_next[j, i] = advance(u, u, v, j, w, i, e, dt, dx, dy, nu) - slope_x + F * dt
    v_next[j, i] = advance(v, u, v, j, w, i, e, dt, dx, dy, nu) - slope_y


@parallel
def channel_flow(u0, v0, p0, dt, dx, dy, rho, nu, F, nit, steps, u1, v1, p1, u2, v2, p2, b):
    ny, nx = u0.shape
    last = nx - 1
    fx, fy, fb = find_factors(dx, dy)
    u, v, p, u_next, v_next, p_next = u1, v1, p1, u2, v2, p2
    copy(u0, u)
    copy(v0, v)
    copy(p0, p)
    change, total = 1.0, 0.0
    for j in range(ny):
        for i in range(nx):
            total += u[j, i]
    while change > 0.001:
        for j in prange(1, ny - 1):
            b[j, 0] = find_divergence(u, v, j, last, 0, 1, dt, dx, dy, rho)
            for i in range(1, last):
                b[j, i] = find_divergence(u, v, j, i - 1, i, i + 1, dt, dx, dy, rho)
            b[j, last] = find_divergence(u, v, j, last - 1, last, 0, dt, dx, dy, rho)
        for _ in range(nit):
            for j in prange(1, ny - 1):
                p_next[j, 0] = relax(p, b, j, last, 0, 1, fx, fy, fb)
                for i in range(1, last):
                    p_next[j, i] = relax(p, b, j, i - 1, i, i + 1, fx, fy, fb)
                p_next[j, last] = relax(p, b, j, last - 1, last, 0, fx, fy, fb)
            for i in range(nx):
                p_next[0, i] = p_next[1, i]
                p_next[ny - 1, i] = p_next[ny - 2, i]
            p, p_next = p_next, p
        after = 0.0
        for j in prange(1, ny - 1):
            advance_both(u, v, p, j, last, 0, 1, dt, dx, dy, rho, nu, F, u_next, v_next)
            for i in range(1, last):
                advance_both(u, v, p, j, i - 1, i, i + 1, dt, dx, dy, rho, nu, F, u_next, v_next)
            advance_both(u, v, p, j, last - 1, last, 0, dt, dx, dy, rho, nu, F, u_next, v_next)
            row = 0.0
            for i in range(nx):
                row += u_next[j, i]
            after += row
        for i in range(nx):
            u_next[0, i] = u_next[ny - 1, i] = v_next[0, i] = v_next[ny - 1, i] = 0.0
        u, u_next = u_next, u
        v, v_next = v_next, v
        change, total = (after - total) / after, after
    if steps % 2:
        copy(u, u1)
        copy(v, v1)
    if steps * nit % 2:
        copy(p, p1)


@parallel
def hdiff(f, coeff, out, lap):
    for i in prange(lap.shape[0]):
        for j in range(lap.shape[1]):
            for k in range(lap.shape[2]):
                beside = f[i + 2, j + 1, k] + f[i, j + 1, k] + f[i + 1, j + 2, k] + f[i + 1, j, k]
                lap[i, j, k] = 4 * f[i + 1, j + 1, k] - beside
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            for k in range(out.shape[2]):
                m, c = f[i + 2, j + 2, k], lap[i + 1, j + 1, k]
                east = lap[i + 2, j + 1, k] - c
                west = c - lap[i, j + 1, k]
                north = lap[i + 1, j + 2, k] - c
                south = c - lap[i + 1, j, k]
                east = 0.0 if east * (f[i + 3, j + 2, k] - m) > 0 else east
                west = 0.0 if west * (m - f[i + 1, j + 2, k]) > 0 else west
                north = 0.0 if north * (f[i + 2, j + 3, k] - m) > 0 else north
                south = 0.0 if south * (m - f[i + 2, j + 1, k]) > 0 else south
                out[i, j, k] = m - coeff[i, j, k] * (east - west + north - south)
