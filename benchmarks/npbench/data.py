"""Programs that data steers: bins, and the bits of a checksum."""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks.npbench.program import Program, text

LOOPS = "benchmarks.npbench.numba_data"

CRC16 = """
def crc16(data: "u8[N]"):
    crc[0] = polyc.i32(65535)
    with polyc.where(0 <= n < N, 0 <= bit < 8):
        step[n, 0] = crc[n] ^ polyc.i32(data[n])
        step[n, bit + 1] = step[n, bit] >> 1 ^ (33800 if step[n, bit] & 1 != 0 else 0)
        crc[n + 1] = step[n, 8]
    result = ~crc[N] << 8 & 65280 | ~crc[N] >> 8 & 255
    return result
"""
"""The reflected polynomial 0x8408, from 0xffff; complement and exchange of bytes at the end."""


def azimint_hist(data, radius, npt):
    sums, _ = np.histogram(radius, npt, weights=data)
    counts, _ = np.histogram(radius, npt)
    return sums / counts


def azimint_naive(data, radius, npt):
    edges = radius.max() * np.arange(npt + 1) / npt
    return np.array([data[(low <= radius) & (radius < high)].mean() for low, high in itertools.pairwise(edges)])


def crc16(data):
    crc = 0xFFFF
    for byte in data:
        crc ^= int(byte)
        for _ in range(8):
            crc = crc >> 1 ^ (0x8408 if crc & 1 else 0)
    crc ^= 0xFFFF
    return np.int32(crc >> 8 | (crc & 0xFF) << 8)


def make_rings(rng, N, npt):
    return {name: rng.random(N) for name in ("data", "radius")} | {"npt": np.array(npt)}


PROGRAMS = (
    Program(
        "azimint_hist",
        "means over rings, by a histogram",
        text("azimint_hist"),
        {"N": (501, 400_000, 4_000_000), "npt": (7, 1000, 1000)},
        make_rings,
        azimint_hist,
        f"{LOOPS}.azimint_hist",
    ),
    Program(
        "azimint_naive",
        "means over rings, each from all points",
        text("azimint_naive"),
        {"N": (501, 400_000, 4_000_000), "npt": (7, 1000, 1000)},
        make_rings,
        azimint_naive,
        f"{LOOPS}.azimint_naive",
    ),
    Program(
        "crc16",
        "a cyclic redundancy check, bit by bit",
        CRC16,
        {"N": (19, 1600, 16_000)},
        lambda rng, N: {"data": rng.integers(0, 256, N, np.uint8)},
        crc16,
        f"{LOOPS}.crc16",
        tolerance=0.0,
        notation="python",
    ),
)
