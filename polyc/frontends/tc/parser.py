"""`.tc` text -> syntax tree, and syntax errors in the user's words."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyc.diagnostics import Diagnostic, Source, Span, SyntaxErrorInSource, suggest_name
from polyc.frontends.core.budget import find_excess
from polyc.frontends.core.reports import raise_errors
from polyc.frontends.tc.build import build_syntax
from polyc.frontends.tc.mistakes import LOOPS, UNTIL, guess_habit
from polyc.frontends.tc.syntax import (
    Apply,
    ConditionSyntax,
    ExistsSyntax,
    LetSyntax,
    RangeSyntax,
    SyntaxDef,
    SyntaxExpr,
    SyntaxStatement,
)
from polyc.frontends.tc.types import TYPE_NAMES

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
    """The definitions of `text` in order.  Raises `SyntaxErrorInSource` (codes ``syntax-*``), and
    `CompileBudgetError` where there are too many statements."""
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
    for definition in definitions:
        raise_errors(find_excess(definition.name, [s.span for s in definition.statements]))
    _check_height(definitions)
    return definitions


def _expressions(statement: SyntaxStatement) -> Iterator[SyntaxExpr]:
    for target in statement.targets:
        yield from target.subscripts
    yield from statement.values
    for clause in statement.where:
        match clause:
            case RangeSyntax():
                yield clause.lower
                yield clause.upper
            case LetSyntax() | ExistsSyntax() | ConditionSyntax():
                yield clause.value


def _check_height(definitions: tuple[SyntaxDef, ...]) -> None:
    """Everything behind the parser recurses over expressions: refuse those that are too high, by name."""
    own = [expr for definition in definitions for statement in definition.statements for expr in _expressions(statement)]
    own += [named.value for monoid in definitions[0].monoids for named in (*monoid.identity, *monoid.parts)]
    stack = [(expr, 1) for expr in reversed(own)]
    while stack:
        node, height = stack.pop()
        if height > MAX_HEIGHT:
            message = f"an expression is more than {MAX_HEIGHT} operators deep"
            help = "split the statement: `T(i) = …`, then `O(i) = T(i) + …`"
            raise SyntaxErrorInSource(Diagnostic("syntax-nesting", message, node.span, help))
        stack.extend((child, height + 1) for child in (node.args if isinstance(node, Apply) else ()))


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
    "MAX": "max is a keyword: choose another name; the reductions max= and max=! are written without a space",
    "MIN": "min is a keyword: choose another name; the reductions min= and min=! are written without a space",
    "LBRACKET": "subscripts stand in parentheses: A(i, j)",
    "EXTENT": "write an operator before it",
}


def _describe_unexpected(error: Any, source: Source) -> Diagnostic:
    token = getattr(error, "token", None)
    names = set(getattr(error, "accepts", None) or getattr(error, "expected", None) or ())
    # Parentheses and words that begin statements, and arg-max: they are named with the statement.
    names -= {"_TARGETS", "_SELECTED", "SELECT", "COMBINE", "UNTIL"}
    if "DEF" in names:
        names.discard("MONOID")
    names.discard("CSR")  # it goes with a type
    if names == {"RPAR", "_COMMA", "STAR"}:
        names.discard("STAR")  # of lengths of ragged parameters
    kind = getattr(token, "type", "$END")
    if kind == "$END":
        end = len(source.text.rstrip())
        found, span = "the end of the text", Span(source, max(0, end - 1), max(1, end))
    else:
        assert token is not None
        found, span = f"'{token[:40]}'", Span(source, token.start_pos, token.end_pos)
    expected = _describe_terminals(names) if names else "something else"
    help = guess_habit(source.text, span, names) or _guess_mistake(source.text, span, kind, names) or _help(kind, token, names)
    return Diagnostic("syntax-unexpected", f"expected {expected} but found {found} here", span, help)


def _open_parenthesis(span: Span) -> Span:
    """The last parenthesis before a place that is not closed before it."""
    depth = 0
    for position in range(span.start - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(span.source.text[position], 0)
        if depth < 0:
            return Span(span.source, position, position + 1)
    return span


_TYPED_NAME = re.compile(r"\w+(\([^(){}]*\))?(?:\s+\w+)?(?=\s*\{)")
"""A result as some write it: ``float(M) C`` before a body."""
_HABITS = {
    "if": "conditions are expressions: O(i) = c ? a : b",
    "for": LOOPS,
    "while": UNTIL,
    "break": UNTIL,
    "return": "there is no return: the results are named after ->",
    "let": "a name for an expression is given in a where clause: where x = A(i) + 1",
    "and": "the logical operators are &&, || and !",
    "or": "the logical operators are &&, || and !",
    "not": "the logical operators are &&, || and !",
    "else": "conditions are written c ? a : b",
}
"""Words of other languages that parse as names here."""

_OTHER_TYPES = {
    **{"int": "int32", "long": "int64", "short": "int16", "char": "int8", "byte": "uint8", "unsigned": "uint32"},
    **{"f32": "float", "f64": "double", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64"},
    **{
        "u8": "uint8",
        "u16": "uint16",
        "u32": "uint32",
        "u64": "uint64",
        "f16": "float16",
        "bf16": "bfloat16",
        "half": "float16",
        "real": "float",
    },
}


def _guess_mistake(text: str, span: Span, kind: str, names: set[str]) -> str | None:
    """Help for what people write who come from other languages; the text around the place tells."""
    before, found = text[: span.start].rstrip(), text[span.start : span.end]
    word = re.search(r"([A-Za-z_][A-Za-z_0-9]*)$", before)
    if kind == "SLASH" and (text.startswith(("//", "/*"), span.start) or text[: span.start].endswith("/")):
        return "a comment starts with # and runs to the end of the line"
    if kind == "STAR" and text[: span.start].endswith("/"):
        return "a comment starts with # and runs to the end of the line"
    if kind == "STAR" and text[: span.start].endswith("*"):
        return "powers are written pow(a, b)"
    if kind in ("SLASH", "MINUS", "PERCENT") and text[span.end : span.end + 1] == "=":
        return f"there is no {found}=: write the value out, as in O(i) = O(i) {found} A(i)"
    if found in _HABITS:
        return _HABITS[found]
    if kind == "LPAR" and names <= {"RPAR", "_COMMA"} and word is not None:
        name = word[1]
        if name in ("csr", "csc"):
            return f"give the type of its entries: {name} float(M, N) A"
        known = f"did you mean {_OTHER_TYPES[name]}?" if name in _OTHER_TYPES else suggest_name(name, TYPE_NAMES)
        return known or f"{name} is no element type; parameters are written float(N) A or int32 n"
    if kind == "TYPE" and names <= {"RPAR", "_COMMA"} and word is not None and word[1] in ("csr", "csc"):
        return f"write {word[1]} once: {word[1]} {found}(M, N) A"
    if kind == "TYPE" and names <= {"RPAR", "_COMMA"} and word is not None and word[1] in ("coo", "bsr", "sparse"):
        return f"a sparse matrix is csr {found}(M, N) A, in compressed rows: pass A.tocsr() of SciPy; or csc, in columns"
    if names == {"LPAR"} and before.endswith("->"):
        result = _TYPED_NAME.match(text, span.start)
        return f"results stand in parentheses: -> ({result[0] if result is not None else found})"
    if names == {"LBRACE"}:
        return "statements stand in braces: def f(float(N) A) -> (B) { B(i) = A(i) }"
    if kind == "COLON" and names <= {"RPAR", "_COMMA"}:
        if "{" in before[before.rfind("def ") + 1 :]:
            return "an index runs over all of its range; for a part of it give a where clause, as in where i in 0:N"
        return "the type stands before the name: float(M, N) A"
    is_sum = kind in ("PLUS", "MINUS", "STAR", "SLASH") and re.search(r"\w$", before)
    if names <= {"RPAR", "_COMMA"} and (is_sum or re.search(r"\w\s*\*$", before)):
        if "->" in before[before.rfind("def ") + 1 :]:
            return "sizes of a result are names or numbers; without a type it has those that its statements give it: -> (y)"
        return "dimensions of a parameter are names or numbers; give the sum a name of its own, such as float(N1) A"
    if kind == "NAME" and text.startswith("=!", span.end) and "OP_ASSIGN" in names:
        return f"no reduction {found} is defined; write monoid {found}(float a, float b) -> (c = 0.0) {{ c = a + b }} above"
    line = text[text.rfind("\n", 0, span.start) + 1 : span.start].strip()
    first = re.match(r"[A-Za-z_]+", line)
    if first is not None and first[0] in _HABITS and "OP_ASSIGN" in names:
        return _HABITS[first[0]]
    if word is not None and "OP_ASSIGN" in names:
        if word[1] in _HABITS:
            return _HABITS[word[1]]
        if suggest_name(word[1], ["where"]) is not None:
            return f"did you mean where? {word[1]} begins a new statement here"
    begun = re.search(r"[\w.)][ \t]+(\w+\s*\([^()]*\))$", before[-200:])
    if begun is not None and "OP_ASSIGN" in names and "LPAR" not in names:
        return f"{begun[1]} begins a new statement here; if it is a factor of the expression before, write * between them"
    if "RPAR" in names and names <= {"RPAR", "_COMMA"} and kind in ("RBRACE", "$END", "ASSIGN", "OP_ASSIGN", "_WHERE"):
        row, column = _open_parenthesis(span).line_column()
        return f"close the parenthesis that was opened in line {row}, column {column}"
    if names == {"COLON"}:
        is_range = re.search(r"\bin\b[^:\n]*$", before) is not None
        return "a range is written lower:upper, as in where i in 0:N" if is_range else "a condition needs both arms: c ? a : b"
    return None


def _help(kind: str, token: Any, names: set[str]) -> str:
    text = str(token)
    if names == {"DEF"} or names == {"DEF", "$END"}:
        return "a text is one or more definitions: def name(float(N) A) -> (B) { B(i) = A(i) }"
    if kind == "LPAR" and "RBRACE" in names:
        return "parentheses open a statement only around the results of a call: (Q, K) = project(X, W)"
    if "OP_ASSIGN" in names and kind != "ASSIGN":
        if kind in _FOUND_HELP:
            return _FOUND_HELP[kind]
        return "a statement is name(indices), one of = += *= min= max= +=! *=! min=! max=! argmax=!, and an expression"
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
