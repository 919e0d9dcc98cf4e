"""Bodies, electrons and air in numba, as in `benchmarks.polybench.numba_loops`: imported where numba is."""

from __future__ import annotations

import math

from numba import prange

from benchmarks.polybench.numba_loops import Shapes, inline, parallel, serial


def _shapes_scattering(Nkz: int, NE: int, Nqz: int, Nw: int, N3D: int, NA: int, NB: int, Norb: int) -> Shapes:
    return (NA, Norb, Norb), (NA, Norb, Norb)


SCRATCH = {
    "nbody": lambda N, Nt, dt: ((3, N), (3, N), (3, N)),
    "scattering_self_energies": _shapes_scattering,
    "vadv": lambda I, J, K: ((I, K), (I, K)),
}


@inline
def accelerate(mass, p, G, softening, force):
    """A few bodies: threads would only wait for each other."""
    n = p.shape[1]
    for i in range(n):
        x = y = z = 0.0
        for j in range(n):
            dx, dy, dz = p[0, j] - p[0, i], p[1, j] - p[1, i], p[2, j] - p[2, i]
            square = dx * dx + dy * dy + dz * dz + softening * softening
            pull = mass[j, 0] / (square * math.sqrt(square)) if square > 0.0 else 0.0
            x += dx * pull
            y += dy * pull
            z += dz * pull
        force[0, i], force[1, i], force[2, i] = G * x, G * y, G * z


@inline
def measure(mass, p, v, G, t, KE, PE):
    n = p.shape[1]
    kinetic = bound = 0.0
    for i in range(n):
        kinetic += 0.5 * mass[i, 0] * (v[0, i] * v[0, i] + v[1, i] * v[1, i] + v[2, i] * v[2, i])
        inner = 0.0
        for j in range(i + 1, n):
            dx, dy, dz = p[0, j] - p[0, i], p[1, j] - p[1, i], p[2, j] - p[2, i]
            square = dx * dx + dy * dy + dz * dz
            inner += mass[j, 0] / math.sqrt(square) if square > 0.0 else 0.0
        bound += mass[i, 0] * inner
    KE[t], PE[t] = kinetic, -G * bound


@serial
def nbody(mass, pos, vel, Nt, dt, G, softening, KE, PE, p, v, force):
    n = pos.shape[0]
    for d in range(3):
        whole = momentum = 0.0
        for i in range(n):
            whole += mass[i, 0]
            momentum += mass[i, 0] * vel[i, d]
        for i in range(n):
            p[d, i], v[d, i] = pos[i, d], vel[i, d] - momentum / whole
    accelerate(mass, p, G, softening, force)
    measure(mass, p, v, G, 0, KE, PE)
    for t in range(1, Nt + 1):
        for d in range(3):
            for i in range(n):
                v[d, i] += force[d, i] * dt / 2
                p[d, i] += v[d, i] * dt
        accelerate(mass, p, G, softening, force)
        for d in range(3):
            for i in range(n):
                v[d, i] += force[d, i] * dt / 2
        measure(mass, p, v, G, t, KE, PE)


@inline
def multiply_add(A, B, C):
    """``C += A B`` of small matrices."""
    for o in range(A.shape[0]):
        for r in range(B.shape[0]):
            for p in range(B.shape[1]):
                C[o, p] += A[o, r] * B[r, p]


@parallel
def scattering_self_energies(neigh_idx, dH, G, D, Sigma, S, right, both):
    for a in prange(neigh_idx.shape[0]):
        for k in range(S.shape[0]):
            for e in range(S.shape[1]):
                S[k, e, a] = Sigma[k, e, a]
        for b in range(neigh_idx.shape[1]):
            for w in range(D.shape[1]):
                both[a] = 0.0
                for i in range(dH.shape[2]):
                    right[a] = 0.0
                    for j in range(dH.shape[2]):
                        factor = D[0, w, a, b, i, j]
                        for q in range(1, D.shape[0]):
                            factor += D[q, w, a, b, i, j]
                        for o in range(dH.shape[3]):
                            for p in range(dH.shape[3]):
                                right[a, o, p] += dH[a, b, j, o, p] * factor
                    multiply_add(dH[a, b, i], right[a], both[a])
                for k in range(S.shape[0]):
                    for e in range(w, S.shape[1]):
                        multiply_add(G[k, e - w, neigh_idx[a, b]], both[a], S[k, e, a])


@parallel
def vadv(utens_stage, u_stage, wcon, u_pos, utens, dtr_stage, result, above, y):
    levels = result.shape[2]
    for i in prange(result.shape[0]):
        for j in range(result.shape[1]):
            before = last = a = u = 0.0
            for k in range(levels):
                c = slope = 0.0
                if k + 1 < levels:
                    c = 0.125 * (wcon[i + 1, j, k + 1] + wcon[i, j, k + 1])
                    slope = c * (u_stage[i, j, k + 1] - u_stage[i, j, k])
                right = dtr_stage * u_pos[i, j, k] + utens[i, j, k] + utens_stage[i, j, k] - slope - u
                scale = 1.0 / (dtr_stage - a - c - before * a)
                before = c * scale
                last = (right - last * a) * scale
                above[i, k], y[i, k] = before, last
                a, u = -c, slope
            x = 0.0
            for k in range(levels - 1, -1, -1):
                x = y[i, k] - above[i, k] * x
                result[i, j, k] = dtr_stage * (x - u_pos[i, j, k])
