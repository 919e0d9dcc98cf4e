"""Tensors of the parameters and of the results, as annotations or the arrays of a call declare them."""

from __future__ import annotations

import ast

from polyc.diagnostics import ArgumentError, ArgumentTypeError, Diagnostic
from polyc.frontends.core.builder import count_dimensions
from polyc.frontends.core.reports import Reporter
from polyc.frontends.python.scope import Scope
from polyc.frontends.python.signature import Annotation, Parameter, PythonSignature, find_word, matrix_format, parse_annotation
from polyc.frontends.python.source import FunctionText
from polyc.ir.expr import Expr, Size, walk
from polyc.ir.program import Return, Tensor
from polyc.ir.ragged import Ragged, varying_axes
from polyc.ir.types import DType
from polyc.records import replace


def declare_parameters(
    text: FunctionText, signature: PythonSignature, dtypes: dict[str, tuple[DType, int]], reporter: Reporter
) -> tuple[list[Tensor], tuple[str, ...]]:
    taken = {n.id for n in ast.walk(text.definition) if isinstance(n, ast.Name)}
    taken |= {n.arg for n in ast.walk(text.definition) if isinstance(n, ast.arg)}
    taken |= set(signature.sizes)
    sizes: list[str] = []
    tensors: list[Tensor] = []
    for parameter in signature.parameters:
        given = dtypes.get(parameter.name)
        if parameter.annotation is not None:
            _check_given(parameter, given)
            dtype, shape = parameter.annotation.dtype, parameter.annotation.shape
            sizes += [s for s in signature.sizes if s not in sizes and any(s in _size_names(e) for e in shape)]
        elif given is not None:
            dtype = given[0]
            fresh = [_make_fresh(f"{parameter.name}_{d}", taken) for d in range(given[1])]
            sizes += fresh
            shape = tuple(Size(s, parameter.span) for s in fresh)
            _check_size(parameter, signature, dtype, shape)
        else:
            if _had_no_error(parameter, reporter):
                help = f'annotate it ({parameter.name}: "f32[M, N]"), or call the operator with arrays'
                message = f"the element type and rank of {parameter.name} are not known"
                reporter.error("semantic-annotation-missing", message, parameter.span, help)
            continue
        tensors.append(Tensor(parameter.name, dtype, len(shape), shape, "input", parameter.name, parameter.span))
    return tensors, tuple(sizes)


