"""Statements over matrices in compressed rows or columns (CSR, CSC), written out over the arrays that hold their entries.

    before  ``Y(i, n) +=! A(i, j) * X(j, n)``    with ``csr float(M, N) A``
    after   ``Y(i, n) +=! A.data(p) * X(A.indices(p), n) where p in A.indptr(i):A.indptr(i + 1)``

`A` is zero beside its entries, and entries with the same subscripts count as their sum.  So both mean the same where the terms
are linear in `A`: A(i, j) times what does not read `A`, or a sum of such.  ``where exists A(i, j)`` says that the points are
the entries, each one by itself; then anything may be done with them.

    before  ``S(i, j) = exp(A(i, j) - m(i)) where exists A(i, j)``
    after   ``S.data(p) = exp(A.data(p) - m(i)) where p in A.indptr(i):A.indptr(i + 1)``

A tensor that is assigned at the subscripts of the entries has an entry for each of those of `A` (`Compressed.owner`), where
that is said: by ``exists``, or by declaring a result csr.  What is known of ranges that data bounds does the rest
(`polyc.ir.segments`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from polyc.diagnostics import Span, in_notation
from polyc.frontends.core.builder import ProgramBuilder, Target, Version, count_dimensions
from polyc.frontends.core.linearity import CODE, Linearity, without_entry
from polyc.frontends.core.ragged import define_positions, expand_ragged, refuse_ragged
from polyc.frontends.core.values import Fault, Value
from polyc.ir.expr import (
    Call,
    Cast,
    Expr,
    Index,
    Read,
    Select,
    all_hold,
    ge,
    identity_of,
    index_names,
    int_const,
    lt,
    reads,
    rewrite,
    type_of,
)
from polyc.ir.program import (
    Compressed,
    Condition,
    Exists,
    Program,
    RangeClause,
    Return,
    Statement,
    Tensor,
    Where,
    element_names,
    map_statement,
    statement_reads,
)
from polyc.ir.ragged import Ragged
from polyc.ir.text import format_expr
from polyc.ir.types import I32, I64, DType
from polyc.records import replace


def check_matrix(name: str, rank: int, dtype: DType, span: Span | None, axis: int = 0) -> None:
    """Raise `Fault` where a parameter that is declared so is no matrix of numbers."""
    format, lines = (("csr", "rows"), ("csc", "columns"))[axis]
    if rank != 2:
        message = f"{name} is {format} and has {count_dimensions(rank)}"
        raise Fault(CODE, message, f"a matrix in compressed {lines} has two: its rows and its columns", span)
    if dtype.kind == "b":
        message = f"{name} is {format} and holds truth values, and entries of the same element are added up"
        raise Fault(CODE, message, f"declare int8, and pass {name}.astype('int8')", span)


def declare_matrix(b: ProgramBuilder, tensor: Tensor, axis: int) -> None:
    """Let the parameter `tensor` be a matrix in compressed rows (columns), and add the arrays that hold it.  Raises `Fault`."""
    shape = tensor.shape or ()
    check_matrix(tensor.name, len(shape), tensor.dtype, tensor.span, axis)
    matrix = b.compressed[tensor.name] = Compressed(tensor.name, shape, tensor.span, axis)
    for part, dtype, length in zip(matrix.parts, (tensor.dtype, I32, I32), matrix.lengths, strict=True):
        b.tensors[part] = Tensor(part, dtype, 1, (length,), "input", part, tensor.span)


def split_matrices(program: Program, matrices: Mapping[str, Compressed | Ragged], sizes: tuple[str, ...]) -> Program:
    """The program with the arrays that hold `matrices` in their place, and all its `sizes`."""
    lengths = {m.lengths_name for m in matrices.values() if isinstance(m, Ragged)}
    parts = ((matrices[p].parts if p in matrices else (p,)) for p in program.parameters)
    return replace(
        program,
        sizes=sizes,
        tensors=tuple(t for t in program.tensors if t.name not in matrices and t.name not in lengths),
        parameters=tuple(name for names in parts for name in names),
        compressed=tuple(m for m in matrices.values() if not m.owner),
    )


def check_returned(b: ProgramBuilder, returns: Sequence[Return]) -> None:
    """Report results of which two lengths vary."""
    for r in returns:
        m = b.compressed.get(r.version)
        if isinstance(m, Ragged) and sum(map(bool, m.axes)) > 1:
            message = f"two lengths of {r.name} vary, and of a result at most one does"
            b.reporter.error("semantic-ragged", message, m.span, "return what is reduced over one of them")


def refuse_reads(b: ProgramBuilder, s: Statement) -> None:
    """Raise `Fault` where a statement reads a matrix that is not written out."""
    refuse_ragged(b, s)
    read = next((r for r in statement_reads(s) if r.tensor in b.compressed), None)
    if read is not None:
        raise _not_a_term(b, read)


def declare_result(b: ProgramBuilder, name: str, format: str, span: Span) -> None:
    """Let the result `name` have the entries of a matrix.  Errors are reported."""
    if any(not m.owner and (m.format == "ragged") == (format == "ragged") for m in b.compressed.values()):
        b.result_formats[name] = format
    else:
        message = f"{name} is {format}, and no parameter is, whose entries it could have"
        b.reporter.error(CODE, message, span, f"leave out {format}: a result is a dense tensor then")


class Expanded(NamedTuple):
    """What `ProgramBuilder.add_assignment` is given, over entries; `stored`: the pattern that the target has."""

    draft: Statement
    target: Target
    value: Value
    init: Expr | None
    stored: Compressed | Ragged | None
    op: str | None
    shape: tuple[Expr, ...] | None = None
    """Extents of a target that is written at columns, which data chooses among those of the matrix."""


def expand_reads(
    b: ProgramBuilder, draft: Statement, target: Target, value: Value, op: str | None, init: Expr | None
) -> Expanded:
    """A statement over the entries of the matrix (the positions of the sequences) that it reads.  Raises `Fault`."""
    along = expand_ragged(b, draft, target, value, op, init)
    if along is not None:
        return Expanded(*along)
    clauses = [w for w in draft.where if isinstance(w, Exists) and any(r.tensor in b.compressed for r in reads(w.value))]
    found = [r for r in statement_reads(replace(draft, value=value.expr)) if r.tensor in b.compressed]
    before = next((_matrix(b, r) for r in reads(init) if r.tensor in b.compressed), None) if init is not None else None
    is_declared = bool(b.result_formats.get(target.name))
    if not found:
        if is_declared or before is not None:
            raise _without_pattern(b, target, before)
        return Expanded(draft, target, value, init, None, op)
    for clause in clauses:
        if not isinstance(clause.value, Read):
            message = "an exists clause about a sparse matrix names an entry, and nothing else"
            raise Fault(CODE, message, f"write {_exists(b, found[-1])}", clause.span)
    read = next((c.value for c in clauses if isinstance(c.value, Read)), found[0])
    matrix, shown = _matrix(b, read), _shown(b, read.tensor)
    column = _check_entry(b, matrix, [read, *found])
    row = read.subscripts[matrix.axis]
    is_plain = init is None and bool(clauses) and target.name not in b.result_formats
    is_stored = is_declared or before is not None or (is_plain and target.subscripts == read.subscripts)
    if op != "add" and not clauses and not (is_stored and op is None):
        raise _not_a_term(b, read)
    entries = {name for name, m in b.compressed.items() if m.pattern == matrix.pattern}
    own = [*draft.subscripts, *(e for w in draft.where if not isinstance(w, Exists) for e in w.expressions)]
    outside = next((r for e in own for r in reads(e) if r.tensor in entries), None)
    if outside is not None:
        raise _not_a_term(b, outside)
    types = {n: t.dtype for n, t in b.tensors.items()} | {n: b.tensors[b.compressed[n].data].dtype for n in entries}
    if not clauses and Linearity(entries, shown, _exists(b, read), types, b.notation.spell).form(value.expr) != "linear":
        raise without_entry(value.expr, shown, _exists(b, read))

    if is_stored:
        _check_stored(b, target, read, matrix, before)
    entry = Index(f"{matrix.pattern}.entry", read.span)
    places: dict[str, Expr] = {column.name: Cast(Read(matrix.indices, (entry,), read.span), I64, read.span)}
    extents = {column.name: matrix.shape[1 - matrix.axis]}
    where: list[Where] = []
    if is_stored and op is not None and isinstance(row, Index):
        places[row.name], extents[row.name] = _read_row(b, matrix, entry, read), matrix.shape[matrix.axis]
    else:
        where.append(_segment(matrix, entry, read.subscripts[matrix.axis], read.span))
        if is_stored and isinstance(row, Index):  # an entry of each row has a value, whatever else is read there
            where.append(RangeClause(row.name, int_const(0), matrix.shape[matrix.axis], row.span))

    def rule(node: Expr) -> Expr | None:
        match node:
            case Read(tensor) if tensor in entries:
                return Read(b.compressed[tensor].data, (entry,), node.span)
            case Index(name):
                return places.get(name)
        return None

    guards: list[Expr] = []
    for w in (w for w in draft.where if w not in clauses):
        match w:
            case RangeClause(name, lower, upper) if name in places:
                index = Index(name)
                guards += [ge(index, lower)] * (lower != int_const(0)) + [lt(index, upper)] * (upper != extents[name])
            case Condition(condition) if places.keys() & index_names(condition):
                guards.append(condition)
            case RangeClause(name, lower, upper) if (
                isinstance(row, Index) and row.name in places and row.name in index_names(lower, upper)
            ):
                guards += [ge(Index(name), lower), lt(Index(name), upper)]  # no bound is read from what is computed
            case _:
                where.append(w)
    summed = value.expr
    if op is None and (guards or any(_leaves_out(w, row, matrix.shape[matrix.axis]) for w in where[1:])):
        message = f"{target.name} has the entries of {shown}, and an assignment gives each of them a value"
        chosen = in_notation(read.span, f"j < i ? {shown}(i, j) : 0", f"{shown}[i, j] if j < i else 0")
        raise Fault(CODE, message, f"leave out ranges and conditions, and choose among values: {chosen}", target.span)
    if guards:
        assert op is not None
        summed = Select(all_hold(guards), summed, identity_of(op, type_of(summed, types)), read.span)
    subscripts = (entry,) if is_stored else target.subscripts
    draft = replace(draft, value=summed, where=tuple(where), subscripts=subscripts)
    expanded = map_statement(draft, lambda e: rewrite(e, rule))
    if not any(entry.name in index_names(*r.subscripts) for r in reads(expanded.value)):  # which tells the range of the entries
        expanded = replace(expanded, where=(*expanded.where, Exists(Read(matrix.data, (entry,), read.span), read.span)))
    names = [entry.name if i == column.name else i for i in draft.indices]
    names += [i for i in (entry.name, *sorted(index_names(row))) if i not in names]
    names = [i for i in names if i not in places]
    left = index_names(*expanded.subscripts)
    indices = (*(i for i in names if i in left), *(i for i in names if i not in left))
    if init is not None:
        init = _continue(b, init, target, expanded.subscripts, matrix, is_stored)
    given, target = target.subscripts, replace(target, subscripts=expanded.subscripts)
    stored = replace(matrix, owner=matrix.pattern) if is_stored else None
    beside = index_names(*(e for r in reads(value.expr) if r.tensor not in entries for e in r.subscripts))
    is_free = isinstance(row, Index) and row.name not in beside and not draft.where[1:]  # what else is read bounds rows
    rows = {row.name: matrix.shape[matrix.axis]} if is_free and isinstance(row, Index) else {}
    written = [e.name if isinstance(e, Index) else "" for e in given]
    is_whole = column.name in written and len(set(written)) == len(written) and {*written} <= {*rows, column.name}
    shape = tuple(rows.get(name, extents[column.name]) for name in written) if is_whole else None
    return Expanded(replace(expanded, indices=indices), target, replace(value, expr=expanded.value), init, stored, op, shape)


def _matrix(b: ProgramBuilder, read: Read) -> Compressed:
    found = b.compressed[read.tensor]
    assert isinstance(found, Compressed)  # others are written out before
    return found


def _leaves_out(clause: Where, row: Expr, extent: Expr) -> bool:
    """Whether a clause may leave out rows."""
    match clause:
        case Exists():
            return False
        case RangeClause(index, lower, upper):
            return Index(index) != row or lower != int_const(0) or upper != extent
    return True


def define_entries(b: ProgramBuilder, matrix: Compressed | Ragged, target: Target, value: Value) -> str:
    """A new version of a name, which has the pattern of `matrix`; the tensor that holds its entries."""
    if isinstance(matrix, Ragged):
        return define_positions(b, matrix, target, value)
    stored = replace(matrix, name=b.next_version(target.name), span=target.span)
    b.compressed[stored.name] = stored
    b.add_tensor(stored.data, value.dtype, 1, target.name, target.span, (stored.n_entries,))
    b.rename(target.name, Version(stored.name, value.dtype, 2, value.weak, stored.shape, False, target.span))
    return stored.data


def _continue(
    b: ProgramBuilder, init: Expr, target: Target, subscripts: tuple[Expr, ...], matrix: Compressed, is_stored: bool
) -> Expr:
    """The value that a reduction starts from, over the elements that it is written out for."""
    version = b.next_version(target.name)
    (*after,) = element_names(version, subscripts)
    if not is_stored:
        renamed = dict(zip(element_names(version, target.subscripts), after, strict=True))
        return rewrite(init, lambda n: replace(n, name=renamed.get(n.name, n.name)) if isinstance(n, Index) else None)

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Read):
            return None
        given = b.compressed.get(node.tensor)
        if given is None:  # what the caller's array holds: of a matrix its entries
            b.tensors[node.tensor] = replace(b.tensors[node.tensor], rank=1, shape=(matrix.n_entries,))
        return Read(node.tensor if given is None else given.data, (Index(after[0]),), node.span)

    return rewrite(init, rule)


def _check_stored(b: ProgramBuilder, target: Target, read: Read, matrix: Compressed, before: Compressed | None) -> None:
    """Raise `Fault` where a target cannot have an entry for each of those of `matrix`."""
    name, shown = target.name, _shown(b, read.tensor)
    subscripts = ", ".join(format_expr(e) for e in read.subscripts)
    if target.subscripts != read.subscripts or not isinstance(read.subscripts[matrix.axis], Index):
        message = f"{name} has the entries of {shown}, and is assigned at other elements than {shown} is read at"
        help = in_notation(read.span, f"{name}(i, j) … {shown}(i, j)", f"{name}[i, j] … {shown}[i, j]")
        raise Fault(CODE, message, f"use the same two indices for both: {help}", target.span)
    if before is not None and before.pattern != matrix.pattern:
        message = f"{name} has the entries of {_shown(b, before.pattern)} above, and {shown} has others"
        raise Fault(CODE, message, "give the result a name of its own", target.span)
    declared, wanted = b.declared_shape(name, 2), b.result_formats.get(name) or matrix.format
    if wanted != matrix.format:
        message = f"{name} is declared {wanted}, and has the entries of {shown}({subscripts}), which is {matrix.format}"
        raise Fault(CODE, message, f"declare it {matrix.format}", target.span)
    if declared is not None and declared != matrix.shape:
        sizes, own = (", ".join(map(format_expr, shape)) for shape in (declared, matrix.shape))
        message = f"{name} is declared with the sizes {sizes}, and has the entries of {shown}, whose sizes are {own}"
        raise Fault(CODE, message, "leave out the sizes, or declare both with the same", target.span)


def _without_pattern(b: ProgramBuilder, target: Target, before: Compressed | None) -> Fault:
    name = target.name
    if before is not None:
        pattern = _shown(b, before.pattern)
        message = f"{name} has the entries of {pattern}, and this statement does not say so"
        return Fault(CODE, message, f"add {_exists_text(target.span, pattern, 'i, j')}", target.span)
    message = f"{name} is {b.result_formats[name]}, and nothing that this statement reads is, whose entries it could have"
    pattern = next(n for n, m in b.compressed.items() if not m.owner)
    help = f"add {_exists_text(target.span, pattern, 'i, j')}, or leave out {b.result_formats[name]} for a dense result"
    return Fault(CODE, message, help, target.span)


def check_stored_result(b: ProgramBuilder, name: str, span: Span) -> None:
    """Report a result that is declared sparse and is assigned in a way that makes it dense (by a call, a selection)."""
    version = b.current.get(name)
    if version is None or version.dtype is None or version.name in b.compressed or b.reporter.n_errors:
        return
    format = b.result_formats[name]
    message = f"{name} is declared {format}, and what is assigned to it is dense"
    b.reporter.error(CODE, message, span, f"leave out {format}, or assign it where entries of a matrix exist")


def _shown(b: ProgramBuilder, version: str) -> str:
    """The user's name of a matrix."""
    return next((n for n, v in b.current.items() if v.name == version), version)


