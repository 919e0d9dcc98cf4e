"""Sums over matrices in compressed rows (CSR), written out over the arrays that hold their entries.

    before  ``Y(i, n) +=! A(i, j) * X(j, n)``    with ``csr float(M, N) A``
    after   ``Y(i, n) +=! A.data(p) * X(A.indices(p), n) where p in A.indptr(i):A.indptr(i + 1)``

`A` is zero beside its entries, and entries with the same subscripts count as their sum.  So both mean the same where the terms
are linear in `A`, and nothing else is written out: a term is A(i, j) times what does not read `A`, or a sum of such.  What is
known of ranges that data bounds does the rest (`polyc.ir.segments`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from polyc.diagnostics import Span, in_notation
from polyc.frontends.core.builder import ProgramBuilder, Target, count_dimensions
from polyc.frontends.core.values import Fault, Value
from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Read,
    Select,
    all_hold,
    children,
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
    CompressedRows,
    Condition,
    Program,
    RangeClause,
    Statement,
    Tensor,
    Where,
    element_names,
    map_statement,
    statement_reads,
)
from polyc.ir.types import I32, I64, DType
from polyc.records import replace

CODE = "semantic-csr"

Form = Literal["zero", "linear", "free"]
"""What a value is to the entry of a matrix: 0 whatever that is, linear in it, or independent of it."""


def check_matrix(name: str, rank: int, dtype: DType, span: Span | None) -> None:
    """Raise `Fault` where a parameter that is declared so is no matrix of numbers."""
    if rank != 2:
        message = f"{name} is csr and has {count_dimensions(rank)}"
        raise Fault(CODE, message, "a matrix in compressed rows has two: its rows and its columns", span)
    if dtype.kind == "b":
        message = f"{name} is csr and holds truth values, and entries of the same element are added up"
        raise Fault(CODE, message, f"declare int8, and pass {name}.astype('int8')", span)


def declare_matrix(b: ProgramBuilder, tensor: Tensor) -> None:
    """Let the parameter `tensor` be a matrix in compressed rows, and add the arrays that hold it.  Raises `Fault`."""
    shape = tensor.shape or ()
    check_matrix(tensor.name, len(shape), tensor.dtype, tensor.span)
    matrix = b.compressed[tensor.name] = CompressedRows(tensor.name, shape, tensor.span)
    for part, dtype, length in zip(matrix.parts, (tensor.dtype, I32, I32), matrix.lengths, strict=True):
        b.tensors[part] = Tensor(part, dtype, 1, (length,), "input", part, tensor.span)


def split_matrices(program: Program, matrices: Mapping[str, CompressedRows], sizes: tuple[str, ...]) -> Program:
    """The program with the arrays that hold `matrices` in their place, and all its `sizes`."""
    parts = ((matrices[p].parts if p in matrices else (p,)) for p in program.parameters)
    return replace(
        program,
        sizes=sizes,
        tensors=tuple(t for t in program.tensors if t.name not in matrices),
        parameters=tuple(name for names in parts for name in names),
        compressed=tuple(matrices.values()),
    )


def refuse_reads(b: ProgramBuilder, s: Statement) -> None:
    """Raise `Fault` where a statement reads a matrix that is not written out."""
    read = next((r for r in statement_reads(s) if r.tensor in b.compressed), None)
    if read is not None:
        raise _not_a_term(read)


def expand_reads(
    b: ProgramBuilder, draft: Statement, target: Target, value: Value, op: str | None, init: Expr | None
) -> tuple[Statement, Target, Value, Expr | None]:
    """What `ProgramBuilder.add_assignment` is given, over the entries of the matrix that it reads.  Raises `Fault`."""
    found = [r for r in statement_reads(replace(draft, value=value.expr)) if r.tensor in b.compressed]
    if not found:
        return draft, target, value, init
    read, matrix = found[0], b.compressed[found[0].tensor]
    column = _check_entry(b, matrix, found)
    if op != "add":
        raise _not_a_term(read)
    own = [*draft.subscripts, *(e for w in draft.where for e in _parts(w))]
    outside = next((r for e in own for r in reads(e) if r.tensor == matrix.name), None)
    if outside is not None:
        raise _not_a_term(outside)
    types = {n: t.dtype for n, t in b.tensors.items()}
    if _form(value.expr, matrix.name, types) != "linear":
        raise _without_entry(value.expr, matrix.name)

    entry = Index(f"{matrix.name}.entry", read.span)
    place = Cast(Read(matrix.indices, (entry,), read.span), I64, read.span)

    def rule(node: Expr) -> Expr | None:
        match node:
            case Read(tensor=matrix.name):
                return Read(matrix.data, (entry,), node.span)
            case Index(column.name):
                return place
        return None

    guards: list[Expr] = []
    where: list[Where] = [_segment(matrix, entry, read)]
    for clause in draft.where:
        match clause:
            case RangeClause(column.name, lower, upper):
                guards += [ge(column, lower)] * (lower != int_const(0)) + [lt(column, upper)] * (upper != matrix.shape[1])
            case Condition(condition) if column.name in index_names(condition):
                guards.append(condition)
            case _:
                where.append(clause)
    summed = value.expr
    if guards:
        zero = identity_of("add", type_of(summed, types))
        summed = Select(all_hold(guards), summed, zero, read.span)
    names = [entry.name if i == column.name else i for i in draft.indices]
    expanded = map_statement(replace(draft, value=summed, where=tuple(where)), lambda e: rewrite(e, rule))
    left = index_names(*expanded.subscripts)
    indices = (*(i for i in names if i in left), *(i for i in names if i not in left))
    if init is not None:
        version = b.next_version(target.name)
        before, after = (element_names(version, e) for e in (target.subscripts, expanded.subscripts))
        renamed = dict(zip(before, after, strict=True))
        init = rewrite(init, lambda n: replace(n, name=renamed.get(n.name, n.name)) if isinstance(n, Index) else None)
    target = replace(target, subscripts=expanded.subscripts)
    return replace(expanded, indices=indices), target, replace(value, expr=expanded.value), init


def _segment(matrix: CompressedRows, entry: Index, read: Read) -> RangeClause:
    """The range of the entries of a row.  Its bounds have no place in the source, so that messages spell them out."""
    row = rewrite(read.subscripts[0], lambda node: replace(node, span=None))
    lower, upper = (Cast(Read(matrix.indptr, (place,)), I64) for place in (row, Call("add", (row, int_const(1)))))
    return RangeClause(entry.name, lower, upper, read.span)


def _parts(clause: Where) -> tuple[Expr, ...]:
    """The bounds of a range, or a condition; what stands in an `exists` clause is not read."""
    match clause:
        case RangeClause():
            return clause.lower, clause.upper
        case Condition():
            return (clause.condition,)
    return ()


def _check_entry(b: ProgramBuilder, matrix: CompressedRows, found: Sequence[Read]) -> Index:
    """The index of the columns.  Raises `Fault` where `found` are not reads of one entry, at a row and an index of its own."""
    name, read = matrix.name, found[0]
    other = next((r for r in found if r.tensor != name), None)
    if other is not None:
        message = f"{name} and {other.tensor} are both csr, and a sum runs over the entries of one matrix"
        help = f"sum over one of them into a tensor first, or pass a dense {other.tensor}"
        raise Fault(CODE, message, help, other.span)
    other = next((r for r in found if r.subscripts != read.subscripts), None)
    if other is not None:
        message = f"{name} is read at two places, and a sum runs over the entries of one"
        raise Fault(CODE, message, "write a statement for each, and add their results", other.span)
    row, column = read.subscripts
    if not isinstance(column, Index) or column.name in index_names(row):
        message = f"the column of {name} is no index of its own, over which the entries of a row could be summed"
        wanted = in_notation(read.span, f"{name}(i, j) * X(j + 1)", f"{name}[i, j] * X[j + 1]")
        raise Fault(CODE, message, f"let the column be an index, and compute elsewhere: {wanted}", read.span)
    if reads(row) and any(r.subscripts or r.tensor not in b.integers for r in reads(row)):
        message = f"which row of {name} is read depends on data"
        raise Fault(CODE, message, "rows are read at indices and sizes: choose among the rows of the result", read.span)
    return column


def _form(expr: Expr, name: str, types: Mapping[str, DType]) -> Form:
    """What a value is to the matrix.  Raises `Fault` where it reads it in any other way."""

    def form(operand: Expr) -> Form:
        return _form(operand, name, types)

    match expr:
        case Read(tensor) if tensor == name:
            return "linear"
        case Const(value):
            return "zero" if value == 0 else "free"
        case Call("neg" | "conj" | "real" | "imag", (operand,)):
            return form(operand)
        case Call("add" | "sub", (a, b)):
            return _join(form(a), form(b), a, b, name)
        case Call("mul", (a, b)):
            forms = {form(a), form(b)}
            if forms == {"linear"}:
                message = f"{name} stands twice in this product, and entries of the same element are added up before"
                help = f"compute the products before the call: {name}.multiply({name}) of SciPy"
                raise Fault(CODE, message, help, expr.span)
            return "zero" if "zero" in forms and "linear" not in forms else "linear" if "linear" in forms else "free"
        case Call("truediv", (a, b)) if form(b) != "linear":
            return "linear" if form(a) == "linear" else "free"
        case Select(condition, a, b) if form(condition) != "linear":
            return _join(form(a), form(b), a, b, name)
        case Cast(value, dtype) if _keeps_sums(value, dtype, types):
            return form(value)
        case _ if any(r.tensor == name for r in reads(expr)):
            message = f"this is not linear in {name}, and a sum over its entries is one of products with them"
            help = f"apply it to the entries before the call, or pass a dense {name}"
            raise Fault(CODE, message, help, expr.span or next((c.span for c in children(expr)), None))
    return "free"


def _keeps_sums(value: Expr, dtype: DType, types: Mapping[str, DType]) -> bool:
    """Whether the sum of converted values is the converted sum: integers are calculated with modulo their width, which a wider
    type does not know of.  Entries themselves may be converted, and are added up in the other type then."""
    given = type_of(value, types)
    if given.is_integer and not isinstance(value, Read):
        return dtype.is_integer and dtype.bits <= given.bits
    return dtype.kind != "b" and not (dtype.is_integer and given.is_float)


def _join(first: Form, second: Form, a: Expr, b: Expr, name: str) -> Form:
    """The form of a sum of terms `a` and `b`, or of a choice between them."""
    if {first, second} == {"linear", "free"}:
        raise _without_entry(a if first == "free" else b, name)
    return second if first == "zero" else first


def _without_entry(term: Expr, name: str) -> Fault:
    message = f"this term does not have {name} as a factor, and would count only where {name} has entries"
    return Fault(CODE, message, "give it a statement of its own, and add the results", term.span)


def _not_a_term(read: Read) -> Fault:
    message = f"{read.tensor} is csr, and read by the terms of sums alone"
    wanted = in_notation(read.span, f"Y(i, n) +=! {read.tensor}(i, j) * X(j, n)", f"Y[i, n] += {read.tensor}[i, j] * X[j, n]")
    return Fault(CODE, message, f"write a sum such as {wanted}; for anything else pass a dense array", read.span)
