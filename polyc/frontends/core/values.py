"""Typed values, which expressions are read into, and what may be wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field

from polyc.diagnostics import Span
from polyc.ir.expr import Const, Expr, Index, children, walk
from polyc.ir.read_sites import mention
from polyc.ir.types import DTYPES, DType
from polyc.records import dataclass, replace

_WORDS = {"f": "float", "bf": "bfloat", "c": "complex", "i": "int", "u": "uint", "bool": "bool"}
LONG_NAMES = {re.sub("[a-z]+", lambda found: _WORDS[found[0]], name): dtype for name, dtype in DTYPES.items()}
"""Element types by the names that C and NumPy have for them: ``float32``, ``uint8``."""


class Fault(Exception):
    """What is wrong; who catches it adds the place where it has none."""

    def __init__(self, code: str, message: str, help: str, span: Span | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.help, self.span = code, message, help, span


class Reported(Exception):
    """Something needs what has an error, which is reported already."""


@dataclass(frozen=True, slots=True)
class Value:
    """An expression with its element type; `n_nodes` counts repeated operands as often as they stand in the tree.

    A *weak* value takes the element type of what it meets, as Python's numbers do under NumPy's rules."""

    expr: Expr
    dtype: DType
    weak: bool = False
    n_nodes: int = 1
    unread: tuple[Expr, ...] = field(default=(), compare=False)
    """Reads and indices that the text has here and `expr` has not (see `polyc.ir.read_sites.mention`)."""

    @property
    def constant(self) -> int | float | bool | None:
        """The number of a weak constant, else None."""
        return self.expr.value if self.weak and isinstance(self.expr, Const) else None

    @property
    def nodes(self) -> Iterator[Expr]:
        """All nodes of the expression and of what is not read."""
        return (n for e in (self.expr, *self.unread) for n in walk(e))

    @property
    def index_names(self) -> list[str]:
        """Indices of the text, as often as they stand in it."""
        return [n.name for n in self.nodes if isinstance(n, Index)]

    def made_of(self, *operands: Value) -> Value:
        """This value, computed from operands: what they do not read it does not, either."""
        unread = tuple(dict.fromkeys((*self.unread, *(e for o in operands for e in o.unread))))
        return replace(self, unread=unread) if unread != self.unread else self

    def instead_of(self, *operands: Value) -> Value:
        """This value, which stands for a text with operands that it does not need."""
        unread = (*(e for o in operands for e in mention(o.expr)), *self.unread)
        return self.made_of(*operands, Value(self.expr, self.dtype, unread=unread))


def measure_expr(expr: Expr) -> tuple[int, int]:
    """Nodes and height of `expr` as a tree; time is linear in its distinct nodes."""
    known: dict[int, tuple[int, int]] = {}
    stack = [expr]
    while stack:
        node = stack[-1]
        missing = [c for c in children(node) if id(c) not in known]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        parts = [known[id(c)] for c in children(node)]
        known[id(node)] = 1 + sum(n for n, _ in parts), 1 + max((h for _, h in parts), default=0)
    return known[id(expr)]
