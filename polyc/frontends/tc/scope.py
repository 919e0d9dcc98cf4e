"""What names mean at one place of a definition, and the diagnostics found so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field

from polyc.diagnostics import Span, suggest_name
from polyc.frontends.core.builder import Version
from polyc.frontends.core.reports import Reporter
from polyc.frontends.core.values import Fault, Value
from polyc.frontends.tc.builtins import BUILTIN_ARITY, BUILTIN_OPERATORS, EXPANSIONS
from polyc.frontends.tc.types import TYPE_NAMES
from polyc.ir.expr import Expr
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Let:
    """A ``where name = …`` clause, inlined where it is used: as an element value and, for integers, as a subscript.

    Both are None after an error in it."""

    value: Value | None
    subscript: Expr | None
    is_index: bool
    """Arithmetic over indices, sizes and literals alone."""
    has_access: bool
    """Holds a tensor read or a builtin call."""


@dataclass(slots=True)
class Scope:
    """Names of one statement.  Lookup order: left index, let, tensor or size; anything else is a new index."""

    reporter: Reporter
    sizes: Mapping[str, object]
    tensors: Mapping[str, Version]
    definition_tensors: frozenset[str]
    """Every tensor name of the definition, those assigned further down included."""
    left: frozenset[str] = frozenset()
    lets: dict[str, Let] = field(default_factory=dict)
    later_lets: frozenset[str] = frozenset()
    """Lets that stand further right in the where-clause list."""
    is_bounding: bool = False
    """Whether a condition on indices is read, where powers are whole numbers."""
    operators: frozenset[str] = frozenset()
    """Other definitions of the text, which a statement of its own may call."""
    integers: frozenset[str] = frozenset()
    """Scalar integer parameters, which may stand where sizes do."""
    as_size: Callable[[Expr], Expr] = lambda expr: expr
    """A bound, a condition or a left subscript with sizes in their place."""
    measure: Callable[[str, Span], tuple[Expr, ...] | None] = field(default=lambda version, span: None)
    """The extents of a version that is assigned above; None after an error."""
    matrices: Collection[str] = ()
    """Versions that are sparse."""

    def undefined(self, name: str, span: Span) -> Fault:
        """A tensor read, or a use of a name, that nothing before it defines."""
        if name in self.later_lets:
            help = f"put `{name} = …` to the left of its use in the where list; it cannot use itself"
        elif name in self.definition_tensors:
            help = f"statements run in textual order: assign {name} above this statement"
        elif name in self.operators:
            help = f"{name} is an operator: a call is a statement of its own, T = {name}(…), and gives whole tensors"
        else:
            close = suggest_name(
                name, [*self.tensors, *self.sizes, *BUILTIN_ARITY, *TYPE_NAMES, *sorted(self.operators), "pad", "min", "max"]
            )
            help = _INSTEAD.get(name) or close or "declare it as a parameter, or assign it above this statement"
        return Fault("semantic-undefined", f"undefined variable {name} used here", help, span)


_INSTEAD = {
    "sum": "to sum over indices that are not on the left, write O(i) +=! A(i, j)",
    "prod": "to multiply over indices that are not on the left, write O(i) *=! A(i, j)",
    "mean": "sum with +=!, then divide in a second statement",
    "abs": "did you mean fabs?",
    "maximum": "did you mean max?",
    "minimum": "did you mean min?",
    "sigmoid": "write it out: 1 / (1 + exp(-x))",
    "relu": "write it out: fmax(x, 0)",
    "int": "did you mean int32?",
    "ln": "did you mean log?",
    "square": "write x * x",
    **dict.fromkeys(("sign", "sgn"), "write it out: x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0"),
    **dict.fromkeys(("select", "cond", "ifelse", "iff"), "a selection is written c ? a : b"),
    **dict.fromkeys(("clamp", "clip"), "write it out: min(max(x, lower), upper)"),
    **dict.fromkeys(("silu", "swish"), "write it out: x / (1 + exp(-x))"),
    "gelu": "write it out: 0.5 * x * (1 + erf(x * 0.70710678))",
    "softplus": "write it out: log1p(exp(-fabs(x))) + fmax(x, 0)",
    "isnan": "write x != x",
    **dict.fromkeys(("cumsum", "scan"), "write the recurrence: S(0) = A(0), then S(i) = S(i-1) + A(i) where i in 1:N"),
    **dict.fromkeys(("transpose", "reshape", "flip", "roll"), "write the subscripts: A(j, i), A(N-1-i), A((i + 1) % N)"),
    "softmax": "write it out: the maximum, the exponentials, their sum, the quotients",
    **{f"arg{m}": f"a position is what an assignment finds: p(i) arg{m}=! A(i, j)" for m in ("max", "min")},
}


def check_not_builtin(reporter: Reporter, name: str, span: Span) -> bool:
    """Report a variable that has the name of a builtin; those that polyc does not have (``y0``, a Bessel function) are free."""
    if name not in BUILTIN_OPERATORS and name not in EXPANSIONS:
        return True
    message = f"{name} is a built-in function and cannot be redefined"
    reporter.error("semantic-builtin-name", message, span, f"choose another name, such as {name}_")
    return False
