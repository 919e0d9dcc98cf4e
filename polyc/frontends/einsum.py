"""Einsum subscripts to a Program: everything that ``numpy.einsum(subscripts, *operands)`` computes.

Operands are named ``operand0, operand1, …`` and the result ``result``.  A letter is an iteration index of the same name; the
dimensions behind ``...`` are the indices ``e0, e1, …``.  The symbol for an unknown extent of index ``i`` is ``n_i``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from polyc.diagnostics import ArgumentError, Diagnostic, SemanticError, Source, Span
from polyc.ir.contraction_paths import Path, find_path
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Read, Size, identity_of, int_const, result_type
from polyc.ir.program import Program, Reduction, Return, Statement, Tensor
from polyc.ir.types import BOOL, DType, promote_all
from polyc.records import dataclass, replace

Extent = int | None

_ELLIPSIS = "..."
_ASSUMED_EXTENT = 64
"""Stands for unknown extents where the contraction order is chosen."""


@dataclass(frozen=True, slots=True)
class Term:
    """Subscripts of one operand or of the result: letters, and `_ELLIPSIS` where it stands."""

    letters: tuple[str, ...]
    span: Span
    operand: int | None = None

    @property
    def name(self) -> str:
        return "the output" if self.operand is None else f"operand {self.operand}"


@dataclass(frozen=True, slots=True)
class Factor:
    """An array that takes part in a product: the read of its element, and the indices it depends on."""

    read: Expr
    indices: tuple[str, ...]


def read_einsum(
    subscripts: str,
    shapes: Sequence[Sequence[Extent]],
    dtypes: Sequence[DType],
    path: Path | None = None,
    dtype: DType | None = None,
) -> Program:
    """The Program of ``einsum(subscripts, *operands)`` for operands of these shapes and element types.

    An extent that is None becomes a symbol of its index, shared by all unknown extents of that index.  A known extent of 1
    against a larger one is broadcast.  Operands are cast to `dtype`, or their common type (NumPy's ``result_type``), before
    they are multiplied; booleans are combined with ``and`` and reduced with ``or``.  Three and more operands are contracted
    in the order of `path` (pairs of positions, as `opt_einsum.contract_path` gives; by default the one it finds).

    Raises SemanticError for wrong subscripts, ArgumentError for operands that do not fit them.
    """
    source = Source(subscripts, "<subscripts>")
    inputs, output = _parse_subscripts(source)
    _check_counts(source, inputs, shapes, dtypes)
    terms, result = _expand_ellipses(source, inputs, output, [len(s) for s in shapes])
    extents, sizes = _find_extents(terms, shapes)
    dtype = dtype or promote_all(dtypes)
    tensors = tuple(_declare_operand(n, term, shapes[n], dtypes[n], extents) for n, term in enumerate(terms))
    factors = [_read_operand(t, shapes[n], dtypes[n], dtype.computed, extents) for n, t in enumerate(terms)]
    statements, temporaries = _contract(factors, result, dtype, extents, path, Span(source, 0, len(subscripts)))
    return Program(
        name="einsum",
        sizes=sizes,
        tensors=(*tensors, *temporaries),
        parameters=tuple(t.name for t in tensors),
        returns=(Return("result", "result"),),
        statements=statements,
        source=source,
    )


def read_einsum_symbolic(
    subscripts: str, ranks: Sequence[int], dtypes: Sequence[DType], path: Path | None = None, dtype: DType | None = None
) -> Program:
    """The Program for operands of these ranks and any extents: one size symbol per index, so nothing is broadcast."""
    return read_einsum(subscripts, [(None,) * rank for rank in ranks], dtypes, path, dtype)


def count_operands(subscripts: str) -> int:
    """The number of operands that subscripts speak of; raises as `read_einsum` does."""
    return len(_parse_subscripts(Source(subscripts, "<subscripts>"))[0])


def _parse_subscripts(source: Source) -> tuple[list[Term], Term | None]:
    """Terms of the operands and of the explicit output; reports all errors at once."""
    errors: list[Diagnostic] = []
    if (place := source.text.find("{")) >= 0:
        help = "a text of definitions is compiled by polyc.compile(text)"
        raise SemanticError(_error("semantic-einsum-letter", "'{' is no subscript", source, place, 1, help))
    left, arrow, right = source.text.partition("->")
    inputs = []
    position = 0
    for number, text in enumerate(left.split(",")):
        inputs.append(_parse_term(source, position, text, number, errors))
        position += len(text) + 1
    output = _parse_term(source, len(left) + 2, right, None, errors) if arrow else None
    if output is not None and not errors:
        _check_output(inputs, output, errors)
    if errors:
        raise SemanticError(*errors)
    return inputs, output


def _parse_term(source: Source, start: int, text: str, operand: int | None, errors: list[Diagnostic]) -> Term:
    letters: list[str] = []
    position = 0
    while position < len(text):
        character, place = text[position], start + position
        if text.startswith(_ELLIPSIS, position) and _ELLIPSIS not in letters:
            letters.append(_ELLIPSIS)
            position += 3
            continue
        position += 1
        if character == ".":
            message = "a '.' here is not part of one '...'"
            errors.append(
                _error(
                    "semantic-einsum-dots",
                    message,
                    source,
                    place,
                    1,
                    "write ... once per operand, for all its other dimensions",
                )
            )
            break
        if character.isascii() and character.isalpha():
            letters.append(character)
        elif character != " " and character not in text[: position - 1]:  # one error for each wrong character
            message = f"{character!r} is no subscript"
            help = "subscripts are the letters a to z and A to Z, with , between operands and one -> before the output"
            errors.append(_error("semantic-einsum-letter", message, source, place, 1, help))
    return Term(tuple(letters), Span(source, start, start + max(1, len(text))), operand)


def _error(code: str, message: str, source: Source, start: int, length: int, help: str) -> Diagnostic:
    return Diagnostic(code, message, Span(source, start, start + length), help)


def _check_output(inputs: list[Term], output: Term, errors: list[Diagnostic]) -> None:
    known = {x for term in inputs for x in term.letters}
    for position, letter in enumerate(output.letters):
        if letter == _ELLIPSIS:
            continue
        if letter in output.letters[:position]:
            message = f"the index {letter} stands twice in the output"
            errors.append(Diagnostic("semantic-einsum-output", message, output.span, "name every output index once"))
        elif letter not in known:
            message = f"the output index {letter} stands in no operand"
            errors.append(
                Diagnostic("semantic-einsum-output", message, output.span, f"remove {letter}, or add it to an operand")
            )


def _check_counts(source: Source, inputs: list[Term], shapes: Sequence[Sequence[Extent]], dtypes: Sequence[DType]) -> None:
    if len(shapes) != len(inputs) or len(dtypes) != len(shapes):
        message = f"the subscripts name {len(inputs)} operand{'s' if len(inputs) != 1 else ''}, but {len(shapes)} are given"
        span = Span(source, 0, max(1, len(source.text)))
        raise ArgumentError(
            Diagnostic("argument-einsum-count", message, span, "separate the operands by commas, one part each")
        )


def _expand_ellipses(
    source: Source, inputs: list[Term], output: Term | None, ranks: list[int]
) -> tuple[list[Term], tuple[str, ...]]:
    """Give the dimensions behind ``...`` names, aligned on the right, and find the implicit output."""
    errors: list[Diagnostic] = []
    extra = []
    for term, rank in zip(inputs, ranks, strict=True):
        count = len(term.letters) - (_ELLIPSIS in term.letters)
        extra.append(rank - count)
        if rank < count or (rank > count and _ELLIPSIS not in term.letters):
            message = (
                f"{term.name} has {rank} dimension{'s' if rank != 1 else ''}, but {count} subscript{'s' if count != 1 else ''}"
            )
            help = "give one letter per dimension, or ... for the others"
            errors.append(Diagnostic("argument-einsum-rank", message, term.span, help))
    if errors:
        raise ArgumentError(*errors)
    broadcast = [f"e{d}" for d in range(max(extra, default=0))]

    def expand(term: Term, count: int) -> Term:
        names: list[str] = []
        for letter in term.letters:
            names += broadcast[len(broadcast) - count :] if letter == _ELLIPSIS else [letter]
        return replace(term, letters=tuple(names))

    terms = [expand(term, count) for term, count in zip(inputs, extra, strict=True)]
    if output is not None:
        if broadcast and _ELLIPSIS not in output.letters:
            message = "the output has no '...', but an operand has dimensions behind its own"
            help = "write ... in the output; sums over unnamed dimensions need letters"
            raise SemanticError(Diagnostic("semantic-einsum-output", message, output.span, help))
        return terms, expand(output, len(broadcast)).letters
    counts: dict[str, int] = {}
    for term in inputs:
        for letter in term.letters:
            counts[letter] = counts.get(letter, 0) + 1
    return terms, (*broadcast, *sorted(x for x, n in counts.items() if n == 1 and x != _ELLIPSIS))


def _find_extents(terms: list[Term], shapes: Sequence[Sequence[Extent]]) -> tuple[dict[str, Expr], tuple[str, ...]]:
    """The extent of every index (1 gives way to anything else), and the size symbols by first appearance."""
    known: dict[str, tuple[int, Term]] = {}
    open_indices: list[str] = []
    errors: list[Diagnostic] = []
    for term, shape in zip(terms, shapes, strict=True):
        here: dict[str, int] = {}
        for name, extent in zip(term.letters, shape, strict=True):
            if extent is None:
                if name not in open_indices:
                    open_indices.append(name)
                continue
            before = known.get(name)
            if here.setdefault(name, extent) != extent:
                errors.append(_mismatch(name, term, extent, term, here[name]))
            elif before is None or before[0] == 1:
                known[name] = (extent, term)
            elif extent not in (1, before[0]):
                errors.append(_mismatch(name, term, extent, before[1], before[0]))
    if errors:
        raise ArgumentError(*errors)
    extents: dict[str, Expr] = {name: int_const(extent) for name, (extent, _) in known.items()}
    symbols = [name for name in open_indices if name not in known or known[name][0] == 1]
    extents |= {name: Size(f"n_{name}") for name in symbols}
    return extents, tuple(f"n_{name}" for name in symbols)


def _mismatch(name: str, term: Term, extent: int, other: Term, other_extent: int) -> Diagnostic:
    shown = f"dimension {name[1:]} of the '...'" if len(name) > 1 else f"the index {name}"
    where = f"in {other.name}" if other is not term else "in the same operand"
    message = f"{shown} has extent {extent} in {term.name}, but {other_extent} {where}"
    text = term.span.source.text
    place = text.rfind(name, term.span.start, term.span.end)
    span = Span(term.span.source, place, place + 1) if place >= 0 else term.span
    return Diagnostic("argument-einsum-size", message, span, "extents of one index must be equal, or 1 in whole operands")


def _declare_operand(number: int, term: Term, shape: Sequence[Extent], dtype: DType, extents: dict[str, Expr]) -> Tensor:
    name = f"operand{number}"
    declared = tuple(extents[x] if n is None else int_const(n) for x, n in zip(term.letters, shape, strict=True))
    return Tensor(name, dtype, len(declared), declared, "input", name, term.span)


def _read_operand(term: Term, shape: Sequence[Extent], own: DType, dtype: DType, extents: dict[str, Expr]) -> Factor:
    """Dimensions that are broadcast read element 0, so the operand does not depend on their index."""
    subscripts: list[Expr] = []
    for name, extent in zip(term.letters, shape, strict=True):
        is_broadcast = extent == 1 and extents[name] != int_const(1)
        subscripts.append(int_const(0) if is_broadcast else Index(name, term.span))
    read: Expr = Read(f"operand{term.operand}", tuple(subscripts), term.span)
    indices = tuple(dict.fromkeys(s.name for s in subscripts if isinstance(s, Index)))
    return Factor(read if own == dtype else _cast(read, own, dtype, term.span), indices)


def _cast(read: Expr, own: DType, dtype: DType, span: Span) -> Expr:
    """A conversion as NumPy makes it: of complex numbers to real ones the real part, to booleans whether they are not 0."""
    if not own.is_complex or dtype.is_complex:
        return Cast(read, dtype, span)
    part = Call("real", (read,), span)
    if dtype == BOOL:
        zero = Const(0.0, result_type("real", own), span)
        return Call("or", (Call("ne", (part, zero), span), Call("ne", (Call("imag", (read,), span), zero), span)), span)
    return part if result_type("real", own) == dtype else Cast(part, dtype, span)


def _contract(
    factors: list[Factor],
    output: tuple[str, ...],
    dtype: DType,
    extents: dict[str, Expr],
    path: Path | None,
    span: Span,
) -> tuple[tuple[Statement, ...], tuple[Tensor, ...]]:
    """One statement per step of the path; the last one writes the result, in `dtype`, the others what it is computed in."""
    steps = path if path is not None else _find_path(factors, output, extents)
    statements: list[Statement] = []
    tensors: list[Tensor] = []
    for number, step in enumerate(steps):
        if len(set(step)) != len(step) or not step or not all(0 <= p < len(factors) for p in step):
            raise ArgumentError(_path_error(f"step {number} of the path, {tuple(step)}, names no operands that are left", span))
        used = [factors[p] for p in step]
        factors = [f for p, f in enumerate(factors) if p not in step]
        is_last = number == len(steps) - 1
        needed = {x for f in factors for x in f.indices} | set(output)
        seen = tuple(dict.fromkeys(x for f in used for x in f.indices))
        left = output if is_last else tuple(x for x in seen if x in needed)
        name = "result" if is_last else f"product{number}"
        own = dtype if is_last else dtype.computed
        statements.append(_make_statement(number, name, left, used, own, span))
        tensors.append(Tensor(name, own, len(left), None, "output" if is_last else "temporary", name, span))
        factors.append(Factor(Read(name, tuple(Index(x, span) for x in left), span), left))
    if len(factors) != 1:
        raise ArgumentError(_path_error(f"the path leaves {len(factors)} operands uncombined", span))
    return tuple(statements), tuple(tensors)


def _path_error(message: str, span: Span) -> Diagnostic:
    return Diagnostic(
        "argument-einsum-path", message, span, "give pairs of positions as opt_einsum.contract_path does, or no path"
    )


def _make_statement(number: int, name: str, left: tuple[str, ...], used: list[Factor], dtype: DType, span: Span) -> Statement:
    times = "and" if dtype == BOOL else "mul"
    value = reduce(lambda a, b: Call(times, (a, b), span), (f.read for f in used))
    indices = tuple(dict.fromkeys((*left, *(x for f in used for x in f.indices))))
    reduction = None
    if len(indices) > len(left):
        op = "or" if dtype == BOOL else "add"
        reduction = Reduction(op, identity_of(op, dtype))
    elif dtype.is_storage:
        value = Cast(value, dtype, span)
    return Statement(f"S{number}", name, tuple(Index(x, span) for x in left), indices, value, reduction, (), span)


def _find_path(factors: list[Factor], output: tuple[str, ...], extents: dict[str, Expr]) -> Path:
    numbers = {name: max(1, int(e.value)) if isinstance(e, Const) else _ASSUMED_EXTENT for name, e in extents.items()}
    return find_path([f.indices for f in factors], output, numbers)
