"""Patterns: what is read from them, their programs in the reference interpreter, and every error with its caret."""

from __future__ import annotations

import warnings

import einops
import numpy as np
import pytest

from polyc.diagnostics import ArgumentError, ArgumentTypeError, PolycError, SemanticError
from polyc.frontends.einops import REDUCTIONS, check_lengths, fit_pattern, read_einops, read_pattern, result_type
from polyc.ir.interpret import interpret
from polyc.ir.types import F32, I32, from_numpy
from polyc.ir.verify import verify_program


def evaluate(operation, pattern, arrays, reduction=None, **lengths):
    """By the reference interpreter; `arrays` is an array or a list of them."""
    is_list = isinstance(arrays, list)
    shape = (len(arrays), *arrays[0].shape) if is_list else arrays.shape
    fitted = fit_pattern(read_pattern(operation, pattern), shape, lengths)
    dtype = from_numpy((arrays[0] if is_list else arrays).dtype)
    program = read_einops(fitted, dtype, reduction, len(arrays) if is_list else None)
    verify_program(program)
    parts = [a.reshape(fitted.split_shape[1:]) for a in arrays] if is_list else [arrays.reshape(fitted.split_shape)]
    return interpret(program, dict(zip(program.parameters, parts, strict=True)))["result"].reshape(fitted.shape)


X = np.random.default_rng(0).integers(1, 4, (2, 4, 6, 3)).astype(np.float32)

