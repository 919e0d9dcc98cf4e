"""Flow in a cavity and in a channel, and a stencil of weather models."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.program import Program, text
from benchmarks.workload import Arrays

LOOPS = "benchmarks.npbench.numba_grids"


def divergence(u, v, dt, dx, dy, rho):
    """The right side of the equation for the pressure, inside of arrays with a border."""
    ux, uy = (u[1:-1, 2:] - u[1:-1, :-2]) / (2 * dx), (u[2:, 1:-1] - u[:-2, 1:-1]) / (2 * dy)
    vx, vy = (v[1:-1, 2:] - v[1:-1, :-2]) / (2 * dx), (v[2:, 1:-1] - v[:-2, 1:-1]) / (2 * dy)
    return rho * ((ux + vy) / dt - ux * ux - 2 * uy * vx - vy * vy)


def relax(p, b, dx, dy):
    """One step of Jacobi towards the pressure, inside of a border."""
    across = (p[1:-1, 2:] + p[1:-1, :-2]) * dy**2 + (p[2:, 1:-1] + p[:-2, 1:-1]) * dx**2
    return (across - dx**2 * dy**2 * b) / (2 * (dx**2 + dy**2))


def advance(a, u, v, slope, dt, dx, dy, nu):
    """A component of the velocity after a step, inside of a border; `slope` is the pressure's part."""
    m = a[1:-1, 1:-1]
    return (
        m
        - u[1:-1, 1:-1] * dt / dx * (m - a[1:-1, :-2])
        - v[1:-1, 1:-1] * dt / dy * (m - a[:-2, 1:-1])
        - slope
        + nu * dt / dx**2 * (a[1:-1, 2:] - 2 * m + a[1:-1, :-2])
        + nu * dt / dy**2 * (a[2:, 1:-1] - 2 * m + a[:-2, 1:-1])
    )


def slopes(p, dt, dx, dy, rho):
    """What the pressure takes from both components."""
    return dt / (2 * rho * dx) * (p[1:-1, 2:] - p[1:-1, :-2]), dt / (2 * rho * dy) * (p[2:, 1:-1] - p[:-2, 1:-1])


def cavity_flow(u, v, p, dt, dx, dy, rho, nu, nt, nit):
    u, v, p = u.copy(), v.copy(), p.copy()
    for _ in range(nt):
        b = divergence(u, v, dt, dx, dy, rho)
        for _ in range(nit):
            p[:-1] = np.pad(relax(p, b, dx, dy), ((1, 0), (1, 1)), "edge")
            p[-1] = 0
        du, dv = slopes(p, dt, dx, dy, rho)
        u1, v1 = advance(u, u, v, du, dt, dx, dy, nu), advance(v, u, v, dv, dt, dx, dy, nu)
        u[:], v[:] = np.pad(u1, 1), np.pad(v1, 1)
        u[-1] = 1
    return u, v, p


def wrap(a):
    """With one column more at each side, from the other one."""
    return np.pad(a, ((0, 0), (1, 1)), "wrap")


def channel_flow(u, v, p, dt, dx, dy, rho, nu, F, nit, steps):
    """Until the flow changes by less than a thousandth in a step; that has to be after `steps` of them."""
    u, v, p = u.copy(), v.copy(), p.copy()
    change, count = 1.0, 0
    while change > 0.001:
        wide_u, wide_v = wrap(u), wrap(v)
        b = divergence(wide_u, wide_v, dt, dx, dy, rho)
        for _ in range(nit):
            p = np.pad(relax(wrap(p), b, dx, dy), ((1, 1), (0, 0)), "edge")
        du, dv = slopes(wrap(p), dt, dx, dy, rho)
        u1 = advance(wide_u, wide_u, wide_v, du, dt, dx, dy, nu) + F * dt
        v1 = advance(wide_v, wide_u, wide_v, dv, dt, dx, dy, nu)
        before, count = u.sum(), count + 1
        u[1:-1], v[1:-1] = u1, v1
        u[0] = u[-1] = v[0] = v[-1] = 0
        change = (u.sum() - before) / u.sum()
    if count != steps:
        raise ArithmeticError(f"{count} steps instead of {steps}")
    return u, v, p


def make_flow(
    rng: np.random.Generator, ny: int, nx: int, start: float, noise: tuple[float, float, float], **others: float
) -> Arrays:
    """NPBench's fields and numbers, `others` too, with `noise` in u, v and p that sums to nothing: else most terms are 0."""

    def disturb(value: float, size: float) -> np.ndarray:
        field = rng.standard_normal((ny, nx))
        return value + size * (field - field.mean())

    numbers = {"dt": 0.1 / ((nx - 1) * (ny - 1)), "dx": 2 / (nx - 1), "dy": 2 / (ny - 1), "rho": 1.0, "nu": 0.1} | others
    grids = {name: disturb(start if name == "p" else 0.0, size) for name, size in zip("uvp", noise, strict=True)}
    return grids | {name: np.array(value) for name, value in numbers.items()}


def hdiff(in_field, coeff):
    f = in_field
    lap = 4 * f[1:-1, 1:-1] - (f[2:, 1:-1] + f[:-2, 1:-1] + f[1:-1, 2:] + f[1:-1, :-2])
    flx = lap[1:, 1:-1] - lap[:-1, 1:-1]
    flx = np.where(flx * (f[2:-1, 2:-2] - f[1:-2, 2:-2]) > 0, 0, flx)
    fly = lap[1:-1, 1:] - lap[1:-1, :-1]
    fly = np.where(fly * (f[2:-2, 2:-1] - f[2:-2, 1:-2]) > 0, 0, fly)
    return f[2:-2, 2:-2] - coeff * (flx[1:] - flx[:-1] + fly[:, 1:] - fly[:, :-1])


PROGRAMS = (
    Program(
        "cavity_flow",
        "a flow that a moving lid drives",
        text("cavity_flow"),
        {"ny": (7, 61, 121), "nx": (9, 61, 121), "nt": (3, 25, 50), "nit": (2, 5, 10)},
        lambda rng, ny, nx, nt, nit: make_flow(rng, ny, nx, 0.0, (0.01, 0.01, 0.01), nt=nt, nit=nit),
        cavity_flow,
        f"{LOOPS}.cavity_flow",
    ),
    Program(
        "channel_flow",
        "a flow through a channel that is closed to a ring, until it changes little",
        text("channel_flow"),
        {"ny": (7, 61, 121), "nx": (9, 61, 121), "nit": (2, 5, 10), "steps": (796, 982, 991)},
        lambda rng, ny, nx, nit, steps: make_flow(rng, ny, nx, 1.0, (1e-6, 1e-4, 1e-3), F=1.0, nit=nit, steps=steps),
        channel_flow,
        f"{LOOPS}.channel_flow",
        tolerance=1e-8,  # v fades, so that rounding errors grow beside it
    ),
    Program(
        "hdiff",
        "horizontal diffusion with limited fluxes",
        text("hdiff"),
        {"I": (5, 64, 128), "J": (7, 64, 128), "K": (6, 60, 160)},
        lambda rng, I, J, K: {"in_field": rng.random((I + 4, J + 4, K)), "coeff": rng.random((I, J, K))},
        hdiff,
        f"{LOOPS}.hdiff",
    ),
)
