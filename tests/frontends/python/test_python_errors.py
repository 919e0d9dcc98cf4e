"""Every way to be refused: the code, the place, the words."""

import random
import re

import numpy as np
import pytest

import polyc
from polyc.diagnostics import (
    ArgumentError,
    ArgumentTypeError,
    PolycError,
    RangeError,
    SemanticError,
    SyntaxErrorInSource,
    UnsupportedError,
)
from polyc.frontends.python import read_function, read_signature
from polyc.ir.types import F32, F64
from tests.frontends.python.evaluate import errors_of

HEAD = 'def f(X: "f32[M, N]", b: "f32[N]", n: "i32[M]", t: "bool[N]", *, width=3, half=0.5):\n'

BODIES = [
    # names
    ("Y[i] += Q[i, j]", "semantic-undefined", "Q[i, j]"),
    ("Y[i] = Z[i]\n    Z[i] = b[i]", "semantic-undefined", "Z[i]"),
    ("Y[i] = z * b[i]\n    z = 1", "semantic-undefined", "z"),
    ("Y[i] = M[i] + b[i]", "semantic-undefined", "M[i]"),
    ("Y[i] = X.shape[2] + b[i]", "semantic-rank", "X.shape[2]"),
    ("T[i] += X[i, j] * Y[j]\n    Y[i] = T[i] * T.shape[0]", "unsupported-extent", "T.shape[0]"),
    ("X[i, j] = 2 * b[i]", "semantic-immutable-input", "X[i, j]"),
    ("M = 2", "semantic-already-defined", "M"),
    ("width = 2", "semantic-already-defined", "width"),
    ("Y[i] = b[i]\n    i = 3", "semantic-left-side", "i"),
    # left sides
    ("Y[n[i]] = b[i]", "semantic-scatter", "Y[n[i]] = b[i]"),
    ("Y[i] = X.sum(axis=1)[i]", "semantic-function", "X.sum(axis=1)[i]"),
    ("Y[b[i]] += b[i]", "type-not-integral", "b[i]"),
    ("Y[:] = b[i]", "semantic-left-side", ":"),
    ("Y.x = b[0]", "semantic-left-side", "Y.x"),
    ("Y, Z = b[0], b[1], b[2]", "semantic-left-side", "Y, Z = b[0], b[1], b[2]"),
    ("Y, Y = b[0], b[1]", "semantic-left-side", "Y, Y = b[0], b[1]"),
    ("Y = Z = b[0]", "semantic-statement", "Y = Z = b[0]"),
    # reads
    ("Y[i] = X[i]", "semantic-rank", "X[i]"),
    ("Y[i] = b[i, i]", "semantic-rank", "b[i, i]"),
    ("Y[i] = X + b[i]", "semantic-rank", "X"),
    ("Y[i] = X[i, :]", "semantic-subscript", ":"),
    ("Y[i] = X[i, ...]", "semantic-subscript", "..."),
    ("Y[i] = b[b[i]]", "type-not-integral", "b[i]"),
    ("Y[i] = b[0.5]", "type-not-integral", "0.5"),
    ("Y[i] = X[i, 0][0]", "semantic-expression", "X[i, 0][0]"),
    # reductions
    ("Y[i] = X[i, j]", "semantic-missing-reduction", "j"),
    ("Y = b[i]", "semantic-missing-reduction", "i"),
    ("Y[i] = sum(b[i]) / 2", "unsupported-nested-reduction", "sum(b[i])"),
    ("Y[i] = b[i] + X[i, sum(X[i, j])]", "type-not-integral", "sum(X[i, j])"),
    ("Y[i] = argmax(X[i, j] - max(X[i, k]))", "unsupported-nested-reduction", "max(X[i, k])"),
    ("Y[i] = mean(X[i, j])", "unsupported-call", "mean(X[i, j])"),
    ("Y[i] = 1 + argmax(X[i, j] + X[k, j])", "semantic-selection", "argmax(X[i, j] + X[k, j])"),
    ("Y[i] = np.sum(X[i, j], axis=1)", "semantic-function", "1"),
    ("Y[i] /= X[i, j]", "semantic-statement", "Y[i] /= X[i, j]"),
    ("Y[i] |= X[i, j]", "type-not-boolean", "Y[i] |= X[i, j]"),
    # versions
    ("Y[i] = b[i]\n    Y[i] = Y[i - 1] + b[i]", "unsupported-recurrence", "Y[i - 1]"),
    ("Y[0] = b[0]\n    Y[1, i] = b[i]", "semantic-rank", "Y[1, i] = b[i]"),
    ("Y[0] = n[0]\n    Y[i + 1] = b[i]", "type-accumulate", "Y[i + 1] = b[i]"),
    ("Y[i] = Y[i] + b[i]", "semantic-undefined", "Y[i]"),
    ("Y[i] = T[i]\n    T[i] = b[i]", "semantic-undefined", "T[i]"),
    ("Y[i] = n[i]\n    Y[i] += b[i]", "type-accumulate", "Y[i] += b[i]"),
    ("Y[i] = n[i]\n    Y[i] += 0.5", "type-accumulate", "Y[i] += 0.5"),
    ("Y[i] = b[i]\n    Y[i, j] += X[i, j]", "semantic-rank", "Y[i, j] += X[i, j]"),
    # types
    ("Y[i] = b[i] and t[i]", "type-not-boolean", "b[i]"),
    ("Y[i] = 1 if b[i] else 0", "type-not-boolean", "b[i]"),
    ("Y[i] = not n[i]", "type-not-boolean", "n[i]"),
    ("Y[i] = t[i] - t[i]", "type-operands", "t[i] - t[i]"),
    ("Y[i] = -t[i]", "type-operands", "-t[i]"),
    ("Y[i] = b[i] & 1", "type-operands", "b[i] & 1"),
    ("Y[i] = n[i] ** -1", "type-operands", "n[i] ** -1"),
    ("Y[i] = n[i] + 3000000000", "type-literal", "n[i] + 3000000000"),
    ("Y[i] = u8(300) + n[i]", "type-literal", "u8(300)"),
    ("Y[i] = b[i] * (1 / 0)", "type-literal", "1 / 0"),
    ("Y[i] = b[i] * (-1) ** 0.5", "type-literal", "(-1) ** 0.5"),
    ("Y[i] = b[i] + 9 ** 9 ** 9", "type-literal", "9 ** 9 ** 9"),
    ("Y[i] = pad(n[i - 1], 0.5)", "type-pad", "pad(n[i - 1], 0.5)"),
    ("Y[i] = f128(b[i])", "unsupported-type", "f128(b[i])"),
    ("Y[i] = floor(b[i] * 1j)", "type-complex", "floor(b[i] * 1j)"),
    ("Y[i] = b[i] * 1j < 2", "type-complex", "b[i] * 1j < 2"),
    ("Y[i] = f32(b[i] * 1j)", "type-complex", "f32(b[i] * 1j)"),
    ("Y[i] = max(b[k] * 1j)", "type-complex", "Y[i] = max(b[k] * 1j)"),
    ("Y[i] = complex(b[i] * 1j, 0)", "type-complex", "complex(b[i] * 1j, 0)"),
    # functions and expressions
    ("Y[i] = pad(b[i] + 1, 0)", "semantic-pad", "pad(b[i] + 1, 0)"),
    ("Y[i] = pad(b[i])", "semantic-arity", "pad(b[i])"),
    ("Y[i] = np.exp(b[i], 2)", "semantic-arity", "np.exp(b[i], 2)"),
    ("Y[i] = expp(b[i])", "semantic-function", "expp(b[i])"),
    ("Y[i] = b.max()", "semantic-function", "b.max()"),
    ("Y[i] = b.T", "semantic-expression", "b.T"),
    ("Y[i] = np.foo * b[i]", "semantic-expression", "np.foo"),
    ("Y[i] = [b[i]]", "semantic-expression", "[b[i]]"),
    ("Y[i] = b[i] @ b[i]", "semantic-expression", "b[i] @ b[i]"),
    ("Y[i] = b[i] << 2", "semantic-expression", "b[i] << 2"),
    ("Y[i] = b[i] is b[i]", "semantic-expression", "b[i] is b[i]"),
    ("Y[i] = 'a'", "semantic-expression", "'a'"),
    ("Y[i] = (lambda: 1)()", "semantic-function", "(lambda: 1)()"),
    # ranges
    ("with polyc.where(i):\n        Y[i] = b[i]", "semantic-range", "i"),
    ("with open('x'):\n        Y[i] = b[i]", "semantic-range", "open('x')"),
    ("with polyc.where(1 <= i):\n        Y[i] = b[i]", "semantic-range-open", "1 <= i"),
    ("with polyc.where(n[i] > 3):\n        Y[i] = b[i]", "semantic-read-in-bound", "n[i] > 3"),
    ("with polyc.where(i < 2.5):\n        Y[i] = b[i]", "type-not-integral", "i < 2.5"),
    ("with polyc.where(j < i + q):\n        Y[i] += X[i, j]", "semantic-unused-index", "j < i + q"),
    ("with polyc.where(i < j < b[0]):\n        Y[i] += X[i, j]", "type-not-integral", "i < j < b[0]"),
    ("with polyc.where(n[i] < i):\n        Y[i] += X[i, j]", "semantic-own-bound", "n[i] < i"),
    ("with polyc.where(i in range(0, 9, 2)):\n        Y[i] = b[i]", "unsupported-range", "i in range(0, 9, 2)"),
    ("with polyc.where(q < 3):\n        Y[i] = b[i]", "semantic-unused-index", "q < 3"),
    # statements
    ("for q in range(M):\n        Y[i] = b[i]", "semantic-static-loop", "for"),
    ("for q in b:\n        Y[i] = b[i]", "semantic-static-loop", "for"),
    ("for q in range(0, 3, 0):\n        Y[i] = b[i]", "semantic-static-loop", "for"),
    ("for q, r in (1, 2):\n        Y[i] = b[i]", "semantic-statement", "for"),
    ("for b in (1, 2):\n        Y[i] = b[i]", "semantic-already-defined", "for"),
    ("for q in range(9999):\n        Y[i] = b[i]", "budget-unroll", "range(9999)"),
    ("for q in (1, 2):\n        Y[i] = q * b[i]\n    Z[i] += X[i, q]", "semantic-ambiguous-name", "q"),
    ("if b[0] > 0:\n        pass", "semantic-static-condition", "if"),
    ("while True:\n        pass", "semantic-statement", "while"),
    ("import os", "semantic-statement", "import os"),
    ("print(b)", "semantic-statement", "print(b)"),
    ("Y: int = 3", "semantic-statement", "Y: int = 3"),
]


