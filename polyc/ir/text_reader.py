"""Reads the text of a `Program` back: a recursive-descent reader for exactly what `text.format_program` prints.

White space and line breaks separate tokens and mean nothing else; ``//`` at the start of a line begins a comment.
"""

from __future__ import annotations

import math
import re
from dataclasses import field
from typing import Literal, NoReturn

from polyc.diagnostics import Diagnostic, Source, Span, SyntaxErrorInSource
from polyc.ir.expr import PAD_MODES, Call, Cast, Const, Expr, Index, Pad, Read, Select, Size
from polyc.ir.operators import OPERATORS
from polyc.ir.program import (
    Condition,
    Exists,
    Monoid,
    Program,
    RangeClause,
    Reduction,
    Return,
    Role,
    Statement,
    Tensor,
    Where,
)
from polyc.ir.text import RESERVED, ROLES
from polyc.ir.types import BOOL, DTYPES, F32, I64, DType
from polyc.records import dataclass, replace

_DTYPE = "|".join(DTYPES)
TOKEN = re.compile(
    rf"""(?P<space>\s+|(?:(?<=\n)|^)[ ]*//[^\n]*)
    |(?P<number>(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+|inf\b|nan\b)(?::(?:{_DTYPE})\b(?!\())?)
    |(?P<assign>combine=(?!=)|max=(?!=)|min=(?!=)|&&=|\|\|=|\+=|\*=)
    |(?P<name>[A-Za-z_][A-Za-z0-9_.]*|`(?:[^`\\]|\\.)*`)
    |(?P<symbol>->|//|<=|>=|==|!=|&&|\|\||[-+*/%<>!?:,=()\[\]])""",
    re.VERBOSE,
)
_ASSIGNMENT = {"+=": "add", "*=": "mul", "max=": "max", "min=": "min", "&&=": "and", "||=": "or", "combine=": "combine"}
_BINARY: tuple[dict[str, str], ...] = (
    {"||": "or"},
    {"&&": "and"},
    {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"},
    {"+": "add", "-": "sub"},
    {"*": "mul", "/": "truediv", "//": "floordiv", "%": "mod"},
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    span: Span


@dataclass(slots=True)
class Reader:
    """Tokens, and the next one to read."""

    source: Source
    tokens: list[Token]
    position: int = 0
    indices: frozenset[str] = field(default=frozenset())
    """Bare names that are indices in the statement being read."""

    @property
    def current(self) -> Token:
        return self.tokens[self.position]

    def fail(self, expected: str) -> NoReturn:
        found = f"'{self.current.text}'" if self.current.kind != "end" else "the end of the text"
        message = f"expected {expected} but found {found}"
        raise SyntaxErrorInSource(Diagnostic("syntax-program-text", message, self.current.span))

    def at(self, *texts: str) -> bool:
        return self.current.text in texts and self.current.kind != "end"

    def accept(self, text: str) -> bool:
        if self.at(text):
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"'{text}'")

    def name(self) -> str:
        token = self.current
        if token.kind != "name" or token.text in RESERVED:
            self.fail("a name")
        self.position += 1
        return re.sub(r"\\(.)", r"\1", token.text[1:-1]) if token.text.startswith("`") else token.text


def parse_program(text: str, name: str = "<program>") -> Program:
    """The program that `text` describes, spans pointing into the text.

    Raises SyntaxErrorInSource (code ``syntax-program-text``); what it means is judged by `verify.verify_program`."""
    source = Source(text, name)
    reader = Reader(source, split_tokens(source))
    program = _read_program(reader)
    if reader.current.kind != "end":
        reader.fail("a statement")
    return program


def split_tokens(source: Source, pattern: re.Pattern[str] = TOKEN) -> list[Token]:
    """The tokens of a text, and one at its end; `pattern` has a group for each kind, ``space`` for what separates them."""
    tokens = []
    position = 0
    while position < len(source.text):
        match = pattern.match(source.text, position)
        if match is None:
            span = Span(source, position, position + 1)
            message = f"the character '{source.text[position]}' has no meaning here"
            raise SyntaxErrorInSource(Diagnostic("syntax-program-text", message, span))
        if match.lastgroup != "space":
            assert match.lastgroup is not None
            tokens.append(Token(match.lastgroup, match.group(), Span(source, *match.span())))
        position = match.end()
    return [*tokens, Token("end", "", Span(source, len(source.text), len(source.text)))]


# --- Declarations ----------------------------------------------------------------------------------------------------


def _read_program(r: Reader) -> Program:
    r.expect("program")
    name = r.name()
    parameters: list[str] = []
    tensors: list[Tensor] = []
    r.expect("(")
    while not r.accept(")"):
        start = r.current.span
        parameters.append(r.name())
        if r.accept(":"):
            tensors.append(_read_type(r, parameters[-1], "input", start))
        if not r.at(")"):
            r.expect(",")
    r.expect("->")
    returns = _read_returns(r)
    sizes: list[str] = []
    if r.accept("sizes"):
        sizes.append(r.name())
        while r.accept(","):
            sizes.append(r.name())
    defined = []
    while r.accept("define"):
        symbol = r.name()
        r.expect("=")
        defined.append((symbol, read_expr(r)))
    while r.at(*ROLES):
        role = ROLES[r.current.text]
        r.position += 1
        start = r.current.span
        tensor = r.name()
        r.expect(":")
        tensors.append(_read_type(r, tensor, role, start))
    statements = []
    while r.current.kind == "name":
        statements.append(_read_statement(r))
    return Program(
        name, tuple(sizes), tuple(tensors), tuple(parameters), tuple(returns), tuple(statements), tuple(defined), r.source
    )


def _read_returns(r: Reader) -> list[Return]:
    returns = []
    r.expect("(")
    while not r.accept(")"):
        name = r.name()
        version = r.name() if r.accept("=") else name
        returns.append(Return(name, version, r.name() if r.accept("from") else None))
        if not r.at(")"):
            r.expect(",")
    return returns


def _read_type(r: Reader, name: str, role: Role, start: Span) -> Tensor:
    if r.current.text not in DTYPES:
        r.fail("an element type")
    dtype = DTYPES[r.current.text]
    r.position += 1
    r.expect("[")
    rank = 0
    extents: list[Expr] = []
    while not r.accept("]"):
        rank += 1
        if not r.accept("?"):
            extents.append(read_expr(r))
        if not r.at("]"):
            r.expect(",")
    is_declared = len(extents) == rank if rank else not r.accept("?") if role == "input" else r.accept("!")
    base = r.name() if r.accept("of") else name
    return Tensor(name, dtype, rank, tuple(extents) if is_declared else None, role, base, start)


def _read_statement(r: Reader) -> Statement:
    start = r.current.span
    name = r.name()
    r.expect("(")
    indices: list[str] = []
    while not r.accept(")"):
        indices.append(r.name())
        if not r.at(")"):
            r.expect(",")
    r.expect(":")
    r.indices = frozenset(indices)
    target = r.name()
    r.expect("[")
    subscripts = read_list(r, "]")
    op: str | None = None
    if r.current.text in _ASSIGNMENT:
        op = _ASSIGNMENT[r.current.text]
        r.position += 1
    else:
        r.expect("=")
    value = read_expr(r)
    reduction = None
    if op is not None:
        r.expect("init")
        reduction = Reduction(op, read_expr(r))
        reduction = replace(reduction, once=r.accept("once"))
        if op == "combine":
            reduction = _read_monoid(r, reduction)
    where: list[Where] = []
    if r.accept("where"):
        where.append(_read_where(r))
        while r.accept(","):
            where.append(_read_where(r))
    span = start.join(r.tokens[r.position - 1].span)
    r.indices = frozenset()
    return Statement(name, target, subscripts, tuple(indices), value, reduction, tuple(where), span)


def _read_monoid(r: Reader, reduction: Reduction) -> Reduction:
    r.expect("component")
    number = _read_number(r.current, 1, r.current.span)
    r.position += 1
    r.expect("of")
    name = r.name()
    r.expect("(")
    identity = read_list(r, ")")
    r.expect("(")
    results = read_list(r, ")")
    constants = tuple(c for c in identity if isinstance(c, Const))
    return replace(reduction, monoid=Monoid(name, constants, results), component=int(number.value))


def _read_where(r: Reader) -> Where:
    start = r.current.span
    if r.accept("exists"):
        value = read_expr(r)
        return Exists(value, start.join(r.tokens[r.position - 1].span))
    if r.tokens[r.position + 1].text == "in":
        index = r.name()
        r.expect("in")
        lower = read_binary(r, 0)
        r.expect(":")
        return RangeClause(index, lower, read_binary(r, 0), start.join(r.tokens[r.position - 1].span))
    condition = read_expr(r)
    return Condition(condition, start.join(r.tokens[r.position - 1].span))


# --- Expressions -----------------------------------------------------------------------------------------------------


def read_expr(r: Reader) -> Expr:
    """One expression; bare names that are not `Reader.indices` are sizes."""
    start = r.current.span
    condition = read_binary(r, 0)
    if not r.accept("?"):
        return condition
    then = read_binary(r, 0)
    r.expect(":")
    other = read_expr(r)
    return Select(condition, then, other, start.join(r.tokens[r.position - 1].span))


def read_binary(r: Reader, level: int) -> Expr:
    """An expression of operators that bind as closely as those of `_BINARY` from `level` on."""
    if level == len(_BINARY):
        return _read_unary(r)
    start = r.current.span
    left = read_binary(r, level + 1)
    while r.current.kind == "symbol" and r.current.text in _BINARY[level]:
        op = _BINARY[level][r.current.text]
        r.position += 1
        right = read_binary(r, level + 1)
        left = Call(op, (left, right), start.join(r.tokens[r.position - 1].span))
        if "<" in _BINARY[level]:
            break  # comparisons do not chain
    return left


def _read_unary(r: Reader) -> Expr:
    start = r.current.span
    if r.at("-") and r.tokens[r.position + 1].kind == "number":  # the sign belongs to the literal
        r.position += 2
        return _read_number(r.tokens[r.position - 1], -1, start)
    for symbol, op in (("-", "neg"), ("!", "not")):
        if r.accept(symbol):
            return Call(op, (_read_unary(r),), start)
    return _read_primary(r)


def _read_number(token: Token, sign: Literal[1, -1], start: Span) -> Const:
    literal, _, suffix = token.text.partition(":")
    dtype: DType = DTYPES[suffix] if suffix else I64 if literal.isdigit() else F32
    if dtype.is_float or dtype.is_complex:
        value = math.nan if literal == "nan" else sign * float(literal)
        return Const(value, dtype, start.join(token.span))
    return Const(sign * int(literal), dtype, start.join(token.span))


def _read_primary(r: Reader) -> Expr:
    token = r.current
    word = token.text
    if token.kind == "number":
        r.position += 1
        return _read_number(token, 1, token.span)
    if r.accept("("):
        inner = read_expr(r)
        r.expect(")")
        return inner
    if word in ("true", "false"):
        r.position += 1
        return Const(word == "true", BOOL, token.span)
    if token.kind == "name" and r.tokens[r.position + 1].text == "(" and not word.startswith("`"):
        return _read_call(r)
    name = r.name()
    if r.accept("["):
        subscripts = read_list(r, "]")
        return Read(name, subscripts, token.span.join(r.tokens[r.position - 1].span))
    return Index(name, token.span) if name in r.indices else Size(name, token.span)


def _read_call(r: Reader) -> Expr:
    token = r.current
    r.position += 2
    if token.text in ("index", "size"):
        name = r.name()
        r.expect(")")
        return Index(name, token.span) if token.text == "index" else Size(name, token.span)
    args = read_list(r, ")")
    span = token.span.join(r.tokens[r.position - 1].span)
    if token.text in DTYPES and len(args) == 1:
        return Cast(args[0], DTYPES[token.text], span)
    if token.text == "pad" and len(args) == 2 and isinstance(args[0], Read):
        return Pad(args[0], args[1], span)
    for mode in PAD_MODES:
        if token.text == f"pad_{mode}" and len(args) == 2 and isinstance(args[0], Read):
            return Pad(args[0], args[1], span, mode)
    if token.text not in OPERATORS or len(args) not in (OPERATORS[token.text].arity, len(args) * (token.text == "tuple")):
        message = f"'{token.text}' is no operator with {len(args)} operands"
        raise SyntaxErrorInSource(Diagnostic("syntax-program-text", message, token.span))
    return Call(token.text, args, span)


def read_list(r: Reader, end: str) -> tuple[Expr, ...]:
    """Expressions up to the token `end`, and that."""
    items = []
    while not r.accept(end):
        items.append(read_expr(r))
        if not r.at(end):
            r.expect(",")
    return tuple(items)
