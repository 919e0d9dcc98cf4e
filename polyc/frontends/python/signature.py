"""Parameters, annotations and compile-time constants of a decorated function."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from polyc.diagnostics import Diagnostic, Span
from polyc.frontends.core.values import LONG_NAMES, Fault
from polyc.frontends.python.functions import TYPE_NAMES, UNSUPPORTED_TYPES
from polyc.frontends.python.source import FunctionText, quiet_parser
from polyc.frontends.python.values import convert, make_literal
from polyc.ir.expr import Call, Const, Expr, Size, int_const, walk
from polyc.ir.simplify import simplify_int
from polyc.ir.types import DTYPES, DType
from polyc.records import dataclass

Number = int | float | bool
Report = Callable[[Diagnostic], None]


_OTHER_NAMES = {
    **{name: dtype.name for name, dtype in LONG_NAMES.items()},
    **{"float": "f32", "double": "f64", "fp16": "f16", "bfloat": "bf16", "int": "i64", "long": "i64", "boolean": "bool"},
}


def _nearest_type(name: str) -> str | None:
    near = difflib.get_close_matches(name, [*DTYPES, *_OTHER_NAMES], 1)
    return near[0] if near else None


@dataclass(frozen=True, slots=True)
class Annotation:
    """What ``"f32[M, K]"`` says: the element type, and one extent per dimension over constants and size symbols."""

    dtype: DType
    shape: tuple[Expr, ...]
    span: Span
    format: str = ""
    """Of a sparse matrix, csr or csc; ragged."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An array (or scalar) that a call gives by position or name; a scalar may have a `default`."""

    name: str
    annotation: Annotation | None
    span: Span
    default: Number | complex | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A keyword-only parameter: a number known when the function is read.  `value` is None where it has no default."""

    name: str
    value: Number | None
    span: Span


@dataclass(frozen=True, slots=True)
class PythonSignature:
    """What a function says about its arguments; `sizes` are the symbols of the annotations by first appearance."""

    name: str
    parameters: tuple[Parameter, ...]
    constants: tuple[Constant, ...]
    sizes: tuple[str, ...]


def read_parameters(
    text: FunctionText, constants: Mapping[str, object] | None, report: Report, needs_values: bool = True
) -> PythonSignature:
    """The signature of a definition; `constants` replace the defaults of keyword-only parameters.

    Without `needs_values` a constant may have no value yet; an extent that uses it then holds it as a `Size`, which is not
    among `sizes`.
    """
    arguments = text.definition.args
    for variadic in (arguments.vararg, arguments.kwarg):
        if variadic is not None:
            _complain(report, text, variadic, "*args and **kwargs are not possible", "name every array")
    first = next(iter((*arguments.posonlyargs, *arguments.args)), None)
    if first is not None and first.arg in ("self", "cls") and first.annotation is None:
        help = f"leave out {first.arg}, and put @staticmethod above @polyc.op"
        _complain(report, text, first, "a method cannot be an operator: it would need an object", help)
    defaults = read_defaults(text)
    known = _read_constants(text, dict(constants or {}), report, needs_values)
    values = {c.name: c.value for c in known if c.value is not None}
    parameters = []
    for argument in (*arguments.posonlyargs, *arguments.args):
        annotation = _read_annotation(text, argument.annotation, values, report)
        if annotation is not None and annotation.format:
            _check_matrix(argument.arg, annotation, _name_span(text, argument), report)
        default = None
        if argument.arg in defaults:
            default = _check_default(text, argument.arg, annotation, *defaults[argument.arg], report)
        parameters.append(Parameter(argument.arg, annotation, _name_span(text, argument), default))
    sizes = _collect_sizes(parameters, {c.name for c in known}, report)
    return PythonSignature(text.definition.name, tuple(parameters), known, sizes)


def _check_matrix(name: str, annotation: Annotation, span: Span, report: Report) -> None:
    from polyc.frontends.core.compressed import check_matrix  # only now: other functions do without

    try:
        if annotation.format == "ragged":
            from polyc.frontends.core.ragged import check_ragged

            check_ragged(name, annotation.shape, span)
            return
        check_matrix(name, len(annotation.shape), annotation.dtype, span, ("csr", "csc").index(annotation.format))
    except Fault as fault:
        report(Diagnostic(fault.code, fault.message, span, fault.help))


def read_defaults(text: FunctionText) -> dict[str, tuple[object, ast.expr]]:
    """By the name of a parameter before a bare ``*``, its default and where that stands."""
    arguments = text.definition.args
    nodes = arguments.defaults
    live = (text.function.__defaults__ or ()) if text.function is not None else ()
    values = live if len(live) == len(nodes) else [_literal(node) for node in nodes]
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    return dict(zip(names[len(names) - len(nodes) :], zip(values, nodes, strict=True), strict=True))


def _check_default(
    text: FunctionText, name: str, annotation: Annotation | None, value: object, node: ast.expr, report: Report
) -> Number | complex | None:
    """The default of a scalar parameter; None after a report."""
    if annotation is not None and annotation.shape:
        help = "a default is a number, for a scalar; compile-time constants stand behind a bare *: def f(X, *, stride=2)"
        _complain(report, text, node, f"{name} is an array, and has no default", help)
    elif not isinstance(value, (bool, int, float, complex)):
        shown = "None" if value is None else repr(value)[:40]
        help = f"give {name} a number as its default, or none at all: parameters that are left out have no meaning"
        _complain(report, text, node, f"the default of {name} is {shown}, which is no number", help)
    elif annotation is not None and not _holds(annotation.dtype, value):
        _complain(
            report, text, node, f"{name} is {annotation.dtype}, which does not hold its default {value!r}", "change one of them"
        )
    else:
        return value
    return None


def _holds(dtype: DType, value: Number | complex) -> bool:
    literal = make_literal(value)
    if "biufc".index(literal.dtype.kind) > "biufc".index("i" if dtype.kind == "u" else dtype.kind):
        return False
    try:
        convert(literal, dtype)
    except Fault:
        return False
    return True


def _collect_sizes(parameters: list[Parameter], constants: set[str], report: Report) -> tuple[str, ...]:
    """Symbols by first appearance; each must be a whole extent somewhere, or an integer, or no call could tell its value."""
    names = {p.name: p.annotation for p in parameters}
    sizes: dict[str, Span] = {}
    whole: set[str] = set()
    for parameter in parameters:
        if parameter.annotation is None:
            continue
        for extent in parameter.annotation.shape:
            whole |= {extent.name} if isinstance(extent, Size) else set()
            for node in walk(extent):
                if isinstance(node, Size) and node.name not in constants and not node.name.endswith("*"):
                    sizes.setdefault(node.name, find_word(parameter.annotation.span, node.name))
    for size, span in sizes.items():
        if size in names:
            own = names[size]
            if own is not None and (own.shape or not own.dtype.is_integer):
                message = f"{size} is a parameter and a size at once, and no integer"
                help = f"rename one of them; a size that a call gives as a number is {size}: 'i64'"
                report(Diagnostic("semantic-already-defined", message, span, help))
        elif size not in whole:
            message = f"no call can tell the size {size}: it stands only inside expressions"
            report(Diagnostic("semantic-annotation", message, span, f"use {size} alone as one dimension of a parameter"))
    return tuple(sizes)


def _read_constants(text: FunctionText, given: dict[str, object], report: Report, needs_values: bool) -> tuple[Constant, ...]:
    arguments = text.definition.args
    live: Mapping[str, Any] = (text.function.__kwdefaults__ or {}) if text.function else {}
    result = []
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        name, span = argument.arg, _name_span(text, argument)
        if name in given:
            value: object = given.pop(name)
        elif name in live:
            value = live[name]
        elif default is not None:
            value = _literal(default)
        else:
            value = None
        if value is None and needs_values:
            message = f"the compile-time constant {name} has no value"
            report(Diagnostic("semantic-constant", message, span, f"give it a default ({name}=1), or a value at the call"))
        number = _as_number(value)
        if value is not None and number is None:
            message = f"the compile-time constant {name} is {value!r}, not a number"
            report(Diagnostic("semantic-constant", message, span, "use an int, a float or a bool; arrays go before the *"))
        result.append(Constant(name, number, span))
    for name in given:
        names = ", ".join(a.arg for a in arguments.kwonlyargs) or "none"
        message = f"{text.definition.name} has no compile-time constant {name!r}"
        header = text.start(text.definition, "def")
        report(Diagnostic("semantic-constant", message, header, f"its keyword-only parameters are: {names}"))
    return tuple(result)


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ast.unparse(node)


def _as_number(value: object) -> Number | None:
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, (bool, int, float)) else None


_VARYING = re.compile(r"\b([A-Za-z_]\w*)\s*\*\s*(?=,|$)")
_MATRIX = re.compile(r"\s*(csr|csc|ragged)\s*\[(.*)\]\s*", re.DOTALL)
_TYPE = re.compile(r"\s*(?:\w+\.)*(\w+)\s*(?:\[(.*)\])?\s*", re.DOTALL)


def _read_annotation(
    text: FunctionText, node: ast.expr | None, constants: Mapping[str, Number], report: Report
) -> Annotation | None:
    """`None` for a parameter without one, and for a Python type that says nothing about elements (``np.ndarray``)."""
    if node is None:
        return None
    written: object = node.value if isinstance(node, ast.Constant) else None
    if isinstance(node, ast.Name):
        written = text.lookup(node.id)
    if not isinstance(written, str):
        written = ast.unparse(node)
        found = _TYPE.fullmatch(written)
        if found is None or found[1] not in ("csr", "csc", "ragged", *TYPE_NAMES, *UNSUPPORTED_TYPES):
            return None
    return parse_annotation(written, text.span(node), constants, report)


def matrix_format(written: str) -> str:
    """That of a sparse matrix that an annotation declares; else ""."""
    found = _MATRIX.fullmatch(written)
    return "" if found is None else str(found[1])


def parse_annotation(written: str, span: Span, constants: Mapping[str, Number], report: Report) -> Annotation | None:
    """Read ``f32[M, K]``, ``int64[N, 3]``, ``f32`` (rank 0), ``csr[f32[M, N]]``, ``ragged[f32[B, L*, D]]``; reports anything
    else, and returns None."""
    matrix = _MATRIX.fullmatch(written)
    found = _TYPE.fullmatch(written if matrix is None else matrix[2])
    if found is None:
        report(Diagnostic("semantic-annotation", f"{written!r} is no array type", span, _EXAMPLE))
        return None
    name, inside = found[1], found[2] or ""
    if matrix is not None and matrix[1] == "ragged":
        inside = _VARYING.sub(r"ragged(\1)", inside)
    if name in UNSUPPORTED_TYPES:
        place = find_word(span, name)
        report(Diagnostic("unsupported-type", f"the element type {name} is not supported", place, f"use one of {_NAMES}"))
        return None
    if name not in TYPE_NAMES:
        place = find_word(span, name)
        other = name if name in _OTHER_NAMES else _nearest_type(name)
        close = f"did you mean {_OTHER_NAMES.get(other, other)}?" if other else None
        help = f"{close} (types are {_NAMES})" if close else f"use one of {_NAMES}"
        report(Diagnostic("semantic-annotation", f"{name!r} is no element type", place, help))
        return None
    try:
        with quiet_parser():
            tree = ast.parse(f"({inside},)" if inside.strip() else "()", mode="eval").body
        nodes = tree.elts if isinstance(tree, ast.Tuple) else None
        shape = None if nodes is None else tuple(simplify_int(_read_extent(n, constants)) for n in nodes)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        shape = None
    if shape is None or any(isinstance(e, Const) and e.value < 0 for e in shape):
        report(Diagnostic("semantic-annotation", f"the extents in {written!r} cannot be read", span, _EXAMPLE))
        return None
    return Annotation(TYPE_NAMES[name], shape, span, "" if matrix is None else matrix[1])


def find_word(span: Span, word: str) -> Span:
    """The place of a word inside an annotation (all of it where the text is written otherwise: escapes, an alias)."""
    found = re.search(rf"\b{re.escape(word)}\b", span.source.text[span.start : span.end])
    return span if found is None else Span(span.source, span.start + found.start(), span.start + found.end())


_NAMES = ", ".join(DTYPES)
_EXAMPLE = 'write for example "f32[M, K]": an element type, then sizes that are names, numbers >= 0 or sums and products'
_EXTENT_OPS: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv"}


def _read_extent(node: ast.expr, constants: Mapping[str, Number]) -> Expr:
    match node:
        case ast.Constant(int() as number) if not isinstance(number, bool) and number < 1 << 63:
            return int_const(number)
        case ast.Name(name):
            value = constants.get(name)
            if value is None:
                return Size(name)
            if isinstance(value, float):
                raise ValueError("an extent is an integer")
            return int_const(value)
        case ast.Call(ast.Name("ragged"), [ast.Name(name)]):
            return Size(f"{name}*")
        case ast.BinOp(left, ast.Pow() | ast.LShift() as op, right):
            base, power = _read_extent(left, constants), _read_extent(right, constants)
            if isinstance(base, Const) and isinstance(power, Const) and 0 <= power.value < 63:
                x, n = int(base.value), int(power.value)
                return int_const(x**n if isinstance(op, ast.Pow) else x << n)
        case ast.BinOp(left, op, right) if type(op) in _EXTENT_OPS:
            return Call(_EXTENT_OPS[type(op)], (_read_extent(left, constants), _read_extent(right, constants)))
    raise ValueError("not an extent")


def _name_span(text: FunctionText, argument: ast.arg) -> Span:
    whole = text.span(argument)
    return Span(whole.source, whole.start, whole.start + len(argument.arg))


def _complain(report: Report, text: FunctionText, node: ast.AST, message: str, help: str) -> None:
    report(Diagnostic("semantic-parameter", message, text.span(node), help))
