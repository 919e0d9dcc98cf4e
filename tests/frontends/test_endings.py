"""Where a recurrence ends: what `until` and `break` refuse, and with which words."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.diagnostics import Diagnostic, PolycError
from polyc.frontends.python import read_function
from polyc.frontends.tc.read import read_tc
from polyc.ir.text import format_statement

HEAD = "def f(float(N) b, float(T) w, float eps) -> (y) {\n"
START = "x(0, i) = b(i)\n"
NORM = "e(t) max=! x(t, i) where t in 0:T\n"
STEP = "x(t, i) = 0.5 * x(t-1, i) where t in 1:T\n"
UNTIL = "until e(t) < eps where t in 0:T\n"
LAST = "y(i) = x(T-1, i)\n"
ALL = START + NORM + STEP


def errors_of(text: str) -> list[Diagnostic]:
    with pytest.raises(PolycError) as caught:
        read_tc(f"{HEAD}{text}}}")
    return list(caught.value.diagnostics)


TEXTS = [
    (ALL + "until e(t) < eps\n" + LAST, "until has no range", "until e(t) < eps", "where t in 0:T"),
    (ALL + "until x(t, i) < eps where t in 0:T\n" + LAST, "does not say which i", "i", "e(t) max=!"),
    (ALL + "until e(t+1) < eps where t in 0:T\n" + LAST, "is not there yet", "e(t+1)", "this step or of earlier ones"),
    (ALL + UNTIL + UNTIL + LAST, "ends already by the until clause in line 5", UNTIL.strip(), "a(t) || b(t)"),
    (ALL + "until e(t) < eps where t in 0:T, t > 2\n" + LAST, "one range", "until e(t) < eps where t in 0:T, t > 2", "&&"),
    (ALL + "until e(t) < eps where t in 0:int64(b(0))\n" + LAST, "depends on data", "t in 0:int64(b(0))", "sizes"),
    (ALL + "y(t) = " + UNTIL, "the last step is one number", "y(t)", "write y = until"),
    (ALL + UNTIL.replace("0:T", "3:T") + LAST, "other steps than the condition", "t in 1:T", "the range that x has"),
    (ALL + UNTIL.replace("0:T", "0:T-2") + LAST, "other steps than the condition", "t in 1:T", "the range that x has"),
    ("e(t) = w(t)\n" + UNTIL + "y = e(0)\n", "of no recurrence over t", UNTIL.strip(), "argmax"),
    (
        ALL.replace("x(0, i)", "x(i, 0)").replace("x(t, i)", "x(i, t)").replace("(t-1, i)", "(i, t-1)")
        + UNTIL
        + "y(i) = x(i, 2)\n",
        "t is not the first index of x",
        "x(i, t) = 0.5 * x(i, t-1) where t in 1:T",
        "x(t, …)",
    ),
    (
        START
        + NORM
        + "x(t, i) = 0.5 * x(t-1, i) + q(t-1, i) where t in 1:T\n"
        + UNTIL
        + "q(t, i) = x(t, i) where t in 0:T\n"
        + LAST,
        "q is part of the recurrence over t",
        "q(t, i) = x(t, i) where t in 0:T",
        "above the until clause",
    ),
    (
        START
        + NORM
        + "r(s, i) = x(s, i) where s in 0:T\nx(t, i) = r(t-1, i) + 0.5 * x(t-1, i) where t in 1:T\n"
        + UNTIL
        + LAST,
        "r is part of the recurrence over t",
        "r(s, i) = x(s, i) where s in 0:T",
        "name its first index t",
    ),
    (
        START + "u(t, i) = x(t, i)\n" + NORM + STEP + UNTIL + LAST + "z = u(1, 0)\n",
        "its range of t is not known",
        "u(t, i) = x(t, i)",
        "t",
    ),
]


@pytest.mark.parametrize("text, message, place, help", TEXTS, ids=[t[1] for t in TEXTS])
def test_a_clause_that_ends_nothing_is_shown(text: str, message: str, place: str, help: str) -> None:
    (error,) = errors_of(text)
    assert error.code == "semantic-until"
    assert message in error.message
    assert error.span is not None
    assert error.span.source.text[error.span.start : error.span.end] == place
    assert help in (error.help or "")


def test_a_condition_is_a_truth_value() -> None:
    (error,) = errors_of(ALL + "until e(t) where t in 0:T\n" + LAST)
    assert (error.code, error.help) == ("type-not-boolean", "compare with something: until e(t) < eps")


@pytest.mark.parametrize("text, help", [("while e(t) < eps", "until e(t) < eps where"), ("break", "until e(t) < eps where")])
def test_words_of_other_languages_lead_to_until(text: str, help: str) -> None:
    (error,) = errors_of(ALL + text + "\n" + LAST)
    assert help in (error.help or "")


@pytest.mark.parametrize(
    "text",
    [
        "def f(float(N) until) -> (O) { O(i) = until(i) }",
        "def f(float(N) A, float until) -> (O, P) { O(i) = until * A(i) P = until }",
        "def f(float(N) A) -> (O) { until(i + 1) = A(i) O(i) = until(i + 1) }",
        "def f(float(N) A) -> (O) { until +=! A(i) O = until + 1.0 }",
        "def f(float(N) A) -> (O) { O(until) = A(until) }",
        "def f(float(until) A) -> (O) { O(i) = A(i) }",
        "def f(float(N) A) -> (O) { O(i) = until * 2.0 where until = A(i) }",
        "monoid until(float a, float b) -> (c = 0.0) { c = a + b } def f(float(N) A) -> (O) { O until=! A(i) }",
    ],
)
def test_a_text_may_give_the_name_to_something(text: str) -> None:
    assert read_tc(text)[0].statements


def test_a_comment_gives_no_name() -> None:
    found = read_tc(f"# until, until = 3\n{HEAD}{ALL}n = until (e(t) < eps || t == 5) where t in 0:T\ny = n\n}}")[0]
    assert (
        format_statement(found.statements[4]).splitlines()[0]
        == "S4(t): n.ended[t + 1] = n.ended[t] || (e[t] < eps[] || t == 5)"
    )


def errors_in(body: str) -> list[Diagnostic]:
    lines = "\n".join("    " + line for line in body.splitlines())
    with pytest.raises(PolycError) as caught:
        read_function(f"def f(b: 'f32[N]', T: 'i64', eps: 'f32', *, k=3):\n{lines}\n    y[i] = x[t, i]\n    return y")
    return list(caught.value.diagnostics)


LOOP = "x[0, i] = b[i]\nfor t in range(1, T):\n"
BODY = "    x[t, i] = 0.5 * x[t - 1, i]\n"
E = "    e[t] = max(x[t, i])\n"
BREAK = "    if e[t] < eps:\n        break\n"
FUNCTIONS = [
    (LOOP + BODY + E + BREAK + BREAK, "this is another one", "break", "if a[t] or b[t]: break"),
    (
        LOOP + BODY + E + "    if k > 2:\n        if e[t] < eps:\n            break",
        "alone under one condition",
        "break",
        "all of",
    ),
    (LOOP + BODY + E + "    with polyc.where(t > 2):\n        break", "alone under one condition", "break", "all of"),
    (LOOP + BODY + E + BREAK + "    else:\n        pass", "alone under one condition", "break", "behind it"),
    (
        LOOP + BODY + E + BREAK.replace("break", "z[t] = 1\n        break"),
        "alone under one condition",
        "break",
        "in front of it",
    ),
    (LOOP + "    s = 0.5\n" + BODY + E + BREAK, "not the first subscript of s", "s", "s[t] = ..."),
    (LOOP + "    w[i, t] = x[t - 1, i]\n" + BODY + E + BREAK, "not the first subscript of w", "w[i, t]", "w[t, i] = ..."),
    (LOOP + "    w[2 * t] = 1.0\n" + BODY + E + BREAK, "is not t, give or take a number", "w[2 * t] = 1.0", "w[t + 1, ...]"),
    (LOOP + E + BODY + BREAK, "is not assigned yet", "x[t, i]", "move the assignment up"),
    (LOOP + BODY + E + "    if e[t + 1] < eps:\n        break", "is not there yet", "e[t + 1]", "an earlier round"),
    (
        "e[0] = 1.0\n" + LOOP + "    if e[t] < eps:\n        break\n" + BODY + E,
        "is not there yet",
        "e[t]",
        "below the assignment",
    ),
    (LOOP + BODY + "    if x[t, i] < eps:\n        break", "does not say which i", "i", "max(...)"),
    (LOOP.replace("range(1, T)", "(1, 2)") + BODY + E + BREAK, "is not unrolled", "(1, 2)", "without the break"),
    (LOOP.replace("T)", "T, 2)") + BODY + E + BREAK, "is not unrolled", "range(1, T, 2)", "without the break"),
    (LOOP + BODY + E + BREAK + "else:\n    pass", "the else of this loop", "for", "behind the loop"),
    ("x[0, i] = b[i]\nfor t in range(T):\n    e[t] = 1.0\n" + BREAK, "needs one before it", "for", "X[t - 1, i]"),
    (
        LOOP + BODY + E + "    for s in range(2):\n        if e[t] < eps:\n            break\n" + BREAK,
        "inside of the one over t",
        "for",
        "index",
    ),
    (LOOP + BODY + E + "    e[t] = 2 * e[t]\n" + BREAK, "e is assigned again here", "e[t] = 2 * e[t]", "another name"),
]


@pytest.mark.parametrize("body, message, place, help", FUNCTIONS, ids=[f"{f[1]}-{n}" for n, f in enumerate(FUNCTIONS)])
def test_a_loop_that_is_no_recurrence_is_shown(body: str, message: str, place: str, help: str) -> None:
    error = errors_in(body)[0]
    assert error.code == "semantic-until"
    assert message in error.message
    assert error.span is not None
    assert error.span.source.text[error.span.start : error.span.end] == place
    assert help in (error.help or "")


def test_behind_the_loop_its_variable_is_a_number() -> None:
    error = errors_in(LOOP + BODY + E + BREAK + "with polyc.where(0 <= t < T):\n    q[t] = e[t]")[0]
    assert "t is the number of the last round" in (error.help or "")


def test_a_loop_without_a_break_is_unrolled_as_before() -> None:
    body = "    y[i] = b[i]\n    for t in range(k):\n        y[i] = 2 * y[i]\n    return y"
    assert len(read_function(f"def f(b: 'f32[N]', *, k=3):\n{body}").program.statements) == 4


@pytest.mark.parametrize(
    "text, expected",
    [
        ("def until(double(N) a) -> (y) { y +=! a(i) }  def f(double(N) a) -> (z) { z = until(a) }", 6),
        ("def f(double(N) a) -> (y) { y(0) = 0.0  y(until + 1) = until + a(until) where until in 0:3 }", [0, 0, 2, 4]),
        (
            "def f(double(N) a) -> (y) { y(i) = a(i) where i in 0:2  until(i) = a(i) y(i + 2) = until(i) where i in 0:2 }",
            [0, 1, 0, 1],
        ),
    ],
)
def test_until_is_no_word_where_it_names_something(text: str, expected: object) -> None:
    np.testing.assert_array_equal(polyc.compile(text, "f")(np.arange(4.0)), expected)
