"""Rings and checksums in numba, as in `benchmarks.polybench.numba_loops`: imported where numba is."""

from __future__ import annotations

import numpy as np
from numba import prange

from benchmarks.polybench.numba_loops import THREADS, parallel, serial

SCRATCH = {"azimint_hist": lambda N, npt: ((THREADS, npt), (THREADS, npt))}


@parallel
def azimint_hist(data, radius, npt, mean, totals, counts):
    n = radius.size
    low = high = radius[0]
    for i in prange(n):
        low = min(low, radius[i])
        high = max(high, radius[i])
    scale = 1 / (high - low)
    for c in prange(THREADS):
        for r in range(npt):
            totals[c, r] = 0.0
            counts[c, r] = 0.0
        for i in range(c * n // THREADS, (c + 1) * n // THREADS):
            r = min(int((radius[i] - low) * scale * npt), npt - 1)
            totals[c, r] += data[i]
            counts[c, r] += 1.0
    for r in range(npt):
        total = count = 0.0
        for c in range(THREADS):
            total += totals[c, r]
            count += counts[c, r]
        mean[r] = total / count


@parallel
def azimint_naive(data, radius, npt, mean):
    high = 0.0
    for i in range(radius.size):
        high = max(high, radius[i])
    for r in prange(npt):
        first, last = high * r / npt, high * (r + 1) / npt
        total = count = 0.0
        for i in range(radius.size):
            inside = first <= radius[i] and radius[i] < last
            total += data[i] if inside else 0.0
            count += 1.0 if inside else 0.0
        mean[r] = total / count


@serial
def crc16(data, result):
    crc = 0xFFFF
    for n in range(data.size):
        crc ^= np.int64(data[n])
        for _ in range(8):
            crc = crc >> 1 ^ (0x8408 if crc & 1 else 0)
    crc ^= 0xFFFF
    result[()] = crc >> 8 | (crc & 0xFF) << 8
