"""Reads the text of a `LoopNest` back: a recursive-descent reader for what `loops_text.format_loops` prints.

The text does not say everything: `LoopNest.checks`, `exact_quotients` and `Loop.is_apart` have their default values, and
the nest of an `InitialValue` is made of the loops around its update.  Nests so read mean the same as those that were printed.
"""

from __future__ import annotations

import re

from polyc.diagnostics import Source
from polyc.ir.expr import Expr, Index, Size, walk
from polyc.ir.loops import (
    Buffer,
    Fold,
    Guard,
    If,
    InitialValue,
    Loop,
    LoopKind,
    LoopNest,
    Node,
    Prefetch,
    Space,
    Store,
    Update,
)
from polyc.ir.text import ASSIGNMENT
from polyc.ir.text_reader import TOKEN, Reader, read_binary, read_expr, read_list, split_tokens
from polyc.ir.types import DTYPES
from polyc.ir.walk import node_expressions, walk_nodes
from polyc.records import replace

_TOKEN = re.compile(rf"(?P<comment>(?<=;)[ ]*//[^\n]*)|(?P<mark>[{{}};]|\+\+)|{TOKEN.pattern}", re.VERBOSE)
_OPERATORS = {symbol: op for op, symbol in ASSIGNMENT.items()}
_SPACES: dict[str, Space] = {"argument": "argument", "shared": "shared", "thread": "thread", "register": "register"}
_KINDS: dict[str, LoopKind] = {"parallel": "parallel", "vector": "vector", "unroll": "unroll", "scan": "scan"}
_OPERAND = 3
"""The level of `read_binary` for an operand of a comparison."""


def parse_loops(text: str, name: str = "<loops>") -> LoopNest:
    """The nest that `text` describes.

    Raises SyntaxErrorInSource (code ``syntax-program-text``); what it means is judged by `verify_loops.verify_loops`."""
    source = Source(text, name)
    r = Reader(source, split_tokens(source, _TOKEN))
    r.expect("nest")
    title = r.name()
    r.expect("(")
    parameters = _names(r, ")")
    folds, buffers = [], []
    while r.current.kind == "name" and r.tokens[r.position + 1].text == ",":
        folds.append(_read_fold(r))
    while r.at(*_SPACES) and r.tokens[r.position + 1].kind == "name":
        buffers.append(_read_buffer(r))
    first = _read_body(r) if r.at("first") and r.tokens[r.position + 1].text == "{" and r.accept("first") else ()
    body = []
    while r.current.kind != "end":
        body.append(_read_node(r))
    nest = LoopNest(title, parameters, tuple(buffers), tuple(body), folds=tuple(folds), preconditions=first)
    roots = [root for node in walk_nodes((*first, *nest.body)) for root in node_expressions(node)]
    used = {e.name for root in roots for e in walk(root) if isinstance(e, Size)}
    return replace(nest, offsets=tuple(b.name for b in buffers if f"{b.name}.offset" in used))


def _names(r: Reader, end: str) -> tuple[str, ...]:
    found = []
    while not r.accept(end):
        found.append(r.name())
        if not r.at(end):
            r.expect(",")
    return tuple(found)


def _whole(r: Reader) -> int:
    if not r.current.text.isdigit():
        r.fail("a whole number")
    r.position += 1
    return int(r.tokens[r.position - 1].text)


def _words(r: Reader, text: str) -> bool:
    """Whether the next tokens are these, which are read then."""
    words = text.split()
    if [t.text for t in r.tokens[r.position : r.position + len(words)]] != words:
        return False
    r.position += len(words)
    return True


def _read_fold(r: Reader) -> Fold:
    """``N, M = 1, N * M if A.stride0 == M * 4 and there is one thread``."""
    first = r.name()
    r.expect(",")
    second = r.name()
    for token in ("=", "1", ",", first, "*", second, "if"):
        r.expect(token)
    strides, is_alone = [], False
    while not is_alone:
        stride = r.name()
        for token in ("==", second, "*"):
            r.expect(token)
        strides.append((stride, read_binary(r, _OPERAND)))
        if not _words(r, "and"):
            break
        is_alone = _words(r, "there is one thread")
    return Fold(first, second, tuple(strides), is_alone)


def _read_buffer(r: Reader) -> Buffer:
    """``argument X: f32[N, 8] strides (X.stride0, 4) at data[0] may alias Y``, or ``… in A``."""
    space = _SPACES[r.current.text]
    r.position += 1
    name = r.name()
    r.expect(":")
    if r.current.text not in DTYPES:
        r.fail("an element type")
    dtype = DTYPES[r.current.text]
    r.position += 1
    r.expect("[")
    shape = read_list(r, "]")
    r.expect("strides")
    r.expect("(")
    strides = read_list(r, ")")
    position = None
    if _words(r, "at data ["):
        position = _whole(r)
        r.expect("]")
    aliases = []
    if _words(r, "may alias"):
        aliases.append(r.name())
        while r.accept(","):
            aliases.append(r.name())
    memory = r.name() if _words(r, "in") else ""
    return Buffer(name, dtype, shape, strides, space, position, tuple(aliases), memory)


# --- Nodes -----------------------------------------------------------------------------------------------------------


def _read_node(r: Reader) -> Node:
    following = r.tokens[r.position + 1]
    if following.text != "[":  # else it is a buffer of that name
        if r.accept("check"):
            return _read_guard(r)
        if r.accept("prefetch"):
            return _read_prefetch(r)
        if r.accept("if"):
            return _read_if(r)
        if r.at("for", "(", *_KINDS):
            return _read_loop(r)
    return _read_store(r, r.at("stream") and following.text != "[" and r.accept("stream"))


