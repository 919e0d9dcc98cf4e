# ruff: noqa: F821, UP037 (the bodies use indices that Python never evaluates)
# mypy: ignore-errors
"""Pipelines as decorated functions, undecorated: the runner decorates them where polyc is."""

from __future__ import annotations

from benchmarks.pipelines.discs import BELOW, HALF, LEVEL


def max_filter(X: "f32[C, H, W]"):
    """The greatest value in a disc: of 2**s rows each, then of two such columns for each distance."""
    with polyc.where(-26 <= y < H + 26, -26 <= x < W + 26):
        M[0, c, y, x] = pad(X[c, y, x], "clamp")
    with polyc.where(0 <= s < 5, 0 <= c < C, -26 <= y < H + 27 - 2 * 2**s, -26 <= x < W + 26):
        M[s + 1, c, y, x] = max(M[s, c, y, x], M[s, c, y + 2**s, x])
    with polyc.where(0 <= y < H, 0 <= x < W):
        Y[c, y, x] = max(
            max(M[LEVEL[d], c, y - HALF[d], x + d - 26], M[LEVEL[d], c, y + BELOW[d], x + d - 26]) for d in range(53)
        )
    return Y


def avg(a, b):
    return polyc.i16((polyc.i32(a) + polyc.i32(b) + 1) // 2)


def absd(a, b):
    return max(a, b) - min(a, b)


def flatter(a, b, c, d):
    """The mean of two pairs that differs less."""
    return avg(a, b) if absd(a, b) < absd(c, d) else avg(c, d)


def clip(v, end):
    return min(max(polyc.i32(v), 0), end)


def camera_pipe(raw: "u16[H, W]", matrix: "i32[3, 4]", curve: "u8[1024]", s: "i32"):
    """From the pixels of a sensor, of which each sees one colour (in rows G R and B G), to colours of 8 bits.

    Bright dots are taken away, missing colours come from neighbours along the flatter direction, then a matrix in 1/256, a
    curve, and s / 32 of what a blur takes away on top."""
    I[y, x] = polyc.i16(raw[y, x])
    D[y, x] = min(I[y, x], max(max(I[y, x - 2], I[y, x + 2]), max(I[y - 2, x], I[y + 2, x])))
    with polyc.where(0 <= y < H // 2 - 2, 0 <= x < W // 2 - 2):
        P[y, x] = D[2 * y + 2, 2 * x + 2]
        R[y, x] = D[2 * y + 2, 2 * x + 3]
        B[y, x] = D[2 * y + 3, 2 * x + 2]
        Q[y, x] = D[2 * y + 3, 2 * x + 3]
    GR[y, x] = flatter(P[y, x + 1], P[y, x], Q[y - 1, x], Q[y, x])
    GB[y, x] = flatter(Q[y, x - 1], Q[y, x], P[y + 1, x], P[y, x])
    with polyc.where(2 <= y < H // 2 - 4, 2 <= x < W // 2 - 4):
        T[0, 2 * y - 4, 2 * x - 4] = P[y, x] - avg(GR[y, x], GR[y, x - 1]) + avg(R[y, x - 1], R[y, x])
        T[0, 2 * y - 4, 2 * x - 3] = R[y, x]
        T[0, 2 * y - 3, 2 * x - 4] = (
            GB[y, x] - avg(GR[y, x], GR[y + 1, x - 1]) + avg(R[y, x], R[y + 1, x - 1])
            if absd(R[y, x], R[y + 1, x - 1]) < absd(R[y, x - 1], R[y + 1, x])
            else GB[y, x] - avg(GR[y, x - 1], GR[y + 1, x]) + avg(R[y, x - 1], R[y + 1, x])
        )
        T[0, 2 * y - 3, 2 * x - 3] = Q[y, x] - avg(GR[y, x], GR[y + 1, x]) + avg(R[y, x], R[y + 1, x])
        T[1, 2 * y - 4, 2 * x - 4] = P[y, x]
        T[1, 2 * y - 4, 2 * x - 3] = GR[y, x]
        T[1, 2 * y - 3, 2 * x - 4] = GB[y, x]
        T[1, 2 * y - 3, 2 * x - 3] = Q[y, x]
        T[2, 2 * y - 4, 2 * x - 4] = P[y, x] - avg(GB[y, x], GB[y - 1, x]) + avg(B[y, x], B[y - 1, x])
        T[2, 2 * y - 4, 2 * x - 3] = (
            GR[y, x] - avg(GB[y, x], GB[y - 1, x + 1]) + avg(B[y, x], B[y - 1, x + 1])
            if absd(B[y, x], B[y - 1, x + 1]) < absd(B[y, x + 1], B[y - 1, x])
            else GR[y, x] - avg(GB[y, x + 1], GB[y - 1, x]) + avg(B[y, x + 1], B[y - 1, x])
        )
        T[2, 2 * y - 3, 2 * x - 4] = B[y, x]
        T[2, 2 * y - 3, 2 * x - 3] = Q[y, x] - avg(GB[y, x], GB[y, x + 1]) + avg(B[y, x], B[y, x + 1])
    K[c, y, x] = (
        matrix[c, 3]
        + matrix[c, 0] * polyc.i32(T[0, y, x])
        + matrix[c, 1] * polyc.i32(T[1, y, x])
        + matrix[c, 2] * polyc.i32(T[2, y, x])
    ) // 256
    V[c, y, x] = curve[clip(K[c, y, x], 1023)]
    U[c, y, x] = avg(avg(V[c, y, x], V[c, y + 2, x]), V[c, y + 1, x])
    S[c, y, x] = avg(avg(U[c, y, x], U[c, y, x + 2]), U[c, y, x + 1])
    with polyc.where(0 <= y < H - 16, 0 <= x < W - 16):
        Y[c, y, x] = polyc.u8(
            clip(polyc.i32(V[c, y + 2, x + 2]) + (polyc.i32(V[c, y + 2, x + 2]) - polyc.i32(S[c, y + 1, x + 1])) * s // 32, 255)
        )
    return Y
