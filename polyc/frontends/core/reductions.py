"""Reductions with several results: where the greatest value stands, and monoids that the user defines.

``(v(i), p(i), q(i)) argmax=! X(i, j, k)`` means, for the first point in the order of the indices that has the greatest value,

    v(i) max=! X(i, j, k)
    p(i) min=! X(i, j, k) == v(i) ? j : none
    q(i) min=! X(i, j, k) == v(i) && j == p(i) ? k : none

where ``==`` also holds for every NaN, as NaN wins in NumPy, and none is the greatest number of the position's type.

``(re(i), im(i)) product=! (A(i, j), B(i, j))`` is one statement for each component.
"""

from __future__ import annotations

from polyc.frontends.core.builder import Assignment, ProgramBuilder, Target, reduced_indices
from polyc.frontends.core.values import Fault, Value
from polyc.ir.expr import Call, Cast, Expr, Index, Read, Select, identity_of
from polyc.ir.program import Monoid, Reduction, Statement, order_components
from polyc.ir.types import I64, U8, DType
from polyc.records import replace

SELECTIONS = {"argmax": "max", "argmin": "min"}
"""The monoid of the values by the name of the selection."""


def add_selection(b: ProgramBuilder, a: Assignment, selection: str) -> None:
    """Add the statements of a selection, and the versions of its targets.  Raises `Fault`."""
    (value,), left = a.values, _plain_left(b, a, "semantic-selection", "selection-left")
    others = reduced_indices(a.values, a.left)  # not those of bounds alone
    if not others:
        message = f"{a.op} has no index to choose from: all indices of the value are on the left side"
        help = "leave out the index on the left side whose positions are wanted"
        raise Fault("semantic-selection", message, help, a.op_span)
    n, given = len(others), len(a.targets)
    if given - n not in (0, 1):
        listed = ", ".join(others)
        message = f"{a.op} over {listed} gives {n} position{'s' * (n > 1)}, and {given} are assigned"
        help = f"give one target for each of {listed}, and one more in front for the value"
        raise Fault("semantic-selection", message, help, a.span)
    if value.dtype.is_complex:
        message, help = (b.notation.say(f"selection-complex{part}", op=a.op) for part in ("", "-help"))
        raise Fault("type-complex", message, help)
    dtype = value.dtype.computed if value.dtype.is_storage else U8 if value.dtype.kind == "b" else value.dtype
    compared = b.notation.convert(value, dtype)
    draft = a.draft(compared)
    _refuse_parts(b, a, draft, "semantic-selection")
    values, positions = a.targets[:-n], a.targets[-n:]
    types = [position_type(b, target) for target in positions]
    kept = b.kept_type(values[0].name, value.dtype) if values else dtype
    copy = ""
    best = f"{b.next_version(positions[0].name)}.best"
    if values and kept == dtype:
        best = _define(b, values[0], kept)
    else:
        b.add_tensor(best, dtype, len(left), a.targets[0].name, a.span)
        copy = _define(b, values[0], kept) if values else ""
    monoid = SELECTIONS[selection]
    b.add(replace(draft, target=best, reduction=Reduction(monoid, identity_of(monoid, dtype))))
    is_chosen: Expr = Call("eq", (compared, Read(best, left, a.span)))
    if dtype.is_float:
        is_chosen = Call("or", (is_chosen, Call("ne", (compared, compared))))
    for target, type, index in zip(positions, types, others, strict=True):
        none, version = identity_of("min", type), _define(b, target, type)
        here: Expr = Index(index, a.span) if type == I64 else Cast(Index(index, a.span), type)
        b.add(replace(draft, target=version, value=Select(is_chosen, here, none), reduction=Reduction("min", none)))
        is_chosen = Call("and", (is_chosen, Call("eq", (here, Read(version, left, a.span)))))
    if copy:
        _add_copy(b, a, copy, kept, best, dtype)


def add_combination(b: ProgramBuilder, a: Assignment, monoid: Monoid) -> None:
    """Add one statement for each component of a monoid, and the versions of its targets.  Raises `Fault`."""
    left = _plain_left(b, a, "semantic-monoid", "combination-left", is_distinct=True)
    components = tuple(b.notation.convert(v, c.dtype) for v, c in zip(a.values, monoid.identity, strict=True))
    draft = a.draft(Call("tuple", order_components(components, 0), a.span))
    _refuse_parts(b, a, draft, "semantic-monoid")
    types = [b.kept_type(t.name, c.dtype, t.span) for t, c in zip(a.targets, monoid.identity, strict=True)]
    copies: list[tuple[str, DType, str, DType]] = []
    for k, (target, component, kept) in enumerate(zip(a.targets, monoid.identity, types, strict=True)):
        version = f"{b.next_version(target.name)}.combined"
        if kept == component.dtype:
            version = _define(b, target, kept)
        else:
            b.add_tensor(version, component.dtype, len(left), target.name, a.span)
            copies.append((_define(b, target, kept), kept, version, component.dtype))
        value = Call("tuple", order_components(components, k), a.span)
        b.add(replace(draft, target=version, value=value, reduction=Reduction("combine", component, monoid, k)))
    for copy in copies:
        _add_copy(b, a, *copy)


def _plain_left(b: ProgramBuilder, a: Assignment, code: str, key: str, is_distinct: bool = False) -> tuple[Index, ...]:
    """The left indices, which are the same for all targets, each of which has a name of its own."""
    if len({t.name for t in a.targets}) < len(a.targets):
        raise Fault(code, f"two results of {a.op} have the same name", "give each result a name of its own")
    first = a.targets[0].subscripts
    plain = tuple(e for e in (dict.fromkeys(first) if is_distinct else first) if isinstance(e, Index))
    if len(plain) < len(first) or any(t.subscripts != first for t in a.targets):
        bad = next((t for t in a.targets if t.subscripts != first), a.targets[0])
        message = f"{a.op} needs the same plain indices on the left of all its results"
        raise Fault(code, message, b.notation.say(key, op=a.op), bad.span)
    return plain


def _refuse_parts(b: ProgramBuilder, a: Assignment, draft: Statement, code: str) -> None:
    for target in a.targets:
        if b.is_assigned(target.name) and draft.writes_part:
            message = f"{a.op} cannot assign a part of {target.name}, which is assigned above"
            raise Fault(code, message, f"assign another name, and copy it to the part of {target.name}", target.span)


def _define(b: ProgramBuilder, target: Target, dtype: DType) -> str:
    return b.define(target.name, target.rank, target.span, dtype)


def position_type(b: ProgramBuilder, target: Target) -> DType:
    """The element type of a target that is given an index: the declared one, or i64.  Raises `Fault`."""
    dtype = b.declared_type(target.name) or I64
    if dtype.kind not in "iu" or dtype.bits < 32:
        message = f"{target.name} holds positions, and cannot be {b.notation.spell(dtype)}"
        raise Fault("type-narrowing", message, "declare it int64 (or int32), or leave the type out", target.span)
    return dtype


def _add_copy(b: ProgramBuilder, a: Assignment, target: str, dtype: DType, source: str, source_type: DType) -> None:
    """``target = source`` in another element type, for versions of both."""
    left = a.targets[0].subscripts
    names = tuple(e.name for e in left if isinstance(e, Index))
    value = b.notation.convert(Value(Read(source, left, a.span), source_type), dtype)
    b.add(Statement("", target, left, names, value, None, (), a.span))
