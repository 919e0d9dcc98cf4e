"""Extents of tensors while a definition is read: of what a call is given, and where the text asks (``q.shape``, ``q.1``).

Range inference finds them, over the statements so far.  A tensor that joins dimensions (``f(n, h * W + v) = x(n, h, v)``) has
an extent that is no affine function of sizes: the ranges of the indices on its left are then inferred as if each were a
dimension of its own, and the subscript is least and largest at corners of their box, which makes the extent a polynomial of
sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import combinations_with_replacement

from polyc.diagnostics import PolycError, Span
from polyc.frontends.core.builder import Interval, ProgramBuilder
from polyc.frontends.core.integers import promote_integers
from polyc.frontends.core.values import Fault, Reported
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    Size,
    identity_of,
    int_const,
    maximum,
    minimum,
    rewrite,
    substitute,
    walk,
)
from polyc.ir.program import Program, Return, Statement, Tensor, statement_reads
from polyc.ir.ragged import Ragged
from polyc.ir.simplify import factors_of, form_expr, linear_form, simplify
from polyc.ir.sizes import define_sizes
from polyc.records import replace

Intervals = dict[str, tuple[Interval, ...]]
_ZERO = int_const(0)
_MAX_EXTENTS = 24
"""Different extents of which products of two are looked at."""


def measure(b: ProgramBuilder, version: str, span: Span) -> tuple[Expr, ...] | None:
    """The extents of a version as the statements so far define it, which ends the assignments to its parts; None after errors
    in these, which are reported.  Raises `Fault`."""
    try:
        return tuple(i.extent for i in find_intervals(b, version, span))
    except PolycError as error:
        b.reporter.add(*error.diagnostics)
    except Reported:
        pass
    return None


def find_intervals(b: ProgramBuilder, version: str, span: Span) -> tuple[Interval, ...]:
    """Where a version starts and how far it extends: declared, known from earlier, or inferred now.

    Raises what `infer_ranges` raises; `Fault` where the version is made of what is assigned further down."""
    if version in b.compressed:
        stored = b.compressed[version]
        if isinstance(stored, Ragged):
            message = f"{version} is ragged: its sequences have lengths of their own"
            raise Fault("semantic-ragged", message, f"use the declared sizes, and lengths of {stored.lengths_name}", span)
        return tuple(Interval(_ZERO, e) for e in stored.shape)
    tensor = b.tensors.get(version)
    if tensor is not None and tensor.shape is not None:
        return tuple(Interval(_ZERO, e) for e in tensor.shape)
    if version not in b.intervals:
        unknown = next((name for name in _find_sources(b.writers, version, b.intervals) if name not in b.tensors), None)
        if unknown is not None:
            made = (
                "it is assigned further down"
                if tensor is None
                else f"{tensor.base} is made of it, and it is assigned further down"
            )
            message = f"the extents of {unknown} are not known here: {made}"
            raise Fault("unsupported-extent", message, "write the sizes of parameters instead, or move its assignment up", span)
        needed = _slice(b.tensors, b.writers, b.statements, b.size_symbols, version, b.intervals)
        b.intervals |= infer_intervals(promote_integers(needed, b.integers))
    return b.intervals[version]


def infer_intervals(program: Program) -> Intervals:
    """Lower bounds and extents of all tensor versions, over the program's own sizes.  Raises what `infer_ranges` raises."""
    known: Intervals = {}
    writers = program.writers()
    for version, statements in writers.items():
        if any(_joins_dimensions(e) for s in statements for e in s.subscripts):
            tensors = {t.name: t for t in program.tensors}
            part = _slice(tensors, writers, program.statements, program.sizes, version, known)
            joined = _measure_joined(part, version)
            if joined is not None:
                known[version] = joined
    return _infer(_assume(program, known)) | known


