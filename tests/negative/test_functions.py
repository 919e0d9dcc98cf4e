"""Malformed functions: every refusal names the place in the user's own file."""

# ruff: noqa: F821, UP037 (bodies of operators use indices that Python never evaluates)
from __future__ import annotations

import warnings

import numpy as np
import pytest

import polyc
from tests.negative.support import check_rendering, refuse

HEAD = 'def f(X: "f32[M, N]", b: "f32[N]", n: "i32[M]"):\n'
ARRAYS = (np.ones((3, 4), np.float32), np.ones(4, np.float32), np.ones(3, np.int32))

BODIES = {
    "misspelt_tensor": ("Y[i] += Xx[i, j]", "semantic-undefined", "did you mean X?"),
    "misspelt_function": ("Y[i] = np.epx(b[i])", "semantic-function", "did you mean exp?"),
    "function_of_whole_arrays": ("Y[i, j] = np.softmax(X[i, j])", "unsupported-call", "write it out"),
    "operator_of_whole_arrays": ("Y = X @ b", "semantic-expression", "+= A[i, k] * B[k, j]"),
    "index_that_is_assigned_below": ("Y[i] = b[k]\n    k[i] = b[i]", "semantic-undefined", "a name that is not assigned"),
    "loop_over_an_extent": (
        "for t in range(1, N):\n        Y[t] = Y[t - 1] + b[t]",
        "semantic-static-loop",
        "an index stands for it, also where steps depend on each other: with polyc.where(1 <= t < N): ...",
    ),
    "method_of_an_element": ("Y[i] = X[i, j].max()", "semantic-function", "s = max(X[i, j])"),
    "whole_array": ("Y = np.exp(X)", "semantic-rank", "read one element of it: X[i, j]"),
    "too_few_subscripts": ("Y[i] = X[i]", "semantic-rank", "2 dimensions, but is read with 1 subscript"),
    "chained_subscripts": ("Y[i, j] = X[i][j]", "semantic-expression", "in one pair of brackets: X[i, j]"),
    "slice_with_a_subscript": ("Y[i] = b[1:][i]", "semantic-expression", "b[i + 1]"),
    "transposed": ("Y[i] = X.T", "semantic-expression", "read an element of it: X.T[i, j]"),
    "converted_to_no_type": ("Y[i] = b[i].astype(3)", "semantic-function", "x[i].astype(np.float32)"),
    "allocated": ("Y = np.zeros(N, dtype=np.float32)", "unsupported-call", "tensors need no allocation"),
    "running_sum": ("Y[i] = np.cumsum(b[i])", "unsupported-call", "S[i] = S[i - 1] + X[i]"),
    "shift_of_unsigned_by_signed": (
        "Y[i] = n[i].astype(np.uint64) << n[i]",
        "type-operands",
        "cast one of them, as in u64(...)",
    ),
    "and_of_comparisons": ("Y[i] = 1 if b[i] > 0 & b[i] < 1 else 0", "type-operands", "(a < b) & (c < d)"),
    "sum_without_a_sum": ("Y[i] = X[i, j]", "semantic-missing-reduction", "to sum over j write Y[i] +="),
    "loop": ("for i in b:\n        Y[i] = b[i]", "semantic-static-loop", "indices stand for loops"),
    "walrus": ("Y[i] = (z := b[i])", "semantic-expression", "may hold"),
    "await": ("Y[i] = await b[i]", "syntax-python", "await"),
    "before_the_first_element": ("Y[i] = X[i, -5]", "range-out-of-bounds", "must be in 0:4", "the last is number N - 1"),
    "next_element": ("with polyc.where(0 <= i < N):\n        Y[i] = b[i + 1]", "range-out-of-bounds", "from 1 to 4", "pad("),
    "range_backwards": ("with polyc.where(5 <= i < 3):\n        Y[i] = b[i]", "range-negative", "starts at 5", "before 3"),
    "recurrence": ("Y[i] = Y[i - 1] + b[i]", "range-out-of-bounds", "from -1 to", "polyc.where(1 <= i < N)"),
    "float_subscript": ("Y[i] = b[i / 2]", "type-not-integral", "write //"),
    "bracket_not_closed": ("Y[i] = b[i", "syntax-python", "never closed"),
    "indentation": ("Y[i] = b[i]\n  z = 1", "syntax-python", "unindent"),
    "null_character": ("Y[i] = b[i]\0", "syntax-python", "null bytes"),
    "five_thousand_digits": ("Y[i] = b[i] + " + "9" * 5000, "syntax-python", "digits"),
    "huge_power": ("Y[i] = b[i] + 2 ** 100000000", "type-literal", "the power is too large"),
    "huge_offset": ("Y[i] = b[i + 2 ** 70]", "type-literal", "does not fit i64"),
    "division_by_zero": ("Y[i] = b[i] + 1 // 0", "type-literal", "zero"),
    "three_hundred_parentheses": ("Y[i] = " + "(" * 300 + "b[i]" + ")" * 300, "syntax-python", "too many nested"),
    "three_thousand_signs": ("Y[i] = " + "-" * 3000 + "b[i]", "syntax-nesting", ":2:5", "names of their own"),
    "fifteen_thousand_terms": ("Y[i] = " + "b[i] + " * 15000 + "q(b[i])", "syntax-nesting", ":2:5", "names of their own"),
    "three_thousand_powers": ("Y[i] = " + "b[i] ** " * 3000 + "2", "syntax-nesting", "names of their own"),
    "three_thousand_conditions": ("Y[i] = " + "1 if b[i] > 0 else " * 3000 + "2", "syntax-nesting", "names of their own"),
    "five_thousand_attributes": ("Y[i] = b" + ".x" * 5000, "syntax-nesting", "names of their own"),
    "eighty_lambdas": ("Y[i] = " + "(lambda: " * 80 + "b[i]" + ")" * 80, "semantic-expression", "may hold"),
    "hundred_thousand_blanks": ("Y[i] = " + " " * 100_000 + "q(b[i])", "semantic-function", "unknown function 'q'"),
    "other_name_returned": ("Yout[i] = b[i]\n    return Yuot", "semantic-return", "Yuot is not assigned", "did you mean Yout?"),
    "expression_returned": (
        "Y[i] = b[i]\n    return Y[i] + 1",
        "semantic-missing-reduction",
        "assign it above, result[i] = Y[i] + 1",
    ),
    "list_returned": ("Y[i] = b[i]\n    return [Y]", "semantic-return", "return Y, a / b"),
    "yield": ("Y[i] = b[i]\n    yield Y", "semantic-statement", "no meaning here"),
}


