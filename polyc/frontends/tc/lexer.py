"""Tokens of `.tc` text.  Imported only when something is parsed, as it imports lark."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from lark.lexer import Lexer, Token

from polyc.frontends.tc.types import TYPE_NAMES

MAX_NESTING = 64
"""Parentheses inside each other."""

_MAX_NUMBER = 400

KEYWORDS: dict[str, str] = {
    "min": "MIN",
    "max": "MAX",
    "where": "_WHERE",
    "def": "DEF",
    "in": "_IN",
    "exists": "EXISTS",
    **dict.fromkeys(TYPE_NAMES, "TYPE"),
}

SYMBOLS: dict[str, str] = {
    "->": "_ARROW",
    "<=>": "_EQUIV",
    ">=": "GE",
    "<=": "LE",
    "==": "EQ",
    "!=": "NE",
    "&&": "AND",
    "||": "OR",
    "+": "PLUS",
    "-": "MINUS",
    "*": "STAR",
    "/": "SLASH",
    "%": "PERCENT",
    "(": "LPAR",
    ")": "RPAR",
    "[": "LBRACKET",
    "]": "RBRACKET",
    "{": "LBRACE",
    "}": "RBRACE",
    "?": "QUESTION",
    ":": "COLON",
    ",": "_COMMA",
    "=": "ASSIGN",
    ">": "GT",
    "<": "LT",
    "!": "NOT",
}

_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
# Alternatives stand in an order that makes the first match the longest: `max=` before the word `max`.
_TOKEN = re.compile(
    rf"""(?P<skip>[ \t\n\r\f\v]+|\#[^\n]*)
    |(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<op>(?:min|max|\+|\*|&&|\|\|)=!?)
    |(?P<select>(?:argmin|argmax)=!)
    |(?P<extent>(?!(?:{"|".join(KEYWORDS)})\.){_WORD}\.[0-9]{{1,3}}(?![A-Za-z0-9_.]))
    |(?P<word>{_WORD})
    |(?P<symbol>{"|".join(re.escape(s) for s in sorted(SYMBOLS, key=len, reverse=True))})""",
    re.VERBOSE,
)
_NUMBER_RUN = re.compile(r"[A-Za-z0-9_.]*")

_CHARACTER_HELP = {
    ";": "statements follow each other without a separator",
    "&": "the logical operator is &&",
    "|": "the logical operator is ||",
    "@": "a matrix product is a sum: C(m, n) +=! A(m, k) * B(k, n)",
    "^": "powers are written pow(a, b)",
    "~": "there are no operators on bits; decorated functions have ~ & | ^ << >>",
    ".": "a fraction needs digits: 0.5 or .5; an extent is written T.1 without spaces, a transpose A(j, i)",
    "'": "there are no strings in this language",
    '"': "there are no strings in this language",
}


def _describe_character(char: str) -> str:
    """With its name where it cannot be seen, or looks like another."""
    name = unicodedata.name(char, f"U+{ord(char):04X}") if not char.isascii() or not char.isprintable() else ""
    return f"unexpected character {char!r}" + (f" ({name})" if name else "")


def _character_help(char: str) -> str:
    if char in _CHARACTER_HELP:
        return _CHARACTER_HELP[char]
    plain = "-" if unicodedata.category(char) == "Pd" or char == "\u2212" else unicodedata.normalize("NFKC", char)
    plain = {"×": "*", "·": "*", "⋅": "*", "÷": "/", "≤": "<=", "≥": ">=", "≠": "!=", "→": "->"}.get(char, plain)
    if unicodedata.decomposition(char).startswith("<super>") and plain.isdigit():
        return f"a power is written as a product, x * x, or as pow(x, {plain})"
    if plain == " ":
        return "replace it by an ordinary space"
    if plain != char and _TOKEN.fullmatch(plain):
        return f"write {plain} instead"
    return "remove it; names are made of ASCII letters, digits and _"


class LexicalError(Exception):
    """A place where no token starts; `parser` turns it into a diagnostic."""

    def __init__(self, code: str, message: str, start: int, end: int, help: str) -> None:
        super().__init__(message)
        self.code, self.message, self.start, self.end, self.help = code, message, start, end, help


def read_tokens(text: str) -> Iterator[Token]:
    """The tokens of `text`, with `start_pos` and `end_pos`.  Raises `LexicalError`."""
    position = nesting = depth = 0
    before = last = ""
    monoids = _monoid_names(text)
    has_until = "until" in text and all(m[0].startswith("#") for m in _NAMED_UNTIL.finditer(text))
    selecting = _selecting_parentheses(text, monoids)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            char = text[position]
            raise LexicalError("syntax-character", _describe_character(char), position, position + 1, _character_help(char))
        kind, value, end = match.lastgroup, match.group(), match.end()
        if kind == "number":
            _check_number(text, position, end)
        if kind != "skip":
            name = _TERMINALS[kind](value) if kind in _TERMINALS else KEYWORDS.get(value, "NAME")
            if value in ("csr", "csc", "ragged") and depth == 0 and last in ("LPAR", "_COMMA") and _WORD_NEXT.match(text, end):
                name = "CSR"
            elif kind == "word" and value in monoids and text.startswith("=!", end):
                name, value, end = "COMBINE", value + "=!", end + 2
            elif value == "monoid" and depth == nesting == 0 and last in ("", "RBRACE"):
                name = "MONOID"
            elif value == "until" and has_until and last in _BEFORE_UNTIL:
                name = "UNTIL"
            nesting += (name == "LPAR") - (name == "RPAR")
            depth += (name == "LBRACE") - (name == "RBRACE")
            if nesting > MAX_NESTING:
                message = f"parentheses are nested more than {MAX_NESTING} deep"
                help = "name parts of the expression in temporaries or `where x = …` clauses"
                raise LexicalError("syntax-nesting", message, position, end, help)
            if name == "LPAR" and _may_start_targets(before, last):
                name = "_TARGETS" if _TARGETS.match(text, position) else "_SELECTED" if position in selecting else name
            before, last = last, name
            yield Token(name, value, start_pos=position, end_pos=end)
        position = end


_SKIP = r"(?:[ \t\n\r\f\v]|\#[^\n]*\n)*"
_WORD_NEXT = re.compile(rf"{_SKIP}{_WORD}")
_TARGETS = re.compile(rf"\({_SKIP}{_WORD}{_SKIP}(?:,{_SKIP}{_WORD}{_SKIP})*\){_SKIP}=(?!=)")
_PARENTHESIS = re.compile(r"[()]|#[^\n]*")
_MONOID = re.compile(rf"#[^\n]*|(?<![A-Za-z0-9_])monoid[ \t\n\r\f\v]+({_WORD}){_SKIP}\(")
_ENDS = frozenset({"NAME", "NUMBER", "EXTENT", "RPAR", "LBRACE"})
_BEFORE_UNTIL = _ENDS | {"ASSIGN"}
_NAMED_UNTIL = re.compile(
    rf"#[^\n]*|(?<![A-Za-z0-9_])(?:def[ \t\n\r\f\v]+until(?![A-Za-z0-9_])"
    rf"|until{_SKIP}(?:[,)+*/%<>&|?:=]|!=|(?:in|where)(?![A-Za-z0-9_])"
    rf"|(?:\((?:[^()]|\([^()]*\))*\){_SKIP})?(?:[+*]|&&|\|\||{_WORD})?=(?!=)))"
)
"""``until`` where a text declares, assigns or calculates with something of that name: it is no word of the language there."""


def _may_start_targets(before: str, last: str) -> bool:
    """Whether a parenthesis may open the targets of a call, ``(Q, K) = …``, and no subscripts: statements have no separator.

    `before` and `last` are the two tokens in front of it.  A name there is what the subscripts of ``T(i, j) = …`` belong to
    where something ends in front of the name (a statement, or nothing yet), and an operand otherwise: ``O = -T (Q, K) = …``.
    """
    return last in _ENDS and not (last == "NAME" and before in _ENDS)


def _monoid_names(text: str) -> frozenset[str]:
    """Reductions that a text defines: what is an operator in front of ``=!`` must be known before it is used."""
    if "monoid" not in text:
        return frozenset()
    return frozenset(m[1] for m in _MONOID.finditer(text) if m[1] and m[1] not in KEYWORDS)


def _selecting_parentheses(text: str, monoids: frozenset[str]) -> frozenset[int]:
    """Where parentheses open behind whose end ``argmax=!`` (or another selection or combination) follows."""
    if "=!" not in text:
        return frozenset()
    selects = re.compile(rf"{_SKIP}(?:{'|'.join(['argmin', 'argmax', *monoids])})=!")
    found: set[int] = set()
    opened: list[int] = []
    for match in _PARENTHESIS.finditer(text):
        if match.group() == "(":
            opened.append(match.start())
        elif match.group() == ")" and opened:
            start = opened.pop()
            if selects.match(text, match.end()):
                found.add(start)
    return frozenset(found)


_TERMINALS: dict[str, Callable[[str], str]] = {
    "number": lambda value: "NUMBER",
    "op": lambda value: "OP_ASSIGN",
    "select": lambda value: "SELECT",
    "extent": lambda value: "EXTENT",
    "symbol": lambda value: SYMBOLS[value],
}


def _check_number(text: str, start: int, end: int) -> None:
    run = _NUMBER_RUN.match(text, end)
    assert run is not None
    if run.end() > end:
        written = text[start : run.end()]
        if ".." in written:
            help = "a range is written lower:upper, with the upper bound outside"
        elif re.fullmatch(r"[0-9.]+(?:[eE][+-]?[0-9]+)?[fFlLuUdD]+", written):
            help = "literals have no suffix: 1.0 is a float, 1 an int32; other types are conversions, such as double(1.0)"
        elif re.fullmatch(r"0[xX][0-9A-Fa-f]+", written) and len(written) < 20:
            help = f"write it in decimal: {int(written, 16)}"
        else:
            help = "digits, optional fraction, optional exponent: 3, 0.5, 3e-5; a product needs *"
        raise LexicalError("syntax-number", f"malformed number {written[:40]!r}", start, run.end(), help)
    if end - start > _MAX_NUMBER:
        message = f"a number of {end - start} characters is too long"
        raise LexicalError("syntax-number", message, start, end, "no element type holds more than 20 significant digits")


class TcLexer(Lexer):
    """The interface that lark asks for."""

    def __init__(self, lexer_conf: Any) -> None:
        pass

    def lex(self, data: str) -> Iterator[Token]:  # type: ignore[override]  # lark passes the text to this form
        return read_tokens(data)
