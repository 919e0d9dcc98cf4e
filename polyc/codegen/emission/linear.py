"""Integer expressions as polynomials over loop variables and parameters: what an address is made of.

A `Linear` maps a product of atoms (a sorted tuple; empty for the constant) to its integer coefficient.  Atoms are
`Index` (a loop variable with a run-time value), `Size` (a parameter), or any other expression (floor division, a read).
In a vector loop the loop variable is its value in lane 0 plus `LANE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from polyc.codegen.writer.builder import Val
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Size, walk
from polyc.ir.types import I64

Binding = int | Val | Expr
"""What a loop variable is bound to: a constant (unrolled), a value, or an expression over variables further out."""

Linear = dict[tuple[Expr, ...], int]
Terms = Mapping[tuple[Expr, ...], int]
"""A `Linear` that stays as it is."""

LANE = Index("·lane")

Cycle = tuple[int, int, frozenset[tuple[tuple[Expr, ...], int]], int]
"""A subscript ``(sum of terms + constant) mod m``: its dimension, m, the terms, the constant."""


def as_linear(expr: Expr, env: Mapping[str, Binding], lane: str | None) -> Linear:
    result: Linear = {}
    add_expression(result, expr, env, lane, 1)
    return result


def add_expression(total: Linear, expr: Expr, env: Mapping[str, Binding], lane: str | None, factor: int) -> None:
    """Add `expr` times `factor`, which is not 0, to `total`, which changes."""
    # Asked for each access of each unrolled copy: `match` would take twice as long, sums of their own for operands three times.
    if isinstance(expr, Index):
        bound = env[expr.name]
        if isinstance(bound, int):
            if bound:
                _add_term(total, (), bound * factor)
        elif isinstance(bound, Val):
            _add_term(total, (expr,), factor)
        else:
            add_expression(total, bound, env, None, factor)
        if expr.name == lane:
            _add_term(total, (LANE,), factor)
    elif isinstance(expr, Const):
        if expr.value:
            _add_term(total, (), int(expr.value) * factor)
    elif isinstance(expr, Call) and expr.op in _ADDED:
        args = expr.args
        if expr.op == "neg":
            add_expression(total, args[0], env, lane, -factor)
        else:
            add_expression(total, args[0], env, lane, factor)
            add_expression(total, args[1], env, lane, factor if expr.op == "add" else -factor)
    elif isinstance(expr, Call) and expr.op == "mul":
        add_terms(total, multiply_linear(as_linear(expr.args[0], env, lane), as_linear(expr.args[1], env, lane)), factor)
    elif isinstance(expr, Cast) and expr.dtype == I64 and isinstance(expr.value, (Index, Size)):
        add_expression(total, expr.value, env, lane, factor)
    else:
        _add_term(total, (expr,), factor)


_ADDED = frozenset(("add", "sub", "neg"))


def _add_term(total: Linear, atoms: tuple[Expr, ...], coefficient: int) -> None:
    value = total.get(atoms, 0) + coefficient
    if value:
        total[atoms] = value
    else:
        del total[atoms]


@lru_cache(maxsize=1024)
def parameters_as_linear(expr: Expr) -> Terms:
    """`as_linear` of an expression without loop variables, such as a stride."""
    return as_linear(expr, {}, None)


def add_linear(a: Linear, b: Linear) -> Linear:
    result = dict(a)
    add_terms(result, b)
    return result


def add_terms(total: Linear, terms: Terms, factor: int = 1) -> None:
    """Add `terms` times `factor` to `total`, which changes."""
    for atoms, coefficient in terms.items():
        value = total.get(atoms, 0) + coefficient * factor
        if value:
            total[atoms] = value
        else:
            total.pop(atoms, None)


def scale_linear(a: Terms, factor: int) -> Linear:
    return {atoms: c * factor for atoms, c in a.items()} if factor else {}


def multiply_linear(a: Terms, b: Terms) -> Linear:
    for factor, other in ((a, b), (b, a)):
        if len(factor) == 1 and () in factor:
            return scale_linear(other, factor[()])
    if len(b) == 1:
        ((right, d),) = b.items()
        return {_join_atoms(left, right): c * d for left, c in a.items()}
    result: Linear = {}
    for left, c in a.items():
        add_terms(result, {_join_atoms(left, right): d for right, d in b.items()}, c)
    return result


def _join_atoms(left: tuple[Expr, ...], right: tuple[Expr, ...]) -> tuple[Expr, ...]:
    if len(left) == len(right) == 1:
        return left + right if _atom_key(left[0]) <= _atom_key(right[0]) else right + left
    return tuple(sorted(left + right, key=_atom_key)) if left and right else left + right


@lru_cache(maxsize=1024)
def _atom_key(atom: Expr) -> str:
    return atom.name if isinstance(atom, (Index, Size)) else repr(atom)


def split_lane(linear: Linear, lane: str | None) -> tuple[Linear, Linear] | None:
    """`linear` = uniform + coefficient * LANE, both free of the lane; None where it is not of that form."""
    if lane is None:
        return linear, {}
    uniform: Linear = {}
    coefficient: Linear = {}
    for atoms, c in linear.items():
        n = 0
        for atom in atoms:
            if atom is LANE:
                n += 1
            elif _varies(atom, lane):
                return None
        if n > 1:
            return None
        if n:
            coefficient[tuple([a for a in atoms if a is not LANE])] = c
        else:
            uniform[atoms] = c
    return uniform, coefficient


def _varies(atom: Expr, lane: str) -> bool:
    # The lane variable itself as an atom is its value in lane 0: uniform.
    return not isinstance(atom, (Index, Size)) and lane in index_names(atom)


@lru_cache(maxsize=4096)
def index_names(expr: Expr) -> frozenset[str]:
    """Loop variables in `expr`, those in subscripts of reads included."""
    return frozenset(node.name for node in walk(expr) if isinstance(node, Index))


def constant_of(linear: Linear) -> int | None:
    """The value of a constant, else None."""
    if not linear:
        return 0
    return linear[()] if len(linear) == 1 and () in linear else None


def find_cycles(subscripts: tuple[Expr, ...], env: Mapping[str, Binding], lane: str | None) -> frozenset[Cycle]:
    """The subscripts that go round a window of steps and are the same in all lanes."""
    found: set[Cycle] = set()
    for dimension, e in enumerate(subscripts):
        match e:
            case Call("mod", (value, Const(m))) if lane not in index_names(e):
                terms = as_linear(value, env, None)
                constant = terms.pop((), 0)
                found.add((dimension, int(m), frozenset(terms.items()), constant))
    return frozenset(found)


def are_apart(a: frozenset[Cycle], b: frozenset[Cycle]) -> bool:
    """Whether two accesses to one buffer are to different steps of a window."""
    return any(x[:3] == y[:3] and (x[3] - y[3]) % x[1] != 0 for x in a for y in b)