@pytest.mark.parametrize("body, code, marked", BODIES)
def test_a_body_is_refused_at_the_place(body, code, marked):
    tail = "" if "Y" in body.split("=")[0] or "\n" in body else "    Y[i] = b[i]\n"
    found = errors_of(f"{HEAD}    {body}\n{tail}    return Y\n")
    first = next(d for d in found if d.code == code)
    assert first.span.source.text[first.span.start : first.span.end] == marked


HEADERS = [
    ('def f(X: "f33[N]"):', "semantic-annotation", "'f33' is no element type"),
    ('def f(X: "f32[N"):', "semantic-annotation", "no array type"),
    ('def f(X: "f32[N.x]"):', "semantic-annotation", "cannot be read"),
    ('def f(X: "f32[-1]"):', "semantic-annotation", "cannot be read"),
    ('def f(X: "f32[2 * N]"):', "semantic-annotation", "no call can tell the size N"),
    ('def f(X: "f128[N]"):', "unsupported-type", "f128"),
    ('def f(X: "f32[X]"):', "semantic-already-defined", "parameter and a size"),
    ("def f(X):", "semantic-annotation-missing", "element type and rank of X"),
    ('def f(X: "f32[N]", *args):', "semantic-parameter", "*args"),
    ('def f(X: "f32[N]" = None):', "semantic-parameter", "no default"),
    ('def f(X: "f32[N]", *, k):', "semantic-constant", "k has no value"),
    ('def f(X: "f32[N]", *, k="a"):', "semantic-constant", "not a number"),
]


