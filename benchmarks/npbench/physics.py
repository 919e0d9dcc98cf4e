"""Bodies that attract each other, electrons that phonons scatter, and air that rises."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.program import Program, text
from benchmarks.npbench.tensors import draw_complex
from benchmarks.workload import Arrays

LOOPS = "benchmarks.npbench.numba_physics"


def invert(x, power):
    """``x**-power``, but where x is 0."""
    return np.where(x > 0, x, np.inf) ** -power


def energies(mass, pos, vel, G):
    apart = pos[None] - pos[:, None]
    pairs = np.triu(mass * mass.T * invert((apart**2).sum(axis=-1), 0.5), 1)
    return 0.5 * (mass * vel**2).sum(), -G * pairs.sum()


def accelerate(mass, pos, G, softening):
    apart = pos[None] - pos[:, None]
    cube = invert((apart**2).sum(axis=-1) + softening**2, 1.5)
    return G * np.stack([(apart[:, :, d] * cube) @ mass[:, 0] for d in range(3)], axis=1)


def nbody(mass, pos, vel, Nt, dt, G, softening):
    vel = vel - (mass * vel).mean(axis=0) / mass.mean()
    force = accelerate(mass, pos, G, softening)
    found = [energies(mass, pos, vel, G)]
    for _ in range(Nt):
        vel = vel + force * dt / 2
        pos = pos + vel * dt
        force = accelerate(mass, pos, G, softening)
        vel = vel + force * dt / 2
        found.append(energies(mass, pos, vel, G))
    KE, PE = np.array(found).T.copy()
    return KE, PE


def scattering_self_energies(neigh_idx, dH, G, D, Sigma):
    right = np.einsum("abjop,wabij->wabiop", dH, D.sum(axis=0), optimize=True)
    both = np.einsum("abior,wabirp->wabop", dH, right, optimize=True)
    near, result = G[:, :, neigh_idx], Sigma.copy()
    for w in range(D.shape[1]):
        result[:, w:] += np.einsum("keabor,abrp->keaop", near[:, : G.shape[1] - w], both[w], optimize=True)
    return result


def vadv(utens_stage, u_stage, wcon, u_pos, utens, dtr_stage):
    mean = 0.125 * (wcon[1:] + wcon[:-1])
    slope = mean[:, :, 1:] * np.diff(u_stage, axis=2)  # between a level and the next one
    above, y = np.zeros_like(u_stage), dtr_stage * u_pos + utens + utens_stage
    y[:, :, 1:] -= slope
    y[:, :, :-1] -= slope
    levels = u_stage.shape[2]
    for k in range(levels):
        a = -mean[:, :, k] if k else 0.0
        c = mean[:, :, k + 1] if k + 1 < levels else 0.0
        scale = 1 / (dtr_stage - a - c - above[:, :, k - 1] * a)
        above[:, :, k] = c * scale
        y[:, :, k] = (y[:, :, k] - y[:, :, k - 1] * a) * scale
    for k in reversed(range(levels - 1)):
        y[:, :, k] -= above[:, :, k] * y[:, :, k + 1]
    return dtr_stage * (y - u_pos)


def make_bodies(rng, N, Nt, dt) -> Arrays:
    """With a mass of 1 together, a twentieth of NPBench's: heavier ones magnify rounding a hundred million times at M."""
    numbers = {name: np.array(value) for name, value in (("Nt", Nt), ("dt", dt), ("G", 1.0), ("softening", 0.1))}
    return {"mass": np.full((N, 1), 1 / N), "pos": rng.random((N, 3)), "vel": rng.random((N, 3))} | numbers


def make_lattice(rng, Nkz, NE, Nqz, Nw, N3D, NA, NB, Norb) -> Arrays:
    """Atoms in a ring, the neighbours of each around it."""
    return {
        "neigh_idx": ((np.arange(NA)[:, None] + np.arange(NB) - NB // 2) % NA).astype(np.int32),
        "dH": draw_complex(rng, NA, NB, N3D, Norb, Norb),
        "G": draw_complex(rng, Nkz, NE, NA, Norb, Norb),
        "D": draw_complex(rng, Nqz, Nw, NA, NB, N3D, N3D),
        "Sigma": np.zeros((Nkz, NE, NA, Norb, Norb), np.complex128),
    }


def make_air(rng, I, J, K) -> Arrays:
    arrays = {n: rng.random((I + (n == "wcon"), J, K)) for n in ("utens_stage", "u_stage", "wcon", "u_pos", "utens")}
    return arrays | {"dtr_stage": np.array(3 / 20)}


PROGRAMS = (
    Program(
        "nbody",
        "bodies that attract each other, step by step",
        text("nbody"),
        {"N": (7, 25, 50), "Nt": (3, 40, 250), "dt": (0.1, 0.05, 0.02)},
        make_bodies,
        nbody,
        f"{LOOPS}.nbody",
        tolerance=1e-8,
    ),
    Program(
        "scattering_self_energies",
        "electrons that phonons scatter: chains of small complex products",
        text("scattering_self_energies"),
        {
            "Nkz": (2, 2, 3),
            "NE": (3, 4, 5),
            "Nqz": (2, 2, 3),
            "Nw": (2, 2, 2),
            "N3D": (2, 2, 2),
            "NA": (5, 6, 10),
            "NB": (3, 2, 3),
            "Norb": (3, 3, 4),
        },
        make_lattice,
        scattering_self_energies,
        f"{LOOPS}.scattering_self_energies",
    ),
    Program(
        "vadv",
        "vertical advection: a tridiagonal system for each column of air",
        text("vadv"),
        {"I": (5, 60, 112), "J": (6, 60, 112), "K": (7, 40, 80)},
        make_air,
        vadv,
        f"{LOOPS}.vadv",
        tolerance=1e-9,
    ),
)