CASES = [
    ("rearrange", "a b c d -> d c b a", {}),
    ("rearrange", "a (b p) c d -> a p (c b) d", {"p": 2}),
    ("rearrange", "... c d -> d ... c", {}),
    ("rearrange", "a ... -> (...) a", {}),
    ("rearrange", "a b c d -> (a b c d)", {}),
    ("rearrange", "a b c d -> 1 a (1 b) () c d", {}),
    ("repeat", "a b c d -> a k (b 2) c d", {"k": 3}),
    ("repeat", "a ... -> ... (a 1 3)", {}),
    *(("reduce", "a (b 2) c (d) -> d 1 b", {}, r) for r in REDUCTIONS),
    *(("reduce", "a ... -> ", {}, r) for r in REDUCTIONS),
    ("reduce", "a (b p) c d -> a b c d", {"p": 4}, "max"),
    ("reduce", "a b c d -> d c b a", {}, "sum"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_programs_agree_with_einops(case):
    operation, pattern, lengths, *reduction = case
    x = X[:, :, :2] if reduction == ["prod"] else X
    expected = getattr(einops, operation)(x, pattern, *reduction, **lengths)
    got = evaluate(operation, pattern, x, *reduction, **lengths)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("reduction", [None, "sum", "mean", "max"])
def test_lists_are_operands(reduction):
    arrays = [X, X + 1, X * 2]
    if reduction is None:
        got, expected = evaluate("rearrange", "n a ... -> a (n ...)", arrays), einops.rearrange(arrays, "n a ... -> a (n ...)")
    else:
        pattern = "n a b ... -> b a"
        got, expected = evaluate("reduce", pattern, arrays, reduction), einops.reduce(arrays, pattern, reduction)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "u8", "?", "f2", "f8"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_element_types_of_reductions_are_numpys(dtype, reduction):
    x = X.astype(dtype)
    if reduction == "mean" and np.dtype(dtype).kind != "f":
        with pytest.raises(ArgumentTypeError, match="mean"):
            result_type(from_numpy(x.dtype), reduction)
        return
    got, expected = (
        evaluate("reduce", "a b c d -> a c", x[:, :2, :, :1], reduction),
        getattr(x[:, :2, :, :1], reduction)((1, 3)),
    )
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=1e-3)


# operation, pattern, code, words of the message, what the caret marks
WRONG = [
    ("rearrange", "a b c", "syntax", "one ->, and this has none", "a b c"),
    ("rearrange", "a -> b -> c", "syntax", "one ->, and this has 2", "a -> b -> c"),
    ("rearrange", "", "syntax", "one ->", ""),
    ("rearrange", "a, b -> a b", "syntax", "','", ","),
    ("rearrange", "a (b (c)) -> a b c", "syntax", "inside of parentheses", "("),
    ("rearrange", "a (b -> a b", "syntax", "inside of parentheses", "->"),
    ("rearrange", "a -> (a", "syntax", "never closed", "("),
    ("rearrange", "a) -> a", "syntax", "nothing is open", ")"),
    ("rearrange", "a -> a -", "syntax", "'-'", "-"),
    ("rearrange", "a .. -> a", "syntax", "'.'", "."),
    ("rearrange", "_a -> _a", "syntax", "_a cannot be the name", "_a"),
    ("rearrange", "for -> for", "syntax", "for cannot be the name", "for"),
    ("repeat", "a -> a 0", "syntax", "the length 0", "0"),
    ("repeat", "a -> a " + "9" * 30, "syntax", "the length 999", "9" * 30),
    ("rearrange", "a a -> a", "axis", "stands twice", "a"),
    ("rearrange", "... a ... -> a ...", "axis", "... stands twice", "..."),
    ("rearrange", "a b -> a", "axis", "the axis b is not on the right", "b"),
    ("rearrange", "a b -> a b c", "axis", "the axis c is not on the left", "c"),
    ("rearrange", "a 2 -> a", "axis", "a number as an axis", "2"),
    ("rearrange", "a -> a 2", "axis", "an axis of length 2 is not on the left", "2"),
    ("rearrange", "a ... -> a", "axis", "the axis ... is not on the right", "..."),
    ("rearrange", "a -> a ...", "axis", "the left side has no ...", "..."),
    ("rearrange", "(a ...) -> a ...", "axis", "... stands inside of parentheses", "(a ...)"),
    ("repeat", "a b -> a", "axis", "the axis b is not on the right", "b"),
    ("reduce", "a b -> a c", "axis", "the axis c is not on the left", "c"),
    ("reduce", "height width -> hieght", "axis", "the axis hieght is not", "hieght"),
]


@pytest.mark.parametrize(("operation", "pattern", "code", "words", "marked"), WRONG)
def test_wrong_patterns(operation, pattern, code, words, marked):
    with pytest.raises(SemanticError) as caught:
        read_pattern(operation, pattern)
    found = [d for d in caught.value.diagnostics if d.code == f"semantic-einops-{code}" and words in d.message]
    assert found, caught.value
    assert pattern[found[0].span.start : found[0].span.end] == marked
    assert found[0].help
    with pytest.raises((einops.EinopsError, ValueError)), warnings.catch_warnings(action="ignore"):
        apply = getattr(einops, operation)
        apply(np.zeros((2,) * 3), pattern, *(["sum"] if operation == "reduce" else []))


def test_nearest_names_are_suggested():
    with pytest.raises(SemanticError, match="did you mean height"):
        read_pattern("reduce", "height width -> hieght")


# pattern, lengths, code, words of the message, what the caret marks; the array has the shape 2, 4, 6, 3
MISFITS = [
    ("a b c -> c b a", {}, "rank", "has 4 dimensions, and the left side 3", "a b c"),
    ("a b c d e ... -> a b c d e ...", {}, "rank", "at least 5", "a b c d e ..."),
    ("a (b q) c d -> a b q c d", {}, "axis", "can be split into b and q in many ways", "(b q)"),
    ("a (b q) c d -> a b q c d", {"q": 3}, "size", "length 4, which is not divisible by 3", "(b q)"),
    ("a (b q) c d -> a b q c d", {"q": 0}, "size", "an axis of it has length 0", "(b q)"),
    ("a (b q) c d -> a b q c d", {"b": 3, "q": 2}, "size", "3 * 2 = 6", "(b q)"),
    ("a b c d -> d c b a", {"b": 5}, "size", "dimension 1 has length 4, and its axes 5", "b"),
    ("1 b c d -> b c d", {}, "size", "dimension 0 has length 2, and its axes 1", "1"),
    ("() b c d -> b c d", {}, "size", "dimension 0 has length 2, and its axes 1", "()"),
    ("a b c d -> a b c d", {"e": 5}, "axis", "the pattern has no axis e", "a b c d -> a b c d"),
    ("a b c d -> a b c d", {"d": -3}, "axis", "the length of axis d is -3", "a b c d -> a b c d"),
]


@pytest.mark.parametrize(("pattern", "lengths", "code", "words", "marked"), MISFITS)
def test_shapes_and_lengths_that_do_not_fit(pattern, lengths, code, words, marked):
    read = read_pattern("rearrange", pattern)
    with pytest.raises(ArgumentError) as caught:
        check_lengths(read, lengths)
        fit_pattern(read, X.shape, lengths)
    found = [d for d in caught.value.diagnostics if d.code == f"argument-einops-{code}" and words in d.message]
    assert found, caught.value
    assert pattern[found[0].span.start : found[0].span.end] == marked


def test_new_axes_need_lengths():
    with pytest.raises(ArgumentError, match="the new axis k has no length"):
        check_lengths(read_pattern("repeat", "a -> a k"), {})


def test_every_error_of_a_pattern_at_once():
    with pytest.raises(PolycError) as caught:
        read_pattern("rearrange", "a b c -> c d")
    assert len(caught.value.diagnostics) == 3


def test_result_types():
    assert result_type(F32, "sum") == F32
    with pytest.raises(ArgumentTypeError):
        result_type(I32, "mean")