@pytest.mark.parametrize("header, code, words", HEADERS)
def test_a_header_is_refused(header, code, words):
    found = errors_of(f"{header}\n    Y[i] = X[i]\n    return Y\n")
    assert any(d.code == code and words in d.message for d in found), found


@pytest.mark.parametrize(
    "end, words",
    [
        ("pass", "returns nothing"),
        ("return", "returns nothing"),
        ("return X", "X is a parameter"),
        ("return Y + 1", "Y is a tensor with 1 dimension"),
        ("return Y[i] + 1", "the index i is not on the left side"),
        ("return [Y]", "only tensors and scalars"),
        ("return Y, Y", "returned twice"),
        ("return Q", "Q is not assigned"),
        ("return Y\n    Z[i] = X[i]", "nothing can follow"),
    ],
)
def test_a_return_is_refused(end, words):
    found = errors_of(f'def f(X: "f32[N]"):\n    Y[i] = X[i]\n    {end}\n')
    assert any(words in d.message for d in found)


def test_all_errors_come_at_once_and_in_order():
    found = errors_of(
        """
        def f(X: "f32[M, K]", W: "f33[N]"):
            Y[i] = X[i, k] + Q[i] + X[i]
            X[i, j] = 3
            Z[i] = foo(X[i, i])
            Z[:] = X[i, i]
            return X, Y
        """
    )
    starts = [d.span.start for d in found]
    assert starts == sorted(starts) and len(found) >= 7


