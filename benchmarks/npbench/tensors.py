"""A convolution, and systems of complex equations."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.program import Program, text

LOOPS = "benchmarks.npbench.numba_tensors"


def conv2d_bias(input, weights, bias):
    k, _, _, c_out = weights.shape
    n, height, width, _ = input.shape
    output = np.empty((n, height - k + 1, width - k + 1, c_out), input.dtype)
    for i in range(output.shape[1]):
        for j in range(output.shape[2]):
            patch = input[:, i : i + k, j : j + k, :, None]
            output[:, i, j] = (patch * weights).sum(axis=(1, 2, 3))
    return output + bias


def contour_integral(Ham, int_pts, Y):
    P0, P1 = (np.zeros(Y.shape, np.complex128) for _ in range(2))
    half = (len(Ham) - 1) / 2
    for z in int_pts:
        T = sum(z ** (half - n) * h for n, h in enumerate(Ham))
        X = np.linalg.solve(T, Y)
        X = -X if abs(z) < 1 else X
        P0 += X
        P1 += z * X
    return P0, P1


def draw_complex(rng, *shape):
    return rng.random(shape) + 1j * rng.random(shape)


PROGRAMS = (
    Program(
        "conv2d_bias",
        "a convolution of images with the channels last",
        text("conv2d_bias"),
        {"N": (2, 8, 8), "C_in": (3, 3, 3), "C_out": (5, 16, 8), "K": (2, 2, 5), "H": (7, 32, 64), "W": (6, 32, 64)},
        lambda rng, N, C_in, C_out, K, H, W: {
            "input": rng.random((N, H, W, C_in), np.float32),
            "weights": rng.random((K, K, C_in, C_out), np.float32),
            "bias": rng.random(C_out, np.float32),
        },
        conv2d_bias,
        f"{LOOPS}.conv2d_bias",
        tolerance=2e-5,
        dtype="float32",
    ),
    Program(
        "contour_integral",
        "solutions of complex systems of equations, added up along a contour",
        text("contour_integral"),
        {"NR": (7, 50, 200), "NM": (9, 150, 400), "slab_per_bc": (2, 2, 2), "num_int_pts": (5, 32, 32)},
        lambda rng, NR, NM, slab_per_bc, num_int_pts: {
            "Ham": draw_complex(rng, slab_per_bc + 1, NR, NR),
            "int_pts": draw_complex(rng, num_int_pts),
            "Y": draw_complex(rng, NR, NM),
        },
        contour_integral,
        f"{LOOPS}.contour_integral",
        tolerance=1e-9,
    ),
)
