"""Tokens, productions and precedence."""

from __future__ import annotations

import subprocess
import sys

import pytest

from polyc.frontends.tc import parse_tc
from polyc.frontends.tc.syntax import ExistsSyntax, LetSyntax, Name, Number, RangeSyntax
from tests.frontends.tc.rendering import conformance, parse_expression, show


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-3%2+4*5+7-a", "(((((-3) % 2) + (4 * 5)) + 7) - a)"),
        ("a ? 3 : b ? 3 : 4", "(a ? 3 : (b ? 3 : 4))"),
        ("a ? b ? 1 : 2 : 3", "(a ? (b ? 1 : 2) : 3)"),
        ("a || b && c < d + e * -f", "(a || (b && (c < (d + (e * (-f))))))"),
        ("a < b == c", "((a < b) == c)"),
        ("a - b - c", "((a - b) - c)"),
        ("a / b % c * d", "(((a / b) % c) * d)"),
        ("!a && !b", "((!a) && (!b))"),
        ("--a", "(-(-a))"),
        ("!-a", "(!(-a))"),
        ("(a + b) * c", "((a + b) * c)"),
        ("a <= b && c >= d || e != f", "(((a <= b) && (c >= d)) || (e != f))"),
        ("min(a, b) + max(c, d)", "(min(a, b) + max(c, d))"),
        ("int32(a) + float(b)", "(int32(a) + float(b))"),
        ("A(i, j + 1) * T.1", "(A(i, (j + 1)) * T.1)"),
        ("s()", "s()"),
        ("a ? b : c + d", "(a ? b : (c + d))"),
        ("a + b ? c : d", "((a + b) ? c : d)"),
    ],
)
def test_precedence(text: str, expected: str) -> None:
    assert show(parse_expression(text)) == expected
    assert parse_expression(expected) == parse_expression(text)


@pytest.mark.parametrize(
    "name", ["maximum", "minimum", "info", "nand", "inf", "nan", "where1", "definition", "int", "floats", "_in"]
)
def test_identifiers_that_begin_like_keywords_or_numbers(name: str) -> None:
    assert parse_expression(name) == Name(name, None)


@pytest.mark.parametrize("text", ["1.4", ".3", "3", "3.", "3e-3", ".5e-7", "3E-5", "3E5", "1e+2"])
def test_numbers(text: str) -> None:
    assert parse_expression(text) == Number(text, None)
    assert Number(text, None).is_float == any(c in ".eE" for c in text)


@pytest.mark.parametrize("op", ["=", "+=", "*=", "min=", "max=", "+=!", "*=!", "min=!", "max=!"])
def test_assignments_take_the_longest_match(op: str) -> None:
    for space in ("", " "):
        statement = parse_tc(f"def f() -> (O) {{ O(i){space}{op}{space}3 }}")[0].statements[0]
        assert statement.op == op
    # `=!x` is an assignment of a negation: there is no such operator.
    assert show(parse_tc("def f() -> (O) { O(i)=!x }")[0].statements[0].value) == "(!x)"


def test_where_clauses() -> None:
    text = "def f() -> (O) { O(i) = x where i in 0:N-1, x = a ? 1 : 2, exists B(i) P = 1 }"
    first, second = parse_tc(text)[0].statements
    kinds = [type(clause) for clause in first.where]
    assert kinds == [RangeSyntax, LetSyntax, ExistsSyntax]
    assert show(first.where[0].upper) == "(N - 1)"
    assert second.target == "P" and second.subscripts == ()


def test_a_ternary_inside_a_range() -> None:
    clause = parse_tc("def f() -> (O) { O(i) = 1 where i in a ? 1 : 2 : b ? 3 : 4 }")[0].statements[0].where[0]
    assert (show(clause.lower), show(clause.upper)) == ("(a ? 1 : 2)", "(b ? 3 : 4)")


def test_comments_spaces_and_statements_without_separators() -> None:
    text = "# first\ndef f(float(N)A)->(O,P){O(i)=A(i)P(i)\n=O(i)#last\n}\t\v\f\r\n#end"
    (definition,) = parse_tc(text)
    assert [s.target for s in definition.statements] == ["O", "P"]


def test_equivalent_annotations_are_dropped() -> None:
    plain = parse_tc("def f() -> (O) { O(i) = A(i) where i in 0:3 }")
    assert parse_tc("def f() -> (O) { O(i) = A(i) <=> copy(A(i), 3) where i in 0:3 }") == plain


def test_types_and_parameters() -> None:
    for name in conformance()["syntax"]["types"]:
        definition = parse_tc(f"def f({name} a, {name}(N, 3) b, {name}() c) -> ({name}(N) O, P) {{ }}")[0]
        assert [p.type and p.type.name for p in (*definition.parameters, *definition.returns)] == [name] * 4 + [None]
        assert [d for d in definition.parameters[1].type.dimensions] == [Name("N", None), Number("3", None)]


def test_empty_lists_and_several_definitions() -> None:
    assert [d.name for d in parse_tc("def f() -> () {} def g() -> () {}")] == ["f", "g"]


def test_spans_cover_what_was_written() -> None:
    text = "def f(float(N) A) -> (O) {\n  O(i) = (A(i) + 1) * 2\n}"
    statement = parse_tc(text, "x.tc")[0].statements[0]
    span = statement.value.span
    assert text[span.start : span.end] == "(A(i) + 1) * 2"
    assert text[statement.span.start : statement.span.end] == "O(i) = (A(i) + 1) * 2"
    assert span.line_column() == (2, 10) and span.source.name == "x.tc"


def test_syntax_facts_of_the_conformance_file() -> None:
    syntax = conformance()["syntax"]
    for text in syntax["numbers"]:
        assert parse_expression(text) == Number(text, None)
    for fact in syntax["precedence"]:
        assert parse_expression(fact["text"]) == parse_expression(fact["same_as"])
    for op in syntax["assignments"]:
        assert parse_tc(f"def f() -> (O) {{ O(i) {op} 3 }}")[0].statements[0].op == op


def test_importing_polyc_does_not_import_the_parser_generator() -> None:
    code = "import polyc, polyc.frontends.tc, sys; sys.exit('lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