def test_an_error_is_not_repeated_where_its_result_is_used():
    found = errors_of('def f(X: "f32[N]"):\n    H[i] = foo(X[i])\n    H[i] += X[i]\n    Y[i] = H[i] + H[i]\n    return Y\n')
    assert [d.code for d in found] == ["semantic-function"]


def test_the_class_tells_the_kind():
    with pytest.raises(SemanticError):
        read_function("def f(X: 'f32[N]'):\n    Y[i] = Q[i]\n    return Y")
    with pytest.raises(UnsupportedError):
        read_function("def f(X: 'f32[N]'):\n    Y[i] = mean(X[i])\n    return Y")
    with pytest.raises(SyntaxErrorInSource):
        read_function("def f(X: 'f32[N]'):\n    Y[i] = = X[i]\n    return Y")


def test_types_of_a_call_must_fit_the_annotation():
    source = "def f(X: 'f32[N]'):\n    Y[i] = X[i]\n    return Y"
    assert read_function(source, {"X": (F32, 1)}).program.types["Y"] == F32
    with pytest.raises(ArgumentTypeError, match="X is f64, but its annotation says f32"):
        read_function(source, {"X": (F64, 1)})
    with pytest.raises(ArgumentError, match="X has rank 2"):
        read_function(source, {"X": (F32, 2)})


def test_an_unknown_constant_lists_the_known_ones():
    found = errors_of("def f(X: 'f32[N]', *, k=1):\n    Y[i] = X[i]\n    return Y", constants={"q": 1})
    assert found[0].code == "semantic-constant" and "are: k" in found[0].help


@pytest.mark.parametrize(
    "source",
    [
        "",
        "x = 1",
        "def f(): pass\ndef g(): pass",
        "async def f(X): pass",
        "class A: pass",
        "def f(X, X): pass",
        "def f(X):",
        "\0",
        "def f(\ud800): pass",
    ],
)
def test_a_text_that_is_no_function(source):
    found = errors_of(source)
    assert found[0].code in ("semantic-not-a-function", "syntax-python")


@pytest.mark.parametrize("depth", [150, 10_000])
@pytest.mark.parametrize(
    "pattern", ["({})", "-{}", "(1 + {})", "{} + 1", "exp({})", "b[{}]", "{} if t[i] else 0", "{} and t[i]", "sign({})"]
)
def test_deep_nesting_is_a_named_error(pattern, depth):
    before, after = pattern.split("{}")
    body = before * depth + "b[i]" + after * depth
    source = f"{HEAD}    Y[i] = {body}\n    return Y"
    try:
        read_function(source)
    except PolycError as error:
        codes = {d.code for d in error.diagnostics}
        assert codes <= {"syntax-nesting", "syntax-python", "budget-expression", "type-not-boolean", "type-not-integral"}, codes
    else:
        assert pattern == "{} and t[i]" or depth < 200


def test_repeated_operands_cannot_explode():
    nested = "b[i]"
    for _ in range(30):
        nested = f"sign({nested})"
    found = errors_of(f"{HEAD}    Y[i] = {nested}\n    return Y")
    assert {d.code for d in found} == {"budget-expression"}


