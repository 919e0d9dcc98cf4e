"""`rearrange`, `reduce` and `repeat` against einops, by NumPy and by compiled kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import einops
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyc
from polyc.api import einops as functions
from polyc.api import rates
from polyc.diagnostics import ArgumentError, ArgumentTypeError, SemanticError


@st.composite
def _group(draw: Any, axes: list[str]) -> str:
    """Axes, some of them in parentheses."""
    words: list[str] = []
    position = 0
    while position < len(axes):
        n = draw(st.integers(1, 3))
        part = axes[position : position + n]
        words += [f"({' '.join(part)})"] if draw(st.booleans()) else part
        position += n
    if draw(st.integers(0, 5)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(st.sampled_from(["1", "()"])))
    return " ".join(words)


@st.composite
def calls(draw: Any) -> tuple[str, np.ndarray, str, tuple[str, ...], dict[str, int]]:
    """An operation, an array, a pattern, a reduction and lengths."""
    operation = draw(st.sampled_from(["rearrange", "reduce", "repeat"]))
    lengths = {name: draw(st.integers(0 if name == "a" else 1, 4)) for name in "abcd"[: draw(st.integers(1, 4))]}
    names = list(lengths)
    left, reduction = draw(_group(names)), ()
    kept = draw(st.permutations(names))
    if operation == "reduce":
        kept = kept[: draw(st.integers(0, len(kept)))]
        empty = any(lengths[n] == 0 for n in names if n not in kept)
        reduction = (draw(st.sampled_from(["sum", "mean", "prod", "any", "all"] + ([] if empty else ["min", "max"]))),)
    new: dict[str, int] = {}
    if operation == "repeat":
        new = {name: draw(st.integers(0, 3)) for name in "xy"[: draw(st.integers(1, 2))]}
        kept = draw(st.permutations([*kept, *new, *draw(st.sampled_from([[], ["2"]]))]))
    right = draw(_group(list(kept)))
    shape = []
    inside = None
    for word in left.replace("(", " ( ").replace(")", " ) ").split():
        if word == "(":
            inside = 1
        elif word == ")":
            shape, inside = [*shape, inside], None
        elif inside is None:
            shape.append(lengths.get(word, 1))
        else:
            inside *= lengths[word]
    if draw(st.booleans()) and "..." not in left:
        front = draw(st.sampled_from([(), (2,), (1, 2)]))
        left, shape = f"... {left}", [*front, *shape]
        if operation != "reduce" or draw(st.booleans()):
            right = draw(st.sampled_from([f"... {right}", f"{right} ...", f"{right} (...)"]))
        elif 0 in front:
            reduction = ("sum",)
    dtype = draw(st.sampled_from(["f4", "f8", "i4", "u1", "?"] if reduction != ("mean",) else ["f4", "f8"]))
    array = np.random.default_rng(len(left)).integers(1, 4, shape).astype(dtype)
    if draw(st.booleans()):
        array = np.asfortranarray(array)
    return operation, array, f"{left} -> {right}", reduction, {**lengths, **new}


@settings(max_examples=60, deadline=None)
@given(calls())
def test_random_patterns_agree_with_einops(call: tuple[Any, ...]) -> None:
    operation, array, pattern, reduction, lengths = call
    _compare(operation, array, pattern, reduction, lengths)


@settings(max_examples=12, deadline=None)
@given(calls())
def test_random_patterns_agree_with_einops_compiled(call: tuple[Any, ...]) -> None:
    operation, array, pattern, reduction, lengths = call
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLYC_EINSUM", "compile")
        functions._make_calls.cache_clear()
        _compare(operation, array, pattern, reduction, lengths)
    functions._make_calls.cache_clear()


def _compare(operation: str, array: np.ndarray, pattern: str, reduction: tuple[str, ...], lengths: dict[str, int]) -> None:
    expected = getattr(einops, operation)(array, pattern, *reduction, **lengths)
    got = getattr(polyc, operation)(array, pattern, *reduction, **lengths)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert got.flags.c_contiguous and got.flags.writeable and not np.shares_memory(got, array)


def _draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("compiled", [False, True])
def test_lists(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_EINSUM", "compile" if compiled else "")
    functions._make_calls.cache_clear()
    arrays = [_draw(3, 4) + n for n in range(4)]
    for pattern in ("n h w -> h (n w)", "n ... -> ... n", "(a b) h w -> a h b w", "... w -> (...) w"):
        lengths = {"a": 2} if "(a b)" in pattern else {}
        expected = einops.rearrange(arrays, pattern, **lengths)
        np.testing.assert_array_equal(polyc.rearrange(arrays, pattern, **lengths), expected)
    np.testing.assert_allclose(polyc.reduce(arrays, "n h w -> w", "sum"), sum(arrays).sum(0), rtol=1e-5)
    np.testing.assert_allclose(polyc.repeat(arrays, "n h w -> k w n h", k=2)[1], np.stack(arrays).transpose(2, 0, 1))
    long = [np.full(2, n) for n in range(functions.MAX_OPERANDS + 1)]
    np.testing.assert_array_equal(polyc.rearrange(long, "n i -> (i n)"), np.stack(long).T.ravel())
    functions._make_calls.cache_clear()


def test_numpy_computes_until_compiling_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(functions, "clock", lambda: next(ticks))
    monkeypatch.setattr(functions, "MOST_LOST", 2500)
    monkeypatch.setattr(rates, "KERNEL_CALL", 0)
    functions._make_calls.cache_clear()
    x = _draw(4, 5)
    ways = []
    for n in range(4):
        np.testing.assert_allclose(polyc.reduce(x, "h w -> w", "mean"), x.mean(0), rtol=1e-5)
        calls = functions._find_calls("reduce", "h w -> w", "mean", {})
        (structure,) = calls.structures.values()
        ways.append(structure.operator is not None)
        np.testing.assert_allclose(polyc.reduce(_draw(4, 6 + n), "h w -> w", "mean"), _draw(4, 6 + n).mean(0), rtol=1e-5)
    assert ways == [False, False, True, True]
    functions._make_calls.cache_clear()


def test_empty_arrays() -> None:
    assert polyc.rearrange(np.zeros((0, 3)), "a b -> b a").shape == (3, 0)
    assert polyc.reduce(np.zeros((0, 3)), "a b -> b", "sum").tolist() == [0, 0, 0]
    assert polyc.repeat(np.zeros((2, 3)), "a b -> a b k", k=0).shape == (2, 3, 0)
    with pytest.raises(ArgumentError, match="the max of no elements is not defined"):
        polyc.reduce(np.zeros((0, 3)), "a b -> b", "max")


def test_keywords_and_what_is_no_pattern() -> None:
    x = _draw(2, 3)
    np.testing.assert_allclose(polyc.reduce(tensor=x, pattern="a b -> b", reduction="sum"), x.sum(0), rtol=1e-6)
    with pytest.raises(ArgumentError, match="did you mean sum"):
        polyc.reduce(x, "a b -> b", "sums")
    with pytest.raises(ArgumentTypeError, match="the pattern is a int"):
        polyc.rearrange(x, 3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="the reduction is a builtin_function"):
        polyc.reduce(x, "a b -> b", max)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"the length of axis p is 2\.0"):
        polyc.rearrange(x, "a (b p) -> a b p", p=2.0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="the list of arrays is empty"):
        polyc.rearrange([], "a b -> b a")
    with pytest.raises(ArgumentError, match="array 1 of the list"):
        polyc.rearrange([x, x[0]], "a ... -> a ...")
    with pytest.raises(SemanticError, match="-->"):
        polyc.rearrange(x, "a b -> a")
    with pytest.raises(ArgumentTypeError):
        polyc.rearrange(x.astype(np.longdouble), "a b -> b a")


def test_nothing_heavy_is_imported_while_numpy_computes() -> None:
    program = (
        "import sys, numpy, polyc; polyc.reduce(numpy.ones((2, 3)), 'a b -> b', 'sum'); "
        "print([m for m in ('islpy', 'llvmlite', 'lark') if m in sys.modules])"
    )
    environment = {k: v for k, v in os.environ.items() if k != "POLYC_EINSUM"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"
