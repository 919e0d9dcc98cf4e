"""Scalar integer parameters as sizes: ``int64 T`` beside ``where t in 1:T``.

A parameter *becomes a size* where it stands in a range, a condition, an extent, or left of ``=`` (`docs/language.md` has the
rule): a symbol of the model whose value is the number that a call gives.  Its reads in subscripts, and in comparisons of index
arithmetic, are that symbol then, exact in 64 bits; a read anywhere else is the number in its declared type.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from polyc.ir.expr import Call, Cast, Const, Expr, Index, Read, Select, Size, map_children, reads, walk
from polyc.ir.program import Program, Statement, find_sizes, map_statement
from polyc.ir.types import I32, I64
from polyc.records import dataclass, replace

_ARITHMETIC = frozenset(("add", "sub", "mul", "neg", "floordiv", "mod", "min", "max"))
_COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))


@dataclass(frozen=True, slots=True)
class Integers:
    """`names`: the parameters.  `scalars`: by tensor version without dimensions, the only value that is assigned to it."""

    names: Collection[str]
    scalars: Mapping[str, Expr]

    def index_form(self, expr: Expr) -> Expr | None:
        """Integer arithmetic over parameters, indices, sizes and numbers as an i64 expression over indices and sizes; None for
        anything else."""
        match expr:
            case Index() | Size():
                return expr
            case Const(bool(), _):
                return None
            case Const(value, dtype, span) if dtype.is_integer:
                return Const(value, I64, span)
            case Read(name, (), span) if name in self.names:
                return Size(name, span)
            case Read(name, ()) if name in self.scalars:
                return self.index_form(self.scalars[name])
            case Cast(value, dtype) if dtype in (I32, I64):
                return self.index_form(value)
            case Call(op, args, span) if op in _ARITHMETIC:
                forms = tuple(form for a in args if (form := self.index_form(a)) is not None)
                return Call(op, forms, span) if len(forms) == len(args) else None
        return None

    def as_size(self, expr: Expr) -> Expr:
        """`expr`, of element type i64, with sizes where it reads parameters, as far as they stand in index arithmetic."""
        if not self._reads_any(expr):
            return expr
        form = self.index_form(expr)
        if form is not None:
            return form
        match expr:
            case Call(op, _) if op in _ARITHMETIC:
                return map_children(expr, self.as_size)
            case Select(condition, then, other, span):
                return Select(self.in_value(condition), self.as_size(then), self.as_size(other), span)
        return self.in_value(expr)

    def in_value(self, expr: Expr) -> Expr:
        """The same in the subscripts and in the comparisons of a value, or of a condition."""
        match expr:
            case Read():
                return map_children(expr, self.as_size)
            case Call(op, args, span) if op in _COMPARISONS and self._reads_any(expr):
                forms = tuple(form for a in args if (form := self.index_form(a)) is not None)
                if len(forms) == len(args):
                    return Call(op, forms, span)
        return map_children(expr, self.in_value)

    def _reads_any(self, expr: Expr) -> bool:
        return any(isinstance(n, Read) and not n.subscripts and self._is_known(n.tensor) for n in walk(expr))

    def _is_known(self, name: str) -> bool:
        return name in self.names or (name in self.scalars and self._reads_any(self.scalars[name]))


def single_values(statements: Sequence[Statement]) -> dict[str, Expr]:
    """Values of tensor versions without dimensions that one statement assigns, from what stands above it."""
    found: dict[str, Expr] = {}
    targets, written = {s.target for s in statements}, set[str]()
    for s in statements:
        is_plain = not (s.subscripts or s.indices or s.where or s.reduction)
        if s.target in written:
            found.pop(s.target, None)
        elif is_plain and not any(r.tensor in targets - written for r in reads(s.value)):
            found[s.target] = s.value
        written.add(s.target)
    return found


def promote_integers(program: Program, integers: Collection[str]) -> Program:
    """The program with those of its scalar parameters `integers` as sizes that stand where sizes do."""
    used = find_sizes(program.statements, program.tensors) & frozenset(integers) if integers else frozenset[str]()
    if not used:
        return program
    found = Integers(used, single_values(program.statements))

    def change_statement(s: Statement) -> Statement:
        changed = map_statement(s, found.in_value)
        return replace(changed, subscripts=tuple(map(found.as_size, s.subscripts)))

    fresh = (n for n in integers if n in used and n not in program.sizes)
    return replace(program, sizes=(*program.sizes, *fresh), statements=tuple(change_statement(s) for s in program.statements))
