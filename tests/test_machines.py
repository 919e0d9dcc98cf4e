"""Kernels for each machine: what it has decides their form, and where this machine runs them, their results are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.codegen.objects.host import host_target, physical_host
from polyc.ir.verify_loops import verify_loops
from polyc.machine import is_runnable

Array = np.ndarray[Any, Any]


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def heat(x: Array, steps: Array) -> Array:
    a = x.copy()
    for _ in steps:
        a[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])
    return a


def convolve(x: Array, f: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    return np.einsum("nchwrs,kcrs->nkhw", windows, f, optimize=True)


SAMPLES: dict[str, tuple[str, Callable[..., Array], tuple[tuple[int, ...], ...]]] = {
    "product": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        lambda a, b: a @ b,
        ((130, 300), (300, 259)),
    ),
    "convolution": (
        "def f(float(N,C,H,W) X, float(K,C,3,3) F) -> (Y) { Y(n,k,h,w) +=! X(n,c,h+r,w+s) * F(k,c,r,s) }",
        convolve,
        ((1, 16, 19, 37), (24, 16, 3, 3)),
    ),
    "softmax": (
        """def f(float(N,D) X) -> (Y) {
          m(n) max=! X(n,d)
          e(n,d) = exp(X(n,d) - m(n))
          s(n) +=! e(n,d)
          Y(n,d) = e(n,d) / s(n) }""",
        softmax,
        ((3, 70_001),),
    ),
    "transpose": ("def f(float(N,M) X) -> (Y) { Y(j,i) = 2 * X(i,j) }", lambda x: 2 * x.T, ((301, 517),)),
    "recurrence": (
        """def f(float(N,M) x, float(T) steps) -> (B) {
          A(0,i,j) = x(i,j)
          A(t,i,j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? A(t-1,i,j)
            : 0.25 * (A(t-1,i-1,j) + A(t-1,i+1,j) + A(t-1,i,j-1) + A(t-1,i,j+1)) where t in 1:T+1, i in 0:N, j in 0:M
          B(i,j) = A(T,i,j) }""",
        heat,
        ((231, 333), (12,)),
    ),
    "column sums": ("def f(float(N,D) X) -> (S) { S(d) +=! X(n,d) * X(n,d) }", lambda x: (x * x).sum(0), ((700, 131),)),
}


@pytest.mark.parametrize("name", ["", "x86-64-v2", "zen3", "skylake-x", "sapphire-rapids", "neoverse", "small-vm"])
@pytest.mark.parametrize("sample", SAMPLES)
def test_kernels_for_each_machine(sample: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_MACHINE", name)
    text, expected, shapes = SAMPLES[sample]
    machine, arrays = host_target(), [draw(*shape) for shape in shapes]
    operator = polyc.compile(text)
    lowered = operator.lower(*arrays)
    verify_loops(lowered.nest)
    loops = lowered.as_text("loops")
    widths = {int(part.split(maxsplit=1)[0].rstrip(",)")) for part in loops.split("vector(lanes ")[1:]}
    assert widths and max(widths) >= machine.lanes(4)
    if is_runnable(machine, physical_host()):
        np.testing.assert_allclose(operator(*arrays), expected(*arrays), rtol=2e-4, atol=2e-4)
    else:
        assert lowered.object_code()