def _exists(b: ProgramBuilder, read: Read) -> str:
    """How a statement says that its points are the entries of the matrix that `read` reads."""
    return _exists_text(read.span, _shown(b, read.tensor), ", ".join(format_expr(e) for e in read.subscripts))


def _exists_text(span: Span | None, name: str, subscripts: str) -> str:
    return in_notation(span, f"where exists {name}({subscripts})", f"with polyc.where(({subscripts}) in {name}):")


def _segment(matrix: Compressed, entry: Index, row: Expr, span: Span | None) -> RangeClause:
    """The range of the entries of a row.  Its bounds have no place in the source, so that messages spell them out."""
    row = rewrite(row, lambda node: replace(node, span=None))
    lower, upper = (Cast(Read(matrix.indptr, (place,)), I64) for place in (row, Call("add", (row, int_const(1)))))
    return RangeClause(entry.name, lower, upper, span)


def _read_row(b: ProgramBuilder, matrix: Compressed, entry: Index, read: Read) -> Expr:
    """The row of an entry, as an element of a tensor with those of all entries, which is computed once.

    A reduction into entries runs over them in this way: as one over segments it would begin in a pass of its own, as other
    rows reach the same elements in the model, and share rows with nothing."""
    name, line = matrix.row, Index(f"{matrix.pattern}.line")
    if name not in b.tensors:
        b.add_tensor(name, I32, 1, matrix.pattern, matrix.span, (matrix.n_entries,))
        clause = _segment(matrix, entry, line, read.span)
        b.add(Statement("", name, (entry,), (entry.name, line.name), Cast(line, I32), None, (clause,), read.span))
    return Cast(Read(name, (entry,), read.span), I64, read.span)