def _infer(program: Program) -> Intervals:
    from polyc.poly.infer import infer_ranges  # brings isl, which texts without calls do without

    sized = define_sizes(program)
    ranges = infer_ranges(sized)
    defined: dict[str, Expr] = {}
    for name, expr in sized.defined_sizes:
        defined[name] = substitute(expr, {}, defined)

    def spell(expr: Expr) -> Expr:
        return simplify(substitute(expr, {}, defined))

    return {
        name: tuple(Interval(spell(i.lower), spell(i.extent)) for i in intervals) for name, intervals in ranges.tensors.items()
    }


def _assume(program: Program, known: Intervals) -> Program:
    """The program without the statements of known versions: those that start at 0 are inputs, others nobody may read."""
    read = {r.tensor for s in program.statements if s.target not in known for r in statement_reads(s)}
    shapes = {name: tuple(i.extent for i in dims) for name, dims in known.items() if _is_based(dims)}
    dropped = shapes.keys() | (known.keys() - read)
    if not dropped:
        return program
    tensors = (replace(t, role="input", shape=shapes[t.name]) if t.name in shapes else t for t in program.tensors)
    kept = tuple(t for t in tensors if t.name in shapes or t.name not in dropped)
    return replace(program, tensors=kept, statements=tuple(s for s in program.statements if s.target not in dropped))


def _is_based(intervals: Sequence[Interval]) -> bool:
    return all(i.lower == _ZERO for i in intervals)


def _find_sources(
    writers: Mapping[str, Sequence[Statement]], version: str, known: Mapping[str, Sequence[Interval]]
) -> dict[str, None]:
    """The versions that one is made of, itself included; not beyond those that start at 0 and extend as `known` says."""
    found: dict[str, None] = {}
    stack = [version]
    while stack:
        name = stack.pop()
        if name in found:
            continue
        found[name] = None
        if name == version or name not in known or not _is_based(known[name]):
            stack += [r.tensor for s in writers.get(name, ()) for r in statement_reads(s)]
    return found


def _slice(
    tensors: Mapping[str, Tensor],
    writers: Mapping[str, Sequence[Statement]],
    statements: Iterable[Statement],
    sizes: tuple[str, ...],
    version: str,
    known: Intervals,
) -> Program:
    """The statements that `version` needs, from tensors of known shapes on.  Raises `Reported` where one has an error."""
    inputs: dict[str, Tensor] = {}
    inside: dict[str, Tensor] = {}
    for name in _find_sources(writers, version, known):
        tensor, intervals = tensors[name], known.get(name)
        is_given = tensor.role in ("input", "accumulated")
        if name not in writers and not is_given:
            raise Reported
        if is_given or (intervals is not None and _is_based(intervals) and name != version):
            shape = tensor.shape if intervals is None else tuple(i.extent for i in intervals)
            inputs[name] = replace(tensor, role="input", shape=shape)
        else:
            inside[name] = replace(tensor, role="output" if name == version else "temporary")
    chosen = [s for s in statements if s.target in inside]
    return Program(
        name="call",
        sizes=sizes,
        tensors=(*inputs.values(), *inside.values()),
        parameters=tuple(inputs),
        returns=(Return(version, version),),
        statements=tuple(replace(s, name=f"S{n}") for n, s in enumerate(chosen)),
    )


# --- Joined dimensions -----------------------------------------------------------------------------------------------


def _joins_dimensions(subscript: Expr) -> bool:
    """Whether a subscript multiplies an index by a size."""
    products = [n for n in walk(subscript) if isinstance(n, Call) and n.op == "mul"]
    return any({Index, Size} <= {type(n) for n in walk(product)} for product in products)


