"""``python -m benchmarks dynamic``: one kernel for any sizes beside kernels that are made for each.

Sizes are drawn at random, always the same ones, the larger extents of each operator above 256.  The operator is compiled once,
for the first of them; a specialised kernel of the same program takes turns with it at every size.  Of the families `steps_…`
the sizes are the same at each call, and the number of steps is drawn, an integer argument.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.statistics import geometric_mean
from benchmarks.workload import as_tuple
from benchmarks.workloads.recurrences import KERNELS, text_for_any_count

Shapes = tuple[tuple[int, ...] | int, ...]
"""Shapes of arrays, and integers that are arguments themselves."""

SMALLEST, LARGEST_SIDE, LARGEST = 257, 600, 2000
"""Extents that are drawn: of images' sides up to the second, of rows and columns up to the last."""

CHANNELS = (3, 16, 32, 64, 128, 256, 512)

GRID, MOST_STEPS = 512, 200
"""Side of the grids whose steps are counted."""

MOST_PRODUCTS, MOST_ELEMENTS = 2 << 30, 1 << 25
"""Of the sizes of one call."""

TURNS, SECONDS = 4, 0.3
"""Each side has at least so many turns, and both together so many seconds."""

TOLERANCE = 1e-3
"""Largest difference of the two results, as a part of the largest value: filters may be applied in other ways."""


@dataclass(frozen=True, slots=True)
class Family:
    """An operator and what draws shapes of its inputs; `products(shapes)`: its multiplications, or the elements it reads.

    `symbolic`: the sizes that one kernel serves, as `polyc.compile` takes them."""

    text: str
    draw: Callable[[random.Random], Shapes]
    products: Callable[[Shapes], int] = lambda shapes: n_elements(shapes[0])
    symbolic: bool | tuple[str, ...] = True


@dataclass(frozen=True, slots=True)
class Result:
    """`shares`: the specialised kernel's time over the other one's, for each of `sizes`."""

    sizes: list[Shapes]
    shares: list[float]
    seconds: float
    """CPU time of the one compilation."""
    n_kernels: int
    error: float


def n_elements(shape: tuple[int, ...] | int) -> int:
    """Elements of an argument."""
    return 1 if isinstance(shape, int) else prod(shape)


def _extent(draw: random.Random) -> int:
    return round(SMALLEST * (LARGEST / SMALLEST) ** draw.random())


def _side(draw: random.Random) -> int:
    return draw.randint(SMALLEST, LARGEST_SIDE)


def _images(window: int, batches: Sequence[int] = (1, 1, 2)) -> Callable[[random.Random], Shapes]:
    def draw_shapes(draw: random.Random) -> Shapes:
        height = _side(draw)
        width = height if draw.random() < 0.5 else _side(draw)
        inputs, results = draw.choice(CHANNELS), draw.choice(CHANNELS[1:])
        return (draw.choice(batches), inputs, height, width), (results, inputs, window, window)

    return draw_shapes


def _grouped(draw: random.Random) -> Shapes:
    groups, side = draw.choice((2, 4, 8, 16, 32)), _side(draw)
    channels = draw.choice((4, 8, 16, 32))
    return (1, groups, channels, side, side), (groups, channels, channels, 3, 3)


def _channels_last(draw: random.Random) -> Shapes:
    (n, c, h, w), (k, *_) = _images(3)(draw)
    return (n, h, w, c), (3, 3, c, k)


def _depthwise(draw: random.Random) -> Shapes:
    (n, c, h, w), _ = _images(3)(draw)
    return (n, c, h, w), (c, 3, 3)