def _check_entry(b: ProgramBuilder, matrix: Compressed, found: Sequence[Read]) -> Index:
    """The index that runs along a row (column).  Raises `Fault` where `found` are not reads of one entry, at a row and an index
    of its own."""
    read, name = found[0], _shown(b, found[0].tensor)
    other = next((r for r in found if b.compressed[r.tensor].pattern != matrix.pattern), None)
    if other is not None:
        second = _shown(b, other.tensor)
        message = f"{name} and {second} are both {matrix.format}, and a sum runs over the entries of one matrix"
        if b.compressed[other.tensor].format != matrix.format:
            message = f"{name} and {second} are both sparse, and a sum runs over the entries of one matrix"
        dense = in_notation(read.span, f"D(i, j) +=! {second}(i, j)", f"D[i, j] += {second}[i, j]")
        raise Fault(
            CODE, message, f"make one of them dense first, {dense}, and read that; or pass a dense {second}", other.span
        )
    other = next((r for r in found if r.subscripts != read.subscripts), None)
    if other is not None:
        message = f"{name} is read at two places, and a sum runs over the entries of one"
        if other.tensor != read.tensor:
            message = f"{name} and {_shown(b, other.tensor)} are read at two places, and a sum runs over the entries of one"
        raise Fault(CODE, message, "write a statement for each, and add their results", other.span)
    row, column = read.subscripts[matrix.axis], read.subscripts[1 - matrix.axis]
    along, across = (("row", "column"), ("column", "row"))[matrix.axis]
    if not isinstance(column, Index) or column.name in index_names(row):
        message = f"the {across} of {name} is no index of its own, over which the entries of a {along} could be summed"
        text, python = (("(i, j) * X(j + 1)", "[i, j] * X[j + 1]"), ("(i, j) * X(i + 1)", "[i, j] * X[i + 1]"))[matrix.axis]
        wanted = in_notation(read.span, name + text, name + python)
        raise Fault(CODE, message, f"let the {across} be an index, and compute elsewhere: {wanted}", read.span)
    if reads(row) and any(r.subscripts or r.tensor not in b.integers for r in reads(row)):
        message = f"which {along} of {name} is read depends on data"
        raise Fault(
            CODE, message, f"{along}s are read at indices and sizes: choose among the {along}s of the result", read.span
        )
    return column


def _not_a_term(b: ProgramBuilder, read: Read) -> Fault:
    name, format = _shown(b, read.tensor), b.compressed[read.tensor].format
    message = f"{name} is {format}, and read by the terms of sums alone"
    wanted = in_notation(read.span, f"Y(i, n) +=! {name}(i, j) * X(j, n)", f"Y[i, n] += {name}[i, j] * X[j, n]")
    help = f"write a sum such as {wanted}, or say that the points are its entries, {_exists(b, read)}"
    return Fault(CODE, message, help, read.span)
