"""Which values are linear in the entries of a sparse matrix, so that sums over entries are sums over all elements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Literal, NamedTuple

from polyc.diagnostics import Span, in_notation
from polyc.frontends.core.values import Fault
from polyc.ir.expr import Call, Cast, Const, Expr, Read, Select, children, reads, type_of
from polyc.ir.types import DType

CODE = "semantic-csr"

Form = Literal["zero", "linear", "free"]
"""What a value is to an entry: 0 whatever that is, linear in it, or independent of it."""


class Linearity(NamedTuple):
    """Whether values are linear in entries: in those of all matrices `entries`, which have one pattern."""

    entries: Collection[str]
    name: str
    exists: str
    types: Mapping[str, DType]
    spell: Callable[[DType], str]

    def form(self, expr: Expr) -> Form:
        """What a value is to the entries.  Raises `Fault` where it reads them in any other way."""
        form = self.form
        match expr:
            case Read(tensor) if tensor in self.entries:
                return "linear"
            case Const(value):
                return "zero" if value == 0 else "free"
            case Call("neg" | "conj" | "real" | "imag", (operand,)):
                return form(operand)
            case Call("add" | "sub", (a, b)):
                return self.join(a, b)
            case Call("mul", (a, b)):
                forms = {form(a), form(b)}
                if forms == {"linear"}:
                    message = f"two entries of {self.name} are multiplied, and entries of the same element are added up before"
                    help = f"to multiply entry by entry add {self.exists}"
                    raise Fault(CODE, message, help, expr.span)
                return "zero" if "zero" in forms and "linear" not in forms else "linear" if "linear" in forms else "free"
            case Call("truediv", (a, b)) if form(b) != "linear":
                return "linear" if form(a) == "linear" else "free"
            case Select(condition, a, b) if form(condition) != "linear":
                return self.join(a, b)
            case Cast(value, dtype) if _keeps_sums(value, dtype, self.types):
                return form(value)
            case Cast(value, dtype) if form(value) == "linear" and type_of(value, self.types).is_integer:
                given, wide = self.spell(type_of(value, self.types)), self.spell(dtype)
                message = f"entries of one element are added up, which wraps around in {given}, and not in {wide}"
                example = in_notation(expr.span, f"{wide}({self.name}(i, j))", f"{wide}({self.name}[i, j])")
                help = f"convert the entry itself, {example}, and calculate with that"
                raise Fault(CODE, message, help, self._place(expr))
            case _ if any(r.tensor in self.entries for r in reads(expr)):
                message = f"this is not linear in {self.name}, and a sum over its entries is one of products with them"
                help = f"to apply it to each entry, and to leave out all other elements, add {self.exists}"
                raise Fault(CODE, message, help, self._place(expr))
        return "free"

    def join(self, a: Expr, b: Expr) -> Form:
        """The form of a sum of terms `a` and `b`, or of a choice between them."""
        first, second = self.form(a), self.form(b)
        if {first, second} == {"linear", "free"}:
            raise without_entry(a if first == "free" else b, self.name, self.exists)
        return second if first == "zero" else first

    def _place(self, expr: Expr) -> Span | None:
        return expr.span or next((c.span for c in children(expr)), None)


def _keeps_sums(value: Expr, dtype: DType, types: Mapping[str, DType]) -> bool:
    """Whether the sum of converted values is the converted sum: integers are calculated with modulo their width, which a wider
    type does not know of.  Entries themselves may be converted, and are added up in the other type then."""
    given = type_of(value, types)
    if given.is_integer and not isinstance(value, Read):
        return dtype.is_integer and dtype.bits <= given.bits
    return dtype.kind != "b" and not (dtype.is_integer and given.is_float)


def without_entry(term: Expr, name: str, exists: str) -> Fault:
    """The error of a term that reads no entry."""
    message = f"this term does not have {name} as a factor, and would count only where {name} has entries"
    return Fault(
        CODE, message, f"give it a statement of its own, and add the results; or, if that is meant, add {exists}", term.span
    )
