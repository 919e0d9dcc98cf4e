"""Random contractions, convolutions and products of functions of operands, for usual and for tiny caches: against NumPy.

By hand, for a longer run: ``POLYC_EXAMPLES=1000 pytest tests/property/test_contractions.py``.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyc
from polyc.codegen.objects import host
from tests.property.pipeline import falls

EXAMPLES = int(os.environ.get("POLYC_EXAMPLES", "15"))
NAMES = {"f4": "float", "f8": "double", "i4": "int32"}
EXTENTS = [1, 2, 3, 5, 7, 8, 13, 16, 17, 24, 31, 33, 40, 64, 70]

pytestmark = pytest.mark.usefixtures("no_cache")


@pytest.fixture(scope="module")
def no_cache() -> Iterator[None]:
    before = os.environ.get("POLYC_CACHE")
    os.environ["POLYC_CACHE"] = "0"
    yield
    os.environ.pop("POLYC_CACHE") if before is None else os.environ.update(POLYC_CACHE=before)


@contextmanager
def caches(is_tiny: bool) -> Iterator[None]:
    """Caches so small that small operands are cut into blocks of all levels."""
    before = host.host_target
    if is_tiny:
        small = replace(before(), l1=1 << 11, l2=1 << 13)
        host.host_target = lambda: small  # type: ignore[assignment]
    try:
        yield
    finally:
        host.host_target = before


def draw(source: random.Random, dtype: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(source.randrange(1 << 30))
    array = (rng.integers(-4, 5, shape) if dtype == "i4" else rng.standard_normal(shape)).astype(dtype)
    return np.asfortranarray(array) if source.random() < 0.2 else array


def check(operator: polyc.Operator, arrays: list[np.ndarray], expected: np.ndarray, dtype: str, what: object) -> None:
    lowered = operator.lower(*arrays)
    got = lowered.compile()(*arrays)
    largest = max(1.0, float(np.abs(expected).max(initial=0.0)))
    relative, absolute = {"f4": (1e-4, 1e-4), "f8": (1e-10, 3e-12), "i4": (0.0, 0.0)}[dtype]
    np.testing.assert_allclose(got, expected, rtol=relative, atol=absolute * largest, err_msg=str(what))
    assert not falls(lowered), what


seeds = st.integers(0, 1 << 30)
profile = settings(max_examples=EXAMPLES, deadline=None, derandomize="POLYC_EXAMPLES" not in os.environ, database=None)


@profile
@given(seeds, st.booleans())
def test_einsum(seed: int, is_tiny: bool) -> None:
    source = random.Random(seed)
    counts = [source.choice(c) for c in ([0, 0, 1], [0, 1, 1, 2], [0, 1, 1, 2], [1, 1, 2, 3])]
    letters = list("abcdefgh"[: sum(counts)])
    source.shuffle(letters)
    groups = [[letters.pop() for _ in range(n)] for n in counts]
    batch, rows, columns, summed = groups
    extent = {c: source.choice(EXTENTS) for c in batch + rows + columns + summed}
    while math.prod(extent.values()) > 3e6:
        largest = max(extent, key=lambda c: extent[c])
        extent[largest] = max(1, extent[largest] // 2)
    terms = [batch + rows + summed, batch + columns + summed, batch + rows + columns]
    for term in terms:
        source.shuffle(term)
    subscripts = "{},{}->{}".format(*("".join(t) for t in terms))
    dtype = source.choice(["f4", "f4", "f8", "i4"])
    arrays = [draw(source, dtype, *(extent[c] for c in t)) for t in terms[:2]]
    expected = np.einsum(subscripts, *(a.astype("f8") for a in arrays))
    with caches(is_tiny):
        check(polyc.einsum_operator(subscripts), arrays, expected, dtype, (subscripts, extent, dtype))


@profile
@given(seeds, st.booleans())
def test_convolution(seed: int, is_tiny: bool) -> None:
    source = random.Random(seed)
    dtype = source.choice(["f4", "f4", "f8", "i4"])
    c, k = source.choice([1, 3, 5, 16, 20]), source.choice([1, 4, 16, 33, 40])
    r, s = source.choice([1, 2, 3, 5]), source.choice([1, 2, 3, 5])
    stride, dilation, pad = source.choice([1, 1, 2, 3]), source.choice([1, 1, 2]), source.choice([0, 1, 2])
    least = [dilation * (n - 1) + 1 - 2 * pad for n in (r, s)]
    h, w = (max(source.choice([5, 7, 9, 14, 17, 28, 40]), n) for n in least)
    high, wide = ((n + 2 * pad - dilation * (m - 1) - 1) // stride + 1 for n, m in ((h, r), (w, s)))
    depthwise, twice = source.random() < 0.25, source.random() < 0.3
    read = f"x(c, {stride} * h + {dilation} * r - {pad}, {stride} * v + {dilation} * s - {pad})"
    weights, left = ("w(c, r, s)", "O(c, h, v)") if depthwise else ("w(k, c, r, s)", "O(k, h, v)")
    text = f"""def f({NAMES[dtype]}(C, H, W) x, {NAMES[dtype]}({"C" if depthwise else "K, C"}, R, S) w) -> (O) {{
      {left} +=! {f"pad({read}, 0)" if pad else read} * {weights} where h in 0:{high}, v in 0:{wide}
      {f"{left} = {left} + {left}" if twice else ""}
    }}"""
    x, weight = draw(source, dtype, c, h, w), draw(source, dtype, *([c] if depthwise else [k, c]), r, s)
    padded = np.pad(x.astype("f8"), ((0, 0), (pad, pad), (pad, pad)))
    expected = np.zeros((c if depthwise else k, high, wide))
    for a in range(r):
        for b in range(s):
            rows = slice(dilation * a, dilation * a + stride * (high - 1) + 1, stride)
            columns = slice(dilation * b, dilation * b + stride * (wide - 1) + 1, stride)
            part, factor = padded[:, rows, columns], weight[..., a, b].astype("f8")
            expected += part * factor[:, None, None] if depthwise else np.einsum("chv,kc->khv", part, factor)
    with caches(is_tiny):
        operator = polyc.compile(text, dynamic=False)
        check(operator, [x, weight], expected * (2 if twice else 1), dtype, (text, x.shape, weight.shape))


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "{}": lambda x: x,
    "exp({})": np.exp,
    "2.0 * {}": lambda x: 2 * x,
    "fmax({}, 0.0)": lambda x: np.maximum(x, 0),
    "tanh({})": np.tanh,
    "({} + 1.0)": lambda x: x + 1,
}


@profile
@given(seeds, st.booleans())
def test_products_of_functions_of_operands(seed: int, is_tiny: bool) -> None:
    source = random.Random(seed)
    dtype = source.choice(["f4", "f8"])
    m, n, k = (source.choice([1, 3, 8, 17, 33, 64, 100]) for _ in range(3))
    first, second = (source.choice(list(FUNCTIONS)) for _ in range(2))
    turns = [source.random() < 0.5 for _ in range(2)]
    a_read, b_read = "A(k, m)" if turns[0] else "A(m, k)", "B(n, k)" if turns[1] else "B(k, n)"
    name, a_shape, b_shape = NAMES[dtype], "K, M" if turns[0] else "M, K", "N, K" if turns[1] else "K, N"
    text = f"""def f({name}({a_shape}) A, {name}({b_shape}) B, {name}(N) c) -> (O) {{
      O(m, n) +=! {first.format(a_read)} * {second.format(b_read)}
      O(m, n) = fmax(O(m, n) + c(n), 0.0)
    }}"""
    a, b = draw(source, dtype, *((k, m) if turns[0] else (m, k))), draw(source, dtype, *((n, k) if turns[1] else (k, n)))
    bias = draw(source, dtype, n)
    left, right = (a.T if turns[0] else a).astype("f8"), (b.T if turns[1] else b).astype("f8")
    expected = np.maximum(FUNCTIONS[first](left) @ FUNCTIONS[second](right) + bias, 0)
    with caches(is_tiny):
        check(polyc.compile(text, dynamic=False), [a, b, bias], expected, dtype, (text, m, n, k))
