"""`.tc` text -> syntax tree, and syntax errors in the user's words."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyc.diagnostics import Diagnostic, Source, Span, SyntaxErrorInSource
from polyc.frontends.tc.build import build_syntax
from polyc.frontends.tc.syntax import (
    ExistsSyntax,
    LetSyntax,
    RangeSyntax,
    SyntaxDef,
    SyntaxExpr,
    SyntaxStatement,
    syntax_children,
)

MAX_HEIGHT = 160
"""Operators inside each other in one expression: ``a + b + c`` counts two."""


@functools.cache
def _load_parser() -> Any:
    """The LALR tables, built once per process (some 50 ms); lark is imported here so that `import polyc` stays quick."""
    from lark import Lark

    from polyc.frontends.tc.lexer import TcLexer

    grammar = (Path(__file__).parent / "grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer=TcLexer, maybe_placeholders=False)


def parse_tc(text: str, filename: str = "<string>") -> tuple[SyntaxDef, ...]:
    """The definitions of `text` in order.  Raises `SyntaxErrorInSource` (codes ``syntax-*``)."""
    from lark.exceptions import UnexpectedInput

    from polyc.frontends.tc.lexer import LexicalError

    source = Source(text, filename)
    try:
        tree = _load_parser().parse(text)
    except LexicalError as error:
        span = Span(source, error.start, error.end)
        raise SyntaxErrorInSource(Diagnostic(error.code, error.message, span, error.help)) from None
    except UnexpectedInput as error:
        raise SyntaxErrorInSource(_describe_unexpected(error, source)) from None
    definitions: tuple[SyntaxDef, ...] = build_syntax(tree, source)
    _check_height(definitions)
    return definitions


def _expressions(statement: SyntaxStatement) -> Iterator[SyntaxExpr]:
    yield from statement.subscripts
    yield statement.value
    for clause in statement.where:
        match clause:
            case RangeSyntax():
                yield clause.lower
                yield clause.upper
            case LetSyntax() | ExistsSyntax():
                yield clause.value


def _check_height(definitions: tuple[SyntaxDef, ...]) -> None:
    """Everything behind the parser recurses over expressions: refuse those that are too high, by name."""
    for definition in definitions:
        for statement in definition.statements:
            stack = [(expr, 1) for expr in _expressions(statement)]
            while stack:
                node, height = stack.pop()
                if height > MAX_HEIGHT:
                    raise SyntaxErrorInSource(
                        Diagnostic(
                            "syntax-nesting",
                            f"an expression is more than {MAX_HEIGHT} operators deep",
                            node.span,
                            "split the statement: `T(i) = …`, then `O(i) = T(i) + …`",
                        )
                    )
                stack.extend((child, height + 1) for child in syntax_children(node))


_EXPRESSION_START = {"NUMBER", "NAME", "EXTENT", "LPAR", "TYPE", "MIN", "MAX", "MINUS", "NOT"}
_INFIX = {"OR", "AND", "GT", "LT", "GE", "LE", "EQ", "NE", "PLUS", "MINUS", "STAR", "SLASH", "PERCENT", "QUESTION"}
_WORDS = {
    "NAME": "an identifier",
    "NUMBER": "a number",
    "TYPE": "a type",
    "EXTENT": "an extent",
    "OP_ASSIGN": "an assignment such as '+=!'",
    "ASSIGN": "'='",
    "$END": "the end of the text",
}


def _describe_terminals(names: set[str]) -> str:
    """``')', ',' or an operator``."""
    from polyc.frontends.tc.lexer import KEYWORDS, SYMBOLS

    spelled = _WORDS | {n: f"'{text}'" for text, n in (KEYWORDS | SYMBOLS).items() if n not in _WORDS}
    left, words = set(names), []
    for group, word in ((_EXPRESSION_START, "an expression"), (_INFIX, "an operator")):
        if group <= left:
            left -= group
            words.append(word)
    words = sorted(spelled.get(n, n) for n in left) + words
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


_FOUND_HELP = {
    "MAX": "`max=` and `max=!` are written without a space",
    "MIN": "`min=` and `min=!` are written without a space",
    "LBRACKET": "subscripts stand in parentheses: A(i, j)",
    "EXTENT": "write an operator before it",
}


def _describe_unexpected(error: Any, source: Source) -> Diagnostic:
    token = getattr(error, "token", None)
    names = set(getattr(error, "accepts", None) or getattr(error, "expected", None) or ())
    kind = getattr(token, "type", "$END")
    if kind == "$END":
        end = len(source.text.rstrip())
        found, span = "the end of the text", Span(source, max(0, end - 1), max(1, end))
    else:
        assert token is not None
        found, span = f"'{token[:40]}'", Span(source, token.start_pos, token.end_pos)
    expected = _describe_terminals(names) if names else "something else"
    return Diagnostic("syntax-unexpected", f"expected {expected} but found {found} here", span, _help(kind, token, names))


def _help(kind: str, token: Any, names: set[str]) -> str:
    text = str(token)
    if names == {"DEF"} or names == {"DEF", "$END"}:
        return "a text is one or more definitions: def name(float(N) A) -> (B) { B(i) = A(i) }"
    if "OP_ASSIGN" in names and kind != "ASSIGN":
        if kind in _FOUND_HELP:
            return _FOUND_HELP[kind]
        return "a statement is name(indices), one of = += *= min= max= +=! *=! min=! max=!, and an expression"
    if kind == "ASSIGN":
        return "the assignments are = += *= min= max=, and +=! *=! min=! max=! which set the start value; equality is =="
    if kind == "NAME" and text in ("and", "or", "not"):
        return "the logical operators are &&, || and !"
    if kind in _FOUND_HELP:
        return _FOUND_HELP[kind]
    if "RPAR" in names and names <= {"RPAR", "_COMMA"} and kind != "RPAR":
        return "close the parenthesis that was opened before"
    if kind == "TYPE":
        return f"{text} is a keyword: choose another name"
    if kind in ("DEF", "_WHERE", "_IN", "EXISTS"):
        return f"{text} is a keyword; it cannot stand here or be a name"
    if kind == "$END":
        return "close what is open: a definition ends with }"
    return "compare with: def f(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }"