@pytest.mark.parametrize("name", BODIES)
def test_body_is_refused(name):
    body, code, *fragments = BODIES[name]
    text = f"{HEAD}    {body}\n" + ("" if "return" in body else "    return Y\n")
    error = refuse(lambda: polyc.op(text)(*ARRAYS), code, *fragments)
    assert "<string>:" in str(error) and "^" in str(error)


SIGNATURES = {
    "bracket_in_annotation": ('def f(X: "f32[M"):\n', "semantic-annotation", "is no array type"),
    "misspelt_type": ('def f(X: "flot32[M]"):\n', "semantic-annotation", "did you mean f32?"),
    "type_of_tc": ('def f(X: "double[M]"):\n', "semantic-annotation", "did you mean f64?"),
    "long_double": ('def f(X: "longdouble[M]"):\n', "unsupported-type", "use one of f16, bf16, f32"),
    "negative_extent": ('def f(X: "f32[-3]"):\n', "semantic-annotation", "numbers >= 0"),
    "extent_of_many_digits": ('def f(X: "f32[99999999999999999999999]"):\n', "semantic-annotation", "cannot be read"),
    "size_in_a_product_only": ('def f(X: "f32[M * N]"):\n', "semantic-annotation", "use M alone"),
    "any_number_of_arrays": ("def f(*X):\n", "semantic-parameter", "name every array"),
    "array_with_default": ('def f(X: "f32[M]" = None):\n', "semantic-parameter", "behind a bare *"),
    "coroutine": ("async def f(X):\n", "semantic-not-a-function", "the text of one def"),
    "two_functions": ("def g(X): pass\ndef f(X):\n", "semantic-not-a-function", "2 function definitions"),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature_is_refused(name):
    head, code, *fragments = SIGNATURES[name]
    refuse(lambda: polyc.op(f"{head}    Y[i] = X[i]\n    return Y\n"), code, *fragments)


@pytest.mark.parametrize("source", ["", "\n\n", "1 + 1", "X = 3", "# nothing", "class f:\n    pass"])
def test_text_without_a_function(source):
    refuse(lambda: polyc.op(source), "semantic-not-a-function", "def")


@pytest.mark.parametrize("thing", [len, lambda X: X, type, np.exp, 3], ids="builtin lambda class ufunc number".split())
def test_things_without_source(thing):
    refuse(lambda: polyc.op(thing), "semantic-not-a-function", "write a def")


def test_function_without_source():
    scope: dict = {}
    exec("def q(X): return X", scope)
    refuse(lambda: polyc.op(scope["q"]), "semantic-source-missing", "in a file, or pass its source")


def test_names_beyond_ascii_are_names():
    op = polyc.op('def f(X: "f32[M]"):\n    α[ι] = X[ι] + 1\n    return α\n')
    np.testing.assert_array_equal(op(np.zeros(3, np.float32)), np.ones(3))


def test_several_errors_at_once_in_the_order_of_the_text():
    error = refuse(lambda: polyc.op(HEAD + "    Y[i] = Q[i]\n    Z[i] = X[i]\n    return Y, W\n"), "semantic-undefined", "W")
    lines = [d.span.line_column()[0] for d in error.diagnostics if d.span is not None]
    assert lines == [2, 3, 4]


def test_errors_of_signature_and_body_come_together():
    text = 'def f(X: "flot[N]", b: "f32[N]"):\n    Y[i] = X[i] + c[i]\n    return Y, W\n'
    error = refuse(lambda: polyc.op(text), "semantic-annotation", "did you mean f32?", "there is no tensor c", "W")
    assert [d.span.line_column()[0] for d in error.diagnostics if d.span is not None] == [1, 2, 3]


def test_the_place_is_in_the_users_file():
    def shifted(X: "f32[N]"):
        Y[i] = Xx[i]
        return Y

    error = refuse(lambda: polyc.op(shifted), "semantic-undefined", f"{__file__}:", "Y[i] = Xx[i]")
    assert error.diagnostics[0].span is not None
    assert error.diagnostics[0].span.line_column()[0] == shifted.__code__.co_firstlineno + 1


def test_warning_points_at_the_users_line():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        polyc.compile("def f(float(M, N) A) -> (s) {\n  s(m) += A(m, n)\n}")
        line = test_warning_points_at_the_users_line.__code__.co_firstlineno + 3
    (warning,) = found
    assert issubclass(warning.category, polyc.PolycWarning)
    assert (warning.filename, warning.lineno) == (__file__, line)
    check_rendering(str(warning.message))


def test_warning_of_a_decorated_function_points_at_its_use():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        polyc.op('def f(X: "f32[M]", Z: "f32[N]"):\n    with polyc.where(0 <= i < M):\n        Y[i] = Z[i]\n    return Y\n')
    assert all(w.filename == __file__ for w in found)


def test_compile_time_constant_that_is_no_number():
    op = polyc.op('def f(X: "f32[M]", *, K=3):\n    with polyc.where(0 <= i < K):\n        Y[i] = X[i]\n    return Y\n')
    x = np.ones(6, np.float32)
    refuse(lambda: op(x, K="a"), "semantic-constant", "an int, a float or a bool")
    refuse(lambda: op(x, K=2**80), "type-literal", "does not fit i64")
    refuse(lambda: op(x, K=-1), "range-negative", "ends before -1")
    refuse(lambda: op(x, K=9), "range-out-of-bounds", "must be in 0:6")
    refuse(lambda: op(x, K=2**40), "range-out-of-bounds", "must be in 0:6")
    refuse(lambda: op(x, k=2), "argument-name", "did you mean K?")


@pytest.mark.parametrize("call", [lambda: polyc.f32(3), lambda: polyc.where(True)], ids=["cast", "where"])
def test_names_outside_an_operator(call):
    refuse(call, "semantic-outside-operator", "@polyc.op")


def test_index_names():
    refuse(lambda: polyc.indices("i 2j"), "semantic-index-name", "2j")


def test_error_in_a_statement_is_told_once():
    error = refuse(lambda: polyc.op("def f(a: 'f32[N]'):\n    b[i] = c[i] = a[i]\n    return b, c\n"), "semantic-statement")
    assert len(error.diagnostics) == 1


def test_method_is_refused_and_static_method_is_not():
    text = "def f(self, a: 'f32[N]'):\n    b[i] = a[i]\n    return b\n"
    refuse(lambda: polyc.op(text), "semantic-parameter", "a method cannot be an operator", "@staticmethod")

    class Layer:
        @staticmethod
        @polyc.op
        def scale(a: "f32[N]"):
            b[i] = 2 * a[i]
            return b

    assert Layer().scale(np.ones(2, np.float32)).tolist() == [2, 2]


def test_a_part_after_one_of_unknown_type_is_no_second_error():
    @polyc.op
    def parts(x):
        y[0] = 0.0
        y[1] = nope[0]
        y[2] = x[0]
        return y

    with pytest.raises(polyc.PolycError) as caught:
        parts(np.ones(3))
    assert [d.message for d in caught.value.diagnostics] == ["there is no tensor nope"]