SEEDS = [
    """
def f(X: "f32[M, K]", W: "f32[N, K]", b: "f32[N]", *, s=2):
    H[m, n] += X[m, k] * W[n, k]
    Y[m, n] = max(H[m, n] + b[n], 0) ** s
    return Y
""",
    """
def f(X: "i8[N]"):
    with polyc.where(0 <= i < N - 1, j < 3):
        Y[i] = np.exp(X[i + j]) if X[i] > 0 and j != 1 else pad(X[i - 1], 0)
    Y[i] *= ~X[i] // 2
    return Y
""",
    """
def f(X, Y, *, k=1.5):
    s = 0
    s += X[i] @ Y[i, X[i]] - k
    Z[i] = any(X[i] == len(Y) % Y.shape[1])
    return s, Z
""",
]
WORDS = [
    *"+ - * / ( ) [ ] , : = += == < > <= != if else and or not in is lambda for return with pass".split(),
    *". @ ** // % & | ~ ^ 0 1 2.5 1e999 X Y Z W i j k N M max sum exp where polyc np pad f32 u8 True None".split(),
    *["'f32[N]'", "...", "9" * 20, "1j", "\n", "\n    ", "é", "\t"],
]


def mutate(tokens, chance):
    tokens = list(tokens)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(tokens))
        match chance.randrange(4):
            case 0:
                del tokens[place : place + 1]
            case 1:
                tokens.insert(place, chance.choice(WORDS))
            case 2:
                tokens[place] = chance.choice(WORDS)
            case 3:
                other = chance.randrange(len(tokens))
                tokens[place], tokens[other] = tokens[other], tokens[place]
        if not tokens:
            return ["def"]
    return tokens


def test_mutated_programs_give_programs_or_named_errors():
    chance = random.Random(7)
    n_good = n_bad = 0
    for _ in range(1200):
        tokens = re.findall(r"\w+|\s+|\"[^\"]*\"|[^\w\s]", chance.choice(SEEDS))
        source = "".join(mutate(tokens, chance))
        for dtypes in (None, {"X": (F32, 1), "Y": (F64, 2)}):
            try:
                read_function(source, dtypes)
                n_good += 1
            except PolycError as error:
                n_bad += 1
                assert all(d.help and d.span is not None for d in error.diagnostics), source
    assert n_good > 10 and n_bad > 100


def test_a_range_of_a_statement_that_failed_is_no_unused_range():
    """The second block reads what the first could not make: nothing is to be said about its range."""
    found = errors_of("""def f(x: 'i32[N]', y: 'f32[N]'):
    t[0] = x[0]
    t[1] = y[0]
    with polyc.where(0 <= i < 2):
        u[i] = t[i]
    return u
""")
    assert [d.code for d in found] == ["type-accumulate"]


def test_comparisons_of_complex_numbers_are_named_as_they_are_written():
    (found,) = errors_of("def f(x: 'c64[N]'):\n    y[i] = x[i] >= 2\n    return y\n")
    assert found.code == "type-complex" and found.message.startswith(">= is not")


def test_a_signature_is_refused_with_all_its_errors():
    with pytest.raises(SemanticError) as caught:
        read_signature("def f(X: 'f31[N]', Y: 'f32[', *args): pass")
    assert len(caught.value.diagnostics) == 3


@pytest.mark.parametrize(
    "annotation, code",
    [
        ('"f32[M]"', "semantic-annotation"),
        ('"f32[N, N]"', "semantic-rank"),
        ('"f64[N]"', "type-return"),
        ('"f32[N"', "semantic-annotation"),
        ('("f32[N]", "f32[N]")', "semantic-return"),
    ],
)
def test_a_return_annotation_is_refused(annotation, code):
    found = errors_of(f"def f(X: 'f32[N]') -> {annotation}:\n    Y[i] = X[i]\n    return Y\n")
    assert [d.code for d in found] == [code]


@pytest.mark.parametrize("value", ["Y[2 * i] = X[i]", "Y[i + j] = X[i] * X[j]", "Y[i] = X[i + 3] - Y[i - 1]"])
def test_proposals_are_written_as_functions_are(value):
    with pytest.raises(RangeError) as caught:
        polyc.op(f"def f(X: 'f32[N]'):\n    {value}\n    return Y\n").lower(np.ones(4, np.float32))
    assert not re.search(r"[+]=!|[?]:|in \d:N", caught.value.diagnostics[0].help or "")