def _measure_joined(program: Program, version: str) -> tuple[Interval, ...] | None:
    """The intervals of a version with subscripts that are polynomials; None where they are something else."""
    parts = [s for s in program.statements if s.target == version]
    others = [s for s in program.statements if s.target != version]
    if any(r.tensor == version for s in others for r in statement_reads(s)):
        return None  # a recurrence of several
    tensor = program.tensor(version)
    spread: list[Statement] = []
    for n, s in enumerate(parts):
        left = tuple(Index(i) for i in s.left_indices)
        own = identity_of("add", tensor.dtype)  # what the elements are does not matter, nor which others they are made of
        value = rewrite(s.value, lambda e, own=own: own if isinstance(e, Read) and e.tensor == version else None)  # type: ignore[misc]
        reduction = s.reduction
        if reduction is not None and reduction.monoid is None:
            reduction = replace(reduction, init=identity_of(reduction.op, tensor.dtype))
        spread.append(replace(s, target=f"{version}.points{n}", subscripts=left, value=value, reduction=reduction))
    made = [replace(tensor, name=s.target, rank=len(s.subscripts), role="temporary") for s in spread]
    tensors = tuple(t for t in program.tensors if t.name != version)
    found = infer_intervals(replace(program, tensors=(*tensors, *made), statements=(*others, *spread)))
    extents = {i.extent for intervals in found.values() for i in intervals}
    extents |= {simplify(e) for t in tensors for e in t.shape or ()}
    pairs = combinations_with_replacement(extents, 2) if len(extents) <= _MAX_EXTENTS else ()
    signs = extents | {simplify(a * b) for a, b in pairs}
    measured: list[Interval] = []
    for d in range(tensor.rank):
        corners: list[tuple[Expr, Expr]] = []
        for s, points in zip(parts, spread, strict=True):
            ranges = dict(zip(points.left_indices, found[points.target], strict=True))
            ends = _find_corners(s.subscripts[d], ranges, signs)
            if ends is None:
                return None
            corners.append(ends)
        low, high = (_choose(op, ends, signs) for op, ends in zip(("min", "max"), zip(*corners, strict=True), strict=True))
        measured.append(Interval(low, simplify(high - low + 1)))
    return tuple(measured)


def _choose(op: str, values: Iterable[Expr], signs: set[Expr]) -> Expr:
    """The least or the greatest of several, without those that others are known to beat."""
    kept: list[Expr] = []
    for v in dict.fromkeys(values):
        if not any(_beats(op, k, v, signs) for k in kept):
            kept = [k for k in kept if not _beats(op, v, k, signs)] + [v]
    return simplify(reduce(lambda a, b: Call(op, (a, b)), kept))


def _beats(op: str, a: Expr, b: Expr, signs: set[Expr]) -> bool:
    return _is_positive(linear_form(b - a if op == "min" else a - b) or {}, signs)


def _find_corners(subscript: Expr, ranges: Mapping[str, Interval], signs: set[Expr]) -> tuple[Expr, Expr] | None:
    """The least and the largest value of a subscript over the box of `ranges`: each index adds its factor times an end.

    `signs`: expressions that are not negative."""
    whole = linear_form(subscript)
    if whole is None:
        return None
    factors: dict[str, dict[Expr | int, int]] = {}
    rest: dict[Expr | int, int] = {}
    for term, c in whole.items():
        parts = factors_of(term)
        indices = [p.name for p in parts if isinstance(p, Index)]
        others = [p for p in parts if not isinstance(p, Index)]
        if len(indices) > 1 or any(isinstance(n, (Index, Read)) for p in others for n in walk(p)):
            return None
        product: Expr | int = 1
        for p in others:
            product = p if isinstance(product, int) else product * p
        form = factors.setdefault(indices[0], {}) if indices else rest
        form[product] = form.get(product, 0) + c
    low = high = form_expr(rest)
    for index, form in factors.items():
        factor = form_expr(form)
        first = ranges[index].lower
        last = first + ranges[index].extent - 1
        if _is_positive(form, signs):
            low, high = low + factor * first, high + factor * last
        elif _is_positive({term: -c for term, c in form.items()}, signs):
            low, high = low + factor * last, high + factor * first
        else:
            up, down = maximum(factor, _ZERO), minimum(factor, _ZERO)
            low, high = low + up * first + down * last, high + up * last + down * first
    return simplify(low), simplify(high)


def _is_positive(form: Mapping[Expr | int, int], signs: set[Expr]) -> bool:
    """Whether a sum is known to be 0 or more, as sizes and extents are."""
    is_sum = all(c >= 0 and all(isinstance(f, (Size, Const)) for f in factors_of(term)) for term, c in form.items())
    return is_sum or form_expr(dict(form)) in signs
