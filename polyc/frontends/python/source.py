"""From a function object or a source string to its syntax tree, with spans in the real file."""

from __future__ import annotations
import __future__

import ast
import inspect
import re
import tokenize
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

from polyc.diagnostics import Diagnostic, SemanticError, Source, Span, SyntaxErrorInSource
from polyc.live import describe_code, look_up
from polyc.records import dataclass

_FUTURE_FLAGS = 0
for _feature in __future__.all_feature_names:
    _FUTURE_FLAGS |= getattr(__future__, _feature).compiler_flag

_ABSENT = object()


@dataclass(frozen=True, eq=False)
class FunctionText:
    """A function definition, its text, and the live function it belongs to (None for a source string)."""

    source: Source
    definition: ast.FunctionDef
    line_shift: int
    """Lines that stand before the text in what was parsed (1 where an indented text was put below an ``if``)."""
    function: Any = None
    seen: dict[str, object] = field(default_factory=dict)
    """What was looked up, and found."""
    context: str = ""
    """That of the spans (`polyc.diagnostics.Span`): the round of an unrolled loop."""

    @cached_property
    def subscript_names(self) -> frozenset[str]:
        """Names that stand alone as a subscript somewhere in the function."""
        subscripts = [n.slice for n in ast.walk(self.definition) if isinstance(n, ast.Subscript)]
        parts = [p for s in subscripts for p in (s.elts if isinstance(s, ast.Tuple) else [s])]
        return frozenset(p.id for p in parts if isinstance(p, ast.Name))

    def span(self, node: ast.AST) -> Span:
        """The characters of an expression, statement or argument node."""
        return _span_of(self.source, self.line_shift, node, self.context)

    def start(self, node: ast.AST, word: str) -> Span:
        """The word that a statement begins with."""
        start = self.span(node).start
        return Span(self.source, start, start + len(word), self.context)

    def is_below(self, name: str) -> bool:
        """Whether the file defines a function of that name behind this one, which is read before Python has made it."""
        if self.function is None or self.lookup(name) is not None:
            return False
        lines = inspect.findsource(self.function)[0][self.function.__code__.co_firstlineno :]
        return any(re.match(rf"\s*def {re.escape(name)}\b", line) for line in lines)

    def lookup(self, name: str) -> object | None:
        """As `live.look_up`; nothing for a source string."""
        if self.function is None:
            return None
        found = self.seen[name] = look_up(self.function, name)
        return found


_recorders: list[list[FunctionText]] = []


@contextmanager
def recording(texts: list[FunctionText]) -> Iterator[None]:
    """Add all functions that are read meanwhile to `texts`: what they looked up says what their meaning depends on."""
    _recorders.append(texts)
    try:
        yield
    finally:
        _recorders.pop()


def load_function(function_or_source: Callable[..., Any] | str) -> FunctionText:
    """The definition behind a function or inside a source string (one ``def``; decorators are ignored).

    Raises SyntaxErrorInSource for text that is no Python, SemanticError where the source is missing or stale.
    """
    text = _load(function_or_source)
    for texts in _recorders:
        texts.append(text)
    return text


def _load(function_or_source: Callable[..., Any] | str) -> FunctionText:
    if isinstance(function_or_source, str):
        return parse_definition(Source(_unify_newlines(function_or_source), is_function=True))
    try:
        function: Any = inspect.unwrap(function_or_source)
    except ValueError:
        message = "the __wrapped__ of this function leads back to itself"
        raise _error("semantic-not-a-function", message, "give the function that is meant, or its text") from None
    if not isinstance(function, types.FunctionType) or function.__name__ == "<lambda>":
        raise _error(
            "semantic-not-a-function",
            f"polyc reads functions written with def, not {function!r}",
            "write a def, or pass its text",
        )
    code = function.__code__
    place = f"{code.co_filename}:{code.co_firstlineno}"
    try:
        lines, first_line = inspect.getsourcelines(function)
        file_text = "".join(inspect.findsource(function)[0])
    except (SyntaxError, tokenize.TokenError, IndexError):  # the file no longer reads as Python there
        raise _stale(function, place) from None
    except (OSError, TypeError):
        raise _error(
            "semantic-source-missing",
            f"the source of {function.__name__} is not available ({place})",
            "define the function in a file, or pass its source as a string",
        ) from None
    try:
        source = Source(_unify_newlines("".join(lines)), code.co_filename, max(first_line, 1), is_function=True)
        text = parse_definition(source, function)
    except SyntaxErrorInSource:
        raise _stale(function, place) from None
    if not _is_same_code(text.definition, function, file_text):
        raise _stale(function, place)
    return text


def parse_definition(source: Source, function: types.FunctionType | None = None) -> FunctionText:
    """The only function definition in `source`, whose text may be indented.  Imports and strings beside it are skipped."""
    first = next((line for line in source.text.split("\n") if line.strip() and not line.lstrip().startswith("#")), "")
    shift = 1 if first[:1].isspace() else 0
    tree = _parse(source, shift)
    body: list[ast.stmt] = tree.body
    if shift and len(body) == 1 and isinstance(body[0], ast.If):
        body = body[0].body
    found = []
    for node in body:
        match node:
            case ast.FunctionDef():
                found.append(node)
            case ast.Import() | ast.ImportFrom() | ast.Expr(ast.Constant(str())):
                pass
            case _:
                place = _span_of(source, shift, node)
                raise _error("semantic-not-a-function", "the source must hold one function definition only", _ONE_DEF, place)
    if len(found) != 1:
        place = Span(source, 0, 0)
        if len(found) > 1:
            place = _span_of(source, shift, found[1])
        message = f"the source holds {len(found)} function definitions, not one"
        raise _error("semantic-not-a-function", message, _ONE_DEF, place)
    return FunctionText(source, found[0], shift, function)


