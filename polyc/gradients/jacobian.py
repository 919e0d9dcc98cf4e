"""Jacobians: a derivative along one direction, computed for all directions at once by one more index for each dimension.

    before  ``t_Y[m] += W[m, k] * t_X[k]``
    after   ``t_X[x0, k] = x0 == k ? 1 : 0  ;  t_Y[x0, m] += W[m, k] * t_X[x0, k]  ;  J[m, x0] = t_Y[x0, m]``

What does not depend on the direction keeps its dimensions.
"""

from __future__ import annotations

from math import prod

from polyc.gradients.forward import drop_unused, jvp
from polyc.gradients.inputs import Names, check_inputs, check_results, drop_unread, take_initial_values
from polyc.gradients.reverse import vjp
from polyc.gradients.rules import refuse
from polyc.ir.expr import Const, Expr, Index, Read, Select, all_hold, eq, identity_of, int_const, rewrite, substitute
from polyc.ir.program import Program, RangeClause, Return, Statement, Tensor, element_names, map_statement
from polyc.records import replace


def jacobian(program: Program, of: str, wrt: str) -> Program:
    """The program of ``J[y…, x…] = ∂of[y…] / ∂wrt[x…]``, from the inputs of `program`.

    Raises ArgumentError ``argument-gradient`` and UnsupportedError ``unsupported-gradient``."""
    program, initial = take_initial_values(program)
    (result,) = check_results(program, (of,))
    check_inputs(program, (wrt,))
    x, y = program.tensor(wrt), program.tensor(result.version)
    if x.dtype.is_complex or y.dtype.is_complex:
        raise refuse("Jacobians of complex numbers are not supported", y.span, "take jvp along 1 and 1j")
    if _has_fewer_elements(x, y):
        moved = jvp(program, (wrt,))
        tangents = dict(zip([r.name for r in check_results(program)], moved.returns[len(program.returns) :], strict=True))
        return drop_unread(_along_all(moved, tangents[of].version, x.rank, is_turned=True), initial.values())
    adjoint = vjp(program, (wrt,), (of,))
    return _along_all(adjoint, adjoint.returns[0].version, y.rank, is_turned=False)


def _has_fewer_elements(x: Tensor, y: Tensor) -> bool:
    """Whether the forward mode has fewer directions to go: by extents where all are known, else by dimensions."""
    counts = [_count(t) for t in (x, y)]
    if counts[0] is not None and counts[1] is not None:
        return counts[0] <= counts[1]
    return x.rank <= y.rank


def _count(t: Tensor) -> int | None:
    extents = [e.value if isinstance(e, Const) else None for e in t.shape or ()]
    return None if t.shape is None or None in extents else prod(int(e) for e in extents if e is not None)


def _along_all(program: Program, version: str, rank: int, is_turned: bool) -> Program:
    """A program whose last input is a direction, along all unit vectors; its result `version` alone, with the dimensions of the
    direction first, or, `is_turned`, last."""
    seed, names = program.tensor(program.parameters[-1]), Names(program)
    assert seed.shape is not None
    assert seed.rank == rank
    names.taken |= {i for s in program.statements for i in s.indices}
    directions = [names.add(f"x{d}") for d in range(rank)]
    batch = _Batch(program, seed, tuple(directions))
    tensors = {t.name: batch.widen(t) if t.name in batch.moving else t for t in program.tensors}
    tensors = {n: replace(t, role="temporary") if t.role == "output" or n == seed.name else t for n, t in tensors.items()}
    statements = [batch.seed_statement(names), *map(batch.change, program.statements)]
    found = tensors[version] if version in batch.moving else batch.widen(tensors[version])
    own = tuple(Index(names.add(f"y{d}")) for d in range(found.rank - rank))
    places = tuple(map(Index, directions))
    left = (*own, *places) if is_turned else (*places, *own)
    shape = None
    if found.shape is not None:
        shape = (*found.shape[rank:], *found.shape[:rank]) if is_turned else found.shape
    result = replace(found, name=names.add("J"), shape=shape, role="output", base="J")
    order = tuple(i.name for i in left)
    value = Read(version, (*places, *own) if version in batch.moving else own)
    statements.append(Statement(names.add("S_J"), result.name, left, order, value, None, batch.ranges, found.span))
    whole = replace(
        program,
        name=f"{program.name.rpartition('_')[0]}_jacobian",
        tensors=(*tensors.values(), result),
        parameters=program.parameters[:-1],
        returns=(Return("J", result.name),),
        statements=tuple(statements),
    )
    return drop_unused(whole, set())


class _Batch:
    """Versions that depend on the direction, with its dimensions in front."""

    def __init__(self, program: Program, seed: Tensor, directions: tuple[str, ...]) -> None:
        self.seed, self.directions = seed, directions
        self.moving = program.made_from(seed.name)
        self.places = tuple(map(Index, directions))
        self.extents = seed.shape or ()
        self.ranges = tuple(RangeClause(i, int_const(0), e) for i, e in zip(directions, self.extents, strict=True))

    def widen(self, t: Tensor) -> Tensor:
        shape = None if t.shape is None else (*self.extents, *t.shape)
        return replace(t, rank=t.rank + len(self.directions), shape=shape)

    def seed_statement(self, names: Names) -> Statement:
        """Unit vectors."""
        own = tuple(Index(names.add(f"i{d}")) for d in range(self.seed.rank))
        one, zero = Const(1.0, self.seed.dtype), identity_of("add", self.seed.dtype)
        same = [eq(a, b) for a, b in zip(self.places, own, strict=True)]
        value: Expr = Select(all_hold(same), one, zero) if same else one
        ranges = tuple(replace(r, index=i.name) for r, i in zip(self.ranges, own, strict=True))
        order = (*self.directions, *(i.name for i in own))
        element = (*self.places, *own)
        return Statement(names.add("S_x"), self.seed.name, element, order, value, None, (*self.ranges, *ranges), self.seed.span)

    def change(self, s: Statement) -> Statement:
        if s.target not in self.moving:
            return s
        subscripts = (*self.places, *s.subscripts)
        new = element_names(s.target, subscripts)[len(self.places) :]
        renamed: dict[str, Expr] = {old: Index(n) for old, n in zip(s.element_names, new, strict=True) if old != n}
        changed = map_statement(s, self._read)
        if changed.reduction is not None and renamed:
            changed = replace(changed, reduction=replace(changed.reduction, init=substitute(changed.reduction.init, renamed)))
        indices, where = (*self.directions, *s.indices), (*self.ranges, *changed.where)
        return replace(changed, subscripts=(*self.places, *changed.subscripts), indices=indices, where=where)

    def _read(self, expr: Expr) -> Expr:
        def rule(node: Expr) -> Expr | None:
            if isinstance(node, Read) and node.tensor in self.moving:
                return Read(node.tensor, (*self.places, *node.subscripts), node.span)
            return None

        return rewrite(expr, rule)