def _convolution(window: int, step: int) -> Family:
    near = "{0}h+r,{0}w+s".format("" if step == 1 else f"{step}*")
    text = f"def conv(float(N,C,H,W) I, float(K,C,{window},{window}) F) -> (O) {{ O(n,k,h,w) +=! I(n,c,{near}) * F(k,c,r,s) }}"
    return Family(text, _images(window), lambda s: prod(s[0]) * prod(s[1]) // s[0][1] // step**2)


_SOFTMAX = """
def softmax(float(N,D) X) -> (Y) {
    M(n) max=! X(n,d)  E(n,d) = exp(X(n,d) - M(n))  Z(n) +=! E(n,d)  Y(n,d) = E(n,d) / Z(n)
}"""
_LAYER_NORM = """
def layer_norm(float(N,D) X, float(D) G, float(D) B) -> (Y) {
    S(n) +=! X(n,d)  V(n) +=! (X(n,d) - S(n) / D) * (X(n,d) - S(n) / D)
    Y(n,d) = (X(n,d) - S(n) / D) / sqrt(V(n) / D + 0.00001) * G(d) + B(d)
}"""


def _rows(draw: random.Random) -> tuple[int, int]:
    return _extent(draw), _extent(draw)


def _layer_rows(draw: random.Random) -> Shapes:
    n, d = _rows(draw)
    return (n, d), (d,), (d,)


def _matrices(draw: random.Random) -> Shapes:
    m, k, n = _extent(draw), _extent(draw), _extent(draw)
    return (m, k), (k, n)


def _attention(draw: random.Random) -> Shapes:
    heads, queries, keys, depth = draw.choice((4, 8, 12)), _side(draw), _side(draw), draw.choice((32, 64, 128))
    return (heads, queries, depth), (heads, keys, depth), (heads, keys, depth)


def _steps(name: str) -> Family:
    grids = tuple((GRID, GRID) for _ in KERNELS[name][2])
    return Family(text_for_any_count(name), lambda draw: (*grids, draw.randint(2, MOST_STEPS)), symbolic=("T",))


FAMILIES = {
    "matmul": Family(
        "def matmul(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        _matrices,
        lambda s: prod(s[0]) * s[1][1],
    ),
    "softmax": Family(_SOFTMAX, lambda draw: (_rows(draw),)),
    "layer_norm": Family(_LAYER_NORM, _layer_rows),
    "attention": Family(
        """
def attention(float(H,Q,D) X, float(H,L,D) K, float(H,L,D) V) -> (O) {
    S(h,q,l) +=! X(h,q,d) * K(h,l,d)  M(h,q) max=! S(h,q,l)  E(h,q,l) = exp(S(h,q,l) - M(h,q))
    Z(h,q) +=! E(h,q,l)  O(h,q,d) +=! E(h,q,l) / Z(h,q) * V(h,l,d)
}""",
        _attention,
        lambda s: 2 * prod(s[0]) * s[1][1],
    ),
    "conv3x3": _convolution(3, 1),
    "conv3x3_s2": _convolution(3, 2),
    "conv7x7_s2": _convolution(7, 2),
    "conv1x1": Family(
        "def conv(float(N,C,H,W) I, float(K,C) F) -> (O) { O(n,k,h,w) +=! I(n,c,h,w) * F(k,c) }",
        lambda draw: tuple(s[:2] if n else s for n, s in enumerate(_images(1)(draw))),
        lambda s: prod(s[0]) * s[1][0],
    ),
    "conv1x1_s2": _convolution(1, 2),
    "conv3x3_last": Family(
        "def conv(float(N,H,W,C) I, float(3,3,C,K) F) -> (O) { O(n,h,w,k) +=! I(n,h+r,w+s,c) * F(r,s,c,k) }",
        _channels_last,
        lambda s: prod(s[0]) * 9 * s[1][3],
    ),
    "conv3x3_groups": Family(
        "def conv(float(N,G,C,H,W) I, float(G,K,C,3,3) F) -> (O) { O(n,g,k,h,w) +=! I(n,g,c,h+r,w+s) * F(g,k,c,r,s) }",
        _grouped,
        lambda s: prod(s[0]) * 9 * s[1][1],
    ),
    "depthwise3x3": Family(
        "def conv(float(N,C,H,W) I, float(C,3,3) F) -> (O) { O(n,c,h,w) +=! I(n,c,h+r,w+s) * F(c,r,s) }",
        _depthwise,
        lambda s: prod(s[0]) * 9,
    ),
    **{f"steps_{name}": _steps(name) for name in KERNELS},
}


def draw_sizes(family: Family, n: int) -> list[Shapes]:
    """Shapes of inputs for `n` calls, always the same ones."""
    draw, found = random.Random(0), list[Shapes]()
    while len(found) < n:
        shapes = family.draw(draw)
        if family.products(shapes) <= MOST_PRODUCTS and max(map(n_elements, shapes)) <= MOST_ELEMENTS:
            found.append(shapes)
    return found


def measure(family: Family, n: int, tell: Callable[[Shapes, float, float], None]) -> Result:
    """One kernel for any sizes at `n` drawn sizes; `tell` is told the seconds of the specialised kernel and of this one."""
    import polyc

    values = np.random.default_rng(0)
    sizes, shares, error, seconds = draw_sizes(family, n), list[float](), 0.0, 0.0
    dynamic = polyc.compile(family.text, dynamic=family.symbolic)
    for shapes in sizes:
        inputs = [s if isinstance(s, int) else values.standard_normal(s, np.float32) for s in shapes]
        specialised = polyc.compile(family.text, dynamic=False)
        exact = specialised(*inputs)
        start = time.process_time()
        found = dynamic(*inputs)
        seconds = seconds or time.process_time() - start
        for a, b in zip(as_tuple(found), as_tuple(exact), strict=True):
            error = max(error, _difference(a, b))
        own, other = _take_turns([specialised, dynamic], inputs, found)
        shares.append(own / other)
        tell(shapes, own, other)
    return Result(sizes, shares, seconds, sum(": kernel " in r.message for r in dynamic.remarks), error)


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest one, over the largest of `b`; infinite where one is a number and the other is none, or another infinity."""
    is_same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(is_same, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf))
    scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    return float(apart.max(initial=0.0) / (scale or 1.0))


def _take_turns(sides: Sequence[Any], inputs: Sequence[Any], out: Any) -> list[float]:
    """Least seconds of each side, on this thread."""
    least = [float("inf")] * len(sides)
    start, turns = time.perf_counter(), 0
    while turns < TURNS or time.perf_counter() - start < SECONDS:
        turns += 1
        for n, side in enumerate(sides):
            before = time.thread_time()
            side(*inputs, out=out)
            least[n] = min(least[n], time.thread_time() - before)
    return least


@click.command()
@click.argument("names", nargs=-1, metavar="[OPERATOR]...")
@click.option("--sizes", "n", default=40, type=click.IntRange(min=1), help="Random sizes for each operator.", show_default=True)
@click.option("--each", is_flag=True, help="Print every size.")
def main(names: tuple[str, ...], n: int, each: bool) -> None:
    """Measure OPERATORs (all of them by default): one kernel for any sizes, as a share of the specialised kernels' speed, on
    one thread."""
    os.environ["POLYC_CACHE"] = "0"
    import polyc

    polyc.set_num_threads(1)
    unknown = [name for name in names if name not in FAMILIES]
    if unknown:
        raise click.UsageError(f"no operator {unknown[0]!r}; there are {', '.join(FAMILIES)}")
    console = Console(highlight=False)
    table = Table("operator", "sizes", "kernels", "compiled in", "mean", "tenth", "least", "at")
    is_right = True
    for name in names or FAMILIES:

        def tell(shapes: Shapes, own: float, other: float, name: str = name) -> None:
            if each:
                line = f"{name} {_text(shapes)}: {own / other:.2f} of the speed of {own * 1e6:.0f} µs"
                console.print(line, markup=False, soft_wrap=True)

        result = measure(FAMILIES[name], n, tell)
        ranked = sorted(zip(result.shares, result.sizes, strict=True))
        row = [f"{geometric_mean(result.shares):.2f}", f"{ranked[n // 10][0]:.2f}", f"{ranked[0][0]:.2f}"]
        table.add_row(name, str(n), str(result.n_kernels), f"{result.seconds:.1f} s", *row, _text(ranked[0][1]))
        if not result.error <= TOLERANCE or result.n_kernels != 1:
            console.print(f"{name}: {result.n_kernels} kernels, results differ by {result.error:.1e}", style="red")
            is_right = False
    console.print(table)
    if not is_right:
        raise SystemExit(1)


def _text(shapes: Shapes) -> str:
    return " ".join(str(s) if isinstance(s, int) else "x".join(map(str, s)) for s in shapes)