_ONE_DEF = "pass the text of one def, such as 'def f(X): Y[i] = 2 * X[i]; return Y' on lines of its own"


def quiet_parser() -> warnings.catch_warnings[None]:
    """Python's own warnings on a text (``1if x``) have no place in what polyc says."""
    return warnings.catch_warnings(action="ignore")


def _parse(source: Source, shift: int) -> ast.Module:
    text = "if True:\n" + source.text if shift else source.text
    try:
        with quiet_parser():
            tree = ast.parse(text)
            compile(tree, "<check>", "exec", dont_inherit=True)  # finds what only the compiler refuses: two parameters X
            return tree
    except SyntaxError as error:
        lines = source.text.split("\n")
        line = min(max((error.lineno or 1) - 1 - shift, 0), len(lines) - 1)
        start = sum(len(x) + 1 for x in lines[:line]) + min(max((error.offset or 1) - 1, 0), len(lines[line]))
        message = f"this is not Python: {error.msg}"
        diagnostic = Diagnostic("syntax-python", message, Span(source, start, start + 1), "correct the syntax of the function")
        raise SyntaxErrorInSource(diagnostic) from None
    except (RecursionError, MemoryError):
        longest = max(source.text.split("\n"), key=len)  # Python does not say where: most likely there
        start = source.text.index(longest) + len(longest) - len(longest.lstrip())
        raise SyntaxErrorInSource(make_nesting_error(Span(source, start, start + 1))) from None
    except (ValueError, OverflowError) as error:  # null bytes, lone surrogates, literals of thousands of digits
        start = max(0, source.text.find("\0"))
        diagnostic = Diagnostic("syntax-python", f"this is not Python: {error}", Span(source, start, start), "correct the text")
        raise SyntaxErrorInSource(diagnostic) from None


def make_nesting_error(span: Span | None) -> Diagnostic:
    return Diagnostic(
        "syntax-nesting", "an expression is nested too deeply", span, "assign parts of it to names of their own first"
    )


def _unify_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _span_of(source: Source, shift: int, node: ast.AST, context: str = "") -> Span:
    start = _offset(source.text, node.lineno - 1 - shift, node.col_offset)  # type: ignore[attr-defined]
    end_line, end_column = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
    return Span(source, start, _offset(source.text, end_line - 1 - shift, end_column), context)


@lru_cache(maxsize=4)
def _line_table(text: str) -> tuple[tuple[int, bytes], ...]:
    """Offset and UTF-8 bytes of each line."""
    lines = text.split("\n")
    starts = accumulate((len(line) + 1 for line in lines), initial=0)
    return tuple((start, line.encode("utf-8", "replace")) for start, line in zip(starts, lines, strict=False))


def _offset(text: str, line: int, byte_column: int) -> int:
    """Character offset of a position that `ast` gives as line and UTF-8 byte column."""
    start, content = _line_table(text)[line]
    return start + len(content[:byte_column].decode("utf-8", "ignore"))


def _is_same_code(definition: ast.FunctionDef, function: types.FunctionType, file_text: str) -> bool:
    """Does the text still compile to what runs?  The file may have changed since it was imported."""
    code = function.__code__
    compiled = _find_compiled(code, file_text)
    if compiled is None or describe_code(compiled) != describe_code(code):
        return False
    for argument in (*definition.args.posonlyargs, *definition.args.args):
        live = function.__annotations__.get(argument.arg, _ABSENT)
        if isinstance(argument.annotation, ast.Constant) and isinstance(live, str):
            # Under `from __future__ import annotations` the live value is the text of the annotation, quotes included.
            if live not in (argument.annotation.value, ast.unparse(argument.annotation)):
                return False
        elif (argument.annotation is None) != (live is _ABSENT):
            return False
    return True


@lru_cache(maxsize=4)
def _compile_file(text: str, flags: int) -> types.CodeType | None:
    try:
        with quiet_parser():
            compiled: types.CodeType = compile(text, "<check>", "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return compiled


def _find_compiled(code: types.CodeType, file_text: str) -> types.CodeType | None:
    """The code that the file now holds at the place of `code`.

    The whole file is compiled, not the function alone: what surrounds a function (free variables, imports) shows in it.
    """
    module = _compile_file(file_text, code.co_flags & _FUTURE_FLAGS)
    waiting = [module] if module is not None else []
    while waiting:
        found = waiting.pop()
        if found.co_name == code.co_name and found.co_firstlineno == code.co_firstlineno:
            return found
        waiting += [c for c in found.co_consts if isinstance(c, types.CodeType)]
    return None


def _stale(function: types.FunctionType, place: str) -> SemanticError:
    return _error(
        "semantic-source-stale",
        f"the source of {function.__name__} at {place} changed after the function was defined",
        "reload the module, or pass the source as a string",
    )


def _error(code: str, message: str, help: str, span: Span | None = None) -> SemanticError:
    return SemanticError(Diagnostic(code, message, span, help))
