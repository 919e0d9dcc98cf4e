"""Mandelbrot sets in numba, as in `benchmarks.polybench.numba_loops`: imported where numba is."""

from __future__ import annotations

from numba import prange

from benchmarks.polybench.numba_loops import Shapes, parallel

SCRATCH: dict[str, Shapes] = {}


@parallel
def mandelbrot1(xmin, xmax, ymin, ymax, XN, YN, maxiter, horizon, Z, N):
    for i in prange(YN):
        y = ymin + (ymax - ymin) / (YN - 1) * i
        for j in range(XN):
            x = xmin + (xmax - xmin) / (XN - 1) * j
            re = im = 0.0
            step = 0
            while step < maxiter and re * re + im * im < horizon * horizon:
                re, im = re * re - im * im + x, 2 * re * im + y
                step += 1
            Z[i, j] = complex(re, im)
            N[i, j] = step - 1 if step < maxiter else 0


@parallel
def mandelbrot2(xmin, xmax, ymin, ymax, XN, YN, maxiter, horizon, Z, N):
    for i in prange(YN):
        y = ymin + (ymax - ymin) / (YN - 1) * i
        for j in range(XN):
            x = xmin + (xmax - xmin) / (XN - 1) * j
            re = im = 0.0
            step = 0
            while step < maxiter and re * re + im * im <= horizon * horizon:
                re, im = re * re - im * im + x, 2 * re * im + y
                step += 1
            is_out = re * re + im * im > horizon * horizon
            Z[i, j] = complex(re, im) if is_out else complex(0.0, 0.0)
            N[i, j] = step if is_out else 0
