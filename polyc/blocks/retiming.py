"""Recurrences that run backward or are skewed, as time loops: every step reads steps that lie before it, and none after.

The versions of a recurrence get new positions along its axis, ``m = d * e + o``, with one direction d for all of them and an
offset o for each (retiming; Leiserson and Saxe, "Retiming synchronous circuitry", Algorithmica 1991).  A read that lies k
before its statement then lies ``d * k + o(reader) - o(read)`` before it, which has to be at least 0: shortest paths say which
offsets do that, if no cycle of reads leads ahead.  So the adjoint of a time loop, ``D[t] = f(D[t + 1])``, becomes
``D'[m] = f(D'[m - 1])`` with D[t] = D'[T - t], and a user's ``S[t + 1] = f(S[t])`` is written at t.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from polyc.blocks.gathered import tests_of
from polyc.blocks.tensors import copy_tensor, free
from polyc.diagnostics import PolycError
from polyc.ir.components import Component, order_components
from polyc.ir.expr import Expr, Index, Read, evaluate, index_names, int_const, map_children, reads, substitute
from polyc.ir.program import Condition, Program, RangeClause, Statement, map_statement, statement_reads
from polyc.ir.simplify import difference, simplify, simplify_value
from polyc.poly.frames import upper_end
from polyc.poly.infer import infer_ranges
from polyc.poly.ranges import Ranges
from polyc.records import replace


def retime(
    program: Program, ranges: Ranges, sizes: Mapping[str, int], component: Component, axis: int
) -> tuple[Program, Ranges, Component] | None:
    """The program in which no statement of the recurrence reads steps along `axis` that lie ahead, its ranges, and what has
    become of the recurrence; None where there is none."""
    for direction in (1, -1):
        offsets = _find_offsets(component, sizes, axis, direction)
        if offsets is None:
            continue
        at_index = all(isinstance(e := s.subscripts[axis], Index) or not index_names(e) for s in component.statements)
        if direction == 1 and at_index and not any(offsets.values()):
            return program, ranges, component
        ends = {v: simplify(upper_end(ranges.tensors[v][axis]) - 1 - o) for v, o in offsets.items()}
        first = int_const(-min(offsets.values())) if direction == 1 else max(ends.values(), key=lambda e: evaluate(e, sizes))
        names = {v: program.free_name(f"{v}.steps") for v in component.versions}
        places = _Places(program, ranges, axis, direction, {v: simplify(first + o) for v, o in offsets.items()}, names)
        try:
            changed = places.change()
            found = infer_ranges(changed)
        except PolycError:
            return None
        return changed, found, next(c for c in order_components(changed) if names[component.versions[0]] in c.versions)
    return None


def place_in_time(subscript: Expr) -> tuple[str | None, Expr] | None:
    """The index that a subscript moves with, if any, and what is added to it; None for anything else."""
    names = index_names(subscript)
    if reads(subscript) or len(names) > 1:
        return None
    if not names:
        return None, subscript
    (t,) = names
    offset = difference(subscript, Index(t))
    return None if offset is None else (t, int_const(offset))


def _find_offsets(component: Component, sizes: Mapping[str, int], axis: int, direction: int) -> dict[str, int] | None:
    """For each version how far it is moved, so that no read lies ahead and some lie behind."""
    distances: list[tuple[str, str, int]] = []
    for s in component.statements:
        own = place_in_time(s.subscripts[axis])
        for r in statement_reads(s):
            if r.tensor in component.versions:
                there = place_in_time(r.subscripts[axis])
                if own is None or there is None or own[0] != there[0]:
                    return None
                distances.append((s.target, r.tensor, direction * evaluate(simplify(own[1] - there[1]), sizes)))
    offsets = dict.fromkeys(component.versions, 0)
    for _ in offsets:
        for reader, version, distance in distances:
            offsets[version] = min(offsets[version], offsets[reader] + distance)
    moved = [distance + offsets[reader] - offsets[version] for reader, version, distance in distances]
    return offsets if min(moved, default=0) == 0 < max(moved, default=0) or min(moved, default=0) > 0 else None


@dataclass(frozen=True)
class _Places:
    """Element e along `axis` of a version becomes ``direction * e + offsets[version]`` of ``names[version]``."""

    program: Program
    ranges: Ranges
    axis: int
    direction: int
    offsets: Mapping[str, Expr]
    names: Mapping[str, str]

    def change(self) -> Program:
        program, taken = self.program, {s.name for s in self.program.statements}
        returned = {r.version for r in program.returns} & self.names.keys()
        statements = [
            self._place(s) if s.target in self.names else map_statement(s, self._move_reads) for s in program.statements
        ]
        for v in sorted(returned):
            copied = copy_tensor(v, self.ranges.tensors[v], lambda places, v=v: self._moved(v, places))  # type: ignore[misc]
            statements.append(replace(copied, name=free(copied.name, taken)))
        tensors = [t for t in program.tensors if t.name not in self.names or t.name in returned]
        for v, name in self.names.items():
            tensors.append(replace(program.tensor(v), name=name, shape=None, role="temporary"))
        return replace(program, tensors=tuple(tensors), statements=tuple(statements), rules=())

    def _moved(self, version: str, subscripts: tuple[Expr, ...]) -> Read:
        places = list(subscripts)
        places[self.axis] = simplify(self.direction * places[self.axis] + self.offsets[version])
        return Read(self.names[version], tuple(places))

    def _move_reads(self, expr: Expr) -> Expr:
        changed = map_children(expr, self._move_reads)
        return (
            self._moved(changed.tensor, changed.subscripts)
            if isinstance(changed, Read) and changed.tensor in self.names
            else changed
        )

    def _place(self, s: Statement) -> Statement:
        """A statement of the recurrence, over new positions."""
        place = place_in_time(s.subscripts[self.axis])
        assert place is not None
        t, added = place
        offset, own = self.offsets[s.target], self.ranges.statements[s.name].indices
        element = simplify(self.direction * (Index(t) - offset)) if t is not None else added
        back = {} if t is None else {t: simplify(element - added)}

        def change(e: Expr) -> Expr:
            return simplify_value(substitute(self._move_reads(e), back))

        subscripts = list(map(change, s.subscripts))
        subscripts[self.axis] = simplify(self.direction * added + offset) if t is None else Index(t)
        where: list[RangeClause | Condition] = []
        for i in s.indices:
            lower, upper = own[i].lower, upper_end(own[i])
            if i == t:
                ends = [simplify(self.direction * (e + added) + offset) for e in (lower, simplify(upper - 1))]
                lower, upper = ends[:: self.direction][0], simplify(ends[:: self.direction][1] + 1)
            where.append(RangeClause(i, lower, upper, s.span))
        where += [Condition(simplify(change(test)), s.span) for w in s.where for test in tests_of(w)]
        made = replace(
            s,
            target=self.names[s.target],
            subscripts=tuple(subscripts),
            value=change(s.value),
            where=tuple(where),
            reduction=None,
        )
        if s.reduction is not None:
            names = dict(zip(s.element_names, map(Index, made.element_names), strict=True))
            axis_name = s.element_names[self.axis]
            names[axis_name] = simplify(self.direction * (Index(made.element_names[self.axis]) - offset))  # type: ignore[assignment]
            made = replace(made, reduction=replace(s.reduction, init=substitute(self._move_reads(s.reduction.init), names)))
        return made