def declare_results(scope: Scope, returns: tuple[Return, ...]) -> None:
    """Give the results the extents that they are declared with, by a return annotation such as ``-> "f32[M, N]"`` or a tuple of
    them, which declares types, too.

    Any other annotation (``-> np.ndarray``) says nothing.
    """
    node = scope.text.definition.returns
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    strings = [p for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
    if not strings or not returns:
        return
    if len(strings) != len(returns):
        help = 'annotate as -> "f32[M]" or -> ("f32[M]", "f32[N]")'
        scope.report("semantic-return", f"{len(returns)} results are returned, {len(strings)} annotated", strings[0], help)
        return
    constants = {name: value for name, value in scope.constants.items() if value is not None}
    for result, part in zip(returns, strings, strict=True):
        annotation = parse_annotation(str(part.value), scope.text.span(part), constants, scope.reporter.add)
        held = scope.compressed.get(result.version)
        tensor = scope.tensors.get(result.version if held is None else held.data)
        if isinstance(held, Ragged) and annotation is not None and tensor is not None:
            _declare_ragged(scope, result, held, tensor, annotation, part)
            continue
        if annotation is None or tensor is None:
            continue
        unknown = sorted({s for e in annotation.shape for s in _size_names(e)} - {*scope.sizes, *scope.integers})
        if unknown:
            help = "use the sizes of the parameters, or integer parameters"
            place = find_word(scope.text.span(part), unknown[0])
            scope.report("semantic-annotation", f"no parameter has the size {unknown[0]}", place, help)
        elif len(annotation.shape) != (rank := tensor.rank if held is None else 2):
            message = f"{result.name} has {count_dimensions(rank)}, its annotation {len(annotation.shape)}"
            scope.report("semantic-rank", message, part, "give one extent for each dimension")
        elif annotation.format and held is None:
            message = f"{result.name} is declared {annotation.format}, and is dense"
            help = f"leave out {annotation.format}, or assign it where entries of a matrix are: with polyc.where((i, j) in A)"
            scope.report("semantic-csr", message, part, help)
        elif held is not None and annotation.shape != held.shape:
            message = f"{result.name} is declared with other sizes than the matrix whose entries it has"
            scope.report("semantic-csr", message, part, "declare both with the same sizes")
        elif annotation.dtype != tensor.dtype:
            message = f"{result.name} is {tensor.dtype}, but its annotation says {annotation.dtype}"
            scope.report("type-return", message, part, f"cast its right side with {annotation.dtype}(...)")
        elif held is None:
            scope.tensors[result.version] = replace(tensor, shape=annotation.shape)


def _declare_ragged(
    scope: Scope, result: Return, held: Ragged, tensor: Tensor, annotation: Annotation, part: ast.Constant
) -> None:
    """Give a result that is packed the extents that are declared."""
    if varying_axes(annotation.shape) != held.axes or annotation.format != held.format:
        axes = ", ".join(axis or "…" for axis in held.axes)
        help = f'annotate it "ragged[{annotation.dtype}[{axes}]]"'
        scope.report("semantic-ragged", f"{result.name} is ragged, and its annotation says something else", part, help)
    elif annotation.dtype != tensor.dtype:
        message = f"{result.name} is {tensor.dtype}, but its annotation says {annotation.dtype}"
        scope.report("type-return", message, part, f"cast its right side with {annotation.dtype}(...)")
    else:
        scope.tensors[held.data] = replace(tensor, shape=replace(held, shape=annotation.shape).part_shapes[0])


def find_result_formats(text: FunctionText) -> dict[str, str]:
    """By the name of a result what the return annotation says of it: csr, csc, or "" for an array."""
    last = text.definition.body[-1]
    node, value = text.definition.returns, last.value if isinstance(last, ast.Return) else None
    parts, names = (n.elts if isinstance(n, ast.Tuple) else [n] for n in (node, value))
    strings = [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
    if len(strings) != len(names):
        return {}
    return {n.id: matrix_format(s) for n, s in zip(names, strings, strict=True) if isinstance(n, ast.Name)}


def _size_names(extent: Expr) -> set[str]:
    return {n.name for n in walk(extent) if isinstance(n, Size) and not n.name.endswith("*")}


def _had_no_error(parameter: Parameter, reporter: Reporter) -> bool:
    """False where the annotation itself was wrong (its error stands right behind the name)."""
    line = parameter.span.line_column()[0]
    return not any(e.span and e.span.start >= parameter.span.end and e.span.line_column()[0] == line for e in reporter.errors)


def _check_given(parameter: Parameter, given: tuple[DType, int] | None) -> None:
    annotation = parameter.annotation
    if given is None or annotation is None:
        return
    if given[0] != annotation.dtype:
        message = f"{parameter.name} is {given[0]}, but its annotation says {annotation.dtype}"
        help = f"convert the array to {annotation.dtype}, or drop the annotation"
        raise ArgumentTypeError(Diagnostic("argument-type-dtype", message, annotation.span, help))
    if given[1] != len(annotation.shape):
        message = f"{parameter.name} has rank {given[1]}, but its annotation says {len(annotation.shape)}"
        raise ArgumentError(Diagnostic("argument-rank", message, annotation.span, "reshape the array, or drop the annotation"))


def _check_size(parameter: Parameter, signature: PythonSignature, dtype: DType, shape: tuple[Expr, ...]) -> None:
    """What is an extent of others must be an integer."""
    if parameter.name in signature.sizes and (shape or not dtype.is_integer):
        found = f"{dtype} of rank {len(shape)}" if shape else str(dtype)
        message = f"{parameter.name} is a size, and must be an integer, not {found}"
        raise ArgumentTypeError(Diagnostic("argument-type-dtype", message, parameter.span, "pass an int"))


def _make_fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
