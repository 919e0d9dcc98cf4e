"""Names that stand for iteration indices in decorated functions, so that linters know them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from polyc.diagnostics import Diagnostic, SemanticError


@dataclass(frozen=True, slots=True)
class Index:
    """An iteration index.  It has no value: it may only be used inside a function that polyc reads."""

    name: str

    def __index__(self) -> NoReturn:
        raise TypeError(f"index {self.name!r} has no value outside a function decorated with polyc.op")


@dataclass(frozen=True, slots=True, eq=False)
class UserMonoid:
    """A commutative, associative way to combine numbers, or tuples of them, that functions read by polyc reduce with."""

    combine: Callable[..., Any]
    identity: tuple[int | float | bool, ...]
    name: str

    def __call__(self, *values: Any) -> NoReturn:
        raise SemanticError(
            Diagnostic(
                "semantic-outside-operator",
                f"{self.name} has a meaning only inside a function decorated with @polyc.op, whose source polyc reads",
                None,
                f"write it there, for example: Y[i] = {self.name}({', '.join('X[i, j]' for _ in self.identity)})",
            )
        )

    def __repr__(self) -> str:
        return f"<polyc monoid {self.name}>"


def indices(names: str) -> tuple[Index, ...]:
    """One `Index` per name: ``i, j = indices("i j")`` (separated by spaces or commas).

    Raises ValueError where a name is no Python identifier or is given twice.
    """
    parts = names.replace(",", " ").split()
    for part in parts:
        if not part.isidentifier():
            raise ValueError(f"{part!r} is no name for an index; write for example indices('i j')")
    if len(set(parts)) != len(parts):
        raise ValueError(f"a name stands twice in {names!r}")
    return tuple(Index(part) for part in parts)
