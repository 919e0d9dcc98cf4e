"""The parallel loop of each nest: the outermost coincident one with enough iterations, moved outermost."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyc
from polyc.code_limits import CHUNK
from polyc.ir.loops import If, Loop, Node
from polyc.machine import Threads
from tests.property.pipeline import small_thresholds
from tests.scheduler.support import check, lower


def parallel_loops(body: tuple[Node, ...], depth: int = 0) -> list[tuple[int, str]]:
    """Depth and variable of every parallel loop."""
    found = []
    for node in body:
        match node:
            case Loop():
                found += [(depth, node.var)] if node.kind == "parallel" else []
                found += parallel_loops(node.body, depth + 1)
            case If():
                found += parallel_loops(node.body + node.orelse, depth)
    return found


def said(text: str, **sizes: int) -> list[str]:
    lowered = lower(text, sizes)
    return [f"{r.kind}: {r.message}" for r in lowered.remarks if r.pass_name == "parallel"]


ADD = "def f(float(M,N) X, float(N) b) -> (O) { O(i,j) = X(i,j) + b(j) }"


def test_little_work_stays_on_one_thread():
    assert said(ADD, M=100, N=300) == [f"missed: one thread: 60000 operations, parallel from {Threads().least_work}"]
    assert said(ADD, M=110, N=300) == ["passed: a loop of 110 iterations, 66000 operations"]


def test_much_work_is_cut_into_parts_that_are_worth_it():
    assert said(ADD, M=4096, N=512) == [
        f"passed: a loop of 4096 iterations, {4096 * 1024} operations, in parts of {Threads().work_per_part // 1024} or more"
    ]
    assert "parts" not in said(ADD, M=256, N=512)[0]  # a part of its own for each of two threads, and nothing to take over


def test_uneven_work_is_cut_into_parts_that_lie_apart():
    text = "def f(float(N,N) X) -> (Y) { Y(i) +=! X(i,j) where i in 0:N, j in 0:N, j <= i }"
    (loop,) = lower(text, {"N": 1000}).nest.body
    assert isinstance(loop, Loop) and loop.is_uneven and 0 < loop.least_part < 100


def test_a_short_outer_loop_gives_way_to_a_longer_one():
    text = "def f(float(B,M,N) X, float(N) b) -> (O) { O(a,i,j) = exp(X(a,i,j)) * b(j) + i }"
    lowered = check(text, {"B": 2, "M": 50, "N": 100})
    assert lowered.summary().startswith("parallel i(50)")
    assert parallel_loops(lowered.nest.body)[0][0] == 0


WINDOWS = "def f(float(N,C,H,W) I, float(C,3,3) F) -> (O) { O(n,c,h,w) +=! I(n,c,h+r,w+s) * F(c,r,s) }"


def test_short_outer_loops_of_any_length_stay_outside_of_longer_ones():
    op = polyc.compile(WINDOWS, dynamic=True, target="x86-64-v3")
    image, taps = np.zeros((2, 3, 454, 472), np.float32), np.zeros((3, 3, 3), np.float32)
    (line,) = (s for s in op.lower(image, taps).as_text("loops").splitlines() if "parallel(" in s)
    assert re.search(r"c0_c1_c2 < N \* .*C \* .*H", line), line


@pytest.mark.parametrize(
    "n, c, h, w", [(1, 1, 3, 3), (2, 3, 62, 67), (1, 5, 63, 70), (3, 2, 123, 20), (0, 3, 9, 9), (2, 40, 7, 66)]
)
def test_loops_shared_as_one_at_other_lengths(n: int, c: int, h: int, w: int):
    op = polyc.compile(WINDOWS, dynamic=True)
    draw = np.random.default_rng(0)
    taps = draw.integers(-4, 5, (40, 3, 3)).astype(np.float32)
    op(np.zeros((2, 3, 454, 472), np.float32), taps[:3])
    image = draw.integers(-4, 5, (n, c, h, w)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
    np.testing.assert_array_equal(op(image, taps[:c]), np.einsum("nchwrs,crs->nchw", windows, taps[:c]))


def test_the_vector_loop_alone_is_cut_into_chunks():
    text = "def f(float(N) X) -> (O) { O(i) = X(i) + 1.0 }"
    assert said(text, N=1 << 17) == [f"passed: chunks of {CHUNK} elements of the vector loop"]
    with small_thresholds():
        for n in (0, 1, 7, 8, 9, 40):
            check(text, {"N": n})


def test_one_iteration_is_not_parallel():
    assert said("def f(float(1,K) X, float(K,1) Y) -> (O) { O(i,j) +=! X(i,k) * Y(k,j) }", K=100000)[-1].startswith("missed")


def test_parallel_loops_are_never_nested():
    text = """def f(float(M,K) A, float(N,K) B, float(P,N) D) -> (C) {
      H(m,n) +=! A(m,k) * B(n,k)  R(m,n) = fmax(H(m,n), 0.0)  C(m,p) +=! R(m,n) * D(p,n) }"""
    with small_thresholds():
        for sizes in (
            {"M": 70, "K": 20, "N": 40, "P": 33},
            {"M": 1, "K": 20, "N": 40, "P": 33},
            {"M": 0, "K": 0, "N": 4, "P": 3},
        ):
            check(text, sizes)  # verifies the nest as well


@pytest.mark.parametrize(
    "text",
    [
        "def f(float(M,N) X) -> (O) { O(i) +=! X(i,j) }",
        "def f(float(M,N) X) -> (O) { O(j) +=! X(i,j) }",
        "def f(float(M,N) X) -> (O) { O(j,i) = X(i,j) }",
        "def f(float(M,N) X) -> (O, P) { O(i) max=! X(i,j)  P(i,j) = X(i,j) - O(i) }",
        "def f(float(M,N) X) -> (O, P) { O(i,j) = X(i,j) * 2.0  P(j,i) = O(i,j) + 1.0 }",
    ],
)
def test_every_nest_is_right_with_threads_from_the_first_iteration(text):
    with small_thresholds():
        for sizes in ({"M": 5, "N": 37}, {"M": 33, "N": 1}, {"M": 0, "N": 9}):
            check(text, sizes)


def test_without_threads_nothing_is_marked():
    assert parallel_loops(lower(ADD, {"M": 500, "N": 300}).nest.body)
    assert not parallel_loops(check(ADD, {"M": 50, "N": 30}, parallel=False).nest.body)