def _read_body(r: Reader) -> tuple[Node, ...]:
    r.expect("{")
    nodes = []
    while not r.accept("}"):
        nodes.append(_read_node(r))
    return tuple(nodes)


def _read_store(r: Reader, is_streamed: bool) -> Store | Update:
    buffer = r.name()
    r.expect("[")
    subscripts = read_list(r, "]")
    op = _OPERATORS.get(r.current.text)
    if op is None:
        r.expect("=")
    else:
        r.position += 1
    value = read_expr(r)
    r.expect(";")
    statement = ""
    if r.current.kind == "comment":
        statement = r.current.text.strip().removeprefix("//").strip()
        r.position += 1
    if op is None:
        return Store(buffer, subscripts, value, statement, is_streamed)
    return Update(buffer, subscripts, op, value, statement)


def _read_guard(r: Reader) -> Guard:
    number = _whole(r)
    for token in (":", "0", "<="):
        r.expect(token)
    value = read_binary(r, _OPERAND)
    r.expect("<")
    bound = read_binary(r, _OPERAND)
    condition = read_expr(r) if r.accept("if") else None
    shown = None
    if r.accept("shows"):
        first = read_expr(r)
        r.expect(",")
        shown = first, read_expr(r)
    r.expect(";")
    return Guard(number, value, bound, condition, shown)


def _read_prefetch(r: Reader) -> Prefetch:
    buffer = r.name()
    r.expect("[")
    subscripts = read_list(r, "]")
    r.expect(",")
    size = _whole(r)
    r.expect("bytes")
    level = _words(r, "to L2")
    r.expect(";")
    return Prefetch(buffer, subscripts, size, 2 if level else 1)


def _read_if(r: Reader) -> If:
    r.expect("(")
    condition = read_expr(r)
    r.expect(")")
    body = _read_body(r)
    return If(condition, body, _read_body(r) if r.accept("else") else ())


def _read_loop(r: Reader) -> Loop:
    """``vector(lanes 8 x 2, registers s from 0.0) for (i = 0; i < N; i++) { … }``."""
    kind: LoopKind = "serial"
    if r.at(*_KINDS):
        kind = _KINDS[r.current.text]
        r.position += 1
    details = r.position
    if r.at("("):  # what the details say may be over variables of the body, which is read first
        _skip(r)
    r.expect("for")
    r.expect("(")
    var = r.name()
    r.expect("=")
    lower = read_expr(r)
    for token in (";", var, "<"):
        r.expect(token)
    upper = read_expr(r)
    r.expect(";")
    r.expect(var)
    step = 1
    if not r.accept("++"):
        r.expect("+=")
        step = _whole(r)
    r.expect(")")
    around = r.indices
    r.indices |= {var}
    body = _read_body(r)
    loop = Loop(var, lower, upper, step, kind, body)
    end, r.position = r.position, details
    r.indices |= {node.var for node in walk_nodes(body) if isinstance(node, Loop)}
    if r.accept("("):
        while not r.accept(")"):
            loop = _read_detail(r, loop)
            if not r.at(")"):
                r.expect(",")
    r.position, r.indices = end, around
    return loop


def _skip(r: Reader) -> None:
    """To behind the bracket that closes the one that is next."""
    depth = 0
    while True:
        depth += r.at("(") - r.at(")")
        r.position += 1
        if not depth:
            return
        if r.current.kind == "end":
            r.fail("')'")


def _read_detail(r: Reader, loop: Loop) -> Loop:
    if _words(r, "lanes"):
        lanes = _whole(r)
        return replace(loop, lanes=lanes, interleave=_whole(r) if _words(r, "x") else 1)
    if _words(r, "at most"):
        return replace(loop, max_trip=_whole(r))
    if _words(r, "of"):
        return replace(loop, tile=_whole(r))
    if _words(r, "in columns along"):
        return replace(loop, stream=r.name())
    if _words(r, "parts of"):
        return replace(loop, least_part=_whole(r), is_uneven=_words(r, "that lie apart"))
    if _words(r, "if"):
        return replace(loop, parallel_if=read_expr(r))
    r.expect("registers")
    names, initial = [], []
    while not r.at(",", ")"):
        names.append(r.name())
        if r.accept("from"):
            value = read_expr(r)
            initial.append(InitialValue(names[-1], value, _initial_nest(loop.body, names[-1], value, ())))
    return replace(loop, registers=tuple(names), initial=tuple(initial))


def _initial_nest(body: tuple[Node, ...], buffer: str, value: Expr, around: tuple[Loop, ...]) -> tuple[Node, ...]:
    """Stores `value` to what the update of `buffer` in `body` accumulates: its target, over the expanded loops that move it."""
    for node in body:
        match node:
            case Update() if node.buffer == buffer:
                names = {e.name for sub in node.subscripts for e in walk(sub) if isinstance(e, Index)}
                store: Node = Store(buffer, node.subscripts, value, f"init_{node.statement}")
                for loop in reversed([loop for loop in around if loop.var in names]):
                    store = replace(loop, body=(store,), registers=(), initial=())
                return (store,)
            case Loop():
                inside = (*around, node) if node.is_expanded else around
                if found := _initial_nest(node.body, buffer, value, inside):
                    return found
            case If():
                if found := _initial_nest(node.body + node.orelse, buffer, value, around):
                    return found
    return ()
