"""Malformed `.tc` texts through the command line: named, marked in the text, with the way out that fits the mistake."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from tests.negative.support import refuse, refuse_command


def one(body: str, parameters: str = "float(N) A", returns: str = "O") -> str:
    return f"def f({parameters}) -> ({returns}) {{\n  {body}\n}}\n"


# what was typed, code, fragments of what is shown; the last is usually the help
TEXTS = {
    # punctuation and habits of other languages
    "nothing": ("", "syntax-unexpected", "a text is one or more definitions"),
    "only_a_comment": ("# to do\n", "syntax-unexpected", "expected 'def'"),
    "def_alone": ("def", "syntax-unexpected", "the end of the text"),
    "semicolon": (one("O(i) = A(i);"), "syntax-character", "2 |   O(i) = A(i);", "without a separator"),
    "brackets": (one("O[i] = A[i]"), "syntax-unexpected", "subscripts stand in parentheses"),
    "slice_on_the_left": ("def f(float(N) A) -> (O) { O(0:N) = A(i) }", "syntax-unexpected", "as in where i in 0:N"),
    "python_annotations": ("def f(A: f32[N]) -> O:\n", "syntax-unexpected", "the type stands before the name: float(M, N) A"),
    "no_arrow": ("def f(float(N) A) (O) { O(i) = A(i) }", "syntax-unexpected", "expected '->'"),
    "brace_not_closed": ("def f(float(N) A) -> (O) {\n  O(i) = A(i)\n", "syntax-unexpected", "a definition ends with }"),
    "parenthesis_not_closed": (one("O(i) = (A(i) + 1"), "syntax-unexpected", "close the parenthesis"),
    "comment_of_c": (one("O(i) = A(i) // twice"), "syntax-unexpected", "a comment starts with #"),
    "comment_of_c_in_front": (one("// twice\n  O(i) = A(i)"), "syntax-unexpected", "a comment starts with #"),
    "comment_in_stars": ("/* twice */\n" + one("O(i) = A(i)"), "syntax-unexpected", "a comment starts with #"),
    "results_without_parentheses": ("def f(float(N) A) -> O { O(i) = A(i) }", "syntax-unexpected", "-> (O)"),
    "typed_result_without_parentheses": (
        "def f(float(N) A) -> float(N) O { O(i) = A(i) }",
        "syntax-unexpected",
        "-> (float(N) O)",
    ),
    "matrix_product_of_python": (one("O = A @ A"), "syntax-character", "C(m, n) +=! A(m, k) * B(k, n)"),
    "truth_value": (one("O(i) = true ? A(i) : 0.0"), "type-not-boolean", "no truth values to write: 1 == 1"),
    "recurrence_by_data": (
        one("O(0) = A(0)  O(i) = O(p(i)) + A(i) where i in 1:N", "int32(N) p, float(N) A"),
        "range-circular",
        "may need its own value (data says",
        "must follow from indices and sizes",
    ),
    "body_of_python": ("def f(float(N) A) -> (O):\n  O(i) = A(i)", "syntax-unexpected", "statements stand in braces"),
    "condition_of_python": (one("O(i) = 1.0 if A(i) > 0 else 0.0"), "syntax-unexpected", "c ? a : b"),
    "misspelt_where": (one("O(i) = A(i) were i in 0:3"), "syntax-unexpected", "did you mean where?"),
    "product_without_a_sign": (one("O(i) = 2 A(i)"), "syntax-unexpected", "A(i) begins a new statement", "write * between"),
    "power_of_python": (one("O(i) = A(i) ** 2"), "syntax-unexpected", "powers are written pow(a, b)"),
    "minus_assign": (one("O(i) -= A(i)"), "syntax-unexpected", "there is no -="),
    "if_statement": (one("if (A(i) > 0) O(i) = A(i)"), "syntax-unexpected", "conditions are expressions"),
    "for_statement": (one("for i in 0:N O(i) = A(i)"), "syntax-unexpected", "where i in 0:N"),
    "return_statement": (one("O(i) = A(i)\n  return O"), "syntax-unexpected", "there is no return"),
    "word_and": (one("O(i) = A(i) > 0 and A(i) < 1 ? 1.0 : 0.0"), "syntax-unexpected", "&&, || and !"),
    "half_a_condition": (one("O(i) = A(i) > 0 ? A(i)"), "syntax-unexpected", "both arms"),
    "range_of_python": (one("O(i) = A(i) where i in range(N)"), "syntax-unexpected", "lower:upper"),
    "range_with_dots": (one("O(i) = A(i) where i in 0..N"), "syntax-number", "lower:upper"),
    "definition_in_definition": (one("def g(float A) -> (B) { B = A }"), "syntax-unexpected", "def is a keyword"),
    "keyword_as_name": ("def min(float(N) A) -> (O) { O(i) = A(i) }", "syntax-unexpected", "choose another name"),
    # types
    "misspelt_type": (one("O(i) = A(i)", "flaot(N) A"), "syntax-unexpected", "did you mean float?"),
    "type_of_c": (one("O(i) = A(i)", "int(N) A"), "syntax-unexpected", "did you mean int32?"),
    "type_of_the_decorator": (one("O(i) = A(i)", "f64(N) A"), "syntax-unexpected", "did you mean double?"),
    "half_precision": (one("O(i) = A(i)", "half(N) A"), "syntax-unexpected", "did you mean float16?"),
    "rounding_unasked": (one("O(i) = A(i)", "float(N) A", "float16(N) O"), "type-narrowing", "float16(…)"),
    "negative_dimension": (one("O(i) = A(i)", "float(-3) A"), "syntax-unexpected", "found '-'"),
    "sum_as_dimension": (one("O(i) = A(i)", "float(N + 1) A"), "syntax-unexpected", "names or numbers"),
    "dimension_of_twenty_digits": (one("O(i) = A(i)", f"float({10**20}) A"), "semantic-dimension", "names or integers"),
    # characters
    "letter_with_ring": (one("O(i) = Å(i)", "float(N) Å"), "syntax-character", "LATIN CAPITAL LETTER A WITH RING", "ASCII"),
    "minus_of_typography": (one("O(i) = A(i) − 1"), "syntax-character", "MINUS SIGN", "write - instead"),
    "wide_parenthesis": (one("O(i) = A（i）"), "syntax-character", "FULLWIDTH LEFT PARENTHESIS", "write ( instead"),
    "times_sign": (one("O(i) = 2 × A(i)"), "syntax-character", "write * instead"),
    "space_that_does_not_break": (one("O(i) =\u00a0A(i)"), "syntax-character", "NO-BREAK SPACE", "ordinary space"),
    "quotes": (one("O(i) = 'A'(i)"), "syntax-character", "no strings"),
    "null_character": (one("O(i) = A(i)\0"), "syntax-character", "U+0000"),
    "terminal_escape": (one("O(i) = \x1b[31mB(i)"), "syntax-character", "U+001B"),
    # numbers
    "number_runs_into_name": (one("O(i) = 3x * A(i)"), "syntax-number", "a product needs *"),
    "hexadecimal": (one("O(i) = 0x1F * A(i)"), "syntax-number", "in decimal: 31"),
    "suffix_of_c": (one("O(i) = 1.0f * A(i)"), "syntax-number", "no suffix"),
    "integer_beyond_int32": (one("O(i) = 99999999999 * A(i)"), "type-literal", "does not fit int32", "int64("),
    "thousand_digits": (one(f"O(i) = {'9' * 1000} * A(i)"), "syntax-number", "too long"),
    # names
    "misspelt_tensor": (one("O(i) = Inptu(i)", "float(N) Input"), "semantic-undefined", "did you mean Input?"),
    "misspelt_builtin": (one("O(i) = sqr(A(i))"), "semantic-undefined", "did you mean sqrt?"),
    "misspelt_result": (one("Otu(i) = A(i)", returns="Out"), "semantic-undefined", "did you mean Otu?"),
    "sum_as_function": (one("O = sum(A(i))"), "semantic-undefined", "+=!"),
    "max_as_reduction": (one("O = max(A(i))"), "semantic-arity", "max=!"),
    "result_not_assigned": (one("O(i) = A(i)", returns="O, P"), "semantic-undefined", "P", "returned but never assigned"),
    "no_statement": (one(""), "semantic-undefined", "assign it: O(i) = …"),
    "input_assigned": (one("A(i) = 1.0\n  O(i) = A(i)"), "semantic-immutable-input", "assign another name"),
    "builtin_as_name": (one("O(i) = exp(i)", "float(N) exp"), "semantic-builtin-name", "choose another name"),
    "read_before_assigned": (one("O(i) = T(i)\n  T(i) = A(i)"), "semantic-undefined", "assign T above"),
    "size_that_no_input_has": (one("O(i) = A(i)", returns="float(Q) O"), "semantic-undefined", "dimension of a parameter"),
    # indices
    "too_few_subscripts": (one("O(i) = A(i)", "float(M, N) A"), "semantic-rank", "A has 2", "one subscript for each"),
    "diagonal_alone": (one("O(i, i) = A(i)"), "range-unwritten", "is never written"),
    "squares_as_bounds": (
        one("O(i) +=! A(i, k) where k in 0:i*i", "float(N, N) A"),
        "range-not-affine",
        "the range of k",
        "by other conditions in the value",
    ),
    "sum_without_a_sum": (one("O(i) = A(i, k)", "float(M, N) A"), "semantic-missing-reduction", "reduce with +=!"),
    "word_true": (one("O(i) = A(i) > 0.0 ? true : false"), "semantic-missing-reduction", "write bool(1)"),
    "word_inf": (one("O(i) = A(i) - inf"), "semantic-missing-reduction", "1.0 / 0.0"),
    "size_of_no_parameter": (one("O(i) = A(M - 1 - i)"), "semantic-missing-reduction", "the sizes are N"),
    "recurrence_without_a_start": (one("O(i) = O(i - 1) + A(i)"), "range-out-of-bounds", "a recurrence begins with"),
    "temporary_as_large_as_data_says": (
        one("C(I(i)) +=! A(i)\n  O = C(0)", "float(N) A, int32(N) I"),
        "range-unsolved",
        "extent of this dimension depends on data",
        "H(k) = 0 where k in 0:K",
    ),
    "float_as_subscript": (one("O(i) = A(B(i))", "float(N) A, float(M) B"), "type-not-integral", "int32(B(i))"),
    "float_as_condition": (one("O(i) = A(i) ? 1.0 : 2.0"), "type-not-boolean", "(x != 0)"),
    "scalar_with_subscript": (one("O(i) = A(i) * s(i)", "float(N) A, float s"), "semantic-tensor-expected", "scalar"),
    "narrower_result": (one("O(i) = A(i)", returns="int32(N) O"), "type-narrowing", "int32(…)"),
    # ranges
    "range_unknown": (one("O(i) = 3.0"), "range-unsolved", "where i in 0:N"),
    "range_backwards": (one("O(i) = 3.0 where i in 8:4"), "range-negative", "starts at 8 and ends before 4"),
    "range_beyond_64_bits": (one("O(i) = 1.0 where i in 0:2147483647 * 2147483647 * 4"), "range-too-large", "184467440565"),
    "subscript_beyond_64_bits": (one("O(i) = A(i * 2147483647 * 2147483647 * 4)"), "range-too-large", "64 bits"),
    "divisor_beyond_64_bits": (one("O(i) = A(i / (2147483647 * 2147483647 * 4))"), "range-too-large", "64 bits"),
    "read_outside": (one("O(i) = A(i + 9) where i in 0:4"), "range-out-of-bounds", "from 9 to 12", "pad("),
    "declared_shape": (one("O(i) = A(i)", returns="float(3) O"), "range-declared-shape", "declare the extent"),
    # depth and length
    "twenty_thousand_parentheses": (one("O(i) = " + "(" * 20000 + "A(i)" + ")" * 20000), "syntax-nesting", "temporaries"),
    "four_thousand_signs": (one("O(i) = " + "-" * 4000 + "A(i)"), "syntax-nesting", "split the statement"),
    "four_thousand_terms": (one("O(i) = " + "A(i) + " * 4000 + "B(i)"), "syntax-nesting", "split the statement"),
    "four_thousand_conditions": (one("O(i) = " + "A(i) > 0 ? 1 : " * 4000 + "2"), "syntax-nesting", "split"),
    "hundred_thousand_blanks": (one("O(i) = " + " " * 100_000 + "B(i)"), "semantic-undefined", "B"),
    "name_of_hundred_thousand_letters": (one(f"O(i) = {'B' * 100_000}(i)"), "semantic-undefined", "BBB…BBB"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_is_refused(name, tmp_path):
    text, code, *fragments = TEXTS[name]
    path = tmp_path / "op.tc"
    path.write_bytes(text.encode())
    shown = refuse_command(["run", str(path), *(["--size", "N=4"] if "N)" in text else [])], code, *fragments)
    assert "op.tc:" in shown and "^" in shown


def test_errors_of_all_definitions_stand_in_the_order_of_the_text(tmp_path):
    path = tmp_path / "op.tc"
    path.write_text(one("O(i) = B(i)") + one("P(i) = Q(i)\n  O(i) = A(i, j)").replace("def f", "def g"))
    shown = refuse_command(["compile", str(path)], "semantic-undefined")
    places = [line.split(".tc:")[1] for line in shown.split("\n") if ".tc:" in line]
    assert [int(p.split(":")[0]) for p in places] == [2, 5, 6]


@pytest.mark.parametrize("verb", ["run", "compile", "explain"])
def test_every_verb_refuses_alike(verb, tmp_path):
    path = tmp_path / "op.tc"
    path.write_text(one("O(i) = B(i)"))
    refuse_command([verb, str(path)], "semantic-undefined", "B(i)")


def test_caret_stands_below_wide_characters(tmp_path):
    path = tmp_path / "op.tc"
    path.write_text("def f(float(N) A) -> (O) { # 行列の積\n  O(i) = A(i) }  # 積\ndef 積")
    lines = refuse_command(["run", str(path)], "syntax-character").split("\n")
    assert lines[3] == "3 | def 積" and lines[4] == "  |     ^^"


def test_texts_with_too_many_statements_are_refused_before_they_are_compiled():
    chain = " ".join(f"t{k + 1}(i) = t{k}(i) + 1.0" for k in range(9999))
    text = f"def f(float(N) x) -> (t9999) {{ t0(i) = x(i) {chain} }}"
    error = refuse(lambda: polyc.compile(text), "budget-statements", "f has 10000 statements", "the limit is 4096")
    span = error.diagnostics[0].span
    assert span is not None and span.source.text[span.start :].startswith("t4096(i)")
    body = "\n".join(f"    t{k + 1}[i] = t{k}[i] + 1" for k in range(4096))
    source = f"def f(t0: 'f32[N]'):\n{body}\n    t4097[i] = t4096[i]\n    return t4097\n"
    refuse(lambda: polyc.op(source), "budget-statements", "f has 4097 statements", "4098 |     t4097[i] = t4096[i]")


CIRCLES = {
    "two statements": (
        "def f(float(N) x) -> (y) { a(i) = b(i) + x(i)  b(i) = a(i) * 0.5  y(i) = a(i) }",
        ("a needs its own value through b, at i = ",),
    ),
    "three, through a sum": (
        "def f(float(N, N) L) -> (x) { s(i) +=! L(i, j) * x(j) where j <= i  t(i) = 1.0 - s(i)  x(i) = t(i) where i in 0:N }",
        ("needs its own value through", "t", "x"),
    ),
    "a transposed one": (
        "def f(float(N, N) x) -> (a) { a(i, j) = b(j, i) + x(i, j) where i in 0:N, j in 0:N\n"
        "  b(i, j) = a(i, j) where i in 0:N, j in 0:N }",
        ("an element of a needs its own value through b, at i = ",),
    ),
}


@pytest.mark.parametrize("name", CIRCLES)
def test_circles_through_several_statements_name_the_tensors_and_an_element(name):
    text, fragments = CIRCLES[name]
    square = "N, N" in text
    operator = polyc.compile(text)
    refuse(lambda: operator(np.ones((5, 5) if square else 5, np.float32)), "range-circular", *fragments)


def test_tensors_of_more_dimensions_than_arrays_have_are_refused_before_they_are_compiled():
    sizes, indices = (",".join(f"{letter}{k}" for k in range(65)) for letter in "Ni")
    refuse(
        lambda: polyc.compile(f"def f(float({sizes}) x) -> (y) {{ y({indices}) = x({indices}) }}"),
        "budget-dimensions",
        "x has 65 dimensions; the limit is 64",
    )
    refuse(
        lambda: polyc.op(f"def f(x: 'f32[{sizes}]'):\n  y[{indices}] = x[{indices}]\n  return y"),
        "budget-dimensions",
        "x has 65 dimensions",
    )
