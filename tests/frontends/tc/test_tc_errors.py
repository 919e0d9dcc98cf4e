"""Every error class: code, the words of the message, the caret and a way out."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import polyc
from polyc.diagnostics import (
    CompileBudgetError,
    PolycError,
    SemanticError,
    SyntaxErrorInSource,
    UnsupportedError,
)
from polyc.frontends.tc import read_tc
from tests.frontends.tc.rendering import PARAMETERS, conformance

# text, code, words of the message, what the caret marks
SYNTAX = [
    ("", "syntax-unexpected", "expected 'def' but found the end of the text", None),
    ("def f{} {}", "syntax-unexpected", "expected '(' but found '{'", "{"),
    ("def f(float(N) A) -> (O) { O(i) = }", "syntax-unexpected", "expected an expression but found '}'", "}"),
    ("def f(float(N) A) -> (O) { O(i) = A(i)", "syntax-unexpected", "but found the end of the text", ")"),
    ("def f(float(N) A) -> (O) { O(i) max = A(i, j) }", "syntax-unexpected", "but found 'max'", "max"),
    ("def f(float(N) A) -> (O) { O(i) = A[i] }", "syntax-unexpected", "but found '['", "["),
    ("def f(float(N) A) -> (O) { O(i) -= A(i) }", "syntax-unexpected", "expected '=' or an assignment", "-"),
    ("def f(float(N) A) -> (max) { }", "syntax-unexpected", "but found 'max'", "max"),
    ("def f(float(N) A) -> (O) { O(i) = A(i) and A(i) }", "syntax-unexpected", "expected '(', '='", "A"),
    ("def f(float(N) A) -> (O) { O(i) = A(i where i in 0:3 }", "syntax-unexpected", "expected ')'", "where"),
    ("def f(float(N) A) -> (O) { O(i) = A(i); }", "syntax-character", "unexpected character ';'", ";"),
    ("def f(float(N) Ä) -> (O) { O(i) = Ä(i) }", "syntax-character", "unexpected character 'Ä'", "Ä"),
    ("def f(float(N) A) -> (O) { O(i) = A(i) & A(i) }", "syntax-character", "unexpected character '&'", "&"),
    ("def f(float(N) A) -> (O) { O(i) = 1 where i in 0..2 }", "syntax-number", "malformed number '0..2'", "0..2"),
    ("def f(float(N) A) -> (O) { O(i) = 3x }", "syntax-number", "malformed number '3x'", "3x"),
    ("def f(float(N) A) -> (O) { O(i) = 0x1p3 }", "syntax-number", "malformed number '0x1p3'", "0x1p3"),
    ("def f(float(N) A) -> (O) { O(i) = " + "1" * 500 + " }", "syntax-number", "500 characters", "1" * 500),
]

# statements, code, words of the message, what the caret marks
STATEMENTS = [
    ("O(i) = x where x = 1, x = 2, i in 0:3", "semantic-already-defined", "x is already defined", "x"),
    ("O(i) = i where i = 1", "semantic-already-defined", "i is already defined", "i"),
    ("N(i) = a(i) O(i) = a(i)", "semantic-already-defined", "N is already defined as a size", "N"),
    ("O(exp) = a(exp)", "semantic-builtin-name", "exp is a built-in function and cannot be redefined", "exp"),
    ("O(i) = a(i) + exp", "semantic-builtin-name", "exp is a built-in function", "exp"),
    ("O(i) = erf where erf = a(i)", "semantic-builtin-name", "erf is a built-in function", "erf"),
    ("a(i) = a(i) + 42 O(i) = a(i)", "semantic-immutable-input", "TC inputs are immutable", "a"),
    ("O(i) = T(i) T(i) = a(i)", "semantic-undefined", "undefined variable T used here", "T"),
    ("O(i) = O(i) + 1", "semantic-undefined", "undefined variable O used here", "O"),
    ("O(i) = Q(i)", "semantic-undefined", "undefined variable Q used here", "Q"),
    ("T(i) = a(i)", "semantic-undefined", "undefined variable O used here: it is returned", "O"),
    ("T(i) += a(i) O(i) = T(i)", "semantic-undefined", "undefined variable T used here", "T"),
    ("O(i) = v v = s", "semantic-undefined", "undefined variable v used here", "v"),
    ("O(i) = x where x = x + 1", "semantic-undefined", "undefined variable x used here", "x"),
    ("O(i) = x where x = y, y = a(i)", "semantic-undefined", "undefined variable y used here", "y"),
    ("O(i) = a(i) where i in 0:NN", "semantic-undefined", "undefined variable NN used here", "NN"),
    ("O(i) = 2 * foo where foo = a(i), foo in 1:2", "semantic-undefined", "undefined variable foo used here", "foo"),
    ("O(i) = a(i) where j in 0:3", "semantic-undefined", "undefined variable j used here", "j"),
    ("O(i) = a(i) where N in 0:3", "semantic-undefined", "undefined variable N used here", "N"),
    ("O(i) = A(i, j)", "semantic-missing-reduction", "includes reduction variable j but does not specify", "j"),
    ("O(i) = A(j, k)", "semantic-missing-reduction", "includes reduction variables j, k", "j"),
    ("O(i) = A(i)", "semantic-rank", "expected 2 dimensions but found 1 dimension", "A(i)"),
    ("O(i) = A()", "semantic-rank", "expected 2 dimensions but found 0 dimensions", "A()"),
    ("O(i) = a(i) O += a(i)", "semantic-rank", "expected 1 dimension but found 0 dimensions", "O"),
    ("O(i) = s(i)", "semantic-tensor-expected", "expected a tensor but found a scalar", "s(i)"),
    ("O(i) = i(0)", "semantic-tensor-expected", "expected a tensor but found a scalar", "i(0)"),
    ("O(i) = N(0) where i in 0:3", "semantic-tensor-expected", "expected a tensor but found a scalar", "N(0)"),
    ("O(i) = x(0) where x = a(i)", "semantic-tensor-expected", "expected a tensor but found a scalar", "x(0)"),
    ("O(i) = a + a(i)", "semantic-scalar-expected", "expected a scalar but found a tensor expression", "a"),
    ("O(i) = exp(a(i), 2)", "semantic-arity", "expected 1 argument but found 2", "exp(a(i), 2)"),
    ("O(i) = atan2(a(i))", "semantic-arity", "expected 2 arguments but found 1", "atan2(a(i))"),
    ("O(i) = max(a(i))", "semantic-arity", "expected 2 arguments but found 1", "max(a(i))"),
    ("O(i) = pad(a(i))", "semantic-arity", "expected 2 arguments but found 1", "pad(a(i))"),
    ("O(i) = 1 where i in 0:I(I(0))", "semantic-read-in-bound", "this place depends on data", "I(I(0))"),
    ("O(i) = 1 where i in 0:ceil(N)", "semantic-read-in-bound", "cannot be used in this context", "ceil(N)"),
    ("O(i) = 1 where i in 0:s", "type-not-integral", "expected integral type but found float32", "s"),
    ("O(i) = a(i) * A.2", "semantic-extent", "A has no dimension 2", "A.2"),
    ("O(i) = pad(3, 0)", "semantic-pad", "is not a tensor read", "3"),
    ("O(i) = pad(A(i, j), mirror)", "semantic-pad", "no padding called 'mirror'", "mirror"),
    ("O(i) = a(i) where exists a(j)", "semantic-unused-index", "index j stands only in an exists clause", "j"),
    ("O(i) = a(i + .5)", "type-not-integral", "expected integral type but found float32", ".5"),
    ("O(i) = a(D(i))", "type-not-integral", "expected integral type but found float64", "D(i)"),
    ("O(i) = a(i < 3)", "type-not-integral", "expected integral type but found bool", "i < 3"),
    ("O(i) = a(floor(i))", "type-not-integral", "expected integral type but found float32", "floor(i)"),
    ("O(i) = a(x) where x = s + i", "type-not-integral", "expected integral type but found float32", "x"),
    ("O(i) = 1 where i in 0:2.5", "type-not-integral", "expected integral type but found float32", "2.5"),
    ("O(i) = a(i) ? 1 : 2", "type-not-boolean", "expected boolean but found float32", "a(i)"),
    ("O(i) = P(i) && I(i)", "type-not-boolean", "expected boolean but found int32", "I(i)"),
    ("O(i) = !U(i)", "type-not-boolean", "expected boolean but found uint8", "U(i)"),
    ("O(i) = I(i) O(i) += a(i)", "type-narrowing", "type float32 to narrower type int32", "a(i)"),
    ("O(i) = pad(I(i), 0.5)", "type-narrowing", "type float32 to narrower type int32", "0.5"),
    ("O(i) = P(i) + P(i)", "type-bool-arithmetic", "expected a number but found bool", "P(i) + P(i)"),
    ("O +=! P(i)", "type-bool-arithmetic", "expected a number but found bool", "P(i)"),
    ("O(i) = -P(i)", "type-bool-arithmetic", "expected a number but found bool", "P(i)"),
    ("O(i) = 3000000000 + I(i)", "type-literal", "3000000000 does not fit int32", "3000000000"),
    ("O(i) = a(i) * 1e39", "type-literal", "1e39 does not fit float32", "1e39"),
    ("O(i) = uint8(256) + U(i)", "type-literal", "256 does not fit uint8", "256"),
    ("O(i) = j1(a(i))", "unsupported-builtin", "j1 is not available", "j1(a(i))"),
    ("O(i) = norm3d(a(i), a(i), a(i))", "unsupported-builtin", "norm3d is not available", "norm3d(a(i), a(i), a(i))"),
    ("O(I(i)) = a(i)", "semantic-scatter", "depends on data", "I(i)"),
    ("O(a(i)) +=! a(i)", "type-not-integral", "expected integral type but found float32", "a(i)"),
    ("O(0) = s O(1, i) = a(i)", "semantic-rank", "expected 1 dimension but found 2", "O"),
    ("O(i) +=! A(i, j) where j in j:N", "semantic-own-bound", "the range of j depends on j itself", "j"),
    ("O(i) +=! A(i, j) where j <= q", "semantic-undefined", "undefined variable q", "q"),
    ("O(i) +=! A(i, j) where j <= I(i)", "semantic-read-in-bound", "cannot be used in this context", "I(i)"),
    ("O(i) +=! A(i, j) where i + j", "type-not-boolean", "expected boolean but found int32", "i + j"),
    ("T(i) +=! A(i, j) * O(j) where j < i O(i) = a(i) * T(i) * T.0", "unsupported-extent", "T is made of it", "T.0"),
]

# a whole definition, code, words of the message, what the caret marks
DEFINITIONS = [
    ("def f(float A, float A) -> (O) { O = A }", "semantic-already-defined", "A is already defined as a parameter", "A"),
    ("def f(float(N) A, float N) -> (O) { O(i) = A(i) }", "semantic-already-defined", "N is already defined", "N"),
    ("def f(float A) -> (O, O) { O = A }", "semantic-already-defined", "O is already defined as a result", "O"),
    ("def f(float A) -> (A) { A = 1 }", "semantic-already-defined", "A is already defined as a parameter", "A"),
    ("def f(float A) -> (O) { O = A } def f(float A) -> (O) { O = A }", "semantic-already-defined", "f is already", "f"),
    ("def f(float(sin) A) -> (O) { O(i) = A(i) }", "semantic-builtin-name", "sin is a built-in function", "sin"),
    ("def f(A) -> (O) { O = A }", "semantic-parameter-type", "the parameter A has no type", "A"),
    ("def f(float(2.5) A) -> (O) { O(i) = A(i) }", "semantic-dimension", "must be an integer but found 2.5", "2.5"),
    ("def f(float(N) A) -> () { O(i) = A(i) }", "semantic-no-result", "f returns nothing", "f"),
    ("def f(float(N) A) -> (float(Q) O) { O(i) = A(i) }", "semantic-undefined", "undefined variable Q used here", "Q"),
    ("def f(float(N) A) -> (int32(N) O) { O(i) = A(i) }", "type-narrowing", "type float32 to narrower type int32", "A(i)"),
    (
        "def f(float(N) A) -> (float(N, N) O) { O(i) = A(i) }",
        "semantic-rank",
        "tensor defined with 1 dimensions but declared as an output with 2 dimensions",
        "O",
    ),
    ("def f(float16(N) A) -> (float16(N) O) { O(i) = A(i) * 0.5 }", "type-narrowing", "narrower type float16", "A(i) * 0.5"),
    ("def f(float(N) A) -> (bfloat16(N) O) { O(i) = A(i) }", "type-narrowing", "narrower type bfloat16", "A(i)"),
    ("def f(float16(N) A) -> (O) { O(i) = A(i) + float16(1e5) }", "type-literal", "does not fit float16", "1e5"),
]


def check(text: str, code: str, words: str, marked: str | None) -> PolycError:
    with pytest.raises(PolycError) as caught:
        read_tc(text, "x.tc")
    error = caught.value
    assert [d.code for d in error.diagnostics][:1] == [code] or code in [d.code for d in error.diagnostics]
    found = next(d for d in error.diagnostics if d.code == code)
    assert words in found.message
    assert found.help and found.span is not None
    if marked is not None:
        assert text[found.span.start : found.span.end] == marked
    shown = str(error)
    assert "x.tc:" in shown and "^" in shown and "help: " in shown
    return error


@pytest.mark.parametrize(("text", "code", "words", "marked"), SYNTAX)
def test_syntax_errors(text: str, code: str, words: str, marked: str | None) -> None:
    assert isinstance(check(text, code, words, marked), SyntaxErrorInSource)


@pytest.mark.parametrize(("body", "code", "words", "marked"), STATEMENTS)
def test_statement_errors(body: str, code: str, words: str, marked: str) -> None:
    error = check(f"def f({PARAMETERS}) -> (O) {{ {body} }}", code, words, marked)
    assert isinstance(error, UnsupportedError if code.startswith("unsupported") else SemanticError)
    # One mistake, one message.
    assert len({(d.code, d.message) for d in error.diagnostics}) == 1 or body.startswith(("N(i)", "O(i) = a(i) + exp"))


@pytest.mark.parametrize(("text", "code", "words", "marked"), DEFINITIONS)
def test_definition_errors(text: str, code: str, words: str, marked: str) -> None:
    error = check(text, code, words, marked)
    assert isinstance(error, UnsupportedError if code.startswith("unsupported") else SemanticError)


@pytest.mark.parametrize(
    ("text", "noun"), [("(float(N) A) -> (float(2*N) O)", "result"), ("(float(2*N) A) -> (O)", "parameter")]
)
def test_sizes_are_no_expressions(text: str, noun: str) -> None:
    error = check(f"def f{text} {{ O(i) = A(i) }}", "syntax-unexpected", "expected ')' or ','", "*")
    assert f"of a {noun} are names or numbers" in str(error)


def test_a_position_of_the_wrong_type_is_the_only_error() -> None:
    text = "def f(float(M, N) A) -> (v, int8(M) p) { (v(i), p(i)) argmax=! A(i, j) }"
    assert [d.code for d in check(text, "type-narrowing", "holds positions", None).diagnostics] == ["type-narrowing"]


def test_all_errors_of_a_text_come_at_once() -> None:
    text = "def f(float(N) A) -> (O) {\n O(i) = A(i, j) + B(i)\n}\ndef g(float(N) A) -> (P) {\n P(i) = A(j)\n P(i) = !A(i)\n}"
    with pytest.raises(SemanticError) as caught:
        read_tc(text)
    lines = [d.span.line_column()[0] for d in caught.value.diagnostics]
    codes = [d.code for d in caught.value.diagnostics]
    assert lines == [2, 2, 5, 6]
    assert codes == ["semantic-rank", "semantic-undefined", "semantic-missing-reduction", "type-not-boolean"]


def test_an_error_does_not_cascade() -> None:
    text = f"def f({PARAMETERS}) -> (O) {{ T(i) = a(i, i) V(i) = T(i) + 1 O(i) = V(i) && P(i) O(i) += T(i) }}"
    with pytest.raises(SemanticError) as caught:
        read_tc(text)
    assert [d.code for d in caught.value.diagnostics] == ["semantic-rank"]


def test_the_help_suggests_a_near_name() -> None:
    for body, name in (("O(i) = sqtr(a(i))", "sqrt"), ("O(i) = a(i) where i in 0:NM", "N")):
        error = check(f"def f({PARAMETERS}) -> (O) {{ {body} }}", "semantic-undefined", "undefined variable", None)
        assert f"did you mean {name}?" in str(error)


@pytest.mark.parametrize(
    "value",
    [
        "(" * 10_000 + "a(i)" + ")" * 10_000,
        "-" * 10_000 + "a(i)",
        "a(i) + " * 3_000 + "a(i)",
        "a(i) > 0 ? 0 : " * 3_000 + "a(i)",
        "exp(" * 10_000 + "a(i)" + ")" * 10_000,
        "a(" * 10_000 + "i" + ")" * 10_000,
        "(" * 10_000,
    ],
)
def test_deep_nesting_is_a_named_error(value: str) -> None:
    for text in (f"O(i) = {value}", f"O(i) = a(i) where i in 0:{value}", f"O({value}) = a(i)"):
        with pytest.raises(SyntaxErrorInSource) as caught:
            read_tc(f"def f({PARAMETERS}) -> (O) {{ {text} }}")
        assert caught.value.code in ("syntax-nesting", "syntax-unexpected")


@pytest.mark.parametrize(
    "value",
    [
        "exp(" * 62 + "a(i)" + ")" * 62,
        "a(int32(" * 30 + "a(i)" + "))" * 30,
        "I(" * 62 + "i" + ")" * 62,
        "(" * 60 + "a(i)" + " + 1) * 2" * 60,
        "1 + " * 150 + "a(i)",
        "a(" + "1 + " * 150 + "i)",
        "a(i) > 0 ? 0 : " * 150 + "a(i)",
    ],
)
def test_what_is_below_the_limit_is_read(value: str) -> None:
    read_tc(f"def f({PARAMETERS}) -> (O) {{ O(i) = {value} }}")


def test_lets_that_blow_up_are_a_named_error() -> None:
    doubling = "".join(f", x{k + 1} = x{k} + x{k}" for k in range(60))
    chain = "".join(f", x{k + 1} = x{k} + 1" for k in range(1000))
    for start, lets, use in (("a(i)", doubling, "x60"), ("i", doubling, "a(x60)"), ("i", chain, "a(x1000) + x1000")):
        with pytest.raises(CompileBudgetError) as caught:
            read_tc(f"def f({PARAMETERS}) -> (O) {{ O(i) = a(i) + {use} where x0 = {start}{lets} }}")
        assert {d.code for d in caught.value.diagnostics} == {"budget-expression"}


def test_conformance_programs_that_are_wrong_by_their_text() -> None:
    expected = {
        "bad_indirect_where": "type-not-integral",
        "bad_indirect_where_circular": "type-not-integral",
        "bad_mutable_input": "semantic-immutable-input",
        "bad_no_reduction": "semantic-missing-reduction",
        "bad_syntax_braces": "syntax-unexpected",
        "bad_float_index": "type-not-integral",
        "bad_let_and_range": "semantic-undefined",
    }
    for entry in conformance()["reject"]:
        if entry["id"] in expected:
            with pytest.raises(PolycError) as caught:
                read_tc(entry["text"])
            assert caught.value.code == expected[entry["id"]]
        else:
            read_tc(entry["text"])


def test_every_code_is_tested_and_has_its_paragraph() -> None:
    root = Path(__file__).parents[3]
    page = root / "docs/errors.d/tc.md"
    page = page if page.exists() else root / "docs/errors.md"
    headings = {line[3:].strip() for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("## ")}
    tested = {entry[1] for entry in (*SYNTAX, *STATEMENTS, *DEFINITIONS)}
    assert tested | {"syntax-nesting", "budget-expression", "semantic-accumulate"} <= headings


HABITS = [
    ("O(i) := a(i)", "an assignment is written ="),
    ("s =+ a(i)", "sums are written +="),
    ("s + =! a(i)", "without a space"),
    ("s !+= a(i)", "the ! stands behind"),
    ("s -=! a(i)", "add the opposite"),
    ("s mean=! a(i)", "divided by its number"),
    ("O(i) = a(i) << 1", "there are no shifts"),
    ("O(i) = a(i) <> 1.0", "unequal is written !="),
    ("O(i) = 2,5 * a(i)", "with a point"),
    ("O(i) = a(i) mod 2.0", "the remainder is written %"),
    ("O(i) = (float) a(i)", "a cast is a function"),
    ("O(i) = (int) a(i)", "int32(x)"),
    ("O(i) = if a(i) > 0.0 then 1.0 else 0.0", "c ? a : b"),
    ("O(i) = not a(i)", "&&, || and !"),
    ("for (int i = 0; i < 3; i++) O(i) = a(i)", "there are no loops"),
    ("O(i) = A(i, :)", "stands for all of a dimension"),
    ("O(i) = a(i) /* twice */", "a comment starts with #"),
    ("O(i) = argmax(A(i, j))", "p(i) argmax=! A(i, j)"),
    ("O(i) = a(i) where i = 0", "write i == "),
    ("O(i) = where(a(i) > 0, a(i), 0)", "c ? a : b"),
    ("O(i) = a(i), i in 0:3", "ranges stand behind where"),
    ("O(i) = a(i) where i in 0:8:2", "a range has no step"),
    ("O(i) = a(i) where i in (0, 3)", "lower:upper"),
    ("O(i) = a(i) where i = 0:3", "written with in"),
    ("O(i) = a(i) where (i in 0:3)", "without parentheses"),
    ("O(i) = a(i) where i in 0:3 and i > 1", "separated by commas"),
    ("O(i) = a(i) where i in 0:3 && i > 1", "separated by commas"),
    ("float O(i) = a(i)", "the type of its right side"),
    ("O(i) = max(a(i), 0.0, 1.0)", "max(max(a, b), c)"),
    ("O(0) = int32(0)  O(i) = O(i - 1) + a(i) where i in 1:4", "O is int32 above: convert explicitly there, float32(…)"),
    ("O(i) = a(i) > 0.0 < 1.0 ? 1.0 : 0.0", "write a(i) > 0.0 && 0.0 < 1.0"),
    ("O(i) = a(i) where 0 <= i < 3", "write 0 <= i && i < 3"),
]


@pytest.mark.parametrize("body, help", HABITS)
def test_habits_of_other_languages_are_told(body, help):
    with pytest.raises(PolycError) as caught:
        polyc.compile(f"def f(float(N) a) -> (O, s) {{ {body} }}")
    assert help in str(caught.value)


def test_comparisons_in_parentheses_are_values():
    f = polyc.compile("def f(float(N) a) -> (O) { O(i) = (a(i) > 0.0) == (1.0 > 0.5) ? 1.0 : 0.0 }")
    assert f([1.0, -1.0]).tolist() == [1, 0]


@pytest.mark.parametrize("name", ["INFINITY", "NAN", "M_PI", "True", "FLT_MAX", "DBL_EPSILON", "INT_MIN"])
def test_constants_of_other_languages_are_told_what_to_write(name: str) -> None:
    with pytest.raises(polyc.SemanticError) as caught:
        polyc.compile(f"def f(float(N) x) -> (y) {{ y(i) = x(i) > 0.0 ? 1 : {name} }}")
    found = re.search(rf"{name} is an index here: write (.*?)(?:,? (?:for|or) .*)?$", str(caught.value), re.MULTILINE)
    assert found
    value = polyc.compile(f"def f(float(N) x) -> (y) {{ y(i) = x(i) > 0.0 ? {found[1]} : {found[1]} }}")(
        np.zeros(1, np.float32)
    )
    expected = {"INFINITY": np.inf, "NAN": np.nan, "M_PI": np.float32(np.pi), "True": True, "INT_MIN": -(2**31)}
    limits = {"FLT_MAX": np.finfo(np.float32).max, "DBL_EPSILON": np.finfo(np.float64).eps}
    np.testing.assert_array_equal(value, [(expected | limits)[name]])


@pytest.mark.parametrize(
    "value", ["x(i) + 1.0", "-x(i)", "!(x(i) > 0.0)", "x(i) > 0.0 ? x(i) : 1.0", "float(x(i))", "exp(x(i))"]
)
def test_what_is_padded_is_a_read(value: str) -> None:
    """Operators and casts were named as undefined variables."""
    with pytest.raises(SemanticError) as caught:
        read_tc(f"def f(float(N) x) -> (y) {{ y(i) = pad({value}, 0.0) where i in 0:N }}")
    (found,) = caught.value.diagnostics
    assert (found.code, found.message) == ("semantic-pad", "the first argument of pad is not a tensor read")
